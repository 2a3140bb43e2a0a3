//! Sizes and durations with units, as people write them.
//!
//! A size is a number of bytes with an optional unit of powers of 1024: `K`, `M`, `G`, `T`, `P`,
//! each also as `KiB` or `KB`, in either case. A fraction is accepted where it comes to whole
//! bytes (`1.5G`). A duration is a number with `ms`, `s`, `m` or `h`; without a unit it is seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("a size is missing; write for example 10G, 512M or a number of bytes")]
    Empty,
    /// The number in front of the unit is not one.
    #[error("`{0}` is not a size; write for example 10G, 512M or a number of bytes")]
    NotANumber(String),
    /// The unit is not known.
    #[error("`{0}` is not a unit of size; units are K, M, G, T and P (powers of 1024)")]
    UnknownUnit(String),
    /// A fraction of a byte.
    #[error("`{0}` does not come to a whole number of bytes")]
    NotWhole(String),
    /// More than 2^63 - 1 bytes, which no file offset can name.
    #[error("`{0}` is larger than any volume can be")]
    TooLarge(String),
}

/// Bytes, written with or without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The units in ascending order; each is 1024 times the one before.
const UNITS: [char; 6] = ['B', 'K', 'M', 'G', 'T', 'P'];

impl Size {
    /// Reads a size such as `10G`.
    pub fn parse(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(SizeError::Empty);
        }
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let not_a_number = || SizeError::NotANumber(trimmed.to_owned());
        let too_large = || SizeError::TooLarge(trimmed.to_owned());

        let number = number.replace('_', "");
        let (whole, fraction) = number.split_once('.').unwrap_or((number.as_str(), ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
            return Err(not_a_number());
        }
        let shift = unit_shift(unit.trim())?;
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let mut bytes = whole.checked_mul(1_u128 << shift).ok_or_else(too_large)?;
        if !fraction.is_empty() {
            // 18 digits keep the product below inside u128 and are more than anybody writes.
            if fraction.len() > 18 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
                return Err(not_a_number());
            }
            let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| not_a_number())?);
            let part: u128 = fraction.parse().map_err(|_| not_a_number())?;
            let scaled = part * (1_u128 << shift);
            if !scaled.is_multiple_of(scale) {
                return Err(SizeError::NotWhole(trimmed.to_owned()));
            }
            bytes = bytes.checked_add(scaled / scale).ok_or_else(too_large)?;
        }
        match u64::try_from(bytes) {
            Ok(bytes) if i64::try_from(bytes).is_ok() => Ok(Self(bytes)),
            _ => Err(too_large()),
        }
    }
}

/// Power of two a unit stands for.
fn unit_shift(unit: &str) -> Result<u32, SizeError> {
    let upper = unit.to_ascii_uppercase();
    let letter = upper
        .strip_suffix("IB")
        .or_else(|| upper.strip_suffix('B').filter(|rest| !rest.is_empty()))
        .unwrap_or(&upper);
    let mut shift = 0;
    for known in UNITS {
        if letter.is_empty() || letter.chars().eq([known]) {
            return Ok(shift);
        }
        shift += 10;
    }
    Err(SizeError::UnknownUnit(unit.to_owned()))
}

impl fmt::Display for Size {
    /// The shortest exact form: `10G`, `1536M`, `1000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0;
        let mut unit = 0;
        while value != 0 && value.is_multiple_of(1024) && unit + 1 < UNITS.len() {
            value /= 1024;
            unit += 1;
        }
        write!(f, "{value}")?;
        if unit > 0 {
            write!(f, "{}", UNITS[unit])?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        Self::parse(text)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;

        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"10G\" or a number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                i64::try_from(bytes)
                    .map(|_| Size(bytes))
                    .map_err(|_| E::custom(SizeError::TooLarge(bytes.to_string())))
            }
        }

        deserializer.deserialize_any(SizeVisitor)
    }
}

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write for example 500ms, 15s, 2m, or a number of seconds")]
pub struct SpanError(String);

/// A duration, written with or without a unit. At most a day: nothing here waits longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The longest duration accepted.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Span {
    /// Reads a duration such as `15s`.
    pub fn parse(text: &str) -> Result<Self, SpanError> {
        let trimmed = text.trim();
        let wrong = || SpanError(trimmed.to_owned());
        let split = trimmed
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let millis = match unit.trim() {
            "ms" => Some(number),
            "" | "s" => number.checked_mul(1000),
            "m" | "min" => number.checked_mul(60_000),
            "h" => number.checked_mul(3_600_000),
            _ => None,
        };
        let duration = Duration::from_millis(millis.ok_or_else(wrong)?);
        if duration > LONGEST {
            Err(wrong())
        } else {
            Ok(Self(duration))
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SpanVisitor;

        impl Visitor<'_> for SpanVisitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"15s\" or a number of seconds")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                Span::parse(text).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Span, E> {
                Span::parse(&seconds.to_string()).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(SpanVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1024_in_any_common_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("1000", 1000),
            ("512B", 512),
            ("1K", 1024),
            ("1k", 1024),
            ("1KB", 1024),
            ("1KiB", 1024),
            ("512M", 512 << 20),
            ("10G", 10 << 30),
            ("10 GiB", 10 << 30),
            ("1T", 1 << 40),
            ("1P", 1 << 50),
            ("1.5G", 3 << 29),
            ("1_000", 1000),
        ] {
            assert_eq!(Size::parse(text), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_says_why() {
        assert_eq!(Size::parse(""), Err(SizeError::Empty));
        assert_eq!(Size::parse("G"), Err(SizeError::NotANumber("G".into())));
        assert_eq!(Size::parse("-1"), Err(SizeError::NotANumber("-1".into())));
        assert_eq!(Size::parse("10X"), Err(SizeError::UnknownUnit("X".into())));
        assert_eq!(
            Size::parse("10Gi"),
            Err(SizeError::UnknownUnit("Gi".into()))
        );
        assert_eq!(Size::parse("1."), Err(SizeError::NotANumber("1.".into())));
        assert_eq!(Size::parse("0.3K"), Err(SizeError::NotWhole("0.3K".into())));
        assert_eq!(
            Size::parse("1.2.3K"),
            Err(SizeError::NotANumber("1.2.3K".into()))
        );
        assert_eq!(
            Size::parse("8192P"),
            Err(SizeError::TooLarge("8192P".into()))
        );
        assert!(Size::parse("340282366920938463463374607431768211456P").is_err());
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, millis) in [
            ("500ms", 500),
            ("15s", 15_000),
            ("15", 15_000),
            ("2m", 120_000),
        ] {
            assert_eq!(
                Span::parse(text),
                Ok(Span(Duration::from_millis(millis))),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "1.5s",
            "-1",
            "1 day",
            "25h",
            "99999999999999999999h",
        ] {
            assert!(Span::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back_as_itself(bytes in 0..i64::MAX.unsigned_abs()) {
            prop_assert_eq!(Size::parse(&Size(bytes).to_string()), Ok(Size(bytes)));
        }

        #[test]
        fn any_text_is_answered_without_panic(text in ".{0,24}") {
            let _ = Size::parse(&text);
            let _ = Span::parse(&text);
        }
    }
}
