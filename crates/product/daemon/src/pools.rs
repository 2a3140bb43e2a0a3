//! Pools: what they hold, and changes of that, for the API of a server and for verbs without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longshore_api::plane::no_pool;
use longshore_api::pool::{
    NewPoolVolume, Pool as Shown, PoolChange, PoolChanges, PoolFinding, PoolRange, PoolRebuild,
    PoolSide, PoolSideState, PoolSnapshot, PoolState, PoolUsage, PoolVolume, PoolVolumeSettings,
    PoolWork, PoolWorkKind, PoolWorkState, SnapshotId,
};
use longshore_api::problem::{Problem, ProblemCode};
use longshore_pool::{
    ListedSnapshot, NewDrive, NewVolume, Pool, PoolError, PoolOptions, SideState, Slot,
    SnapshotName, VolumeSettings, Work, WorkKind, WorkState,
};
use longshore_volume::VolumeSpec;

use crate::backends::{self, HeldPool};
use crate::config::pool::{Compression, PoolConfig, Reserve};
use crate::held;

/// Ranges after which an answer ends; the next part follows on request.
const RANGES: usize = 10_000;

/// What an open pool holds.
#[must_use]
pub fn describe(pool: &Pool) -> Shown {
    let usage = pool.usage();
    let volumes = pool.volumes().into_iter().map(|volume| PoolVolume {
        uuid: volume.id.to_string(),
        size_bytes: volume.size,
        block_size: volume.block_size,
        compression: Compression::word(volume.codec).to_owned(),
        quota_bytes: volume.quota,
        reserve_bytes: volume.reserve.map(|reserve| reserve.bytes),
        reserve_full: volume.reserve.is_some_and(|reserve| reserve.is_full),
        owned_bytes: volume.owned,
        shared_bytes: volume.shared,
        in_use: volume.is_open,
        snapshots: snapshots(volume.snapshots),
        name: volume.name,
    });
    Shown {
        name: pool.name().to_owned(),
        uuid: Some(pool.id().to_string()),
        state: if pool.is_destroyed() {
            PoolState::Destroyed
        } else if pool.is_poisoned() {
            PoolState::Failed
        } else {
            PoolState::Open
        },
        drives: texts(pool.drives().iter().map(PathBuf::as_path)),
        mirrors: sides(pool),
        usage: Some(PoolUsage {
            size_bytes: usage.size,
            capacity_bytes: usage.capacity,
            used_bytes: usage.used,
            reserved_bytes: usage.kept,
            segment_bytes: usage.segment_bytes,
            segments: usage.segments,
            free_segments: usage.free_segments,
            host_bytes: usage.host_bytes,
            record_bytes: usage.record_bytes,
            map_bytes: usage.map_bytes,
        }),
        volumes: volumes.collect(),
        orphans: snapshots(pool.orphans()),
        work: pool.work().map(work),
    }
}

fn sides(pool: &Pool) -> Vec<PoolSide> {
    let sides = pool.sides().into_iter().map(|side| PoolSide {
        mirror: side.drive,
        uuid: side.id.to_string(),
        path: side
            .path
            .and_then(|path| texts([path.as_path()].into_iter()).pop()),
        state: match side.state {
            SideState::Current => PoolSideState::Current,
            SideState::Filling => PoolSideState::Filling,
            SideState::Stale => PoolSideState::Stale,
        },
        read_errors: side.read_errors,
        mended: side.mended,
    });
    sides.collect()
}

