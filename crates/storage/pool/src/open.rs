//! Making, opening and closing a pool.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use longshore_reactor::storage::FileHandle;
use longshore_volume::{Io, lock};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::drive::{Drive, SideState};
use crate::error::PoolError;
use crate::format::RESERVED_BYTES;
use crate::format::superblock::{
    DRIVES_MAX, DriveEntry, LENGTH, Mirror, READ_ONLY_COMPATIBLE_KNOWN, SEGMENT_MAX, SEGMENT_MIN,
    SEGMENTS_MAX, Superblock, copies, tail_start,
};
use crate::log::{Failure, Inner};
use crate::members::{Label, Members, Present};
use crate::place::DRIVE_BYTES_MAX;
use crate::pool::{Newest, Pool, check_name, whole_path};
use crate::recovery::{Recovered, recover};
use crate::run::block_on;
use crate::segments::Segments;
use crate::side::{Side, io_error};
use crate::state::State;

/// Bytes of the smallest drive.
pub const DRIVE_MIN: u64 = 64 << 20;

/// Segments that a pool has at least, where it is large enough for segments of their largest common size.
const SEGMENTS_WANTED: u64 = 128;

/// Largest segments that a pool is made with, and smallest.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=32 << 20;

/// A pool to be made.
#[derive(Clone, Debug)]
pub struct NewPool {
    pub name: String,
    /// Files and devices, in their order. A file that is missing is made, with `size` bytes.
    pub drives: Vec<PathBuf>,
    pub size: Option<u64>,
    /// The first and second drive are a mirror, the third and fourth, and so on.
    pub is_mirrored: bool,
    /// Bypass the page cache.
    pub is_direct: bool,
    /// What the drives hold is overwritten.
    pub force: bool,
}

impl Pool {
    /// Makes a pool, and opens it. Blocks.
    ///
    /// # Errors
    /// A drive cannot be used, or holds data.
    pub fn create(new: &NewPool) -> Result<Arc<Self>, PoolError> {
        check_name(&new.name)?;
        let sides_each = if new.is_mirrored { 2 } else { 1 };
        if new.drives.is_empty() || new.drives.len() > DRIVES_MAX * sides_each {
            return Err(PoolError::DriveCount);
        }
        if !new.drives.len().is_multiple_of(sides_each) {
            return Err(PoolError::OddMirror);
        }
        let mut sides = Vec::new();
        for path in &new.drives {
            sides.push(create_side(new, path)?);
        }
        let (name, is_mirrored) = (new.name.clone(), new.is_mirrored);
        block_on(move |io| async move { create_on(&io, &name, sides, is_mirrored).await })
    }

    /// Opens the pool that lies on these drives, whatever their order. Blocks.
    ///
    /// # Errors
    /// They are not those of one pool, or it is damaged.
    pub fn open(
        paths: &[PathBuf],
        is_direct: bool,
        is_read_only: bool,
    ) -> Result<Arc<Self>, PoolError> {
        Self::open_with(
            paths,
            is_direct,
            Opening {
                is_read_only,
                // A look at what is left does no harm.
                is_degraded: is_read_only,
                unopened: 0,
            },
        )
    }

    /// Opens the pool though a side of a mirror is missing that it does not know to be stale, and leaves that out. Blocks.
    ///
    /// # Errors
    /// Both sides of a mirror are missing, and all else that [`Self::open`] says.
    pub fn open_degraded(paths: &[PathBuf], is_direct: bool) -> Result<Arc<Self>, PoolError> {
        Self::open_with(
            paths,
            is_direct,
            Opening {
                is_read_only: false,
                is_degraded: true,
                unopened: 0,
            },
        )
    }

