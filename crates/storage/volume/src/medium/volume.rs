//! A medium as a volume, whether it is a file or a device.

use std::sync::Arc;

use longshore_reactor::{PagePipe, block_device};

use super::Medium;
use super::backing::{Kind, SIZE_MAX};
use crate::condition::Condition;
use crate::description::{Characteristics, Geometry, Identity};
use crate::error::VolumeError;
use crate::io::Io;
use crate::request::{Execution, Request};
use crate::throttle::Throttle;
use crate::volume::{Attempt, AttemptCost, Volume};
use longshore_block::extent::{Extent, Lba};

impl Volume for Medium {
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
        Medium::characteristics(self)
    }

    fn attempt_cost(&self) -> AttemptCost {
        AttemptCost::SystemCall
    }

    fn take_pages(&self, extent: Extent, into: &mut PagePipe) -> bool {
        Medium::take_pages(self, extent, into)
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        Medium::try_read(self, lba, into)
    }

    fn try_write(&self, lba: Lba, from: &[u8], fua: bool) -> Attempt {
        Medium::try_write(self, lba, from, fua)
    }

    fn execute(self: Arc<Self>, request: Request, io: Io) -> Execution {
        Execution::running(async move { Medium::execute(&self, request, &io).await })
    }

    fn condition(&self) -> Condition {
        Medium::condition(self)
    }

    fn inspect(&self) -> Condition {
        self.inspect_all()
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        if self.backing.kind() == Kind::Endless {
            return Ok(self.geometry());
        }
        let _one_at_a_time = self.resizing.lock();
        self.take_up_size(self.object_size()?)
    }

    fn grow(&self, size_bytes: u64) -> Result<Geometry, VolumeError> {
        if self.backing.kind() == Kind::Device {
            return Err(VolumeError::Unsupported);
        }
        let _one_at_a_time = self.resizing.lock();
        self.outline.check_growth(size_bytes)?;
        if size_bytes > SIZE_MAX {
            return Err(VolumeError::OutOfRange);
        }
        if self.backing.kind() == Kind::Endless {
            return Ok(self.outline.grow_to(size_bytes));
        }
        if self.abilities.read_only {
            return Err(VolumeError::ReadOnly);
        }
        // A file that is short already must not be made long again.
        Medium::inspect(self).admit_change()?;
        let file = self.file();
        if self.object_size()? < size_bytes {
            file.set_len(size_bytes)
                .map_err(|error| self.error("ftruncate", error))?;
            file.sync_all()
                .map_err(|error| self.error("fsync", error))?;
        }
        Ok(self.outline.grow_to(size_bytes))
    }
}

impl Medium {
    /// The size of the file or device.
    fn object_size(&self) -> Result<u64, VolumeError> {
        if self.backing.kind() == Kind::Device {
            let size = block_device::size_bytes(self.file());
            return size.map_err(|error| self.error("ioctl BLKGETSIZE64", error));
        }
        let metadata = self.file().metadata();
        let metadata = metadata.map_err(|error| self.error("fstat", error))?;
        Ok(metadata.len())
    }
}
