//! From a CDB to a [`Command`]: looks it up, admits it, checks its fields, and decides what to do.
//!
//! The order of checks is the order in which an initiator learns what is wrong: unknown command,
//! unit attention or reservation (SAM-5 §5.3.3), reserved fields, write protection, range, length.

use std::sync::Arc;

use crate::access::{Access, ReservationClass};
use crate::cdb::Cdb;
use crate::command::Command;
use crate::command_table::{self, CommandDescription, CommandKind, Lookup};
use crate::completion::Completion;
use crate::extended_copy::{self, ExtendedCopy};
use crate::media;
use crate::media::atomic::{self, WriteAtomic};
use crate::media::compare_and_write::{self, CompareAndWrite};
use crate::media::lba_status::GetLbaStatus;
use crate::media::or_write::OrWrite;
use crate::media::sanitize::Sanitize;
use crate::media::unmap::Unmap;
use crate::media::verify::{ByteCheck, Verify};
use crate::media::write_same::{self, WriteSame};
use crate::mode;
use crate::nexus::Nexus;
use crate::parameter::Parameter;
use crate::reservation::persistent_out::PersistentReserveOut;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::step::{Direction, Transfer};
use crate::unit::LogicalUnit;
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::Operation;

impl Command {
    /// Decodes a CDB and admits it. If it is refused, the outcome waits for the first step.
    #[inline]
    pub fn begin(unit: &Arc<LogicalUnit>, nexus: &Arc<Nexus>, cdb: &[u8]) -> Self {
        begin(unit, nexus, cdb).unwrap_or_else(Self::completed)
    }

    /// The same for a LUN without a logical unit: INQUIRY, REPORT LUNS and REQUEST SENSE are
    /// answered, everything else fails with LOGICAL UNIT NOT SUPPORTED (SAM-5, incorrect logical unit numbers).
    pub fn begin_without_unit(cdb: &[u8]) -> Self {
        begin_without_unit(Cdb::new(cdb)).unwrap_or_else(Self::completed)
    }
}

fn begin(unit: &Arc<LogicalUnit>, nexus: &Arc<Nexus>, bytes: &[u8]) -> Result<Command, Completion> {
    let cdb = Cdb::new(bytes);
    let command = match command_table::lookup(cdb) {
        Lookup::Found(command) if command.is_supported(unit.config()) => command,
        Lookup::UnknownOperationCode => return Err(Sense::invalid_operation_code().into()),
        Lookup::Found(_) | Lookup::UnknownServiceAction => {
            let others = command_table::commands(cdb.operation_code());
            return Err(if others.iter().any(|it| it.is_supported(unit.config())) {
                Sense::invalid_field_in_cdb(1, 4).into()
            } else {
                Sense::invalid_operation_code().into()
            });
        }
    };
    unit.admit(nexus, access(command, cdb))?;
    if !command.runs_during_sanitize() {
        unit.admit_medium(nexus)?;
    }
    if let Some((byte, bit)) = command.forbidden_bit(cdb) {
        return Err(Sense::invalid_field_in_cdb(byte, bit).into());
    }
    if bytes.len() < usize::from(command.cdb_length()) {
        return Err(Sense::illegal_request(AdditionalSense::INVALID_FIELD_IN_CDB).into());
    }
    if command.writes {
        check_writable(unit, nexus)?;
    }
    if command.operation == CommandKind::Read {
        Ok(read(command, cdb, unit)?)
    } else if command.operation == CommandKind::Write {
        Ok(write(command, cdb, unit)?)
    } else {
        dispatch(command, cdb, unit, nexus)
    }
}

fn begin_without_unit(cdb: Cdb) -> Result<Command, Completion> {
    let command = match command_table::lookup(cdb) {
        Lookup::Found(command) => command,
        Lookup::UnknownOperationCode | Lookup::UnknownServiceAction => {
            return Err(Sense::logical_unit_not_supported().into());
        }
    };
    if !matches!(
        command.operation,
        CommandKind::Inquiry | CommandKind::ReportLuns | CommandKind::RequestSense
    ) {
        return Err(Sense::logical_unit_not_supported().into());
    }
    if let Some((byte, bit)) = command.forbidden_bit(cdb) {
        return Err(Sense::invalid_field_in_cdb(byte, bit).into());
    }
    let transfer = to_initiator(allocation_length(command.operation, cdb));
    Ok(Command::parameter(
        transfer,
        Parameter::new(command.operation, cdb, None),
    ))
}

