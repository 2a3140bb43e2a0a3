//! Freeing and zeroing ranges: the ways there are, in order of preference.
//!
//! A way that the object turns out not to know (EOPNOTSUPP and its relatives) is not tried again
//! while the volume is open; the last way of a list, writing zeros, always works.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::{FileCompletion, FileOperationKind, Storage};
use rustix::io::Errno;

use super::{Medium, bounce, done, in_memory, is_errno, is_interruption, out_of_memory, step};
use crate::{Durability, Operation, Progress, Request};

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

    fn ways(&self, operation: Operation) -> &'static [ZeroingWay] {
        match operation {
            Operation::Unmap { .. } => self.unmap,
            Operation::WriteZeroes {
                may_unmap: true, ..
            } => self.zero_may_unmap,
            _ => self.zero,
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
    /// Takes the way with number `first` of the operation's list, or the next one that is known.
    pub(super) fn zero_by(
        &self,
        first: u8,
        request: &mut Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        let zeroing = &self.abilities().zeroing;
        let ways = zeroing.ways(request.operation);
        let next = ways
            .iter()
            .zip(0_u8..)
            .skip(usize::from(first))
            .find(|(way, _)| zeroing.is_known(**way));
        let Some((way, number)) = next else {
            return if ways.is_empty() {
                done()
            } else {
                Progress::Done(Err(crate::VolumeError::Unsupported))
            };
        };
        request.progress.step = step::ZEROING + number;
        request.progress.done_bytes = 0;
        self.submit_zeroing(*way, None, request, storage)
    }

    fn submit_zeroing(
        &self,
        way: ZeroingWay,
        zeros: Option<Buffer>,
        request: &mut Request,
        storage: &mut dyn Storage,
    ) -> Progress {
        let (offset, length) = range(request.operation);
        let kind = match way {
            ZeroingWay::PunchHole => FileOperationKind::PunchHole { offset, length },
            ZeroingWay::ZeroRange => FileOperationKind::ZeroRange { offset, length },
            ZeroingWay::BlockDiscard => FileOperationKind::BlockDiscard { offset, length },
            ZeroingWay::BlockZeroOut => FileOperationKind::BlockZeroOut { offset, length },
            ZeroingWay::WriteZeros => {
                let done = request.progress.done_bytes;
                let end = in_memory((length - done).min(ZEROS_PER_WRITE));
                let Some(buffer) = zeros.or_else(|| bounce::allocate(end)) else {
                    return out_of_memory();
                };
                FileOperationKind::Write {
                    offset: offset + done,
                    buffer,
                    start: 0,
                    end,
                    dsync: false,
                }
            }
        };
        self.submit(&self.file, kind, request, storage)
    }

    pub(super) fn after_zeroing(
        &self,
        request: &mut Request,
        completion: FileCompletion,
        storage: &mut dyn Storage,
    ) -> Progress {
        let number = request.progress.step - step::ZEROING;
        let way = self.abilities().zeroing.ways(request.operation)[usize::from(number)];
        let (_, length) = range(request.operation);
        match completion.result {
            Ok(written) if way == ZeroingWay::WriteZeros => {
                let left = length - request.progress.done_bytes;
                let counted = self.whole_units(written.min(left), left);
                if counted == 0 {
                    return self.failed("write", io::ErrorKind::WriteZero.into());
                }
                request.progress.done_bytes += counted;
                if counted == left {
                    return self.zeroed(request, storage);
                }
                self.submit_zeroing(way, completion.buffer, request, storage)
            }
            Ok(_) => self.zeroed(request, storage),
            Err(error) if is_interruption(&error) => {
                self.submit_zeroing(way, completion.buffer, request, storage)
            }
            Err(error) if way != ZeroingWay::WriteZeros && is_unsupported(&error) => {
                self.abilities().zeroing.forget(way);
                self.zero_by(number + 1, request, storage)
            }
            Err(error) => self.failed(call_of(way), error),
        }
    }

    fn zeroed(&self, request: &mut Request, storage: &mut dyn Storage) -> Progress {
        match request.operation {
            Operation::WriteZeroes {
                durability: Durability::Durable,
                ..
            } if self.abilities().syncs => self.submit_sync(request, storage),
            _ => done(),
        }
    }
}

fn range(operation: Operation) -> (u64, u64) {
    match operation {
        Operation::Unmap { offset, length } | Operation::WriteZeroes { offset, length, .. } => {
            (offset.0, length)
        }
        _ => unreachable!("only unmap and write zeroes take these ways"),
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
