//! File operations in the kernel, with their files and buffers.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{opcode, squeue, types};

use super::owner::{Owner, index};
use crate::buffer::Buffer;
use crate::file_call::{checked_range, take_buffer};
use crate::storage::{FileCompletion, FileOperation, FileOperationKind};

/// Operations on files, indexed by the slot in their user data.
#[derive(Debug, Default)]
pub(super) struct Files {
    slots: Vec<Option<FileOperation>>,
    free: Vec<u32>,
}

/// What became of an operation that was to start.
pub(super) enum Started {
    /// It is kept, and this entry has it done.
    Entry(squeue::Entry),
    /// The ring has no such operation.
    NotHere(FileOperation),
}

impl Files {
    /// Keeps the operation and returns the entry that has it done; gives it back if the ring has no
    /// such operation. `registered` tells where the ring knows the buffer from of an operation on an O_DIRECT
    /// file that moves so many bytes.
    pub(super) fn start(
        &mut self,
        operation: FileOperation,
        registered: impl FnOnce(&mut Buffer, usize) -> Option<u16>,
    ) -> Started {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("memory for 2^32 operations does not exist")
        });
        let place = &mut self.slots[index(slot)];
        assert!(
            place.is_none(),
            "the kernel works on no operation in a free slot"
        );
        let kept = place.insert(operation);
        if let Some(entry) = entry_for(kept, registered) {
            return Started::Entry(entry.user_data(Owner::File { slot }.to_user_data()));
        }
        self.free.push(slot);
        Started::NotHere(self.slots[index(slot)].take().expect("inserted above"))
    }

    /// The entry of an operation that must be submitted again.
    pub(super) fn entry_again(
        &mut self,
        slot: u32,
        registered: impl FnOnce(&mut Buffer, usize) -> Option<u16>,
    ) -> Option<squeue::Entry> {
        let operation = self.slots.get_mut(index(slot))?.as_mut()?;
        Some(entry_for(operation, registered)?.user_data(Owner::File { slot }.to_user_data()))
    }

    /// Ends an operation: the kernel has let go of it.
    pub(super) fn finish(&mut self, slot: u32, result: i32) -> Option<FileCompletion> {
        let operation = self.slots.get_mut(index(slot))?.take()?;
        self.free.push(slot);
        let result =
            u64::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()));
        Some(FileCompletion {
            tag: operation.tag,
            result,
            buffer: take_buffer(operation.kind),
        })
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Never frees what the kernel may still use.
    pub(super) fn leak(&mut self) {
        for operation in self.slots.drain(..).flatten() {
            std::mem::forget(operation);
        }
        self.free.clear();
    }
}

/// `None`: the ring cannot do it, or it is wrong in a way that a helper reports.
///
/// The entry points into the operation's buffer, whose memory stays where it is when the operation
/// is moved.
fn entry_for(
    operation: &mut FileOperation,
    registered: impl FnOnce(&mut Buffer, usize) -> Option<u16>,
) -> Option<squeue::Entry> {
    let fd = types::Fd(operation.file.0.as_raw_fd());
    let is_direct = operation.is_direct;
    Some(match &mut operation.kind {
        FileOperationKind::Read {
            offset,
            buffer,
            start,
            end,
        } => {
            let (start, end) = checked_range(*start, *end, buffer.len()).ok()?;
            i64::try_from(*offset).ok()?; // To the ring -1 is the file's own position.
            let index = if is_direct {
                registered(buffer, end - start)
            } else {
                None
            };
            let into = &mut buffer[start..end];
            let len = u32::try_from(into.len()).ok()?;
            let into = into.as_mut_ptr();
            match index {
                Some(index) => opcode::ReadFixed::new(fd, into, len, index)
                    .offset(*offset)
                    .build(),
                None => opcode::Read::new(fd, into, len).offset(*offset).build(),
            }
        }
        FileOperationKind::Write {
            offset,
            buffer,
            start,
            end,
            dsync,
        } => {
            let (start, end) = checked_range(*start, *end, buffer.len()).ok()?;
            i64::try_from(*offset).ok()?;
            let index = if is_direct {
                registered(buffer, end - start)
            } else {
                None
            };
            let from = &buffer[start..end];
            let len = u32::try_from(from.len()).ok()?;
            let from = from.as_ptr();
            let flags = if *dsync { libc::RWF_DSYNC } else { 0 };
            match index {
                Some(index) => opcode::WriteFixed::new(fd, from, len, index)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Write::new(fd, from, len)
                    .offset(*offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        FileOperationKind::DataSync => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        FileOperationKind::PunchHole { offset, length } => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(fd, *length)
                .offset(*offset)
                .mode(mode)
                .build()
        }
        FileOperationKind::ZeroRange { offset, length } => {
            let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(fd, *length)
                .offset(*offset)
                .mode(mode)
                .build()
        }
        FileOperationKind::Allocate { offset, length } => {
            opcode::Fallocate::new(fd, *length).offset(*offset).build()
        }
        FileOperationKind::BlockDiscard { .. }
        | FileOperationKind::BlockZeroOut { .. }
        | FileOperationKind::SeekData { .. }
        | FileOperationKind::SeekHole { .. } => return None,
    })
}
