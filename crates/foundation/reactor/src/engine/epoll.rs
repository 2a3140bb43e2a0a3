//! The engine for hosts without io_uring: epoll for sockets, helper threads for files.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::elsewhere::Elsewhere;
use super::helpers::FileHelpers;
use super::{
    DROP_TIMEOUT, EngineConfig, EngineCounters, EngineError, EngineEvent, Readiness, SocketToken,
};
use crate::storage::{Delegated, FileOperation, StorageTag};
use crate::wake::Waker;

mod network;

/// Most sockets reported by one turn; the kernel hands out the others next time, in turn.
const READY_MAX: usize = 1024;

/// Shorter sleeps than this end to the microsecond, longer ones to the next millisecond.
const EXACT_NS_MAX: i64 = 20_000_000;

/// What the kernel says of the waker's eventfd.
const WAKER_DATA: u64 = u64::MAX;

pub(super) struct EpollEngine {
    epoll: OwnedFd,
    waker: Waker,
    ready: Vec<epoll::Event>,
    helpers: FileHelpers,
    /// Once something has been handed over.
    elsewhere: Option<Elsewhere>,
    /// What came back from there. Empty between turns.
    again: Vec<FileOperation>,
    counters: EngineCounters,
    /// What ends now is not begun again.
    closing: bool,
}

impl std::fmt::Debug for EpollEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpollEngine")
            .field("helpers", &self.helpers)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl EpollEngine {
    pub(super) fn new(config: EngineConfig, waker: Waker) -> Result<Self, EngineError> {
        let failed = |call| {
            move |error: rustix::io::Errno| EngineError::SystemCall {
                call,
                source: error.into(),
            }
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create1"))?;
        let data = EventData::new_u64(WAKER_DATA);
        epoll::add(
            &epoll,
            waker.eventfd(),
            data,
            EventFlags::IN | EventFlags::ET,
        )
        .map_err(failed("epoll_ctl"))?;
        // Sleeps of this thread would end up to 50 us late, to save wake-ups that do not happen here
        // anyway. What does not work stays as it is.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        Ok(Self {
            epoll,
            helpers: FileHelpers::new(config.helper_threads_max, waker.clone()),
            waker,
            ready: Vec::with_capacity(READY_MAX),
            elsewhere: None,
            again: Vec::new(),
            counters: EngineCounters::default(),
            closing: false,
        })
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn poll_network(&self, microseconds: u32, prefer: bool) -> io::Result<()> {
        network::poll(self.epoll.as_fd(), microseconds, prefer)
    }

    pub(super) fn register(
        &mut self,
        socket: BorrowedFd<'_>,
        token: SocketToken,
    ) -> io::Result<()> {
        if token.0 == WAKER_DATA {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.counters.system_calls += 1;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(
            &self.epoll,
            socket,
            EventData::new_u64(token.0),
            flags,
        )?)
    }

    pub(super) fn deregister(&mut self, socket: BorrowedFd<'_>, _token: SocketToken) {
        self.counters.system_calls += 1;
        // Fails only for a socket that is not registered, and then there is nothing to do.
        let _ = epoll::delete(&self.epoll, socket);
    }

    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        self.counters.turns += 1;
        self.helpers.end_turn();
        let may_sleep = timeout != Some(Duration::ZERO) && self.waker.prepare_sleep();
        self.counters.sleeps += u64::from(may_sleep);
        self.counters.system_calls += 1;
        let result = if may_sleep {
            sleep(self.epoll.as_fd(), &mut self.ready, timeout)
        } else {
            sleep(self.epoll.as_fd(), &mut self.ready, Some(Duration::ZERO))
        };
        let wakeups = self.waker.take();
        result?;
        for event in self.ready.drain(..) {
            let token = event.data.u64();
            if token != WAKER_DATA {
                self.counters.socket_events += 1;
                let flags = event.flags; // Out of a packed structure.
                let readiness = Readiness::from_poll_bits(flags.bits());
                events.push(EngineEvent::Socket {
                    token: SocketToken(token),
                    readiness,
                });
            }
        }
        if wakeups.helper {
            self.counters.file_completed += self.helpers.take_completions(events);
            self.take_from_elsewhere(events);
        }
        if wakeups.mail {
            self.counters.woken += 1;
            events.push(EngineEvent::Woken);
        }
        Ok(())
    }

    pub(super) fn submit(&mut self, operation: FileOperation) {
        self.counters.file_submitted += 1;
        self.counters.helper_operations += 1;
        match &mut self.elsewhere {
            Some(elsewhere) if elsewhere.takes(&operation) => {
                self.counters.handed_over += 1;
                elsewhere.submit(operation);
            }
            _ => self.helpers.submit(operation),
        }
    }

    pub(super) fn hand_over(&mut self, from_bytes: usize, cores: &[usize]) {
        Elsewhere::take_from(&mut self.elsewhere, from_bytes, cores, &self.waker);
    }

    fn take_from_elsewhere(&mut self, events: &mut Vec<EngineEvent>) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        self.counters.file_completed += elsewhere.take_ended(events, &mut self.again);
        for operation in self.again.drain(..) {
            self.counters.handed_back += 1;
            if !self.closing {
                self.counters.helper_operations += 1;
                self.helpers.submit(operation);
            }
        }
    }

    pub(super) fn delegate(&mut self, tag: StorageTag) -> Delegated {
        self.counters.file_submitted += 1;
        self.helpers.delegate(tag)
    }

    pub(super) fn operations_in_flight(&self) -> usize {
        let elsewhere = self.elsewhere.as_ref().map_or(0, Elsewhere::in_flight);
        self.helpers.in_flight + elsewhere
    }

    pub(super) fn counters(&self) -> EngineCounters {
        self.counters
    }
}

impl Drop for EpollEngine {
    /// Operations that no helper has begun are dropped. Those that run own their files and buffers,
    /// so waiting for them is not a matter of safety: after it, nothing of this engine changes a
    /// file any more, unless storage hangs. The same goes for delegated ones.
    fn drop(&mut self) {
        self.closing = true;
        self.helpers.cancel_queued();
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.cancel_queued();
        }
        let deadline = Instant::now() + DROP_TIMEOUT;
        let mut events = Vec::new();
        while self.operations_in_flight() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(Some(left), &mut events).is_err() {
                tracing::warn!(
                    operations = self.operations_in_flight(),
                    "storage operations hang"
                );
                return;
            }
            events.clear();
        }
    }
}

/// Waits for events. A signal ends the wait early.
fn sleep(
    epoll: BorrowedFd<'_>,
    ready: &mut Vec<epoll::Event>,
    timeout: Option<Duration>,
) -> io::Result<()> {
    ready.clear();
    let mut timeout = timeout.map(timespec);
    // epoll_wait counts in milliseconds, and epoll_pwait2 is missing or forbidden in places. Where
    // the fraction matters, as in the delays of a transmit policy, ppoll sleeps in its stead.
    if let Some(exact) = timeout
        && exact.tv_sec == 0
        && exact.tv_nsec % 1_000_000 != 0
        && exact.tv_nsec < EXACT_NS_MAX
    {
        let watched = &mut [PollFd::from_borrowed_fd(epoll, PollFlags::IN)];
        tolerate_signal(rustix::event::poll(watched, Some(&exact)))?;
        timeout = Some(timespec(Duration::ZERO));
    }
    tolerate_signal(epoll::wait(
        epoll,
        rustix::buffer::spare_capacity(ready),
        timeout.as_ref(),
    ))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

fn tolerate_signal(result: rustix::io::Result<usize>) -> io::Result<()> {
    match result {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}
