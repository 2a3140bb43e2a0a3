//! Large reads and writes that threads on other cores make.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, affinity};
use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;

use crate::rig::{Rig, on_both_engines};

const LARGE: usize = 64 << 10;

fn temporary() -> FileHandle {
    FileHandle(Arc::new(tempfile::tempfile().unwrap()))
}

fn submit(rig: &mut Rig, file: &FileHandle, kind: FileOperationKind) {
    rig.engine.submit(FileOperation {
        file: file.clone(),
        kind,
        is_direct: false,
        tag: StorageTag(7),
    });
}

/// Runs an operation. Returns its buffer, and how many were handed over by then.
fn run(rig: &mut Rig, file: &FileHandle, kind: FileOperationKind) -> (Buffer, u64) {
    submit(rig, file, kind);
    let done = rig.completions(1).pop().unwrap();
    let buffer = done.buffer.unwrap();
    assert_eq!(done.result.unwrap(), u64::try_from(buffer.len()).unwrap());
    assert_eq!(rig.engine.operations_in_flight(), 0);
    (buffer, rig.engine.counters().handed_over)
}

fn write(length: usize, value: u8, dsync: bool) -> FileOperationKind {
    let mut buffer = Buffer::allocate(length);
    buffer.fill(value);
    FileOperationKind::Write {
        offset: 0,
        buffer,
        start: 0,
        end: length,
        dsync,
    }
}

fn read(length: usize) -> FileOperationKind {
    FileOperationKind::Read {
        offset: 0,
        buffer: Buffer::allocate(length),
        start: 0,
        end: length,
    }
}

fn is_cached(file: &File) -> bool {
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    rustix::io::preadv2(file, into, 0, ReadWriteFlags::NOWAIT) == Ok(1)
}

on_both_engines! {
    fn large_reads_and_writes_are_made_by_other_threads(rig) {
        let file = temporary();
        let cores = affinity::allowed_cores().unwrap();
        rig.engine.hand_over(LARGE, &cores);
        assert_eq!(run(rig, &file, write(LARGE, 3, false)).1, 1);
        if !is_cached(&file.0) {
            eprintln!("SKIPPED: the file system cannot tell what is in the page cache");
            return;
        }
        let (buffer, handed_over) = run(rig, &file, read(LARGE));
        assert_eq!((&buffer[..], handed_over), (&[3; LARGE][..], 2));
        assert_eq!(rig.engine.counters().handed_back, 0);
    }

    fn small_ones_and_those_for_the_medium_stay(rig) {
        let file = temporary();
        rig.engine.hand_over(LARGE, &[]);
        assert_eq!(run(rig, &file, write(LARGE, 1, true)).1, 0);
        assert_eq!(run(rig, &file, write(LARGE - 512, 2, false)).1, 0);
        assert_eq!(run(rig, &file, read(LARGE - 512)).1, 0);
        rig.engine.keep_all();
        assert_eq!(run(rig, &file, write(LARGE, 3, false)).1, 0);
        assert_eq!(run(rig, &file, read(LARGE)).1, 0);
        assert_eq!(rig.engine.counters().file_completed, 5);
    }

    fn read_that_waits_for_the_medium_comes_back_and_is_made(rig) {
        let file = temporary();
        file.0.write_all_at(&[5; LARGE], 0).unwrap();
        file.0.sync_all().unwrap();
        rustix::fs::fadvise(&*file.0, 0, None, Advice::DontNeed).unwrap();
        rig.engine.hand_over(LARGE, &[]);
        let (buffer, handed_over) = run(rig, &file, read(LARGE));
        assert_eq!((&buffer[..], handed_over), (&[5; LARGE][..], 1));
        if rig.engine.counters().handed_back == 0 {
            eprintln!("SKIPPED: the page cache keeps what is not needed");
        }
    }

    fn what_fails_elsewhere_is_reported(rig) {
        let file = FileHandle(Arc::new(File::open("/proc/self/exe").unwrap()));
        rig.engine.hand_over(LARGE, &[]);
        submit(rig, &file, write(LARGE, 1, false));
        let done = rig.completions(1).pop().unwrap();
        assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(done.buffer.unwrap().len(), LARGE);
        assert_eq!(rig.engine.counters().handed_over, 1);
    }

    fn nothing_is_written_by_others_after_the_engine_is_gone(rig) {
        let file = temporary();
        let mut other = rig.resized(longshore_reactor::EngineConfig::default());
        other.engine.hand_over(LARGE, &[]);
        for _ in 0..200 {
            submit(&mut other, &file, write(LARGE, 1, false));
        }
        other.turn(Duration::ZERO);
        drop(other);
        file.0.set_len(0).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(file.0.metadata().unwrap().len(), 0);
        assert_eq!(Arc::strong_count(&file.0), 1);
    }
}
