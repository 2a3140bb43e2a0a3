//! A host against a controller whose every PDU is written down.

mod endings;
mod streams;
mod transfers;

use longshore_block::extent::Lba;
use longshore_wire::back_to_back::bytes_of;
use longshore_wire::pdu_data::TrailerStep;
use longshore_wire::transmit::{Chunk, PayloadId, Transmit, WriteData};

use super::*;
use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::completion::CompletionEntry;
use crate::host::Command;
use crate::host::commands::{self, Blocks};
use crate::pdu::encoder::{Encoder, push_term_req};
use crate::pdu::framing::{Framing, Receiver};
use crate::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, Digests, FatalError, FatalErrorStatus, IcReq, IcResp,
    PduType, R2t, TermReq, Terminator, TransferTag,
};
use crate::status::Status;

const BOTH: Digests = Digests {
    header: true,
    data: true,
};

/// What the host has sent: header and data.
type Sent = (Vec<u8>, Vec<u8>);

/// A host, and the codec of the other side.
struct Scene {
    host: Connection,
    /// PDUs of the host under test.
    transmit: Transmit,
    framing: Framing,
    /// PDUs of the controller, built by hand.
    encoder: Encoder,
    answers: Transmit,
}

impl Scene {
    fn new(config: ConnectionConfig) -> Self {
        let mut transmit = Transmit::new();
        let host = Connection::new(config, &mut transmit);
        Self {
            host,
            transmit,
            framing: Framing::new(Receiver::Controller),
            encoder: Encoder::default(),
            answers: Transmit::new(),
        }
    }

    /// A host that has its ICResp.
    fn ready(config: ConnectionConfig) -> Self {
        let mut scene = Self::new(config);
        let response = response(config.digests);
        let [(header, _)] = &scene.sent()[..] else {
            panic!("one ICReq")
        };
        let request = IcReq::decode(header.first_chunk().unwrap());
        scene.answers.push_bytes(&response.encode());
        assert_eq!(scene.events(), ["Ready"]);
        let digests = config.digests;
        scene
            .framing
            .initialized(digests.header, digests.data, response.cpda);
        scene
            .encoder
            .initialized(digests.header, digests.data, request.hpda);
        scene
    }

    fn stream(&mut self) -> Vec<u8> {
        let bytes = flatten(&self.transmit, &[]);
        self.transmit.advance(bytes.len(), &mut Vec::new());
        bytes
    }

