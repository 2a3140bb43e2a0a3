//! Mirrors: data that is damaged on one side is written anew from the other.
//!
//! What a map refers to does not change where it lies: it can be written again at any time, as long as its segment is
//! pinned. The bytes around it, in the same sectors, stay as they are on that side.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::drive::Drive;
use crate::format::{crc, long, short};
use crate::place::{Content, Place, Stored};
use crate::pool::Pool;
use crate::side::Side;

/// Bytes that are read at once.
const SPAN_MAX: u64 = 512 << 10;

/// Bytes between chunks that are read along with them.
const GAP_MAX: u64 = 16 << 10;

/// What a look at both sides found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// There is one side alone.
    NoMirror,
    /// Both sides have these bytes.
    Intact(Vec<u8>),
    /// One side had them; the other one was written anew, or left out.
    Copied(Vec<u8>),
    /// Both sides have something else.
    Lost,
    /// No side has them, and one could not be read now.
    Unreadable,
}

/// Bytes of a side, in whole units; they begin behind those to be skipped.
struct Span {
    data: Buffer,
    skip: usize,
    /// Where on the side it begins.
    begin: u64,
}

impl Span {
    async fn read(
        io: &Io,
        drive: &Drive,
        side: &Side,
        place: Place,
        length: usize,
    ) -> std::io::Result<Self> {
        let unit = long(drive.align);
        let begin = place.offset() / unit * unit;
        let end = (place.offset() + long(length)).next_multiple_of(unit);
        let data = side.read_new(io, begin, short(end - begin)).await?;
        Ok(Self {
            data,
            skip: short(place.offset() - begin),
            begin,
        })
    }

    fn bytes(&self, length: usize) -> &[u8] {
        &self.data[self.skip..self.skip + length]
    }
}

impl Pool {
    /// Whether there is a second copy of what lies there, on a side that is current.
    pub(crate) fn has_two(&self, place: Place) -> bool {
        self.drive(place).is_some_and(|drive| drive.has_two())
    }

