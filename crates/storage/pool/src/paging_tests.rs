//! Maps of which only a part is in memory.

use std::sync::Arc;

use longshore_volume::testing::{TestStorage, VolumeClient};
use longshore_volume::{VolumeError, VolumeSpec};

use crate::map::Slot;
use crate::place::Place;
use crate::testing::set_cache_room;
use crate::tests::Scene;
use crate::{NewPool, POOL, Pool};

/// Leaves that fit in memory.
const ROOM: usize = 24;
const LEAF: u64 = 2 << 20;

/// Pools of this thread have room for few leaves, until this is dropped.
struct Narrow;

impl Narrow {
    fn new() -> Self {
        set_cache_room(Some(ROOM));
        Self
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        set_cache_room(None);
    }
}

fn client<'a>(
    pool: &Arc<Pool>,
    name: &str,
    size: Option<u64>,
    storage: &'a mut TestStorage,
) -> VolumeClient<'a> {
    let spec = VolumeSpec {
        size,
        block_size: 4096,
        ..VolumeSpec::new(name, POOL)
    };
    VolumeClient::new(pool.open_volume(&spec).expect("a volume"), storage)
}

fn page(number: u64) -> [u8; 4096] {
    let mut page = [7; 4096];
    page[..8].copy_from_slice(&number.to_le_bytes());
    page
}

fn resident(pool: &Pool) -> (usize, usize) {
    let inner = pool.lock();
    let cache = &inner.state.catalog.cache;
    (cache.resident, cache.dirty)
}

/// Makes a checkpoint, so that nothing is dirty, and has the leaves leave the memory.
fn forget(pool: &Arc<Pool>) {
    pool.close().expect("a checkpoint");
    let mut inner = pool.lock();
    let catalog = &mut inner.state.catalog;
    for _ in 0..2 {
        for (id, number) in std::mem::take(&mut catalog.cache.clock) {
            let layer = catalog.layers.get_mut(&id);
            layer.map(|it| it.map.evict(number, &mut catalog.cache));
            catalog.cache.clock.push_back((id, number));
        }
    }
    assert_eq!(catalog.cache.resident, 0);
}

fn homes(pool: &Pool) -> Vec<Place> {
    let inner = pool.lock();
    let mut homes = Vec::new();
    for layer in inner.state.catalog.layers.values() {
        let mut from = 0;
        while let Some((number, slot)) = layer.map.next(from) {
            homes.extend(slot.home().map(|it| it.place));
            from = number + 1;
        }
    }
    homes
}

fn is_sound(scene: &Scene) {
    let report = Pool::check(&scene.drives(1), true, |_, _| {}).expect("a report");
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn a_volume_whose_map_is_much_larger_than_the_memory_for_it_keeps_what_was_written() {
    let _narrow = Narrow::new();
    let scene = Scene::new();
    let leaves = 400;
    let pool = scene.create(1);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", Some(1 << 40), &mut storage);
        let place = |number: u64| number * 977 % leaves * 1300 * LEAF;
        for number in 0..leaves {
            disk.write(place(number), &page(number)).expect("written");
            let (resident, dirty) = resident(&pool);
            assert!(resident <= 2 * ROOM, "{resident}");
            assert!(dirty <= ROOM, "{dirty}");
        }
        for number in (0..leaves).rev() {
            let found = disk.read(place(number), 4096).expect("read");
            assert_eq!(found, page(number), "{number}");
            assert!(resident(&pool).0 <= 2 * ROOM);
        }
        // What lies between was never written.
        assert_eq!(disk.read(LEAF, 4096).expect("read"), [0; 4096]);
    }
    pool.close().expect("closed");
    drop(pool);
    is_sound(&scene);
    let pool = scene.open(1);
    assert_eq!(resident(&pool), (0, 0), "opened without reading the maps");
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        let place = |number: u64| number * 977 % leaves * 1300 * LEAF;
        for number in 0..leaves {
            let found = disk.read(place(number), 4096).expect("read");
            assert_eq!(found, page(number), "{number}");
        }
        disk.unmap(0, 1 << 40).expect("unmapped");
    }
    assert_eq!(pool.usage().used, 0);
    pool.close().expect("closed");
    drop(pool);
    is_sound(&scene);
}

