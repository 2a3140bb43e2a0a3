//! One shard, and initiators at the other end of pipes that do what sockets do.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_reactor::{EngineChoice, EngineEvent, Readiness, SocketToken};
use longshore_server::config::{
    Copies, ExportsConfig, ListenerConfig, LunConfig, PeerLimits, ReactorConfig, RelativePorts,
    ServerConfig, TargetConfig, TransmitConfig,
};
use longshore_server::platform::{Link, Platform};
use longshore_server::stepped::{Next, SteppedServer};
use longshore_server::{ClosedVolume, DrainOptions};
use longshore_tests::initiator::{Login, cdb};
use longshore_tests::pdu::{BHS_LENGTH, Pdu, opcode};
use longshore_tests::server::TARGET;
use longshore_volume::{BackendName, RateLimits, Volume, VolumeSpec};

use crate::idle::Idle;

/// Bytes that a connection's send buffer holds.
const SEND_BUFFER: usize = 1 << 20;
/// The longest data segment in either direction, and the longest first burst.
const SEGMENT: u32 = 64 << 10;

/// What the two ends of a connection share.
#[derive(Debug, Default)]
pub struct Wire {
    to_target: VecDeque<u8>,
    to_initiator: Vec<u8>,
    token: Option<SocketToken>,
    /// Bytes the target has received.
    pub received: usize,
    /// Nagle's algorithm is on.
    pub nagle: bool,
    /// The end of what was sent may wait for more.
    pub is_kept: bool,
    /// Sends of the target.
    pub sends: usize,
    /// Sends whose end was to wait for more.
    pub kept_sends: usize,
}

#[derive(Debug)]
struct Pipe(Arc<Mutex<Wire>>);

impl Pipe {
    fn take(&self, buffers: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        let before = wire.to_initiator.len();
        for buffer in buffers {
            let room = SEND_BUFFER.saturating_sub(wire.to_initiator.len());
            let taken = buffer.len().min(room);
            wire.to_initiator.extend_from_slice(&buffer[..taken]);
        }
        let taken = wire.to_initiator.len() - before;
        if taken == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        // Acknowledgements, which would let it go, come late.
        wire.is_kept = more || wire.nagle;
        wire.sends += 1;
        wire.kept_sends += usize::from(more);
        Ok(taken)
    }
}

