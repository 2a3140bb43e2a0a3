//! Reads: where pages lie is asked of the maps, and what is read is checked against its checksum.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::cache::Missing;
use crate::format::chunk::{self, UnpackError};
use crate::format::record::LayerId;
use crate::format::{PAGE, PAGE_BYTES, crc, long, short};
use crate::leaves::Purpose;
use crate::log::{Failure, Inner};
use crate::mend::Mended;
use crate::place::{Codec, Content, Place, Stored};
use crate::pool::{Pool, pages};
use crate::segments::Pin;

/// Reads of one request that are under way at once.
const READS_MAX: usize = 16;

/// Bytes between runs that are read along with them.
const GAP_MAX: u64 = 4 << 10;

/// Bytes that are read at once.
const SPAN_MAX: u64 = 256 << 10;

/// Runs of a request that are read one after the other, straight to where they belong.
const STRAIGHT_MAX: usize = 4;

/// Why a page could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The pool knows that it is lost.
    Lost,
    Checksum,
    OutOfMemory,
    /// A part of the maps cannot be read.
    Map,
    Io(io::Error),
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OutOfMemory => Self::OutOfMemory,
            _ => Self::Map,
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Lost => Self::other("the data was lost when it was to be moved"),
            ReadError::Checksum => Self::other("the checksum does not match"),
            ReadError::OutOfMemory => io::ErrorKind::OutOfMemory.into(),
            ReadError::Map => Self::other("a part of the map cannot be read"),
            ReadError::Io(error) => error,
        }
    }
}

/// Pages one behind the other that one read gives.
#[derive(Debug)]
struct Run {
    /// Bytes from the start of the volume.
    at: u64,
    pages: usize,
    kind: RunKind,
    /// Keeps the data where it is.
    _pin: Option<Pin>,
}

#[derive(Debug)]
enum RunKind {
    Zeros,
    Lost,
    Raw {
        place: Place,
        crcs: Vec<u32>,
    },
    /// From the page that is named on.
    Chunk(Stored),
}

impl Run {
    fn end(&self) -> u64 {
        self.at + long(self.pages) * PAGE_BYTES
    }

    /// Where its bytes begin, and how many they are.
    fn stored(&self) -> Option<(Place, usize)> {
        match &self.kind {
            RunKind::Raw { place, crcs } => Some((*place, crcs.len() * PAGE)),
            RunKind::Chunk(stored) => Some((stored.place, usize::from(stored.length))),
            RunKind::Zeros | RunKind::Lost => None,
        }
    }

    /// Whether a page belongs to it as well.
    fn takes(&mut self, content: Content) -> bool {
        let count = long(self.pages);
        let takes = match (&mut self.kind, content) {
            (RunKind::Zeros, Content::Absent | Content::Zero) | (RunKind::Lost, Content::Lost) => {
                true
            }
            (RunKind::Raw { place, crcs }, Content::Data(stored))
                if stored.codec == Codec::Raw && stored.place == place.plus(count * PAGE_BYTES) =>
            {
                crcs.push(stored.crc);
                true
            }
            (RunKind::Chunk(first), Content::Data(stored)) => {
                stored.codec != Codec::Raw
                    && stored.place == first.place
                    && u64::from(stored.page) == u64::from(first.page) + count
            }
            _ => false,
        };
        self.pages += usize::from(takes);
        takes
    }
}

/// What the pages from `first` on, `count` of them, read as.
fn resolve(inner: &Inner, head: LayerId, first: u64, count: u64) -> Result<Vec<Run>, Missing> {
    let mut runs: Vec<Run> = Vec::with_capacity(1);
    let mut page = first;
    while page < first + count {
        let (entry, absent) = inner.state.catalog.resolve(head, page)?;
        let content = entry.content();
        let joins = runs.last_mut().is_some_and(|run| run.takes(content));
        if !joins {
            let (kind, pin) = match content {
                Content::Absent | Content::Zero => (RunKind::Zeros, None),
                Content::Lost => (RunKind::Lost, None),
                Content::Data(stored) => {
                    let pin = inner.state.segments.pin(stored.place);
                    let kind = if stored.codec == Codec::Raw {
                        RunKind::Raw {
                            place: stored.place,
                            crcs: vec![stored.crc],
                        }
                    } else {
                        RunKind::Chunk(stored)
                    };
                    (kind, pin)
                }
            };
            runs.push(Run {
                at: page * PAGE_BYTES,
                pages: 1,
                kind,
                _pin: pin,
            });
        }
        page += 1;
        if content == Content::Absent && absent > 1 {
            let more = (absent - 1).min(first + count - page);
            let run = runs.last_mut().expect("it has this page");
            run.pages += short(more);
            page += more;
        }
    }
    Ok(runs)
}

