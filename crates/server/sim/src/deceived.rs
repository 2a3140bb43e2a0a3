//! A client that is lied to: the real machine of an initiator or a host, behind a liar that changes the
//! bytes of the server.
//!
//! ```text
//!   server ──► network ──► Liar ──► machine of the client      the other way nothing is changed
//! ```
//!
//! It reads and asks, and changes nothing, so that the promises to the other clients hold. Checked of
//! itself: its machine takes any bytes and any order of calls, data stays within its room, and a
//! connection that has ended refuses every call. A connection without events is given up after a time.

use std::collections::BTreeMap;

use longshore_iscsi::initiator::{self, login::LoginConfig};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{Attribute, Function, Isid, LogoutReason, Lun};
use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Connect, Property};
use longshore_nvme::host::{self, Command, ConnectionConfig};
use longshore_nvme::nqn::Nqn;
use longshore_wire::transmit::{Transmit, WriteData};

use crate::alarm::Alarm;
use crate::host::SUBSYSTEM;
use crate::initiator::TARGET;
use crate::random::Random;
use crate::scene::Scene;
use crate::time::{MICROSECOND, MILLISECOND};

/// How long anything is waited for before the connection is given up.
const PATIENCE: u64 = 100 * MILLISECOND;

/// Commands under way, at most.
const DEPTH: u16 = 6;

const READ_BYTES: u32 = 4096;

/// See the module documentation.
#[derive(Debug)]
pub struct Deceived {
    index: usize,
    random: Random,
    /// The party speaks NVMe/TCP, not iSCSI.
    is_host: bool,
    line: Option<Line>,
    /// No connection before then.
    down_until: u64,
    alarm: Alarm,
    is_leaving: bool,
    /// Connections that have ended, for whatever reason.
    ends: u64,
}

#[derive(Debug)]
struct Line {
    wire: usize,
    machine: Machine,
    transmit: Transmit,
    /// Room for data, by command.
    rooms: BTreeMap<u16, u32>,
    liar: Liar,
    /// When something was heard that the machine made an event of.
    heard_at: u64,
    is_up: bool,
}

#[derive(Debug)]
enum Machine {
    Iscsi(Box<initiator::Connection>),
    NvmeTcp(Box<host::Connection>),
}

impl Deceived {
    /// The party with this number.
    #[must_use]
    pub const fn new(index: usize, is_host: bool, random: Random) -> Self {
        Self {
            index,
            random,
            is_host,
            line: None,
            down_until: 0,
            alarm: Alarm::new(index),
            is_leaving: false,
            ends: 0,
        }
    }

    /// Whether it comes by NVMe/TCP.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.is_host
    }

    #[must_use]
    pub fn wire(&self) -> Option<usize> {
        self.line.as_ref().map(|line| line.wire)
    }

    /// Whether it needs a connection now.
    #[must_use]
    pub const fn wants_connection(&self, now: u64) -> bool {
        self.line.is_none() && !self.is_leaving && now >= self.down_until
    }

    /// It has a connection now.
    pub fn connected(&mut self, wire: usize, now: u64) {
        let mut transmit = Transmit::new();
        let machine = if self.is_host {
            let config = ConnectionConfig {
                commands: 31,
                ..ConnectionConfig::default()
            };
            Machine::NvmeTcp(Box::new(host::Connection::new(config, &mut transmit)))
        } else {
            let number = u8::try_from(self.index).expect("few parties");
            let isid = Isid([0x80, 0, 0, 0, 1, number]);
            let name = |text: &str| IscsiName::parse(text).expect("a valid name");
            let own = name(&format!("iqn.2026-11.local.longshore:deceived-{number}"));
            let mut login = LoginConfig::normal(own, name(TARGET), isid);
            if self.random.chance(5000) {
                login.security = None;
            }
            let mut fill = |bytes: &mut [u8]| bytes.fill(7);
            let connection = initiator::Connection::new(login, DEPTH, &mut fill, &mut transmit);
            Machine::Iscsi(Box::new(connection))
        };
        self.line = Some(Line {
            wire,
            machine,
            transmit,
            rooms: BTreeMap::new(),
            liar: Liar::drawn(&mut self.random),
            heard_at: now,
            is_up: false,
        });
    }

    /// Hears lies, asks, gives up, as is due.
    pub fn step(&mut self, scene: &mut Scene<'_>) {
        let now = scene.now();
        self.alarm.answered(now);
        if let Some(line) = &mut self.line {
            let mut environment = scene.environment.lock();
            let bytes = environment.take_at_initiator(line.wire);
            let mut is_over = environment.wires[line.wire].is_over_for_initiator();
            drop(environment);
            is_over |= line.hear(bytes, now, &mut self.random).is_err();
            if !is_over && line.is_up && !scene.quiet {
                line.ask(&mut self.random);
            }
            scene.environment.send(line.wire, &mut line.transmit);
            if is_over || now > line.heard_at + PATIENCE {
                self.hang_up(scene);
            }
        }
        if scene.quiet {
            self.log_out(scene);
        }
        self.plan_next(scene);
    }

    fn plan_next(&mut self, scene: &mut Scene<'_>) {
        if self.is_leaving {
            return;
        }
        let now = scene.now();
        let pause = self.random.between(50 * MICROSECOND, 2 * MILLISECOND);
        let at = if self.line.is_some() {
            now + pause
        } else {
            self.down_until.max(now + pause)
        };
        self.alarm.set(at, scene.environment);
    }

    /// Goes away for good.
    pub fn log_out(&mut self, scene: &mut Scene<'_>) {
        self.is_leaving = true;
        self.hang_up(scene);
    }

    /// Closes the connection from this end.
    pub fn hang_up(&mut self, scene: &mut Scene<'_>) {
        if let Some(line) = &self.line {
            scene.environment.lock().close_at_initiator(line.wire);
        }
        self.lost(scene);
    }

    /// There is no connection any more.
    pub fn lost(&mut self, scene: &mut Scene<'_>) {
        if self.line.take().is_some() {
            self.ends += 1;
            let (index, ends) = (self.index, self.ends);
            scene.trace(format_args!("deceived {index}: connection {ends} is over"));
            self.down_until = scene.now() + self.random.between(MILLISECOND, 10 * MILLISECOND);
        }
    }
}

