//! Commands of I/O queues on a medium that answers anything, and the reservations of several hosts.
//!
//! Whatever a host sends: the medium is asked for blocks there are, the host is given no more than
//! it has room for, and every command ends.

use std::sync::Arc;

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::operation::{ExtentState, MediaError, Operation, Reply};
use longshore_block::reservation::{Reservations, StoreOrder};
use longshore_nvme::command::{CommandId, Fuse, NamespaceId, SubmissionEntry};
use longshore_nvme::controller::{AttachedNamespace, Controller, Namespace, Subsystems};
use longshore_nvme::io::{
    Arrival, Buffers, Command, CommandEvent, FusedPair, FusedStep, Fusing, Next, Step, Transfer,
};
use longshore_nvme::opcode::{Direction, Opcode, io};

use super::subsystem::{BLOCKS, controller, shared, subsystems};
use crate::input::Input;

/// Steps after which a command is taken to run forever.
const STEPS_MAX: usize = 100_000;

/// A command and what came with it.
#[derive(Debug)]
struct Sent {
    command: Command,
    data: Vec<u8>,
}

/// A host with one queue.
struct Host {
    namespaces: Arc<[AttachedNamespace]>,
    fusing: Fusing<Sent>,
    _controller: Arc<Controller>,
}

/// A command that waits for its reservations to be stored.
struct Storing {
    host: usize,
    sent: Sent,
    order: StoreOrder,
}

struct World {
    hosts: Vec<Host>,
    storing: Option<Storing>,
    namespaces: Vec<Arc<Namespace>>,
    _subsystems: Subsystems,
}

impl World {
    fn new() -> Self {
        let (subsystems, namespaces) = subsystems();
        let hosts = (0..4).map(|number| {
            let controller = controller(&subsystems, number, shared());
            Host {
                namespaces: controller.namespaces(),
                fusing: Fusing::default(),
                _controller: controller,
            }
        });
        Self {
            hosts: hosts.collect(),
            storing: None,
            namespaces,
            _subsystems: subsystems,
        }
    }

    fn arrive(&mut self, host: usize, entry: &SubmissionEntry, input: &mut Input<'_>) {
        let namespaces = Arc::clone(&self.hosts[host].namespaces);
        let exact = (entry.dword(12) & 0xffff) * 512 + 512;
        let length = match input.byte() {
            byte @ 0..=0x3f => u32::from(byte) << 6,
            0x40..=0x4f => exact * 8,
            _ => exact,
        };
        let command = Command::begin(&namespaces, entry, length);
        let Transfer {
            direction,
            length: taken,
        } = command.transfer();
        assert!(taken <= length, "{taken} bytes of {length}");
        assert!(taken <= 64 << 10, "more than MDTS");
        let mut data = Vec::new();
        if command.fuse() != Fuse::Normal || direction == Direction::ToController {
            let piece = input.piece();
            data.extend(piece.iter().cycle().take(length.min(64 << 10) as usize));
            data.resize(length.min(64 << 10) as usize, 0);
        }
        let fuse = command.fuse();
        let Arrival { next, .. } = self.hosts[host].fusing.arrive(fuse, Sent { command, data });
        match next {
            Next::Wait => {}
            Next::Alone(sent) => self.run(host, sent, CommandEvent::Start, input),
            Next::Pair { first, second } => self.run_pair(host, first, second, input),
        }
    }