impl Pool {
    /// Reads bytes of a volume from `offset` on into `buffer[range]`.
    pub(crate) async fn read(
        self: &Arc<Self>,
        io: &Io,
        volume: usize,
        offset: u64,
        buffer: Buffer,
        range: Range<usize>,
    ) -> (Result<(), ReadError>, Buffer) {
        let first = offset / PAGE_BYTES;
        let count = pages(offset + long(range.len())) - first;
        let target = Target {
            offset,
            start: range.start,
            end: range.end,
        };
        let resolved = async || {
            let mut needed = 0;
            loop {
                let resolved = {
                    let inner = self.lock();
                    resolve(&inner, inner.open[volume].read, first, count)
                };
                match resolved {
                    Ok(runs) => return Ok(runs),
                    Err(missing) => {
                        // All of a long chain of layers are needed at once.
                        needed += 1;
                        self.lock().state.catalog.cache.need(needed);
                        self.load_leaves(io, &[missing], Purpose::Look).await?;
                    }
                }
            }
        };
        let runs = match resolved().await {
            Ok(runs) => runs,
            Err(error) => return (Err(error), buffer),
        };
        let (result, buffer) = self.read_runs(io, runs, target, buffer).await;
        if !matches!(result, Err(ReadError::Checksum | ReadError::Io(_))) {
            return (result, buffer);
        }
        let mended = match resolved().await {
            Ok(runs) => self.mend_runs(io, runs).await,
            Err(_) => false,
        };
        if !mended {
            return (result, buffer);
        }
        match resolved().await {
            Ok(runs) => self.read_runs(io, runs, target, buffer).await,
            Err(error) => (Err(error), buffer),
        }
    }

    async fn read_runs(
        &self,
        io: &Io,
        runs: Vec<Run>,
        target: Target,
        buffer: Buffer,
    ) -> (Result<(), ReadError>, Buffer) {
        if self.goes_straight(&runs, &target) {
            self.read_straight(io, runs, target, buffer).await
        } else {
            self.read_apart(io, runs, target, buffer).await
        }
    }

    /// Has what is damaged on one side of a mirror written anew. Whether it is worth reading again.
    async fn mend_runs(&self, io: &Io, runs: Vec<Run>) -> bool {
        let mut has_mended = false;
        for run in &runs {
            let (begin, length, sums) = match &run.kind {
                RunKind::Raw { place, crcs } => (*place, PAGE, crcs.clone()),
                RunKind::Chunk(stored) => {
                    (stored.place, usize::from(stored.length), vec![stored.crc])
                }
                RunKind::Zeros | RunKind::Lost => continue,
            };
            for (number, sum) in (0..).zip(sums) {
                let place = begin.plus(number * long(length));
                // Where nothing is wrong any more, another reader has had it mended.
                let mended = self.mend(io, place, length, sum).await;
                has_mended |= matches!(mended, Mended::Intact(_) | Mended::Copied(_));
            }
        }
        has_mended
    }

    /// Whether all data can be read to where it belongs.
    fn goes_straight(&self, runs: &[Run], target: &Target) -> bool {
        let is_straight = |run: &Run| match &run.kind {
            RunKind::Zeros => true,
            RunKind::Raw { place, .. } => {
                let Some(drive) = self.drive(*place) else {
                    return false;
                };
                let whole = run.at >= target.offset && run.end() <= target.end_offset();
                whole
                    && (!drive.is_direct
                        || (target.place(run.at).is_multiple_of(drive.align)
                            && place.offset().is_multiple_of(long(drive.align))))
            }
            RunKind::Lost | RunKind::Chunk(_) => false,
        };
        runs.len() <= STRAIGHT_MAX && runs.iter().all(is_straight)
    }

