//! When responses leave: the keys of `[engine]`, their options and their environment variables.
//!
//! The command line wins over the file, and the file over the environment. The file is read again at SIGHUP, so
//! that all of this can be changed while connections are up.

use std::fmt;
use std::str::FromStr;

pub use longshore_server::config::{
    NagleCycles, NagleThreshold, SendUnit, TransmitConfig, TransmitPolicy,
};
use serde::de::{Deserializer, Error, Visitor};

use super::problem::{Problem, ProblemKind};

/// What one place says; `None` is "nothing".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransmitKeys {
    pub policy: Option<TransmitPolicy>,
    pub nagle_threshold: Option<NagleThreshold>,
    pub nagle_margin: Option<u32>,
    pub nagle_cycles: Option<NagleCycles>,
    pub send: Option<SendUnit>,
}

impl TransmitKeys {
    /// What the environment says. The variables are those of the target that Adaptive Nagle was first built into.
    pub(super) fn from_environment(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        Ok(Self {
            nagle_threshold: number(&variable, "nagle_threshold")?,
            nagle_margin: number(&variable, "nagle_margin")?,
            ..Self::default()
        })
    }

    pub(super) fn apply(&self, config: &mut TransmitConfig) {
        replace(&mut config.policy, self.policy);
        replace(&mut config.nagle_threshold, self.nagle_threshold);
        replace(&mut config.nagle_margin, self.nagle_margin);
        replace(&mut config.nagle_cycles, self.nagle_cycles);
        replace(&mut config.send, self.send);
    }
}

fn replace<T>(value: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *value = given;
    }
}

fn number<T: FromStr>(
    variable: impl Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<Option<T>, Problem> {
    let Some(text) = variable(name) else {
        return Ok(None);
    };
    match text.trim().parse() {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(Problem::general(ProblemKind::Environment { name, text })),
    }
}

/// Reads `nagle-threshold`: a number, or a word.
pub(super) fn threshold<'de, D>(deserializer: D) -> Result<Option<NagleThreshold>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Threshold;

    impl Visitor<'_> for Threshold {
        type Value = NagleThreshold;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of requests, or \"infinite\"")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<NagleThreshold, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<NagleThreshold, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<NagleThreshold, E> {
            text.parse().map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Threshold).map(Some)
}
