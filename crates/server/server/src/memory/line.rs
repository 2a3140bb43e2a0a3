//! The order in which connections get scarce memory.
//!
//! A new waiter stands behind the others: else those who ask again and again would get all that comes free, and the
//! others nothing. Connections have their turns in a circle, with one task each, so that all get the same, whether
//! they ask for one piece or for a hundred at a time:
//!
//! ```text
//!            ┌── first ──► tried ── memory ──► runs
//!  turns:  [ A, B, C ]       │
//!            │  │  └ c1      └─ none ──► stays first, and nobody behind it is tried
//!            │  └ b1 b2
//!            └ a1 a2 a3 ... a connection with tasks left goes to the end after each
//! ```
//!
//! (A queue of all tasks would be fair to tasks but not to connections: one whose tasks get their memory at a time has
//! them wait for its socket, holds more of the memory meanwhile, and in the end gets less done than others.)
//!
//! That nobody is tried behind the first gives large reads a chance beside small ones. What asks for a large
//! part of all memory steps aside for the others instead: others may never release enough.

use std::collections::VecDeque;

use crate::address::TaskAddress;

/// See the module documentation. Belongs to a shard.
#[derive(Debug, Default)]
pub(crate) struct MemoryLine {
    /// Waiting tasks of each connection, by slot.
    queues: Vec<VecDeque<TaskAddress>>,
    /// Slots with waiting tasks, but for the one that is being served.
    turns: VecDeque<u32>,
    waiting: usize,
    /// The task that is tried now.
    served: Option<TaskAddress>,
    /// It found no memory, and stays the first.
    is_stuck: bool,
    /// It found no memory, and waits again.
    is_back: bool,
    /// Memory that was in use when the first of the line found none.
    pub(super) used_then: Option<usize>,
    /// Bytes that reads were given in the last pass, and that those who cannot wait may have as well.
    pub(super) granted: usize,
    /// Somebody has come since the last pass.
    pub(super) is_news: bool,
}

impl MemoryLine {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// A pass begins, in which so many tasks at most get their turn.
    #[inline]
    pub(crate) fn begin(&mut self) -> usize {
        (self.used_then, self.granted, self.is_news) = (None, 0, false);
        self.waiting
    }

    /// Whether somebody may take memory who cannot wait in the line. While its first one finds none these get as much
    /// as the line does: neither keeps all from the other.
    pub(crate) fn admits_at_once(&mut self, length: usize) -> bool {
        if self.used_then.is_none() {
            return true;
        }
        let admits = self.granted > 0;
        self.granted = self.granted.saturating_sub(length);
        admits
    }

    /// Whether a task may take memory, if there is any.
    #[inline]
    pub(crate) fn admits(&self, task: TaskAddress) -> bool {
        self.served == Some(task) || self.waiting == 0 && self.served.is_none()
    }

    /// A task waits: others are before it, or it was its turn and there was nothing for it. `has_claim`: in that
    /// case it stays the first.
    pub(crate) fn wait(&mut self, task: TaskAddress, has_claim: bool) {
        self.waiting += 1;
        self.is_news |= self.served.is_none();
        self.is_back |= self.served == Some(task);
        if has_claim && self.served == Some(task) {
            self.is_stuck = true;
            return self.queue(task).push_front(task);
        }
        let slot = task.connection.slot;
        let is_served = self.served.map(|served| served.connection.slot) == Some(slot);
        let queue = self.queue(task);
        queue.push_back(task);
        if queue.len() == 1 && !is_served {
            self.turns.push_back(slot);
        }
    }

    fn queue(&mut self, task: TaskAddress) -> &mut VecDeque<TaskAddress> {
        let index = task.connection.slot as usize;
        if self.queues.len() <= index {
            self.queues.resize_with(index + 1, VecDeque::new);
        }
        &mut self.queues[index]
    }

    /// The task that is to try now. [`Self::served`] has to follow.
    pub(crate) fn serve(&mut self) -> Option<TaskAddress> {
        let slot = self.turns.pop_front()?;
        self.served = self.queues[slot as usize].pop_front();
        debug_assert!(self.served.is_some(), "only such slots have turns");
        self.waiting -= 1;
        self.is_back = false;
        self.served
    }

    /// Whether the task that was served waits again.
    pub(crate) const fn is_back(&self) -> bool {
        self.is_back
    }

    /// Connections with waiting tasks.
    pub(crate) fn connections(&self) -> usize {
        self.turns.len()
    }

    /// It has tried. Returns whether the next one may.
    pub(crate) fn served(&mut self) -> bool {
        let is_stuck = std::mem::take(&mut self.is_stuck);
        if let Some(task) = self.served.take()
            && !self.queue(task).is_empty()
        {
            let slot = task.connection.slot;
            if is_stuck {
                self.turns.push_front(slot);
            } else {
                self.turns.push_back(slot);
            }
        }
        !is_stuck
    }

    /// Forgets tasks that have ended, if a connection with so many `tasks` had more wait than that.
    pub(crate) fn tidy(&mut self, slot: u32, tasks: usize, lives: impl Fn(TaskAddress) -> bool) {
        if let Some(queue) = self.queues.get_mut(slot as usize)
            && queue.len() > 2 * tasks + 8
        {
            let before = queue.len();
            queue.retain(|task| lives(*task));
            self.waiting -= before - queue.len();
            if queue.is_empty() {
                self.turns.retain(|other| *other != slot);
            }
            self.look_for_end();
        }
    }

