//! Files and devices that a pool lies on.

use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use longshore_reactor::buffer::Buffer;
use longshore_reactor::storage::{FileHandle, FileOperationKind};
use longshore_volume::Io;
use rustix::io::Errno;

use crate::error::PoolError;
use crate::format::{long, short};

/// A file or device, as a pool uses it: a drive, or one of the two sides of a mirror.
#[derive(Clone, Debug)]
pub struct Side {
    pub file: FileHandle,
    /// Where it is, for messages.
    pub path: PathBuf,
    /// It is open with O_DIRECT.
    pub is_direct: bool,
    /// Bytes that positions and lengths of reads are multiples of: 512 or 4096.
    pub align: usize,
    pub bytes: u64,
    /// Space is reserved before it is written.
    pub reserves: bool,
}

impl Side {
    /// Fills `buffer[range]` with what lies there.
    pub async fn read(
        &self,
        io: &Io,
        offset: u64,
        mut buffer: Buffer,
        range: Range<usize>,
    ) -> (io::Result<()>, Buffer) {
        let mut done = 0;
        while done < range.len() {
            let rest = range.start + done..range.end;
            let at = offset + long(done);
            let file = self.file.clone();
            let read = io.read(file, self.is_direct, at, buffer, rest).await;
            buffer = read.buffer;
            match read.result {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buffer),
                Ok(moved) => done += short(moved),
                Err(error) if is_interruption(&error) => {}
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    /// Reads so many bytes into a buffer of their own.
    pub async fn read_new(&self, io: &Io, offset: u64, length: usize) -> io::Result<Buffer> {
        let buffer = Buffer::try_allocate(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let (result, buffer) = self.read(io, offset, buffer, 0..length).await;
        result.map(|()| buffer)
    }

    /// Writes `buffer[range]`. `durable`: it is on the medium when this ends.
    pub async fn write(
        &self,
        io: &Io,
        offset: u64,
        mut buffer: Buffer,
        range: Range<usize>,
        durable: bool,
    ) -> (io::Result<()>, Buffer) {
        let mut done = 0;
        while done < range.len() {
            let rest = range.start + done..range.end;
            let at = offset + long(done);
            let file = self.file.clone();
            let written = io.write(file, self.is_direct, at, buffer, rest, durable);
            let written = written.await;
            buffer = written.buffer;
            match written.result {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
                Ok(moved) => done += short(moved),
                Err(error) if is_interruption(&error) => {}
                Err(error) => return (Err(error), buffer),
            }
        }
        (Ok(()), buffer)
    }

    /// Brings everything that was written to the medium.
    pub async fn sync(&self, io: &Io) -> io::Result<()> {
        loop {
            match io
                .call(self.file.clone(), FileOperationKind::DataSync)
                .await
            {
                Err(error) if is_interruption(&error) => {}
                result => return result.map(drop),
            }
        }
    }

    /// Reserves space, so that writing there does not find the file system full.
    pub async fn reserve(&self, io: &Io, offset: u64, length: u64) -> io::Result<()> {
        if !self.reserves {
            return Ok(());
        }
        loop {
            let kind = FileOperationKind::Allocate { offset, length };
            match io.call(self.file.clone(), kind).await {
                Ok(_) => return Ok(()),
                Err(error) if is_interruption(&error) => {}
                Err(error) if is_unsupported(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it is what lies at a path now. Looks at the file system.
    pub fn is_at(&self, path: &Path) -> bool {
        let place = |found: std::fs::Metadata| (found.dev(), found.ino(), found.rdev());
        let own = self.file.0.metadata().map(place);
        let there = std::fs::metadata(path).map(place);
        matches!((own, there), (Ok(own), Ok(there)) if own == there)
    }

    pub fn error(&self, operation: &'static str, source: io::Error) -> PoolError {
        io_error(operation, &self.path, source)
    }
}

/// An error of the operating system.
pub fn io_error(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> PoolError {
    PoolError::Io {
        operation,
        path: path.to_owned(),
        source: source.into(),
    }
}

fn is_interruption(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::INTR | Errno::AGAIN)
    )
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(Errno::from_raw_os_error),
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)
    )
}
