//! iSCSI's side of a [queue](crate::queue): operations become SCSI commands of one logical unit, and what
//! the target answers becomes events.
//!
//! | operation | command |
//! |---|---|
//! | read, write | READ and WRITE (10), or (16) where the range needs it |
//! | compare and write | COMPARE AND WRITE |
//! | write zeroes | WRITE SAME (16), with NDOB where the target has that, else with one block of zeros |
//! | unmap | UNMAP, one range |
//! | flush | SYNCHRONIZE CACHE (10), or (16) where a target has only that |
//! | extent status | GET LBA STATUS, one descriptor |
//!
//! Parameter data of the last two kinds stays in here: callers never see it.

use longshore_block::extent::Extent;
use longshore_block::media::{BlockCount, ExtentState};
use longshore_iscsi::initiator::{
    CloseReason, Command, CommandId, Connection, Event, Outcome, R2tRequest, Residual, Transfer,
};
use longshore_iscsi::pdu::{
    AsyncEvent, AsyncMessage, Attribute, Bhs, InitiatorTaskTag, LogoutReason, Lun, Opcode,
};
use longshore_wire::transmit::{Transmit, WriteData};
use std::time::Duration;

use super::cdb::{Cdb, UNMAP_LIST_LENGTH, unmap_list};
use super::outcome;
use crate::error::{CloseCause, Failure};
use crate::info::Notice;
use crate::operation::{Done, Operation};
use crate::queue::{self, MachineEvent, PayloadWanted, Refusal};

/// Which of the commands that targets need not have this one has, and how it wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Writes may have the FUA bit.
    pub fua: bool,
    /// There is a volatile write cache.
    pub write_cache: bool,
    /// The target has no SYNCHRONIZE CACHE (10), but (16).
    pub synchronize_cache_16: bool,
    /// UNMAP.
    pub unmap: bool,
    /// WRITE SAME (16).
    pub write_same: bool,
    /// WRITE SAME (16) may have the UNMAP bit.
    pub write_same_unmap: bool,
    /// WRITE SAME (16) may come without data.
    pub write_same_without_data: bool,
    /// Most blocks of COMPARE AND WRITE; 0: there is none.
    pub compare_and_write_max: u8,
    /// GET LBA STATUS.
    pub get_lba_status: bool,
}

/// Bytes of a GET LBA STATUS answer with one descriptor.
const LBA_STATUS_LENGTH: usize = 24;

/// What a command under way is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// The command's data is the operation's.
    Transfer,
    /// The same, of a command that targets need not have.
    Optional,
    /// Data that this machine has: the list of UNMAP, in the slot.
    Unmap,
    /// One block of zeros, or nothing.
    WriteSame,
    Flush,
    /// Data that this machine takes.
    ExtentStatus(Extent),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    purpose: Purpose,
    transfer: Transfer,
    /// Parameter data, of the purposes that have any.
    parameters: [u8; LBA_STATUS_LENGTH],
}

const _: () = assert!(UNMAP_LIST_LENGTH <= LBA_STATUS_LENGTH);

impl Slot {
    const FREE: Self = Self {
        purpose: Purpose::Transfer,
        transfer: Transfer::None,
        parameters: [0; LBA_STATUS_LENGTH],
    };
}

/// A session of one connection, to one logical unit. See the module documentation.
#[derive(Debug)]
pub struct Machine {
    connection: Connection,
    lun: Lun,
    dialect: Dialect,
    /// By command number.
    slots: Vec<Slot>,
    /// A logical block of them.
    zeros: Box<[u8]>,
    /// Comes with the next call.
    notice: Option<Notice>,
    ping: Option<InitiatorTaskTag>,
    /// The target would not log us out in order.
    logged_out: bool,
}

impl Machine {
    /// A queue's machine over a connection whose login is over. No command is under way.
    pub(super) fn new(connection: Connection, lun: Lun, dialect: Dialect) -> Self {
        let slots = connection.slots_free();
        Self {
            connection,
            lun,
            dialect,
            slots: vec![Slot::FREE; slots],
            zeros: vec![0; dialect.block_size as usize].into_boxed_slice(),
            notice: None,
            ping: None,
            logged_out: false,
        }
    }

