//! `longshore copy`: from any volume to any other.
//!
//! Both ends are volumes: files, block devices, logical units, namespaces. One thread and one
//! reactor engine drive a fixed number of chunks at a time (`transfer.rs`). What is known or found
//! to be zeros is not sent (`plan.rs`, `zeros.rs`). How far the copy got is kept in a journal
//! ([`journal`]), so that it can go on after an interruption or a crash.

mod driver;
mod ends;
mod error;
mod job;
pub mod journal;
mod monitor;
mod pace;
mod plan;
mod resume;
mod space;
mod transfer;
mod trouble;
mod verify;
mod zeros;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use ends::Ends;
use monitor::Monitor;
use resume::{Kept, Prepared};
use transfer::{Assignment, Transfer, Transferred};
use verify::{Comparison, Verification};

pub use driver::DriverError;
pub use error::CopyError;
pub use job::{
    CHECKPOINT_DEFAULT, CHUNK_DEFAULT, CHUNK_MAX, CHUNK_MIN, Changes, Job, PARALLEL_DEFAULT,
    PARALLEL_MAX, Settings,
};
pub use monitor::{End, Interrupt, Observer, Phase, Progress, Silent, Trouble};

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
    /// Bytes that did not change since the older snapshot, and were not copied.
    pub unchanged_bytes: u64,
    /// Bytes of the destination behind the copy, which were left as they are.
    pub left_alone_bytes: u64,
    /// How long the copy took, with its flushes and without verification.
    pub seconds: f64,
    pub bytes_per_second: f64,
    /// Whether both sides were compared and are the same; `null` when they were not compared.
    pub verified: Option<bool>,
    /// How long comparing took.
    pub verify_seconds: Option<f64>,
}

/// How a copy ended.
#[derive(Debug)]
pub struct Report {
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

impl Ends {
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
            changes: job.changes.as_ref(),
            journal: journal.as_ref().and_then(Kept::reserved),
            settings,
        })?
        .run(monitor);
        monitor.tell();
        report.take_up(&transferred, monitor.progress(), began.elapsed());
        if let Some(kept) = &journal {
            let journal = kept.journal();
            // A copy of changes that began has left neither the old nor the new behind, and its journal says so.
            let tells = transferred.recorded.unwrap_or(kept.done()) > 0 || job.changes.is_some();
            if tells {
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
        // Some may have been passed over twice.
        summary.unchanged_bytes = progress.unchanged.min(summary.size);
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

fn float(bytes: u64) -> f64 {
    const HALF: u64 = 1 << 32;
    let part = |bits: u64| f64::from(u32::try_from(bits).expect("half of the bits"));
    part(bytes / HALF) * 4_294_967_296.0 + part(bytes % HALF)
}
