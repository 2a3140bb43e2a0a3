//! A regular file as a volume; and `/dev/zero` and `/dev/full`, which cost a system call but no
//! medium.
//!
//! A missing file is created sparse, with mode 0600, when a size is given. What completed writes and
//! flushes promise is in `docs/durability.md`.
//!
//! `/dev/zero` reads as zeros and forgets writes; `/dev/full` reads as zeros and has no space, which
//! shows how initiators take that. Both need a size, and are not locked: any number of volumes may
//! live there.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use std::sync::Arc;

use longshore_reactor::buffer::Buffer;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::identity::identify_at;
use crate::lock;
use crate::medium::backing::{Backing, Kind, SIZE_MAX};
use crate::medium::{Abilities, Medium, Zeroing};
use crate::open::{OpenError, Opened, VolumeSpec, check_size};
use crate::outline::Outline;
use crate::physical_block::{PAGE, physical_block_size};
use crate::sysfs;

/// What the addresses of all buffers are multiples of. Kept for O_DIRECT where the file system does
/// not say what it wants.
const BUFFER_ALIGNMENT: usize = 4096;

/// `f_type` of file systems that live in memory: tmpfs and ramfs (linux/magic.h).
const MEMORY_FILE_SYSTEMS: [i128; 2] = [0x0102_1994, 0x8584_58f6];

/// Opens the file, or creates it when it is missing and a size is given.
pub(crate) fn open(spec: &VolumeSpec) -> Result<Opened, OpenError> {
    let path = spec.required_path()?;
    if let Some(size) = spec.size.filter(|size| *size > SIZE_MAX) {
        return Err(OpenError::TooLarge {
            name: spec.name.clone(),
            backend: spec.backend,
            size,
        });
    }
    match std::fs::metadata(path) {
        Ok(metadata) => open_existing(spec, path, &metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(spec, path),
        Err(error) => Err(open_error(spec, path, error)),
    }
}

fn open_existing(spec: &VolumeSpec, path: &Path, metadata: &Metadata) -> Result<Opened, OpenError> {
    let medium = if kind_of(path, metadata)? == Kind::Endless {
        open_endless(spec, path)?
    } else {
        let file = open_options(spec)
            .open(path)
            .map_err(|error| open_error(spec, path, error))?;
        serve(spec, path, file)?
    };
    Ok(Opened::existing(Arc::new(medium)))
}

/// What is there, if it can be served as a file.
pub(crate) fn kind_of(path: &Path, metadata: &Metadata) -> Result<Kind, OpenError> {
    let path = path.to_owned();
    let file_type = metadata.file_type();
    if file_type.is_dir() {
        return Err(OpenError::IsDirectory { path });
    }
    if file_type.is_block_device() {
        return Err(OpenError::IsBlockDevice { path });
    }
    if file_type.is_char_device() && is_endless(metadata) {
        return Ok(Kind::Endless);
    }
    if !file_type.is_file() {
        return Err(OpenError::NotServable { path });
    }
    Ok(Kind::File)
}

/// The size and the directory of a file that is missing, if the specification has it created.
pub(crate) fn plan_new<'path>(
    spec: &VolumeSpec,
    path: &'path Path,
) -> Result<(u64, &'path Path), OpenError> {
    if spec.read_only {
        return Err(OpenError::NotFoundReadOnly {
            path: path.to_owned(),
        });
    }
    let Some(size) = spec.size else {
        return Err(OpenError::NotFound {
            path: path.to_owned(),
        });
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((size, directory))
}

fn create(spec: &VolumeSpec, path: &Path) -> Result<Opened, OpenError> {
    let (size, directory) = plan_new(spec, path)?;
    let created = open_options(spec).create_new(true).mode(0o600).open(path);
    // Another server made it in between; whether it may be shared, the lock says.
    if created
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    {
        let metadata = std::fs::metadata(path).map_err(|error| open_error(spec, path, error))?;
        return open_existing(spec, path, &metadata);
    }
    let file = created.map_err(|error| match error.kind() {
        // Some file systems, /proc among them, say so of any name that is new.
        io::ErrorKind::NotFound if !directory.exists() => OpenError::DirectoryMissing {
            path: path.to_owned(),
            directory: directory.to_owned(),
        },
        _ => open_error(spec, path, error),
    })?;
    let filled = lock::lock(&file, path, false)
        .and_then(|()| set_size(&file, path, size))
        .and_then(|()| sync_directory(directory))
        .and_then(|()| serve(spec, path, file));
    // Nobody has written to it, and an empty file must not stand in the way of the next attempt. If
    // somebody else was quicker with the lock, it is theirs.
    if filled
        .as_ref()
        .is_err_and(|error| !matches!(error, OpenError::Locked { .. }))
    {
        let _ = std::fs::remove_file(path);
    }
    filled.map(|medium| Opened {
        volume: Arc::new(medium),
        created: true,
    })
}

/// A name in a directory outlives a crash only when the directory was synced.
fn sync_directory(directory: &Path) -> Result<(), OpenError> {
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| OpenError::io("fsync", directory, error))
}

