//! Tasks held back by the limits of their volumes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_volume::Throttle;

use crate::address::TaskAddress;
use crate::mail::message::{Message, Post};

/// The tasks of a shard that wait, those first whose time comes first.
#[derive(Debug, Default)]
pub(crate) struct DelayedTasks {
    heap: BinaryHeap<Delayed>,
    /// Of the next one.
    number: u64,
    /// The task that tries again asks its volume once more, and would have waited for so long: it waited under other
    /// limits.
    pub asks_again: Option<Duration>,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay {
    pub task: TaskAddress,
    /// Place of the unit.
    pub unit: usize,
    /// Version of the limits that the delay was computed from.
    pub version: u64,
    pub until: Instant,
}

#[derive(Debug)]
struct Delayed {
    /// Of two with one time, the one that came first.
    number: u64,
    delay: Delay,
}

impl DelayedTasks {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn add(&mut self, delay: Delay) {
        let number = self.number;
        self.number += 1;
        self.heap.push(Delayed { number, delay });
    }

    /// When the next one may go on.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|delayed| delayed.delay.until)
    }

    /// A task that may go on now; any at all when `at_once`.
    pub(crate) fn pop(&mut self, now: Instant, at_once: bool) -> Option<Delay> {
        if !at_once && self.next_deadline()? > now {
            return None;
        }
        self.heap.pop().map(|delayed| delayed.delay)
    }

    /// Takes those out that `are`, in the order of their times.
    pub(crate) fn take(&mut self, mut are: impl FnMut(&Delay) -> bool) -> Vec<Delay> {
        let (mut taken, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.heap)
            .into_iter()
            .partition(|one| are(&one.delay));
        self.heap = rest.into();
        taken.sort_unstable_by(|a, b| b.cmp(a));
        taken.into_iter().map(|delayed| delayed.delay).collect()
    }
}

/// Tells a shard that a volume has other limits.
pub(crate) struct LimitsChanged(Arc<dyn Fn() + Send + Sync>);

impl LimitsChanged {
    /// That with this post.
    pub(crate) fn new(post: &Post) -> Self {
        let post = post.clone();
        Self(Arc::new(move || post.send(Message::Limits)))
    }

    /// From now on, of those of this throttle.
    pub(crate) fn watch(&self, throttle: &Throttle) {
        throttle.watch(Arc::downgrade(&self.0));
    }
}

impl Ord for Delayed {
    /// The greatest is the first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.delay.until, other.number).cmp(&(self.delay.until, self.number))
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Delayed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Delayed {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ConnectionAddress;

    fn delay(slot: u32, until: Instant) -> Delay {
        let connection = ConnectionAddress {
            shard: 0,
            slot: 0,
            generation: 0,
        };
        let task = TaskAddress {
            connection,
            slot,
            generation: 0,
        };
        Delay {
            task,
            unit: slot as usize % 2,
            version: 0,
            until,
        }
    }

    fn four(now: Instant, later: Instant) -> DelayedTasks {
        let mut delayed = DelayedTasks::default();
        for (slot, until) in [(1, later), (2, now), (3, later), (4, now)] {
            delayed.add(delay(slot, until));
        }
        delayed
    }

    fn slots(delays: impl IntoIterator<Item = Delay>) -> Vec<u32> {
        delays.into_iter().map(|delay| delay.task.slot).collect()
    }

    #[test]
    fn tasks_go_on_in_the_order_of_their_times_and_then_of_their_coming() {
        let now = Instant::now();
        let mut delayed = four(now, now + Duration::from_secs(1));
        assert_eq!(delayed.next_deadline(), Some(now));
        assert_eq!(
            slots(std::iter::from_fn(|| delayed.pop(now, false))),
            [2, 4]
        );
        assert_eq!(slots(std::iter::from_fn(|| delayed.pop(now, true))), [1, 3]);
        assert!(delayed.is_empty());
    }

    #[test]
    fn tasks_of_a_unit_are_taken_in_their_order_and_others_stay() {
        let now = Instant::now();
        let mut delayed = four(now, now - Duration::from_secs(1));
        delayed.add(delay(5, now - Duration::from_secs(2)));
        assert_eq!(slots(delayed.take(|delay| delay.unit == 1)), [5, 1, 3]);
        assert_eq!(slots(std::iter::from_fn(|| delayed.pop(now, true))), [2, 4]);
    }
}
