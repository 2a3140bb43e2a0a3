//! Features of the format that earlier versions do not know: superblocks name them before anything of theirs is written.

use std::sync::Arc;

use longshore_volume::Io;

use crate::error::PoolError;
use crate::format::op::VolumeRecord;
use crate::format::superblock::{SETTINGS, ZSTD};
use crate::place::Codec;
use crate::pool::Pool;

/// What a pool has to have to keep such a volume.
pub fn of_volume(volume: &VolumeRecord) -> u64 {
    let reserved = if volume.reserve > 0 { SETTINGS } else { 0 };
    of_codec(volume.codec) | reserved
}

/// What a pool has to have to keep data of a codec.
pub const fn of_codec(codec: Codec) -> u64 {
    match codec {
        Codec::Raw | Codec::Lz4 => 0,
        Codec::Zstd => ZSTD,
    }
}

impl Pool {
    /// Has all superblocks name these features; that is on the medium when this ends. The caller holds
    /// [`Self::maintenance`].
    pub(crate) async fn require(self: &Arc<Self>, io: &Io, features: u64) -> Result<(), PoolError> {
        {
            let mut inner = self.lock();
            if inner.features & features == features {
                return Ok(());
            }
            inner.features_wanted |= features;
        }
        self.checkpoint(io).await
    }
}
