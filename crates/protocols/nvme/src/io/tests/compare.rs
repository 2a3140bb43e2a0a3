//! Compare, alone.

use super::*;

#[test]
fn equal_data_compares() {
    let mut world = World::new();
    let data = world.read_back(20, 200).to_vec();
    assert!(
        world
            .run(&ranged(io::COMPARE, 20, 200), &data)
            .status()
            .is_success()
    );
}

#[test]
fn any_byte_that_differs_is_a_compare_failure() {
    let mut world = World::new();
    let data = world.read_back(20, 200).to_vec();
    for at in [0, 511, 100_000, data.len() - 1] {
        let mut data = data.clone();
        data[at] ^= 0x80;
        let answer = world.run(&ranged(io::COMPARE, 20, 200), &data);
        assert_refused(&answer, Status::COMPARE_FAILURE);
    }
}

#[test]
fn a_read_error_is_no_compare_failure() {
    let mut world = World::new();
    world.fail(0, MediaError::Io);
    let answer = world.run(&ranged(io::COMPARE, 0, 1), &[0; BLOCK]);
    assert_eq!(answer.status(), Status::UNRECOVERED_READ_ERROR);
}
