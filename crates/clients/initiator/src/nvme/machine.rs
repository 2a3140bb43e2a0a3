//! The commands of an I/O queue, as a [`queue::Machine`].
//!
//! | operation | command |
//! |---|---|
//! | read, write | Read, Write; FUA as asked for |
//! | compare and write | Compare and Write, fused: two commands, one end |
//! | write zeroes | Write Zeroes, with DEAC when deallocating is allowed |
//! | unmap | Dataset Management, Deallocate, of one range |
//! | flush | Flush of the namespace |
//! | extent status | none: NVMe has no such command in its NVM command set 1.0 |
//!
//! Slots are those of [`Connection`]. A fused pair takes two there, and one above them here, because its halves end
//! one by one, and the first slot that becomes free could be taken again before the pair has ended.

use longshore_block::extent::Extent;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, Blocks, DEALLOCATE, FORCE_UNIT_ACCESS};
use longshore_nvme::host::{
    CloseReason, Command, CommandOutcome, CommandSlot, Connection, ConnectionEvent, NotSent,
    R2tRequest, Transfer,
};
use longshore_nvme::status::Status;
use longshore_wire::transmit::{Transmit, WriteData};

use super::failure::{RetryDelays, broken, failure, terminated};
use crate::error::{CloseCause, Failure};
use crate::info::VolumeInfo;
use crate::operation::{Operation, Reply};
use crate::queue::{self, MachineEvent, PayloadWanted, Refusal};

/// Most blocks of a command: NLB has 16 bits and is less one.
const BLOCKS_MAX: u64 = 1 << 16;

/// Most fused pairs that are under way at a time.
const PAIRS_MAX: u16 = 32;

/// Bytes of a range of Dataset Management.
const RANGE_BYTES: usize = 16;

/// What a machine has to know of its namespace.
#[derive(Clone, Debug)]
pub(super) struct NamespaceLimits {
    namespace: NamespaceId,
    block_size: u32,
    transfer_blocks: u64,
    /// 0: there is no such command; so with the others.
    write_zeroes_blocks: u64,
    unmap_blocks: u64,
    compare_and_write_blocks: u64,
    /// The controller supports Disconnect (OFCS of Identify Controller).
    disconnect: bool,
    delays: RetryDelays,
}

impl NamespaceLimits {
    pub(super) fn new(
        namespace: NamespaceId,
        info: &VolumeInfo,
        disconnect: bool,
        delays: RetryDelays,
    ) -> Self {
        let block_size = info.block_size;
        // Lengths have 32 bits.
        let addressable = u64::from(u32::MAX / 2 / block_size.max(1)).min(BLOCKS_MAX);
        let transfer_blocks = info
            .max_transfer_blocks
            .map_or(addressable, u64::from)
            .clamp(1, addressable);
        let if_there = |is_there: bool, blocks: u64| if is_there { blocks } else { 0 };
        Self {
            namespace,
            block_size,
            transfer_blocks,
            write_zeroes_blocks: if_there(
                info.write_zeroes,
                info.max_write_zeroes_blocks
                    .unwrap_or(BLOCKS_MAX)
                    .min(BLOCKS_MAX),
            ),
            unmap_blocks: if_there(
                info.unmap,
                info.max_unmap_blocks
                    .unwrap_or(u64::MAX)
                    .min(u32::MAX.into()),
            ),
            compare_and_write_blocks: info
                .compare_and_write_max
                .map_or(0, |blocks| u64::from(blocks).min(transfer_blocks)),
            disconnect,
            delays,
        }
    }

    /// The blocks of a command, when there are neither none nor too many.
    fn blocks(&self, extent: Extent, most: u64) -> Result<Blocks, Refusal> {
        let count = u32::try_from(extent.blocks.0).unwrap_or(u32::MAX);
        if most == 0 {
            return Err(Refusal::Failed(Failure::Unsupported));
        }
        if u64::from(count) > most {
            return Err(Refusal::Failed(Failure::TooLarge));
        }
        if count == 0 {
            return Err(Refusal::Failed(Failure::OutOfRange));
        }
        Ok(Blocks {
            namespace: self.namespace,
            lba: extent.lba,
            count,
            block_bytes: self.block_size,
        })
    }
}