impl Link for Pipe {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = self.0.lock().unwrap();
        let mut received = 0;
        for buffer in buffers {
            let mut into: &mut [u8] = buffer;
            while !into.is_empty() && !wire.to_target.is_empty() {
                let n = io::Read::read(&mut wire.to_target, into)?;
                received += n;
                into = &mut into[n..];
            }
        }
        wire.received += received;
        if received == 0 {
            Err(ErrorKind::WouldBlock.into())
        } else {
            Ok(received)
        }
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.take(buffers, false)
    }

    fn send_more(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.take(buffers, true)
    }

    fn set_nodelay(&mut self, on: bool) -> io::Result<()> {
        let mut wire = self.0.lock().unwrap();
        wire.nagle = !on;
        wire.is_kept &= !on;
        Ok(())
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

/// An initiator that keeps commands outstanding.
pub struct Client {
    wire: Arc<Mutex<Wire>>,
    cmd_sn: u32,
    exp_stat_sn: u32,
    pub outstanding: usize,
    /// Commands that have ended well.
    pub answered: u64,
    /// Bytes read, or asked for by the target to be written.
    pub bytes: u64,
    last_status: u8,
    /// The shard that serves it.
    shard: usize,
}

impl Client {
    pub fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap()
    }

    fn push(&self, pdu: &Pdu) {
        self.wire().to_target.extend(pdu.to_bytes(false, false));
    }

    fn command(&mut self, flags: u8, cdb: &[u8], length: u32, immediate: &[u8]) {
        let pdu = Pdu::new(opcode::SCSI_COMMAND)
            .set_byte(1, 0x81 | flags)
            .set_word(16, self.cmd_sn)
            .set_word(20, length)
            .set_word(24, self.cmd_sn)
            .set_word(28, self.exp_stat_sn)
            .set_cdb(cdb)
            .with_data(immediate);
        self.push(&pdu);
        self.cmd_sn += 1;
        self.outstanding += 1;
    }

    pub fn read(&mut self, blocks: u32) {
        self.command(0x40, &cdb::read_16(0, blocks), blocks * 512, &[]);
    }

    /// Writes, with so many bytes of the data in the command.
    pub fn write(&mut self, blocks: u32, immediate: usize) {
        let cdb = cdb::write_16(0, blocks, false);
        self.command(0x20, &cdb, blocks * 512, &vec![7; immediate]);
    }

    /// Takes in what the target has sent, and sends what it asks for.
    pub fn take(&mut self) {
        let bytes = std::mem::take(&mut self.wire().to_initiator);
        let mut rest = &bytes[..];
        while let Some(bhs) = rest.first_chunk::<BHS_LENGTH>() {
            let pdu = Pdu {
                bhs: *bhs,
                data: Vec::new(),
            };
            let length = pdu.data_segment_length();
            let end = BHS_LENGTH + length.next_multiple_of(4);
            if rest.len() < end {
                break;
            }
            self.handle(&pdu, length as u64);
            rest = &rest[end..];
        }
        // A PDU of which the send buffer had no room for the rest.
        self.wire().to_initiator.splice(..0, rest.iter().copied());
    }

    fn handle(&mut self, pdu: &Pdu, length: u64) {
        let has_status = match pdu.opcode() {
            opcode::DATA_IN => {
                self.bytes += length;
                pdu.bhs[1] & 1 != 0
            }
            opcode::SCSI_RESPONSE => true,
            opcode::R2T => {
                self.send_data_out(pdu);
                false
            }
            // Other logical units.
            opcode::ASYNCHRONOUS_MESSAGE => false,
            opcode::LOGIN_RESPONSE => {
                assert_eq!(pdu.bhs[36..38], [0, 0], "{pdu:?}");
                true
            }
            other => panic!("{other:#x}"),
        };
        if has_status {
            self.last_status = pdu.bhs[3];
            self.exp_stat_sn = pdu.word(24).wrapping_add(1);
            self.outstanding = self.outstanding.saturating_sub(1);
            self.answered += u64::from(pdu.bhs[3] == 0);
        }
    }

    fn send_data_out(&mut self, r2t: &Pdu) {
        let (start, length) = (r2t.word(40), r2t.word(44));
        self.bytes += u64::from(length);
        let mut sent = 0;
        while sent < length {
            let now = SEGMENT.min(length - sent);
            let last = sent + now == length;
            let pdu = Pdu::new(opcode::DATA_OUT)
                .set_byte(1, if last { 0x80 } else { 0 })
                .set_word(16, r2t.initiator_task_tag())
                .set_word(20, r2t.target_transfer_tag())
                .set_word(28, self.exp_stat_sn)
                .set_word(36, sent / SEGMENT)
                .set_word(40, start + sent)
                .with_data(&vec![7; now as usize]);
            self.push(&pdu);
            sent += now;
        }
    }
}

/// See the module documentation.
pub struct Rig {
    server: SteppedServer,
    volume: Arc<dyn Volume>,
    shards: usize,
    pub clients: Vec<Client>,
    now: Instant,
}

/// What a rig is made of.
pub struct Options {
    pub backend: BackendName,
    pub clients: usize,
    /// Clients are all at the first one, unless they take turns.
    pub shards: usize,
    pub are_spread: bool,
    pub limits: RateLimits,
    pub memory: u64,
    pub transmit: TransmitConfig,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: BackendName::NULL,
            clients: 1,
            shards: 1,
            are_spread: false,
            limits: RateLimits::default(),
            memory: PeerLimits::default().memory,
            transmit: TransmitConfig::default(),
        }
    }
}

impl Rig {
    pub fn new(options: &Options) -> Self {
        let now = Instant::now();
        let platform = |_| Box::new(Idle) as Box<dyn Platform>;
        let platforms: Vec<_> = (0..options.shards).map(platform).collect();
        let config = config(options);
        let volume = Arc::clone(&config.volumes[0]);
        let server = SteppedServer::new(config, platforms, now).unwrap();
        let mut rig = Self {
            server,
            volume,
            shards: if options.are_spread {
                options.shards
            } else {
                1
            },
            clients: Vec::new(),
            now,
        };
        for number in 1..=options.clients {
            rig.log_in(u16::try_from(number).unwrap());
        }
        rig
    }

    fn log_in(&mut self, number: u16) {
        let wire = Arc::<Mutex<Wire>>::default();
        let shard = self.clients.len() % self.shards;
        let link = Box::new(Pipe(Arc::clone(&wire)));
        self.server.accept(shard, link, 0);
        let mut events = vec![EngineEvent::Woken];
        self.server.turn(shard, &mut events, self.now);
        let client = Client {
            wire,
            cmd_sn: 1,
            exp_stat_sn: 0,
            outstanding: 0,
            answered: 0,
            bytes: 0,
            last_status: 0,
            shard,
        };
        let login = Login {
            max_recv_data_segment_length: SEGMENT,
            first_burst_length: SEGMENT,
            ..Login::numbered(number)
        };
        client.push(&login.request().set_word(24, 1));
        self.clients.push(client);
        let number = self.clients.len() - 1;
        self.turn();
        self.clients[number].take();
        // Unit attentions come first.
        for _ in 0..4 {
            self.clients[number].command(0, &cdb::TEST_UNIT_READY, 0, &[]);
            self.turn();
            self.clients[number].take();
        }
        let client = &mut self.clients[number];
        assert_eq!((client.last_status, client.outstanding), (0, 0));
        (client.answered, client.bytes) = (0, 0);
    }

