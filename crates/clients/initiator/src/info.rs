//! The description of a remote volume.

use serde::Serialize;

/// The protocol of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SCSI over TCP (RFC 7143).
    Iscsi,
    /// NVMe over TCP (NVMe/TCP transport 1.0a).
    NvmeTcp,
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Iscsi => "iSCSI",
            Self::NvmeTcp => "NVMe/TCP",
        })
    }
}

/// A volume's geometry, abilities and names. Limits that the peer does not state are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VolumeInfo {
    /// How it is reached.
    pub protocol: Protocol,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Number of logical blocks; the last LBA is one less.
    pub block_count: u64,
    /// Bytes of a physical block: what the medium writes at once.
    pub physical_block_size: u32,
    /// The medium or its export is write protected.
    pub read_only: bool,
    /// There is a volatile write cache, so that only a flush or FUA brings writes to the medium.
    pub write_cache: bool,
    /// Writes can have Force Unit Access.
    pub fua: bool,
    /// Blocks can be deallocated.
    pub unmap: bool,
    /// Deallocated blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    /// Zeros can be written without sending them.
    pub write_zeroes: bool,
    /// Most blocks of a compare and write; `None`: there is none.
    pub compare_and_write_max: Option<u32>,
    /// It says which blocks are allocated.
    pub extent_status: bool,
    /// Most blocks of one read or write.
    pub max_transfer_blocks: Option<u32>,
    /// The transfer that suits it best.
    pub optimal_transfer_blocks: Option<u32>,
    /// Blocks are deallocated in units of so many.
    pub unmap_granularity_blocks: Option<u32>,
    /// Most blocks of one unmap.
    pub max_unmap_blocks: Option<u64>,
    /// Most blocks of one write of zeroes.
    pub max_write_zeroes_blocks: Option<u64>,
    /// T10 VENDOR IDENTIFICATION of the device; `NVMe` over NVMe.
    pub vendor: String,
    /// Product of the device: PRODUCT IDENTIFICATION, or MN over NVMe.
    pub product: String,
    /// PRODUCT REVISION LEVEL, or the firmware revision (FR) over NVMe.
    pub revision: String,
    /// Unit serial number (VPD page 80h), or SN over NVMe.
    pub serial: String,
    /// Worldwide names: the same on every path to it.
    pub identifiers: Vec<Identifier>,
}

impl VolumeInfo {
    /// Bytes it holds. Saturates.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.block_count.saturating_mul(self.block_size as u64)
    }

    /// Whether another path leads to the same volume: they have a worldwide name in common. Volumes without
    /// names are compared by serial number.
    #[must_use]
    pub fn is_same_volume(&self, other: &Self) -> bool {
        if self.block_size != other.block_size {
            return false;
        }
        if self.identifiers.is_empty() && other.identifiers.is_empty() {
            return !self.serial.is_empty()
                && (&self.vendor, &self.product, &self.serial)
                    == (&other.vendor, &other.product, &other.serial);
        }
        let is_theirs = |own: &Identifier| other.identifiers.contains(own);
        self.identifiers.iter().any(is_theirs)
    }
}

/// A worldwide name of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Identifier {
    /// `naa`, `eui`, `t10`, `scsi-name`, `nguid`, `uuid`.
    pub kind: String,
    /// As it is commonly written.
    pub value: String,
}

/// All that `longshore info` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Geometry, abilities and names of the volume.
    pub info: VolumeInfo,
    /// Parameters of the connection, by their standard's names, in the order to print.
    pub negotiated: Vec<(String, String)>,
    /// Persistent reservations; `None` when the peer has none to report.
    pub reservation: Option<ReservationReport>,
}

/// Persistent reservations of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReservationReport {
    /// PRGENERATION or GEN: rises with each change of registrations.
    pub generation: u32,
    /// The reservation's type; `None`: nobody holds one.
    pub kind: Option<String>,
    /// The holder: its key, or name.
    pub holder: Option<String>,
    /// All registrants, in the order of the report.
    pub registrations: Vec<Registration>,
}

/// One registrant: an I_T nexus or a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Registration {
    /// Its reservation key; 0 is never registered.
    pub key: u64,
    /// Who it is, as far as the peer tells.
    pub registrant: String,
    /// It holds the reservation.
    pub holds: bool,
}

/// News of a peer outside any operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The volume may have another size; identify it again.
    CapacityChanged,
    /// The list of volumes has changed.
    VolumesChanged,
    /// The way this path reaches the volume has changed.
    AccessChanged(AccessState),
    /// The peer asks us to log out soon.
    LogoutAsked,
    /// The peer is about to drop the connection; it may be connected again after the first, and must be
    /// before the second duration.
    ConnectionEnding {
        /// From now on; no new connection before that (Time2Wait).
        wait: std::time::Duration,
        /// Tasks are kept until then.
        retain: std::time::Duration,
    },
    /// Something else, for the log.
    Other(String),
}

/// How good a path is: ANA (NVMe base 2.0 §8.1) or ALUA (SPC-4 §5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccessState {
    /// Full service at full speed; every path without ALUA or ANA is one.
    #[default]
    Optimized,
    /// Works, at a cost.
    NonOptimized,
    /// Does not work now.
    Inaccessible,
    /// Will not work again.
    PersistentLoss,
    /// About to become another.
    Change,
}

impl AccessState {
    /// Whether reads and writes can be sent there.
    #[must_use]
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }
}
