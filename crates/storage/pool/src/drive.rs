//! Drives: a file or device each, or a mirror: two that hold the same.
//!
//! ```text
//! drive 0 ──► side 0            drive 1 ──┬─► side 0   current
//!                                         └─► side 1   current, filling or failed
//! ```
//!
//! A write goes to both sides of a mirror, and ends when both have it. A side whose write or sync fails is left out from
//! then on; the last side is not. A read takes either side, and falls back on the other. Readers compare what they get
//! with its checksum; see [`crate::mend`].

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use futures_util::future::join;
use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::error::{PoolError, is_full};
use crate::side::{Side, io_error};

/// A side whose failed reads exceed the other side's by more than this is read only as a fallback.
const READ_ERRORS_MORE: u32 = 8;

/// Bytes that one side of a mirror is read for, before it is the other's turn.
const STRIPE: u64 = 1 << 20;

/// What a side of a mirror is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideState {
    /// It has everything that was written.
    Current,
    /// It is written, and lacks what was there before.
    Filling,
    /// It is missing, has failed, or lacks what was written since it was left out.
    Stale,
}

impl SideState {
    const fn bits(self) -> u8 {
        match self {
            Self::Current => 0,
            Self::Filling => 1,
            Self::Stale => 2,
        }
    }

    const fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Current,
            1 => Self::Filling,
            _ => Self::Stale,
        }
    }
}

/// States of both sides, two bits each, and what was wrong with them.
#[derive(Debug, Default)]
struct Health {
    states: AtomicU8,
    read_errors: [AtomicU32; 2],
    mended: [AtomicU32; 2],
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Drive {
    sides: [Option<Arc<Side>>; 2],
    health: Arc<Health>,
    pub is_mirror: bool,
    /// Where it is, for messages: of a mirror, the first side that is there.
    pub path: PathBuf,
    /// A side is open with O_DIRECT.
    pub is_direct: bool,
    /// Bytes that positions and lengths of reads are multiples of: 512 or 4096.
    pub align: usize,
    /// Of a mirror, those of the smaller side.
    pub bytes: u64,
}

impl Drive {
    /// A file or device alone.
    #[must_use]
    pub fn single(side: Side) -> Self {
        Self::of(
            [Some(Arc::new(side)), None],
            [SideState::Current, SideState::Stale],
            false,
        )
    }

    /// A file or device alone, or a new mirror.
    #[must_use]
    pub fn new(side: Side, second: Option<Side>) -> Self {
        match second {
            None => Self::single(side),
            Some(second) => Self::mirror(
                [Some(Arc::new(side)), Some(Arc::new(second))],
                [SideState::Current; 2],
            ),
        }
    }

    /// A mirror of these sides, one of which is there at least.
    #[must_use]
    pub fn mirror(sides: [Option<Arc<Side>>; 2], states: [SideState; 2]) -> Self {
        Self::of(sides, states, true)
    }

    fn of(sides: [Option<Arc<Side>>; 2], states: [SideState; 2], is_mirror: bool) -> Self {
        let there = || sides.iter().flatten();
        let states = states[0].bits() | states[1].bits() << 2;
        Self {
            health: Arc::new(Health {
                states: AtomicU8::new(states),
                ..Health::default()
            }),
            is_mirror,
            path: there().next().map(|it| it.path.clone()).unwrap_or_default(),
            is_direct: there().any(|it| it.is_direct),
            align: there().map(|it| it.align).max().unwrap_or(512),
            bytes: there().map(|it| it.bytes).min().unwrap_or(0),
            sides,
        }
    }

    /// The same with another side in that place, and the states as they are but for its own. It becomes a mirror, if it
    /// is none.
    #[must_use]
    pub fn with_side(&self, number: u8, side: Arc<Side>, state: SideState) -> Self {
        let mut sides = self.sides.clone();
        let mut states = [self.state(0), self.state(1)];
        sides[usize::from(number)] = Some(side);
        states[usize::from(number)] = state;
        Self::of(sides, states, true)
    }

    /// The sides that are there, with their numbers.
    pub fn sides(&self) -> impl Iterator<Item = (u8, &Arc<Side>)> {
        let numbered = (0_u8..).zip(&self.sides);
        numbered.filter_map(|(number, side)| Some((number, side.as_ref()?)))
    }

