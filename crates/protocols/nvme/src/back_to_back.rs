//! The two machines against each other, without sockets.
//!
//! The device behind the controller is a byte array. Its commands are Read and Write, but SLBA is an
//! offset in bytes, and the SGL says how many.

mod conversations;

use std::collections::HashMap;

use longshore_wire::back_to_back::{self as shared, Pair as _, Rig, SENDINGS, Sending, pattern};
use longshore_wire::transmit::WriteData;

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
    target: server::Connection,
    rig: Rig,
    queue: QueueParameters,
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

    fn connect(&self, pieces: &[usize]) -> Pair {
        let mut rig = Rig::new(pieces);
        let mut config = self.host;
        config.commands = self.queue.entries - 1;
        let host = host::Connection::new(config, &mut rig.to_server.transmit);
        let mut pair = Pair {
            host,
            target: server::Connection::new(self.target.clone(), 0),
            rig,
            queue: self.queue,
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
        pair.assert_good(connect);
        assert!(pair.target.is_connected());
        pair.host
            .set_in_capsule_data_bytes(self.in_capsule_data_bytes);
        pair
    }
}

impl shared::Pair for Pair {
    type Command = host::CommandSlot;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn place_at_server(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.target.payload_wanted() {
            let (now, later) = piece.split_at(piece.len().min(wanted.length as usize));
            let start = wanted.buffer_offset as usize;
            if let Some((_, buffer)) = self.writes.get_mut(&wanted.slot) {
                buffer[start..start + now.len()].copy_from_slice(now);
            }
            self.target.payload_received(now, 0);
            *piece = later;
        }
    }

    fn place_at_client(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.host.payload_wanted() {
            let (now, later) = piece.split_at(piece.len().min(wanted.length as usize));
            let start = wanted.buffer_offset as usize;
            let buffer = self.data_in.get_mut(&wanted.slot).unwrap();
            buffer[start..start + now.len()].copy_from_slice(now);
            self.host.payload_received(now);
            *piece = later;
        }
    }

    fn server_event(&mut self, input: &mut &[u8]) -> bool {
        match self.target.next(input, &mut self.rig.to_client.transmit, 0) {
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

    fn client_event(&mut self, input: &mut &[u8]) -> bool {
        match self.host.next(input, &mut self.rig.to_server.transmit) {
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
                let line = &mut self.rig.to_server;
                let payload = if self.rig.referring {
                    let id = line.keep(data.to_vec());
                    WriteData::Buffer {
                        id,
                        start: 0,
                        bytes: data,
                    }
                } else {
                    WriteData::Bytes(data)
                };
                self.host.send_data(&r2t, payload, &mut line.transmit);
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

    fn is_server_closed(&self) -> bool {
        self.target_closed.is_some()
    }

    fn is_client_closed(&self) -> bool {
        self.host_closed.is_some()
    }

    fn start_write(&mut self, offset: usize, data: &[u8]) -> host::CommandSlot {
        self.start(io::WRITE, offset, data)
    }

    fn start_read(&mut self, offset: usize, length: usize) -> host::CommandSlot {
        self.start(io::READ, offset, &vec![0; length])
    }

    #[track_caller]
    fn assert_good(&self, slot: host::CommandSlot) {
        assert_eq!(self.outcome(slot).status, Status::SUCCESS);
    }

    fn data_in(&self, slot: host::CommandSlot) -> &[u8] {
        &self.data_in[&slot]
    }

    fn assert_idle(&self) {
        assert_eq!(self.target.commands().count(), 0);
        assert_eq!(self.host.under_way().count(), 0);
        assert_eq!((self.target_closed, self.host_closed), (None, None));
    }
}

impl Pair {
    fn execute(&mut self, command: ArrivedCommand) {
        let (slot, length) = (command.slot, command.data.length());
        let offset = usize::try_from(command.entry.qword(10)).unwrap();
        match command.data {
            DataTransfer::None => self.complete(slot, Status::INVALID_COMMAND_OPCODE),
            DataTransfer::ToHost { .. } if command.entry.opcode() == FAILING_READ => {
                let half = self.rig.device[offset..][..length as usize / 2].to_vec();
                let completion = Completion {
                    status: Status::UNRECOVERED_READ_ERROR,
                    result: 0,
                    data: server::Payload::Bytes(&half),
                };
                self.target
                    .complete(slot, completion, &mut self.rig.to_client.transmit);
            }
            DataTransfer::ToHost { .. } => self.read(slot, offset, length),
            DataTransfer::InCapsule { .. } | DataTransfer::ToController { .. } => {
                let wanted = match command.entry.opcode() {
                    HALF_WRITE => length / 2,
                    _ => length,
                };
                self.writes
                    .insert(slot, (command, vec![0; wanted as usize]));
                self.target
                    .want_data_out(slot, wanted, &mut self.rig.to_client.transmit);
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
                self.rig.device[start..start + data.len()].copy_from_slice(&data);
            }
        }
        self.complete(slot, Status::SUCCESS);
    }

    fn complete(&mut self, slot: server::CommandSlot, status: Status) {
        let completion = Completion::status(status);
        self.target
            .complete(slot, completion, &mut self.rig.to_client.transmit);
    }

    fn read(&mut self, slot: server::CommandSlot, offset: usize, length: u32) {
        let data = self.rig.device[offset..offset + length as usize].to_vec();
        let inline = self.rig.sending == Sending::Inline;
        if inline && let Some(place) = self.begin_inline_read(slot, length) {
            // Once for nothing, to see that it leaves no trace.
            place.fill(0xee);
            self.target
                .rollback_inline_read(slot, &mut self.rig.to_client.transmit);
            let place = self.begin_inline_read(slot, length).unwrap();
            place.copy_from_slice(&data);
            self.target
                .commit_inline_read(slot, &mut self.rig.to_client.transmit);
            return;
        }
        let data = if self.rig.sending == Sending::ByReference {
            let id = self.rig.to_client.keep(data.clone());
            server::Payload::Buffer { id, bytes: &data }
        } else {
            server::Payload::Bytes(&data)
        };
        let completion = Completion {
            status: Status::SUCCESS,
            result: 0,
            data,
        };
        self.target
            .complete(slot, completion, &mut self.rig.to_client.transmit);
    }

    fn begin_inline_read(&mut self, slot: server::CommandSlot, length: u32) -> Option<&mut [u8]> {
        self.target
            .begin_inline_read(slot, length, &mut self.rig.to_client.transmit)
    }

    fn submit(&mut self, command: &Command, data: &[u8]) -> host::CommandSlot {
        let payload = WriteData::Bytes(data);
        let slot = self
            .host
            .submit(command, payload, &mut self.rig.to_server.transmit)
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

    #[track_caller]
    fn outcome(&self, slot: host::CommandSlot) -> CommandOutcome {
        *self.outcomes.get(&slot).unwrap_or_else(|| {
            panic!(
                "no outcome; target: {:?} host: {:?}",
                self.target_closed, self.host_closed
            )
        })
    }
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