    /// A connection is over.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(queue) = self.queues.get_mut(slot as usize)
            && !queue.is_empty()
        {
            self.waiting -= queue.len();
            *queue = VecDeque::new();
            self.turns.retain(|other| *other != slot);
            self.look_for_end();
        }
    }

    /// The last one that waited may have left without having been served.
    fn look_for_end(&mut self) {
        if self.waiting == 0 {
            (self.used_then, self.granted) = (None, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ConnectionAddress;

    fn task(connection: u32, number: u32) -> TaskAddress {
        TaskAddress {
            connection: ConnectionAddress {
                shard: 0,
                slot: connection,
                generation: 0,
            },
            slot: number,
            generation: 0,
        }
    }

    /// Serves until nobody may try any more; those that `take` says get memory.
    fn pass(line: &mut MemoryLine, take: impl Fn(TaskAddress) -> bool) -> Vec<(u32, u32)> {
        let mut got = Vec::new();
        for _ in 0..line.begin() {
            let Some(task) = line.serve() else {
                break;
            };
            assert!(line.admits(task));
            if take(task) {
                got.push((task.connection.slot, task.slot));
            } else {
                line.wait(task, true);
            }
            if !line.served() {
                break;
            }
        }
        got
    }

    #[test]
    fn connections_take_turns_however_much_each_asks_for() {
        let mut line = MemoryLine::default();
        for (connection, number) in [(1, 0), (1, 1), (1, 2), (2, 0), (0, 0), (0, 1)] {
            line.wait(task(connection, number), true);
        }
        let got = pass(&mut line, |_| true);
        assert_eq!(got, [(1, 0), (2, 0), (0, 0), (1, 1), (0, 1), (1, 2)]);
        assert!(line.is_empty() && line.admits(task(7, 0)));
    }

    #[test]
    fn nobody_overtakes_the_first_one() {
        let mut line = MemoryLine::default();
        for connection in 0..3 {
            line.wait(task(connection, 0), true);
            line.wait(task(connection, 1), true);
        }
        assert!(!line.admits(task(5, 0)));
        for _ in 0..5 {
            assert_eq!(pass(&mut line, |task| task.connection.slot != 0), []);
        }
        let got = pass(&mut line, |_| true);
        assert_eq!(got, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]);
    }

    #[test]
    fn who_wants_too_much_steps_aside() {
        let mut line = MemoryLine::default();
        for connection in 0..3 {
            line.wait(task(connection, 0), true);
        }
        let mut got = Vec::new();
        for _ in 0..line.waiting {
            let task = line.serve().unwrap();
            match task.connection.slot {
                0 => line.wait(task, false),
                slot => got.push(slot),
            }
            assert!(line.served());
        }
        assert_eq!((got, line.waiting), (vec![1, 2], 1));
        assert_eq!(pass(&mut line, |_| true), [(0, 0)]);
    }

    #[test]
    fn who_cannot_wait_gets_as_much_as_the_line_got_last() {
        let mut line = MemoryLine::default();
        assert!(line.admits_at_once(1));
        (line.used_then, line.granted) = (Some(0), 8192);
        assert!(line.admits_at_once(4096) && line.admits_at_once(65536));
        assert!(!line.admits_at_once(1));
        line.begin();
        assert!(line.admits_at_once(1));
    }

    #[test]
    fn who_comes_between_two_passes_is_news() {
        let mut line = MemoryLine::default();
        line.wait(task(0, 0), false);
        assert!(line.is_news);
        let got = pass(&mut line, |_| false);
        assert!(got.is_empty() && !line.is_empty() && !line.is_news);
        line.wait(task(1, 0), true);
        assert!(line.is_news);
    }

    #[test]
    fn those_that_are_gone_are_forgotten() {
        let mut line = MemoryLine::default();
        for number in 0..9 {
            line.wait(task(1, number), true);
            line.wait(task(2, number), true);
        }
        line.tidy(1, 0, |task| task.slot > 6);
        line.forget(2);
        assert_eq!(line.waiting, 2);
        assert_eq!(pass(&mut line, |_| true), [(1, 7), (1, 8)]);
        line.wait(task(2, 0), true);
        line.wait(task(1, 0), true);
        assert_eq!(pass(&mut line, |_| true), [(2, 0), (1, 0)]);
        line.tidy(1, 0, |_| false);
        assert!(line.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn whatever_happens_all_that_wait_get_their_turns(steps in proptest::collection::vec((0..5_u32, 0..4_u8), 1..200)) {
            let mut line = MemoryLine::default();
            let mut waiting = std::collections::BTreeSet::new();
            for (number, (slot, action)) in (0..).zip(steps) {
                match action {
                    0 | 1 => {
                        line.wait(task(slot, number), true);
                        waiting.insert((slot, number));
                    }
                    2 => {
                        line.forget(slot);
                        waiting.retain(|(other, _)| *other != slot);
                    }
                    _ => for got in pass(&mut line, |task| task.connection.slot != slot) {
                        proptest::prop_assert!(waiting.remove(&got));
                    }
                }
                proptest::prop_assert_eq!(line.waiting, waiting.len());
            }
            let rest: std::collections::BTreeSet<_> = pass(&mut line, |_| true).into_iter().collect();
            proptest::prop_assert_eq!(rest, waiting);
        }
    }

    #[test]
    fn a_line_whose_last_task_left_keeps_nobody_from_memory() {
        let mut line = MemoryLine::default();
        line.wait(task(1, 1), true);
        assert!(pass(&mut line, |_| false).is_empty());
        line.used_then = Some(1);
        assert!(!line.admits_at_once(1));
        line.forget(1);
        assert!(line.admits_at_once(1));
    }
}
