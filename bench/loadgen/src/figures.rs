//! What is counted, and which places are chosen.

use std::time::Instant;

use hdrhistogram::Histogram;
use longshore_tests::random::Random;

use crate::options::Options;

/// Operations and how long they took.
pub struct Figures {
    /// Operations that have ended since the count began.
    pub operations: u64,
    /// Time from sending a command to its end.
    pub latency_ns: Histogram<u64>,
    /// How many may still begin.
    to_begin: u64,
}

impl Figures {
    /// Nothing yet, and no more than so many operations.
    pub fn new(operations_max: u64) -> Self {
        Self {
            operations: 0,
            latency_ns: Histogram::new_with_bounds(100, 60_000_000_000, 3)
                .expect("from 100 ns to a minute, to three digits"),
            to_begin: operations_max,
        }
    }

    /// Starts to count anew.
    pub fn forget(&mut self) {
        self.operations = 0;
        self.latency_ns.reset();
    }

    /// Whether another operation may begin; it then does.
    #[inline]
    pub fn begin(&mut self) -> bool {
        let may = self.to_begin > 0;
        self.to_begin -= u64::from(may);
        may
    }

    /// An operation has ended.
    #[inline]
    pub fn ended(&mut self, sent: Instant, now: Instant) {
        let nanos = u64::try_from((now - sent).as_nanos()).expect("a run is short");
        self.latency_ns.saturating_record(nanos);
        self.operations += 1;
    }
}

/// Places that an operation of the run's size fits at.
pub struct Places {
    /// None: one after the other.
    random: Option<Random>,
    next: u64,
    count: u64,
    blocks: u64,
}

impl Places {
    /// Places within the span of the run; each queue has a seed of its own.
    pub fn new(options: &Options, block_size: u32, seed: u16) -> Self {
        let random = Random::new(u64::from(seed));
        Self {
            random: (!options.sequential).then_some(random),
            next: 0,
            count: options.span / u64::from(options.size),
            blocks: u64::from(options.size / block_size),
        }
    }

    /// The first block of the next place.
    #[inline]
    pub fn next_lba(&mut self) -> u64 {
        let place = match &mut self.random {
            Some(random) => random.below(self.count),
            None => {
                let place = self.next;
                self.next = (place + 1) % self.count;
                place
            }
        };
        place * self.blocks
    }
}
