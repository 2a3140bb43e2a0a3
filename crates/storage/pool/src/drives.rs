//! Adding drives to an open pool, taking one out, and ending a pool.
//!
//! A drive is added by a checkpoint whose superblocks list it; its own are written first. One that is removed is emptied
//! before: what lives there is moved as cleaning does, and nothing is written there meanwhile. The superblocks of the
//! others then list it no more.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use longshore_volume::Io;

use crate::checkpoint::News;
use crate::desk::Step;
use crate::drive::{Drive, SideState};
use crate::error::PoolError;
use crate::format::superblock::{DRIVES_MAX, LENGTH, copies};
use crate::log::{Failure, LaneName};
use crate::open::{NewPool, create_side, entry_of, open_side};
use crate::place::Place;
use crate::pool::{Pool, whole_path};
use crate::reserve::map_reserve;
use crate::segments::Use;
use crate::side::Side;
use crate::stretch::Stock;
use crate::tidy::{TIDY_IN_A_HURRY, Tidied};

/// A drive to be added.
#[derive(Clone, Debug)]
pub struct NewDrive {
    pub path: PathBuf,
    /// Another file or device, which is to be the second side of a mirror.
    pub mirror: Option<PathBuf>,
    /// A file that is missing is made, with so many bytes.
    pub size: Option<u64>,
    /// What the drive holds is overwritten.
    pub force: bool,
}

impl Pool {
    /// Adds a drive, while the pool is in use. Blocks.
    ///
    /// # Errors
    /// The drive cannot be used, or holds data.
    pub fn add_drive(self: &Arc<Self>, new: &NewDrive) -> Result<(), PoolError> {
        if let Some(failed) = self.lock().failed {
            return Err(self.error(failed));
        }
        if new.mirror.is_none() && self.members.present().each().all(|(_, it)| it.is_mirror) {
            return Err(PoolError::NeedsMirror {
                pool: self.name().to_owned(),
            });
        }
        self.refuse_work()?;
        let mut made = Made::default();
        let first = self.new_side(new, &new.path, false, &mut made)?;
        let second = new.mirror.as_ref();
        let second = second.map(|path| self.new_side(new, path, false, &mut made));
        let drive = Drive::new(first, second.transpose()?);
        self.run(|pool, io| async move { pool.admit(&io, drive).await })
            .inspect(|()| made.0.clear())
            .inspect_err(|_| {
                made.0
                    .retain(|path| !self.lies_on(std::slice::from_ref(path)))
            })
    }

    /// Opens what is to be a drive of the pool, or a side of one. A file that is made for that is noted. `is_again`: the
    /// pool knows the path as that of a drive that is not there any more.
    pub(crate) fn new_side(
        &self,
        new: &NewDrive,
        path: &Path,
        is_again: bool,
        made: &mut Made,
    ) -> Result<Side, PoolError> {
        if !is_again && self.lies_on(std::slice::from_ref(&path.to_owned())) {
            return Err(PoolError::DriveThere {
                pool: self.name().to_owned(),
                path: path.to_owned(),
            });
        }
        let present = self.members.present();
        let (_, first) = present.each().next().expect("a pool has a drive");
        let how = NewPool {
            name: self.name().to_owned(),
            drives: Vec::new(),
            size: new.size,
            is_mirrored: false,
            is_direct: first.is_direct,
            force: new.force,
        };
        let is_new = !path.exists();
        let side = create_side(&how, path)?;
        if is_new {
            made.0.push(path.to_owned());
        }
        Ok(side)
    }

