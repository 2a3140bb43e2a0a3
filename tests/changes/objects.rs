//! The life of a volume: it comes, is mapped, used, changed, unmapped and removed.

use std::fs;

use longshore_nvme::host::CommandSlot;
use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::initiator::{Data, cdb};
use longshore_tests::nvme::{Host, blocks};
use serde_json::json;

use crate::rig::{
    CAPACITY_CHANGED, Change, Hand, LUNS_CHANGED, NOT_SUPPORTED, Rig, SUBSYSTEM, TARGET,
    WRITE_PROTECTED, ask_scsi, scsi_blocks, scsi_read, scsi_write, wait_for_scsi_event,
};

/// Has the host tell of changes of namespaces.
fn listen(host: &mut Host) -> CommandSlot {
    host.admin(&commands::set_features(0x0b, 1 << 8), &[])
        .unwrap()
        .expect_success();
    host.admin
        .start(&commands::async_event_request(), &[])
        .unwrap()
}

/// Waits for the event that namespace 1 has changed, and asks for the next.
fn wait_for_event(host: &mut Host, waiting: &mut CommandSlot) {
    let event = host.admin.wait(*waiting).unwrap().expect_success();
    assert_eq!(event.result & 0xff_ff07, 0x04_0002, "namespace changed");
    let changed = host.log_page(0x04, 0, 4096).unwrap();
    assert_eq!(changed[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    *waiting = host
        .admin
        .start(&commands::async_event_request(), &[])
        .unwrap();
}

fn live_and_die(hand: Hand) {
    let rig = Rig::start("");
    let image = rig.path("v1.img");
    let keys = json!({"backend": "file", "path": image, "size": "4M"});
    let create = Change::CreateVolume("v1", keys);
    rig.make(hand, &create);
    rig.make(hand, &Change::CreateTarget(TARGET));
    rig.make(hand, &Change::CreateTarget(SUBSYSTEM));
    // Sessions have something that stays: those that lose all they have end.
    let stays = json!({"backend": "mem", "size": "1M"});
    rig.make(hand, &Change::CreateVolume("v2", stays));
    rig.make(hand, &Change::Map(TARGET, "v2", 1));
    rig.make(hand, &Change::Map(SUBSYSTEM, "v2", 1));
    let revision = rig.revision();
    rig.make(hand, &create);
    assert_eq!(
        rig.revision(),
        revision,
        "what is there as asked is no change"
    );

    // Both are there before the volume is, and are told.
    let (mut initiator, mut host) = (rig.initiator(TARGET, 1), rig.host(SUBSYSTEM, 1));
    let mut waiting = listen(&mut host);
    assert_eq!(host.active_namespaces().unwrap(), [2]);
    rig.make(hand, &Change::Map(TARGET, "v1", 0));
    wait_for_scsi_event(&mut initiator);
    rig.make(hand, &Change::Map(SUBSYSTEM, "v1", 0));
    wait_for_event(&mut host, &mut waiting);
    assert_eq!(host.active_namespaces().unwrap(), [1, 2]);
    let (ready, told) = ask_scsi(&mut initiator, &cdb::TEST_UNIT_READY, Data::None);
    assert!(ready.is_good(), "{ready:?}");
    assert!(told.contains(&LUNS_CHANGED), "{told:x?}");

    // What one has written, the other reads.
    assert!(scsi_write(&mut initiator, 3, 7).is_good());
    let read = host.read(blocks(3, 1)).unwrap().expect_success();
    assert_eq!(read.data, [7; 512]);
    host.write(blocks(4, 1), &[8; 512])
        .unwrap()
        .expect_success();
    assert_eq!(scsi_read(&mut initiator, 4), 8);

    rig.make(hand, &Change::Resize("v1", "8M"));
    wait_for_event(&mut host, &mut waiting);
    assert_eq!(host.namespace_size(1).unwrap(), 8 << 11);
    let (_, told) = ask_scsi(&mut initiator, &cdb::TEST_UNIT_READY, Data::None);
    assert_eq!(told, [CAPACITY_CHANGED]);
    assert_eq!(scsi_blocks(&mut initiator), 8 << 11);
    assert!(scsi_write(&mut initiator, (8 << 11) - 1, 9).is_good());
    assert_eq!(fs::metadata(&image).unwrap().len(), 8 << 20);

    rig.make(hand, &Change::ReadOnly("v1"));
    wait_for_event(&mut host, &mut waiting);
    assert_eq!(
        scsi_write(&mut initiator, 3, 1).sense_code(),
        Some(WRITE_PROTECTED)
    );
    assert!(!host.write(blocks(3, 1), &[1; 512]).unwrap().is_success());
    assert_eq!(scsi_read(&mut initiator, 3), 7);

    // A number in use goes with --drain alone.
    for name in [TARGET, SUBSYSTEM] {
        let refusal = rig
            .change(hand, &Change::Unmap(name, "v1", 0), &[])
            .expect_err("a session uses it");
        assert!(refusal.text.contains("drain"), "{refusal:?}");
        assert!(matches!(refusal.status, None | Some(409)), "{refusal:?}");
        rig.change(hand, &Change::Unmap(name, "v1", 0), &["drain"])
            .unwrap();
    }
    wait_for_event(&mut host, &mut waiting);
    assert_eq!(host.active_namespaces().unwrap(), [2]);
    let gone = host.read(blocks(3, 1)).unwrap();
    // What a command with an inactive identifier gets (NVMe base 2.0 §3.2.1.2).
    assert_eq!(gone.code(), Status::INVALID_FIELD);
    assert!(gone.status.is_final(), "{:?}", gone.status);
    let (gone, _) = ask_scsi(&mut initiator, &cdb::read_16(3, 1), Data::In(512));
    assert_eq!(gone.sense_code(), Some(NOT_SUPPORTED));

    assert!(rig.has_open(&image));
    rig.make(hand, &Change::Remove("v1"));
    assert_eq!(rig.ask("GET", "/api/v1/volumes/v1", None).status, 404);
    crate::rig::wait_for("the file to be closed", || !rig.has_open(&image));
    // The data stay.
    let bytes = fs::read(&image).unwrap();
    assert_eq!((bytes[3 * 512], bytes[4 * 512]), (7, 8));
}

#[test]
fn a_volume_lives_and_dies_by_verbs_and_hosts_of_both_protocols_see_it() {
    live_and_die(Hand::Verbs);
}

#[test]
fn a_volume_lives_and_dies_by_http_and_hosts_of_both_protocols_see_it() {
    live_and_die(Hand::Http);
}
