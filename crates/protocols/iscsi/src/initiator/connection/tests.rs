//! What the initiator makes of targets that answer in every legal way, and in ways that are not.

mod endings;

use super::*;
use crate::encoder::Encoder;
use crate::framing::Framing;
use crate::initiator::login::LoginConfig;
use crate::name::IscsiName;
use crate::pdu::{
    AsyncEvent, AsyncMessage, BHS_LENGTH, CmdSn, CommandWindow, ConnectionId, DataIn, DataOut,
    DataSn, Function, InitiatorTaskTag, LogoutReason, LogoutResponse, LogoutResult, Lun, NopIn,
    R2t, R2tSn, Reject, RejectReason, ScsiCommand, ScsiResponse, ServiceResponse, StatSn,
    TargetTransferTag, TaskManagementResponse, TaskManagementResponseCode, TextResponse, Tsih,
};
use crate::session_parameters::{Digest, OperationalParameters, SessionParameters, SessionType};
use longshore_wire::transmit::{PayloadId, Segment, WriteData};
use proptest::prelude::*;

const WINDOW: CommandWindow = CommandWindow {
    exp_cmd_sn: CmdSn(1),
    max_cmd_sn: CmdSn(100),
};

/// An initiator after its login, and a target that says what the test wants.
struct Scene {
    connection: Connection,
    transmit: Transmit,
    target: Encoder,
    stat_sn: StatSn,
}

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

impl Scene {
    fn new(change: impl FnOnce(&mut OperationalParameters)) -> Self {
        let isid = crate::pdu::Isid([0x80, 0, 0, 0, 0, 1]);
        let (initiator, target) = (name("iqn.2026-11.test:i"), name("iqn.2026-11.test:t"));
        let login = LoginConfig::normal(initiator.clone(), target.clone(), isid);
        let mut transmit = Transmit::new();
        let mut connection = Connection::new(login, 4, &mut |bytes| bytes.fill(1), &mut transmit);
        transmit.advance(transmit.pending_bytes(), &mut Vec::new());
        let mut operational = OperationalParameters {
            max_outstanding_r2t: 2,
            target_max_recv_data_segment_length: 1024,
            initiator_max_recv_data_segment_length: 4096,
            first_burst_length: 2048,
            max_burst_length: 4096,
            ..OperationalParameters::default()
        };
        change(&mut operational);
        let (header, data) = (operational.header_digest, operational.data_digest);
        connection.framing.set_digests(header, data);
        connection.encoder.set_digests(header, data);
        let mut encoder = Encoder::default();
        encoder.set_digests(header, data);
        connection.limits = operational.clone();
        connection.session = Some(SessionParameters {
            session_type: SessionType::Normal,
            initiator_name: initiator,
            initiator_alias: None,
            target_name: Some(target),
            target_alias: None,
            portal_group_tag: None,
            isid,
            tsih: Tsih(1),
            connection_id: ConnectionId(0),
            continues_session: false,
            authenticated_as: None,
            operational,
        });
        connection.window = WINDOW;
        connection.phase = Phase::FullFeature;
        Self {
            connection,
            transmit,
            target: encoder,
            stat_sn: StatSn(0),
        }
    }

    fn plain() -> Self {
        Self::new(|_| {})
    }

    fn submit(&mut self, transfer: Transfer, data: &[u8]) -> CommandId {
        self.submit_data(transfer, WriteData::Bytes(data))
    }

    fn submit_data(&mut self, transfer: Transfer, data: WriteData<'_>) -> CommandId {
        let command = Command {
            lun: Lun([0, 3, 0, 0, 0, 0, 0, 0]),
            cdb: &[0x28; 10],
            attribute: crate::pdu::Attribute::SIMPLE,
            immediate: false,
            transfer,
        };
        self.connection
            .submit(&command, data, &mut self.transmit)
            .unwrap()
    }

    fn tag(&self, command: CommandId) -> InitiatorTaskTag {
        self.connection.tag_of(command)
    }

