//! One change of what is stored at a time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::state::{Reservations, State};

/// Reservations that the driver shall store durably.
///
/// While it lives, no other change of the same volume is stored, even if the command that asked for
/// it is gone: two of them at work at once could leave the older one stored. So the driver keeps it
/// until its bytes are stored, or until it has given up.
#[derive(Debug)]
pub struct StoreOrder {
    bytes: Vec<u8>,
    _right: Arc<StoreRight>,
}

impl StoreOrder {
    pub(super) fn new(bytes: Vec<u8>, right: &Arc<StoreRight>) -> Self {
        Self {
            bytes,
            _right: Arc::clone(right),
        }
    }
}

impl Deref for StoreOrder {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The right to store, which the command and its [`StoreOrder`] share. It ends when the command
/// hears how storing went, or when neither is left.
#[derive(Debug)]
pub(super) struct StoreRight {
    reservations: Arc<Reservations>,
    held: AtomicBool,
}

impl StoreRight {
    /// Takes the right, which nobody may hold. From now on it is open what is stored.
    pub(super) fn take(reservations: &Arc<Reservations>, state: &mut State) -> Arc<Self> {
        assert!(!state.storing, "one change is stored at a time");
        state.storing = true;
        state.store_uncertain = true;
        Arc::new(Self {
            reservations: Arc::clone(reservations),
            held: AtomicBool::new(true),
        })
    }

    /// Whose reservations it is about.
    pub(super) fn reservations(&self) -> &Arc<Reservations> {
        &self.reservations
    }

    pub(super) fn end(&self, state: &mut State, stored: bool) {
        self.held.store(false, Ordering::Relaxed);
        state.store_uncertain = !stored;
        state.end_storing();
    }
}

impl Drop for StoreRight {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            self.reservations.state().end_storing();
        }
    }
}

/// The wait for the end of storing: what somebody gets who may not change anything meanwhile.
#[derive(Debug)]
pub struct StoreWait {
    pub(super) reservations: Arc<Reservations>,
}

impl Reservations {
    /// A way to wait, for whom [`Unchangeable::Storing`](super::Unchangeable::Storing) is no answer.
    #[must_use]
    pub fn wait_for_store(self: &Arc<Self>) -> StoreWait {
        StoreWait {
            reservations: Arc::clone(self),
        }
    }
}

impl StoreWait {
    /// Calls `waker` when nothing is being stored any more, which may be at once. Whoever comes first
    /// changes something next, so it may have to wait again.
    ///
    /// It is called under the lock of the reservations, on any thread: it must do no more than leave
    /// word.
    pub fn then(self, waker: impl FnOnce() + Send + 'static) {
        let mut state = self.reservations.state();
        if state.storing {
            state.waiters.0.push(Box::new(waker));
        } else {
            waker();
        }
    }
}
