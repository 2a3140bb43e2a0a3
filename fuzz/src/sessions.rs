//! Connection machines of both roles, fed by peers that may send anything.

use longshore_iscsi::initiator;
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{Isid, LoginStatus, Tsih};
use longshore_iscsi::server::directory::{
    Authentication, Directory, LoginConfig, LoginRefusal, SessionRequest, TargetLogin, TargetRecord,
};
use longshore_iscsi::server::{
    Completion, Connection, ConnectionConfig, ConnectionEvent, Payload, TaskManagementResult,
};
use longshore_iscsi::session_parameters::PortalGroupTag;
use longshore_tests::initiator::Login;
use longshore_tests::pdu::Pdu;
use longshore_wire::transmit::Transmit;

/// No single event may leave more than this to send: the longest answer is a read of
/// [`READ_MAX`] bytes with its headers, or a text.
const TRANSMIT_MAX: usize = 256 << 10;

/// Reads are answered with at most so many bytes.
const READ_MAX: u32 = 4_096;

/// Lets everybody in, to every target.
struct OpenHouse;

impl Directory for OpenHouse {
    fn discovery_authentication(&self, _: &IscsiName) -> Authentication {
        Authentication::none()
    }

    fn target_login(&self, _: &IscsiName, target: &str) -> Result<TargetLogin, LoginRefusal> {
        let name = IscsiName::parse(target).map_err(|_| LoginStatus::NOT_FOUND)?;
        Ok(TargetLogin {
            name,
            portal_group_tag: PortalGroupTag(1),
            authentication: Authentication::none(),
            config: LoginConfig::default(),
        })
    }

    fn visible_targets(&self, _: &IscsiName) -> Vec<TargetRecord> {
        let name = IscsiName::parse(longshore_tests::server::TARGET).expect("a good name");
        vec![TargetRecord {
            name,
            portals: Vec::new(),
        }]
    }

    fn establish(&mut self, _: SessionRequest<'_>) -> Result<Tsih, LoginStatus> {
        Ok(Tsih(1))
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x5a);
    }
}

/// A target's connection and a driver without volumes.
struct Driver {
    connection: Connection,
    transmit: Transmit,
    now_ms: u64,
    closed: bool,
}

impl Driver {
    fn new() -> Self {
        let config = ConnectionConfig {
            queue_depth: 16,
            ..ConnectionConfig::default()
        };
        Self {
            connection: Connection::new(config, 0),
            transmit: Transmit::default(),
            now_ms: 0,
            closed: false,
        }
    }

    /// Feeds bytes and serves all that comes of them.
    fn feed(&mut self, mut input: &[u8]) {
        // Every event but NeedMore either takes input or ends a task, so this ends; the bound is
        // generous.
        let limit = 64 + input.len() * 4;
        for _ in 0..limit {
            if self.closed {
                return;
            }
            self.now_ms += 1;
            let (connection, transmit) = (&mut self.connection, &mut self.transmit);
            match connection.next(&mut input, &mut OpenHouse, transmit, self.now_ms) {
                ConnectionEvent::NeedMore => {
                    assert!(input.is_empty(), "the machine wants more and leaves some");
                    self.drain();
                    return;
                }
                ConnectionEvent::Command(command) => {
                    let expected = command.expected_data_transfer_length;
                    if command.write && expected > 0 {
                        let wanted = u64::from(expected.min(65_536));
                        connection.want_data_out(command.task, wanted, transmit);
                    } else if command.task.index() % 3 != 2 {
                        let zeros = Payload::Zeros(if command.read { READ_MAX } else { 0 });
                        let completion = Completion {
                            status: 0,
                            sense: &[],
                            data_in: zeros,
                            scsi_length: u64::from(READ_MAX),
                        };
                        connection.complete(command.task, completion, transmit);
                    } // every third task stays, to be aborted or to fill the window
                }
                ConnectionEvent::DataOutComplete { task } => {
                    let completion = Completion {
                        status: 0,
                        sense: &[],
                        data_in: Payload::None,
                        scsi_length: 65_536,
                    };
                    connection.complete(task, completion, transmit);
                }
                ConnectionEvent::DataOutFailed { task, .. } => {
                    let completion = Completion {
                        status: 2,
                        sense: &[0x70, 0, 0x0b],
                        data_in: Payload::None,
                        scsi_length: 0,
                    };
                    connection.complete(task, completion, transmit);
                }
                ConnectionEvent::TaskManagement(request) => {
                    if let Some(task) = request.referenced_task {
                        connection.abort(task);
                    }
                    let result = TaskManagementResult::FunctionComplete;
                    connection.task_management_done(request.id, result, transmit);
                }
                ConnectionEvent::DataOut { bytes, .. } => assert!(!bytes.is_empty()),
                ConnectionEvent::Established => {}
                ConnectionEvent::Close(_) => self.closed = true,
            }
            self.drain();
        }
        panic!("{limit} events of one input");
    }

