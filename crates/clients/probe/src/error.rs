//! Why there is no document. Each says what to do next.

use std::io;
use std::path::PathBuf;

use longshore_bench::measure::BenchError;
use longshore_bench::units::show_size;
use longshore_initiator::error::{Failure, Lost};
use longshore_model::probe::ProbeError;

/// See the module documentation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The volume cannot be reached, read or used so.
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error("the connection was lost {during}: {lost}; look at the log of the server")]
    Lost {
        /// What was measured then.
        during: &'static str,
        lost: Lost,
    },
    /// An operation failed that has to work.
    #[error("{0} failed: {1}; a server is measured when it works")]
    Failed(&'static str, Failure),
    /// Operations of a load failed.
    #[error("operations failed: {0}; a server is measured when it works")]
    Errors(String),
    /// The volume has too little, or too large, for what is measured.
    #[error(
        "the volume has {} in blocks of {block_size} bytes; a probe needs blocks of up to 1 MiB, and at least one of \
         them", show_size(*volume_bytes)
    )]
    Volume { volume_bytes: u64, block_size: u64 },
    /// The region to write.
    #[error("--write: {0}")]
    Region(String),
    /// Writes were asked for, and the volume takes none.
    #[error("--write: the volume is write protected; leave it out")]
    ReadOnly,
    /// The wish to stop.
    #[error("stopped by a signal")]
    Interrupted(usize),
    /// The document of a probe cannot be read.
    #[error("cannot read {}: {source}; correct the path", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Document { path: PathBuf, source: ProbeError },
}

impl Error {
    pub(crate) fn lost(during: &'static str) -> impl Fn(Lost) -> Self {
        move |lost| Self::Lost { during, lost }
    }
}
