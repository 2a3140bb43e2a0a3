//! A whole server, turn by turn, with an admin queue and an I/O queue of one host whose commands are
//! nearly right. Nothing panics; and once the host is gone, so are its connections, its commands and
//! the memory they held.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longshore_iscsi::server::directory::Authentication;
use longshore_nvme::command::{CommandId, SubmissionEntry};
use longshore_nvme::host::commands::{Command, Property, property_set};
use longshore_nvme::opcode::{Direction, FABRICS, Opcode};
use longshore_nvme::pdu::{CapsuleCmd, CapsuleResp, Digests, H2cData, IcReq, PduType, R2t};
use longshore_nvme::sgl::SglDescriptor;
use longshore_reactor::storage::{Delegated, FileOperation, Storage, StorageTag};
use longshore_reactor::{EngineChoice, EngineEvent, Readiness, SocketToken};
use longshore_server::config::{
    Copies, NamespaceMapEntry, NvmeListenerConfig, PeerLimits, ReactorConfig, ServerConfig,
    SubsystemConfig, TransmitConfig,
};
use longshore_server::platform::{Link, Platform};
use longshore_server::stepped::{Next, SteppedServer};
use longshore_volume::{BackendName, VolumeSpec};
use uuid::Uuid;

use super::stream::Format;
use super::subsystem::{BLOCKS, ENABLE, connect, entry_of, shared};
use super::{admin, io as commands};
use crate::input::Input;

/// Turns after which everything must have come to rest.
const TURNS_MAX: usize = 10_000;

/// Both directions of a connection.
#[derive(Debug, Default)]
struct Wire {
    to_target: VecDeque<u8>,
    ended: bool,
    to_host: Vec<u8>,
    /// How many bytes more the host lets in.
    room: usize,
    token: Option<SocketToken>,
    /// The target has closed its end.
    dropped: bool,
}

#[derive(Debug)]
struct WireLink(Arc<Mutex<Wire>>);

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link for WireLink {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut wire = lock(&self.0);
        if wire.to_target.is_empty() && !wire.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut received = 0;
        for buffer in buffers {
            received += io::Read::read(&mut wire.to_target, buffer)?;
        }
        Ok(received)
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut wire = lock(&self.0);
        let before = wire.room;
        for buffer in buffers {
            let length = buffer.len().min(wire.room);
            wire.to_host.extend(&buffer[..length]);
            wire.room -= length;
        }
        match before - wire.room {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let end = |last, port| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), port));
        Ok((end(1, 40_000), end(2, 4420)))
    }

    fn watch(&mut self, _: &mut dyn Platform, token: SocketToken) -> io::Result<()> {
        lock(&self.0).token = Some(token);
        Ok(())
    }

    fn forget(&mut self, _: &mut dyn Platform, _: SocketToken) {
        lock(&self.0).token = None;
    }
}

impl Drop for WireLink {
    fn drop(&mut self) {
        lock(&self.0).dropped = true;
    }
}

/// Volumes in memory never sleep.
#[derive(Debug)]
struct NoStorage;

impl Storage for NoStorage {
    fn submit(&mut self, operation: FileOperation) {
        panic!("there are no files: {operation:?}");
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        panic!("nobody works for volumes in memory: {tag:?}");
    }
}

impl Platform for NoStorage {
    fn watch(&mut self, _: BorrowedFd<'_>, _: SocketToken) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn forget(&mut self, _: BorrowedFd<'_>, _: SocketToken) {}

