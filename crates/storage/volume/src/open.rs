//! From what the operator wrote to an open volume.
//!
//! Everything that can be wrong with a volume is found here, at start, and said with the path and
//! what to do next; an open volume then only meets what can go wrong later.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use longshore_initiator::url::Url;
use longshore_iscsi::name::IscsiName;
use longshore_nvme::nqn::Nqn;
use uuid::Uuid;

use crate::backend::{block, file, mem, null, remote};
use crate::identity::SERIAL_LENGTH_MAX;
use crate::machine_id::MachineId;
use crate::medium::InlineWrites;
use crate::{Volume, identity};

mod survey;

pub use survey::survey;

/// Which backend stores a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// Reads give zeros, writes vanish.
    Null,
    /// Memory of this process.
    Mem,
    /// A regular file, `/dev/zero` or `/dev/full`.
    File,
    /// A block device node.
    Block,
    /// A logical unit of an iSCSI target elsewhere.
    Iscsi,
    /// A namespace of an NVMe/TCP subsystem elsewhere.
    NvmeTcp,
}

impl BackendKind {
    /// All of them, in the order of the documentation.
    pub const ALL: [BackendKind; 6] = [
        BackendKind::Null,
        BackendKind::Mem,
        BackendKind::File,
        BackendKind::Block,
        BackendKind::Iscsi,
        BackendKind::NvmeTcp,
    ];

