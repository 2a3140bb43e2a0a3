//! Helper threads for file operations, delegated operations, and the way back of their completions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::EngineEvent;
use crate::file_call;
use crate::helper::HelperPool;
use crate::storage::{CompletionSink, Delegated, FileCompletion, FileOperation, StorageTag};
use crate::wake::Waker;

mod write_queues;

use write_queues::{WriteQueue, WriteQueues};

/// See the module documentation. Belongs to one engine.
#[derive(Debug)]
pub(super) struct FileHelpers {
    pool: HelperPool<Job>,
    write_queues: WriteQueues,
    done: Arc<Done>,
    pub(super) in_flight: usize,
}

/// What a helper thread takes up at a time.
enum Job {
    Operation(FileOperation),
    WriteQueue(Arc<WriteQueue>),
}

/// Completions of other threads, on their way to the engine.
#[derive(Debug)]
struct Done {
    queue: Mutex<DoneQueue>,
    waker: Waker,
}

#[derive(Debug)]
struct DoneQueue {
    completions: VecDeque<FileCompletion>,
    /// The engine is gone.
    closed: bool,
}

impl Done {
    /// Nothing is left half done under the lock, so a poisoned one still guards a consistent queue.
    fn lock(&self) -> MutexGuard<'_, DoneQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_in(&self, ended: impl Iterator<Item = FileCompletion>) {
        let mut queue = self.lock();
        if queue.closed {
            drop(queue);
            ended.for_each(drop); // And with them go the buffers, outside of the lock.
            return;
        }
        queue.completions.extend(ended);
        drop(queue);
        self.waker.wake_for_helper();
    }
}

impl CompletionSink for Done {
    fn accept(&self, completion: FileCompletion) {
        self.take_in(std::iter::once(completion));
    }
}

impl FileHelpers {
    pub(super) fn new(threads_max: usize, waker: Waker) -> Self {
        let done = Arc::new(Done {
            queue: Mutex::new(DoneQueue {
                completions: VecDeque::new(),
                closed: false,
            }),
            waker,
        });
        let results = done.clone();
        let pool = HelperPool::new("longshore-io", threads_max.max(1), move |job| match job {
            Job::Operation(operation) => {
                results.accept(file_call::carry_out(operation));
                None
            }
            Job::WriteQueue(queue) => {
                let may_have_more = queue.run(|ended| results.take_in(ended.drain(..)));
                may_have_more.then_some(Job::WriteQueue(queue))
            }
        });
        Self {
            pool,
            write_queues: WriteQueues::default(),
            done,
            in_flight: 0,
        }
    }

    /// Takes an operation. It begins now, or, if it is a write to the page cache, with all others of this turn at its end
    /// ([`Self::end_turn`]).
    pub(super) fn submit(&mut self, operation: FileOperation) {
        self.in_flight += 1;
        if let Some(operation) = self.write_queues.submit(operation) {
            self.pool.submit(Job::Operation(operation));
        }
    }

    /// Before the engine sleeps or looks.
    #[inline]
    pub(super) fn end_turn(&mut self) {
        for queue in self.write_queues.begun() {
            self.pool.submit(Job::WriteQueue(queue));
        }
    }

    pub(super) fn delegate(&mut self, tag: StorageTag) -> Delegated {
        self.in_flight += 1;
        Delegated::new(tag, self.done.clone())
    }

    /// Appends what is done; returns how many.
    pub(super) fn take_completions(&mut self, events: &mut Vec<EngineEvent>) -> u64 {
        let mut done = self.done.lock();
        let count = done.completions.len();
        events.extend(done.completions.drain(..).map(EngineEvent::File));
        self.in_flight -= count;
        u64::try_from(count).expect("usize is at most 64 bits on Linux")
    }

    /// Drops operations that no thread has begun. No more are submitted after that.
    pub(super) fn cancel_queued(&mut self) {
        let jobs = self.pool.cancel_queued();
        let is_operation = |job: &&Job| matches!(job, Job::Operation(_));
        self.in_flight -= jobs.iter().filter(is_operation).count();
        self.in_flight -= self.write_queues.cancel_queued();
    }
}

impl Drop for FileHelpers {
    /// Delegated operations may end at any later time, and would leave their buffers here.
    fn drop(&mut self) {
        let unread = {
            let mut done = self.done.lock();
            done.closed = true;
            std::mem::take(&mut done.completions)
        };
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{FileHandle, FileOperationKind};

    #[test]
    fn completion_for_an_engine_that_is_gone_is_not_kept() {
        let mut helpers = FileHelpers::new(1, Waker::new().unwrap());
        let (early, late) = (
            helpers.delegate(StorageTag(1)),
            helpers.delegate(StorageTag(2)),
        );
        let done = helpers.done.clone();
        early.complete(Ok(0), Some(crate::Buffer::allocate(512)));
        drop(helpers);
        late.complete(Ok(0), Some(crate::Buffer::allocate(512)));
        assert!(done.lock().completions.is_empty());
    }

    #[test]
    fn a_write_queue_may_be_taken_up_again_while_it_is_put_down() {
        let mut helpers = FileHelpers::new(4, Waker::new().unwrap());
        let file = FileHandle(Arc::new(tempfile::tempfile().unwrap()));
        let mut buffer = Some(crate::Buffer::allocate(512));
        let mut events = Vec::new();
        for tag in 0..5_000 {
            let kind = FileOperationKind::Write {
                offset: 0,
                buffer: buffer.take().unwrap(),
                start: 0,
                end: 512,
                dsync: false,
            };
            helpers.submit(FileOperation {
                file: file.clone(),
                kind,
                is_direct: false,
                tag: StorageTag(tag),
            });
            helpers.end_turn();
            while helpers.take_completions(&mut events) == 0 {
                std::hint::spin_loop();
            }
            let Some(EngineEvent::File(ended)) = events.pop() else {
                panic!("a write has ended");
            };
            assert_eq!((ended.tag, ended.result.unwrap()), (StorageTag(tag), 512));
            buffer = ended.buffer;
        }
        assert_eq!(helpers.in_flight, 0);
    }
}
