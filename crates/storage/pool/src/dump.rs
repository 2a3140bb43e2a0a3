//! What checkpoints consist of, written to the drives: the stream, and the leaves that it names.

use std::num::NonZeroU16;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::error::{PoolError, is_full};
use crate::format::checkpoint::{PART_HEADER, PartHeader};
use crate::format::{crc, long};
use crate::leaf::Home;
use crate::log::Failure;
use crate::place::{Place, STEP};
use crate::pool::Pool;
use crate::reserve::PART;
use crate::segments::Use;
use crate::tail::Tail;

/// The stream of a checkpoint on its way to the drives.
pub struct Stream<'a> {
    pool: &'a Pool,
    io: &'a Io,
    number: u64,
    /// Content that is not written yet.
    content: Vec<u8>,
    index: u32,
    pub first: Place,
    /// Where the next part goes.
    next: Option<Place>,
    pub segments: Vec<u32>,
}

impl<'a> Stream<'a> {
    pub const fn new(pool: &'a Pool, io: &'a Io, number: u64) -> Self {
        Self {
            pool,
            io,
            number,
            content: Vec::new(),
            index: 0,
            first: Place::from_bits(0),
            next: None,
            segments: Vec::new(),
        }
    }

    pub async fn put(&mut self, bytes: &[u8], own: &mut Own) -> Result<(), PoolError> {
        self.content.extend_from_slice(bytes);
        while self.content.len() > PART - PART_HEADER {
            self.write(PART - PART_HEADER, false, own).await?;
        }
        Ok(())
    }

    pub async fn finish(&mut self, own: &mut Own) -> Result<(), PoolError> {
        self.write(self.content.len(), true, own).await
    }

    async fn write(
        &mut self,
        length: usize,
        is_last: bool,
        own: &mut Own,
    ) -> Result<(), PoolError> {
        let place = match self.next {
            Some(place) => place,
            None => {
                self.first = self.begin_segment(own).await?;
                self.first
            }
        };
        self.next = if is_last {
            None
        } else {
            let segment = self.pool.lock().state.segments.of(place);
            let next = place.plus(long(PART));
            let stays = self.pool.lock().state.segments.of(next) == segment;
            Some(if stays {
                next
            } else {
                self.begin_segment(own).await?
            })
        };
        let drive = self.pool.drive(place).expect("segments lie on drives");
        let padded = (PART_HEADER + length).next_multiple_of(self.pool.unit());
        let mut buffer = Buffer::try_allocate(padded).ok_or(PoolError::OutOfMemory)?;
        buffer[PART_HEADER..PART_HEADER + length].copy_from_slice(&self.content[..length]);
        self.content.drain(..length);
        let header = PartHeader {
            pool: self.pool.label.pool,
            checkpoint: self.number,
            index: self.index,
            length: u32::try_from(length).expect("at most 256 KiB"),
            next: self.next,
        };
        header.seal(&mut buffer);
        self.index += 1;
        let (result, _) = drive
            .write(self.io, place.offset(), buffer, 0..padded, false)
            .await;
        result.map_err(|error| drive.error("write", error))
    }

    async fn begin_segment(&mut self, own: &mut Own) -> Result<Place, PoolError> {
        let (segment, place) = begin_segment(self.pool, self.io, own, Use::Map).await?;
        self.segments.push(segment);
        Ok(place)
    }
}

/// Free segments that a checkpoint may take.
pub type Own = Vec<u32>;

/// Takes a segment for a checkpoint.
async fn begin_segment(
    pool: &Pool,
    io: &Io,
    own: &mut Own,
    used: Use,
) -> Result<(u32, Place), PoolError> {
    let mut refused = Vec::new();
    let mut last = None;
    let begun = loop {
        let found = {
            let mut inner = pool.lock();
            // One that may be written, and was not begun, does as well: recovery finds no records there.
            let found = own.pop().or_else(|| inner.state.segments.ready.pop_back());
            found.map(|segment| {
                let found = inner.state.segments.get_mut(segment);
                let before = std::mem::replace(&mut found.used, used);
                (segment, before, inner.state.segments.place(segment))
            })
        };
        let Some((segment, before, place)) = found else {
            break Err(last.unwrap_or_else(|| pool.error(Failure::NoSpace)));
        };
        let drive = pool.drive(place).expect("segments lie on drives");
        let bytes = u64::from(pool.label.segment_bytes);
        match drive.reserve(io, place.offset(), bytes).await {
            Ok(()) => break Ok((segment, place)),
            Err(error) => {
                refused.push((segment, before));
                let is_full = is_full(&error);
                let error = drive.error("fallocate", error);
                // Where the file system below is full, another segment may have its space already.
                if !is_full {
                    break Err(error);
                }
                last = Some(error);
            }
        }
    };
    let mut inner = pool.lock();
    for (segment, before) in refused {
        match before {
            Use::Ready => inner.state.segments.give_back(segment),
            _ => inner.state.segments.release(segment),
        }
    }
    begun
}