fn work(work: Work) -> PoolWork {
    let (state, error) = match work.state {
        WorkState::Running => (PoolWorkState::Running, None),
        WorkState::Done => (PoolWorkState::Done, None),
        WorkState::Stopped => (PoolWorkState::Stopped, None),
        WorkState::Failed(error) => (PoolWorkState::Failed, Some(error)),
    };
    let (kind, drive) = match work.kind {
        WorkKind::Scrub => (PoolWorkKind::Scrub, None),
        WorkKind::Remove(path) => {
            let path = path.to_string_lossy().into_owned();
            (PoolWorkKind::RemoveDrive, Some(path))
        }
        WorkKind::Rebuild(path) => {
            let path = path.to_string_lossy().into_owned();
            (PoolWorkKind::Rebuild, Some(path))
        }
    };
    let findings = work.findings.into_iter().map(|finding| PoolFinding {
        subject: finding.subject,
        text: finding.text,
    });
    PoolWork {
        kind,
        drive,
        state,
        error,
        done_bytes: work.done,
        sum_bytes: work.sum,
        began_ms: milliseconds(work.began),
        ended_ms: work.ended.map(milliseconds),
        findings: findings.collect(),
        more_findings: work.more,
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn snapshots(listed: Vec<ListedSnapshot>) -> Vec<PoolSnapshot> {
    let listed = listed.into_iter().map(|snapshot| PoolSnapshot {
        name: snapshot.name,
        volume: snapshot.origin,
        uuid: snapshot.id.to_string(),
        size_bytes: snapshot.size,
        owned_bytes: snapshot.owned,
        in_use: snapshot.is_open,
    });
    listed.collect()
}

fn texts<'a>(paths: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    paths
        .map(|path| absolute(path).to_string_lossy().into_owned())
        .collect()
}

/// Why a pool is not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Compression(#[from] crate::config::pool::PoolSettingError),
    #[error("{}: is relative; write an absolute path", .0.display())]
    Relative(PathBuf),
}

/// Changes what a pool holds. It is on the drives when this ends. Blocks.
///
/// # Errors
/// Why nothing was changed.
pub fn carry_out(pool: &Arc<Pool>, change: &PoolChange) -> Result<(), ChangeError> {
    let change = change.clone();
    let done = match change {
        PoolChange::CreateVolume(new) => {
            let new = new_volume(new)?;
            pool.run(|pool, io| async move { pool.create_volume(&io, new).await })
        }
        PoolChange::Resize { volume, to } => pool.run(move |pool, io| async move {
            pool.resize(&io, &volume, to.size_bytes, to.shrink).await
        }),
        PoolChange::Set { volume, to } => {
            let settings = new_settings(&to)?;
            pool.run(move |pool, io| async move { pool.set(&io, &volume, settings).await })
        }
        PoolChange::DeleteVolume { volume } => {
            pool.run(move |pool, io| async move { pool.delete_volume(&io, &volume).await })
        }
        PoolChange::Snapshot(new) => pool
            .run(move |pool, io| async move { pool.snapshot(&io, &new.name, &new.volumes).await }),
        PoolChange::DeleteSnapshot(of) => pool.run(move |pool, io| async move {
            pool.delete_snapshot(&io, &of.volume, &of.name).await
        }),
        PoolChange::RollBack(to) => {
            pool.run(move |pool, io| async move { pool.roll_back(&io, &to.volume, &to.name).await })
        }
        PoolChange::Clone { of, name } => pool.run(move |pool, io| async move {
            pool.clone_snapshot(&io, &of.volume, &of.name, &name).await
        }),
        PoolChange::AddDrive(new) => pool.add_drive(&NewDrive {
            path: whole(&new.path)?,
            mirror: new.mirror.as_deref().map(whole).transpose()?,
            size: new.size_bytes,
            force: new.force,
        }),
        PoolChange::Attach(of) => return rebuild(pool, Slot::Beside(whole(&of.path)?), &of),
        PoolChange::Replace(of) => return rebuild(pool, Slot::Of(whole(&of.path)?), &of),
        PoolChange::Offline(of) => pool.leave_out(&whole(&of.path)?),
        PoolChange::RemoveDrive(of) => pool.begin_removal(&whole(&of.path)?, of.rate_bytes),
        PoolChange::Scrub(how) => pool.begin_scrub(how.rate_bytes),
        PoolChange::Stop => pool.stop_work(),
        PoolChange::Destroy(end) => pool.destroy(end.force),
    };
    Ok(done?)
}

/// Finds where a snapshot differs from another one, from a byte on. `next` says where to continue. Blocks.
///
/// # Errors
/// There is no such snapshot.
pub fn compare(
    pool: &Arc<Pool>,
    of: &SnapshotId,
    since: &SnapshotId,
    from: u64,
) -> Result<PoolChanges, PoolError> {
    pool.wait_until_settled();
    let changes = pool.changes(snapshot_name(of), snapshot_name(since), from, RANGES)?;
    let ranges = changes.ranges.into_iter().map(|range| PoolRange {
        offset: range.start,
        bytes: range.end - range.start,
    });
    Ok(PoolChanges {
        uuid: changes.id.to_string(),
        since_uuid: changes.since.to_string(),
        size_bytes: changes.size,
        ranges: ranges.collect(),
        next: changes.next,
    })
}