    fn stat_sn(&mut self) -> StatSn {
        let now = self.stat_sn;
        self.stat_sn = now.next();
        now
    }

    /// What the target says, and the events it makes, but for `NeedMore`.
    fn say(&mut self, header: Bhs, data: &[u8]) -> Vec<String> {
        let mut wire = Transmit::new();
        self.target.push(header, data, &mut wire);
        let bytes = wire.arena().to_vec();
        self.feed(&bytes)
    }

    fn feed(&mut self, mut input: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            match self.connection.next(&mut input, &mut self.transmit) {
                ConnectionEvent::NeedMore => return events,
                event @ ConnectionEvent::Close(_) => {
                    events.push(format!("{event:?}"));
                    return events;
                }
                event => events.push(format!("{event:?}")),
            }
        }
    }

    fn data_in(&mut self, command: CommandId, data_sn: u32, offset: u32) -> DataIn {
        DataIn {
            is_final: true,
            acknowledge: false,
            overflow: false,
            underflow: false,
            has_status: false,
            status: 0,
            lun: Lun::ZERO,
            initiator_task_tag: self.tag(command),
            target_transfer_tag: TargetTransferTag::RESERVED,
            stat_sn: StatSn(0),
            window: WINDOW,
            data_sn: DataSn(data_sn),
            buffer_offset: offset,
            residual_count: 0,
        }
    }

    fn response(&mut self, command: CommandId, exp_data_sn: u32) -> ScsiResponse {
        ScsiResponse {
            overflow: false,
            underflow: false,
            bidirectional_overflow: false,
            bidirectional_underflow: false,
            response: ServiceResponse::COMMAND_COMPLETED,
            status: 0,
            initiator_task_tag: self.tag(command),
            snack_tag: 0,
            stat_sn: self.stat_sn(),
            window: WINDOW,
            exp_data_sn,
            bidirectional_residual_count: 0,
            residual_count: 0,
        }
    }

    fn r2t(&mut self, command: CommandId, r2t_sn: u32, offset: u32, length: u32) -> R2t {
        R2t {
            lun: Lun::ZERO,
            initiator_task_tag: self.tag(command),
            target_transfer_tag: TargetTransferTag(77),
            stat_sn: StatSn(0),
            window: WINDOW,
            r2t_sn: R2tSn(r2t_sn),
            buffer_offset: offset,
            desired_data_transfer_length: length,
        }
    }

    /// The PDUs that the initiator has queued, with their data; payload is `payload`.
    fn sent(&mut self, payload: &[u8]) -> Vec<(Bhs, Vec<u8>)> {
        let mut stream = Vec::new();
        for segment in self.transmit.segments() {
            match segment {
                Segment::Arena { start, length } => {
                    stream.extend_from_slice(&self.transmit.arena()[start..start + length]);
                }
                Segment::Zeros { length } => stream.resize(stream.len() + length, 0),
                Segment::Buffer { start, length, .. } => {
                    stream.extend_from_slice(&payload[start..start + length]);
                }
            }
        }
        self.transmit.advance(stream.len(), &mut Vec::new());
        let mut framing = Framing::new();
        let limits = self.connection.operational();
        framing.set_digests(limits.header_digest, limits.data_digest);
        let mut input = &stream[..];
        let mut pdus = Vec::new();
        while !input.is_empty() {
            let HeaderStep::Header(bhs) = framing.take_header(&mut input) else {
                panic!("half a header")
            };
            framing.begin_segment(bhs.data_segment_length());
            let data = framing.data.take(u32::MAX, &mut input).to_vec();
            let trailer = framing.data.take_trailer(&mut input);
            assert_eq!(trailer, TrailerStep::Done { digest_ok: true });
            pdus.push((bhs, data));
        }
        pdus
    }
}

fn closes_with(events: &[String], problem: &str) {
    let last = events.last().expect("something happened");
    assert!(
        last.starts_with("Close") && last.contains(problem),
        "{events:?}"
    );
}

