//! Drives that come and go, scrubs, and the end of a pool, on real files.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longshore_volume::testing::{TestStorage, VolumeClient};
use longshore_volume::{Volume, VolumeSpec};

use crate::format::superblock::{HAND_OUTS, LEAVES, REMOVED_DRIVES};
use crate::place::Codec;
use crate::{NewDrive, NewPool, NewVolume, POOL, Pool, PoolError, Work, WorkState, wipe_drives};

const DRIVE: u64 = 64 << 20;

struct Scene {
    directory: tempfile::TempDir,
    pool: Arc<Pool>,
}

impl Scene {
    fn new(drives: usize) -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a directory");
        let pool = Pool::create(&NewPool {
            name: "tank".into(),
            drives: (0..drives)
                .map(|number| directory.path().join(format!("drive{number}")))
                .collect(),
            size: Some(DRIVE),
            is_mirrored: false,
            is_direct: false,
            force: false,
        });
        let pool = pool.expect("a pool");
        Self { directory, pool }
    }

    fn path(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("drive{number}"))
    }

    fn paths(&self, numbers: &[usize]) -> Vec<PathBuf> {
        numbers.iter().map(|number| self.path(*number)).collect()
    }

    fn volume(&self, size: Option<u64>) -> Arc<dyn Volume> {
        let spec = VolumeSpec {
            size,
            ..VolumeSpec::new("disk0", POOL)
        };
        self.pool.open_volume(&spec).expect("a volume")
    }

    /// Writes so many MiB, each of another content.
    fn fill(&self, megabytes: u8) {
        let volume = self.volume(Some(u64::from(megabytes) << 20));
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume, &mut storage);
        for number in 0..megabytes {
            let at = u64::from(number) << 20;
            client.write(at, &vec![number + 1; 1 << 20]).expect("write");
        }
        client.flush().expect("flush");
    }

    fn verify(&self, megabytes: u8) {
        let volume = self.volume(None);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume, &mut storage);
        for number in 0..megabytes {
            let at = u64::from(number) << 20;
            let read = client.read(at, 1 << 20).expect("read");
            assert!(read.iter().all(|byte| *byte == number + 1), "{number}");
        }
    }

    fn add(&self, number: usize, size: Option<u64>) -> Result<(), PoolError> {
        self.pool.add_drive(&NewDrive {
            path: self.path(number),
            mirror: None,
            size,
            force: false,
        })
    }

    /// The pool as whoever opens it next finds it.
    fn reopen(self, drives: &[usize]) -> Self {
        let Self { directory, pool } = self;
        pool.close().expect("closed");
        drop(pool);
        let paths: Vec<PathBuf> = drives
            .iter()
            .map(|number| directory.path().join(format!("drive{number}")))
            .collect();
        let pool = Pool::open(&paths, false, false).expect("the pool");
        Self { directory, pool }
    }
}

