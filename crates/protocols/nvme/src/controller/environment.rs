//! What a controller asks of its driver.

use super::discovery::DiscoveryEntry;
use crate::nqn::Nqn;
use crate::psk::Identity;

/// What was done to a volume since the server started. What is not counted is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes that hosts have read.
    pub read_bytes: u64,
    /// Bytes that hosts have written.
    pub written_bytes: u64,
    pub read_commands: u64,
    pub write_commands: u64,
    /// Time with commands under way.
    pub busy_ms: u64,
    /// Operations that the medium failed.
    pub media_errors: u64,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Data may have been lost: a flush failed.
    pub degraded: bool,
    /// Writes are refused because of a failure.
    pub read_only: bool,
    /// Percent of what a thin volume takes its space from that are in use.
    pub used_percent: u8,
}

impl Health {
    /// AVAILABLE SPARE THRESHOLD, in percent.
    pub(in crate::controller) const SPARE_THRESHOLD: u8 = 6;

    /// AVAILABLE SPARE, in percent.
    pub(in crate::controller) const fn spare_percent(self) -> u8 {
        100_u8.saturating_sub(self.used_percent)
    }

    /// Whether less is left than the SMART / Health log's threshold.
    #[must_use]
    pub const fn lacks_spare(self) -> bool {
        self.spare_percent() < Self::SPARE_THRESHOLD
    }
}

/// What a controller asks of its driver.
pub trait Environment {
    /// Ways to all subsystems, as seen by whoever asks on this connection. Those to subsystems that
    /// the host may not use are left out by the caller.
    fn discovery_entries(&self, host: &Nqn) -> Vec<DiscoveryEntry>;

    /// GENCTR: changes whenever the entries do.
    fn discovery_generation(&self) -> u64;

    /// Whether only discovery controllers can be reached on this connection.
    fn is_discovery_only(&self) -> bool {
        false
    }

    /// The identity of the key that the host has proved to know, if the connection is over TLS.
    fn tls_identity(&self) -> Option<&Identity> {
        None
    }

    /// Whether hosts may open TLS on this port.
    fn has_tls(&self) -> bool {
        false
    }

    /// Whether connections without TLS are refused on this port.
    fn requires_tls(&self) -> bool {
        false
    }

    /// What was done to a volume.
    fn statistics(&self, index: usize) -> Statistics {
        let _ = index;
        Statistics::default()
    }

    /// How a volume is.
    fn health(&self, index: usize) -> Health {
        let _ = index;
        Health::default()
    }

    /// How long the server has been running.
    fn uptime_ms(&self) -> u64 {
        0
    }
}
