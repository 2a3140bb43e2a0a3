//! One event loop per core: sockets, files, timers, buffers and mail between cores.
//!
//! Two engines stand behind one interface, [`Engine`]: `io_uring`, and `epoll` with a pool of
//! helper threads for hosts that forbid io_uring. Sockets are driven by readiness and read and
//! written without blocking; files are driven by completion through [`storage::Storage`].
//! This is the only crate of the workspace that may contain `unsafe`.

pub mod buffer;
pub mod storage;
