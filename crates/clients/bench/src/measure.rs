//! One run against one volume: attach, check, load, read back, log out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longshore_initiator::attach::{Attachment, Control, attach};
use longshore_initiator::error::{Error as AttachError, Failure, Lost};
use longshore_initiator::options::QueueMaps;
use longshore_initiator::queue::AnyQueue;
use longshore_initiator::url::Url;
use longshore_reactor::{EngineError, EngineKind};
use serde::Serialize;

use crate::cpu::ProcessClock;
use crate::layout::{Layout, TooManyThreads};
use crate::load::{Load, READ_BACK_DEPTH};
use crate::local::{self, LocalQueue};
use crate::medium::{Facts, Local, LocalError, LocalOptions, Medium, Way};
use crate::random::mix;
use crate::result::PointResult;
use crate::spec::{Run, Verify};
use crate::supervise::Supervisor;
use crate::units::show_size;
use crate::verify::Verifier;
use crate::watch::{Interrupt, Watch};
use crate::workload::Region;

/// A volume to measure.
#[derive(Debug, Clone)]
pub struct Subject {
    pub medium: Medium,
    /// How it is used, if it is local storage.
    pub local: LocalOptions,
    /// The server's process, if its processor time is wanted.
    pub server_pid: Option<u32>,
}

/// What was measured, and of what.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    #[serde(skip)]
    pub place: TestedVolume,
    #[serde(flatten)]
    pub result: PointResult,
}

/// The volume that was measured, and how it was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestedVolume {
    /// Its URL, without the password, or its path.
    pub url: String,
    pub protocol: Way,
    /// The address that was connected; none of local storage.
    pub portal: Option<String>,
    pub volume_bytes: u64,
    /// Bytes of its blocks.
    pub block_size: u32,
    /// Parameters of the connections, by their standard's names; of local storage, how it is used.
    pub negotiated: BTreeMap<String, String>,
}

/// Why nothing was measured. Each says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The volume cannot be reached or used.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A file or device cannot be measured.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// No engine to wait for local storage.
    #[error("{0}")]
    Engine(#[from] EngineError),
    /// Of local storage, threads share no queues.
    #[error(
        "files and devices use one thread for each session; remove --threads, or use --sessions {0}"
    )]
    LocalThreads(u16),
    #[error(transparent)]
    Threads(#[from] TooManyThreads),
    /// The process to measure.
    #[error("--server-pid: {0}")]
    Server(std::io::Error),
    /// The volume takes no writes.
    #[error("the volume is write protected; choose --rw randread or --rw read")]
    ReadOnly,
    /// Operations that do not cover whole blocks.
    #[error(
        "operations of {size} bytes do not cover whole blocks of {block_size}; choose --bs as a multiple of {block_size}"
    )]
    BlockSize { size: u32, block_size: u32 },
    /// Operations larger than the peer takes.
    #[error("the volume accepts {} at most in one command; choose a smaller --bs", show_size(*.0))]
    TooLarge(u64),
    /// A region that is not on the volume.
    #[error("{what}; the volume has {volume_bytes} bytes in blocks of {block_size}")]
    Region {
        what: &'static str,
        volume_bytes: u64,
        /// Bytes of a block.
        block_size: u32,
    },
    /// More operations under way than a queue counts.
    #[error(
        "{0} operations in progress on one queue are too many; choose a smaller --iodepth, or \
         more --sessions"
    )]
    Depth(u32),
    /// Buffers of all operations.
    #[error("the operations in progress would need {} of memory; choose a smaller --iodepth or \
             --bs, or --data discard", show_size(*.0))]
    Memory(u64),
    /// Generations of all blocks.
    #[error(
        "--verify would need {} of memory to remember what each block of the region holds; choose a smaller --span",
        show_size(*.0)
    )]
    Ledger(u64),
    /// An operation beside the load has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The connection is over.
    #[error("the connection is lost: {0}")]
    Lost(#[from] Lost),
    /// Verification needs the data.
    #[error("--verify needs the data; remove --data discard")]
    VerifyDiscard,
}

/// Buffers may need so much; beyond it a mistake is more likely than a wish.
const MEMORY_MAX: u64 = 16 << 30;

/// The generations of 2^29 blocks.
const LEDGER_MAX: u64 = 4 << 30;

