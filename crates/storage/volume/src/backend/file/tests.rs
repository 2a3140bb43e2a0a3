//! Opening, creating, sizing and locking files.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::open::{BackendName, LockHolder};
use crate::testing::harness::{Scratch, file_spec};
use crate::testing::{TestStorage, VolumeClient};
use crate::{Attempt, Extent, Lba, VolumeError, WriteCache, open};

const SIZE: u64 = 1 << 20;

fn refusal(spec: &VolumeSpec) -> OpenError {
    match open(spec) {
        Ok(_) => panic!("the volume opens"),
        Err(error) => error,
    }
}

#[test]
fn a_missing_file_is_created_sparse_and_private() {
    let scratch = Scratch::new();
    let volume = open(&file_spec(&scratch, 1 << 40, 4096)).expect("open");
    let metadata = fs::metadata(scratch.path("volume")).expect("metadata");
    assert_eq!(metadata.len(), 1 << 40);
    assert_eq!(metadata.mode() & 0o777, 0o600);
    assert!(metadata.blocks() < 64, "no space is taken");
    assert_eq!(volume.geometry().block_count, (1 << 40) / 4096);
}

#[test]
fn a_missing_file_without_size_is_not_created() {
    let scratch = Scratch::new();
    let mut spec = VolumeSpec {
        size: None,
        ..file_spec(&scratch, SIZE, 512)
    };
    assert!(matches!(refusal(&spec), OpenError::NotFound { .. }));
    (spec.read_only, spec.size) = (true, Some(SIZE));
    assert!(matches!(refusal(&spec), OpenError::NotFoundReadOnly { .. }));
    assert!(!scratch.path("volume").exists());
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new();
    let path = scratch.path("no").join("volume");
    let spec = VolumeSpec {
        path: Some(path),
        ..file_spec(&scratch, SIZE, 512)
    };
    let refused = refusal(&spec);
    assert!(
        matches!(&refused, OpenError::DirectoryMissing { directory, .. }
            if *directory == scratch.path("no")),
        "{refused}"
    );
}

#[test]
fn an_existing_file_has_its_own_size() {
    let scratch = Scratch::new();
    let mut spec = VolumeSpec {
        size: None,
        ..file_spec(&scratch, SIZE, 4096)
    };
    for (length, block_size, fits) in [(8192, 4096, true), (8704, 512, true), (8704, 4096, false)] {
        fs::write(scratch.path("volume"), vec![1; length]).expect("write");
        spec.block_size = block_size;
        match open(&spec) {
            Ok(volume) => {
                assert!(fits);
                let blocks = volume.geometry().block_count;
                assert_eq!(
                    blocks * u64::from(block_size),
                    u64::try_from(length).expect("small")
                );
            }
            Err(error) => assert!(!fits && matches!(error, OpenError::SizeNotMultiple { .. })),
        }
    }
    fs::write(scratch.path("volume"), b"").expect("write");
    assert!(matches!(refusal(&spec), OpenError::SizeZero { .. }));
}

#[test]
fn a_file_grows_to_the_size_asked_for_and_never_shrinks() {
    let scratch = Scratch::new();
    fs::write(scratch.path("volume"), [7; 8192]).expect("write");
    let refused = refusal(&file_spec(&scratch, 4096, 512));
    assert!(matches!(
        refused,
        OpenError::WouldShrink {
            existing: 8192,
            asked: 4096,
            ..
        }
    ));
    let read_only = VolumeSpec {
        read_only: true,
        ..file_spec(&scratch, SIZE, 512)
    };
    assert!(matches!(refusal(&read_only), OpenError::SizeDiffers { .. }));
    drop(open(&file_spec(&scratch, SIZE, 512)).expect("open"));
    let bytes = fs::read(scratch.path("volume")).expect("read");
    assert_eq!(u64::try_from(bytes.len()).expect("small"), SIZE);
    assert_eq!(bytes[..8192], [7; 8192]);
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let scratch = Scratch::new();
    let at = |path: std::path::PathBuf| VolumeSpec {
        path: Some(path),
        ..file_spec(&scratch, SIZE, 512)
    };
    assert!(matches!(
        refusal(&at(scratch.path("."))),
        OpenError::IsDirectory { .. }
    ));
    assert!(matches!(
        refusal(&at("/dev/null".into())),
        OpenError::NotServable { .. }
    ));
    let pathless = VolumeSpec {
        path: None,
        ..file_spec(&scratch, SIZE, 512)
    };
    assert!(matches!(refusal(&pathless), OpenError::PathMissing { .. }));
}

