//! The comparison of the volume behind a path with the opened one.

use std::collections::BTreeMap;

use crate::info::VolumeInfo;

/// Why this is not the volume that was opened; `None`: it is.
pub(super) fn difference(known: &VolumeInfo, found: &VolumeInfo) -> Option<String> {
    if known.block_size != found.block_size {
        return Some(format!(
            "it has blocks of {} bytes, the volume that was opened has {}",
            found.block_size, known.block_size
        ));
    }
    // A peer that names its volumes in no way at all leaves what it looks like.
    let is_nameless = |info: &VolumeInfo| info.identifiers.is_empty() && info.serial.is_empty();
    let look = |info: &VolumeInfo| (info.vendor.clone(), info.product.clone(), info.block_count);
    let is_same = known.is_same_volume(found)
        || (is_nameless(known) && is_nameless(found) && look(known) == look(found));
    (!is_same).then(|| {
        format!(
            "it is {}, the volume that was opened is {}",
            names(found),
            names(known)
        )
    })
}

/// A volume's names, for people.
fn names(info: &VolumeInfo) -> String {
    // By kind, so that two lists can be compared at a glance.
    let by_kind: BTreeMap<_, _> = info
        .identifiers
        .iter()
        .map(|identifier| (&identifier.kind, &identifier.value))
        .collect();
    let mut text: Vec<_> = by_kind
        .into_iter()
        .map(|(kind, value)| format!("{kind} {value}"))
        .collect();
    if text.is_empty() {
        text.push(format!(
            "{} {} serial {:?}",
            info.vendor, info.product, info.serial
        ));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::info;
    use super::*;
    use crate::info::Identifier;

    #[test]
    fn one_name_in_common_is_enough_and_size_does_not_matter() {
        let mut grown = info();
        grown.block_count *= 2;
        grown.identifiers.push(Identifier {
            kind: "t10".to_owned(),
            value: "new".to_owned(),
        });
        assert_eq!(difference(&info(), &grown), None);
    }

    #[test]
    fn another_name_or_block_size_is_another_volume() {
        let mut other = info();
        other.identifiers[0].value = "theirs".to_owned();
        let reason = difference(&info(), &other).unwrap();
        assert!(reason.contains("naa theirs"), "{reason}");
        let mut other = info();
        other.block_size = 4096;
        let reason = difference(&info(), &other).unwrap();
        assert!(reason.contains("4096"), "{reason}");
    }

    #[test]
    fn volumes_without_names_are_known_by_their_look() {
        let mut nameless = info();
        nameless.identifiers.clear();
        nameless.serial.clear();
        assert_eq!(difference(&nameless, &nameless), None);
        let mut larger = nameless.clone();
        larger.block_count += 1;
        assert!(difference(&nameless, &larger).is_some());
        assert!(difference(&nameless, &info()).is_some());
    }
}
