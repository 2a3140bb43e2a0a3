//! What every backend keeps about itself: identity, block size, current size.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{ByteOffset, Geometry, Identity, VolumeError};

/// Identity and geometry of an open volume.
#[derive(Debug)]
pub struct Outline {
    identity: Identity,
    block_size: u32,
    /// Bytes; a multiple of the block size, never zero, only ever grows.
    size_bytes: AtomicU64,
}

impl Outline {
    /// `size_bytes` was checked by [`crate::open()`] to be a positive multiple of `block_size`.
    pub fn new(identity: Identity, block_size: u32, size_bytes: u64) -> Outline {
        assert!(size_bytes > 0 && size_bytes.is_multiple_of(u64::from(block_size)));
        Outline {
            identity,
            block_size,
            size_bytes: AtomicU64::new(size_bytes),
        }
    }

    /// What the volume is called and recognised by.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// 512 or 4096.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes at this moment.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Blocks at this moment.
    pub fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.block_size,
            block_count: self.size_bytes() / u64::from(self.block_size),
        }
    }

    /// Whether the range consists of whole blocks of the volume.
    #[inline]
    pub fn check(&self, offset: ByteOffset, length: u64) -> Result<(), VolumeError> {
        let mask = u64::from(self.block_size) - 1;
        match offset.0.checked_add(length) {
            Some(end) if end <= self.size_bytes() && (offset.0 | length) & mask == 0 => Ok(()),
            _ => Err(VolumeError::OutOfRange),
        }
    }

    /// [`Outline::check`] for the length of a slice.
    #[inline]
    pub fn check_slice(&self, offset: ByteOffset, bytes: &[u8]) -> Result<(), VolumeError> {
        self.check(offset, length_of(bytes))
    }

    /// Takes up a size found behind the volume. The part that does not fill a block is left out, and
    /// a smaller size changes nothing: shrinking under running initiators loses their data.
    pub fn grow_to(&self, found_bytes: u64) -> Geometry {
        let whole = found_bytes - found_bytes % u64::from(self.block_size);
        self.size_bytes.fetch_max(whole, Ordering::Relaxed);
        self.geometry()
    }

    /// Whether the volume may be made `size_bytes` long: whole blocks, and not shorter than it is.
    pub fn check_growth(&self, size_bytes: u64) -> Result<(), VolumeError> {
        if size_bytes < self.size_bytes() || !size_bytes.is_multiple_of(u64::from(self.block_size))
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
        };
        Outline::new(identity, 512, 8192)
    }

    #[test]
    fn ranges_are_whole_blocks_inside_the_volume() {
        let outline = outline();
        assert!(outline.check(ByteOffset(0), 8192).is_ok());
        assert!(outline.check(ByteOffset(8192), 0).is_ok());
        assert!(outline.check(ByteOffset(7680), 512).is_ok());
        assert!(outline.check(ByteOffset(7680), 1024).is_err());
        assert!(outline.check(ByteOffset(8192), 512).is_err());
        assert!(outline.check(ByteOffset(100), 512).is_err());
        assert!(outline.check(ByteOffset(0), 100).is_err());
        assert!(outline.check(ByteOffset(u64::MAX - 511), 512).is_err());
        assert!(outline.check(ByteOffset(512), u64::MAX - 511).is_err());
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
