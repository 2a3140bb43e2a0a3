//! Freeing and zeroing, by the ways that [`zeroing`](super::zeroing) knows.

use std::io;

use longshore_reactor::storage::FileOperationKind;

use super::bounce;
use super::errno::{is_interruption, is_unsupported};
use super::state::{Medium, in_memory};
use super::zeroing::ZeroingWay;
use crate::error::VolumeError;
use crate::io::Io;
use crate::outline::ByteRange;

/// Zeros that one write puts down. Bounded, because each such request holds that much memory.
const ZEROS_PER_WRITE: u64 = 256 * 1024;

impl Medium {
    /// Frees or zeroes bytes, by the first of the ways that the object knows.
    pub(super) async fn zero(
        &self,
        bytes: ByteRange,
        ways: &[ZeroingWay],
        io: &Io,
    ) -> Result<(), VolumeError> {
        let zeroing = &self.abilities().zeroing;
        let mut is_done = ways.is_empty();
        for way in ways {
            if !zeroing.is_known(*way) {
                continue;
            }
            match self.zero_by(*way, bytes, io).await? {
                Ok(()) => {
                    is_done = true;
                    break;
                }
                Err(error) if *way != ZeroingWay::WriteZeros && is_unsupported(&error) => {
                    zeroing.forget(*way);
                }
                Err(error) => return Err(self.error(call_of(*way), error)),
            }
        }
        if !is_done {
            return Err(VolumeError::Unsupported);
        }
        Ok(())
    }

    async fn zero_by(
        &self,
        way: ZeroingWay,
        bytes: ByteRange,
        io: &Io,
    ) -> Result<io::Result<()>, VolumeError> {
        let ByteRange { offset, length } = bytes;
        loop {
            let kind = match way {
                ZeroingWay::PunchHole => FileOperationKind::PunchHole { offset, length },
                ZeroingWay::ZeroRange => FileOperationKind::ZeroRange { offset, length },
                ZeroingWay::BlockDiscard => FileOperationKind::BlockDiscard { offset, length },
                ZeroingWay::BlockZeroOut => FileOperationKind::BlockZeroOut { offset, length },
                ZeroingWay::WriteZeros => return self.write_zeros(offset, length, io).await,
            };
            match io.call(self.file.clone(), kind).await {
                Ok(_) => return Ok(Ok(())),
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
    }

    async fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        io: &Io,
    ) -> Result<io::Result<()>, VolumeError> {
        let size = in_memory(length.min(ZEROS_PER_WRITE));
        let mut zeros = bounce::allocate(size).ok_or(VolumeError::OutOfMemory)?;
        let mut done = 0;
        while done < length {
            let left = length - done;
            let range = 0..in_memory(left.min(ZEROS_PER_WRITE));
            let file = self.file.clone();
            let written = io
                .write(file, self.is_direct(), offset + done, zeros, range, false)
                .await;
            zeros = written.buffer;
            match written.result {
                Ok(count) => match self.whole_units(count.min(left), left) {
                    0 => return Ok(Err(io::ErrorKind::WriteZero.into())),
                    counted => done += counted,
                },
                Err(error) if is_interruption(&error) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }
}

fn call_of(way: ZeroingWay) -> &'static str {
    match way {
        ZeroingWay::PunchHole | ZeroingWay::ZeroRange => "fallocate",
        ZeroingWay::BlockDiscard => "ioctl BLKDISCARD",
        ZeroingWay::BlockZeroOut => "ioctl BLKZEROOUT",
        ZeroingWay::WriteZeros => "write",
    }
}