    /// Makes a drive that is open one of the pool's.
    pub(crate) async fn admit(self: &Arc<Self>, io: &Io, drive: Drive) -> Result<(), PoolError> {
        let _held = self.maintenance.lock().await;
        let _checkpoints = self.checkpoints.lock().await;
        self.refuse_work()?;
        let before = self.members.present();
        if before.entries.len() >= DRIVES_MAX {
            return Err(PoolError::DriveCount);
        }
        let bytes = u64::from(self.label.segment_bytes);
        let entry = entry_of(&drive, &before, bytes);
        if entry.segments == 0 {
            return Err(PoolError::TooSmall { path: drive.path });
        }
        // Superblocks of another pool are gone before any of this one is there; a drive that does not take that is not
        // added.
        wipe(io, &drive).await?;
        let after = before.with(entry, drive);
        let number = u8::try_from(before.entries.len()).expect("at most 32");
        self.members.set(after.clone());
        self.lock().state.segments.add_drive(entry);
        let news = News::NewDrive(number);
        let made = self.checkpoint_on(io, &after, news).await;
        // A superblock that may name the drive keeps it.
        if made.is_err() && self.lock().failed.is_none() {
            {
                let mut inner = self.lock();
                inner.state.segments.set_drives(before.entries.clone());
                inner.measure();
            }
            self.members.set(before);
            // Superblocks that it has got already have a number that no others get.
            self.skip_superblock();
            if let Some(Some(drive)) = after.drives.last()
                && let Err(error) = wipe(io, drive).await
            {
                tracing::warn!(pool = self.name(), %error, "a drive that was not added may keep \
                    superblocks; they are refused");
            }
        }
        made
    }

    /// The number of a drive.
    pub(crate) fn drive_number(&self, path: &Path) -> Result<u8, PoolError> {
        let (number, _) = self.find_side(path)?;
        if self.members.present().count() == 1 {
            return Err(PoolError::LastDrive {
                pool: self.name().to_owned(),
                path: path.to_owned(),
            });
        }
        Ok(number)
    }

    /// The numbers of a drive and of its side that lies there.
    pub(crate) fn find_side(&self, path: &Path) -> Result<(u8, u8), PoolError> {
        let wanted = whole_path(path);
        let present = self.members.present();
        let found = present.find(|path| whole_path(path) == wanted);
        found.ok_or_else(|| PoolError::NoDrive {
            pool: self.name().to_owned(),
            path: path.to_owned(),
        })
    }

    /// Takes note that a drive is to be removed, if the others have room for all data. Returns the bytes that live there.
    pub(crate) fn begin_leaving(&self, number: u8, path: &Path) -> Result<u64, PoolError> {
        let mut inner = self.lock();
        if let Some(failed) = inner.failed {
            return Err(self.error(failed));
        }
        inner.state.segments.begin_leaving(number);
        let inner = &mut *inner;
        // What is reserved for volumes counts as well.
        if inner.room.missing(&inner.state, &[]) > 0 {
            let room = inner.room.capacity;
            let used = inner.state.segments.live + inner.room.kept(&inner.state);
            inner.state.segments.stop_leaving();
            inner.measure();
            return Err(PoolError::NoRoomWithout {
                pool: self.name().to_owned(),
                path: path.to_owned(),
                room,
                used,
            });
        }
        Ok(inner.state.segments.live_on(number))
    }

    /// The drive stays after all.
    pub(crate) fn stop_leaving(&self) {
        let mut inner = self.lock();
        inner.state.segments.stop_leaving();
        inner.measure();
    }

