//! Operations on files.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use longshore_reactor::storage::{
    FileCompletion, FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, EngineConfig};

use crate::rig::{Rig, on_both_engines};

fn temporary() -> FileHandle {
    FileHandle(Arc::new(tempfile::tempfile().unwrap()))
}

fn device(path: &str) -> FileHandle {
    FileHandle(Arc::new(
        OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap(),
    ))
}

fn run(rig: &mut Rig, file: &FileHandle, kind: FileOperationKind) -> FileCompletion {
    let tag = StorageTag(99);
    rig.engine.submit(FileOperation {
        file: file.clone(),
        kind,
        is_direct: false,
        tag,
    });
    assert_eq!(rig.engine.operations_in_flight(), 1);
    let completion = rig.completions(1).pop().unwrap();
    assert_eq!(completion.tag, tag);
    assert_eq!(rig.engine.operations_in_flight(), 0);
    completion
}

fn filled(len: usize, value: u8) -> Buffer {
    let mut buffer = Buffer::allocate(len);
    buffer.fill(value);
    buffer
}

fn write(offset: u64, buffer: Buffer) -> FileOperationKind {
    let end = buffer.len();
    FileOperationKind::Write {
        offset,
        buffer,
        start: 0,
        end,
        dsync: false,
    }
}

fn read(offset: u64, len: usize) -> FileOperationKind {
    FileOperationKind::Read {
        offset,
        buffer: Buffer::allocate(len),
        start: 0,
        end: len,
    }
}

fn os_error(completion: &FileCompletion) -> Option<i32> {
    completion.result.as_ref().unwrap_err().raw_os_error()
}

/// File systems may lack an operation; the test then says so.
fn supported(completion: &FileCompletion) -> bool {
    let supported = completion.result.is_ok() || os_error(completion) != Some(libc::EOPNOTSUPP);
    if !supported {
        eprintln!("SKIPPED: the file system of the temporary directory cannot do this");
    }
    supported
}

