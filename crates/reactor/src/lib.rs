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
//! | a turn | 1 `io_uring_enter` that submits and waits; none when polling and nothing happened | 1 `epoll_wait` |
//! | bytes in | 1 `recvmsg` per ready socket and buffer list; a short count ends it | the same |
//! | bytes out | 1 `sendmsg` per socket and turn | the same |
//! | n storage operations | none of their own: they ride on the turn's `io_uring_enter` | 1 or 2 per operation on a helper thread, and at most one `futex` wake per helper |
//! | re-arming a socket | none: multishot poll | none: edge triggered |
//! | a message to another core | 1 `write` if that core sleeps, else none | the same |
//! | idle | none | none |

pub mod affinity;
pub mod blocking;
pub mod buffer;
pub mod engine;
pub mod mail;
pub mod memory;
pub mod socket;
pub mod storage;
pub mod timer;
pub mod wake;

mod file_call;
mod helper;
mod mapping;

pub use blocking::BlockingPool;
pub use buffer::{Buffer, BufferPool, MemoryBudget};
pub use engine::{
    Engine, EngineChoice, EngineConfig, EngineCounters, EngineError, EngineKind, Event,
    IoUringRefusal, Readiness, SocketToken,
};
pub use mail::{Mailbox, SendError, Sender, mailbox};
pub use memory::SharedRegion;
pub use timer::{TimerId, TimerQueue};
pub use wake::Waker;