/// Two commands fare differently under reservations by what they ask for (SBC-3 and SPC-4, the
/// tables of commands allowed in the presence of reservations): a START STOP UNIT that starts, and
/// a PREVENT ALLOW that allows.
#[inline]
fn access(command: &CommandDescription, cdb: Cdb) -> Access {
    let harmless = if command.operation == CommandKind::StartStopUnit {
        cdb.flag(4, 0) && cdb.bits(4, 4, 4) == 0
    } else {
        command.operation == CommandKind::PreventAllow && cdb.bits(4, 0, 2) == 0
    };
    if harmless {
        return Access {
            reservation: ReservationClass::Inspects,
            ..command.access
        };
    }
    command.access
}

fn check_writable(unit: &LogicalUnit, nexus: &Nexus) -> Result<(), Sense> {
    if !unit.is_write_protected(nexus) {
        return Ok(());
    }
    let code = if unit.modes().software_write_protect() {
        AdditionalSense::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED
    } else {
        AdditionalSense::WRITE_PROTECTED
    };
    Err(Sense::new(SenseKey::DataProtect, code))
}

/// Kept out of line, so that READ and WRITE have a fast path.
#[inline(never)]
fn dispatch(
    command: &CommandDescription,
    cdb: Cdb,
    unit: &Arc<LogicalUnit>,
    nexus: &Arc<Nexus>,
) -> Result<Command, Completion> {
    let operation = command.operation;
    let block_size = unit.config().block_size;
    Ok(match operation {
        CommandKind::Read => read(command, cdb, unit)?,
        CommandKind::Write => write(command, cdb, unit)?,
        CommandKind::Verify | CommandKind::WriteAndVerify => verify(command, cdb, unit)?,
        CommandKind::SynchronizeCache => {
            ranged(command, cdb, unit)?;
            flush()
        }
        CommandKind::PreFetch => pre_fetch(ranged(command, cdb, unit)?, unit),
        CommandKind::CompareAndWrite => compare_and_write(command, cdb, unit)?,
        CommandKind::OrWrite => {
            let extent = transferable(command, cdb, unit)?;
            let machine = OrWrite::new(extent, block_size, cdb.fua());
            let transfer = blocks_from_initiator(extent.blocks, block_size);
            let scratch = machine.scratch_length();
            unless_empty(extent, || Command::procedure(transfer, scratch, machine))
        }
        CommandKind::WriteAtomic => write_atomic(cdb, unit)?,
        CommandKind::WriteSame => write_same(command, cdb, unit)?,
        CommandKind::Unmap => {
            let length = cdb.be16(7);
            if length == 0 {
                return Ok(Command::completed(Completion::GOOD));
            }
            let machine = Unmap::new(length, cdb.flag(1, 0));
            Command::procedure(from_initiator(u64::from(length)), 0, machine)
        }
        CommandKind::Sanitize => sanitize(cdb, unit)?,
        CommandKind::GetLbaStatus => get_lba_status(cdb, unit)?,
        CommandKind::TestUnitReady => Command::completed(Completion::GOOD),
        // The medium cannot be removed, so preventing its removal holds without our doing.
        CommandKind::PreventAllow => Command::completed(Completion::GOOD),
        CommandKind::StartStopUnit => start_stop(cdb)?,
        CommandKind::SendDiagnostic => send_diagnostic(cdb, block_size)?,
        CommandKind::PersistentReserveOut => {
            let machine = PersistentReserveOut::begin(unit, nexus, cdb.as_bytes())?;
            let length = u64::from(machine.parameter_list_length());
            Command::procedure(from_initiator(length), 0, machine)
        }
        CommandKind::ExtendedCopy => {
            let length = cdb.be32(10);
            let machine = ExtendedCopy::begin(unit, nexus, length)?;
            let scratch_length = if length == 0 {
                0
            } else {
                extended_copy::SCRATCH_LENGTH
            };
            Command::procedure(from_initiator(u64::from(length)), scratch_length, machine)
        }
        CommandKind::ModeSelect6 | CommandKind::ModeSelect10 => {
            let length = mode::check_select(operation, cdb)?;
            let parameter = Parameter::new(operation, cdb, Some(nexus));
            Command::parameter(from_initiator(u64::from(length)), parameter)
        }
        CommandKind::RequestSense
        | CommandKind::Inquiry
        | CommandKind::ModeSense6
        | CommandKind::ModeSense10
        | CommandKind::ReadCapacity10
        | CommandKind::ReadCapacity16
        | CommandKind::ReadDefectData10
        | CommandKind::ReadDefectData12
        | CommandKind::LogSense
        | CommandKind::PersistentReserveIn
        | CommandKind::ReceiveCopyResults
        | CommandKind::ReportLuns
        | CommandKind::ReportTargetPortGroups
        | CommandKind::ReportSupportedOperationCodes
        | CommandKind::ReportSupportedTaskManagementFunctions
        | CommandKind::Reserve6
        | CommandKind::Release6 => {
            let transfer = to_initiator(allocation_length(operation, cdb));
            Command::parameter(transfer, Parameter::new(operation, cdb, Some(nexus)))
        }
    })
}

