//! From what the operator wrote to an open volume.
//!
//! Everything that can be wrong with a volume is found here, at start, and said with the path and
//! what to do next; an open volume then only meets what can go wrong later.

use std::any::Any;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use crate::identity::SERIAL_LENGTH_MAX;
use crate::machine_id::MachineId;
use crate::medium::InlineWrites;
use crate::{Volume, identity};

mod local;
mod survey;

/// The name of a backend on the command line and in the configuration. It is part of derived UUIDs, so it
/// never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackendName(&'static str);

impl BackendName {
    /// Reads give zeros, writes vanish.
    pub const NULL: Self = Self("null");
    /// Memory of this process.
    pub const MEM: Self = Self("mem");
    /// A regular file, `/dev/zero` or `/dev/full`.
    pub const FILE: Self = Self("file");
    /// A block device node.
    pub const BLOCK: Self = Self("block");

    /// A backend of another crate.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// What makes volumes: the factory of one kind of them.
pub trait Backend: Send + Sync {
    /// Its name.
    fn name(&self) -> BackendName;

    /// Whether its volumes have a path, and O_DIRECT there.
    fn has_path(&self) -> bool {
        false
    }

    /// Checks what the specification alone can show. Name, block size, size and serial number have been
    /// checked.
    fn check(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        spec.refuse_options()
    }

    /// Finds what would keep the volume from being opened. Opens nothing, creates nothing, and asks no
    /// other machine.
    fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError>;

    /// Opens the volume, or creates it. May block.
    fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError>;
}

/// The backends that a program has.
pub struct Backends(Vec<Box<dyn Backend>>);

impl Backends {
    /// Those for storage of this machine: `null`, `mem`, `file` and `block`.
    #[must_use]
    pub fn local() -> Self {
        Self(local::all())
    }

    /// Adds one.
    ///
    /// # Panics
    /// When one of that name is there.
    pub fn register(&mut self, backend: Box<dyn Backend>) {
        let name = backend.name();
        assert!(self.find(name.as_str()).is_none(), "two backends {name}");
        self.0.push(backend);
    }

    /// The name of the backend that is called so.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<BackendName> {
        self.names().find(|known| known.as_str() == name)
    }

    /// All names, in the order in which they were registered.
    pub fn names(&self) -> impl Iterator<Item = BackendName> {
        self.0.iter().map(|backend| backend.name())
    }

    /// Opens a volume, creating a file that is missing when a size is given. May block.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn open(&self, spec: &VolumeSpec) -> Result<Opened, OpenError> {
        self.checked(spec)?.open(spec)
    }

    /// Finds what would keep the volume from being opened: a missing file, device or directory, missing
    /// permissions, a size that does not fit. Opens nothing and creates nothing.
    ///
    /// # Errors
    /// The first obstacle, in the words of [`Self::open`].
    pub fn survey(&self, spec: &VolumeSpec) -> Result<(), OpenError> {
        self.checked(spec)?.survey(spec)
    }

    fn checked(&self, spec: &VolumeSpec) -> Result<&dyn Backend, OpenError> {
        let backend = self.0.iter().find(|known| known.name() == spec.backend);
        let backend = backend.ok_or_else(|| OpenError::UnknownBackend {
            name: spec.name.clone(),
            backend: spec.backend,
        })?;
        spec.check(&**backend)?;
        Ok(&**backend)
    }
}

/// Options that one backend alone understands.
pub trait BackendOptions: Any + fmt::Debug + Send + Sync {
    /// The first option that was given, by its name in the configuration.
    fn first_given(&self) -> Option<&'static str>;
}

/// A volume as the operator describes it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// What it is called.
    pub name: String,
    /// What stores it.
    pub backend: BackendName,
    /// The file or device; for `file` and `block` only.
    pub path: Option<PathBuf>,
    /// Bytes. `null` and `mem` need it; a file is created with it, or grown to it; a block device
    /// has its own size.
    pub size: Option<u64>,
    /// 512 or 4096. A volume of another server has its own.
    pub block_size: u32,
    /// Writes are refused, and the backing object is opened for reading only.
    pub read_only: bool,
    /// Without the lock that keeps those who write apart from everybody else. For reading alone, by those to whom it does
    /// not matter what they read: measurements.
    pub unlocked: bool,
    /// Bypasses the page cache (O_DIRECT).
    pub direct: bool,
    /// Unit serial number, up to 20 printable ASCII characters; otherwise the start of the UUID.
    pub serial: Option<String>,
    /// Otherwise derived from machine, backend, path and name.
    pub uuid: Option<Uuid>,
    /// The machine in a derived UUID. `None`: this host's own ([`MachineId::of_host`]), and where it
    /// has none the UUID is random, another one each time that the volume is opened.
    pub machine_id: Option<MachineId>,
    /// When buffered writes are made on the reactor itself.
    pub inline_writes: InlineWrites,
    /// Options of its backend alone.
    pub options: Option<Arc<dyn BackendOptions>>,
}

