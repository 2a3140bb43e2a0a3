//! Features of the format that earlier versions do not know: superblocks name them before anything of theirs is written.

use std::sync::Arc;

use longshore_volume::Io;

use crate::error::PoolError;
use crate::pool::Pool;

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
