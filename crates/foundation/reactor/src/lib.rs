//! One event loop per core: sockets, files, timers, buffers and mail between cores.
//!
//! Two engines stand behind one interface, [`Engine`]: `io_uring`, and `epoll` with a pool of
//! helper threads for hosts that forbid io_uring. Sockets are driven by readiness and read and
//! written without blocking; files are driven by completion through [`storage::Storage`].
//! This is the only crate of the workspace that may contain `unsafe`.
//!
//! # A turn, and its system calls
//!
//! A reactor thread owns one [`Engine`], one [`BufferPool`], one [`TimerQueue`] and one
//! [`Mailbox`]. Its loop is: [`Engine::wait`] until the next deadline; take in everything that has
//! arrived; run it, which queues storage operations; send what there is to send; repeat.
//!
//! | what | io_uring | epoll |
//! |---|---|---|
//! | a turn | 1 `io_uring_enter` that submits and waits; none when polling and nothing happened | 1 `epoll_wait`; a `ppoll` before it when it sleeps for a fraction of milliseconds |
//! | bytes in | 1 `recvmsg` per ready socket and buffer list; a short count ends it | the same |
//! | bytes out | 1 `sendmsg` per socket and turn | the same |
//! | n storage operations | none of their own: they ride on the turn's `io_uring_enter`; 1 `io_uring_register` for each buffer that O_DIRECT files use again, once. Seeking holes and ioctls as with epoll | 1 per operation on a helper thread, and at most one `futex` each way; small cached writes of a turn to one file are one thread's |
//! | n operations handed over to other cores | 1 per operation there, and at most one `futex` and one `write` to hand it over and back | the same |
//! | n delegated operations | none of their own: others carry them out, may do so together at the end of the turn, and at most one `write` wakes the engine | the same |
//! | re-arming a socket | none: multishot poll | none: edge triggered |
//! | a new connection | 1 `epoll_wait`, 1 `accept4`, the poll rides on the next turn | 1 `accept4`, 1 `epoll_ctl` |
//! | a connection's end | 1 `io_uring_enter`, 1 `close` | 1 `epoll_ctl`, 1 `close` |
//! | a message to another core | 1 `write` if that core sleeps, else none | the same |
//! | idle | none | none |
//!
//! A queue of sends on the ring was tried: with 32 connections of one
//! request each it halves the system calls, from 2.1 to 1.1 per request, and saves no processor time
//! that can be told from noise, because the work of a send is in the send. So sends are calls, whose
//! result is known at once, and both engines treat sockets alike.
//!
//! Nothing on these paths allocates once it has been used as much before (`tests/allocation.rs`).

pub mod affinity;
pub mod allocator;
pub mod block_device;
pub mod blocking;
pub mod buffer;
pub mod engine;
pub mod mail;
pub mod memory;
pub mod page_pipe;
pub mod resident;
pub mod seccomp;
pub mod socket;
pub mod storage;
pub mod thread_time;
pub mod timer;
pub mod wake;
pub mod zero_copy;

mod file_call;
mod helper;
mod mapping;

pub use blocking::BlockingPool;
pub use buffer::{Buffer, BufferPool, MemoryBudget, Reservation};
pub use engine::{
    Engine, EngineChoice, EngineConfig, EngineCounters, EngineError, EngineEvent, EngineKind,
    IoUringRefusal, Readiness, SocketToken, lockable_bytes,
};
pub use file_call::carry_out;
pub use mail::{Mailbox, SendError, Sender, mailbox};
pub use memory::SharedRegion;
pub use page_pipe::{PagePipe, PagePipes};
pub use timer::{TimerId, TimerQueue};
pub use wake::Waker;