    async fn read_straight(
        &self,
        io: &Io,
        runs: Vec<Run>,
        target: Target,
        mut buffer: Buffer,
    ) -> (Result<(), ReadError>, Buffer) {
        for run in runs {
            match &run.kind {
                RunKind::Raw { place, crcs } => {
                    let drive = self.drive(*place).expect("looked at before");
                    let start = target.place(run.at);
                    let range = start..start + run.pages * PAGE;
                    let (result, filled) =
                        drive.read(io, place.offset(), buffer, range.clone()).await;
                    buffer = filled;
                    if let Err(error) = result {
                        return (Err(ReadError::Io(error)), buffer);
                    }
                    if !is_intact(&buffer[range], crcs) {
                        return (Err(ReadError::Checksum), buffer);
                    }
                }
                RunKind::Zeros | RunKind::Lost | RunKind::Chunk(_) => {
                    let (_, to) = target.overlap(&run);
                    buffer[to].fill(0);
                }
            }
        }
        (Ok(()), buffer)
    }

    async fn read_apart(
        &self,
        io: &Io,
        runs: Vec<Run>,
        target: Target,
        mut buffer: Buffer,
    ) -> (Result<(), ReadError>, Buffer) {
        if runs.len() == 1 && runs[0].stored().is_some() {
            let (runs, fetched) = self.fetch(io, runs).await;
            let result = fetched.and_then(|data| place_runs(&runs, &data, &target, &mut buffer));
            return (result, buffer);
        }
        let mut groups = Groups(runs.into_iter().peekable());
        let mut under_way = FuturesUnordered::new();
        let mut result = Ok(());
        loop {
            while under_way.len() < READS_MAX && result.is_ok() {
                let Some(group) = groups.next() else {
                    break;
                };
                match group {
                    Group::Zeros(run) => {
                        let (_, to) = target.overlap(&run);
                        buffer[to].fill(0);
                    }
                    Group::Lost => result = Err(ReadError::Lost),
                    Group::Stored(runs) => under_way.push(self.fetch(io, runs)),
                }
            }
            let Some((runs, fetched)) = under_way.next().await else {
                return (result, buffer);
            };
            let placed = fetched.and_then(|data| place_runs(&runs, &data, &target, &mut buffer));
            result = result.and(placed);
        }
    }

    /// What runs that lie side by side are stored as, in one read.
    async fn fetch(&self, io: &Io, runs: Vec<Run>) -> (Vec<Run>, Result<Fetched, ReadError>) {
        let begin = runs.first().and_then(Run::stored);
        let end = runs.last().and_then(Run::stored);
        let (Some((begin, _)), Some((last, length))) = (begin, end) else {
            return (runs, Err(ReadError::Lost));
        };
        let span = short(last.offset() - begin.offset()) + length;
        let read = self.read_bytes(io, begin, span).await;
        let fetched = read.map(|(data, skip)| Fetched { data, skip, begin });
        (runs, fetched)
    }

    /// Bytes of a drive, in whole units; they begin behind those to be skipped.
    pub(crate) async fn read_bytes(
        &self,
        io: &Io,
        place: Place,
        length: usize,
    ) -> Result<(Buffer, usize), ReadError> {
        self.read_bytes_to(io, place, length, None).await
    }

    /// The same. `buffer`: memory that is used for it, if it is large enough.
    pub(crate) async fn read_bytes_to(
        &self,
        io: &Io,
        place: Place,
        length: usize,
        buffer: Option<Buffer>,
    ) -> Result<(Buffer, usize), ReadError> {
        let missing = || ReadError::Io(io::ErrorKind::NotFound.into());
        let drive = self.drive(place).ok_or_else(missing)?;
        let unit = long(drive.align);
        let begin = place.offset() / unit * unit;
        let end = (place.offset() + long(length)).next_multiple_of(unit);
        let length = short(end - begin);
        let buffer = buffer.filter(|buffer| buffer.len() >= length);
        let buffer = match buffer.or_else(|| Buffer::try_allocate(length)) {
            Some(buffer) => buffer,
            None => return Err(ReadError::Io(io::ErrorKind::OutOfMemory.into())),
        };
        let (read, buffer) = drive.read(io, begin, buffer, 0..length).await;
        read.map_err(ReadError::Io)?;
        Ok((buffer, short(place.offset() - begin)))
    }
}

/// Bytes of a drive that were read.
struct Fetched {
    data: Buffer,
    /// Bytes before those that were asked for.
    skip: usize,
    /// The place where those begin.
    begin: Place,
}

impl Fetched {
    fn bytes(&self, place: Place, length: usize) -> &[u8] {
        let start = self.skip + short(place.offset() - self.begin.offset());
        &self.data[start..start + length]
    }
}

