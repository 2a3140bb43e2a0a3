//! The engine over io_uring: multishot polls for sockets, ring operations for files.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};

use super::epoll::FileHelpers;
use super::{
    DROP_TIMEOUT, EngineConfig, EngineCounters, Event, IoUringRefusal, Readiness, SocketToken,
};
use crate::storage::{FileCompletion, FileOperation};
use crate::wake::Waker;

mod files;

use files::Files;

/// Socket conditions that are watched, in the bits of poll(2).
const POLL_EVENTS: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;

/// What a completion belongs to, and its form in the ring's 64-bit user data: two bits of kind, then
/// 30 bits of generation, then 32 bits of slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The multishot poll of a registered socket.
    Socket { slot: u32, generation: u32 },
    /// A file operation.
    File { slot: u32 },
    /// The multishot poll of the waker.
    Waker,
    /// A cancellation; nobody wants its result.
    Nobody,
}

const GENERATION_MASK: u32 = (1 << 30) - 1;

impl Owner {
    fn to_user_data(self) -> u64 {
        let (kind, generation, slot) = match self {
            Self::Socket { slot, generation } => (0, generation & GENERATION_MASK, slot),
            Self::File { slot } => (1, 0, slot),
            Self::Waker => (2, 0, 0),
            Self::Nobody => (3, 0, 0),
        };
        kind << 62 | u64::from(generation) << 32 | u64::from(slot)
    }

    fn from_user_data(data: u64) -> Self {
        let slot = u32::try_from(data & u64::from(u32::MAX)).expect("masked to 32 bits");
        let generation = u32::try_from(data >> 32).expect("shifted to 32 bits") & GENERATION_MASK;
        match data >> 62 {
            0 => Self::Socket { slot, generation },
            1 => Self::File { slot },
            2 => Self::Waker,
            _ => Self::Nobody,
        }
    }
}

pub(super) struct UringEngine {
    ring: IoUring,
    /// Entries that found no room in the submission queue, oldest first.
    backlog: VecDeque<squeue::Entry>,
    /// Completions of the turn, taken off the ring before they are acted on.
    reaped: Vec<cqueue::Entry>,
    sockets: Sockets,
    files: Files,
    /// For what the ring cannot do: seeking holes, ioctls.
    helpers: FileHelpers,
    waker: Waker,
    counters: EngineCounters,
    /// The kernel lets only the thread that made the ring enter it (`SINGLE_ISSUER`).
    _not_send: PhantomData<*const ()>,
}