    /// Which commands it uses.
    #[must_use]
    pub const fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// What an operation becomes: its CDB, what it is for, and what it moves.
    #[inline]
    fn translate(&self, operation: &Operation) -> Result<(Cdb, Purpose, Transfer), Failure> {
        let bytes = operation.data_length(self.dialect.block_size);
        let length = u32::try_from(bytes).map_err(|_| Failure::TooLarge)?;
        Ok(match *operation {
            Operation::Read { extent } => {
                (Cdb::read(extent), Purpose::Transfer, Transfer::Read(length))
            }
            Operation::Write { extent, fua } if !fua || self.dialect.fua => (
                Cdb::write(extent, fua),
                Purpose::Transfer,
                Transfer::Write(length),
            ),
            _ => return self.translate_other(operation, length),
        })
    }

    #[cold]
    fn translate_other(
        &self,
        operation: &Operation,
        length: u32,
    ) -> Result<(Cdb, Purpose, Transfer), Failure> {
        let dialect = &self.dialect;
        let within = |extent: Extent| match u32::try_from(extent.blocks.0) {
            // To WRITE SAME, no blocks are all there are.
            Ok(0) => Err(Failure::OutOfRange),
            Ok(_) => Ok(extent),
            Err(_) => Err(Failure::TooLarge),
        };
        Ok(match *operation {
            Operation::CompareAndWrite { extent, fua }
                if dialect.compare_and_write_max > 0 && (!fua || dialect.fua) =>
            {
                if extent.blocks.0 > u64::from(dialect.compare_and_write_max) {
                    return Err(Failure::TooLarge);
                }
                (
                    Cdb::compare_and_write(extent, fua),
                    Purpose::Optional,
                    Transfer::Write(length),
                )
            }
            // WRITE SAME has no FUA: where there is a cache, somebody else has to flush it.
            Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            } if dialect.write_same && !(fua && dialect.write_cache) => {
                let unmap = may_unmap && dialect.write_same_unmap;
                let without_data = dialect.write_same_without_data;
                let data = if without_data { 0 } else { dialect.block_size };
                (
                    Cdb::write_same_16(within(extent)?, unmap, without_data),
                    Purpose::WriteSame,
                    Transfer::Write(data),
                )
            }
            Operation::Unmap { extent } if dialect.unmap => {
                within(extent)?;
                let length = u32::try_from(UNMAP_LIST_LENGTH).expect("a short list");
                (Cdb::unmap(), Purpose::Unmap, Transfer::Write(length))
            }
            Operation::Flush => {
                let cdb = if dialect.synchronize_cache_16 {
                    Cdb::synchronize_cache_16()
                } else {
                    Cdb::synchronize_cache_10()
                };
                (cdb, Purpose::Flush, Transfer::None)
            }
            Operation::ExtentStatus { extent } if dialect.get_lba_status => {
                let length = u32::try_from(LBA_STATUS_LENGTH).expect("one descriptor");
                (
                    Cdb::get_lba_status(extent.lba.0, length),
                    Purpose::ExtentStatus(extent),
                    Transfer::Read(length),
                )
            }
            _ => return Err(Failure::Unsupported),
        })
    }

    /// A command has ended.
    #[inline]
    fn completed(&mut self, command: CommandId, outcome: &Outcome) -> Result<Done, Failure> {
        let slot = self.slots[usize::from(command.0)];
        let optional = !matches!(slot.purpose, Purpose::Transfer | Purpose::Flush);
        if let Some(failure) = outcome::failure(outcome, optional) {
            return self.failed(slot.purpose, failure);
        }
        match slot.purpose {
            Purpose::Transfer | Purpose::Optional if outcome.residual == Residual::None => {
                Ok(Done::Done)
            }
            // A residual of parameter data is no news: tgt 1.0.85 reports all of UNMAP's as one.
            Purpose::Unmap | Purpose::WriteSame | Purpose::Flush => Ok(Done::Done),
            Purpose::Transfer | Purpose::Optional | Purpose::ExtentStatus(_) => {
                ended(&slot, outcome)
            }
        }
    }

    #[cold]
    fn failed(&mut self, purpose: Purpose, failure: Failure) -> Result<Done, Failure> {
        self.notice = outcome::notice(&failure);
        match (purpose, failure) {
            // Nothing to flush, and no command for it either.
            (Purpose::Flush, Failure::Unsupported) if !self.dialect.write_cache => Ok(Done::Done),
            (_, failure) => Err(failure),
        }
    }

    /// The target wants data. `None`: it got data of ours.
    fn wanted(&mut self, r2t: R2tRequest, transmit: &mut Transmit) -> Option<R2tRequest> {
        let slot = &self.slots[usize::from(r2t.command.0)];
        let all: &[u8] = match slot.purpose {
            Purpose::Unmap => &slot.parameters,
            Purpose::WriteSame => &self.zeros,
            Purpose::Transfer | Purpose::Optional | Purpose::Flush | Purpose::ExtentStatus(_) => {
                return Some(r2t);
            }
        };
        let start = r2t.buffer_offset as usize;
        let data = WriteData::Bytes(&all[start..start + r2t.length as usize]);
        self.connection.send_data_out(&r2t, data, transmit);
        None
    }

    /// Keeps read data that is for this machine; false when it is the operation's.
    #[inline]
    fn keep(&mut self, command: CommandId, offset: u32, bytes: &[u8]) -> bool {
        let slot = &mut self.slots[usize::from(command.0)];
        if !matches!(slot.purpose, Purpose::ExtentStatus(_)) {
            return false;
        }
        let start = offset as usize;
        slot.parameters[start..start + bytes.len()].copy_from_slice(bytes);
        true
    }

    /// A PDU of ours other than a command was refused.
    #[cold]
    fn rejected(&mut self, reason: &str, header: &[u8]) -> MachineEvent<'static, R2tRequest> {
        let header = header.first_chunk().map(|header| Bhs(*header));
        if header.is_some_and(|header| header.opcode() == Opcode::NOP_OUT) {
            self.ping = None;
            return MachineEvent::Pong;
        }
        let what = header.map_or_else(|| "a PDU".to_owned(), |it| format!("{:?}", it.opcode()));
        let text = format!("the target rejected {what}: {reason}");
        MachineEvent::Notice(Notice::Other(text))
    }

    #[cold]
    fn news(&self, message: &AsyncMessage) -> Notice {
        let seconds = |seconds: u16| Duration::from_secs(seconds.into());
        match message.event {
            AsyncEvent::LOGOUT_REQUEST => Notice::LogoutAsked,
            AsyncEvent::CONNECTION_DROP | AsyncEvent::SESSION_DROP => Notice::ConnectionEnding {
                wait: seconds(message.parameter2),
                retain: seconds(message.parameter3),
            },
            AsyncEvent::SCSI_EVENT => {
                let sense = self
                    .connection
                    .data_segment()
                    .get(2..)
                    .map(outcome::parse_sense);
                sense
                    .and_then(outcome::news)
                    .unwrap_or_else(|| Notice::Other("the target tells of an event".to_owned()))
            }
            event => Notice::Other(format!("the target says: {event:?}")),
        }
    }
}

