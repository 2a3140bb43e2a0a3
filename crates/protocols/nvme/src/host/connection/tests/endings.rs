//! Calls in an order that only makes sense on a connection that is ready: before the ICResp, and after the end.

use super::*;

/// Every call a driver can make, on a connection that takes no commands.
fn refuses_everything(scene: &mut Scene, r2t: Option<R2tRequest>, expected: &[String]) {
    scene.stream();
    let (host, transmit) = (&mut scene.host, &mut scene.transmit);
    assert!(!host.is_ready());
    assert_eq!(host.slots_free(), 0);
    let flush = commands::flush(NamespaceId(1));
    let refused = host.submit(&flush, WriteData::NONE, transmit);
    assert_eq!(refused, Err(NotSent::Closed));
    let none = [WriteData::NONE; 2];
    let refused = host.submit_fused([&flush, &flush], none, transmit);
    assert_eq!(refused, Err(NotSent::Closed));
    if let Some(r2t) = r2t {
        let data = vec![0; r2t.length as usize];
        host.send_data(&r2t, WriteData::Bytes(&data), transmit);
    }
    host.set_in_capsule_data_bytes(0);
    assert_eq!(host.payload_wanted(), None);
    assert!(scene.transmit.is_empty(), "nothing more is said");
    assert_eq!(scene.feed(&[0xee; 200]), expected, "it says why again");
    // These bytes were not wanted.
    scene.host.payload_received(&[0; 8]);
    assert_eq!(scene.feed(&[]), expected);
}

#[test]
fn before_the_icresp_no_command_is_taken() {
    let mut scene = Scene::new(ConnectionConfig::default());
    let sent = scene
        .host
        .submit(&read(1), WriteData::NONE, &mut scene.transmit);
    assert_eq!(sent, Err(NotSent::Closed));
    assert_eq!(scene.sent().len(), 1, "the ICReq alone");
}

#[test]
fn after_every_kind_of_end_calls_are_answered_and_nothing_is_sent() {
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    let by = Terminator::Controller;
    let terminated = TermReq { by, error }.encode(0).to_vec();
    let second_icresp = response(Digests::default()).encode().to_vec();
    for (pdu, kind) in [(terminated, "Terminated"), (second_icresp, "ProtocolError")] {
        let mut scene = Scene::ready(ConnectionConfig {
            in_capsule_data_bytes: 0,
            ..ConnectionConfig::default()
        });
        let write = commands::write(blocks(8), 0);
        let slot = scene.submit(&write, &[]);
        scene.submit(&read(1), &[]);
        let r2t = R2t {
            command: scene.host.command_id(slot),
            tag: TransferTag(3),
            offset: 0,
            length: 4096,
        };
        let r2t = r2t.encode();
        let request = scene.host.next(&mut &r2t[..], &mut scene.transmit);
        let ConnectionEvent::R2t(request) = request else {
            panic!("{request:?}")
        };
        let closed = scene.feed(&pdu);
        assert!(closed[0].starts_with(kind), "{closed:?}");
        refuses_everything(&mut scene, Some(request), &closed);
        assert_eq!(scene.host.under_way().count(), 2, "they never ended");
    }
    let mut scene = Scene::ready(ConnectionConfig::default());
    scene.host.terminate(error, &mut scene.transmit);
    refuses_everything(&mut scene, None, &["Host".to_owned()]);
    scene.host.terminate(error, &mut scene.transmit);
    assert!(scene.transmit.is_empty(), "it ends once");
}

#[test]
fn an_r2t_is_answered_once() {
    let mut scene = Scene::ready(ConnectionConfig {
        in_capsule_data_bytes: 0,
        ..ConnectionConfig::default()
    });
    let slot = scene.submit(&commands::write(blocks(8), 0), &[]);
    scene.sent();
    let r2t = R2t {
        command: scene.host.command_id(slot),
        tag: TransferTag(3),
        offset: 0,
        length: 512,
    };
    let r2t = r2t.encode();
    let request = scene.host.next(&mut &r2t[..], &mut scene.transmit);
    let ConnectionEvent::R2t(request) = request else {
        panic!("{request:?}")
    };
    for expected in [1, 0] {
        let data = WriteData::Bytes(&[5; 512]);
        scene.host.send_data(&request, data, &mut scene.transmit);
        assert_eq!(scene.sent().len(), expected);
    }
}

#[test]
fn a_driver_that_places_unwanted_bytes_closes_the_connection() {
    let mut scene = Scene::ready(ConnectionConfig::default());
    scene.host.payload_received(&[0; 8]);
    refuses_everything(&mut scene, None, &["Host".to_owned()]);
}