fn bytes(length: usize) -> Vec<u8> {
    (0..=255).cycle().take(length).collect()
}

#[test]
fn write_data_by_reference_is_cut_like_copied_data_and_released_once_a_call() {
    for digest in [Digest::None, Digest::Crc32c] {
        for (initial_r2t, immediate_data) in
            [(false, true), (true, true), (false, false), (true, false)]
        {
            let scene = || {
                Scene::new(|parameters| {
                    parameters.initial_r2t = initial_r2t;
                    parameters.immediate_data = immediate_data;
                    parameters.header_digest = digest;
                    parameters.data_digest = digest;
                })
            };
            let data = bytes(5003);
            let id = PayloadId(9);
            let (start, length) = (3, 5000);
            let write = Transfer::Write(length);
            let by_reference = WriteData::Buffer {
                id,
                start,
                bytes: &data[start..],
            };
            let mut copying = scene();
            copying.submit(write, &data[start..]);
            let mut referring = scene();
            let command = referring.submit_data(write, by_reference);
            let expected = copying.sent(&[]);
            let due = usize::from(!initial_r2t || immediate_data);
            assert_eq!(referring.transmit.releases_due(), due);
            assert_eq!(referring.sent(&data), expected);
            assert_eq!(referring.transmit.releases_due(), 0);
            let unsolicited: usize = expected.iter().map(|(_, data)| data.len()).sum();
            assert_eq!(
                unsolicited,
                referring.connection.unsolicited_length(length) as usize
            );
            // The rest, asked for in two bursts, the later one first.
            for (n, (from, to)) in [(4000, 5000), (2048, 4000)].into_iter().enumerate() {
                let n = u32::try_from(n).unwrap();
                let r2t = referring.r2t(command, n, from, to - from);
                let events = referring.say(r2t.encode(), &[]);
                assert_eq!(events.len(), 1, "{events:?}");
                let request = R2tRequest {
                    command,
                    tag: referring.tag(command),
                    target_transfer_tag: TargetTransferTag(77),
                    buffer_offset: from,
                    length: to - from,
                };
                let from = from as usize + start;
                let part = WriteData::Buffer {
                    id,
                    start: from,
                    bytes: &data[from..to as usize + start],
                };
                let (connection, transmit) = (&mut referring.connection, &mut referring.transmit);
                connection.send_data_out(&request, part, transmit);
                assert_eq!(referring.transmit.releases_due(), 1);
                let mut at = from - start;
                let pdus = referring.sent(&data);
                let last = pdus.len() - 1;
                for (n, (bhs, bytes)) in pdus.into_iter().enumerate() {
                    let data_out = DataOut::decode(&bhs);
                    assert_eq!(data_out.buffer_offset as usize, at);
                    assert_eq!(data_out.data_sn.0 as usize, n);
                    assert_eq!(data_out.is_final, n == last);
                    assert_eq!(data_out.target_transfer_tag, TargetTransferTag(77));
                    assert_eq!(bytes, data[at + start..][..bytes.len()]);
                    assert!(bytes.len() <= 1024);
                    at += bytes.len();
                }
                assert_eq!(at, to as usize);
            }
        }
    }
}