/// Measures one point.
///
/// # Errors
/// The volume cannot be reached, or not used so. What goes wrong later is part of the result.
pub fn measure(
    run: &Run,
    subject: &Subject,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<Measured, BenchError> {
    let server = subject.server_pid.map(ProcessClock::new).transpose();
    let server = server.map_err(BenchError::Server)?;
    if run.verify != Verify::Off && run.discard {
        return Err(BenchError::VerifyDiscard);
    }
    let watched = Watched {
        server,
        interrupt,
        watch,
    };
    match &subject.medium {
        Medium::Remote(url) => measure_remote(run, url, watched),
        Medium::Local(path) => measure_local(run, path, subject.local, watched),
    }
}

/// The clock of the server, and the watchers of a run.
struct Watched<'a> {
    server: Option<ProcessClock>,
    interrupt: &'a Interrupt,
    watch: &'a mut dyn Watch,
}

impl TestedVolume {
    pub(crate) fn of_local(
        path: &Path,
        local: &Local,
        engine: EngineKind,
        options: LocalOptions,
    ) -> Self {
        let facts = local.facts();
        Self {
            url: path.display().to_string(),
            protocol: local.way,
            portal: None,
            volume_bytes: facts.volume_bytes,
            block_size: facts.block_size,
            negotiated: [
                ("engine".to_owned(), engine.to_string()),
                ("direct".to_owned(), options.direct.to_string()),
            ]
            .into(),
        }
    }
}

fn measure_remote(run: &Run, url: &Url, mut watched: Watched<'_>) -> Result<Measured, BenchError> {
    let layout = layout(run, run.maps)?;
    let mut options = run.options.clone();
    options.queues = run.maps;
    options.depth = u16::try_from(layout.depth).map_err(|_| BenchError::Depth(layout.depth))?;
    let attachment = attach(url, &options)?;
    let facts = Facts::from(&attachment.info);
    let checked = check(run, facts);
    let place = TestedVolume::of(url, &attachment);
    let Attachment {
        queues,
        maps,
        mut control,
        ..
    } = attachment;
    let prepared =
        checked.and_then(|region| Ok((region, layout_granted(run, maps, watched.watch)?)));
    let (region, layout) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            log_out(queues);
            control.close();
            return Err(error);
        }
    };
    let load = Load {
        run,
        maps,
        layout,
        region,
        max_transfer: facts.max_transfer_blocks.unwrap_or(u32::MAX),
        verifier: verifier(run, region),
        content: None,
    };
    let mut supervisor = watched.supervisor(Some(&mut control));
    let (queues, result) = load.measure(queues, &mut supervisor);
    log_out(queues);
    control.close();
    Ok(Measured { place, result })
}

fn measure_local(
    run: &Run,
    path: &Path,
    options: LocalOptions,
    mut watched: Watched<'_>,
) -> Result<Measured, BenchError> {
    let total = u16::try_from(run.maps.total()).unwrap_or(u16::MAX);
    if let Some(threads) = run.threads.filter(|threads| *threads != total) {
        return Err(BenchError::LocalThreads(threads));
    }
    let run = &Run {
        threads: Some(total),
        ..run.clone()
    };
    let layout = layout(run, run.maps)?;
    let local = Local::open(path, options, run.writes())?;
    let facts = local.facts();
    let region = check(run, facts)?;
    if let Some(allocated) = local.allocated {
        watched.watch.warn(&format!(
            "{}: {} of {} are allocated; reading the rest moves no data from the medium",
            path.display(),
            show_size(allocated),
            show_size(facts.volume_bytes)
        ));
    }
    let depth = usize::try_from(layout.depth.max(READ_BACK_DEPTH)).expect("a small number");
    // Better to learn here than in each thread that there can be none.
    let engine = local::engine(options.engine, depth)?.kind();
    let place = TestedVolume::of_local(path, &local, engine, options);
    let queue = |_| LocalQueue::new(&local.volume, options.engine, depth);
    let queues = (0..run.maps.total()).map(queue).collect();
    let load = Load {
        run,
        maps: run.maps,
        layout,
        region,
        max_transfer: u32::MAX,
        verifier: verifier(run, region),
        content: None,
    };
    let (_, result) = load.measure::<LocalQueue>(queues, &mut watched.supervisor(None));
    Ok(Measured { place, result })
}

impl Watched<'_> {
    fn supervisor<'a>(&'a mut self, control: Option<&'a mut Control>) -> Supervisor<'a> {
        Supervisor {
            control,
            server: self.server.take(),
            interrupt: self.interrupt,
            watch: &mut *self.watch,
            read_back: false,
        }
    }
}

