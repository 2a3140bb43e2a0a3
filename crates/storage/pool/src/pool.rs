//! An open pool, and changes of what it holds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_volume::{Fullness, Io};
use uuid::Uuid;

use crate::desk::Desk;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::PAGE_BYTES;
use crate::format::op::{Op, SnapshotMember, VolumeRecord};
use crate::format::record::LayerId;
use crate::log::{Failure, Inner, LaneName, OpenVolume, Piece, Target, settle_all};
use crate::members::{Label, Members};
use crate::place::{Codec, Place};
use crate::room::Promise;
use crate::shared::Shared;
use crate::tail::Tail;
use crate::waiting::Syncs;

/// A pool that is open. Shared by all its volumes and all event loops.
#[derive(Debug)]
pub struct Pool {
    pub(crate) label: Label,
    pub(crate) members: Members,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) syncs: Mutex<Syncs>,
    /// For each lane: held while a writer looks what comes next, and begins a segment.
    pub(crate) turns: [futures_util::lock::Mutex<()>; 3],
    /// Held while the catalogue loses something, or a checkpoint is made.
    pub(crate) maintenance: futures_util::lock::Mutex<()>,
    /// Held while a checkpoint is made, or superblocks are written otherwise: who keeps house may go on without
    /// `maintenance`.
    pub(crate) checkpoints: futures_util::lock::Mutex<()>,
    /// Held while a side of a mirror is compared with the other one, and written anew.
    pub(crate) mending: futures_util::lock::Mutex<()>,
    /// No checkpoint could be made when a side had been left out.
    pub(crate) is_mark_late: AtomicBool,
    /// Whether somebody keeps house.
    pub(crate) keeps_house: AtomicBool,
    pub(crate) newest: Mutex<Newest>,
    /// What takes its time.
    pub(crate) work: Mutex<Desk>,
    pub(crate) is_read_only: bool,
}

/// What is known of the newest checkpoint.
#[derive(Clone, Debug)]
pub struct Newest {
    /// Number of the superblock that names it.
    pub superblock: u64,
    pub number: u64,
    /// The last record that it has in its maps.
    pub record: u64,
    /// Segments that its stream lies in.
    pub segments: Vec<u32>,
    /// Where the next leaf goes, if there is room behind the others.
    pub tail: Option<Tail>,
}

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    pub name: String,
    /// How long it is to be, in bytes.
    pub size: u64,
    /// Either 512 or 4096 bytes.
    pub block_size: u32,
    pub codec: Codec,
    /// Bytes that it and its snapshots may take; `None`: no limit.
    pub quota: Option<u64>,
    /// Bytes that are kept for it; 0: none; [`RESERVE_FULL`](crate::RESERVE_FULL): its size.
    pub reserve: u64,
    /// `None`: a random one.
    pub id: Option<Uuid>,
}

/// Most volumes of a snapshot: their descriptions fit a record.
pub(crate) const GROUP_MAX: usize = 1024;