/// Waits for the end of what is under way.
fn ended(pool: &Pool) -> Work {
    loop {
        let work = pool.work().expect("there is some");
        if !work.is_running() {
            return work;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_drive_is_added_and_another_removed_while_a_volume_is_open() {
    let scene = Scene::new(1);
    scene.fill(30);
    let before = scene.pool.usage();
    scene.add(1, Some(2 * DRIVE)).expect("added");
    assert_eq!(scene.pool.drives(), scene.paths(&[0, 1]));
    let with = scene.pool.usage();
    assert!(with.capacity > 2 * before.capacity, "{with:?}");
    let open = scene.volume(None);
    scene
        .pool
        .begin_removal(&scene.path(0), None)
        .expect("begun");
    let work = ended(&scene.pool);
    assert_eq!(work.state, WorkState::Done);
    assert!(work.done >= 30 << 20, "{work:?}");
    assert_eq!(scene.pool.drives(), scene.paths(&[1]));
    drop(open);
    scene.verify(30);
    // It holds no pool any more, and can be used anew.
    let label = crate::read_label(&scene.path(0));
    assert!(matches!(label, Err(PoolError::NoPool { .. })), "{label:?}");
    let scene = scene.reopen(&[1]);
    scene.verify(30);
    scene.add(0, None).expect("added again");
    let scene = scene.reopen(&[1, 0]);
    scene.verify(30);
    let paths = scene.paths(&[0, 1]);
    drop(scene.pool);
    let report = Pool::check(&paths, true, |_, _| {}).expect("a report");
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn numbers_of_removed_drives_stay_free_and_the_last_are_used_again() {
    let scene = Scene::new(3);
    scene.fill(20);
    for number in [1, 2] {
        scene
            .pool
            .begin_removal(&scene.path(number), None)
            .expect("begun");
        assert_eq!(ended(&scene.pool).state, WorkState::Done);
        let label = crate::read_label(&scene.path(0)).expect("a label");
        // The one in the middle is a gap as long as another follows.
        assert_eq!(label.drives.len(), if number == 1 { 3 } else { 1 });
        let removed = if number == 1 { REMOVED_DRIVES } else { 0 };
        assert_eq!(label.incompatible, LEAVES | HAND_OUTS | removed);
    }
    let scene = scene.reopen(&[0]);
    scene.verify(20);
}

#[test]
fn a_drive_that_is_needed_stays() {
    let scene = Scene::new(1);
    let only = scene.pool.begin_removal(&scene.path(0), None);
    assert!(matches!(only, Err(PoolError::LastDrive { .. })), "{only:?}");
    scene.add(1, Some(2 * DRIVE)).expect("added");
    scene.fill(90);
    let used = scene.pool.begin_removal(&scene.path(1), None);
    assert!(
        matches!(used, Err(PoolError::NoRoomWithout { .. })),
        "{used:?}"
    );
    let none = scene.pool.begin_removal(&scene.path(7), None);
    assert!(matches!(none, Err(PoolError::NoDrive { .. })), "{none:?}");
    // Nothing is left of the attempts.
    scene.verify(90);
    scene
        .pool
        .begin_removal(&scene.path(0), Some(1 << 10))
        .expect("begun");
    let busy = scene.pool.begin_scrub(None);
    assert!(matches!(busy, Err(PoolError::Working { .. })), "{busy:?}");
    let busy = scene.add(2, Some(DRIVE));
    assert!(matches!(busy, Err(PoolError::Working { .. })), "{busy:?}");
    scene.pool.stop_work().expect("told to stop");
    assert_eq!(ended(&scene.pool).state, WorkState::Stopped);
    let none = scene.pool.stop_work();
    assert!(matches!(none, Err(PoolError::NoWork { .. })), "{none:?}");
    assert_eq!(scene.pool.drives().len(), 2);
    let capacity = scene.pool.usage().capacity;
    assert!(capacity > 90 << 20, "{capacity}");
    scene.verify(90);
}

#[test]
fn a_drive_whose_space_is_reserved_stays() {
    let scene = Scene::new(2);
    let reserved = NewVolume {
        name: "disk0".into(),
        size: 80 << 20,
        block_size: 512,
        codec: Codec::Raw,
        quota: None,
        reserve: crate::RESERVE_FULL,
        id: None,
    };
    scene
        .pool
        .run(|pool, io| async move { pool.create_volume(&io, reserved).await })
        .expect("a volume");
    let refused = scene.pool.begin_removal(&scene.path(1), None);
    assert!(
        matches!(refused, Err(PoolError::NoRoomWithout { .. })),
        "{refused:?}"
    );
    scene.fill(80);
    scene.verify(80);
}

#[test]
fn what_cannot_be_added_changes_nothing() {
    let scene = Scene::new(1);
    let twice = scene.add(0, None);
    assert!(
        matches!(twice, Err(PoolError::DriveThere { .. })),
        "{twice:?}"
    );
    let small = scene.add(1, Some(1 << 20));
    assert!(
        matches!(small, Err(PoolError::TooSmall { .. })),
        "{small:?}"
    );
    assert!(!scene.path(1).exists());
    std::fs::write(scene.path(2), vec![1; 64 << 20]).expect("a file");
    let used = scene.add(2, None);
    assert!(matches!(used, Err(PoolError::NotEmpty { .. })), "{used:?}");
    assert_eq!(scene.pool.drives().len(), 1);
}

#[test]
fn a_scrub_finds_rot_and_names_the_volume() {
    let scene = Scene::new(1);
    scene.fill(8);
    scene
        .pool
        .run(|pool, io| async move { pool.snapshot(&io, "monday", &["disk0".into()]).await })
        .expect("a snapshot");
    scene.pool.begin_scrub(Some(1 << 30)).expect("begun");
    let sound = ended(&scene.pool);
    assert_eq!(sound.state, WorkState::Done);
    assert!(sound.findings.is_empty(), "{:?}", sound.findings);
    assert_eq!(sound.done, 8 << 20);
    // The page of 5s, wherever it lies.
    let path = scene.path(0);
    let bytes = std::fs::read(&path).expect("read");
    let at = bytes
        .windows(4096)
        .step_by(512)
        .position(|page| page.iter().all(|byte| *byte == 5));
    let at = u64::try_from(at.expect("somewhere") * 512).expect("it fits");
    let file = std::fs::File::options()
        .write(true)
        .open(&path)
        .expect("open");
    file.write_all_at(&[6], at + 100).expect("written");
    scene.pool.begin_scrub(None).expect("begun");
    let damaged = ended(&scene.pool);
    assert_eq!(damaged.state, WorkState::Done);
    assert_eq!(damaged.findings.len(), 1, "{:?}", damaged.findings);
    assert_eq!(damaged.findings[0].subject, "disk0, disk0@monday");
    let offset = format!("offset {}: the checksum does not match", 4 << 20);
    assert!(
        damaged.findings[0].text.starts_with(&offset),
        "{}",
        damaged.findings[0]
    );
}

#[test]
fn a_pool_is_destroyed_when_nothing_is_in_it_or_by_force() {
    let scene = Scene::new(2);
    scene.fill(1);
    let open = scene.volume(None);
    let in_use = scene.pool.destroy(true);
    assert!(
        matches!(in_use, Err(PoolError::PoolInUse { .. })),
        "{in_use:?}"
    );
    drop(open);
    let full = scene.pool.destroy(false);
    assert!(matches!(full, Err(PoolError::NotVacant { .. })), "{full:?}");
    scene.verify(1);
    scene.pool.destroy(true).expect("destroyed");
    let gone = scene.pool.open_volume(&VolumeSpec {
        size: Some(1 << 20),
        ..VolumeSpec::new("new", POOL)
    });
    assert!(matches!(gone, Err(PoolError::Destroyed { .. })));
    let paths = scene.paths(&[0, 1]);
    drop(scene.pool);
    for path in &paths {
        let label = crate::read_label(path);
        assert!(matches!(label, Err(PoolError::NoPool { .. })), "{label:?}");
    }
}

#[test]
fn drives_of_another_pool_are_not_wiped_along() {
    let (one, other) = (Scene::new(2), Scene::new(1));
    let paths = [one.path(0), other.path(0)];
    drop((one.pool, other.pool));
    let refused = wipe_drives(&paths);
    assert!(
        matches!(refused, Err(PoolError::OtherPool { .. })),
        "{refused:?}"
    );
    for path in &paths {
        crate::read_label(path).expect("nothing was touched");
    }
}

#[test]
fn a_pool_is_known_by_the_drives_that_it_has_and_had() {
    let scene = Scene::new(1);
    let lists = [
        scene.paths(&[0]),
        scene.paths(&[0, 1]),
        scene.paths(&[1]),
        scene.paths(&[0, 2]),
    ];
    let told = || {
        lists
            .each_ref()
            .map(|list| (scene.pool.lies_on(list), scene.pool.lay_on(list)))
    };
    assert_eq!(
        told(),
        [(true, true), (false, false), (false, false), (false, false)]
    );
    scene.add(1, Some(DRIVE)).expect("added");
    assert_eq!(
        told(),
        [(true, true), (true, true), (true, true), (false, false)]
    );
    scene
        .pool
        .begin_removal(&scene.path(0), None)
        .expect("begun");
    assert_eq!(ended(&scene.pool).state, WorkState::Done);
    assert_eq!(
        told(),
        [(false, true), (true, true), (true, true), (false, false)]
    );
    assert!(scene.pool.lies_exactly_on(&lists[2]));
    assert!(!scene.pool.lies_exactly_on(&lists[1]));
}

#[test]
fn a_drive_leaves_though_the_others_are_full_of_what_is_dead() {
    let scene = Scene::new(1);
    scene.fill(40);
    scene.add(1, Some(2 * DRIVE)).expect("added");
    {
        let volume = scene.volume(None);
        let mut storage = TestStorage::new();
        let mut client = VolumeClient::new(volume, &mut storage);
        // Pages here and there, so that segments are neither full nor dead; the first drive is used up first.
        let mut page = 0_u64;
        for _ in 0..6000 {
            page = (page + 7919) % (40 << 8);
            let byte = u8::try_from(page / 256 + 1).expect("at most 40");
            client.write(page * 4096, &[byte; 4096]).expect("write");
        }
        client.flush().expect("flush");
    }
    scene
        .pool
        .begin_removal(&scene.path(1), None)
        .expect("begun");
    let work = ended(&scene.pool);
    assert_eq!(work.state, WorkState::Done, "{work:?}");
    scene.verify(40);
    let scene = scene.reopen(&[0]);
    scene.verify(40);
    scene
        .pool
        .run(|pool, io| async move { pool.delete_volume(&io, "disk0").await })
        .expect("deleted");
}

#[test]
fn drives_that_do_not_open_as_a_pool_are_wiped() {
    let scene = Scene::new(2);
    let paths = scene.paths(&[0, 1]);
    let in_use = wipe_drives(&paths);
    assert!(matches!(in_use, Err(PoolError::Open(_))), "{in_use:?}");
    let Scene { directory, pool } = scene;
    drop(pool);
    wipe_drives(&paths[..1]).expect("wiped");
    let opened = Pool::open(&paths[..1], false, false);
    assert!(matches!(opened, Err(PoolError::NoPool { .. })));
    let missing = Pool::open(&paths[1..], false, false);
    assert!(matches!(missing, Err(PoolError::DrivesMissing { .. })));
    drop(directory);
}
