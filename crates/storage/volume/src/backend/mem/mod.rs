//! Memory of this process: as fast as a volume that keeps data can be, and gone with the process.

mod page_locks;

use self::page_locks::PageLocks;
use std::sync::Arc;

use longshore_reactor::SharedRegion;

use crate::description::{Characteristics, Geometry, Identity, WriteCache};
use crate::error::VolumeError;
use crate::identity::identify_at;
use crate::io::Io;
use crate::open::{BackendName, OpenError, VolumeSpec};
use crate::outline::ByteRange;
use crate::outline::{Outline, length_of};
use crate::physical_block::{PAGE, physical_block_size};
use crate::request::{Execution, Request};
use crate::volume::{Attempt, AttemptCost, Volume};
use longshore_block::extent::Lba;
use longshore_block::operation::{ExtentState, Operation, Reply};

/// See the module documentation.
#[derive(Debug)]
pub struct MemVolume {
    outline: Outline,
    region: SharedRegion,
    pages: PageLocks,
    read_only: bool,
    physical_block_size: u32,
}

impl MemVolume {
    /// Needs a size. Memory is taken when it is first written.
    pub fn open(spec: &VolumeSpec) -> Result<MemVolume, OpenError> {
        let size = spec.required_size()?;
        let outline = Outline::new(identify_at(spec, None)?, spec.block_size, size);
        let region = SharedRegion::new(size).map_err(|_| OpenError::TooLarge {
            name: spec.name.clone(),
            backend: BackendName::MEM,
            size,
        })?;
        let physical_block_size = physical_block_size(spec, spec.block_size, PAGE)?;
        Ok(MemVolume {
            outline,
            region,
            pages: PageLocks::new(),
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

    fn read(&self, lba: Lba, into: &mut [u8]) -> Result<(), VolumeError> {
        let offset = self.outline.bytes_of_slice(lba, into)?.offset;
        self.copy_out(offset, into);
        Ok(())
    }

    fn write(&self, lba: Lba, from: &[u8]) -> Result<(), VolumeError> {
        let offset = self.outline.bytes_of_slice(lba, from)?.offset;
        self.admit_change()?;
        self.copy_in(offset, from);
        Ok(())
    }

    fn copy_out(&self, offset: u64, into: &mut [u8]) {
        self.pages.each_page(offset, into.len(), |at, range| {
            self.region.copy_out(at, &mut into[range]);
        });
    }

    fn copy_in(&self, offset: u64, from: &[u8]) {
        self.pages.each_page(offset, from.len(), |at, range| {
            self.region.copy_in(at, &from[range]);
        });
    }

    /// Overwrites with zeros, so that the range has memory of its own afterwards.
    fn write_zeros(&self, mut offset: u64, mut length: u64) {
        const ZEROS: [u8; 16 * 1024] = [0; 16 * 1024];
        while length > 0 {
            let count = length.min(length_of(&ZEROS));
            let here = usize::try_from(count).expect("at most 16 KiB");
            self.copy_in(offset, &ZEROS[..here]);
            offset += count;
            length -= count;
        }
    }

    /// Gives memory to the parts of the range that have none.
    fn anchor(&self, mut offset: u64, mut length: u64) {
        while length > 0 {
            let extent = self.region.extent(offset, length);
            if !extent.mapped {
                self.write_zeros(offset, extent.length_bytes);
            }
            offset += extent.length_bytes;
            length -= extent.length_bytes;
        }
    }

    fn perform(&self, request: &mut Request) -> Result<Reply, VolumeError> {
        let ByteRange { offset, length } = self.outline.bytes_of_request(request)?;
        match request.operation {
            Operation::Read { .. } => self.copy_out(offset, request.payload_mut()),
            Operation::Write { .. } => {
                self.admit_change()?;
                self.copy_in(offset, request.payload_mut());
            }
            Operation::Flush | Operation::Prefetch { .. } => {}
            Operation::Unmap { .. }
            | Operation::WriteZeroes {
                may_unmap: true, ..
            } => {
                self.admit_change()?;
                let _pages = self.pages.all();
                self.region.discard(offset, length);
            }
            Operation::WriteZeroes {
                may_unmap: false, ..
            } => {
                self.admit_change()?;
                self.write_zeros(offset, length);
            }
            Operation::Anchor { .. } => {
                self.admit_change()?;
                self.anchor(offset, length);
            }
            Operation::ExtentStatus { .. } => return Ok(self.extent(offset, length)),
            Operation::CompareAndWrite { .. } => return Err(VolumeError::Unsupported),
        }
        Ok(Reply::Done)
    }

    fn extent(&self, offset: u64, length: u64) -> Reply {
        let found = self.region.extent(offset, length);
        let state = if found.mapped {
            ExtentState::Mapped
        } else {
            ExtentState::Deallocated
        };
        Reply::Extent {
            blocks: self.outline.blocks(found.length_bytes),
            state,
        }
    }
}

impl Volume for MemVolume {
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
            unmap_granularity: Some(PAGE.max(self.outline.block_size())),
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: self.physical_block_size,
        }
    }

    fn attempt_cost(&self) -> AttemptCost {
        AttemptCost::Copy
    }

    fn try_read(&self, lba: Lba, into: &mut [u8]) -> Attempt {
        Attempt::Done(self.read(lba, into))
    }

    fn try_write(&self, lba: Lba, from: &[u8], _fua: bool) -> Attempt {
        Attempt::Done(self.write(lba, from))
    }

    fn execute(self: Arc<Self>, mut request: Request, _io: Io) -> Execution {
        Execution::ended(self.perform(&mut request), request.buffer)
    }

    fn refresh_geometry(&self) -> Result<Geometry, VolumeError> {
        Ok(self.outline.geometry())
    }
}
