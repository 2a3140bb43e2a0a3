//! Checkers: they know what was sent and what was acknowledged, and nothing of how the server works.

pub mod history;

use std::fmt;

use crate::stamp::{Stamp, WriteId};
use crate::time::SECOND;

/// A command that has no answer after this time, and no excuse, never gets one.
pub(crate) const ANSWER_LIMIT: u64 = 120 * SECOND;

/// The server broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A read returned data that was not there at any moment between its command and its answer.
    Read {
        /// Index of the unit.
        unit: usize,
        sector: u64,
        found: Stamp,
        /// What it might have held.
        allowed: Vec<WriteId>,
    },
    /// After a power cut a sector holds what a flush or FUA write had made impossible.
    Lost {
        /// Index of the unit.
        unit: usize,
        sector: u64,
        found: Stamp,
        /// What it might hold.
        allowed: Vec<WriteId>,
    },
    /// After the server process was killed, a sector holds what no reader could have seen.
    Survived {
        /// Index of the unit.
        unit: usize,
        sector: u64,
        found: Stamp,
        /// What it might hold.
        allowed: Vec<WriteId>,
    },
    /// Two COMPARE AND WRITE found the same old data.
    TwoWinners {
        /// Index of the unit.
        unit: usize,
        sector: u64,
        first: WriteId,
        second: WriteId,
    },
    /// COMPARE AND WRITE succeeded although the data it expected was not there.
    ComparedStale {
        /// Index of the unit.
        unit: usize,
        sector: u64,
        expected: Stamp,
    },
    /// COMPARE AND WRITE found a difference where there was none.
    FalseMiscompare {
        /// Index of the unit.
        unit: usize,
        /// First of the sectors to compare.
        sector: u64,
    },
    /// The answer to a command is not one that this command can have.
    Answer {
        /// Which initiator or host.
        party: usize,
        problem: String,
    },
    /// A command was not answered although its session lives.
    Unanswered {
        /// Which initiator or host.
        party: usize,
        command: String,
    },
    /// The target broke the protocol.
    Protocol {
        /// Which initiator or host.
        party: usize,
        /// What its machine says.
        problem: String,
    },
    /// A login was refused, or did not end, without a cause.
    Login {
        /// Which initiator or host.
        party: usize,
        /// What its machine says.
        problem: String,
    },
    /// When all was quiet, something was left.
    Leftover {
        /// Requests to storage so far.
        requests: usize,
        /// Bytes of payload memory in use.
        memory_bytes: usize,
    },
    /// Payload memory was still counted after the server was gone.
    MemoryLeak { bytes: usize },
    /// The server did not come to an end in time.
    NeverEnds,
    /// Not all shards have taken over other exports in time.
    SwitchNeverEnds,
    /// An orderly end left data in the volatile cache.
    NotFlushed {
        /// Index of the unit.
        unit: usize,
        /// Sectors that are not on the medium.
        sectors: usize,
    },
    /// A shard takes turns without the clock moving on.
    Spinning { shard: usize },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read {
                unit,
                sector,
                found,
                allowed,
            } => write!(
                f,
                "unit {unit} sector {sector}: a read returned {found:?}, allowed are {allowed:?}"
            ),
            Self::Lost {
                unit,
                sector,
                found,
                allowed,
            } => write!(
                f,
                "unit {unit} sector {sector}: after the power cut it holds {found:?}, allowed are \
                 {allowed:?}"
            ),
            Self::Survived {
                unit,
                sector,
                found,
                allowed,
            } => write!(
                f,
                "unit {unit} sector {sector}: after the kill it holds {found:?}, allowed are \
                 {allowed:?}"
            ),
            Self::TwoWinners {
                unit,
                sector,
                first,
                second,
            } => write!(
                f,
                "unit {unit} sector {sector}: {first:?} and {second:?} both compared equal to the \
                 same data"
            ),
            Self::ComparedStale {
                unit,
                sector,
                expected,
            } => write!(
                f,
                "unit {unit} sector {sector}: compared equal to {expected:?}, which was not there"
            ),
            Self::FalseMiscompare { unit, sector } => write!(
                f,
                "unit {unit} from sector {sector}: MISCOMPARE, but nothing can have been different"
            ),
            Self::Answer { party, problem } => {
                write!(f, "party {party}: {problem}")
            }
            Self::Unanswered { party, command } => {
                write!(f, "party {party}: no answer to {command}")
            }
            Self::Protocol { party, problem } => {
                write!(f, "party {party}: the target broke the protocol: {problem}")
            }
            Self::Login { party, problem } => {
                write!(f, "party {party}: login failed: {problem}")
            }
            Self::Leftover {
                requests,
                memory_bytes,
            } => write!(
                f,
                "all is quiet, and {requests} storage requests and {memory_bytes} bytes of payload \
                 memory are left"
            ),
            Self::MemoryLeak { bytes } => {
                write!(f, "the server is gone, and {bytes} bytes are still counted")
            }
            Self::NeverEnds => f.write_str("the server does not end"),
            Self::SwitchNeverEnds => f.write_str("a change of the exports does not end"),
            Self::NotFlushed { unit, sectors } => write!(
                f,
                "unit {unit}: the server ended in order, and {sectors} sectors are not on the medium"
            ),
            Self::Spinning { shard } => {
                write!(
                    f,
                    "shard {shard} takes turn after turn and does not wait for anything"
                )
            }
        }
    }
}
