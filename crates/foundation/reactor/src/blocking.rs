//! Threads for control work that may block: opening files, resolving names, writing state.

use crate::helper::HelperPool;

/// Runs closures on a few threads that start when needed and end when idle. Not for the data path.
///
/// Dropping the pool lets queued work finish in the background.
#[derive(Debug)]
pub struct BlockingPool(HelperPool<Work>);

type Work = Box<dyn FnOnce() + Send>;

impl BlockingPool {
    /// A pool of at most `threads_max` threads.
    ///
    /// # Panics
    /// If `threads_max` is zero.
    #[must_use]
    pub fn new(threads_max: usize) -> Self {
        Self::named("longshore-blk", threads_max)
    }

    /// The same, whose threads have that name.
    ///
    /// # Panics
    /// If `threads_max` is zero.
    #[must_use]
    pub fn named(name: &'static str, threads_max: usize) -> Self {
        Self(HelperPool::new(name, threads_max, |work: Work| {
            // A panic of one piece of work must not take the thread from the others. The hook has
            // reported it; the state it touched is the closure's own business.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            None
        }))
    }

    /// Queues `work`. It reports its result by itself, for example by a mailbox.
    pub fn run(&self, work: Box<dyn FnOnce() + Send>) {
        self.0.submit(work);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_runs_after_other_work_has_panicked() {
        let pool = BlockingPool::new(1);
        let (done, result) = channel();
        pool.run(Box::new(|| {
            std::panic::resume_unwind(Box::new("on purpose"))
        }));
        pool.run(Box::new(move || done.send(42).unwrap()));
        assert_eq!(result.recv(), Ok(42));
    }
}
