//! Pools on real files: the suite that all volumes pass, and verbs.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_volume::testing::client::write_request;
use longshore_volume::testing::harness::{check_on_all_storage, check_volume_against_model, steps};
use longshore_volume::testing::suite::Keeps;
use longshore_volume::testing::{TestStorage, VolumeClient};
use longshore_volume::{Extent, Volume, VolumeSpec};
use proptest::prelude::*;

use crate::format::superblock::copies;
use crate::place::Codec;
use crate::{NewPool, NewVolume, POOL, Pool, PoolError, PoolOptions, SnapshotName};

pub(crate) struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    /// In memory where there is a file system for that: syncs take long elsewhere.
    pub(crate) fn new() -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        Self {
            directory: directory.expect("a directory"),
        }
    }

    pub(crate) fn drives(&self, count: usize) -> Vec<PathBuf> {
        (0..count)
            .map(|number| self.directory.path().join(format!("drive{number}")))
            .collect()
    }

    pub(crate) fn create(&self, count: usize) -> Arc<Pool> {
        Pool::create(&NewPool {
            name: "tank".into(),
            drives: self.drives(count),
            size: Some(64 << 20),
            is_mirrored: false,
            is_direct: false,
            force: false,
        })
        .expect("a pool")
    }

    pub(crate) fn open(&self, count: usize) -> Arc<Pool> {
        Pool::open(&self.drives(count), false, false).expect("the pool")
    }
}

fn spec(name: &str, size: Option<u64>, block_size: u32, codec: Codec) -> VolumeSpec {
    VolumeSpec {
        size,
        block_size,
        options: Some(Arc::new(PoolOptions {
            compression: Some(codec),
            ..PoolOptions::default()
        })),
        ..VolumeSpec::new(name, POOL)
    }
}

fn volume(pool: &Arc<Pool>, name: &str, size: Option<u64>) -> Arc<dyn Volume> {
    pool.open_volume(&spec(name, size, 512, Codec::Raw))
        .expect("a volume")
}

#[test]
fn volumes_of_pools_pass_the_suite() {
    for (block_size, codec, drives) in [
        (512, Codec::Raw, 1),
        (4096, Codec::Raw, 2),
        (512, Codec::Lz4, 2),
        (4096, Codec::Lz4, 1),
        (512, Codec::Zstd, 1),
    ] {
        let mut scenes = Vec::new();
        check_on_all_storage(Keeps::Data, || {
            let scene = Scene::new();
            let pool = scene.create(drives);
            scenes.push(scene);
            pool.open_volume(&spec("disk0", Some(4 << 20), block_size, codec))
                .expect("a volume")
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn volumes_of_pools_agree_with_the_model(steps in steps(), is_large in any::<bool>(), codec in 0..3_u8) {
        let scene = Scene::new();
        let pool = scene.create(1);
        let block_size = if is_large { 4096 } else { 512 };
        let codec = Codec::of(codec).expect("one of three");
        let volume = pool.open_volume(&spec("disk0", Some(1 << 20), block_size, codec)).expect("a volume");
        check_volume_against_model(&volume, &mut TestStorage::new(), &steps);
    }
}

#[test]
fn a_pool_keeps_what_was_written_and_opens_again() {
    let scene = Scene::new();
    {
        let pool = scene.create(2);
        let volume = volume(&pool, "disk0", Some(8 << 20));
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume, &mut storage);
        client.write(4096, &[7; 8192]).expect("write");
        client.write(512, &[8; 512]).expect("write");
        pool.close().expect("closed");
    }
    let mut drives = scene.drives(2);
    drives.reverse();
    let pool = Pool::open(&drives, false, false).expect("in any order");
    let volume = volume(&pool, "disk0", None);
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume, &mut storage);
    assert_eq!(client.read(4096, 8192).expect("read"), [7; 8192]);
    assert_eq!(
        client.read(0, 1024).expect("read"),
        [[0; 512], [8; 512]].concat()
    );
    let in_use = Pool::open(&scene.drives(2), false, false);
    assert!(matches!(in_use, Err(PoolError::Open(_))), "{in_use:?}");
    let listed = pool.volumes();
    assert_eq!(listed[0].owned, 3 * 4096);
    assert!(listed[0].is_open);
}

fn snapshot(pool: &Arc<Pool>, volume: &'static str, name: &'static str) {
    pool.run(move |pool, io| async move { pool.snapshot(&io, name, &[volume.into()]).await })
        .expect("a snapshot");
}

fn name<'a>([volume, name]: [&'a str; 2]) -> SnapshotName<'a> {
    SnapshotName { volume, name }
}

