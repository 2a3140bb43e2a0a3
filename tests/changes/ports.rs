//! Relative target ports, which stored reservations name.

use longshore_tests::initiator::{Data, Initiator};
use longshore_tests::server::ServerBuilder;

use crate::rig::{Rig, TARGET, ask_scsi, wait_for};

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

fn with_port(name: &str, port: &str) -> String {
    format!("{}relative-port = {port}\n", target(name))
}

/// The relative target port that INQUIRY page 83h tells.
fn told(initiator: &mut Initiator) -> u16 {
    let (answer, _) = ask_scsi(initiator, &[0x12, 1, 0x83, 1, 0, 0], Data::In(256));
    let mut rest = &answer.data[4..];
    while let [_, kind, _, length, after @ ..] = rest {
        let (value, next) = after.split_at(usize::from(*length));
        if kind & 0x3f == 0x14 {
            return u16::from_be_bytes([value[2], value[3]]);
        }
        rest = next;
    }
    panic!("no relative target port in {:?}", answer.data);
}

/// The ports that REPORT TARGET PORT GROUPS lists.
fn listed(initiator: &mut Initiator) -> Vec<u16> {
    let cdb = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let (answer, _) = ask_scsi(initiator, &cdb, Data::In(256));
    let ports = answer.data[12..].chunks_exact(4);
    ports
        .map(|port| u16::from_be_bytes([port[2], port[3]]))
        .collect()
}

#[test]
fn initiators_are_told_the_relative_port_of_the_configuration_and_reservations_name_it() {
    let mut rig = Rig::new(ServerBuilder::new(), &with_port(TARGET, "{ 1 = 300 }"));
    rig.start_again();
    let mut initiator = rig.initiator(TARGET, 1);
    assert_eq!(told(&mut initiator), 300);
    reserve(&mut initiator);
    let status = full_status(&mut initiator);
    assert_eq!(u16::from_be_bytes([status[4 + 18], status[4 + 19]]), 300);
    rig.kill();

    // The key is for the first time: the port keeps its number.
    rig.write_file(&target(TARGET));
    rig.start_again();
    assert_eq!(full_status(&mut rig.initiator(TARGET, 1)), status);
}

#[test]
fn a_change_of_the_relative_port_ends_sessions_and_never_takes_that_of_another_target() {
    let rig = Rig::start(&with_port(TARGET, "300"));
    let file = rig.path("longshore.toml");
    let other = "iqn.2026-11.local.longshore:other";

    // A number that is another target's, by its key and by the table of numbers.
    rig.write_file(&(with_port(TARGET, "300") + &with_port(other, "300")));
    let refused = rig.verb(&["plan", &file]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let expected = format!("relative target port 300 is a port of target {TARGET} already");
    assert!(refused.stderr.contains(&expected), "{}", refused.stderr);
    rig.write_file(&(target(TARGET) + &with_port(other, "300")));
    let refused = rig.verb(&["apply", &file]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("`relative-port`"),
        "{}",
        refused.stderr
    );

    // Another number is another port: who uses it logs in again.
    let mut initiator = rig.initiator(TARGET, 1);
    assert_eq!(told(&mut initiator), 300);
    assert_eq!(listed(&mut initiator), [300]);
    rig.write_file(&with_port(TARGET, "301"));
    let refused = rig.verb(&["apply", &file]);
    assert!(
        refused.stderr.contains("uses a port of"),
        "{}",
        refused.stderr
    );
    rig.verb(&["apply", &file, "--drain"]).expect(0);
    wait_for("the end of the session", || {
        let sessions = rig.show(&["session", "list"]);
        let text = sessions.to_string();
        !text.contains("tests-1")
    });
    let mut initiator = rig.initiator(TARGET, 1);
    assert_eq!(told(&mut initiator), 301);
    assert_eq!(
        listed(&mut initiator),
        [301],
        "a port that is gone is not listed"
    );
    rig.verb(&["plan", &file]).expect(0);
}
