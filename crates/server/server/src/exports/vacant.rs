//! A substitute in the place of a removed unit, so that no command checks for a missing one.

use std::sync::Arc;

use longshore_block::extent::Lba;
use longshore_volume::{
    Attempt, Characteristics, Execution, Geometry, Identity, Io, Request, Volume, VolumeError,
    WorldwideNames, WriteCache,
};
use uuid::Uuid;

/// A volume that nothing refers to. It holds nothing and refuses everything.
pub(super) struct Vacant(Identity);

impl Vacant {
    pub(super) fn volume() -> Arc<dyn Volume> {
        Arc::new(Self(Identity {
            name: String::new(),
            uuid: Uuid::nil(),
            serial: String::new(),
            vendor: None,
            product: None,
            names: WorldwideNames::default(),
        }))
    }
}

impl Volume for Vacant {
    fn identity(&self) -> &Identity {
        &self.0
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: 512,
            block_count: 1,
        }
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: true,
            write_cache: WriteCache::None,
            unmap_granularity: None,
            unmapped_reads_zeros: false,
            rotational: false,
            physical_block_size: 512,
        }
    }

    fn try_read(&self, _lba: Lba, _into: &mut [u8]) -> Attempt {
        Attempt::Done(Err(VolumeError::Removed))
    }

    fn try_write(&self, _lba: Lba, _from: &[u8], _fua: bool) -> Attempt {
        Attempt::Done(Err(VolumeError::Removed))
    }

    fn execute(self: Arc<Self>, request: Request, _io: Io) -> Execution {
        Execution::ended(Err(VolumeError::Removed), request.buffer)
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        Ok(self.geometry())
    }
}