    fn wait(&mut self, _: Option<Duration>, _: &mut Vec<EngineEvent>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Nothing listens, but discovery needs an address to tell.
static LISTENER: LazyLock<TcpListener> =
    LazyLock::new(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind to loopback"));
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn config() -> ServerConfig {
    let volumes = (0..2_u8).map(|number| {
        let mut spec = VolumeSpec::new(format!("fuzz{number}"), BackendName::MEM);
        spec.block_size = if number == 0 { 512 } else { 4096 };
        spec.size = Some(BLOCKS * 512);
        spec.uuid = Some(Uuid::from_u128(u128::from(number) + 1));
        longshore_volume::open(&spec).expect("memory for a volume")
    });
    let entry = |nsid, volume| NamespaceMapEntry {
        nsid,
        volume,
        read_only: false,
    };
    ServerConfig {
        volumes: volumes.collect(),
        targets: Vec::new(),
        discovery: Authentication::none(),
        listeners: Vec::new(),
        subsystems: vec![SubsystemConfig {
            nqn: shared(),
            serial: None,
            hosts: Vec::new(),
            default_namespaces: Some(vec![entry(1, 0), entry(3, 1)]),
        }],
        nvme_listeners: vec![NvmeListenerConfig {
            listener: LISTENER.try_clone().expect("another descriptor"),
            advertise: None,
            discovery_only: false,
            tls: longshore_server::config::TlsUse::None,
        }],
        engine: EngineChoice::default(),
        cores: Vec::new(),
        transmit: TransmitConfig::default(),
        copies: Copies::default(),
        reactor: ReactorConfig::default(),
        limits: PeerLimits {
            memory: 4 << 20,
            ..PeerLimits::default()
        },
        state_directory: None,
        sample: 1,
    }
}

/// One queue, as the host has it.
#[derive(Debug)]
struct Queue {
    wire: Arc<Mutex<Wire>>,
    format: Format,
    r2ts: VecDeque<R2t>,
    responses: Vec<CapsuleResp>,
}

struct World {
    server: SteppedServer,
    now: Instant,
    queues: [Queue; 2],
    events: Vec<EngineEvent>,
}

impl World {
    /// With an admin queue whose controller is enabled, and an I/O queue.
    fn new(digests: Digests) -> Self {
        let platforms: Vec<Box<dyn Platform>> = vec![Box::new(NoStorage)];
        let now = *START;
        let server = SteppedServer::new(config(), platforms, now).expect("a good configuration");
        let queue = || Queue {
            wire: Arc::default(),
            format: Format {
                digests,
                alignment: 0,
            },
            r2ts: VecDeque::new(),
            responses: Vec::new(),
        };
        let mut world = Self {
            server,
            now,
            queues: [queue(), queue()],
            events: Vec::new(),
        };
        let mut connect = connect(0, shared());
        let id = world.connect(0, &connect.command(), &connect.data());
        let [low, high, ..] = id.to_le_bytes();
        let set = property_set(Property::CC, u64::from(ENABLE));
        world.command(0, &entry_of(&set), &[]);
        connect.controller_id = u16::from_le_bytes([low, high]);
        connect.queue_id = 1;
        world.connect(1, &connect.command(), &connect.data());
        world
    }

    /// Opens a connection and makes it a queue.
    fn connect(&mut self, index: usize, command: &Command, data: &[u8]) -> u64 {
        let queue = &self.queues[index];
        lock(&queue.wire).room = 1 << 20;
        let link = WireLink(Arc::clone(&queue.wire));
        self.server.accept(0, Box::new(link), 0);
        let request = IcReq {
            pfv: 0,
            hpda: 0,
            digests: queue.format.digests,
            max_r2t: 2,
        };
        self.say(index, &request.encode());
        self.turn();
        let answer = std::mem::take(&mut lock(&self.queues[index].wire).to_host);
        assert_eq!(answer.len(), 128, "an ICReq is answered");
        self.command(index, &entry_of(command), data)
    }

    /// A command that succeeds.
    fn command(&mut self, index: usize, entry: &SubmissionEntry, data: &[u8]) -> u64 {
        let header = CapsuleCmd { entry: *entry }.encode();
        let capsule = self.queues[index].format.pdu(&header, data, |_| ());
        self.say(index, &capsule);
        self.turn();
        self.hear(index);
        let response = self.queues[index].responses.pop().expect("an answer").entry;
        assert!(response.status.is_success(), "{response:?}");
        response.result
    }

    fn say(&self, index: usize, bytes: &[u8]) {
        lock(&self.queues[index].wire).to_target.extend(bytes);
    }

    /// Takes the whole PDUs that have come.
    fn hear(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let mut wire = lock(&queue.wire);
        let mut stream = &wire.to_host[..];
        while let Some(plen) = stream.first_chunk::<8>().map(|start| &start[4..])
            && let Ok(plen) = plen.try_into().map(u32::from_le_bytes)
            && stream.len() >= plen as usize
        {
            let pdu = queue.format.take(&mut stream).expect("there is one");
            match pdu.common.pdu_type {
                PduType::CAPSULE_RESP => queue.responses.push(CapsuleResp::decode(pdu.header())),
                PduType::R2T => queue.r2ts.push_back(R2t::decode(pdu.header())),
                PduType::C2H_DATA | PduType::C2H_TERM_REQ => {}
                other => panic!("{other:?} by a controller"),
            }
        }
        let rest = stream.len();
        let heard = wire.to_host.len() - rest;
        wire.to_host.drain(..heard);
    }

    /// Turns of the shard until it has nothing to do.
    fn turn(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.server.has_mail(0) {
                self.events.push(EngineEvent::Woken);
            }
            for queue in &self.queues {
                let wire = lock(&queue.wire);
                let readable = !wire.to_target.is_empty() || wire.ended;
                if let Some(token) = wire.token {
                    let readiness = Readiness::new(readable, wire.room > 0);
                    self.events.push(EngineEvent::Socket { token, readiness });
                }
            }
            let before = self.state();
            let next = self.server.turn(0, &mut self.events, self.now);
            let due = matches!(next, Next::Wait(Some(at)) if at <= self.now);
            if !due && !self.server.has_mail(0) && self.state() == before {
                return;
            }
        }
        panic!("{TURNS_MAX} turns without rest");
    }

    /// Changes while there is progress.
    fn state(&self) -> [(usize, usize, bool); 2] {
        let state = |queue: &Queue| {
            let wire = lock(&queue.wire);
            (wire.to_target.len(), wire.to_host.len(), wire.dropped)
        };
        [state(&self.queues[0]), state(&self.queues[1])]
    }

    /// The next thing that the host or the network does.
    fn step(&mut self, input: &mut Input<'_>) {
        let index = usize::from(input.byte() & 1);
        match input.byte() % 12 {
            0..=5 => {
                let entry = if index == 0 {
                    admin::entry(input)
                } else {
                    commands::entry(input)
                };
                self.capsule(index, entry, input);
            }
            6 | 7 => self.answer(index, input),
            8 => {
                let mut entry = SubmissionEntry(input.array());
                entry.0[1] = 1 << 6;
                self.capsule(index, entry, input);
            }
            9 => self.now += Duration::from_millis(u64::from(input.byte()) * 100),
            10 => {
                let room = usize::from(input.byte()) * 40;
                lock(&self.queues[index].wire).room = room;
            }
            _ => match input.byte() {
                0..=0x0f => lock(&self.queues[index].wire).ended = true,
                0x10..=0x1f => {
                    let bytes = input.piece().to_vec();
                    self.say(index, &bytes);
                }
                _ => lock(&self.queues[index].wire).room = 1 << 20,
            },
        }
        if input.byte() & 3 != 3 {
            self.turn();
            self.hear(index);
        }
    }

    fn capsule(&self, index: usize, mut entry: SubmissionEntry, input: &mut Input<'_>) {
        entry.set_id(CommandId(u16::from(input.byte() & 0x1f)));
        let opcode = if entry.opcode() == FABRICS {
            Opcode(entry.fabrics_type())
        } else {
            entry.opcode()
        };
        let exact = ((entry.dword(12) & 0xff) + 1) * 512;
        let length = match input.byte() {
            byte @ 0..=0x3f => u32::from(byte) << 5,
            _ => exact,
        };
        let mut data = Vec::new();
        match opcode.direction() {
            Direction::ToController if length <= 8192 && input.byte() & 1 == 0 => {
                data.resize(length as usize, input.byte());
                entry.set_sgl(SglDescriptor::Offset { offset: 0, length });
            }
            Direction::ToHost if index == 0 => {}
            Direction::ToController | Direction::ToHost => {
                entry.set_sgl(SglDescriptor::Transport { length });
            }
            Direction::None | Direction::Both => {}
        }
        let header = CapsuleCmd { entry }.encode();
        self.say(index, &self.spoilt(index, &header, &data, input));
    }

    /// A PDU, most often as it should be.
    fn spoilt(&self, index: usize, header: &[u8], data: &[u8], input: &mut Input<'_>) -> Vec<u8> {
        let mut pdu = self.queues[index].format.pdu(header, data, |_| ());
        if input.byte() == 0xff {
            let at = usize::from(input.byte()) % pdu.len();
            pdu[at] ^= input.byte();
        }
        pdu
    }

    fn answer(&mut self, index: usize, input: &mut Input<'_>) {
        let Some(r2t) = self.queues[index].r2ts.pop_front() else {
            return;
        };
        let length = r2t.length.min(1 << 17);
        let data = H2cData {
            last: length == r2t.length,
            command: r2t.command,
            tag: r2t.tag,
            offset: r2t.offset,
            length,
        };
        if length < r2t.length {
            self.queues[index].r2ts.push_front(R2t {
                offset: r2t.offset + length,
                length: r2t.length - length,
                ..r2t
            });
        }
        let bytes = vec![input.byte(); length as usize];
        let pdu = self.spoilt(index, &data.encode(), &bytes, input);
        self.say(index, &pdu);
    }

    /// The host goes, and nothing of it is left.
    fn finish(mut self) {
        for queue in &self.queues {
            let mut wire = lock(&queue.wire);
            wire.room = 1 << 30;
            wire.ended = true;
        }
        for _ in 0..60 {
            self.turn();
            if self.queues.iter().all(|queue| lock(&queue.wire).dropped) {
                break;
            }
            self.now += Duration::from_secs(1);
        }
        for queue in &self.queues {
            assert!(lock(&queue.wire).dropped, "a connection without a host");
        }
        assert_eq!(self.server.requests_in_flight(), 0);
        assert_eq!(self.server.memory_in_use(), 0);
    }
}

/// Settings, then things that the host or the network does.
pub(crate) fn nvme_server(data: &[u8]) {
    let mut input = Input(data);
    let settings = input.byte();
    let mut world = World::new(Digests {
        header: settings & 1 != 0,
        data: settings & 2 != 0,
    });
    while !input.is_empty() {
        world.step(&mut input);
    }
    world.finish();
}
