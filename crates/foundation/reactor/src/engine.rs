//! The event loop's engine: readiness of sockets, completions of files, wake-ups by other threads.
//!
//! # Sockets: what both engines promise
//!
//! A registered socket is reported as [`EngineEvent::Socket`] with a [`Readiness`], at *edges*:
//!
//! - Right after registration, and whenever something new happens on the socket (bytes or a
//!   connection arrive, room appears in a send buffer that was full, the peer closes), the next
//!   [`Engine::wait`] reports it. A report says at least what is new, and may repeat what is known:
//!   a socket that receives bytes is often reported as writable too. So readiness is added to what
//!   the caller remembers; only a receive or a send takes it away.
//! - There is nothing to re-arm. The caller remembers "readable" until a receive returned
//!   [`WouldBlock`](std::io::ErrorKind::WouldBlock) *or fewer bytes than it had room for* (an accept: until `WouldBlock`);
//!   from then on the next arrival gives a new report. The same goes for "writable" and a send that
//!   took less than all. A caller that stops earlier, because a budget is used up, must return by itself: no event
//!   will remind it.
//! - [`Readiness::is_hang_up`] means that the peer sends no more, or that the connection failed. It
//!   comes together with readable, and it may be reported once only. From then on a short receive
//!   proves nothing, since the end of the stream is already there behind it: receive until 0 or an
//!   error other than `WouldBlock`.
//! - Once [`Engine::deregister`] has returned, no later `wait` reports that token. Events already
//!   handed out may still carry it, so a slot that is reused wants a generation in its token.
//!
//! # Storage
//!
//! [`Storage::submit`] queues an operation; the next `wait` passes all queued ones on together, and
//! each comes back exactly once as [`EngineEvent::File`]. The engine keeps the file and the buffer of an
//! operation alive until then, also if the engine itself is dropped.
//!
//! [`Storage::delegate`] leaves the completion of an operation to other code, on any thread; its completion wakes the
//! engine and comes back in the same way. Dropping an engine waits for these operations too, for as long as for
//! others; later completions have no receiver.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::storage::{Delegated, FileOperation, Storage, StorageTag};
use crate::wake::Waker;

mod config;
mod elsewhere;
mod epoll;
mod event;
mod helpers;
mod uring;

use config::DROP_TIMEOUT;
pub use config::{EngineConfig, EngineCounters, EngineError, IoUringRefusal};
pub use event::{EngineEvent, Readiness, SocketToken};

/// Longer sleeps are cut to this, which every system call can express.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 20);

/// Which engine to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring where this process may use it, otherwise epoll.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// epoll with helper threads.
    Epoll,
}

/// Which engine is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Completions through a ring shared with the kernel.
    IoUring,
    /// Readiness by epoll, files by helper threads.
    Epoll,
}

impl std::fmt::Display for EngineKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// Bytes of memory that this process may lock, together with others of its user (RLIMIT_MEMLOCK). `None`: as much
/// as it likes.
#[must_use]
pub fn lockable_bytes() -> Option<u64> {
    use rustix::thread::{CapabilitySet, capabilities};
    let exempt = capabilities(None)
        .is_ok_and(|capabilities| capabilities.effective.contains(CapabilitySet::IPC_LOCK));
    if exempt {
        return None;
    }
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}

/// One thread's event loop. See the module documentation.
///
/// Made on the thread that uses it, and stays there.
#[derive(Debug)]
pub struct Engine {
    inner: Inner,
    refusal: Option<IoUringRefusal>,
    /// What is to be called at the next wait.
    turn_ends: Vec<fn()>,
}

#[derive(Debug)]
enum Inner {
    IoUring(Box<uring::UringEngine>),
    Epoll(Box<epoll::EpollEngine>),
}

macro_rules! either {
    ($self:expr, $engine:ident => $call:expr) => {
        match $self {
            Inner::IoUring($engine) => $call,
            Inner::Epoll($engine) => $call,
        }
    };
}

