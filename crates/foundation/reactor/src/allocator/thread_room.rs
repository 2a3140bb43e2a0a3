//! Room for a thread to start.
//!
//! A thread takes address space twice: its starter maps the stack, which may fail, and the thread itself maps a small one for
//! signals. Where the standard library finds no room for that, the process ends. So a thread starts only where there is room for
//! both, and payload gets none of it meanwhile.

use std::io;
use std::thread::{Builder, JoinHandle};

use super::reserve::Hold;
use crate::mapping::Mapping;

/// Nobody takes so much while a thread starts.
const PLENTY_BYTES: usize = 64 << 20;

/// What a thread has to find: a stack (2 MiB unless it is told otherwise), the one for signals, and what small allocations
/// take meanwhile.
const NEEDED_BYTES: usize = 4 << 20;

/// Room for a thread that is about to start. To be dropped by that thread.
#[derive(Debug)]
pub struct ThreadRoom {
    _hold: Option<Hold>,
}

impl ThreadRoom {
    /// Looks for room, and keeps it from payload where it is scarce.
    ///
    /// # Errors
    /// There is too little.
    pub fn find() -> io::Result<Self> {
        if Mapping::new(PLENTY_BYTES).is_ok() {
            return Ok(Self { _hold: None });
        }
        let Some(hold) = Hold::begin() else {
            return Ok(Self { _hold: None });
        };
        Mapping::new(NEEDED_BYTES)?;
        Ok(Self { _hold: Some(hold) })
    }
}

/// Starts a thread in a process that goes on if there is no room for one.
///
/// # Errors
/// There is no room, or the limit of threads has been reached.
pub fn spawn<T: Send + 'static>(
    thread: Builder,
    act: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let room = ThreadRoom::find()?;
    thread.spawn(move || {
        drop(room);
        act()
    })
}