    #[must_use]
    pub fn side(&self, number: u8) -> Option<&Arc<Side>> {
        self.sides.get(usize::from(number))?.as_ref()
    }

    #[must_use]
    pub fn state(&self, number: u8) -> SideState {
        SideState::of_bits(self.health.states.load(Ordering::Acquire) >> (2 * number))
    }

    /// The side that is not current.
    #[must_use]
    pub fn stale(&self) -> Option<u8> {
        let is_stale = |number: &u8| self.state(*number) != SideState::Current;
        (0..2).filter(|_| self.is_mirror).find(is_stale)
    }

    /// Reads of a side that failed since the pool was opened.
    #[must_use]
    pub fn read_errors(&self, number: u8) -> u32 {
        let errors = self.health.read_errors.get(usize::from(number));
        errors.map_or(0, |errors| errors.load(Ordering::Relaxed))
    }

    /// Places of a side that were damaged, and were written anew, since the pool was opened.
    #[must_use]
    pub fn mended(&self, number: u8) -> u32 {
        let mended = self.health.mended.get(usize::from(number));
        mended.map_or(0, |mended| mended.load(Ordering::Relaxed))
    }

    /// A place of a side was written anew. Returns how many were.
    pub fn note_mended(&self, number: u8) -> u32 {
        self.health.mended[usize::from(number)].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Has a side be in that state, if it was in the other. Whether it was.
    pub fn exchange(&self, number: u8, from: SideState, to: SideState) -> bool {
        let shift = 2 * number;
        let next = |states: u8| {
            let is_from = SideState::of_bits(states >> shift) == from;
            is_from.then(|| states & !(3 << shift) | to.bits() << shift)
        };
        let states = &self.health.states;
        let changed = states.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        changed.is_ok()
    }

    /// Leaves a side out. Whether that can be: the other one is current.
    pub fn leave_out(&self, number: u8) -> bool {
        let (own, other) = (2 * number, 2 * (1 - number));
        let next = |states: u8| {
            let may = self.is_mirror && SideState::of_bits(states >> other) == SideState::Current;
            may.then(|| states & !(3 << own) | SideState::Stale.bits() << own)
        };
        let states = &self.health.states;
        let changed = states.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        changed.is_ok()
    }

    /// A side failed. `false`: the drive has no other one.
    pub fn fail(&self, number: u8, operation: &'static str, error: &io::Error) -> bool {
        let was = self.state(number);
        let is_out = self.leave_out(number);
        if is_out
            && was != SideState::Stale
            && let Some(side) = self.side(number)
        {
            tracing::error!(
                path = %side.path.display(),
                operation,
                %error,
                "a side of a mirror failed, and is left out; put another drive in its place by: longshore pool replace"
            );
        }
        is_out
    }

    /// The sides that can be read. `offset`: where, as the sides take turns.
    fn readable(&self, offset: u64) -> [Option<(u8, &Arc<Side>)>; 2] {
        if !self.is_mirror {
            return [self.side(0).map(|side| (0, side)), None];
        }
        let first = match [self.read_errors(0), self.read_errors(1)] {
            [one, other] if one > other + READ_ERRORS_MORE => 1,
            [one, other] if other > one + READ_ERRORS_MORE => 0,
            _ => u8::from((offset / STRIPE) % 2 == 1),
        };
        [first, 1 - first].map(|number| {
            let is_current = self.state(number) == SideState::Current;
            Some((number, self.side(number)?)).filter(|_| is_current)
        })
    }

    /// All sides that can be read.
    pub fn current(&self) -> impl Iterator<Item = (u8, &Arc<Side>)> {
        self.readable(0).into_iter().flatten()
    }

    /// Whether it is a mirror, both sides of which have everything.
    pub fn has_two(&self) -> bool {
        self.is_mirror && self.stale().is_none()
    }

    /// The sides that are written.
    pub fn written(&self) -> impl Iterator<Item = (u8, &Arc<Side>)> {
        self.sides()
            .filter(|(number, _)| self.state(*number) != SideState::Stale)
    }

    fn note_read_error(&self, number: u8, error: &io::Error) {
        let errors = &self.health.read_errors[usize::from(number)];
        let count = errors.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_mirror
            && count.is_power_of_two()
            && let Some(side) = self.side(number)
        {
            tracing::warn!(
                path = %side.path.display(),
                %error,
                count,
                "a side of a mirror cannot be read in places; the other one is read, and a scrub mends them"
            );
        }
    }

    /// Fills `buffer[range]` with what lies there.
    pub async fn read(
        &self,
        io: &Io,
        offset: u64,
        mut buffer: Buffer,
        range: Range<usize>,
    ) -> (io::Result<()>, Buffer) {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for (number, side) in self.readable(offset).into_iter().flatten() {
            (result, buffer) = side.read(io, offset, buffer, range.clone()).await;
            match &result {
                Ok(()) => break,
                Err(error) => self.note_read_error(number, error),
            }
        }
        (result, buffer)
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
        buffer: Buffer,
        range: Range<usize>,
        durable: bool,
    ) -> (io::Result<()>, Buffer) {
        let mut sides = self.written();
        let (one, other) = match (sides.next(), sides.next()) {
            (Some((_, side)), None) => {
                return side.write(io, offset, buffer, range, durable).await;
            }
            (Some((_, one)), Some((_, other))) => (one, other),
            (None, _) => return (Err(io::ErrorKind::NotFound.into()), buffer),
        };
        let length = range.len();
        let (results, buffer) = if let Some(mut copy) = Buffer::try_allocate(length) {
            copy[..length].copy_from_slice(&buffer[range.clone()]);
            let ((first, buffer), (second, _)) = join(
                one.write(io, offset, buffer, range, durable),
                other.write(io, offset, copy, 0..length, durable),
            )
            .await;
            ([first, second], buffer)
        } else {
            // Without memory for a copy, one after the other.
            let (first, buffer) = one.write(io, offset, buffer, range.clone(), durable).await;
            let (second, buffer) = other.write(io, offset, buffer, range, durable).await;
            ([first, second], buffer)
        };
        (self.judge("write", results), buffer)
    }

    /// What a mirror says when its sides said that: a side that failed is left out.
    fn judge(&self, operation: &'static str, results: [io::Result<()>; 2]) -> io::Result<()> {
        match results {
            [Ok(()), Ok(())] => Ok(()),
            [Err(error), Ok(())] if self.fail(0, operation, &error) => Ok(()),
            [Ok(()), Err(error)] if self.fail(1, operation, &error) => Ok(()),
            [Err(error), _] | [_, Err(error)] => Err(error),
        }
    }

    /// Brings everything that was written to the medium.
    pub async fn sync(&self, io: &Io) -> io::Result<()> {
        let mut sides = self.written();
        match (sides.next(), sides.next()) {
            (Some((_, side)), None) => side.sync(io).await,
            (Some((_, one)), Some((_, other))) => {
                let (first, second) = join(one.sync(io), other.sync(io)).await;
                self.judge("fdatasync", [first, second])
            }
            (None, _) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Reserves space, so that writing there does not find the file system full.
    pub async fn reserve(&self, io: &Io, offset: u64, length: u64) -> io::Result<()> {
        for (number, side) in self.written() {
            match side.reserve(io, offset, length).await {
                Ok(()) => {}
                Err(error)
                    if (!is_full(&error) || self.state(number) == SideState::Filling)
                        && self.fail(number, "fallocate", &error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub fn error(&self, operation: &'static str, source: io::Error) -> PoolError {
        io_error(operation, &self.path, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(states: [SideState; 2]) -> Drive {
        Drive::mirror([None, None], states)
    }

    #[test]
    fn the_last_side_of_a_mirror_is_not_left_out() {
        let drive = states([SideState::Current; 2]);
        assert_eq!(drive.stale(), None);
        assert!(drive.leave_out(1));
        assert_eq!(drive.stale(), Some(1));
        assert!(!drive.leave_out(0));
        assert_eq!(drive.state(0), SideState::Current);
        // One that is being filled is no other one.
        let drive = states([SideState::Current, SideState::Filling]);
        assert!(!drive.leave_out(0));
        assert!(drive.exchange(1, SideState::Filling, SideState::Current));
        assert!(!drive.exchange(1, SideState::Filling, SideState::Current));
        assert!(drive.leave_out(0));
        assert_eq!((drive.state(0), drive.stale()), (SideState::Stale, Some(0)));
    }

    #[test]
    fn a_drive_alone_has_no_side_to_leave_out() {
        let drive = Drive::of([None, None], [SideState::Current; 2], false);
        assert!(!drive.leave_out(0));
        assert_eq!(drive.stale(), None);
    }
}
