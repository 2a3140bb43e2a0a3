//! Limits of a volume as asked for: operations and bytes per second.

use std::str::FromStr;
use std::time::Duration;

use longshore_volume::RateLimits;
use serde::{Deserialize, Deserializer, de};

use super::size::{Size, Span};

/// The longest time that a volume may save, in seconds.
const BURST_SECONDS_MAX: u64 = 60;

/// Operations per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Why a limit is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    #[error(
        "`{0}` is not a number of operations per second; use 1 or more, or leave it out for no limit"
    )]
    Rate(String),
    #[error("a limit of 0 bytes admits no operation; use 1 or more, or leave it out for no limit")]
    NoBytes,
    #[error("the burst is too long; use at most {BURST_SECONDS_MAX} seconds")]
    Burst,
}

impl FromStr for Rate {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let rate = text.parse().ok().filter(|rate| *rate > 0);
        rate.map(Self)
            .ok_or_else(|| LimitError::Rate(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = i64::deserialize(deserializer)?;
        number.to_string().parse().map_err(de::Error::custom)
    }
}

/// The limits of a volume as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSettings {
    pub iops: Option<Rate>,
    pub read_iops: Option<Rate>,
    pub write_iops: Option<Rate>,
    pub bytes: Option<Size>,
    pub read_bytes: Option<Size>,
    pub write_bytes: Option<Size>,
    pub burst: Option<Span>,
}

impl LimitSettings {
    /// What numbers alone do not show.
    ///
    /// # Errors
    /// A limit that lets nothing through, or a burst that is none.
    pub fn check(&self) -> Result<(), LimitError> {
        let sizes = [self.bytes, self.read_bytes, self.write_bytes];
        if sizes.contains(&Some(Size(0))) {
            return Err(LimitError::NoBytes);
        }
        let longest = Duration::from_secs(BURST_SECONDS_MAX);
        if self.burst.is_some_and(|burst| burst.0 > longest) {
            return Err(LimitError::Burst);
        }
        Ok(())
    }

    #[must_use]
    pub fn limits(&self) -> RateLimits {
        let rate = |rate: Option<Rate>| rate.map(|rate| rate.0);
        let size = |size: Option<Size>| size.map(|size| size.0);
        RateLimits {
            iops: rate(self.iops),
            read_iops: rate(self.read_iops),
            write_iops: rate(self.write_iops),
            bytes: size(self.bytes),
            read_bytes: size(self.read_bytes),
            write_bytes: size(self.write_bytes),
            burst: self.burst.map(|burst| burst.0),
        }
    }
}
