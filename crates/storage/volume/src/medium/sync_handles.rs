//! File descriptions for operations that sync, so that each learns of its own failures.
//!
//! The kernel reports a failed write-back once per open file description: of two syncs that run on
//! one description at the same time, the first to return takes the error and the other succeeds,
//! although data that it vouches for is lost. A sync therefore has a description, a *sync handle*, to itself
//! for as long as it runs. When all are taken, a further description is opened for the moment;
//! only when that fails too (no file descriptors left, no `/proc`) is one shared.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use longshore_reactor::storage::FileHandle;

/// Syncs of one volume that commonly run at once.
const COUNT: u32 = 8;

#[derive(Debug)]
pub(super) struct SyncHandles {
    handles: Box<[FileHandle]>,
    /// Bit *i* is set while handle *i* is free.
    free: AtomicU32,
}

impl SyncHandles {
    pub(super) fn none() -> SyncHandles {
        SyncHandles {
            handles: Box::default(),
            free: AtomicU32::new(0),
        }
    }

    pub(super) fn open(file: &File, volume: &str) -> SyncHandles {
        let mut handles = Vec::new();
        for _ in 0..COUNT {
            match reopen(file) {
                Ok(file) => handles.push(FileHandle(Arc::new(file))),
                Err(error) => {
                    tracing::warn!(volume, %error, handles = handles.len(), "cannot open the file \
                        again: when several flushes fail at once, only one may be reported");
                    break;
                }
            }
        }
        let count = u32::try_from(handles.len()).expect("at most COUNT");
        SyncHandles {
            handles: handles.into(),
            free: AtomicU32::new((1 << count) - 1),
        }
    }

    /// Takes a free handle, if there is one.
    pub(super) fn take(&self) -> SyncHandle<'_> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let number = free.trailing_zeros();
            let without = free & !(1 << number);
            match self.free.compare_exchange_weak(
                free,
                without,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return SyncHandle {
                        all: self,
                        number: Some(number),
                    };
                }
                Err(now) => free = now,
            }
        }
        SyncHandle {
            all: self,
            number: None,
        }
    }
}

/// The exclusive right to sync on a description.
///
/// It has to be given back. One that is dropped with its request stays taken: the sync that goes on there
/// may get the report of a failure, and its result is not read. The next sync on that description
/// would succeed although data is lost.
#[derive(Debug)]
pub(super) struct SyncHandle<'a> {
    all: &'a SyncHandles,
    /// `None`: all handles were taken.
    number: Option<u32>,
}

impl SyncHandle<'_> {
    /// The description to sync on; `volume` is the one shared by all other operations.
    pub(super) fn handle(&self, volume: &FileHandle) -> FileHandle {
        match self.number {
            Some(number) => self.all.handles[number as usize].clone(),
            None => match reopen(&volume.0) {
                Ok(file) => FileHandle(Arc::new(file)),
                Err(_) => volume.clone(),
            },
        }
    }

    /// The result of the sync has been seen: others may have the description.
    pub(super) fn give_back(self) {
        if let Some(number) = self.number {
            let before = self.all.free.fetch_or(1 << number, Ordering::Release);
            assert!(before & (1 << number) == 0, "a handle is given back once");
        }
    }
}

/// Another description of the same object, whatever its path says by now.
fn reopen(file: &File) -> std::io::Result<File> {
    let direct = rustix::fs::fcntl_getfl(file)? & rustix::fs::OFlags::DIRECT;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(direct.bits().cast_signed())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_handle_is_taken_by_one_at_a_time() {
        let path =
            std::env::temp_dir().join(format!("longshore-sync-handles-{}", std::process::id()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("open");
        std::fs::remove_file(&path).expect("remove");
        let handles = SyncHandles::open(&file, "t");
        let mut taken: Vec<_> = (0..COUNT).map(|_| handles.take()).collect();
        let mut distinct: Vec<_> = taken.iter().map(|handle| handle.number).collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), taken.len());
        let without = handles.take();
        assert_eq!(without.number, None);
        let volume = FileHandle(Arc::new(file));
        assert!(
            !Arc::ptr_eq(&without.handle(&volume).0, &volume.0),
            "opened for the moment"
        );
        let handle = taken.swap_remove(3);
        let free = handle.number;
        handle.give_back();
        assert_eq!(handles.take().number, free);
        drop(taken);
        assert_eq!(handles.take().number, None, "a dropped handle stays taken");
    }
}