#[test]
fn what_is_deleted_is_given_back_though_its_map_is_not_in_memory() {
    let _narrow = Narrow::new();
    let scene = Scene::new();
    let pool = scene.create(1);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", Some(1 << 30), &mut storage);
        for number in 0..100 {
            disk.write(number * LEAF, &page(number)).expect("written");
        }
    }
    let run = |name: &'static str| {
        pool.run(move |pool, io| async move { pool.snapshot(&io, name, &["disk0".into()]).await })
            .expect("a snapshot");
    };
    run("one");
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        for number in 50..150 {
            disk.write(number * LEAF, &page(1000 + number))
                .expect("written");
        }
    }
    assert_eq!(pool.usage().used, 200 * 4096);
    forget(&pool);
    let delete = |pool: &Arc<Pool>| {
        pool.run(|pool, io| async move { pool.delete_snapshot(&io, "disk0", "one").await })
    };
    delete(&pool).expect("deleted");
    // What the volume has written anew is nobody's any more.
    assert_eq!(pool.usage().used, 150 * 4096);
    forget(&pool);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        for number in 0..150 {
            let wanted = if number < 50 { number } else { 1000 + number };
            let found = disk.read(number * LEAF, 4096).expect("read");
            assert_eq!(found, page(wanted), "{number}");
        }
    }
    forget(&pool);
    let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "disk0").await });
    gone.expect("deleted");
    assert_eq!(pool.usage().used, 0);
    assert!(pool.lock().state.catalog.layers.is_empty());
    pool.close().expect("closed");
    drop(pool);
    is_sound(&scene);
}

/// A volume that was deleted gives its space to whoever waits for it, however long that takes.
#[test]
fn who_waits_for_space_gets_that_of_what_was_deleted() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let noise: Vec<u8> = (0..65536_u32)
        .map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect();
    for round in 0..3 {
        {
            let mut storage = TestStorage::new();
            let mut disk = client(&pool, "gone", Some(4 << 30), &mut storage);
            // All over the volume: many leaves.
            let mut at = 0;
            while disk.write(at, &noise).is_ok() {
                at += 65536 + LEAF;
            }
            assert!(at > 100 * LEAF, "{at}");
            // Cleaning may go on.
            disk.quiesce().expect("nothing runs there");
        }
        let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "gone").await });
        gone.expect("deleted");
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "stays", Some(4 << 30), &mut storage);
        for place in 0..300 {
            let written = disk.write(place * 65536, &noise);
            written.unwrap_or_else(|error| panic!("round {round}, {place}: {error}"));
        }
    }
}

#[test]
fn a_damaged_part_of_a_map_is_an_error_there_and_nowhere_else() {
    let scene = Scene::new();
    let pool = scene.create(1);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", Some(1 << 30), &mut storage);
        for number in 0..4 {
            disk.write(number * LEAF, &page(number)).expect("written");
        }
    }
    forget(&pool);
    let homes = homes(&pool);
    assert_eq!(homes.len(), 4);
    damage(&scene, homes[1]);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        for _ in 0..2 {
            for number in 0..4 {
                let found = disk.read(number * LEAF, 4096);
                match number {
                    1 => assert!(matches!(found, Err(VolumeError::Io { .. })), "{found:?}"),
                    _ => assert_eq!(found.expect("read"), page(number)),
                }
            }
        }
        // Nothing has changed by that: it may be read some time.
        damage(&scene, homes[1]);
        assert_eq!(disk.read(LEAF, 4096).expect("read"), page(1));
        damage(&scene, homes[1]);
    }
    forget(&pool);
    drop(pool);
    let report = Pool::check(&scene.drives(1), false, |_, _| {}).expect("a report");
    let told: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let wanted = format!("the map of 2 MiB from offset {LEAF} on is damaged");
    assert!(told.len() == 1 && told[0].contains(&wanted), "{told:?}");
    // What is written there is there, and the rest of it is lost.
    let pool = scene.open(1);
    {
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        disk.write(LEAF, &page(9)).expect("written");
        assert_eq!(disk.read(LEAF, 4096).expect("read"), page(9));
        assert!(disk.read(LEAF + 4096, 4096).is_err());
    }
    let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "disk0").await });
    gone.expect("deleted");
    // The space of what was lost is gained back when its segment is cleaned.
    let segment = {
        let inner = pool.lock();
        let mut all = inner.state.segments.iter();
        let found = all.find(|(_, it)| it.used == crate::segments::Use::Sealed && it.live > 0);
        found.map(|(number, _)| number)
    };
    if let Some(segment) = segment {
        pool.run(move |pool, io| async move {
            pool.clean_segment(&io, segment, &crate::stretch::Stock::default())
                .await
        })
        .expect("cleaned");
    }
    assert_eq!(pool.usage().used, 0);
}

