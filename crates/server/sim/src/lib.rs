//! Simulation: real shards of the server on a made-up network, disk and clock.
//!
//! A run is decided by its seed. iSCSI initiators and NVMe hosts, built on the real machines of their
//! protocols, log in, read, write, flush, compare, copy, reserve, abort and reset on the same volumes;
//! the network delays, splits and cuts; the disk is slow, short, full or broken; the server is killed
//! and started again. Checkers that know only what was sent and what was acknowledged compare it with
//! what comes back, whichever protocol it went by.
//!
//! ```text
//!   initiators ─┐
//!               ├─► network ──► shards of longshore-server ──► volumes ──► disk
//!   hosts ──────┘                                                           │
//!       └──────────────────────► checkers ◄─────── what is left of it ──────┘
//! ```
//!
//! # Faults that must be survived
//!
//! No promise may break, and sessions that are not concerned do not notice:
//!
//! - streams split anywhere, down to single bytes; delays; full send buffers; sends that take less;
//! - connections cut by either end, or gone without a word, sessions reinstated afterwards, hosts that
//!   come back with a new controller and write again;
//! - initiators and hosts that stop reading for a while;
//! - storage that answers late and out of order, moves less than asked, or says EINTR;
//! - media that know no holes or no zeroing;
//! - aborts, resets of units and controllers at any moment, memory that runs out (the command is refused, or waits);
//! - connections that go from one shard to another, with whatever they have in progress;
//! - exports that change at any moment: units lose their numbers and get them back, become read-only and writable, and
//!   grow; volumes are removed, flushed, closed and opened again, some before their commands have ended; initiators lose
//!   their access; other targets and subsystems come and go (`change`);
//! - clients to which the server seems to lie: they receive changed, truncated or repeated bytes, or
//!   noise; they end their connections, come again, and never fail themselves ([`deceived`]);
//! - the server process killed at any moment: all that was acknowledged is still there;
//! - the power cut at any moment: all that was flushed or written with FUA is still there.
//!
//! # Faults that must be detected
//!
//! The command concerned fails, nothing is claimed that does not hold, and the server goes on:
//!
//! - EIO and ENOSPC of reads, writes, zeroing: that command ends with an error;
//! - a sync that fails, perhaps losing data: no later flush or FUA write is acknowledged until the
//!   server has been started again.
//!
//! Data corrupted on the wire or on the medium is not simulated yet.
//!
//! # Failures
//!
//! `cargo run -p longshore-sim -- --seed N --steps M` repeats a run; `--trace` prints it.

#![forbid(unsafe_code)]

mod alarm;
mod change;
pub mod checker;
pub mod deceived;
pub mod disk;
pub mod environment;
pub mod host;
pub mod initiator;
pub mod network;
pub mod party;
pub mod platform;
pub mod profile;
pub mod random;
pub mod scene;
mod settings;
pub mod stamp;
mod storage;
pub mod time;
mod wire;
pub mod workload;
mod world;

use std::fmt;

pub use change::ChangeCounts;
use checker::Violation;
pub use profile::Planted;
pub use settings::Settings;
pub use world::World;

/// What came of a run in which no promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Commands that were sent.
    pub steps: u64,
    /// Virtual time of the end, in nanoseconds.
    pub time: u64,
    /// Times that a connection went from one shard to another.
    pub moves: u64,
    /// Times that the exports changed, and how.
    pub changes: ChangeCounts,
    /// Digest of all that happened.
    pub trace_hash: u64,
}

/// A run in which a promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    /// Commands until the run ends.
    pub steps: u64,
    pub violation: Violation,
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.violation)?;
        if let Some(commit) = option_env!("LONGSHORE_COMMIT") {
            writeln!(f, "commit {commit}")?;
        }
        write!(
            f,
            "repeat with: cargo run -p longshore-sim -- --seed {} --steps {}",
            self.seed, self.steps
        )
    }
}

impl std::error::Error for Failure {}

/// Runs a simulation.
///
/// # Errors
/// The first promise that is broken.
pub fn run(settings: &Settings) -> Result<Report, Box<Failure>> {
    let mut world = World::new(settings);
    let outcome = world.run();
    let environment = world.environment.lock();
    match outcome {
        Ok(()) => Ok(Report {
            steps: world.steps,
            time: environment.now,
            moves: environment.moves,
            changes: world.changes(),
            trace_hash: environment.trace_hash(),
        }),
        Err(violation) => Err(Box::new(Failure {
            seed: settings.seed,
            steps: settings.steps,
            violation,
            trace: environment.last_lines(),
        })),
    }
}
