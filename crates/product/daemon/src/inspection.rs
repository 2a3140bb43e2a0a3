//! Looks at what volumes are stored in, from time to time and at the end of the server.
//!
//! A look can block for ever: a network file system does not answer when its server is gone. So no other
//! work waits for a look. A thread visits all volumes in rounds. If it is still busy when the next round is
//! due, a new thread takes its place and leaves out the volumes that block. The number of threads is at most
//! that of the blocked volumes, and two.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use longshore_reactor::allocator;

use crate::threads::THREAD_STACK_BYTES;

/// Threads of the last look.
const LAST_LOOKS: usize = 32;

/// How to look at volumes, by their number.
pub(crate) struct Looks {
    /// How many numbers there are now.
    count: Box<dyn Fn() -> usize + Send + Sync>,
    look: Box<dyn Fn(usize) + Send + Sync>,
    /// Volumes that are looked at.
    busy: Mutex<HashSet<usize>>,
}

impl Looks {
    pub(crate) fn new(
        count: impl Fn() -> usize + Send + Sync + 'static,
        look: impl Fn(usize) + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            count: Box::new(count),
            look: Box::new(look),
            busy: Mutex::default(),
        })
    }

    fn busy(&self) -> MutexGuard<'_, HashSet<usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn go_round(&self) {
        for number in 0..(self.count)() {
            let is_free = self.busy().insert(number);
            if is_free {
                (self.look)(number);
                self.busy().remove(&number);
            }
        }
    }

    /// Looks every so often until what it returns is dropped.
    pub(crate) fn from_time_to_time(
        self: &Arc<Self>,
        interval: Duration,
    ) -> io::Result<Sender<()>> {
        let (stop, stopped) = channel::<()>();
        let mut rounds = Rounds::new(Arc::clone(self));
        spawn("inspection", move || {
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                if let Err(error) = rounds.begin() {
                    tracing::warn!("cannot inspect the volumes now, trying again later: {error}");
                }
            }
        })?;
        Ok(stop)
    }

    /// Looks at all volumes at once, and calls `done` when it has seen all of them, which may be never.
    pub(crate) fn last(
        self: &Arc<Self>,
        done: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Arc<LastLook>> {
        let volumes = (self.count)();
        let last = Arc::new(LastLook {
            seen: (0..volumes).map(|_| AtomicBool::new(false)).collect(),
            next: AtomicUsize::new(0),
            unseen: AtomicUsize::new(volumes),
        });
        if volumes == 0 {
            done();
        }
        let done = Arc::new(done);
        for _ in 0..volumes.min(LAST_LOOKS) {
            let (looks, last, done) = (Arc::clone(self), Arc::clone(&last), Arc::clone(&done));
            spawn("last-look", move || {
                loop {
                    let number = last.next.fetch_add(1, Ordering::Relaxed);
                    let Some(seen) = last.seen.get(number) else {
                        return;
                    };
                    (looks.look)(number);
                    seen.store(true, Ordering::Release);
                    if last.unseen.fetch_sub(1, Ordering::AcqRel) == 1 {
                        done();
                    }
                }
            })?;
        }
        Ok(last)
    }
}

/// What the look at the end of the server has seen.
pub(crate) struct LastLook {
    seen: Vec<AtomicBool>,
    next: AtomicUsize,
    unseen: AtomicUsize,
}

impl LastLook {
    /// The numbers of volumes that have not answered.
    pub(crate) fn unseen(&self) -> impl Iterator<Item = usize> + '_ {
        let seen = self.seen.iter().enumerate();
        seen.filter(|(_, seen)| !seen.load(Ordering::Acquire))
            .map(|(number, _)| number)
    }
}

/// The thread that goes round.
struct Rounds {
    looks: Arc<Looks>,
    /// Taken only by a thread that waits for its next round.
    walker: Option<SyncSender<()>>,
}

impl Rounds {
    fn new(looks: Arc<Looks>) -> Self {
        Self {
            looks,
            walker: None,
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        if let Some(walker) = &self.walker
            && walker.try_send(()).is_ok()
        {
            return Ok(());
        }
        // The thread before, if there is one, ends when it comes back.
        let (walker, next) = sync_channel(0);
        let looks = Arc::clone(&self.looks);
        spawn("look", move || {
            looks.go_round();
            while next.recv().is_ok() {
                looks.go_round();
            }
        })?;
        self.walker = Some(walker);
        Ok(())
    }
}

fn spawn(name: &str, act: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .stack_size(THREAD_STACK_BYTES);
    allocator::spawn(thread, act).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three volumes, of which number 1 does not answer until the other end is dropped. All looks are told.
    fn one_hangs() -> (
        Arc<Looks>,
        std::sync::mpsc::Receiver<usize>,
        std::sync::mpsc::Sender<()>,
    ) {
        let (told, looks) = channel();
        let (answer, hanging) = channel::<()>();
        let (told, hanging) = (Mutex::new(told), Mutex::new(hanging));
        let look = move |number| {
            let _ = told.lock().unwrap().send(number);
            if number == 1 {
                let _ = hanging.lock().unwrap().recv();
            }
        };
        (Looks::new(|| 3, look), looks, answer)
    }

    #[test]
    fn a_volume_that_does_not_answer_keeps_nobody_from_looking_at_others() {
        let (looks, told, answer) = one_hangs();
        let mut rounds = Rounds::new(Arc::clone(&looks));
        rounds.begin().unwrap();
        assert_eq!((told.recv(), told.recv()), (Ok(0), Ok(1)));
        // The thread hangs; other ones look at the others, and never at this one.
        // A thread may have told of its last look, and not have ended it.
        let await_end = || {
            while looks.busy().len() > 1 {
                thread::yield_now();
            }
        };
        for _ in 0..3 {
            await_end();
            rounds.begin().unwrap();
            assert_eq!((told.recv(), told.recv()), (Ok(0), Ok(2)));
        }
        await_end();
        // It goes on from there.
        drop(answer);
        assert_eq!(told.recv(), Ok(2));
    }

    #[test]
    fn the_last_look_sees_all_that_answer_and_says_who_does_not() {
        let (looks, told, answer) = one_hangs();
        let (done, all_seen) = sync_channel(1);
        let last = looks
            .last(move || done.send(()).expect("somebody waits"))
            .unwrap();
        let mut seen: Vec<_> = (0..3).map(|_| told.recv().unwrap()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2]);
        while last.unseen().count() > 1 {
            thread::yield_now();
        }
        assert_eq!(last.unseen().collect::<Vec<_>>(), [1]);
        assert!(all_seen.try_recv().is_err());
        drop(answer);
        all_seen.recv().unwrap();
        assert_eq!(last.unseen().count(), 0);
    }
}
