//! The engine over io_uring: multishot polls for sockets, ring operations for files.

use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::{cqueue, opcode, squeue, types};

use super::elsewhere::Elsewhere;
use super::helpers::FileHelpers;
use super::{
    DROP_TIMEOUT, EngineConfig, EngineCounters, EngineEvent, IoUringRefusal, Readiness, SocketToken,
};
use crate::buffer::Buffer;
use crate::storage::{Delegated, FileCompletion, FileOperation, StorageTag};
use crate::wake::Waker;

mod buffers;
mod files;
mod listeners;
mod owner;
mod ring;

use buffers::RegisteredBuffers;
use files::{Files, Started};
use listeners::{Listeners, is_listener};
use owner::{GENERATION_MASK, Owner, index};
use ring::{Enter, Ring};

/// Socket conditions that are watched, in the bits of poll(2).
const POLL_EVENTS: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

pub(super) struct UringEngine {
    ring: Ring,
    /// Completions of the turn, taken off the ring before they are acted on.
    reaped: Vec<cqueue::Entry>,
    sockets: Sockets,
    /// Made with the first one.
    listeners: Option<Listeners>,
    files: Files,
    buffers: RegisteredBuffers,
    /// For what the ring cannot do: seeking holes, ioctls, and what others do.
    helpers: FileHelpers,
    /// Once something has been handed over.
    elsewhere: Option<Elsewhere>,
    /// What came back from there. Empty between turns.
    again: Vec<FileOperation>,
    waker: Waker,
    counters: EngineCounters,
    /// What ends now is not begun again.
    closing: bool,
    /// The kernel lets only the thread that made the ring enter it (`SINGLE_ISSUER`).
    _not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for UringEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringEngine")
            .field("backlog", &self.ring.backlog_len())
            .field("files_in_flight", &self.files.in_flight())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl UringEngine {
    pub(super) fn new(config: EngineConfig, waker: Waker) -> Result<Self, IoUringRefusal> {
        let mut engine = Self {
            ring: Ring::new(config)?,
            reaped: Vec::new(),
            sockets: Sockets::default(),
            listeners: None,
            files: Files::default(),
            buffers: RegisteredBuffers::new(config, waker.clone()),
            helpers: FileHelpers::new(config.helper_threads_max, waker.clone()),
            elsewhere: None,
            again: Vec::new(),
            waker,
            counters: EngineCounters::default(),
            closing: false,
            _not_send: PhantomData,
        };
        engine.watch_waker();
        Ok(engine)
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn poll_network(&self, microseconds: u32, prefer: bool) -> io::Result<()> {
        self.ring.poll_network(microseconds, prefer)
    }

    pub(super) fn register(
        &mut self,
        socket: BorrowedFd<'_>,
        token: SocketToken,
    ) -> io::Result<()> {
        if is_listener(socket) {
            return self.register_listener(socket, token);
        }
        let poll = self.sockets.insert(socket.as_raw_fd(), token)?;
        self.push(poll);
        Ok(())
    }

    fn register_listener(&mut self, socket: BorrowedFd<'_>, token: SocketToken) -> io::Result<()> {
        self.counters.system_calls += 1;
        match &self.listeners {
            Some(listeners) => listeners.insert(socket, token),
            None => {
                let listeners = Listeners::new()?;
                listeners.insert(socket, token)?;
                self.listeners = Some(listeners);
                self.watch_listeners();
                Ok(())
            }
        }
    }

    pub(super) fn deregister(&mut self, socket: BorrowedFd<'_>, token: SocketToken) {
        let Some(owner) = self.sockets.remove(token) else {
            if let Some(listeners) = &self.listeners {
                self.counters.system_calls += 1;
                listeners.remove(socket);
            }
            return;
        };
        // IORING_OP_POLL_REMOVE refuses (EALREADY) a poll that has fired and whose completion is not
        // posted yet; a multishot poll then stays, and with it the socket, for good. A cancellation
        // marks such a poll, and it ends with its completion.
        let cancel = opcode::AsyncCancel::new(owner.to_user_data()).build();
        self.push(cancel.user_data(Owner::Nobody.to_user_data()));
        // The poll holds the socket open. It has to go now, or the peer would learn of the close at
        // the end of the turn only.
        self.flush();
    }

    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        self.counters.turns += 1;
        self.helpers.end_turn();
        self.buffers.let_go(&self.ring, &mut self.counters);
        let may_sleep = timeout != Some(Duration::ZERO) && self.waker.prepare_sleep();
        self.counters.sleeps += u64::from(may_sleep);
        let idle = self.files.in_flight() == 0;
        let how = if may_sleep {
            Enter::Sleep { timeout, idle }
        } else {
            Enter::Poll
        };
        let entered = self.ring.enter(how, &mut self.counters);
        let wakeups = self.waker.take();
        entered?;
        self.reap(events);
        if wakeups.helper {
            self.buffers.let_go(&self.ring, &mut self.counters);
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
        if let Some(elsewhere) = &mut self.elsewhere
            && elsewhere.takes(&operation)
        {
            self.counters.handed_over += 1;
            self.counters.helper_operations += 1;
            return elsewhere.submit(operation);
        }
        self.begin(operation);
    }

    fn begin(&mut self, operation: FileOperation) {
        let counters = &mut self.counters;
        let registered =
            |buffer: &mut Buffer, length| self.buffers.index(&self.ring, buffer, length, counters);
        match self.files.start(operation, registered) {
            Started::Entry(entry) => self.push(entry),
            Started::NotHere(operation) => {
                self.counters.helper_operations += 1;
                self.helpers.submit(operation);
            }
        }
    }

    pub(super) fn hand_over(&mut self, from_bytes: usize, cores: &[usize]) {
        Elsewhere::take_from(&mut self.elsewhere, from_bytes, cores, &self.waker);
    }

    fn take_from_elsewhere(&mut self, events: &mut Vec<EngineEvent>) {
        let Some(elsewhere) = &mut self.elsewhere else {
            return;
        };
        let mut again = std::mem::take(&mut self.again);
        self.counters.file_completed += elsewhere.take_ended(events, &mut again);
        self.counters.handed_back +=
            u64::try_from(again.len()).expect("usize is at most 64 bits on Linux");
        for operation in again.drain(..) {
            if !self.closing {
                self.begin(operation);
            }
        }
        self.again = again;
    }

    pub(super) fn delegate(&mut self, tag: StorageTag) -> Delegated {
        self.counters.file_submitted += 1;
        self.helpers.delegate(tag)
    }

    pub(super) fn operations_in_flight(&self) -> usize {
        let elsewhere = self.elsewhere.as_ref().map_or(0, Elsewhere::in_flight);
        self.files.in_flight() + self.helpers.in_flight + elsewhere
    }

    pub(super) fn counters(&self) -> EngineCounters {
        let (registered_bytes, registered_bytes_max) = self.buffers.bytes();
        EngineCounters {
            registered_bytes,
            registered_bytes_max,
            ..self.counters
        }
    }

    fn flush(&mut self) {
        if let Err(error) = self.ring.enter(Enter::Flush, &mut self.counters) {
            tracing::debug!(%error, "io_uring_enter failed");
        }
    }

    fn watch_waker(&mut self) {
        let fd = types::Fd(self.waker.eventfd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, poll_bits(libc::POLLIN))
            .multi(true)
            .build();
        self.push(poll.user_data(Owner::Waker.to_user_data()));
    }

    fn watch_listeners(&mut self) {
        let Some(listeners) = &self.listeners else {
            return;
        };
        let fd = types::Fd(listeners.epoll().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, poll_bits(libc::POLLIN))
            .multi(true)
            .build();
        self.push(poll.user_data(Owner::Listeners.to_user_data()));
    }

    fn listener_events(&mut self, events: &mut Vec<EngineEvent>) {
        if let Some(listeners) = &mut self.listeners {
            let (reported, calls) = listeners.take_events(events);
            self.counters.socket_events += reported;
            self.counters.system_calls += calls;
        }
    }

    /// Queues an entry for the next enter.
    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: polls and cancellations refer to no memory. File operations are made by `Files`,
        // which keeps file and buffer of each alive and untouched from before it is pushed until
        // `finish`, called when its completion has been taken off the ring or its entry has been
        // taken back; and `Drop` waits for that or leaks them. One that names a place in the table of
        // registered buffers owns the buffer at it, and `RegisteredBuffers` gives the place to
        // no other one as long as there is that buffer.
        unsafe { self.ring.push(entry) };
    }

    /// Takes completions off the ring and turns them into events.
    fn reap(&mut self, events: &mut Vec<EngineEvent>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.ring.completions(&mut reaped);
        for entry in reaped.drain(..) {
            match Owner::from_user_data(entry.user_data()) {
                Owner::Socket { slot, generation } => {
                    self.socket_event(slot, generation, &entry, events);
                }
                Owner::File { slot } => {
                    if let Some(completion) = self.file_completion(slot, entry.result()) {
                        self.counters.file_completed += 1;
                        events.push(EngineEvent::File(completion));
                    }
                }
                Owner::Waker => {
                    // Whoever is still at work for an engine that ends says so by the waker.
                    let others = self.operations_in_flight() - self.files.in_flight();
                    let needed = !self.closing || others > 0;
                    if !cqueue::more(entry.flags()) && needed {
                        self.watch_waker();
                    }
                }
                Owner::Listeners => {
                    if !cqueue::more(entry.flags()) && !self.closing {
                        self.watch_listeners();
                    }
                    self.listener_events(events);
                }
                Owner::Nobody => {}
            }
        }
        self.reaped = reaped;
    }

    fn socket_event(
        &mut self,
        slot: u32,
        generation: u32,
        entry: &cqueue::Entry,
        events: &mut Vec<EngineEvent>,
    ) {
        let Some((token, fd)) = self.sockets.get(slot, generation) else {
            return; // Deregistered meanwhile.
        };
        let result = entry.result();
        // A poll ends by itself when the completion queue overflows; a new one looks at the state of
        // the socket first, so nothing that happened in between is missed. A descriptor that cannot
        // be polled is reported as failed, and its owner will find out.
        if !cqueue::more(entry.flags()) && !self.closing && result != -libc::EBADF {
            self.push(poll_entry(fd, Owner::Socket { slot, generation }));
        }
        let bits = u32::try_from(result).unwrap_or(poll_bits(libc::POLLERR));
        self.counters.socket_events += 1;
        events.push(EngineEvent::Socket {
            token,
            readiness: Readiness::from_poll_bits(bits),
        });
    }

    fn file_completion(&mut self, slot: u32, result: i32) -> Option<FileCompletion> {
        if result == -libc::EINTR
            && !self.closing
            && let Some(entry) = self.files.entry_again(slot, |buffer, length| {
                let counters = &mut self.counters;
                self.buffers.index(&self.ring, buffer, length, counters)
            })
        {
            self.push(entry);
            return None;
        }
        self.files.finish(slot, result)
    }
}

impl Drop for UringEngine {
    /// Cancels what the kernel has not finished and waits for it: until then it may still read from
    /// and write to the buffers, which are freed afterwards.
    fn drop(&mut self) {
        self.helpers.cancel_queued();
        if let Some(elsewhere) = &mut self.elsewhere {
            elsewhere.cancel_queued();
        }
        for entry in self.ring.take_back() {
            if let Owner::File { slot } = Owner::from_user_data(entry.get_user_data()) {
                self.files.finish(slot, -libc::ECANCELED);
            }
        }
        self.closing = true;
        // The polls too: closing the ring would end them some time later, and until then sockets
        // stay open and addresses in use.
        let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
        self.push(cancel.user_data(Owner::Nobody.to_user_data()));
        self.flush();
        let deadline = Instant::now() + DROP_TIMEOUT;
        let mut events = Vec::new();
        while self.operations_in_flight() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(Some(left), &mut events).is_err() {
                let operations = self.operations_in_flight();
                tracing::warn!(
                    operations,
                    "storage operations hang; their memory is not freed"
                );
                self.files.leak();
                return;
            }
            events.clear();
        }
    }
}

