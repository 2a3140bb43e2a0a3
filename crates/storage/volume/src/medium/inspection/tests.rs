//! Files that are shortened, removed or moved while they are volumes.

use std::fs;
use std::os::fd::AsRawFd;

use rustix::io::Errno;

use crate::medium::backing::{Backing, Finding, Kind};
use crate::medium::tests::{BLOCK, Bench, SIZE, block};
use crate::testing::harness::{Scratch, file_spec};
use crate::testing::{Effect, OperationName, TestStorage, VolumeClient};
use crate::{Attempt, Condition, InlineWrites, Lba, VolumeError, VolumeSpec, open};

const LAST: u64 = SIZE - BLOCK;

impl Bench {
    /// What somebody else does to the file.
    fn set_length(&self, length: u64) {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(self.scratch.path("volume"));
        file.and_then(|file| file.set_len(length)).expect("cut");
    }

    fn length(&self) -> u64 {
        fs::metadata(self.scratch.path("volume"))
            .expect("look")
            .len()
    }

    fn remove(&self) {
        fs::remove_file(self.scratch.path("volume")).expect("remove");
    }
}

#[track_caller]
fn assert_nothing_is_served(bench: &mut Bench) {
    assert_eq!(bench.volume.condition(), Condition::Shortened);
    let mut client = bench.client();
    for failed in [
        client.read(0, 4096).map(drop),
        client.write(0, &block(9)),
        client.write_durable(LAST, &block(9)),
        client.flush(),
        client.unmap(0, BLOCK),
        client.write_zeroes(0, BLOCK, true, false),
        client.anchor(0, BLOCK),
        client.extent(0, BLOCK).map(drop),
    ] {
        assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    }
    assert!(matches!(
        client.volume().try_read(Lba(0), &mut [0; 4096]),
        Attempt::WouldSleep
    ));
}

#[test]
fn a_short_read_takes_the_volume_out_of_service() {
    let mut bench = Bench::new();
    bench.client().write(0, &block(1)).expect("write");
    bench.set_length(BLOCK + 100);
    let failed = bench.client().read(BLOCK, 8192);
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    assert_nothing_is_served(&mut bench);
    // What somebody makes of the file afterwards is no reason to trust it.
    bench.set_length(SIZE);
    assert_eq!(bench.volume.inspect(), Condition::Shortened);
    assert_nothing_is_served(&mut bench);
    assert_eq!(bench.volume.geometry().block_count, SIZE / BLOCK);
    drop(bench.volume);
    bench.storage.take_log();
    bench.volume = open(&file_spec(&bench.scratch, SIZE, 4096)).expect("reopen");
    assert_eq!(bench.client().read(0, 4096).expect("read"), block(1));
    bench.client().write(LAST, &block(2)).expect("write");
}

#[test]
fn a_flush_does_not_succeed_on_a_file_that_was_cut_and_grew_again_by_a_write() {
    let mut bench = Bench::new();
    bench.set_length(0);
    bench.client().write(SIZE / 2, &block(1)).expect("write");
    let failed = bench.client().flush();
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    assert_nothing_is_served(&mut bench);
}

#[test]
fn neither_does_a_durable_write() {
    let mut bench = Bench::new();
    bench.set_length(0);
    let failed = bench.client().write_durable(SIZE / 2, &block(1));
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    assert_nothing_is_served(&mut bench);
}

/// The only write that makes the file as long as before, so that no later look would notice.
#[test]
fn no_change_of_the_last_block_makes_a_cut_file_whole_again() {
    for change in [
        |client: &mut VolumeClient<'_>| client.write(LAST, &block(1)),
        |client: &mut VolumeClient<'_>| client.write_durable(LAST, &block(1)),
        |client: &mut VolumeClient<'_>| client.unmap(LAST, BLOCK),
        |client: &mut VolumeClient<'_>| client.write_zeroes(0, SIZE, false, false),
        |client: &mut VolumeClient<'_>| client.anchor(LAST, BLOCK),
    ] {
        for interrupted in [false, true] {
            let mut bench = Bench::new();
            bench.set_length(LAST);
            if interrupted {
                let interruption = Effect::Fail(Errno::INTR);
                bench.storage.once(OperationName::SeekHole, interruption);
            }
            let failed = change(&mut bench.client());
            assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
            assert_eq!(bench.length(), LAST);
            assert_nothing_is_served(&mut bench);
        }
    }
    let bench = Bench::with(|spec| VolumeSpec {
        inline_writes: InlineWrites::Always,
        ..spec
    });
    let attempt = |offset| {
        bench
            .volume
            .try_write(Lba(offset / BLOCK), &block(1), false)
    };
    assert!(matches!(attempt(LAST), Attempt::WouldSleep));
    assert!(matches!(attempt(0), Attempt::Done(Ok(()))));
}