/// The machine has ended the connection.
struct Ended;

impl Line {
    fn hear(&mut self, bytes: Vec<u8>, now: u64, random: &mut Random) -> Result<(), Ended> {
        if bytes.is_empty() {
            return Ok(());
        }
        let told = self.liar.tell(bytes, random);
        let mut rest = &told[..];
        let limit = 64 + told.len() * 4;
        for _ in 0..limit {
            let goes_on = match &mut self.machine {
                Machine::Iscsi(machine) => hear_target(
                    machine,
                    &mut rest,
                    &mut self.transmit,
                    &mut self.rooms,
                    &mut self.is_up,
                ),
                Machine::NvmeTcp(machine) => hear_controller(
                    machine,
                    &mut rest,
                    &mut self.transmit,
                    &mut self.rooms,
                    &mut self.is_up,
                ),
            };
            match goes_on {
                Some(true) => self.heard_at = now,
                Some(false) => return Ok(()),
                None => {
                    self.check_end();
                    return Err(Ended);
                }
            }
        }
        panic!("{limit} events of {} bytes", told.len());
    }

    /// Asks something, if there is room.
    fn ask(&mut self, random: &mut Random) {
        let transmit = &mut self.transmit;
        match &mut self.machine {
            Machine::Iscsi(machine) => {
                // Refusals are answers like others: the session may be full, or over.
                match random.below(16) {
                    0 => drop(machine.ping(&[1; 8], transmit)),
                    1 => drop(machine.text(b"SendTargets=\0", transmit)),
                    2 => {
                        let function = Function::ABORT_TASK;
                        let which = machine.under_way().next();
                        let which = which.map(|command| (command, machine.cmd_sn_of(command)));
                        if which.is_some() {
                            let _ = machine.task_management(function, Lun::ZERO, which, transmit);
                        }
                    }
                    3 => {
                        let forgotten = machine.under_way().last();
                        if let Some(command) = forgotten {
                            machine.forget(command);
                            self.rooms.remove(&command.0);
                        }
                    }
                    4 if random.chance(500) => {
                        let _ = machine.logout(LogoutReason::CLOSE_SESSION, transmit);
                    }
                    _ => {
                        // READ (10) of one block, which may be shorter than the room.
                        let command = initiator::Command {
                            lun: Lun::ZERO,
                            cdb: &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],
                            attribute: Attribute::SIMPLE,
                            immediate: false,
                            transfer: initiator::Transfer::Read(READ_BYTES),
                        };
                        if let Ok(id) = machine.submit(&command, WriteData::NONE, transmit) {
                            let before = self.rooms.insert(id.0, READ_BYTES);
                            assert_eq!(before, None, "a number is used twice");
                        }
                    }
                }
            }
            Machine::NvmeTcp(machine) => {
                if machine.under_way().count() >= usize::from(DEPTH) {
                    return;
                }
                let (command, data) = question(random);
                if let Ok(slot) = machine.submit(&command, WriteData::Bytes(&data), transmit) {
                    let room = match command.transfer {
                        host::Transfer::ToHost(length) => length,
                        _ => 0,
                    };
                    let before = self.rooms.insert(slot.0, room);
                    assert_eq!(before, None, "a slot is used twice");
                }
            }
        }
    }

    /// The connection has ended: every call is refused, and nothing is sent.
    fn check_end(&mut self) {
        let transmit = &mut Transmit::new();
        match &mut self.machine {
            Machine::Iscsi(machine) => {
                let closed = Some(initiator::NotSent::Closed);
                assert_eq!(machine.ping(&[], transmit).err(), closed);
                assert_eq!(machine.text(&[], transmit).err(), closed);
                let reason = LogoutReason::CLOSE_SESSION;
                assert_eq!(machine.logout(reason, transmit).err(), closed);
                assert_eq!((machine.room(), machine.payload_wanted()), (0, None));
                machine.payload_received(&[0; 16]);
            }
            Machine::NvmeTcp(machine) => {
                let flush = commands::flush(NamespaceId(1));
                let refused = machine.submit(&flush, WriteData::NONE, transmit).err();
                assert_eq!(refused, Some(host::NotSent::Closed));
                assert_eq!((machine.slots_free(), machine.payload_wanted()), (0, None));
                machine.payload_received(&[0; 16]);
            }
        }
        assert!(transmit.is_empty(), "something is said after the end");
    }
}

