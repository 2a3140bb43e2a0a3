//! Set-ups of published work.

use crate::parts_file::PartsFile;

/// Names of the presets, and their files.
pub const PRESETS: &[(&str, &str)] = &[
    (
        "guerri-wireless",
        include_str!("../presets/guerri-wireless.toml"),
    ),
    (
        "guerri-wired-hdd",
        include_str!("../presets/guerri-wired-hdd.toml"),
    ),
    (
        "guerri-wired-ssd",
        include_str!("../presets/guerri-wired-ssd.toml"),
    ),
    ("scst-10ms", include_str!("../presets/scst-10ms.toml")),
    (
        "butterfield-2017",
        include_str!("../presets/butterfield-2017.toml"),
    ),
];

/// A preset by its name.
#[must_use]
pub fn preset(name: &str) -> Option<PartsFile> {
    let (_, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(PartsFile::parse(text, name).expect("the presets are in order"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_in_order_and_has_a_title() {
        for (name, _) in PRESETS {
            let file = preset(name).unwrap();
            assert!(!file.title.is_empty(), "{name}");
        }
        assert!(preset("guerri").is_none());
    }
}
