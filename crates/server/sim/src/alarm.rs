//! When a client wants to be looked at again.

use crate::environment::{Shared, SimulatedEvent};

/// The earliest time that a client has asked for.
#[derive(Debug)]
pub(crate) struct Alarm {
    client: usize,
    at: Option<u64>,
}

impl Alarm {
    pub(crate) const fn new(client: usize) -> Self {
        Self { client, at: None }
    }

    /// The client is looked at now.
    pub(crate) fn answered(&mut self, now: u64) {
        if self.at.is_some_and(|at| at <= now) {
            self.at = None;
        }
    }

    /// Goes off at that time, unless it does so earlier.
    pub(crate) fn set(&mut self, at: u64, environment: &Shared) {
        if self.at.is_none_or(|planned| at < planned) {
            self.at = Some(at);
            let index = self.client;
            environment
                .lock()
                .plan(at, SimulatedEvent::Initiator { index });
        }
    }
}