#[test]
fn read_data_may_come_in_any_order_of_offset_and_go_straight_to_its_place() {
    let mut scene = Scene::new(|parameters| {
        parameters.data_pdu_in_order = false;
        parameters.data_sequence_in_order = false;
        parameters.data_digest = Digest::Crc32c;
    });
    let data = bytes(3000);
    let read = scene.submit(Transfer::Read(3000), &[]);
    let mut buffer = vec![0; 3000];
    for (sn, (from, to)) in [(2000, 3000), (0, 999), (999, 2000)]
        .into_iter()
        .enumerate()
    {
        let data_in = scene.data_in(
            read,
            u32::try_from(sn).unwrap(),
            u32::try_from(from).unwrap(),
        );
        let mut wire = Transmit::new();
        scene
            .target
            .push(data_in.encode(), &data[from..to], &mut wire);
        let stream = wire.arena().to_vec();
        let (mut header, mut rest) = stream.split_at(BHS_LENGTH);
        let (connection, transmit) = (&mut scene.connection, &mut scene.transmit);
        assert_eq!(connection.payload_wanted(), None);
        assert_eq!(
            connection.next(&mut header, transmit),
            ConnectionEvent::NeedMore
        );
        // In pieces, the last of which ends in the middle of the digest.
        while let Some(wanted) = connection.payload_wanted() {
            assert_eq!(wanted.command, read);
            let length = (wanted.length as usize).min(400);
            let (now, later) = rest.split_at(length);
            buffer[wanted.buffer_offset as usize..][..length].copy_from_slice(now);
            connection.payload_received(now);
            rest = later;
        }
        assert_eq!(
            connection.next(&mut rest, transmit),
            ConnectionEvent::NeedMore
        );
        assert!(rest.is_empty());
    }
    let response = scene.response(read, 3);
    let events = scene.say(response.encode(), &[]);
    assert!(events[0].contains("data_in_length: 3000"), "{events:?}");
    assert_eq!(buffer, data);
}

#[test]
fn data_that_the_driver_placed_is_held_against_its_digest() {
    let mut scene = Scene::new(|parameters| parameters.data_digest = Digest::Crc32c);
    let read = scene.submit(Transfer::Read(512), &[]);
    let data_in = scene.data_in(read, 0, 0);
    let mut wire = Transmit::new();
    scene.target.push(data_in.encode(), &bytes(512), &mut wire);
    let stream = wire.arena().to_vec();
    let (header, rest) = stream.split_at(BHS_LENGTH);
    assert_eq!(scene.feed(header), Vec::<String>::new());
    scene.connection.payload_received(&[0; 512]);
    closes_with(&scene.feed(&rest[512..]), "DataDigestError");
}

#[test]
fn status_may_come_with_the_last_data_and_says_what_was_left_out() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(1000), &[]);
    let mut data_in = scene.data_in(read, 0, 0);
    data_in.has_status = true;
    data_in.stat_sn = scene.stat_sn();
    data_in.underflow = true;
    data_in.residual_count = 488;
    let events = scene.say(data_in.encode(), &bytes(512));
    assert_eq!(events.len(), 2);
    assert!(events[1].contains("Underflow(488)"), "{events:?}");
    assert_eq!(scene.connection.slots_free(), 4);
}

#[test]
fn what_a_target_must_not_send_ends_the_connection() {
    type Wrong = fn(&mut Scene, CommandId, CommandId) -> (Bhs, Vec<u8>);
    let cases: [(&str, Wrong); 14] = [
        ("a Data-In is missing", |s, read, _| {
            (s.data_in(read, 1, 0).encode(), bytes(4))
        }),
        ("out of order", |s, read, _| {
            (s.data_in(read, 0, 4).encode(), bytes(4))
        }),
        ("beyond the expected length", |s, read, _| {
            (s.data_in(read, 0, 3000).encode(), bytes(1001))
        }),
        ("beyond the expected length", |s, read, _| {
            (s.data_in(read, 0, u32::MAX).encode(), bytes(4))
        }),
        ("does not read", |s, _, write| {
            (s.data_in(write, 0, 0).encode(), bytes(4))
        }),
        ("for no command", |s, _, _| {
            (s.data_in(CommandId(3), 0, 0).encode(), bytes(4))
        }),
        ("an R2T is missing", |s, _, write| {
            (s.r2t(write, 1, 0, 4).encode(), Vec::new())
        }),
        ("does not write", |s, read, _| {
            (s.r2t(read, 0, 0, 4).encode(), Vec::new())
        }),
        ("beyond what can be sent", |s, _, write| {
            (s.r2t(write, 0, 0, 0).encode(), Vec::new())
        }),
        ("beyond what can be sent", |s, _, write| {
            (s.r2t(write, 0, 0, 4097).encode(), Vec::new())
        }),
        ("beyond what can be sent", |s, _, write| {
            (s.r2t(write, 0, 7000, 1001).encode(), Vec::new())
        }),
        ("a response is missing", |s, read, _| {
            s.stat_sn();
            (s.response(read, 0).encode(), Vec::new())
        }),
        ("a Data-In is missing", |s, read, _| {
            (s.response(read, 2).encode(), Vec::new())
        }),
        ("sense data beyond", |s, read, _| {
            (s.response(read, 0).encode(), vec![0, 18, 0x70])
        }),
    ];
    for (problem, wrong) in cases {
        let mut scene = Scene::plain();
        let read = scene.submit(Transfer::Read(4000), &[]);
        let write = scene.submit(Transfer::Write(8000), &bytes(8000));
        let (header, data) = wrong(&mut scene, read, write);
        closes_with(&scene.say(header, &data), problem);
        // Whatever else is asked of it, it stays closed.
        assert_eq!(scene.connection.room(), 0);
        let mut nothing: &[u8] = &[];
        let event = scene.connection.next(&mut nothing, &mut scene.transmit);
        assert!(matches!(event, ConnectionEvent::Close(_)));
    }
}

