//! The outside world of a shard: sockets and an engine, or stand-ins for them.
//!
//! The product runs on [`Engine`] and TCP connections. The simulator runs the same shards, turn by turn and
//! under virtual time, on a network and a disk of its own (see [`crate::stepped`]). The calls go through
//! trait objects: one for each receive and send, which is nothing beside the system call behind it.

use std::fmt::Debug;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use longshore_nvme::psk::Identity;
use longshore_reactor::storage::Storage;
use longshore_reactor::{
    Engine, EngineCounters, EngineEvent, PagePipe, SocketToken, socket, thread_time,
};

/// A stream of bytes in both directions that never blocks.
pub trait Link: Debug + Send {
    /// Fills the buffers in order. 0: the peer sends no more. `WouldBlock`: there is nothing now.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Whether a receive that filled less than it could may be followed by another one that says something, although
    /// no event will tell of it.
    fn has_more(&self) -> bool {
        false
    }

    /// Takes bytes from the front of the buffers. `WouldBlock`: there is no room now. What it does not take is what the
    /// next call begins with.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// As [`Self::send`]; further bytes follow at once.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn send_more(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send(buffers)
    }

    /// The socket behind it, if there is one.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Gives back memory that only a busy connection needs.
    fn release_memory(&mut self) {}

    /// The identity of the key that the peer has proved to know, if there is TLS on it.
    fn tls_identity(&self) -> Option<&Identity> {
        None
    }

    fn takes_pages(&self) -> bool {
        false
    }

    /// Takes `length` bytes of pages, as far as there is room. `more`: further bytes follow at once.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn send_pages(
        &mut self,
        _pages: &mut PagePipe,
        _length: usize,
        _more: bool,
    ) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether partial segments leave at once, or wait while sent data is unacknowledged. When it is set,
    /// what has waited leaves.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn set_nodelay(&mut self, _on: bool) -> io::Result<()> {
        Ok(())
    }

    /// Ends the stream towards the peer, which can still be received from. `false`: the link cannot,
    /// and closing it loses nothing that was sent.
    ///
    /// # Errors
    /// As those of a TCP socket.
    fn finish_sending(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Both ends: who it is, and the address at which it reached us.
    ///
    /// # Errors
    /// The connection is gone already.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)>;

    /// Has its events reported under `token`.
    ///
    /// # Errors
    /// The operating system's.
    fn watch(&mut self, platform: &mut dyn Platform, token: SocketToken) -> io::Result<()>;

    /// Ends the reports of readiness for this socket.
    fn forget(&mut self, platform: &mut dyn Platform, token: SocketToken);
}

/// The reactor's engine or what stands in for it.
pub trait Platform: Storage {
    /// Watches a socket; its events carry `token`.
    ///
    /// # Errors
    /// The operating system's.
    fn watch(&mut self, descriptor: BorrowedFd<'_>, token: SocketToken) -> io::Result<()>;

    /// Ends the watch over this descriptor.
    fn forget(&mut self, descriptor: BorrowedFd<'_>, token: SocketToken);

    /// Sleeps until something happens or `timeout` is over, and appends what happened.
    ///
    /// # Errors
    /// The operating system's; the shard cannot go on.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<EngineEvent>) -> io::Result<()>;

    /// Has threads on `cores` make large reads and writes of files from now on, those of `from_bytes` or more:
    /// [`Engine::hand_over`]. `None`: no more of them.
    fn hand_over(&mut self, _to: Option<(usize, &[usize])>) {}

    /// What it has done so far.
    fn counters(&self) -> EngineCounters {
        EngineCounters::default()
    }

    /// The time now, where that may be another than at the beginning of the turn.
    fn clock(&self) -> Option<Instant> {
        None
    }

    /// The processor time of the calling thread, where there is such a thing.
    fn processor_time(&self) -> Option<ProcessorTime> {
        None
    }
}

impl Platform for Engine {
    fn watch(&mut self, descriptor: BorrowedFd<'_>, token: SocketToken) -> io::Result<()> {
        self.register(descriptor, token)
    }

    fn forget(&mut self, descriptor: BorrowedFd<'_>, token: SocketToken) {
        self.deregister(descriptor, token);
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<EngineEvent>) -> io::Result<()> {
        Self::wait(self, timeout, events)
    }

    fn hand_over(&mut self, to: Option<(usize, &[usize])>) {
        match to {
            Some((from_bytes, cores)) => Self::hand_over(self, from_bytes, cores),
            None => self.keep_all(),
        }
    }

    fn counters(&self) -> EngineCounters {
        Self::counters(self)
    }

    fn clock(&self) -> Option<Instant> {
        Some(Instant::now())
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        processor_time_of_thread()
    }
}

/// What the scheduler has given to a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// It ran for so long.
    pub ran_ns: u64,
    /// It could have run, but something else had the core, for so long.
    pub waited_ns: u64,
    /// It ran this program for so long.
    pub user_ns: u64,
    /// It ran the kernel for so long.
    pub system_ns: u64,
}

/// `/proc/thread-self/schedstat`: time on the core, time in the run queue, slices. And getrusage(2).
fn processor_time_of_thread() -> Option<ProcessorTime> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_ascii_whitespace().map(str::parse);
    let mut next = || fields.next()?.ok();
    let parts = thread_time::of_this_thread().unwrap_or_default();
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Some(ProcessorTime {
        ran_ns: next()?,
        waited_ns: next()?,
        user_ns: nanoseconds(parts.user),
        system_ns: nanoseconds(parts.system),
    })
}

/// A TCP connection of the kernel.
#[derive(Debug)]
pub(crate) struct TcpLink(pub TcpStream);

impl Link for TcpLink {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        socket::receive(&self.0, buffers)
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        socket::send(&self.0, buffers, false)
    }

    fn send_more(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        socket::send(&self.0, buffers, true)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }

    fn takes_pages(&self) -> bool {
        true
    }

    fn send_pages(&mut self, pages: &mut PagePipe, length: usize, more: bool) -> io::Result<usize> {
        pages.send(self.0.as_fd(), length, more)
    }

    fn set_nodelay(&mut self, on: bool) -> io::Result<()> {
        socket::set_nodelay(&self.0, on)
    }

    fn finish_sending(&mut self) -> io::Result<bool> {
        socket::shutdown(&self.0, Shutdown::Write)?;
        Ok(true)
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.0.peer_addr()?, self.0.local_addr()?))
    }

    fn watch(&mut self, platform: &mut dyn Platform, token: SocketToken) -> io::Result<()> {
        platform.watch(self.0.as_fd(), token)
    }

    fn forget(&mut self, platform: &mut dyn Platform, token: SocketToken) {
        platform.forget(self.0.as_fd(), token);
    }
}