/// All ranges in bytes, and the number of calls.
fn changes(
    pool: &Arc<Pool>,
    of: [&str; 2],
    since: [&str; 2],
    most: usize,
) -> (Vec<(u64, u64)>, usize) {
    let mut ranges = Vec::new();
    let mut from = 0;
    for call in 1.. {
        let found = pool.changes(name(of), name(since), from, most);
        let found = found.expect("both are there");
        ranges.extend(found.ranges.iter().map(|range| (range.start, range.end)));
        match found.next {
            Some(next) => from = next,
            None => return (ranges, call),
        }
    }
    unreachable!("the loop has no end")
}

fn kib(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let ranges = ranges.iter();
    ranges
        .map(|(start, end)| (start << 10, end << 10))
        .collect()
}

#[test]
fn changes_between_snapshots_are_those_that_were_made() {
    const ONE: [&str; 2] = ["disk0", "one"];
    const TWO: [&str; 2] = ["disk0", "two"];
    const THREE: [&str; 2] = ["disk0", "three"];
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let disk = volume(&pool, "disk0", Some(16 << 20));
    let mut client = VolumeClient::new(disk.clone(), &mut storage);
    client.write(0, &[1; 32 << 10]).expect("write");
    client.write(6 << 20, &[1; 4096]).expect("write");
    snapshot(&pool, "disk0", "one");
    client.write(4096, &[2; 4096]).expect("write");
    client.write(8192 + 512, &[2; 512]).expect("write");
    client.unmap(6 << 20, 4096).expect("unmap");
    // Zeros before and after.
    client.unmap(8 << 20, 65536).expect("unmap");
    client.write(12 << 20, &[2; 4096]).expect("write");
    snapshot(&pool, "disk0", "two");
    client.write(0, &[3; 4096]).expect("write");
    snapshot(&pool, "disk0", "three");
    let all = |of, since| changes(&pool, of, since, 100).0;
    let between = kib(&[(4, 12), (6144, 6148), (12288, 12292)]);
    assert_eq!(all(TWO, ONE), between);
    // And back.
    assert_eq!(all(ONE, TWO), between);
    assert_eq!(all(THREE, TWO), kib(&[(0, 4)]));
    assert_eq!(all(ONE, ONE), []);
    let (pieces, calls) = changes(&pool, TWO, ONE, 1);
    assert_eq!(pieces, between);
    assert!(calls > 2, "{calls}");
    let middle = pool.changes(name(TWO), name(ONE), (6144 << 10) + 513, 9);
    assert_eq!(middle.expect("both are there").ranges[0].start, 6144 << 10);
    let end = pool.changes(name(TWO), name(ONE), 1 << 40, 9);
    assert_eq!(end.expect("both are there").ranges, []);
    // The layer of a snapshot that is deleted is part of another one.
    let gone = pool.run(|pool, io| async move { pool.delete_snapshot(&io, "disk0", "two").await });
    gone.expect("deleted");
    let since_one = kib(&[(0, 12), (6144, 6148), (12288, 12292)]);
    assert_eq!(all(THREE, ONE), since_one);
    let copied =
        pool.run(|pool, io| async move { pool.clone_snapshot(&io, "disk0", "one", "copy").await });
    copied.expect("a clone");
    snapshot(&pool, "copy", "same");
    assert_eq!(all(["copy", "same"], ONE), []);
    assert_eq!(all(THREE, ["copy", "same"]), since_one);
    let missing = pool.changes(name(TWO), name(ONE), 0, 1);
    assert!(matches!(missing, Err(PoolError::NoSnapshot { .. })));
    // What a volume has grown by is not what lies behind the end of a copy.
    disk.grow(20 << 20).expect("grown");
    snapshot(&pool, "disk0", "four");
    assert_eq!(all(["disk0", "four"], THREE), kib(&[(16384, 20480)]));
    assert_eq!(all(THREE, ["disk0", "four"]), []);
}

