//! Small writes to the page cache, a file's one after the other.
//!
//! A file system lets one writer at a file at a time (the lock of its inode). Several threads are of no use there: they
//! wait for each other, on the core of who submitted, and each wakes the engine for one completion. So what
//! a turn writes to a file is one job of one thread, which tells of many completions at once.
//!
//! Block devices have no such lock, and what has to reach the medium (RWF_DSYNC) waits best beside others: these have no
//! write queue. ZFS has no such lock either; there, writes that have to read first do so one after the other.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::file_call;
use crate::storage::{FileCompletion, FileOperation, FileOperationKind};

/// Completions wait no longer for others of their queue, but for the write under way. One of 4 KiB takes two microseconds, a
/// change of threads some more than that.
const TELL_AFTER: Duration = Duration::from_micros(50);

/// Writes of this many bytes have no queue: their cost is the copy, and writes behind them would wait for it.
const LARGE: usize = 64 << 10;

/// A thread takes up this many writes of a queue before it looks after others.
const BATCH: usize = 32;

/// The write queues of the files of one engine.
#[derive(Debug, Default)]
pub(super) struct WriteQueues {
    /// By the address of the file, which stays taken as long as there is a weak reference to it.
    files: HashMap<usize, Known>,
    /// Queues that a thread has to take up at the end of this turn.
    begun: Vec<Arc<WriteQueue>>,
}

/// What is known of a file.
#[derive(Debug)]
struct Known {
    file: Weak<File>,
    /// `None`: its writes do not wait for each other.
    queue: Option<Arc<WriteQueue>>,
}

impl Known {
    fn of(file: &Arc<File>) -> Self {
        // What is known here is enough: file systems of a network would write back before they ask for more.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = rustix::fs::statx(file, c"", flags, StatxFlags::TYPE);
        let is_regular = status.is_ok_and(|status| {
            FileType::from_raw_mode(status.stx_mode.into()) == FileType::RegularFile
        });
        Self {
            file: Arc::downgrade(file),
            queue: is_regular.then(Arc::default),
        }
    }
}

impl WriteQueues {
    /// Takes an operation in. Gives it back if it is not for a queue.
    #[must_use]
    pub(super) fn submit(&mut self, operation: FileOperation) -> Option<FileOperation> {
        if !is_small_cached_write(&operation) {
            return Some(operation);
        }
        let file = &operation.file.0;
        let address = Arc::as_ptr(file).addr();
        let known = match self.files.get(&address) {
            Some(known) => known,
            None => {
                self.files.retain(|_, known| known.file.strong_count() > 0);
                self.files.entry(address).or_insert(Known::of(file))
            }
        };
        let Some(queue) = &known.queue else {
            return Some(operation);
        };
        let mut pending = queue.lock();
        pending.operations.push_back(operation);
        if !std::mem::replace(&mut pending.is_taken_up, true) {
            self.begun.push(Arc::clone(queue));
        }
        None
    }

    /// The queues that a thread has to take up now.
    #[inline]
    pub(super) fn begun(&mut self) -> impl Iterator<Item = Arc<WriteQueue>> {
        self.begun.drain(..)
    }

    /// Drops operations that nobody has begun; returns how many.
    pub(super) fn cancel_queued(&mut self) -> usize {
        self.begun.clear();
        let queues = self.files.values().filter_map(|known| known.queue.as_ref());
        queues
            .map(|queue| std::mem::take(&mut queue.lock().operations).len())
            .sum()
    }
}

fn is_small_cached_write(operation: &FileOperation) -> bool {
    match &operation.kind {
        FileOperationKind::Write {
            start,
            end,
            dsync: false,
            ..
        } => end.saturating_sub(*start) < LARGE && !operation.is_direct,
        _ => false,
    }
}

/// Writes to one file.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    pending: Mutex<Pending>,
    /// Of the thread that has taken it up.
    work: Mutex<Work>,
}

#[derive(Debug, Default)]
struct Pending {
    operations: VecDeque<FileOperation>,
    /// Somebody does what is in there, or is about to.
    is_taken_up: bool,
}

/// Empty between runs; kept for its memory.
#[derive(Debug, Default)]
struct Work {
    operations: VecDeque<FileOperation>,
    ended: Vec<FileCompletion>,
}