/// What a slot of the connection is used for.
#[derive(Clone, Copy, Debug)]
enum Flight {
    /// One command. `takes`: bytes of data it has for the controller.
    One { takes: u32 },
    /// A Dataset Management, and its data.
    Deallocate([u8; RANGE_BYTES]),
    /// Half of a pair.
    Half { pair: u16, is_second: bool },
    /// The last command of the queue.
    Disconnect,
}

/// A fused Compare and Write.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    /// Halves that have not ended; 0: the entry is free.
    left: u8,
    /// Bytes of a half's data.
    half_bytes: u32,
    /// How the compare and the write ended.
    statuses: [Option<Status>; 2],
    is_short: bool,
}

/// One I/O queue. See the module documentation.
#[derive(Debug)]
pub struct Machine {
    connection: Connection,
    limits: NamespaceLimits,
    /// By slot of the connection.
    flights: Vec<Flight>,
    /// By slot here, less the slots of the connection.
    pairs: Vec<Pair>,
    /// There is no Disconnect, and the queue was closed.
    is_closed: bool,
}

impl Machine {
    /// The queue of a connection whose Connect has succeeded, with `commands` slots.
    pub(super) fn new(connection: Connection, commands: u16, mut limits: NamespaceLimits) -> Self {
        if commands < 2 {
            limits.compare_and_write_blocks = 0;
        }
        let pairs = (commands / 2).min(PAIRS_MAX);
        Self {
            connection,
            limits,
            flights: vec![Flight::One { takes: 0 }; usize::from(commands)],
            pairs: vec![Pair::default(); usize::from(pairs)],
            is_closed: false,
        }
    }

    fn send(
        &mut self,
        command: &Command,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        let takes = match command.transfer {
            Transfer::ToController(length) => length,
            Transfer::None | Transfer::ToHost(_) => 0,
        };
        if data.bytes().len() < takes as usize {
            return Err(too_short(takes, data));
        }
        let slot = self
            .connection
            .submit(command, data, transmit)
            .map_err(not_sent)?;
        self.flights[usize::from(slot.0)] = Flight::One { takes };
        Ok(slot.0)
    }

    fn deallocate(&mut self, extent: Extent, transmit: &mut Transmit) -> Result<u16, Refusal> {
        let blocks = self.limits.blocks(extent, self.limits.unmap_blocks)?;
        let mut range = [0; RANGE_BYTES];
        longshore_wire::field::set_le32(&mut range, 4, blocks.count);
        longshore_wire::field::set_le64(&mut range, 8, blocks.lba.0);
        let command = commands::deallocate(self.limits.namespace, 1);
        let slot = self.send(&command, WriteData::Bytes(&range), transmit)?;
        self.flights[usize::from(slot)] = Flight::Deallocate(range);
        Ok(slot)
    }

    fn compare_and_write(
        &mut self,
        extent: Extent,
        fua: bool,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        let most = self.limits.compare_and_write_blocks;
        let blocks = self.limits.blocks(extent, most)?;
        let half_bytes = blocks.bytes();
        // Copied where it goes along with the commands: the payload is released once for each call, not twice.
        let Some((expected, rest)) = data.bytes().split_at_checked(half_bytes as usize) else {
            return Err(too_short(half_bytes.saturating_mul(2), data));
        };
        if rest.len() < half_bytes as usize {
            return Err(too_short(half_bytes.saturating_mul(2), data));
        }
        let free = self.pairs.iter().position(|pair| pair.left == 0);
        let number = free.ok_or(Refusal::Busy)?;
        let compare = commands::compare(blocks);
        let write = commands::write(blocks, flag(fua, FORCE_UNIT_ACCESS));
        let halves = [WriteData::Bytes(expected), WriteData::Bytes(rest)];
        let slots = self
            .connection
            .submit_fused([&compare, &write], halves, transmit)
            .map_err(not_sent)?;
        self.pairs[number] = Pair {
            left: 2,
            half_bytes,
            ..Pair::default()
        };
        let pair = u16::try_from(number).expect("few pairs");
        for (slot, is_second) in slots.into_iter().zip([false, true]) {
            self.flights[usize::from(slot.0)] = Flight::Half { pair, is_second };
        }
        Ok(self.slot_of_pair(pair))
    }

    fn slot_of_pair(&self, pair: u16) -> u16 {
        let above = u16::try_from(self.flights.len()).expect("at most 32,768 commands");
        above + pair
    }

