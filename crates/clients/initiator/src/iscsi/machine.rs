//! iSCSI's side of a [`queue`]: operations become SCSI commands of one logical unit, and what
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
//! Parameter data of unmap and extent status stays in here: callers never see it. Where the target has a
//! cache but no FUA, which WRITE SAME never has, a SYNCHRONIZE CACHE follows the command within the same
//! slot, and the operation ends with that. (COMPARE AND WRITE has to do without: after a failed flush the result of
//! the comparison would be unknown.)

use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::ExtentState;
use longshore_iscsi::initiator::{
    CloseReason, Command, CommandId, CommandOutcome, Connection, ConnectionEvent, NotSent,
    R2tRequest, Residual, Transfer,
};
use longshore_iscsi::pdu::{
    AsyncEvent, AsyncMessage, Attribute, Bhs, InitiatorTaskTag, LogoutReason, Lun, Opcode,
};
use longshore_scsi::status::Status;
use longshore_wire::transmit::{Transmit, WriteData};
use std::time::Duration;

use super::cdb::{Cdb, UNMAP_LIST_LENGTH, unmap_list};
use super::outcome;
use crate::error::{CloseCause, Failure};
use crate::info::Notice;
use crate::operation::{Operation, Reply};
use crate::queue::{self, MachineEvent, PayloadWanted, Refusal};

#[cfg(test)]
mod tests;

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
    /// UNMAP is supported, by LBPU or the block limits.
    pub unmap: bool,
    /// WRITE SAME (16) is supported, by REPORT SUPPORTED OPERATION CODES, or else by LBPWS and the block limits.
    pub write_same: bool,
    /// WRITE SAME (16) may have the UNMAP bit.
    pub write_same_unmap: bool,
    /// WRITE SAME (16) may come without data.
    pub write_same_without_data: bool,
    /// Most blocks of COMPARE AND WRITE; 0: there is none.
    pub compare_and_write_max: u8,
    /// GET LBA STATUS is supported, so that extent status has an answer.
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
    /// A flush follows, and the operation ends with that.
    flush: bool,
    /// Parameter data, of the purposes that have any.
    parameters: [u8; LBA_STATUS_LENGTH],
}

const _: () = assert!(UNMAP_LIST_LENGTH <= LBA_STATUS_LENGTH);

impl Slot {
    const FREE: Self = Self {
        purpose: Purpose::Transfer,
        transfer: Transfer::None,
        flush: false,
        parameters: [0; LBA_STATUS_LENGTH],
    };
}

/// A session of one connection, to one logical unit. See the module documentation.
#[derive(Debug)]
pub struct Machine {
    connection: Connection,
    lun: Lun,
    dialect: Dialect,
    /// Indexed by the command number of the connection.
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
        let slots = connection.slots();
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
            Operation::Write { extent, fua } => (
                Cdb::write(extent, fua && self.dialect.fua),
                Purpose::Transfer,
                Transfer::Write(length),
            ),
            Operation::CompareAndWrite { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Unmap { .. }
            | Operation::Flush
            | Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => return self.translate_other(operation, length),
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
                if dialect.compare_and_write_max > 0
                    && (!fua || dialect.fua || !dialect.write_cache) =>
            {
                if extent.blocks.0 > u64::from(dialect.compare_and_write_max) {
                    return Err(Failure::TooLarge);
                }
                (
                    Cdb::compare_and_write(extent, fua && dialect.fua),
                    Purpose::Optional,
                    Transfer::Write(length),
                )
            }
            Operation::WriteZeroes {
                extent, may_unmap, ..
            } if dialect.write_same => {
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
            Operation::Flush => (self.flush(), Purpose::Flush, Transfer::None),
            Operation::ExtentStatus { extent } if dialect.get_lba_status => {
                let length = u32::try_from(LBA_STATUS_LENGTH).expect("one descriptor");
                (
                    Cdb::get_lba_status(extent.lba.0, length),
                    Purpose::ExtentStatus(extent),
                    Transfer::Read(length),
                )
            }
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::CompareAndWrite { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Unmap { .. }
            | Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => return Err(Failure::Unsupported),
        })
    }

