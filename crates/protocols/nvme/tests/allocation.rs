//! The two ends of a queue do not allocate once they are warm: neither for commands that carry their data,
//! nor for those that are asked for it, nor for reads, with and without digests.

use longshore_block::extent::Lba;
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, Blocks};
use longshore_nvme::host::{self, Command};
use longshore_nvme::opcode::{FABRICS, io};
use longshore_nvme::pdu::Digests;
use longshore_nvme::server::{self, Completion, QueueParameters};
use longshore_nvme::status::Status;
use longshore_wire::transmit::{Segment, Transmit, WriteData};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// A host and a controller whose device forgets what is written and reads as sevens.
struct Pair {
    host: host::Connection,
    to_target: Transmit,
    target: server::Connection,
    to_host: Transmit,
    stream: Vec<u8>,
    data: Vec<u8>,
    completed: usize,
}

impl Pair {
    fn connect(digests: Digests) -> Self {
        let mut to_target = Transmit::new();
        let config = host::ConnectionConfig {
            digests,
            ..host::ConnectionConfig::default()
        };
        let mut pair = Self {
            host: host::Connection::new(config, &mut to_target),
            to_target,
            target: server::Connection::new(server::ConnectionConfig::default(), 0),
            to_host: Transmit::new(),
            stream: Vec::new(),
            data: vec![7; 1 << 20],
            completed: 0,
        };
        pair.run();
        let mut connect = Command::new(FABRICS, NamespaceId::NONE);
        connect.entry.0[4] = longshore_nvme::opcode::fabrics::CONNECT;
        connect.transfer = host::Transfer::ToController(1024);
        pair.submit(&connect);
        pair.run();
        assert!(pair.target.is_connected());
        pair
    }

    fn submit(&mut self, command: &Command) {
        let length = command.transfer.length() as usize;
        let data = WriteData::Bytes(&self.data[..length]);
        self.host
            .submit(command, data, &mut self.to_target)
            .expect("there are free slots");
    }

    /// Delivers queued bytes in both directions until both queues are empty.
    fn run(&mut self) {
        while !self.to_target.is_empty() || !self.to_host.is_empty() {
            let mut stream = std::mem::take(&mut self.stream);
            drain(&mut self.to_target, &mut stream);
            let mut input = &stream[..];
            while self.target_event(&mut input) {}
            drain(&mut self.to_host, &mut stream);
            let mut input = &stream[..];
            while self.host_event(&mut input) {}
            self.stream = stream;
        }
    }

    fn target_event(&mut self, input: &mut &[u8]) -> bool {
        match self.target.next(input, &mut self.to_host, 0) {
            server::ConnectionEvent::NeedMore => return false,
            server::ConnectionEvent::Command(command) => {
                let (slot, length) = (command.slot, command.data.length());
                if command.entry.opcode() == io::READ {
                    let inline = self
                        .target
                        .begin_inline_read(slot, length, &mut self.to_host);
                    if let Some(place) = inline {
                        place.fill(7);
                        self.target.commit_inline_read(slot, &mut self.to_host);
                        return true;
                    }
                    let completion = Completion {
                        status: Status::SUCCESS,
                        result: 0,
                        data: server::Payload::Bytes(&self.data[..length as usize]),
                    };
                    self.target.complete(slot, completion, &mut self.to_host);
                } else {
                    self.target.want_data_out(slot, length, &mut self.to_host);
                }
            }
            server::ConnectionEvent::DataOut { .. } => {}
            server::ConnectionEvent::DataOutComplete { slot } => {
                if !self.target.is_connected() {
                    let queue = QueueParameters {
                        id: 1,
                        entries: 128,
                        flow_control: false,
                    };
                    self.target.connected(slot, queue);
                }
                let completion = Completion::status(Status::SUCCESS);
                self.target.complete(slot, completion, &mut self.to_host);
            }
            other => panic!("{other:?}"),
        }
        true
    }

    fn host_event(&mut self, input: &mut &[u8]) -> bool {
        match self.host.next(input, &mut self.to_target) {
            host::ConnectionEvent::NeedMore => return false,
            host::ConnectionEvent::Ready | host::ConnectionEvent::DataIn { .. } => {}
            host::ConnectionEvent::R2t(r2t) => {
                let data = WriteData::Bytes(&self.data[..r2t.length as usize]);
                self.host.send_data(&r2t, data, &mut self.to_target);
            }
            host::ConnectionEvent::Completed { outcome, .. } => {
                assert_eq!(outcome.status, Status::SUCCESS);
                self.completed += 1;
            }
            host::ConnectionEvent::Close(reason) => panic!("{reason:?}"),
        }
        true
    }

    /// A burst of each kind of command, small enough for the transmit queues to keep their memory.
    fn burst(&mut self) {
        for n in 0..24 {
            for count in [1, 8, 16, 17, 60] {
                let blocks = Blocks {
                    namespace: NamespaceId(1),
                    lba: Lba(n),
                    count,
                    block_bytes: 512,
                };
                let command = if n % 2 == 0 {
                    commands::read(blocks)
                } else {
                    commands::write(blocks, 0)
                };
                self.submit(&command);
            }
        }
        self.run();
    }
}

fn drain(transmit: &mut Transmit, stream: &mut Vec<u8>) {
    stream.clear();
    for segment in transmit.segments() {
        let Segment::Arena { start, length } = segment else {
            panic!("everything is copied here");
        };
        stream.extend_from_slice(&transmit.arena()[start..start + length]);
    }
    transmit.advance(stream.len(), &mut Vec::new());
}

// One test, because the allocator counts those of all threads.
// Without the test harness, whose own thread allocates now and then: what is counted is the whole process.
fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("warm_queues_do_not_allocate: test");
        return;
    }
    warm_queues_do_not_allocate();
    println!("test warm_queues_do_not_allocate ... ok");
}

fn warm_queues_do_not_allocate() {
    for (header, data) in [(false, false), (true, true)] {
        let mut pair = Pair::connect(Digests { header, data });
        for _ in 0..3 {
            pair.burst();
        }
        let before = pair.completed;
        let region = Region::new(ALLOCATOR);
        for _ in 0..10 {
            pair.burst();
        }
        let change = region.change();
        assert_eq!(pair.completed - before, 10 * 24 * 5);
        assert_eq!(change.allocations, 0, "{change:?}");
        assert_eq!(change.reallocations, 0, "{change:?}");
    }
}