    /// An R2T: answered here if the data is ours.
    fn wanted<'a>(
        &mut self,
        r2t: R2tRequest,
        transmit: &mut Transmit,
    ) -> Option<MachineEvent<'a, R2tRequest>> {
        let (slot, before) = match self.flights[usize::from(r2t.slot.0)] {
            Flight::Deallocate(range) => {
                let start = r2t.buffer_offset as usize;
                let part = &range[start..start + r2t.length as usize];
                self.connection
                    .send_data(&r2t, WriteData::Bytes(part), transmit);
                return None;
            }
            Flight::Half { pair, is_second } => {
                let half_bytes = self.pairs[usize::from(pair)].half_bytes;
                let before = if is_second { half_bytes } else { 0 };
                (self.slot_of_pair(pair), before)
            }
            Flight::One { .. } | Flight::Disconnect => (r2t.slot.0, 0),
        };
        Some(MachineEvent::DataWanted {
            slot,
            offset: before + r2t.buffer_offset,
            length: r2t.length,
            token: r2t,
        })
    }

    #[inline]
    fn completed<'a>(
        &mut self,
        slot: CommandSlot,
        outcome: &CommandOutcome,
    ) -> Option<MachineEvent<'a, R2tRequest>> {
        let result = match self.flights[usize::from(slot.0)] {
            Flight::One { takes } => self.result(outcome, takes),
            Flight::Deallocate(_) => self.result(outcome, 0),
            Flight::Half { pair, is_second } => return self.half_ended(pair, is_second, outcome),
            Flight::Disconnect => {
                self.is_closed = true;
                return Some(MachineEvent::Closed(CloseCause::LoggedOut));
            }
        };
        Some(MachineEvent::Completed {
            slot: slot.0,
            result,
        })
    }

    #[inline]
    fn result(&self, outcome: &CommandOutcome, takes: u32) -> Result<Reply, Failure> {
        if outcome.status.is_success() {
            // What was never asked for cannot have been written.
            if outcome.data_out_length < takes {
                return Err(Failure::ShortTransfer {
                    expected: takes.into(),
                    moved: outcome.data_out_length.into(),
                });
            }
            return Ok(Reply::Done);
        }
        if outcome.data_digest_error && outcome.status == Status::TRANSIENT_TRANSPORT_ERROR {
            return Err(Failure::DataDigest);
        }
        Err(failure(outcome.status, self.limits.delays))
    }

    fn half_ended<'a>(
        &mut self,
        number: u16,
        is_second: bool,
        outcome: &CommandOutcome,
    ) -> Option<MachineEvent<'a, R2tRequest>> {
        let pair = &mut self.pairs[usize::from(number)];
        pair.left -= 1;
        pair.statuses[usize::from(is_second)] = Some(outcome.status);
        pair.is_short |= outcome.status.is_success() && outcome.data_out_length < pair.half_bytes;
        if pair.left > 0 {
            return None;
        }
        let pair = *pair;
        Some(MachineEvent::Completed {
            slot: self.slot_of_pair(number),
            result: pair.result(self.limits.delays),
        })
    }
}

impl Pair {
    /// How both ended together. The half that was only drawn along says nothing of the reason.
    fn result(self, delays: RetryDelays) -> Result<Reply, Failure> {
        let follows = |status: &Status| {
            matches!(
                status.code(),
                Status::ABORTED_FAILED_FUSED | Status::ABORTED_MISSING_FUSED
            )
        };
        let failed = |status: &Status| !status.is_success();
        let statuses = self.statuses.into_iter().flatten();
        let reason = statuses
            .clone()
            .filter(failed)
            .find(|status| !follows(status))
            .or_else(|| statuses.clone().find(failed));
        match reason {
            Some(status) => Err(failure(status, delays)),
            None if self.is_short => Err(Failure::ShortTransfer {
                expected: u64::from(self.half_bytes) * 2,
                moved: self.half_bytes.into(),
            }),
            None => Ok(Reply::Done),
        }
    }
}

impl queue::Machine for Machine {
    type Token = R2tRequest;

    fn slots(&self) -> usize {
        self.flights.len() + self.pairs.len()
    }

    #[inline]
    fn room(&self) -> usize {
        if self.is_closed {
            0
        } else {
            self.connection.slots_free()
        }
    }

    fn block_size(&self) -> u32 {
        self.limits.block_size
    }

