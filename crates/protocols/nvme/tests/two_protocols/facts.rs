//! What one protocol does to the other, fact by fact.

use longshore_block::reservation::ReservationClass::{Changes, Inspects, Reads};
use longshore_block::reservation::{is_same_participant, tasks_cleared_by};
use longshore_nvme::reservation::{ReservationEvent, ReservationStep, reported_host_identifier};
use longshore_scsi::unit::Reset;
use longshore_scsi::unit_attention::UnitAttention;

use crate::world::{Ending, World, host_identifier, nvme, out, session_port};

const REGISTER_AND_IGNORE: u8 = 6;

fn register_session(
    world: &mut World,
    nexus: &std::sync::Arc<longshore_scsi::nexus::Nexus>,
    key: u64,
) {
    let (cdb, list) = out(REGISTER_AND_IGNORE, 0, 0, key, false);
    assert_eq!(world.scsi(nexus, &cdb, &list).0, Ending::Success);
}

fn register_host(world: &mut World, controller: &crate::world::Controller, key: u64) {
    let (entry, data) = nvme(0x0d, 0, 0, key);
    assert_eq!(world.nvme(controller, &entry, &data), Ending::Success);
}

#[test]
fn a_persistent_reservation_of_a_session_keeps_hosts_out() {
    let mut world = World::new();
    let (session, host) = (world.session(1), world.controller(1));
    register_session(&mut world, &session, 11);
    // EXCLUSIVE ACCESS
    let (cdb, list) = out(1, 3, 11, 0, false);
    assert_eq!(world.scsi(&session, &cdb, &list).0, Ending::Success);
    assert!(host.host.conflicts(Reads) && host.host.conflicts(Changes));
    register_host(&mut world, &host, 22);
    assert!(host.host.conflicts(Reads), "registered is not enough");
    let (acquire, data) = nvme(0x11, 2 << 8, 22, 0);
    assert_eq!(world.nvme(&host, &acquire, &data), Ending::Conflict);
    let (cdb, list) = out(2, 3, 11, 0, false);
    assert_eq!(world.scsi(&session, &cdb, &list).0, Ending::Success);
    assert!(!host.host.conflicts(Changes));
}

#[test]
fn a_reservation_of_a_host_keeps_sessions_out() {
    let mut world = World::new();
    let (session, host) = (world.session(1), world.controller(1));
    register_host(&mut world, &host, 22);
    // Write Exclusive
    let (acquire, data) = nvme(0x11, 1 << 8, 22, 0);
    assert_eq!(world.nvme(&host, &acquire, &data), Ending::Success);
    assert!(world.session_may(&session, Reads) && !world.session_may(&session, Changes));
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(world.scsi(&session, &write, &[0; 512]).0, Ending::Conflict);
    assert_eq!(world.read_in(&session, 1).1[8..], {
        let mut expected = 22_u64.to_be_bytes().to_vec();
        expected.extend_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0]);
        expected
    });
    let (release, data) = nvme(0x15, 1 << 8, 22, 0);
    assert_eq!(world.nvme(&host, &release, &data), Ending::Success);
    assert!(world.session_may(&session, Changes));
}

#[test]
fn reserve_6_keeps_hosts_out_until_it_is_released_or_reset() {
    let reserve = [0x16, 0, 0, 0, 0, 0];
    let release = [0x17, 0, 0, 0, 0, 0];
    let mut world = World::new();
    let (session, host) = (world.session(1), world.controller(1));
    for ends in 0..3 {
        assert_eq!(world.scsi(&session, &reserve, &[]).0, Ending::Success);
        assert!(host.host.conflicts(Reads) && host.host.conflicts(Changes));
        assert!(host.host.conflicts(Inspects));
        for (opcode, dword) in [(0x0d, 0), (0x11, 1 << 8), (0x15, 1 << 8)] {
            let (entry, data) = nvme(opcode, dword, 0, 22);
            assert_eq!(world.nvme(&host, &entry, &data), Ending::Conflict);
        }
        assert!(world.report().iter().all(|byte| *byte == 0));
        match ends {
            0 => assert_eq!(world.scsi(&session, &release, &[]).0, Ending::Success),
            1 => {
                world.unit.reset(Reset::LogicalUnit);
                session.take_unit_attention();
            }
            _ => world.unit.detach(&session),
        }
        assert!(!host.host.conflicts(Changes));
    }
    let session = world.session(1);
    register_host(&mut world, &host, 22);
    assert_eq!(world.scsi(&session, &reserve, &[]).0, Ending::Conflict);
}