#[test]
fn changes_between_snapshots_are_told_to_the_end_of_a_volume() {
    const END: u64 = (2 << 20) + 512;
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let all = |of, since| changes(&pool, ["odd", of], ["odd", since], 100).0;
    let disk = volume(&pool, "odd", Some(END));
    let mut client = VolumeClient::new(disk, &mut storage);
    client.write(END - 512, &[1; 512]).expect("write");
    snapshot(&pool, "odd", "one");
    client.write(END - 512, &[2; 512]).expect("write");
    client.write(1 << 20, &[2; 8192]).expect("write");
    snapshot(&pool, "odd", "two");
    assert_eq!(
        all("two", "one"),
        [(1 << 20, (1 << 20) + 8192), (2 << 20, END)]
    );
    drop(client);
    // A volume that shrinks and grows again reads zeros where it was cut.
    for (size, shrinks) in [((1 << 20) + 4096, true), (END, false)] {
        let resized =
            pool.run(move |pool, io| async move { pool.resize(&io, "odd", size, shrinks).await });
        resized.expect("resized");
        snapshot(&pool, "odd", if shrinks { "small" } else { "large" });
    }
    assert_eq!(all("small", "two"), []);
    assert_eq!(all("large", "small"), [((1 << 20) + 4096, END)]);
    let cut = [((1 << 20) + 4096, (1 << 20) + 8192), (2 << 20, END)];
    assert_eq!(all("large", "two"), cut);
    // A volume that is rolled back drops what was written since.
    let rolled = pool.run(|pool, io| async move { pool.roll_back(&io, "odd", "one").await });
    rolled.expect("rolled back");
    snapshot(&pool, "odd", "again");
    assert_eq!(all("again", "one"), []);
    assert_eq!(
        all("again", "two"),
        [(1 << 20, (1 << 20) + 8192), (2 << 20, END)]
    );
}

#[test]
fn snapshots_clones_and_roll_back_share_and_keep_apart() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let disk = volume(&pool, "disk0", Some(8 << 20));
    let mut client = VolumeClient::new(disk.clone(), &mut storage);
    client.write(0, &[1; 16384]).expect("write");
    let snapshot = |name: &'static str| {
        pool.run(move |pool, io| async move { pool.snapshot(&io, name, &["disk0".into()]).await })
    };
    snapshot("one").expect("a snapshot");
    client.write(4096, &[2; 4096]).expect("write");
    client.unmap(8192, 4096).expect("unmap");
    snapshot("two").expect("a snapshot");
    client.write(0, &[3; 4096]).expect("write");
    assert!(matches!(snapshot("two"), Err(PoolError::Exists { .. })));
    let copied =
        pool.run(|pool, io| async move { pool.clone_snapshot(&io, "disk0", "one", "copy").await });
    copied.expect("a clone");
    let mut again = TestStorage::new();
    let mut read = |name: &str| {
        let volume = volume(&pool, name, None);
        let found = VolumeClient::new(volume, &mut again)
            .read(0, 16384)
            .expect("read");
        found.chunks(4096).map(|page| page[0]).collect::<Vec<_>>()
    };
    assert_eq!(read("disk0@one"), [1, 1, 1, 1]);
    assert_eq!(read("disk0@two"), [1, 2, 0, 1]);
    assert_eq!(read("copy"), [1, 1, 1, 1]);
    drop(client);
    let delete = |name: &'static str| {
        pool.run(move |pool, io| async move { pool.delete_snapshot(&io, "disk0", name).await })
    };
    delete("one").expect("deleted");
    let rolled = |pool: &Arc<Pool>| {
        pool.run(|pool, io| async move { pool.roll_back(&io, "disk0", "two").await })
    };
    assert!(matches!(rolled(&pool), Err(PoolError::InUse { .. })));
    let mut read_open = VolumeClient::new(disk.clone(), &mut storage);
    assert_eq!(read_open.read(0, 4096).expect("read"), [3; 4096]);
    drop(read_open);
    drop(disk);
    rolled(&pool).expect("rolled back");
    assert_eq!(read("disk0"), [1, 2, 0, 1]);
    assert_eq!(read("copy"), [1, 1, 1, 1]);
    delete("two").expect("deleted");
    assert_eq!(read("disk0"), [1, 2, 0, 1]);
    let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "copy").await });
    gone.expect("deleted");
    let gone = pool.run(|pool, io| async move { pool.delete_volume(&io, "disk0").await });
    gone.expect("deleted");
    assert_eq!(pool.usage().used, 0, "all space is given back");
    // Storages remember file descriptions, and with them locks.
    drop((pool, storage, again));
    assert!(scene.open(1).volumes().is_empty());
    let report = Pool::check(&scene.drives(1), true, |_, _| {}).expect("a report");
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn what_is_overwritten_many_times_over_finds_space_and_a_full_pool_says_so() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let disk = volume(&pool, "disk0", Some(256 << 20));
    let mut client = VolumeClient::new(disk, &mut storage);
    let chunk = |seed: u64| -> Vec<u8> {
        (0..65536_u64)
            .map(|at| (at / 512).to_le_bytes()[0] ^ seed.to_le_bytes()[0])
            .collect()
    };
    for round in 0..12_u64 {
        for place in 0..(24 << 20) / 65536_u64 {
            let at = (place * 7 + round) % ((24 << 20) / 65536);
            client.write(at * 65536, &chunk(at + round)).expect("write");
        }
    }
    let mut refused = None;
    for place in 512..4096_u64 {
        if let Err(error) = client.write(place * 65536, &chunk(place)) {
            refused = Some((place, error));
            break;
        }
    }
    let (place, error) = refused.expect("the pool is smaller than the volume");
    assert!(
        matches!(error, longshore_volume::VolumeError::NoSpace),
        "{error}"
    );
    assert!(
        place - 512 + 384 > 600,
        "{place}: most of 64 MiB can be used"
    );
    client
        .unmap(512 * 65536, (place - 512) * 65536)
        .expect("unmap of a full pool");
    client
        .write(600 * 65536, &chunk(1))
        .expect("space was given back");
    for at in 0..(24 << 20) / 65536_u64 {
        let round = 11;
        assert_eq!(
            client.read(at * 65536, 65536).expect("read"),
            chunk(at + round),
            "chunk {at}"
        );
    }
}