/// One event of an initiator. Whether there may be more; `None`: the connection is over.
fn hear_target(
    machine: &mut initiator::Connection,
    rest: &mut &[u8],
    transmit: &mut Transmit,
    rooms: &mut BTreeMap<u16, u32>,
    is_up: &mut bool,
) -> Option<bool> {
    use initiator::ConnectionEvent;
    match machine.next(rest, transmit) {
        ConnectionEvent::NeedMore => return Some(false),
        ConnectionEvent::Close(_) => return None,
        ConnectionEvent::Established => *is_up = true,
        ConnectionEvent::DataIn {
            command,
            buffer_offset,
            bytes,
        } => check_place(rooms, command.0, buffer_offset, bytes.len()),
        ConnectionEvent::R2t(r2t) => panic!("{r2t:?} for a read"),
        ConnectionEvent::Completed { command, .. } => {
            let ended = rooms.remove(&command.0);
            assert!(ended.is_some(), "a command ends twice");
        }
        _ => {}
    }
    Some(true)
}

/// One event of a host, the same way.
fn hear_controller(
    machine: &mut host::Connection,
    rest: &mut &[u8],
    transmit: &mut Transmit,
    rooms: &mut BTreeMap<u16, u32>,
    is_up: &mut bool,
) -> Option<bool> {
    use host::ConnectionEvent;
    match machine.next(rest, transmit) {
        ConnectionEvent::NeedMore => return Some(false),
        ConnectionEvent::Close(_) => return None,
        ConnectionEvent::Ready => {
            let connect = connect();
            let (command, data) = (connect.command(), connect.data());
            let slot = machine
                .submit(&command, WriteData::Bytes(&data), transmit)
                .expect("it is ready, and nothing is under way");
            rooms.insert(slot.0, 0);
        }
        ConnectionEvent::DataIn {
            slot,
            buffer_offset,
            bytes,
        } => check_place(rooms, slot.0, buffer_offset, bytes.len()),
        ConnectionEvent::R2t(r2t) => panic!("{r2t:?} for data that went along"),
        ConnectionEvent::Completed { slot, .. } => {
            let ended = rooms.remove(&slot.0);
            assert!(ended.is_some(), "a command ends twice");
            // Of the Connect, the first one.
            *is_up = true;
        }
    }
    Some(true)
}

fn check_place(rooms: &BTreeMap<u16, u32>, command: u16, offset: u32, length: usize) {
    let room = rooms.get(&command).copied().unwrap_or(0);
    let end = offset as usize + length;
    assert!(end <= room as usize, "{end} bytes of {room}");
}

fn connect() -> Connect {
    let name = |text: &str| Nqn::new(text).expect("a valid name");
    Connect {
        host_identifier: [0xde; 16],
        host: name("nqn.2026-11.local.longshore:deceived"),
        subsystem: name(SUBSYSTEM),
        controller_id: ANY_CONTROLLER,
        queue_id: 0,
        entries: 32,
        disable_flow_control: false,
        keep_alive_ms: 1000,
    }
}

/// A question to a controller that changes nothing.
fn question(random: &mut Random) -> (Command, Vec<u8>) {
    let command = match random.below(5) {
        0 => commands::property_get(Property::CAP),
        1 => commands::property_get(Property::CSTS),
        2 => commands::property_get(Property::CRTO),
        3 => commands::keep_alive(),
        _ => commands::identify(1, NamespaceId::NONE),
    };
    (command, Vec::new())
}

/// Changes the bytes of a server.
#[derive(Debug)]
struct Liar {
    /// Lies in ten thousand pieces.
    chance: u64,
    /// Nothing comes through any more.
    is_silent: bool,
}

impl Liar {
    fn drawn(random: &mut Random) -> Self {
        Self {
            chance: random.pick(&[100, 500, 2000]),
            is_silent: false,
        }
    }

    fn tell(&mut self, mut bytes: Vec<u8>, random: &mut Random) -> Vec<u8> {
        if self.is_silent {
            return Vec::new();
        }
        if !random.chance(self.chance) {
            return bytes;
        }
        let at = random.index(bytes.len());
        let noise = |random: &mut Random| u8::try_from(random.below(256)).unwrap_or(0);
        match random.below(8) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = noise(random),
            3 => bytes.truncate(at),
            4 => bytes.extend_from_within(at..),
            5 => bytes[at..].fill_with(|| noise(random)),
            6 => drop(bytes.drain(..at)),
            _ => {
                bytes.truncate(at);
                self.is_silent = true;
            }
        }
        bytes
    }
}