    fn open_with(paths: &[PathBuf], is_direct: bool, how: Opening) -> Result<Arc<Self>, PoolError> {
        let mut sides = Vec::new();
        let (mut absent, mut unopened) = (Vec::new(), 0);
        let mut missing = None;
        for path in paths {
            match open_side(path, is_direct, how.is_read_only) {
                Ok(side) => sides.push(side),
                // The pool may do without a side of a mirror; one that somebody has open is there.
                Err(error @ PoolError::Io { .. }) => {
                    // Where a link is missing, it may lead elsewhere when it is back.
                    absent.push(whole_path(path));
                    absent.extend(std::path::absolute(path));
                    unopened += 1;
                    missing = missing.or(Some(error));
                }
                Err(error) => return Err(error),
            }
        }
        if sides.is_empty() {
            return Err(missing.unwrap_or(PoolError::DriveCount));
        }
        let how = Opening { unopened, ..how };
        let opened = block_on(move |io| async move { open_on(&io, sides, how).await });
        match (opened, missing) {
            // Why a drive is missing tells more than that it is.
            (Err(PoolError::DrivesMissing { advice, .. }), Some(error)) => {
                Err(PoolError::DriveAway {
                    source: Box::new(error),
                    advice,
                })
            }
            (Ok(pool), missing) => {
                if let Some(error) = missing {
                    tracing::warn!(pool = pool.name(), %error, "a side of a mirror is missing");
                }
                for path in absent {
                    pool.members.note_absent(path);
                }
                Ok(pool)
            }
            (opened, _) => opened,
        }
    }

    /// Makes a last checkpoint, so that the pool opens at once. Blocks. Without it nothing is lost.
    ///
    /// # Errors
    /// It could not be made.
    pub fn close(self: &Arc<Self>) -> Result<(), PoolError> {
        if self.is_read_only {
            return Ok(());
        }
        let pool = self.clone();
        block_on(move |io| async move {
            pool.settle().await;
            crate::clean::checkpoint_now(&pool, &io).await
        })
    }

    /// Waits until everything that is staged now is in the maps. Blocks.
    ///
    /// The catalogue lists a snapshot before all writes that were staged for it have reached its map.
    pub fn wait_until_settled(self: &Arc<Self>) {
        self.run(|pool, _| async move { pool.settle().await });
    }

    /// Runs a change of the pool on this thread. Blocks.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Self>, Io) -> F,
    ) -> T {
        let pool = self.clone();
        block_on(move |io| work(pool, io))
    }
}

/// What the superblock of a file or device says.
///
/// # Errors
/// There is none.
pub fn read_label(path: &Path) -> Result<Superblock, PoolError> {
    let options = OpenOptions::new().read(true).open(path);
    let file = options.map_err(|error| io_error("open", path, error))?;
    label_of(&side_of(file, path, false)?)
}

/// What the superblock of a file or device that is open says.
pub(crate) fn label_of(side: &Side) -> Result<Superblock, PoolError> {
    let side = side.clone();
    block_on(move |io| async move { newest_label(&io, &side).await })
}

/// How a pool is opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub is_read_only: bool,
    /// A side of a mirror may be missing that the pool does not know to be stale.
    pub is_degraded: bool,
    /// Drives that were named, and could not be opened.
    pub unopened: usize,
}

/// Makes a pool on drives that are open.
pub(crate) async fn create_on(
    io: &Io,
    name: &str,
    sides: Vec<Side>,
    is_mirrored: bool,
) -> Result<Arc<Pool>, PoolError> {
    let segment_bytes = segment_bytes(&sides);
    let mut drives = Vec::new();
    let mut sides = sides.into_iter();
    while let Some(side) = sides.next() {
        let second = if is_mirrored { sides.next() } else { None };
        drives.push(Drive::new(side, second));
    }
    let mut present = Present::default();
    for drive in drives {
        let entry = entry_of(&drive, &present, segment_bytes);
        present = present.with(entry, drive);
    }
    let label = Label {
        pool: Uuid::new_v4(),
        name: name.to_owned(),
        segment_bytes: u32::try_from(segment_bytes).expect("at most 64 MiB"),
        unit: 4096,
        incompatible: 0,
        read_only_compatible: 0,
    };
    let state = State {
        catalog: Catalog::default(),
        segments: Segments::new(present.entries.clone(), label.segment_bytes),
        applied: 0,
    };
    let recovered = Recovered {
        state,
        newest: Newest {
            superblock: 0,
            number: 0,
            segments: Vec::new(),
        },
        next: 1,
        next_generation: 1,
        replayed: 0,
        torn: 0,
        used: Vec::new(),
    };
    let pool = assemble(label, present, recovered, false);
    crate::clean::checkpoint_now(&pool, io).await?;
    Ok(pool)
}

