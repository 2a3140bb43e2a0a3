//! Relative target ports, which stored reservations name.

use longshore_tests::initiator::{Data, Initiator};
use longshore_tests::server::ServerBuilder;

use crate::rig::{Rig, TARGET, ask_scsi};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const WRITE_EXCLUSIVE: u8 = 1;

/// PERSISTENT RESERVE OUT with APTPL.
fn out(initiator: &mut Initiator, action: u8, kind: u8, keys: (u64, u64)) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&keys.0.to_be_bytes());
    list[8..16].copy_from_slice(&keys.1.to_be_bytes());
    list[20] = u8::from(action == REGISTER);
    let cdb = [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let (answer, _) = ask_scsi(initiator, &cdb, Data::Out(&list));
    assert!(answer.is_good(), "{answer:?}");
}

/// Registers with APTPL and reserves.
pub fn reserve(initiator: &mut Initiator) {
    out(initiator, REGISTER, 0, (0, 11));
    out(initiator, RESERVE, WRITE_EXCLUSIVE, (11, 0));
}

/// READ FULL STATUS: keys, who holds, relative port, and name of each registration.
pub fn full_status(initiator: &mut Initiator) -> Vec<u8> {
    let cdb = [0x5e, 3, 0, 0, 0, 0, 0, 4, 0, 0];
    let (answer, _) = ask_scsi(initiator, &cdb, Data::In(1024));
    assert!(answer.is_good(), "{answer:?}");
    // Behind the generation, which begins again.
    answer.data[4..].to_vec()
}

fn target(name: &str) -> String {
    format!("\n[[target]]\nname = \"{name}\"\nluns = [{{ lun = 0, volume = \"f0\" }}]\n")
}

#[test]
fn a_target_in_front_of_another_in_the_file_leaves_its_registrations_alone() {
    let mut rig = Rig::new(ServerBuilder::new(), &target(TARGET));
    rig.start_again();
    let mut initiator = rig.initiator(TARGET, 1);
    reserve(&mut initiator);
    let before = full_status(&mut initiator);
    // One registration: 24 bytes and a name, with the port that it came through in bytes 18 and 19.
    assert_eq!(before[4..12], 11_u64.to_be_bytes());
    let port = u16::from_be_bytes([before[4 + 18], before[4 + 19]]);
    assert_ne!(port, 0);
    rig.kill();

    let new = "iqn.2026-11.local.longshore:in-front";
    rig.write_file(&(target(new) + &target(TARGET)));
    rig.start_again();
    let mut initiator = rig.initiator(TARGET, 1);
    assert_eq!(full_status(&mut initiator), before);
    assert!(crate::rig::scsi_write(&mut initiator, 0, 1).is_good());
    // Through the target in front it is another nexus, and has no registration.
    let mut through = rig.initiator(new, 1);
    let conflict = crate::rig::scsi_write(&mut through, 0, 2);
    assert_eq!(conflict.status, 0x18, "{conflict:?}");
    rig.kill();

    // The same again when the new one goes.
    rig.write_file(&target(TARGET));
    rig.start_again();
    assert_eq!(full_status(&mut rig.initiator(TARGET, 1)), before);
}
