//! Conversations with hosts, some of which break rules.

mod commands;
mod data;
mod initialization;
mod properties;
mod timers;
mod violations;

use std::collections::BTreeMap;

use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::{PayloadId, Segment};

use super::*;
use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::completion::CompletionEntry;
use crate::opcode::{self, Opcode, io};
use crate::pdu::encoder::Encoder;
use crate::pdu::framing::{Framing, Receiver};
use crate::pdu::{C2hData, CapsuleCmd, CapsuleResp, FatalErrorStatus, H2cData, R2t, TransferTag};
use crate::server::command::{ArrivedCommand, Completion, DataTransfer, Payload};
use crate::sgl::SglDescriptor;
use crate::status::Status;
use longshore_wire::transmit::Chunk;

/// The payload that completions by reference send.
const BUFFER: PayloadId = PayloadId(77);

/// What a host says first.
#[derive(Clone, Copy, Debug)]
struct Setup {
    digests: Digests,
    hpda: u8,
    max_r2t: u64,
    queue: QueueParameters,
    config: fn(&mut ConnectionConfig),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            hpda: 0,
            max_r2t: 1,
            queue: QueueParameters {
                id: 1,
                entries: 8,
                flow_control: true,
            },
            config: |_| {},
        }
    }
}

const BOTH_DIGESTS: Digests = Digests {
    header: true,
    data: true,
};

fn all_digests() -> [Digests; 4] {
    [(false, false), (true, false), (false, true), (true, true)]
        .map(|(header, data)| Digests { header, data })
}

/// What a controller says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    IcResp(IcResp),
    Response(CompletionEntry),
    Data(C2hData, Vec<u8>),
    R2t(R2t),
    TermReq(FatalError, Vec<u8>),
}

/// What a driver saw.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Command(ArrivedCommand),
    /// All data of a command.
    Complete(CommandSlot, Vec<u8>),
    Failed(CommandSlot),
    Close(CloseReason),
}

/// A controller, a driver of the simplest kind, and the means to say something to it.
struct Wire {
    target: Connection,
    transmit: Transmit,
    queue: QueueParameters,
    hpda: u8,
    /// Commands are answered as soon as they can be; otherwise the test does.
    answers: bool,
    /// What the driver has of the data of each command.
    written: BTreeMap<u32, Vec<u8>>,
    /// Receive payload to its place where that is possible.
    direct: bool,
    seen: Vec<Seen>,
    /// Everything that has been sent.
    sent: Vec<u8>,
    /// How much of it has been looked at.
    heard: usize,
    host: Framing,
    encoder: Encoder,
    released: Vec<PayloadId>,
    buffer: Vec<u8>,
    now_ms: u64,
}

/// Data of a read: depends on where it is.
fn pattern(length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from(at % 251).expect("below 251"))
        .collect()
}

fn read(id: u16, length: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(io::READ, CommandId(id), NamespaceId(1));
    entry.set_sgl(SglDescriptor::Transport { length });
    entry
}

fn write(id: u16, length: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(io::WRITE, CommandId(id), NamespaceId(1));
    entry.set_sgl(SglDescriptor::Transport { length });
    entry
}

fn write_in_capsule(id: u16, offset: u64, length: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(io::WRITE, CommandId(id), NamespaceId(1));
    entry.set_sgl(SglDescriptor::Offset { offset, length });
    entry
}

fn flush(id: u16) -> SubmissionEntry {
    SubmissionEntry::new(io::FLUSH, CommandId(id), NamespaceId(1))
}

fn admin(opcode: Opcode, id: u16) -> SubmissionEntry {
    SubmissionEntry::new(opcode, CommandId(id), NamespaceId(0))
}

fn connect(id: u16) -> SubmissionEntry {
    let fctype = u32::from(opcode::fabrics::CONNECT);
    let mut entry = SubmissionEntry::new(opcode::FABRICS, CommandId(id), NamespaceId(fctype));
    entry.set_sgl(SglDescriptor::Offset {
        offset: 0,
        length: 1024,
    });
    entry
}

fn ic_req(setup: &Setup) -> IcReq {
    IcReq {
        pfv: 0,
        hpda: setup.hpda,
        digests: setup.digests,
        max_r2t: setup.max_r2t,
    }
}

fn h2c_data(id: u16, tag: TransferTag, offset: u32, length: u32, last: bool) -> H2cData {
    H2cData {
        last,
        command: CommandId(id),
        tag,
        offset,
        length,
    }
}

impl Wire {
    fn silent(setup: &Setup) -> Self {
        let mut config = ConnectionConfig::default();
        (setup.config)(&mut config);
        Self {
            target: Connection::new(config, 0),
            transmit: Transmit::new(),
            queue: setup.queue,
            hpda: setup.hpda,
            answers: true,
            written: BTreeMap::new(),
            direct: false,
            seen: Vec::new(),
            sent: Vec::new(),
            heard: 0,
            host: Framing::new(Receiver::Host),
            encoder: Encoder::default(),
            released: Vec::new(),
            buffer: Vec::new(),
            now_ms: 0,
        }
    }