#[test]
fn the_same_data_cannot_come_or_be_asked_for_without_end() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(1000), &[]);
    let first = scene.data_in(read, 0, 0);
    let again = scene.data_in(read, 1, 0);
    assert_eq!(scene.say(first.encode(), &bytes(600)).len(), 1);
    let events = scene.say(again.encode(), &bytes(600));
    closes_with(&events, "more read data than expected");

    let mut scene = Scene::plain();
    let write = scene.submit(Transfer::Write(4000), &bytes(4000));
    let first = scene.r2t(write, 0, 0, 3000);
    let again = scene.r2t(write, 1, 0, 3000);
    assert_eq!(scene.say(first.encode(), &[]).len(), 1);
    let events = scene.say(again.encode(), &[]);
    closes_with(&events, "R2Ts for more than there is");
}

#[test]
fn the_same_data_twice_does_not_pass_for_all_of_it() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(1000), &[]);
    let first = scene.data_in(read, 0, 0);
    let again = scene.data_in(read, 1, 0);
    assert_eq!(scene.say(first.encode(), &bytes(500)).len(), 1);
    let events = scene.say(again.encode(), &bytes(500));
    closes_with(&events, "out of order");
}

#[test]
fn a_target_has_no_more_r2ts_open_than_was_negotiated() {
    let mut scene = Scene::plain();
    let write = scene.submit(Transfer::Write(4000), &bytes(4000));
    for n in 0..2 {
        let r2t = scene.r2t(write, n, n * 100, 100);
        assert_eq!(scene.say(r2t.encode(), &[]).len(), 1);
    }
    let r2t = scene.r2t(write, 2, 200, 100);
    let events = scene.say(r2t.encode(), &[]);
    closes_with(&events, "MaxOutstandingR2T");
}

#[test]
fn an_r2t_of_a_command_that_has_ended_is_answered_by_nothing() {
    let mut scene = Scene::plain();
    let write = scene.submit(Transfer::Write(4000), &bytes(4000));
    let tag = scene.tag(write);
    scene.sent(&[]);
    let response = scene.response(write, 0);
    scene.say(response.encode(), &[]);
    let request = R2tRequest {
        command: write,
        tag,
        target_transfer_tag: TargetTransferTag(77),
        buffer_offset: 0,
        length: 100,
    };
    for _ in 0..2 {
        let data = WriteData::Bytes(&[1; 100]);
        let (connection, transmit) = (&mut scene.connection, &mut scene.transmit);
        connection.send_data_out(&request, data, transmit);
        assert!(scene.transmit.is_empty());
        // The second time the slot is in use again.
        scene.submit(Transfer::Write(0), &[]);
        scene.sent(&[]);
    }
}

