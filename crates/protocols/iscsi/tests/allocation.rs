//! An initiator does not allocate once it is warm: neither for writes, whose data goes along or is asked
//! for, nor for reads, with and without digests.

use longshore_iscsi::initiator::login::LoginConfig as InitiatorLogin;
use longshore_iscsi::initiator::{self, Command, Transfer};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::negotiation::DigestPolicy;
use longshore_iscsi::pdu::{Attribute, Isid, LoginStatus, Lun, Tsih};
use longshore_iscsi::server::directory::{
    Authentication, Directory, LoginConfig, LoginRefusal, SessionRequest, TargetLogin, TargetRecord,
};
use longshore_iscsi::server::{self, Completion, ConnectionConfig, Payload};
use longshore_iscsi::session_parameters::PortalGroupTag;
use longshore_wire::transmit::{PayloadId, Segment, Transmit, WriteData};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const TARGET: &str = "iqn.2026-11.local.longshore:default";

struct OpenDoor;

impl Directory for OpenDoor {
    fn discovery_authentication(&self, _: &IscsiName) -> Authentication {
        Authentication::none()
    }

    fn target_login(&self, _: &IscsiName, _: &str) -> Result<TargetLogin, LoginRefusal> {
        Ok(TargetLogin {
            name: IscsiName::parse(TARGET).unwrap(),
            portal_group_tag: PortalGroupTag(1),
            authentication: Authentication::none(),
            config: LoginConfig {
                max_recv_data_segment_length: 8192,
                first_burst_length: 16_384,
                max_burst_length: 65_536,
                ..LoginConfig::default()
            },
        })
    }

    fn visible_targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        Vec::new()
    }

    fn establish(&mut self, _: SessionRequest<'_>) -> Result<Tsih, LoginStatus> {
        Ok(Tsih(1))
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(1);
    }
}

/// An initiator, and a target whose device forgets what is written and reads as sevens.
struct Pair {
    initiator: initiator::Connection,
    to_target: Transmit,
    target: server::Connection,
    to_initiator: Transmit,
    data: Vec<u8>,
    completed: usize,
    allocations: usize,
}

fn counted<T>(allocations: &mut usize, call: impl FnOnce() -> T) -> T {
    let region = Region::new(ALLOCATOR);
    let result = call();
    let change = region.change();
    *allocations += change.allocations + change.reallocations;
    result
}

impl Pair {
    fn log_in(digest: DigestPolicy) -> Self {
        let name = |text| IscsiName::parse(text).unwrap();
        let initiator = name("iqn.2026-11.local.test:1");
        let mut login = InitiatorLogin::normal(initiator, name(TARGET), Isid([0; 6]));
        login.preferences.header_digest = digest;
        login.preferences.data_digest = digest;
        let mut to_target = Transmit::new();
        let initiator =
            initiator::Connection::new(login, 16, &mut |bytes| bytes.fill(2), &mut to_target);
        let mut pair = Self {
            initiator,
            to_target,
            target: server::Connection::new(ConnectionConfig::default(), 0),
            to_initiator: Transmit::new(),
            data: vec![7; 1 << 20],
            completed: 0,
            allocations: 0,
        };
        pair.run();
        assert!(pair.initiator.is_ready());
        pair
    }

    fn submit(&mut self, transfer: Transfer) {
        let length = match transfer {
            Transfer::None | Transfer::Read(_) => 0,
            Transfer::Write(length) => length as usize,
        };
        let command = Command {
            lun: Lun::ZERO,
            cdb: &[0x28; 10],
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer,
        };
        let data = WriteData::Buffer {
            id: PayloadId(1),
            start: 0,
            bytes: &self.data[..length],
        };
        let (initiator, transmit) = (&mut self.initiator, &mut self.to_target);
        let submit = || initiator.submit(&command, data, transmit);
        counted(&mut self.allocations, submit).unwrap();
    }

