//! Settings that are one of some words, of the file and of the command line.

use longshore_reactor::engine::EngineChoice;
use longshore_sandbox::Mode as Sandbox;
use longshore_server::config::{
    ByReference, NagleCycles, SendUnit, Spread, TransmitPolicy, UnknownWord,
};
use serde::de::{Deserializer, Error};

use super::copies::RegisteredBuffers;
use super::suggest;

/// A setting that is one of some words.
pub trait Words: Sized {
    /// The words, for suggestions.
    const KNOWN: &[&str];

    /// Reads one.
    ///
    /// # Errors
    /// What can stand there.
    fn read(text: &str) -> Result<Self, String>;
}

/// Types whose words are known where they are defined, because reports show them, too.
macro_rules! shown {
    ($($type:ty: $($word:literal),+;)+) => {$(
        impl Words for $type {
            const KNOWN: &[&str] = &[$($word),+];

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: UnknownWord| error.to_string())
            }
        }
    )+};
}

shown! {
    TransmitPolicy: "auto", "nodelay", "nagle", "adaptive-nagle";
    NagleCycles: "paper", "corrected";
    SendUnit: "response", "turn";
}

/// Types that have words here alone.
macro_rules! words {
    ($($type:ty, $what:literal: $($word:literal $(or $other:literal)? => $value:expr),+;)+) => {$(
        impl Words for $type {
            const KNOWN: &[&str] = &[$($word),+];

            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $($word $(| $other)? => Ok($value),)+
                    _ => Err(format!("`{text}` is not {}", $what)),
                }
            }
        }
    )+};
}

words! {
    EngineChoice, "an engine; use auto, io_uring or epoll":
        "auto" => Self::Auto, "io_uring" or "io-uring" => Self::IoUring, "epoll" => Self::Epoll;
    ByReference, "a value of this setting; use auto, off or always":
        "auto" => Self::Auto, "off" => Self::Off, "always" => Self::Always;
    RegisteredBuffers, "a value of this setting; use auto or off":
        "auto" => Self::Auto, "off" => Self::Off;
    Sandbox, "a value of this setting; use auto, off or strict":
        "auto" => Self::Auto, "off" => Self::Off, "strict" => Self::Strict;
    Spread, "a value of spread; use auto, off or always":
        "auto" => Self::Auto, "off" => Self::Off, "always" => Self::Always;
}

/// Reads a word, and proposes another one where it is unknown.
///
/// # Errors
/// What can stand there.
pub fn parse<T: Words>(text: &str) -> Result<T, String> {
    T::read(text).map_err(|error| format!("{error}{}", suggest::did_you_mean(text, T::KNOWN)))
}

/// Reads a key whose value is one of some words.
pub(super) fn word<'de, D: Deserializer<'de>, T: Words>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = <String as serde::Deserialize>::deserialize(deserializer)?;
    parse(&text).map(Some).map_err(Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_word_is_read() {
        fn check<T: Words>() {
            for word in T::KNOWN {
                assert!(parse::<T>(word).is_ok(), "{word}");
            }
            for word in ["", "Auto", "true", "1", "kqueue"] {
                assert!(parse::<T>(word).is_err(), "{word}");
            }
        }
        check::<TransmitPolicy>();
        check::<NagleCycles>();
        check::<SendUnit>();
        check::<EngineChoice>();
        check::<ByReference>();
        check::<RegisteredBuffers>();
        check::<Spread>();
        check::<Sandbox>();
        assert_eq!(parse("io-uring"), Ok(EngineChoice::IoUring));
        assert_eq!(parse("always"), Ok(ByReference::Always));
        assert_eq!(parse("off"), Ok(RegisteredBuffers::Off));
        assert_eq!(parse("always"), Ok(Spread::Always));
    }

    #[test]
    fn an_unknown_word_is_answered_by_what_can_stand_there() {
        assert_eq!(
            parse::<ByReference>("on").unwrap_err(),
            "`on` is not a value of this setting; use auto, off or always"
        );
        assert_eq!(
            parse::<RegisteredBuffers>("always").unwrap_err(),
            "`always` is not a value of this setting; use auto or off"
        );
        assert_eq!(
            parse::<EngineChoice>("epol").unwrap_err(),
            "`epol` is not an engine; use auto, io_uring or epoll; did you mean `epoll`?"
        );
    }
}
