//! The null volume: reads give zeros, writes vanish. It measures everything but storage, and is the
//! only volume that can be larger than anything real.

use std::sync::Arc;

use crate::description::{Characteristics, Geometry, Identity, WriteCache};
use crate::error::VolumeError;
use crate::identity::identify_at;
use crate::io::Io;
use crate::open::{OpenError, VolumeSpec};
use crate::outline::Outline;
use crate::physical_block::{self, physical_block_size};
use crate::request::{Execution, Request};
use crate::throttle::Throttle;
use crate::volume::{Attempt, Volume};
use longshore_block::extent::{Extent, Lba};
use longshore_block::operation::{ExtentState, Operation, Reply};

/// See the module documentation.
#[derive(Debug)]
pub struct NullVolume {
    outline: Outline,
    read_only: bool,
    physical_block_size: u32,
}

impl NullVolume {
    /// Fails without a size, since nothing else has one.
    pub fn open(spec: &VolumeSpec) -> Result<NullVolume, OpenError> {
        let outline = Outline::new(
            identify_at(spec, None)?,
            spec.block_size,
            spec.required_size()?,
        );
        let physical_block_size = physical_block_size(spec, spec.block_size, physical_block::PAGE)?;
        Ok(NullVolume {
            outline,
            read_only: spec.read_only,
            physical_block_size,
        })
    }

    fn admit_change(&self) -> Result<(), VolumeError> {
        if self.read_only {
            Err(VolumeError::ReadOnly)
        } else {
            Ok(())
        }
    }

    fn perform(&self, request: &mut Request) -> Result<Reply, VolumeError> {
        self.outline.bytes_of_request(request)?;
        match request.operation {
            Operation::Read { .. } => request.payload_mut().fill(0),
            Operation::Flush | Operation::Prefetch { .. } => {}
            Operation::Write { .. }
            | Operation::Unmap { .. }
            | Operation::WriteZeroes { .. }
            | Operation::Anchor { .. } => self.admit_change()?,
            Operation::ExtentStatus { extent } => {
                return Ok(Reply::Extent {
                    blocks: extent.blocks,
                    state: ExtentState::Deallocated,
                });
            }
            Operation::CompareAndWrite { .. } => return Err(VolumeError::Unsupported),
        }
        Ok(Reply::Done)
    }
}

impl Volume for NullVolume {
    fn identity(&self) -> &Identity {
        self.outline.identity()
    }

    fn geometry(&self) -> Geometry {
        self.outline.geometry()
    }

    fn throttle(&self) -> Option<&Arc<Throttle>> {
        Some(self.outline.throttle())
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: self.read_only,
            write_cache: WriteCache::None,
            unmap_granularity: Some(self.outline.block_size()),
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: self.physical_block_size,
        }
    }

    fn known_zeros(&self, extent: Extent) -> bool {
        self.outline.contains(extent)
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        let located = self.outline.bytes_of_slice(lba, into);
        Attempt::Done(located.map(|_| into.fill(0)))
    }

    fn try_write(&self, lba: Lba, from: &[u8], _fua: bool) -> Attempt {
        let located = self.outline.bytes_of_slice(lba, from);
        Attempt::Done(located.and_then(|_| self.admit_change()))
    }

    fn execute(self: Arc<Self>, mut request: Request, _io: Io) -> Execution {
        Execution::ended(self.perform(&mut request), request.buffer)
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        Ok(self.outline.geometry())
    }

    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        self.outline.check_growth(size_bytes)?;
        Ok(self.outline.grow_to(size_bytes))
    }
}