fn scrub(pool: &Arc<Pool>) -> Vec<String> {
    pool.begin_scrub(None).expect("begun");
    loop {
        let work = pool.work().expect("there is some");
        if !work.is_running() {
            return work.findings.iter().map(ToString::to_string).collect();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_damaged_part_of_a_map_is_mended_from_the_other_side_or_from_memory() {
    for is_mirrored in [true, false] {
        let scene = Scene::new();
        let pool = Pool::create(&NewPool {
            name: "tank".into(),
            drives: scene.drives(if is_mirrored { 2 } else { 1 }),
            size: Some(64 << 20),
            is_mirrored,
            is_direct: false,
            force: false,
        })
        .expect("a pool");
        {
            let mut storage = TestStorage::new();
            let mut disk = client(&pool, "disk0", Some(1 << 30), &mut storage);
            for number in 0..4 {
                disk.write(number * LEAF, &page(number)).expect("written");
            }
        }
        if is_mirrored {
            forget(&pool);
        } else {
            pool.close().expect("a checkpoint");
        }
        damage(&scene, homes(&pool)[1]);
        let told = scrub(&pool);
        let wanted = format!("the map from offset {LEAF} on");
        assert!(told.len() <= 1, "{told:?}");
        // Where it was read from the drive first, that has mended it.
        assert!(told.iter().all(|it| it.contains(&wanted)), "{told:?}");
        assert!(is_mirrored || told.len() == 1, "{told:?}");
        forget(&pool);
        assert_eq!(scrub(&pool), [""; 0], "mended");
        let mut storage = TestStorage::new();
        let mut disk = client(&pool, "disk0", None, &mut storage);
        for number in 0..4 {
            let found = disk.read(number * LEAF, 4096).expect("read");
            assert_eq!(found, page(number), "{number}");
        }
    }
}

/// Turns a bit over of what lies at a place; a second time, it is as it was.
fn damage(scene: &Scene, place: Place) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&scene.drives(1)[0])
        .expect("a drive");
    let mut byte = [0];
    file.read_exact_at(&mut byte, place.offset() + 20)
        .expect("read");
    byte[0] ^= 0x40;
    file.write_all_at(&byte, place.offset() + 20)
        .expect("written");
}

#[test]
fn checkpoints_write_what_has_changed_and_leave_the_rest() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let mut disk = client(&pool, "disk0", Some(1 << 30), &mut storage);
    for number in 0..100 {
        disk.write(number * LEAF, &page(number)).expect("written");
    }
    pool.close().expect("a checkpoint");
    let before = homes(&pool);
    disk.write(7 * LEAF, &page(8)).expect("written");
    pool.close().expect("a checkpoint");
    let after = homes(&pool);
    let moved = before
        .iter()
        .zip(&after)
        .filter(|(one, other)| one != other);
    assert_eq!((before.len(), moved.count()), (100, 1));
    // However often that is, they take little space.
    for round in 0..400 {
        disk.write(round % 100 * LEAF, &page(round))
            .expect("written");
        pool.close().expect("a checkpoint");
    }
    let inner = pool.lock();
    let segments = inner.state.segments.of_leaves().count();
    assert!(segments <= 3, "{segments}");
    let live: u64 = inner.state.segments.of_leaves().map(|(_, live)| live).sum();
    let layers = inner.state.catalog.layers.values();
    let slots = layers.flat_map(|layer| layer.map.resident());
    let wanted: u64 = slots
        .filter_map(|(_, slot, _)| Slot::home(slot))
        .map(|home| home.bytes())
        .sum();
    assert_eq!(live, wanted);
}