#[test]
fn large_writes_use_most_of_a_small_pool() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let mut storage = TestStorage::new();
    let disk = volume(&pool, "disk0", Some(256 << 20));
    let mut client = VolumeClient::new(disk, &mut storage);
    let chunk: Vec<u8> = (0..1_u32 << 20).map(|at| at.to_le_bytes()[1]).collect();
    let mut written = 0;
    while client.write(written, &chunk).is_ok() {
        written += 1 << 20;
    }
    let capacity = pool.usage().capacity;
    assert!(written > capacity / 10 * 9, "{written} of {capacity}");
}

#[test]
fn many_small_writes_at_once_use_most_of_a_small_pool() {
    let scene = Scene::new();
    let pool = scene.create(2);
    let mut storage = TestStorage::new();
    let disk = volume(&pool, "disk0", Some(256 << 20));
    let mut client = VolumeClient::new(disk, &mut storage);
    let chunk: Vec<u8> = (0..65536_u32).map(|at| at.to_le_bytes()[1]).collect();
    let mut written = 0;
    for batch in 0..128 {
        let requests = (0..32).map(|number| {
            write_request(
                Extent::new((batch * 32 + number) * 128, 128),
                &chunk,
                0,
                false,
            )
        });
        let ended = client.run_together(requests.collect());
        written += 65536 * ended.iter().filter(|result| result.is_ok()).count() as u64;
        if ended.iter().any(Result::is_err) {
            break;
        }
    }
    let capacity = pool.usage().capacity;
    assert!(written > capacity / 10 * 9, "{written} of {capacity}");
}