    /// The name on the command line and in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            BackendKind::Null => "null",
            BackendKind::Mem => "mem",
            BackendKind::File => "file",
            BackendKind::Block => "block",
            BackendKind::Iscsi => "iscsi",
            BackendKind::NvmeTcp => "nvme-tcp",
        }
    }

    fn has_path(self) -> bool {
        matches!(self, BackendKind::File | BackendKind::Block)
    }

    /// Whether it is on another machine.
    pub fn is_remote(self) -> bool {
        matches!(self, BackendKind::Iscsi | BackendKind::NvmeTcp)
    }

    /// The backend for volumes with such URLs.
    pub fn of_url(url: &Url) -> BackendKind {
        match url {
            Url::Iscsi(_) => BackendKind::Iscsi,
            Url::NvmeTcp(_) => BackendKind::NvmeTcp,
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The name is none of the backends'.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no backend is called {0:?}; there are null, mem, file, block, iscsi and nvme-tcp")]
pub struct UnknownBackend(pub String);

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<BackendKind, UnknownBackend> {
        BackendKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// A volume as the operator describes it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// What it is called.
    pub name: String,
    /// What stores it.
    pub backend: BackendKind,
    /// The file or device; for `file` and `block` only.
    pub path: Option<PathBuf>,
    /// Bytes. `null` and `mem` need it; a file is created with it, or grown to it; a block device
    /// has its own size.
    pub size: Option<u64>,
    /// 512 or 4096. A remote volume has its own: see [`RemoteSpec::block_size`].
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
    /// For `iscsi` and `nvme-tcp` only.
    pub remote: RemoteSpec,
}

/// What is to be said of a volume on another machine. Everything but the URL can be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteSpec {
    /// Where it is.
    pub url: Option<Url>,
    /// A file with the secret of the URL's user (CHAP).
    pub secret_file: Option<PathBuf>,
    /// The name to log in with over iSCSI; otherwise one of this machine and user.
    pub initiator_name: Option<IscsiName>,
    /// The name to connect with over NVMe/TCP; otherwise one of this machine and user.
    pub host_nqn: Option<Nqn>,
    /// The block size that it has to have.
    pub block_size: Option<u32>,
    /// Connections, each with its own queue of commands.
    pub queues: Option<u16>,
    /// Commands that a connection carries at a time.
    pub depth: Option<u16>,
    /// How long operations wait for a server that cannot be reached before they fail.
    pub give_up: Option<Duration>,
}

impl RemoteSpec {
    /// The first option that was given, by its name in the configuration.
    fn first_given(&self) -> Option<&'static str> {
        let RemoteSpec {
            url,
            secret_file,
            initiator_name,
            host_nqn,
            block_size: _,
            queues,
            depth,
            give_up,
        } = self;
        [
            (url.is_some(), "url"),
            (secret_file.is_some(), "secret-file"),
            (initiator_name.is_some(), "initiator-name"),
            (host_nqn.is_some(), "host-nqn"),
            (queues.is_some(), "queues"),
            (depth.is_some(), "depth"),
            (give_up.is_some(), "give-up"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}

impl VolumeSpec {
    /// A specification with 512-byte blocks and nothing else said.
    pub fn new(name: impl Into<String>, backend: BackendKind) -> VolumeSpec {
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
            remote: RemoteSpec::default(),
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

    /// What can be told without looking at the backing object.
    fn check(&self) -> Result<(), OpenError> {
        if !matches!(self.block_size, 512 | 4096) {
            return Err(OpenError::BlockSize {
                name: self.name.clone(),
                found: self.block_size,
            });
        }
        let misplaced = |option| {
            Err(OpenError::OptionMisplaced {
                name: self.name.clone(),
                backend: self.backend,
                option,
            })
        };
        if self.path.is_some() && !self.backend.has_path() {
            return misplaced("path");
        }
        if self.direct && !self.backend.has_path() {
            return misplaced("direct");
        }
        if self.backend.is_remote() {
            if self.size.is_some() {
                return Err(OpenError::RemoteSize {
                    name: self.name.clone(),
                });
            }
            if self.inline_writes != InlineWrites::default() {
                return misplaced("inline-writes");
            }
        } else if let Some(option) = self.remote.first_given() {
            return misplaced(option);
        }
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

/// Opens the volume, creating a file that is missing when a size is given. May block.
pub fn open(spec: &VolumeSpec) -> Result<Arc<dyn Volume>, OpenError> {
    open_or_create(spec).map(|opened| opened.volume)
}

/// Like [`open`], and tells whether a file was created.
pub fn open_or_create(spec: &VolumeSpec) -> Result<Opened, OpenError> {
    spec.check()?;
    let existing = |volume| Opened {
        volume,
        created: false,
    };
    Ok(match spec.backend {
        BackendKind::Null => existing(Arc::new(null::NullVolume::open(spec)?)),
        BackendKind::Mem => existing(Arc::new(mem::MemVolume::open(spec)?)),
        BackendKind::File => {
            let volume = file::FileVolume::open(spec)?;
            Opened {
                created: volume.created(),
                volume: Arc::new(volume),
            }
        }
        BackendKind::Block => existing(Arc::new(block::BlockVolume::open(spec)?)),
        BackendKind::Iscsi | BackendKind::NvmeTcp => {
            existing(Arc::new(remote::RemoteBackend::open(spec)?))
        }
    })
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
        backend: BackendKind,
    },
    /// No size was given.
    #[error("volume {name}: backend={backend} needs size=…, for example size=1G")]
    SizeMissing {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendKind,
    },
    /// An option was given that means nothing to this backend.
    #[error("volume {name}: {option} means nothing to backend={backend}; leave it out")]
    OptionMisplaced {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendKind,
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
        backend: BackendKind,
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
    /// No URL was given.
    #[error("volume {name}: backend={backend} needs url=…, for example url={}", example_url(*.backend))]
    UrlMissing {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendKind,
    },
    /// The URL is one of another protocol.
    #[error("volume {name}: {url} is not for backend={backend}; use backend={}", BackendKind::of_url(.url))]
    UrlOfOther {
        /// Volume.
        name: String,
        /// Its backend.
        backend: BackendKind,
        /// The URL.
        url: Box<Url>,
    },
    /// A remote volume has a size already.
    #[error("volume {name}: a remote volume has its own size; leave size out")]
    RemoteSize {
        /// Volume.
        name: String,
    },
    /// A number of queues, or their depth, that makes no sense.
    #[error("volume {name}: {option}={found} is out of range; it is 1 to {most}")]
    RemoteRange {
        /// Volume.
        name: String,
        /// The option.
        option: &'static str,
        /// As asked for.
        found: u16,
        /// The most that it can be.
        most: u16,
    },
    /// The file with the secret cannot be used.
    #[error("volume {name}: cannot read the secret file {}: {source}", path.display())]
    SecretFile {
        /// Volume.
        name: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// A secret of no use.
    #[error("volume {name}: the secret in {} has {length} bytes; it is 1 to 255", path.display())]
    SecretLength {
        /// Volume.
        name: String,
        /// The file.
        path: PathBuf,
        /// Bytes found.
        length: usize,
    },
    /// A secret for nobody, or a second one.
    #[error(
        "volume {name}: secret-file goes with a URL that names a user and no password: \
         url=iscsi://USER@HOST/IQN/LUN"
    )]
    SecretForNobody {
        /// Volume.
        name: String,
    },
    /// Half of an account.
    #[error(
        "volume {name}: {url} names a user and no password; give secret-file=…, or \
         LIBISCSI_CHAP_PASSWORD in the environment"
    )]
    SecretMissing {
        /// Volume.
        name: String,
        /// The URL.
        url: Box<Url>,
    },
    /// The remote volume cannot be reached or used.
    #[error("volume {name}: {url}: {source}")]
    Remote {
        /// Volume.
        name: String,
        /// Where it should be. Prints without its password.
        url: Box<Url>,
        /// What is wrong and what to do next.
        source: Box<longshore_initiator::error::Error>,
    },
    /// The remote volume has blocks that we do not serve, or others than asked for.
    #[error(
        "volume {name}: {url} has blocks of {found} bytes, {}",
        block_size_advice(*.found, *.asked)
    )]
    RemoteBlockSize {
        /// Volume.
        name: String,
        /// Where it is.
        url: Box<Url>,
        /// What it has.
        found: u32,
        /// What was asked for.
        asked: Option<u32>,
    },
    /// The remote volume has no blocks.
    #[error("volume {name}: {url} is empty (no medium, or not set up yet); look at the server")]
    RemoteEmpty {
        /// Volume.
        name: String,
        /// Where it is.
        url: Box<Url>,
    },
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

fn example_url(backend: BackendKind) -> &'static str {
    match backend {
        BackendKind::NvmeTcp => "nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1",
        _ => "iscsi://192.0.2.7/iqn.2026-11.com.example:disks/0",
    }
}

fn block_size_advice(found: u32, asked: Option<u32>) -> String {
    match asked {
        Some(asked) if matches!(found, 512 | 4096) => {
            format!("not {asked}; leave block-size out, or use block-size={found}")
        }
        _ => "which are not served; they must have 512 or 4096".to_owned(),
    }
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
