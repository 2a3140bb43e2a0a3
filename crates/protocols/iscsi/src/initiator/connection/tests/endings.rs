//! Calls in an order that only makes sense within a session: before the login, after a logout, after the end; and
//! commands that their driver forgets while the target still answers them.

use super::*;

fn flush() -> Command<'static> {
    Command {
        lun: Lun::ZERO,
        cdb: &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        attribute: crate::pdu::Attribute::SIMPLE,
        immediate: false,
        transfer: Transfer::None,
    }
}

/// Every call a driver can make, on a connection that takes no requests.
fn refuses_everything(connection: &mut Connection, r2t: Option<R2tRequest>) {
    let mut transmit = Transmit::new();
    let closed = Some(NotSent::Closed);
    let sent = &mut transmit;
    assert!(!connection.is_ready());
    assert_eq!(connection.room(), 0);
    let refused = connection.submit(&flush(), WriteData::NONE, sent);
    assert_eq!(refused.err(), closed);
    let immediate = Command {
        immediate: true,
        ..flush()
    };
    let refused = connection.submit(&immediate, WriteData::NONE, sent);
    assert_eq!(refused.err(), closed);
    let function = Function::LOGICAL_UNIT_RESET;
    let refused = connection.task_management(function, Lun::ZERO, None, sent);
    assert_eq!(refused.err(), closed);
    assert_eq!(connection.ping(b"there?", sent).err(), closed);
    assert_eq!(connection.text(b"X=1\0", sent).err(), closed);
    let reason = LogoutReason::CLOSE_SESSION;
    assert_eq!(connection.logout(reason, sent).err(), closed);
    if let Some(r2t) = r2t {
        let data = vec![0; r2t.length as usize];
        connection.send_data_out(&r2t, WriteData::Bytes(&data), sent);
    }
    assert_eq!(connection.payload_wanted(), None);
    assert!(transmit.is_empty(), "nothing is said");
}

#[test]
fn before_the_login_every_request_is_refused() {
    let isid = crate::pdu::Isid([0x80, 0, 0, 0, 0, 1]);
    let login = LoginConfig::normal(name("iqn.2026-11.test:i"), name("iqn.2026-11.test:t"), isid);
    let mut transmit = Transmit::new();
    let mut connection = Connection::new(login, 4, &mut |bytes| bytes.fill(1), &mut transmit);
    refuses_everything(&mut connection, None);
    assert_eq!(
        connection.next(&mut &[][..], &mut transmit),
        ConnectionEvent::NeedMore
    );
}

