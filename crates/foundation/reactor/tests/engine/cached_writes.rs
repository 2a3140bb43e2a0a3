//! Writes to the page cache, of which those of one file are one job.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, EngineConfig};

use crate::rig::on_both_engines;

const BLOCK: usize = 4096;

fn write(file: &FileHandle, number: u64) -> FileOperation {
    let mut buffer = Buffer::allocate(BLOCK);
    buffer.fill(u8::try_from(number % 251).unwrap());
    FileOperation {
        file: file.clone(),
        kind: FileOperationKind::Write {
            offset: number * BLOCK as u64,
            buffer,
            start: 0,
            end: BLOCK,
            dsync: false,
        },
        is_direct: false,
        tag: StorageTag(number),
    }
}

on_both_engines! {
    fn writes_of_many_turns_to_many_files_all_end_as_they_should(rig) {
        const FILES: usize = 20; // More than there are threads.
        const TURNS: u64 = 30;
        const OF_A_TURN: u64 = 10;
        let files: Vec<_> = (0..FILES)
            .map(|_| FileHandle(Arc::new(tempfile::tempfile().unwrap())))
            .collect();
        let mut left = 0;
        for turn in 0..TURNS {
            for number in turn * OF_A_TURN..(turn + 1) * OF_A_TURN {
                files.iter().for_each(|file| rig.engine.submit(write(file, number)));
                left += files.len();
            }
            // Those of earlier turns are under way while more come.
            let ended = rig.turn(Duration::ZERO);
            left -= ended.len();
        }
        for ended in rig.completions(left) {
            assert_eq!(ended.result.unwrap(), BLOCK as u64);
            assert_eq!(ended.buffer.unwrap()[0], u8::try_from(ended.tag.0 % 251).unwrap());
        }
        assert_eq!(rig.engine.operations_in_flight(), 0);
        let counters = rig.engine.counters();
        assert_eq!(counters.file_completed, counters.file_submitted);
        for file in &files {
            for number in 0..TURNS * OF_A_TURN {
                let mut byte = [0];
                file.0.read_exact_at(&mut byte, (number + 1) * BLOCK as u64 - 1).unwrap();
                assert_eq!(u64::from(byte[0]), number % 251);
            }
        }
    }

    fn an_engine_ends_with_writes_that_have_not_begun(rig) {
        let file = FileHandle(Arc::new(tempfile::tempfile().unwrap()));
        (0..100).for_each(|number| rig.engine.submit(write(&file, number)));
        rig.turn(Duration::ZERO);
        (100..200).for_each(|number| rig.engine.submit(write(&file, number)));
        *rig = rig.resized(EngineConfig::default());
        assert_eq!(Arc::strong_count(&file.0), 1, "nothing refers to it any more");
    }

    fn an_error_is_that_of_its_write(rig) {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = FileHandle(Arc::new(std::fs::File::open(path.path()).unwrap()));
        (0..3).for_each(|number| rig.engine.submit(write(&file, number)));
        for ended in rig.completions(3) {
            assert_eq!(ended.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
            assert_eq!(ended.buffer.unwrap().len(), BLOCK);
        }
    }
}