/// Checks what was read, unpacks it, and puts it where it belongs.
fn place_runs(
    runs: &[Run],
    fetched: &Fetched,
    target: &Target,
    buffer: &mut Buffer,
) -> Result<(), ReadError> {
    for run in runs {
        let (from, to) = target.overlap(run);
        match &run.kind {
            RunKind::Raw { place, crcs } => {
                let bytes = fetched.bytes(*place, crcs.len() * PAGE);
                if !is_intact(bytes, crcs) {
                    return Err(ReadError::Checksum);
                }
                buffer[to].copy_from_slice(&bytes[from]);
            }
            RunKind::Chunk(stored) => {
                let bytes = fetched.bytes(stored.place, usize::from(stored.length));
                if to.len() == usize::from(stored.pages) * PAGE {
                    unpack(stored, bytes, &mut buffer[to])?;
                    continue;
                }
                let mut plain = [0; 4 * PAGE];
                let plain = &mut plain[..usize::from(stored.pages) * PAGE];
                unpack(stored, bytes, plain)?;
                let skip = usize::from(stored.page) * PAGE;
                buffer[to].copy_from_slice(&plain[skip + from.start..skip + from.end]);
            }
            RunKind::Zeros | RunKind::Lost => return Err(ReadError::Lost),
        }
    }
    Ok(())
}

/// Unpacks the pages of a chunk, all of them.
fn unpack(stored: &Stored, bytes: &[u8], plain: &mut [u8]) -> Result<(), ReadError> {
    if crc(bytes) != stored.crc {
        return Err(ReadError::Checksum);
    }
    chunk::unpack(stored.codec, bytes, plain).map_err(|error| match error {
        UnpackError::Damaged => ReadError::Checksum,
        UnpackError::OutOfMemory => ReadError::OutOfMemory,
    })
}

/// Runs that are read together.
enum Group {
    Zeros(Run),
    Lost,
    Stored(Vec<Run>),
}

/// Puts runs together that lie side by side on a drive, in their order.
struct Groups(std::iter::Peekable<std::vec::IntoIter<Run>>);

impl Iterator for Groups {
    type Item = Group;

    fn next(&mut self) -> Option<Group> {
        let first = self.0.next()?;
        match first.kind {
            RunKind::Zeros => return Some(Group::Zeros(first)),
            RunKind::Lost => return Some(Group::Lost),
            RunKind::Raw { .. } | RunKind::Chunk(_) => {}
        }
        let mut group = vec![first];
        while let Some(next) = self.0.peek()
            && lies_behind(&group, next)
        {
            group.extend(self.0.next());
        }
        Some(Group::Stored(group))
    }
}

/// Whether a run lies so close behind others that one read gets all of them.
fn lies_behind(group: &[Run], next: &Run) -> bool {
    let begin = group.first().and_then(Run::stored);
    let last = group.last().and_then(Run::stored);
    let (Some((begin, _)), Some((last, length)), Some((place, more))) =
        (begin, last, next.stored())
    else {
        return false;
    };
    let end = last.offset() + long(length);
    place.drive() == begin.drive()
        && (end..=end + GAP_MAX).contains(&place.offset())
        && place.offset() + long(more) <= begin.offset() + SPAN_MAX
}

/// Where the bytes of a volume go in a buffer.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Of the first byte, in the volume.
    offset: u64,
    start: usize,
    end: usize,
}

impl Target {
    fn end_offset(&self) -> u64 {
        self.offset + long(self.end - self.start)
    }

    /// Where a byte of the volume, which is one of those asked for, goes.
    fn place(&self, at: u64) -> usize {
        self.start + short(at - self.offset)
    }

    /// The part of a run that is asked for, and where it goes.
    fn overlap(&self, run: &Run) -> (Range<usize>, Range<usize>) {
        let from = run.at.max(self.offset);
        let to = run.end().min(self.end_offset());
        let part = short(from - run.at)..short(to - run.at);
        (part, self.place(from)..self.start + short(to - self.offset))
    }
}

/// Whether pages are those of their checksums.
fn is_intact(bytes: &[u8], crcs: &[u32]) -> bool {
    #[cfg(test)]
    if crate::testing::has_planted(crate::testing::Planted::NoChecksum) {
        return true;
    }
    let mut pages = bytes.chunks_exact(PAGE);
    crcs.iter()
        .all(|sum| pages.next().is_some_and(|page| crc(page) == *sum))
}
