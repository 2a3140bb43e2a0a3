//! Requests on volumes, many at once, over one reactor engine.
//!
//! A request has a *place*, a small number that its owner chose. However a request ends, at once or after
//! storage has slept, its end is taken out of [`Driver::finished`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::buffer::Buffer;
use longshore_reactor::{Engine, EngineChoice, EngineConfig, EngineError, EngineEvent, Waker};
use longshore_volume::{Ended, Executor, Operation, Reply, Request, Volume, VolumeError};

/// A request that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) place: usize,
    pub(super) result: Result<Reply, VolumeError>,
    /// What the request was given.
    pub(super) buffer: Option<Buffer>,
}

/// See the module documentation.
pub(super) struct Driver {
    engine: Engine,
    events: Vec<EngineEvent>,
    /// The owner of a request is its place.
    executor: Executor<usize>,
    finished: VecDeque<Finished>,
    /// When the last request ended, or the first one began.
    moved: Instant,
}

/// No engine could be made.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The engine says why.
    #[error("cannot start an event loop: {0}")]
    Engine(#[from] EngineError),
    /// The waker says why.
    #[error("cannot start an event loop: eventfd: {0}")]
    Waker(io::Error),
}

impl Driver {
    /// A driver with `places` places.
    pub(super) fn new(choice: EngineChoice, places: usize) -> Result<Self, DriverError> {
        let waker = Waker::new().map_err(DriverError::Waker)?;
        let config = EngineConfig {
            // Reading, writing and looking for holes go on at the same time.
            helper_threads_max: places.clamp(4, 16),
            ..EngineConfig::default()
        };
        Ok(Self {
            engine: Engine::new(choice, config, waker)?,
            events: Vec::new(),
            executor: Executor::default(),
            finished: VecDeque::with_capacity(places),
            moved: Instant::now(),
        })
    }

    /// Starts a request that moves the first `length` bytes of `buffer`, or none.
    pub(super) fn start(
        &mut self,
        place: usize,
        volume: &Arc<dyn Volume>,
        operation: Operation,
        payload: Option<(Buffer, std::ops::Range<usize>)>,
    ) {
        let taken = self.executor.owners().any(|owner| *owner == place);
        assert!(!taken, "a place has one request at a time");
        let mut request = Request::new(operation);
        if let Some((buffer, range)) = payload {
            request.buffer = Some(buffer);
            (request.start, request.end) = (range.start, range.end);
        }
        if self.executor.is_empty() {
            self.moved = Instant::now();
        }
        let started = self
            .executor
            .start(volume, request, place, &mut self.engine);
        if let Some((place, ended)) = started.ended() {
            self.finish(place, ended);
        }
        self.take_ended();
    }

    fn take_ended(&mut self) {
        while let Some((place, ended)) = self.executor.next_ended() {
            self.finish(place, ended);
        }
    }

    fn finish(&mut self, place: usize, ended: Ended) {
        self.moved = Instant::now();
        self.finished.push_back(Finished {
            place,
            result: ended.result,
            buffer: ended.buffer,
        });
    }

    /// The next request that is over.
    pub(super) fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Requests that are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.executor.len()
    }

    /// How long requests have been under way without one of them ending.
    pub(super) fn waiting(&self, now: Instant) -> Duration {
        match self.in_flight() {
            0 => Duration::ZERO,
            _ => now.saturating_duration_since(self.moved),
        }
    }

    /// Goes on with what storage has done; sleeps up to `timeout` unless a request is over already.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.finished.is_empty() {
            timeout
        } else {
            Duration::ZERO
        };
        let mut events = std::mem::take(&mut self.events);
        let waited = self.engine.wait(Some(timeout), &mut events);
        for event in events.drain(..) {
            let EngineEvent::File(completion) = event else {
                continue;
            };
            self.executor.complete(completion, &mut self.engine);
        }
        self.take_ended();
        self.events = events;
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }
}