impl VolumeSpec {
    /// A specification with 512-byte blocks and nothing else said.
    pub fn new(name: impl Into<String>, backend: BackendName) -> VolumeSpec {
        VolumeSpec {
            name: name.into(),
            backend,
            path: None,
            size: None,
            block_size: 512,
            read_only: false,
            unlocked: false,
            direct: false,
            serial: None,
            uuid: None,
            machine_id: None,
            inline_writes: InlineWrites::default(),
            options: None,
        }
    }

    /// Whether the backing object is locked.
    pub(crate) fn locks(&self) -> bool {
        !(self.unlocked && self.read_only)
    }

    pub(crate) fn required_path(&self) -> Result<&Path, OpenError> {
        self.path.as_deref().ok_or_else(|| OpenError::PathMissing {
            name: self.name.clone(),
            backend: self.backend,
        })
    }

    pub(crate) fn required_size(&self) -> Result<u64, OpenError> {
        self.size.ok_or_else(|| OpenError::SizeMissing {
            name: self.name.clone(),
            backend: self.backend,
        })
    }

    /// The options of its backend, if they are of that type.
    #[must_use]
    pub fn options<T: BackendOptions>(&self) -> Option<&T> {
        let options: &dyn Any = self.options.as_deref()?;
        options.downcast_ref()
    }

    /// The error for an option that means nothing to the backend.
    #[must_use]
    pub fn misplaced(&self, option: &'static str) -> OpenError {
        OpenError::OptionMisplaced {
            name: self.name.clone(),
            backend: self.backend,
            option,
        }
    }

    /// Refuses options of other backends.
    fn refuse_options(&self) -> Result<(), OpenError> {
        let options = self.options.as_deref();
        match options.and_then(BackendOptions::first_given) {
            Some(option) => Err(self.misplaced(option)),
            None => Ok(()),
        }
    }

    /// What can be told without looking at the backing object.
    fn check(&self, backend: &dyn Backend) -> Result<(), OpenError> {
        if !matches!(self.block_size, 512 | 4096) {
            return Err(OpenError::BlockSize {
                name: self.name.clone(),
                found: self.block_size,
            });
        }
        if self.path.is_some() && !backend.has_path() {
            return Err(self.misplaced("path"));
        }
        if self.direct && !backend.has_path() {
            return Err(self.misplaced("direct"));
        }
        backend.check(self)?;
        if let Some(serial) = &self.serial {
            identity::checked_serial(&self.name, serial)?;
        }
        match self.size {
            Some(size) => check_size(&self.name, size, self.block_size),
            None => Ok(()),
        }
    }
}

/// A size is a positive number of whole blocks.
pub(crate) fn check_size(subject: &str, size: u64, block_size: u32) -> Result<(), OpenError> {
    if size == 0 {
        return Err(OpenError::SizeZero {
            subject: subject.to_owned(),
        });
    }
    if !size.is_multiple_of(u64::from(block_size)) {
        return Err(OpenError::SizeNotMultiple {
            subject: subject.to_owned(),
            size,
            block_size,
            next: size
                .checked_next_multiple_of(u64::from(block_size))
                .unwrap_or(size),
        });
    }
    Ok(())
}

/// A volume that was opened.
pub struct Opened {
    /// The volume.
    pub volume: Arc<dyn Volume>,
    /// Whether its file was not there before. As long as the volume is open, nobody else writes to it.
    pub created: bool,
}

impl Opened {
    /// One that was there before.
    #[must_use]
    pub fn existing(volume: Arc<dyn Volume>) -> Self {
        Self {
            volume,
            created: false,
        }
    }
}

/// Opens a volume of a [local](Backends::local) backend.
///
/// # Errors
/// What is wrong, and what to do about it.
pub fn open(spec: &VolumeSpec) -> Result<Arc<dyn Volume>, OpenError> {
    Backends::local().open(spec).map(|opened| opened.volume)
}