fn poll_bits(bits: i16) -> u32 {
    u32::from(bits.cast_unsigned())
}

fn poll_entry(fd: RawFd, owner: Owner) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd), poll_bits(POLL_EVENTS))
        .multi(true)
        .build()
        .user_data(owner.to_user_data())
}

/// Registered sockets by slot.
#[derive(Debug, Default)]
struct Sockets {
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
    /// Slots by the token of the socket, for deregistration only.
    by_token: HashMap<u64, u32>,
}

#[derive(Debug)]
struct SocketSlot {
    generation: u32,
    registered: Option<(SocketToken, RawFd)>,
}

impl Sockets {
    /// Returns the poll to submit.
    fn insert(&mut self, fd: RawFd, token: SocketToken) -> io::Result<squeue::Entry> {
        if self.by_token.contains_key(&token.0) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(SocketSlot {
                generation: 0,
                registered: None,
            });
            u32::try_from(self.slots.len() - 1).expect("descriptors are 31-bit numbers")
        });
        let entry = &mut self.slots[index(slot)];
        entry.registered = Some((token, fd));
        self.by_token.insert(token.0, slot);
        Ok(poll_entry(
            fd,
            Owner::Socket {
                slot,
                generation: entry.generation,
            },
        ))
    }

    /// Returns whose poll to remove.
    fn remove(&mut self, token: SocketToken) -> Option<Owner> {
        let slot = self.by_token.remove(&token.0)?;
        let entry = &mut self.slots[index(slot)];
        let owner = Owner::Socket {
            slot,
            generation: entry.generation,
        };
        entry.registered = None;
        entry.generation = entry.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(slot);
        Some(owner)
    }

    fn get(&self, slot: u32, generation: u32) -> Option<(SocketToken, RawFd)> {
        let entry = self.slots.get(index(slot))?;
        entry.registered.filter(|_| entry.generation == generation)
    }
}