    /// Compares bytes that a map refers to with their checksum, on both sides, and writes them anew where they are
    /// damaged. The caller has pinned their segment.
    pub(crate) async fn mend(&self, io: &Io, place: Place, length: usize, sum: u32) -> Mended {
        if !self.has_two(place) {
            return Mended::NoMirror;
        }
        // Neighbours in the same sectors are mended one after the other.
        let _mending = self.mending.lock().await;
        let Some(drive) = self.drive(place) else {
            return Mended::NoMirror;
        };
        let mut good: Option<Span> = None;
        let mut bad: Vec<(u8, Arc<Side>, Option<Span>)> = Vec::new();
        for (number, side) in drive.current() {
            match Span::read(io, &drive, side, place, length).await {
                Ok(span) if crc(span.bytes(length)) == sum => good = Some(span),
                Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {
                    return Mended::Unreadable;
                }
                read => bad.push((number, side.clone(), read.ok())),
            }
        }
        let Some(good) = good else {
            let is_read = bad.iter().all(|(_, _, span)| span.is_some());
            return match is_read && !bad.is_empty() {
                true => Mended::Lost,
                false => Mended::Unreadable,
            };
        };
        let bytes = good.bytes(length).to_vec();
        if bad.is_empty() {
            return Mended::Intact(bytes);
        }
        if self.is_read_only {
            return Mended::Copied(bytes);
        }
        for (number, side, there) in bad {
            match rewrite(io, &drive, &side, place, &bytes, there, &good).await {
                Ok(()) => {
                    let count = drive.note_mended(number);
                    // Where much is damaged, there is no line for each place.
                    if count.is_power_of_two() {
                        tracing::warn!(
                            pool = self.name(),
                            path = %side.path.display(),
                            offset = place.offset(),
                            count,
                            "damaged data was written anew from the other side of the mirror"
                        );
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => {}
                Err(error) => {
                    drive.fail(number, "write of damaged data", &error);
                }
            }
        }
        Mended::Copied(bytes)
    }

    /// How many of some chunks, sorted by their places, are read at once: those of one segment that lie near each other.
    pub(crate) fn run_length<'a>(&self, chunks: impl Iterator<Item = &'a Stored>) -> usize {
        let inner = self.lock();
        let segments = &inner.state.segments;
        let mut chunks = chunks.peekable();
        let Some(begin) = chunks.peek().map(|first| first.place) else {
            return 0;
        };
        let mut end = begin.offset();
        let fits = |chunk: &&Stored| {
            let place = chunk.place;
            let next = place.offset() + u64::from(chunk.length);
            let is_near = segments.of(place) == segments.of(begin)
                && place.offset() <= end + GAP_MAX
                && next - begin.offset() <= SPAN_MAX;
            end = end.max(next);
            is_near
        };
        chunks.take_while(fits).count().max(1)
    }

    /// Those of some chunks that are damaged on any side. They lie in one segment, near each other, and are sorted.
    pub(crate) async fn damaged(&self, io: &Io, run: &[Stored]) -> Vec<usize> {
        let end = |stored: &Stored| stored.place.offset() + u64::from(stored.length);
        let Some((first, end)) = run.first().zip(run.iter().map(end).max()) else {
            return Vec::new();
        };
        let begin = first.place;
        let Some(drive) = self.drive(begin) else {
            return (0..run.len()).collect();
        };
        let mut damaged = vec![false; run.len()];
        for (_, side) in drive.current() {
            let span = Span::read(io, &drive, side, begin, short(end - begin.offset())).await;
            for (chunk, damaged) in run.iter().zip(&mut damaged) {
                let at = short(chunk.place.offset() - begin.offset());
                let length = usize::from(chunk.length);
                *damaged |= !span.as_ref().is_ok_and(|span| {
                    let start = span.skip + at;
                    crc(&span.data[start..start + length]) == chunk.crc
                });
            }
        }
        let numbered = damaged.into_iter().enumerate();
        numbered
            .filter_map(|(number, is)| is.then_some(number))
            .collect()
    }

    /// Compares both sides of mirrors where these segments have data, while nobody else uses the pool.
    pub(crate) async fn mend_segments(&self, io: &Io, segments: &[u32]) {
        let present = self.members.present();
        if !present.each().any(|(_, drive)| drive.has_two()) {
            return;
        }
        let segments: HashSet<u32> = segments.iter().copied().collect();
        let chunks: Vec<Stored> = {
            let inner = self.lock();
            let state = &inner.state;
            let mut chunks: BTreeMap<Place, Stored> = BTreeMap::new();
            // What was written since the checkpoint has changed leaves, which are in memory.
            for found in state.catalog.layers.values() {
                for (_, slot, leaf) in found.map.resident() {
                    for entry in leaf.entries().iter().filter(|_| slot.is_dirty()) {
                        if let Content::Data(stored) = entry.content()
                            && let Some(segment) = state.segments.of(stored.place)
                            && segments.contains(&segment)
                            && self.has_two(stored.place)
                        {
                            chunks.insert(stored.place, stored);
                        }
                    }
                }
            }
            chunks.into_values().collect()
        };
        #[cfg(test)]
        if crate::testing::has_planted(crate::testing::Planted::MendsNothing) {
            return;
        }
        let mut rest = &chunks[..];
        while !rest.is_empty() {
            let (run, more) = rest.split_at(self.run_length(rest.iter()));
            rest = more;
            for number in self.damaged(io, run).await {
                let chunk = run[number];
                self.mend(io, chunk.place, usize::from(chunk.length), chunk.crc)
                    .await;
            }
        }
    }
}

/// Writes bytes to a side, and looks whether they are there. `there`: what the side has; `good`: what the other one has.
async fn rewrite(
    io: &Io,
    drive: &Drive,
    side: &Side,
    place: Place,
    bytes: &[u8],
    there: Option<Span>,
    good: &Span,
) -> std::io::Result<()> {
    let mut span = match there {
        Some(span) => span,
        None => {
            let mut data =
                Buffer::try_allocate(good.data.len()).ok_or(std::io::ErrorKind::OutOfMemory)?;
            data.copy_from_slice(&good.data);
            Span { data, ..*good }
        }
    };
    span.data[span.skip..span.skip + bytes.len()].copy_from_slice(bytes);
    let length = span.data.len();
    let (written, _) = side.write(io, span.begin, span.data, 0..length, true).await;
    written?;
    let again = Span::read(io, drive, side, place, bytes.len()).await?;
    if again.bytes(bytes.len()) == bytes {
        Ok(())
    } else {
        Err(std::io::Error::other("what was written is not there"))
    }
}