/// Identity of the volume over the object at `path`.
pub(crate) fn identify(
    spec: &VolumeSpec,
    path: Option<&Path>,
) -> Result<crate::Identity, OpenError> {
    let canonical = match path {
        Some(path) => Some(
            path.canonicalize()
                .map_err(|source| OpenError::io("resolve", path, source))?,
        ),
        None => None,
    };
    let origin = canonical.as_deref().map(|path| path.as_os_str().as_bytes());
    identity::identify(spec, origin)
}

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
    PathMissing {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendName,
    },
    /// No size was given.
    #[error("volume {name}: backend={backend} needs size=…, for example size=1G")]
    SizeMissing {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendName,
    },
    /// An option was given that means nothing to this backend.
    #[error("volume {name}: {option} means nothing to backend={backend}; leave it out")]
    OptionMisplaced {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendName,
        /// The option.
        option: &'static str,
    },
    /// The block size is not one that we serve.
    #[error("volume {name}: block size {found} is not served; use 512 or 4096")]
    BlockSize {
        /// Volume.
        name: String,
        /// The block size asked for.
        found: u32,
    },
    /// The size is zero.
    #[error("{subject} is empty; give a size=… of at least one block")]
    SizeZero {
        /// Volume or path.
        subject: String,
    },
    /// The size is not a whole number of blocks.
    #[error(
        "{subject}: size {size} is not a multiple of the block size {block_size}; \
         use size={next}, or another block-size"
    )]
    SizeNotMultiple {
        /// Volume or path.
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
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendName,
        /// Bytes asked for.
        size: u64,
    },
    /// The file is longer than the size asked for.
    #[error(
        "{}: is {existing} bytes long already, and shrinking to size={asked} would lose data; \
         leave size out to serve all of it", path.display()
    )]
    WouldShrink {
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        existing: u64,
        /// Bytes asked for.
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
        /// Bytes it has.
        existing: u64,
        /// Bytes asked for.
        asked: u64,
    },
    /// There is no such file.
    #[error("{}: no such file; give size=… to create it, or correct the path", path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// A device without a medium.
    #[error(
        "{}: has no medium (its size is 0); {}", path.display(), medium_advice(path, *.is_loop)
    )]
    NoMedium {
        /// The device.
        path: PathBuf,
        /// It is a loop device, without a file.
        is_loop: bool,
    },
    /// There is no such device.
    #[error("{}: no such device; correct the path", path.display())]
    DeviceNotFound {
        /// The device.
        path: PathBuf,
    },
    /// There is no such file, and a read-only volume is not created.
    #[error("{}: no such file, and a read-only volume is not created; correct the path", path.display())]
    NotFoundReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The directory of the file to be created is missing.
    #[error("{}: the directory {} does not exist; create it first", path.display(), directory.display())]
    DirectoryMissing {
        /// The file.
        path: PathBuf,
        /// Its directory.
        directory: PathBuf,
    },
    /// The path is a directory.
    #[error("{}: is a directory; name a file in it", path.display())]
    IsDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The path is a block device.
    #[error("{}: is a block device; use backend=block", path.display())]
    IsBlockDevice {
        /// The device.
        path: PathBuf,
    },
    /// The path is not a block device.
    #[error("{}: is not a block device; use backend=file for files", path.display())]
    NotBlockDevice {
        /// The path.
        path: PathBuf,
    },
    /// The path is neither a regular file nor a device that can be served.
    #[error(
        "{}: is neither a regular file nor /dev/zero or /dev/full; a volume cannot live there",
        path.display()
    )]
    NotServable {
        /// The path.
        path: PathBuf,
    },
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
        /// Who has it.
        holder: LockHolder,
    },
    /// A block device is mounted or otherwise claimed.
    #[error(
        "{}: in use by this host (mounted, swap, part of a RAID or of a volume group); release it \
         first", path.display()
    )]
    DeviceBusy {
        /// The device.
        path: PathBuf,
    },
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
        /// The device.
        path: PathBuf,
        /// Bytes of a block of the volume.
        block_size: u32,
        /// Logical block size of the device.
        logical: u32,
    },
    /// The serial number cannot be shown to peers.
    #[error(
        "volume {name}: serial {serial:?} must be 1 to {SERIAL_LENGTH_MAX} printable ASCII \
         characters"
    )]
    Serial {
        /// Volume.
        name: String,
        /// What was asked for.
        serial: String,
    },
    /// This program has no such backend.
    #[error("volume {name}: there is no backend={backend} in this program")]
    UnknownBackend {
        /// Volume.
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
        /// The system call.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// What it said.
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

#[cfg(test)]
mod tests;
