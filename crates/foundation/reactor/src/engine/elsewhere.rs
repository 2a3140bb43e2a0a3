//! Large reads and writes of files on threads of other cores, while this engine's core is short of time.
//!
//! What such an operation costs is copying between the page cache and its buffer. A ring makes the copy of a
//! cached read where it is submitted, and keeps its workers on the core of who submits, if the scheduler finds no reason to
//! move them; helper threads inherit that core. The threads here have cores of their own, as few as do the work: they
//! never wait for the medium. A read that would wait is given back, and takes the usual path, where many can wait at
//! a time; a write that has to reach the medium never comes here. Operations own their file and buffer wherever they
//! are, so nothing changes for those who cancel, or end the engine.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::EngineEvent;
use crate::affinity;
use crate::file_call::{self, Attempted};
use crate::helper::HelperPool;
use crate::storage::{FileOperation, FileOperationKind};
use crate::wake::Waker;

/// More do not copy faster: memory is the limit, and all send through one core.
const THREADS_MAX: usize = 4;

/// See the module documentation. Belongs to one engine.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pool: HelperPool<FileOperation>,
    shared: Arc<Shared>,
    /// Operations that move less stay; `usize::MAX`: all do.
    from_bytes: usize,
    in_flight: usize,
}

#[derive(Debug)]
struct Shared {
    cores: Cores,
    /// `None`: the engine is gone.
    ended: Mutex<Option<VecDeque<Attempted>>>,
    waker: Waker,
}

/// Where the threads run.
#[derive(Debug, Default)]
struct Cores {
    /// Changes whenever they do.
    version: AtomicU32,
    /// Empty: where the threads were started.
    list: Mutex<Vec<usize>>,
}

impl Cores {
    fn set(&self, cores: &[usize]) {
        let mut list = self.lock();
        if *list != cores {
            cores.clone_into(&mut list);
            self.version.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has the calling thread run there.
    fn follow(&self) {
        thread_local! {
            static VERSION: Cell<u32> = const { Cell::new(0) };
        }
        let version = self.version.load(Ordering::Relaxed);
        if VERSION.replace(version) == version {
            return;
        }
        let cores = self.lock().clone();
        if let (false, Err(error)) = (cores.is_empty(), affinity::pin_to_cores(&cores)) {
            // It works where it is, which whoever asked for this notices by the time it takes.
            tracing::debug!(?cores, %error, "helper thread not pinned to other cores");
        }
    }

    /// Nothing is left half done under the lock.
    fn lock(&self) -> MutexGuard<'_, Vec<usize>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Attempted>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, operation: FileOperation) {
        self.cores.follow();
        let ended = file_call::attempt(operation);
        let mut queue = self.lock();
        let Some(open) = &mut *queue else {
            drop(queue);
            return; // And with it goes the buffer, outside of the lock.
        };
        open.push_back(ended);
        drop(queue);
        self.waker.wake_for_helper();
    }
}

impl Elsewhere {
    /// Takes operations of so many bytes from now on, for threads on `cores`; `usize::MAX`: no more of them.
    /// Threads exist from the first time on.
    pub(super) fn take_from(
        this: &mut Option<Self>,
        from_bytes: usize,
        cores: &[usize],
        waker: &Waker,
    ) {
        match this {
            Some(elsewhere) => {
                elsewhere.from_bytes = from_bytes;
                elsewhere.shared.cores.set(cores);
            }
            None if from_bytes == usize::MAX => {}
            None => *this = Some(Self::new(from_bytes, cores, waker.clone())),
        }
    }

    fn new(from_bytes: usize, cores: &[usize], waker: Waker) -> Self {
        let shared = Arc::new(Shared {
            cores: Cores::default(),
            ended: Mutex::new(Some(VecDeque::new())),
            waker,
        });
        shared.cores.set(cores);
        let threads = cores.len().clamp(1, THREADS_MAX);
        let working = Arc::clone(&shared);
        Self {
            pool: HelperPool::new("longshore-copy", threads, move |operation| {
                working.run(operation);
                None
            }),
            shared,
            from_bytes,
            in_flight: 0,
        }
    }

    /// Whether an operation is for it.
    #[inline]
    pub(super) fn takes(&self, operation: &FileOperation) -> bool {
        let bytes = match &operation.kind {
            FileOperationKind::Read { start, end, .. }
            | FileOperationKind::Write {
                start,
                end,
                dsync: false,
                ..
            } => end.saturating_sub(*start),
            _ => 0,
        };
        bytes >= self.from_bytes && !operation.is_direct
    }

    pub(super) fn submit(&mut self, operation: FileOperation) {
        self.in_flight += 1;
        self.pool.submit(operation);
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Appends what is done to `events`, and to `again` what has to begin anew elsewhere. Returns how many are done.
    pub(super) fn take_ended(
        &mut self,
        events: &mut Vec<EngineEvent>,
        again: &mut Vec<FileOperation>,
    ) -> u64 {
        let mut queue = self.shared.lock();
        let mut done = 0;
        for ended in queue.iter_mut().flat_map(|queue| queue.drain(..)) {
            self.in_flight -= 1;
            match ended {
                Attempted::Done(completion) => {
                    done += 1;
                    events.push(EngineEvent::File(completion));
                }
                Attempted::WouldSleep(operation) => again.push(operation),
            }
        }
        done
    }

    /// Drops operations that no thread has begun.
    pub(super) fn cancel_queued(&mut self) {
        self.in_flight -= self.pool.cancel_queued().len();
    }
}

impl Drop for Elsewhere {
    /// What threads still do has nobody to go to.
    fn drop(&mut self) {
        let unread = self.shared.lock().take();
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn threads_follow_the_cores_they_are_given() {
        let cores = Arc::new(Cores::default());
        let (go, gone) = channel();
        let (told, where_it_runs) = channel();
        let followed = Arc::clone(&cores);
        std::thread::spawn(move || {
            for () in gone {
                followed.follow();
                told.send(affinity::allowed_cores().unwrap()).unwrap();
            }
        });
        let allowed = || {
            go.send(()).unwrap();
            where_it_runs.recv().unwrap()
        };
        let all = allowed();
        for core in &all {
            cores.set(&[*core]);
            assert_eq!(allowed(), [*core]);
        }
        cores.set(&all);
        assert_eq!(allowed(), all);
    }
}
