//! Why one end of a copy cannot be used.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use longshore_initiator::error::Error;
use longshore_initiator::url::{Url, UrlError};
use longshore_volume::open::OpenError;

/// Why one end of a copy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A URL with something wrong.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// `-`, for standard input or output.
    #[error("`-`: standard input and output cannot be copied; name a file")]
    Stream,
    /// There is no such file.
    #[error("{}: no such file or device; correct the path", .0.display())]
    NotFound(PathBuf),
    /// The directory of a new file is missing.
    #[error("{}: the directory {} does not exist; create it first", path.display(), directory.display())]
    DirectoryMissing { path: PathBuf, directory: PathBuf },
    /// Neither file nor block device.
    #[error("{}: is {what}; only regular files, block devices and URLs can be copied", path.display())]
    Kind { path: PathBuf, what: &'static str },
    /// The operating system does not let us look at it.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// There is nothing in it.
    #[error("{0}: is empty; there is nothing to copy")]
    Empty(String),
    /// Volumes consist of blocks.
    #[error(
        "{}: has {size} bytes, and volumes consist of blocks of 512; make it longer first: \
         truncate --size={next} {}", path.display(), path.display()
    )]
    Uneven {
        path: PathBuf,
        size: u64,
        /// The next size that will do.
        next: u64,
    },
    /// The destination cannot take all of the source.
    #[error("{destination}: has {available} bytes, and the source {needed}; nothing was written{}", advice(.path.as_deref(), *.needed))]
    TooSmall {
        destination: String,
        /// If it is a file.
        path: Option<PathBuf>,
        available: u64,
        /// What the source has.
        needed: u64,
    },
    /// The destination takes no writes.
    #[error("{0}: is write-protected; nothing was written")]
    ReadOnly(String),
    /// A file or device cannot be opened as a volume.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// A remote volume cannot be reached.
    #[error("{url}: {}", Reason { url, source })]
    Remote {
        /// Where it should be.
        url: Box<Url>,
        source: Box<Error>,
    },
}

/// Why a volume cannot be reached, without its portal where the URL names no other.
struct Reason<'a> {
    url: &'a Url,
    source: &'a Error,
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.source.to_string();
        let rest = match self.url.portals() {
            [only] => text.strip_prefix(&format!("{only}: ")),
            _ => None,
        };
        f.write_str(rest.unwrap_or(&text))
    }
}

fn advice(path: Option<&Path>, needed: u64) -> String {
    match path {
        Some(path) => format!(
            ". To make it longer: truncate --size={needed} {}",
            path.display()
        ),
        None => String::new(),
    }
}
