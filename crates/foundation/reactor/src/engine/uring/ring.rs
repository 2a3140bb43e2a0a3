//! The ring itself: setting it up, queueing entries without a limit, entering the kernel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::io_uring::IoringRegisterOp;

use crate::buffer::Buffer;
use crate::engine::{EngineConfig, EngineCounters, IoUringRefusal};

/// How to enter the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enter {
    /// Submit, and sleep until a completion is there or the time is over. `idle`: no storage
    /// operation is under way.
    Sleep {
        timeout: Option<Duration>,
        idle: bool,
    },
    /// Submit and run deferred work; stay outside if there is neither.
    Poll,
    /// Submit and run deferred work, also that which the submission causes.
    Flush,
}

pub(super) struct Ring {
    ring: IoUring,
    /// Entries that found no room in the submission queue, oldest first.
    backlog: VecDeque<squeue::Entry>,
    no_iowait: bool,
}

impl Ring {
    pub(super) fn new(config: EngineConfig) -> Result<Self, IoUringRefusal> {
        let ring = build(config)?;
        check_operations(&ring)?;
        restrict(&ring)?;
        let workers = u32::try_from(config.helper_threads_max.max(1)).unwrap_or(u32::MAX);
        // A kernel before 5.15 knows no such limit and has a reasonable one of its own.
        let _ = ring
            .submitter()
            .register_iowq_max_workers(&mut [workers, workers]);
        let no_iowait = ring.params().is_feature_no_iowait();
        Ok(Self {
            ring,
            backlog: VecDeque::new(),
            no_iowait,
        })
    }

    /// Has the kernel poll the network cards of the sockets that are polled, before it sleeps
    /// (IORING_REGISTER_NAPI, Linux 6.9).
    pub(super) fn poll_network(&self, microseconds: u32, prefer: bool) -> io::Result<()> {
        let mut napi = rustix::io_uring::io_uring_napi::default();
        napi.busy_poll_to = microseconds;
        napi.prefer_busy_poll = u8::from(prefer);
        // SAFETY: the descriptor is the ring's, which lives longer than this borrow of it.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        // SAFETY: the kernel reads one `io_uring_napi` at that place, and writes what it replaces there, before the
        // call returns.
        unsafe {
            let place = std::ptr::from_mut(&mut napi).cast();
            rustix::io_uring::io_uring_register(ring, IoringRegisterOp::RegisterNapi, place, 1)?;
        }
        Ok(())
    }