#[test]
fn a_count_of_data_ins_may_be_absent_and_for_writes_may_be_that_of_r2ts() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(512), &[]);
    let data_in = scene.data_in(read, 0, 0);
    scene.say(data_in.encode(), &bytes(512));
    let response = scene.response(read, 0);
    let events = scene.say(response.encode(), &[]);
    assert!(events[0].starts_with("Completed"), "{events:?}");
    let write = scene.submit(Transfer::Write(4), &bytes(4));
    let response = scene.response(write, 5);
    let events = scene.say(response.encode(), &[]);
    assert!(events[0].starts_with("Completed"), "{events:?}");
}

#[test]
fn a_rejected_command_ends_and_other_rejections_are_told() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(512), &[]);
    let (header, _) = scene.sent(&[]).remove(0);
    assert_eq!(ScsiCommand::decode(&header).cmd_sn, CmdSn(1));
    let reject = |scene: &mut Scene| Reject {
        reason: RejectReason::WAITING_FOR_LOGOUT,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        stat_sn: scene.stat_sn(),
        window: WINDOW,
        data_sn: 0,
    };
    let rejection = reject(&mut scene);
    let events = scene.say(rejection.encode(), &header.0);
    assert!(
        events[0].starts_with("Completed") && events[0].contains("Some(WAITING_FOR_LOGOUT)"),
        "{events:?}"
    );
    assert_eq!(scene.connection.under_way().count(), 0);
    let again = scene.submit(Transfer::Read(512), &[]);
    let mut damaged = header;
    damaged.0[16..20].copy_from_slice(&scene.tag(again).0.to_be_bytes());
    let mut rejection = reject(&mut scene);
    rejection.reason = RejectReason::DATA_DIGEST_ERROR;
    let events = scene.say(rejection.encode(), &damaged.0);
    assert!(events[0].starts_with("Rejected"), "{events:?}");
    let response = scene.response(again, 0);
    assert!(scene.say(response.encode(), &[])[0].starts_with("Completed"));
    // It names no command any more, or nothing at all.
    for data in [&header.0[..], &[], &[1; 47]] {
        let rejection = reject(&mut scene);
        let events = scene.say(rejection.encode(), data);
        assert!(events[0].starts_with("Rejected"), "{events:?}");
    }
    let again = scene.submit(Transfer::Read(512), &[]);
    assert_eq!(again, read);
    scene.sent(&[]);

    scene
        .connection
        .text(b"X=1\0", &mut scene.transmit)
        .unwrap();
    let (header, _) = scene.sent(&[]).remove(0);
    let rejection = reject(&mut scene);
    scene.say(rejection.encode(), &header.0);
    let text = scene.connection.text(b"X=1\0", &mut scene.transmit);
    assert_eq!(text, Ok(()), "the exchange before is over");
}

#[test]
fn a_request_to_negotiate_is_met_and_what_the_target_declares_holds() {
    let mut scene = Scene::plain();
    let message = AsyncMessage {
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        stat_sn: scene.stat_sn(),
        window: WINDOW,
        event: AsyncEvent::NEGOTIATION_REQUEST,
        vendor_code: 0,
        parameter1: 0,
        parameter2: 0,
        parameter3: 3,
    };
    let events = scene.say(message.encode(), &[]);
    assert!(events[0].contains("NEGOTIATION_REQUEST"), "{events:?}");
    let (request, data) = scene.sent(&[]).remove(0);
    assert_eq!(request.opcode(), Opcode::TEXT_REQUEST);
    assert!(data.is_empty());
    let answer = TextResponse {
        is_final: true,
        continues: false,
        lun: Lun::ZERO,
        initiator_task_tag: request.initiator_task_tag(),
        target_transfer_tag: TargetTransferTag::RESERVED,
        stat_sn: scene.stat_sn(),
        window: WINDOW,
    };
    let text = b"MaxRecvDataSegmentLength=512\0TargetAlias=x\0";
    assert_eq!(scene.say(answer.encode(), text), Vec::<String>::new());
    let segment = scene
        .connection
        .operational()
        .target_max_recv_data_segment_length;
    assert_eq!(segment, 512);
    scene.submit(Transfer::Write(1000), &bytes(1000));
    assert_eq!(scene.sent(&[])[0].1.len(), 512);
}