#[test]
fn preempt_and_abort_reaches_commands_of_the_other_protocol() {
    let mut world = World::new();
    let (session, one, again) = (world.session(1), world.controller(1), world.controller(1));
    register_session(&mut world, &session, 11);
    register_host(&mut world, &one, 22);
    let (abort, data) = nvme(0x11, 2 | 2 << 8, 22, 11);
    assert_eq!(world.nvme(&one, &abort, &data), Ending::Success);
    assert_eq!(world.aborted.len(), 1);
    assert!(is_same_participant(&*world.aborted[0], &*session));
    let preempted = Some(UnitAttention::RegistrationsPreempted);
    assert_eq!(session.take_unit_attention(), preempted);
    tasks_cleared_by(&*one.host, &world.aborted);
    let cleared = Some(UnitAttention::CommandsCleared);
    assert_eq!(session.take_unit_attention(), cleared);

    register_session(&mut world, &session, 11);
    let (cdb, list) = out(5, 1, 11, 22, false);
    assert_eq!(world.scsi(&session, &cdb, &list).0, Ending::Success);
    assert_eq!(world.aborted.len(), 2);
    assert!(is_same_participant(&*world.aborted[0], &*one.host));
    assert!(is_same_participant(&*world.aborted[1], &*again.host));
    for controller in [one, again] {
        assert_eq!(controller.log.read(false)[8], 1, "registration preempted");
    }
    assert_eq!(session.take_unit_attention(), None);
}

#[test]
fn each_protocol_reports_registrants_of_the_other() {
    let mut world = World::new();
    let (session, host) = (world.session(1), world.controller(2));
    register_session(&mut world, &session, 11);
    register_host(&mut world, &host, 22);
    // Exclusive Access, All Registrants
    let (acquire, data) = nvme(0x11, 6 << 8, 22, 0);
    assert_eq!(world.nvme(&host, &acquire, &data), Ending::Success);

    let report = world.report();
    assert_eq!((report[4], report[5], report[9]), (6, 2, 0));
    let identifier = reported_host_identifier(&session_port(1).identity());
    for (entry, key, identifier) in [
        (&report[64..128], 11_u64, identifier),
        (&report[128..192], 22, host_identifier(2)),
    ] {
        assert_eq!(entry[..3], [0xff, 0xff, 1]);
        assert_eq!(entry[8..16], key.to_le_bytes());
        assert_eq!(entry[16..32], identifier);
    }

    let keys = world.read_in(&session, 0).1;
    assert_eq!(
        keys[8..],
        [11_u64.to_be_bytes(), 22_u64.to_be_bytes()].concat()
    );
    // A host is no SCSI port: port 0, and no TransportID.
    let full = world.read_in(&session, 3).1;
    let first_length =
        24 + usize::try_from(u32::from_be_bytes(full[28..32].try_into().unwrap())).unwrap();
    let second = &full[8 + first_length..];
    assert_eq!(second[..8], 22_u64.to_be_bytes());
    assert_eq!(
        second[12..14],
        [1, 8],
        "holder, EXCLUSIVE ACCESS ALL REGISTRANTS"
    );
    assert_eq!(second[18..], [0; 6]);
}

#[test]
fn one_change_is_stored_at_a_time_whichever_protocol_asks() {
    let mut world = World::new();
    let (session, host) = (world.session(1), world.controller(2));
    let (entry, data) = nvme(0x0d, 3 << 30, 0, 22);
    let mut storing = world.begin(&host, &entry);
    let step = storing.step(ReservationEvent::Start, &data);
    assert!(matches!(step, ReservationStep::Persist(_)));
    let (cdb, list) = out(REGISTER_AND_IGNORE, 0, 0, 11, true);
    assert_eq!(world.scsi(&session, &cdb, &list).0, Ending::Later);
    let step = storing.step(ReservationEvent::Persisted(true), &[]);
    assert!(matches!(step, ReservationStep::Complete(status) if status.is_success()));
    drop(storing);
    assert_eq!(world.scsi(&session, &cdb, &list).0, Ending::Success);

    let again = World::new();
    again.reservations.restore(&world.stored.unwrap()).unwrap();
    assert_eq!(again.report()[5], 2, "both are stored");
}
