//! What tests of O_DIRECT files share.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use longshore_reactor::storage::{
    FileHandle, FileOperation, FileOperationKind, Storage, StorageTag,
};
use longshore_reactor::{Buffer, EngineCounters, EngineKind};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::rig::Rig;

/// Bytes in the file.
pub const LENGTH: usize = 1 << 20;

/// A file that is open with O_DIRECT and holds 1 MiB, and the same file through the page cache. `None`, aloud, where
/// the temporary directory has no such files.
pub fn direct_file() -> Option<(FileHandle, std::fs::File)> {
    let named = tempfile::NamedTempFile::new().unwrap();
    named
        .as_file()
        .write_all_at(&pattern(LENGTH, 0), 0)
        .unwrap();
    named.as_file().sync_all().unwrap();
    let cached = named.reopen().unwrap();
    let direct = named.reopen().unwrap();
    if let Err(error) = fcntl_setfl(&direct, OFlags::DIRECT) {
        eprintln!("SKIPPED: no O_DIRECT in the temporary directory: {error}");
        return None;
    }
    Some((FileHandle(Arc::new(direct)), cached))
}

/// Bytes that differ from page to page and from seed to seed.
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at / 4096 * 37 + at % 4093 + seed * 11) % 251).unwrap())
        .collect()
}

/// Operations on one O_DIRECT file, one at a time.
pub struct Direct {
    pub rig: Rig,
    file: FileHandle,
}

impl Direct {
    pub fn new(rig: Rig, file: &FileHandle) -> Self {
        Self {
            rig,
            file: file.clone(),
        }
    }

    fn run(&mut self, kind: FileOperationKind) -> Buffer {
        let wanted = match &kind {
            FileOperationKind::Read { start, end, .. }
            | FileOperationKind::Write { start, end, .. } => end - start,
            _ => unreachable!(),
        };
        self.rig.engine.submit(FileOperation {
            file: self.file.clone(),
            kind,
            is_direct: true,
            tag: StorageTag(7),
        });
        let completion = self.rig.completions(1).pop().unwrap();
        assert_eq!(completion.result.unwrap(), wanted as u64);
        completion.buffer.unwrap()
    }

    /// Reads into a part of a buffer.
    pub fn read(&mut self, offset: usize, buffer: Buffer, start: usize, end: usize) -> Buffer {
        let offset = offset as u64;
        self.run(FileOperationKind::Read {
            offset,
            buffer,
            start,
            end,
        })
    }

    /// Reads into all of a buffer what [`pattern`] put there, and looks.
    pub fn read_all(&mut self, offset: usize, mut buffer: Buffer) -> Buffer {
        let end = buffer.len();
        buffer.fill(0xff);
        let buffer = self.read(offset, buffer, 0, end);
        let expected = &pattern(LENGTH, 0)[offset..offset + end];
        assert!(buffer[..] == *expected, "{end} bytes from {offset}");
        buffer
    }

    /// Writes a part of a buffer.
    pub fn write(&mut self, offset: usize, buffer: Buffer, start: usize, end: usize) -> Buffer {
        let offset = offset as u64;
        let dsync = start == 0;
        self.run(FileOperationKind::Write {
            offset,
            buffer,
            start,
            end,
            dsync,
        })
    }

    pub fn counters(&self) -> EngineCounters {
        self.rig.engine.counters()
    }

    /// Operations on registered buffers so far, as far as this engine has such.
    pub fn assert_registered(&self, operations: u64) {
        let uring = self.rig.engine.kind() == EngineKind::IoUring;
        let expected = if uring { operations } else { 0 };
        assert_eq!(self.counters().registered_operations, expected);
    }

    pub fn assert_bytes(&self, bytes: usize) {
        let uring = self.rig.engine.kind() == EngineKind::IoUring;
        assert_eq!(
            self.counters().registered_bytes,
            if uring { bytes } else { 0 }
        );
    }
}