#[test]
fn no_command_follows_a_logout_unless_it_is_refused() {
    let mut scene = Scene::plain();
    let reason = LogoutReason::CLOSE_SESSION;
    let asked = scene.connection.logout(reason, &mut scene.transmit);
    assert_eq!(asked, Ok(()));
    assert_eq!(scene.connection.room(), 0);
    let command = Command {
        lun: Lun::ZERO,
        cdb: &[0; 6],
        attribute: crate::pdu::Attribute::SIMPLE,
        immediate: false,
        transfer: Transfer::None,
    };
    let (connection, transmit) = (&mut scene.connection, &mut scene.transmit);
    let refused = connection.submit(&command, WriteData::NONE, transmit);
    assert_eq!(refused, Err(NotSent::Closed));
    let response = LogoutResponse {
        response: LogoutResult::CLEANUP_FAILED,
        initiator_task_tag: InitiatorTaskTag(0x8000_0001),
        stat_sn: scene.stat_sn(),
        window: WINDOW,
        time2wait: 0,
        time2retain: 0,
    };
    scene.say(response.encode(), &[]);
    assert_eq!(scene.connection.room(), 4);
}

#[test]
fn a_ping_of_the_target_is_answered_and_uses_no_status_number() {
    let mut scene = Scene::plain();
    let ping = |tag: u32| NopIn {
        lun: Lun([0, 9, 0, 0, 0, 0, 0, 0]),
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        target_transfer_tag: TargetTransferTag(tag),
        stat_sn: StatSn(0),
        window: WINDOW,
    };
    assert_eq!(scene.say(ping(5).encode(), &[]), Vec::<String>::new());
    let (answer, _) = scene.sent(&[]).remove(0);
    let answer = crate::pdu::NopOut::decode(&answer);
    assert_eq!(answer.target_transfer_tag, TargetTransferTag(5));
    assert_eq!(answer.lun, Lun([0, 9, 0, 0, 0, 0, 0, 0]));
    assert!(answer.immediate && answer.initiator_task_tag.is_reserved());
    // One that only tells of the window asks for no answer.
    scene.say(ping(u32::MAX).encode(), &[]);
    assert!(scene.transmit.is_empty());
    let read = scene.submit(Transfer::None, &[]);
    let response = scene.response(read, 0);
    assert!(scene.say(response.encode(), &[])[0].starts_with("Completed"));
}

#[test]
fn abort_task_names_the_command_by_tag_and_number() {
    let mut scene = Scene::plain();
    let _first = scene.submit(Transfer::None, &[]);
    let second = scene.submit(Transfer::Read(512), &[]);
    scene.sent(&[]);
    let cmd_sn = scene.connection.cmd_sn_of(second);
    assert_eq!(cmd_sn, CmdSn(2));
    let lun = Lun([0, 3, 0, 0, 0, 0, 0, 0]);
    let (connection, transmit) = (&mut scene.connection, &mut scene.transmit);
    let which = Some((second, cmd_sn));
    let request = connection
        .task_management(Function::ABORT_TASK, lun, which, transmit)
        .unwrap();
    let (header, _) = scene.sent(&[]).remove(0);
    let sent = crate::pdu::TaskManagementRequest::decode(&header);
    assert_eq!(sent.referenced_task_tag, scene.tag(second));
    assert_eq!((sent.ref_cmd_sn, sent.lun), (CmdSn(2), lun));
    let response = TaskManagementResponse {
        response: TaskManagementResponseCode::FUNCTION_COMPLETE,
        initiator_task_tag: request,
        stat_sn: scene.stat_sn(),
        window: WINDOW,
    };
    let events = scene.say(response.encode(), &[]);
    assert!(events[0].contains("FUNCTION_COMPLETE"), "{events:?}");
}

