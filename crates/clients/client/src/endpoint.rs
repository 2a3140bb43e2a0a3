//! What a user can copy from and to: files, block devices, remote volumes.
//!
//! Files and devices are opened as the server opens them, with the same locks: a file that a server
//! has is refused, rather than copied while it changes.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longshore_initiator::info::VolumeInfo;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use longshore_volume::open::OpenError;
use longshore_volume::{BackendName, Backends, Volume, VolumeSpec};
use uuid::Uuid;

use crate::remote;
use crate::side::Side;

pub(crate) mod error;

pub use error::EndpointError;

/// Namespace of the names of journals: a random UUID, fixed for ever.
const JOURNALS: Uuid = Uuid::from_u128(0x3f0d_6a52_8e0c_4b7e_9a41_2d1c_77f3_90b5);

/// One end of a copy as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A file or block device.
    Path(PathBuf),
    /// A volume of a server.
    Remote(Box<Url>),
}

impl Endpoint {
    /// Reads what the user wrote: a URL if it has a scheme, else a path.
    pub fn parse(text: OsString) -> Result<Self, EndpointError> {
        match text.to_str() {
            Some("-") => Err(EndpointError::Stream),
            Some(url) if has_scheme(url) => Ok(Self::Remote(Box::new(url.parse()?))),
            _ => Ok(Self::Path(text.into())),
        }
    }

    /// The URL, if it is one.
    #[must_use]
    pub fn url(&self) -> Option<&Url> {
        match self {
            Self::Path(_) => None,
            Self::Remote(url) => Some(url),
        }
    }

    /// Whether it is a block device that is there.
    #[must_use]
    pub fn is_device(&self) -> bool {
        match self {
            Self::Path(path) => {
                fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
            }
            Self::Remote(_) => false,
        }
    }

    /// Whether it is a file that does not exist, or holds nothing.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Path(path) => match fs::metadata(path) {
                Ok(metadata) => metadata.is_file() && metadata.len() == 0,
                Err(error) => error.kind() == io::ErrorKind::NotFound,
            },
            Self::Remote(_) => false,
        }
    }

    /// Whether both are paths to one file or device.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        let (Self::Path(one), Self::Path(other)) = (self, other) else {
            return false;
        };
        let (Ok(one), Ok(other)) = (fs::metadata(one), fs::metadata(other)) else {
            return false;
        };
        if one.file_type().is_block_device() && other.file_type().is_block_device() {
            return one.rdev() == other.rdev();
        }
        (one.dev(), one.ino()) == (other.dev(), other.ino())
    }
}

/// Whether it looks like `scheme://…`, known or not: a typing error in a URL must not create a file.
fn has_scheme(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Remote(url) => url.fmt(f),
        }
    }
}

/// What an open end is.
#[derive(Debug)]
enum Medium {
    File {
        path: PathBuf,
        metadata: Metadata,
    },
    Device {
        path: PathBuf,
        rdev: u64,
    },
    Remote {
        url: Box<Url>,
        info: Arc<VolumeInfo>,
    },
}

/// One end of a copy, open.
pub(crate) struct Opened {
    pub(crate) side: Side,
    medium: Medium,
    /// It reads as zeros: it was made for this copy.
    blank: bool,
    /// Its file did not exist before.
    made: bool,
}

impl Opened {
    /// Opens what is copied, for reading.
    pub(crate) fn source(
        endpoint: &Endpoint,
        options: &Options,
        direct: bool,
    ) -> Result<Self, EndpointError> {
        let path = match endpoint {
            Endpoint::Remote(url) => return Self::remote(url, options),
            Endpoint::Path(path) => path,
        };
        let metadata = look_at(path)?.ok_or_else(|| EndpointError::NotFound(path.clone()))?;
        if metadata.is_file() {
            check_length(path, metadata.len())?;
        }
        Self::local(path, direct, true, None, &metadata)
    }

    /// Opens or creates where to copy `size` bytes, for writing.
    pub(crate) fn destination(
        endpoint: &Endpoint,
        options: &Options,
        size: u64,
        direct: bool,
    ) -> Result<Self, EndpointError> {
        let opened = match endpoint {
            Endpoint::Remote(url) => Self::remote(url, options)?,
            Endpoint::Path(path) => Self::local_destination(path, size, direct)?,
        };
        if opened.side.volume.characteristics().read_only {
            return Err(EndpointError::ReadOnly(opened.side.name));
        }
        if opened.size_bytes() < size {
            return Err(EndpointError::TooSmall {
                available: opened.size_bytes(),
                destination: opened.side.name,
                path: None,
                needed: size,
            });
        }
        Ok(opened)
    }

