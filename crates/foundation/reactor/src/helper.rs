//! Threads for calls that may sleep, started on demand and ended when idle.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::allocator;

/// A helper that finds no work for this long ends.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Up to `threads_max` threads that begin jobs of one kind in order of submission.
///
/// Jobs are owned by the pool's queue and then by the thread that runs them: dropping the pool
/// leaves running jobs to finish by themselves.
pub(crate) struct HelperPool<J> {
    shared: Arc<Shared<J>>,
}

/// Does a job, or a part of one, whose rest goes behind all others.
type Run<J> = Box<dyn Fn(J) -> Option<J> + Send + Sync>;

struct Shared<J> {
    name: &'static str,
    threads_max: usize,
    run: Run<J>,
    queue: Mutex<Queue<J>>,
    work: Condvar,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    threads: usize,
    idle: usize,
    /// The pool is gone: threads end when they run out of jobs.
    closed: bool,
}

impl<J> Shared<J> {
    /// Jobs run outside of the lock, so a poisoned lock still guards a consistent queue.
    fn lock(&self) -> MutexGuard<'_, Queue<J>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J: Send + 'static> HelperPool<J> {
    pub(crate) fn new(
        name: &'static str,
        threads_max: usize,
        run: impl Fn(J) -> Option<J> + Send + Sync + 'static,
    ) -> Self {
        assert!(
            threads_max > 0,
            "a pool without threads never does anything"
        );
        let queue = Queue {
            jobs: VecDeque::new(),
            threads: 0,
            idle: 0,
            closed: false,
        };
        Self {
            shared: Arc::new(Shared {
                name,
                threads_max,
                run: Box::new(run),
                queue: Mutex::new(queue),
                work: Condvar::new(),
            }),
        }
    }

    /// Queues a job. The lock is held for a few instructions by either side; whoever comes here has
    /// accepted that the job costs a change of threads anyway.
    pub(crate) fn submit(&self, job: J) {
        let mut queue = self.shared.lock();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() {
            drop(queue);
            self.shared.work.notify_one();
        } else if queue.threads < self.shared.threads_max {
            queue.threads += 1;
            drop(queue);
            self.start_thread();
        }
        // Else all are busy, and each looks for more work before it rests.
    }

    /// Takes back the jobs that no thread has begun.
    pub(crate) fn cancel_queued(&self) -> VecDeque<J> {
        std::mem::take(&mut self.shared.lock().jobs)
    }

    fn start_thread(&self) {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(self.shared.name.to_owned());
        let started = allocator::spawn(thread, move || helper_thread(&shared));
        if let Err(error) = started {
            let mut queue = self.shared.lock();
            queue.threads -= 1;
            if queue.threads > 0 {
                return; // The others take it.
            }
            drop(queue);
            // Better slow than stuck: the caller itself works the queue off.
            tracing::warn!(%error, name = self.shared.name, "cannot start a helper thread");
            while let Some(job) = { self.shared.lock().jobs.pop_front() } {
                let rest = (self.shared.run)(job);
                self.shared.lock().jobs.extend(rest);
            }
        }
    }
}

fn helper_thread<J>(shared: &Shared<J>) {
    let mut queue = shared.lock();
    loop {
        while let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            let rest = (shared.run)(job);
            queue = shared.lock();
            queue.jobs.extend(rest);
        }
        if queue.closed {
            queue.threads -= 1;
            return;
        }
        queue.idle += 1;
        let (woken, waited) = shared
            .work
            .wait_timeout(queue, IDLE_TIME)
            .unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle -= 1;
        if waited.timed_out() && queue.jobs.is_empty() {
            queue.threads -= 1;
            return;
        }
    }
}

impl<J> Drop for HelperPool<J> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl<J> fmt::Debug for HelperPool<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.shared.lock();
        f.debug_struct("HelperPool")
            .field("name", &self.shared.name)
            .field("queued", &queue.jobs.len())
            .field("threads", &queue.threads)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{channel, sync_channel};
    use std::time::Duration;

    use super::*;

    #[test]
    fn jobs_run_at_the_same_time_up_to_the_limit() {
        let (running, started) = channel();
        let (release, hold) = sync_channel::<()>(0);
        let hold = Mutex::new(hold);
        let pool = HelperPool::new("test", 3, move |job: u32| {
            running.send(job).unwrap();
            // Waiting for the lock or for the channel: all the same here.
            let _ = hold.lock().unwrap().recv();
            None
        });
        (0..5).for_each(|job| pool.submit(job));
        let mut first: Vec<_> = (0..3).map(|_| started.recv().unwrap()).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        assert!(started.recv_timeout(Duration::from_millis(50)).is_err());
        assert_eq!(pool.cancel_queued(), [3, 4]);
        drop(release);
    }

    #[test]
    fn one_thread_runs_jobs_in_order() {
        let (done, results) = channel();
        let pool = HelperPool::new("test", 1, move |job: u32| {
            done.send(job).unwrap();
            None
        });
        (0..100).for_each(|job| pool.submit(job));
        assert!(results.iter().take(100).eq(0..100));
    }

    #[test]
    fn the_rest_of_a_job_goes_behind_others() {
        let (done, results) = channel();
        let (go, wait) = sync_channel::<()>(0);
        let wait = Mutex::new(wait);
        let pool = HelperPool::new("test", 1, move |job: u32| {
            let _ = wait.lock().unwrap().recv();
            done.send(job).unwrap();
            job.checked_sub(10)
        });
        [25, 3].into_iter().for_each(|job| pool.submit(job));
        drop(go);
        assert!(results.iter().take(4).eq([25, 3, 15, 5]));
    }

    #[test]
    fn jobs_queued_when_the_pool_is_dropped_still_run() {
        let (done, results) = channel();
        let pool = HelperPool::new("test", 2, move |job: u32| {
            done.send(job).unwrap();
            None
        });
        (0..50).for_each(|job| pool.submit(job));
        drop(pool);
        assert_eq!(results.iter().count(), 50);
    }
}
