//! The fast path of READ and WRITE past [`Command::begin`].
//!
//! Nearly all commands of a busy initiator are such, and a driver that can carry them out where they
//! arrive needs no [`Command`] for them: it asks [`plain`], and begins a command when the answer is no.
//! The rules are those of the command table and of `decode`, which decides all other cases,
//! each with its own answer to the initiator.
//!
//! [`Command`]: crate::command::Command
//! [`Command::begin`]: crate::command::Command::begin

use longshore_block::extent::Lba;
use longshore_block::operation::MediaError;

use crate::cdb::Cdb;
use crate::command_table::{self, CommandKind};
use crate::completion::Completion;
use crate::nexus::Nexus;
use crate::sense::Sense;
use crate::unit::LogicalUnit;

/// What a plain READ or WRITE moves: at least one block, all within the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    pub lba: Lba,
    /// Bytes to move: blocks times block size.
    pub length: u32,
    pub writes: bool,
    /// A WRITE that is on the medium when it completes (Force Unit Access).
    pub fua: bool,
}

impl Plain {
    /// How it ends when the medium fails.
    #[cold]
    #[must_use]
    pub fn failed(self, unit: &LogicalUnit, error: MediaError) -> Completion {
        Completion {
            sense_format: unit.modes().sense_format(),
            ..Sense::media_failure(error, self.writes).into()
        }
    }
}

/// A READ or WRITE that [`Command::begin`](crate::command::Command::begin) would have done as one
/// operation on the medium. `None` for all else: no state has changed then.
#[inline]
#[must_use]
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "all other commands of the table become tasks"
)]
pub fn plain(unit: &LogicalUnit, nexus: &Nexus, cdb: &[u8]) -> Option<Plain> {
    let cdb: [u8; 16] = cdb.try_into().ok()?;
    let command = command_table::without_action(cdb[0])?;
    let writes = match command.operation {
        CommandKind::Read => false,
        CommandKind::Write => true,
        _ => return None,
    };
    let cdb = Cdb::whole(cdb);
    if !LogicalUnit::admits_at_once(nexus, command.access)
        || command.has_forbidden_bit(cdb)
        || writes && unit.is_write_protected(nexus)
    {
        return None;
    }
    let cdb_length = command.cdb_length();
    let extent = cdb.extent(cdb_length);
    let config = unit.config();
    // A transfer length of 0 means 256 blocks, or none.
    if extent.blocks.0 == 0
        || extent.blocks.0 > u64::from(config.max_transfer_blocks)
        || !extent.fits(unit.block_count())
    {
        return None;
    }
    Some(Plain {
        lba: extent.lba,
        length: u32::try_from(extent.bytes(config.block_size)).ok()?,
        writes,
        fua: writes && cdb_length != 6 && cdb.fua(),
    })
}
