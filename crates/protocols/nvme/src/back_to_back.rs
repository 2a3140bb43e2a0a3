//! The two machines against each other, without sockets: what one sends, the other receives, cut into
//! pieces of any size.
//!
//! The device behind the controller is a byte array. Its commands are Read and Write, but SLBA is an
//! offset in bytes, and the SGL says how many.

mod conversations;

use std::collections::HashMap;

use longshore_wire::transmit::{PayloadId, Segment, Transmit, WriteData};

use crate::command::NamespaceId;
use crate::host::{self, Command, CommandOutcome, Transfer};
use crate::opcode::{self, Opcode, io};
use crate::pdu::Digests;
use crate::server::{self, ArrivedCommand, Completion, DataTransfer, QueueParameters};
use crate::status::Status;

/// Reads like Read, and fails after half of the data.
const FAILING_READ: Opcode = Opcode(0x82);
/// Stays with the device until the test completes it. The direction is to the controller.
const STUCK: Opcode = Opcode(0x81);
/// Writes like Write, but takes half of the data that the host has.
const HALF_WRITE: Opcode = Opcode(0x85);

/// How the device sends read data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Inline,
    Copied,
    ByReference,
}

const SENDINGS: [Sending; 3] = [Sending::Inline, Sending::Copied, Sending::ByReference];

#[derive(Clone, Debug)]
struct Setup {
    host: host::ConnectionConfig,
    target: server::ConnectionConfig,
    queue: QueueParameters,
    /// In-capsule data the host uses once connected.
    in_capsule_data_bytes: u32,
}

impl Default for Setup {
    fn default() -> Self {
        let target = server::ConnectionConfig::default();
        Self {
            host: host::ConnectionConfig::default(),
            in_capsule_data_bytes: target.in_capsule_data_bytes,
            target,
            queue: QueueParameters {
                id: 1,
                entries: 128,
                flow_control: false,
            },
        }
    }
}

/// Both ends of a connection and what is between them.
struct Pair {
    host: host::Connection,
    to_target: Transmit,
    target: server::Connection,
    to_host: Transmit,
    queue: QueueParameters,
    /// Streams are handed over in pieces of these lengths, one after the other, over and over.
    pieces: Vec<usize>,
    next_piece: usize,
    sending: Sending,
    /// Data go straight to their place where the machines say where that is.
    placing: bool,
    /// The host sends by reference.
    referring: bool,
    /// A byte of a stream that is flipped, by absolute position.
    damage_to_target: Option<usize>,
    damage_to_host: Option<usize>,
    sent_to_target: usize,
    sent_to_host: usize,
    device: Vec<u8>,
    /// What the two ends send by reference.
    target_payloads: HashMap<PayloadId, Vec<u8>>,
    host_payloads: HashMap<PayloadId, Vec<u8>>,
    next_payload: u64,
    /// Commands that wait for their data.
    writes: HashMap<server::CommandSlot, (ArrivedCommand, Vec<u8>)>,
    stuck: Vec<server::CommandSlot>,
    /// What the host writes and reads.
    data_out: HashMap<host::CommandSlot, Vec<u8>>,
    data_in: HashMap<host::CommandSlot, Vec<u8>>,
    outcomes: HashMap<host::CommandSlot, CommandOutcome>,
    /// R2Ts the host has seen, and the most that were unanswered at a time.
    r2ts: usize,
    host_closed: Option<host::CloseReason>,
    target_closed: Option<server::CloseReason>,
}

impl Setup {
    fn digests(mut self, header: bool, data: bool) -> Self {
        self.host.digests = Digests { header, data };
        self
    }

