//! `longshore copy`: from any volume to any other.
//!
//! Both ends are volumes, whatever they are: files, block devices, logical units, namespaces. One
//! thread and one reactor engine drive a fixed number of chunks at a time (`transfer.rs`). What is
//! known or found to be zeros is not sent (`plan.rs`, `zeros.rs`). How far the copy got is kept in a
//! journal ([`journal`]), so that it can go on after an interruption or a crash.

mod driver;
pub mod journal;
mod monitor;
mod pace;
mod plan;
mod resume;
mod space;
mod transfer;
mod verify;
mod zeros;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_initiator::options::Options;
use longshore_initiator::volume::Outage;
use longshore_reactor::EngineChoice;
use longshore_volume::{Volume, VolumeError, WriteCache};
use serde::Serialize;

use crate::endpoint::{Endpoint, EndpointError, Opened};
use journal::JournalIoError;
use monitor::Monitor;
use resume::{Kept, Prepared};
use transfer::{Assignment, Transfer, Transferred};
use verify::{Comparison, Verification};

pub use driver::DriverError;
pub use monitor::{End, Interrupt, Observer, Phase, Progress, Silent, Trouble};

/// Bytes of a chunk unless asked otherwise: large enough that each request is cheap, small enough that
/// [`PARALLEL_DEFAULT`] of them fit into 16 MiB.
pub const CHUNK_DEFAULT: u64 = 1 << 20;

/// Smallest chunk.
pub const CHUNK_MIN: u64 = 4096;

/// Largest chunk.
pub const CHUNK_MAX: u64 = 64 << 20;

/// Chunks under way at a time unless asked otherwise.
pub const PARALLEL_DEFAULT: usize = 16;

/// Most chunks under way at a time.
pub const PARALLEL_MAX: usize = 256;

/// Silence of a server after which the user is told.
const NO_ANSWER: Duration = Duration::from_secs(3);

/// How much of a copy may have to be made again after a crash, in time.
pub const CHECKPOINT_DEFAULT: Duration = Duration::from_secs(5);

/// How a copy is made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of a chunk, a power of two from [`CHUNK_MIN`] to [`CHUNK_MAX`].
    pub chunk: u64,
    /// Chunks under way at a time, 1 to [`PARALLEL_MAX`].
    pub parallel: usize,
    /// Zeros are written like everything else, so that the destination is allocated.
    pub thick: bool,
    /// Files and block devices are used without the page cache (O_DIRECT).
    pub direct: bool,
    /// Most bytes per second.
    pub rate: Option<u64>,
    /// Time between two checkpoints.
    pub checkpoint: Duration,
    /// Read both sides again afterwards, and compare.
    pub verify: bool,
    /// Go on where an earlier run was interrupted.
    pub resume: bool,
    /// Remote volumes with the same worldwide names are two volumes all the same: some servers number their volumes
    /// from 1 on and make names of that. And the copy begins although space seems too short.
    pub force: bool,
    /// How to wait for files.
    pub engine: EngineChoice,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chunk: CHUNK_DEFAULT,
            parallel: PARALLEL_DEFAULT,
            thick: false,
            direct: false,
            rate: None,
            checkpoint: CHECKPOINT_DEFAULT,
            verify: false,
            resume: false,
            force: false,
            engine: EngineChoice::Auto,
        }
    }
}

/// What is to be copied where.
#[derive(Clone, Debug)]
pub struct Job {
    /// From here.
    pub source: Endpoint,
    /// To there.
    pub destination: Endpoint,
    /// How to reach the source if it is remote.
    pub source_options: Options,
    /// How to reach the destination if it is remote.
    pub destination_options: Options,
    /// How to copy.
    pub settings: Settings,
    /// Where to keep how far it got, when the user says so.
    pub journal: Option<PathBuf>,
    /// Where journals of destinations are that are not files.
    pub state_directory: Option<PathBuf>,
}

