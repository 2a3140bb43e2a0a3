//! Whether payload is sent without copying it.

use std::str::FromStr;

use serde::Deserialize;

/// Whether something that saves copies is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByReference {
    /// Where it is safe, and pays.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Wherever it is possible.
    Always,
}

/// Another word than those.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not auto, off or always")]
pub struct ByReferenceError(String);

impl FromStr for ByReference {
    type Err = ByReferenceError;

    fn from_str(text: &str) -> Result<Self, ByReferenceError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "always" => Ok(Self::Always),
            _ => Err(ByReferenceError(text.to_owned())),
        }
    }
}

impl<'de> Deserialize<'de> for ByReference {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_are_known() {
        assert_eq!("auto".parse(), Ok(ByReference::Auto));
        assert_eq!("off".parse(), Ok(ByReference::Off));
        assert_eq!("always".parse(), Ok(ByReference::Always));
        let error = "on".parse::<ByReference>().unwrap_err();
        assert_eq!(error.to_string(), "`on` is not auto, off or always");
    }
}
