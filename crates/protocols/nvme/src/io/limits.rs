//! Limits of commands, as Identify tells them.
//!
//! Blocks are counted truly here; Identify counts most of them from 0.

/// NN of Identify Controller: NSIDs go up to this. Those that no namespace has are inactive, those above are invalid.
/// It is the same whatever is attached: hosts size tables by it, and a command must not change its status because of
/// namespaces that it is not about.
pub const NAMESPACES_MAX: u32 = 16_384;

/// MNAN of Identify Controller, unless more namespaces were attached when the controller was made.
pub const ATTACHED_NAMESPACES_MAX: u32 = 1024;

/// ACWU of Identify Controller: the longest fused Compare and Write, in blocks. It is independent of
/// AWUN: the range is locked for the pair, and for nothing else.
pub const COMPARE_AND_WRITE_BLOCKS: u16 = 128;

/// MSRC of Identify Namespace: the most source ranges of a Copy.
pub const COPY_RANGES: u16 = 128;

/// MSSRL of Identify Namespace: the longest source range of a Copy, in blocks.
pub const COPY_RANGE_BLOCKS: u16 = 32 * 1024;

/// MCL of Identify Namespace: the most blocks of a Copy, which bounds how long one command can keep
/// the medium busy.
pub const COPY_BLOCKS: u32 = 128 * 1024;

/// OCFS of Identify Controller: descriptor formats of Copy, one bit each. Format 1 is for namespaces
/// with 32 or 64 bit guards only, so there is nothing to gain from it here.
pub const COPY_FORMATS: u16 = 1 << 0;

/// Most blocks that are deallocated in one operation. Longer ranges of a Dataset Management are cut
/// at multiples of it, so that other commands get their turn and no piece ends within a granule.
pub(crate) const DEALLOCATE_BLOCKS: u64 = 1 << 20;

/// Bytes of a Source Range Entry of Copy, descriptor format 0.
pub(crate) const COPY_RANGE_BYTES: u32 = 32;

/// Bytes of a range of Dataset Management.
pub(crate) const DATASET_RANGE_BYTES: u32 = 16;