/// Why a copy was not made, or not finished.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the sides cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The copy would overwrite what it reads.
    #[error("{source_name} and {destination} are the same file or device; nothing was copied")]
    SameFile {
        /// The source.
        source_name: String,
        /// The destination.
        destination: String,
    },
    /// The copy would overwrite what it reads, as far as names tell.
    #[error(
        "{source_name} and {destination} are the same volume, by their names; nothing was copied. \
         If they are two volumes with the same names, use --force"
    )]
    SameVolume {
        /// The source.
        source_name: String,
        /// The destination.
        destination: String,
    },
    /// No event loop.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The event loop failed.
    #[error("waiting for storage failed: {0}")]
    Wait(io::Error),
    /// A read failed.
    #[error("cannot read bytes {start} to {end} of {name}: {}", Cause(.source))]
    Read {
        /// The side.
        name: String,
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// What the volume said.
        source: VolumeError,
    },
    /// A write failed.
    #[error("cannot write bytes {start} to {end} of {name}: {}", Cause(.source))]
    Write {
        /// The side.
        name: String,
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// What the volume said.
        source: VolumeError,
    },
    /// What was written cannot be made durable.
    #[error(
        "cannot flush {name}: {}; writes since the last flush may be lost",
        Cause(.source)
    )]
    Flush {
        /// The side.
        name: String,
        /// What the volume said.
        source: VolumeError,
    },
    /// The connection is lost again and again.
    #[error(
        "{name}: the connection is lost again and again before the writes can be flushed; check \
         the network and the server"
    )]
    Unsteady {
        /// The side.
        name: String,
    },
    /// The journal the user named cannot be used.
    #[error("{0}; name another file with --journal")]
    Journal(#[from] JournalIoError),
    /// The file named for the journal holds something else.
    #[error(
        "{}: exists and is not a journal of a copy; name another file with --journal, or remove \
         this one",
        path.display()
    )]
    NoJournal {
        /// The file.
        path: PathBuf,
    },
    /// The file system of the destination has too little space.
    #[error(
        "{destination}: the copy needs up to {needed} bytes, and its file system has {free} free; nothing \
         was written. Make room, choose another destination, or {}", way_out(*.thick)
    )]
    NoRoom {
        /// The destination.
        destination: String,
        /// Bytes that the copy may have to allocate.
        needed: u64,
        /// Bytes that can be allocated.
        free: u64,
        /// All of it is to be allocated.
        thick: bool,
    },
    /// The destination of a copy to go on with is shorter than that copy had made it.
    #[error(
        "cannot resume: {} has {available} bytes, and the source {needed}; nothing was written. \
         To copy everything again: truncate --size={needed} {}, and remove --resume", path.display(), path.display()
    )]
    CutShort {
        /// The destination.
        path: PathBuf,
        /// Bytes that it has.
        available: u64,
        /// Bytes of the source.
        needed: u64,
    },
    /// The journal tells of something else.
    #[error(
        "cannot resume: {} belongs to another copy ({difference}). To copy everything again, \
         remove --resume", path.display()
    )]
    OtherCopy {
        /// The journal.
        path: PathBuf,
        /// What is different.
        difference: String,
    },
    /// The comparison found a difference.
    #[error(
        "the copy differs from its source at byte {offset}; copy again, and look for the \
         cause if it differs again"
    )]
    Differs {
        /// First byte that differs.
        offset: u64,
    },
    /// Asked to stop.
    #[error("interrupted")]
    Interrupted {
        /// The signal that asked.
        signal: i32,
    },
}

/// Why an operation on a volume failed, without the volume's name: the sentence around it has it.
struct Cause<'a>(&'a VolumeError);

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            VolumeError::Io { source, .. } => source.fmt(f),
            other => other.fmt(f),
        }
    }
}

fn way_out(thick: bool) -> &'static str {
    if thick {
        "remove --thick, so that zeros are not written"
    } else {
        "copy nevertheless with --force: zeros among the data take no space"
    }
}

impl CopyError {
    /// Whether the destination has no space left.
    #[must_use]
    pub fn is_out_of_space(&self) -> bool {
        let source = match self {
            Self::Write { source, .. } | Self::Flush { source, .. } => source,
            _ => return false,
        };
        matches!(source, VolumeError::NoSpace)
    }

    /// Not an interruption.
    fn is_failure(&self) -> bool {
        !matches!(self, Self::Interrupted { .. })
    }
}

/// One end of a copy.
pub(crate) struct Side {
    pub(crate) volume: Arc<dyn Volume>,
    /// For messages.
    pub(crate) name: String,
    /// How it is reached, where that is over a network.
    pub(crate) link: Option<Box<dyn Link>>,
}

