//! What is wrong with a volume as a whole.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::VolumeError;

/// The state of a volume. It only gets worse while the volume is open: only whoever opens it again
/// has had the chance to look at what is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    #[default]
    Sound,
    /// A flush or durable write failed: writes that were acknowledged may be lost. Reads go on.
    Poisoned,
    /// The backing file was removed. Reads go on; what was written would be lost with the process.
    Removed,
    /// The backing object became shorter: data is lost. Blocks below its end cannot be told from
    /// zeros that a later write put there, so nothing is served.
    Shortened,
}

impl Condition {
    const ALL: [Condition; 4] = [
        Condition::Sound,
        Condition::Poisoned,
        Condition::Removed,
        Condition::Shortened,
    ];

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_sound(self) -> bool {
        self == Condition::Sound
    }

    /// Whether writes and flushes are served.
    #[inline]
    pub(crate) fn admit_change(self) -> Result<(), VolumeError> {
        match self {
            Condition::Sound => Ok(()),
            Condition::Poisoned => Err(VolumeError::Poisoned),
            Condition::Removed => Err(VolumeError::Removed),
            Condition::Shortened => Err(VolumeError::Shortened),
        }
    }

    /// Whether reads are served.
    pub(crate) fn admit_read(self) -> Result<(), VolumeError> {
        match self {
            Condition::Sound | Condition::Poisoned | Condition::Removed => Ok(()),
            Condition::Shortened => Err(VolumeError::Shortened),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Condition::Sound => "sound",
            Condition::Poisoned => "a flush failed, and data may be lost",
            Condition::Removed => "its file was removed, and its data is lost with this process",
            Condition::Shortened => "what it is stored in became shorter, and data is lost",
        })
    }
}

/// The condition of an open volume, shared by all that use it.
#[derive(Debug, Default)]
pub(crate) struct ConditionCell(AtomicU8);

impl ConditionCell {
    #[inline]
    pub(crate) fn get(&self) -> Condition {
        Condition::ALL[usize::from(self.0.load(Ordering::Acquire))]
    }

    /// Notes something that is wrong. `true`: it is worse than what was known.
    pub(crate) fn worsen(&self, to: Condition) -> bool {
        self.0.fetch_max(to as u8, Ordering::AcqRel) < to as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_only_gets_worse_and_each_is_news_once() {
        let cell = ConditionCell::default();
        assert!(cell.get().is_sound());
        for condition in &Condition::ALL[1..] {
            assert!(cell.worsen(*condition));
            assert!(!cell.worsen(*condition));
            assert_eq!(cell.get(), *condition);
        }
        assert!(!cell.worsen(Condition::Poisoned));
        assert_eq!(cell.get(), Condition::Shortened);
    }
}
