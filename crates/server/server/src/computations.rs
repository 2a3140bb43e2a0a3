//! Exponentiations for hosts that authenticate (DH-HMAC-CHAP). Event loops never compute them: one takes as long as
//! thousands of reads.
//!
//! Few threads take them, so that hosts that authenticate leave processors for others. A host has one under way at a time on
//! each queue. Those of queues that are authenticated already come first. Otherwise addresses share the threads fairly, by the
//! time that their computations take (weighted fair queueing): a hundred hosts with ffdhe8192 do not hold up one with
//! ffdhe2048, and an address with a hundred connections none of the others.
//!
//! What waits takes a quarter of the time that a host has to authenticate, at most; beyond, hosts are told to try again.
//! An address has as much of that as it leaves for the next one, so there is room for a newcomer. Queues that are
//! authenticated have such a quarter of their own. What nobody waits for any more is not computed.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longshore_nvme::auth::Computation;
use longshore_reactor::BlockingPool;

use crate::address::TaskAddress;
use crate::mail::message::{Message, Note, Post};
use crate::sessions::attempts::network;

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
    from: IpAddr,
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

    /// Has something computed for a task of a host at that address; the task gets a note, if there is room for it.
    pub(crate) fn begin(
        &self,
        computation: Computation,
        task: TaskAddress,
        post: Post,
        (from, urgency): (IpAddr, Urgency),
    ) -> Option<Pending> {
        let from = network(from);
        let cost = computation.cost();
        let job = Job {
            computation,
            task,
            post,
        };
        let number = lock(&self.queue).enter(job, cost, (from, urgency))?;
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
        Some(Pending {
            queue,
            from,
            number,
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.queue).leave(self.from, self.number);
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
    proved: Backlog<T>,
    unproved: Backlog<T>,
    entered: u64,
}

#[derive(Debug)]
struct Backlog<T> {
    /// Most that it holds.
    limit: Duration,
    /// The time that all of its entries take together.
    cost: Duration,
    lanes: HashMap<IpAddr, Lane<T>>,
    /// What an address that always had something waiting would have been given by now.
    clock: Duration,
}

/// What waits for hosts of one address, in the order in which it came. There is something.
#[derive(Debug)]
struct Lane<T> {
    entries: VecDeque<Entry<T>>,
    cost: Duration,
    /// On the clock: when the last of them has been given what it takes.
    finish: Duration,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    cost: Duration,
    finish: Duration,
    job: T,
}

impl<T> Queue<T> {
    fn new(limit: Duration) -> Self {
        Self {
            proved: Backlog::new(limit),
            unproved: Backlog::new(limit),
            entered: 0,
        }
    }

    /// The number of the entry, if there is room for it.
    fn enter(&mut self, job: T, cost: Duration, (from, urgency): (IpAddr, Urgency)) -> Option<u64> {
        let backlog = match urgency {
            Urgency::Proved => &mut self.proved,
            Urgency::Unproved => &mut self.unproved,
        };
        if !backlog.has_room(from, cost) {
            return None;
        }
        let number = self.entered;
        self.entered += 1;
        backlog.enter(from, number, cost, job);
        Some(number)
    }

    /// What is computed next.
    fn next(&mut self) -> Option<T> {
        self.proved.next().or_else(|| self.unproved.next())
    }

    /// Nobody waits for an entry any more, if it is there.
    fn leave(&mut self, from: IpAddr, number: u64) {
        self.proved.leave(from, number);
        self.unproved.leave(from, number);
    }
}

impl<T> Backlog<T> {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            cost: Duration::ZERO,
            lanes: HashMap::new(),
            clock: Duration::ZERO,
        }
    }

    /// An address may have as much waiting as would be left then. An empty backlog has room for anything.
    fn has_room(&self, from: IpAddr, cost: Duration) -> bool {
        let left = self.limit.saturating_sub(self.cost);
        let has_room = match self.lanes.get(&from) {
            Some(lane) => lane.cost + cost <= left.saturating_sub(cost),
            None => cost <= left,
        };
        has_room || self.lanes.is_empty()
    }

    fn enter(&mut self, from: IpAddr, number: u64, cost: Duration, job: T) {
        let clock = self.clock;
        let lane = self.lanes.entry(from).or_insert_with(|| Lane {
            entries: VecDeque::new(),
            cost: Duration::ZERO,
            finish: clock,
        });
        lane.finish = lane.finish.max(clock) + cost;
        lane.cost += cost;
        lane.entries.push_back(Entry {
            number,
            cost,
            finish: lane.finish,
            job,
        });
        self.cost += cost;
    }

    fn next(&mut self) -> Option<T> {
        let heads = self.lanes.iter().filter_map(|(from, lane)| {
            let entry = lane.entries.front()?;
            Some((entry.finish, entry.number, *from))
        });
        let (_, number, from) = heads.min()?;
        let lanes = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
        let entry = self.remove(from, number)?;
        self.clock += entry.cost / lanes;
        Some(entry.job)
    }

    fn leave(&mut self, from: IpAddr, number: u64) {
        self.remove(from, number);
    }

    fn remove(&mut self, from: IpAddr, number: u64) -> Option<Entry<T>> {
        let lane = self.lanes.get_mut(&from)?;
        // Numbers rise.
        let found = lane
            .entries
            .binary_search_by_key(&number, |entry| entry.number);
        let entry = lane.entries.remove(found.ok()?)?;
        lane.cost -= entry.cost;
        self.cost -= entry.cost;
        if lane.entries.is_empty() {
            self.lanes.remove(&from);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(20);
    const SHORT: Duration = Duration::from_micros(700);
    const LIMIT: Duration = Duration::from_millis(3750);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn stranger(last: u8) -> (IpAddr, Urgency) {
        (address(last), Urgency::Unproved)
    }

    #[test]
    fn abandoned_computations_keep_no_honest_host_out() {
        let mut queue = Queue::new(LIMIT);
        for _ in 0..1024 {
            let number = queue.enter("abandoned", LONG, stranger(1)).unwrap();
            queue.leave(address(1), number);
        }
        assert!(queue.enter("honest", LONG, stranger(1)).is_some());
        assert_eq!(queue.next(), Some("honest"));
        assert_eq!(queue.next(), None);
        assert_eq!(queue.unproved.cost, Duration::ZERO);
    }

    #[test]
    fn what_waits_is_limited_by_the_time_it_takes() {
        let mut queue = Queue::new(LIMIT);
        let taken = |queue: &mut Queue<&str>, cost, from| {
            let entered = (0..10_000).map_while(|_| queue.enter("", cost, stranger(from)));
            entered.count()
        };
        assert_eq!(taken(&mut queue, LONG, 1), 93);
        assert_eq!(taken(&mut queue, LONG, 1), 0);
        // Each address leaves as much as it takes.
        assert_eq!(taken(&mut queue, LONG, 2), 47);
        let others: usize = (3..=255).map(|from| taken(&mut queue, LONG, from)).sum();
        assert_eq!(others, 187 - 93 - 47);
        let mut queue = Queue::new(LIMIT);
        assert_eq!(taken(&mut queue, LONG / 20, 1), 1875);
        // However little time there is, one at a time gets its turn.
        let mut queue = Queue::new(LONG / 2);
        assert_eq!(taken(&mut queue, LONG, 1), 1);
        assert_eq!(queue.next(), Some(""));
        assert_eq!(taken(&mut queue, LONG, 1), 1);
    }

    #[test]
    fn queues_that_are_authenticated_come_first_and_have_room_of_their_own() {
        let mut queue = Queue::new(LIMIT);
        while queue.enter("stranger", LONG, stranger(1)).is_some() {}
        let known = (address(1), Urgency::Proved);
        assert!(queue.enter("known", LONG, known).is_some());
        assert_eq!(queue.next(), Some("known"));
        assert_eq!(queue.next(), Some("stranger"));
    }

    /// How long one waits that comes when `others` wait.
    fn wait_of(queue: &mut Queue<(&str, Duration)>, cost: Duration, from: u8) -> Duration {
        queue.enter(("own", cost), cost, stranger(from)).unwrap();
        let mut waited = Duration::ZERO;
        while let Some((name, cost)) = queue.next() {
            if name == "own" {
                return waited;
            }
            waited += cost;
        }
        panic!("it is lost");
    }

    #[test]
    fn a_hundred_hosts_with_large_groups_hold_up_no_other() {
        let mut queue = Queue::new(LIMIT);
        for from in 1..=100 {
            assert!(queue.enter(("large", LONG), LONG, stranger(from)).is_some());
        }
        // It is nobody's turn for long enough to be noticed, and there is room.
        for _ in 0..10 {
            assert!(wait_of(&mut queue, SHORT, 101) <= LONG);
        }
        // One of the same kind waits for its turn.
        assert!(wait_of(&mut queue, LONG, 102) <= 102 * LONG);
    }

    #[test]
    fn an_address_with_many_connections_holds_up_no_other() {
        let mut queue = Queue::new(LIMIT);
        while queue.enter(("flood", LONG), LONG, stranger(1)).is_some() {}
        assert!(wait_of(&mut queue, LONG, 2) <= LONG);
        assert!(wait_of(&mut queue, SHORT, 3) <= LONG);
    }

    #[test]
    fn small_groups_do_not_hold_up_large_ones_for_ever() {
        let mut queue = Queue::new(LIMIT);
        queue.enter(("own", LONG), LONG, stranger(200)).unwrap();
        let mut waited = Duration::ZERO;
        // Always another one that is cheap.
        for from in (1..=50).cycle() {
            queue.enter(("small", SHORT), SHORT, stranger(from));
            let (name, cost) = queue.next().unwrap();
            if name == "own" {
                break;
            }
            waited += cost;
            assert!(waited <= 3 * LONG, "{waited:?}");
        }
    }
}