#[test]
fn the_window_limits_what_can_be_submitted_and_only_grows() {
    let mut scene = Scene::plain();
    scene.connection.window.max_cmd_sn = CmdSn(2);
    assert_eq!(scene.connection.room(), 2);
    scene.submit(Transfer::None, &[]);
    let second = scene.submit(Transfer::None, &[]);
    assert_eq!(scene.connection.room(), 0);
    let mut response = scene.response(second, 0);
    response.window = CommandWindow {
        exp_cmd_sn: CmdSn(3),
        max_cmd_sn: CmdSn(50),
    };
    scene.say(response.encode(), &[]);
    assert_eq!(scene.connection.room(), 3, "one of four slots is in use");
    let third = scene.submit(Transfer::None, &[]);
    let mut response = scene.response(third, 0);
    response.window = CommandWindow {
        exp_cmd_sn: CmdSn(2),
        max_cmd_sn: CmdSn(10),
    };
    scene.say(response.encode(), &[]);
    assert_eq!(scene.connection.window_open(), 47, "old news");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Headers of the kinds a target sends, with any contents, and any bytes between them.
    #[test]
    fn no_target_makes_it_panic_or_queue_without_bound(
        pdus in prop::collection::vec(
            (
                prop::sample::select(vec![0x20_u8, 0x21, 0x22, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f]),
                any::<[u8; 47]>(),
                prop::collection::vec(any::<u8>(), 0..100),
                any::<[bool; 4]>(),
            ),
            1..12,
        ),
        piece in 1_usize..200,
    ) {
        let mut scene = Scene::plain();
        let read = scene.submit(Transfer::Read(4000), &[]);
        let write = scene.submit(Transfer::Write(8000), &bytes(8000));
        let mut stream = Vec::new();
        for (opcode, rest, data, sane) in pdus {
            let mut bhs = Bhs::new(Opcode(opcode));
            bhs.0[1..].copy_from_slice(&rest);
            if sane[0] {
                bhs.0[4] = 0;
                bhs.set_data_segment_length(u32::try_from(data.len()).unwrap());
            }
            if sane[1] {
                let command = if sane[2] { read } else { write };
                bhs.0[16..20].copy_from_slice(&scene.tag(command).0.to_be_bytes());
            }
            if sane[3] {
                bhs.0[24..28].copy_from_slice(&[0; 4]);
                bhs.0[36..40].copy_from_slice(&[0; 4]);
                bhs.0[40..44].copy_from_slice(&[0; 4]);
            }
            stream.extend_from_slice(&bhs.0);
            stream.extend_from_slice(&data);
            stream.resize(stream.len().next_multiple_of(4), 0);
        }
        let before = scene.transmit.pending_bytes();
        let mut placed = 0;
        'stream: for mut input in stream.chunks(piece) {
            loop {
                if let Some(wanted) = scene.connection.payload_wanted() {
                    let length = input.len().min(wanted.length as usize);
                    prop_assert!(wanted.buffer_offset + wanted.length <= 4000);
                    let (now, later) = input.split_at(length);
                    scene.connection.payload_received(now);
                    placed += length;
                    input = later;
                }
                match scene.connection.next(&mut input, &mut scene.transmit) {
                    ConnectionEvent::NeedMore => break,
                    ConnectionEvent::Close(_) => break 'stream,
                    ConnectionEvent::DataIn { buffer_offset, bytes, .. } => {
                        prop_assert!(buffer_offset as usize + bytes.len() <= 4000);
                        placed += bytes.len();
                    }
                    _ => {}
                }
            }
        }
        prop_assert!(placed <= 4000);
        prop_assert!(scene.transmit.pending_bytes() - before <= 12 * 200);
    }
}