#[test]
fn a_volume_is_rolled_back_to_snapshots_of_its_own_block_size_only() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let make = |block_size| NewVolume {
        name: "disk0".into(),
        size: 1 << 20,
        block_size,
        codec: Codec::Raw,
        quota: None,
        reserve: 0,
        id: None,
    };
    let made = pool.run(|pool, io| async move {
        pool.create_volume(&io, make(512)).await?;
        pool.resize(&io, "disk0", (1 << 20) + 512, false).await?;
        pool.snapshot(&io, "one", &["disk0".into()]).await?;
        pool.delete_volume(&io, "disk0").await?;
        pool.create_volume(&io, make(4096)).await
    });
    made.expect("made");
    let rolled = pool.run(|pool, io| async move { pool.roll_back(&io, "disk0", "one").await });
    assert!(
        matches!(rolled, Err(PoolError::BlockSize { .. })),
        "{rolled:?}"
    );
    pool.close().expect("closed");
    drop(pool);
    assert_eq!(scene.open(1).volumes().len(), 1);
}

#[test]
fn a_volume_that_is_open_keeps_what_it_is_and_shrinks_by_whole_pages() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let disk = volume(&pool, "disk0", Some(1 << 20));
    let shrink =
        |size| pool.run(move |pool, io| async move { pool.resize(&io, "disk0", size, true).await });
    assert!(matches!(shrink(1 << 19), Err(PoolError::InUse { .. })));
    let deleted = pool.run(|pool, io| async move { pool.delete_volume(&io, "disk0").await });
    assert!(
        matches!(deleted, Err(PoolError::InUse { .. })),
        "{deleted:?}"
    );
    drop(disk);
    assert!(matches!(
        shrink((1 << 19) + 512),
        Err(PoolError::Size { .. })
    ));
    shrink(1 << 19).expect("shrunk");
    let grown = pool.run(|pool, io| async move { pool.resize(&io, "disk0", 1 << 20, false).await });
    grown.expect("grown");
    assert_eq!(pool.volumes()[0].size, 1 << 20);
}

#[test]
fn a_quota_bounds_a_volume_and_its_snapshots_together() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let limited = VolumeSpec {
        size: Some(8 << 20),
        options: Some(Arc::new(PoolOptions {
            quota: Some(1 << 20),
            ..PoolOptions::default()
        })),
        ..VolumeSpec::new("disk0", POOL)
    };
    let disk = pool.open_volume(&limited).expect("a volume");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(disk, &mut storage);
    let most: Vec<u8> = vec![7; 768 << 10];
    client.write(0, &most).expect("within the quota");
    let made =
        pool.run(|pool, io| async move { pool.snapshot(&io, "one", &["disk0".into()]).await });
    made.expect("a snapshot");
    let refused = client.write(0, &most);
    assert!(
        matches!(refused, Err(longshore_volume::VolumeError::NoSpace)),
        "{refused:?}"
    );
    let gone = pool.run(|pool, io| async move { pool.delete_snapshot(&io, "disk0", "one").await });
    gone.expect("deleted");
    client
        .write(1 << 20, &[8; 128 << 10])
        .expect("within the quota again");
    assert_eq!(client.read(0, most.len()).expect("read"), most);
}

#[test]
fn a_group_of_no_volumes_is_refused() {
    let scene = Scene::new();
    let pool = scene.create(1);
    let refused = pool.run(|pool, io| async move { pool.snapshot(&io, "one", &[]).await });
    assert!(matches!(refused, Err(PoolError::GroupSize)), "{refused:?}");
}

#[test]
fn what_a_later_version_wrote_can_be_read_only() {
    let scene = Scene::new();
    {
        let pool = scene.create(1);
        let made = pool.run(|pool, io| async move {
            pool.create_volume(
                &io,
                NewVolume {
                    name: "disk0".into(),
                    size: 1 << 20,
                    block_size: 512,
                    codec: Codec::Raw,
                    quota: None,
                    reserve: 0,
                    id: None,
                },
            )
            .await
        });
        made.expect("a volume");
        pool.close().expect("closed");
    }
    let path = &scene.drives(1)[0];
    let mut label = crate::read_label(path).expect("a label");
    label.read_only_compatible = 1 << 63;
    label.number += 1;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the drive");
    let bytes = file.metadata().expect("its size").len();
    for place in copies(bytes).concat() {
        file.write_all_at(&label.encode(), place).expect("written");
    }
    drop(file);
    let refused = Pool::open(&scene.drives(1), false, false);
    assert!(
        matches!(refused, Err(PoolError::LaterVersion { .. })),
        "{refused:?}"
    );
    let pool = Pool::open(&scene.drives(1), false, true).expect("to read");
    assert_eq!(pool.volumes().len(), 1);
}
