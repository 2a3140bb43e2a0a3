//! Commands carried out on a medium in memory.

#![allow(clippy::cast_possible_truncation)]

mod compare;
mod copy;
mod dataset;
mod fused;
mod property;
mod read_write;
mod reservation;

use std::cell::Cell;
use std::sync::Arc;

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::{MediaError, Operation, Reply};

use super::command::State;
use super::plain::{self as shown, Plain};
use super::{
    Attached, Buffers, Command, CommandEvent, FusedOutcome, FusedPair, FusedStep, IoOutcome, Step,
};
use crate::command::{CommandId, Fuse, NamespaceId, SubmissionEntry};
use crate::opcode::{Opcode, io};
use crate::reservation::{HostRegistrant, NotificationLog};
use crate::status::Status;
use longshore_block::reservation::{Participant, ReservationClass, Reservations, gate_bit};

pub(super) const BLOCK: usize = 512;
pub(super) const BLOCKS: u64 = 2048;

/// A namespace that the tests bend as they like.
#[derive(Clone)]
pub(super) struct TestNamespace {
    pub id: NamespaceId,
    pub read_only: bool,
    pub write_protected: bool,
    pub volatile_cache: bool,
    reservations: Arc<Reservations>,
    host: Arc<HostRegistrant>,
}

impl TestNamespace {
    pub fn new(id: u32) -> Self {
        let reservations = Reservations::new();
        let host = join(&reservations, id, 1);
        Self {
            id: NamespaceId(id),
            read_only: false,
            write_protected: false,
            volatile_cache: false,
            reservations,
            host,
        }
    }

    /// The same namespace, seen by another host.
    pub fn seen_by(&self, host: u8) -> Self {
        Self {
            host: join(&self.reservations, self.id.0, host),
            ..self.clone()
        }
    }

    /// What conflicts from now on.
    pub fn set_conflicts(&self, classes: &[ReservationClass]) {
        let bits = classes
            .iter()
            .fold(0, |bits, class| bits | gate_bit(*class));
        self.host.set_reservation_gate(bits);
    }
}

fn join(reservations: &Reservations, id: u32, host: u8) -> Arc<HostRegistrant> {
    HostRegistrant::join(
        reservations,
        [host; 16],
        NamespaceId(id),
        NotificationLog::new(),
    )
}

/// What is plain is what the command is about to do. A Read that flushes first is not.
fn assert_agree(command: &Command, plain: Option<Plain>) {
    let single = match command.state {
        State::Single {
            operation: Operation::Read { extent },
            ..
        } => Some((extent, false, false)),
        State::Single {
            operation: Operation::Write { extent, fua },
            ..
        } => Some((extent, true, fua)),
        _ => None,
    };
    let Some(plain) = plain else {
        return;
    };
    let blocks = BlockCount(u64::from(plain.length) / BLOCK as u64);
    let extent = Extent {
        lba: plain.lba,
        blocks,
    };
    let shown = (extent, plain.writes, plain.fua);
    assert_eq!(single, Some(shown), "{command:?}");
    assert_eq!(command.transfer().length, plain.length);
    assert_eq!(command.namespace(), Some(plain.namespace));
    assert_eq!(command.scratch_length(), 0);
}

impl Attached for TestNamespace {
    fn id(&self) -> NamespaceId {
        self.id
    }
    fn block_size(&self) -> u32 {
        BLOCK as u32
    }
    fn block_count(&self) -> u64 {
        BLOCKS
    }
    fn max_transfer_bytes(&self) -> u32 {
        256 * BLOCK as u32
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn is_write_protected(&self) -> bool {
        self.write_protected || self.read_only
    }
    fn has_volatile_cache(&self) -> bool {
        self.volatile_cache
    }
    fn reservations(&self) -> &Arc<Reservations> {
        &self.reservations
    }
    fn host(&self) -> &Arc<HostRegistrant> {
        &self.host
    }
    fn can_store_reservations(&self) -> bool {
        true
    }
}

/// The medium of each namespace, and what was done to it.
pub(super) struct World {
    pub namespaces: Vec<TestNamespace>,
    pub media: Vec<Vec<u8>>,
    pub log: Vec<(usize, Operation)>,
    /// Ranges that pairs had for themselves, and how many operations came before.
    pub locks: Vec<(usize, Extent)>,
    /// The operation, counted from the end of the log, that fails next.
    pub failure: Cell<Option<(usize, MediaError)>>,
    /// Reservations that were stored.
    pub stored: Vec<Vec<u8>>,
    /// How many participants had their commands aborted.
    pub aborted: usize,
}

pub(super) fn bytes(lba: u64, blocks: u64) -> std::ops::Range<usize> {
    let start = lba as usize * BLOCK;
    start..start + blocks as usize * BLOCK
}

/// Blocks that differ from each other and from zeros.
pub(super) fn pattern(seed: u64, blocks: u64) -> Vec<u8> {
    let mut data = vec![1; blocks as usize * BLOCK];
    for (number, block) in data.chunks_exact_mut(BLOCK).enumerate() {
        block.fill((seed as usize + number) as u8 | 1);
        block[..8].copy_from_slice(&(seed + number as u64).to_le_bytes());
    }
    data
}

/// How a command ended, and the data that went to the host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub outcome: IoOutcome,
    pub data: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> Status {
        self.outcome.status
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(vec![TestNamespace::new(1)])
    }