/// A command went well, but there is more to look at.
#[cold]
fn ended(slot: &Slot, outcome: &Outcome) -> Result<Done, Failure> {
    if let Purpose::ExtentStatus(extent) = slot.purpose {
        let length = usize::try_from(outcome.data_in_length).unwrap_or(0);
        let answer = slot.parameters.get(..length).unwrap_or_default();
        return parse_lba_status(extent, answer).ok_or(Failure::Unsupported);
    }
    let expected = match slot.transfer {
        Transfer::None => 0,
        Transfer::Read(length) | Transfer::Write(length) => length,
    };
    // Both mean that the two sides do not think of the same number of bytes, as when blocks have
    // another length than they had.
    let (expected, moved) = match outcome.residual {
        Residual::None => return Ok(Done::Done),
        Residual::Underflow(less) => (u64::from(expected), expected.saturating_sub(less)),
        Residual::Overflow(more) => (u64::from(expected) + u64::from(more), expected),
    };
    Err(Failure::ShortTransfer {
        expected,
        moved: moved.into(),
    })
}

/// The first run of an `extent` in the parameter data of GET LBA STATUS (SBC-3 §5.4.2):
///
/// ```text
///  0  PARAMETER DATA LENGTH     | Reserved
///  8  LBA STATUS LOGICAL BLOCK ADDRESS
/// 16  NUMBER OF LOGICAL BLOCKS  | PROVISIONING STATUS (4 bits) | Reserved
/// ```
///
/// `None`: it says nothing about the first block.
fn parse_lba_status(extent: Extent, answer: &[u8]) -> Option<Done> {
    let lba = u64::from_be_bytes(*answer.get(8..)?.first_chunk()?);
    let count = u32::from_be_bytes(*answer.get(16..)?.first_chunk()?);
    let state = *answer.get(20)?;
    let before = extent.lba.0.checked_sub(lba)?;
    let left = u64::from(count).checked_sub(before)?;
    if left == 0 {
        return None;
    }
    Some(Done::Extent {
        blocks: BlockCount(left.min(extent.blocks.0)),
        state: match state & 0xf {
            1 => ExtentState::Deallocated,
            2 => ExtentState::Anchored,
            // 0 and, since SBC-4, 3; 4 is unknown, and then there may be data.
            _ => ExtentState::Mapped,
        },
    })
}