fn snapshot_name(of: &SnapshotId) -> SnapshotName<'_> {
    SnapshotName {
        volume: &of.volume,
        name: &of.name,
    }
}

fn rebuild(pool: &Arc<Pool>, slot: Slot, of: &PoolRebuild) -> Result<(), ChangeError> {
    let new = NewDrive {
        path: whole(&of.with)?,
        mirror: None,
        size: of.size_bytes,
        force: of.force,
    };
    Ok(pool.begin_rebuild(&slot, &new, of.rate_bytes)?)
}

/// A path does not depend on where the server was started.
fn whole(path: &str) -> Result<PathBuf, ChangeError> {
    let path = PathBuf::from(path);
    match path.is_absolute() {
        true => Ok(path),
        false => Err(ChangeError::Relative(path)),
    }
}

fn new_settings(to: &PoolVolumeSettings) -> Result<VolumeSettings, ChangeError> {
    let codec = to.compression.as_deref().map(str::parse::<Compression>);
    let reserve = to.reserve.as_deref().map(str::parse::<Reserve>);
    Ok(VolumeSettings {
        codec: codec.transpose()?.map(|it| it.0),
        quota: to.quota_bytes,
        reserve: reserve.transpose()?.map(|it| it.0),
    })
}

fn new_volume(new: NewPoolVolume) -> Result<NewVolume, ChangeError> {
    let codec = new.compression.as_deref().map(str::parse::<Compression>);
    let reserve = new.reserve.as_deref().map(str::parse::<Reserve>);
    Ok(NewVolume {
        name: new.name,
        size: new.size_bytes,
        block_size: new.block_size.unwrap_or(512),
        codec: codec.transpose()?.map(|it| it.0).unwrap_or_default(),
        quota: new.quota_bytes,
        reserve: reserve.transpose()?.map_or(0, |it| it.0),
        id: None,
    })
}

/// Settings of a volume of a pool that a change of the configuration brings, while it is served.
pub(crate) struct NewSettings {
    pub name: String,
    place: InPool,
    settings: VolumeSettings,
}

impl NewSettings {
    /// `None`: it is not in a pool, or nothing is said of it that can change.
    pub(crate) fn of(spec: &VolumeSpec) -> Option<Self> {
        let place = InPool::of(spec)?;
        let settings = spec.options::<PoolOptions>()?.settings();
        let is_fixed = spec.read_only || place.volume.contains('@');
        (!is_fixed && settings != VolumeSettings::default()).then(|| Self {
            name: spec.name.clone(),
            place,
            settings,
        })
    }

    /// Sets what is new. `None`: nothing is. Blocks.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub(crate) fn apply(&self) -> Result<Option<SetVolume>, ChangeError> {
        let pool = self.place.pool()?;
        let volume = self.place.volume.clone();
        let Some(before) = pool.settings_of(&volume) else {
            return Ok(None);
        };
        let new = self.settings.differences(before);
        if new == VolumeSettings::default() {
            return Ok(None);
        }
        let name = volume.clone();
        pool.run(move |pool, io| async move { pool.set(&io, &name, new).await })?;
        Ok(Some(SetVolume {
            pool,
            volume,
            before,
        }))
    }
}

/// A volume of a pool whose settings were changed.
pub(crate) struct SetVolume {
    pool: HeldPool,
    volume: String,
    before: VolumeSettings,
}

impl SetVolume {
    /// The change did not come about. Blocks.
    pub(crate) fn undo(&self) {
        let (volume, before) = (self.volume.clone(), self.before);
        let pool = &self.pool;
        let set = pool.run(move |pool, io| async move { pool.set(&io, &volume, before).await });
        if let Err(error) = set {
            tracing::warn!(
                volume = self.volume,
                "a change that did not come about set compression, quota or reserved space: {error}"
            );
        }
    }
}

/// A volume of a pool, as the configuration names it.
#[derive(Clone)]
pub(crate) struct InPool {
    drives: Vec<PathBuf>,
    direct: bool,
    volume: String,
}