    pub fn with(namespaces: Vec<TestNamespace>) -> Self {
        let medium = pattern(3, BLOCKS);
        Self {
            media: vec![medium; namespaces.len()],
            namespaces,
            log: Vec::new(),
            locks: Vec::new(),
            failure: Cell::new(None),
            stored: Vec::new(),
            aborted: 0,
        }
    }

    /// The operation that comes after `skip` others fails.
    pub fn fail(&mut self, skip: usize, error: MediaError) {
        self.failure.set(Some((self.log.len() + skip, error)));
    }

    pub fn read_back(&self, lba: u64, blocks: u64) -> &[u8] {
        &self.media[0][bytes(lba, blocks)]
    }

    /// Carries out a command whose SGL describes `data_length` bytes.
    pub fn run_with_length(
        &mut self,
        entry: &SubmissionEntry,
        data: &[u8],
        data_length: u32,
    ) -> Answer {
        let mut command = Command::begin(&self.namespaces, entry, data_length);
        let transfer = command.transfer();
        assert!(transfer.length <= data_length.max(transfer.length));
        let plain = shown::plain(&self.namespaces, entry, data_length);
        assert_agree(&command, plain);
        if command.decided() {
            assert_eq!(transfer.length, 0, "a decided command moves no data");
        }
        let taken = if transfer.direction == crate::opcode::Direction::ToController {
            &data[..transfer.length as usize]
        } else {
            &[]
        };
        let mut scratch = vec![0; command.scratch_length()];
        let mut data_in = Vec::new();
        let mut event = CommandEvent::Start;
        loop {
            let buffers = Buffers {
                data_out: taken,
                scratch: &mut scratch,
                data_in: &mut data_in,
            };
            match command.step(&self.namespaces, event, buffers) {
                Step::Media {
                    namespace,
                    operation,
                    payload,
                } => {
                    let result = self.media_operation(
                        namespace,
                        operation,
                        payload,
                        taken,
                        &mut scratch,
                        &mut data_in,
                    );
                    event = CommandEvent::Media(result);
                }
                Step::Complete(outcome) => {
                    assert!(outcome.status.is_success() || data_in.is_empty());
                    assert!(data_in.len() <= transfer.length as usize);
                    return Answer {
                        outcome,
                        data: data_in,
                    };
                }
                Step::Persist(order) => {
                    self.stored.push(order.to_vec());
                    event = CommandEvent::Persisted(true);
                }
                Step::LockRange { .. } => panic!("only pairs ask for it"),
                Step::Wait(wait) => panic!("nobody ends {wait:?}"),
                Step::AbortTasks(participants) => {
                    self.aborted += participants.len();
                    event = CommandEvent::TasksAborted;
                }
            }
        }
    }

    /// Carries out a command with exactly this data, or that reads this much.
    pub fn run(&mut self, entry: &SubmissionEntry, data: &[u8]) -> Answer {
        self.run_with_length(entry, data, data.len() as u32)
    }

    pub fn read(&mut self, entry: &SubmissionEntry) -> Answer {
        let length = ((entry.dword(12) & 0xffff) + 1) * BLOCK as u32;
        self.run_with_length(entry, &[], length)
    }

