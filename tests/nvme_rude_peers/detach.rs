//! A host that detaches as SPDK's does: it ends its event requests by itself and uses their identifiers again.

use longshore_nvme::host::commands::{
    ANY_CONTROLLER, Property, async_event_request, property_get, property_set,
};
use longshore_nvme::status::Status;
use longshore_tests::nvme::HostOptions;
use longshore_tests::nvme::pdu::{Pdu, kind};

use crate::{Scene, entry};

/// EN, CSS NVM, IOSQES 6, IOCQES 4.
const ENABLE: u64 = 0x0046_0001;
/// CC.SHN 01b: normal shutdown.
const SHUTDOWN: u64 = 1 << 14;
/// CSTS.SHST 10b: shutdown complete.
const SHUTDOWN_COMPLETE: u32 = 0b10 << 2;

#[test]
fn identifiers_of_event_requests_serve_again_for_the_shutdown() {
    let mut scene = Scene::new();
    let options = HostOptions::default();
    let connect = options.connect(0, ANY_CONTROLLER);
    let mut peer = scene.initialized();
    let mut run = |pdus: &[Pdu], id: u16| {
        for pdu in pdus {
            peer.send(pdu).unwrap();
        }
        let response = peer.receive().unwrap();
        assert_eq!(response.kind(), kind::CAPSULE_RESP);
        // Of this command, and nothing of any other before it.
        assert_eq!(response.half(20), id);
        assert_eq!(Status(response.half(22) >> 1), Status::SUCCESS);
        response.word(8)
    };
    let capsule = entry(&connect.command(), 0, true);
    run(&[Pdu::command(&capsule).with_data(&connect.data())], 0);
    let enable = property_set(Property::CC, ENABLE);
    run(&[Pdu::command(&entry(&enable, 0, false))], 0);
    let status = |id| Pdu::command(&entry(&property_get(Property::CSTS), id, false));
    for id in 1..=4 {
        let events = Pdu::command(&entry(&async_event_request(), id, false));
        // The answer to the next command shows that this one has none.
        run(&[events, status(9)], 9);
    }
    let configuration = property_get(Property::CC);
    run(&[Pdu::command(&entry(&configuration, 4, false))], 4);
    let shut_down = property_set(Property::CC, ENABLE | SHUTDOWN);
    run(&[Pdu::command(&entry(&shut_down, 4, false))], 4);
    while run(&[status(3)], 3) & 0b1100 != SHUTDOWN_COMPLETE {}
    scene.assert_others_do_not_notice();
}