fn contents(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

on_both_engines! {
    fn part_of_a_buffer_is_written_and_read_back(rig) {
        let file = temporary();
        let mut buffer = filled(8192, 1);
        buffer[4096..].fill(2);
        let kind =
            FileOperationKind::Write { offset: 10, buffer, start: 4000, end: 4200, dsync: false };
        let done = run(rig, &file, kind);
        assert_eq!(done.result.unwrap(), 200);
        assert_eq!(done.buffer.unwrap().len(), 8192);
        let buffer = filled(4096, 9);
        let done =
            run(rig, &file, FileOperationKind::Read { offset: 10, buffer, start: 50, end: 250 });
        assert_eq!(done.result.unwrap(), 200);
        let buffer = done.buffer.unwrap();
        assert_eq!(buffer[..50], [9; 50]);
        assert_eq!(buffer[50..146], [1; 96]);
        assert_eq!(buffer[146..250], [2; 104]);
        assert_eq!(buffer[250..], [9; 4096 - 250]);
    }

    fn dsync_write_and_data_sync_succeed(rig) {
        let file = temporary();
        let buffer = filled(4096, 5);
        let kind = FileOperationKind::Write { offset: 0, buffer, start: 0, end: 4096, dsync: true };
        assert_eq!(run(rig, &file, kind).result.unwrap(), 4096);
        let done = run(rig, &file, FileOperationKind::DataSync);
        assert_eq!(done.result.unwrap(), 0);
        assert!(done.buffer.is_none());
        assert_eq!(contents(&file.0, 0, 4096), [5; 4096]);
    }

    fn read_across_the_end_is_short_and_beyond_it_is_zero(rig) {
        let file = temporary();
        file.0.write_all_at(&[7; 100], 0).unwrap();
        assert_eq!(run(rig, &file, read(60, 4096)).result.unwrap(), 40);
        assert_eq!(run(rig, &file, read(100, 4096)).result.unwrap(), 0);
        assert_eq!(run(rig, &file, read(1 << 40, 4096)).result.unwrap(), 0);
    }

    fn empty_transfer_moves_nothing(rig) {
        let file = temporary();
        assert_eq!(run(rig, &file, write(0, Buffer::allocate(0))).result.unwrap(), 0);
        assert_eq!(run(rig, &file, read(0, 0)).result.unwrap(), 0);
    }

    fn no_space_is_an_error_that_gives_the_buffer_back(rig) {
        let file = device("/dev/full");
        let done = run(rig, &file, write(0, filled(4096, 3)));
        assert_eq!(os_error(&done), Some(libc::ENOSPC));
        assert_eq!(done.buffer.unwrap()[..], [3; 4096]);
    }

    fn write_to_a_file_opened_for_reading_is_an_error(rig) {
        let file = FileHandle(Arc::new(File::open("/dev/zero").unwrap()));
        let done = run(rig, &file, write(0, filled(512, 3)));
        assert_eq!(os_error(&done), Some(libc::EBADF));
        let done = run(rig, &file, read(0, 512));
        assert_eq!(done.result.unwrap(), 512);
    }

    fn range_outside_of_the_buffer_is_an_error(rig) {
        let file = temporary();
        for (start, end) in [(0, 4097), (10, 9), (5000, 5000)] {
            let buffer = Buffer::allocate(4096);
            let done = run(rig, &file, FileOperationKind::Read { offset: 0, buffer, start, end });
            assert_eq!(done.result.unwrap_err().kind(), ErrorKind::InvalidInput);
            assert!(done.buffer.is_some());
        }
    }

    fn offset_beyond_what_files_can_have_is_an_error(rig) {
        let file = temporary();
        for offset in [u64::MAX, 1 << 63] {
            assert_eq!(os_error(&run(rig, &file, read(offset, 512))), Some(libc::EINVAL));
            let done = run(rig, &file, write(offset, filled(512, 1)));
            assert_eq!(os_error(&done), Some(libc::EINVAL));
        }
    }

    fn punched_hole_reads_as_zeros_and_frees_space(rig) {
        let file = temporary();
        assert_eq!(run(rig, &file, write(0, filled(1 << 20, 6))).result.unwrap(), 1 << 20);
        file.0.sync_all().unwrap();
        let before = file.0.metadata().unwrap().blocks();
        let kind = FileOperationKind::PunchHole { offset: 65536, length: 524_288 };
        let done = run(rig, &file, kind);
        if !supported(&done) {
            return;
        }
        assert_eq!(done.result.unwrap(), 0);
        assert_eq!(contents(&file.0, 65536, 524_288), [0; 524_288]);
        assert_eq!(contents(&file.0, 65535, 1), [6]);
        assert_eq!(contents(&file.0, 65536 + 524_288, 1), [6]);
        let metadata = file.0.metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 20);
        assert!(metadata.blocks() < before);
    }

    fn zeroed_range_reads_as_zeros(rig) {
        let file = temporary();
        run(rig, &file, write(0, filled(16384, 6))).result.unwrap();
        let done =
            run(rig, &file, FileOperationKind::ZeroRange { offset: 4096, length: 4096 });
        if supported(&done) {
            assert_eq!(done.result.unwrap(), 0);
            assert_eq!(contents(&file.0, 4096, 4096), [0; 4096]);
            assert_eq!(contents(&file.0, 8192, 4096), [6; 4096]);
        }
    }

    fn allocated_range_takes_space(rig) {
        let file = temporary();
        let done = run(rig, &file, FileOperationKind::Allocate { offset: 0, length: 1 << 20 });
        if supported(&done) {
            assert_eq!(done.result.unwrap(), 0);
            assert_eq!(file.0.metadata().unwrap().blocks(), (1 << 20) / 512);
        }
    }

    fn data_and_holes_are_found(rig) {
        let file = temporary();
        file.0.set_len(3 << 20).unwrap();
        file.0.write_all_at(&[1; 65536], 1 << 20).unwrap();
        let mut seek = |kind| run(rig, &file, kind).result;
        assert_eq!(seek(FileOperationKind::SeekData { offset: 0 }).unwrap(), 1 << 20);
        let hole = seek(FileOperationKind::SeekHole { offset: 1 << 20 }).unwrap();
        assert_eq!(hole, (1 << 20) + 65536);
        assert_eq!(seek(FileOperationKind::SeekHole { offset: 5 }).unwrap(), 5);
        let none = seek(FileOperationKind::SeekData { offset: 2 << 20 }).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENXIO));
    }

    fn block_device_operations_are_refused_on_ordinary_files(rig) {
        let file = temporary();
        for kind in [
            FileOperationKind::BlockDiscard { offset: 0, length: 512 },
            FileOperationKind::BlockZeroOut { offset: 0, length: 512 },
        ] {
            assert_eq!(os_error(&run(rig, &file, kind)), Some(libc::ENOTTY));
        }
    }

    fn more_operations_than_the_ring_has_entries_all_complete_once(rig) {
        const OPERATIONS: u64 = 1000;
        let config = EngineConfig { ring_entries: 4, completion_entries: 8, ..Default::default() };
        let mut small = rig.resized(config);
        let file = temporary();
        for number in 0..OPERATIONS {
            let value = u8::try_from(number % 251).unwrap();
            small.engine.submit(FileOperation {
                file: file.clone(),
                kind: write(number * 512, filled(512, value)),
                is_direct: false,
                tag: StorageTag(number),
            });
        }
        let mut tags: Vec<_> = small
            .completions(1000)
            .into_iter()
            .map(|done| {
                assert_eq!(done.result.unwrap(), 512);
                assert_eq!(u64::from(done.buffer.unwrap()[511]), done.tag.0 % 251);
                done.tag.0
            })
            .collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..OPERATIONS));
        assert_eq!(small.engine.operations_in_flight(), 0);
        for number in 0..OPERATIONS {
            let value = u8::try_from(number % 251).unwrap();
            assert_eq!(contents(&file.0, number * 512, 512), [value; 512]);
        }
    }

    fn file_stays_open_until_its_operations_are_complete(rig) {
        let file = temporary();
        let copy = FileHandle(Arc::new(file.0.try_clone().unwrap()));
        let kind = write(0, filled(4096, 8));
        rig.engine.submit(FileOperation { file, kind, is_direct: false, tag: StorageTag(1) });
        assert_eq!(rig.completions(1).pop().unwrap().result.unwrap(), 4096);
        assert_eq!(contents(&copy.0, 0, 4096), [8; 4096]);
    }

    fn buffers_of_sixteen_mebibytes_move_in_one_operation(rig) {
        let file = temporary();
        let len = 16 << 20;
        assert_eq!(run(rig, &file, write(0, filled(len, 0x5a))).result.unwrap(), 16 << 20);
        let done = run(rig, &file, read(0, len));
        assert_eq!(done.result.unwrap(), 16 << 20);
        assert!(done.buffer.unwrap().iter().all(|byte| *byte == 0x5a));
    }
}