impl Pool {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.label.name
    }

    /// Paths of its drives, in their order.
    #[must_use]
    pub fn drives(&self) -> Vec<PathBuf> {
        self.members.paths()
    }

    /// Whether it lies on these drives. While it is open, drives may have been added and removed that a configuration does
    /// not know of: some may be missing, and others removed. Looks at the file system.
    #[must_use]
    pub fn lies_on(&self, drives: &[PathBuf]) -> bool {
        self.lay_on(drives) && drives.iter().any(|drive| self.has_drive(drive))
    }

    /// Whether all of these are drives of it, also of sides that were missing then, or were since it was opened.
    #[must_use]
    pub fn lay_on(&self, drives: &[PathBuf]) -> bool {
        let gone = [self.members.removed(), self.members.absent()].concat();
        let is_gone = |drive: &PathBuf| {
            let absolute = std::path::absolute(drive);
            gone.contains(&whole_path(drive)) || absolute.is_ok_and(|it| gone.contains(&it))
        };
        let is_known = |drive: &PathBuf| self.has_drive(drive) || is_gone(drive);
        !drives.is_empty() && drives.iter().all(is_known)
    }

    /// The pool that is meant by these drives: one that lies on them, or else one that lay on them.
    #[must_use]
    pub fn of_drives(open: &[Arc<Self>], drives: &[PathBuf]) -> Option<Arc<Self>> {
        let found = open.iter().find(|pool| pool.lies_on(drives));
        let found = found.or_else(|| open.iter().find(|pool| pool.lay_on(drives)));
        found.cloned()
    }

    /// Whether it lies on these drives, and on no other.
    #[must_use]
    pub fn lies_exactly_on(&self, drives: &[PathBuf]) -> bool {
        let present = self.drives();
        drives.iter().all(|drive| self.has_drive(drive))
            && present.iter().all(|path| {
                let path = whole_path(path);
                drives.iter().any(|drive| whole_path(drive) == path)
            })
    }

    fn has_drive(&self, drive: &Path) -> bool {
        let wanted = whole_path(drive);
        self.drives().iter().any(|path| whole_path(path) == wanted)
    }

    #[must_use]
    pub const fn id(&self) -> Uuid {
        self.label.pool
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that records are aligned to.
    pub(crate) fn unit(&self) -> usize {
        usize::try_from(self.label.unit).expect("512 or 4096")
    }

    pub(crate) fn drive(&self, place: Place) -> Option<Arc<Drive>> {
        self.members.drive(place)
    }

    /// How full it is, as its volumes tell.
    pub(crate) fn fullness(&self) -> Fullness {
        let inner = self.lock();
        inner.room.fullness(&inner.state)
    }

    /// Whether a write or sync has failed: nothing is written until the pool is opened anew.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.lock().failed == Some(Failure::Poisoned)
    }

    /// Whether records were written since the last checkpoint.
    pub(crate) fn is_dirty(&self) -> bool {
        let inner = self.lock();
        inner.failed.is_none() && inner.since_checkpoint > 0
    }

    /// Whether its drives hold it no more.
    #[must_use]
    pub fn is_destroyed(&self) -> bool {
        self.lock().failed == Some(Failure::Destroyed)
    }

    pub(crate) fn poison(&self, operation: &'static str, error: &std::io::Error) {
        let mut inner = self.lock();
        if inner.failed != Some(Failure::Poisoned) {
            tracing::error!(pool = self.name(), operation, %error, "a drive failed: nothing is \
                written until the pool is opened anew");
        }
        inner.fail(Failure::Poisoned);
    }

    /// An event loop ended in the middle of a write or sync. Others there were told so, or wait for nothing.
    pub(crate) fn abandon(&self) {
        let mut inner = self.lock();
        if inner.failed.is_none() {
            tracing::debug!(pool = self.name(), "its event loop ended during a write");
            inner.fail(Failure::Ended);
        }
    }

    pub(crate) fn error(&self, failure: Failure) -> PoolError {
        let pool = self.name().to_owned();
        match failure {
            Failure::NoSpace => PoolError::NoSpace { pool },
            Failure::Poisoned | Failure::Ended => PoolError::Poisoned { pool },
            Failure::ReadOnly => PoolError::ReadOnly { pool },
            Failure::Destroyed => PoolError::Destroyed { pool },
            Failure::OutOfMemory => PoolError::OutOfMemory,
            Failure::Unreadable => PoolError::MapUnreadable { pool },
        }
    }

    /// Waits until everything that is staged now is in the maps.
    pub(crate) async fn settle(&self) {
        let outcomes = self.lock().barrier();
        let _ = settle_all(outcomes).await;
    }

    /// Makes a volume.
    ///
    /// # Errors
    /// The name is taken or none, or the size does not fit.
    pub async fn create_volume(self: &Arc<Self>, io: &Io, new: NewVolume) -> Result<(), PoolError> {
        self.check_new(&new.name, new.size, new.block_size)?;
        let _held = self.maintenance.lock().await;
        self.refuse_taken(&new.name)?;
        let head = self.lock().state.catalog.new_layer_id();
        let volume = VolumeRecord {
            name: new.name,
            id: new.id.unwrap_or_else(Uuid::new_v4),
            size: new.size,
            block_size: new.block_size,
            codec: new.codec,
            quota: new.quota.unwrap_or(0),
            reserve: new.reserve,
            head,
        };
        self.require(io, volume.features()).await?;
        if volume.reserve > 0 {
            self.promise(&volume.name, &[Promise::of(&volume)])?;
        }
        self.change(io, Op::CreateVolume(volume)).await
    }

    /// Makes a snapshot of each of the volumes, all at one moment. Writes go on meanwhile.
    ///
    /// # Errors
    /// A volume does not exist, or has such a snapshot.
    pub async fn snapshot(
        self: &Arc<Self>,
        io: &Io,
        name: &str,
        volumes: &[String],
    ) -> Result<(), PoolError> {
        check_name(name)?;
        if volumes.is_empty() || volumes.len() > GROUP_MAX {
            return Err(PoolError::GroupSize);
        }
        let held = self.maintenance.lock().await;
        let mut members = Vec::new();
        let mut promises = Vec::new();
        {
            let mut inner = self.lock();
            let catalog = &mut inner.state.catalog;
            for volume in volumes {
                let Some(found) = catalog.volumes.get(volume) else {
                    return Err(self.no_volume(volume));
                };
                let promise = (found.reserve > 0).then(|| Promise::of(found));
                let key = (volume.clone(), name.to_owned());
                let is_repeated = members
                    .iter()
                    .any(|member: &SnapshotMember| member.volume == *volume);
                if is_repeated || catalog.snapshots.contains_key(&key) {
                    return Err(self.exists(&snapshot_name(volume, name)));
                }
                let head = catalog.new_layer_id();
                promises.extend(promise.map(|it| it.behind_snapshot(head)));
                members.push(SnapshotMember {
                    volume: volume.clone(),
                    id: Uuid::new_v4(),
                    head,
                });
            }
        }
        if !promises.is_empty() {
            self.promise(&volumes.join(", "), &promises)?;
        }
        let op = Op::Snapshot {
            name: name.to_owned(),
            members,
        };
        self.change(io, op).await?;
        // Who keeps house may have to before the rest settles.
        drop(held);
        // What was staged for the layer that is now frozen is in it before anybody reads the snapshot, and what was
        // acknowledged before is as durable as the snapshot.
        self.settle().await;
        self.flush(io).await.map_err(|failure| self.error(failure))
    }

    /// Makes a volume of a snapshot. Both share what neither changes.
    ///
    /// # Errors
    /// There is no such snapshot, or the name is taken.
    pub async fn clone_snapshot(
        self: &Arc<Self>,
        io: &Io,
        origin: &str,
        snapshot: &str,
        name: &str,
    ) -> Result<(), PoolError> {
        check_name(name)?;
        let _held = self.maintenance.lock().await;
        self.refuse_taken(name)?;
        let volume = {
            let mut inner = self.lock();
            let catalog = &mut inner.state.catalog;
            let key = (origin.to_owned(), snapshot.to_owned());
            let Some(found) = catalog.snapshots.get(&key) else {
                return Err(self.no_snapshot(origin, snapshot));
            };
            let shape = found.shape.clone();
            VolumeRecord {
                name: name.to_owned(),
                id: Uuid::new_v4(),
                quota: 0,
                head: catalog.new_layer_id(),
                ..shape
            }
        };
        let op = Op::Clone {
            origin: origin.to_owned(),
            snapshot: snapshot.to_owned(),
            volume,
        };
        self.change(io, op).await
    }

    /// Has a volume hold what a snapshot of it holds. What was written since is dropped.
    ///
    /// # Errors
    /// There is no such snapshot, or somebody has the volume open.
    pub async fn roll_back(
        self: &Arc<Self>,
        io: &Io,
        volume: &str,
        snapshot: &str,
    ) -> Result<(), PoolError> {
        self.refuse_missing(volume)?;
        let _claim = self.claim(volume)?;
        self.settle().await;
        let _held = self.maintenance.lock().await;
        self.refuse_missing(volume)?;
        let layer = {
            let mut inner = self.lock();
            let catalog = &mut inner.state.catalog;
            let key = (volume.to_owned(), snapshot.to_owned());
            let Some(found) = catalog.snapshots.get(&key) else {
                return Err(self.no_snapshot(volume, snapshot));
            };
            let asked = found.shape.block_size;
            let size = found.shape.size;
            // A volume of another block size has taken the name.
            let present = catalog
                .volumes
                .get(volume)
                .map_or(asked, |of| of.block_size);
            if present != asked {
                return Err(PoolError::BlockSize {
                    volume: volume.to_owned(),
                    present,
                    asked,
                });
            }
            let layer = catalog.new_layer_id();
            let found = catalog.volumes.get(volume);
            // Otherwise it needs no more than it had.
            let grows = found.filter(|of| of.reserve > 0 && size > of.size);
            let reserved = grows.map(|of| {
                let dropped = catalog
                    .layers
                    .get(&of.head)
                    .map_or(0, |layer| layer.map.owned());
                let next = VolumeRecord { size, ..of.clone() };
                Promise::of(&next).rolled_back(dropped, layer)
            });
            drop(inner);
            if let Some(promise) = reserved {
                self.promise(volume, &[promise])?;
            }
            layer
        };
        let op = Op::RollBack {
            volume: volume.to_owned(),
            snapshot: snapshot.to_owned(),
            layer,
        };
        self.change_and_tidy(io, op).await
    }

    /// Gives a volume another size. `may_shrink`: what lies behind a smaller one is dropped; nobody may have it open.
    ///
    /// # Errors
    /// The size does not fit.
    pub async fn resize(
        self: &Arc<Self>,
        io: &Io,
        volume: &str,
        size: u64,
        may_shrink: bool,
    ) -> Result<(), PoolError> {
        let claim = may_shrink.then(|| self.claim(volume));
        if claim.is_some() {
            self.settle().await;
        }
        let _held = self.maintenance.lock().await;
        let found = self.record_of(volume)?;
        let (present, block_size) = (found.size, found.block_size);
        check_size(volume, size, block_size)?;
        if size == present {
            return Ok(());
        }
        let _claim = match claim {
            _ if size > present => None,
            None => {
                return Err(PoolError::WouldShrink {
                    volume: volume.to_owned(),
                    present,
                    asked: size,
                });
            }
            // The rest of a page would come back when the volume grows again.
            Some(_) if !size.is_multiple_of(PAGE_BYTES) => {
                return Err(PoolError::Size {
                    volume: volume.to_owned(),
                    block_size: 4096,
                });
            }
            Some(claim) => Some(claim?),
        };
        if size > present && found.reserve > 0 {
            let next = VolumeRecord { size, ..found };
            self.promise(volume, &[Promise::of(&next).renewed()])?;
        }
        let op = Op::Resize {
            volume: volume.to_owned(),
            size,
        };
        self.change_and_tidy(io, op).await
    }

    /// Deletes a volume. Its snapshots, and clones of those, stay.
    ///
    /// # Errors
    /// There is no such volume, or somebody has it open.
    pub async fn delete_volume(self: &Arc<Self>, io: &Io, volume: &str) -> Result<(), PoolError> {
        self.refuse_missing(volume)?;
        let _claim = self.claim(volume)?;
        self.settle().await;
        let _held = self.maintenance.lock().await;
        self.refuse_missing(volume)?;
        let volume = volume.to_owned();
        self.change_and_tidy(io, Op::DeleteVolume { volume }).await
    }

    /// Deletes a snapshot. What others share with it stays.
    ///
    /// # Errors
    /// There is no such snapshot, or somebody has it open.
    pub async fn delete_snapshot(
        self: &Arc<Self>,
        io: &Io,
        volume: &str,
        name: &str,
    ) -> Result<(), PoolError> {
        let _claim = self.claim(&snapshot_name(volume, name))?;
        self.settle().await;
        let _held = self.maintenance.lock().await;
        let key = (volume.to_owned(), name.to_owned());
        if !self.lock().state.catalog.snapshots.contains_key(&key) {
            return Err(self.no_snapshot(volume, name));
        }
        let op = Op::DeleteSnapshot {
            volume: volume.to_owned(),
            name: name.to_owned(),
        };
        self.change_and_tidy(io, op).await
    }

    /// Puts a change of the catalogue into the log; it is on the medium, and made, when this ends.
    pub(crate) async fn change(self: &Arc<Self>, io: &Io, op: Op) -> Result<(), PoolError> {
        let result = self.log_change(io, op).await;
        if result.is_err() {
            // What was promised for it is not needed.
            let mut inner = self.lock();
            let Inner { room, state, .. } = &mut *inner;
            room.take_over(&state.catalog);
        }
        result
    }

    /// The same for a change that leaves something behind.
    async fn change_and_tidy(self: &Arc<Self>, io: &Io, op: Op) -> Result<(), PoolError> {
        self.change(io, op).await?;
        self.tidy_up(io).await;
        Ok(())
    }

    async fn log_change(self: &Arc<Self>, io: &Io, op: Op) -> Result<(), PoolError> {
        let pieces = vec![Piece::change(op)];
        let target = Target::Layer(LayerId(0));
        let put = self.put(io, LaneName::Spare, target, pieces, true, false);
        let outcomes = put.await.map_err(|failure| self.error(failure))?;
        let result = settle_all(outcomes).await;
        result.map_err(|failure| self.error(failure))
    }

    /// Takes a volume, or a snapshot of one (`volume@snapshot`), to use it.
    pub(crate) fn take_volume(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<(usize, VolumeRecord), PoolError> {
        let mut inner = self.lock();
        let found = match name.split_once('@') {
            None => inner.state.catalog.volumes.get(name).cloned(),
            Some((volume, snapshot)) => {
                let key = (volume.to_owned(), snapshot.to_owned());
                let found = inner.state.catalog.snapshots.get(&key);
                found.map(|found| found.shape.clone())
            }
        };
        let found = found.ok_or_else(|| self.no_volume(name))?;
        let is_taken = inner.open.iter().any(|(_, open)| open.name == name);
        let is_claimed = inner.claimed.iter().any(|claimed| claimed == name);
        if is_claimed || (is_taken && !name.contains('@')) {
            return Err(self.in_use(name));
        }
        let settings = Arc::new(Shared::new(&found, &inner.room));
        let slot = inner.open.insert(OpenVolume {
            name: name.to_owned(),
            read: found.head,
            write: found.head,
            settings,
        });
        Ok((slot, found))
    }

    /// The settings of an open volume, as they change.
    pub(crate) fn shared_settings(&self, slot: usize) -> Arc<Shared> {
        self.lock().open[slot].settings.clone()
    }

    pub(crate) fn give_back_volume(&self, slot: usize) {
        self.lock().open.remove(slot);
    }

    fn check_new(&self, name: &str, size: u64, block_size: u32) -> Result<(), PoolError> {
        check_name(name)?;
        check_size(name, size, block_size)
    }

    fn refuse_taken(&self, name: &str) -> Result<(), PoolError> {
        if self.lock().state.catalog.volumes.contains_key(name) {
            return Err(self.exists(name));
        }
        Ok(())
    }

    fn refuse_missing(&self, volume: &str) -> Result<(), PoolError> {
        if self.lock().state.catalog.volumes.contains_key(volume) {
            return Ok(());
        }
        Err(self.no_volume(volume))
    }

    /// Keeps a name from being opened while what it means changes.
    fn claim(&self, name: &str) -> Result<Claim<'_>, PoolError> {
        let mut inner = self.lock();
        let is_open = inner.open.iter().any(|(_, open)| open.name == name);
        if is_open || inner.claimed.iter().any(|claimed| claimed == name) {
            return Err(self.in_use(name));
        }
        inner.claimed.push(name.to_owned());
        Ok(Claim {
            pool: self,
            name: name.to_owned(),
        })
    }

    fn in_use(&self, volume: &str) -> PoolError {
        PoolError::InUse {
            pool: self.name().to_owned(),
            volume: volume.to_owned(),
        }
    }

    pub(crate) fn no_volume(&self, volume: &str) -> PoolError {
        PoolError::NoVolume {
            pool: self.name().to_owned(),
            volume: volume.to_owned(),
        }
    }

    pub(crate) fn no_snapshot(&self, volume: &str, name: &str) -> PoolError {
        PoolError::NoSnapshot {
            pool: self.name().to_owned(),
            volume: volume.to_owned(),
            name: name.to_owned(),
        }
    }

    fn exists(&self, name: &str) -> PoolError {
        PoolError::Exists {
            pool: self.name().to_owned(),
            name: name.to_owned(),
        }
    }

    /// Somebody begins to keep house, if nobody does.
    pub(crate) fn begin_house(&self) -> bool {
        !self.keeps_house.swap(true, Ordering::AcqRel)
    }
}

/// A name that nobody may open, until this is dropped.
struct Claim<'a> {
    pool: &'a Pool,
    name: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.pool.lock().claimed.retain(|name| *name != self.name);
    }
}

/// A path without links; of what is missing, at least from the root on.
pub(crate) fn whole_path(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// What a snapshot is called where a volume could be named.
pub(crate) fn snapshot_name(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}

/// Names of pools, volumes and snapshots.
pub(crate) fn check_name(name: &str) -> Result<(), PoolError> {
    let is_good = (1..=crate::format::superblock::NAME_MAX).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        && !name.starts_with(['.', '-']);
    if is_good {
        Ok(())
    } else {
        Err(PoolError::Name {
            name: name.to_owned(),
        })
    }
}

fn check_size(volume: &str, size: u64, block_size: u32) -> Result<(), PoolError> {
    let fits = matches!(block_size, 512 | 4096)
        && size > 0
        && size <= crate::SIZE_MAX
        && size.is_multiple_of(u64::from(block_size));
    if fits {
        Ok(())
    } else {
        Err(PoolError::Size {
            volume: volume.to_owned(),
            block_size,
        })
    }
}

/// Pages of so many bytes.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES)
}
