//! What every backend keeps about itself: identity, block size, current size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::description::{Geometry, Identity};
use crate::error::VolumeError;
use crate::request::Request;
use crate::throttle::Throttle;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::Operation;

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByteRange {
    /// From the start of the volume.
    pub offset: u64,
    pub length: u64,
}

impl ByteRange {
    /// The byte behind the last one.
    #[inline]
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset + self.length
    }
}

/// Identity and geometry of an open volume.
#[derive(Debug)]
pub struct Outline {
    identity: Identity,
    /// Binary logarithm of the block size.
    block_shift: u32,
    /// Bytes; a multiple of the block size, never zero, only ever grows.
    size_bytes: AtomicU64,
    throttle: Arc<Throttle>,
}

impl Outline {
    /// `size_bytes` was checked by [`crate::open()`] to be a positive multiple of `block_size`.
    pub fn new(identity: Identity, block_size: u32, size_bytes: u64) -> Outline {
        assert!(block_size.is_power_of_two());
        assert!(size_bytes > 0 && size_bytes.is_multiple_of(u64::from(block_size)));
        Outline {
            identity,
            block_shift: block_size.trailing_zeros(),
            size_bytes: AtomicU64::new(size_bytes),
            throttle: Arc::default(),
        }
    }

    /// What the volume is called and recognised by.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The limits of its clients.
    pub fn throttle(&self) -> &Arc<Throttle> {
        &self.throttle
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Bytes of a block: 512 or 4096.
    pub fn block_size(&self) -> u32 {
        1 << self.block_shift
    }

    /// Bytes at this moment.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Blocks at this moment.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size(),
            block_count: self.size_bytes() >> self.block_shift,
        }
    }

    /// Whether a range of blocks lies within the volume.
    #[inline]
    #[must_use]
    pub fn contains(&self, extent: Extent) -> bool {
        extent.fits(self.size_bytes() >> self.block_shift)
    }

    /// The bytes of a range of blocks.
    ///
    /// # Errors
    /// The range does not lie within the volume.
    #[inline]
    pub fn bytes(&self, extent: Extent) -> Result<ByteRange, VolumeError> {
        if !self.contains(extent) {
            return Err(VolumeError::OutOfRange);
        }
        Ok(ByteRange {
            offset: extent.lba.0 << self.block_shift,
            length: extent.blocks.0 << self.block_shift,
        })
    }

    /// The bytes of as many blocks from `lba` on as fill a slice.
    ///
    /// # Errors
    /// They do not lie within the volume, or the slice is not filled by whole blocks.
    #[inline]
    pub fn bytes_of_slice(&self, lba: Lba, slice: &[u8]) -> Result<ByteRange, VolumeError> {
        let length = length_of(slice);
        let blocks = length >> self.block_shift;
        if blocks << self.block_shift != length {
            return Err(VolumeError::OutOfRange);
        }
        self.bytes(Extent {
            lba,
            blocks: BlockCount(blocks),
        })
    }

    /// The bytes that a request concerns; none for a flush.
    ///
    /// # Errors
    /// They do not lie within the volume, or are not as many as the payload has.
    #[inline]
    pub fn bytes_of_request(&self, request: &Request) -> Result<ByteRange, VolumeError> {
        let Some(extent) = request.operation.extent() else {
            return Ok(ByteRange::default());
        };
        let bytes = self.bytes(extent)?;
        match request.operation {
            Operation::Read { .. } | Operation::Write { .. }
                if request.payload_length() != bytes.length =>
            {
                Err(VolumeError::OutOfRange)
            }
            _ => Ok(bytes),
        }
    }

    /// The blocks of `length` bytes; a part of one counts as none.
    #[inline]
    #[must_use]
    pub fn blocks(&self, length: u64) -> BlockCount {
        BlockCount(length >> self.block_shift)
    }

    /// Takes up a size found behind the volume. The part that does not fill a block is left out, and
    /// a smaller size changes nothing: shrinking under running initiators loses their data.
    pub fn grow_to(&self, found_bytes: u64) -> Geometry {
        let whole = found_bytes - found_bytes % u64::from(self.block_size());
        self.size_bytes.fetch_max(whole, Ordering::Relaxed);
        self.geometry()
    }

    /// Whether the volume may be made `size_bytes` long: whole blocks, and not shorter than it is.
    pub fn check_growth(&self, size_bytes: u64) -> Result<(), VolumeError> {
        if size_bytes < self.size_bytes()
            || !size_bytes.is_multiple_of(u64::from(self.block_size()))
        {
            return Err(VolumeError::OutOfRange);
        }
        Ok(())
    }
}

/// Length of a slice as a number of bytes of a volume.
pub(crate) fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("usize is at most 64 bits wide")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outline() -> Outline {
        let identity = Identity {
            name: "t".into(),
            uuid: uuid::Uuid::nil(),
            serial: "s".into(),
            vendor: None,
            product: None,
            names: crate::WorldwideNames::default(),
        };
        Outline::new(identity, 512, 8192)
    }

    #[test]
    fn ranges_lie_inside_the_volume() {
        let outline = outline();
        let bytes = |lba, blocks| outline.bytes(Extent::new(lba, blocks)).ok();
        let range = |offset, length| Some(ByteRange { offset, length });
        assert_eq!(bytes(0, 16), range(0, 8192));
        assert_eq!(bytes(15, 1), range(7680, 512));
        assert_eq!(bytes(16, 0), range(8192, 0));
        assert_eq!(bytes(15, 2), None);
        assert_eq!(bytes(16, 1), None);
        assert_eq!(bytes(u64::MAX, 1), None);
        assert_eq!(bytes(1, u64::MAX), None);
        // Beyond what bytes can count.
        assert_eq!(bytes(1 << 55, 1), None);
    }

    #[test]
    fn slices_and_payloads_are_whole_blocks() {
        let outline = outline();
        assert!(outline.bytes_of_slice(Lba(15), &[0; 512]).is_ok());
        assert!(outline.bytes_of_slice(Lba(15), &[0; 1024]).is_err());
        assert!(outline.bytes_of_slice(Lba(0), &[0; 100]).is_err());
        let extent = Extent::new(1, 2);
        let request = |operation, end| Request {
            end,
            ..Request::new(operation)
        };
        let read = Operation::Read { extent };
        let found = outline.bytes_of_request(&request(read, 1024)).unwrap();
        assert_eq!((found.offset, found.end()), (512, 1536));
        assert!(outline.bytes_of_request(&request(read, 512)).is_err());
        assert!(
            outline
                .bytes_of_request(&request(Operation::Flush, 0))
                .is_ok()
        );
        let unmap = Operation::Unmap { extent };
        assert!(outline.bytes_of_request(&request(unmap, 0)).is_ok());
    }

    #[test]
    fn size_grows_by_whole_blocks_and_never_shrinks() {
        let outline = outline();
        assert_eq!(outline.grow_to(9000).block_count, 17);
        assert_eq!(outline.grow_to(512).block_count, 17);
        assert!(outline.check_growth(8192).is_err());
        assert!(outline.check_growth(9000).is_err());
        assert!(outline.check_growth(9216).is_ok());
    }
}
