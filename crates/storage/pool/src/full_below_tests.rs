//! Pools in files on a file system that is full.

use crate::log::Failure;
use crate::open::{Opening, open_on};
use crate::power_tests::{DRIVE, Scene, chosen};
use crate::testing::{Disks, Rig};

/// Kills the process, and opens the pool anew.
fn reopen(scene: &mut Scene, is_full_below: bool) {
    scene.open.clear();
    let rig = std::mem::replace(&mut scene.rig, Rig::new(Disks::new(&[DRIVE], 1)));
    let mut disks = rig.into_disks().kill(1);
    disks.is_full_below = is_full_below;
    scene.rig = Rig::new(disks);
    let drives = chosen(&scene.rig.disks, &[0]);
    let opened = scene
        .rig
        .run(|io| async move { open_on(&io, drives, Opening::default()).await });
    scene.pool = opened.expect("power").expect("a pool");
    scene.take("plain");
}

#[test]
fn where_the_file_system_below_is_full_a_pool_opens_for_reading() {
    let mut scene = Scene::create(6, 1, false);
    scene.write("plain", 0, 30, true).expect("power");
    let written: Vec<u32> = (1..=30).collect();
    reopen(&mut scene, true);
    assert_eq!(scene.pool.lock().failed, Some(Failure::ReadOnly));
    assert_eq!(scene.read("plain", 0, 30).expect("read"), written);
    reopen(&mut scene, false);
    assert_eq!(scene.pool.lock().failed, None);
    scene.write("plain", 0, 10, true).expect("power");
    let found = scene.read("plain", 0, 30).expect("read");
    assert_eq!(found[..10], (31..=40).collect::<Vec<u32>>());
    assert_eq!(found[10..], written[10..]);
}
