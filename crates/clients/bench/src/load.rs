//! A load whose volume is known: from jobs to streams on threads, and from what threads have seen to
//! figures.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use longshore_initiator::options::QueueMaps;
use longshore_initiator::queue::QueueCounters;
use longshore_reactor::Buffer;

use crate::layout::{Layout, Placed};
use crate::pacing::Pacer;
use crate::queue::LoadQueue;
use crate::random::Random;
use crate::result::{self, PointResult, VerifyResult};
use crate::spec::{Job, Length, Run, Verify};
use crate::stream::{Quota, Source, Stream, Sweep};
use crate::supervise::{LoadOutcome, Part, Supervisor};
use crate::tally::{Errors, JobSum};
use crate::verify::Verifier;
use crate::worker::{FAULTS_MAX, Report, Settings};
use crate::workload::{Generator, Region};

/// What was written is read again in pieces of so much at least, where the server takes them,
const READ_BACK_BYTES: u32 = 256 << 10;
/// and so many at a time on each queue.
pub(crate) const READ_BACK_DEPTH: u32 = 16;

/// A load, ready to run.
#[derive(Debug)]
pub struct Load<'a> {
    /// What was asked for.
    pub run: &'a Run,
    /// The queues there are.
    pub maps: QueueMaps,
    pub layout: Layout,
    /// The part of the volume.
    pub region: Region,
    /// Most blocks of one command.
    pub max_transfer: u32,
    /// Stamps what is written and checks what is read.
    pub verifier: Option<Arc<Verifier>>,
    /// What the region holds, for writes that change nothing.
    pub content: Option<Arc<Buffer>>,
}

