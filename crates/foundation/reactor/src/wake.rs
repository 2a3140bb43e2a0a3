//! Waking a reactor that sleeps, from any thread, for the price of a system call only if it sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// The reactor is in, or about to enter, a system call that sleeps.
const SLEEPING: u8 = 1;
const MAIL: u8 = 2;
/// A helper thread, or whoever an operation was delegated to, finished one.
const HELPER: u8 = 4;

/// Wakes one reactor. Clones wake the same one.
///
/// What has been written before `wake` (a message in a queue) is seen by the reactor after the
/// [`EngineEvent::Woken`](crate::EngineEvent::Woken) that follows.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    eventfd: OwnedFd,
    state: AtomicU8,
}

/// What the reactor was woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wakeups {
    pub(crate) mail: bool,
    pub(crate) helper: bool,
}

impl From<u8> for Wakeups {
    fn from(state: u8) -> Self {
        Self {
            mail: state & MAIL != 0,
            helper: state & HELPER != 0,
        }
    }
}

impl Waker {
    /// Makes a waker, to be given to [`Engine::new`](crate::Engine::new).
    pub fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared {
            eventfd,
            state: AtomicU8::new(0),
        })))
    }

    /// Has the reactor report [`EngineEvent::Woken`](crate::EngineEvent::Woken) once, soon. Several calls before
    /// it does so are one.
    pub fn wake(&self) {
        self.raise(MAIL);
    }

    /// As [`Waker::wake`], for completions of helper threads.
    pub(crate) fn wake_for_helper(&self) {
        self.raise(HELPER);
    }

    fn raise(&self, bit: u8) {
        let before = self.0.state.fetch_or(bit, Ordering::AcqRel);
        // Only the first one after the reactor went to sleep needs to ring.
        if before & SLEEPING != 0 && before & (MAIL | HELPER) == 0 {
            // The counter of the eventfd is never read: engines watch it edge-triggered, and each
            // write is an edge. It cannot overflow within 2^64 writes, so this cannot fail.
            let _ = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }

    /// The reactor is about to sleep. False: it must not, there is something to do.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.0.state.fetch_or(SLEEPING, Ordering::AcqRel) & (MAIL | HELPER) == 0
    }

    /// The reactor is awake. Tells what for, once.
    pub(crate) fn take(&self) -> Wakeups {
        // Polling in a loop should not pull the line away from the cores that would write it.
        if self.0.state.load(Ordering::Relaxed) == 0 {
            return Wakeups::from(0);
        }
        Wakeups::from(self.0.state.swap(0, Ordering::AcqRel))
    }

    /// Becomes readable, edge-triggered, when a sleeping reactor must wake up.
    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_before_sleep_forbids_sleep_and_is_reported_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        assert!(!waker.prepare_sleep());
        assert_eq!(
            waker.take(),
            Wakeups {
                mail: true,
                helper: false
            }
        );
        assert_eq!(
            waker.take(),
            Wakeups {
                mail: false,
                helper: false
            }
        );
        assert!(waker.prepare_sleep());
    }

    #[test]
    fn only_the_first_wake_of_a_sleeping_reactor_rings() {
        let waker = Waker::new().unwrap();
        let rung = || {
            let mut count = [0; 8];
            rustix::io::read(waker.eventfd(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
        };
        waker.wake();
        assert_eq!(rung(), 0, "the reactor is awake");
        waker.take();
        assert!(waker.prepare_sleep());
        waker.wake();
        waker.wake_for_helper();
        waker.wake();
        assert_eq!(rung(), 1);
        assert_eq!(
            waker.take(),
            Wakeups {
                mail: true,
                helper: true
            }
        );
    }
}