/// Leaves on their way to the drives.
pub struct Leaves<'a> {
    pool: &'a Pool,
    io: &'a Io,
    /// Number of the checkpoint.
    number: u64,
    /// Behind what is not written yet.
    pub tail: Option<Tail>,
    /// Leaves that are not written yet.
    content: Vec<u8>,
    /// The place that they go to.
    begin: Place,
    /// Segments that were begun for them.
    pub segments: Vec<u32>,
}

impl<'a> Leaves<'a> {
    pub const fn new(pool: &'a Pool, io: &'a Io, number: u64, tail: Option<Tail>) -> Self {
        Self {
            pool,
            io,
            number,
            begin: match tail {
                Some(tail) => tail.place,
                None => Place::from_bits(0),
            },
            tail,
            content: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// Puts a leaf behind the others. Returns where it will be.
    pub async fn put(&mut self, bytes: &[u8], own: &mut Own) -> Result<Home, PoolError> {
        let length = u16::try_from(bytes.len()).ok().and_then(NonZeroU16::new);
        let length = length.expect("a leaf is at most 10 KiB");
        let padded = bytes.len().next_multiple_of(STEP);
        let mut tail = match self.tail {
            Some(tail) if padded <= tail.left => tail,
            Some(_) | None => {
                self.flush().await?;
                self.begin_segment(own).await?
            }
        };
        let home = Home {
            place: tail.place,
            crc: crc(bytes),
            length,
        };
        self.content.extend_from_slice(bytes);
        self.content
            .resize(self.content.len() + padded - bytes.len(), 0);
        tail.left -= padded;
        if tail.left > 0 {
            tail.place = tail.place.plus(long(padded));
        }
        self.tail = Some(tail);
        if self.content.len() >= PART {
            self.flush().await?;
        }
        Ok(home)
    }

    /// Writes what is not written yet. The next leaf goes behind it.
    pub async fn flush(&mut self) -> Result<(), PoolError> {
        if self.content.is_empty() {
            return Ok(());
        }
        let padded = self.content.len().next_multiple_of(self.pool.unit());
        let mut buffer = Buffer::try_allocate(padded).ok_or(PoolError::OutOfMemory)?;
        buffer[..self.content.len()].copy_from_slice(&self.content);
        let drive = self.pool.drive(self.begin).expect("segments lie on drives");
        let (result, _) = drive
            .write(self.io, self.begin.offset(), buffer, 0..padded, false)
            .await;
        result.map_err(|error| drive.error("write", error))?;
        if let Some(tail) = &mut self.tail {
            // What was written is not touched any more.
            let skipped = padded - self.content.len();
            tail.left = tail.left.saturating_sub(skipped);
            if tail.left > 0 {
                tail.place = self.begin.plus(long(padded));
                self.begin = tail.place;
            }
        }
        self.content.clear();
        Ok(())
    }

    async fn begin_segment(&mut self, own: &mut Own) -> Result<Tail, PoolError> {
        let (segment, place) = begin_segment(self.pool, self.io, own, Use::Leaves).await?;
        self.segments.push(segment);
        let unit = self.pool.unit();
        let mut header = Buffer::try_allocate(unit).ok_or(PoolError::OutOfMemory)?;
        PartHeader {
            pool: self.pool.label.pool,
            checkpoint: self.number,
            index: PartHeader::LEAVES,
            length: 0,
            next: None,
        }
        .seal(&mut header);
        // A generation that no other use of the segment for leaves has.
        self.pool.lock().state.segments.get_mut(segment).generation = self.number;
        let drive = self.pool.drive(place).expect("segments lie on drives");
        let (result, _) = drive
            .write(self.io, place.offset(), header, 0..unit, false)
            .await;
        result.map_err(|error| drive.error("write", error))?;
        self.begin = place.plus(long(unit));
        Ok(Tail {
            segment,
            place: self.begin,
            left: usize::try_from(self.pool.label.segment_bytes).expect("32 bits fit") - unit,
        })
    }
}