impl Load<'_> {
    /// Runs it, and reads back what was written. Queues come and go in the order of their numbers.
    pub fn measure<Q: LoadQueue>(
        &self,
        queues: Vec<Q>,
        supervisor: &mut Supervisor<'_>,
    ) -> (Vec<Q>, PointResult) {
        let settings = self.settings();
        let (queues, outcome) = self.spread(queues, self.streams(), &settings, supervisor);
        let mut counters = QueueCounters::default();
        for queue in &queues {
            counters += queue.counters();
        }
        if !self.is_read_back(&outcome) {
            return (queues, self.compose(outcome, None, counters));
        }
        let settings = Settings {
            measure_from_ns: 0,
            end_ns: u64::MAX,
            whole: false,
            ..settings
        };
        supervisor.read_back = true;
        let (queues, second) = self.spread(queues, self.read_back_streams(), &settings, supervisor);
        supervisor.read_back = false;
        (queues, self.compose(outcome, Some(second), counters))
    }

    /// Runs streams on the threads of the layout.
    fn spread<Q: LoadQueue>(
        &self,
        queues: Vec<Q>,
        streams: Vec<(Placed, Stream)>,
        settings: &Settings,
        supervisor: &mut Supervisor<'_>,
    ) -> (Vec<Q>, LoadOutcome) {
        let threads = self.layout.threads;
        let mut parts: Vec<Part<Q>> = (0..threads).map(|_| Part::default()).collect();
        let mut numbers = vec![Vec::new(); threads];
        for (number, queue) in queues.into_iter().enumerate() {
            let owner = self.layout.owner(self.maps, number);
            parts[owner].0.push(queue);
            numbers[owner].push(number);
        }
        for (placed, mut stream) in streams {
            // Of a kind that a stream does not use, its thread may have none.
            let own = &numbers[placed.thread];
            let local = |queue| own.iter().position(|own| *own == queue).unwrap_or(0);
            stream.read_queue = local(placed.read_queue);
            stream.write_queue = local(placed.write_queue);
            parts[placed.thread].1.push(stream);
        }
        let (queues, outcome) = supervisor.run(parts, settings);
        let numbered = numbers.into_iter().flatten();
        let mut numbered: Vec<(usize, Q)> = numbered.zip(queues.into_iter().flatten()).collect();
        numbered.sort_by_key(|(number, _)| *number);
        (
            numbered.into_iter().map(|(_, queue)| queue).collect(),
            outcome,
        )
    }

    fn settings(&self) -> Settings {
        let run = self.run;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let is_sweep = run.verify == Verify::Only;
        let warmup = if is_sweep { Duration::ZERO } else { run.warmup };
        let end = self.length().time.map(|time| warmup.saturating_add(time));
        let content = self.content.clone().unwrap_or_else(|| {
            let largest = usize::try_from(run.largest()).expect("an operation fits into memory");
            let mut content = Buffer::allocate(largest);
            if run.writes() {
                Random::new(run.seed, u64::MAX).fill(&mut content);
            }
            Arc::new(content)
        });
        Settings {
            measure_from_ns: nanos(warmup),
            end_ns: end.map_or(u64::MAX, nanos),
            whole: run.whole,
            spin: run.spin,
            discard: run.discard,
            continue_on_error: run.continue_on_error,
            silence_ns: nanos(run.options.timeouts.request),
            content,
            content_of: self.content.as_ref().map(|_| self.region),
            verifier: self.verifier.clone(),
            jobs: run.jobs.len(),
        }
    }

    /// A sweep ends with its region.
    fn length(&self) -> Length {
        if self.run.verify == Verify::Only {
            return Length::default();
        }
        self.run.length
    }

    fn streams(&self) -> Vec<(Placed, Stream)> {
        let next = Arc::new(AtomicU64::new(0));
        let numbered = self.layout.streams.iter().zip(0_u64..);
        let streams = numbered.map(|(placed, at)| {
            let job = &self.run.jobs[placed.job];
            let source = if self.run.verify == Verify::Only {
                self.sweep(job.sizes.largest(), &next, None)
            } else {
                self.workload(job, placed, at)
            };
            let mut stream = Stream::new(placed.job, job.depth, source, job.sizes.largest());
            let (number, of) = (u64::from(placed.number), u64::from(job.streams));
            let Length {
                operations, bytes, ..
            } = self.length();
            stream.quota = Quota { operations, bytes }.share(number, of);
            stream.pacer = Pacer::new(job.rate, number, of, job.sizes.mean());
            (*placed, stream)
        });
        streams.collect()
    }

    fn workload(&self, job: &Job, placed: &Placed, at: u64) -> Source {
        Source::Workload(Generator::new(
            job.pattern,
            job.read_percent,
            job.sizes.clone(),
            self.region,
            Random::new(self.run.seed, at),
            (u64::from(placed.number), u64::from(job.streams)),
        ))
    }

    fn sweep(
        &self,
        bytes: u32,
        next: &Arc<AtomicU64>,
        written_by: Option<&Arc<Verifier>>,
    ) -> Source {
        Source::Sweep(Sweep {
            region: self.region,
            unit: u64::from(bytes / self.region.block_size),
            next: Arc::clone(next),
            written_by: written_by.cloned(),
        })
    }

    /// One stream for each queue.
    fn read_back_streams(&self) -> Vec<(Placed, Stream)> {
        let block = self.region.block_size;
        let limit = self.max_transfer.saturating_mul(block);
        let bytes = READ_BACK_BYTES.max(self.run.largest()).min(limit);
        let depth = READ_BACK_DEPTH.min(self.layout.depth);
        let depth = u16::try_from(depth).expect("a small number");
        let next = Arc::new(AtomicU64::new(0));
        let streams = (0..self.maps.total()).map(|queue| {
            let placed = Placed {
                job: 0,
                number: 0,
                thread: self.layout.owner(self.maps, queue),
                read_queue: queue,
                write_queue: queue,
            };
            let source = self.sweep(bytes, &next, self.verifier.as_ref());
            (placed, Stream::new(0, depth, source, bytes))
        });
        streams.collect()
    }

    /// Whether there is something to read back, and the connections allow it.
    fn is_read_back(&self, outcome: &LoadOutcome) -> bool {
        let go_on = self.run.continue_on_error;
        let mut reports = outcome.reports.iter();
        let is_good =
            reports.all(|report| go_on || (report.fault_count == 0 && report.errors.total() == 0));
        self.verifier.is_some() && self.run.writes() && is_good && is_sound(outcome)
    }

    fn compose(
        &self,
        outcome: LoadOutcome,
        read_back: Option<LoadOutcome>,
        counters: QueueCounters,
    ) -> PointResult {
        let run = self.run;
        let measured = outcome.reports.iter().map(|report| report.measured);
        let elapsed = measured.max().unwrap_or_default();
        let cpu: Duration = outcome.reports.iter().map(|report| report.cpu).sum();
        let behind: u64 = outcome.reports.iter().map(|report| report.behind).sum();
        let jobs = self.sum_jobs(&outcome.reports);
        let mut sum = JobSum::empty();
        for job in &jobs {
            sum.add(job);
        }
        let total = result::direction(&sum.total(), elapsed);
        let both = sum.read.operations > 0 && sum.write.operations > 0;
        let several = run.jobs.len() > 1 || !run.jobs[0].name.is_empty();
        let operations = total.operations;
        let system_share = outcome.server_system_share;
        let server = outcome.server.filter(|(_, window)| !window.is_zero());
        // The window of the server's time is not to the microsecond that of the operations.
        let server =
            server.map(|(time, window)| time.mul_f64(elapsed.as_secs_f64() / window.as_secs_f64()));
        let server_cpu_us = server.and_then(|time| result::per_operation_us(time, operations));
        let part_of_server = |share: Option<f64>| Some(server_cpu_us? * share?);
        let verify = self.verify_result(&outcome, read_back.as_ref());
        let outcomes: Vec<LoadOutcome> = std::iter::once(outcome).chain(read_back).collect();
        let mut errors = Errors::default();
        let mut unanswered = 0;
        for report in outcomes.iter().flat_map(|outcome| &outcome.reports) {
            errors.merge(report.errors.clone());
            unanswered += report.unanswered;
        }
        PointResult {
            rw: join(run, |job| job.pattern.to_string()),
            bs: join(run, |job| job.sizes.to_string()),
            iodepth: self.depth(),
            sessions: self.maps.total(),
            threads: self.layout.threads,
            elapsed_s: elapsed.as_secs_f64(),
            operations,
            iops: total.iops,
            bytes_per_second: total.bytes_per_second,
            latency_ns: total.latency_ns,
            service_latency_ns: total.service_latency_ns,
            client_cpu_us_per_op: result::per_operation_us(cpu, operations),
            server_cpu_us_per_op: server_cpu_us,
            server_user_us_per_op: part_of_server(system_share.map(|share| 1.0 - share)),
            server_system_us_per_op: part_of_server(system_share),
            read: both.then(|| result::direction(&sum.read, elapsed)),
            write: both.then(|| result::direction(&sum.write, elapsed)),
            jobs: if several {
                let both = run.jobs.iter().zip(&jobs);
                both.map(|(job, sum)| result::job(job, sum, elapsed))
                    .collect()
            } else {
                Vec::new()
            },
            behind: run.jobs.iter().any(|job| job.rate.any()).then_some(behind),
            verify,
            errors: result::errors(&errors),
            unanswered,
            lost: outcomes.iter().find_map(why_lost),
            interrupted: outcomes.iter().any(|outcome| outcome.signal.is_some()),
            transport: counters.into(),
        }
    }

    fn sum_jobs(&self, reports: &[Report]) -> Vec<JobSum> {
        let mut sums = vec![JobSum::empty(); self.run.jobs.len()];
        for report in reports {
            for (sum, job) in sums.iter_mut().zip(&report.jobs) {
                sum.add(job);
            }
        }
        sums
    }

    fn depth(&self) -> u32 {
        if let [only] = &self.run.jobs[..] {
            return u32::from(only.depth);
        }
        let jobs = self.run.jobs.iter();
        jobs.map(|job| u32::from(job.depth) * u32::from(job.streams))
            .sum()
    }

    fn verify_result(
        &self,
        first: &LoadOutcome,
        second: Option<&LoadOutcome>,
    ) -> Option<VerifyResult> {
        self.verifier.as_ref()?;
        let mut verify = VerifyResult::default();
        for outcome in [Some(first), second].into_iter().flatten() {
            for report in &outcome.reports {
                verify.blocks_good += report.checked.0;
                verify.blocks_open += report.checked.1;
                verify.faults += report.fault_count;
                verify.first_faults.extend(report.faults.iter().cloned());
            }
        }
        verify.first_faults.truncate(FAULTS_MAX);
        verify.read_back_complete = match self.run.verify {
            Verify::Only => is_sound(first),
            _ => second.is_some_and(is_sound) || !self.run.writes(),
        };
        Some(verify)
    }
}

/// The connections hold and nobody has interrupted.
fn is_sound(outcome: &LoadOutcome) -> bool {
    let mut reports = outcome.reports.iter();
    outcome.signal.is_none()
        && outcome.control_lost.is_none()
        && reports.all(|report| report.lost.is_none() && report.unanswered == 0)
}

fn why_lost(outcome: &LoadOutcome) -> Option<String> {
    let mut lost = outcome.reports.iter().filter_map(|r| r.lost.as_ref());
    let lost = lost.next().or(outcome.control_lost.as_ref());
    lost.map(ToString::to_string)
}

fn join(run: &Run, part: impl Fn(&Job) -> String) -> String {
    let parts: Vec<String> = run.jobs.iter().map(part).collect();
    parts.join("+")
}

#[cfg(test)]
mod tests;
