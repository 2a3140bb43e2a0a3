//! What happened in a phase, counted.

use std::collections::BTreeMap;
use std::time::Duration;

use longshore_bench::latency::Recorder;

/// Wrong blocks and kinds of errors that are kept by name; the others are only counted.
const KEPT: usize = 16;

/// What a well-behaved host saw.
#[derive(Debug, Default)]
pub struct Tally {
    pub reads: u64,
    pub writes: u64,
    /// How many flushes and zeroings.
    pub others: u64,
    pub bytes: u64,
    /// From the moment at which an operation was due, of those that succeeded.
    pub latency: Recorder,
    /// Connections that were made.
    pub attached: u64,
    /// Attempts at connections that failed.
    pub not_attached: u64,
    /// Connections that were lost.
    pub lost_connections: u64,
    /// Operations without an answer when their connection was lost.
    pub unanswered: u64,
    /// Operations that were answered by an error.
    pub failures: u64,
    /// Connections that were given up because of [`ANSWER_LIMIT`](super::host::ANSWER_LIMIT).
    pub stuck: u64,
    /// The longest time between two operations that succeeded.
    pub outage: Duration,
    /// Errors by what they say.
    pub errors: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts an error by what it says, without the numbers that differ from case to case.
    pub fn error(&mut self, text: &str) {
        let text: String = text.chars().filter(|it| !it.is_ascii_digit()).collect();
        if self.errors.len() < KEPT || self.errors.contains_key(&text) {
            *self.errors.entry(text).or_default() += 1;
        } else {
            *self.errors.entry("others".to_owned()).or_default() += 1;
        }
    }

    pub fn operations(&self) -> u64 {
        self.reads + self.writes + self.others
    }
}

/// What rude peers and other faults did, by what it is called.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Deeds(pub BTreeMap<&'static str, u64>);

impl Deeds {
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    pub fn join(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            self.add(what, *count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_few_whatever_numbers_are_in_them() {
        let mut tally = Tally::default();
        for port in 0..100 {
            tally.error(&format!("127.0.0.1:{port}: refused"));
        }
        assert_eq!(tally.errors.len(), 1);
        for letter in 0..100 {
            tally.error(&"x".repeat(letter));
        }
        assert_eq!(tally.errors.len(), KEPT + 1);
        assert_eq!(tally.errors.values().sum::<u64>(), 200);
    }
}
