//! Deadlines: an indexed heap whose entries can be moved and cancelled in place.
//!
//! A cancelled or moved timer leaves nothing behind, so that a connection may push its deadline back
//! on every command, and the next deadline is exact: no ticks. Nothing is allocated once the queue
//! has held as many timers before. Every operation takes O(log n).

use std::io;
use std::num::NonZeroU64;
use std::time::Instant;

/// Has sleeps of the calling thread, and of threads that it starts, end at their deadlines. Unless asked, the kernel
/// delays them by up to 50 µs to have timers expire together.
pub fn end_sleeps_on_time() -> io::Result<()> {
    Ok(rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?)
}

/// One timer of a [`TimerQueue`]. Stays unique when its slot is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// `None` while the slot is free.
    armed: Option<Armed<T>>,
}

#[derive(Debug)]
struct Armed<T> {
    deadline: Instant,
    /// Index into `heap`, so that cancelling finds it.
    position: usize,
    payload: T,
}

/// Timers of one reactor; `T` says what to do when one expires.
#[derive(Debug)]
pub struct TimerQueue<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// Slot numbers; the parent of `i` is `(i - 1) / 2`, and no parent is later than its children.
    heap: Vec<u32>,
}

impl<T> Default for TimerQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> TimerQueue<T> {
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            heap: Vec::new(),
        }
    }

    pub fn insert(&mut self, deadline: Instant, payload: T) -> TimerId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                armed: None,
            });
            u32::try_from(self.slots.len() - 1).expect("fewer timers than connections can exist")
        });
        let position = self.heap.len();
        self.heap.push(slot);
        let entry = &mut self.slots[index(slot)];
        entry.armed = Some(Armed {
            deadline,
            position,
            payload,
        });
        let id = TimerId {
            slot,
            generation: entry.generation,
        };
        self.sift_up(position);
        id
    }

    /// Stops a timer. `None` if it has expired or been cancelled before.
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let position = self.position(id)?;
        Some(self.remove(position))
    }

    /// Moves a running timer to another deadline. False if it has expired or been cancelled.
    pub fn reset(&mut self, id: TimerId, deadline: Instant) -> bool {
        let Some(position) = self.position(id) else {
            return false;
        };
        self.armed_mut(id.slot).deadline = deadline;
        let position = self.sift_up(position);
        self.sift_down(position);
        true
    }

    /// When the earliest timer expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.heap.first().map(|slot| self.deadline(*slot))
    }

    /// Takes out the earliest timer if it has expired by `now`. Call until `None`.
    pub fn pop_expired(&mut self, now: Instant) -> Option<T> {
        if self.next_deadline()? > now {
            return None;
        }
        Some(self.remove(0))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when no timer runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn position(&self, id: TimerId) -> Option<usize> {
        let slot = self
            .slots
            .get(index(id.slot))
            .filter(|slot| slot.generation == id.generation)?;
        slot.armed.as_ref().map(|armed| armed.position)
    }

    fn remove(&mut self, position: usize) -> T {
        let slot = self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.armed_mut(self.heap[position]).position = position;
            let position = self.sift_up(position);
            self.sift_down(position);
        }
        let entry = &mut self.slots[index(slot)];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
        entry
            .armed
            .take()
            .expect("slots in the heap are armed")
            .payload
    }

    /// Moves the entry at `position` towards the root; returns where it ends.
    fn sift_up(&mut self, mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.deadline(self.heap[parent]) <= self.deadline(self.heap[position]) {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let left = 2 * position + 1;
            let earliest = [left, left + 1]
                .into_iter()
                .filter(|child| *child < self.heap.len())
                .min_by_key(|child| self.deadline(self.heap[*child]));
            match earliest {
                Some(child)
                    if self.deadline(self.heap[child]) < self.deadline(self.heap[position]) =>
                {
                    self.swap(child, position);
                    position = child;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.armed_mut(self.heap[a]).position = a;
        self.armed_mut(self.heap[b]).position = b;
    }

    fn deadline(&self, slot: u32) -> Instant {
        self.slots[index(slot)]
            .armed
            .as_ref()
            .expect("slots in the heap are armed")
            .deadline
    }

    fn armed_mut(&mut self, slot: u32) -> &mut Armed<T> {
        self.slots[index(slot)]
            .armed
            .as_mut()
            .expect("slots in the heap are armed")
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).expect("usize has at least 32 bits on Linux")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn drain(timers: &mut TimerQueue<u64>, now: Instant) -> Vec<u64> {
        std::iter::from_fn(|| timers.pop_expired(now)).collect()
    }

    #[test]
    fn timers_expire_in_order_and_not_early() {
        let start = Instant::now();
        let mut timers = TimerQueue::new();
        for n in [5, 1, 4, 2, 3] {
            timers.insert(start + ms(n), n);
        }
        assert_eq!(timers.next_deadline(), Some(start + ms(1)));
        assert_eq!(drain(&mut timers, start), []);
        assert_eq!(drain(&mut timers, start + ms(3)), [1, 2, 3]);
        assert_eq!(drain(&mut timers, start + ms(9)), [4, 5]);
        assert_eq!((timers.next_deadline(), timers.is_empty()), (None, true));
    }

    #[test]
    fn cancelled_timer_does_not_expire() {
        let start = Instant::now();
        let mut timers = TimerQueue::new();
        let first = timers.insert(start, 1);
        timers.insert(start, 2);
        assert_eq!(timers.cancel(first), Some(1));
        assert_eq!(timers.cancel(first), None);
        assert_eq!(drain(&mut timers, start), [2]);
    }

    #[test]
    fn id_of_an_expired_timer_does_not_touch_its_successor() {
        let start = Instant::now();
        let mut timers = TimerQueue::new();
        let old = timers.insert(start, 1);
        assert_eq!(drain(&mut timers, start), [1]);
        let new = timers.insert(start, 2);
        assert_eq!(
            (timers.cancel(old), timers.reset(old, start + ms(1))),
            (None, false)
        );
        assert!(timers.reset(new, start + ms(1)));
        assert_eq!(drain(&mut timers, start), []);
        assert_eq!(timers.cancel(new), Some(2));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Does what a plain list of deadlines does.
        #[test]
        fn behaves_like_a_list(steps in proptest::collection::vec((0..4_u8, 0..50_u64), 0..200)) {
            let start = Instant::now();
            let mut timers = TimerQueue::new();
            let mut model: Vec<(TimerId, u64, u64)> = Vec::new();
            for (number, (action, n)) in (0_u64..).zip(steps) {
                let chosen = usize::try_from(n).unwrap() % model.len().max(1);
                match action {
                    0 => model.push((timers.insert(start + ms(n), number), n, number)),
                    1 if !model.is_empty() => {
                        let (id, _, payload) = model.swap_remove(chosen);
                        prop_assert_eq!(timers.cancel(id), Some(payload));
                    }
                    2 if !model.is_empty() => {
                        model[chosen].1 = n * 2;
                        prop_assert!(timers.reset(model[chosen].0, start + ms(n * 2)));
                    }
                    3 => {
                        let mut expired = drain(&mut timers, start + ms(n));
                        expired.sort_unstable();
                        let mut expected: Vec<_> =
                            model.iter().filter(|entry| entry.1 <= n).map(|entry| entry.2).collect();
                        expected.sort_unstable();
                        prop_assert_eq!(expired, expected);
                        model.retain(|entry| entry.1 > n);
                    }
                    _ => {}
                }
                prop_assert_eq!(timers.len(), model.len());
                let next = model.iter().map(|entry| start + ms(entry.1)).min();
                prop_assert_eq!(timers.next_deadline(), next);
            }
        }
    }
}
