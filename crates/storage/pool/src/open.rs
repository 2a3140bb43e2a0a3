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
use crate::drive::{Drive, io_error};
use crate::error::PoolError;
use crate::format::RESERVED_BYTES;
use crate::format::superblock::{
    DRIVES_MAX, DriveEntry, LENGTH, READ_ONLY_COMPATIBLE_KNOWN, SEGMENT_MAX, SEGMENT_MIN,
    SEGMENTS_MAX, Superblock, copies, tail_start,
};
use crate::log::{Failure, Inner};
use crate::members::{Label, Members, Present};
use crate::place::DRIVE_BYTES_MAX;
use crate::pool::{Newest, Pool, check_name};
use crate::recovery::{Recovered, recover};
use crate::run::block_on;
use crate::segments::Segments;
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
        if new.drives.is_empty() || new.drives.len() > DRIVES_MAX {
            return Err(PoolError::DriveCount);
        }
        let mut drives = Vec::new();
        for path in &new.drives {
            let drive = create_drive(new, path)?;
            drives.push(drive);
        }
        let name = new.name.clone();
        block_on(move |io| async move { create_on(&io, &name, drives).await })
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
        let drives = paths
            .iter()
            .map(|path| open_drive(path, is_direct, is_read_only));
        let drives = drives.collect::<Result<Vec<_>, _>>()?;
        block_on(move |io| async move { open_on(&io, drives, is_read_only).await })
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
    label_of(&drive_of(file, path, false)?)
}

/// What the superblock of a drive that is open says.
pub(crate) fn label_of(drive: &Drive) -> Result<Superblock, PoolError> {
    let drive = drive.clone();
    block_on(move |io| async move { newest_label(&io, &drive).await })
}

/// Makes a pool on drives that are open.
pub(crate) async fn create_on(
    io: &Io,
    name: &str,
    drives: Vec<Drive>,
) -> Result<Arc<Pool>, PoolError> {
    let segment_bytes = segment_bytes(&drives);
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
    }
}

/// Opens the pool on drives that are open.
pub(crate) async fn open_on(
    io: &Io,
    drives: Vec<Drive>,
    is_read_only: bool,
) -> Result<Arc<Pool>, PoolError> {
    let (label, drives) = sort_drives(io, drives).await?;
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
    let recovered = recover(io, &label, &drives).await?;
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
    let pool = assemble(Label::of(&label), present, recovered, is_read_only);
    if !is_read_only {
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
        checkpoints: futures_util::lock::Mutex::default(),
        keeps_house: AtomicBool::new(false),
        newest: Mutex::new(recovered.newest),
        work: Mutex::default(),
        is_read_only,
    })
}

/// The drives of a pool by their numbers; of those that were removed, nothing.
type Numbered = Vec<Option<Arc<Drive>>>;

/// The newest superblock of all drives, and the drives by their numbers.
async fn sort_drives(io: &Io, drives: Vec<Drive>) -> Result<(Superblock, Numbered), PoolError> {
    let mut found: Vec<(Superblock, Drive)> = Vec::new();
    for drive in drives {
        let label = newest_label(io, &drive).await?;
        if found.iter().any(|(other, _)| other.pool != label.pool) {
            return Err(PoolError::OtherPool { path: drive.path });
        }
        if found
            .iter()
            .any(|(other, _)| own_id(other) == own_id(&label))
        {
            return Err(PoolError::DriveTwice { path: drive.path });
        }
        found.push((label, drive));
    }
    // A drive that was being added when the power went may be as new as the others, which do not know of it.
    let newest = found
        .iter()
        .map(|(label, _)| label)
        .max_by_key(|label| (label.number, std::cmp::Reverse(label.drives.len())));
    let label = newest.ok_or(PoolError::DriveCount)?.clone();
    let mut numbered: Numbered = vec![None; label.drives.len()];
    for (own, drive) in found {
        let number = usize::from(own.drive);
        let entry = label.drives.get(number);
        let Some(entry) = entry.filter(|entry| entry.id == own_id(&own)) else {
            return Err(PoolError::NotMember {
                path: drive.path,
                pool: label.name,
            });
        };
        // A power cut leaves drives one superblock apart.
        if own.number + 1 < label.number {
            return Err(PoolError::Stale { path: drive.path });
        }
        let needed = RESERVED_BYTES + u64::from(entry.segments) * u64::from(label.segment_bytes);
        if tail_start(drive.bytes) < needed {
            return Err(io_error("read", &drive.path, io::ErrorKind::UnexpectedEof));
        }
        numbered[number] = Some(Arc::new(drive));
    }
    let of_pool = label.drives.iter().filter(|entry| !entry.is_removed());
    let expected = of_pool.count();
    let count = numbered.iter().flatten().count();
    if count != expected {
        let listed = label.drives.iter().zip(&numbered);
        let missing = listed.filter(|(entry, drive)| drive.is_none() && !entry.is_removed());
        let missing: Vec<String> = missing.map(|(entry, _)| entry.id.to_string()).collect();
        return Err(PoolError::DrivesMissing {
            pool: label.name,
            expected,
            found: count,
            missing: missing.join(", "),
        });
    }
    Ok((label, numbered))
}