    fn local_destination(path: &Path, size: u64, direct: bool) -> Result<Self, EndpointError> {
        let Some(metadata) = look_at(path)? else {
            return Self::create(path, size, direct);
        };
        if !metadata.is_file() {
            return Self::local(path, direct, false, None, &metadata);
        }
        match metadata.len() {
            // What mktemp makes is as good as a new file.
            0 => Self::local(path, direct, false, Some(size), &metadata),
            available if available < size => Err(EndpointError::TooSmall {
                destination: path.display().to_string(),
                path: Some(path.to_owned()),
                available,
                needed: size,
            }),
            length => {
                check_length(path, length)?;
                Self::local(path, direct, false, None, &metadata)
            }
        }
    }

    fn create(path: &Path, size: u64, direct: bool) -> Result<Self, EndpointError> {
        let (volume, _) = open_local(path, BackendName::FILE, direct, false, Some(size))?;
        let metadata = look_at(path)?.ok_or_else(|| EndpointError::NotFound(path.to_owned()))?;
        let mut opened = Self::new(volume, file(path, metadata)?, true);
        opened.made = true;
        Ok(opened)
    }

    /// Opens a file or device that is there. With `size`, it is an empty file and gets that size.
    fn local(
        path: &Path,
        direct: bool,
        read_only: bool,
        size: Option<u64>,
        metadata: &Metadata,
    ) -> Result<Self, EndpointError> {
        let kind = metadata.file_type();
        if kind.is_block_device() {
            let (volume, _) = open_local(path, BackendName::BLOCK, direct, read_only, None)?;
            let medium = Medium::Device {
                path: canonical(path)?,
                rdev: metadata.rdev(),
            };
            return Ok(Self::new(volume, medium, false));
        }
        if !kind.is_file() {
            let what = match () {
                () if kind.is_dir() => "a directory",
                () if kind.is_char_device() => "a character device, which has no size",
                () if kind.is_fifo() => "a pipe",
                () if kind.is_socket() => "a socket",
                () => "something else",
            };
            return Err(EndpointError::Kind {
                path: path.to_owned(),
                what,
            });
        }
        let (volume, created) = open_local(path, BackendName::FILE, direct, read_only, size)?;
        let metadata = look_at(path)?.ok_or_else(|| EndpointError::NotFound(path.to_owned()))?;
        let blank = created || size.is_some();
        Ok(Self::new(volume, file(path, metadata)?, blank))
    }

    fn remote(url: &Url, options: &Options) -> Result<Self, EndpointError> {
        let remote = remote::open(url, options)?;
        let medium = Medium::Remote {
            url: Box::new(url.clone()),
            info: remote.info,
        };
        let mut opened = Self::new(remote.volume, medium, false);
        opened.side.link = Some(remote.link);
        Ok(opened)
    }

    fn new(volume: Arc<dyn Volume>, medium: Medium, blank: bool) -> Self {
        let name = match &medium {
            Medium::File { path, .. } | Medium::Device { path, .. } => path.display().to_string(),
            Medium::Remote { url, .. } => url.to_string(),
        };
        Self {
            side: Side {
                volume,
                name,
                link: None,
            },
            medium,
            blank,
            made: false,
        }
    }

    /// Removes a file that was made for a copy that does not begin.
    pub(crate) fn remove_if_made(&self) {
        if let (Medium::File { path, .. }, true) = (&self.medium, self.made) {
            // Nothing depends on it: it is empty.
            let _ = fs::remove_file(path);
        }
    }

