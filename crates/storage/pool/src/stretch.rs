//! A part of a segment, read at once for cleaning.

use std::borrow::Cow;
use std::cell::RefCell;

use futures_util::stream::{self, StreamExt};
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::format::long;
use crate::place::Place;
use crate::pool::Pool;

/// Bytes of a stretch: several of the largest records. Segments of tests have several stretches, too.
pub const STRETCH: usize = if cfg!(test) { 160 << 10 } else { 4 << 20 };

/// Bytes that are read with one request, and requests under way.
const READ: usize = if cfg!(test) { 24 << 10 } else { 512 << 10 };
const READS_MAX: usize = 4;

/// See the module documentation.
pub struct Stretch<'a> {
    first: Place,
    /// Each is [`READ`] long, but for the last; with the bytes before those that were asked for.
    pieces: Vec<Option<(Buffer, usize)>>,
    length: usize,
    stock: &'a Stock,
}

impl Drop for Stretch<'_> {
    fn drop(&mut self) {
        let buffers = self.pieces.drain(..).flatten();
        self.stock
            .0
            .borrow_mut()
            .extend(buffers.map(|(buffer, _)| buffer));
    }
}

/// Memory of stretches that are not needed any more, for the next ones.
#[derive(Debug, Default)]
pub struct Stock(RefCell<Vec<Buffer>>);

impl Stock {
    /// A buffer that was used before, if there is one.
    fn take(&self) -> Option<Buffer> {
        self.0.borrow_mut().pop()
    }
}

impl<'a> Stretch<'a> {
    /// Reads so many bytes. Pieces that cannot be read are left out.
    pub async fn read(pool: &Pool, io: &Io, stock: &'a Stock, first: Place, length: usize) -> Self {
        let reads = (0..length).step_by(READ).map(|at| async move {
            let place = first.plus(long(at));
            let buffer = stock.take();
            let read = pool.read_bytes_to(io, place, READ.min(length - at), buffer);
            read.await.ok()
        });
        Self {
            first,
            pieces: stream::iter(reads).buffered(READS_MAX).collect().await,
            length,
            stock,
        }
    }

    /// The place of its first byte.
    pub const fn first(&self) -> Place {
        self.first
    }

    /// The place behind its last byte.
    pub fn end(&self) -> Place {
        self.first.plus(long(self.length))
    }

    /// Bytes of it. `None`: some lie outside, or could not be read.
    pub fn bytes(&self, place: Place, length: usize) -> Option<Cow<'_, [u8]>> {
        let start = place.offset().checked_sub(self.first.offset())?;
        let start = usize::try_from(start).ok()?;
        let end = start.checked_add(length)?;
        if place.drive() != self.first.drive() || end > self.length {
            return None;
        }
        let part = |piece: usize, from: usize, to: usize| {
            let (buffer, skip) = self.pieces.get(piece)?.as_ref()?;
            buffer.get(skip + from..skip + to)
        };
        let (piece, from) = (start / READ, start % READ);
        if from + length <= READ {
            return part(piece, from, from + length).map(Cow::Borrowed);
        }
        let mut bytes = Vec::with_capacity(length);
        let mut at = start;
        while at < end {
            let to = (at / READ + 1) * READ;
            let to = to.min(end);
            bytes.extend_from_slice(part(at / READ, at % READ, at % READ + (to - at))?);
            at = to;
        }
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_pieces_are_put_together_and_others_are_not_there() {
        let length = 3 * READ + 96;
        let byte = |at: usize| u8::try_from(at % 251).expect("below 251");
        let piece = |number: usize| {
            let bytes = READ.min(length - number * READ);
            // As the drive's units have it, some lie before.
            let skip = 7;
            let mut buffer = Buffer::allocate(skip + bytes);
            for at in 0..bytes {
                buffer[skip + at] = byte(number * READ + at);
            }
            (buffer, skip)
        };
        let stock = Stock::default();
        let mut stretch = Stretch {
            first: Place::new(1, 1 << 20),
            pieces: (0..4).map(|number| Some(piece(number))).collect(),
            length,
            stock: &stock,
        };
        let at = |offset: usize| stretch.first.plus(long(offset));
        for (from, count) in [(0, 10), (READ - 16, 20), (READ, READ), (16, length - 16)] {
            let found = stretch.bytes(at(from), count).expect("it is there");
            let expected: Vec<u8> = (from..from + count).map(byte).collect();
            assert_eq!(*found, *expected, "{from}, {count}");
        }
        assert_eq!(stretch.bytes(at(length - 16), 17), None, "behind the end");
        assert_eq!(stretch.bytes(Place::new(1, (1 << 20) - 16), 8), None);
        assert_eq!(stretch.bytes(Place::new(0, 1 << 20), 8), None);
        stretch.pieces[1] = None;
        let at = |offset: usize| stretch.first.plus(long(offset));
        assert_eq!(stretch.bytes(at(READ - 16), 20), None, "not read");
        assert!(stretch.bytes(at(2 * READ), 10).is_some());
    }
}