    /// Makes room on the drives that stay; then moves a segment off the one that leaves, or has what was moved forgotten
    /// there; at the end, removes it.
    pub(crate) async fn leave_step(
        self: &Arc<Self>,
        io: &Io,
        number: u8,
    ) -> Result<Step, PoolError> {
        if !self.close_leaving()? {
            return self.empty_staying(io).await;
        }
        let (victim, is_vacant) = {
            let mut inner = self.lock();
            inner.leave(number);
            let segments = &inner.state.segments;
            let mut own = segments.of_drive(number).map(|it| (it, *segments.get(it)));
            let victim = own.clone().find(|(_, found)| {
                found.used == Use::Sealed && found.staged == 0 && found.live > 0
            });
            (victim, own.all(|(_, found)| found.used == Use::Gone))
        };
        if is_vacant {
            self.remove_vacant(io, number).await?;
            return Ok(Step::Done);
        }
        if self.lock().state.catalog.cache.is_clogged() {
            crate::clean::checkpoint_now(self, io).await?;
        }
        let Some((segment, found)) = victim else {
            // The checkpoint lies there still, or needs what was dead there.
            let before = self.lock().state.segments.live_on(number);
            crate::clean::checkpoint_now(self, io).await?;
            let after = self.lock().state.segments.live_on(number);
            // Leaves of maps are written elsewhere, some at a time.
            return Ok(match before.saturating_sub(after) {
                0 => Step::Wait,
                moved => Step::Did(moved),
            });
        };
        let lacks_room = || found.live + (1 << 20) > self.lock().room_for_moves();
        if lacks_room() {
            self.make_room(io).await;
            if lacks_room() {
                return Ok(Step::Wait);
            }
        }
        let moved = self.clean_segment(io, segment, &Stock::default()).await;
        match moved {
            Ok(0) if !self.lock().state.catalog.fates.is_empty() => {
                // What lives there may be about to be given back.
                match self.tidy(io, TIDY_IN_A_HURRY).await {
                    Ok(Tidied::All | Tidied::Some) => Ok(Step::Did(0)),
                    Ok(Tidied::Nothing) => {
                        crate::clean::checkpoint_now(self, io).await?;
                        Ok(Step::Wait)
                    }
                    Err(failure) => Err(self.error(failure)),
                }
            }
            Ok(0) if self.lock().state.segments.get(segment).live > 0 => {
                let place = self.lock().state.segments.place(segment);
                let path = self.drive(place).map(|drive| drive.path.clone());
                Err(PoolError::CannotMove {
                    pool: self.name().to_owned(),
                    segment,
                    path: path.unwrap_or_default(),
                })
            }
            Ok(moved) => Ok(Step::Did(moved)),
            Err(Failure::NoSpace) => Ok(Step::Wait),
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// Has nothing be written to the drive that leaves, once the others have segments for checkpoints, for what is moved and
    /// for what frees space. Whether that is so.
    fn close_leaving(&self) -> Result<bool, PoolError> {
        let mut inner = self.lock();
        if let Some(failed) = inner.failed {
            return Err(self.error(failed));
        }
        let needed = map_reserve(&inner.state) + LaneName::Data.floor() + 2;
        let segments = &mut inner.state.segments;
        if !segments.is_closed() {
            if segments.spare_of_staying() < needed {
                return Ok(false);
            }
            segments.close_leaving();
        }
        Ok(true)
    }

    /// Cleans a segment of the drives that stay.
    async fn empty_staying(self: &Arc<Self>, io: &Io) -> Result<Step, PoolError> {
        let victim = {
            let inner = self.lock();
            let room = inner.room_for_moves();
            inner
                .state
                .segments
                .victim(&[], inner.next_generation, room)
        };
        if let Some(victim) = victim {
            match self.clean_segment(io, victim, &Stock::default()).await {
                Ok(_) | Err(Failure::NoSpace) => {}
                Err(failure) => return Err(self.error(failure)),
            }
        }
        crate::clean::checkpoint_now(self, io).await?;
        Ok(Step::Wait)
    }

    async fn remove_vacant(self: &Arc<Self>, io: &Io, number: u8) -> Result<(), PoolError> {
        let _held = self.maintenance.lock().await;
        let _checkpoints = self.checkpoints.lock().await;
        let before = self.members.present();
        let after = before.without(number);
        self.checkpoint_on(io, &after, News::Nothing).await?;
        self.lock().state.segments.set_drives(after.entries.clone());
        self.members.set(after);
        let drive = before.drives.get(usize::from(number));
        let Some(drive) = drive.and_then(Option::as_ref) else {
            return Ok(());
        };
        for (_, side) in drive.sides() {
            self.members.note_removed(whole_path(&side.path));
        }
        if let Err(error) = wipe(io, drive).await {
            tracing::warn!(pool = self.name(), %error, "a drive was removed, and keeps its old \
                superblocks; they are not taken for new ones");
        }
        Ok(())
    }

    /// Ends the pool: its drives hold none from then on. `force`: also if it has volumes or snapshots. Blocks.
    ///
    /// # Errors
    /// A volume is in use, or a drive could not be written.
    pub fn destroy(self: &Arc<Self>, force: bool) -> Result<(), PoolError> {
        self.refuse_work()?;
        {
            let mut inner = self.lock();
            if !inner.open.is_empty() || !inner.claimed.is_empty() {
                return Err(PoolError::PoolInUse {
                    pool: self.name().to_owned(),
                });
            }
            let catalog = &inner.state.catalog;
            let (volumes, snapshots) = (catalog.volumes.len(), catalog.snapshots.len());
            if volumes + snapshots > 0 && !force {
                return Err(PoolError::NotVacant {
                    pool: self.name().to_owned(),
                    volumes,
                    snapshots,
                });
            }
            inner.fail(Failure::Destroyed);
        }
        self.run(|pool, io| async move {
            let _held = pool.maintenance.lock().await;
            let _checkpoints = pool.checkpoints.lock().await;
            for (_, drive) in pool.members.present().each() {
                wipe(&io, drive).await?;
            }
            Ok(())
        })
    }
}

/// Takes a pool off drives that do not open as one. All or none are touched. Blocks.
///
/// # Errors
/// None of them holds a pool, they hold several, somebody has one open, or one could not be written.
pub fn wipe_drives(paths: &[PathBuf]) -> Result<(), PoolError> {
    let mut sides = Vec::new();
    let mut pools = Vec::new();
    let mut without = None;
    for path in paths {
        let side = open_side(path, false, false)?;
        match crate::open::label_of(&side) {
            Ok(label) if pools.iter().any(|pool| *pool != label.pool) => {
                return Err(PoolError::OtherPool { path: path.clone() });
            }
            Ok(label) => pools.push(label.pool),
            Err(PoolError::Damaged { .. }) => {}
            // Somebody has begun to wipe them.
            Err(error @ PoolError::NoPool { .. }) => {
                without = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        }
        sides.push(side);
    }
    if sides.is_empty() {
        return Err(without.unwrap_or(PoolError::DriveCount));
    }
    crate::run::block_on(move |io| async move {
        for side in &sides {
            wipe_side(&io, side).await?;
        }
        Ok(())
    })
}

/// Overwrites all superblocks of a drive: of a mirror, those of all sides, the failed ones as far as they take it.
async fn wipe(io: &Io, drive: &Drive) -> Result<(), PoolError> {
    let mut result = Ok(());
    for (number, side) in drive.sides() {
        let wiped = wipe_side(io, side).await;
        if drive.state(number) != SideState::Stale {
            result = result.and(wiped);
        }
    }
    result
}

/// Overwrites all superblocks of a side.
pub(crate) async fn wipe_side(io: &Io, side: &Side) -> Result<(), PoolError> {
    for place in copies(side.bytes).concat() {
        let buffer = Buffer::try_allocate(LENGTH).ok_or(PoolError::OutOfMemory)?;
        let (result, _) = side.write(io, place, buffer, 0..LENGTH, false).await;
        result.map_err(|error| side.error("write", error))?;
    }
    let synced = side.sync(io).await;
    synced.map_err(|error| side.error("fdatasync", error))
}

/// Files that were made for a pool; unless they become part of it, they go again.
#[derive(Debug, Default)]
pub(crate) struct Made(pub Vec<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where the drive of a place is, for messages.
pub(crate) fn path_of(pool: &Pool, place: Place) -> PathBuf {
    pool.drive(place)
        .map(|drive| drive.path.clone())
        .unwrap_or_default()
}