    fn run(&mut self, host: usize, mut sent: Sent, first: CommandEvent, input: &mut Input<'_>) {
        let namespaces = Arc::clone(&self.hosts[host].namespaces);
        let command = &mut sent.command;
        let transfer = command.transfer();
        assert!(command.scratch_length() <= 1 << 20);
        let mut scratch = vec![0; command.scratch_length()];
        let mut data_in = Vec::new();
        let mut event = first;
        for _ in 0..STEPS_MAX {
            let data_out = match transfer.direction {
                Direction::ToController => &sent.data[..transfer.length as usize],
                _ => &[],
            };
            let buffers = Buffers {
                data_out,
                scratch: &mut scratch,
                data_in: &mut data_in,
            };
            event = match command.step(&namespaces, event, buffers) {
                Step::Media {
                    namespace,
                    operation,
                    payload,
                } => {
                    let room = match transfer.direction {
                        Direction::ToHost => transfer.length as usize,
                        _ => 0,
                    };
                    let lengths = [data_out.len(), scratch.len(), room];
                    check(&namespaces[namespace], &operation, payload, lengths);
                    CommandEvent::Media(answer(&operation, input))
                }
                Step::LockRange { .. } => unreachable!("only pairs ask for it"),
                Step::Persist(order) => {
                    let fresh = Reservations::new();
                    assert!(fresh.restore(&order).is_ok(), "it can be restored");
                    assert!(self.storing.is_none(), "two changes are being stored");
                    if input.byte() & 7 == 7 {
                        self.storing = Some(Storing { host, sent, order });
                        return;
                    }
                    drop(order);
                    CommandEvent::Persisted(input.byte() & 7 != 7)
                }
                Step::AbortTasks(members) => {
                    assert!(!members.is_empty());
                    CommandEvent::TasksAborted
                }
                Step::Wait(wait) => {
                    wait.then(|| ());
                    self.stored(input);
                    CommandEvent::Start
                }
                Step::Complete(outcome) => {
                    assert!(outcome.status.is_success() || data_in.is_empty());
                    let room = transfer.length as usize;
                    let to_host = transfer.direction == Direction::ToHost;
                    assert!(data_in.len() <= if to_host { room } else { 0 });
                    return;
                }
            };
        }
        panic!("the command does not end: {:?}", sent.command);
    }

    /// What is being stored has been stored, or not.
    fn stored(&mut self, input: &mut Input<'_>) {
        let storing = self.storing.take();
        let Storing { host, sent, order } = storing.expect("somebody is waited for");
        drop(order);
        let done = input.byte() & 7 != 7;
        if input.byte() == 0xff {
            // The connection is gone: the command is dropped.
            return;
        }
        self.run(host, sent, CommandEvent::Persisted(done), input);
    }

    fn run_pair(&mut self, host: usize, first: Sent, second: Sent, input: &mut Input<'_>) {
        let namespaces = Arc::clone(&self.hosts[host].namespaces);
        let mut pair = FusedPair::new(first.command, second.command);
        let (compare, write) = pair.transfers();
        let mut data = first.data[..compare as usize].to_vec();
        data.extend(&second.data[..write as usize]);
        let mut scratch = vec![0; pair.scratch_length()];
        let mut event = CommandEvent::Start;
        for _ in 0..STEPS_MAX {
            let buffers = Buffers {
                data_out: &data,
                scratch: &mut scratch,
                data_in: &mut Vec::new(),
            };
            match pair.step(event, buffers) {
                FusedStep::Media {
                    namespace,
                    operation,
                    payload,
                } => {
                    let lengths = [data.len(), scratch.len(), 0];
                    check(&namespaces[namespace], &operation, payload, lengths);
                    // Often what is compared with is there.
                    if let DataLocation::Scratch { start, length } = payload
                        && input.byte() & 3 != 3
                    {
                        let at = start.min(data.len() - length);
                        scratch[start..start + length].copy_from_slice(&data[at..at + length]);
                    }
                    event = CommandEvent::Media(answer(&operation, input));
                }
                FusedStep::LockRange { extent, .. } => {
                    check_extent(extent);
                    event = CommandEvent::Locked;
                }
                FusedStep::Complete(outcome) => {
                    let (first, second) = (outcome.first.status, outcome.second.status);
                    assert!(first.is_success() || !second.is_success());
                    return;
                }
            }
        }
        panic!("the pair does not end: {pair:?}");
    }
}

/// What a driver relies on. `lengths`: of the data, of the scratch memory, and of the host's room.
fn check(
    namespace: &AttachedNamespace,
    operation: &Operation,
    payload: DataLocation,
    lengths: [usize; 3],
) {
    let [data_out, scratch, room] = lengths;
    let moved = match payload {
        DataLocation::None => None,
        DataLocation::DataOut { start, length } => Some((start + length <= data_out, length)),
        DataLocation::Scratch { start, length } => Some((start + length <= scratch, length)),
        DataLocation::DataIn { length } => Some((length <= room, length)),
    };
    let Some(extent) = operation.extent() else {
        assert!(moved.is_none());
        return;
    };
    check_extent(extent);
    if let Some((within, length)) = moved {
        assert!(within, "{operation:?} {payload:?}");
        let bytes = extent.bytes(namespace.namespace.block_size());
        assert_eq!(bytes, length as u64);
    }
    assert!(!operation.writes() || !namespace.read_only, "{operation:?}");
}