    #[inline]
    fn submit(
        &mut self,
        operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        if self.is_closed {
            return Err(Refusal::Failed(Failure::Closed));
        }
        let limits = &self.limits;
        match *operation {
            Operation::Read { extent } => {
                let blocks = limits.blocks(extent, limits.transfer_blocks)?;
                self.send(&commands::read(blocks), WriteData::NONE, transmit)
            }
            Operation::Write { extent, fua } => {
                let blocks = limits.blocks(extent, limits.transfer_blocks)?;
                let write = commands::write(blocks, flag(fua, FORCE_UNIT_ACCESS));
                self.send(&write, data, transmit)
            }
            Operation::CompareAndWrite { extent, fua } => {
                self.compare_and_write(extent, fua, data, transmit)
            }
            Operation::WriteZeroes {
                extent,
                may_unmap,
                fua,
            } => {
                let blocks = limits.blocks(extent, limits.write_zeroes_blocks)?;
                let flags = flag(may_unmap, DEALLOCATE) | flag(fua, FORCE_UNIT_ACCESS);
                let write = commands::write_zeroes(blocks, flags);
                self.send(&write, WriteData::NONE, transmit)
            }
            Operation::Unmap { extent } => self.deallocate(extent, transmit),
            Operation::Flush => {
                let flush = commands::flush(limits.namespace);
                self.send(&flush, WriteData::NONE, transmit)
            }
            Operation::Anchor { .. }
            | Operation::ExtentStatus { .. }
            | Operation::Prefetch { .. } => Err(Refusal::Failed(Failure::Unsupported)),
        }
    }

    #[inline]
    fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> MachineEvent<'a, R2tRequest> {
        if self.is_closed {
            return MachineEvent::Closed(CloseCause::LoggedOut);
        }
        loop {
            let event = match self.connection.next(input, transmit) {
                ConnectionEvent::NeedMore => Some(MachineEvent::NeedMore),
                ConnectionEvent::Ready => None,
                ConnectionEvent::DataIn {
                    slot,
                    buffer_offset,
                    bytes,
                } => Some(MachineEvent::DataIn {
                    slot: slot.0,
                    offset: buffer_offset,
                    bytes,
                }),
                ConnectionEvent::R2t(r2t) => self.wanted(r2t, transmit),
                ConnectionEvent::Completed { slot, outcome } => self.completed(slot, &outcome),
                ConnectionEvent::Close(reason) => Some(MachineEvent::Closed(cause(reason))),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    #[inline]
    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let wanted = self.connection.payload_wanted()?;
        Some(PayloadWanted {
            slot: wanted.slot.0,
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
        self.connection.send_data(&token, data, transmit);
    }

    /// I/O queues have nothing of the kind: Keep Alive is a command of the admin queue.
    fn ping(&mut self, _data: &[u8], _transmit: &mut Transmit) -> bool {
        false
    }

    fn data_pdus(&self) -> u64 {
        self.connection.data_pdus()
    }

    fn close(&mut self, transmit: &mut Transmit) {
        if self.limits.disconnect {
            let disconnect = commands::disconnect();
            if let Ok(slot) = self
                .connection
                .submit(&disconnect, WriteData::NONE, transmit)
            {
                self.flights[usize::from(slot.0)] = Flight::Disconnect;
                return;
            }
        }
        self.is_closed = true;
    }
}

const fn flag(is_set: bool, flag: u32) -> u32 {
    if is_set { flag } else { 0 }
}

#[cold]
const fn not_sent(refused: NotSent) -> Refusal {
    match refused {
        NotSent::Busy => Refusal::Busy,
        NotSent::Closed | _ => Refusal::Failed(Failure::Closed),
    }
}

#[cold]
fn too_short(needed: u32, data: WriteData<'_>) -> Refusal {
    let given = u64::try_from(data.bytes().len()).unwrap_or(u64::MAX);
    Refusal::Failed(Failure::WrongDataLength {
        needed: needed.into(),
        given,
    })
}

#[cold]
fn cause(reason: CloseReason) -> CloseCause {
    match reason {
        CloseReason::Terminated(error) => terminated(error),
        CloseReason::ProtocolError(error) => broken(error),
        CloseReason::Host => CloseCause::LoggedOut,
    }
}

#[cfg(test)]
mod tests;
