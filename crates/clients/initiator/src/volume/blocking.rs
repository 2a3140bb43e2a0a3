//! A remote volume whose operations wait for their end.

use std::sync::Arc;

use longshore_reactor::Buffer;

use super::RemoteVolume;
use super::future::block_on;
use crate::error::{Error, Failure};
use crate::info::VolumeInfo;
use crate::options::Options;
use crate::url::Url;

/// A volume on a server, for threads that wait. Clones share it, and may use it side by side.
///
/// Offsets and lengths are bytes, and multiples of the block size.
#[derive(Clone, Debug)]
pub struct BlockingVolume(RemoteVolume);

impl BlockingVolume {
    /// Connects as [`RemoteVolume::open`] does.
    ///
    /// # Errors
    /// No portal works: says why for each.
    pub fn open(url: &Url, options: &Options) -> Result<Self, Error> {
        RemoteVolume::open(url, options).map(Self)
    }

    /// What there is to know about the volume.
    #[must_use]
    pub fn info(&self) -> Arc<VolumeInfo> {
        self.0.info()
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.info().block_size
    }

    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    /// How the read failed.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
        let (result, buffer) = block_on(self.0.read(offset, Buffer::allocate(bytes.len())));
        result?;
        bytes.copy_from_slice(&buffer);
        Ok(())
    }

    /// Writes `bytes` from `offset` on. They are on the medium after the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// How the write failed; any part of it may have been written.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Failure> {
        let mut buffer = Buffer::allocate(bytes.len());
        buffer.copy_from_slice(bytes);
        block_on(self.0.write(offset, buffer, false)).0
    }

    /// Has `length` bytes from `offset` on read as zeros; their space may be freed.
    ///
    /// # Errors
    /// How it failed.
    pub fn write_zeroes_at(&self, offset: u64, length: u64) -> Result<(), Failure> {
        block_on(self.0.write_zeroes(offset, length, true, false))
    }

    /// Tells that `length` bytes from `offset` on are not needed any more.
    ///
    /// # Errors
    /// How it failed.
    pub fn unmap_at(&self, offset: u64, length: u64) -> Result<(), Failure> {
        block_on(self.0.unmap(offset, length))
    }

    /// Brings what was completed before to the medium.
    ///
    /// # Errors
    /// How it failed. Writes since the last flush may be lost.
    pub fn flush(&self) -> Result<(), Failure> {
        block_on(self.0.flush())
    }

    /// Logs out and waits for that, as [`RemoteVolume::close`] does.
    pub fn close(self) {
        self.0.close();
    }
}

impl From<RemoteVolume> for BlockingVolume {
    fn from(volume: RemoteVolume) -> Self {
        Self(volume)
    }
}
