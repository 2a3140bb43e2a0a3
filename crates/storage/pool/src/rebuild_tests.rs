//! Pools that do not open are put together: from an older checkpoint, from records, without superblocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_volume::{Operation, Request};

use crate::catalog::Catalog;
use crate::error::PoolError;
use crate::format::op::{Op, SnapshotMember, VolumeRecord};
use crate::format::record::{LayerId, PartKind, RecordHeader};
use crate::format::superblock::{LENGTH, SEGMENT_MIN, Superblock, copies};
use crate::format::{PAGE, RESERVED_BYTES, long, short};
use crate::open::{Opening, open_on};
use crate::place::Codec;
use crate::power_tests::{BLOCKS, Scene, chosen};
use crate::rebuild::{Rebuild, Rebuilt, rebuild_on};
use crate::segments::Segments;
use crate::state::State;
use crate::testing::{Disks, Planted, Rig, plant};

/// Bytes of segments of the drives of these tests.
const SEGMENT: usize = 1 << 20;

/// Fills the places of a drive.
fn wipe(disks: &mut Disks, drive: usize, at: usize, length: usize) {
    disks.damage(drive, at..at + length, |bytes| bytes.fill(0xa5));
}

/// The places of the newest checkpoint: disks, and where on them.
fn newest_checkpoint(scene: &Scene) -> Vec<(usize, usize)> {
    let segments = scene.pool.newest().segments;
    let places = segments.iter().map(|segment| {
        let place = scene.pool.lock().state.segments.place(*segment);
        let drive = scene.pool.drive(place).expect("it is there");
        let name = drive.path.display().to_string();
        let number = name.trim_start_matches("drive-").parse().expect("a number");
        (number, short(place.offset()))
    });
    places.collect()
}

/// Places of all parts of checkpoints that are left.
fn all_checkpoints(disks: &Disks, members: &[usize]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for drive in members {
        let contents = disks.contents(*drive);
        let begin = short(RESERVED_BYTES);
        let parts = (begin..contents.len()).step_by(256 << 10);
        places.extend(
            parts
                .filter(|at| contents[*at..].starts_with(b"LS-CKPT1"))
                .map(|at| (*drive, at)),
        );
    }
    places
}

/// A history after which the process was killed, and its drives are damaged.
struct Broken {
    scene: Scene,
}

impl Broken {
    fn new(seed: u64, steps: u32) -> Self {
        let mut scene = Scene::create(seed, 1 + short(seed % 2), false);
        for _ in 0..steps {
            scene.step().expect("power");
        }
        Self { scene }
    }

    /// The drives after the death of the process.
    fn disks(self, seed: u64, damage: impl FnOnce(&mut Disks)) -> (Rig, Left) {
        let Scene {
            rig,
            pool,
            open,
            model,
            written,
            members,
            ..
        } = self.scene;
        let disks = rig.into_disks();
        drop((open, pool));
        let mut disks = disks.kill(seed);
        damage(&mut disks);
        let left = Left {
            model,
            written,
            members,
        };
        (Rig::new(disks), left)
    }
}

/// What is known of drives without their pool.
struct Left {
    model: crate::power_tests::Model,
    written: BTreeMap<u32, u64>,
    members: Vec<usize>,
}

impl Left {
    fn rebuild(&self, rig: &mut Rig, wanted: Rebuild) -> Result<Rebuilt, PoolError> {
        let drives = chosen(&rig.disks, &self.members);
        let built =
            rig.run(|io| async move { rebuild_on(&io, drives, wanted, false, |_, _| {}).await });
        built.expect("power")
    }

    fn open(&self, rig: &mut Rig) -> Result<Arc<crate::Pool>, PoolError> {
        let drives = chosen(&rig.disks, &self.members);
        let opened = rig.run(|io| async move { open_on(&io, drives, Opening::default()).await });
        opened.expect("power")
    }

    /// The pool opens, and is in use again.
    fn scene(self, mut rig: Rig, seed: u64) -> Scene {
        let pool = self.open(&mut rig);
        let pool = pool.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut scene = Scene::of(rig, pool, self.model, self.members);
        scene.is_mirror = false;
        // Values are told apart from those before.
        scene.value = self.written.keys().last().map_or(0, |last| last + 1);
        scene.written = self.written;
        scene
    }
}

