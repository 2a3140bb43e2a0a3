//! What a run has given.

use std::time::Duration;

use longshore_initiator::queue::QueueCounters;
use serde::Serialize;

use crate::latency::Latency;
use crate::spec::Job;
use crate::tally::{DirectionSum, Errors, JobSum};
use crate::verify::Fault;

/// A run, measured. Of what was not measured a figure is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct PointResult {
    /// Direction and order; of several jobs, their names.
    pub rw: String,
    pub bs: String,
    /// Operations under way on each session; of several jobs, of all together.
    pub iodepth: u32,
    /// iSCSI sessions or NVMe I/O queues.
    pub sessions: usize,
    /// Threads that made the load.
    pub threads: usize,
    /// Time that was measured, in seconds.
    pub elapsed_s: f64,
    /// Operations that ended well.
    pub operations: u64,
    /// Operations per second, mean over the measurement.
    pub iops: f64,
    pub bytes_per_second: f64,
    /// Latency: from submission, or, with a rate limit, from when an operation was due.
    pub latency_ns: Option<Latency>,
    /// With a rate limit: from submission.
    pub service_latency_ns: Option<Latency>,
    /// Processor time of the threads that made the load, in microseconds per operation.
    pub client_cpu_us_per_op: Option<f64>,
    /// Processor time of the server's process, in microseconds per operation.
    pub server_cpu_us_per_op: Option<f64>,
    /// What the server's process spent of that in itself.
    pub server_user_us_per_op: Option<f64>,
    /// What it spent of that in the kernel.
    pub server_system_us_per_op: Option<f64>,
    /// Reads alone, where there were both.
    pub read: Option<DirectionResult>,
    /// Writes alone, where there were both.
    pub write: Option<DirectionResult>,
    /// Each job, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobResult>,
    /// With a rate limit: operations that were due and did not begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// What verification has found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
    /// Operations that ended badly, by kind.
    pub errors: Vec<ErrorCount>,
    /// Operations that were never answered.
    pub unanswered: u64,
    /// Why the connection was lost.
    pub lost: Option<String>,
    /// A signal ended the run.
    pub interrupted: bool,
    /// How bytes moved, over the whole run with its warm-up.
    pub transport: Transport,
}

#[derive(Debug, Clone, Serialize)]
pub struct DirectionResult {
    /// Operations that ended well.
    pub operations: u64,
    /// Operations per second, mean over the measurement.
    pub iops: f64,
    pub bytes_per_second: f64,
    pub latency_ns: Option<Latency>,
    pub service_latency_ns: Option<Latency>,
}

#[derive(Debug, Clone, Serialize)]
pub struct JobResult {
    pub name: String,
    pub rw: String,
    pub bs: String,
    /// Operations under way on each stream.
    pub iodepth: u32,
    /// Streams that ran side by side.
    pub numjobs: u16,
    /// Reads and writes together.
    #[serde(flatten)]
    pub total: DirectionResult,
    /// Reads alone, where there were both.
    pub read: Option<DirectionResult>,
    /// Writes alone, where there were both.
    pub write: Option<DirectionResult>,
}

/// A kind of error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorCount {
    pub error: String,
    pub count: u64,
}

/// What verification has found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyResult {
    /// Blocks read that held what they must.
    pub blocks_good: u64,
    /// Blocks read of which nothing was expected.
    pub blocks_open: u64,
    /// Blocks that did not.
    pub faults: u64,
    /// The first of them.
    pub first_faults: Vec<Fault>,
    /// All that was written has been read again.
    pub read_back_complete: bool,
}

/// How bytes moved between memory and socket, over all sessions.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Transport {
    pub send_calls: u64,
    pub receive_calls: u64,
    /// Bytes that went to the sockets.
    pub bytes_sent: u64,
    /// Bytes that came from the sockets.
    pub bytes_received: u64,
    /// Bytes of data sent from where they were.
    pub bytes_by_reference: u64,
    /// Bytes of data received straight to their place.
    pub bytes_direct: u64,
    /// Sends that asked for zero copy.
    pub zero_copy_sends: u64,
    /// Those of them that the kernel copied nevertheless.
    pub zero_copy_copied: u64,
}

impl From<QueueCounters> for Transport {
    fn from(counters: QueueCounters) -> Self {
        Self {
            send_calls: counters.send_calls,
            receive_calls: counters.receive_calls,
            bytes_sent: counters.bytes_sent,
            bytes_received: counters.bytes_received,
            bytes_by_reference: counters.bytes_by_reference,
            bytes_direct: counters.bytes_direct,
            zero_copy_sends: counters.zero_copy_sends,
            zero_copy_copied: counters.zero_copy_copied,
        }
    }
}

impl PointResult {
    /// Whether everything went as it should.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let verified = self.verify.as_ref().is_none_or(|verify| verify.faults == 0);
        self.errors.is_empty() && self.lost.is_none() && self.unanswered == 0 && verified
    }
}

/// Numbers that are counted lie far below 2^52.
#[allow(clippy::cast_precision_loss)]
#[must_use]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// Figures of a direction over a time.
#[must_use]
pub fn direction(sum: &DirectionSum, elapsed: Duration) -> DirectionResult {
    let per_second = |count: u64| {
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 {
            float(count) / seconds
        } else {
            0.0
        }
    };
    DirectionResult {
        operations: sum.operations,
        iops: per_second(sum.operations),
        bytes_per_second: per_second(sum.bytes),
        latency_ns: Latency::of(&sum.latency),
        service_latency_ns: Latency::of(&sum.service),
    }
}

/// Figures of a job over a time.
#[must_use]
pub fn job(spec: &Job, sum: &JobSum, elapsed: Duration) -> JobResult {
    let both = spec.pattern.reads() && spec.pattern.writes();
    JobResult {
        name: spec.name.clone(),
        rw: spec.pattern.to_string(),
        bs: spec.sizes.to_string(),
        iodepth: u32::from(spec.depth),
        numjobs: spec.streams,
        total: direction(&sum.total(), elapsed),
        read: both.then(|| direction(&sum.read, elapsed)),
        write: both.then(|| direction(&sum.write, elapsed)),
    }
}

/// Errors as they are told.
#[must_use]
pub fn errors(errors: &Errors) -> Vec<ErrorCount> {
    let counts = errors.iter().map(|(error, count)| ErrorCount {
        error: error.to_owned(),
        count,
    });
    counts.collect()
}

/// Microseconds per operation; nothing without operations.
#[must_use]
pub fn per_operation_us(time: Duration, operations: u64) -> Option<f64> {
    (operations > 0).then(|| time.as_secs_f64() * 1e6 / float(operations))
}