    const fn flush(&self) -> Cdb {
        if self.dialect.synchronize_cache_16 {
            Cdb::synchronize_cache_16()
        } else {
            Cdb::synchronize_cache_10()
        }
    }

    /// Whether the operation needs a flush of its own to be on the medium.
    #[inline]
    const fn needs_flush(&self, operation: &Operation) -> bool {
        self.dialect.write_cache
            && match operation {
                Operation::Write { fua, .. } => *fua && !self.dialect.fua,
                Operation::WriteZeroes { fua, .. } => *fua,
                Operation::Read { .. }
                | Operation::CompareAndWrite { .. }
                | Operation::Unmap { .. }
                | Operation::Flush
                | Operation::Anchor { .. }
                | Operation::ExtentStatus { .. }
                | Operation::Prefetch { .. } => false,
            }
    }

    /// A command has ended; `None` when its operation has not.
    #[inline]
    fn completed(
        &mut self,
        command: CommandId,
        outcome: &CommandOutcome,
        transmit: &mut Transmit,
    ) -> Option<Result<Reply, Failure>> {
        let result = self.result(command, outcome);
        if result.is_ok() && self.slots[usize::from(command.0)].flush {
            return self.flush_after(command, transmit);
        }
        Some(result)
    }

    /// The flush behind a command that has ended, in its slot. `None`: it is under way.
    #[cold]
    fn flush_after(
        &mut self,
        ended: CommandId,
        transmit: &mut Transmit,
    ) -> Option<Result<Reply, Failure>> {
        let cdb = self.flush();
        let command = Command {
            lun: self.lun,
            cdb: cdb.as_bytes(),
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer: Transfer::None,
        };
        match self.connection.submit(&command, WriteData::NONE, transmit) {
            Ok(id) => {
                // The number that was freed last is given out first.
                assert_eq!(id, ended, "the slot is the operation's until it ends");
                self.slots[usize::from(id.0)] = Slot {
                    purpose: Purpose::Flush,
                    ..Slot::FREE
                };
                None
            }
            // The window is closed: all of it again, later.
            Err(NotSent::Busy) => Some(Err(Failure::Scsi {
                status: Status::TASK_SET_FULL.0,
                sense: None,
            })),
            Err(NotSent::Closed | _) => Some(Err(Failure::Closed)),
        }
    }

    /// How a command has ended.
    #[inline]
    fn result(&mut self, command: CommandId, outcome: &CommandOutcome) -> Result<Reply, Failure> {
        let slot = self.slots[usize::from(command.0)];
        let optional = !matches!(slot.purpose, Purpose::Transfer | Purpose::Flush);
        if let Some(failure) = outcome::failure(outcome, optional) {
            return self.failed(slot.purpose, failure);
        }
        match slot.purpose {
            Purpose::Transfer | Purpose::Optional if outcome.residual == Residual::None => {
                Ok(Reply::Done)
            }
            // A residual of parameter data is no news: tgt 1.0.85 reports all of UNMAP's as one.
            Purpose::Unmap | Purpose::WriteSame | Purpose::Flush => Ok(Reply::Done),
            Purpose::Transfer | Purpose::Optional | Purpose::ExtentStatus(_) => {
                ended(&slot, outcome)
            }
        }
    }

    #[cold]
    fn failed(&mut self, purpose: Purpose, failure: Failure) -> Result<Reply, Failure> {
        self.notice = outcome::notice(&failure);
        match (purpose, failure) {
            // Nothing to flush, and no command for it either.
            (Purpose::Flush, Failure::Unsupported) if !self.dialect.write_cache => Ok(Reply::Done),
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
                    .unwrap_or_else(|| Notice::Other("the target reports an event".to_owned()))
            }
            event => Notice::Other(format!("the target reports: {event:?}")),
        }
    }
}

