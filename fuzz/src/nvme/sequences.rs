//! The controller's end of a queue and a host that keeps to the rules until the input has it break
//! one. As long as it keeps to them the connection lives, no byte of data is lost or mixed up, and
//! each command ends once.

use std::collections::BTreeMap;

use longshore_nvme::command::{CommandId, NamespaceId, SubmissionEntry};
use longshore_nvme::opcode::{self, Direction, FABRICS, io};
use longshore_nvme::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Digests, FatalError, FatalErrorStatus, H2cData, IcReq,
    IcResp, PduType, R2t,
};
use longshore_nvme::server::{
    ArrivedCommand, CommandSlot, Completion, Connection, ConnectionConfig, ConnectionEvent,
    DataTransfer, Payload, QueueParameters,
};
use longshore_nvme::sgl::SglDescriptor;
use longshore_nvme::status::Status;
use longshore_wire::transmit::{PayloadId, Transmit};

use super::stream::{Format, Pdu};
use crate::input::Input;
use crate::structured::drain;

/// Entries of the queue.
const ENTRIES: u16 = 8;
/// MAXH2CDATA of the controller: small, so that writes take several PDUs.
const H2C_DATA_MAX: u32 = 4096;

/// Byte `at` of the data of a command.
fn pattern(id: CommandId, at: usize) -> u8 {
    let [low, high, ..] = at.to_le_bytes();
    let [id, _] = id.0.to_le_bytes();
    low ^ high.wrapping_mul(31) ^ id
}

fn patterns(id: CommandId, offset: u32, length: u32) -> Vec<u8> {
    (offset..offset + length)
        .map(|at| pattern(id, usize::try_from(at).expect("64 bits")))
        .collect()
}

/// What a host knows of its command.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    /// Bytes it has for the controller, and of those how many R2Ts have asked for.
    from_host: u32,
    requested: u32,
    /// Bytes it has room for, and how many have come.
    to_host: u32,
    received: u32,
}

/// The host: what it sends and what it expects.
#[derive(Debug)]
struct Host {
    format: Format,
    hpda: u8,
    max_r2t: usize,
    flow_control: bool,
    /// It has kept to the rules so far.
    honest: bool,
    commands: BTreeMap<u16, Sent>,
    r2ts: Vec<R2t>,
    next_id: u16,
}

impl Host {
    fn request(input: &mut Input<'_>) -> (Self, IcReq) {
        let settings = input.byte();
        let request = IcReq {
            pfv: 0,
            hpda: input.byte() % 32,
            digests: Digests {
                header: settings & 1 != 0,
                data: settings & 2 != 0,
            },
            max_r2t: u64::from(settings >> 4) + 1,
        };
        let host = Self {
            format: Format::default(),
            hpda: request.hpda,
            max_r2t: usize::from(settings >> 4) + 1,
            flow_control: settings & 4 == 0,
            honest: true,
            commands: BTreeMap::new(),
            r2ts: Vec::new(),
            next_id: 0,
        };
        (host, request)
    }

    /// Takes what the controller says.
    fn hear(&mut self, stream: &[u8]) {
        let mut stream = stream;
        let format = Format {
            alignment: self.hpda,
            ..self.format
        };
        while let Some(pdu) = format.take(&mut stream) {
            match pdu.common.pdu_type {
                PduType::CAPSULE_RESP => {
                    let entry = CapsuleResp::decode(pdu.header()).entry;
                    self.ended(entry.id);
                }
                PduType::C2H_DATA => self.data(&pdu),
                PduType::R2T => self.r2t(R2t::decode(pdu.header())),
                PduType::C2H_TERM_REQ => assert!(!self.honest, "an honest host is sent away"),
                other => panic!("{other:?} by a controller"),
            }
        }
    }

    fn ended(&mut self, id: CommandId) {
        let known = self.commands.remove(&id.0).is_some();
        assert!(
            known || !self.honest,
            "a command ends that is not under way"
        );
        assert!(self.r2ts.iter().all(|r2t| r2t.command != id) || !self.honest);
        self.r2ts.retain(|r2t| r2t.command != id);
    }

