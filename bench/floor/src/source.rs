//! Where the data of answers comes from, and where that of requests goes: nowhere, or a file.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::path::Path;

use longshore_reactor::Buffer;
use rustix::io::{ReadWriteFlags, preadv2};

/// Zeros that all answers share.
pub static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// See the module documentation.
#[derive(Debug)]
pub struct Source {
    file: Option<Positions>,
}

/// A file that is read and written from its beginning to its end, and again.
#[derive(Debug)]
struct Positions {
    file: File,
    length: u64,
    read: u64,
    written: u64,
}

impl Source {
    /// Of a file that is in the page cache, or of nothing.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let length = file.metadata()?.len();
            Ok(Positions {
                file,
                length,
                read: 0,
                written: 0,
            })
        };
        let file: io::Result<Option<Positions>> = path.map(open).transpose();
        Ok(Self { file: file? })
    }

    /// Whether there is something to read and write.
    pub fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reads what comes next in the file.
    pub fn read(&mut self, place: &mut [u8]) -> io::Result<()> {
        let Some(positions) = &mut self.file else {
            return Ok(());
        };
        let at = step(&mut positions.read, positions.length, place.len())?;
        let mut slices = [IoSliceMut::new(place)];
        let read = preadv2(&positions.file, &mut slices, at, ReadWriteFlags::NOWAIT);
        match read {
            Ok(n) if n == place.len() => Ok(()),
            // It is not in the cache yet, or not all of it.
            _ => positions.file.read_exact_at(place, at),
        }
    }

    /// Writes what comes next in the file.
    pub fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(positions) = &mut self.file else {
            return Ok(());
        };
        let at = step(&mut positions.written, positions.length, data.len())?;
        positions.file.write_all_at(data, at)
    }
}

/// The place of the next `bytes`, from which the position goes on.
fn step(position: &mut u64, length: u64, bytes: usize) -> io::Result<u64> {
    let bytes = u64::try_from(bytes).expect("memory has fewer than 2^64 bytes");
    if bytes > length {
        return Err(io::Error::other(
            "the file is smaller than one request: give a larger one by --file",
        ));
    }
    if *position + bytes > length {
        *position = 0;
    }
    let at = *position;
    *position += bytes;
    Ok(at)
}

/// Answers whose data was read, and not sent yet.
#[derive(Debug, Default)]
pub struct Loaded {
    buffer: Option<Buffer>,
    /// How many answers have their data in the buffer.
    count: usize,
    /// How many of them are sent.
    sent: usize,
}

/// Data that is read before it is sent, where answers are small.
const LOADED_BYTES: usize = 256 << 10;

impl Loaded {
    /// Reads the data of the next answers, of which `owed` are due, if none is left.
    pub fn fill(&mut self, source: &mut Source, payload: usize, owed: usize) -> io::Result<()> {
        if self.sent < self.count || owed == 0 {
            return Ok(());
        }
        let most = (LOADED_BYTES / payload).max(1);
        let buffer = self
            .buffer
            .get_or_insert_with(|| Buffer::allocate(most * payload));
        let count = owed.min(most);
        for place in buffer[..count * payload].chunks_exact_mut(payload) {
            source.read(place)?;
        }
        (self.count, self.sent) = (count, 0);
        Ok(())
    }

    /// How many answers can be sent.
    pub fn left(&self) -> usize {
        self.count - self.sent
    }

    /// The data of the answer after so many others.
    pub fn payload(&self, after: usize, payload: usize) -> &[u8] {
        let start = (self.sent + after) * payload;
        let buffer = self.buffer.as_deref().unwrap_or_default();
        &buffer[start..start + payload]
    }

    /// So many were sent.
    pub fn advance(&mut self, answers: usize) {
        self.sent += answers;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_start_again_where_the_next_piece_would_not_fit() {
        let mut position = 0;
        let places: Vec<u64> = (0..4)
            .map(|_| step(&mut position, 10, 4).unwrap())
            .collect();
        assert_eq!(places, [0, 4, 0, 4]);
        assert!(step(&mut position, 10, 11).is_err());
    }
}
