//! Flags that end the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Raises the flag when dropped, so that a panic of one thread ends the others. A scope joins its threads before it
/// passes the panic on: a thread that goes on until it is told to stop would hang the test in place of failing it.
#[derive(Debug)]
pub struct StopsAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