fn open_options(spec: &VolumeSpec) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(!spec.read_only);
    if spec.direct {
        options.custom_flags(OFlags::DIRECT.bits().cast_signed());
    }
    options
}

/// What a failed open means to the operator.
pub(crate) fn open_error(spec: &VolumeSpec, path: &Path, error: io::Error) -> OpenError {
    let path_buf = path.to_owned();
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => OpenError::Permission {
            path: path_buf,
            wanted: if spec.read_only {
                "reading"
            } else {
                "reading and writing"
            },
        },
        Some(Errno::ROFS) => OpenError::ReadOnlyMedium { path: path_buf },
        Some(Errno::ISDIR) => OpenError::IsDirectory { path: path_buf },
        Some(Errno::INVAL) if spec.direct => OpenError::DirectUnsupported { path: path_buf },
        _ => OpenError::io("open", path, error),
    }
}

/// Makes a volume of an open regular file.
fn serve(spec: &VolumeSpec, path: &Path, file: File) -> Result<Medium, OpenError> {
    if spec.locks() {
        lock::lock(&file, path, spec.read_only)?;
    }
    let metadata = file
        .metadata()
        .map_err(|error| OpenError::io("fstat", path, error))?;
    let size = settle_size(spec, path, &file, metadata.len())?;
    let direct_memory_alignment = if spec.direct {
        Some(direct_alignment(spec, path, &file)?)
    } else {
        None
    };
    let identity = identify_at(spec, Some(path))?;
    let outline = Outline::new(identity, spec.block_size, size);
    let abilities = Abilities {
        read_only: spec.read_only,
        syncs: true,
        direct_memory_alignment,
        zeroing: Zeroing::file(),
        unmap_granularity: unmap_granularity(spec, &file, &metadata),
        extents: seeks_data(&file),
        reserves: true,
        rotational: sysfs::Queue::of_device(metadata.dev())
            .is_some_and(|queue| queue.is_rotational()),
        physical_block_size: physical_block_size(
            spec,
            spec.block_size,
            preferred_write(spec, metadata.blksize()),
        )?,
        in_memory: is_in_memory(&file),
        write_through: spec.write_through,
        inline_writes: spec.inline_writes,
    };
    let backing = Backing::new(path, &file, Kind::File);
    Ok(Medium::new(outline, file, backing, abilities))
}

/// The size to serve, to which the file is grown.
fn settle_size(
    spec: &VolumeSpec,
    path: &Path,
    file: &File,
    existing: u64,
) -> Result<u64, OpenError> {
    let size = agreed_size(spec, path, existing)?;
    if size > existing {
        set_size(file, path, size)?;
    }
    Ok(size)
}

/// The size to serve of a file that has `existing` bytes: what is asked for, or what is there.
pub(crate) fn agreed_size(spec: &VolumeSpec, path: &Path, existing: u64) -> Result<u64, OpenError> {
    match spec.size {
        None => {
            check_size(&path.display().to_string(), existing, spec.block_size)?;
            Ok(existing)
        }
        Some(asked) if asked < existing => Err(OpenError::WouldShrink {
            path: path.to_owned(),
            existing,
            asked,
        }),
        Some(asked) if asked > existing && spec.read_only => Err(OpenError::SizeDiffers {
            path: path.to_owned(),
            existing,
            asked,
        }),
        Some(asked) => Ok(asked),
    }
}

fn set_size(file: &File, path: &Path, size: u64) -> Result<(), OpenError> {
    file.set_len(size)
        .map_err(|error| OpenError::io("ftruncate", path, error))?;
    file.sync_all()
        .map_err(|error| OpenError::io("fsync", path, error))
}

