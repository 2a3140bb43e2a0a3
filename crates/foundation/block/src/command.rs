//! The relation of a command in progress to the medium, for both protocols.
//!
//! A command never touches the medium: it hands an [`Operation`](crate::operation::Operation) and its
//! [`DataLocation`] to its driver, and goes on with a [`CommandEvent`].

use std::ops::Range;

use crate::operation::{MediaError, Reply};

/// Where the data of an operation comes from or goes to. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
    None,
    /// From the data that came with the command.
    DataOut {
        start: usize,
        length: usize,
    },
    /// To the peer, unseen by the command.
    DataIn {
        length: usize,
    },
    /// From or to the scratch memory.
    Scratch {
        start: usize,
        length: usize,
    },
}

impl DataLocation {
    /// Its bytes, in the memory that they lie in.
    #[inline]
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        match self {
            Self::None => 0..0,
            Self::DataIn { length } => 0..length,
            Self::DataOut { start, length } | Self::Scratch { start, length } => {
                start..start + length
            }
        }
    }
}

/// Why a command in progress goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEvent {
    /// It begins, or begins anew after it waited: all data there will be from the peer have arrived.
    Start,
    /// The range that it wanted for itself is its own until it completes.
    Locked,
    /// Its operation on the medium ended.
    Media(Result<Reply, MediaError>),
    /// Whether what it wanted stored was: reservations, or that its unit is being sanitized.
    Persisted(bool),
    /// The commands of others that it wanted aborted are no more.
    TasksAborted,
}
