//! Exponentiations for hosts that authenticate (DH-HMAC-CHAP). Event loops never compute them: one takes as long as
//! thousands of reads.
//!
//! Few threads take them in the order in which they come, so that hosts that authenticate leave processors for others. A host
//! has one under way at a time on each queue. Those of queues that are authenticated already come first.
//!
//! What waits takes a quarter of the time that a host has to authenticate, at most; beyond, hosts are told to try again.
//! Queues that are authenticated have such a quarter of their own. What nobody waits for any more is not computed.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_nvme::auth::Computation;
use longshore_reactor::BlockingPool;

use crate::address::TaskAddress;
use crate::mail::message::{Message, Note, Post};

/// Event loops for each thread.
const SHARDS_PER_THREAD: usize = 4;

/// The part of the time for a login that may be spent waiting.
const PART_OF_LOGIN: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Computations {
    pool: BlockingPool,
    queue: Arc<Mutex<Queue<Job>>>,
}

/// For whom something is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// A queue that has proved itself and does so again.
    Proved,
    Unproved,
}

#[derive(Debug)]
struct Job {
    computation: Computation,
    task: TaskAddress,
    post: Post,
}

/// A place in the queue; it is given up when this is dropped.
pub(crate) struct Pending {
    queue: Arc<Mutex<Queue<Job>>>,
    number: u64,
}

impl Computations {
    /// For a server with that many event loops, whose hosts have that long to authenticate.
    pub(crate) fn new(shards: usize, login_timeout: Duration) -> Self {
        let threads = shards.div_ceil(SHARDS_PER_THREAD).max(1);
        let limit = (login_timeout / PART_OF_LOGIN)
            .saturating_mul(u32::try_from(threads).unwrap_or(u32::MAX));
        Self {
            pool: BlockingPool::named("longshore-auth", threads),
            queue: Arc::new(Mutex::new(Queue::new(limit))),
        }
    }

    /// Has something computed for a task, which gets a note, if there is room for it.
    pub(crate) fn begin(
        &self,
        computation: Computation,
        task: TaskAddress,
        post: Post,
        urgency: Urgency,
    ) -> Option<Pending> {
        let cost = computation.cost();
        let job = Job {
            computation,
            task,
            post,
        };
        let number = lock(&self.queue).enter(job, cost, urgency)?;
        let queue = Arc::clone(&self.queue);
        self.pool.run(Box::new(move || {
            let next = lock(&queue).next();
            if let Some(job) = next {
                let value = job.computation.run();
                let note = Note::Computed {
                    task: job.task,
                    value,
                };
                job.post.send(Message::Note(job.task.connection, note));
            }
        }));
        let queue = Arc::clone(&self.queue);
        Some(Pending { queue, number })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.queue).leave(self.number);
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pending").field(&self.number).finish()
    }
}

fn lock<T>(queue: &Mutex<Queue<T>>) -> MutexGuard<'_, Queue<T>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What waits for a thread.
#[derive(Debug)]
struct Queue<T> {
    /// Most that each of the backlogs holds.
    limit: Duration,
    proved: Backlog<T>,
    unproved: Backlog<T>,
    entered: u64,
}

#[derive(Debug)]
struct Backlog<T> {
    entries: VecDeque<Entry<T>>,
    cost: Duration,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    cost: Duration,
    job: T,
}

impl<T> Queue<T> {
    const fn new(limit: Duration) -> Self {
        Self {
            limit,
            proved: Backlog::new(),
            unproved: Backlog::new(),
            entered: 0,
        }
    }

    /// The number of the entry, if there is room for it. An empty backlog has room for anything.
    fn enter(&mut self, job: T, cost: Duration, urgency: Urgency) -> Option<u64> {
        let backlog = match urgency {
            Urgency::Proved => &mut self.proved,
            Urgency::Unproved => &mut self.unproved,
        };
        if !backlog.entries.is_empty() && backlog.cost + cost > self.limit {
            return None;
        }
        let number = self.entered;
        self.entered += 1;
        backlog.cost += cost;
        backlog.entries.push_back(Entry { number, cost, job });
        Some(number)
    }

    /// What is computed next.
    fn next(&mut self) -> Option<T> {
        self.proved.next().or_else(|| self.unproved.next())
    }

    /// Nobody waits for an entry any more, if it is there.
    fn leave(&mut self, number: u64) {
        self.proved.leave(number);
        self.unproved.leave(number);
    }
}

impl<T> Backlog<T> {
    const fn new() -> Self {
        Self {
            entries: VecDeque::new(),
            cost: Duration::ZERO,
        }
    }

    fn next(&mut self) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.cost -= entry.cost;
        Some(entry.job)
    }

    fn leave(&mut self, number: u64) {
        // Numbers rise.
        let found = self
            .entries
            .binary_search_by_key(&number, |entry| entry.number);
        if let Some(entry) = found.ok().and_then(|at| self.entries.remove(at)) {
            self.cost -= entry.cost;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(20);
    const LIMIT: Duration = Duration::from_millis(3750);

    #[test]
    fn abandoned_computations_keep_no_honest_host_out() {
        let mut queue = Queue::new(LIMIT);
        for _ in 0..1024 {
            let number = queue.enter("abandoned", LONG, Urgency::Unproved).unwrap();
            queue.leave(number);
        }
        assert!(queue.enter("honest", LONG, Urgency::Unproved).is_some());
        assert_eq!(queue.next(), Some("honest"));
        assert_eq!(queue.next(), None);
    }

    #[test]
    fn what_waits_is_limited_by_the_time_it_takes() {
        let mut queue = Queue::new(LIMIT);
        let taken = |queue: &mut Queue<&str>, cost| {
            let entered = (0..10_000).map_while(|_| queue.enter("", cost, Urgency::Unproved));
            entered.count()
        };
        assert_eq!(taken(&mut queue, LONG), 187);
        assert_eq!(taken(&mut queue, LONG), 0);
        let mut queue = Queue::new(LIMIT);
        assert_eq!(taken(&mut queue, LONG / 20), 3750);
        // However little time there is, one at a time gets its turn.
        let mut queue = Queue::new(LONG / 2);
        assert_eq!(taken(&mut queue, LONG), 1);
        assert_eq!(queue.next(), Some(""));
        assert_eq!(taken(&mut queue, LONG), 1);
    }

    #[test]
    fn queues_that_are_authenticated_come_first_and_have_room_of_their_own() {
        let mut queue = Queue::new(LIMIT);
        while queue.enter("stranger", LONG, Urgency::Unproved).is_some() {}
        assert!(queue.enter("known", LONG, Urgency::Proved).is_some());
        assert_eq!(queue.next(), Some("known"));
        assert_eq!(queue.next(), Some("stranger"));
    }
}