    /// Initializes and connects.
    fn connect(&self, pieces: &[usize]) -> Pair {
        let mut to_target = Transmit::new();
        let mut config = self.host;
        config.commands = self.queue.entries - 1;
        let host = host::Connection::new(config, &mut to_target);
        let mut pair = Pair {
            host,
            to_target,
            target: server::Connection::new(self.target.clone(), 0),
            to_host: Transmit::new(),
            queue: self.queue,
            pieces: pieces.to_vec(),
            next_piece: 0,
            sending: Sending::ByReference,
            placing: false,
            referring: false,
            damage_to_target: None,
            damage_to_host: None,
            sent_to_target: 0,
            sent_to_host: 0,
            device: (0..1 << 20)
                .map(|i: u32| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[0])
                .collect(),
            target_payloads: HashMap::new(),
            host_payloads: HashMap::new(),
            next_payload: 0,
            writes: HashMap::new(),
            stuck: Vec::new(),
            data_out: HashMap::new(),
            data_in: HashMap::new(),
            outcomes: HashMap::new(),
            r2ts: 0,
            host_closed: None,
            target_closed: None,
        };
        pair.run();
        assert!(pair.host.is_ready());
        let mut connect = Command::new(opcode::FABRICS, NamespaceId::NONE);
        connect.entry.0[4] = opcode::fabrics::CONNECT;
        connect.transfer = Transfer::ToController(1024);
        let connect = pair.submit(&connect, &[7; 1024]);
        pair.run();
        pair.assert_success(connect);
        assert!(pair.target.is_connected());
        pair.host
            .set_in_capsule_data_bytes(self.in_capsule_data_bytes);
        pair
    }
}

/// All that is queued, as one stream; payload is looked up.
fn drain(transmit: &mut Transmit, payloads: &mut HashMap<PayloadId, Vec<u8>>) -> Vec<u8> {
    let mut stream = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                stream.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            Segment::Zeros { length } => stream.resize(stream.len() + length, 0),
            Segment::Buffer { id, start, length } => {
                stream.extend_from_slice(&payloads[&id][start..start + length]);
            }
        }
    }
    assert_eq!(stream.len(), transmit.pending_bytes());
    // In two goes, so that a segment is cut.
    let half = stream.len() / 2;
    let mut released = Vec::new();
    transmit.advance(half, &mut released);
    transmit.advance(stream.len() - half, &mut released);
    assert!(transmit.is_empty());
    for id in released {
        assert!(payloads.remove(&id).is_some(), "{id:?} released twice");
    }
    stream
}

/// Flips a bit of the byte at `at` of all that has been sent, if it is in this piece.
fn damage(stream: &mut [u8], sent: &mut usize, at: Option<usize>) {
    if let Some(byte) = at
        .and_then(|at| at.checked_sub(*sent))
        .and_then(|at| stream.get_mut(at))
    {
        *byte ^= 0x20;
    }
    *sent += stream.len();
}

impl Pair {
    /// Hands over what is queued, both ways, until nothing is.
    fn run(&mut self) {
        loop {
            let mut to_target = drain(&mut self.to_target, &mut self.host_payloads);
            let mut to_host = drain(&mut self.to_host, &mut self.target_payloads);
            if to_target.is_empty() && to_host.is_empty() {
                break;
            }
            damage(
                &mut to_target,
                &mut self.sent_to_target,
                self.damage_to_target,
            );
            damage(&mut to_host, &mut self.sent_to_host, self.damage_to_host);
            self.feed_target(&to_target);
            self.feed_host(&to_host);
        }
        let referred = self.host_payloads.len() + self.target_payloads.len();
        assert_eq!(referred, 0, "payload was not released");
    }