#[test]
fn what_the_system_says_becomes_advice() {
    let spec = VolumeSpec::new("v", BackendName::FILE);
    let advice = |spec: &VolumeSpec, errno: Errno| {
        open_error(spec, Path::new("/x"), errno.into()).to_string()
    };
    assert_eq!(
        advice(&spec, Errno::ACCESS),
        "/x: permission denied for reading and writing; run as a user that may, change its mode, or \
         use read-only if reading is enough"
    );
    let reader = VolumeSpec {
        read_only: true,
        ..spec.clone()
    };
    assert!(advice(&reader, Errno::PERM).contains("permission denied for reading;"));
    assert!(advice(&spec, Errno::ROFS).contains("add read-only"));
    let direct = VolumeSpec {
        direct: true,
        ..spec.clone()
    };
    assert!(advice(&direct, Errno::INVAL).contains("leave direct out"));
    assert!(advice(&spec, Errno::MFILE).starts_with("open /x: "));
}

#[test]
fn a_dangling_link_is_an_error_and_stays() {
    let scratch = Scratch::new();
    std::os::unix::fs::symlink(scratch.path("nowhere"), scratch.path("volume")).expect("symlink");
    assert!(matches!(
        refusal(&file_spec(&scratch, SIZE, 512)),
        OpenError::Io { .. }
    ));
    assert!(fs::symlink_metadata(scratch.path("volume")).is_ok());
}

#[test]
fn a_refused_creation_leaves_no_file() {
    let scratch = Scratch::new();
    let spec = VolumeSpec {
        serial: Some("caf\u{e9}".into()),
        ..file_spec(&scratch, SIZE, 512)
    };
    assert!(matches!(refusal(&spec), OpenError::Text { .. }));
    // More than the file system can address, and less than 2^63.
    assert!(matches!(
        refusal(&file_spec(&scratch, (1 << 62) + 512, 512)),
        OpenError::Io {
            operation: "ftruncate",
            ..
        }
    ));
    assert!(matches!(
        refusal(&file_spec(&scratch, 1 << 63, 512)),
        OpenError::TooLarge { .. }
    ));
    assert!(!scratch.path("volume").exists());
}

#[test]
fn two_volumes_never_write_to_one_file() {
    let scratch = Scratch::new();
    let spec = file_spec(&scratch, SIZE, 512);
    let other_name = VolumeSpec {
        name: "disk1".into(),
        ..spec.clone()
    };
    let first = open(&spec).expect("open");
    std::os::unix::fs::symlink(scratch.path("volume"), scratch.path("link")).expect("symlink");
    let by_link = VolumeSpec {
        path: Some(scratch.path("link")),
        ..other_name.clone()
    };
    let reader = VolumeSpec {
        read_only: true,
        ..other_name.clone()
    };
    for second in [&other_name, &by_link, &reader] {
        let refused = refusal(second);
        assert!(
            matches!(
                &refused,
                OpenError::Locked {
                    holder: LockHolder::ThisProcess,
                    ..
                }
            ),
            "{refused}"
        );
    }
    drop(first);
    open(&other_name).expect("the lock goes with the volume");
}

#[test]
fn readers_share_a_file() {
    let scratch = Scratch::new();
    let spec = file_spec(&scratch, SIZE, 512);
    drop(open(&spec).expect("open"));
    let reader = VolumeSpec {
        read_only: true,
        ..spec.clone()
    };
    let _first = open(&reader).expect("open");
    let _second = open(&reader).expect("open");
    assert!(matches!(refusal(&spec), OpenError::Locked { .. }));
}