fn sanitize(cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Completion> {
    let length = cdb.be16(7);
    let machine = Sanitize::begin(cdb, unit)?;
    Ok(Command::procedure(
        from_initiator(u64::from(length)),
        0,
        machine,
    ))
}

/// ALLOCATION LENGTH of commands that return parameter data; what they transfer at most.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "commands without an ALLOCATION LENGTH"
)]
fn allocation_length(operation: CommandKind, cdb: Cdb) -> u64 {
    match operation {
        CommandKind::RequestSense | CommandKind::ModeSense6 => u64::from(cdb.byte(4)),
        CommandKind::Inquiry => u64::from(cdb.be16(3)),
        CommandKind::ModeSense10
        | CommandKind::ReadDefectData10
        | CommandKind::LogSense
        | CommandKind::PersistentReserveIn => u64::from(cdb.be16(7)),
        CommandKind::ReadCapacity10 => 8,
        CommandKind::ReadCapacity16 | CommandKind::ReceiveCopyResults => u64::from(cdb.be32(10)),
        CommandKind::ReportLuns
        | CommandKind::ReadDefectData12
        | CommandKind::ReportTargetPortGroups
        | CommandKind::ReportSupportedOperationCodes
        | CommandKind::ReportSupportedTaskManagementFunctions => u64::from(cdb.be32(6)),
        _ => 0,
    }
}

const fn to_initiator(length: u64) -> Transfer {
    if length == 0 {
        return Transfer::NONE;
    }
    Transfer {
        direction: Direction::ToInitiator,
        length,
    }
}

const fn from_initiator(length: u64) -> Transfer {
    if length == 0 {
        return Transfer::NONE;
    }
    Transfer {
        direction: Direction::FromInitiator,
        length,
    }
}

fn blocks_from_initiator(blocks: BlockCount, block_size: u32) -> Transfer {
    from_initiator(blocks.0 * u64::from(block_size))
}

/// A range of no blocks is not an error (SBC-3), and nothing is left to do.
fn unless_empty(extent: Extent, command: impl FnOnce() -> Command) -> Command {
    if extent.blocks.0 == 0 {
        Command::completed(Completion::GOOD)
    } else {
        command()
    }
}

/// The CDB's extent, if it lies within the medium.
#[inline]
fn ranged(command: &CommandDescription, cdb: Cdb, unit: &LogicalUnit) -> Result<Extent, Sense> {
    let mut extent = cdb.extent(command.cdb_length());
    if command.cdb_length() == 6 && extent.blocks.0 == 0 {
        extent.blocks = BlockCount(256);
    }
    check_range(extent, unit)?;
    Ok(extent)
}

#[inline]
fn check_range(extent: Extent, unit: &LogicalUnit) -> Result<(), Sense> {
    if extent.fits(unit.block_count()) {
        return Ok(());
    }
    Err(Sense::out_of_range(extent.lba.0))
}

/// The same for commands that transfer the blocks: MAXIMUM TRANSFER LENGTH applies.
#[inline]
fn transferable(
    command: &CommandDescription,
    cdb: Cdb,
    unit: &LogicalUnit,
) -> Result<Extent, Sense> {
    let extent = ranged(command, cdb, unit)?;
    if extent.blocks.0 > u64::from(unit.config().max_transfer_blocks) {
        return Err(invalid_length_field(command.cdb_length()));
    }
    Ok(extent)
}

