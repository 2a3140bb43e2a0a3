//! What the driver of a connection sees of commands: entries in, completions out.

pub use longshore_wire::transmit::Payload;

use crate::command::SubmissionEntry;
use crate::status::Status;

/// Dense number of a command of this connection: `0..Connection::capacity()`, reused after the command has
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommandSlot(pub u32);

impl CommandSlot {
    /// The number as an index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A command that has come in. Its data pointer has been checked; everything else is the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedCommand {
    /// Names the command until it is completed.
    pub slot: CommandSlot,
    pub entry: SubmissionEntry,
    /// How its data move.
    pub data: DataTransfer,
}

/// How the data of a command move, by its opcode and its SGL. None of the lengths is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTransfer {
    None,
    /// To the controller, in the capsule: they come right behind the command.
    InCapsule {
        length: u32,
    },
    /// To the controller, when it asks for them.
    ToController {
        length: u32,
    },
    ToHost {
        /// Bytes the host has room for.
        length: u32,
    },
}

impl DataTransfer {
    /// Bytes the host has, or has room for.
    #[inline]
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::InCapsule { length }
            | Self::ToController { length }
            | Self::ToHost { length } => length,
        }
    }
}

/// How a command ends.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    pub status: Status,
    /// Dwords 0 and 1 of the completion queue entry.
    pub result: u64,
    /// Data for the host; what its SGL has no room for is cut off.
    pub data: Payload<'a>,
}

impl Completion<'_> {
    /// A completion with a status and no result.
    #[must_use]
    pub const fn status(status: Status) -> Self {
        Self {
            status,
            result: 0,
            data: Payload::None,
        }
    }
}

/// Where the next bytes of the connection belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadWanted {
    /// Into the data of this command,
    pub slot: CommandSlot,
    pub buffer_offset: u32,
    /// and at most so many bytes.
    pub length: u32,
    /// They answer an R2T.
    pub solicited: bool,
}

/// What Connect settled about the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueParameters {
    /// QID; 0 is the admin queue.
    pub id: u16,
    /// Entries of the submission queue, SQSIZE + 1: so many commands can be outstanding.
    pub entries: u16,
    /// SQ flow control is in use: SQHD counts, and each command ends with a response capsule.
    pub flow_control: bool,
}
