//! Tasks that wait for a sanitize operation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::message::{Message, Note, Post};
use crate::address::TaskAddress;

/// Tasks that wait for the end of an operation.
#[derive(Debug, Default)]
pub(crate) struct SanitizeWaiters(Mutex<Vec<SanitizeWaiter>>);

/// A task that waits until an operation has begun, or is over.
#[derive(Clone, Debug)]
pub(crate) struct SanitizeWaiter {
    task: TaskAddress,
    post: Post,
}

impl SanitizeWaiter {
    pub(crate) fn new(task: TaskAddress, post: &Post) -> Self {
        Self {
            task,
            post: post.clone(),
        }
    }

    /// It has begun, or is over; or it has failed.
    pub(crate) fn tell(&self, succeeded: bool) {
        let note = Note::Persisted {
            task: self.task,
            stored: succeeded,
        };
        self.post.send(Message::Note(self.task.connection, note));
    }
}

impl SanitizeWaiters {
    pub(crate) fn add(&self, waiter: SanitizeWaiter) {
        self.lock().push(waiter);
    }

    /// Those that wait now, without those to come.
    pub(crate) fn take(&self) -> Self {
        Self(Mutex::new(std::mem::take(&mut *self.lock())))
    }

    pub(crate) fn tell_all(self, succeeded: bool) {
        let waiters = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        for waiter in waiters {
            waiter.tell(succeeded);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SanitizeWaiter>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
