//! Making, opening and closing a pool.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use longshore_reactor::storage::FileHandle;
use longshore_volume::{Io, lock};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::RESERVED_BYTES;
use crate::format::superblock::{
    DRIVES_MAX, DriveEntry, HAND_OUTS, LEAVES, Mirror, READ_ONLY_COMPATIBLE_KNOWN, SEGMENTS_MAX,
    Superblock, tail_start,
};
use crate::geometry::segment_bytes_of;
pub(crate) use crate::labels::Opening;
use crate::labels::{self, Sorted, newest_label};
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

/// Makes a pool on drives that are open.
pub(crate) async fn create_on(
    io: &Io,
    name: &str,
    sides: Vec<Side>,
    is_mirrored: bool,
) -> Result<Arc<Pool>, PoolError> {
    let segment_bytes = segment_bytes_of(sides.iter().map(|side| side.bytes));
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
            record: 0,
            segments: Vec::new(),
            tail: None,
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
    } = labels::sort(io, sides, how).await?;
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
            Err(error) if error.is_full() => {
                tracing::error!(
                    pool = pool.name(),
                    %error,
                    "no space for a checkpoint: the pool can only \
                    be read"
                );
                pool.lock().failed.get_or_insert(Failure::ReadOnly);
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

pub(crate) fn assemble(
    label: Label,
    present: Present,
    recovered: Recovered,
    is_read_only: bool,
) -> Arc<Pool> {
    let unit = usize::try_from(label.unit).expect("512 or 4096");
    let mut inner = Inner::new(
        recovered.state,
        unit,
        label.pool.as_u64_pair().1,
        recovered.next,
        recovered.next_generation,
    );
    inner.features = label.incompatible;
    inner.features_wanted = label.incompatible | LEAVES | HAND_OUTS;
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