#[test]
fn the_process_that_holds_the_lock_is_named() {
    let scratch = Scratch::new();
    let spec = file_spec(&scratch, SIZE, 512);
    drop(open(&spec).expect("open"));
    let path = scratch.path("volume");
    // flock(1) without a command to run in between would exit at once.
    let holder = std::process::Command::new("flock")
        .arg("--no-fork")
        .arg(&path)
        .args(["sh", "-c", "echo locked; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut holder) = holder else {
        eprintln!("SKIPPED: no flock(1) here");
        return;
    };
    let mut line = [0; 7];
    io::Read::read_exact(&mut holder.stdout.take().expect("piped"), &mut line).expect("its line");
    let refused = refusal(&spec);
    holder.kill().expect("kill");
    holder.wait().expect("wait");
    let OpenError::Locked { holder: found, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(*found, LockHolder::Process(holder.id()));
    assert!(
        refused
            .to_string()
            .contains(&format!("process {}", holder.id())),
        "{refused}"
    );
    open(&spec).expect("a dead process holds no lock");
}

#[test]
fn identity_is_the_same_after_reopening_and_differs_between_files() {
    let scratch = Scratch::new();
    let spec = file_spec(&scratch, SIZE, 512);
    let identity = |spec: &VolumeSpec| open(spec).expect("open").identity().clone();
    let first = identity(&spec);
    assert_eq!(first.uuid, identity(&spec).uuid);
    assert_eq!(first.serial.len(), 20);
    let other = VolumeSpec {
        path: Some(scratch.path("other")),
        ..spec.clone()
    };
    assert_ne!(first.uuid, identity(&other).uuid);
    let given = uuid::Uuid::from_u128(1);
    let explicit = VolumeSpec {
        uuid: Some(given),
        serial: Some("A1".into()),
        ..spec
    };
    assert_eq!(identity(&explicit).uuid, given);
    assert_eq!(identity(&explicit).serial, "A1");
}

#[test]
fn unmap_frees_space_of_the_file() {
    let scratch = Scratch::new();
    let volume = open(&file_spec(&scratch, SIZE, 4096)).expect("open");
    if volume.characteristics().unmap_granularity.is_none() {
        eprintln!("SKIPPED: no holes on this file system");
        return;
    }
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    let allocated = || {
        fs::metadata(scratch.path("volume"))
            .expect("metadata")
            .blocks()
            * 512
    };
    client.write(0, &vec![1; 1 << 20]).expect("write");
    client.flush().expect("flush");
    assert!(allocated() >= SIZE);
    client.unmap(0, SIZE / 2).expect("unmap");
    assert!(allocated() < SIZE * 3 / 4, "half is freed");
    client
        .write_zeroes(SIZE / 2, SIZE / 2, true, true)
        .expect("zeroes");
    assert!(allocated() < SIZE / 4, "all is freed");
    client.anchor(0, SIZE / 2).expect("anchor");
    client
        .write_zeroes(SIZE / 2, SIZE / 2, false, true)
        .expect("zeroes");
    assert!(allocated() >= SIZE, "reserved");
}

#[test]
fn growing_online_is_taken_up_from_outside_and_from_control() {
    let scratch = Scratch::new();
    let volume = open(&file_spec(&scratch, SIZE, 512)).expect("open");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(scratch.path("volume"))
        .expect("open");
    file.set_len(2 * SIZE + 100).expect("grow");
    assert_eq!(volume.geometry().block_count, SIZE / 512, "not by itself");
    assert_eq!(
        volume.refresh_geometry().expect("refresh").block_count,
        2 * SIZE / 512
    );
    assert_eq!(
        volume.grow(3 * SIZE).expect("grow").block_count,
        3 * SIZE / 512
    );
    assert_eq!(file.metadata().expect("metadata").len(), 3 * SIZE);
    assert!(matches!(volume.grow(SIZE), Err(VolumeError::OutOfRange)));
    assert!(matches!(
        volume.grow(4 * SIZE + 1),
        Err(VolumeError::OutOfRange)
    ));
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    client
        .write(3 * SIZE - 512, &[1; 512])
        .expect("the new end is usable");
}

#[test]
fn dev_zero_and_dev_full_need_a_size_and_are_shared() {
    let spec = |path: &str, size| VolumeSpec {
        path: Some(path.into()),
        size,
        ..VolumeSpec::new("z", BackendName::FILE)
    };
    assert!(matches!(
        refusal(&spec("/dev/zero", None)),
        OpenError::SizeMissing { .. }
    ));
    let zero = open(&spec("/dev/zero", Some(1 << 40))).expect("open");
    let _again = open(&spec("/dev/zero", Some(1 << 40))).expect("open");
    assert_eq!(zero.characteristics().write_cache, WriteCache::None);
    assert!(
        !zero.known_zeros(Extent::new(0, 1)),
        "it is there to be read"
    );
    let mut block = [1; 512];
    assert!(matches!(
        zero.try_read(Lba(1), &mut block),
        Attempt::Done(Ok(()))
    ));
    assert_eq!(block, [0; 512]);
    let written = zero.try_write(Lba(0), &[1; 512], true);
    assert!(matches!(written, Attempt::Done(Ok(()))), "{written:?}");

    let full = open(&spec("/dev/full", Some(SIZE))).expect("open");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(full.clone(), &mut storage);
    for _ in 0..2 {
        assert!(matches!(
            client.write(0, &[1; 512]),
            Err(VolumeError::NoSpace)
        ));
        assert!(matches!(
            client.write_durable(0, &[1; 512]),
            Err(VolumeError::NoSpace)
        ));
        assert_eq!(client.read(0, 512).expect("read"), [0; 512]);
        client.flush().expect("flush");
    }
}

#[test]
fn direct_asks_for_blocks_that_the_file_system_can_do() {
    let scratch = Scratch::new();
    let spec = VolumeSpec {
        direct: true,
        ..file_spec(&scratch, SIZE, 512)
    };
    let large = VolumeSpec {
        block_size: 4096,
        ..spec.clone()
    };
    match (open(&spec).map(drop), open(&large).map(drop)) {
        (Ok(()), Ok(())) => {}
        (Err(OpenError::DirectAlignment { required, .. }), Ok(())) => assert!(required > 512),
        (Err(OpenError::DirectUnsupported { .. }), Err(_)) => {
            eprintln!("SKIPPED: no O_DIRECT on this file system");
        }
        (small, large) => panic!("{small:?}, {large:?}"),
    }
    let direct = VolumeSpec {
        path: Some("/dev/zero".into()),
        ..spec
    };
    assert!(matches!(
        refusal(&direct),
        OpenError::DirectUnsupported { .. }
    ));
}

#[test]
fn a_file_that_is_in_the_page_cache_is_read_in_one_call() {
    let scratch = Scratch::new();
    let volume = open(&file_spec(&scratch, SIZE, 4096)).expect("open");
    let mut storage = TestStorage::new();
    VolumeClient::new(volume.clone(), &mut storage)
        .write(0, &[5; 4096])
        .expect("write");
    let mut block = [0; 4096];
    match volume.try_read(Lba(0), &mut block) {
        Attempt::Done(result) => {
            result.expect("read");
            assert_eq!(block, [5; 4096]);
        }
        Attempt::WouldSleep => eprintln!("SKIPPED: no RWF_NOWAIT on this file system"),
    }
}

/// A small file system of its own, as long as it lives. Takes root.
struct SmallFileSystem(Scratch);

impl SmallFileSystem {
    fn new(size: &str) -> Option<SmallFileSystem> {
        let scratch = Scratch::new();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(scratch.path("."))
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallFileSystem(scratch)),
            _ => {
                eprintln!("SKIPPED: cannot mount a tmpfs here");
                None
            }
        }
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path("."))
            .status();
    }
}

