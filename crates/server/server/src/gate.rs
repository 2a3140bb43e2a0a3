//! Keeps writes out of the way of commands that must be atomic on the medium.
//!
//! COMPARE AND WRITE, ORWRITE and WRITE ATOMIC read, decide and write, and no other write may land
//! in between. They are rare, ordinary writes are not, so the cost sits with the rare ones:
//!
//! - An ordinary write *enters* its shard's counter (a cache line no other core writes) and leaves
//!   it when it is done. Without an exclusive command there is no lock and no wait.
//! - An exclusive command queues for the gate, closes it, and waits until every counter is zero. Each
//!   later write that finds the gate closed leaves again at once and waits in the queue.
//!
//! The gate covers the whole volume. Finer ranges would buy concurrency between atomic commands only
//! and cost every ordinary write a search; VMware's locks, the main user, are a few a second.
//!
//! Why no write can slip through: a write first counts itself and then looks at `closed`; the
//! exclusive command first closes and then looks at the counters. All four are sequentially consistent,
//! so at least one of the two sees the other.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};

use crate::address::{ConnectionAddress, TaskAddress};

/// Stands for the operation that holds the gate without being a task (see [`WriteGate::poll_hold`]).
const OPERATION: TaskAddress = TaskAddress {
    connection: ConnectionAddress {
        shard: u32::MAX,
        slot: u32::MAX,
        generation: u32::MAX,
    },
    slot: u32::MAX,
    generation: u32::MAX,
};

/// One shard's count of writes in flight, on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct ShardWrites(AtomicU32);

/// The gate of one volume. See the module documentation.
#[derive(Debug)]
pub(crate) struct WriteGate {
    closed: AtomicBool,
    writes: Box<[ShardWrites]>,
    slow: Mutex<Slow>,
}

#[derive(Debug, Default)]
struct Slow {
    /// The exclusive task that holds the gate or waits for the counters to drain.
    holder: Option<TaskAddress>,
    /// Tasks that wait, first come first served.
    waiting: VecDeque<Waiter>,
    /// Of the operation that holds the gate or waits for it.
    operation: Option<Waker>,
}