impl std::fmt::Debug for UringEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UringEngine")
            .field("backlog", &self.backlog.len())
            .field("files_in_flight", &self.files.in_flight())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl UringEngine {
    pub(super) fn new(config: EngineConfig, waker: Waker) -> Result<Self, IoUringRefusal> {
        let ring = build_ring(config)?;
        check_operations(&ring)?;
        let workers = u32::try_from(config.helper_threads_max.max(1)).unwrap_or(u32::MAX);
        // A kernel before 5.15 knows no such limit and has a reasonable one of its own.
        let _ = ring
            .submitter()
            .register_iowq_max_workers(&mut [workers, workers]);
        let mut engine = Self {
            ring,
            backlog: VecDeque::new(),
            reaped: Vec::new(),
            sockets: Sockets::default(),
            files: Files::default(),
            helpers: FileHelpers::new(config.helper_threads_max, waker.clone()),
            waker,
            counters: EngineCounters::default(),
            _not_send: PhantomData,
        };
        engine.watch_waker();
        Ok(engine)
    }

    pub(super) fn waker(&self) -> &Waker {
        &self.waker
    }

    pub(super) fn register(
        &mut self,
        socket: BorrowedFd<'_>,
        token: SocketToken,
    ) -> io::Result<()> {
        let poll = self.sockets.insert(socket.as_raw_fd(), token)?;
        self.push(poll);
        Ok(())
    }

    pub(super) fn deregister(&mut self, _socket: BorrowedFd<'_>, token: SocketToken) {
        let Some(owner) = self.sockets.remove(token) else {
            return;
        };
        let user_data = owner.to_user_data();
        self.backlog
            .retain(|entry| entry.get_user_data() != user_data);
        let removal = opcode::PollRemove::new(user_data).build();
        self.push(removal.user_data(Owner::Nobody.to_user_data()));
        // The poll holds the socket open. It has to go now, or the peer would learn of the close at
        // the end of the turn only, and the last turn before a long sleep may be this one.
        if let Err(error) = self.enter(Some(Duration::ZERO), true) {
            tracing::debug!(%error, "io_uring_enter after a poll was removed");
        }
    }

    pub(super) fn wait(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        self.counters.turns += 1;
        let may_sleep = timeout != Some(Duration::ZERO) && self.waker.prepare_sleep();
        self.counters.sleeps += u64::from(may_sleep);
        let entered = self.enter(
            if may_sleep {
                timeout
            } else {
                Some(Duration::ZERO)
            },
            false,
        );
        let wakeups = self.waker.take();
        entered?;
        self.reap(events);
        if wakeups.helper {
            self.counters.file_completed += self.helpers.take_completions(events);
        }
        if wakeups.mail {
            self.counters.woken += 1;
            events.push(Event::Woken);
        }
        Ok(())
    }

    pub(super) fn submit(&mut self, operation: FileOperation) {
        self.counters.file_submitted += 1;
        match self.files.start(operation) {
            Ok(entry) => self.push(entry),
            Err(operation) => {
                self.counters.helper_operations += 1;
                self.helpers.submit(operation);
            }
        }
    }

    pub(super) fn operations_in_flight(&self) -> usize {
        self.files.in_flight() + self.helpers.in_flight
    }

    pub(super) fn counters(&self) -> EngineCounters {
        self.counters
    }

    fn watch_waker(&mut self) {
        let fd = types::Fd(self.waker.eventfd().as_raw_fd());
        let poll = opcode::PollAdd::new(fd, poll_bits(libc::POLLIN))
            .multi(true)
            .build();
        self.push(poll.user_data(Owner::Waker.to_user_data()));
    }

    /// Queues an entry for the next enter.
    fn push(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() || !push_now(&mut self.ring, &entry) {
            self.backlog.push_back(entry);
        }
    }

    fn fill_submission_queue(&mut self) {
        while let Some(entry) = self.backlog.front() {
            if !push_now(&mut self.ring, entry) {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits all that is queued, sleeps for completions up to `timeout`, and runs what the kernel
    /// has deferred to this moment. `flush` runs it even if the ring looks idle.
    fn enter(&mut self, timeout: Option<Duration>, flush: bool) -> io::Result<()> {
        self.fill_submission_queue();
        while !self.backlog.is_empty() {
            self.counters.system_calls += 1;
            let submitted = tolerate(self.ring.submit())?;
            self.fill_submission_queue();
            if submitted == 0 {
                // The kernel is short of memory or wants completions to be taken first.
                break;
            }
        }
        let stuck = !self.backlog.is_empty();
        if timeout == Some(Duration::ZERO) || stuck {
            return self.poll(flush);
        }
        self.counters.system_calls += 1;
        match timeout {
            None => tolerate(self.ring.submit_and_wait(1))?,
            Some(timeout) => {
                let timespec = types::Timespec::from(timeout);
                let arguments = types::SubmitArgs::new().timespec(&timespec);
                tolerate(self.ring.submitter().submit_with_args(1, &arguments))?
            }
        };
        Ok(())
    }

    /// Enters without sleeping, and not at all when the ring shows that there is no reason to.
    fn poll(&mut self, flush: bool) -> io::Result<()> {
        let queue = self.ring.submission();
        let overflow = queue.cq_overflow();
        let idle = queue.is_empty() && !queue.taskrun() && !overflow;
        drop(queue);
        self.counters.completion_overflows += u64::from(overflow);
        if idle && !flush {
            return Ok(());
        }
        self.counters.system_calls += 1;
        // Asks for deferred work to be run if there was some before.
        tolerate(self.ring.submit())?;
        if flush && self.ring.submission().taskrun() {
            self.counters.system_calls += 1;
            tolerate(self.ring.submit())?;
        }
        Ok(())
    }

    /// Takes completions off the ring and turns them into events.
    fn reap(&mut self, events: &mut Vec<Event>) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion());
        for entry in reaped.drain(..) {
            match Owner::from_user_data(entry.user_data()) {
                Owner::Socket { slot, generation } => {
                    self.socket_event(slot, generation, &entry, events);
                }
                Owner::File { slot } => {
                    if let Some(completion) = self.file_completion(slot, entry.result()) {
                        self.counters.file_completed += 1;
                        events.push(Event::File(completion));
                    }
                }
                Owner::Waker => {
                    if !cqueue::more(entry.flags()) {
                        self.watch_waker();
                    }
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
        events: &mut Vec<Event>,
    ) {
        let Some((token, fd)) = self.sockets.get(slot, generation) else {
            return; // Deregistered meanwhile.
        };
        let result = entry.result();
        // A poll ends by itself when the completion queue overflows; a new one looks at the state of
        // the socket first, so nothing that happened in between is missed. A descriptor that cannot
        // be polled is reported as failed, and its owner will find out.
        if !cqueue::more(entry.flags()) && result != -libc::EBADF {
            self.push(poll_entry(fd, Owner::Socket { slot, generation }));
        }
        let bits = u32::try_from(result).unwrap_or(poll_bits(libc::POLLERR));
        self.counters.socket_events += 1;
        events.push(Event::Socket {
            token,
            readiness: Readiness::from_poll_bits(bits),
        });
    }

    fn file_completion(&mut self, slot: u32, result: i32) -> Option<FileCompletion> {
        if result == -libc::EINTR
            && let Some(entry) = self.files.entry_again(slot)
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
        for entry in std::mem::take(&mut self.backlog) {
            if let Owner::File { slot } = Owner::from_user_data(entry.get_user_data()) {
                self.files.finish(slot, -libc::ECANCELED);
            }
        }
        if self.operations_in_flight() > 0 {
            let cancel = opcode::AsyncCancel2::new(types::CancelBuilder::any()).build();
            self.push(cancel.user_data(Owner::Nobody.to_user_data()));
        }
        let deadline = Instant::now() + DROP_TIMEOUT;
        let mut events = Vec::new();
        while self.operations_in_flight() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(Some(left), &mut events).is_err() {
                let operations = self.operations_in_flight();
                tracing::warn!(
                    operations,
                    "storage operations hang; leaving their memory to them"
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

/// False when the submission queue is full.
fn push_now(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: an entry must be sound to execute until it completes. Polls and cancellations refer to
    // no memory. File operations are made by `Files`, which keeps file and buffer of each alive and
    // untouched from before it is pushed until its completion has been reaped, also across the drop
    // of the engine.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// Conditions of `io_uring_enter` that are part of life: a signal, the timeout, completions that
/// must be taken first, a moment without memory. The turn goes on; entries not yet taken stay.
fn tolerate(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN)
            ) =>
        {
            Ok(0)
        }
        other => other,
    }
}

fn build_ring(config: EngineConfig) -> Result<IoUring, IoUringRefusal> {
    let entries = config.ring_entries.max(2).next_power_of_two();
    let completions = config.completion_entries.max(entries).next_power_of_two();
    let mut best = IoUring::builder();
    best.setup_clamp()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_taskrun_flag();
    // Newest first. Linux 6.1: completions are worked out when this thread asks for them, and at no
    // other time. Linux 5.19: they at least do not interrupt it.
    let mut deferred = best.clone();
    deferred.setup_single_issuer().setup_defer_taskrun();
    let mut cooperative = best;
    cooperative.setup_coop_taskrun();
    let result = match deferred.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => cooperative.build(entries),
        other => other,
    };
    let ring = result.map_err(refusal)?;
    let parameters = ring.params();
    let features = [
        (
            parameters.is_feature_nodrop(),
            "completions that are never dropped (Linux 5.5)",
        ),
        (
            parameters.is_feature_ext_arg(),
            "waiting with a timeout (Linux 5.11)",
        ),
        (
            parameters.is_feature_resource_tagging(),
            "multishot poll (Linux 5.13)",
        ),
    ];
    match features.into_iter().find(|(present, _)| !present) {
        Some((_, missing)) => Err(IoUringRefusal::Missing(missing)),
        None => Ok(ring),
    }
}

fn refusal(error: io::Error) -> IoUringRefusal {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => IoUringRefusal::Forbidden,
        Some(libc::ENOSYS) => IoUringRefusal::NotBuilt,
        Some(libc::EINVAL) => IoUringRefusal::Missing("cooperative task running (Linux 5.19)"),
        Some(libc::ENOMEM) => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock);
            IoUringRefusal::Memory {
                memlock_limit_bytes: limit.current,
            }
        }
        _ => IoUringRefusal::Other {
            call: "io_uring_setup",
            source: error,
        },
    }
}

fn check_operations(ring: &IoUring) -> Result<(), IoUringRefusal> {
    let mut probe = Probe::new();
    ring.submitter()
        .register_probe(&mut probe)
        .map_err(|source| IoUringRefusal::Other {
            call: "io_uring_register(IORING_REGISTER_PROBE)",
            source,
        })?;
    let needed = [
        (opcode::Read::CODE, "reads"),
        (opcode::Write::CODE, "writes"),
        (opcode::Fsync::CODE, "fsync"),
        (opcode::Fallocate::CODE, "fallocate"),
        (opcode::PollAdd::CODE, "polls"),
        (opcode::PollRemove::CODE, "removal of polls"),
        (opcode::AsyncCancel::CODE, "cancellation"),
    ];
    match needed
        .into_iter()
        .find(|(code, _)| !probe.is_supported(*code))
    {
        Some((_, missing)) => Err(IoUringRefusal::Missing(missing)),
        None => Ok(()),
    }
}

/// Registered sockets by slot.
#[derive(Debug, Default)]
struct Sockets {
    slots: Vec<SocketSlot>,
    free: Vec<u32>,
    /// For deregistration only.
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

fn index(slot: u32) -> usize {
    usize::try_from(slot).expect("usize has at least 32 bits on Linux")
}
