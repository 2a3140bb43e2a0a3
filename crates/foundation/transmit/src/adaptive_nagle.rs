//! Adaptive Nagle: small responses wait for company in the kernel (Nagle's algorithm) as long as their
//! connection keeps its thread busy.
//!
//! Counted are the requests that were read since the connection was last idle: a *cycle*. Once a cycle has
//! `threshold` of them, and the last four reach half of threshold and margin in the average, Nagle is enabled.
//! Going idle disables it, which sends what is held back, and enables it again at once if one of the last three cycles
//! exceeded the threshold by the margin.
//!
//! ```text
//!               threshold reached, average high enough
//!            ┌──────────────────────────────────────────┐
//!        nodelay                                       nagle ──┐ idle, one of three
//!            └──────────────────────────────────────────┘ ◄────┘ cycles was long: flush
//!               idle: flush
//! ```

use crate::config::{NagleCycles, NagleThreshold, TransmitConfig};
use crate::switch::Switch;

/// Cycles whose average counts when Nagle is about to be enabled, the current one among them.
const CYCLES: usize = 4;
/// Cycles of which one must have been long for Nagle to stay enabled, the one that ends among them.
const CYCLES_TO_STAY: usize = 3;

/// A stretch of requests without a pause.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    requests: u64,
    /// Nagle was enabled already when it began.
    began_in_nagle: bool,
}

/// The state of one connection. See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct AdaptiveNagle {
    /// `u64::MAX`, which no cycle reaches, stands for infinite.
    threshold: u64,
    margin: u64,
    corrected: bool,
    nagle: bool,
    /// The most recent cycle comes first.
    cycles: [Cycle; CYCLES],
}

impl AdaptiveNagle {
    /// Begins with TCP_NODELAY set.
    pub(super) fn new(config: &TransmitConfig) -> Self {
        let mut machine = Self {
            threshold: 0,
            margin: 0,
            corrected: false,
            nagle: false,
            cycles: [Cycle::default(); CYCLES],
        };
        machine.configure(config);
        machine
    }

    /// Goes on with other numbers.
    pub(super) fn configure(&mut self, config: &TransmitConfig) {
        self.threshold = match config.nagle_threshold {
            NagleThreshold::Requests(count) => u64::from(count),
            NagleThreshold::Infinite => u64::MAX,
        };
        self.margin = u64::from(config.nagle_margin);
        self.corrected = config.nagle_cycles == NagleCycles::Corrected;
    }

    /// Whether Nagle is enabled.
    pub(super) fn is_nagle(&self) -> bool {
        self.nagle
    }

    /// Whether a cycle has begun.
    pub(super) fn is_busy(&self) -> bool {
        self.cycles[0].requests > 0
    }

    /// Requests of the current cycle.
    pub(super) fn busy(&self) -> u64 {
        self.cycles[0].requests
    }

    /// A complete request was read.
    #[inline]
    pub(super) fn request_read(&mut self) -> Switch {
        self.cycles[0].requests += 1;
        if self.nagle || self.cycles[0].requests < self.threshold {
            return Switch::Keep;
        }
        self.consider()
    }

    /// The threshold is reached.
    fn consider(&mut self) -> Switch {
        let sum: u64 = self.cycles.iter().map(|cycle| cycle.requests).sum();
        let average = sum / CYCLES as u64;
        if self.threshold > 0 && average < self.long() / 2 {
            return Switch::Keep;
        }
        self.nagle = true;
        Switch::Nagle
    }

    /// Nothing is there to be read, and the thread is about to sleep.
    pub(super) fn idle(&mut self) -> Switch {
        let mut switch = Switch::Keep;
        if self.nagle && self.threshold > 0 {
            let mut lately = self.cycles[..CYCLES_TO_STAY].iter();
            if lately.any(|cycle| cycle.requests >= self.enough(cycle)) {
                switch = Switch::Flush;
            } else {
                self.nagle = false;
                switch = Switch::NoDelay;
            }
        }
        self.cycles.rotate_right(1);
        self.cycles[0] = Cycle {
            requests: 0,
            began_in_nagle: self.nagle,
        };
        switch
    }

    /// Something was sent after the last cycle, which storage had kept: it must not be held back while the thread
    /// sleeps. This is no part of the paper, whose data came from memory.
    pub(super) fn flush(&self) -> Switch {
        if self.nagle && self.threshold > 0 {
            Switch::Flush
        } else {
            Switch::Keep
        }
    }

    fn long(&self) -> u64 {
        self.threshold.saturating_add(self.margin)
    }

    /// Requests of a cycle that keep Nagle enabled.
    fn enough(&self, cycle: &Cycle) -> u64 {
        if self.corrected && cycle.began_in_nagle {
            self.margin
        } else {
            self.long()
        }
    }
}

#[cfg(test)]
mod tests;