#[test]
fn after_every_kind_of_end_calls_are_answered_and_nothing_is_sent() {
    let logout = |scene: &mut Scene| {
        let reason = LogoutReason::CLOSE_SESSION;
        let asked = scene.connection.logout(reason, &mut scene.transmit);
        assert_eq!(asked, Ok(()));
        let response = LogoutResponse {
            response: LogoutResult::CLOSED,
            initiator_task_tag: InitiatorTaskTag(0x8000_0001),
            stat_sn: scene.stat_sn(),
            window: WINDOW,
            time2wait: 0,
            time2retain: 0,
        };
        scene.say(response.encode(), &[]);
    };
    let mistake = |scene: &mut Scene| drop(scene.say(Bhs::new(Opcode(0x3e)), &[]));
    let misplace = |scene: &mut Scene| scene.connection.payload_received(&[0; 8]);
    type End<'a> = &'a dyn Fn(&mut Scene);
    let ends: [(End<'_>, &str); 3] = [
        (&logout, "Logout"),
        (&mistake, "an opcode no target sends"),
        (&misplace, "Initiator"),
    ];
    for (end, expected) in ends {
        let mut scene = Scene::plain();
        let write = scene.submit(Transfer::Write(8000), &bytes(8000));
        scene.submit(Transfer::Read(512), &[]);
        let r2t = scene.r2t(write, 0, 4000, 500).encode();
        let mut wire = Transmit::new();
        scene.target.push(r2t, &[], &mut wire);
        let request = scene
            .connection
            .next(&mut wire.arena(), &mut scene.transmit);
        let ConnectionEvent::R2t(request) = request else {
            panic!("{request:?}")
        };
        end(&mut scene);
        refuses_everything(&mut scene.connection, Some(request));
        for _ in 0..2 {
            closes_with(&scene.feed(&[0xee; 100]), expected);
            scene.connection.payload_received(&[0; 8]);
        }
        assert_eq!(scene.connection.under_way().count(), 2, "they never ended");
    }
}

#[test]
fn an_r2t_is_answered_once() {
    let mut scene = Scene::plain();
    let write = scene.submit(Transfer::Write(8000), &bytes(8000));
    let r2t = scene.r2t(write, 0, 4000, 500);
    assert_eq!(scene.say(r2t.encode(), &[]).len(), 1);
    scene.sent(&[]);
    let request = R2tRequest {
        command: write,
        tag: scene.tag(write),
        target_transfer_tag: TargetTransferTag(77),
        buffer_offset: 4000,
        length: 500,
    };
    for expected in [1, 0] {
        let data = WriteData::Bytes(&[5; 500]);
        let (connection, transmit) = (&mut scene.connection, &mut scene.transmit);
        connection.send_data_out(&request, data, transmit);
        assert_eq!(scene.sent(&[]).len(), expected);
    }
}

#[test]
fn an_unsolicited_logout_response_is_a_mistake_of_the_target() {
    for asked in [false, true] {
        let mut scene = Scene::plain();
        if asked {
            let reason = LogoutReason::CLOSE_SESSION;
            let asked = scene.connection.logout(reason, &mut scene.transmit);
            assert_eq!(asked, Ok(()));
        }
        let response = LogoutResponse {
            response: LogoutResult::CLOSED,
            initiator_task_tag: InitiatorTaskTag(0x8000_0099),
            stat_sn: scene.stat_sn(),
            window: WINDOW,
            time2wait: 0,
            time2retain: 0,
        };
        closes_with(&scene.say(response.encode(), &[]), "Logout Response");
    }
}

/// A command is forgotten in the middle of its Data-In, and its number given to another: the rest of
/// the data is dropped, and its status ends nothing.
#[test]
fn data_of_a_forgotten_command_reaches_no_later_one() {
    for status in [false, true] {
        let mut scene = Scene::plain();
        let forgotten = scene.submit(Transfer::Read(4000), &[]);
        let mut data_in = scene.data_in(forgotten, 0, 0);
        data_in.has_status = status;
        if status {
            data_in.stat_sn = scene.stat_sn();
        }
        let mut wire = Transmit::new();
        scene.target.push(data_in.encode(), &bytes(4000), &mut wire);
        let stream = wire.arena().to_vec();
        let (begin, rest) = stream.split_at(BHS_LENGTH + 1000);
        assert_eq!(scene.feed(begin).len(), 1);
        scene.connection.forget(forgotten);
        let later = scene.submit(Transfer::Read(100), &[]);
        assert_eq!(later, forgotten, "the same number");
        assert_eq!(scene.connection.payload_wanted(), None);
        assert_eq!(scene.feed(rest), Vec::<String>::new());
        assert_eq!(scene.connection.under_way().count(), 1);
        let response = scene.response(later, 0);
        let events = scene.say(response.encode(), &[]);
        assert!(events[0].starts_with("Completed"), "{events:?}");
    }
}

/// Nothing tells its driver that it ended, so it is still under way when the connection closes.
#[test]
fn a_command_whose_response_is_malformed_has_not_ended() {
    let mut scene = Scene::plain();
    let read = scene.submit(Transfer::Read(512), &[]);
    let response = scene.response(read, 0);
    let events = scene.say(response.encode(), &[0xff, 0xff, 0x70, 0]);
    closes_with(&events, "sense data beyond");
    assert_eq!(scene.connection.under_way().collect::<Vec<_>>(), [read]);
}