impl Slow {
    /// Has whoever it is try again.
    fn wake(&self, who: TaskAddress, wake: impl FnOnce(TaskAddress)) {
        match &self.operation {
            Some(operation) if who == OPERATION => operation.wake_by_ref(),
            _ if who == OPERATION => {}
            _ => wake(who),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    task: TaskAddress,
    exclusive: bool,
}

/// Answer to an attempt to pass the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Go ahead; leave afterwards.
    Open,
    /// The task is queued and will be told to try again.
    Wait,
}

impl WriteGate {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            closed: AtomicBool::new(false),
            writes: (0..shards).map(|_| ShardWrites::default()).collect(),
            slow: Mutex::new(Slow::default()),
        }
    }

    /// An ordinary write of `shard` that will be over before this turn ends. `false`: use
    /// [`Self::enter`], which can wait.
    pub(crate) fn try_enter(&self, shard: usize) -> bool {
        let writes = &self.writes[shard].0;
        writes.fetch_add(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            writes.fetch_sub(1, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// After a [`Self::try_enter`] in vain that nothing follows: its short visit to the counter may have
    /// hidden a zero from the holder. `wake` is called with that.
    pub(crate) fn visited_in_vain(&self, wake: impl FnOnce(TaskAddress)) {
        let slow = self.lock();
        if let Some(holder) = slow.holder {
            slow.wake(holder, wake);
        }
    }

    /// An ordinary write wants to begin. `wake` is called with tasks that should try again.
    pub(crate) fn enter(
        &self,
        shard: usize,
        task: TaskAddress,
        mut wake: impl FnMut(TaskAddress),
    ) -> Passage {
        if self.try_enter(shard) {
            return Passage::Open;
        }
        let mut slow = self.lock();
        if slow.holder.is_none() {
            // It was opened between our look and the lock, and cannot close while we hold that.
            self.writes[shard].0.fetch_add(1, Ordering::SeqCst);
            return Passage::Open;
        }
        slow.waiting.push_back(Waiter {
            task,
            exclusive: false,
        });
        // Our own short visit to the counter may have hidden a zero from the holder.
        if let Some(holder) = slow.holder {
            slow.wake(holder, &mut wake);
        }
        Passage::Wait
    }

    /// An ordinary write ended. `wake` is called with an exclusive task that may now go ahead.
    pub(crate) fn leave(&self, shard: usize, wake: impl FnOnce(TaskAddress)) {
        let before = self.writes[shard].0.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a write leaves the gate it entered");
        if before == 1 && self.closed.load(Ordering::SeqCst) {
            let slow = self.lock();
            if let Some(holder) = slow.holder {
                slow.wake(holder, wake);
            }
        }
    }

    /// An operation of the volume itself wants its writes for itself, until [`Self::end_hold`]. There is at most one
    /// at a time.
    pub(crate) fn poll_hold(&self, waker: &Waker) -> Poll<()> {
        self.lock().operation = Some(waker.clone());
        match self.enter_exclusive(OPERATION) {
            Passage::Open => Poll::Ready(()),
            Passage::Wait => Poll::Pending,
        }
    }

    /// The operation is over, or was never begun.
    pub(crate) fn end_hold(&self, wake: impl FnMut(TaskAddress)) {
        self.lock().operation = None;
        self.leave_exclusive(OPERATION, wake);
    }

    /// An exclusive command wants the volume's writes for itself, or tries again after being woken.
    pub(crate) fn enter_exclusive(&self, task: TaskAddress) -> Passage {
        let mut slow = self.lock();
        match slow.holder {
            None => {
                slow.holder = Some(task);
                self.closed.store(true, Ordering::SeqCst);
            }
            Some(holder) if holder == task => {}
            Some(_) => {
                let waiter = Waiter {
                    task,
                    exclusive: true,
                };
                if !slow.waiting.contains(&waiter) {
                    slow.waiting.push_back(waiter);
                }
                return Passage::Wait;
            }
        }
        if self
            .writes
            .iter()
            .all(|writes| writes.0.load(Ordering::SeqCst) == 0)
        {
            Passage::Open
        } else {
            Passage::Wait
        }
    }

    /// `task` is done, or gives up waiting: it neither holds the gate nor waits for it afterwards.
    pub(crate) fn leave_exclusive(&self, task: TaskAddress, mut wake: impl FnMut(TaskAddress)) {
        let mut slow = self.lock();
        slow.waiting.retain(|waiter| waiter.task != task);
        // Without a holder it was perhaps this task's turn: it was woken, and ended before it came.
        if slow.holder.is_some_and(|holder| holder != task) {
            return;
        }
        let held = slow.holder.take().is_some();
        let was_closed = self.closed.swap(false, Ordering::SeqCst);
        assert_eq!(was_closed, held, "the gate is closed while a task holds it");
        // Writes go first up to the next exclusive command, which closes the gate behind them.
        while let Some(waiter) = slow.waiting.pop_front() {
            slow.wake(waiter.task, &mut wake);
            if waiter.exclusive {
                break;
            }
        }
    }

    /// Whether `task` keeps the writes of others out.
    pub(crate) fn is_held_by(&self, task: TaskAddress) -> bool {
        self.lock().holder == Some(task) && self.closed.load(Ordering::SeqCst)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Slow> {
        self.slow
            .lock()
            .expect("no code panics while it holds the gate's lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32) -> TaskAddress {
        TaskAddress {
            connection: ConnectionAddress {
                shard: 0,
                slot: 0,
                generation: 0,
            },
            slot: number,
            generation: 0,
        }
    }

    fn nobody(task: TaskAddress) {
        panic!("woke {task:?}");
    }

    #[test]
    fn writes_pass_an_open_gate_together() {
        let gate = WriteGate::new(2);
        assert_eq!(gate.enter(0, task(1), nobody), Passage::Open);
        assert_eq!(gate.enter(1, task(2), nobody), Passage::Open);
        gate.leave(0, nobody);
        gate.leave(1, nobody);
    }

    #[test]
    fn exclusive_waits_for_writes_in_flight_and_is_woken_by_the_last() {
        let gate = WriteGate::new(2);
        assert!(gate.try_enter(1));
        assert_eq!(gate.enter_exclusive(task(9)), Passage::Wait);
        let mut woken = None;
        gate.leave(1, |task| woken = Some(task));
        assert_eq!(woken, Some(task(9)));
        assert!(gate.is_held_by(task(9)) && !gate.is_held_by(task(1)));
        assert_eq!(gate.enter_exclusive(task(9)), Passage::Open);
    }

    #[test]
    fn writes_wait_while_the_gate_is_closed_and_are_woken_when_it_opens() {
        let gate = WriteGate::new(1);
        assert_eq!(gate.enter_exclusive(task(9)), Passage::Open);
        assert!(!gate.try_enter(0));
        assert_eq!(gate.enter(0, task(1), |_| ()), Passage::Wait);
        assert_eq!(gate.enter(0, task(2), |_| ()), Passage::Wait);
        let mut woken = Vec::new();
        gate.leave_exclusive(task(9), |task| woken.push(task));
        assert_eq!(woken, [task(1), task(2)]);
        assert!(gate.try_enter(0));
    }

    #[test]
    fn a_visit_in_vain_has_the_holder_look_again() {
        let gate = WriteGate::new(2);
        assert_eq!(gate.enter_exclusive(task(9)), Passage::Open);
        assert!(!gate.try_enter(0));
        let mut woken = None;
        gate.visited_in_vain(|task| woken = Some(task));
        assert_eq!(woken, Some(task(9)));
    }

    #[test]
    fn only_one_exclusive_task_is_woken_at_a_time() {
        let gate = WriteGate::new(1);
        assert_eq!(gate.enter_exclusive(task(1)), Passage::Open);
        assert_eq!(gate.enter_exclusive(task(2)), Passage::Wait);
        assert_eq!(gate.enter_exclusive(task(3)), Passage::Wait);
        let mut woken = Vec::new();
        gate.leave_exclusive(task(1), |task| woken.push(task));
        assert_eq!(woken, [task(2)]);
        assert_eq!(gate.enter_exclusive(task(2)), Passage::Open);
    }

    #[test]
    fn an_operation_waits_for_writes_and_keeps_others_out() {
        use std::sync::Arc;
        use std::sync::atomic::AtomicUsize;
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let gate = WriteGate::new(1);
        assert!(gate.try_enter(0));
        assert!(gate.poll_hold(&waker).is_pending());
        gate.leave(0, nobody);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(gate.poll_hold(&waker).is_ready());
        assert_eq!(gate.enter_exclusive(task(1)), Passage::Wait);
        // A task that is gone lets nobody in.
        gate.leave_exclusive(task(2), nobody);
        assert!(!gate.try_enter(0));
        let mut woken = Vec::new();
        gate.end_hold(|task| woken.push(task));
        assert_eq!(woken, [task(1)]);
        assert_eq!(gate.enter_exclusive(task(1)), Passage::Open);
        assert!(gate.poll_hold(&waker).is_pending());
        gate.leave_exclusive(task(1), nobody);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(gate.poll_hold(&waker).is_ready());
        gate.end_hold(nobody);
    }

    #[test]
    fn a_waiting_task_that_gives_up_is_not_woken() {
        let gate = WriteGate::new(1);
        assert_eq!(gate.enter_exclusive(task(1)), Passage::Open);
        assert_eq!(gate.enter_exclusive(task(2)), Passage::Wait);
        gate.leave_exclusive(task(2), nobody);
        gate.leave_exclusive(task(1), nobody);
    }

    #[test]
    fn a_task_that_was_woken_and_ended_passes_its_turn_on() {
        let gate = WriteGate::new(1);
        assert_eq!(gate.enter_exclusive(task(1)), Passage::Open);
        assert_eq!(gate.enter_exclusive(task(2)), Passage::Wait);
        assert_eq!(gate.enter(0, task(3), |_| ()), Passage::Wait);
        gate.leave_exclusive(task(1), |woken| assert_eq!(woken, task(2)));
        let mut woken = Vec::new();
        gate.leave_exclusive(task(2), |task| woken.push(task));
        assert_eq!(woken, [task(3)]);
        assert_eq!(gate.enter(0, task(3), nobody), Passage::Open);
    }

    #[test]
    fn compare_and_write_from_many_threads_has_one_winner_each_round() {
        use std::sync::atomic::AtomicU64;
        let gate = WriteGate::new(4);
        let value = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for shard in 0..4_u32 {
                let (gate, value) = (&gate, &value);
                scope.spawn(move || {
                    for _ in 0..500 {
                        while gate.enter_exclusive(task(shard)) == Passage::Wait {
                            // Waiting twice in the queue is harmless here.
                            std::thread::yield_now();
                        }
                        let seen = value.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        value.store(seen + 1, Ordering::Relaxed);
                        gate.leave_exclusive(task(shard), |_| ());
                    }
                });
            }
        });
        assert_eq!(value.load(Ordering::Relaxed), 2000);
    }
}
