//! What can be set about when responses leave.

use std::fmt;
use std::str::FromStr;

/// When finished responses leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransmitPolicy {
    /// What is ready at the end of a turn leaves in one send, at once.
    #[default]
    Auto,
    /// Nothing waits for company in the kernel (TCP_NODELAY).
    #[serde(rename = "nodelay")]
    NoDelay,
    /// The kernel holds back a partial segment while sent data is unacknowledged (RFC 896).
    Nagle,
    /// One or the other, by whether the connection keeps its thread busy.
    AdaptiveNagle,
}

/// Requests without a pause before a connection counts as busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NagleThreshold {
    /// So many. 0: Nagle always, and nothing is flushed when the connection goes idle.
    Requests(u32),
    /// No number of requests makes a connection busy: Nagle stays off.
    Infinite,
}

/// What is expected of a busy period (a cycle) that began with Nagle enabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NagleCycles {
    /// Threshold and margin, like of any other. So the authors have published it.
    #[default]
    Paper,
    /// The margin alone: there was nothing to wait for before Nagle was enabled.
    Corrected,
}

/// What leaves with one send under the policies that leave the rest to the kernel. `auto` always sends once a
/// turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendUnit {
    /// Each response by itself, as soon as it is ready.
    #[default]
    Response,
    /// All responses of a turn.
    Turn,
}

/// When responses leave. Can be changed while connections are up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmitConfig {
    pub policy: TransmitPolicy,
    /// Threshold of [`TransmitPolicy::AdaptiveNagle`] for a busy connection.
    pub nagle_threshold: NagleThreshold,
    /// Of the same: requests by which the threshold must be exceeded for Nagle to stay enabled.
    pub nagle_margin: u32,
    /// How `adaptive-nagle` judges a cycle that began with Nagle enabled.
    pub nagle_cycles: NagleCycles,
    /// Under all policies but `auto`.
    pub send: SendUnit,
}

impl Default for TransmitConfig {
    fn default() -> Self {
        Self {
            policy: TransmitPolicy::default(),
            nagle_threshold: NagleThreshold::Requests(96),
            nagle_margin: 40,
            nagle_cycles: NagleCycles::default(),
            send: SendUnit::default(),
        }
    }
}

impl TransmitConfig {
    /// Whether each response is sent by itself.
    pub(crate) fn sends_each_response(&self) -> bool {
        self.policy != TransmitPolicy::Auto && self.send == SendUnit::Response
    }
}

/// A word that is none of those that can stand there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not {wanted}")]
pub struct UnknownWord {
    found: String,
    wanted: &'static str,
}

/// Reads and writes an enumeration by a table of words.
macro_rules! words {
    ($type:ty, $wanted:literal, $($word:literal => $value:expr),+ $(,)?) => {
        impl FromStr for $type {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(UnknownWord { found: text.to_owned(), wanted: $wanted }),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if *self == $value {
                    return f.write_str($word);
                })+
                Ok(())
            }
        }
    };
}

words!(TransmitPolicy, "a transmit policy; it is auto, nodelay, nagle or adaptive-nagle",
    "auto" => Self::Auto,
    "nodelay" => Self::NoDelay,
    "nagle" => Self::Nagle,
    "adaptive-nagle" => Self::AdaptiveNagle,
);
words!(NagleCycles, "a way to measure cycles; it is paper or corrected",
    "paper" => Self::Paper,
    "corrected" => Self::Corrected,
);
words!(SendUnit, "what a send can hold; it is response or turn",
    "response" => Self::Response,
    "turn" => Self::Turn,
);

impl FromStr for NagleThreshold {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        if text == "infinite" {
            return Ok(Self::Infinite);
        }
        text.parse().map(Self::Requests).map_err(|_| UnknownWord {
            found: text.to_owned(),
            wanted: "a threshold; it is a number of requests, or infinite",
        })
    }
}

impl fmt::Display for NagleThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requests(count) => count.fmt(f),
            Self::Infinite => f.write_str("infinite"),
        }
    }
}

impl fmt::Display for TransmitConfig {
    /// The policy, with what it goes by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)?;
        if self.policy == TransmitPolicy::AdaptiveNagle {
            write!(
                f,
                ", threshold {}, margin {}, cycles {}",
                self.nagle_threshold, self.nagle_margin, self.nagle_cycles
            )?;
        }
        if self.policy != TransmitPolicy::Auto {
            write!(f, ", a send for each {}", self.send)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for word in ["auto", "nodelay", "nagle", "adaptive-nagle"] {
            assert_eq!(word.parse::<TransmitPolicy>().unwrap().to_string(), word);
        }
        for word in ["paper", "corrected"] {
            assert_eq!(word.parse::<NagleCycles>().unwrap().to_string(), word);
        }
        for word in ["response", "turn"] {
            assert_eq!(word.parse::<SendUnit>().unwrap().to_string(), word);
        }
        for word in ["0", "96", "infinite"] {
            assert_eq!(word.parse::<NagleThreshold>().unwrap().to_string(), word);
        }
    }

    #[test]
    fn an_unknown_word_is_told_with_those_that_are_known() {
        let message = "fast".parse::<TransmitPolicy>().unwrap_err().to_string();
        assert_eq!(
            message,
            "`fast` is not a transmit policy; it is auto, nodelay, nagle or adaptive-nagle"
        );
        for word in ["-1", "4294967296", "never", ""] {
            assert!(word.parse::<NagleThreshold>().is_err(), "{word}");
        }
    }

    #[test]
    fn a_policy_says_what_it_goes_by() {
        let mut config = TransmitConfig::default();
        assert_eq!(config.to_string(), "auto");
        config.policy = TransmitPolicy::AdaptiveNagle;
        assert_eq!(
            config.to_string(),
            "adaptive-nagle, threshold 96, margin 40, cycles paper, a send for each response"
        );
    }
}