    fn initialized(setup: &Setup) -> Self {
        let mut wire = Self::silent(setup);
        wire.hear(&ic_req(setup).encode());
        assert!(matches!(wire.one(), Said::IcResp(_)));
        wire
    }

    /// After Connect. Nothing of it is left to be looked at.
    fn connected(setup: &Setup) -> Self {
        let mut wire = Self::initialized(setup);
        let bytes = wire.capsule(connect(0), &[7; 1024]);
        wire.hear(&bytes);
        let said = wire.said();
        assert!(
            matches!(&said[..], [Said::Response(entry)] if entry.status.is_success()),
            "{said:?}"
        );
        wire.seen.clear();
        wire
    }

    /// The same, with commands left to the test.
    fn held(setup: &Setup) -> Self {
        let mut wire = Self::connected(setup);
        wire.answers = false;
        wire
    }

    /// A PDU as the host sends it.
    fn encode<const N: usize>(&self, header: [u8; N], data: &[u8]) -> Vec<u8> {
        let mut transmit = Transmit::new();
        if data.is_empty() {
            self.encoder.push(header, &mut transmit);
        } else {
            self.encoder
                .push_data(header, Chunk::Bytes(data), &mut transmit);
        }
        transmit.arena().to_vec()
    }

    fn capsule(&self, entry: SubmissionEntry, data: &[u8]) -> Vec<u8> {
        self.encode(CapsuleCmd { entry }.encode(), data)
    }

    fn data(&self, header: H2cData, data: &[u8]) -> Vec<u8> {
        self.encode(header.encode(), data)
    }

    /// The controller receives bytes.
    fn hear(&mut self, mut bytes: &[u8]) {
        loop {
            if self.direct {
                self.place(&mut bytes);
            }
            let event = self
                .target
                .next(&mut bytes, &mut self.transmit, self.now_ms);
            match event {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::Command(command) => self.command(command),
                ConnectionEvent::DataOut {
                    slot,
                    buffer_offset,
                    bytes,
                } => {
                    assert!(!bytes.is_empty());
                    self.store(slot, buffer_offset, bytes);
                }
                ConnectionEvent::DataOutComplete { slot } => {
                    let data = self.written.remove(&slot.0).unwrap_or_default();
                    self.seen.push(Seen::Complete(slot, data));
                    if self.answers {
                        self.complete(slot, Completion::status(Status::SUCCESS));
                    }
                }
                ConnectionEvent::DataOutFailed { slot } => {
                    self.seen.push(Seen::Failed(slot));
                    if self.answers {
                        let status = Status::TRANSIENT_TRANSPORT_ERROR;
                        self.complete(slot, Completion::status(status));
                    }
                }
                ConnectionEvent::Close(reason) => {
                    self.seen.push(Seen::Close(reason));
                    break;
                }
            }
        }
        self.drain();
    }

    /// Receives payload to its place, as a driver does that knows it.
    fn place(&mut self, bytes: &mut &[u8]) {
        let Some(wanted) = self.target.payload_wanted() else {
            return;
        };
        let length = (wanted.length as usize).min(bytes.len());
        let (placed, rest) = bytes.split_at(length);
        if !placed.is_empty() {
            self.store(wanted.slot, wanted.buffer_offset, placed);
            self.target.payload_received(placed, self.now_ms);
        }
        *bytes = rest;
    }

    fn store(&mut self, slot: CommandSlot, offset: u32, bytes: &[u8]) {
        let data = self.written.entry(slot.0).or_default();
        let end = offset as usize + bytes.len();
        data.resize(data.len().max(end), 0);
        data[offset as usize..end].copy_from_slice(bytes);
    }

    fn command(&mut self, command: ArrivedCommand) {
        assert!(command.slot.index() < self.target.capacity());
        self.written.remove(&command.slot.0);
        self.seen.push(Seen::Command(command));
        if !self.answers {
            return;
        }
        let slot = command.slot;
        let entry = command.entry;
        if entry.opcode() == opcode::FABRICS && !self.target.is_connected() {
            self.target.connected(slot, self.queue);
        }
        match command.data {
            DataTransfer::None => self.complete(slot, Completion::status(Status::SUCCESS)),
            DataTransfer::InCapsule { length } | DataTransfer::ToController { length } => {
                self.target.want_data_out(slot, length, &mut self.transmit);
            }
            DataTransfer::ToHost { length } => {
                let place = self
                    .target
                    .begin_inline_read(slot, length, &mut self.transmit);
                if let Some(place) = place {
                    place.copy_from_slice(&pattern(length));
                    self.target.commit_inline_read(slot, &mut self.transmit);
                } else {
                    self.complete_with(slot, Payload::Bytes(&pattern(length)));
                }
            }
        }
    }

    fn complete(&mut self, slot: CommandSlot, completion: Completion<'_>) {
        self.target.complete(slot, completion, &mut self.transmit);
    }

