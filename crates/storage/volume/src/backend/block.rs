//! A block device node as a volume.
//!
//! A volume that may write claims the device exclusively (O_EXCL), which the kernel refuses while it
//! is mounted, used for swap or part of a RAID or volume group, and locks it against other servers.
//! Read-only volumes only take the shared lock.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use std::sync::Arc;

use longshore_reactor::block_device;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::backend::file::{direct_alignment, open_error};
use crate::identity::identify_at;
use crate::lock;
use crate::medium::backing::{Backing, Kind};
use crate::medium::{Abilities, Medium, Zeroing};
use crate::open::{OpenError, Opened, VolumeSpec, check_size};
use crate::outline::Outline;
use crate::physical_block::{PAGE, physical_block_size};
use crate::sysfs::Queue;

/// How long to wait for a claim that no server holds. The kernel takes a ring of io_uring down after
/// its process has ended, and the files of its last operations stay claimed until then: a server
/// started at once in place of a killed one would be refused.
const CLAIM_PATIENCE: Duration = Duration::from_secs(2);
/// Pause between attempts to open the device exclusively.
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

/// Device number of loop devices (Documentation/admin-guide/devices.txt of Linux).
const LOOP_MAJOR: u32 = 7;

/// Opens the device. Its size is its own; a size in the specification has to agree with it.
pub(crate) fn open(spec: &VolumeSpec) -> Result<Opened, OpenError> {
    let path = spec.required_path()?;
    let metadata = find(spec, path)?;
    let queue = Queue::of_device(metadata.rdev());
    let file = claim(spec, path, queue.as_ref())?;
    if spec.locks() {
        lock::lock(&file, path, spec.read_only)?;
    }
    let size = settle_size(spec, path, &file)?;
    check_logical_block(spec, path, &file)?;
    let direct_memory_alignment = if spec.direct {
        Some(direct_alignment(spec, path, &file)?)
    } else {
        None
    };
    let outline = Outline::new(identify_at(spec, Some(path))?, spec.block_size, size);
    let physical_block_size =
        physical_block_size(spec, spec.block_size, preferred_write(spec, path, &file)?)?;
    let abilities = abilities(
        spec,
        queue.as_ref(),
        direct_memory_alignment,
        physical_block_size,
    );
    let backing = Backing::new(path, &file, Kind::Device);
    let medium = Medium::new(outline, file, backing, abilities);
    Ok(Opened::existing(Arc::new(medium)))
}

/// Looks for the device without opening it.
pub(crate) fn find(spec: &VolumeSpec, path: &Path) -> Result<Metadata, OpenError> {
    let path_buf = path.to_owned();
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(OpenError::DeviceNotFound { path: path_buf });
        }
        Err(error) => return Err(open_error(spec, path, error)),
    };
    if metadata.is_dir() {
        return Err(OpenError::IsDirectory { path: path_buf });
    }
    if !metadata.file_type().is_block_device() {
        return Err(OpenError::NotBlockDevice { path: path_buf });
    }
    Ok(metadata)
}

fn claim(spec: &VolumeSpec, path: &Path, queue: Option<&Queue>) -> Result<File, OpenError> {
    let read_only_device = queue.is_some_and(Queue::is_read_only);
    if read_only_device && !spec.read_only {
        return Err(OpenError::ReadOnlyMedium {
            path: path.to_owned(),
        });
    }
    let mut flags = OFlags::empty();
    flags.set(OFlags::EXCL, !spec.read_only);
    flags.set(OFlags::DIRECT, spec.direct);
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(!spec.read_only)
        .custom_flags(flags.bits().cast_signed());
    let deadline = Instant::now() + CLAIM_PATIENCE;
    loop {
        let error = match options.open(path) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        if error.raw_os_error().map(Errno::from_raw_os_error) != Some(Errno::BUSY) {
            return Err(open_error(spec, path, error));
        }
        match busy(path) {
            busy @ OpenError::DeviceBusy { .. } if Instant::now() < deadline => {
                drop(busy);
                std::thread::sleep(CLAIM_PAUSE);
            }
            busy => return Err(busy),
        }
    }
}

/// The claim was refused: by another server, which also holds the lock, or by the host.
fn busy(path: &Path) -> OpenError {
    let locked = File::open(path)
        .ok()
        .and_then(|file| lock::lock(&file, path, true).err());
    match locked {
        Some(locked @ OpenError::Locked { .. }) => locked,
        _ => OpenError::DeviceBusy {
            path: path.to_owned(),
        },
    }
}

fn settle_size(spec: &VolumeSpec, path: &Path, file: &File) -> Result<u64, OpenError> {
    let existing = block_device::size_bytes(file)
        .map_err(|error| OpenError::io("ioctl BLKGETSIZE64", path, error))?;
    if existing == 0 {
        let metadata = file
            .metadata()
            .map_err(|error| OpenError::io("stat", path, error))?;
        return Err(OpenError::NoMedium {
            path: path.to_owned(),
            is_loop: rustix::fs::major(metadata.rdev()) == LOOP_MAJOR,
        });
    }
    check_size(&path.display().to_string(), existing, spec.block_size)?;
    match spec.size {
        Some(asked) if asked != existing => Err(OpenError::SizeDiffers {
            path: path.to_owned(),
            existing,
            asked,
        }),
        _ => Ok(existing),
    }
}

/// Blocks smaller than the device's own would make every write a read, change and write of a
/// neighbour, which a power cut can tear.
fn check_logical_block(spec: &VolumeSpec, path: &Path, file: &File) -> Result<(), OpenError> {
    let logical = rustix::fs::ioctl_blksszget(file)
        .map_err(|errno| OpenError::io("ioctl BLKSSZGET", path, errno))?;
    if spec.block_size.is_multiple_of(logical.max(1)) {
        return Ok(());
    }
    Err(OpenError::DeviceBlockSize {
        path: path.to_owned(),
        block_size: spec.block_size,
        logical,
    })
}

/// What is written in one piece: physical blocks of the device, or pages of the page cache where it is used.
fn preferred_write(spec: &VolumeSpec, path: &Path, file: &File) -> Result<u32, OpenError> {
    let physical = rustix::fs::ioctl_blkpbszget(file)
        .map_err(|errno| OpenError::io("ioctl BLKPBSZGET", path, errno))?;
    Ok(if spec.direct {
        physical
    } else {
        physical.max(PAGE)
    })
}

fn abilities(
    spec: &VolumeSpec,
    queue: Option<&Queue>,
    direct_memory_alignment: Option<usize>,
    physical_block_size: u32,
) -> Abilities {
    let granularity = queue
        .and_then(Queue::discard_granularity)
        .filter(|_| !spec.read_only);
    let zeroes = queue.is_some_and(Queue::zeroes);
    Abilities {
        read_only: spec.read_only,
        syncs: true,
        direct_memory_alignment,
        zeroing: if zeroes {
            Zeroing::zeroing_device()
        } else {
            Zeroing::discarding_device()
        },
        unmap_granularity: granularity
            .map(|bytes| bytes.max(spec.block_size).next_multiple_of(spec.block_size)),
        extents: false,
        reserves: false,
        rotational: queue.is_some_and(Queue::is_rotational),
        physical_block_size,
        in_memory: false,
        write_through: spec.write_through,
        inline_writes: spec.inline_writes,
    }
}

#[cfg(test)]
mod tests;