/// What a rebuild that lost something has is of the blocks where it is.
fn compare_rest(scene: &mut Scene, seed: u64) {
    let names = scene.pool.volumes().into_iter().map(|it| it.name);
    for name in names.collect::<Vec<_>>() {
        scene.take(&name);
        for first in (0..BLOCKS).step_by(8) {
            let Ok(values) = scene.read(&name, first, 8) else {
                continue;
            };
            for (block, value) in (first..).zip(values) {
                let is_of_it = value == 0 || scene.written.get(&value) == Some(&block);
                assert!(is_of_it, "seed {seed}: {name}, block {block}: {value}");
            }
        }
    }
    // It takes writes, and opens again.
    let names: Vec<String> = scene.open.keys().cloned().collect();
    for name in &names {
        scene.model.volumes.entry(name.clone()).or_default();
        scene.write(name, 0, 16, true).expect("power");
        let values = scene.read(name, 0, 16).expect("what was written");
        assert_eq!(values.last().copied(), Some(scene.value), "seed {seed}");
    }
}

/// Damages drives after a history, and rebuilds the pool. Returns whether it was whole.
fn rebuild(
    broken: Broken,
    seed: u64,
    damage: impl Fn(&mut Disks, &[(usize, usize)], &[usize]),
) -> bool {
    let newest = newest_checkpoint(&broken.scene);
    let members = broken.scene.members.clone();
    let (mut rig, left) = broken.disks(seed, |disks| damage(disks, &newest, &members));
    match left.open(&mut rig) {
        Ok(_) => panic!("seed {seed}: it is not damaged"),
        Err(refused) => assert!(refused.is_damage(), "seed {seed}: {refused}"),
    }
    let before = rig.disks.contents(members[0]).to_vec();
    let looked = left.rebuild(&mut rig, Rebuild::Look);
    let looked = looked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(!looked.is_written && !looked.report.is_sound());
    let after = rig.disks.contents(members[0]);
    assert!(before == after, "a look writes nothing");
    let built = left.rebuild(&mut rig, Rebuild::Whole).expect("a rebuild");
    assert_eq!(built.is_whole, looked.is_whole, "seed {seed}");
    if built.is_whole {
        let mut scene = left.scene(rig, seed);
        scene.compare();
        for _ in 0..10 {
            scene.step().expect("power");
        }
        scene.interrupt(seed);
        return true;
    }
    assert!(!built.is_written, "seed {seed}");
    assert!(
        left.open(&mut rig).is_err(),
        "seed {seed}: nothing was written"
    );
    let built = left.rebuild(&mut rig, Rebuild::Rest);
    let built = built.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert!(built.is_written, "seed {seed}");
    compare_rest(&mut left.scene(rig, seed), seed);
    false
}

/// The same for many histories. Returns how many pools were whole, and how many were not.
fn run(
    seeds: std::ops::Range<u64>,
    steps: u32,
    damage: impl Fn(&mut Disks, &[(usize, usize)], &[usize]),
) -> (u32, u32) {
    let (mut whole, mut rest) = (0, 0);
    for seed in seeds {
        match rebuild(Broken::new(seed, steps), seed, &damage) {
            true => whole += 1,
            false => rest += 1,
        }
    }
    (whole, rest)
}

/// Records on drives: number, disk, and place there.
fn records(
    disks: &Disks,
    members: &[usize],
    is_it: impl Fn(&RecordHeader) -> bool,
) -> Vec<(u64, usize, usize)> {
    let mut found = Vec::new();
    for drive in members {
        let contents = disks.contents(*drive);
        for at in (short(RESERVED_BYTES)..contents.len() - (64 << 10)).step_by(512) {
            if let Ok(header) = RecordHeader::decode(&contents[at..at + (64 << 10)])
                && is_it(&header)
            {
                found.push((header.number, *drive, at));
            }
        }
    }
    found.sort_unstable();
    found
}

fn without_newest(disks: &mut Disks, newest: &[(usize, usize)], _: &[usize]) {
    for (drive, at) in newest {
        wipe(disks, *drive, *at, SEGMENT);
    }
}

#[test]
fn the_checkpoint_before_and_all_records_since_take_the_place_of_a_damaged_one() {
    let (whole, rest) = run(100..140, 40, without_newest);
    assert!(whole >= 10 && rest > 0, "{whole} whole, {rest} not");
}

/// Zeros behind the checkpoint before the newest, whose record is gone, and the one after it.
fn lose_zeros() -> bool {
    let mut scene = Scene::create(1, 1, false);
    let checkpoint = |scene: &mut Scene| {
        let pool = scene.pool.clone();
        let made = scene
            .rig
            .run(|io| async move { crate::clean::checkpoint_now(&pool, &io).await });
        made.expect("power").expect("a checkpoint");
    };
    scene.write("plain", 0, 64, true).expect("power");
    checkpoint(&mut scene);
    scene.zero("plain", 0, 64, true).expect("power");
    scene.write("packed", 0, 8, true).expect("power");
    scene.write("packed", 8, 8, true).expect("power");
    checkpoint(&mut scene);
    rebuild(Broken { scene }, 1, |disks, newest, members| {
        let has_zeros = |header: &RecordHeader| {
            let mut parts = header.parts.iter();
            parts.any(|part| matches!(part.kind, PartKind::Zero { .. }))
        };
        let zeros = records(disks, members, has_zeros);
        let number = zeros.last().expect("a record of zeros").0;
        let is_lost = |header: &RecordHeader| (number..=number + 1).contains(&header.number);
        for (_, drive, at) in records(disks, members, is_lost) {
            wipe(disks, drive, at, 512);
        }
        without_newest(disks, newest, members);
    })
}

