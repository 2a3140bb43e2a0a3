//! How a command ends: a status, and sense data with CHECK CONDITION.

use crate::sense::{Sense, SenseBytes, SenseFormat};
use crate::status::Status;

/// How a command ended. Data-in is in [`Buffers::data_in`](crate::command::Buffers::data_in), or was read to [`DataLocation::DataIn`](longshore_block::command::DataLocation::DataIn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    pub status: Status,
    /// Present with CHECK CONDITION.
    pub sense: Option<Sense>,
    /// How the sense data is to be encoded.
    pub sense_format: SenseFormat,
}

impl Completion {
    pub const GOOD: Self = Self::status(Status::GOOD);

    /// A status without sense data.
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            sense: None,
            sense_format: SenseFormat::Fixed,
        }
    }

    /// CHECK CONDITION with sense data.
    pub const fn check_condition(sense: Sense) -> Self {
        Self {
            status: Status::CHECK_CONDITION,
            sense: Some(sense),
            sense_format: SenseFormat::Fixed,
        }
    }

    /// Encoded sense data, if there is any.
    pub fn sense_bytes(&self) -> Option<SenseBytes> {
        self.sense.map(|sense| sense.to_bytes(self.sense_format))
    }
}

impl From<Sense> for Completion {
    fn from(sense: Sense) -> Self {
        Self::check_condition(sense)
    }
}

impl From<Status> for Completion {
    fn from(status: Status) -> Self {
        Self::status(status)
    }
}
