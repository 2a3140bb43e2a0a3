//! Threads that wait for something.

/// Stack of the threads that only wait.
pub(crate) const THREAD_STACK_BYTES: usize = 64 * 1024;