    /// A turn of each shard that serves clients, in which everything is reported that they have sent, or made room for.
    /// Returns what the first shard does next.
    pub fn turn(&mut self) -> Next {
        self.turn_of(0..self.clients.len())
    }

    /// The same, of those initiators alone.
    pub fn turn_of(&mut self, clients: Range<usize>) -> Next {
        self.now += Duration::from_micros(100);
        let mut next = Next::Ended;
        for shard in (0..self.shards).rev() {
            let clients = self.clients[clients.clone()].iter();
            let here = clients.filter(|client| client.shard == shard);
            let tokens = here.map(|client| client.wire().token);
            let mut events: Vec<_> = tokens
                .map(|token| EngineEvent::Socket {
                    token: token.expect("the connection is watched"),
                    readiness: Readiness::new(true, true),
                })
                .collect();
            if self.shards > 1 && self.server.has_mail(shard) {
                events.push(EngineEvent::Woken);
            }
            next = self.server.turn(shard, &mut events, self.now);
        }
        next
    }

    /// The volume has other limits from now on.
    pub fn limit(&self, limits: &RateLimits) {
        let throttle = self.volume.throttle().expect("it was opened with some");
        throttle.set_at(limits, self.now);
    }

    /// Removes the volume, and exports another one as LUN 1. Takes turns until it is closed.
    pub fn remove_volume(&mut self, timeout: Duration) -> ClosedVolume {
        let (closed, inbox) = mpsc::channel();
        let drain = DrainOptions {
            timeout,
            on_closed: Some(Arc::new(move |volume| closed.send(volume).unwrap())),
        };
        let other = config(&Options::default());
        let mut targets = other.targets;
        targets[0].default_luns = Some(vec![LunConfig {
            lun: 1,
            volume: 0,
            read_only: false,
        }]);
        let exports = ExportsConfig {
            volumes: other.volumes,
            targets,
            discovery: Authentication::none(),
            subsystems: Vec::new(),
        };
        self.server.switch(exports, drain).unwrap();
        // Some seconds.
        for _ in 0..50_000 {
            self.server.advance();
            if let Ok(closed) = inbox.try_recv() {
                return closed;
            }
            self.turn();
            self.clients.iter_mut().for_each(Client::take);
        }
        panic!("{:?}", self.server.draining());
    }

    /// The time of the last turn, and what went by since.
    pub fn now(&self) -> Instant {
        self.now
    }

    pub fn pause(&mut self, time: Duration) {
        self.now += time;
    }

    /// A turn without news.
    pub fn turn_without_events(&mut self) -> Next {
        self.now += Duration::from_micros(100);
        self.server.turn(0, &mut Vec::new(), self.now)
    }

    /// A turn in which mail is read.
    pub fn turn_with_mail(&mut self) -> Next {
        self.now += Duration::from_micros(100);
        self.server.turn(0, &mut vec![EngineEvent::Woken], self.now)
    }

    /// A shard cannot wait for events any more.
    pub fn fail(&mut self, shard: usize) {
        self.server.fail(shard);
    }

    /// Whether that is what comes before falling asleep.
    pub fn sleeps(&self, next: Next) -> bool {
        match next {
            Next::Wait(at) => at.is_none_or(|at| at > self.now),
            Next::Ended => panic!("nobody has ended it"),
        }
    }
}

fn config(options: &Options) -> ServerConfig {
    let mut spec = VolumeSpec::new("disk", options.backend);
    spec.size = Some(16 << 20);
    spec.limits = options.limits;
    ServerConfig {
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
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            advertise: None,
            portal_group_tag: 1,
        }],
        subsystems: Vec::new(),
        nvme_listeners: Vec::new(),
        engine: EngineChoice::Auto,
        cores: Vec::new(),
        transmit: options.transmit,
        copies: Copies::default(),
        reactor: ReactorConfig::default(),
        limits: PeerLimits {
            memory: options.memory,
            nop_interval: Duration::ZERO,
            ..PeerLimits::default()
        },
        state_directory: None,
        sample: 0,
    }
}
