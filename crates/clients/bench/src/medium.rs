//! What can be measured: volumes of servers, and files and block devices of this machine.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_initiator::info::{Protocol, VolumeInfo};
use longshore_initiator::url::{Url, UrlError};
use longshore_reactor::EngineChoice;
use longshore_volume::open::OpenError;
use longshore_volume::{BackendName, Volume, VolumeSpec, open};
use serde::Serialize;

/// Something to measure, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A volume of a server.
    Remote(Box<Url>),
    /// A file or block device.
    Local(PathBuf),
}

impl Medium {
    /// Reads what the user wrote: a URL if it has a scheme, else a path.
    ///
    /// # Errors
    /// The URL has something wrong.
    pub fn parse(text: OsString) -> Result<Self, UrlError> {
        match text.to_str() {
            Some(url) if url.contains("://") => Ok(Self::Remote(Box::new(url.parse()?))),
            _ => Ok(Self::Local(text.into())),
        }
    }

    /// The URL, if it is one.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Remote(url) => Some(url),
            Self::Local(_) => None,
        }
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(url) => url.fmt(f),
            Self::Local(path) => path.display().fmt(f),
        }
    }
}

/// How local storage is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalOptions {
    /// Without the page cache (O_DIRECT).
    pub direct: bool,
    /// How to wait for it.
    pub engine: EngineChoice,
}

/// How a medium is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Iscsi,
    NvmeTcp,
    /// Through the file system of this machine.
    File,
    /// As a block device of this machine.
    Block,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi => Protocol::Iscsi.fmt(f),
            Self::NvmeTcp => Protocol::NvmeTcp.fmt(f),
            Self::File => f.write_str("file"),
            Self::Block => f.write_str("block device"),
        }
    }
}

impl From<Protocol> for Way {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Iscsi => Self::Iscsi,
            Protocol::NvmeTcp => Self::NvmeTcp,
        }
    }
}

/// The properties of a volume that a load needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) block_size: u32,
    pub(crate) volume_bytes: u64,
    pub(crate) read_only: bool,
    /// Most blocks of one operation.
    pub(crate) max_transfer_blocks: Option<u32>,
}

impl From<&VolumeInfo> for Facts {
    fn from(info: &VolumeInfo) -> Self {
        Self {
            block_size: info.block_size,
            volume_bytes: info.size_bytes(),
            read_only: info.read_only,
            max_transfer_blocks: info.max_transfer_blocks,
        }
    }
}

/// Why a file or device cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The path does not exist.
    #[error("{}: no such file or device; correct the path, or create a file: truncate --size=1G {}",
        .0.display(), .0.display())]
    NotFound(PathBuf),
    /// Neither file nor block device.
    #[error("{}: only regular files, block devices and URLs can be measured", .0.display())]
    Kind(PathBuf),
    /// The size of the file is no multiple of the block size.
    #[error("{}: has {size} bytes; use a file of whole blocks of {block_size}, and at least one: \
             truncate --size={next} {}", path.display(), path.display())]
    Uneven {
        path: PathBuf,
        size: u64,
        /// Bytes of a block.
        block_size: u32,
        /// The next larger size that fits.
        next: u64,
    },
    /// The system does not let us look at it.
    #[error("stat {}: {source}", path.display())]
    Stat { path: PathBuf, source: io::Error },
    /// It cannot be opened as it would have to be.
    #[error(transparent)]
    Open(Box<OpenError>),
}

/// A file or device, open.
pub(crate) struct Local {
    pub(crate) volume: Arc<dyn Volume>,
    pub(crate) way: Way,
    /// Bytes of a sparse file that are allocated.
    pub(crate) allocated: Option<u64>,
}

impl Local {
    /// Opens it; for writing only if it is written to. A device that is mounted or in use in another way, or
    /// a file that a server has, is not opened for writing.
    pub(crate) fn open(
        path: &Path,
        options: LocalOptions,
        writes: bool,
    ) -> Result<Self, LocalError> {
        let metadata = fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => LocalError::NotFound(path.to_owned()),
            _ => LocalError::Stat {
                path: path.to_owned(),
                source,
            },
        })?;
        let (backend, way) = match metadata.file_type() {
            kind if kind.is_block_device() => (BackendName::BLOCK, Way::Block),
            kind if kind.is_file() => (BackendName::FILE, Way::File),
            _ => return Err(LocalError::Kind(path.to_owned())),
        };
        let open_with = |block_size| {
            open(&VolumeSpec {
                path: Some(path.to_owned()),
                block_size,
                read_only: !writes,
                unlocked: !writes,
                direct: options.direct,
                ..VolumeSpec::new(path.display().to_string(), backend)
            })
        };
        let opened = match open_with(512) {
            Err(OpenError::DeviceBlockSize { .. } | OpenError::DirectAlignment { .. }) => {
                open_with(4096)
            }
            other => other,
        };
        let volume = opened.map_err(|error| match error {
            OpenError::SizeZero { .. } | OpenError::SizeNotMultiple { .. } => {
                let block_size = match error {
                    OpenError::SizeNotMultiple { block_size, .. } => block_size,
                    _ => 512,
                };
                let size = metadata.len();
                LocalError::Uneven {
                    path: path.to_owned(),
                    size,
                    block_size,
                    next: size.max(1).next_multiple_of(block_size.into()),
                }
            }
            other => LocalError::Open(Box::new(other)),
        })?;
        let allocated = metadata.blocks().saturating_mul(512);
        let is_sparse = way == Way::File && allocated < metadata.len();
        Ok(Self {
            volume,
            way,
            allocated: is_sparse.then_some(allocated),
        })
    }

    pub(crate) fn facts(&self) -> Facts {
        let geometry = self.volume.geometry();
        let block_size = u64::from(geometry.block_size);
        Facts {
            block_size: geometry.block_size,
            volume_bytes: geometry.block_count.saturating_mul(block_size),
            read_only: self.volume.characteristics().read_only,
            max_transfer_blocks: None,
        }
    }
}