/// The UUID of the drive that a superblock lies on.
fn own_id(label: &Superblock) -> Uuid {
    label.drives[usize::from(label.drive)].id
}

async fn newest_label(io: &Io, drive: &Drive) -> Result<Superblock, PoolError> {
    let mut newest: Option<Superblock> = None;
    let mut damage = None;
    for place in copies(drive.bytes).concat() {
        if place + crate::format::long(LENGTH) > drive.bytes {
            continue;
        }
        let bytes = match drive.read_new(io, place, LENGTH).await {
            Ok(bytes) => bytes,
            Err(error) => {
                damage = Some(drive.error("read", error));
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
                    pool: drive.path.display().to_string(),
                    what: "the superblock".into(),
                    source,
                });
            }
        }
    }
    newest.ok_or_else(|| {
        damage.unwrap_or_else(|| PoolError::NoPool {
            path: drive.path.clone(),
        })
    })
}

/// Bytes of a segment of a pool on these drives.
fn segment_bytes(drives: &[Drive]) -> u64 {
    let smallest = drives.iter().map(|drive| drive.bytes).min().unwrap_or(0);
    let wanted = (smallest / SEGMENTS_WANTED).max(1);
    let bytes = 1 << wanted.ilog2();
    bytes.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
}

const _: () = assert!(*SEGMENT_BYTES.start() >= SEGMENT_MIN as u64);
const _: () = assert!(*SEGMENT_BYTES.end() <= SEGMENT_MAX as u64);

/// Opens a drive that is to become one of a pool, and makes the file if there is none. Blocks.
pub(crate) fn create_drive(new: &NewPool, path: &Path) -> Result<Drive, PoolError> {
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
    let drive = open_drive(path, new.is_direct, false)
        .and_then(|drive| admit_drive(new, drive))
        .inspect_err(|_| {
            if made {
                let _ = std::fs::remove_file(path);
            }
        })?;
    Ok(drive)
}

fn admit_drive(new: &NewPool, drive: Drive) -> Result<Drive, PoolError> {
    if drive.bytes < DRIVE_MIN {
        return Err(PoolError::TooSmall { path: drive.path });
    }
    if !new.force && !is_empty(&drive)? {
        return Err(PoolError::NotEmpty { path: drive.path });
    }
    Ok(drive)
}

/// Whether there are zeros where file systems, partition tables and pools have their headers.
fn is_empty(drive: &Drive) -> Result<bool, PoolError> {
    let (drive, bytes) = (drive.clone(), drive.bytes);
    block_on(move |io| async move {
        for place in [0, tail_start(bytes)] {
            let read = drive.read_new(&io, place, 128 << 10).await;
            let data = read.map_err(|error| drive.error("read", error))?;
            if data.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}

pub(crate) fn open_drive(
    path: &Path,
    is_direct: bool,
    is_read_only: bool,
) -> Result<Drive, PoolError> {
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
    drive_of(file, path, is_direct)
}

fn drive_of(file: File, path: &Path, is_direct: bool) -> Result<Drive, PoolError> {
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
    Ok(Drive {
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
