//! A queue does not allocate once it is warm: neither for reads, nor for writes, whichever way their data goes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_initiator::operation::{Completion, Data, Operation, Reply};
use longshore_initiator::options::{SendPath, TransferPaths};
use longshore_initiator::queue::{Machine, MachineEvent, PayloadWanted, Queue, Refusal};
use longshore_reactor::Buffer;
use longshore_wire::transmit::{Chunk, Transmit, WriteData};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const DEPTH: u16 = 16;
const BYTES: usize = 64 << 10;

/// A protocol whose commands are a byte, with their data behind it, and whose answers come in order: the data of a
/// read, or a byte.
#[derive(Default)]
struct InOrder {
    /// The kinds of the commands under way; slots are places in it.
    reads: [bool; DEPTH as usize],
    first: u16,
    count: u16,
    /// Bytes of the first command's answer that have come.
    come: usize,
}

impl Machine for InOrder {
    type Token = ();

    fn slots(&self) -> usize {
        usize::from(DEPTH)
    }

    fn room(&self) -> usize {
        usize::from(DEPTH - self.count)
    }

    fn block_size(&self) -> u32 {
        512
    }

    fn submit(
        &mut self,
        operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        let slot = (self.first + self.count) % DEPTH;
        self.count += 1;
        let is_read = matches!(operation, Operation::Read { .. });
        self.reads[usize::from(slot)] = is_read;
        transmit.push_bytes(if is_read { b"r" } else { b"w" });
        match data.chunk(0, data.bytes().len(), true) {
            Chunk::Bytes(bytes) => transmit.push_bytes(bytes),
            Chunk::Buffer {
                id, start, bytes, ..
            } => transmit.push_buffer(id, start, bytes.len(), true),
            Chunk::Zeros(_) | Chunk::Unseen { .. } => unreachable!("there are none"),
        }
        Ok(slot)
    }

    fn next<'a>(&mut self, input: &mut &'a [u8], _transmit: &mut Transmit) -> MachineEvent<'a, ()> {
        let slot = self.first;
        let whole = if self.reads[usize::from(slot)] {
            BYTES
        } else {
            1
        };
        if self.come == whole {
            self.come = 0;
            self.first = (self.first + 1) % DEPTH;
            self.count -= 1;
            let result = Ok(Reply::Done);
            return MachineEvent::Completed { slot, result };
        }
        let offset = u32::try_from(self.come).unwrap();
        let (bytes, rest) = input.split_at(input.len().min(whole - self.come));
        if bytes.is_empty() {
            return MachineEvent::NeedMore;
        }
        *input = rest;
        self.come += bytes.len();
        if whole == 1 {
            return self.next(input, _transmit);
        }
        MachineEvent::DataIn {
            slot,
            offset,
            bytes,
        }
    }

    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let is_read = self.count > 0 && self.reads[usize::from(self.first)];
        (is_read && self.come < BYTES).then(|| PayloadWanted {
            slot: self.first,
            offset: u32::try_from(self.come).unwrap(),
            length: u32::try_from(BYTES - self.come).unwrap(),
        })
    }

    fn payload_received(&mut self, bytes: &[u8]) {
        self.come += bytes.len();
    }

    fn send_data(&mut self, (): (), _data: WriteData<'_>, _transmit: &mut Transmit) {
        unreachable!("all data goes along");
    }

    fn data_pdus(&self) -> u64 {
        0
    }

    fn ping(&mut self, _data: &[u8], _transmit: &mut Transmit) -> bool {
        false
    }

    fn close(&mut self, _transmit: &mut Transmit) {}
}

struct Scene {
    queue: Queue<InOrder>,
    peer: TcpStream,
    /// What the peer receives into, and sends from.
    memory: Vec<u8>,
    completions: Vec<Completion>,
    buffers: Vec<Data>,
    shared: Arc<Buffer>,
}

impl Scene {
    fn new(send: SendPath) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (peer, _) = listener.accept()?;
        let paths = TransferPaths {
            send,
            zerocopy_threshold: BYTES,
            zerocopy_fallback: false,
            ..TransferPaths::default()
        };
        let machine = InOrder::default();
        let queue = Queue::start(client, machine, Transmit::new(), &[], &paths)?;
        Ok(Self {
            queue,
            peer,
            memory: vec![0; BYTES + 1],
            completions: Vec::new(),
            buffers: (0..DEPTH)
                .map(|_| Data::buffer(Buffer::allocate(BYTES)))
                .collect(),
            shared: Arc::new(Buffer::allocate(BYTES)),
        })
    }

    /// As many operations as there is room for, and their ends.
    fn round(&mut self, is_read: bool) {
        let extent = Extent {
            lba: Lba(0),
            blocks: BlockCount(BYTES as u64 / 512),
        };
        while self.queue.room() > 0 {
            let (operation, data) = if is_read {
                let data = self.buffers.pop().unwrap();
                (Operation::Read { extent }, data)
            } else {
                let data = Data::shared(self.shared.clone());
                (Operation::Write { extent, fua: false }, data)
            };
            self.queue.submit(operation, data, 0).unwrap();
        }
        for _ in 0..DEPTH {
            self.queue.send().unwrap();
            let command = if is_read { 1 } else { 1 + BYTES };
            let answer = if is_read { BYTES } else { 1 };
            self.take(command);
            self.peer.write_all(&self.memory[..answer]).unwrap();
            self.queue.receive(&mut self.completions).unwrap();
        }
        while self.queue.in_flight() > 0 {
            self.queue.receive(&mut self.completions).unwrap();
        }
        for completion in self.completions.drain(..) {
            assert_eq!(completion.result, Ok(Reply::Done));
            if is_read {
                self.buffers.push(completion.data);
            }
        }
    }

    /// The peer takes so many bytes; the queue sends as it does.
    fn take(&mut self, length: usize) {
        self.peer.set_nonblocking(true).unwrap();
        let mut taken = 0;
        while taken < length {
            match self.peer.read(&mut self.memory[taken..length]) {
                Ok(n) => taken += n,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            self.queue.send().unwrap();
        }
        self.peer.set_nonblocking(false).unwrap();
    }
}

// Without the test harness, whose own thread allocates now and then: what is counted is the whole process.
fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("a_warm_queue_does_not_allocate: test");
        return;
    }
    a_warm_queue_does_not_allocate();
    println!("test a_warm_queue_does_not_allocate ... ok");
}

/// In a row, without an allocation: then the queue is warm.
const CLEAN_WINDOWS: usize = 4;
/// In how many of them it has to become so.
const WINDOWS_MAX: usize = 40;

fn a_warm_queue_does_not_allocate() {
    for send in [SendPath::Copy, SendPath::Gather, SendPath::ZeroCopy] {
        let mut scene = Scene::new(send).unwrap();
        // How many pieces wait at most depends on the kernel's timing, so lists may still grow for a
        // while. They have a bound.
        let mut clean = 0;
        let mut changes = Vec::with_capacity(WINDOWS_MAX);
        while clean < CLEAN_WINDOWS {
            assert!(changes.len() < WINDOWS_MAX, "{send:?}: {changes:?}");
            let region = Region::new(ALLOCATOR);
            for _ in 0..8 {
                scene.round(true);
                scene.round(false);
            }
            let change = region.change();
            let is_clean = (change.allocations, change.reallocations) == (0, 0);
            clean = if is_clean { clean + 1 } else { 0 };
            changes.push(change);
        }
    }
}