/// How a drive is listed behind those that are there.
pub(crate) fn entry_of(drive: &Drive, present: &Present, segment_bytes: u64) -> DriveEntry {
    let room = tail_start(drive.bytes) - RESERVED_BYTES;
    let last = present.entries.last();
    let first_segment = last.map_or(0, |last| last.first_segment + last.segments);
    let room = u32::try_from(room / segment_bytes).unwrap_or(SEGMENTS_MAX);
    DriveEntry {
        id: Uuid::new_v4(),
        first_segment,
        segments: room.min(SEGMENTS_MAX - first_segment.min(SEGMENTS_MAX)),
        mirror: drive.is_mirror.then(|| Mirror {
            id: Uuid::new_v4(),
            stale: None,
        }),
    }
}

/// Opens the pool on drives that are open.
pub(crate) async fn open_on(
    io: &Io,
    sides: Vec<Side>,
    how: Opening,
) -> Result<Arc<Pool>, PoolError> {
    let is_read_only = how.is_read_only;
    let Sorted {
        label,
        drives,
        has_left_out,
    } = sort_drives(io, sides, how).await?;
    if !is_read_only {
        if label.read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN != 0 {
            return Err(PoolError::LaterVersion { pool: label.name });
        }
        // A killed process may have left superblocks that are not on the medium, and what they replace is about to be
        // overwritten.
        for drive in drives.iter().flatten() {
            drive
                .sync(io)
                .await
                .map_err(|error| drive.error("fdatasync", error))?;
        }
    }
    let mut recovered = recover(io, &label, &drives).await?;
    if recovered.replayed > 0 {
        tracing::info!(
            pool = label.name,
            records = recovered.replayed,
            torn = recovered.torn,
            "replayed what was written since the last checkpoint"
        );
    }
    let present = Present {
        entries: label.drives.clone(),
        drives,
    };
    // A side that fails while the pool is opened may be the one that has everything.
    if !how.is_degraded
        && let Some(path) = present.newly_stale()
    {
        return Err(PoolError::SideFailed {
            pool: label.name,
            path,
        });
    }
    if has_left_out {
        // The side that is missing may go on by itself: records of its own must not be taken for those of this one.
        let apart = Uuid::new_v4().as_u64_pair().1 >> 24;
        recovered.next_generation += (1 << 40) + apart;
    }
    let used = std::mem::take(&mut recovered.used);
    let has_replayed = recovered.replayed > 0;
    let pool = assemble(Label::of(&label), present, recovered, is_read_only);
    if !is_read_only {
        // What was being written when the power went may be on one side of a mirror alone.
        if has_replayed {
            pool.mend_segments(io, &used).await;
            // A side that failed only now may be the one that has everything.
            if !how.is_degraded
                && let Some(path) = pool.members.present().newly_stale()
            {
                return Err(PoolError::SideFailed {
                    pool: pool.name().to_owned(),
                    path,
                });
            }
        }
        match crate::clean::checkpoint_now(&pool, io).await {
            Err(PoolError::NoSpace { .. }) => {
                tracing::error!(
                    pool = pool.name(),
                    "no space for a checkpoint: the pool can only \
                    be read"
                );
                pool.lock().failed = Some(Failure::ReadOnly);
            }
            result => result?,
        }
    }
    {
        let mut inner = pool.lock();
        inner.measure();
    }
    Ok(pool)
}

fn assemble(label: Label, present: Present, recovered: Recovered, is_read_only: bool) -> Arc<Pool> {
    let unit = usize::try_from(label.unit).expect("512 or 4096");
    let mut inner = Inner::new(
        recovered.state,
        unit,
        label.pool.as_u64_pair().1,
        recovered.next,
        recovered.next_generation,
    );
    inner.features = label.incompatible;
    inner.features_wanted = label.incompatible;
    if is_read_only {
        inner.failed = Some(Failure::ReadOnly);
    }
    Arc::new(Pool {
        label,
        members: Members::new(present),
        inner: Mutex::new(inner),
        syncs: Mutex::default(),
        turns: Default::default(),
        maintenance: futures_util::lock::Mutex::default(),
        mending: futures_util::lock::Mutex::default(),
        is_mark_late: AtomicBool::new(false),
        checkpoints: futures_util::lock::Mutex::default(),
        keeps_house: AtomicBool::new(false),
        newest: Mutex::new(recovered.newest),
        work: Mutex::default(),
        is_read_only,
    })
}

/// The drives of a pool by their numbers; of those that were removed, nothing.
type Numbered = Vec<Option<Arc<Drive>>>;

