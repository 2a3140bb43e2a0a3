//! How slow a volume is to be: `delay` and `rate`, for tests and demonstrations.

use std::str::FromStr;
use std::time::Duration;

use longshore_volume::layer::slow::SlowSpec;
use serde::{Deserialize, Deserializer, de};

use super::size::Size;

/// The longest delay: hosts give up after thirty seconds.
const DELAY_MAX: Duration = Duration::from_secs(10);

/// A duration with a unit, of microseconds too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay(pub Duration);

/// Why it is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlowError {
    #[error("`{0}` is not a delay; write for example 200us, 5ms or 1s, at most 10s")]
    Delay(String),
    #[error("a rate of no bytes lets nothing through; use 1 or more, or leave it out")]
    NoBytes,
}

impl FromStr for Delay {
    type Err = SlowError;

    fn from_str(text: &str) -> Result<Self, SlowError> {
        let wrong = || SlowError::Delay(text.to_owned());
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit());
        let (number, unit) = trimmed.split_at(split.ok_or_else(wrong)?);
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let micros = match unit.trim() {
            "us" | "µs" => Some(number),
            "ms" => number.checked_mul(1000),
            "s" => number.checked_mul(1_000_000),
            _ => None,
        };
        let delay = Duration::from_micros(micros.ok_or_else(wrong)?);
        if delay > DELAY_MAX {
            return Err(wrong());
        }
        Ok(Self(delay))
    }
}

impl<'de> Deserialize<'de> for Delay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// What was written of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowSettings {
    pub delay: Option<Delay>,
    /// Bytes per second; no limit if absent.
    pub rate: Option<Size>,
    /// Other machines may reach it, slow as it is.
    pub anywhere: Option<bool>,
}

impl SlowSettings {
    /// What numbers alone do not show.
    ///
    /// # Errors
    /// A rate that lets nothing through.
    pub fn check(&self) -> Result<(), SlowError> {
        if self.rate == Some(Size(0)) {
            return Err(SlowError::NoBytes);
        }
        Ok(())
    }

    #[must_use]
    pub fn specification(&self) -> SlowSpec {
        SlowSpec {
            delay: self.delay.map_or(Duration::ZERO, |delay| delay.0),
            rate: self.rate.map(|rate| rate.0),
            anywhere: self.anywhere.unwrap_or(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_has_a_unit_and_is_ten_seconds_at_most() {
        let parse = |text: &str| text.parse::<Delay>().map(|delay| delay.0.as_micros());
        assert_eq!(parse("200us"), Ok(200));
        assert_eq!(parse("200 µs"), Ok(200));
        assert_eq!(parse("5ms"), Ok(5_000));
        assert_eq!(parse("10s"), Ok(10_000_000));
        for wrong in ["", "5", "ms", "11s", "1m", "-1ms", "18446744073709551615s"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
