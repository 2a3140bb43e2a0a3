//! The options of a [`RemoteVolume`](super::RemoteVolume), beyond those of its queues.

use std::time::Duration;

/// Which of several usable paths operations take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// The first portal among those of the best access state, and back to it as soon as it is up
    /// again.
    #[default]
    Failover,
    /// All paths of the best access state: each thread has a path of its own, and leaves it for one that is
    /// much less busy.
    Spread,
}

/// Choices of a remote volume. The time-outs of connections, requests and reconnecting are
/// [`Timeouts`](crate::options::Timeouts).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOptions {
    /// Which of several usable paths an operation takes.
    pub policy: PathPolicy,
    /// Driver threads, among which the queues are divided. At least 1.
    pub drivers: usize,
    /// How long a driver looks for more before it sleeps. Zero: not at all. Costs a core under load and
    /// saves the wake-up, which is most of the latency of a small read.
    pub driver_spin: Duration,
    /// How often one operation is sent again because the connection was lost with it. One that takes
    /// its peer down each time must end some day.
    pub resubmissions: u16,
    /// For how long an operation is repeated because the peer is busy or asks for it.
    pub retry_for: Duration,
    /// How long after the end of a connection a write that was sent on it waits before it is sent on
    /// another one that does not prove the end of the first. See the module documentation.
    pub settle: Duration,
    /// How long [`close`](super::RemoteVolume::close) waits for what is under way.
    pub close_wait: Duration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            policy: PathPolicy::Failover,
            drivers: 1,
            driver_spin: Duration::ZERO,
            resubmissions: 5,
            retry_for: Duration::from_secs(60),
            settle: Duration::from_secs(1),
            close_wait: Duration::from_secs(10),
        }
    }
}