/// The sides of a drive that were found, and whether they are current.
type Places = [Option<(Arc<Side>, SideState)>; 2];

/// A side, and what its superblock says.
struct Labeled {
    own: Superblock,
    side: Side,
}

/// Drives that were looked through.
struct Sorted {
    /// The newest superblock of all sides.
    label: Superblock,
    drives: Numbered,
    /// A side is missing that was current.
    has_left_out: bool,
}

async fn sort_drives(io: &Io, sides: Vec<Side>, how: Opening) -> Result<Sorted, PoolError> {
    let (found, unreadable) = read_labels(io, sides).await?;
    let label = newest_of(&found).ok_or(PoolError::DriveCount)?.clone();
    let places = place_sides(found, &label)?;
    expect_all(&label, &places, unreadable, how)?;
    let has_left_out = !missing_sides(&label, &places, false).is_empty();
    let listed = label.drives.iter().zip(places);
    let numbered = listed.map(|(entry, [first, second])| {
        if entry.is_removed() {
            return None;
        }
        if entry.mirror.is_none() {
            return first.map(|(side, _)| Arc::new(Drive::single((*side).clone())));
        }
        let states = [&first, &second].map(|it| it.as_ref().map_or(SideState::Stale, |it| it.1));
        let sides = [first, second].map(|it| it.map(|(side, _)| side));
        Some(Arc::new(Drive::mirror(sides, states)))
    });
    let drives = numbered.collect();
    Ok(Sorted {
        label,
        drives,
        has_left_out,
    })
}

/// What the sides say, and why others say nothing: the pool may do without them.
async fn read_labels(
    io: &Io,
    sides: Vec<Side>,
) -> Result<(Vec<Labeled>, Vec<PoolError>), PoolError> {
    let mut found: Vec<Labeled> = Vec::new();
    let mut unreadable = Vec::new();
    for side in sides {
        let own = match newest_label(io, &side).await {
            Ok(own) => own,
            Err(error) => {
                unreadable.push(error);
                continue;
            }
        };
        if found.iter().any(|other| other.own.pool != own.pool) {
            return Err(PoolError::OtherPool { path: side.path });
        }
        if found.iter().any(|other| own_id(&other.own) == own_id(&own)) {
            return Err(PoolError::DriveTwice { path: side.path });
        }
        found.push(Labeled { own, side });
    }
    match unreadable.pop() {
        Some(error) if found.is_empty() => Err(error),
        last => {
            unreadable.extend(last);
            Ok((found, unreadable))
        }
    }
}

fn newest_of(found: &[Labeled]) -> Option<&Superblock> {
    found.iter().map(|found| &found.own).max_by_key(|label| {
        let sides = label.drives.iter().map(|it| it.sides());
        let sides: usize = sides.map(|sides| sides.iter().flatten().count()).sum();
        // A side that calls itself stale knows nothing that the other one does not. If it was about to be filled, it may
        // name a checkpoint that was given up.
        let is_sound = own_mirror(label).is_none_or(|mirror| mirror.stale != Some(label.side));
        // A drive that was being added when the power went may be as new as the others, which do not know of it.
        (is_sound, label.number, std::cmp::Reverse(sides))
    })
}

/// The sides in the places where the newest superblock lists them.
fn place_sides(found: Vec<Labeled>, label: &Superblock) -> Result<Vec<Places>, PoolError> {
    let mut places: Vec<Places> = Vec::new();
    places.resize_with(label.drives.len(), Default::default);
    for Labeled { own, side } in found {
        let (number, place) = (usize::from(own.drive), usize::from(own.side));
        let entry = label.drives.get(number);
        let is_listed = |entry: &&DriveEntry| entry.sides().get(place) == Some(&Some(own_id(&own)));
        let said = own_mirror(&own).and_then(|mirror| mirror.stale);
        let Some(entry) = entry.filter(is_listed) else {
            // A side that was about to be filled, and was not, is stale by what it says itself.
            if said == Some(own.side) {
                tracing::warn!(
                    path = %side.path.display(),
                    "was to become a side of a mirror, and did not; it is not used"
                );
                continue;
            }
            return Err(PoolError::NotMember {
                path: side.path,
                pool: label.name.clone(),
            });
        };
        let is_stale = entry
            .mirror
            .is_some_and(|mirror| mirror.stale == Some(own.side));
        let mut state = SideState::Current;
        if is_stale {
            // It went on without the one that went on without it.
            if said == Some(1 - own.side) {
                return Err(PoolError::WentApart {
                    pool: label.name.clone(),
                    path: side.path,
                });
            }
            tracing::warn!(
                path = %side.path.display(),
                "a side of a mirror is stale, and is not used; fill it by: longshore pool replace"
            );
            state = SideState::Stale;
        } else if own.number + 1 < label.number {
            // A power cut leaves drives one superblock apart.
            return Err(PoolError::Stale { path: side.path });
        }
        let needed = RESERVED_BYTES + u64::from(entry.segments) * u64::from(label.segment_bytes);
        if tail_start(side.bytes) >= needed {
            places[number][place] = Some((Arc::new(side), state));
        } else if !is_stale {
            return Err(io_error("read", &side.path, io::ErrorKind::UnexpectedEof));
        }
    }
    Ok(places)
}

