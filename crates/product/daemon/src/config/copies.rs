//! Whether payload is sent without copying it, and its memory registered with the kernel.

use std::str::FromStr;

use super::suggest;

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
#[error(
    "`{0}` is not a value of this setting; use auto, off or always{meant}",
    meant = suggest::did_you_mean(.0, &["auto", "off", "always"])
)]
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

/// Whether memory of direct volumes is registered with io_uring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegisteredBuffers {
    /// Where that pays.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// Another word than those.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a value of this setting; use auto or off{meant}", meant = suggest::did_you_mean(.0, &["auto", "off"]))]
pub struct RegisteredBuffersError(String);

impl FromStr for RegisteredBuffers {
    type Err = RegisteredBuffersError;

    fn from_str(text: &str) -> Result<Self, RegisteredBuffersError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(RegisteredBuffersError(text.to_owned())),
        }
    }
}

deserialize_from_str!(RegisteredBuffers, ByReference);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_words_are_known() {
        assert_eq!("auto".parse(), Ok(ByReference::Auto));
        assert_eq!("off".parse(), Ok(ByReference::Off));
        assert_eq!("always".parse(), Ok(ByReference::Always));
        let error = "on".parse::<ByReference>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`on` is not a value of this setting; use auto, off or \
             always"
        );
    }

    #[test]
    fn memory_is_registered_or_not() {
        assert_eq!("auto".parse(), Ok(RegisteredBuffers::Auto));
        assert_eq!("off".parse(), Ok(RegisteredBuffers::Off));
        let error = "always".parse::<RegisteredBuffers>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`always` is not a value of this setting; use auto or off"
        );
    }
}