impl TestedVolume {
    pub(crate) fn of(url: &Url, attachment: &Attachment) -> Self {
        let Attachment {
            info,
            negotiated,
            portal,
            ..
        } = attachment;
        Self {
            url: url.to_string(),
            protocol: info.protocol.into(),
            portal: Some(portal.to_string()),
            volume_bytes: info.size_bytes(),
            block_size: info.block_size,
            negotiated: negotiated.iter().cloned().collect(),
        }
    }
}

pub(crate) fn layout(run: &Run, maps: QueueMaps) -> Result<Layout, TooManyThreads> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Layout::new(&run.jobs, maps, run.threads, processors)
}

/// The layout over the queues that there really are.
fn layout_granted(
    run: &Run,
    granted: QueueMaps,
    watch: &mut dyn Watch,
) -> Result<Layout, BenchError> {
    if granted == run.maps {
        return Ok(layout(run, granted)?);
    }
    watch.warn(&format!(
        "the server grants {} of {} queues; they share the load",
        granted.total(),
        run.maps.total()
    ));
    let fewer = Run {
        threads: None,
        ..run.clone()
    };
    Ok(layout(&fewer, granted)?)
}

/// Whether the volume can be used so; the part of it that is.
pub(crate) fn check(run: &Run, facts: Facts) -> Result<Region, BenchError> {
    let block_size = facts.block_size;
    if run.writes() && facts.read_only {
        return Err(BenchError::ReadOnly);
    }
    if let Some(size) = run.sizes().find(|size| !size.is_multiple_of(block_size)) {
        return Err(BenchError::BlockSize { size, block_size });
    }
    if let Some(blocks) = facts.max_transfer_blocks {
        let limit = u64::from(blocks) * u64::from(block_size);
        if u64::from(run.largest()) > limit {
            return Err(BenchError::TooLarge(limit));
        }
    }
    let region = region(run, facts)?;
    let ledger = region.blocks.saturating_mul(8);
    if run.verify == Verify::On && run.writes() && ledger > LEDGER_MAX {
        return Err(BenchError::Ledger(ledger));
    }
    let memory = memory(run);
    if memory > MEMORY_MAX {
        return Err(BenchError::Memory(memory));
    }
    Ok(region)
}

fn region(run: &Run, facts: Facts) -> Result<Region, BenchError> {
    let block_size = u64::from(facts.block_size);
    let volume_bytes = facts.volume_bytes;
    let wrong = |what| BenchError::Region {
        what,
        volume_bytes,
        block_size: facts.block_size,
    };
    if !run.offset.is_multiple_of(block_size) {
        return Err(wrong("--offset is not at the start of a block"));
    }
    let Some(left) = volume_bytes
        .checked_sub(run.offset)
        .filter(|left| *left > 0)
    else {
        return Err(wrong("--offset is beyond the end of the volume"));
    };
    let bytes = run.span.unwrap_or(left);
    if bytes > left {
        return Err(wrong("--span reaches beyond the end of the volume"));
    }
    if bytes < u64::from(run.largest()) {
        return Err(wrong("the region is smaller than one operation"));
    }
    Ok(Region {
        lba: run.offset / block_size,
        blocks: bytes / block_size,
        block_size: facts.block_size,
    })
}

/// Bytes of all buffers.
fn memory(run: &Run) -> u64 {
    if run.discard {
        return 0;
    }
    let of_job = |job: &crate::spec::Job| {
        u64::from(job.sizes.largest()) * u64::from(job.depth) * u64::from(job.streams)
    };
    run.jobs.iter().map(of_job).sum()
}

fn verifier(run: &Run, region: Region) -> Option<Arc<Verifier>> {
    if run.verify == Verify::Off {
        return None;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos() & u128::from(u64::MAX));
    let number = mix(u64::try_from(nanos).unwrap_or(0) ^ u64::from(std::process::id()));
    let earlier = run.verify == Verify::Only;
    Some(Arc::new(Verifier::new(region, run.seed, number, earlier)))
}

/// Logs out of all sessions, if the sockets take it; the server notices in any case.
pub(crate) fn log_out(queues: Vec<AnyQueue>) {
    for mut queue in queues {
        queue.close();
        let _ = queue.send();
    }
}