    fn data(&mut self, pdu: &Pdu<'_>) {
        let data = C2hData::decode(pdu.header());
        assert_eq!(data.length as usize, pdu.data.len());
        assert!(!data.success || (data.last && !self.flow_control));
        if self.honest {
            let sent = self.commands.get_mut(&data.command.0);
            let sent = sent.expect("data of a command that is not under way");
            assert_eq!(data.offset, sent.received);
            sent.received += data.length;
            assert!(sent.received <= sent.to_host, "more than there is room for");
        }
        if data.success {
            self.ended(data.command);
        }
    }

    fn r2t(&mut self, r2t: R2t) {
        assert!(r2t.length > 0);
        if self.honest {
            let sent = self.commands.get_mut(&r2t.command.0);
            let sent = sent.expect("an R2T for a command that is not under way");
            assert_eq!(r2t.offset, sent.requested);
            sent.requested += r2t.length;
            assert!(sent.requested <= sent.from_host, "more than there is");
        }
        self.r2ts.push(r2t);
        let same = |other: &&R2t| other.command == r2t.command;
        assert!(self.r2ts.iter().filter(same).count() <= self.max_r2t || !self.honest);
    }

    /// The next thing to send.
    fn speak(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        match input.byte() % 8 {
            0 => self.command(io::READ, input),
            1 | 2 => self.command(io::WRITE, input),
            3 => self.command(io::FLUSH, input),
            7 => {
                self.honest = false;
                match input.byte() % 4 {
                    0 => input.piece().to_vec(),
                    1 => {
                        let mut header = [0; 128];
                        header[..24].copy_from_slice(&input.array::<24>());
                        let pdu_type = PduType(input.byte() % 10);
                        header[0] = pdu_type.0;
                        header[2] = pdu_type.header_length().unwrap_or(24);
                        let length = usize::from(header[2]);
                        self.pdu(&header[..length], &[], input)
                    }
                    _ => {
                        let mut entry = SubmissionEntry(input.array());
                        entry.0[1] = 1 << 6;
                        entry.set_id(CommandId(u16::from(input.byte() & 7)));
                        let data = input.piece();
                        self.pdu(&CapsuleCmd { entry }.encode(), data, input)
                    }
                }
            }
            _ => self.answer(input),
        }
    }

    fn command(&mut self, opcode: opcode::Opcode, input: &mut Input<'_>) -> Vec<u8> {
        self.next_id = self.next_id.wrapping_add(1) & 0x1f;
        let id = CommandId(self.next_id);
        let full = self.commands.len() + 1 >= usize::from(ENTRIES);
        if full || self.commands.contains_key(&id.0) {
            return Vec::new();
        }
        let mut entry = SubmissionEntry::new(opcode, id, NamespaceId(1));
        let length = (input.word() >> 16) & 0x3fff;
        let mut sent = Sent::default();
        let mut data = Vec::new();
        match opcode.direction() {
            Direction::ToHost => {
                sent.to_host = length;
                entry.set_sgl(SglDescriptor::Transport { length });
            }
            Direction::ToController if input.byte() & 1 == 0 => {
                sent.from_host = length;
                entry.set_sgl(SglDescriptor::Transport { length });
            }
            Direction::ToController => {
                let length = length & 0xfff;
                let lead = u64::from(input.byte() & 0x0f) * 4;
                sent.from_host = length;
                sent.requested = length;
                data.resize(usize::try_from(lead).expect("64 bits"), 0xee);
                data.extend(patterns(id, 0, length));
                data.resize(data.len() + usize::from(input.byte() & 7), 0xdd);
                let offset = lead;
                entry.set_sgl(SglDescriptor::Offset { offset, length });
            }
            Direction::None | Direction::Both => {}
        }
        self.commands.insert(id.0, sent);
        self.pdu(&CapsuleCmd { entry }.encode(), &data, input)
    }

