//! Sides of mirrors that are left out, replaced and filled, while the pool is in use.
//!
//! A side that is filled is written from the start, and read when it has everything. What lies in segments that were
//! written before is copied as it is: sealed segments do not change, and are pinned meanwhile. At the end a checkpoint
//! is made, which lies on both sides, and its superblocks say that the side is current. Until then they say that it is
//! stale; so nothing is lost when the power goes, and filling begins anew.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;
use uuid::Uuid;

use crate::checkpoint::News;
use crate::desk::Step;
use crate::drive::{Drive, SideState};
use crate::drives::{Made, NewDrive, wipe_side};
use crate::error::PoolError;
use crate::format::superblock::{Mirror, Superblock, tail_start};
use crate::format::{PAGE, PAGE_BYTES, RESERVED_BYTES, long, short};
use crate::place::Place;
use crate::pool::{Pool, whole_path};
use crate::report::Report;
use crate::segments::{Pin, Use};
use crate::side::Side;

/// How often, and how long, a fill waits for writers that wait for space.
const FILL_TRIES: u32 = 600;
const FILL_WAIT: Duration = Duration::from_millis(50);

/// Bytes that are copied at once.
const PIECE: u64 = 1 << 20;

/// A side of a mirror, as others are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSide {
    /// Number of the mirror's drive in the pool.
    pub drive: u8,
    pub id: Uuid,
    /// `None`: it is missing.
    pub path: Option<PathBuf>,
    pub state: SideState,
    /// Reads that failed since the pool was opened.
    pub read_errors: u32,
    /// Places that were damaged, and were written anew from the other side, since then.
    pub mended: u32,
}

/// Which side of a mirror is to be filled.
#[derive(Clone, Debug)]
pub enum Slot {
    /// A second side, beside a drive that is none of a mirror.
    Beside(PathBuf),
    /// The place of a side, which is left out.
    Of(PathBuf),
}

impl Slot {
    fn path(&self) -> &Path {
        match self {
            Self::Beside(path) | Self::Of(path) => path,
        }
    }
}

/// A side that is being filled.
#[derive(Debug)]
pub struct Rebuild {
    drive: u8,
    side: u8,
    path: PathBuf,
    /// Segments that were written before, with their generations; the last is copied next.
    left: Vec<(u32, u64)>,
    /// The segment that is copied, and how far.
    current: Option<(Place, Pin, u64)>,
    pub report: Report,
}

impl Pool {
    /// All sides of mirrors.
    #[must_use]
    pub fn sides(&self) -> Vec<ListedSide> {
        let present = self.members.present();
        let mirrors = present.each().filter(|(_, drive)| drive.is_mirror);
        let listed = mirrors.flat_map(|(number, drive)| {
            let ids = present.entries[usize::from(number)].sides();
            (0_u8..).zip(ids).map(move |(side, id)| ListedSide {
                drive: number,
                id: id.unwrap_or_default(),
                path: drive.side(side).map(|it| it.path.clone()),
                state: drive.state(side),
                read_errors: drive.read_errors(side),
                mended: drive.mended(side),
            })
        });
        listed.collect()
    }