    /// Makes an empty table for so many registered buffers.
    pub(super) fn register_buffers_sparse(&self, places: u16) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_buffers_sparse(u32::from(places))
    }

    /// Registers all memory of a buffer at that place of the table, instead of what was there. Operations that
    /// name the place mean these pages from now on, whatever becomes of the buffer.
    pub(super) fn register_buffer(&self, place: u32, buffer: &mut Buffer) -> io::Result<()> {
        let memory = buffer.memory();
        self.update_buffer(
            place,
            libc::iovec {
                iov_base: memory.as_mut_ptr().cast(),
                iov_len: memory.len(),
            },
        )
    }

    /// Empties a place of the table. Operations that have been passed on and name it are not affected.
    pub(super) fn unregister_buffer(&self, place: u32) -> io::Result<()> {
        let nothing = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        self.update_buffer(place, nothing)
    }

    fn update_buffer(&self, place: u32, memory: libc::iovec) -> io::Result<()> {
        let submitter = self.ring.submitter();
        // SAFETY: the kernel reads the vector before the call returns, and takes references of its own to the pages of
        // the memory, whose contents it touches only for operations that name the place. Those vouch for
        // themselves, in `push`: each owns a buffer that is at the place. Its memory is private and anonymous, and nothing maps
        // other pages there while it lives: the kernel moves and swaps no pinned pages, and copies them for a
        // child of a fork, not for us. After the buffer has been freed the references keep pages from the system, but
        // nobody names them, until the place gets other ones.
        unsafe { submitter.register_buffers_update(place, &[memory], None) }
    }

    /// Queues an entry for the next enter.
    ///
    /// # Safety
    /// What the entry points to stays alive and untouched until its completion has come out of
    /// [`Ring::completions`], or [`Ring::take_back`] has returned it, or for ever.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: passed on to the caller, word by word.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Entries that are waiting for room in the submission queue. The kernel has not seen them, and
    /// now it never will.
    pub(super) fn take_back(&mut self) -> impl Iterator<Item = squeue::Entry> + use<> {
        std::mem::take(&mut self.backlog).into_iter()
    }

    /// Entries that are waiting for room in the submission queue.
    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.len()
    }

    /// Moves completions out of the ring.
    pub(super) fn completions(&mut self, into: &mut Vec<cqueue::Entry>) {
        into.extend(self.ring.completion());
    }

    /// Enters the kernel as `how` says. With more entries than the queue holds, it takes several
    /// system calls, and this does not sleep.
    pub(super) fn enter(&mut self, how: Enter, counters: &mut EngineCounters) -> io::Result<()> {
        self.fill_submission_queue();
        while !self.backlog.is_empty() {
            let submitted = self.call(Enter::Poll, counters)?;
            self.fill_submission_queue();
            if submitted == 0 {
                // The kernel is short of memory, or wants completions to be taken first. The caller
                // takes them and comes back.
                return Ok(());
            }
        }
        let queue = self.ring.submission();
        let overflow = queue.cq_overflow();
        let nothing_to_do = queue.is_empty() && !queue.taskrun() && !overflow;
        drop(queue);
        counters.completion_overflows += u64::from(overflow);
        if how != Enter::Poll || !nothing_to_do {
            self.call(how, counters)?;
        }
        Ok(())
    }

    fn fill_submission_queue(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the promise made to `push` holds for as long as the entry is in the backlog.
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// One `io_uring_enter`. Returns how many entries the kernel has taken.
    fn call(&mut self, how: Enter, counters: &mut EngineCounters) -> io::Result<usize> {
        counters.system_calls += 1;
        let queued = self.ring.submission().len();
        let to_submit = u32::try_from(queued).expect("a queue has a 32-bit length");
        // Without GETEVENTS the kernel does not run deferred work.
        let mut flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        let timespec = match how {
            Enter::Sleep { timeout, .. } => timeout.map(types::Timespec::from),
            Enter::Poll | Enter::Flush => None,
        };
        let mut arguments = types::SubmitArgs::new();
        if let Some(timespec) = &timespec {
            arguments = arguments.timespec(timespec);
        }
        let wanted = match how {
            Enter::Sleep { idle, .. } => {
                // The kernel takes polls for I/O, and an idle server would show as one core that
                // waits for storage all the time.
                flags.set(EnterFlags::NO_IOWAIT, idle && self.no_iowait);
                1
            }
            Enter::Poll | Enter::Flush => 0,
        };
        // SAFETY: `to_submit` entries are in the queue, for which `push` vouches; with EXT_ARG the
        // argument is a `SubmitArgs` of the size passed by `enter`, which lives, like the timespec
        // it points to, until the call returns.
        let result = unsafe {
            self.ring
                .submitter()
                .enter(to_submit, wanted, flags.bits(), Some(&arguments))
        };
        match result {
            // Part of life: a signal, the timeout, completions that must be taken first, a moment
            // without memory. Entries not taken stay in the queue for the next turn.
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
}

/// What this engine submits.
const OPERATIONS: [u8; 8] = [
    opcode::Read::CODE,
    opcode::ReadFixed::CODE,
    opcode::Write::CODE,
    opcode::WriteFixed::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
];

/// What this engine registers, by the numbers of `linux/io_uring.h`.
const REGISTRATIONS: [u8; 8] = [
    0,  // IORING_REGISTER_BUFFERS
    1,  // IORING_UNREGISTER_BUFFERS
    12, // IORING_REGISTER_ENABLE_RINGS
    15, // IORING_REGISTER_BUFFERS2
    16, // IORING_REGISTER_BUFFERS_UPDATE
    19, // IORING_REGISTER_IOWQ_MAX_WORKERS
    27, // IORING_REGISTER_NAPI
    28, // IORING_UNREGISTER_NAPI
];

fn build(config: EngineConfig) -> Result<IoUring, IoUringRefusal> {
    let entries = config.ring_entries.max(2).next_power_of_two();
    let completions = config.completion_entries.max(entries).next_power_of_two();
    let mut common = IoUring::builder();
    common
        .setup_clamp()
        .setup_cqsize(completions)
        .setup_submit_all()
        .setup_r_disabled()
        .setup_taskrun_flag();
    // Linux 6.1: completions are worked out when this thread asks for them, and at no other time.
    let mut deferred = common.clone();
    deferred.setup_single_issuer().setup_defer_taskrun();
    // Linux 5.19: they at least do not interrupt it.
    let mut cooperative = common;
    cooperative.setup_coop_taskrun();
    let ring = match deferred.build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => cooperative.build(entries),
        other => other,
    }
    .map_err(refusal)?;
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

/// Leaves the ring the operations of this engine, and enables it. Operations of a ring pass no filter of system calls, so
/// that a ring could open files and sockets for code that got into the process.
fn restrict(ring: &IoUring) -> Result<(), IoUringRefusal> {
    let operations = OPERATIONS.into_iter().map(Restriction::sqe_op);
    let calls = REGISTRATIONS.into_iter().map(Restriction::register_op);
    let mut restrictions: Vec<Restriction> = operations.chain(calls).collect();
    restrictions.push(Restriction::sqe_flags_allowed(u8::MAX));
    let submitter = ring.submitter();
    let refused = |call| move |source| IoUringRefusal::Other { call, source };
    submitter
        .register_restrictions(&mut restrictions)
        .map_err(refused("io_uring_register(IORING_REGISTER_RESTRICTIONS)"))?;
    submitter
        .register_enable_rings()
        .map_err(refused("io_uring_register(IORING_REGISTER_ENABLE_RINGS)"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_opens_no_socket() {
        let mut ring = Ring::new(EngineConfig::default()).unwrap().ring;
        let entries = [
            opcode::Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0).build(),
            opcode::Nop::new().build(),
        ];
        for entry in entries {
            // SAFETY: neither operation has memory that it could use.
            unsafe { ring.submission().push(&entry) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            let completion = ring.completion().next().unwrap();
            assert_eq!(completion.result(), -libc::EACCES);
        }
    }

    #[test]
    fn each_errno_of_setup_has_its_reason() {
        let reason = |errno| refusal(io::Error::from_raw_os_error(errno));
        assert!(matches!(reason(libc::EPERM), IoUringRefusal::Forbidden));
        assert!(matches!(reason(libc::ENOSYS), IoUringRefusal::NotBuilt));
        assert!(matches!(
            reason(libc::ENOMEM),
            IoUringRefusal::Memory { .. }
        ));
        assert!(matches!(reason(libc::EINVAL), IoUringRefusal::Missing(_)));
        assert!(matches!(reason(libc::EMFILE), IoUringRefusal::Other { .. }));
    }
}