impl WriteQueue {
    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what is in the queue now, up to a batch. `tell` empties the list of what has ended. False: nothing was there, and who submits
    /// next has to have the queue taken up again.
    pub(super) fn run(&self, tell: impl Fn(&mut Vec<FileCompletion>)) -> bool {
        // The previous thread may still be on its way out.
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Work { operations, ended } = &mut *work;
        let mut pending = self.lock();
        if pending.operations.is_empty() {
            pending.is_taken_up = false;
            return false;
        }
        let batch = pending.operations.len().min(BATCH);
        operations.extend(pending.operations.drain(..batch));
        drop(pending);
        let mut told = Instant::now();
        while let Some(operation) = operations.pop_front() {
            ended.push(file_call::carry_out(operation));
            if operations.is_empty() || told.elapsed() >= TELL_AFTER {
                tell(ended);
                told = Instant::now();
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::buffer::Buffer;
    use crate::storage::{FileHandle, StorageTag};

    fn file() -> FileHandle {
        FileHandle(Arc::new(tempfile::tempfile().unwrap()))
    }

    fn write(file: &FileHandle, tag: u64, dsync: bool) -> FileOperation {
        let mut buffer = Buffer::allocate(512);
        buffer.fill(u8::try_from(tag).unwrap());
        FileOperation {
            file: file.clone(),
            kind: FileOperationKind::Write {
                offset: tag * 512,
                buffer,
                start: 0,
                end: 512,
                dsync,
            },
            is_direct: false,
            tag: StorageTag(tag),
        }
    }

    #[test]
    fn a_queue_is_taken_up_once_and_runs_what_has_come_until_then() {
        let mut queues = WriteQueues::default();
        let files = [file(), file()];
        for tag in 0..3 {
            for file in &files {
                assert!(queues.submit(write(file, tag, false)).is_none());
            }
        }
        let begun: Vec<_> = queues.begun().collect();
        assert_eq!(begun.len(), 2, "one for each file");
        assert!(queues.submit(write(&files[0], 3, false)).is_none());
        assert_eq!(queues.begun().count(), 0, "it is taken up already");
        let told = RefCell::new(Vec::new());
        let tell = |ended: &mut Vec<FileCompletion>| {
            for completion in ended.drain(..) {
                assert_eq!(completion.result.unwrap(), 512);
                told.borrow_mut().push(completion.tag.0);
            }
        };
        assert!(begun[0].run(tell));
        assert_eq!(told.take(), [0, 1, 2, 3]);
        assert!(!begun[0].run(tell));
        assert!(queues.submit(write(&files[0], 4, false)).is_none());
        assert_eq!(queues.begun().count(), 1, "it was put down");
        let mut byte = [0];
        files[0].0.read_exact_at(&mut byte, 3 * 512).unwrap();
        assert_eq!(byte, [3]);
    }

    #[test]
    fn what_waits_for_the_medium_or_is_no_regular_file_has_no_queue() {
        let mut queues = WriteQueues::default();
        let null = FileHandle(Arc::new(File::create("/dev/null").unwrap()));
        assert!(queues.submit(write(&null, 0, false)).is_some());
        let file = file();
        assert!(queues.submit(write(&file, 0, true)).is_some());
        let direct = FileOperation {
            is_direct: true,
            ..write(&file, 0, false)
        };
        assert!(queues.submit(direct).is_some());
        assert_eq!(queues.begun().count(), 0);
    }

    #[test]
    fn files_that_are_gone_are_forgotten() {
        let mut queues = WriteQueues::default();
        for tag in 0..20 {
            assert!(queues.submit(write(&file(), tag, false)).is_none());
            let queue = queues.begun().next().unwrap();
            queue.run(Vec::clear);
            assert!(queues.files.len() <= 2);
        }
    }

    #[test]
    fn operations_that_nobody_has_begun_are_dropped() {
        let mut queues = WriteQueues::default();
        let file = file();
        (0..5).for_each(|tag| assert!(queues.submit(write(&file, tag, false)).is_none()));
        assert_eq!(queues.cancel_queued(), 5);
        assert_eq!(queues.begun().count(), 0);
    }
}