/// INVALID FIELD IN CDB that points at the length field of an extent.
#[cold]
fn invalid_length_field(cdb_length: u8) -> Sense {
    let byte = match cdb_length {
        6 => 4,
        10 => 7,
        12 => 6,
        _ => 10,
    };
    Sense::invalid_field_in_cdb(byte, 7)
}

#[inline]
fn read(command: &CommandDescription, cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Sense> {
    let extent = transferable(command, cdb, unit)?;
    let length = extent.blocks.0 * u64::from(unit.config().block_size);
    let payload = DataLocation::DataIn {
        length: media::bytes(extent.blocks, unit.config().block_size),
    };
    Ok(unless_empty(extent, || {
        Command::single(to_initiator(length), Operation::Read { extent }, payload)
    }))
}

#[inline]
fn write(command: &CommandDescription, cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Sense> {
    let extent = transferable(command, cdb, unit)?;
    let fua = command.cdb_length() != 6 && cdb.fua();
    let length = extent.blocks.0 * u64::from(unit.config().block_size);
    let payload = DataLocation::DataOut {
        start: 0,
        length: media::bytes(extent.blocks, unit.config().block_size),
    };
    Ok(unless_empty(extent, || {
        Command::single(
            from_initiator(length),
            Operation::Write { extent, fua },
            payload,
        )
    }))
}

fn verify(command: &CommandDescription, cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Sense> {
    let check = ByteCheck::from_bits(cdb.bits(1, 1, 2)).ok_or(Sense::invalid_field_in_cdb(1, 2))?;
    let write = command.operation == CommandKind::WriteAndVerify;
    let extent = if write || check == ByteCheck::EachBlock {
        transferable(command, cdb, unit)?
    } else {
        ranged(command, cdb, unit)?
    };
    if write && check == ByteCheck::SameBlock {
        // BYTCHK 11b is for VERIFY only (SBC-3).
        return Err(Sense::invalid_field_in_cdb(1, 2));
    }
    let block_size = unit.config().block_size;
    let machine = Verify::new(extent, block_size, write, check);
    let transfer = blocks_from_initiator(machine.data_out_blocks(), block_size);
    let scratch = machine.scratch_length();
    Ok(unless_empty(extent, || {
        Command::procedure(transfer, scratch, machine)
    }))
}

/// IMMED is allowed and answered late: when the status arrives, it is done.
/// SYNC_NV (SBC-2: a non-volatile cache will do) gets more than it asks for.
fn flush() -> Command {
    Command::single(Transfer::NONE, Operation::Flush, DataLocation::None)
}

/// Whether all blocks found room in a cache is not known here, so the status is always GOOD and
/// never CONDITION MET (SBC-3 PRE-FETCH).
fn pre_fetch(mut extent: Extent, unit: &LogicalUnit) -> Command {
    if extent.blocks.0 == 0 {
        // Zero means: to the end of the medium.
        extent.blocks.0 = unit.block_count().saturating_sub(extent.lba.0);
    }
    unless_empty(extent, || {
        Command::single(
            Transfer::NONE,
            Operation::Prefetch { extent },
            DataLocation::None,
        )
    })
}

fn compare_and_write(
    command: &CommandDescription,
    cdb: Cdb,
    unit: &LogicalUnit,
) -> Result<Command, Sense> {
    let extent = ranged(command, cdb, unit)?;
    let limit = compare_and_write::max_blocks(unit.config().max_transfer_blocks);
    if extent.blocks.0 > u64::from(limit) {
        return Err(Sense::invalid_field_in_cdb(13, 7));
    }
    let block_size = unit.config().block_size;
    let machine = CompareAndWrite::new(extent, block_size, cdb.fua());
    let transfer = blocks_from_initiator(machine.data_out_blocks(), block_size);
    let scratch = machine.scratch_length();
    Ok(unless_empty(extent, || Command::procedure(transfer, scratch, machine)).exact())
}

/// ATOMIC BOUNDARY must be zero, as MAXIMUM ATOMIC BOUNDARY SIZE says; the table sees to that.
fn write_atomic(cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Sense> {
    let extent = Extent {
        blocks: BlockCount(u64::from(cdb.be16(12))),
        ..cdb.extent(16)
    };
    check_range(extent, unit)?;
    if extent.blocks.0 > u64::from(atomic::max_blocks(unit.config().max_transfer_blocks)) {
        return Err(Sense::invalid_field_in_cdb(12, 7));
    }
    let block_size = unit.config().block_size;
    let transfer = blocks_from_initiator(extent.blocks, block_size);
    let machine = WriteAtomic::new(extent, block_size, cdb.fua());
    Ok(unless_empty(extent, || {
        Command::procedure(transfer, 0, machine)
    }))
}

fn write_same(
    command: &CommandDescription,
    cdb: Cdb,
    unit: &LogicalUnit,
) -> Result<Command, Sense> {
    let (anchor, unmap, ndob) = (cdb.flag(1, 4), cdb.flag(1, 3), cdb.flag(1, 0));
    if anchor && !unmap {
        return Err(Sense::invalid_field_in_cdb(1, 4));
    }
    if unmap && unit.config().unmap_granularity_blocks.is_none() {
        return Err(Sense::invalid_field_in_cdb(1, 3));
    }
    let extent = ranged(command, cdb, unit)?;
    if extent.blocks.0 == 0 {
        // WSNZ is one: "to the end of the medium" is too much to write by mistake.
        return Err(invalid_length_field(command.cdb_length()));
    }
    if extent.blocks.0 > u64::from(write_same::MAX_BLOCKS) {
        return Err(invalid_length_field(command.cdb_length()));
    }
    let block_size = unit.config().block_size;
    let machine = WriteSame::new(extent, block_size, ndob, unmap && !anchor);
    let transfer = blocks_from_initiator(machine.data_out_blocks(), block_size);
    let scratch = machine.scratch_length();
    let command = Command::procedure(transfer, scratch, machine);
    // Without a data-out buffer there is nothing that could have the right size.
    Ok(if ndob { command } else { command.exact() })
}

fn get_lba_status(cdb: Cdb, unit: &LogicalUnit) -> Result<Command, Sense> {
    let Extent { lba, .. } = cdb.extent(16);
    check_range(
        Extent {
            lba,
            blocks: BlockCount(1),
        },
        unit,
    )?;
    let allocation_length = cdb.be32(10);
    if allocation_length == 0 {
        return Ok(Command::completed(Completion::GOOD));
    }
    let machine = GetLbaStatus::new(lba, unit.block_count(), allocation_length);
    Ok(Command::procedure(
        to_initiator(u64::from(allocation_length)),
        0,
        machine,
    ))
}

/// The unit is always started: START does nothing, stopping flushes unless NO_FLUSH is set and
/// leaves it ready. Power conditions are not supported, and the medium cannot be ejected.
fn start_stop(cdb: Cdb) -> Result<Command, Sense> {
    let (power_condition, no_flush) = (cdb.bits(4, 4, 4), cdb.flag(4, 2));
    let (load_eject, start) = (cdb.flag(4, 1), cdb.flag(4, 0));
    if power_condition != 0 {
        return Err(Sense::invalid_field_in_cdb(4, 7));
    }
    if load_eject {
        return Err(Sense::invalid_field_in_cdb(4, 1));
    }
    Ok(if start || no_flush {
        Command::completed(Completion::GOOD)
    } else {
        flush()
    })
}

/// Only the default self-test (SPC-4 SEND DIAGNOSTIC): it reads the first block.
fn send_diagnostic(cdb: Cdb, block_size: u32) -> Result<Command, Sense> {
    if cdb.bits(1, 5, 3) != 0 {
        return Err(Sense::invalid_field_in_cdb(1, 7));
    }
    if cdb.be16(3) != 0 {
        return Err(Sense::invalid_field_in_cdb(3, 7));
    }
    if !cdb.flag(1, 2) {
        return Ok(Command::completed(Completion::GOOD));
    }
    let length = media::bytes(BlockCount(1), block_size);
    let operation = Operation::Read {
        extent: Extent {
            lba: Default::default(),
            blocks: BlockCount(1),
        },
    };
    let payload = DataLocation::Scratch { start: 0, length };
    Ok(Command::single(Transfer::NONE, operation, payload).with_scratch(length))
}