    /// Bytes that can still be allocated on the file system of a file.
    pub(crate) fn free_space(&self) -> Option<u64> {
        let Medium::File { path, .. } = &self.medium else {
            return None;
        };
        let found = rustix::fs::statvfs(path).ok()?;
        // Part of many file systems is reserved for root.
        let blocks = if rustix::process::geteuid().is_root() {
            found.f_bfree
        } else {
            found.f_bavail
        };
        Some(blocks.saturating_mul(found.f_frsize))
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        let geometry = self.side.volume.geometry();
        geometry
            .block_count
            .saturating_mul(u64::from(geometry.block_size))
    }

    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.side.volume.geometry().block_size)
    }

    /// Bytes of the transfer that suits it best, when it says so.
    pub(crate) fn optimal_transfer(&self) -> Option<u64> {
        match &self.medium {
            Medium::Remote { info, .. } => info
                .optimal_transfer_blocks
                .map(|blocks| u64::from(blocks).saturating_mul(u64::from(info.block_size))),
            Medium::File { .. } | Medium::Device { .. } => None,
        }
    }

    /// Nothing was ever written to it.
    pub(crate) fn is_blank(&self) -> bool {
        self.blank
    }

    /// The kernel of this machine says where its holes are.
    pub(crate) fn tells_holes_truly(&self) -> bool {
        matches!(self.medium, Medium::File { .. })
    }

    /// Whether both are known to be one volume, over whatever paths.
    pub(crate) fn is_same_volume(&self, other: &Self) -> bool {
        match (&self.medium, &other.medium) {
            (
                Medium::Remote { url, info },
                Medium::Remote {
                    url: other_url,
                    info: other_info,
                },
            ) => same_place(url, other_url) || is_same(info, other_info),
            _ => false,
        }
    }

    /// Whether its worldwide names are made of this UUID.
    pub(crate) fn has_uuid(&self, uuid: Uuid) -> bool {
        match &self.medium {
            Medium::Remote { info, .. } => is_made_of(info, uuid),
            Medium::File { .. } | Medium::Device { .. } => false,
        }
    }

    /// What tells later whether it is still the same. `contents`: and still holds the same, as far
    /// as anything tells.
    pub(crate) fn identity(&self, contents: bool) -> String {
        match &self.medium {
            Medium::File { path, metadata } => {
                let mut text = format!(
                    "file {} {}:{}",
                    path.display(),
                    metadata.dev(),
                    metadata.ino()
                );
                if contents {
                    text += &format!(" changed {}.{:09}", metadata.mtime(), metadata.mtime_nsec());
                }
                text
            }
            Medium::Device { path, rdev } => format!("device {} {rdev:#x}", path.display()),
            Medium::Remote { url, info } => {
                // Names alone do not do: some servers give the same ones to different volumes.
                let portals: Vec<_> = url.portals().iter().map(ToString::to_string).collect();
                let mut text = format!("{} at {}", place(url), portals.join(","));
                for identifier in &info.identifiers {
                    text += &format!(" {}={}", identifier.kind, identifier.value);
                }
                if info.identifiers.is_empty() {
                    text += &format!(" serial={}", info.serial);
                }
                text
            }
        }
    }

    /// Whether a file was written to since it was opened.
    pub(crate) fn has_changed(&self) -> bool {
        let Medium::File { path, metadata } = &self.medium else {
            return false;
        };
        let stamp = |it: &Metadata| (it.mtime(), it.mtime_nsec(), it.len());
        fs::metadata(path).is_ok_and(|now| stamp(&now) != stamp(metadata))
    }

    /// Where its journal is, unless the user says otherwise: beside a file, in the state directory for
    /// all else.
    pub(crate) fn journal_path(&self, state_directory: Option<&Path>) -> Option<PathBuf> {
        if let Medium::File { path, .. } = &self.medium {
            let mut name = path.as_os_str().to_owned();
            name.push(".copy-journal");
            return Some(name.into());
        }
        let name = Uuid::new_v5(&JOURNALS, self.identity(false).as_bytes());
        Some(state_directory?.join(format!("copy-{}.journal", name.simple())))
    }

    /// The same again, for reading what is really there: past the page cache where that can be.
    pub(crate) fn reopen_uncached(self) -> Result<Self, EndpointError> {
        let (path, kind) = match &self.medium {
            Medium::File { path, .. } => (path.clone(), BackendName::FILE),
            Medium::Device { path, .. } => (path.clone(), BackendName::BLOCK),
            Medium::Remote { .. } => return Ok(self),
        };
        // The lock of the writer would keep the reader out.
        drop(self.side.volume);
        let volume = open_local(&path, kind, true, true, None)
            .or_else(|_| open_local(&path, kind, false, true, None));
        Ok(Self::new(volume?.0, self.medium, false))
    }
}

