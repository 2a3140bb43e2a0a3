//! Configuration and abilities of a logical unit.

use longshore_block::names::WorldwideNames;
use uuid::Uuid;

/// What a logical unit is and can do. Fixed, but for the number of blocks.
#[derive(Clone, Debug)]
pub struct LogicalUnitConfig {
    /// Source of every designator that peers see.
    pub uuid: Uuid,
    /// Name of the volume, for product identification and logs.
    pub name: String,
    /// Unit serial number, printable ASCII, at most 64 characters.
    pub serial: String,
    /// T10 VENDOR IDENTIFICATION, printable ASCII, at most 8 characters; `None`: ours.
    pub vendor: Option<String>,
    /// PRODUCT IDENTIFICATION, printable ASCII, at most 16 characters; `None`: ours.
    pub product: Option<String>,
    /// Worldwide names that the volume was given.
    pub names: WorldwideNames,
    /// Bytes of a logical block: 512 or 4096.
    pub block_size: u32,
    /// Bytes that the medium writes in one piece: a power of two, at least the block size.
    pub physical_block_size: u32,
    /// Blocks of the unit, at least 1.
    pub block_count: u64,
    /// Writes are refused with WRITE PROTECTED.
    pub read_only: bool,
    /// A completed write may be lost until a flush: WCE of the caching mode page.
    pub volatile_cache: bool,
    /// UNMAP works, in units of this many blocks; `None`: not offered.
    pub unmap_granularity_blocks: Option<u32>,
    /// Unmapped blocks read as zeros.
    pub unmapped_reads_zeros: bool,
    pub rotational: bool,
    /// Largest transfer in one READ or WRITE; more is INVALID FIELD IN CDB.
    pub max_transfer_blocks: u32,
    /// The driver can store reservations, and how far sanitizing is, durably: APTPL and SANITIZE are offered.
    pub persistent_reservations_store: bool,
    /// Usage levels of shared space that are reported to hosts, in percent; empty if the unit shares none.
    pub soft_thresholds: &'static [u8],
    /// PRODUCT REVISION LEVEL, printable ASCII, at most 4 characters.
    pub product_revision: String,
}

/// Space that a unit shares with others, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedSpace {
    /// Of the storage as a whole, which changes only as drives come and go.
    pub size: u64,
    /// For data: less than the size, and less still as maps grow.
    pub capacity: u64,
    pub used: u64,
}

impl LogicalUnitConfig {
    /// SANITIZE can overwrite it.
    pub(crate) fn sanitizes(&self) -> bool {
        self.persistent_reservations_store && !self.read_only
    }

    /// SANITIZE can erase its blocks: freed ones read as zeros.
    pub(crate) fn erases_blocks(&self) -> bool {
        self.sanitizes() && self.unmap_granularity_blocks.is_some() && self.unmapped_reads_zeros
    }

    /// Hosts are told of soft thresholds.
    pub(crate) fn has_thresholds(&self) -> bool {
        !self.soft_thresholds.is_empty()
    }

    /// Logical blocks of a physical one.
    pub(crate) fn blocks_per_physical_block(&self) -> u32 {
        (self.physical_block_size / self.block_size.max(1)).max(1)
    }
}
