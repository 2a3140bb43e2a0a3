//! Exponentiations for hosts that authenticate (DH-HMAC-CHAP). Event loops never compute them: one takes as long as
//! thousands of reads.
//!
//! Few threads take them in the order in which they come, so that hosts that authenticate leave processors for others.
//! A host has one under way at a time on each queue. Beyond [`QUEUED_MAX`], hosts are told to try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longshore_nvme::auth::Computation;
use longshore_reactor::BlockingPool;

use crate::address::TaskAddress;
use crate::mail::message::{Message, Note, Post};

/// Most exponentiations that wait at a time.
const QUEUED_MAX: usize = 1024;

/// Event loops for each thread.
const SHARDS_PER_THREAD: usize = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Computations {
    pool: BlockingPool,
    queued: Arc<AtomicUsize>,
}

impl Computations {
    /// For a server with that many event loops.
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            pool: BlockingPool::named("longshore-auth", shards.div_ceil(SHARDS_PER_THREAD).max(1)),
            queued: Arc::default(),
        }
    }

    /// Has something computed for a task, which gets a note. Whether there was room for it.
    pub(crate) fn begin(&self, computation: Computation, task: TaskAddress, post: Post) -> bool {
        let queued = Arc::clone(&self.queued);
        if queued.fetch_add(1, Ordering::Relaxed) >= QUEUED_MAX {
            queued.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.pool.run(Box::new(move || {
            let value = computation.run();
            queued.fetch_sub(1, Ordering::Relaxed);
            let note = Note::Computed { task, value };
            post.send(Message::Note(task.connection, note));
        }));
        true
    }
}