/// The connections to a server.
pub(crate) trait Link {
    /// How many were lost so far.
    fn losses(&self) -> u64;

    /// Set while there is none.
    fn outage(&self) -> Option<Outage>;
}

impl Side {
    fn losses(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.losses())
    }

    fn outage(&self) -> Option<Outage> {
        self.link.as_ref()?.outage()
    }

    /// It has a write cache that may be lost without an operation failing: another machine's.
    fn may_forget(&self) -> bool {
        let cache = self.volume.characteristics().write_cache;
        self.link.is_some() && cache == WriteCache::Volatile
    }
}

/// Why a copy makes no progress: one end is away, or a server has not answered for `waiting`.
fn trouble(source: &Side, destination: &Side, waiting: Duration) -> Option<Trouble> {
    let lost = [(End::Source, source), (End::Destination, destination)]
        .into_iter()
        .find_map(|(end, side)| Some((end, side.outage()?)));
    if let Some((end, Outage { gives_up_in, .. })) = lost {
        return Some(Trouble::ConnectionLost { end, gives_up_in });
    }
    let is_remote = source.link.is_some() || destination.link.is_some();
    (is_remote && waiting >= NO_ANSWER).then_some(Trouble::NoAnswer { lasted: waiting })
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// As the user named it, without secrets.
    pub source: String,
    /// As the user named it, without secrets.
    pub destination: String,
    /// Bytes of the source.
    pub size: u64,
    /// Everything before is copied, by this run and those before.
    pub done: u64,
    /// Where this run began.
    pub resumed_from: u64,
    /// Bytes that this run copied, zeros included.
    pub bytes: u64,
    /// Of these: read and written.
    pub data_bytes: u64,
    /// Of these: zeros that were not sent.
    pub zero_bytes: u64,
    /// Bytes of the destination behind the copy, which were left as they are.
    pub left_alone_bytes: u64,
    /// How long the copy took, with its flushes and without verification.
    pub seconds: f64,
    /// `bytes` by `seconds`.
    pub bytes_per_second: f64,
    /// Whether both sides were compared and are the same; `null` when they were not compared.
    pub verified: Option<bool>,
    /// How long comparing took.
    pub verify_seconds: Option<f64>,
}

/// How a copy ended.
#[derive(Debug)]
pub struct Report {
    /// What was done.
    pub summary: Summary,
    /// Whether all of it was.
    pub result: Result<(), CopyError>,
    /// The journal from which a later run can go on.
    pub journal: Option<PathBuf>,
}

/// Makes a copy. Blocks until it is made, fails or is interrupted.
pub fn copy(job: &Job, interrupt: &Interrupt, observer: &mut dyn Observer) -> Report {
    let mut monitor = Monitor::new(observer, interrupt.clone());
    let mut report = Report {
        summary: Summary {
            source: job.source.to_string(),
            destination: job.destination.to_string(),
            ..Summary::default()
        },
        result: Ok(()),
        journal: None,
    };
    report.result = Ends::open(job).and_then(|ends| ends.copy(job, &mut report, &mut monitor));
    report
}

/// Both ends, open and found to fit.
struct Ends {
    source: Opened,
    destination: Opened,
    size: u64,
}

impl Ends {
    fn open(job: &Job) -> Result<Self, CopyError> {
        let direct = job.settings.direct;
        if job.source.is_same_file(&job.destination) {
            return Err(CopyError::SameFile {
                source_name: job.source.to_string(),
                destination: job.destination.to_string(),
            });
        }
        let source = Opened::source(&job.source, &job.source_options, direct)?;
        let size = source.size_bytes();
        let options = &job.destination_options;
        let destination = Opened::destination(&job.destination, options, size, direct)
            .map_err(|error| refused(error, job.settings.resume))?;
        if !job.settings.force && source.is_same_volume(&destination) {
            return Err(CopyError::SameVolume {
                source_name: job.source.to_string(),
                destination: job.destination.to_string(),
            });
        }
        Ok(Self {
            source,
            destination,
            size,
        })
    }

