//! Settings of a volume that change while it is served.

use std::sync::Arc;

use longshore_volume::Io;

use crate::error::PoolError;
use crate::format::op::{Op, VolumeRecord};
use crate::format::superblock::SETTINGS;
use crate::log::Inner;
use crate::place::Codec;
use crate::pool::Pool;
use crate::room::Promise;

/// What is to change of a volume; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    /// How new data is kept. What is there stays as it is.
    pub codec: Option<Codec>,
    /// Bytes that it and its snapshots may take; 0: no limit.
    pub quota: Option<u64>,
    /// Bytes that are kept for it; 0: none; [`RESERVE_FULL`](crate::RESERVE_FULL): its size.
    pub reserve: Option<u64>,
}

impl VolumeSettings {
    /// The settings of a volume.
    pub(crate) const fn of(volume: &VolumeRecord) -> Self {
        Self {
            codec: Some(volume.codec),
            quota: Some(volume.quota),
            reserve: Some(volume.reserve),
        }
    }

    /// Those that differ from what a volume has.
    #[must_use]
    pub fn differences(self, present: Self) -> Self {
        Self {
            codec: self.codec.filter(|it| present.codec != Some(*it)),
            quota: self.quota.filter(|it| present.quota != Some(*it)),
            reserve: self.reserve.filter(|it| present.reserve != Some(*it)),
        }
    }
}

impl Pool {
    /// Changes settings of a volume, whether it is served or not.
    ///
    /// # Errors
    /// There is no such volume, or the space that it asks for is not there.
    pub async fn set(
        self: &Arc<Self>,
        io: &Io,
        volume: &str,
        settings: VolumeSettings,
    ) -> Result<(), PoolError> {
        let _held = self.maintenance.lock().await;
        let present = self.record_of(volume)?;
        if settings.differences(VolumeSettings::of(&present)) == VolumeSettings::default() {
            return Ok(());
        }
        let next = VolumeRecord {
            codec: settings.codec.unwrap_or(present.codec),
            quota: settings.quota.unwrap_or(present.quota),
            reserve: settings.reserve.unwrap_or(present.reserve),
            ..present.clone()
        };
        self.require(io, SETTINGS | next.features()).await?;
        if next.reserve > 0 {
            self.promise(volume, &[Promise::of(&next).renewed()])?;
        }
        let op = Op::Set {
            volume: next.name,
            codec: next.codec,
            quota: next.quota,
            reserve: next.reserve,
        };
        self.change(io, op).await
    }

    /// The settings of a volume; `None`: there is no such volume.
    #[must_use]
    pub fn settings_of(&self, volume: &str) -> Option<VolumeSettings> {
        self.record_of(volume)
            .ok()
            .map(|it| VolumeSettings::of(&it))
    }

    /// Whether a volume can have that size, as far as its reserved space goes.
    ///
    /// # Errors
    /// There is no such volume, or the space for it is missing.
    pub fn check_growth(&self, volume: &str, size: u64) -> Result<(), PoolError> {
        let found = self.record_of(volume)?;
        if found.reserve == 0 || size <= found.size {
            return Ok(());
        }
        let next = VolumeRecord { size, ..found };
        let missing = {
            let mut inner = self.lock();
            let Inner { room, state, .. } = &mut *inner;
            room.missing(state, &[Promise::of(&next).renewed()])
        };
        if missing > 0 {
            return Err(self.cannot_reserve(volume, missing));
        }
        Ok(())
    }

    fn cannot_reserve(&self, volume: &str, missing: u64) -> PoolError {
        PoolError::CannotReserve {
            volume: volume.to_owned(),
            pool: self.name().to_owned(),
            missing,
        }
    }

    pub(crate) fn record_of(&self, volume: &str) -> Result<VolumeRecord, PoolError> {
        let inner = self.lock();
        let found = inner.state.catalog.volumes.get(volume);
        found.cloned().ok_or_else(|| self.no_volume(volume))
    }

    /// Keeps space for volumes that are about to change, until the change is made or has failed.
    pub(crate) fn promise(&self, volume: &str, promises: &[Promise]) -> Result<(), PoolError> {
        let kept = {
            let mut inner = self.lock();
            let Inner { room, state, .. } = &mut *inner;
            room.promise(state, promises)
        };
        kept.map_err(|missing| self.cannot_reserve(volume, missing))
    }
}
