//! What a volume says of itself.

use std::ops::Range;

use longshore_block::extent::{BlockCount, Extent};
use longshore_block::names::WorldwideNames;
use uuid::Uuid;

/// What a volume is called and recognised by.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name on the command line and in the configuration.
    pub name: String,
    /// Source of every identifier that peers see (NAA, EUI-64, NGUID …). Stable across restarts.
    pub uuid: Uuid,
    /// Unit serial number, printable ASCII, at most 64 characters.
    pub serial: String,
    /// T10 vendor identification, printable ASCII, at most 8 characters; `None`: the server's own.
    pub vendor: Option<String>,
    /// Product identification, printable ASCII, at most 16 characters; `None`: the server's own.
    pub product: Option<String>,
    /// Worldwide names that it was given.
    pub names: WorldwideNames,
}

/// Size at this moment; it can change when the volume is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block: 512 or 4096.
    pub block_size: u32,
    /// Blocks of the volume, at least 1.
    pub block_count: u64,
}

impl Geometry {
    /// All bytes of the volume.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        self.bytes(BlockCount(self.block_count))
    }

    /// The bytes of so many blocks. Saturates.
    #[must_use]
    pub fn bytes(self, blocks: BlockCount) -> u64 {
        blocks.0.saturating_mul(u64::from(self.block_size))
    }

    /// The blocks of a range of bytes.
    ///
    /// # Panics
    /// It is not made of whole blocks.
    #[must_use]
    pub fn extent(self, bytes: &Range<u64>) -> Extent {
        let extent = self.extent_around(bytes);
        let whole = self.bytes(extent.blocks) == bytes.end - bytes.start;
        assert!(whole, "a range of whole blocks");
        extent
    }

    /// The blocks that a range of bytes touches.
    #[must_use]
    pub fn extent_around(self, bytes: &Range<u64>) -> Extent {
        let block_size = u64::from(self.block_size);
        let lba = bytes.start / block_size;
        Extent::new(lba, bytes.end.div_ceil(block_size) - lba)
    }
}

/// What a completed write is worth before any flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// A completed write is as durable as this backend ever makes it; flush has nothing to do.
    None,
    /// A completed write may be lost by a crash of the host until a flush or FUA completes.
    Volatile,
}

/// What a volume can do. Fixed while it is open.
#[derive(Clone, Copy, Debug)]
pub struct Characteristics {
    /// Writes are refused with [`VolumeError::ReadOnly`](crate::VolumeError::ReadOnly).
    pub read_only: bool,
    pub write_cache: WriteCache,
    /// `Unmap` frees space, in units of this many bytes (a multiple of the block size); `None`: not
    /// supported.
    pub unmap_granularity: Option<u32>,
    /// Unmapped ranges read as zeros.
    pub unmapped_reads_zeros: bool,
    /// Spinning medium (block device characteristics VPD page).
    pub rotational: bool,
    /// Bytes that the medium writes in one piece: a power of two, at least the block size. A hint for
    /// aligning; it promises no atomicity.
    pub physical_block_size: u32,
}