#[test]
fn the_last_block_of_a_whole_file_is_written_with_and_without_help_of_the_file_system() {
    let mut bench = Bench::new();
    bench.client().write(LAST, &block(1)).expect("write");
    let refusal = Effect::Fail(Errno::INVAL);
    bench.storage.once(OperationName::SeekHole, refusal);
    bench
        .client()
        .write_durable(LAST, &block(2))
        .expect("write");
    assert_eq!(bench.client().read(LAST, 4096).expect("read"), block(2));
    bench.set_length(0);
    bench.storage.once(OperationName::SeekHole, refusal);
    let failed = bench.client().write(LAST, &block(1));
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
}

#[test]
fn a_look_from_time_to_time_finds_what_no_operation_has_met() {
    let mut bench = Bench::new();
    assert_eq!(bench.volume.inspect(), Condition::Sound);
    bench.set_length(SIZE - 1);
    assert_eq!(bench.volume.condition(), Condition::Sound);
    assert_eq!(bench.volume.inspect(), Condition::Shortened);
    assert_nothing_is_served(&mut bench);
    let refused = bench.volume.refresh_geometry();
    assert!(
        matches!(refused, Err(VolumeError::Shortened)),
        "{refused:?}"
    );
}

#[test]
fn a_file_that_is_short_is_not_grown() {
    let bench = Bench::new();
    bench.set_length(0);
    let refused = bench.volume.grow(2 * SIZE);
    assert!(
        matches!(refused, Err(VolumeError::Shortened)),
        "{refused:?}"
    );
    assert_eq!(bench.length(), 0);
}

#[test]
fn a_file_that_grows_is_sound() {
    let mut bench = Bench::new();
    bench.set_length(2 * SIZE);
    assert_eq!(bench.volume.inspect(), Condition::Sound);
    bench.volume.refresh_geometry().expect("refresh");
    bench.volume.grow(4 * SIZE).expect("grow");
    assert_eq!(bench.volume.inspect(), Condition::Sound);
    bench
        .client()
        .write_durable(4 * SIZE - BLOCK, &block(1))
        .expect("write");
}

#[test]
fn a_removed_file_is_read_and_not_written() {
    let mut bench = Bench::new();
    bench.client().write(0, &block(1)).expect("write");
    bench.remove();
    let failed = bench.client().flush();
    assert!(matches!(failed, Err(VolumeError::Removed)), "{failed:?}");
    assert_eq!(bench.volume.inspect(), Condition::Removed);
    let mut client = bench.client();
    assert_eq!(client.read(0, 4096).expect("read"), block(1));
    let failed = client.write(0, &block(2));
    assert!(matches!(failed, Err(VolumeError::Removed)), "{failed:?}");
    let failed = client.flush();
    assert!(matches!(failed, Err(VolumeError::Removed)), "{failed:?}");
    assert_eq!(client.read(0, 4096).expect("read"), block(1));
}

#[test]
fn a_file_that_another_one_replaced_is_removed_too() {
    let bench = Bench::new();
    let other = bench.scratch.path("other");
    fs::write(&other, vec![0; usize::try_from(SIZE).expect("small")]).expect("write");
    fs::rename(&other, bench.scratch.path("volume")).expect("rename");
    assert_eq!(bench.volume.inspect(), Condition::Removed);
}

#[test]
fn a_volume_that_is_only_read_goes_on_with_a_file_that_was_replaced() {
    let scratch = Scratch::new();
    drop(open(&file_spec(&scratch, SIZE, 4096)).expect("create"));
    let spec = VolumeSpec {
        read_only: true,
        ..file_spec(&scratch, SIZE, 4096)
    };
    let volume = open(&spec).expect("open");
    fs::remove_file(scratch.path("volume")).expect("remove");
    assert_eq!(volume.inspect(), Condition::Sound);
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    assert_eq!(client.read(0, 4096).expect("read"), block(0));
}

#[test]
fn a_file_that_was_renamed_goes_on() {
    let mut bench = Bench::new();
    fs::rename(bench.scratch.path("volume"), bench.scratch.path("moved")).expect("rename");
    assert_eq!(bench.volume.inspect(), Condition::Sound);
    bench
        .client()
        .write_durable(LAST, &block(1))
        .expect("write");
}

/// A file in memory, or one of a file system that does not count names.
#[test]
fn a_file_that_had_no_name_from_the_start_is_sound() {
    let memory = rustix::fs::memfd_create("volume", rustix::fs::MemfdFlags::empty()).expect("file");
    let memory = fs::File::from(memory);
    memory.set_len(SIZE).expect("size");
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let backing = Backing::new(path.as_ref(), &memory, Kind::File);
    let look = || backing.look(&memory, SIZE).expect("look");
    assert_eq!(look(), Finding::Sound);
    assert!(!backing.was_moved(&memory));
    memory.set_len(BLOCK).expect("cut");
    assert_eq!(look(), Finding::Shortened { found: BLOCK });
}

/// The file system says that the last byte does not exist, which a later look no longer shows: the
/// file has grown again, or attributes are old.
#[test]
fn a_missing_last_byte_is_no_matter_of_attributes() {
    let mut bench = Bench::new();
    let missing = Effect::Fail(Errno::NXIO);
    bench.storage.once(OperationName::SeekHole, missing);
    let failed = bench.client().write(LAST, &block(1));
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    assert_nothing_is_served(&mut bench);
}