impl queue::Machine for Machine {
    type Token = R2tRequest;

    fn slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn room(&self) -> usize {
        self.connection.room()
    }

    fn block_size(&self) -> u32 {
        self.dialect.block_size
    }

    #[inline]
    fn submit(
        &mut self,
        operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        let (cdb, purpose, transfer) = self.translate(operation).map_err(Refusal::Failed)?;
        let mut parameters = [0; LBA_STATUS_LENGTH];
        let data = match purpose {
            Purpose::Unmap => {
                let extent = operation.extent().expect("an unmap has a range");
                parameters[..UNMAP_LIST_LENGTH].copy_from_slice(&unmap_list(extent));
                WriteData::Bytes(&parameters)
            }
            Purpose::WriteSame => WriteData::Bytes(&self.zeros),
            _ => data,
        };
        let command = Command {
            lun: self.lun,
            cdb: cdb.as_bytes(),
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer,
        };
        let id = self
            .connection
            .submit(&command, data, transmit)
            .map_err(|_| Refusal::Busy)?;
        self.slots[usize::from(id.0)] = Slot {
            purpose,
            transfer,
            parameters,
        };
        Ok(id.0)
    }

    #[inline]
    fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> MachineEvent<'a, R2tRequest> {
        if let Some(notice) = self.notice.take() {
            return MachineEvent::Notice(notice);
        }
        loop {
            if self.logged_out {
                return MachineEvent::Closed(CloseCause::LoggedOut);
            }
            return match self.connection.next(input, transmit) {
                Event::NeedMore => MachineEvent::NeedMore,
                Event::DataIn {
                    command,
                    buffer_offset,
                    bytes,
                } => {
                    if self.keep(command, buffer_offset, bytes) {
                        continue;
                    }
                    MachineEvent::DataIn {
                        slot: command.0,
                        offset: buffer_offset,
                        bytes,
                    }
                }
                Event::R2t(r2t) => match self.wanted(r2t, transmit) {
                    Some(r2t) => MachineEvent::DataWanted {
                        slot: r2t.command.0,
                        offset: r2t.buffer_offset,
                        length: r2t.length,
                        token: r2t,
                    },
                    None => continue,
                },
                Event::Completed { command, outcome } => MachineEvent::Completed {
                    slot: command.0,
                    result: self.completed(command, &outcome),
                },
                Event::Pong { request, .. } => {
                    if self.ping == Some(request) {
                        self.ping = None;
                    }
                    MachineEvent::Pong
                }
                Event::Rejected { reason, header } => {
                    self.rejected(&format!("{reason:?}"), &header)
                }
                Event::Async(message) => MachineEvent::Notice(self.news(&message)),
                Event::LoggedOut(_) => {
                    self.logged_out = true;
                    continue;
                }
                Event::Close(reason) => MachineEvent::Closed(cause(&reason)),
                Event::Established | Event::TaskManagementDone { .. } | Event::Text(_) => continue,
            };
        }
    }

    #[inline]
    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let wanted = self.connection.payload_wanted()?;
        let slot = &self.slots[usize::from(wanted.command.0)];
        (!matches!(slot.purpose, Purpose::ExtentStatus(_))).then_some(PayloadWanted {
            slot: wanted.command.0,
            offset: wanted.buffer_offset,
            length: wanted.length,
        })
    }

    #[inline]
    fn payload_received(&mut self, bytes: &[u8]) {
        self.connection.payload_received(bytes);
    }

    #[inline]
    fn send_data(&mut self, token: R2tRequest, data: WriteData<'_>, transmit: &mut Transmit) {
        self.connection.send_data_out(&token, data, transmit);
    }

    fn ping(&mut self, transmit: &mut Transmit) -> bool {
        // One at a time: its answer, or silence, says all there is to know.
        if self.ping.is_some() || !self.connection.is_ready() {
            return false;
        }
        self.ping = Some(self.connection.ping(&[], transmit));
        true
    }

    fn close(&mut self, transmit: &mut Transmit) {
        if self.connection.is_ready() {
            self.connection
                .logout(LogoutReason::CLOSE_SESSION, transmit);
        }
    }
}