fn check_extent(extent: Extent) {
    assert!(extent.blocks.0 > 0 && extent.fits(BLOCKS), "{extent:?}");
}

fn answer(operation: &Operation, input: &mut Input<'_>) -> Result<Reply, MediaError> {
    match input.byte() {
        250 => Err(MediaError::Io),
        251 => Err(MediaError::NoSpace),
        252 => Err(MediaError::Unsupported),
        253 => Err(MediaError::Poisoned),
        254 => Err(MediaError::ShortFile),
        255 => Err(MediaError::ReadOnly),
        byte => Ok(match operation {
            Operation::ExtentStatus { extent } => Reply::Extent {
                blocks: BlockCount(1 + u64::from(byte) % extent.blocks.0.max(1)),
                state: ExtentState::Mapped,
            },
            _ => Reply::Done,
        }),
    }
}

const OPCODES: [Opcode; 13] = [
    io::READ,
    io::WRITE,
    io::COMPARE,
    io::FLUSH,
    io::WRITE_ZEROES,
    io::DATASET_MANAGEMENT,
    io::VERIFY,
    io::COPY,
    io::RESERVATION_REGISTER,
    io::RESERVATION_ACQUIRE,
    io::RESERVATION_RELEASE,
    io::RESERVATION_REPORT,
    io::WRITE_UNCORRECTABLE,
];

/// Mostly a command there is, near the blocks there are.
pub(super) fn entry(input: &mut Input<'_>) -> SubmissionEntry {
    let opcode = match input.byte() {
        byte @ 0..=0xdf => OPCODES[usize::from(byte) % OPCODES.len()],
        byte => Opcode(byte & 0x1f),
    };
    let namespace = NamespaceId(input.pick(&[1, 1, 1, 3, 3, 2, 0, u32::MAX]));
    let mut entry = SubmissionEntry::new(opcode, CommandId(1), namespace);
    let flags = input.byte();
    match flags {
        0xf0..=0xf7 => entry.set_fuse(Fuse::First),
        0xf8..=0xfe => entry.set_fuse(Fuse::Second),
        0xff => entry.set_fuse(Fuse::Reserved),
        _ => {}
    }
    match opcode {
        io::RESERVATION_REGISTER | io::RESERVATION_ACQUIRE | io::RESERVATION_RELEASE => {
            let action = u32::from(input.byte() & 0x0f);
            let kind = u32::from(input.byte() & 7);
            entry.set_dword(10, action | kind << 8 | u32::from(flags & 3) << 30);
        }
        io::RESERVATION_REPORT => {
            entry.set_dword(10, u32::from(input.byte()));
            entry.set_dword(11, u32::from(flags & 0x0f != 0x0f));
        }
        _ => {
            let lba = match flags & 3 {
                0 => u64::from(input.word()),
                1 => BLOCKS - u64::from(input.byte()),
                _ => u64::from(input.byte()),
            };
            entry.set_qword(10, lba);
            let blocks = u32::from(input.byte());
            let control = u32::from(flags & 0x3c) << 24;
            entry.set_dword(12, blocks | control);
        }
    }
    if flags & 0x40 != 0 {
        entry.set_dword(11, u32::from(input.byte()));
        for dword in 13..16 {
            entry.set_dword(dword, u32::from(input.byte()));
        }
    }
    entry
}

/// Commands of four hosts, the last of which must not write; what comes with them, and what the
/// medium answers.
pub(crate) fn nvme_io_commands(data: &[u8]) {
    let mut input = Input(data);
    let mut world = World::new();
    while !input.is_empty() {
        let choice = input.byte();
        let host = usize::from(choice & 3);
        if choice >= 0xf8 {
            let entry = SubmissionEntry(input.array());
            world.arrive(host, &entry, &mut input);
            continue;
        }
        let entry = entry(&mut input);
        world.arrive(host, &entry, &mut input);
    }
    if world.storing.is_some() {
        world.stored(&mut input);
    }
    for namespace in &world.namespaces {
        assert_eq!(namespace.block_count(), BLOCKS);
    }
}