    /// Data that an R2T asked for.
    fn answer(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        if self.r2ts.is_empty() {
            return Vec::new();
        }
        let index = usize::from(input.byte()) % self.r2ts.len();
        let r2t = &mut self.r2ts[index];
        let most = r2t.length.min(H2C_DATA_MAX);
        let length = match input.byte() {
            byte if byte & 1 == 0 => most,
            byte => most.min(1 + u32::from(byte) * 8),
        };
        let data = H2cData {
            last: length == r2t.length,
            command: r2t.command,
            tag: r2t.tag,
            offset: r2t.offset,
            length,
        };
        r2t.offset += length;
        r2t.length -= length;
        if r2t.length == 0 {
            self.r2ts.remove(index);
        }
        let bytes = patterns(data.command, data.offset, length);
        self.pdu(&data.encode(), &bytes, input)
    }

    /// A PDU, which the input may spoil before or after its digests are made.
    fn pdu(&mut self, header: &[u8], data: &[u8], input: &mut Input<'_>) -> Vec<u8> {
        let spoil = input.byte();
        let before = spoil & 0x0f == 0x0f;
        let after = spoil & 0xf0 == 0xf0;
        let (at, bits) = if before || after {
            self.honest = false;
            (usize::from(input.byte()), input.byte())
        } else {
            (0, 0)
        };
        let mut pdu = self.format.pdu(header, data, |pdu| {
            if before {
                let at = at % pdu.len();
                pdu[at] ^= bits;
            }
        });
        if after {
            let at = at * 3 % pdu.len();
            pdu[at] ^= bits;
        }
        pdu
    }
}

/// A command that the driver has.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: CommandId,
    data: DataTransfer,
    /// Bytes it was told it may send, once it was.
    wanted: Option<u32>,
    /// Bytes that have come.
    written: u32,
    /// The driver wanted less later.
    reduced: bool,
}

/// The controller's end, and a driver that does whatever a driver may.
struct Controller {
    machine: Connection,
    transmit: Transmit,
    now_ms: u64,
    held: BTreeMap<u32, Held>,
    closed: bool,
}

impl Controller {
    fn new() -> Self {
        let config = ConnectionConfig {
            max_h2c_data_bytes: H2C_DATA_MAX,
            r2t_bytes: 3000,
            ..ConnectionConfig::default()
        };
        Self {
            machine: Connection::new(config, 0),
            transmit: Transmit::new(),
            now_ms: 0,
            held: BTreeMap::new(),
            closed: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], host: &Host, input: &mut Input<'_>) {
        while !self.closed {
            if let Some(wanted) = self.machine.payload_wanted()
                && !bytes.is_empty()
                && input.byte() & 1 == 1
            {
                let length = wanted.length as usize;
                let (now, later) = bytes.split_at(length.min(bytes.len()));
                self.data(wanted.slot, wanted.buffer_offset, now, host);
                self.machine.payload_received(now, self.now_ms);
                bytes = later;
            }
            let event = self
                .machine
                .next(&mut bytes, &mut self.transmit, self.now_ms);
            match event {
                ConnectionEvent::NeedMore => {
                    assert!(bytes.is_empty(), "the machine wants more and leaves some");
                    return;
                }
                ConnectionEvent::Command(command) => self.command(command, input),
                ConnectionEvent::DataOut {
                    slot,
                    buffer_offset,
                    bytes,
                } => self.data(slot, buffer_offset, bytes, host),
                ConnectionEvent::DataOutComplete { slot } => {
                    let held = self.held[&slot.0];
                    // In-capsule data can come before they are wanted.
                    let all = held.wanted.is_some_and(|wanted| held.written >= wanted);
                    assert!(all || held.reduced || !host.honest, "{held:?}");
                    self.complete(slot, input);
                }
                ConnectionEvent::DataOutFailed { slot } => {
                    assert!(!host.honest, "good data fail");
                    self.complete(slot, input);
                }
                ConnectionEvent::Close(_) => {
                    assert!(!host.honest, "an honest host is sent away");
                    self.closed = true;
                }
            }
        }
    }