/// Checks that O_DIRECT works with the volume's blocks, and says how memory has to be aligned.
pub(crate) fn direct_alignment(
    spec: &VolumeSpec,
    path: &Path,
    file: &File,
) -> Result<usize, OpenError> {
    let unsupported = || OpenError::DirectUnsupported {
        path: path.to_owned(),
    };
    let too_coarse = |required| OpenError::DirectAlignment {
        path: path.to_owned(),
        block_size: spec.block_size,
        required,
    };
    let mut memory = BUFFER_ALIGNMENT;
    // Kernels before 6.1 and some file systems do not tell; the trial below then has to do.
    if let Ok(statx) = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0
    {
        if statx.stx_dio_offset_align == 0 {
            return Err(unsupported());
        }
        if !spec.block_size.is_multiple_of(statx.stx_dio_offset_align) {
            return Err(too_coarse(statx.stx_dio_offset_align));
        }
        memory = usize::try_from(statx.stx_dio_mem_align)
            .unwrap_or(usize::MAX)
            .max(1);
        if memory > BUFFER_ALIGNMENT {
            return Err(unsupported());
        }
    }
    let block = usize::try_from(spec.block_size).expect("512 or 4096");
    let buffer = Buffer::try_allocate(block);
    let mut buffer = buffer.ok_or_else(|| OpenError::io("read", path, Errno::NOMEM))?;
    match rustix::io::pread(file, &mut buffer[..], 0) {
        Ok(_) => Ok(memory),
        Err(Errno::INVAL) if spec.block_size < 4096 => Err(too_coarse(4096)),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Err(unsupported()),
        Err(errno) => Err(OpenError::io("read", path, errno)),
    }
}

/// Holes come in blocks of the file system. Whether it makes any is asked where that frees nothing,
/// behind the end of the file.
fn unmap_granularity(spec: &VolumeSpec, file: &File, metadata: &Metadata) -> Option<u32> {
    if spec.read_only {
        return None;
    }
    let block = u32::try_from(metadata.blksize()).ok()?.max(spec.block_size);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let end = file
        .metadata()
        .ok()?
        .len()
        .next_multiple_of(u64::from(block));
    rustix::fs::fallocate(file, flags, end, u64::from(block)).ok()?;
    Some(block.next_multiple_of(spec.block_size))
}

/// What is written in one piece: blocks of the file system, or pages of the page cache where it is used.
fn preferred_write(spec: &VolumeSpec, file_system_block: u64) -> u32 {
    let block = u32::try_from(file_system_block).unwrap_or(PAGE);
    if spec.direct { block } else { block.max(PAGE) }
}

fn seeks_data(file: &File) -> bool {
    matches!(
        rustix::fs::seek(file, SeekFrom::Data(0)),
        Ok(_) | Err(Errno::NXIO)
    )
}

fn is_in_memory(file: &File) -> bool {
    rustix::fs::fstatfs(file)
        .is_ok_and(|status| MEMORY_FILE_SYSTEMS.contains(&i128::from(status.f_type)))
}

// ---- /dev/zero and /dev/full

/// Character devices 1:5 and 1:7.
fn is_endless(metadata: &Metadata) -> bool {
    let device = metadata.rdev();
    rustix::fs::major(device) == 1 && matches!(rustix::fs::minor(device), 5 | 7)
}

fn open_endless(spec: &VolumeSpec, path: &Path) -> Result<Medium, OpenError> {
    if spec.direct {
        return Err(OpenError::DirectUnsupported {
            path: path.to_owned(),
        });
    }
    let size = spec.required_size()?;
    let file = open_options(spec)
        .open(path)
        .map_err(|error| open_error(spec, path, error))?;
    let outline = Outline::new(identify_at(spec, Some(path))?, spec.block_size, size);
    let abilities = Abilities {
        read_only: spec.read_only,
        syncs: false,
        direct_memory_alignment: None,
        zeroing: Zeroing::always_zero(),
        unmap_granularity: None,
        extents: false,
        reserves: false,
        rotational: false,
        physical_block_size: physical_block_size(spec, spec.block_size, PAGE)?,
        in_memory: true,
        write_through: spec.write_through,
        inline_writes: spec.inline_writes,
    };
    let backing = Backing::new(path, &file, Kind::Endless);
    Ok(Medium::new(outline, file, backing, abilities))
}

#[cfg(test)]
mod tests;
