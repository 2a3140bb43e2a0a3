//! Mistakes of a configuration, and obstacles of the host.

use std::path::PathBuf;

use longshore_nvme::nqn::Nqn;
use longshore_reactor::EngineError;

/// Highest namespace identifier (NN).
pub(super) const NSID_MAX: u32 = longshore_nvme::io::limits::NAMESPACES_MAX;

/// Why a server did not start, or did not take over what it is to export.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A logical unit number is used twice in one map, or is too large.
    #[error("target {target}: LUN {lun} is used twice or is above 16383")]
    Lun { target: String, lun: u16 },
    /// One map shows a volume under two numbers.
    #[error("target {target}: volume {volume} has more than one LUN in the same map")]
    VolumeTwice { target: String, volume: String },
    /// Two targets have one name.
    #[error("target {0} is configured twice")]
    TargetTwice(String),
    /// Two subsystems have one name.
    #[error("subsystem {0} is configured twice, or has the name of discovery")]
    SubsystemTwice(Nqn),
    /// A namespace identifier is used for two volumes, twice in one map, or is none.
    #[error(
        "subsystem {subsystem}: NSID {nsid} is used twice, names two volumes, or is not between 1 \
         and {NSID_MAX}"
    )]
    Namespace { subsystem: Nqn, nsid: u32 },
    /// A map names a volume that is not in the list of volumes.
    #[error("{exporter}: its map names volume number {volume}, and there are fewer volumes")]
    NoVolume {
        /// Name of the target or subsystem.
        exporter: String,
        volume: usize,
    },
    /// One volume stands in the list of volumes twice.
    #[error("volume {0} is listed twice")]
    VolumeListedTwice(String),
    /// What discovery is to tell is no address.
    #[error("{0:?} is not an IP address and port; NVMe discovery can report nothing else")]
    Advertise(String),
    /// The directory for reservations cannot be used.
    #[error(
        "state directory {}: {source}; make it writable or choose another one",
        path.display()
    )]
    StateDirectory {
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Stored reservations cannot be read.
    #[error(
        "stored reservations {}: {reason}; the volume must not be served without them. Remove \
         the file only when no initiator relies on its reservations",
        path.display()
    )]
    Reservations {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The stored state of a sanitize operation cannot be read.
    #[error(
        "stored sanitize operation {}: {reason}; the volume must not be served before it is known whether it was \
         sanitized. Remove the file if it holds nothing that must be erased",
        path.display()
    )]
    Sanitize {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The numbers of target ports cannot be read or stored.
    #[error(
        "target ports {}: {reason}; persistent reservations depend on the numbers in this file. \
         Restore it, or remove it only when no initiator relies on its reservations",
        path.display()
    )]
    TargetPorts {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A port is to have an identifier that another one has.
    #[error(
        "relative target port {identifier} of target {target} is that of target {owner} in portal group {tag}, which \
         reservations may name; give one of both another number (`relative-port`)"
    )]
    RelativePortTaken {
        identifier: u16,
        target: String,
        /// The target that has it.
        owner: String,
        /// The portal group of its port.
        tag: u16,
    },
    /// No event loop could be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A thread could not be started, or a socket not be used.
    #[error("{operation}: {source}")]
    System {
        operation: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
}