    fn copy(
        self,
        job: &Job,
        report: &mut Report,
        monitor: &mut Monitor<'_>,
    ) -> Result<(), CopyError> {
        let alignment = self.source.block_size().max(self.destination.block_size());
        let settings = &Settings {
            chunk: chunk_for(
                job.settings.chunk,
                alignment,
                self.destination.optimal_transfer(),
            ),
            ..job.settings.clone()
        };
        report.summary.size = self.size;
        report.summary.left_alone_bytes = self.destination.size_bytes() - self.size;
        let prepared = self.prepare(job, monitor);
        let Prepared {
            start,
            is_resumed,
            journal,
        } = prepared.inspect_err(|_| self.destination.remove_if_made())?;
        report.summary.resumed_from = start;

        let began = Instant::now();
        let transferred = Transfer::new(Assignment {
            source: &self.source.side,
            destination: &self.destination.side,
            size: self.size,
            start,
            // What an interrupted run has written behind its last checkpoint is not known.
            zeros_known: self.destination.is_blank() && !is_resumed,
            journal: journal.as_ref().and_then(Kept::reserved),
            settings,
        })?
        .run(monitor);
        monitor.tell();
        report.take_up(&transferred, monitor.progress(), began.elapsed());
        if let Some(kept) = &journal {
            let journal = kept.journal();
            if transferred.recorded.unwrap_or(kept.done()) > 0 {
                report.journal = Some(journal.path().to_owned());
            } else if transferred.result.is_err() {
                // It has nothing to tell.
                let _ = journal.remove();
            }
        }
        transferred.result?;
        if self.source.has_changed() {
            monitor.warn("the source changed during the copy: the copy may mix old and new data");
        }
        let verified = if job.settings.verify {
            self.verify(job, report, monitor)
        } else {
            Ok(())
        };
        // What differs is not made good by going on.
        let over = matches!(verified, Ok(()) | Err(CopyError::Differs { .. }));
        if over && let Some(kept) = &journal {
            report.journal = None;
            kept.journal().remove()?;
        }
        verified
    }

    fn verify(
        self,
        job: &Job,
        report: &mut Report,
        monitor: &mut Monitor<'_>,
    ) -> Result<(), CopyError> {
        let began = Instant::now();
        let Self {
            source,
            destination,
            size,
        } = self;
        let destination = destination.reopen_uncached()?;
        let result = Verification::new(Comparison {
            source: &source.side,
            destination: &destination.side,
            size,
            trust_destination: destination.tells_holes_truly(),
            settings: &job.settings,
        })?
        .run(monitor);
        monitor.tell();
        report.summary.verify_seconds = Some(began.elapsed().as_secs_f64());
        report.summary.verified = match &result {
            Ok(()) => Some(true),
            Err(CopyError::Differs { .. }) => Some(false),
            Err(_) => None,
        };
        result
    }
}

impl Report {
    fn take_up(&mut self, transferred: &Transferred, progress: Progress, took: Duration) {
        let summary = &mut self.summary;
        summary.done = transferred.done;
        (summary.data_bytes, summary.zero_bytes) = (progress.data, progress.zeros);
        summary.bytes = progress.data + progress.zeros;
        summary.seconds = took.as_secs_f64();
        if summary.seconds > 0.0 {
            summary.bytes_per_second = float(summary.bytes) / summary.seconds;
        }
    }
}

/// Bytes of a chunk: those asked for, rounded up to whole transfers of the size that suits the destination
/// best (a stripe, say).
fn chunk_for(asked: u64, alignment: u64, optimal: Option<u64>) -> u64 {
    optimal
        .filter(|optimal| *optimal > 0 && optimal.is_multiple_of(alignment))
        .and_then(|optimal| asked.checked_next_multiple_of(optimal))
        .filter(|chunk| *chunk <= CHUNK_MAX)
        .unwrap_or(asked)
}

/// Why a destination was refused. A file that is too short need only be extended, but not before
/// `--resume`: the end of the earlier copy is lost.
fn refused(error: EndpointError, resume: bool) -> CopyError {
    match error {
        EndpointError::TooSmall {
            path: Some(path),
            available,
            needed,
            ..
        } if resume => CopyError::CutShort {
            path,
            available,
            needed,
        },
        other => other.into(),
    }
}

/// For rates only.
fn float(bytes: u64) -> f64 {
    const HALF: u64 = 1 << 32;
    let part = |bits: u64| f64::from(u32::try_from(bits).expect("half of the bits"));
    part(bytes / HALF) * 4_294_967_296.0 + part(bytes % HALF)
}