/// Whether a name of a volume is made of this UUID.
pub(crate) fn is_made_of(info: &VolumeInfo, uuid: Uuid) -> bool {
    let uuid = uuid.simple().to_string();
    names(info).iter().any(|name| name.ends_with(&uuid))
}

/// Worldwide names of a volume: letters and digits, in lower case.
fn names(info: &VolumeInfo) -> Vec<String> {
    let plain = |value: &str| -> String {
        let alphanumeric = value.chars().filter(char::is_ascii_alphanumeric);
        alphanumeric.map(|it| it.to_ascii_lowercase()).collect()
    };
    let identifiers = info.identifiers.iter();
    identifiers.map(|it| plain(&it.value)).collect()
}

/// Whether two remote volumes have a worldwide name in common, also when one is reached by each
/// protocol: many servers make their names for both of one UUID, which is the NGUID of one and stands
/// at the end of the T10 identifier of the other.
fn is_same(one: &VolumeInfo, other: &VolumeInfo) -> bool {
    /// Hexadecimal digits of a name that nobody gives twice.
    const UNIQUE: usize = 32;
    let within = |short: &String, long: &String| short.len() >= UNIQUE && long.ends_with(short);
    let (ones, others) = (names(one), names(other));
    let cross = ones.iter().any(|one| {
        let mut others = others.iter();
        others.any(|other| within(one, other) || within(other, one))
    });
    cross || one.is_same_volume(other)
}

/// Two URLs of one logical unit or namespace, whatever the portals. Names are the same everywhere.
fn same_place(one: &Url, other: &Url) -> bool {
    place(one) == place(other)
}

fn place(url: &Url) -> String {
    match url {
        Url::Iscsi(url) => format!("iscsi {} {}", url.target, url.lun),
        Url::NvmeTcp(url) => format!("nvme-tcp {} {}", url.subsystem, url.namespace),
    }
}

fn look_at(path: &Path) -> Result<Option<Metadata>, EndpointError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(EndpointError::Io {
            operation: "stat",
            path: path.to_owned(),
            source,
        }),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, EndpointError> {
    path.canonicalize().map_err(|source| EndpointError::Io {
        operation: "resolve",
        path: path.to_owned(),
        source,
    })
}

fn file(path: &Path, metadata: Metadata) -> Result<Medium, EndpointError> {
    let path = canonical(path)?;
    Ok(Medium::File { path, metadata })
}

/// A file holds whole blocks.
fn check_length(path: &Path, size: u64) -> Result<(), EndpointError> {
    if size == 0 {
        return Err(EndpointError::Empty(path.display().to_string()));
    }
    if !size.is_multiple_of(512) {
        return Err(EndpointError::Uneven {
            path: path.to_owned(),
            size,
            next: size.next_multiple_of(512),
        });
    }
    Ok(())
}

/// Opens a file or device with the smallest blocks it can have: 512 bytes, or 4096 where it or O_DIRECT
/// wants that. Tells whether it was created.
fn open_local(
    path: &Path,
    backend: BackendName,
    direct: bool,
    read_only: bool,
    size: Option<u64>,
) -> Result<(Arc<dyn Volume>, bool), EndpointError> {
    let open = |block_size| {
        let name = path.display().to_string();
        Backends::local().open(&VolumeSpec {
            path: Some(path.to_owned()),
            size,
            block_size,
            read_only,
            direct,
            ..VolumeSpec::new(name, backend)
        })
    };
    let opened = match open(512) {
        Err(OpenError::DeviceBlockSize { .. } | OpenError::DirectAlignment { .. }) => open(4096),
        other => other,
    };
    match opened {
        Ok(opened) => Ok((opened.volume, opened.created)),
        Err(OpenError::DirectoryMissing { path, directory }) => {
            Err(EndpointError::DirectoryMissing { path, directory })
        }
        Err(OpenError::SizeZero { .. }) => Err(EndpointError::Empty(path.display().to_string())),
        Err(other) => Err(EndpointError::Open(Box::new(other))),
    }
}

#[cfg(test)]
mod tests {
    use longshore_initiator::info::{Identifier, Protocol};

    use super::*;