    /// Sends everything to nowhere.
    fn drain(&mut self) {
        let pending = self.transmit.pending_bytes();
        assert!(
            pending <= TRANSMIT_MAX,
            "{pending} bytes to send after one event"
        );
        self.transmit.advance(pending, &mut Vec::new());
        assert!(self.transmit.is_empty());
    }
}

/// Raw bytes from the first one on, in pieces whose size the input says.
pub fn login_bytes(input: &[u8]) {
    let Some((&size, rest)) = input.split_first() else {
        return;
    };
    let mut driver = Driver::new();
    for piece in rest.chunks(usize::from(size).max(1)) {
        driver.feed(piece);
    }
    driver
        .connection
        .handle_deadline(&mut driver.transmit, u64::MAX / 2);
}

/// PDUs within a session: the framing is right, and the numbers are plausible unless the input
/// says otherwise.
///
/// ```text
/// input: 1 byte  digests, then for each PDU
///        1 byte  opcode and immediate bit
///        1 byte  flags
///        1 byte  what is made plausible (bits 0-3), length of data in units of 8 (bits 4-7)
///        4 bytes tags and lengths
/// ```
pub fn session_pdus(input: &[u8]) {
    let Some((&settings, mut rest)) = input.split_first() else {
        return;
    };
    let login = Login {
        header_digest: settings & 1 != 0,
        data_digest: settings & 2 != 0,
        immediate_data: settings & 4 == 0,
        initial_r2t: settings & 8 != 0,
        ..Login::default()
    };
    let mut driver = Driver::new();
    driver.feed(&login.request().to_bytes(false, false));
    assert!(
        driver.connection.session().is_some(),
        "a plain login succeeds"
    );
    let mut cmd_sn = 0_u32;
    while let Some((recipe, next)) = rest.split_first_chunk::<7>() {
        rest = next;
        let [opcode, flags, shape, a, b, c, d] = *recipe;
        let number = |byte: u8| u32::from(byte & 0x0f);
        let mut pdu = Pdu::new(opcode).set_byte(1, flags);
        pdu = pdu.set_word(16, number(a)).set_word(20, u32::from(b) << 6);
        pdu = pdu.set_word(24, if shape & 1 == 0 { cmd_sn } else { u32::from(c) });
        pdu = pdu.set_word(32, u32::from_be_bytes([d, c, b, a]));
        pdu = pdu.set_word(36, number(c)).set_word(40, u32::from(d) << 5);
        if shape & 2 != 0 {
            pdu = pdu.set_word(20, u32::MAX);
        }
        let length = usize::from(shape >> 4) * 8;
        let data: Vec<u8> = rest
            .iter()
            .copied()
            .cycle()
            .take(length.min(rest.len() * 8))
            .collect();
        pdu = pdu.with_data(&data);
        if opcode & 0x40 == 0 && shape & 1 == 0 {
            cmd_sn = cmd_sn.wrapping_add(1);
        }
        driver.feed(&pdu.to_bytes(login.header_digest, login.data_digest));
    }
}

/// An initiator that logs in at a target which may answer anything.
pub fn initiator_bytes(input: &[u8]) {
    let name = |text| IscsiName::parse(text).expect("a good name");
    let config = initiator::login::LoginConfig::normal(
        name("iqn.2026-11.local.longshore:fuzz"),
        name(longshore_tests::server::TARGET),
        Isid([0x80, 0, 0, 0, 0, 1]),
    );
    let mut transmit = Transmit::default();
    let mut random = |bytes: &mut [u8]| bytes.fill(7);
    let mut connection = initiator::Connection::new(config, 8, &mut random, &mut transmit);
    let Some((&size, rest)) = input.split_first() else {
        return;
    };
    for mut piece in rest.chunks(usize::from(size).max(1)) {
        for _ in 0..64 + piece.len() * 4 {
            let event = connection.next(&mut piece, &mut transmit);
            let over = matches!(event, initiator::ConnectionEvent::Close(_));
            let more = matches!(event, initiator::ConnectionEvent::NeedMore);
            let pending = transmit.pending_bytes();
            assert!(
                pending <= TRANSMIT_MAX,
                "{pending} bytes to send after one event"
            );
            transmit.advance(pending, &mut Vec::new());
            if over {
                return;
            }
            if more {
                break;
            }
        }
    }
}
