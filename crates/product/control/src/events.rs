//! What happened, for those who follow it: a ring of the last events.
//!
//! Publishing never waits: readers come to the ring with the number of the last event that they have seen, and one that
//! is too slow finds a gap.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_api::state::Event;
use serde_json::Value;
use tokio::sync::watch;

use crate::clock;

/// Events that are kept.
pub const RING_EVENTS: usize = 4096;

/// See the module documentation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(Arc<Hub>);

#[derive(Debug)]
struct Hub {
    /// Tells the events of this process from those of one before it.
    epoch: u64,
    ring: Mutex<VecDeque<Event>>,
    /// Events that streams came too late for.
    missed: AtomicU64,
    /// The number of the newest event.
    newest: watch::Sender<u64>,
}

/// What a reader finds that has seen events up to some number.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    Event(Box<Event>),
    /// Events are missing before this one.
    Gap {
        missing: u64,
        event: Box<Event>,
    },
    /// There is none yet.
    None,
}

impl Default for Events {
    fn default() -> Self {
        Self::new(clock::now_ms())
    }
}

impl Events {
    /// `epoch` tells the events of this process from those of one before it.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self(Arc::new(Hub {
            epoch,
            ring: Mutex::new(VecDeque::new()),
            missed: AtomicU64::new(0),
            newest: watch::Sender::new(0),
        }))
    }

    /// Something happened. `data` holds no secrets.
    pub fn publish(&self, topic: &str, message: impl Into<String>, data: Value) {
        let mut ring = self.ring();
        let sequence = ring.back().map_or(1, |last| last.sequence + 1);
        if ring.len() == RING_EVENTS {
            ring.pop_front();
        }
        ring.push_back(Event {
            sequence,
            time_ms: clock::now_ms(),
            monotonic_ns: clock::monotonic_ns(),
            topic: topic.to_owned(),
            message: message.into(),
            data,
        });
        self.0.newest.send_replace(sequence);
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.0.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.epoch
    }

    /// The number of the newest event; 0: there is none.
    #[must_use]
    pub fn newest(&self) -> u64 {
        *self.0.newest.borrow()
    }

    /// A stream has come too late for so many.
    pub(crate) fn missed(&self, number: u64) {
        self.0.missed.fetch_add(number, Ordering::Relaxed);
    }

    /// Events that streams came too late for.
    pub(crate) fn all_missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    /// Hears of new events.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// So many of the newest events, the newest first.
    #[must_use]
    pub fn last(&self, number: usize) -> Vec<Event> {
        self.ring().iter().rev().take(number).cloned().collect()
    }

    /// The event after number `seen`.
    #[must_use]
    pub fn after(&self, seen: u64) -> Next {
        let ring = self.ring();
        let Some(oldest) = ring.front().map(|event| event.sequence) else {
            return Next::None;
        };
        let wanted = seen.saturating_add(1);
        if wanted < oldest {
            let event = Box::new(ring[0].clone());
            return Next::Gap {
                missing: oldest - wanted,
                event,
            };
        }
        let place = usize::try_from(wanted - oldest).unwrap_or(usize::MAX);
        ring.get(place)
            .map_or(Next::None, |event| Next::Event(Box::new(event.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(events: &Events, number: usize) {
        for _ in 0..number {
            events.publish("change", "it changed", Value::Null);
        }
    }

    fn number(next: Next) -> Option<u64> {
        match next {
            Next::Event(event) => Some(event.sequence),
            Next::Gap { .. } | Next::None => None,
        }
    }

    #[test]
    fn a_reader_gets_every_event_once() {
        let events = Events::default();
        assert_eq!(events.after(0), Next::None);
        publish(&events, 3);
        let mut seen = 0;
        while let Some(sequence) = number(events.after(seen)) {
            assert_eq!(sequence, seen + 1);
            seen = sequence;
        }
        assert_eq!((seen, events.newest()), (3, 3));
    }

    #[test]
    fn a_reader_that_is_too_slow_learns_how_many_it_has_missed() {
        let events = Events::default();
        publish(&events, RING_EVENTS + 10);
        let Next::Gap { missing, event } = events.after(2) else {
            panic!("no gap");
        };
        assert_eq!((missing, event.sequence), (8, 11));
        assert_eq!(number(events.after(10)), Some(11));
    }
}
