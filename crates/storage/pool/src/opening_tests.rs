//! Interruptions while a pool is opened after another one.

use crate::open::{Opening, open_on};
use crate::power_tests::{Scene, chosen};
use crate::testing::{Dice, Disks, Rig};

/// Operations of an opening, at most.
const OPERATIONS: u64 = 600;

/// After how many operations openings are interrupted, before one that is not.
pub(crate) fn openings_cut_short(seed: u64) -> Vec<u64> {
    let mut dice = Dice::new(seed ^ 0x0be9);
    let count = dice.below(3);
    (0..count).map(|_| dice.below(OPERATIONS)).collect()
}

/// Cuts an opening short after `left` operations, by a power cut or by the death of the process. Gives the drives as they
/// are then, and whether the opening had ended before.
pub(crate) fn cut_while_opening(
    mut disks: Disks,
    left: u64,
    members: &[usize],
    is_cut: bool,
    seed: u64,
) -> (Disks, bool) {
    disks.left = left;
    let mut rig = Rig::new(disks);
    let drives = chosen(&rig.disks, members);
    // Where the members were about to change, it may be refused.
    let opened = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
    let disks = rig.into_disks();
    let has_ended = opened.is_some();
    drop(opened);
    let disks = if is_cut {
        disks.cut_power(seed ^ left)
    } else {
        disks.kill(seed ^ left)
    };
    (disks, has_ended)
}

/// A history that ends by itself or by a power cut, and then an opening that is interrupted at each of its operations.
fn cut_at_each_operation_of_opening(seed: u64, drives: usize, is_cut: bool, is_mirror: bool) {
    let mut has_ended = false;
    for left in 0..OPERATIONS {
        let mut scene = Scene::create_as(seed, drives, is_cut, is_mirror);
        scene.rig.disks.left = 300;
        while scene.step().is_some() {}
        has_ended = scene.interrupt_with(seed, &[left]).1;
        if has_ended {
            assert!(
                left > 10,
                "an opening reads superblocks, checkpoint and log"
            );
            break;
        }
    }
    assert!(has_ended, "more than {OPERATIONS} operations");
}

#[test]
fn a_power_cut_at_each_operation_of_recovery_loses_nothing() {
    cut_at_each_operation_of_opening(8_001, 1, true, false);
    cut_at_each_operation_of_opening(8_002, 2, true, false);
    cut_at_each_operation_of_opening(8_003, 2, true, true);
}

#[test]
fn a_death_at_each_operation_of_recovery_loses_nothing() {
    cut_at_each_operation_of_opening(8_101, 1, false, false);
}
