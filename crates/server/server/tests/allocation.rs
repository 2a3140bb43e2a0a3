//! The data path does not allocate once it is warm: from the bytes of a command to those of its answer.
//!
//! It runs without the test harness. Allocations are counted for the whole process, and the harness's main thread
//! allocates up to four times, 900 bytes, between starting the thread of a test and waiting for it. On a busy
//! machine that happens while the test counts. Here there is no other thread.

#[path = "common/idle.rs"]
mod idle;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use idle::Idle;
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_reactor::{EngineChoice, EngineEvent, Readiness, SocketToken};
use longshore_server::config::{
    Copies, ListenerConfig, LunConfig, PeerLimits, ReactorConfig, RelativePorts, ServerConfig,
    TargetConfig, TransmitConfig,
};
use longshore_server::platform::{Link, Platform};
use longshore_server::stepped::SteppedServer;
use longshore_volume::{BackendName, VolumeSpec};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const TARGET: &str = "iqn.2026-11.local.longshore:allocation";

/// What the two ends of a connection share.
#[derive(Debug, Default)]
struct Wire {
    to_target: VecDeque<u8>,
    to_initiator: Vec<u8>,
    token: Option<SocketToken>,
}

#[derive(Debug)]
struct Pipe(Arc<Mutex<Wire>>);

impl Link for Pipe {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        let mut received = 0;
        for buffer in buffers {
            let n = io::Read::read(&mut wire.to_target, buffer)?;
            received += n;
        }
        if received == 0 {
            Err(ErrorKind::WouldBlock.into())
        } else {
            Ok(received)
        }
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        let before = wire.to_initiator.len();
        for buffer in buffers {
            wire.to_initiator.extend_from_slice(buffer);
        }
        Ok(wire.to_initiator.len() - before)
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let address = SocketAddr::from(([127, 0, 0, 1], 3260));
        Ok((address, address))
    }

    fn watch(&mut self, _: &mut dyn Platform, token: SocketToken) -> io::Result<()> {
        self.0.lock().unwrap().token = Some(token);
        Ok(())
    }

    fn forget(&mut self, _: &mut dyn Platform, _: SocketToken) {}
}

struct Bench {
    server: SteppedServer,
    wire: Arc<Mutex<Wire>>,
    events: Vec<EngineEvent>,
    cmd_sn: u32,
}

impl Bench {
    fn new() -> Self {
        let mut spec = VolumeSpec::new("disk", BackendName::MEM);
        spec.size = Some(1 << 20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = ServerConfig {
            volumes: vec![longshore_volume::open(&spec).unwrap()],
            targets: vec![TargetConfig {
                name: IscsiName::parse(TARGET).unwrap(),
                alias: None,
                portal_groups: Vec::new(),
                login: LoginConfig::default(),
                authentication: Authentication::none(),
                default_luns: Some(vec![LunConfig {
                    lun: 0,
                    volume: 0,
                    read_only: false,
                }]),
                access: Vec::new(),
                moved_to: None,
                relative_ports: RelativePorts::Automatic,
            }],
            discovery: Authentication::none(),
            listeners: vec![ListenerConfig {
                listener,
                advertise: None,
                portal_group_tag: 1,
            }],
            subsystems: Vec::new(),
            nvme_listeners: Vec::new(),
            engine: EngineChoice::Auto,
            cores: Vec::new(),
            transmit: TransmitConfig::default(),
            copies: Copies::default(),
            reactor: ReactorConfig::default(),
            limits: PeerLimits::default(),
            state_directory: None,
            sample: 2,
        };
        let platforms: Vec<Box<dyn Platform>> = vec![Box::new(Idle)];
        let server = SteppedServer::new(config, platforms, Instant::now()).unwrap();
        let wire = Arc::<Mutex<Wire>>::default();
        server.accept(0, Box::new(Pipe(Arc::clone(&wire))), 0);
        let mut bench = Self {
            server,
            wire,
            events: Vec::new(),
            cmd_sn: 1,
        };
        bench.events.push(EngineEvent::Woken);
        bench.turn();
        bench.exchange(&login());
        bench
    }

    fn turn(&mut self) {
        self.server.turn(0, &mut self.events, Instant::now());
    }

    /// Sends bytes, lets the server take its turn, and takes the answer in. The memory of both
    /// directions is kept, so that only the server could allocate.
    fn exchange(&mut self, bytes: &[u8]) -> u8 {
        let token = {
            let mut wire = self.wire.lock().unwrap();
            wire.to_initiator.clear();
            wire.to_target.extend(bytes);
            wire.token.expect("the connection is watched")
        };
        self.events.push(EngineEvent::Socket {
            token,
            readiness: Readiness::new(true, true),
        });
        self.turn();
        self.wire.lock().unwrap().to_initiator[0]
    }

    fn command(&mut self, flags: u8, opcode: u8, blocks: u8, data: &[u8], pdu: &mut Vec<u8>) -> u8 {
        let length = u32::from(blocks) * 512;
        pdu.clear();
        pdu.resize(48, 0);
        pdu[0] = 0x01;
        pdu[1] = 0x80 | flags;
        pdu[4..8].copy_from_slice(&u32::try_from(data.len()).unwrap().to_be_bytes());
        pdu[16..20].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[20..24].copy_from_slice(&length.to_be_bytes());
        pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[32] = opcode;
        pdu[45] = blocks;
        pdu.extend_from_slice(data);
        self.cmd_sn += 1;
        self.exchange(pdu)
    }
}

/// A login that goes straight to full feature phase.
fn login() -> Vec<u8> {
    let text = format!(
        "InitiatorName=iqn.2026-11.local:host\0TargetName={TARGET}\0SessionType=Normal\0\
         InitialR2T=No\0ImmediateData=Yes\0MaxRecvDataSegmentLength=65536\0"
    );
    let mut pdu = vec![0; 48];
    pdu[0] = 0x43;
    pdu[1] = 0x87;
    pdu[4..8].copy_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
    pdu[8] = 0x80;
    pdu[21] = 1;
    pdu[27] = 1;
    pdu.extend_from_slice(text.as_bytes());
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

const READ_16: u8 = 0x88;
const WRITE_16: u8 = 0x8a;
const DATA_IN: u8 = 0x25;
const SCSI_RESPONSE: u8 = 0x21;

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        println!("reads_and_writes_do_not_allocate_once_warm: test");
        return;
    }
    reads_and_writes_do_not_allocate_once_warm();
    println!("test reads_and_writes_do_not_allocate_once_warm ... ok");
}

fn reads_and_writes_do_not_allocate_once_warm() {
    let mut bench = Bench::new();
    let mut pdu = Vec::with_capacity(1 << 17);
    let data = vec![7; 100 * 512];
    let mut round = |bench: &mut Bench| {
        [
            // One that goes behind its header, one by reference; one small, one larger write.
            bench.command(0x40, READ_16, 1, &[], &mut pdu),
            bench.command(0x40, READ_16, 100, &[], &mut pdu),
            bench.command(0x20, WRITE_16, 1, &data[..512], &mut pdu),
            bench.command(0x20, WRITE_16, 100, &data, &mut pdu),
        ]
    };
    // The first answer is the unit attention of a new session.
    for _ in 0..100 {
        round(&mut bench);
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..5000 {
        assert_eq!(
            round(&mut bench),
            [DATA_IN, DATA_IN, SCSI_RESPONSE, SCSI_RESPONSE]
        );
    }
    let change = region.change();
    let calls = change.allocations + change.reallocations;
    assert_eq!(calls, 0, "{change:?}");
}