/// A command went well, but there is more to look at.
#[cold]
fn ended(slot: &Slot, outcome: &CommandOutcome) -> Result<Reply, Failure> {
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
        Residual::None => return Ok(Reply::Done),
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
fn parse_lba_status(extent: Extent, answer: &[u8]) -> Option<Reply> {
    let lba = u64::from_be_bytes(*answer.get(8..)?.first_chunk()?);
    let count = u32::from_be_bytes(*answer.get(16..)?.first_chunk()?);
    let state = *answer.get(20)?;
    let before = extent.lba.0.checked_sub(lba)?;
    let left = u64::from(count).checked_sub(before)?;
    if left == 0 {
        return None;
    }
    Some(Reply::Extent {
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
            Purpose::Transfer | Purpose::Optional | Purpose::Flush | Purpose::ExtentStatus(_) => {
                data
            }
        };
        let command = Command {
            lun: self.lun,
            cdb: cdb.as_bytes(),
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer,
        };
        let id =
            self.connection
                .submit(&command, data, transmit)
                .map_err(|refused| match refused {
                    NotSent::Busy => Refusal::Busy,
                    NotSent::Closed | _ => Refusal::Failed(Failure::Closed),
                })?;
        self.slots[usize::from(id.0)] = Slot {
            purpose,
            transfer,
            flush: self.needs_flush(operation),
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
                ConnectionEvent::NeedMore => MachineEvent::NeedMore,
                ConnectionEvent::DataIn {
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
                ConnectionEvent::R2t(r2t) => match self.wanted(r2t, transmit) {
                    Some(r2t) => MachineEvent::DataWanted {
                        slot: r2t.command.0,
                        offset: r2t.buffer_offset,
                        length: r2t.length,
                        token: r2t,
                    },
                    None => continue,
                },
                ConnectionEvent::Completed { command, outcome } => {
                    match self.completed(command, &outcome, transmit) {
                        Some(result) => MachineEvent::Completed {
                            slot: command.0,
                            result,
                        },
                        None => continue,
                    }
                }
                ConnectionEvent::Pong { request, .. } => {
                    if self.ping == Some(request) {
                        self.ping = None;
                    }
                    MachineEvent::Pong
                }
                ConnectionEvent::Rejected { reason, header } => {
                    self.rejected(&format!("{reason:?}"), &header)
                }
                ConnectionEvent::Async(message) => MachineEvent::Notice(self.news(&message)),
                ConnectionEvent::LoggedOut(_) => {
                    self.logged_out = true;
                    continue;
                }
                ConnectionEvent::Close(reason) => MachineEvent::Closed(cause(&reason)),
                ConnectionEvent::Established
                | ConnectionEvent::TaskManagementDone { .. }
                | ConnectionEvent::Text(_) => continue,
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

    fn ping(&mut self, data: &[u8], transmit: &mut Transmit) -> bool {
        let segment = self
            .connection
            .operational()
            .target_max_recv_data_segment_length;
        // One at a time: its answer, or silence, says all there is to know.
        if self.ping.is_some() || data.len() > segment as usize {
            return false;
        }
        self.ping = self.connection.ping(data, transmit).ok();
        self.ping.is_some()
    }

    fn data_pdus(&self) -> u64 {
        self.connection.data_pdus()
    }

    fn close(&mut self, transmit: &mut Transmit) {
        let reason = LogoutReason::CLOSE_SESSION;
        if let Err(refused) = self.connection.logout(reason, transmit) {
            tracing::debug!(%refused, "no logout");
        }
    }
}

/// Why a connection ends, as a queue tells it.
#[cold]
pub(super) fn cause(reason: &CloseReason) -> CloseCause {
    match reason {
        CloseReason::Logout | CloseReason::Initiator => CloseCause::LoggedOut,
        CloseReason::Login(error) => CloseCause::Protocol(error.to_string()),
        CloseReason::ProtocolError(problem) => CloseCause::Protocol((*problem).to_owned()),
        CloseReason::HeaderDigestError => CloseCause::Digest("header"),
        CloseReason::DataDigestError => CloseCause::Digest("data"),
    }
}
