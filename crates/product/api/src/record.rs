//! Who keeps a record of changes: the audit log, and the events that others follow.

use std::io;

use serde_json::Value;

use crate::change::{Caller, Revision};
use crate::problem::Problem;

/// Hears of every change, whoever asks for it.
pub trait Record: Send + Sync {
    /// A change is about to be committed. It is on the medium when this returns. `before` is the revision now, and `steps`
    /// one line for each step.
    ///
    /// # Errors
    /// It cannot be written. Then nothing is changed.
    fn intend(
        &self,
        caller: &Caller,
        before: Revision,
        steps: &[String],
    ) -> io::Result<Box<dyn Intent>>;

    /// Something happened that others may want to know. The topics and the data are those of
    /// [`Event`](crate::state::Event).
    fn tell(&self, topic: &str, message: &str, data: Value);
}

/// A change that was announced.
pub trait Intent {
    /// What became of it.
    fn end(self: Box<Self>, outcome: Result<Revision, &Problem>);
}

/// Keeps no record, for tests and servers without a state directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecord;

impl Record for NoRecord {
    fn intend(&self, _: &Caller, _: Revision, _: &[String]) -> io::Result<Box<dyn Intent>> {
        Ok(Box::new(NoIntent))
    }

    fn tell(&self, _: &str, _: &str, _: Value) {}
}

struct NoIntent;

impl Intent for NoIntent {
    fn end(self: Box<Self>, _: Result<Revision, &Problem>) {}
}
