//! Power cuts of pools that are nearly full, whose segments are handed out by records.

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Extent, Operation, Request};

use crate::format::op::Op;
use crate::format::record::{PartKind, RecordHeader};
use crate::open::{Opening, open_on};
use crate::place::Codec;
use crate::power_tests::{BLOCKS, Scene, chosen};
use crate::testing::{Blocks, Dice, Planted, Rig, handed_out, plant};
use crate::{NewVolume, PoolError};

/// Bytes of a volume that leaves little room, and those that are written to it at once.
const BALLAST: u64 = 9 << 20;
const PIECE: u64 = 64 << 10;

/// Writes to the ballast, with bytes that cannot be compressed.
fn weigh(scene: &mut Scene, at: u64, dice: &mut Dice) -> Option<()> {
    let length = usize::try_from(PIECE).expect("64 KiB");
    let mut request = Request::new(Operation::Write {
        extent: Extent::new(at / 512, PIECE / 512),
        fua: false,
    });
    let mut buffer = Buffer::allocate(length);
    for word in buffer.chunks_mut(8) {
        word.copy_from_slice(&dice.roll().to_le_bytes());
    }
    request.buffer = Some(buffer);
    request.end = length;
    let ended = scene.execute("ballast", request)?;
    ended.result.expect("written");
    Some(())
}

fn flush(scene: &mut Scene) -> Option<()> {
    let ended = scene.execute("plain", Request::new(Operation::Flush))?;
    ended.result.expect("a flush");
    scene.model.volumes.values_mut().for_each(Blocks::flush);
    Some(())
}

fn step(scene: &mut Scene, dice: &mut Dice) -> Option<()> {
    match dice.below(8) {
        0 => flush(scene),
        1 => {
            let at = dice.below(BALLAST / PIECE) * PIECE;
            weigh(scene, at, dice)
        }
        2 => {
            let first = dice.below(BLOCKS - 64);
            scene.zero("plain", first, 64, dice.once_in(3))
        }
        _ => {
            let count = 1 + dice.below(160);
            let first = dice.below(BLOCKS - count);
            scene.write("plain", first, count, dice.once_in(4))
        }
    }
}

/// A pool whose ballast leaves little room.
fn scarce(seed: u64, is_cut: bool, dice: &mut Dice) -> Scene {
    let mut scene = Scene::create(seed * 4, 1, is_cut);
    let new = NewVolume {
        name: "ballast".into(),
        size: BALLAST,
        block_size: 512,
        codec: Codec::Raw,
        quota: None,
        reserve: 0,
        id: None,
    };
    let pool = scene.pool.clone();
    let made = scene
        .rig
        .run(|io| async move { pool.create_volume(&io, new).await });
    made.expect("power").expect("a volume");
    scene.take("ballast");
    for at in (0..BALLAST).step_by(64 << 10) {
        weigh(&mut scene, at, dice).expect("power");
    }
    scene
}

/// Where the records lie that hand out segments, and their numbers.
pub(crate) fn records_of_hand_outs(contents: &[u8]) -> Vec<(u64, usize)> {
    let mut found = Vec::new();
    for at in (0..contents.len()).step_by(4096) {
        let Ok(header) = RecordHeader::decode(&contents[at..]) else {
            continue;
        };
        let payload = at + usize::try_from(header.header_length).expect("16 KiB");
        let hands_out = header.parts.iter().any(|part| {
            let begin = payload + usize::try_from(part.offset).expect("a MiB");
            let end = begin + usize::try_from(part.length).expect("a MiB");
            let bytes = contents.get(begin..end).unwrap_or_default();
            matches!(part.kind, PartKind::Op { .. })
                && matches!(Op::decode(bytes), Ok(Op::HandOut { .. }))
        });
        if hands_out {
            found.push((header.number, at));
        }
    }
    found.sort_unstable();
    found
}

/// Whether a pool on a copy of the drives is refused, because a record is lost.
fn is_refused(scene: &Scene, seed: u64) -> bool {
    let mut rig = Rig::new(scene.rig.disks.copy(seed).kill(seed));
    let drives = chosen(&rig.disks, &scene.members);
    let opened = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
    matches!(opened.expect("power"), Err(PoolError::RecordLost { .. }))
}

#[test]
fn a_damaged_record_that_hands_out_segments_hides_nothing() {
    let (mut damaged, mut refused) = (0, 0);
    for seed in 50..74 {
        let mut dice = Dice::new(seed);
        let mut scene = scarce(seed, false, &mut dice);
        let before = handed_out();
        while handed_out() < before + 12 {
            step(&mut scene, &mut dice).expect("power");
        }
        let newest = scene.pool.newest_record();
        let found = records_of_hand_outs(scene.rig.disks.contents(0));
        let found = found.into_iter().filter(|(number, _)| *number > newest);
        // The first ones hand out the segments that hold most of what follows, and are there twice.
        let pair: Vec<usize> = found.map(|(_, at)| at).take(2).collect();
        let disks = &mut scene.rig.disks;
        let mut damage = |at: usize, length| disks.damage(0, at..at + length, |it| it.fill(0));
        match (seed % 3, &pair[..]) {
            // One header.
            (0, [at, _]) | (1, [_, at]) => damage(*at, 512),
            // Both, with what they hold.
            (_, [one, other]) => {
                damage(*one, 8192);
                damage(*other, 8192);
            }
            _ => continue,
        }
        damaged += 1;
        if seed % 3 == 2 && is_refused(&scene, seed) {
            refused += 1;
            continue;
        }
        scene.interrupt(seed);
    }
    assert!(damaged > 10, "{damaged}");
    assert!(refused > 0, "{refused}");
}

/// Runs histories whose power goes after `least` operations of the drive, or more. Returns how many segments records
/// handed out.
fn run_histories(seeds: std::ops::Range<u64>, least: u64) -> u64 {
    let before = handed_out();
    for seed in seeds {
        let mut dice = Dice::new(seed ^ 0x51e9);
        let mut scene = scarce(seed, true, &mut dice);
        for round in 0..3 {
            scene.rig.disks.left = least + dice.below(2000);
            while step(&mut scene, &mut dice).is_some() {}
            scene = scene.interrupt(seed << 8 | round);
            scene.take("ballast");
        }
    }
    handed_out() - before
}

#[test]
fn segments_that_records_hand_out_survive_power_cuts() {
    let count = run_histories(1..30, 300);
    assert!(count > 100, "{count} segments were handed out by records");
}

#[test]
fn a_log_far_longer_than_what_the_checkpoint_handed_out_is_read() {
    let count = run_histories(30..32, 20_000);
    assert!(count > 300, "{count} segments were handed out by records");
}

#[test]
fn planted_faults_of_reuse_are_found() {
    for fault in [
        // Segments have to be used again and again for it to show.
        Planted::NoGenerationCheck,
        Planted::HandsOutEarly,
        Planted::HandsOutNeeded,
        Planted::ForgetsHandOuts,
    ] {
        plant(Some(fault));
        let result = std::panic::catch_unwind(|| run_histories(1..200, 300));
        plant(None);
        assert!(result.is_err(), "{fault:?}");
    }
}
