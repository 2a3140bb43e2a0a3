//! Freeing and zeroing ranges: the ways there are, in order of preference.
//!
//! A way that the object turns out not to know (EOPNOTSUPP and its relatives) is not tried again
//! while the volume is open; the last way of a list, writing zeros, always works.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use longshore_reactor::storage::FileOperationKind;
use rustix::io::Errno;

use super::{Medium, bounce, in_memory, is_errno, is_interruption};
use crate::{ByteRange, Io, VolumeError};

/// Zeros that one write puts down. Bounded, because each such request holds that much memory.
const ZEROS_PER_WRITE: u64 = 256 * 1024;

/// One way to free or zero a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ZeroingWay {
    /// Frees; reads as zeros.
    PunchHole = 1,
    /// Reads as zeros, stays allocated.
    ZeroRange = 2,
    /// Frees; what it reads as is the device's affair.
    BlockDiscard = 4,
    /// Reads as zeros, stays allocated.
    BlockZeroOut = 8,
    /// Writes zeros. Known everywhere.
    WriteZeros = 16,
}

/// How an object frees and zeroes.
#[derive(Debug)]
pub(crate) struct Zeroing {
    /// For `Unmap`.
    pub(crate) unmap: &'static [ZeroingWay],
    /// For `WriteZeroes` that may free.
    pub(crate) zero_may_unmap: &'static [ZeroingWay],
    /// For `WriteZeroes` that must leave space allocated.
    pub(crate) zero: &'static [ZeroingWay],
    /// Bits of the ways that turned out not to be supported.
    unsupported: AtomicU8,
}

impl Zeroing {
    /// Ranges of a regular file.
    pub(crate) fn file() -> Zeroing {
        use ZeroingWay::{PunchHole, WriteZeros, ZeroRange};
        Zeroing::new(
            &[PunchHole, ZeroRange, WriteZeros],
            &[PunchHole, ZeroRange, WriteZeros],
            &[ZeroRange, WriteZeros],
        )
    }

    /// Ranges of a device that zeroes what it frees.
    pub(crate) fn zeroing_device() -> Zeroing {
        use ZeroingWay::{BlockZeroOut, PunchHole, WriteZeros};
        Zeroing::new(
            &[PunchHole, BlockZeroOut, WriteZeros],
            &[PunchHole, BlockZeroOut, WriteZeros],
            &[BlockZeroOut, WriteZeros],
        )
    }

    /// Ranges of a device whose freed blocks read as anything.
    pub(crate) fn discarding_device() -> Zeroing {
        use ZeroingWay::{BlockDiscard, BlockZeroOut, WriteZeros};
        Zeroing::new(
            &[BlockDiscard],
            &[BlockZeroOut, WriteZeros],
            &[BlockZeroOut, WriteZeros],
        )
    }

    /// An object that always reads as zeros.
    pub(crate) fn always_zero() -> Zeroing {
        Zeroing::new(&[], &[], &[])
    }

    fn new(
        unmap: &'static [ZeroingWay],
        zero_may_unmap: &'static [ZeroingWay],
        zero: &'static [ZeroingWay],
    ) -> Zeroing {
        Zeroing {
            unmap,
            zero_may_unmap,
            zero,
            unsupported: AtomicU8::new(0),
        }
    }

    /// Whether every way to unmap leaves zeros.
    pub(crate) fn unmapped_reads_zeros(&self) -> bool {
        !self.unmap.contains(&ZeroingWay::BlockDiscard)
    }

    /// For `WriteZeroes`.
    pub(super) fn ways_to_zero(&self, may_unmap: bool) -> &'static [ZeroingWay] {
        if may_unmap {
            self.zero_may_unmap
        } else {
            self.zero
        }
    }

    fn is_known(&self, way: ZeroingWay) -> bool {
        self.unsupported.load(Ordering::Relaxed) & way as u8 == 0
    }

    fn forget(&self, way: ZeroingWay) {
        self.unsupported.fetch_or(way as u8, Ordering::Relaxed);
    }
}

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

/// File systems and devices say it in different ways.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOTTY, Errno::NODEV]
        .into_iter()
        .any(|errno| is_errno(error, errno))
}
