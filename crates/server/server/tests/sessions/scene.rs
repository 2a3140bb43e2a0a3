//! A server in this process, and shorthand for what tests do with it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_reactor::EngineChoice;
use longshore_server::config::{
    AccessRule, Copies, ListenerConfig, LunConfig, PeerLimits, ReactorConfig, RelativePorts,
    ServerConfig, TargetConfig, TransmitConfig,
};
use longshore_server::{Control, Server};
use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::pdu::{Pdu, RESERVED_TAG, opcode};
use longshore_tests::server::TARGET;
use longshore_volume::{BackendName, Volume, VolumeSpec};

pub const ENGINES: [EngineChoice; 2] = [EngineChoice::IoUring, EngineChoice::Epoll];

/// Long enough for anything that is going to happen.
pub const LIMIT: Duration = Duration::from_secs(20);
/// For things that must not happen: long enough to catch them mostly.
pub const WHILE: Duration = Duration::from_millis(150);

pub const CHECK_CONDITION: u8 = 2;
pub const TASK_SET_FULL: u8 = 0x28;

pub fn mem(name: &str, block_size: u32) -> Arc<dyn Volume> {
    volume(name, BackendName::MEM, block_size)
}

pub fn null(name: &str, block_size: u32) -> Arc<dyn Volume> {
    volume(name, BackendName::NULL, block_size)
}

fn volume(name: &str, backend: BackendName, block_size: u32) -> Arc<dyn Volume> {
    let mut spec = VolumeSpec::new(name, backend);
    spec.size = Some(64 << 20);
    spec.block_size = block_size;
    longshore_volume::open(&spec).unwrap()
}

pub fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

pub fn lun(lun: u16, volume: usize) -> LunConfig {
    LunConfig {
        lun,
        volume,
        read_only: false,
    }
}

pub fn listener(address: &str, portal_group_tag: u16) -> ListenerConfig {
    ListenerConfig {
        listener: TcpListener::bind(address).unwrap(),
        advertise: None,
        portal_group_tag,
    }
}

/// A target that shows every volume to everybody.
pub fn target(name_: &str, volumes: usize) -> TargetConfig {
    TargetConfig {
        name: name(name_),
        alias: None,
        portal_groups: Vec::new(),
        login: LoginConfig::default(),
        authentication: Authentication::none(),
        default_luns: Some(
            (0..volumes)
                .map(|i| lun(u16::try_from(i).unwrap(), i))
                .collect(),
        ),
        access: Vec::new(),
        moved_to: None,
        relative_ports: RelativePorts::Automatic,
    }
}

pub fn rule(initiator: &str, luns: Vec<LunConfig>) -> AccessRule {
    AccessRule {
        initiators: vec![name(initiator).into()],
        authentication: None,
        luns,
    }
}

/// A configuration with three shards and one target.
pub fn config(volumes: Vec<Arc<dyn Volume>>, engine: EngineChoice) -> ServerConfig {
    ServerConfig {
        targets: vec![target(TARGET, volumes.len())],
        volumes,
        discovery: Authentication::none(),
        listeners: vec![listener("127.0.0.1:0", 1)],
        subsystems: Vec::new(),
        nvme_listeners: Vec::new(),
        engine,
        cores: vec![0, 0, 0],
        transmit: TransmitConfig::default(),
        copies: Copies::default(),
        reactor: ReactorConfig {
            // Tests say what runs where.
            rebalance: false,
            ..ReactorConfig::default()
        },
        limits: PeerLimits {
            drain_timeout: Duration::from_secs(5),
            ..PeerLimits::default()
        },
        state_directory: None,
        sample: 1,
    }
}

/// A running server that ends with the test.
pub struct Scene {
    server: Option<Server>,
    control: Control,
    pub portals: Vec<SocketAddr>,
    pub nvme_portals: Vec<SocketAddr>,
}

impl Scene {
    pub fn new(config: ServerConfig) -> Self {
        let server = Server::start(config).unwrap();
        Self {
            control: server.control(),
            portals: server.addresses().to_vec(),
            nvme_portals: server.nvme_addresses().to_vec(),
            server: Some(server),
        }
    }

    pub fn with(volumes: Vec<Arc<dyn Volume>>, engine: EngineChoice) -> Self {
        Self::new(config(volumes, engine))
    }

    pub fn control(&self) -> &Control {
        &self.control
    }