#[test]
fn a_full_file_system_costs_no_data_and_unmap_makes_room() {
    let Some(small) = SmallFileSystem::new("size=512k") else {
        return;
    };
    let volume = open(&file_spec(&small.0, SIZE, 4096)).expect("open");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    let fill = |number: u64| vec![u8::try_from(number % 255 + 1).expect("small"); 4096];
    let full_at =
        (0..SIZE / 4096).find(
            |number| match client.write_durable(number * 4096, &fill(*number)) {
                Ok(()) => false,
                Err(VolumeError::NoSpace) => true,
                Err(error) => panic!("{error}"),
            },
        );
    let full_at = full_at.expect("512 KiB do not hold 1 MiB");
    assert!(full_at > 64, "{full_at}");
    let attempt = client.volume().try_write(Lba(full_at), &fill(1), false);
    assert!(matches!(
        attempt,
        Attempt::WouldSleep | Attempt::Done(Err(VolumeError::NoSpace))
    ));
    for number in 0..full_at {
        assert_eq!(
            client.read(number * 4096, 4096).expect("read"),
            fill(number),
            "{number}"
        );
    }
    client.flush().expect("no space is not a failed flush");
    client.unmap(0, 8 * 4096).expect("unmap");
    client
        .write_durable(full_at * 4096, &fill(full_at))
        .expect("there is room again");
}