    fn command(&mut self, command: ArrivedCommand, input: &mut Input<'_>) {
        let ArrivedCommand { slot, entry, data } = command;
        let held = Held {
            id: entry.id(),
            data,
            wanted: None,
            written: 0,
            reduced: false,
        };
        let before = self.held.insert(slot.0, held);
        assert!(before.is_none(), "a slot is used twice");
        match (input.byte() % 6, data) {
            (0..=2, DataTransfer::InCapsule { length })
            | (0..=2, DataTransfer::ToController { length }) => self.want(slot, length),
            (3, _) => {}
            (4, DataTransfer::ToHost { .. }) => self.read_inline(slot, input),
            _ => self.complete(slot, input),
        }
    }

    fn want(&mut self, slot: CommandSlot, wanted: u32) {
        let held = self.held.get_mut(&slot.0).expect("a command of ours");
        held.reduced |= held.wanted.is_some();
        let most = held.wanted.unwrap_or_else(|| held.data.length());
        held.wanted = Some(wanted.min(most));
        self.machine.want_data_out(slot, wanted, &mut self.transmit);
    }

    fn data(&mut self, slot: CommandSlot, offset: u32, bytes: &[u8], host: &Host) {
        let held = self.held.get_mut(&slot.0).expect("a command of ours");
        let length = u32::try_from(bytes.len()).expect("PDUs are short");
        let limit = held.wanted.unwrap_or_else(|| held.data.length());
        let end = offset.checked_add(length).expect("within the data");
        assert!(length > 0 && end <= limit, "data that nobody wanted");
        held.written += length;
        if host.honest {
            assert_eq!(bytes, patterns(held.id, offset, length), "other data");
        }
    }

    fn read_inline(&mut self, slot: CommandSlot, input: &mut Input<'_>) {
        let length = input.word() >> 17;
        let transmit = &mut self.transmit;
        match self.machine.begin_inline_read(slot, length, transmit) {
            Some(place) => {
                place.fill(1);
                if input.byte() & 1 == 0 {
                    self.held.remove(&slot.0);
                    return self.machine.commit_inline_read(slot, transmit);
                }
                self.machine.rollback_inline_read(slot, transmit);
                self.complete(slot, input);
            }
            None => self.complete(slot, input),
        }
    }

    fn complete(&mut self, slot: CommandSlot, input: &mut Input<'_>) {
        let length = input.word() >> 17;
        let zeros = vec![0; length as usize];
        let data = match input.byte() % 4 {
            0 => Payload::None,
            1 => Payload::Zeros(length),
            2 => Payload::Bytes(&zeros),
            _ => Payload::Buffer {
                id: PayloadId(1),
                bytes: &zeros,
            },
        };
        let status = input.pick(&[Status::SUCCESS, Status::SUCCESS, Status::INTERNAL_ERROR]);
        let completion = Completion {
            status,
            result: u64::from(input.byte() & 1),
            data,
        };
        self.held.remove(&slot.0);
        self.machine.complete(slot, completion, &mut self.transmit);
    }

    /// Lets a command end that waits, or tries to.
    fn release(&mut self, input: &mut Input<'_>) {
        let index = usize::from(input.byte()) % self.held.len().max(1);
        let Some((&slot, &held)) = self.held.iter().nth(index) else {
            return;
        };
        let slot = CommandSlot(slot);
        let from_host = matches!(
            held.data,
            DataTransfer::InCapsule { .. } | DataTransfer::ToController { .. }
        );
        if self.machine.outstanding_data_out(slot) {
            self.want(slot, 0);
        } else if from_host && held.wanted.is_none() {
            let length = held.data.length();
            self.want(slot, length.min(u32::from(input.byte()) << 6));
        } else {
            self.complete(slot, input);
        }
    }

    /// What else a driver does between two receives.
    fn turn(&mut self, host: &mut Host, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 => self.now_ms += u64::from(input.byte()) * 1000,
            1 | 2 => self.release(input),
            3 if input.byte() == 0xff => {
                host.honest = false;
                let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
                self.machine.fatal(error, &mut self.transmit, self.now_ms);
            }
            _ => {}
        }
        let due = self.machine.next_deadline_ms();
        if due.is_some_and(|at| at <= self.now_ms) {
            let reason = self
                .machine
                .handle_deadline(&mut self.transmit, self.now_ms);
            self.closed |= reason.is_some();
        }
        host.hear(&drain(&mut self.transmit));
        self.machine.sent(self.now_ms);
    }
}