/// Why a connection ends, as a queue tells it.
#[cold]
pub(super) fn cause(reason: &CloseReason) -> CloseCause {
    match reason {
        CloseReason::Logout => CloseCause::LoggedOut,
        CloseReason::Login(error) => CloseCause::Protocol(error.to_string()),
        CloseReason::ProtocolError(problem) => CloseCause::Protocol((*problem).to_owned()),
        CloseReason::HeaderDigestError => CloseCause::Digest("header"),
        CloseReason::DataDigestError => CloseCause::Digest("data"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_block::media::Lba;
    use longshore_iscsi::initiator::login::LoginConfig;
    use longshore_iscsi::name::IscsiName;
    use longshore_iscsi::pdu::{Isid, RejectReason};
    use proptest::prelude::*;

    const ALL: Dialect = Dialect {
        block_size: 512,
        fua: true,
        write_cache: true,
        synchronize_cache_16: false,
        unmap: true,
        write_same: true,
        write_same_unmap: true,
        write_same_without_data: true,
        compare_and_write_max: 8,
        get_lba_status: true,
    };
    const NONE: Dialect = Dialect {
        fua: false,
        write_cache: false,
        unmap: false,
        write_same: false,
        write_same_unmap: false,
        write_same_without_data: false,
        compare_and_write_max: 0,
        get_lba_status: false,
        ..ALL
    };

    fn machine(dialect: Dialect) -> Machine {
        let name = |text| IscsiName::parse(text).unwrap();
        let (initiator, target) = (name("iqn.2026-11.test:i"), name("iqn.2026-11.test:t"));
        let login = LoginConfig::normal(initiator, target, Isid([0x80, 0, 0, 0, 0, 1]));
        let mut transmit = Transmit::new();
        let connection = Connection::new(login, 4, &mut |bytes| bytes.fill(1), &mut transmit);
        Machine::new(connection, Lun::ZERO, dialect)
    }

    const fn extent(lba: u64, blocks: u64) -> Extent {
        Extent {
            lba: Lba(lba),
            blocks: BlockCount(blocks),
        }
    }

    fn zeroes(blocks: u64, may_unmap: bool, fua: bool) -> Operation {
        Operation::WriteZeroes {
            extent: extent(1, blocks),
            may_unmap,
            fua,
        }
    }

    fn outcome(status: u8, residual: Residual) -> Outcome {
        Outcome {
            status: Some(status),
            rejected: None,
            sense: Vec::new(),
            residual,
            data_in_length: 0,
        }
    }

    #[test]
    fn what_a_target_lacks_is_not_sent() {
        let machine = machine(NONE);
        let extent = extent(0, 1);
        for operation in [
            Operation::Write { extent, fua: true },
            Operation::CompareAndWrite { extent, fua: false },
            zeroes(1, false, false),
            Operation::Unmap { extent },
            Operation::ExtentStatus { extent },
        ] {
            let result = machine.translate(&operation).map(|(cdb, ..)| cdb);
            assert_eq!(result, Err(Failure::Unsupported), "{operation:?}");
        }
        assert!(machine.translate(&Operation::Flush).is_ok());
    }

    #[test]
    fn zeros_go_with_or_without_a_block_of_them_and_never_to_the_whole_medium() {
        let flags = |dialect, may_unmap| {
            let translated = machine(dialect).translate(&zeroes(9, may_unmap, false));
            let (cdb, _, transfer) = translated.unwrap();
            (cdb.as_bytes()[1], transfer)
        };
        assert_eq!(flags(ALL, true), (0x09, Transfer::Write(0)));
        assert_eq!(flags(ALL, false), (0x01, Transfer::Write(0)));
        let with_data = Dialect {
            write_same_without_data: false,
            ..ALL
        };
        assert_eq!(flags(with_data, true), (0x08, Transfer::Write(512)));
        let no_unmap = Dialect {
            write_same_unmap: false,
            ..with_data
        };
        assert_eq!(flags(no_unmap, true), (0x00, Transfer::Write(512)));
        let of = |operation| machine(ALL).translate(&operation).map(|_| ()).unwrap_err();
        assert_eq!(of(zeroes(0, false, false)), Failure::OutOfRange);
        assert_eq!(of(zeroes(1 << 32, false, false)), Failure::TooLarge);
        assert_eq!(
            of(zeroes(1, false, true)),
            Failure::Unsupported,
            "there is a cache"
        );
    }

    #[test]
    fn more_than_a_command_can_move_is_refused() {
        let machine = machine(ALL);
        let large = extent(0, 1 << 23);
        for operation in [
            Operation::Read { extent: large },
            Operation::Write {
                extent: large,
                fua: false,
            },
            Operation::CompareAndWrite {
                extent: extent(0, 9),
                fua: false,
            },
            Operation::Unmap {
                extent: extent(0, 1 << 32),
            },
        ] {
            let result = machine.translate(&operation).map(|(cdb, ..)| cdb);
            assert_eq!(result, Err(Failure::TooLarge), "{operation:?}");
        }
    }

    #[test]
    fn a_residual_is_no_success_in_either_direction() {
        let mut machine = machine(ALL);
        for transfer in [Transfer::Read(1024), Transfer::Write(1024)] {
            machine.slots[0].transfer = transfer;
            let mut of = |residual| machine.completed(CommandId(0), &outcome(0, residual));
            assert_eq!(of(Residual::None), Ok(Done::Done));
            let short = |expected, moved| Err(Failure::ShortTransfer { expected, moved });
            assert_eq!(of(Residual::Underflow(512)), short(1024, 512));
            assert_eq!(of(Residual::Underflow(5000)), short(1024, 0));
            assert_eq!(of(Residual::Overflow(512)), short(1536, 1024));
        }
    }

    #[test]
    fn a_flush_that_a_target_without_cache_does_not_know_is_done() {
        let rejected = Outcome {
            status: None,
            rejected: Some(RejectReason::COMMAND_NOT_SUPPORTED),
            ..outcome(0, Residual::None)
        };
        for (dialect, expected) in [(NONE, Ok(Done::Done)), (ALL, Err(Failure::Unsupported))] {
            let mut machine = machine(dialect);
            machine.slots[0].purpose = Purpose::Flush;
            assert_eq!(machine.completed(CommandId(0), &rejected), expected);
        }
    }

    #[test]
    fn a_unit_attention_fails_its_command_and_is_told() {
        let mut machine = machine(ALL);
        let attention = Outcome {
            sense: vec![0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2a, 9, 0, 0, 0, 0],
            ..outcome(2, Residual::Underflow(512))
        };
        let failed = machine.completed(CommandId(0), &attention);
        assert!(matches!(failed, Err(Failure::Scsi { .. })));
        let (mut input, mut transmit) = (&[][..], Transmit::new());
        let event = queue::Machine::next(&mut machine, &mut input, &mut transmit);
        assert!(matches!(
            event,
            MachineEvent::Notice(Notice::CapacityChanged)
        ));
        let event = queue::Machine::next(&mut machine, &mut input, &mut transmit);
        assert!(matches!(event, MachineEvent::NeedMore));
    }

    fn lba_status(lba: u64, blocks: u32, state: u8) -> Vec<u8> {
        let mut answer = vec![0, 0, 0, 20, 0, 0, 0, 0];
        answer.extend(lba.to_be_bytes());
        answer.extend(blocks.to_be_bytes());
        answer.extend([state, 0, 0, 0]);
        answer
    }

    #[test]
    fn the_run_at_the_start_of_a_range_has_a_state() {
        let run = |blocks, state| {
            Some(Done::Extent {
                blocks: BlockCount(blocks),
                state,
            })
        };
        for (answer, expected) in [
            (lba_status(100, 8, 0), run(8, ExtentState::Mapped)),
            (lba_status(90, 18, 1), run(8, ExtentState::Deallocated)),
            (lba_status(100, 1000, 2), run(50, ExtentState::Anchored)),
            (lba_status(100, 8, 0xf4), run(8, ExtentState::Mapped)),
            (lba_status(101, 8, 1), None),
            (lba_status(90, 10, 1), None),
            (lba_status(100, 8, 1)[..20].to_vec(), None),
            (Vec::new(), None),
        ] {
            assert_eq!(parse_lba_status(extent(100, 50), &answer), expected);
        }
    }

    proptest! {
        #[test]
        fn no_answer_about_extents_makes_it_panic_or_claim_too_much(
            answer in prop::collection::vec(any::<u8>(), 0..32),
            lba: u64,
            blocks in 1..u64::MAX,
        ) {
            if let Some(done) = parse_lba_status(extent(lba, blocks), &answer) {
                let Done::Extent { blocks: run, .. } = done else {
                    panic!("a state")
                };
                prop_assert!(run.0 >= 1 && run.0 <= blocks);
            }
        }
    }
}