    /// Delivers queued bytes in both directions until both queues are empty.
    fn run(&mut self) {
        while !self.to_target.is_empty() || !self.to_initiator.is_empty() {
            let stream = drain(&mut self.to_target);
            let mut input = &stream[..];
            while self.target_event(&mut input) {}
            let stream = drain(&mut self.to_initiator);
            let mut input = &stream[..];
            while self.initiator_event(&mut input) {}
        }
    }

    fn target_event(&mut self, input: &mut &[u8]) -> bool {
        let transmit = &mut self.to_initiator;
        match self.target.next(input, &mut OpenDoor, transmit, 0) {
            server::ConnectionEvent::NeedMore => return false,
            server::ConnectionEvent::Command(command) => {
                let length = command.expected_data_transfer_length;
                let task = command.task;
                if command.write {
                    self.target.want_data_out(task, length.into(), transmit);
                } else {
                    let data = Payload::Bytes(&self.data[..length as usize]);
                    self.target.complete(task, good(data), transmit);
                }
            }
            server::ConnectionEvent::DataOutComplete { task } => {
                self.target.complete(task, good(Payload::None), transmit);
            }
            server::ConnectionEvent::Established | server::ConnectionEvent::DataOut { .. } => {}
            other => panic!("{other:?}"),
        }
        true
    }

    fn initiator_event(&mut self, input: &mut &[u8]) -> bool {
        let (initiator, transmit) = (&mut self.initiator, &mut self.to_target);
        if let Some(wanted) = initiator.payload_wanted() {
            let (now, later) = input.split_at(input.len().min(wanted.length as usize));
            counted(&mut self.allocations, || initiator.payload_received(now));
            *input = later;
        }
        match counted(&mut self.allocations, || initiator.next(input, transmit)) {
            initiator::ConnectionEvent::NeedMore => return !input.is_empty(),
            initiator::ConnectionEvent::R2t(r2t) => {
                let start = r2t.buffer_offset as usize;
                let data = WriteData::Buffer {
                    id: PayloadId(1),
                    start,
                    bytes: &self.data[start..start + r2t.length as usize],
                };
                counted(&mut self.allocations, || {
                    initiator.send_data_out(&r2t, data, transmit);
                });
            }
            initiator::ConnectionEvent::Completed { outcome, .. } => {
                assert_eq!(outcome.status, Some(0));
                self.completed += 1;
            }
            initiator::ConnectionEvent::Established | initiator::ConnectionEvent::DataIn { .. } => {
            }
            other => panic!("{other:?}"),
        }
        true
    }
}

/// A command that moved all it should.
fn good(data_in: Payload<'_>) -> Completion<'_> {
    Completion {
        status: 0,
        sense: &[],
        scsi_length: data_in.len() as u64,
        data_in,
    }
}

/// What is queued, as bytes; all payload is sevens.
fn drain(transmit: &mut Transmit) -> Vec<u8> {
    let mut stream = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                stream.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            Segment::Zeros { length } => stream.resize(stream.len() + length, 0),
            Segment::Buffer { length, .. } => stream.resize(stream.len() + length, 7),
        }
    }
    transmit.advance(stream.len(), &mut Vec::new());
    stream
}

// Without the test harness, whose own thread allocates now and then: what is counted is the whole process.
fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("a_warm_initiator_does_not_allocate: test");
        return;
    }
    a_warm_initiator_does_not_allocate();
    println!("test a_warm_initiator_does_not_allocate ... ok");
}

fn a_warm_initiator_does_not_allocate() {
    for digest in [DigestPolicy::None, DigestPolicy::Crc32c] {
        let mut pair = Pair::log_in(digest);
        for round in 0..3 {
            pair.allocations = 0;
            for length in [512, 8192, 40_000, 300_000] {
                for _ in 0..4 {
                    pair.submit(Transfer::Write(length));
                    pair.submit(Transfer::Read(length));
                    pair.submit(Transfer::None);
                }
                pair.run();
            }
            if round > 0 {
                assert_eq!(pair.allocations, 0, "{digest:?}");
            }
        }
        assert_eq!(pair.completed, 3 * 4 * 12);
    }
}