/// Refuses to go on without sides that are needed, and with drives that are not the pool's. `unreadable`: why drives that
/// were named hold none.
fn expect_all(
    label: &Superblock,
    places: &[Places],
    mut unreadable: Vec<PoolError>,
    how: Opening,
) -> Result<(), PoolError> {
    let missing = missing_sides(label, places, how.is_degraded);
    let listed = label.drives.iter().zip(places);
    let listed = listed.filter(|(entry, _)| !entry.is_removed());
    let sides = listed.flat_map(|(entry, place)| entry.sides().into_iter().zip(place));
    let sides: Vec<_> = sides.filter(|(id, _)| id.is_some()).collect();
    let absent = sides.iter().filter(|(_, there)| there.is_none()).count();
    let is_too_many = how.unopened + unreadable.len() > absent;
    let is_refused = !missing.is_empty() || is_too_many;
    match unreadable.pop() {
        Some(error) if is_refused => return Err(error),
        Some(error) => tracing::warn!(%error, "a side of a mirror is left out"),
        None => {}
    }
    if !is_refused {
        return Ok(());
    }
    // One side of each mirror is enough to go on.
    let is_mirrored = !missing.is_empty() && missing_sides(label, places, true).is_empty();
    let ids: Vec<String> = missing.iter().map(Uuid::to_string).collect();
    Err(PoolError::DrivesMissing {
        pool: label.name.clone(),
        expected: sides.len(),
        found: sides.len() - missing.len(),
        missing: ids.join(", "),
        advice: match is_mirrored {
            true => "; to go on without: longshore pool offline",
            false => "",
        },
    })
}

/// Identifiers of sides that are missing, and without which the pool is not opened.
fn missing_sides(label: &Superblock, places: &[Places], is_degraded: bool) -> Vec<Uuid> {
    let mut missing = Vec::new();
    let listed = label.drives.iter().zip(places);
    for (entry, place) in listed.filter(|(entry, _)| !entry.is_removed()) {
        let mut there = place.iter().flatten();
        let is_one_current = there.any(|(_, state)| *state == SideState::Current);
        for (number, id) in (0_u8..).zip(entry.sides()) {
            let is_there = place[usize::from(number)].is_some();
            let is_stale = entry.mirror.is_some_and(|it| it.stale == Some(number));
            let may_lack = is_one_current && (is_stale || is_degraded);
            missing.extend(id.filter(|_| !is_there && !may_lack));
        }
    }
    missing
}

/// What a superblock says of the mirror that it lies on.
fn own_mirror(label: &Superblock) -> Option<Mirror> {
    label.drives[usize::from(label.drive)].mirror
}

/// The UUID of the side that a superblock lies on.
fn own_id(label: &Superblock) -> Uuid {
    let sides = label.drives[usize::from(label.drive)].sides();
    sides[usize::from(label.side)].unwrap_or_default()
}

async fn newest_label(io: &Io, side: &Side) -> Result<Superblock, PoolError> {
    let mut newest: Option<Superblock> = None;
    let mut damage = None;
    for place in copies(side.bytes).concat() {
        if place + crate::format::long(LENGTH) > side.bytes {
            continue;
        }
        let bytes = match side.read_new(io, place, LENGTH).await {
            Ok(bytes) => bytes,
            Err(error) => {
                damage = Some(side.error("read", error));
                continue;
            }
        };
        match Superblock::decode(&bytes) {
            Ok(found) => {
                if newest
                    .as_ref()
                    .is_none_or(|newest| newest.number < found.number)
                {
                    newest = Some(found);
                }
            }
            Err(crate::format::FormatError::Magic) => {}
            Err(source) => {
                damage = Some(PoolError::Damaged {
                    pool: side.path.display().to_string(),
                    what: "the superblock".into(),
                    source,
                });
            }
        }
    }
    newest.ok_or_else(|| {
        damage.unwrap_or_else(|| PoolError::NoPool {
            path: side.path.clone(),
        })
    })
}