    fn volume(protocol: Protocol, identifiers: &[(&str, &str)]) -> VolumeInfo {
        let identifier = |(kind, value): &(&str, &str)| Identifier {
            kind: (*kind).to_owned(),
            value: (*value).to_owned(),
        };
        VolumeInfo {
            protocol,
            block_size: 512,
            block_count: 8,
            physical_block_size: 512,
            read_only: false,
            write_cache: false,
            fua: true,
            unmap: false,
            unmapped_reads_zeros: false,
            write_zeroes: false,
            compare_and_write_max: None,
            extent_status: false,
            max_transfer_blocks: None,
            optimal_transfer_blocks: None,
            unmap_granularity_blocks: None,
            max_unmap_blocks: None,
            max_write_zeroes_blocks: None,
            vendor: String::new(),
            product: String::new(),
            revision: String::new(),
            serial: String::new(),
            identifiers: identifiers.iter().map(identifier).collect(),
        }
    }

    #[test]
    fn a_volume_is_known_again_over_the_other_protocol() {
        let unit = volume(
            Protocol::Iscsi,
            &[
                ("naa", "616d9cfa970c5a0d8e2430e1f78178ef"),
                ("t10", "LONGSHOR317d9cfa-970c-5a0d-8e24-30e1f78178ef"),
                ("eui", "8e2430e1f78178ef"),
            ],
        );
        let namespace = volume(
            Protocol::NvmeTcp,
            &[("nguid", "317d9cfa970c5a0d8e2430e1f78178ef")],
        );
        assert!(is_same(&unit, &namespace) && is_same(&namespace, &unit));
        let uuid = Uuid::from_u128(0x317d_9cfa_970c_5a0d_8e24_30e1_f781_78ef);
        assert!(is_made_of(&unit, uuid) && is_made_of(&namespace, uuid));
        assert!(!is_made_of(&unit, Uuid::nil()));
        let other = volume(
            Protocol::NvmeTcp,
            &[
                ("nguid", "317d9cfa970c5a0d8e2430e1f78178ee"),
                ("eui", "f78178ef"),
            ],
        );
        assert!(!is_same(&unit, &other));
        assert!(!is_same(
            &volume(Protocol::Iscsi, &[]),
            &volume(Protocol::NvmeTcp, &[])
        ));
    }

    #[test]
    fn what_has_a_scheme_is_no_file() {
        let parse = |text: &str| Endpoint::parse(text.into());
        assert!(matches!(parse("disk.img"), Ok(Endpoint::Path(_))));
        assert!(matches!(parse("./a:b/c"), Ok(Endpoint::Path(_))));
        assert!(matches!(parse("://x"), Ok(Endpoint::Path(_))));
        assert!(matches!(
            parse("iscsi://host/iqn.2026-11.local:a/0"),
            Ok(Endpoint::Remote(_))
        ));
        assert!(matches!(
            parse("isci://host/x/0"),
            Err(EndpointError::Url(_))
        ));
        assert!(matches!(parse("-"), Err(EndpointError::Stream)));
    }

    #[test]
    fn journals_of_remote_destinations_have_names_of_their_own() {
        let opened = |url: &str, identifier: &str| {
            let endpoint = Endpoint::parse(url.into()).unwrap();
            let medium = Medium::Remote {
                url: Box::new(endpoint.url().unwrap().clone()),
                info: Arc::new(volume(Protocol::Iscsi, &[("naa", identifier)])),
            };
            let spec = VolumeSpec {
                size: Some(4096),
                ..VolumeSpec::new("m", BackendName::MEM)
            };
            Opened::new(longshore_volume::open(&spec).unwrap(), medium, false)
        };
        let state = Path::new("/state");
        let path = |opened: &Opened| opened.journal_path(Some(state)).unwrap();
        let one = opened("iscsi://me%secret@host/iqn.2026-11.local:a/0", "1");
        assert!(!one.identity(false).contains("secret"));
        let same = opened("iscsi://host:3260/iqn.2026-11.local:a/0", "1");
        assert_eq!(path(&one), path(&same));
        assert!(path(&one).starts_with(state));
        for other in [
            opened("iscsi://host/iqn.2026-11.local:a/1", "1"),
            opened("iscsi://host/iqn.2026-11.local:a/0", "2"),
            opened("iscsi://other/iqn.2026-11.local:a/0", "1"),
        ] {
            assert_ne!(path(&one), path(&other));
        }
        assert_eq!(one.journal_path(None), None);
    }
}