    /// PDUs sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        let stream = self.stream();
        self.parse(&stream)
    }

    fn parse(&mut self, stream: &[u8]) -> Vec<Sent> {
        let (mut rest, mut pdus) = (stream, Vec::new());
        while !rest.is_empty() {
            let HeaderStep::Header(_) = self.framing.take_header(&mut rest) else {
                panic!("a whole, faultless header");
            };
            let data = self.framing.data.take(u32::MAX, &mut rest).to_vec();
            assert_eq!(self.framing.data.remaining(), 0);
            let trailer = self.framing.data.take_trailer(&mut rest);
            assert_eq!(trailer, TrailerStep::Done { digest_ok: true });
            pdus.push((self.framing.header_bytes().to_vec(), data));
        }
        pdus
    }

    /// What the host makes of the answers queued, as text; data is answered by `Data OFFSET LENGTH`.
    fn events(&mut self) -> Vec<String> {
        let stream = flatten(&self.answers, &[]);
        self.answers.advance(stream.len(), &mut Vec::new());
        self.feed(&stream)
    }

    fn feed(&mut self, stream: &[u8]) -> Vec<String> {
        let (mut rest, mut log) = (stream, Vec::new());
        loop {
            match self.host.next(&mut rest, &mut self.transmit) {
                ConnectionEvent::NeedMore => break,
                ConnectionEvent::DataIn {
                    buffer_offset,
                    bytes,
                    ..
                } => log.push(format!("Data {buffer_offset} {}", bytes.len())),
                ConnectionEvent::Completed { slot, outcome } => {
                    let status = outcome.status;
                    log.push(format!("Completed {} {status}", slot.0));
                }
                ConnectionEvent::R2t(r2t) => {
                    log.push(format!("R2t {} {}", r2t.buffer_offset, r2t.length));
                }
                ConnectionEvent::Close(reason) => {
                    log.push(format!("{reason:?}"));
                    break;
                }
                ConnectionEvent::Ready => log.push("Ready".to_owned()),
            }
        }
        log
    }

    fn submit(&mut self, command: &Command, data: &[u8]) -> CommandSlot {
        self.host
            .submit(command, WriteData::Bytes(data), &mut self.transmit)
            .unwrap()
    }

    fn answer(&mut self, slot: CommandSlot, status: Status) {
        let id = self.host.command_id(slot);
        self.answer_id(id, status);
    }

    fn answer_id(&mut self, id: CommandId, status: Status) {
        let entry = CompletionEntry {
            result: 0x1122_3344_5566_7788,
            sq_head: 9,
            id,
            status,
        };
        let response = CapsuleResp { entry };
        self.encoder.push(response.encode(), &mut self.answers);
    }

    fn data(&mut self, slot: CommandSlot, offset: u32, length: u32, last: bool, success: bool) {
        let data = C2hData {
            last,
            success,
            command: self.host.command_id(slot),
            offset,
            length,
        };
        let bytes = vec![7; length as usize];
        let chunk = Chunk::Bytes(&bytes);
        self.encoder
            .push_data(data.encode(), chunk, &mut self.answers);
    }

    fn r2t(&mut self, slot: CommandSlot, tag: u16, offset: u32, length: u32) {
        let r2t = R2t {
            command: self.host.command_id(slot),
            tag: TransferTag(tag),
            offset,
            length,
        };
        self.encoder.push(r2t.encode(), &mut self.answers);
    }

    /// The R2Ts among what the host makes of the answers queued.
    fn r2ts(&mut self) -> Vec<R2tRequest> {
        let stream = flatten(&self.answers, &[]);
        self.answers.advance(stream.len(), &mut Vec::new());
        let (mut rest, mut r2ts) = (&stream[..], Vec::new());
        while let ConnectionEvent::R2t(r2t) = self.host.next(&mut rest, &mut self.transmit) {
            r2ts.push(r2t);
        }
        r2ts
    }

    /// The host closes with this error, and says so with the header in error.
    #[track_caller]
    fn assert_refused(&mut self, status: FatalErrorStatus, information: u32) {
        let error = FatalError {
            status,
            information,
        };
        self.stream();
        let stream = flatten(&self.answers, &[]);
        let log = self.events();
        let expected = format!("{:?}", CloseReason::ProtocolError(error));
        assert_eq!(log.last(), Some(&expected));
        let pdus = self.sent();
        let [(header, echo)] = &pdus[..] else {
            panic!("one H2CTermReq");
        };
        let request = TermReq::decode(header.first_chunk().unwrap());
        let by = Terminator::Host;
        assert_eq!(request, TermReq { by, error });
        assert!(echo.len() >= 8);
        assert!(stream.windows(echo.len()).any(|window| window == echo));
    }
}

fn flatten(transmit: &Transmit, payload: &[u8]) -> Vec<u8> {
    bytes_of(transmit, |_| payload)
}

fn response(digests: Digests) -> IcResp {
    IcResp {
        pfv: 0,
        cpda: 0,
        digests,
        max_h2c_data: 4096,
    }
}

fn blocks(count: u32) -> Blocks {
    Blocks {
        namespace: NamespaceId(1),
        lba: Lba(0),
        count,
        block_bytes: 512,
    }
}

fn read(count: u32) -> Command {
    commands::read(blocks(count))
}

fn write(count: u32) -> Command {
    commands::write(blocks(count), 0)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap())
        .collect()
}