/// Bytes of a segment of a pool on these drives.
fn segment_bytes(sides: &[Side]) -> u64 {
    let smallest = sides.iter().map(|side| side.bytes).min().unwrap_or(0);
    let wanted = (smallest / SEGMENTS_WANTED).max(1);
    let bytes = 1 << wanted.ilog2();
    bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

const _: () = assert!(*SEGMENT_BYTES.start() >= SEGMENT_MIN as u64);
const _: () = assert!(*SEGMENT_BYTES.end() <= SEGMENT_MAX as u64);

/// Opens what is to become a drive of a pool, or a side of one, and makes the file if there is none. Blocks.
pub(crate) fn create_side(new: &NewPool, path: &Path) -> Result<Side, PoolError> {
    let mut made = false;
    if let Some(size) = new.size
        && !path.exists()
    {
        let options = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = options.map_err(|error| io_error("open", path, error))?;
        made = true;
        file.set_len(size)
            .map_err(|error| io_error("ftruncate", path, error))?;
    }
    let side = open_side(path, new.is_direct, false)
        .and_then(|side| admit_side(new, side))
        .inspect_err(|_| {
            if made {
                let _ = std::fs::remove_file(path);
            }
        })?;
    Ok(side)
}

fn admit_side(new: &NewPool, side: Side) -> Result<Side, PoolError> {
    if side.bytes < DRIVE_MIN {
        return Err(PoolError::TooSmall { path: side.path });
    }
    if !new.force && !is_empty(&side)? {
        return Err(PoolError::NotEmpty { path: side.path });
    }
    Ok(side)
}

/// Whether there are zeros where file systems, partition tables and pools have their headers.
fn is_empty(side: &Side) -> Result<bool, PoolError> {
    let side = side.clone();
    block_on(move |io| async move {
        for place in [0, tail_start(side.bytes)] {
            let read = side.read_new(&io, place, 128 << 10).await;
            let data = read.map_err(|error| side.error("read", error))?;
            if data.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

pub(crate) fn open_side(
    path: &Path,
    is_direct: bool,
    is_read_only: bool,
) -> Result<Side, PoolError> {
    let mut options = OpenOptions::new();
    options.read(true).write(!is_read_only);
    let mut flags = OFlags::empty();
    flags.set(OFlags::DIRECT, is_direct);
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    flags.set(OFlags::EXCL, is_device && !is_read_only);
    options.custom_flags(flags.bits().cast_signed());
    let file = options
        .open(path)
        .map_err(|error| io_error("open", path, error))?;
    lock::lock(&file, path, is_read_only)?;
    side_of(file, path, is_direct)
}

fn side_of(file: File, path: &Path, is_direct: bool) -> Result<Side, PoolError> {
    let metadata = file
        .metadata()
        .map_err(|error| io_error("fstat", path, error))?;
    let is_device = metadata.file_type().is_block_device();
    let bytes = if is_device {
        longshore_reactor::block_device::size_bytes(&file)
            .map_err(|error| io_error("ioctl BLKGETSIZE64", path, error))?
    } else {
        metadata.len()
    };
    let align = if is_direct {
        direct_alignment(&file)
    } else {
        512
    };
    Ok(Side {
        file: FileHandle(Arc::new(file)),
        path: path.to_owned(),
        is_direct,
        align,
        bytes: bytes.min(DRIVE_BYTES_MAX - 1),
        reserves: !is_device,
    })
}

/// What O_DIRECT wants positions to be multiples of; 4096 where the file system does not say.
fn direct_alignment(file: &File) -> usize {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    match statx {
        Ok(found)
            if found.stx_mask & StatxFlags::DIOALIGN.bits() != 0
                && matches!(found.stx_dio_offset_align, 1..=512) =>
        {
            512
        }
        Ok(_) | Err(_) => 4096,
    }
}
