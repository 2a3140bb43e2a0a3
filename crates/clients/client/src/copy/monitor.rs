//! What a copy tells while it runs, and what it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// How often an observer is told.
const TICK: Duration = Duration::from_millis(100);

/// Asks a copy to stop at the next good moment. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    signal: Arc<AtomicI32>,
    /// Tests: looks until SIGINT seems to come, counted from 1.
    #[cfg(test)]
    countdown: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl Interrupt {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Is raised when it is looked at for this time.
    #[cfg(test)]
    pub(super) fn after(looks: u64) -> Self {
        Self {
            countdown: Some(Arc::new((looks + 1).into())),
            ..Self::default()
        }
    }

    /// Asks, because of this signal.
    pub fn raise(&self, signal: i32) {
        // Relaxed: nothing else is told by it.
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// The signal, once it was raised.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        #[cfg(test)]
        if let Some(countdown) = &self.countdown
            && countdown.fetch_sub(1, Ordering::Relaxed) == 1
        {
            self.raise(2);
        }
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal),
        }
    }
}

/// What a copy is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the source and writing the destination.
    Copying,
    /// Reading both and comparing.
    Verifying,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where it comes from.
    Source,
    Destination,
}

/// Why a copy makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The server of one end cannot be reached; the copy goes on once it can.
    ConnectionLost {
        end: End,
        /// Time until the copy fails; `None`: it waits for ever.
        gives_up_in: Option<Duration>,
    },
    /// The connections hold, and requests are not answered.
    NoAnswer {
        /// Since the last answer.
        lasted: Duration,
    },
}

/// How far a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Bytes that were done before this run.
    pub start: u64,
    /// Bytes done in this phase, these included. Goes back when something has to be done again.
    pub done: u64,
    /// Bytes to do in all.
    pub total: u64,
    /// Bytes of data that this phase moved.
    pub data: u64,
    /// Bytes of zeros that it did not have to move.
    pub zeros: u64,
    /// Bytes that are known to be the same on both sides.
    pub unchanged: u64,
    /// Why it makes no progress, if so.
    pub trouble: Option<Trouble>,
}

/// Shows people how a copy fares.
pub trait Observer {
    /// A phase begins, goes on, or is over. Called about ten times a second.
    fn progress(&mut self, progress: &Progress);
    /// Something that does not stop the copy but should be known.
    fn warn(&mut self, text: &str);
}

/// An observer that shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _progress: &Progress) {}
    fn warn(&mut self, _text: &str) {}
}

/// Counts, and tells the observer now and then.
pub(super) struct Monitor<'a> {
    observer: &'a mut dyn Observer,
    interrupt: Interrupt,
    progress: Progress,
    told: Instant,
}

impl<'a> Monitor<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer, interrupt: Interrupt) -> Self {
        Self {
            observer,
            interrupt,
            progress: Progress {
                phase: Phase::Copying,
                start: 0,
                done: 0,
                total: 0,
                data: 0,
                zeros: 0,
                unchanged: 0,
                trouble: None,
            },
            told: Instant::now(),
        }
    }

    pub(super) fn begin(&mut self, phase: Phase, start: u64, total: u64) {
        self.progress = Progress {
            phase,
            start,
            done: start,
            total,
            data: 0,
            zeros: 0,
            unchanged: 0,
            trouble: None,
        };
        self.tell();
    }

    /// These bytes were moved.
    pub(super) fn count_data(&mut self, bytes: u64) {
        self.progress.done += bytes;
        self.progress.data += bytes;
    }

    /// These bytes are zeros and were not moved.
    pub(super) fn count_zeros(&mut self, bytes: u64) {
        self.progress.done += bytes;
        self.progress.zeros += bytes;
    }

    /// These bytes are the same on both sides.
    pub(super) fn count_unchanged(&mut self, bytes: u64) {
        self.progress.done += bytes;
        self.progress.unchanged += bytes;
    }

    /// What is behind this offset is to be done again.
    pub(super) fn rewind(&mut self, offset: u64) {
        self.progress.done = offset;
        self.tell();
    }

    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Tells the observer when it is time. `trouble` is asked for only then.
    pub(super) fn tick(&mut self, now: Instant, trouble: impl FnOnce() -> Option<Trouble>) {
        if now.duration_since(self.told) >= TICK {
            self.told = now;
            self.progress.trouble = trouble();
            self.tell();
        }
    }

    pub(super) fn tell(&mut self) {
        self.observer.progress(&self.progress);
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.observer.warn(text);
    }

    pub(super) fn interrupted(&self) -> Option<i32> {
        self.interrupt.signal()
    }
}