fn connected(input: &mut Input<'_>) -> (Controller, Host) {
    let mut target = Controller::new();
    let (mut host, request) = Host::request(input);
    target.feed(&request.encode(), &host, input);
    let heard = drain(&mut target.transmit);
    let response = Format::default().take(&mut &heard[..]).map(|pdu| {
        assert_eq!(pdu.common.pdu_type, PduType::IC_RESP);
        IcResp::decode(pdu.header())
    });
    let response = response.expect("an ICReq is answered");
    assert_eq!(response.digests, request.digests);
    host.format = Format {
        digests: response.digests,
        alignment: response.cpda,
    };
    let id = CommandId(0x55);
    let fctype = NamespaceId(u32::from(opcode::fabrics::CONNECT));
    let mut entry = SubmissionEntry::new(FABRICS, id, fctype);
    let (offset, length) = (0, 1024);
    entry.set_sgl(SglDescriptor::Offset { offset, length });
    let data = patterns(id, 0, length);
    let capsule = host
        .format
        .pdu(&CapsuleCmd { entry }.encode(), &data, |_| ());
    let mut bytes = &capsule[..];
    let slot = loop {
        match target.machine.next(&mut bytes, &mut target.transmit, 0) {
            ConnectionEvent::Command(command) => {
                let machine = &mut target.machine;
                machine.want_data_out(command.slot, length, &mut target.transmit);
            }
            ConnectionEvent::DataOutComplete { slot } => break slot,
            ConnectionEvent::DataOut { bytes, .. } => assert_eq!(bytes, data),
            other => panic!("{other:?} of a Connect"),
        }
    };
    let queue = QueueParameters {
        id: 1,
        entries: ENTRIES,
        flow_control: host.flow_control,
    };
    target.machine.connected(slot, queue);
    let done = Completion::status(Status::SUCCESS);
    target.machine.complete(slot, done, &mut target.transmit);
    host.commands.insert(id.0, Sent::default());
    host.hear(&drain(&mut target.transmit));
    assert!(host.commands.is_empty(), "Connect has ended");
    (target, host)
}

/// Settings, then things to send and to do.
pub(crate) fn nvme_target_sequences(data: &[u8]) {
    let mut input = Input(data);
    let (mut target, mut host) = connected(&mut input);
    while !input.is_empty() && !target.closed {
        let bytes = host.speak(&mut input);
        let size = input.pick(&[usize::MAX, usize::MAX, 1000, 90, 7, 1]);
        for piece in bytes.chunks(size) {
            target.feed(piece, &host, &mut input);
        }
        target.turn(&mut host, &mut input);
    }
    finish(&mut target, &mut host);
}

/// All that is under way ends; of an honest host, well.
fn finish(target: &mut Controller, host: &mut Host) {
    let mut nothing = Input(&[]);
    for _ in 0..1000 {
        if !host.honest || target.held.is_empty() {
            break;
        }
        for slot in target.held.keys().copied().collect::<Vec<_>>() {
            let slot = CommandSlot(slot);
            let Some(held) = target.held.get(&slot.0) else {
                continue;
            };
            if held.data.length() > 0 && held.wanted.is_none() {
                target.want(slot, 0);
                target.feed(&[], host, &mut nothing);
            } else if !target.machine.outstanding_data_out(slot) {
                target.complete(slot, &mut nothing);
            }
        }
        host.hear(&drain(&mut target.transmit));
        let answer = host.answer(&mut nothing);
        target.feed(&answer, host, &mut nothing);
    }
    host.hear(&drain(&mut target.transmit));
    if host.honest {
        assert!(host.commands.is_empty(), "{:?}", host.commands);
        assert_eq!(target.machine.commands().count(), 0);
    }
}
