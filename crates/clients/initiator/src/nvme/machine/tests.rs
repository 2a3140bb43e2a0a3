//! A machine against a controller whose every PDU is written down.

use longshore_block::extent::{BlockCount, Lba};
use longshore_nvme::command::{CommandId, Fuse, SubmissionEntry};
use longshore_nvme::completion::CompletionEntry;
use longshore_nvme::host::ConnectionConfig;
use longshore_nvme::opcode::io;
use longshore_nvme::pdu::{
    C2hData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, FatalError, FatalErrorStatus, IcResp,
    R2t, TermReq, Terminator, TransferTag,
};
use longshore_nvme::sgl::SglDescriptor;
use longshore_wire::transmit::Segment;
use proptest::prelude::*;

use super::*;
use crate::error::Retry;
use crate::info::Protocol;
use crate::queue::Machine as _;

const COMMANDS: u16 = 8;

fn info() -> VolumeInfo {
    VolumeInfo {
        protocol: Protocol::NvmeTcp,
        block_size: 512,
        block_count: 1 << 20,
        physical_block_size: 512,
        read_only: false,
        write_cache: true,
        fua: true,
        unmap: true,
        unmapped_reads_zeros: true,
        write_zeroes: true,
        compare_and_write_max: Some(8),
        extent_status: false,
        max_transfer_blocks: Some(256),
        optimal_transfer_blocks: None,
        unmap_granularity_blocks: None,
        max_unmap_blocks: None,
        max_write_zeroes_blocks: None,
        vendor: String::new(),
        product: String::new(),
        revision: String::new(),
        serial: String::new(),
        identifiers: Vec::new(),
    }
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

/// A command that was sent: its entry, and data that came along.
struct Sent {
    entry: SubmissionEntry,
    data: Vec<u8>,
}

struct Scene {
    machine: Machine,
    transmit: Transmit,
}

impl Scene {
    fn new(in_capsule_data_bytes: u32, info: &VolumeInfo, disconnect: bool) -> Self {
        let mut transmit = Transmit::new();
        let config = ConnectionConfig {
            commands: COMMANDS,
            in_capsule_data_bytes,
            ..ConnectionConfig::default()
        };
        let mut connection = Connection::new(config, &mut transmit);
        transmit.advance(transmit.pending_bytes(), &mut Vec::new());
        let response = IcResp {
            pfv: 0,
            cpda: 0,
            digests: Digests::default(),
            max_h2c_data: 4096,
        };
        let response = response.encode();
        let event = connection.next(&mut &response[..], &mut transmit);
        assert_eq!(event, ConnectionEvent::Ready);
        let delays = RetryDelays::new([1, 10, 50]);
        let limits = NamespaceLimits::new(NamespaceId(7), info, disconnect, delays);
        Self {
            machine: Machine::new(connection, COMMANDS, limits),
            transmit,
        }
    }

    fn submit(&mut self, operation: Operation, data: &[u8]) -> Result<u16, Refusal> {
        let data = WriteData::Bytes(data);
        self.machine.submit(&operation, data, &mut self.transmit)
    }

    fn stream(&mut self) -> Vec<u8> {
        let mut stream = Vec::new();
        for segment in self.transmit.segments() {
            let Segment::Arena { start, length } = segment else {
                panic!("everything is copied here");
            };
            stream.extend_from_slice(&self.transmit.arena()[start..start + length]);
        }
        self.transmit.advance(stream.len(), &mut Vec::new());
        stream
    }

    /// Command capsules that were sent since the last call.
    fn sent(&mut self) -> Vec<Sent> {
        let stream = self.stream();
        let (mut rest, mut sent) = (&stream[..], Vec::new());
        while !rest.is_empty() {
            let header: &[u8; CapsuleCmd::LENGTH] = rest.first_chunk().unwrap();
            let common = CommonHeader::decode(header);
            let (pdu, after) = rest.split_at(common.plen as usize);
            let start = usize::from(common.pdo);
            sent.push(Sent {
                entry: CapsuleCmd::decode(header).entry,
                data: if start > 0 {
                    pdu[start..].to_vec()
                } else {
                    Vec::new()
                },
            });
            rest = after;
        }
        sent
    }

    fn feed(&mut self, stream: &[u8]) -> Vec<String> {
        let (mut rest, mut log) = (stream, Vec::new());
        loop {
            match self.machine.next(&mut rest, &mut self.transmit) {
                MachineEvent::NeedMore => return log,
                MachineEvent::Completed { slot, result } => log.push(format!("{slot} {result:?}")),
                MachineEvent::DataWanted {
                    slot,
                    offset,
                    length,
                    token,
                } => {
                    log.push(format!("{slot} wants {offset} {length}"));
                    let data = vec![0xab; length as usize];
                    let data = WriteData::Bytes(&data);
                    self.machine.send_data(token, data, &mut self.transmit);
                }
                MachineEvent::DataIn {
                    slot,
                    offset,
                    bytes,
                } => {
                    log.push(format!("{slot} gets {offset} {}", bytes.len()));
                }
                MachineEvent::Closed(cause) => {
                    log.push(format!("closed: {cause}"));
                    return log;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, id: CommandId, status: Status) -> Vec<String> {
        let entry = CompletionEntry {
            result: 0,
            sq_head: 0,
            id,
            status,
        };
        self.feed(&CapsuleResp { entry }.encode())
    }

    fn r2t(&mut self, command: CommandId, offset: u32, length: u32) -> Vec<String> {
        let r2t = R2t {
            command,
            tag: TransferTag(5),
            offset,
            length,
        };
        self.feed(&r2t.encode())
    }
}

fn compare_and_write(blocks: u64) -> Operation {
    Operation::CompareAndWrite {
        extent: extent(3, blocks),
        fua: true,
    }
}

#[test]
fn operations_become_the_commands_of_the_table() {
    let mut scene = Scene::new(8192, &info(), false);
    let range = extent(0x1_0000_0005, 8);
    let data = vec![7; 4096];
    let operations = [
        (Operation::Read { extent: range }, io::READ, 7),
        (
            Operation::Write {
                extent: range,
                fua: true,
            },
            io::WRITE,
            7 | FORCE_UNIT_ACCESS,
        ),
        (
            Operation::WriteZeroes {
                extent: range,
                may_unmap: true,
                fua: true,
            },
            io::WRITE_ZEROES,
            7 | FORCE_UNIT_ACCESS | DEALLOCATE,
        ),
        (Operation::Flush, io::FLUSH, 0),
    ];
    for (operation, opcode, dword_12) in operations {
        scene.submit(operation, &data).unwrap();
        let [sent] = &scene.sent()[..] else {
            panic!("one command")
        };
        assert_eq!(sent.entry.opcode(), opcode);
        assert_eq!(sent.entry.namespace(), NamespaceId(7));
        assert_eq!(sent.entry.dword(12), dword_12);
        if opcode != io::FLUSH {
            assert_eq!(sent.entry.qword(10), 0x1_0000_0005);
        }
        let expected: &[u8] = if opcode == io::WRITE { &data } else { &[] };
        assert_eq!(sent.data, expected);
    }
    scene
        .submit(Operation::Unmap { extent: range }, &[])
        .unwrap();
    let [sent] = &scene.sent()[..] else {
        panic!("one command")
    };
    assert_eq!(sent.entry.opcode(), io::DATASET_MANAGEMENT);
    assert_eq!(sent.entry.dword(11), 1 << 2);
    assert_eq!(sent.data, commands::ranges(&[(range.lba, 8)]));
}

#[test]
fn the_range_of_an_unmap_is_sent_when_asked_for_where_capsules_hold_no_data() {
    let mut scene = Scene::new(0, &info(), false);
    let slot = scene.submit(
        Operation::Unmap {
            extent: extent(9, 2),
        },
        &[],
    );
    let entry = scene.sent()[0].entry;
    assert_eq!(entry.sgl(), SglDescriptor::Transport { length: 16 });
    assert!(
        scene.r2t(entry.id(), 0, 16).is_empty(),
        "the caller has no such data"
    );
    assert_eq!(scene.stream()[24..], commands::ranges(&[(Lba(9), 2)]));
    let done = scene.answer(entry.id(), Status::SUCCESS);
    assert_eq!(done, [format!("{} Ok(Done)", slot.unwrap())]);
}

#[test]
fn a_pair_has_one_end_whichever_half_ends_first() {
    for order in [[0, 1], [1, 0]] {
        let mut scene = Scene::new(8192, &info(), false);
        let (old, new) = ([1; 512], [2; 512]);
        let slot = scene
            .submit(compare_and_write(1), &[old, new].concat())
            .unwrap();
        assert!(slot >= COMMANDS, "slots of halves may be taken again");
        let sent = scene.sent();
        let [compare, write] = &sent[..] else {
            panic!("two commands")
        };
        assert_eq!(
            (compare.entry.opcode(), compare.entry.fuse()),
            (io::COMPARE, Fuse::First)
        );
        assert_eq!(
            (write.entry.opcode(), write.entry.fuse()),
            (io::WRITE, Fuse::Second)
        );
        assert_eq!(write.entry.dword(12), FORCE_UNIT_ACCESS);
        assert_eq!((&compare.data[..], &write.data[..]), (&old[..], &new[..]));
        assert!(
            scene
                .answer(sent[order[0]].entry.id(), Status::SUCCESS)
                .is_empty()
        );
        // What comes in between does not get the pair's slot.
        let other = scene.submit(Operation::Flush, &[]).unwrap();
        assert_ne!(other, slot);
        let end = scene.answer(sent[order[1]].entry.id(), Status::SUCCESS);
        assert_eq!(end, [format!("{slot} Ok(Done)")]);
    }
}

#[test]
fn a_pair_fails_for_the_reason_of_the_half_that_failed() {
    let drawn_along = Status::ABORTED_FAILED_FUSED;
    for (statuses, expected) in [
        (
            [Status::COMPARE_FAILURE, drawn_along],
            "Err(Miscompare { offset: None })",
        ),
        ([drawn_along, Status::LBA_OUT_OF_RANGE], "Err(OutOfRange)"),
        (
            [Status::SUCCESS, Status::RESERVATION_CONFLICT],
            "Err(ReservationConflict)",
        ),
    ] {
        let mut scene = Scene::new(8192, &info(), false);
        let slot = scene.submit(compare_and_write(1), &[0; 1024]).unwrap();
        let sent = scene.sent();
        assert!(scene.answer(sent[0].entry.id(), statuses[0]).is_empty());
        let end = scene.answer(sent[1].entry.id(), statuses[1]);
        assert_eq!(end, [format!("{slot} {expected}")]);
    }
}

#[test]
fn data_of_the_second_half_comes_from_behind_that_of_the_first() {
    let mut scene = Scene::new(512, &info(), false);
    let slot = scene.submit(compare_and_write(4), &[0; 4096]).unwrap();
    let sent = scene.sent();
    let [first, second] = [0, 1].map(|half: usize| sent[half].entry.id());
    assert_eq!(
        scene.r2t(second, 512, 1024),
        [format!("{slot} wants 2560 1024")]
    );
    assert_eq!(scene.r2t(first, 0, 2048), [format!("{slot} wants 0 2048")]);
    assert_eq!(
        scene.r2t(second, 0, 512),
        [format!("{slot} wants 2048 512")]
    );
    // The write succeeds before all of its data was asked for.
    assert!(scene.answer(first, Status::SUCCESS).is_empty());
    let end = scene.answer(second, Status::SUCCESS);
    assert_eq!(
        end,
        [format!(
            "{slot} Err(ShortTransfer {{ expected: 4096, moved: 2048 }})"
        )]
    );
}

#[test]
fn pairs_take_two_places_or_none() {
    let mut scene = Scene::new(8192, &info(), false);
    for _ in 0..COMMANDS - 1 {
        scene.submit(Operation::Flush, &[]).unwrap();
    }
    assert_eq!(scene.machine.room(), 1);
    assert_eq!(
        scene.submit(compare_and_write(1), &[0; 1024]),
        Err(Refusal::Busy)
    );
    assert_eq!(scene.sent().len(), usize::from(COMMANDS) - 1);
    scene.submit(Operation::Flush, &[]).unwrap();
    assert_eq!(scene.submit(Operation::Flush, &[]), Err(Refusal::Busy));
}

#[test]
fn a_write_that_nobody_took_the_data_of_has_failed() {
    let mut scene = Scene::new(0, &info(), false);
    let write = Operation::Write {
        extent: extent(0, 8),
        fua: false,
    };
    scene.submit(write, &[0; 4096]).unwrap();
    let id = scene.sent()[0].entry.id();
    scene.r2t(id, 0, 1024);
    let end = scene.answer(id, Status::SUCCESS);
    assert!(
        end[0].ends_with("Err(ShortTransfer { expected: 4096, moved: 1024 })"),
        "{end:?}"
    );
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_sent() {
    let poor = VolumeInfo {
        unmap: false,
        write_zeroes: false,
        compare_and_write_max: None,
        ..info()
    };
    let mut scene = Scene::new(8192, &poor, false);
    let range = extent(0, 1);
    let zeroes = Operation::WriteZeroes {
        extent: range,
        may_unmap: false,
        fua: false,
    };
    for operation in [
        zeroes,
        Operation::Unmap { extent: range },
        Operation::ExtentStatus { extent: range },
        compare_and_write(1),
    ] {
        let refusal = Refusal::Failed(Failure::Unsupported);
        assert_eq!(scene.submit(operation, &[0; 1024]), Err(refusal));
    }
    let too_large = Operation::Read {
        extent: extent(0, 257),
    };
    let refusal = Refusal::Failed(Failure::TooLarge);
    assert_eq!(scene.submit(too_large, &[]), Err(refusal));
    assert!(scene.sent().is_empty());
}

#[test]
fn a_status_with_a_delay_says_when_to_try_again() {
    let mut scene = Scene::new(8192, &info(), false);
    scene.submit(Operation::Flush, &[]).unwrap();
    let id = scene.sent()[0].entry.id();
    let entry = CompletionEntry {
        result: 0,
        sq_head: 0,
        id,
        status: Status::COMMAND_INTERRUPTED.retry_delay(1),
    };
    let pdu = CapsuleResp { entry }.encode();
    let event = scene.machine.next(&mut &pdu[..], &mut scene.transmit);
    let MachineEvent::Completed {
        result: Err(failure),
        ..
    } = event
    else {
        panic!("{event:?}")
    };
    let delay = std::time::Duration::from_millis(100);
    assert_eq!(failure.retry(), Retry::After(delay));
}

#[test]
fn a_queue_is_disconnected_where_that_is_understood_and_else_just_ends() {
    let mut polite = Scene::new(8192, &info(), true);
    polite.machine.close(&mut polite.transmit);
    let [sent] = &polite.sent()[..] else {
        panic!("one command")
    };
    assert_eq!(sent.entry.opcode(), longshore_nvme::opcode::FABRICS);
    assert_eq!(
        polite.answer(sent.entry.id(), Status::SUCCESS),
        ["closed: logged out"]
    );
    let mut plain = Scene::new(8192, &info(), false);
    plain.machine.close(&mut plain.transmit);
    assert!(plain.sent().is_empty());
    assert_eq!(plain.feed(&[]), ["closed: logged out"]);
    assert_eq!(plain.machine.room(), 0);
}

#[test]
fn a_controller_that_terminates_says_why() {
    let mut scene = Scene::new(8192, &info(), false);
    let request = TermReq {
        by: Terminator::Controller,
        error: FatalError::plain(FatalErrorStatus::DATA_TRANSFER_OUT_OF_RANGE),
    };
    let closed = scene.feed(&request.encode(0));
    assert_eq!(
        closed,
        ["closed: the server ended the connection: data transfer out of range (0x0)"]
    );
}

#[test]
fn an_answer_to_nothing_is_a_mistake_of_the_controller() {
    let mut scene = Scene::new(8192, &info(), false);
    let closed = scene.answer(CommandId(3), Status::SUCCESS);
    assert!(closed[0].contains("broke a rule"), "{closed:?}");
    assert!(!scene.stream().is_empty(), "it is told");
}

#[test]
fn data_that_was_damaged_on_its_way_is_told_from_what_the_controller_says() {
    let scene = Scene::new(8192, &info(), false);
    let outcome = |data_digest_error| CommandOutcome {
        status: Status::TRANSIENT_TRANSPORT_ERROR,
        result: 0,
        sq_head: Some(1),
        data_in_length: 512,
        data_out_length: 0,
        data_digest_error,
    };
    let result = |damaged| scene.machine.result(&outcome(damaged), 0).unwrap_err();
    assert_eq!(result(true), Failure::DataDigest);
    assert!(matches!(result(false), Failure::Nvme { .. }));
    assert_eq!(result(false).retry(), Retry::Now);
}

/// A PDU that a controller might send, for better or worse. `command` is the index of one that is under way.
#[derive(Clone, Debug)]
enum Pdu {
    Answer {
        command: usize,
        status: u16,
    },
    R2t {
        command: usize,
        offset: u32,
        length: u32,
    },
    Data {
        command: usize,
        offset: u32,
        length: u32,
        flags: u8,
    },
    Noise(Vec<u8>),
}

fn lengths() -> impl Strategy<Value = u32> {
    prop_oneof![4 => (0_u32..=8).prop_map(|blocks| blocks * 512), 1 => any::<u32>()]
}

fn pdus() -> impl Strategy<Value = Vec<Pdu>> {
    let command = 0_usize..16;
    let status = prop_oneof![Just(0_u16), any::<u16>()];
    let one = prop_oneof![
        3 => (command.clone(), status).prop_map(|(command, status)| Pdu::Answer { command, status }),
        3 => (command.clone(), lengths(), lengths())
            .prop_map(|(command, offset, length)| Pdu::R2t { command, offset, length }),
        3 => (command, lengths(), 0_u32..=4096, 0_u8..16).prop_map(
            |(command, offset, length, flags)| Pdu::Data { command, offset, length, flags }
        ),
        1 => prop::collection::vec(any::<u8>(), 1..100).prop_map(Pdu::Noise),
    ];
    prop::collection::vec(one, 1..24)
}

fn encode(pdu: &Pdu, ids: &[CommandId]) -> Vec<u8> {
    let id = |command: &usize| ids[command % ids.len()];
    match pdu {
        Pdu::Answer { command, status } => {
            let entry = CompletionEntry {
                result: 0,
                sq_head: 0,
                id: id(command),
                status: Status(status & 0x7fff),
            };
            CapsuleResp { entry }.encode().to_vec()
        }
        Pdu::R2t {
            command,
            offset,
            length,
        } => {
            let r2t = R2t {
                command: id(command),
                tag: TransferTag(1),
                offset: *offset,
                length: *length,
            };
            r2t.encode().to_vec()
        }
        Pdu::Data {
            command,
            offset,
            length,
            flags,
        } => {
            let data = C2hData {
                last: false,
                success: false,
                command: id(command),
                offset: *offset,
                length: *length,
            };
            let mut header = data.encode();
            let mut common = CommonHeader::decode(&header);
            common.flags.0 = *flags & 0b1100;
            common.pdo = if *length > 0 { 24 } else { 0 };
            common.plen = 24 + length;
            common.encode_into(&mut header);
            let mut pdu = header.to_vec();
            pdu.resize(24 + *length as usize, 0x5a);
            pdu
        }
        Pdu::Noise(bytes) => bytes.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn no_controller_makes_a_queue_move_bytes_beyond_its_operations(
        pdus in pdus(),
        in_capsule in prop_oneof![Just(0_u32), Just(8192)],
    ) {
        let mut scene = Scene::new(in_capsule, &info(), false);
        let operations = [
            Operation::Read { extent: extent(0, 8) },
            Operation::Write { extent: extent(0, 8), fua: false },
            compare_and_write(4),
            Operation::Unmap { extent: extent(0, 8) },
            Operation::Flush,
        ];
        let mut under_way = std::collections::HashMap::new();
        for operation in operations {
            let slot = scene.submit(operation, &[0; 4096]).unwrap();
            under_way.insert(slot, u32::try_from(operation.data_length(512)).unwrap());
        }
        let ids: Vec<_> = scene.sent().iter().map(|sent| sent.entry.id()).collect();
        'stream: for pdu in &pdus {
            let bytes = encode(pdu, &ids);
            let mut rest = &bytes[..];
            loop {
                match scene.machine.next(&mut rest, &mut scene.transmit) {
                    MachineEvent::NeedMore => break,
                    MachineEvent::Completed { slot, .. } => {
                        prop_assert!(under_way.remove(&slot).is_some(), "ended twice");
                    }
                    MachineEvent::DataWanted { slot, offset, length, token } => {
                        prop_assert!(offset + length <= under_way[&slot]);
                        let data = vec![0; length as usize];
                        let data = WriteData::Bytes(&data);
                        scene.machine.send_data(token, data, &mut scene.transmit);
                    }
                    MachineEvent::DataIn { slot, offset, bytes } => {
                        let length = u32::try_from(bytes.len()).unwrap();
                        prop_assert!(offset + length <= under_way[&slot]);
                    }
                    MachineEvent::Closed(_) => break 'stream,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
