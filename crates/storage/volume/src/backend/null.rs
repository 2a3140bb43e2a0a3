//! The null volume: reads give zeros, writes vanish. It measures everything but storage, and is the
//! only volume that can be larger than anything real.

use std::sync::Arc;

use crate::identity::identify_at;
use crate::open::{OpenError, VolumeSpec};
use crate::outline::Outline;
use crate::{
    Attempt, ByteOffset, Characteristics, Durability, Execution, ExtentState, Geometry, Identity,
    Io, Operation, Outcome, Request, Volume, VolumeError, WriteCache,
};

/// See the module documentation.
#[derive(Debug)]
pub struct NullVolume {
    outline: Outline,
    read_only: bool,
}

impl NullVolume {
    /// Needs a size.
    pub fn open(spec: &VolumeSpec) -> Result<NullVolume, OpenError> {
        let outline = Outline::new(
            identify_at(spec, None)?,
            spec.block_size,
            spec.required_size()?,
        );
        Ok(NullVolume {
            outline,
            read_only: spec.read_only,
        })
    }

    fn check_change(&self, offset: ByteOffset, length: u64) -> Result<(), VolumeError> {
        self.outline.check(offset, length)?;
        if self.read_only {
            Err(VolumeError::ReadOnly)
        } else {
            Ok(())
        }
    }

    fn perform(&self, request: &mut Request) -> Result<Outcome, VolumeError> {
        match request.operation {
            Operation::Read { offset } => {
                let payload = request.payload_mut();
                self.outline.check_slice(offset, payload)?;
                payload.fill(0);
            }
            Operation::Write { offset, .. } => {
                self.check_change(offset, request.payload_length())?;
            }
            Operation::Flush => {}
            Operation::Unmap { offset, length }
            | Operation::WriteZeroes { offset, length, .. }
            | Operation::Anchor { offset, length } => self.check_change(offset, length)?,
            Operation::ExtentStatus { offset, length } => {
                self.outline.check(offset, length)?;
                return Ok(Outcome::Extent {
                    length,
                    state: ExtentState::Deallocated,
                });
            }
            Operation::Prefetch { offset, length } => self.outline.check(offset, length)?,
        }
        Ok(Outcome::Done)
    }
}

impl Volume for NullVolume {
    fn identity(&self) -> &Identity {
        self.outline.identity()
    }

    fn geometry(&self) -> Geometry {
        self.outline.geometry()
    }

    fn characteristics(&self) -> Characteristics {
        Characteristics {
            read_only: self.read_only,
            write_cache: WriteCache::None,
            unmap_granularity: Some(self.outline.block_size()),
            unmapped_reads_zeros: true,
            rotational: false,
        }
    }

    fn known_zeros(&self, offset: ByteOffset, length: u64) -> bool {
        self.outline.check(offset, length).is_ok()
    }

    fn try_read(&self, offset: ByteOffset, into: &mut [u8]) -> Attempt {
        let checked = self.outline.check_slice(offset, into);
        if checked.is_ok() {
            into.fill(0);
        }
        Attempt::Done(checked)
    }

    fn try_write(&self, offset: ByteOffset, from: &[u8], _durability: Durability) -> Attempt {
        Attempt::Done(self.check_change(offset, crate::outline::length_of(from)))
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