impl InPool {
    /// `None`: it is not in a pool.
    pub(crate) fn of(spec: &VolumeSpec) -> Option<Self> {
        let options = spec.options::<PoolOptions>()?;
        Some(Self {
            drives: options.drives.clone(),
            direct: spec.direct,
            volume: options.volume.clone().unwrap_or_else(|| spec.name.clone()),
        })
    }

    fn pool(&self) -> Result<HeldPool, PoolError> {
        backends::pool(&self.drives, self.direct)
    }

    /// Whether it can have that size. Blocks.
    ///
    /// # Errors
    /// The space that is reserved for it is not there.
    pub(crate) fn check_growth(&self, size: u64) -> Result<(), PoolError> {
        self.pool()?.check_growth(&self.volume, size)
    }
}

/// A volume that was made in a pool for a change of the configuration.
pub(crate) struct MadeVolume(InPool);

impl MadeVolume {
    /// `None`: it is not in a pool.
    pub(crate) fn of(spec: &VolumeSpec) -> Option<Self> {
        InPool::of(spec).map(Self)
    }

    /// The change did not come about. Nobody was told of the volume. Blocks.
    pub(crate) fn delete(&self) {
        let volume = self.0.volume.clone();
        let deleted = self.0.pool().map_err(ChangeError::from);
        let deleted =
            deleted.and_then(|pool| carry_out(&pool, &PoolChange::DeleteVolume { volume }));
        if let Err(error) = deleted {
            tracing::warn!(
                volume = self.0.volume,
                "a change that did not come about made the volume in its pool, and it stays there: {error}"
            );
        }
    }
}

