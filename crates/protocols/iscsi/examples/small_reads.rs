//! Nanoseconds the target machine needs for a small read: header in, data filled in place, response
//! queued and taken off again. No sockets, no storage.
//!
//! `cargo run --release -p longshore-iscsi --example small_reads [-- ROUNDS]`

use std::hint::black_box;
use std::time::Instant;

use longshore_iscsi::initiator::login::LoginConfig as InitiatorLogin;
use longshore_iscsi::initiator::{self, Command, Transfer};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::negotiation::DigestPolicy;
use longshore_iscsi::pdu::{Attribute, Isid, LoginStatus, Lun, Tsih};
use longshore_iscsi::server::directory::{
    Authentication, Directory, LoginConfig, LoginRefusal, SessionRequest, TargetLogin, TargetRecord,
};
use longshore_iscsi::server::{Connection, ConnectionConfig, ConnectionEvent};
use longshore_iscsi::session_parameters::PortalGroupTag;
use longshore_wire::transmit::{Segment, Transmit, WriteData};

struct OpenDoor;

impl Directory for OpenDoor {
    fn discovery_authentication(&self, _: &IscsiName) -> Authentication {
        Authentication::none()
    }

    fn target_login(&self, _: &IscsiName, _: &str) -> Result<TargetLogin, LoginRefusal> {
        Ok(TargetLogin {
            name: IscsiName::parse(TARGET).expect("a valid name"),
            portal_group_tag: PortalGroupTag(1),
            authentication: Authentication::none(),
            config: LoginConfig::default(),
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

const TARGET: &str = "iqn.2026-11.local.longshore:default";
const QUEUE_DEPTH: u16 = 128;
const BYTES: u32 = 512;

fn stream(transmit: &mut Transmit) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in transmit.segments() {
        if let Segment::Arena { start, length } = segment {
            bytes.extend_from_slice(&transmit.arena()[start..start + length]);
        }
    }
    transmit.advance(bytes.len(), &mut Vec::new());
    bytes
}

struct Session {
    initiator: initiator::Connection,
    to_target: Transmit,
    target: Connection,
    to_initiator: Transmit,
}

impl Session {
    fn log_in(digests: bool) -> Self {
        let initiator_name = IscsiName::parse("iqn.2026-11.local.bench:1").expect("a valid name");
        let target_name = IscsiName::parse(TARGET).expect("a valid name");
        let mut login = InitiatorLogin::normal(initiator_name, target_name, Isid([0; 6]));
        let policy = if digests {
            DigestPolicy::Crc32c
        } else {
            DigestPolicy::None
        };
        login.preferences.header_digest = policy;
        login.preferences.data_digest = policy;
        let mut to_target = Transmit::new();
        let initiator =
            initiator::Connection::new(login, QUEUE_DEPTH, &mut |b| b.fill(2), &mut to_target);
        let mut session = Self {
            initiator,
            to_target,
            target: Connection::new(ConnectionConfig::default(), 0),
            to_initiator: Transmit::new(),
        };
        while session.initiator.session().is_none() {
            let requests = stream(&mut session.to_target);
            session.serve(&requests);
            session.receive();
        }
        session
    }

    fn serve(&mut self, mut input: &[u8]) -> u32 {
        let mut reads = 0;
        loop {
            match self
                .target
                .next(&mut input, &mut OpenDoor, &mut self.to_initiator, 0)
            {
                ConnectionEvent::Command(command) => {
                    let length = command.expected_data_transfer_length;
                    let place = self
                        .target
                        .begin_inline_read(command.task, length, &mut self.to_initiator)
                        .expect("small reads are sent inline");
                    black_box(place).fill(0x5a);
                    self.target
                        .commit_inline_read(command.task, &mut self.to_initiator);
                    reads += 1;
                }
                ConnectionEvent::NeedMore => return reads,
                _ => {}
            }
        }
    }

    fn receive(&mut self) {
        let responses = stream(&mut self.to_initiator);
        let mut input = &responses[..];
        while self.initiator.next(&mut input, &mut self.to_target)
            != initiator::ConnectionEvent::NeedMore
        {}
    }

    fn round(&mut self) -> (u32, std::time::Duration) {
        let mut cdb = [0; 10];
        cdb[0] = 0x28;
        cdb[8] = 1;
        for _ in 0..QUEUE_DEPTH {
            let command = Command {
                lun: Lun::ZERO,
                cdb: &cdb,
                attribute: Attribute::SIMPLE,
                immediate: false,
                transfer: Transfer::Read(BYTES),
            };
            self.initiator
                .submit(&command, WriteData::NONE, &mut self.to_target)
                .expect("the window is open");
        }
        let requests = stream(&mut self.to_target);
        let start = Instant::now();
        let reads = self.serve(&requests);
        let elapsed = start.elapsed();
        self.receive();
        (reads, elapsed)
    }
}

fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(20_000);
    for digests in [false, true] {
        let mut session = Session::log_in(digests);
        let mut samples: Vec<f64> = (0..rounds)
            .map(|_| session.round())
            .map(|(reads, elapsed)| elapsed.as_secs_f64() * 1e9 / f64::from(reads))
            .collect();
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples[samples.len() * part / 100];
        println!(
            "{BYTES}-byte reads, {QUEUE_DEPTH} at a time, digests {}: median {:.1} ns, 10 % {:.1}, 90 % {:.1}",
            if digests { "on" } else { "off" },
            at(50),
            at(10),
            at(90),
        );
    }
}
