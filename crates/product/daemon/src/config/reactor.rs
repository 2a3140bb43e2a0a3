//! How event loops wait, share their cores, and share connections: keys of `[engine]`.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use super::suggest;

/// Whether event loops poll before they fall asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// While it has been paying lately.
    #[default]
    Auto,
    /// Never.
    Off,
    /// For so many microseconds each time.
    For(u32),
}

/// Percentage of each core's time that polling may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuBudget(pub u8);

impl Default for CpuBudget {
    fn default() -> Self {
        Self(100)
    }
}

/// Whether large reads and writes of files are made on other cores than that of their event loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// While one connection has more to do than one core gives, and it pays.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Always.
    Always,
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
    /// `spin`
    pub spin: Option<Spin>,
    /// `cpu-budget`
    pub cpu_budget: Option<CpuBudget>,
    /// `rebalance`
    pub rebalance: Option<bool>,
    /// `spread`
    pub spread: Option<Spread>,
    /// `busy-poll`
    pub busy_poll: Option<BusyPoll>,
    /// `prefer-busy-poll`
    pub prefer_busy_poll: Option<bool>,
    /// `priority`
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
        max = Spin::MAX_US,
        meant = suggest::did_you_mean(.0, &["auto", "off"])
    )]
    Spin(String),
    /// Not a percentage.
    #[error("`{0}` is not a budget; use a percentage from 0 to 100")]
    CpuBudget(String),
    /// Not a way to spread.
    #[error(
        "`{0}` is not a value of spread; use auto, off or always{meant}",
        meant = suggest::did_you_mean(.0, &["auto", "off", "always"])
    )]
    Spread(String),
    /// Not a time to poll for.
    #[error(
        "`{0}` is not a polling time; use a number of microseconds up to {max}",
        max = BusyPoll::MAX_US
    )]
    BusyPoll(String),
    /// Not a priority.
    #[error("`{0}` is not a priority; use a number from 0 to {max}", max = Priority::MAX)]
    Priority(String),
}

impl Spin {
    /// The longest that can be asked for.
    pub const MAX_US: u32 = 10_000;
}

impl BusyPoll {
    /// The longest that can be asked for.
    pub const MAX_US: u32 = 10_000;
}

impl Priority {
    /// Beyond 15 queueing disciplines and cards know none.
    pub const MAX: u32 = 15;
}

impl FromStr for Spin {
    type Err = ReactorError;

    fn from_str(text: &str) -> Result<Self, ReactorError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match number(text, Self::MAX_US) {
                Some(0) => Ok(Self::Off),
                Some(microseconds) => Ok(Self::For(microseconds)),
                None => Err(ReactorError::Spin(text.to_owned())),
            },
        }
    }
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

impl FromStr for Spread {
    type Err = ReactorError;

    fn from_str(text: &str) -> Result<Self, ReactorError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "always" => Ok(Self::Always),
            _ => Err(ReactorError::Spread(text.to_owned())),
        }
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

deserialize_from_word!(Spin, CpuBudget, Spread, BusyPoll, Priority);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_to_spin_are_read() {
        assert_eq!("auto".parse(), Ok(Spin::Auto));
        assert_eq!("off".parse(), Ok(Spin::Off));
        assert_eq!("0".parse(), Ok(Spin::Off));
        assert_eq!("25".parse(), Ok(Spin::For(25)));
        for text in ["", "on", "-1", "+1", "1.5", "10001"] {
            assert!(text.parse::<Spin>().is_err(), "{text}");
        }
    }

    #[test]
    fn ways_to_spread_are_read() {
        assert_eq!("auto".parse(), Ok(Spread::Auto));
        assert_eq!("off".parse(), Ok(Spread::Off));
        assert_eq!("always".parse(), Ok(Spread::Always));
        for text in ["", "Auto", "true", "1"] {
            assert!(text.parse::<Spread>().is_err(), "{text}");
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
        #[derive(Deserialize)]
        struct Table {
            spin: Vec<Spin>,
        }
        let table: Table = toml::from_str("spin = [\"auto\", 20, \"20\"]").unwrap();
        assert_eq!(table.spin, [Spin::Auto, Spin::For(20), Spin::For(20)]);
        assert!(toml::from_str::<Table>("spin = [true]").is_err());
    }
}
