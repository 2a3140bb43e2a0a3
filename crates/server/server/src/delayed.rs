//! Tasks that the limits of their volumes have wait.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::address::TaskAddress;

/// The tasks of a shard that wait, those first whose time comes first.
#[derive(Debug, Default)]
pub(crate) struct DelayedTasks {
    heap: BinaryHeap<Delayed>,
    /// Of the next one.
    number: u64,
}

#[derive(Debug)]
struct Delayed {
    until: Instant,
    /// Of two with one time, the one that came first.
    number: u64,
    task: TaskAddress,
}

impl DelayedTasks {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    pub(crate) fn add(&mut self, task: TaskAddress, until: Instant) {
        let number = self.number;
        self.number += 1;
        self.heap.push(Delayed {
            until,
            number,
            task,
        });
    }

    /// When the next one may go on.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.heap.peek().map(|delayed| delayed.until)
    }

    /// A task that may go on now; any at all when `at_once`.
    pub(crate) fn pop(&mut self, now: Instant, at_once: bool) -> Option<TaskAddress> {
        if !at_once && self.next_deadline()? > now {
            return None;
        }
        self.heap.pop().map(|delayed| delayed.task)
    }
}

impl Ord for Delayed {
    /// The greatest is the first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.until, other.number).cmp(&(self.until, self.number))
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
    use std::time::Duration;

    use super::*;
    use crate::address::ConnectionAddress;

    fn task(slot: u32) -> TaskAddress {
        TaskAddress {
            connection: ConnectionAddress {
                shard: 0,
                slot: 0,
                generation: 0,
            },
            slot,
            generation: 0,
        }
    }

    #[test]
    fn tasks_go_on_in_the_order_of_their_times_and_then_of_their_coming() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        let mut delayed = DelayedTasks::default();
        for (slot, until) in [(1, later), (2, now), (3, later), (4, now)] {
            delayed.add(task(slot), until);
        }
        assert_eq!(delayed.next_deadline(), Some(now));
        let due: Vec<u32> = std::iter::from_fn(|| delayed.pop(now, false))
            .map(|task| task.slot)
            .collect();
        assert_eq!(due, [2, 4]);
        let rest = std::iter::from_fn(|| delayed.pop(now, true)).map(|task| task.slot);
        assert_eq!(rest.collect::<Vec<_>>(), [1, 3]);
        assert!(delayed.is_empty());
    }
}
