//! The state of a remote volume, for people.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

/// A look at a [`RemoteVolume`](super::RemoteVolume).
#[derive(Clone, Debug, Serialize)]
pub struct VolumeState {
    /// In the order of the portals in the URL.
    pub paths: Vec<PathState>,
    /// What happened since it was opened.
    pub counters: Counters,
    /// Operations submitted and not yet complete.
    pub outstanding: usize,
    /// Of these: waiting for a path.
    pub parked: usize,
    /// Set while there is no path.
    pub outage: Option<Outage>,
}

/// A time without any path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// How long it has lasted.
    pub lasted: Duration,
    /// Time until operations fail; `None`: they wait for ever.
    pub gives_up_in: Option<Duration>,
}

/// A look at one path.
#[derive(Clone, Debug, Serialize)]
pub struct PathState {
    /// As in the URL.
    pub portal: String,
    /// What the path can be used for now.
    pub condition: PathCondition,
    /// Whether new operations take it at this moment.
    pub in_use: bool,
    /// Its connections for reads and writes.
    pub queues: usize,
    /// Operations that wait for or are in its queues.
    pub outstanding: usize,
    /// Times it came up, the first one included.
    pub connects: u64,
    /// Why it was lost, refused, or could not be connected last.
    pub last_error: Option<String>,
}

/// What a path is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathCondition {
    /// Being connected for the first time, or anew.
    Connecting,
    /// Up, and as good as any.
    Usable,
    /// Up, and slower than an optimized one (ANA, ALUA).
    NonOptimized,
    /// Up, but the volume cannot be reached through it (ANA, ALUA).
    Inaccessible,
    /// Lost, with a pause before the next attempt.
    Down,
    /// It leads to another volume.
    Refused,
}

impl fmt::Display for PathCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Usable => "usable",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::Down => "down",
            Self::Refused => "refused",
        })
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// What happened to a remote volume since it was opened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
        #[non_exhaustive]
        pub struct Counters { $($(#[$doc])+ pub $name: u64,)+ }

        /// [`Counters`] as they are counted.
        #[derive(Debug, Default)]
        pub(super) struct LiveCounters { $(pub(super) $name: AtomicU64,)+ }

        impl LiveCounters {
            pub(super) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Paths that came up again after they were lost.
    reconnects,
    /// Attempts to connect that failed.
    failed_connects,
    /// Times that a connected path was lost.
    losses,
    /// Times that all operations moved to another path because theirs was lost or got worse.
    failovers,
    /// Operations sent again because their connection was lost with them.
    resubmissions,
    /// Operations repeated because the peer asked for it (busy, task set full, unit attention …).
    retries,
    /// Connections given up because an operation was not answered in time.
    timeouts,
    /// Connections given up because the peer was silent.
    silences,
    /// Operations that ended because nobody can tell whether they were executed.
    unknown_outcomes,
    /// Operations larger than the peer takes, which went in pieces.
    splits,
    /// Operations sent by the thread that submitted them.
    direct_sends,
    /// Messages to driver threads, which wake them if they sleep.
    driver_messages,
}

/// Adds one. Relaxed: nobody concludes anything from these.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
