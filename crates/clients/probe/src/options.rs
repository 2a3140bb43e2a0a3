//! What is asked of a probe, and who looks on.

use std::time::Duration;

use longshore_bench::medium::LocalOptions;
use longshore_initiator::options::Options as Connection;
use longshore_model::probe::{Direction, ServerFacts};

pub struct Options {
    /// About how long to measure.
    pub time: Duration,
    /// Where writes are allowed; none: nothing is written.
    pub writes: Option<WriteRegion>,
    /// Loads at random places that are measured as well, if they are not too deep or large. They decide nothing else.
    pub asked: Vec<Asked>,
    /// Of the places of random operations.
    pub seed: u64,
    /// The server's own statistics, if it tells them.
    pub statistics: Option<Box<dyn ServerView>>,
    /// The server's process, if it is on this machine.
    pub server_pid: Option<u32>,
    pub connection: Connection,
    /// Of files and devices.
    pub local: LocalOptions,
}

impl Default for Options {
    /// Fifty seconds of reads.
    fn default() -> Self {
        Self {
            time: Duration::from_secs(50),
            writes: None,
            asked: Vec::new(),
            seed: 1,
            statistics: None,
            server_pid: None,
            connection: Connection::default(),
            local: LocalOptions::default(),
        }
    }
}

/// A load that somebody wants to know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub direction: Direction,
    /// Bytes of an operation.
    pub size: u64,
    pub depth: u16,
}

/// A part of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRegion {
    pub offset: u64,
    pub length: u64,
}

/// What a server tells of itself, over a way of its own.
pub trait ServerView {
    /// Everything since the server started.
    ///
    /// # Errors
    /// Says why there is nothing.
    fn read(&mut self) -> Result<ServerFacts, String>;
}

/// Somebody who looks on.
pub trait Watch {
    /// What is measured now, and the part of all that is done, from 0 to 1.
    fn progress(&mut self, done: f64, what: &str);

    /// Something worth knowing that is no error.
    fn warn(&mut self, text: &str);
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: f64, _: &str) {}

    fn warn(&mut self, _: &str) {}
}
