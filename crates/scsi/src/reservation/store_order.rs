//! One change of what is stored at a time.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::unit::{LogicalUnit, Shared};

/// Reservations that the driver shall store durably.
///
/// While it lives, no other change of the same unit is stored, even if the command that asked for it
/// is gone: two of them at work at once could leave the older one stored. So the driver keeps it
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
    unit: Arc<LogicalUnit>,
    held: AtomicBool,
}

impl StoreRight {
    /// Takes the right, which nobody may hold. From now on it is open what is stored.
    pub(super) fn take(unit: &Arc<LogicalUnit>, shared: &mut Shared) -> Arc<Self> {
        debug_assert!(!shared.reservations.storing, "somebody else stores");
        shared.reservations.storing = true;
        shared.reservations.store_uncertain = true;
        Arc::new(Self {
            unit: Arc::clone(unit),
            held: AtomicBool::new(true),
        })
    }

    /// Storing is over.
    pub(super) fn end(&self, shared: &mut Shared, stored: bool) {
        self.held.store(false, Ordering::Relaxed);
        shared.reservations.storing = false;
        shared.reservations.store_uncertain = !stored;
    }
}

impl Drop for StoreRight {
    fn drop(&mut self) {
        if *self.held.get_mut() {
            self.unit.lock().reservations.storing = false;
        }
    }
}