    /// Takes the next piece off a stream.
    fn cut<'a>(&mut self, rest: &mut &'a [u8]) -> &'a [u8] {
        let length = self.pieces[self.next_piece % self.pieces.len()];
        self.next_piece += 1;
        let (piece, later) = rest.split_at(length.min(rest.len()));
        *rest = later;
        piece
    }

    fn feed_target(&mut self, stream: &[u8]) {
        let mut rest = stream;
        while !rest.is_empty() {
            let mut piece = self.cut(&mut rest);
            self.place_at_target(&mut piece);
            while self.target_event(&mut piece) {
                self.place_at_target(&mut piece);
            }
            assert!(piece.is_empty() || self.target_closed.is_some());
        }
    }

    fn feed_host(&mut self, stream: &[u8]) {
        let mut rest = stream;
        while !rest.is_empty() {
            let mut piece = self.cut(&mut rest);
            self.place_at_host(&mut piece);
            while self.host_event(&mut piece) {
                self.place_at_host(&mut piece);
            }
            assert!(piece.is_empty() || self.host_closed.is_some());
        }
    }

    /// Does what a driver does that receives straight into a buffer.
    fn place_at_target(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.target.payload_wanted().filter(|_| self.placing) {
            let (now, later) = piece.split_at(piece.len().min(wanted.length as usize));
            let start = wanted.buffer_offset as usize;
            if let Some((_, buffer)) = self.writes.get_mut(&wanted.slot) {
                buffer[start..start + now.len()].copy_from_slice(now);
            }
            self.target.payload_received(now, 0);
            *piece = later;
        }
    }

    fn place_at_host(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.host.payload_wanted().filter(|_| self.placing) {
            let (now, later) = piece.split_at(piece.len().min(wanted.length as usize));
            let start = wanted.buffer_offset as usize;
            let buffer = self.data_in.get_mut(&wanted.slot).unwrap();
            buffer[start..start + now.len()].copy_from_slice(now);
            self.host.payload_received(now);
            *piece = later;
        }
    }

    fn target_event(&mut self, input: &mut &[u8]) -> bool {
        match self.target.next(input, &mut self.to_host, 0) {
            server::ConnectionEvent::NeedMore => return false,
            server::ConnectionEvent::Command(command) => self.execute(command),
            server::ConnectionEvent::DataOut {
                slot,
                buffer_offset,
                bytes,
            } => {
                let start = buffer_offset as usize;
                let (_, buffer) = self.writes.get_mut(&slot).unwrap();
                buffer[start..start + bytes.len()].copy_from_slice(bytes);
            }
            server::ConnectionEvent::DataOutComplete { slot } => self.written(slot),
            server::ConnectionEvent::DataOutFailed { slot } => {
                self.writes.remove(&slot);
                self.complete(slot, Status::TRANSIENT_TRANSPORT_ERROR);
            }
            server::ConnectionEvent::Close(reason) => {
                self.target_closed = Some(reason);
                return false;
            }
        }
        true
    }

    fn execute(&mut self, command: ArrivedCommand) {
        let (slot, length) = (command.slot, command.data.length());
        let offset = usize::try_from(command.entry.qword(10)).unwrap();
        match command.data {
            DataTransfer::None => self.complete(slot, Status::INVALID_COMMAND_OPCODE),
            DataTransfer::ToHost { .. } if command.entry.opcode() == FAILING_READ => {
                let half = self.device[offset..][..length as usize / 2].to_vec();
                let completion = Completion {
                    status: Status::UNRECOVERED_READ_ERROR,
                    result: 0,
                    data: server::Payload::Bytes(&half),
                };
                self.target.complete(slot, completion, &mut self.to_host);
            }
            DataTransfer::ToHost { .. } => self.read(slot, offset, length),
            DataTransfer::InCapsule { .. } | DataTransfer::ToController { .. } => {
                let wanted = match command.entry.opcode() {
                    HALF_WRITE => length / 2,
                    _ => length,
                };
                self.writes
                    .insert(slot, (command, vec![0; wanted as usize]));
                self.target.want_data_out(slot, wanted, &mut self.to_host);
            }
        }
    }

    /// A write has its data.
    fn written(&mut self, slot: server::CommandSlot) {
        let (command, data) = self.writes.remove(&slot).unwrap();
        match command.entry.opcode() {
            opcode::FABRICS => {
                assert_eq!(data, [7; 1024]);
                self.target.connected(slot, self.queue);
            }
            STUCK => {
                self.stuck.push(slot);
                return;
            }
            _ => {
                let start = usize::try_from(command.entry.qword(10)).unwrap();
                self.device[start..start + data.len()].copy_from_slice(&data);
            }
        }
        self.complete(slot, Status::SUCCESS);
    }

    fn complete(&mut self, slot: server::CommandSlot, status: Status) {
        let completion = Completion::status(status);
        self.target.complete(slot, completion, &mut self.to_host);
    }

    fn read(&mut self, slot: server::CommandSlot, offset: usize, length: u32) {
        let data = self.device[offset..offset + length as usize].to_vec();
        let inline = self.sending == Sending::Inline;
        if inline && let Some(place) = self.begin_inline_read(slot, length) {
            // Once for nothing, to see that it leaves no trace.
            place.fill(0xee);
            self.target.rollback_inline_read(slot, &mut self.to_host);
            let place = self.begin_inline_read(slot, length).unwrap();
            place.copy_from_slice(&data);
            self.target.commit_inline_read(slot, &mut self.to_host);
            return;
        }
        let id = PayloadId(self.next_payload);
        let data = if self.sending == Sending::ByReference {
            self.next_payload += 1;
            self.target_payloads.insert(id, data);
            let bytes = &self.target_payloads[&id];
            server::Payload::Buffer { id, bytes }
        } else {
            server::Payload::Bytes(&data)
        };
        let completion = Completion {
            status: Status::SUCCESS,
            result: 0,
            data,
        };
        self.target.complete(slot, completion, &mut self.to_host);
    }

    fn begin_inline_read(&mut self, slot: server::CommandSlot, length: u32) -> Option<&mut [u8]> {
        self.target
            .begin_inline_read(slot, length, &mut self.to_host)
    }

    fn host_event(&mut self, input: &mut &[u8]) -> bool {
        match self.host.next(input, &mut self.to_target) {
            host::ConnectionEvent::NeedMore => return false,
            host::ConnectionEvent::Ready => {}
            host::ConnectionEvent::DataIn {
                slot,
                buffer_offset,
                bytes,
            } => {
                let start = buffer_offset as usize;
                let buffer = self.data_in.get_mut(&slot).unwrap();
                buffer[start..start + bytes.len()].copy_from_slice(bytes);
            }
            host::ConnectionEvent::R2t(r2t) => {
                self.r2ts += 1;
                let start = r2t.buffer_offset as usize;
                let data = &self.data_out[&r2t.slot][start..start + r2t.length as usize];
                let id = PayloadId(self.next_payload);
                let payload = if self.referring {
                    self.next_payload += 1;
                    self.host_payloads.insert(id, data.to_vec());
                    WriteData::Buffer {
                        id,
                        start: 0,
                        bytes: data,
                    }
                } else {
                    WriteData::Bytes(data)
                };
                self.host.send_data(&r2t, payload, &mut self.to_target);
            }
            host::ConnectionEvent::Completed { slot, outcome } => {
                self.outcomes.insert(slot, outcome);
            }
            host::ConnectionEvent::Close(reason) => {
                self.host_closed = Some(reason);
                return false;
            }
        }
        true
    }

    fn submit(&mut self, command: &Command, data: &[u8]) -> host::CommandSlot {
        let payload = WriteData::Bytes(data);
        let slot = self
            .host
            .submit(command, payload, &mut self.to_target)
            .unwrap();
        self.outcomes.remove(&slot);
        self.data_out.insert(slot, data.to_vec());
        if let Transfer::ToHost(length) = command.transfer {
            self.data_in.insert(slot, vec![0; length as usize]);
        }
        slot
    }

    fn start(&mut self, opcode: Opcode, offset: usize, data: &[u8]) -> host::CommandSlot {
        let length = u32::try_from(data.len()).unwrap();
        let transfer = match opcode.direction() {
            opcode::Direction::ToHost => Transfer::ToHost(length),
            _ => Transfer::ToController(length),
        };
        let mut command = Command::new(opcode, NamespaceId(1)).with(transfer);
        command.entry.set_qword(10, offset as u64);
        self.submit(&command, data)
    }

    fn start_write(&mut self, offset: usize, data: &[u8]) -> host::CommandSlot {
        self.start(io::WRITE, offset, data)
    }

    fn start_read(&mut self, offset: usize, length: usize) -> host::CommandSlot {
        self.start(io::READ, offset, &vec![0; length])
    }

    #[track_caller]
    fn outcome(&self, slot: host::CommandSlot) -> CommandOutcome {
        *self.outcomes.get(&slot).unwrap_or_else(|| {
            panic!(
                "no outcome; target: {:?} host: {:?}",
                self.target_closed, self.host_closed
            )
        })
    }

    #[track_caller]
    fn assert_success(&self, slot: host::CommandSlot) {
        assert_eq!(self.outcome(slot).status, Status::SUCCESS);
    }
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

/// Small limits, so that everything is cut.
fn small(max_r2t: u32, in_capsule_data_bytes: u32) -> Setup {
    let mut setup = Setup::default();
    setup.host.max_r2t = max_r2t;
    setup.target.r2ts_in_flight_max = 16;
    setup.target.max_h2c_data_bytes = 4096;
    setup.target.r2t_bytes = 3000;
    setup.target.in_capsule_data_bytes = 2048;
    setup.in_capsule_data_bytes = in_capsule_data_bytes;
    setup
}