fn digesting() -> ConnectionConfig {
    ConnectionConfig {
        digests: BOTH,
        ..ConnectionConfig::default()
    }
}

fn entry_of(pdu: &Sent) -> SubmissionEntry {
    CapsuleCmd::decode(pdu.0.first_chunk().unwrap()).entry
}

#[test]
fn the_first_thing_sent_is_an_ic_req() {
    let mut scene = Scene::new(ConnectionConfig {
        digests: BOTH,
        hpda: 3,
        max_r2t: 5,
        ..ConnectionConfig::default()
    });
    let bytes = scene.stream();
    assert_eq!(bytes.len(), 128);
    assert_eq!(
        bytes[..16],
        [0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 4, 0, 0, 0]
    );
    assert!(bytes[16..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_controller_may_do_without_a_digest_but_not_demand_one() {
    let asked = Digests {
        header: false,
        data: true,
    };
    for (answered, taken) in [(Digests::default(), true), (asked, true), (BOTH, false)] {
        let mut scene = Scene::new(ConnectionConfig {
            digests: asked,
            ..ConnectionConfig::default()
        });
        scene.answers.push_bytes(&response(answered).encode());
        if taken {
            assert_eq!(scene.events(), ["Ready"]);
            assert_eq!(scene.host.digests(), answered);
        } else {
            scene.assert_refused(FatalErrorStatus::INVALID_PDU_HEADER_FIELD, 11);
        }
    }
}

#[test]
fn an_ic_resp_that_cannot_be_is_refused_by_field() {
    let good = response(Digests::default());
    let invalid = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    for (response, status, field) in [
        (
            IcResp { pfv: 1, ..good },
            FatalErrorStatus::UNSUPPORTED_PARAMETER,
            8,
        ),
        (IcResp { cpda: 32, ..good }, invalid, 10),
        (
            IcResp {
                max_h2c_data: 4092,
                ..good
            },
            invalid,
            12,
        ),
        (
            IcResp {
                max_h2c_data: 4098,
                ..good
            },
            invalid,
            12,
        ),
    ] {
        let mut scene = Scene::new(ConnectionConfig::default());
        scene.answers.push_bytes(&response.encode());
        scene.assert_refused(status, field);
        assert!(!scene.host.is_ready());
    }
}

#[test]
fn anything_before_the_ic_resp_and_a_second_one_is_out_of_sequence() {
    let mut scene = Scene::new(ConnectionConfig::default());
    scene.answer_id(CommandId(0), Status::SUCCESS);
    scene.assert_refused(FatalErrorStatus::PDU_SEQUENCE_ERROR, 0);
    let mut scene = Scene::ready(ConnectionConfig::default());
    let again = response(Digests::default());
    scene.answers.push_bytes(&again.encode());
    scene.assert_refused(FatalErrorStatus::PDU_SEQUENCE_ERROR, 0);
}

#[test]
fn an_answer_for_no_command_or_an_earlier_one_of_its_slot_is_refused() {
    let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    let mut scene = Scene::ready(ConnectionConfig::default());
    scene.answer_id(CommandId(5), Status::SUCCESS);
    scene.assert_refused(field, 20);
    let mut scene = Scene::ready(ConnectionConfig::default());
    let first = scene.submit(&read(1), &[]);
    let id = scene.host.command_id(first);
    scene.answer(first, Status::SUCCESS);
    scene.events();
    let second = scene.submit(&read(1), &[]);
    assert_eq!(first, second);
    scene.answer_id(id, Status::SUCCESS);
    scene.assert_refused(field, 20);
}

#[test]
fn a_damaged_header_ends_the_connection_and_damaged_data_its_command() {
    let mut scene = Scene::ready(digesting());
    let slot = scene.submit(&read(1), &[]);
    scene.data(slot, 0, 512, true, true);
    let stream = flatten(&scene.answers, &[]);
    let header = C2hData::LENGTH + 4;
    for at in 0..stream.len() {
        let mut scene = Scene::ready(digesting());
        let slot = scene.submit(&read(1), &[]);
        let mut damaged = stream.clone();
        damaged[at] ^= 0x20;
        let log = scene.feed(&damaged);
        if at < header {
            assert!(log[0].starts_with("ProtocolError"), "flip at {at}: {log:?}");
            continue;
        }
        let failed = format!("Completed {} {}", slot.0, Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(log.last(), Some(&failed), "flip at {at}");
        // The connection lives.
        let slot = scene.submit(&read(1), &[]);
        scene.data(slot, 0, 512, true, true);
        let done = format!("Completed {} {}", slot.0, Status::SUCCESS);
        assert_eq!(scene.events(), ["Data 0 512".to_owned(), done]);
    }
}

#[test]
fn damaged_data_of_a_command_that_ends_by_a_response_fails_it_too() {
    let mut scene = Scene::ready(digesting());
    let slot = scene.submit(&read(2), &[]);
    scene.data(slot, 0, 512, false, false);
    let mut stream = flatten(&scene.answers, &[]);
    scene.answers = Transmit::new();
    *stream.last_mut().unwrap() ^= 1;
    scene.feed(&stream);
    scene.data(slot, 512, 512, true, false);
    scene.answer(slot, Status::SUCCESS);
    let failed = format!("Completed {} {}", slot.0, Status::TRANSIENT_TRANSPORT_ERROR);
    assert_eq!(scene.events().last(), Some(&failed));
}

#[test]
fn a_c2h_term_req_ends_the_connection_with_its_reason() {
    let error = FatalError {
        status: FatalErrorStatus::PDU_SEQUENCE_ERROR,
        information: 3,
    };
    for echo in [0, 24, 128] {
        let mut scene = Scene::ready(digesting());
        scene.stream();
        let by = Terminator::Controller;
        push_term_req(TermReq { by, error }, &vec![9; echo], &mut scene.answers);
        let reason = format!("{:?}", CloseReason::Terminated(error));
        assert_eq!(scene.events(), [reason]);
        assert!(scene.transmit.is_empty(), "it is not answered");
    }
}

#[test]
fn a_host_that_terminates_says_why_once() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    scene.host.terminate(error, &mut scene.transmit);
    scene.host.terminate(error, &mut scene.transmit);
    assert_eq!(scene.events(), ["Host"]);
    let [(header, _)] = &scene.sent()[..] else {
        panic!("one H2CTermReq")
    };
    assert_eq!(header[0], PduType::H2C_TERM_REQ.0);
}

#[test]
fn commands_beyond_the_queue_wait() {
    let mut scene = Scene::ready(ConnectionConfig {
        commands: 3,
        ..ConnectionConfig::default()
    });
    let slots = [0, 1, 2].map(|_| scene.submit(&read(1), &[]));
    let more = scene
        .host
        .submit(&read(1), WriteData::NONE, &mut scene.transmit);
    assert_eq!(more, Err(NotSent::Busy));
    scene.answer(slots[1], Status::SUCCESS);
    scene.events();
    assert_eq!(scene.host.slots_free(), 1);
    assert_eq!(scene.submit(&read(1), &[]), slots[1]);
}

#[test]
fn identifiers_are_not_reused_soon_and_never_ffffh() {
    for commands in [1, 2, 3, 128, 32_768] {
        let mut scene = Scene::ready(ConnectionConfig {
            commands,
            ..ConnectionConfig::default()
        });
        let mut last = None;
        for _ in 0..70_000 / u32::from(commands).min(300) {
            let slot = scene.submit(&read(1), &[]);
            let id = scene.host.command_id(slot);
            assert_ne!(id, CommandId(0xffff));
            assert!(commands > 16_384 || last != Some(id));
            last = Some(id);
            scene.answer(slot, Status::SUCCESS);
            assert_eq!(scene.events().len(), 1);
            scene.stream();
        }
    }
}