    fn complete_with(&mut self, slot: CommandSlot, data: Payload<'_>) {
        let completion = Completion {
            status: Status::SUCCESS,
            result: 0,
            data,
        };
        self.complete(slot, completion);
    }

    /// Everything that is queued leaves.
    fn drain(&mut self) {
        let mut length = 0;
        for segment in self.transmit.segments() {
            length += segment.length();
            match segment {
                Segment::Arena { start, length } => {
                    let bytes = &self.transmit.arena()[start..start + length];
                    self.sent.extend_from_slice(bytes);
                }
                Segment::Zeros { length } => self.sent.resize(self.sent.len() + length, 0),
                Segment::Buffer { id, start, length } => {
                    assert_eq!(id, BUFFER);
                    self.sent
                        .extend_from_slice(&self.buffer[start..start + length]);
                }
            }
        }
        self.transmit.advance(length, &mut self.released);
        assert!(self.transmit.is_empty());
    }

    /// What the controller has said since the last call. All of it must be well-formed.
    fn said(&mut self) -> Vec<Said> {
        self.drain();
        let sent = std::mem::take(&mut self.sent);
        let mut rest = &sent[self.heard..];
        let mut said = Vec::new();
        while !rest.is_empty() {
            let common = match self.host.take_header(&mut rest) {
                HeaderStep::Header(common) => common,
                other => panic!("{other:?} in what the controller says"),
            };
            let data = self.host.data.take(u32::MAX, &mut rest).to_vec();
            let trailer = self.host.data.take_trailer(&mut rest);
            assert_eq!(trailer, TrailerStep::Done { digest_ok: true });
            said.push(match common.pdu_type {
                PduType::IC_RESP => {
                    let response = IcResp::decode(self.host.header());
                    let Digests { header, data } = response.digests;
                    self.encoder.initialized(header, data, response.cpda);
                    self.host.initialized(header, data, self.hpda);
                    Said::IcResp(response)
                }
                PduType::CAPSULE_RESP => {
                    Said::Response(CapsuleResp::decode(self.host.header()).entry)
                }
                PduType::C2H_DATA => {
                    let header = C2hData::decode(self.host.header());
                    assert_eq!(header.length as usize, data.len());
                    Said::Data(header, data)
                }
                PduType::R2T => Said::R2t(R2t::decode(self.host.header())),
                _ => Said::TermReq(TermReq::decode(self.host.header()).error, data),
            });
        }
        self.heard = sent.len();
        self.sent = sent;
        said
    }

    /// The one thing it has said.
    fn one(&mut self) -> Said {
        let mut said = self.said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// The one response it has said.
    fn response(&mut self) -> CompletionEntry {
        match self.one() {
            Said::Response(entry) => entry,
            other => panic!("{other:?} instead of a response"),
        }
    }

    /// The one R2T it has said.
    fn r2t(&mut self) -> R2t {
        match self.one() {
            Said::R2t(r2t) => r2t,
            other => panic!("{other:?} instead of an R2T"),
        }
    }

    /// The command seen last.
    fn arrived(&self) -> ArrivedCommand {
        let last = self.seen.iter().rev().find_map(|seen| match seen {
            Seen::Command(command) => Some(*command),
            _ => None,
        });
        last.expect("a command has come")
    }

    /// The controller has terminated the connection for this reason.
    fn terminated(&mut self) -> FatalError {
        let said = self.said();
        let Some(Said::TermReq(error, _)) = said.last() else {
            panic!("{said:?} does not end the connection");
        };
        let reason = CloseReason::Terminated(*error);
        assert_eq!(self.seen.last(), Some(&Seen::Close(reason)));
        assert_eq!(self.target.closed(), Some(reason));
        *error
    }
}

/// The conversation must be the same however the stream is cut. Returns the controller's end of it.
fn in_any_pieces(setup: &Setup, stream: impl Fn(&Wire) -> Vec<u8>) -> Wire {
    let mut whole = Wire::connected(setup);
    let bytes = stream(&whole);
    whole.hear(&bytes);
    let check = |pieces: &mut dyn Iterator<Item = &[u8]>, direct: bool, what: &str| {
        let mut wire = Wire::connected(setup);
        wire.direct = direct;
        for piece in pieces {
            wire.hear(piece);
        }
        assert_eq!(wire.seen, whole.seen, "{what}");
        assert_eq!(wire.sent, whole.sent, "{what}");
    };
    for direct in [false, true] {
        check(&mut bytes.chunks(1), direct, "byte by byte");
        // Cuts inside long payload are all alike.
        let interesting = |cut: &usize| {
            bytes.len() < 2000 || *cut < 500 || bytes.len() - cut < 500 || cut.is_multiple_of(97)
        };
        for cut in (0..=bytes.len()).filter(interesting) {
            let (head, tail) = bytes.split_at(cut);
            check(
                &mut [head, tail].into_iter(),
                direct,
                &format!("cut at {cut}"),
            );
        }
    }
    whole
}
