//! Reservation commands through a queue. What they decide has its tests beside `crate::reservation`.

use super::*;

fn with_dword(opcode: Opcode, dword: u32) -> SubmissionEntry {
    let mut entry = plain(opcode);
    entry.set_dword(10, dword);
    entry
}

fn keys(current: u64, other: u64) -> Vec<u8> {
    [current.to_le_bytes(), other.to_le_bytes()].concat()
}

/// Two hosts at one namespace: the media of the second are never used.
fn two_hosts() -> (World, World) {
    let one = World::new();
    let other = World::with(vec![one.namespaces[0].seen_by(2)]);
    (one, other)
}

const REGISTER: Opcode = io::RESERVATION_REGISTER;
const ACQUIRE: Opcode = io::RESERVATION_ACQUIRE;
const RELEASE: Opcode = io::RESERVATION_RELEASE;
const EXCLUSIVE_ACCESS: u32 = 2 << 8;

#[test]
fn a_reservation_shuts_other_hosts_out_until_it_is_released() {
    let (mut one, mut other) = two_hosts();
    let write = ranged(io::WRITE, 0, 1);
    let data = pattern(1, 1);
    assert!(
        one.run(&with_dword(REGISTER, 0), &keys(0, 5))
            .status()
            .is_success()
    );
    let acquire = with_dword(ACQUIRE, EXCLUSIVE_ACCESS);
    assert!(one.run(&acquire, &keys(5, 0)).status().is_success());
    assert!(one.run(&write, &data).status().is_success());
    assert_refused(&other.run(&write, &data), Status::RESERVATION_CONFLICT);
    assert_refused(
        &other.read(&ranged(io::READ, 0, 1)),
        Status::RESERVATION_CONFLICT,
    );
    assert!(other.log.is_empty());
    let release = with_dword(RELEASE, EXCLUSIVE_ACCESS);
    assert!(one.run(&release, &keys(5, 0)[..8]).status().is_success());
    assert!(other.run(&write, &data).status().is_success());
}

#[test]
fn what_persists_is_stored_before_the_command_completes() {
    let mut world = World::new();
    let persist = 3 << 30;
    let answer = world.run(&with_dword(REGISTER, persist), &keys(0, 5));
    assert!(answer.status().is_success());
    assert_eq!(world.stored.len(), 1);
}

#[test]
fn preempt_and_abort_aborts_the_commands_of_the_preempted() {
    let (mut one, mut other) = two_hosts();
    assert!(
        one.run(&with_dword(REGISTER, 0), &keys(0, 5))
            .status()
            .is_success()
    );
    assert!(
        other
            .run(&with_dword(REGISTER, 0), &keys(0, 6))
            .status()
            .is_success()
    );
    let acquire = with_dword(ACQUIRE, EXCLUSIVE_ACCESS);
    assert!(one.run(&acquire, &keys(5, 0)).status().is_success());
    let preempt_and_abort = with_dword(ACQUIRE, EXCLUSIVE_ACCESS | 2);
    assert!(
        other
            .run(&preempt_and_abort, &keys(6, 5))
            .status()
            .is_success()
    );
    assert_eq!(other.aborted, 1);
    let read = ranged(io::READ, 0, 1);
    assert_refused(&one.read(&read), Status::RESERVATION_CONFLICT);
    assert!(other.read(&read).status().is_success());
}

#[test]
fn too_little_data_is_refused_and_more_is_skipped() {
    let mut world = World::new();
    for (opcode, length) in [(REGISTER, 15), (ACQUIRE, 15), (RELEASE, 7)] {
        let entry = with_dword(opcode, EXCLUSIVE_ACCESS * u32::from(opcode != REGISTER));
        let answer = world.run_with_length(&entry, &[], length);
        assert_refused(&answer, Status::DATA_SGL_LENGTH_INVALID);
    }
    let mut data = keys(0, 5);
    data.resize(4096, 0xff);
    assert!(
        world
            .run(&with_dword(REGISTER, 0), &data)
            .status()
            .is_success()
    );
}

/// NUMD and the extended data structure.
fn report(bytes: u32) -> SubmissionEntry {
    set_bit(with_dword(io::RESERVATION_REPORT, bytes / 4 - 1), 11, 0)
}

#[test]
fn a_report_has_the_length_the_host_asks_for() {
    let mut world = World::new();
    assert!(
        world
            .run(&with_dword(REGISTER, 0), &keys(0, 5))
            .status()
            .is_success()
    );
    let whole = world.run_with_length(&report(4096), &[], 4096);
    assert!(whole.status().is_success());
    assert_eq!(whole.data.len(), 4096);
    assert_eq!(whole.data[64 + 8..64 + 16], 5_u64.to_le_bytes());
    let short = world.run_with_length(&report(72), &[], 4096);
    assert_eq!(short.data, whole.data[..72]);
    let answer = world.run_with_length(&report(72), &[], 71);
    assert_refused(&answer, Status::DATA_SGL_LENGTH_INVALID);
}

#[test]
fn a_report_longer_than_mdts_is_an_invalid_field() {
    let mut world = World::new();
    let most = 256 * BLOCK as u32;
    let answer = world.run_with_length(&report(most), &[], u32::MAX);
    assert_eq!(answer.data.len(), most as usize);
    let answer = world.run_with_length(&report(most + 4), &[], u32::MAX);
    assert_refused(&answer, Status::INVALID_FIELD);
}
