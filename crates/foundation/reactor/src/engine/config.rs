//! Sizes and counters of an engine, and its refusals.

use std::io;
use std::time::Duration;

/// How long dropping an engine waits for storage that does not answer.
pub(super) const DROP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sizes of an engine. The default suits a reactor with some thousand connections.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Submission queue entries of the ring; a power of two. More operations than this may be
    /// queued, they then need several system calls.
    pub ring_entries: u32,
    /// Completion queue entries of the ring; a power of two, at least `ring_entries`.
    pub completion_entries: u32,
    /// Most helper threads of this engine. They start when there is work for them and end after a
    /// while without.
    pub helper_threads_max: usize,
    /// Most bytes of buffers that are registered with a ring for operations on O_DIRECT files, so that the kernel
    /// does not pin their pages for each; 0: none are.
    pub registered_bytes_max: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            ring_entries: 256,
            completion_entries: 1024,
            helper_threads_max: 8,
            registered_bytes_max: 0,
        }
    }
}

/// What an engine has done since it was made. For statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Calls of [`Engine::wait`](super::Engine::wait), those without an event included.
    pub turns: u64,
    /// System calls of the engine itself: enter, epoll_wait, registrations. Sends and receives are
    /// the caller's, operations on helper threads are in `helper_operations`.
    pub system_calls: u64,
    /// Turns that could sleep.
    pub sleeps: u64,
    /// Reported events of kind [`EngineEvent::Woken`](super::EngineEvent::Woken).
    pub woken: u64,
    /// Reported events of kind [`EngineEvent::Socket`](super::EngineEvent::Socket).
    pub socket_events: u64,
    /// File operations taken in, and operations delegated.
    pub file_submitted: u64,
    /// Reported events of kind [`EngineEvent::File`](super::EngineEvent::File).
    pub file_completed: u64,
    /// File operations run by helper threads rather than by the ring.
    pub helper_operations: u64,
    /// Those of them that were handed over to threads on other cores ([`Engine::hand_over`](super::Engine::hand_over)).
    pub handed_over: u64,
    /// Those of these that came back, because they had to wait for the medium.
    pub handed_back: u64,
    /// Times the completion queue overflowed. Nothing is lost then; it costs time.
    pub completion_overflows: u64,
    /// Reads and writes of O_DIRECT files that went to a ring.
    pub direct_operations: u64,
    /// Those of them whose buffer was registered with it.
    pub registered_operations: u64,
    /// Bytes of buffers that are registered with it at this moment.
    pub registered_bytes: usize,
    /// Most there can be: [`EngineConfig::registered_bytes_max`], or less once the kernel has refused more.
    pub registered_bytes_max: usize,
}

/// Why io_uring cannot be used here. [`EngineChoice::Auto`](super::EngineChoice::Auto) then takes epoll and keeps the reason for
/// [`Engine::refusal`](super::Engine::refusal).
#[derive(Debug, thiserror::Error)]
pub enum IoUringRefusal {
    /// EPERM or EACCES: `kernel.io_uring_disabled`, seccomp or a security module says no.
    #[error("the kernel forbids it to this process (sysctl kernel.io_uring_disabled, seccomp)")]
    Forbidden,
    /// ENOSYS: the kernel was built without it.
    #[error("the kernel does not have it")]
    NotBuilt,
    /// ENOMEM: the locked-memory limit of the user is used up, or memory is.
    #[error(
        "not enough lockable memory for a ring (RLIMIT_MEMLOCK is {}, shared by all processes of \
         the user)",
        memlock_text(.memlock_limit_bytes)
    )]
    Memory {
        /// Soft limit of this process; `None` is unlimited.
        memlock_limit_bytes: Option<u64>,
    },
    /// The kernel is too old for something that is needed.
    #[error("the kernel lacks {0}")]
    Missing(&'static str),
    /// Another error of the set-up, such as ENOMEM for locked memory.
    #[error("{call}: {source}")]
    Other {
        /// Name of the failed system call.
        call: &'static str,
        source: io::Error,
    },
}

fn memlock_text(limit: &Option<u64>) -> String {
    limit.map_or_else(
        || "unlimited".to_owned(),
        |bytes| format!("{} KiB", bytes / 1024),
    )
}

/// Why no engine could be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// io_uring was asked for by name and is not to be had.
    #[error("io_uring cannot be used: {0}")]
    IoUring(#[from] IoUringRefusal),
    /// A system call failed that every engine needs.
    #[error("{call}: {source}")]
    SystemCall {
        /// Name of the failed system call.
        call: &'static str,
        source: io::Error,
    },
}
