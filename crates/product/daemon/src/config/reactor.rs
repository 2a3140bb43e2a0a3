//! How event loops wait, share their cores, and share connections: keys of `[engine]`.

use std::fmt;
use std::str::FromStr;

pub use longshore_server::config::{Spin, Spread};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::suggest;

/// The longest time to spin that can be asked for.
const SPIN_MAX_US: u32 = 10_000;

/// Percentage of each core's time that polling may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBudget(pub u8);

impl Default for CpuBudget {
    fn default() -> Self {
        Self(100)
    }
}

/// Microseconds that receives poll the network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll(pub u32);

/// What the kernel and network cards call the priority of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(pub u32);

/// What one place, the file or the command line, says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorSettings {
    pub spin: Option<Spin>,
    pub cpu_budget: Option<CpuBudget>,
    pub rebalance: Option<bool>,
    pub spread: Option<Spread>,
    pub busy_poll: Option<BusyPoll>,
    pub prefer_busy_poll: Option<bool>,
    pub priority: Option<Priority>,
}

impl ReactorSettings {
    /// What `other` says replaces what this does.
    pub fn replace(&mut self, other: &Self) {
        self.spin = other.spin.or(self.spin);
        self.cpu_budget = other.cpu_budget.or(self.cpu_budget);
        self.rebalance = other.rebalance.or(self.rebalance);
        self.spread = other.spread.or(self.spread);
        self.busy_poll = other.busy_poll.or(self.busy_poll);
        self.prefer_busy_poll = other.prefer_busy_poll.or(self.prefer_busy_poll);
        self.priority = other.priority.or(self.priority);
    }

    /// Whether polling is to take the place of interrupts, and there is none.
    #[must_use]
    pub fn prefers_polling_in_vain(&self) -> bool {
        self.prefer_busy_poll == Some(true) && self.busy_poll.is_none()
    }
}

/// Why a setting is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReactorError {
    /// Not a way to spin.
    #[error(
        "`{0}` is not a value of spin; use auto, off or a number of microseconds up to \
         {max}{meant}",
        max = SPIN_MAX_US,
        meant = suggest::did_you_mean(.0, &["auto", "off"])
    )]
    Spin(String),
    #[error("`{0}` is not a budget; use a percentage from 0 to 100")]
    CpuBudget(String),
    /// Not a time to poll for.
    #[error(
        "`{0}` is not a polling time; use a number of microseconds up to {max}",
        max = BusyPoll::MAX_US
    )]
    BusyPoll(String),
    #[error("`{0}` is not a priority; use a number from 0 to {max}", max = Priority::MAX)]
    Priority(String),
}

impl BusyPoll {
    /// The longest that can be asked for.
    pub const MAX_US: u32 = 10_000;
}

impl Priority {
    /// Beyond 15 queueing disciplines and cards know none.
    pub const MAX: u32 = 15;
}

/// Reads `spin`.
///
/// # Errors
/// What can stand there.
pub fn parse_spin(text: &str) -> Result<Spin, ReactorError> {
    match text {
        "auto" => Ok(Spin::Auto),
        "off" => Ok(Spin::Off),
        _ => match number(text, SPIN_MAX_US) {
            Some(0) => Ok(Spin::Off),
            Some(microseconds) => Ok(Spin::For { microseconds }),
            None => Err(ReactorError::Spin(text.to_owned())),
        },
    }
}

/// Reads the key `spin`: a word or a number.
pub(super) fn spin<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Spin>, D::Error> {
    let word = Word::deserialize(deserializer)?;
    parse_spin(&word.0).map(Some).map_err(Error::custom)
}

impl FromStr for CpuBudget {
    type Err = ReactorError;

    fn from_str(text: &str) -> Result<Self, ReactorError> {
        let percent = number(text.strip_suffix('%').unwrap_or(text), 100);
        percent
            .and_then(|percent| u8::try_from(percent).ok())
            .map(Self)
            .ok_or_else(|| ReactorError::CpuBudget(text.to_owned()))
    }
}

impl FromStr for BusyPoll {
    type Err = ReactorError;

    fn from_str(text: &str) -> Result<Self, ReactorError> {
        number(text, Self::MAX_US)
            .map(Self)
            .ok_or_else(|| ReactorError::BusyPoll(text.to_owned()))
    }
}

impl FromStr for Priority {
    type Err = ReactorError;

    fn from_str(text: &str) -> Result<Self, ReactorError> {
        number(text, Self::MAX)
            .map(Self)
            .ok_or_else(|| ReactorError::Priority(text.to_owned()))
    }
}

/// A number in plain digits.
fn number(text: &str, max: u32) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok()?;
    (digits && number <= max).then_some(number)
}

/// A TOML string or whole number, as text.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordVisitor;

        impl Visitor<'_> for WordVisitor {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word in quotes or a number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Word, E> {
                Ok(Word(number.to_string()))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_owned()))
            }
        }

        deserializer.deserialize_any(WordVisitor)
    }
}

/// Reads a type by its `FromStr`, from a string or a number.
macro_rules! deserialize_from_word {
    ($($name:ty),* $(,)?) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Word::deserialize(deserializer)?.0.parse().map_err(Error::custom)
            }
        }
    )*};
}

deserialize_from_word!(CpuBudget, BusyPoll, Priority);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_spin_are_read() {
        assert_eq!(parse_spin("auto"), Ok(Spin::Auto));
        assert_eq!(parse_spin("off"), Ok(Spin::Off));
        assert_eq!(parse_spin("0"), Ok(Spin::Off));
        assert_eq!(parse_spin("25"), Ok(Spin::For { microseconds: 25 }));
        for text in ["", "on", "-1", "+1", "1.5", "10001"] {
            assert!(parse_spin(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_end_at_a_hundred() {
        assert_eq!("0".parse(), Ok(CpuBudget(0)));
        assert_eq!("100%".parse(), Ok(CpuBudget(100)));
        assert!("101".parse::<CpuBudget>().is_err());
        assert!("%".parse::<CpuBudget>().is_err());
    }

    #[test]
    fn numbers_and_words_of_a_file_are_read() {
        #[derive(Debug, Deserialize)]
        struct Table {
            #[serde(default, deserialize_with = "spin")]
            spin: Option<Spin>,
            cpu_budget: Option<CpuBudget>,
        }
        let read = |text: &str| toml::from_str::<Table>(text);
        let twenty = Some(Spin::For { microseconds: 20 });
        for (text, spin) in [
            ("spin = \"auto\"", Some(Spin::Auto)),
            ("spin = 20", twenty),
            ("spin = \"20\"", twenty),
            ("", None),
        ] {
            assert_eq!(read(text).unwrap().spin, spin);
        }
        assert!(read("spin = true").is_err());
        for text in ["cpu_budget = 50", "cpu_budget = \"50%\""] {
            assert_eq!(read(text).unwrap().cpu_budget, Some(CpuBudget(50)));
        }
    }
}
