//! Runs one [`FileOperation`] with ordinary, blocking system calls.

use std::fs::File;
use std::io;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::ReadWriteFlags;

use crate::storage::{FileCompletion, FileOperation, FileOperationKind};

/// One call moves at most this much, like in the kernel (`MAX_RW_COUNT` is a page less than 2 GiB).
pub(crate) const TRANSFER_MAX: usize = 1 << 30;

/// BLKDISCARD of linux/fs.h: `_IO(0x12, 119)`.
const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;
/// BLKZEROOUT of linux/fs.h: `_IO(0x12, 127)`.
const BLKZEROOUT: rustix::ioctl::Opcode = 0x127f;

/// Carries an operation out with blocking system calls, in this thread.
#[must_use]
pub fn carry_out(operation: FileOperation) -> FileCompletion {
    let FileOperation {
        file,
        mut kind,
        tag,
        ..
    } = operation;
    let result = loop {
        match call(&file.0, &mut kind) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    FileCompletion {
        tag,
        result,
        buffer: take_buffer(kind),
    }
}

/// What came of an [`attempt`].
#[derive(Debug)]
pub(crate) enum Attempted {
    Done(FileCompletion),
    /// It is as it was: the file's bytes have to be waited for, or the file cannot tell whether they have.
    WouldSleep(FileOperation),
}

/// Runs `operation` in this thread, unless it is a read of bytes that are not all in the page cache: of such a read
/// those are taken that are there, if the first ones are.
pub(crate) fn attempt(mut operation: FileOperation) -> Attempted {
    let FileOperationKind::Read {
        offset,
        buffer,
        start,
        end,
    } = &mut operation.kind
    else {
        return Attempted::Done(carry_out(operation));
    };
    let Ok((start, end)) = checked_range(*start, *end, buffer.len()) else {
        return Attempted::Done(carry_out(operation));
    };
    let into = &mut [io::IoSliceMut::new(&mut buffer[start..end])];
    match rustix::io::preadv2(&operation.file.0, into, *offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Attempted::Done(FileCompletion {
            tag: operation.tag,
            result: Ok(count(read)),
            buffer: take_buffer(operation.kind),
        }),
        // Whatever else is wrong shows again.
        Err(_) => Attempted::WouldSleep(operation),
    }
}

/// The buffer that an operation goes with.
pub(crate) fn take_buffer(kind: FileOperationKind) -> Option<crate::Buffer> {
    match kind {
        FileOperationKind::Read { buffer, .. } | FileOperationKind::Write { buffer, .. } => {
            Some(buffer)
        }
        _ => None,
    }
}

/// `start..end` cut to what the buffer has and one call moves, or EINVAL.
pub(crate) fn checked_range(start: usize, end: usize, len: usize) -> io::Result<(usize, usize)> {
    if start > end || end > len {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((start, end.min(start.saturating_add(TRANSFER_MAX))))
}

fn call(file: &File, kind: &mut FileOperationKind) -> io::Result<u64> {
    match kind {
        FileOperationKind::Read {
            offset,
            buffer,
            start,
            end,
        } => {
            let (start, end) = checked_range(*start, *end, buffer.len())?;
            Ok(count(rustix::io::pread(
                file,
                &mut buffer[start..end],
                *offset,
            )?))
        }
        FileOperationKind::Write {
            offset,
            buffer,
            start,
            end,
            dsync,
        } => {
            let (start, end) = checked_range(*start, *end, buffer.len())?;
            let from = &buffer[start..end];
            if *dsync {
                let from = [io::IoSlice::new(from)];
                let flags = ReadWriteFlags::DSYNC;
                return Ok(count(rustix::io::pwritev2(file, &from, *offset, flags)?));
            }
            Ok(count(rustix::io::pwrite(file, from, *offset)?))
        }
        FileOperationKind::DataSync => done(rustix::fs::fdatasync(file)),
        FileOperationKind::PunchHole { offset, length } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            done(rustix::fs::fallocate(file, flags, *offset, *length))
        }
        FileOperationKind::ZeroRange { offset, length } => {
            let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            done(rustix::fs::fallocate(file, flags, *offset, *length))
        }
        FileOperationKind::Allocate { offset, length } => done(rustix::fs::fallocate(
            file,
            FallocateFlags::empty(),
            *offset,
            *length,
        )),
        FileOperationKind::BlockDiscard { offset, length } => {
            block_ioctl::<BLKDISCARD>(file, *offset, *length)
        }
        FileOperationKind::BlockZeroOut { offset, length } => {
            block_ioctl::<BLKZEROOUT>(file, *offset, *length)
        }
        FileOperationKind::SeekData { offset } => {
            Ok(rustix::fs::seek(file, SeekFrom::Data(*offset))?)
        }
        FileOperationKind::SeekHole { offset } => {
            Ok(rustix::fs::seek(file, SeekFrom::Hole(*offset))?)
        }
    }
}

fn done(result: rustix::io::Result<()>) -> io::Result<u64> {
    Ok(result.map(|()| 0)?)
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize is at most 64 bits on Linux")
}

/// An ioctl whose argument is a pointer to offset and length in bytes.
fn block_ioctl<const OPCODE: rustix::ioctl::Opcode>(
    file: &File,
    offset: u64,
    length: u64,
) -> io::Result<u64> {
    use std::os::unix::fs::FileTypeExt;
    // These numbers mean something only to block devices.
    if !file.metadata()?.file_type().is_block_device() {
        return Err(io::Error::from_raw_os_error(libc::ENOTTY));
    }
    // SAFETY: BLKDISCARD and BLKZEROOUT read two u64 behind the pointer they get, write nothing to
    // memory, and keep no reference; `Setter` passes a pointer to its own copy of the array.
    let request = unsafe { rustix::ioctl::Setter::<OPCODE, [u64; 2]>::new([offset, length]) };
    // SAFETY: as above; the file is a block device, where the opcode has this meaning.
    done(unsafe { rustix::ioctl::ioctl(file, request) })
}
