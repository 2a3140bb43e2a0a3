//! Threads that wait for something.

/// Stack of the threads that only wait.
pub(crate) const THREAD_STACK_BYTES: usize = 64 * 1024;

/// Stack of a thread that plans and carries out changes, as the threads of the control API do. A build without
/// optimisation needs more than 64 KiB for it.
pub(crate) const CHANGE_STACK_BYTES: usize = 512 * 1024;