/// Pools that are open, and those of the configuration, by name.
pub(crate) fn all(configured: &[PoolConfig]) -> Vec<Shown> {
    let open = backends::open_pools();
    let mut found: Vec<Shown> = open.iter().map(|pool| describe(pool)).collect();
    let is_open = |config: &&PoolConfig| open.iter().any(|pool| pool.lay_on(&config.drives));
    for config in configured.iter().filter(|config| !is_open(config)) {
        found.push(Shown {
            name: config.name.clone(),
            uuid: None,
            state: PoolState::Closed,
            drives: texts(config.drives.iter().map(PathBuf::as_path)),
            mirrors: Vec::new(),
            usage: None,
            volumes: Vec::new(),
            orphans: Vec::new(),
            work: None,
        });
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// A pool by its name, its UUID or its name in the configuration. Blocks.
pub(crate) fn shown(configured: &[PoolConfig], name: &str) -> Result<Shown, Box<Problem>> {
    let found = find(configured, name)?;
    Ok(found.shown())
}

/// Changes what a pool holds. Blocks.
pub(crate) fn change(
    configured: &[PoolConfig],
    name: &str,
    change: &PoolChange,
) -> Result<Shown, Box<Problem>> {
    let found = find(configured, name)?;
    refuse_to_resize_served(&found.pool, change)?;
    refuse_in_sandbox(&found.pool, change)?;
    carry_out(&found.pool, change).map_err(|error| problem(name, &error))?;
    let takes_time = matches!(
        change,
        PoolChange::RemoveDrive(_)
            | PoolChange::Scrub(_)
            | PoolChange::Attach(_)
            | PoolChange::Replace(_)
    );
    if takes_time {
        backends::hold_while_it_works(&found.pool);
    }
    Ok(found.shown())
}

/// Where a snapshot differs from another one. Blocks.
pub(crate) fn changes(
    configured: &[PoolConfig],
    name: &str,
    of: &SnapshotId,
    since: &SnapshotId,
    from: u64,
) -> Result<PoolChanges, Box<Problem>> {
    let found = find(configured, name)?;
    compare(&found.pool, of, since, from).map_err(|error| problem(name, &error.into()))
}

/// The size of a volume that is served is part of the configuration: both would differ at the next start.
fn refuse_to_resize_served(pool: &Pool, change: &PoolChange) -> Result<(), Box<Problem>> {
    let PoolChange::Resize { volume, .. } = change else {
        return Ok(());
    };
    let mut volumes = pool.volumes().into_iter();
    if !volumes.any(|found| found.name == *volume && found.is_open) {
        return Ok(());
    }
    let title = format!("volume {volume} of pool {} is served", pool.name());
    let problem =
        Problem::new(ProblemCode::InUse, title).about(format_args!("pool {}", pool.name()));
    Err(Box::new(problem.advise(
        "change the size of the volume that serves it: longshore volume resize, or `size` in the file",
    )))
}

/// The sandbox has been made before the server knew of the drive.
fn refuse_in_sandbox(pool: &Pool, change: &PoolChange) -> Result<(), Box<Problem>> {
    let paths = match change {
        PoolChange::AddDrive(new) => vec![Some(&new.path), new.mirror.as_ref()],
        PoolChange::Attach(of) | PoolChange::Replace(of) => vec![Some(&of.with)],
        _ => Vec::new(),
    };
    let mut paths = paths.into_iter().flatten().map(Path::new);
    match paths.find_map(held::refuses_path) {
        None => Ok(()),
        Some((title, advice)) => {
            let problem = Problem::new(ProblemCode::Invalid, title);
            let problem = problem.about(format_args!("pool {}", pool.name()));
            Err(Box::new(problem.advise(advice)))
        }
    }
}

struct Found {
    pool: HeldPool,
    was_open: bool,
}

impl Found {
    fn shown(&self) -> Shown {
        let mut shown = describe(&self.pool);
        if !self.was_open && shown.state == PoolState::Open {
            shown.state = PoolState::Closed;
        }
        shown
    }
}

fn find(configured: &[PoolConfig], name: &str) -> Result<Found, Box<Problem>> {
    let config = configured.iter().find(|config| config.name == name);
    let is_meant = |pool: &HeldPool| {
        pool.name() == name
            || pool.id().to_string() == name
            || config.is_some_and(|config| pool.lay_on(&config.drives))
    };
    let mut open = backends::open_pools().into_iter().filter(is_meant);
    match (open.next(), open.next()) {
        (Some(pool), None) => Ok(Found {
            pool,
            was_open: true,
        }),
        (Some(_), Some(_)) => {
            let title = format!("several pools are called {name}");
            let problem = Problem::new(ProblemCode::Invalid, title);
            Err(Box::new(
                problem.advise("name the one that is meant by its UUID"),
            ))
        }
        (None, _) => {
            let config = config.ok_or_else(|| no_pool(name))?;
            let pool = backends::pool(&config.drives, config.direct)
                .map_err(|error| problem(name, &error.into()))?;
            Ok(Found {
                pool,
                was_open: false,
            })
        }
    }
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "every other failure is the system's here, also those that pools add"
)]
pub(crate) fn problem(name: &str, error: &ChangeError) -> Box<Problem> {
    let code = match error {
        ChangeError::Compression(_) | ChangeError::Relative(_) => ProblemCode::Invalid,
        ChangeError::Pool(error) => match error {
            PoolError::NoVolume { .. } | PoolError::NoSnapshot { .. } => ProblemCode::NotFound,
            PoolError::Exists { .. } => ProblemCode::Exists,
            PoolError::NoDrive { .. } | PoolError::NoWork { .. } => ProblemCode::NotFound,
            PoolError::DriveThere { .. } => ProblemCode::Exists,
            PoolError::InUse { .. }
            | PoolError::PoolInUse { .. }
            | PoolError::NotVacant { .. }
            | PoolError::LastDrive { .. }
            | PoolError::LastSide { .. }
            | PoolError::SideInUse { .. } => ProblemCode::InUse,
            PoolError::Working { .. } => ProblemCode::Busy,
            PoolError::NoSpace { .. }
            | PoolError::NoRoomWithout { .. }
            | PoolError::CannotReserve { .. } => ProblemCode::NoSpace,
            PoolError::Name { .. }
            | PoolError::Size { .. }
            | PoolError::WouldShrink { .. }
            | PoolError::TooSmall { .. }
            | PoolError::NotEmpty { .. }
            | PoolError::NeedsMirror { .. }
            | PoolError::NoMirror { .. }
            | PoolError::IsMirror { .. }
            | PoolError::SmallSide { .. }
            | PoolError::DriveCount => ProblemCode::Invalid,
            _ => ProblemCode::System,
        },
    };
    let about = format!("pool {name}");
    Box::new(Problem::new(code, error.to_string()).about(about))
}
