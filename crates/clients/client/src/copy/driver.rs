//! Requests on volumes, many at once, over one reactor engine.
//!
//! A request has a *place*, a small number that its owner chose; its storage operations carry the
//! place as their tag. However a request ends, at once or after storage has slept, its end is taken
//! out of [`Driver::finished`].

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::StorageTag;
use longshore_reactor::{Engine, EngineChoice, EngineConfig, EngineError, Event, Waker};
use longshore_volume::{
    Operation, Outcome, Progress, Request, RequestProgress, Volume, VolumeError,
};

/// A request that is over.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) place: usize,
    pub(super) result: Result<Outcome, VolumeError>,
    /// What the request was given.
    pub(super) buffer: Option<Buffer>,
}

/// See the module documentation.
pub(super) struct Driver {
    engine: Engine,
    events: Vec<Event>,
    places: Vec<Place>,
    finished: VecDeque<Finished>,
    in_flight: usize,
    /// When the last request ended, or the first one began.
    moved: Instant,
}

struct Place {
    /// There while the request is under way.
    volume: Option<Arc<dyn Volume>>,
    request: Request,
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
        let place = |number| Place {
            volume: None,
            request: Request {
                operation: Operation::Flush,
                buffer: None,
                start: 0,
                end: 0,
                tag: StorageTag(number),
                progress: RequestProgress::default(),
            },
        };
        Ok(Self {
            engine: Engine::new(choice, config, waker)?,
            events: Vec::new(),
            places: (0..).take(places).map(place).collect(),
            finished: VecDeque::with_capacity(places),
            in_flight: 0,
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
        let entry = &mut self.places[place];
        assert!(entry.volume.is_none(), "a place has one request at a time");
        let (buffer, range) = match payload {
            Some((buffer, range)) => (Some(buffer), range),
            None => (None, 0..0),
        };
        let request = &mut entry.request;
        request.operation = operation;
        request.buffer = buffer;
        (request.start, request.end) = (range.start, range.end);
        request.progress = RequestProgress::default();
        let progress = volume.start(request, &mut self.engine);
        entry.volume = Some(volume.clone());
        if self.in_flight == 0 {
            self.moved = Instant::now();
        }
        self.in_flight += 1;
        self.take_up(place, progress);
    }

    fn take_up(&mut self, place: usize, progress: Progress) {
        if let Progress::Done(result) = progress {
            let entry = &mut self.places[place];
            entry.volume = None;
            self.in_flight -= 1;
            self.moved = Instant::now();
            self.finished.push_back(Finished {
                place,
                result,
                buffer: entry.request.buffer.take(),
            });
        }
    }

    /// The next request that is over.
    pub(super) fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Requests that are not over.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How long requests have been under way without one of them ending.
    pub(super) fn waiting(&self, now: Instant) -> Duration {
        match self.in_flight {
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
            let Event::File(completion) = event else {
                continue;
            };
            let place = usize::try_from(completion.tag.0).expect("a place was the tag");
            let entry = &mut self.places[place];
            let volume = entry.volume.clone().expect("its request is under way");
            let progress = volume.resume(&mut entry.request, completion, &mut self.engine);
            self.take_up(place, progress);
        }
        self.events = events;
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }
}