    /// A fused pair, each with its data.
    pub fn run_pair(
        &mut self,
        first: (&SubmissionEntry, &[u8]),
        second: (&SubmissionEntry, &[u8]),
    ) -> FusedOutcome {
        let begin = |(entry, data): (&SubmissionEntry, &[u8])| {
            Command::begin(&self.namespaces, entry, data.len() as u32)
        };
        let mut pair = FusedPair::new(begin(first), begin(second));
        let (of_first, of_second) = pair.transfers();
        let mut data = first.1[..of_first as usize].to_vec();
        data.extend(&second.1[..of_second as usize]);
        let mut scratch = vec![0; pair.scratch_length()];
        let mut data_in = Vec::new();
        let mut event = CommandEvent::Start;
        loop {
            let buffers = Buffers {
                data_out: &data,
                scratch: &mut scratch,
                data_in: &mut data_in,
            };
            match pair.step(event, buffers) {
                FusedStep::Media {
                    namespace,
                    operation,
                    payload,
                } => {
                    assert_eq!(Some(namespace), pair.namespace());
                    let result = self.media_operation(
                        namespace,
                        operation,
                        payload,
                        &data,
                        &mut scratch,
                        &mut data_in,
                    );
                    event = CommandEvent::Media(result);
                }
                FusedStep::LockRange { namespace, extent } => {
                    assert_eq!(Some(namespace), pair.namespace());
                    assert!(extent.fits(BLOCKS));
                    self.locks.push((self.log.len(), extent));
                    event = CommandEvent::Locked;
                }
                FusedStep::Complete(outcome) => return outcome,
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn media_operation(
        &mut self,
        namespace: usize,
        operation: Operation,
        payload: DataLocation,
        data_out: &[u8],
        scratch: &mut [u8],
        data_in: &mut Vec<u8>,
    ) -> Result<Reply, MediaError> {
        let number = self.log.len();
        self.log.push((namespace, operation));
        assert!(number < 100_000, "it comes to an end");
        if let Some((_, error)) = self.failure.get().filter(|(at, _)| *at == number) {
            return Err(error);
        }
        let medium = &mut self.media[namespace];
        match operation {
            Operation::Read {
                extent: Extent { lba, blocks },
            } => {
                let source = &medium[bytes(lba.0, blocks.0)];
                match payload {
                    DataLocation::DataIn { length } => data_in.extend(&source[..length]),
                    DataLocation::Scratch { start, length } => {
                        scratch[start..start + length].copy_from_slice(source);
                    }
                    other => panic!("read to {other:?}"),
                }
            }
            Operation::Write {
                extent: Extent { lba, blocks },
                ..
            } => {
                let target = &mut medium[bytes(lba.0, blocks.0)];
                match payload {
                    DataLocation::DataOut { start, length } => {
                        target.copy_from_slice(&data_out[start..start + length]);
                    }
                    DataLocation::Scratch { start, length } => {
                        target.copy_from_slice(&scratch[start..start + length]);
                    }
                    other => panic!("write from {other:?}"),
                }
            }
            Operation::WriteZeroes {
                extent: Extent { lba, blocks },
                ..
            }
            | Operation::Unmap {
                extent: Extent { lba, blocks },
            } => {
                assert!(blocks.0 > 0);
                medium[bytes(lba.0, blocks.0)].fill(0);
            }
            Operation::Flush => {}
            other => panic!("no command asks for {other:?}"),
        }
        Ok(Reply::Done)
    }
}

/// An entry with SLBA and NLB.
pub(super) fn ranged(opcode: Opcode, lba: u64, blocks: u64) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, CommandId(7), NamespaceId(1));
    entry.set_qword(10, lba);
    entry.set_dword(12, (blocks - 1) as u32);
    entry
}

pub(super) fn set_bit(mut entry: SubmissionEntry, dword: usize, bit: u32) -> SubmissionEntry {
    entry.set_dword(dword, entry.dword(dword) | 1 << bit);
    entry
}

pub(super) fn fused(mut entry: SubmissionEntry, fuse: Fuse) -> SubmissionEntry {
    entry.set_fuse(fuse);
    entry
}

pub(super) fn plain(opcode: Opcode) -> SubmissionEntry {
    SubmissionEntry::new(opcode, CommandId(7), NamespaceId(1))
}

pub(super) const FUA: u32 = 30;

#[track_caller]
pub(super) fn assert_refused(answer: &Answer, status: Status) {
    assert_eq!(answer.status(), status.do_not_retry());
    assert!(answer.data.is_empty());
}

#[test]
fn commands_we_do_not_know_are_refused() {
    let mut world = World::new();
    for opcode in [
        io::WRITE_UNCORRECTABLE,
        Opcode(0x03),
        Opcode(0x18),
        Opcode(0x80),
        Opcode(0xff),
    ] {
        let answer = world.run(&ranged(opcode, 0, 1), &[]);
        assert_refused(&answer, Status::INVALID_COMMAND_OPCODE);
    }
    assert!(world.log.is_empty());
}

#[test]
fn inactive_and_invalid_namespaces_are_told_apart() {
    let mut world = World::with(vec![TestNamespace::new(2), TestNamespace::new(9)]);
    let flush = |id| SubmissionEntry::new(io::FLUSH, CommandId(1), NamespaceId(id));
    for id in [1, 3, 8, 10, 16_384] {
        assert_refused(&world.run(&flush(id), &[]), Status::INVALID_FIELD);
    }
    for id in [0, 16_385, u32::MAX - 1] {
        assert_refused(
            &world.run(&flush(id), &[]),
            Status::INVALID_NAMESPACE_OR_FORMAT,
        );
    }
    let read_all = SubmissionEntry::new(io::READ, CommandId(1), NamespaceId::BROADCAST);
    assert_refused(&world.read(&read_all), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert!(world.run(&flush(9), &[]).status().is_success());
    assert_eq!(world.log, [(1, Operation::Flush)]);
}

#[test]
fn a_flush_of_all_namespaces_flushes_each_that_can_be_written() {
    let mut world = World::with((1..=3).map(TestNamespace::new).collect());
    world.namespaces[1].read_only = true;
    let flush = SubmissionEntry::new(io::FLUSH, CommandId(1), NamespaceId::BROADCAST);
    assert!(world.run(&flush, &[]).status().is_success());
    assert_eq!(world.log, [(0, Operation::Flush), (2, Operation::Flush)]);
    world.fail(0, MediaError::Poisoned);
    assert_refused(&world.run(&flush, &[]), Status::WRITE_FAULT);
}

#[test]
fn a_read_only_volume_has_nothing_to_flush() {
    let mut world = World::new();
    world.namespaces[0].read_only = true;
    assert!(world.run(&plain(io::FLUSH), &[]).status().is_success());
    assert!(world.log.is_empty());
}

#[test]
fn every_command_fares_under_reservations_as_its_group() {
    use ReservationClass::{Changes, Reads};
    let group = [
        (ranged(io::READ, 0, 1), BLOCK, Reads),
        (ranged(io::COMPARE, 0, 1), BLOCK, Reads),
        (ranged(io::VERIFY, 0, 1), 0, Reads),
        (ranged(io::WRITE, 0, 1), BLOCK, Changes),
        (ranged(io::WRITE_ZEROES, 0, 1), 0, Changes),
        (set_bit(plain(io::DATASET_MANAGEMENT), 11, 2), 16, Changes),
        (plain(io::COPY), 32, Changes),
        (plain(io::FLUSH), 0, Changes),
    ];
    for (entry, length, class) in group {
        let mut world = World::new();
        let length = length as u32;
        for other in [Reads, Changes] {
            world.namespaces[0].set_conflicts(&[other]);
            let command = Command::begin(&world.namespaces, &entry, length);
            assert_eq!(command.decided(), other == class, "{entry:?}");
        }
        world.namespaces[0].set_conflicts(&[Reads, Changes]);
        let answer = world.run_with_length(&entry, &[], length);
        assert_refused(&answer, Status::RESERVATION_CONFLICT);
        assert!(world.log.is_empty());
    }
}

#[test]
fn write_protection_refuses_what_changes_the_medium_and_nothing_else() {
    let refused = [
        (ranged(io::WRITE, 0, 1), BLOCK),
        (ranged(io::WRITE_ZEROES, 0, 1), 0),
        (set_bit(plain(io::DATASET_MANAGEMENT), 11, 2), 16),
        (plain(io::COPY), 32),
    ];
    let allowed = [
        (ranged(io::READ, 0, 1), BLOCK),
        (ranged(io::COMPARE, 0, 1), BLOCK),
        (ranged(io::VERIFY, 0, 1), 0),
        (plain(io::DATASET_MANAGEMENT), 16),
        (plain(io::FLUSH), 0),
    ];
    let mut world = World::new();
    world.namespaces[0].write_protected = true;
    for (entry, length) in refused {
        let answer = world.run_with_length(&entry, &[], length as u32);
        assert_refused(&answer, Status::NAMESPACE_WRITE_PROTECTED);
    }
    for (entry, length) in allowed {
        let data = world.read_back(0, 1)[..length].to_vec();
        assert!(world.run(&entry, &data).status().is_success(), "{entry:?}");
    }
}
