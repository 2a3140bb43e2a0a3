//! Why a volume could not be opened, and what to do about it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::name::BackendName;

/// The largest physical block, in bytes.
pub const PHYSICAL_BLOCK_MAX: u32 = 64 * 1024;

/// Who holds the lock that we wanted, for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// Nobody can say (another host, another PID namespace).
    Unknown,
    /// Another volume of this process.
    ThisProcess,
    /// The process with this id.
    Process(u32),
}

impl fmt::Display for LockHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockHolder::Unknown => formatter.write_str("another process"),
            LockHolder::ThisProcess => formatter.write_str("another volume of this server"),
            LockHolder::Process(pid) => write!(formatter, "process {pid}"),
        }
    }
}

fn medium_advice(path: &Path, is_loop: bool) -> String {
    if is_loop {
        let path = path.display();
        format!(
            "attach a file to it first: losetup {path} FILE; `losetup --list` shows those in use"
        )
    } else {
        "insert one, or name another device".to_owned()
    }
}

/// Why a volume could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No path was given.
    #[error("volume {name}: backend={backend} needs path=…")]
    PathMissing { name: String, backend: BackendName },
    /// No size was given.
    #[error("volume {name}: backend={backend} needs size=…, for example size=1G")]
    SizeMissing { name: String, backend: BackendName },
    /// An option was given that means nothing to this backend.
    #[error("volume {name}: {option} means nothing to backend={backend}; leave it out")]
    OptionMisplaced {
        name: String,
        backend: BackendName,
        option: &'static str,
    },
    /// The block size is not one that we serve.
    #[error("volume {name}: block size {found} is not served; use 512 or 4096")]
    BlockSize {
        name: String,
        /// The block size asked for.
        found: u32,
    },
    /// The physical block does not fit the logical one.
    #[error(
        "volume {name}: physical-block-size={asked} does not fit blocks of {block_size} bytes; use a \
         power of two from {block_size} to {PHYSICAL_BLOCK_MAX}, or leave it out"
    )]
    PhysicalBlockSize {
        name: String,
        /// Bytes of the key `physical-block-size`.
        asked: u32,
        /// Bytes of a logical block.
        block_size: u32,
    },
    #[error("{subject} is empty; give a size=… of at least one block")]
    SizeZero { subject: String },
    /// The size is not a whole number of blocks.
    #[error(
        "{subject}: size {size} is not a multiple of the block size {block_size}; \
         use size={next}, or another block-size"
    )]
    SizeNotMultiple {
        subject: String,
        /// Bytes asked for or found.
        size: u64,
        /// Bytes of a block.
        block_size: u32,
        /// The next larger size that would do.
        next: u64,
    },
    /// The size is more than the backend can address.
    #[error(
        "volume {name}: {size} bytes are more than backend={backend} can hold here; use a smaller size"
    )]
    TooLarge {
        name: String,
        backend: BackendName,
        /// Size of the key `size`, in bytes.
        size: u64,
    },
    /// The file is longer than the size asked for.
    #[error(
        "{}: is {existing} bytes long already, and shrinking to size={asked} would lose data; \
         leave size out to serve all of it", path.display()
    )]
    WouldShrink {
        path: PathBuf,
        /// Size of the file, in bytes.
        existing: u64,
        /// Size of the key `size`, in bytes.
        asked: u64,
    },
    /// A device, or a file opened read-only, has another size than the one asked for.
    #[error(
        "{}: is {existing} bytes long, not {asked}, and cannot be grown; leave size out",
        path.display()
    )]
    SizeDiffers {
        /// The device or file.
        path: PathBuf,
        /// Size of the device or file, in bytes.
        existing: u64,
        /// Size of the key `size`, in bytes.
        asked: u64,
    },
    /// There is no such file.
    #[error("{}: no such file; give size=… to create it, or correct the path", path.display())]
    NotFound { path: PathBuf },
    /// A device without a medium.
    #[error(
        "{}: has no medium (its size is 0); {}", path.display(), medium_advice(path, *.is_loop)
    )]
    NoMedium {
        path: PathBuf,
        /// It is a loop device, without a file.
        is_loop: bool,
    },
    /// There is no such device.
    #[error("{}: no such device; correct the path", path.display())]
    DeviceNotFound { path: PathBuf },
    /// There is no such file, and a read-only volume is not created.
    #[error("{}: no such file, and a read-only volume is not created; correct the path", path.display())]
    NotFoundReadOnly { path: PathBuf },
    /// The directory of the file to be created is missing.
    #[error("{}: the directory {} does not exist; create it first", path.display(), directory.display())]
    DirectoryMissing { path: PathBuf, directory: PathBuf },
    /// The path is a directory.
    #[error("{}: is a directory; name a file in it", path.display())]
    IsDirectory { path: PathBuf },
    /// The path is a block device.
    #[error("{}: is a block device; use backend=block", path.display())]
    IsBlockDevice { path: PathBuf },
    /// The path is not a block device.
    #[error("{}: is not a block device; use backend=file for files", path.display())]
    NotBlockDevice { path: PathBuf },
    /// The path is neither a regular file nor a device that can be served.
    #[error(
        "{}: is neither a regular file nor /dev/zero or /dev/full; a volume cannot live there",
        path.display()
    )]
    NotServable { path: PathBuf },
    /// The process may not open it this way.
    #[error(
        "{}: permission denied for {wanted}; run as a user that may, change its mode, \
         or use read-only if reading is enough", path.display()
    )]
    Permission {
        /// The file or device.
        path: PathBuf,
        /// `reading` or `reading and writing`, or what else was tried.
        wanted: &'static str,
    },
    /// The file system or device is read-only.
    #[error("{}: cannot be written to (read-only file system or device); add read-only", path.display())]
    ReadOnlyMedium {
        /// The file or device.
        path: PathBuf,
    },
    /// Somebody else has the file open as a volume.
    #[error(
        "{}: in use by {holder}; two servers on one file would destroy it. Stop the other one, \
         or open it read-only in both", path.display()
    )]
    Locked {
        /// The file or device.
        path: PathBuf,
        holder: LockHolder,
    },
    /// A block device is mounted or otherwise claimed.
    #[error(
        "{}: in use by this host (mounted, swap, part of a RAID or of a volume group); release it \
         first", path.display()
    )]
    DeviceBusy { path: PathBuf },
    /// O_DIRECT is not possible there.
    #[error("{}: O_DIRECT is not supported there; leave direct out", path.display())]
    DirectUnsupported {
        /// The file or device.
        path: PathBuf,
    },
    /// O_DIRECT wants larger units than the volume's blocks.
    #[error(
        "{}: O_DIRECT works in units of {required} bytes there, larger than blocks of \
         {block_size}; {}, or leave direct out", path.display(), alignment_advice(*.required)
    )]
    DirectAlignment {
        /// The file or device.
        path: PathBuf,
        /// Bytes of a block.
        block_size: u32,
        /// Bytes that offsets and lengths have to be multiples of.
        required: u32,
    },
    /// The device's own blocks are larger than the volume's.
    #[error(
        "{}: has blocks of {logical} bytes, larger than the volume's {block_size}; use \
         block-size={logical}", path.display()
    )]
    DeviceBlockSize {
        path: PathBuf,
        /// Bytes of a block of the volume.
        block_size: u32,
        /// Logical block size of the device.
        logical: u32,
    },
    /// A serial number, vendor or product that cannot be shown to peers.
    #[error("volume {name}: {option} {text:?} must be 1 to {most} printable ASCII characters")]
    Text {
        name: String,
        option: &'static str,
        /// What was asked for.
        text: String,
        /// The most characters of it.
        most: usize,
    },
    /// This program has no such backend.
    #[error("volume {name}: there is no backend={backend} in this program")]
    UnknownBackend {
        name: String,
        /// The backend asked for.
        backend: BackendName,
    },
    /// What only the backend knows. Its text names the volume.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
    /// Anything else that the operating system said.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// Name of the failed system call.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        source: io::Error,
    },
}

fn alignment_advice(required: u32) -> String {
    if required == 4096 {
        "use block-size=4096".to_owned()
    } else {
        "no block size that we serve fits".to_owned()
    }
}

impl OpenError {
    /// [`OpenError::Io`] for a path.
    pub(crate) fn io(
        operation: &'static str,
        path: &Path,
        source: impl Into<io::Error>,
    ) -> OpenError {
        OpenError::Io {
            operation,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}