impl Engine {
    /// Makes an engine for the calling thread. `waker` is what other threads wake it with; make it
    /// beforehand, so that all mailboxes exist before the first reactor runs.
    pub fn new(
        choice: EngineChoice,
        config: EngineConfig,
        waker: Waker,
    ) -> Result<Self, EngineError> {
        let epoll = |waker, refusal| {
            let engine = epoll::EpollEngine::new(config, waker)?;
            Ok(Self {
                inner: Inner::Epoll(Box::new(engine)),
                refusal,
                turn_ends: Vec::new(),
            })
        };
        if choice == EngineChoice::Epoll {
            return epoll(waker, None);
        }
        match uring::UringEngine::new(config, waker.clone()) {
            Ok(engine) => Ok(Self {
                inner: Inner::IoUring(Box::new(engine)),
                refusal: None,
                turn_ends: Vec::new(),
            }),
            Err(refusal) if choice == EngineChoice::Auto => epoll(waker, Some(refusal)),
            Err(refusal) => Err(EngineError::IoUring(refusal)),
        }
    }

    /// Which engine it is.
    #[must_use]
    pub fn kind(&self) -> EngineKind {
        match self.inner {
            Inner::IoUring(_) => EngineKind::IoUring,
            Inner::Epoll(_) => EngineKind::Epoll,
        }
    }

    /// Why [`EngineChoice::Auto`] did not take io_uring.
    #[must_use]
    pub fn refusal(&self) -> Option<&IoUringRefusal> {
        self.refusal.as_ref()
    }

    /// Has the kernel poll the network cards of registered sockets for so many microseconds before this engine sleeps;
    /// `prefer`: polling takes the place of interrupts while it goes on. Both engines can from Linux 6.9 on; where
    /// they are refused, receives still poll, if the socket says so ([`crate::socket::set_busy_poll`]).
    pub fn poll_network(&self, microseconds: u32, prefer: bool) -> io::Result<()> {
        either!(&self.inner, engine => engine.poll_network(microseconds, prefer))
    }

    /// From now on threads on `cores` (none: on that of the caller) make reads and writes of `from_bytes` or more, but
    /// for those of O_DIRECT files, of bytes that the page cache does not hold, and with RWF_DSYNC. That is for an engine whose
    /// own core is short of time; it costs a change of threads. It may be called again, with other values.
    pub fn hand_over(&mut self, from_bytes: usize, cores: &[usize]) {
        either!(&mut self.inner, engine => engine.hand_over(from_bytes, cores));
    }

    /// Ends that. Operations that have been handed over end there.
    pub fn keep_all(&mut self) {
        either!(&mut self.inner, engine => engine.hand_over(usize::MAX, &[]));
    }

    /// What other threads wake this engine with.
    #[must_use]
    pub fn waker(&self) -> Waker {
        either!(&self.inner, engine => engine.waker().clone())
    }

    /// Starts watching a socket: a connection or a listener, non-blocking. No two registered
    /// sockets may have the same token.
    pub fn register(&mut self, socket: BorrowedFd<'_>, token: SocketToken) -> io::Result<()> {
        either!(&mut self.inner, engine => engine.register(socket, token))
    }

    /// Stops watching a socket. Call it before the socket is closed, which takes effect for the peer
    /// at once then. Unknown tokens are ignored.
    pub fn deregister(&mut self, socket: BorrowedFd<'_>, token: SocketToken) {
        either!(&mut self.inner, engine => engine.deregister(socket, token));
    }

    /// Passes queued storage operations on, sleeps until something happens or `timeout` is over
    /// (`None`: for as long as it takes; zero: not at all), and appends what happened to `events`.
    ///
    /// It may return early without events (a signal came). It does not sleep while [`Waker::wake`]
    /// has been called and not been reported.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        self.end_turn();
        let timeout = timeout.map(|timeout| timeout.min(TIMEOUT_MAX));
        either!(&mut self.inner, engine => engine.wait(timeout, events))
    }

    fn end_turn(&mut self) {
        for call in self.turn_ends.drain(..) {
            call();
        }
    }

    /// File operations submitted, and operations delegated, that are not yet reported as complete.
    #[must_use]
    pub fn operations_in_flight(&self) -> usize {
        either!(&self.inner, engine => engine.operations_in_flight())
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        either!(&self.inner, engine => engine.counters())
    }
}

impl Storage for Engine {
    fn submit(&mut self, operation: FileOperation) {
        either!(&mut self.inner, engine => engine.submit(operation));
    }

    fn delegate(&mut self, tag: StorageTag) -> Delegated {
        either!(&mut self.inner, engine => engine.delegate(tag))
    }

    fn at_turn_end(&mut self, call: fn()) {
        self.turn_ends.push(call);
    }
}

impl Drop for Engine {
    /// There is no next wait, and the last turn ends here.
    fn drop(&mut self) {
        self.end_turn();
    }
}
