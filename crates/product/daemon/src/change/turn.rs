//! One change at a time.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one in at a time.
#[derive(Debug, Default)]
pub(super) struct Turn {
    taken: Mutex<bool>,
    freed: Condvar,
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a Turn);

impl Turn {
    /// Waits so long at most for those before.
    pub(super) fn take(&self, patience: Duration) -> Option<Held<'_>> {
        let give_up = Instant::now() + patience;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *taken {
            let left = give_up.checked_duration_since(Instant::now())?;
            let (guard, _) = self
                .freed
                .wait_timeout(taken, left)
                .unwrap_or_else(PoisonError::into_inner);
            taken = guard;
        }
        *taken = true;
        Some(Held(self))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.freed.notify_one();
    }
}
