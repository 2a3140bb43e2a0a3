//! The place of a buffer in a ring's table of registered buffers.
//!
//! ```text
//!  New ── operation on an O_DIRECT file ──► Used ── another one ──► At a place ──┐ one on another ring:
//!                                                                       ▲        │ a place of that
//!                                                                       └────────┘
//! ```
//!
//! A place belongs to the buffer, not to its address. It returns to its ring when the buffer is freed, on any thread,
//! or gets a place with another ring; the ring gives it to another buffer only after that. So the holder of a place's
//! buffer has the memory that the kernel uses for that place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::thread::{Pid, gettid};

use crate::wake::Waker;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) enum Registration {
    /// No operation that gains by a registration has used the buffer.
    #[default]
    New,
    /// One has. Its memory is worth being registered when the next one comes: it is used again.
    Used,
    /// It is in the table of a ring.
    At(TableEntry),
}

/// The entry of a buffer in the table of a ring.
#[derive(Debug)]
pub(crate) struct TableEntry {
    index: u16,
    returned: Arc<Returned>,
}

impl TableEntry {
    /// `index` is in the table that `returned` belongs to, and no other place has it.
    pub(crate) fn new(index: u16, returned: &Arc<Returned>) -> Self {
        Self {
            index,
            returned: Arc::clone(returned),
        }
    }

    /// Its number, if it is in that table.
    #[inline]
    pub(crate) fn index_in(&self, returned: &Arc<Returned>) -> Option<u16> {
        Arc::ptr_eq(&self.returned, returned).then_some(self.index)
    }
}

impl Drop for TableEntry {
    fn drop(&mut self) {
        self.returned.push(self.index);
    }
}

/// Places of a table whose buffers are gone. The kernel holds the pages of these until the ring lets go of
/// them.
#[derive(Debug)]
pub(crate) struct Returned {
    indices: Mutex<Vec<u16>>,
    /// Whether there is any, so that most turns take no lock.
    any: AtomicBool,
    /// The thread of the ring.
    thread: Pid,
    waker: Waker,
}

impl Returned {
    /// For a table of so many places, of the calling thread's ring.
    pub(crate) fn new(places: u16, waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            indices: Mutex::new(Vec::with_capacity(usize::from(places))),
            any: AtomicBool::new(false),
            thread: gettid(),
            waker,
        })
    }

    fn push(&self, index: u16) {
        self.lock().push(index);
        self.any.store(true, Ordering::Release);
        if gettid() != self.thread {
            // Its ring may sleep for long, and would keep memory that is thought to be free.
            self.waker.wake_for_helper();
        }
    }

    /// Takes what has come back, with the last first.
    #[inline]
    pub(crate) fn take_all(&self, mut each: impl FnMut(u16)) {
        if self.any.load(Ordering::Relaxed) && self.any.swap(false, Ordering::Acquire) {
            let mut indices = self.lock();
            while let Some(index) = indices.pop() {
                each(index);
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<u16>> {
        self.indices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
