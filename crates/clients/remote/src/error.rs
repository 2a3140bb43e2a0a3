//! Why a volume of another server cannot be opened.

use std::io;
use std::path::PathBuf;

use longshore_initiator::url::Url;
use longshore_volume::{BackendName, OpenError};

use crate::name::{NVME_TCP, backend_of_url};

/// Why a volume of another server cannot be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No URL was given.
    #[error("volume {name}: backend={backend} needs url=…, for example url={}", example_url(*.backend))]
    UrlMissing { name: String, backend: BackendName },
    /// The URL is one of another protocol.
    #[error("volume {name}: {url} is not for backend={backend}; use backend={}", backend_of_url(.url))]
    UrlOfOther {
        name: String,
        backend: BackendName,
        url: Box<Url>,
    },
    /// A remote volume has a size already.
    #[error("volume {name}: a remote volume has its own size; leave size out")]
    Size { name: String },
    /// The system has no memory for the volume.
    #[error("volume {name}: out of memory")]
    OutOfMemory {
        /// Volume that was to be opened.
        name: String,
    },
    /// A number of queues, or their depth, that makes no sense.
    #[error("volume {name}: {option}={found} is out of range; it is 1 to {most}")]
    Range {
        name: String,
        option: &'static str,
        /// Value that was asked for.
        found: u16,
        /// The most that it can be.
        most: u16,
    },
    /// The file with the secret cannot be used.
    #[error("volume {name}: cannot read the secret file {}: {source}", path.display())]
    SecretFile {
        name: String,
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
    /// Not a secret of DH-HMAC-CHAP.
    #[error("volume {name}: the secret in {}: {source}; make one with: nvme gen-dhchap-key -m 1", path.display())]
    DhchapSecret {
        /// Name of the volume.
        name: String,
        path: PathBuf,
        source: longshore_nvme::auth::SecretError,
    },
    /// Not a key for TLS.
    #[error("volume {name}: the key in {}: {source}; make one with: longshore key generate --kind tls", path.display())]
    TlsKey {
        /// Name of the volume.
        name: String,
        path: PathBuf,
        source: longshore_nvme::psk::ConfiguredKeyError,
    },
    /// Secrets of another protocol, or half of them.
    #[error("volume {name}: {reason}")]
    DhchapOptions {
        /// Name of the volume.
        name: String,
        reason: &'static str,
    },
    /// A secret of no use.
    #[error("volume {name}: the secret in {} has {length} bytes; it is 1 to 255", path.display())]
    SecretLength {
        name: String,
        path: PathBuf,
        /// Bytes that the secret has.
        length: usize,
    },
    /// The URL names no user for the secret, or has a password already.
    #[error(
        "volume {name}: secret-file goes with a URL that names a user and no password: \
         url=iscsi://USER@HOST/IQN/LUN"
    )]
    SecretForNobody { name: String },
    /// Half of an account.
    #[error(
        "volume {name}: {url} names a user and no password; give secret-file=…, or \
         LIBISCSI_CHAP_PASSWORD in the environment"
    )]
    SecretMissing { name: String, url: Box<Url> },
    /// The remote volume cannot be reached or used.
    #[error("volume {name}: {url}: {source}")]
    Attach {
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
    BlockSize {
        name: String,
        url: Box<Url>,
        found: u32,
        asked: Option<u32>,
    },
    /// The remote volume has no blocks.
    #[error("volume {name}: {url} is empty (no medium, or not set up yet); look at the server")]
    Empty { name: String, url: Box<Url> },
}

impl From<RemoteError> for OpenError {
    fn from(error: RemoteError) -> Self {
        Self::Backend(Box::new(error))
    }
}

fn example_url(backend: BackendName) -> &'static str {
    match backend {
        NVME_TCP => "nvme+tcp://192.0.2.7/nqn.2026-11.com.example:disks/1",
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