#[test]
fn a_pool_is_not_called_whole_without_the_records_of_zeros() {
    assert!(!lose_zeros());
    plant(Some(Planted::ForgetsMissing));
    let result = std::panic::catch_unwind(lose_zeros);
    plant(None);
    assert!(result.is_err(), "records that are missing are noticed");
}

#[test]
fn a_checkpoint_of_which_a_sector_is_damaged_is_not_needed() {
    let (whole, _) = run(200..215, 40, |disks, newest, _| {
        let (drive, at) = newest[0];
        wipe(disks, drive, at + 100, 8);
    });
    assert!(whole >= 5, "{whole} whole");
}

#[test]
fn without_any_checkpoint_records_tell_what_was_written() {
    let (whole, rest) = run(300..320, 40, |disks, _, members| {
        for (drive, at) in all_checkpoints(disks, members) {
            wipe(disks, drive, at, PAGE);
        }
    });
    assert_eq!((whole, rest), (0, 20), "what was zeroed is not known");
}

/// Damages all superblocks of a drive.
fn without_superblocks(disks: &mut Disks, drive: usize) {
    for at in copies(long(disks.contents(drive).len())).concat() {
        wipe(disks, drive, short(at), LENGTH);
    }
}

#[test]
fn a_drive_without_superblocks_is_known_by_its_segments() {
    let mut seen = 0;
    for seed in 400..420 {
        let broken = Broken::new(seed, 30);
        // Another drive knows which checkpoint counted.
        if broken.scene.members.len() > 1 {
            seen += 1;
            let is_whole = rebuild(broken, seed, |disks, _, members| {
                without_superblocks(disks, members[0]);
            });
            assert!(is_whole, "seed {seed}");
        }
    }
    assert!(seen > 5, "{seen}");
}

#[test]
fn a_pool_without_any_superblock_is_known_by_its_segments() {
    for seed in 500..515 {
        let (mut rig, left) = Broken::new(seed, 30).disks(seed, |_| {});
        for drive in &left.members {
            without_superblocks(&mut rig.disks, *drive);
        }
        // No superblock tells which checkpoint counted.
        let built = left.rebuild(&mut rig, Rebuild::Whole).expect("a rebuild");
        assert!(!built.is_whole && !built.is_written, "seed {seed}");
        let built = left.rebuild(&mut rig, Rebuild::Rest).expect("a rebuild");
        assert!(built.is_written && built.is_sound, "seed {seed}");
        let mut scene = left.scene(rig, seed);
        scene.compare();
        for _ in 0..10 {
            scene.step().expect("power");
        }
        scene.interrupt(seed);
    }
}

#[test]
fn two_damaged_records_in_a_row_are_named_and_the_rest_is_there() {
    for seed in 600..620 {
        let mut broken = Broken::new(seed, 30);
        let write = |scene: &mut Scene| scene.write("plain", 0, 8, true).expect("power");
        (0..4).for_each(|_| write(&mut broken.scene));
        let flush = Request::new(Operation::Flush);
        let flushed = broken.scene.execute("plain", flush).expect("power");
        flushed.result.expect("a flush");
        (0..2).for_each(|_| write(&mut broken.scene));
        let is_whole = rebuild(broken, seed, |disks, _, members| {
            let found = records(disks, members, |_| true);
            for (_, drive, at) in &found[found.len() - 4..found.len() - 2] {
                wipe(disks, *drive, *at, 512);
            }
        });
        assert!(!is_whole, "seed {seed}");
    }
}

/// Changes all superblocks of drives.
fn change_superblocks(disks: &mut Disks, drives: &[usize], change: impl Fn(&mut [u8])) {
    for drive in drives {
        for at in copies(long(disks.contents(*drive).len())).concat() {
            let at = short(at);
            disks.damage(*drive, at..at + LENGTH, |bytes| {
                change(bytes);
                let sum = crate::format::crc(&bytes[..LENGTH - 4]);
                bytes[LENGTH - 4..].copy_from_slice(&sum.to_le_bytes());
            });
        }
    }
}