    /// Goes on without a side of a mirror. Blocks.
    ///
    /// # Errors
    /// It is none, or the other one has not all data.
    pub fn leave_out(self: &Arc<Self>, path: &Path) -> Result<(), PoolError> {
        if let Some(failed) = self.lock().failed {
            return Err(self.error(failed));
        }
        let present = self.members.present();
        let (number, side) = match self.find_side(path) {
            Ok(found) => found,
            // One that is missing was left out when the pool was opened.
            Err(_) if self.members.absent().contains(&whole_path(path)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let drive = present.drives[usize::from(number)].clone();
        let drive = drive.filter(|drive| drive.is_mirror);
        let drive = drive.ok_or_else(|| PoolError::NoMirror {
            pool: self.name().to_owned(),
            path: path.to_owned(),
        })?;
        if !drive.leave_out(side) {
            return Err(self.last_side(path));
        }
        tracing::warn!(pool = self.name(), path = %path.display(), "a side of a mirror is left out, as it was told");
        self.run(|pool, io| async move { crate::clean::checkpoint_now(&pool, &io).await })
    }

    fn last_side(&self, path: &Path) -> PoolError {
        PoolError::LastSide {
            pool: self.name().to_owned(),
            path: path.to_owned(),
        }
    }

    /// The drive and the side that a slot is.
    fn slot(&self, slot: &Slot) -> Result<(u8, u8), PoolError> {
        let present = self.members.present();
        let missing = |drive: &Drive| {
            let mut sides = (0..2).filter(|_| drive.is_mirror);
            sides.find(|side| drive.side(*side).is_none())
        };
        let (number, side) = match (self.find_side(slot.path()), slot) {
            (Ok(found), _) => found,
            (Err(error), Slot::Beside(_)) => return Err(error),
            // Where a side is missing, its path is not known any more.
            (Err(error), Slot::Of(_)) => {
                let mut lacking = present
                    .each()
                    .filter_map(|(number, drive)| Some((number, missing(drive)?)));
                return match (lacking.next(), lacking.next()) {
                    (Some(found), None) => Ok(found),
                    _ => Err(error),
                };
            }
        };
        let drive = present.drives[usize::from(number)].as_ref();
        let drive = drive.expect("it was found");
        let (pool, path) = (self.name().to_owned(), slot.path().to_owned());
        match (slot, drive.is_mirror) {
            (Slot::Of(_), true) => Ok((number, side)),
            (Slot::Of(_), false) => Err(PoolError::NoMirror { pool, path }),
            (Slot::Beside(_), false) => Ok((number, 1)),
            // Of several sides that are missing, the other one tells which is meant.
            (Slot::Beside(_), true) => missing(drive)
                .map(|missing| (number, missing))
                .ok_or(PoolError::IsMirror { pool, path }),
        }
    }

    /// Puts a file or device in a side's place, and has it written from now on. Returns what is to be copied, and its
    /// bytes. Blocks.
    pub(crate) fn begin_filling(
        self: &Arc<Self>,
        slot: &Slot,
        new: &NewDrive,
    ) -> Result<(Rebuild, u64), PoolError> {
        if let Some(failed) = self.lock().failed {
            return Err(self.error(failed));
        }
        let (number, side) = self.slot(slot)?;
        let present = self.members.present();
        let entry = present.entries[usize::from(number)];
        let drive = present.drives[usize::from(number)].clone();
        let drive = drive.expect("it was found");
        if drive.is_mirror && drive.state(1 - side) != SideState::Current {
            return Err(self.last_side(slot.path()));
        }
        // Its copy may be the only one that is intact.
        if drive.has_two() {
            return Err(PoolError::SideInUse {
                pool: self.name().to_owned(),
                path: slot.path().to_owned(),
            });
        }
        let wanted = whole_path(&new.path);
        let old = drive.side(side).filter(|_| drive.is_mirror).cloned();
        let mut made = Made::default();
        let file = match &old {
            // The same again: what it lacks is filled.
            Some(old) if whole_path(&old.path) == wanted && old.is_at(&new.path) => old.clone(),
            _ => {
                // What comes back is overwritten as it is; it is the pool's own.
                let is_own = crate::open::read_label(&new.path)
                    .is_ok_and(|label| self.is_missing(&label, (number, side)));
                let new = NewDrive {
                    force: new.force || is_own,
                    ..new.clone()
                };
                // Another drive may have come to the same path.
                let is_again = old.is_some_and(|old| whole_path(&old.path) == wanted);
                Arc::new(self.new_side(&new, &new.path, is_again, &mut made)?)
            }
        };
        let needed =
            RESERVED_BYTES + u64::from(entry.segments) * u64::from(self.label.segment_bytes);
        if tail_start(file.bytes) < needed {
            return Err(PoolError::SmallSide {
                path: new.path.clone(),
                needed: needed + RESERVED_BYTES,
            });
        }
        let place = (number, side);
        for _ in 0..FILL_TRIES {
            let file = file.clone();
            let begun = self.run(move |pool, io| async move { pool.fill(&io, place, file).await });
            match begun {
                Ok(None) => std::thread::sleep(FILL_WAIT),
                Ok(Some(begun)) => {
                    made.0.clear();
                    return Ok(begun);
                }
                Err(error) => {
                    made.0
                        .retain(|path| !self.lies_on(std::slice::from_ref(path)));
                    return Err(error);
                }
            }
        }
        Err(PoolError::NoSpace {
            pool: self.name().to_owned(),
        })
    }

    /// Whether a superblock is that of a side that is missing there, and that did not go on by itself.
    fn is_missing(&self, label: &Superblock, (number, side): (u8, u8)) -> bool {
        let entry = label.drives[usize::from(label.drive)];
        let own = entry.sides()[usize::from(label.side)];
        let is_it = |listed: &ListedSide| {
            Some(listed.id) == own && listed.path.is_none() && listed.drive == number
        };
        let has_gone_on = entry
            .mirror
            .is_some_and(|mirror| mirror.stale == Some(1 - label.side));
        label.pool == self.id()
            && label.side == side
            && !has_gone_on
            && self.sides().iter().any(is_it)
    }

    /// Puts a side in its place, and has it written. `None`: a writer waits for space; to be tried again.
    pub(crate) async fn fill(
        self: &Arc<Self>,
        io: &Io,
        (number, side): (u8, u8),
        file: Arc<Side>,
    ) -> Result<Option<(Rebuild, u64)>, PoolError> {
        let _held = self.maintenance.lock().await;
        let _checkpoints = self.checkpoints.lock().await;
        let before = self.members.present();
        let place = usize::from(number);
        let drive = before.drives[place].clone().expect("it was found");
        let old = drive.side(side).filter(|_| drive.is_mirror).cloned();
        let is_same = old.as_ref().is_some_and(|old| Arc::ptr_eq(old, &file));
        if !is_same {
            wipe_side(io, &file).await?;
        } else if drive.state(side) != SideState::Stale && drive.leave_out(side) {
            // Its superblocks may be torn from now on: others say before that nobody needs them.
            self.checkpoint_on(io, &before, News::Nothing).await?;
        }
        // Nobody begins a segment meanwhile, so that one is written to both sides from its start, or closed. Who waits for
        // space keeps its turn until house is kept, which waits for this.
        let mut turns = Vec::new();
        for turn in &self.turns {
            match turn.try_lock() {
                Some(turn) => turns.push(turn),
                None => return Ok(None),
            }
        }
        let before = self.members.present();
        let id = Uuid::new_v4();
        let mut entry = before.entries[place];
        entry.mirror = Some(Mirror {
            id: entry.mirror.map_or(id, |mirror| mirror.id),
            stale: Some(side),
        });
        match (side, &mut entry.mirror) {
            (1, Some(mirror)) => mirror.id = id,
            _ => entry.id = id,
        }
        let filling = drive.with_side(side, file.clone(), SideState::Filling);
        let after = before.instead(number, entry, filling);
        let (left, sum) = {
            let mut inner = self.lock();
            inner.leave(number);
            self.forget_tail();
            let segments = &inner.state.segments;
            let own = segments.of_drive(number).map(|it| (it, segments.get(it)));
            let written = own.filter(|(_, it)| matches!(it.used, Use::Sealed | Use::Leaves));
            let left: Vec<(u32, u64)> = written.map(|(it, found)| (it, found.generation)).collect();
            let sum = long(left.len()) * segments.bytes();
            self.members.set(after.clone());
            (left, sum)
        };
        drop(turns);
        let news = News::NewSide {
            drive: number,
            side,
        };
        if let Err(error) = self.checkpoint_on(io, &after, news).await {
            if self.lock().failed.is_none() {
                self.members.set(before);
                self.skip_superblock();
                if let Err(error) = wipe_side(io, &file).await {
                    tracing::warn!(pool = self.name(), %error, "a side of a mirror that was not filled may keep \
                        superblocks; they are refused");
                }
            }
            return Err(error);
        }
        if let Some(old) = old.filter(|_| !is_same) {
            self.members.note_removed(whole_path(&old.path));
            if let Err(error) = wipe_side(io, &old).await {
                tracing::warn!(pool = self.name(), %error, "a side of a mirror was replaced, and keeps its old \
                    superblocks; they are not taken for new ones");
            }
        }
        let rebuild = Rebuild {
            drive: number,
            side,
            path: file.path.clone(),
            left,
            current: None,
            report: Report::default(),
        };
        Ok(Some((rebuild, sum)))
    }
}

impl Rebuild {
    /// Copies a piece, or has the side be current when everything was copied.
    pub(crate) async fn step(
        mut self,
        pool: &Arc<Pool>,
        io: &Io,
    ) -> (Self, Result<Step, PoolError>) {
        let step = self.next(pool, io).await;
        (self, step)
    }

    fn filling(&self, pool: &Pool) -> Result<Arc<Drive>, PoolError> {
        let present = pool.members.present();
        let drive = present
            .drives
            .get(usize::from(self.drive))
            .cloned()
            .flatten();
        let drive = drive.filter(|drive| drive.state(self.side) == SideState::Filling);
        drive.ok_or_else(|| PoolError::SideFailed {
            pool: pool.name().to_owned(),
            path: self.path.clone(),
        })
    }

    async fn next(&mut self, pool: &Arc<Pool>, io: &Io) -> Result<Step, PoolError> {
        let drive = self.filling(pool)?;
        let (place, pin, done) = match self.current.take() {
            Some(current) => current,
            None => match self.choose(pool) {
                Choice::Copy(place, pin) => (place, pin, 0),
                Choice::Wait => return Ok(Step::Wait),
                Choice::Nothing => {
                    self.finish(pool, io).await?;
                    return Ok(Step::Done);
                }
            },
        };
        let length = PIECE.min(u64::from(pool.label.segment_bytes) - done);
        self.copy(pool, io, &drive, place.offset() + done, length)
            .await?;
        if done + length < u64::from(pool.label.segment_bytes) {
            self.current = Some((place, pin, done + length));
        }
        Ok(Step::Did(length))
    }

    /// The next segment to be copied. What lives in none needs no copy.
    fn choose(&mut self, pool: &Pool) -> Choice {
        let inner = pool.lock();
        let segments = &inner.state.segments;
        let is_needed = |(segment, generation): &(u32, u64)| {
            let found = segments.get(*segment);
            matches!(found.used, Use::Sealed | Use::Leaves)
                && found.generation == *generation
                && (found.live > 0 || found.staged > 0)
        };
        #[cfg(test)]
        if crate::testing::has_planted(crate::testing::Planted::CopiesNothing) {
            self.left.clear();
        }
        self.left.retain(is_needed);
        // Records that are on their way are copied when they are there.
        let is_still = |(segment, _): &(u32, u64)| segments.get(*segment).staged == 0;
        let Some(place) = self.left.iter().rposition(is_still) else {
            return match self.left.is_empty() {
                true => Choice::Nothing,
                false => Choice::Wait,
            };
        };
        let (segment, _) = self.left.remove(place);
        let begin = segments.place(segment);
        segments
            .pin(begin)
            .map_or(Choice::Wait, |pin| Choice::Copy(begin, pin))
    }

    async fn copy(
        &mut self,
        pool: &Pool,
        io: &Io,
        drive: &Drive,
        offset: u64,
        length: u64,
    ) -> Result<(), PoolError> {
        match self.copy_once(pool, io, drive, offset, length).await {
            Err(CopyError::Read(_)) => {}
            Err(CopyError::Pool(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
        // The part that can be read is copied in small steps.
        let mut lost = None;
        for at in (offset..offset + length).step_by(PAGE) {
            match self.copy_once(pool, io, drive, at, PAGE_BYTES).await {
                Ok(()) => {}
                Err(CopyError::Read(error)) => {
                    let (_, count) = lost.get_or_insert((error, 0_u64));
                    *count += 1;
                }
                Err(CopyError::Pool(error)) => return Err(error),
            }
        }
        if let Some((error, count)) = lost {
            // What cannot be read on the only side that has it is lost there, and nowhere else.
            let bytes = count * PAGE_BYTES;
            let text = format!(
                "{bytes} bytes from {offset} on cannot be read, and were not copied: {error}"
            );
            self.report.note(drive.path.display().to_string(), text);
        }
        Ok(())
    }

    async fn copy_once(
        &self,
        pool: &Pool,
        io: &Io,
        drive: &Drive,
        offset: u64,
        length: u64,
    ) -> Result<(), CopyError> {
        let length = short(length);
        let buffer = Buffer::try_allocate(length).ok_or(PoolError::OutOfMemory)?;
        let (read, buffer) = drive.read(io, offset, buffer, 0..length).await;
        read.map_err(CopyError::Read)?;
        let Some(side) = drive.side(self.side) else {
            return Ok(self.filling(pool).map(drop)?);
        };
        let (written, _) = side.write(io, offset, buffer, 0..length, false).await;
        Ok(written.map_err(|error| side.error("write", error))?)
    }

    async fn finish(&self, pool: &Arc<Pool>, io: &Io) -> Result<(), PoolError> {
        let _held = pool.maintenance.lock().await;
        let _checkpoints = pool.checkpoints.lock().await;
        let drive = self.filling(pool)?;
        let present = pool.members.present();
        let news = News::Filled {
            drive: self.drive,
            side: self.side,
        };
        pool.checkpoint_on(io, &present, news).await?;
        // Only now the other side may be left out: superblocks say that this one has everything.
        if drive.exchange(self.side, SideState::Filling, SideState::Current) {
            Ok(())
        } else {
            self.filling(pool).map(drop)
        }
    }

    /// The drive and its side.
    pub(crate) const fn place(&self) -> (u8, u8) {
        (self.drive, self.side)
    }

    /// It is not filled to the end.
    pub(crate) fn give_up(&self, pool: &Pool) {
        pool.stop_filling(self.place());
    }
}

impl Pool {
    /// A side is written no more, unless it has everything.
    pub(crate) fn stop_filling(&self, (number, side): (u8, u8)) {
        let present = self.members.present();
        if let Some(Some(drive)) = present.drives.get(usize::from(number)) {
            drive.exchange(side, SideState::Filling, SideState::Stale);
        }
    }
}

/// Why a piece was not copied.
enum CopyError {
    Read(std::io::Error),
    Pool(PoolError),
}

impl From<PoolError> for CopyError {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

enum Choice {
    Copy(Place, Pin),
    /// Others have to end something first.
    Wait,
    Nothing,
}
