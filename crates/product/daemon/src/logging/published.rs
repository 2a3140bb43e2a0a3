//! Lines as events of the API: what is `info` or more important, whatever the filter of the log says.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use longshore_control::events::Events;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::limiter::Limiter;
use super::record::Record;

/// Where events of the API go.
static EVENTS: OnceLock<Events> = OnceLock::new();

/// Begins to publish. A second call does nothing.
pub(super) fn set(events: &Events) {
    let _ = EVENTS.set(events.clone());
}

/// See the module documentation. It counts what comes again and again apart from the log, which may hide such lines.
#[derive(Debug, Default)]
pub(super) struct Published {
    limiter: Mutex<Limiter>,
}

impl Published {
    /// What is to be published of a line: those that were held back until now, and itself.
    fn admit(&self, event: &Event<'_>, now: Instant) -> Vec<Record> {
        let record = Record::of(event);
        let place = event.metadata().callsite();
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = limiter.expire(now);
        if limiter.admit(place, &record, now) {
            records.push(record);
        }
        records
    }
}

impl<S: Subscriber> Layer<S> for Published {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let Some(events) = EVENTS.get() else {
            return;
        };
        for record in self.admit(event, Instant::now()) {
            events.publish(record.topic(), &*record.message, record.data());
        }
    }
}