#[test]
fn a_pool_of_a_later_version_is_not_put_together() {
    // Of the incompatible features, and of those that a version has to know to write.
    for (place, wanted) in [
        (15, Rebuild::Look),
        (15, Rebuild::Rest),
        (23, Rebuild::Rest),
    ] {
        let broken = Broken::new(700, 10);
        let newest = newest_checkpoint(&broken.scene);
        let members = broken.scene.members.clone();
        let (mut rig, left) = broken.disks(700, |disks| {
            change_superblocks(disks, &members, |bytes| bytes[place] |= 0x80);
            without_newest(disks, &newest, &members);
        });
        let refused = left.rebuild(&mut rig, wanted).expect_err("a later version");
        assert!(refused.to_string().contains("later version"), "{refused}");
    }
}

#[test]
fn a_pool_is_not_called_whole_if_nothing_tells_how_much_its_lost_checkpoint_had() {
    // Where the drives have just changed, the checkpoint before is of no use.
    let whole = (100..140).find_map(|seed| {
        let broken = Broken::new(seed, 40);
        let newest = newest_checkpoint(&broken.scene);
        let members = broken.scene.members.clone();
        let (mut rig, left) = broken.disks(seed, |disks| without_newest(disks, &newest, &members));
        let told = left.rebuild(&mut rig, Rebuild::Look).expect("a look");
        told.is_whole.then_some((rig, left))
    });
    let (mut rig, left) = whole.expect("most of them are whole");
    // As earlier versions wrote them.
    change_superblocks(&mut rig.disks, &left.members, |bytes| {
        let mut superblock = Superblock::decode(bytes).expect("a superblock");
        superblock.checkpoint_record = 0;
        bytes.copy_from_slice(&superblock.encode());
    });
    let untold = left.rebuild(&mut rig, Rebuild::Look).expect("a look");
    assert!(!untold.is_whole);
}

#[test]
fn a_drive_that_was_taken_out_of_the_pool_is_not_taken_for_one_of_it() {
    let seed = (400..420).find(|seed| Broken::new(*seed, 30).scene.members.len() > 1);
    let seed = seed.expect("a pool of two drives");
    let broken = Broken::new(seed, 30);
    let members = broken.scene.members.clone();
    let (mut rig, left) = broken.disks(seed, |disks| {
        for at in copies(long(disks.contents(members[0]).len())).concat() {
            disks.damage(members[0], short(at)..short(at) + LENGTH, |bytes| {
                bytes.fill(0)
            });
        }
    });
    let refused = left.rebuild(&mut rig, Rebuild::Look);
    assert!(
        matches!(refused, Err(PoolError::NoPool { .. })),
        "{refused:?}"
    );
}

#[test]
fn changes_that_name_a_layer_of_before_leave_no_circle() {
    let volume = |name: &str| VolumeRecord {
        name: name.into(),
        id: uuid::Uuid::nil(),
        size: 1 << 20,
        block_size: 512,
        codec: Codec::Raw,
        quota: 0,
        reserve: 0,
        head: LayerId(1),
    };
    let snapshot = |name: &str, heads: &[u32]| Op::Snapshot {
        name: name.into(),
        members: heads
            .iter()
            .map(|head| SnapshotMember {
                volume: "a".into(),
                id: uuid::Uuid::nil(),
                head: LayerId(*head),
            })
            .collect(),
    };
    let delete = |name: &str| Op::DeleteSnapshot {
        volume: "a".into(),
        name: name.into(),
    };
    let mut state = State {
        catalog: Catalog::default(),
        segments: Segments::new(Vec::new(), SEGMENT_MIN),
        applied: 0,
    };
    for op in [
        Op::CreateVolume(volume("a")),
        snapshot("twice", &[5, 5]),
        snapshot("one", &[2]),
        delete("one"),
        snapshot("two", &[1]),
        delete("two"),
    ] {
        state.apply_op(&op);
        assert!(state.catalog.is_sound(), "{op:?}");
        state.tidy_whole();
        assert!(state.catalog.is_sound(), "{op:?}");
    }
    assert_eq!(state.catalog.current(LayerId(1)), LayerId(2));
}

#[test]
fn a_side_of_a_mirror_that_may_lack_something_is_not_called_whole() {
    let mut scene = Scene::create_as(701, 2, false, true);
    for _ in 0..20 {
        scene.step().expect("power");
    }
    let newest = newest_checkpoint(&scene);
    let (mut rig, mut left) = Broken { scene }.disks(701, |disks| {
        for drive in [0, 1] {
            wipe(disks, drive, newest[0].1, SEGMENT);
        }
    });
    let both = left.rebuild(&mut rig, Rebuild::Look).expect("a look");
    left.members.truncate(1);
    let one = left.rebuild(&mut rig, Rebuild::Look).expect("a look");
    assert!(both.is_whole, "{:?}", both.report.findings);
    assert!(!one.is_whole);
}