    /// A session of a host of its own, past its unit attentions. Sessions that are open at the same
    /// time are on different shards, until there are more of them than shards.
    pub fn host(&self, number: u16) -> Initiator {
        let mut initiator = Initiator::log_in(self.portals[0], &login(number)).unwrap();
        settle(&mut initiator);
        initiator
    }

    /// Waits for the end, which somebody has asked for.
    pub fn wait(self) {
        self.outcome().unwrap();
    }

    /// Waits for the end, and tells how it came.
    pub fn outcome(mut self) -> std::io::Result<()> {
        self.server.take().unwrap().wait()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.control.shut_down_now();
            let ended = server.wait();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

pub fn host_name(number: u16) -> String {
    format!("iqn.2026-11.local.longshore:host-{number}")
}

pub fn login(number: u16) -> Login {
    Login {
        initiator: host_name(number),
        ..Login::numbered(number)
    }
}

/// Takes all unit attentions of LUN 0.
pub fn settle(initiator: &mut Initiator) -> Vec<(u8, u8, u8)> {
    let mut told = Vec::new();
    for _ in 0..8 {
        let answer = test_unit_ready(initiator);
        match answer.sense_code() {
            None => return told,
            Some(code) => told.push(code),
        }
    }
    panic!("the unit does not become ready: {told:?}");
}

pub fn test_unit_ready(initiator: &mut Initiator) -> Answer {
    initiator
        .command(0, &cdb::TEST_UNIT_READY, Data::None)
        .unwrap()
}

pub fn write(initiator: &mut Initiator, lba: u64, byte: u8) -> Answer {
    initiator
        .command(0, &cdb::write_16(lba, 1, false), Data::Out(&[byte; 512]))
        .unwrap()
}

pub fn read(initiator: &mut Initiator, lba: u64) -> Vec<u8> {
    let answer = initiator
        .command(0, &cdb::read_16(lba, 1), Data::In(512))
        .unwrap();
    assert!(answer.is_good(), "{answer:?}");
    answer.data
}

/// Sends a write of one block and does not wait for its end. Returns its tag.
pub fn begin_write(initiator: &mut Initiator, lba: u64, byte: u8) -> u32 {
    let command = initiator.command_pdu(0, &cdb::write_16(lba, 1, false), Data::Out(&[byte; 512]));
    initiator.send(&command).unwrap();
    command.initiator_task_tag()
}

/// Functions of task management (RFC 7143 §11.5.1).
pub const ABORT_TASK: u8 = 1;
pub const ABORT_TASK_SET: u8 = 2;
pub const CLEAR_TASK_SET: u8 = 4;
pub const LOGICAL_UNIT_RESET: u8 = 5;
pub const TARGET_WARM_RESET: u8 = 6;
pub const TARGET_COLD_RESET: u8 = 7;

/// Sends a task management request; returns its tag.
pub fn begin_management(initiator: &mut Initiator, function: u8, lun: u8, task: u32) -> u32 {
    let tag = initiator.new_tag();
    let request = Pdu::new(opcode::TASK_MANAGEMENT_REQUEST)
        .immediate()
        .set_byte(1, 0x80 | function)
        .set_lun(lun)
        .set_word(16, tag)
        .set_word(20, task)
        .set_word(24, initiator.cmd_sn)
        .set_word(28, initiator.exp_stat_sn)
        .set_word(32, initiator.cmd_sn.wrapping_sub(1));
    initiator.send(&request).unwrap();
    tag
}

/// The answer to a task management request, which is the next PDU.
pub fn management_response(initiator: &mut Initiator, tag: u32) -> u8 {
    let response = initiator.receive().unwrap();
    assert_eq!(
        (response.opcode(), response.initiator_task_tag()),
        (opcode::TASK_MANAGEMENT_RESPONSE, tag),
        "{response:?}"
    );
    response.bhs[2]
}

pub fn manage(initiator: &mut Initiator, function: u8, lun: u8) -> u8 {
    let tag = begin_management(initiator, function, lun, RESERVED_TAG);
    management_response(initiator, tag)
}

/// Nothing arrives for a while.
pub fn assert_silent(initiator: &mut Initiator) {
    let (bytes, closed) = initiator.drain(WHILE).unwrap();
    assert!(bytes.is_empty() && !closed, "{} bytes", bytes.len());
}

pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    within(LIMIT, what, holds);
}

/// The same for what takes longer.
pub fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}
