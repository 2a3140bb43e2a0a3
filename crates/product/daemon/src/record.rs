//! The record of changes: the audit log, and events.

use std::io;

use longshore_api::change::{Caller, Revision};
use longshore_api::problem::Problem;
use longshore_api::record::{Intent, Record};
use longshore_control::audit::{self, Audit};
use longshore_control::events::Events;
use serde_json::Value;

/// Writes the audit log and publishes events.
pub struct Recorder {
    audit: Audit,
    events: Events,
}

impl Recorder {
    #[must_use]
    pub const fn new(audit: Audit, events: Events) -> Self {
        Self { audit, events }
    }
}

impl Record for Recorder {
    fn intend(
        &self,
        caller: &Caller,
        before: Revision,
        steps: &[String],
    ) -> io::Result<Box<dyn Intent>> {
        let intent = self.audit.intent(caller, Some(before), steps)?;
        Ok(Box::new(Announced(intent)))
    }

    fn tell(&self, topic: &str, message: &str, data: Value) {
        self.events.publish(topic, message, data);
    }
}

/// A change that stands in the audit log.
struct Announced(audit::Intent);

impl Intent for Announced {
    fn end(self: Box<Self>, outcome: Result<Revision, &Problem>) {
        match outcome {
            Ok(revision) => self.0.outcome(Ok(Some(revision))),
            Err(problem) => self.0.outcome(Err(&problem.to_string())),
        }
    }
}
