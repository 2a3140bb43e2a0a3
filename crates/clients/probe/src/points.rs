//! Loads by turns: each once in a round, so that what changes meanwhile (another load, the clock of a processor) is spread
//! over all of them. The order turns from round to round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_bench::bound::Bound;
use longshore_bench::cpu::ProcessClock;
use longshore_bench::pacing::RateLimits;
use longshore_bench::result::PointResult;
use longshore_bench::spec::{Job, Length, Run, Verify};
use longshore_bench::watch::Unwatched;
use longshore_bench::workload::BlockSizes;
use longshore_initiator::options::{Options as Connection, QueueMaps};
use longshore_model::probe::{Direction, Pattern, PointFacts, RemarkKind, TcpFacts};
use longshore_model::spread::Spread;
use longshore_reactor::Buffer;

use crate::convert::{pattern, tcp_since};
use crate::course::Course;
use crate::error::Error;
use crate::plan::Planned;
use crate::server::{Statistics, since};

pub(crate) const ROUNDS: u16 = 3;

/// Load that is not counted, before each point: by then a bucket of the link that has filled up in the pause is empty, and
/// operations that began together have ended.
const WARM_UP: f64 = 0.2;
/// A load that took so many times its share of the time is not repeated.
const LONG: u32 = 4;
/// From here on the client's processor, or one of its threads, is the limit.
const BUSY: f64 = 0.92;
/// Rounds that differ more are worth a remark.
const NOISY: f64 = 0.05;
/// The server has done so many times more than was asked of it: somebody else asks, too.
const OTHERS: f64 = 1.2;

/// A region whose content is known, for writes.
pub(crate) struct Known {
    pub(crate) offset: u64,
    pub(crate) content: Arc<Buffer>,
}

/// What is measured, and with what.
pub(crate) struct Loads<'a> {
    pub(crate) planned: &'a [Planned],
    pub(crate) known: Option<&'a Known>,
    pub(crate) connection: &'a Connection,
    pub(crate) seed: u64,
    pub(crate) server: Option<ProcessClock>,
    /// For all of them.
    pub(crate) time: Duration,
}

/// What rounds have shown of one load.
#[derive(Default)]
struct Rounds {
    iops: Vec<f64>,
    latency_us: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    client_cpu_us: Vec<f64>,
    server_cpu_us: Vec<f64>,
    client_busy: f64,
    tcp: Option<TcpFacts>,
    /// Operations are so slow that few of them took far longer than the load's share of the time.
    is_long: bool,
}

impl Loads<'_> {
    pub(crate) fn measure(
        &self,
        bound: &mut Bound,
        statistics: &mut Statistics,
        course: &mut Course<'_>,
    ) -> Result<Vec<PointFacts>, Error> {
        let count = self.planned.len();
        let mut rounds: Vec<Rounds> = self.planned.iter().map(|_| Rounds::default()).collect();
        let mut others = 0;
        let began = Instant::now();
        for round in 0..usize::from(ROUNDS) {
            // A round begins where the last one has not.
            let first = count * round / usize::from(ROUNDS);
            for at in (0..count).map(|at| (at + first) % count) {
                let planned = &self.planned[at];
                if rounds[at].is_long {
                    continue;
                }
                course.next(&format!(
                    "{} (round {} of {ROUNDS})",
                    label(planned),
                    round + 1
                ))?;
                // What takes longer than it should costs those that come later.
                let left = self.time.saturating_sub(began.elapsed());
                let rounds_left: usize = rounds.iter().map(Rounds::left).sum();
                let time = left.div_f64(float(rounds_left.max(1)));
                let time = time.clamp(Duration::from_millis(20), Duration::from_secs(10));
                let begun = Instant::now();
                let is_more =
                    self.round(planned, time, bound, statistics, course, &mut rounds[at])?;
                rounds[at].is_long = begun.elapsed() > time * LONG;
                others += usize::from(is_more);
            }
        }
        if others * 2 > count {
            let text =
                "the server has done more than was asked of it: it has other clients".to_owned();
            course.remark(RemarkKind::OtherLoad, text);
        }
        let facts = self.planned.iter().zip(rounds);
        let facts: Vec<PointFacts> = facts
            .filter(|(_, rounds)| !rounds.iops.is_empty())
            .map(|(planned, rounds)| rounds.facts(planned))
            .collect();
        look_at(&facts, course);
        Ok(facts)
    }

    /// Measures a load once. Whether the server has done much more than that.
    fn round(
        &self,
        planned: &Planned,
        time: Duration,
        bound: &mut Bound,
        statistics: &mut Statistics,
        course: &mut Course<'_>,
        rounds: &mut Rounds,
    ) -> Result<bool, Error> {
        let run = self.run(planned, time);
        let content = self.known.filter(|_| planned.direction == Direction::Write);
        let content = content.map(|known| &known.content);
        let tcp_before = bound.tcp().unwrap_or_default();
        let before = statistics.read();
        let result = bound.point(&run, content, self.server, course.interrupt, &mut Unwatched)?;
        let after = statistics.read();
        let tcp_after = bound.tcp().unwrap_or_default();
        course.go_on()?;
        check(&result)?;
        rounds.add(&result);
        if let ([before, ..], [after, ..]) = (&tcp_before[..], &tcp_after[..]) {
            rounds.tcp = Some(sum(rounds.tcp, tcp_since(before, after)));
        }
        let server = before.zip(after);
        let Some(server) = server.map(|(before, after)| since(&before, &after)) else {
            return Ok(false);
        };
        if server.operations > 0 {
            rounds.server_cpu_us.push(server.working_us_per_op);
        }
        let own = float(usize::try_from(result.operations).unwrap_or(usize::MAX));
        // Before a measurement and behind it there are as many as are under way at a time.
        let with_warm_up = own / (1.0 - WARM_UP) + 2.0 * f64::from(planned.depth);
        let done = float(usize::try_from(server.operations).unwrap_or(usize::MAX));
        Ok(done > with_warm_up * OTHERS + 100.0)
    }

    fn run(&self, planned: &Planned, time: Duration) -> Run {
        let size = u64::from(planned.size);
        let (offset, span) = match (planned.direction, self.known) {
            (Direction::Write, Some(known)) => (
                known.offset,
                Some(u64::try_from(known.content.len()).unwrap_or(0)),
            ),
            _ => (0, None),
        };
        // The content of the region begins with that of its first place.
        let span = if planned.pattern == Pattern::OnePlace {
            Some(size)
        } else {
            span
        };
        let mut connection = self.connection.clone();
        connection.depth = crate::plan::DEPTH_MAX;
        Run {
            jobs: vec![Job {
                name: String::new(),
                pattern: pattern(planned.direction, planned.pattern),
                read_percent: 50,
                sizes: BlockSizes::one(planned.size),
                depth: planned.depth,
                streams: 1,
                rate: RateLimits::default(),
                poll: false,
            }],
            maps: QueueMaps::plain(1),
            threads: Some(1),
            length: Length {
                time: Some(time.mul_f64(1.0 - WARM_UP)),
                ..Length::default()
            },
            warmup: time.mul_f64(WARM_UP),
            whole: true,
            seed: self.seed,
            verify: Verify::Off,
            offset,
            span,
            discard: false,
            spin: false,
            continue_on_error: false,
            options: connection,
        }
    }
}

impl Rounds {
    /// How often the load is still to be measured.
    fn left(&self) -> usize {
        if self.is_long {
            return 0;
        }
        usize::from(ROUNDS).saturating_sub(self.iops.len())
    }

    fn add(&mut self, result: &PointResult) {
        let Some(latency) = &result.latency_ns else {
            return;
        };
        let us = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e6;
        if !result.iops.is_finite() || result.iops <= 0.0 || latency.mean <= 0.0 {
            return;
        }
        self.iops.push(result.iops);
        self.latency_us.push(latency.mean / 1e3);
        self.p50_us.push(us(latency.p50));
        self.p99_us.push(us(latency.p99));
        if let Some(cpu) = result.client_cpu_us_per_op {
            self.client_cpu_us.push(cpu);
            self.client_busy = self.client_busy.max(cpu * result.iops / 1e6);
        }
        self.server_cpu_us.extend(result.server_cpu_us_per_op);
    }

    fn facts(self, planned: &Planned) -> PointFacts {
        let spread = |rounds: &[f64]| (!rounds.is_empty()).then(|| Spread::of(rounds));
        PointFacts {
            role: planned.role,
            direction: planned.direction,
            size_bytes: planned.size.into(),
            depth: planned.depth,
            connections: 1,
            pattern: planned.pattern,
            iops: Spread::of(&self.iops),
            latency_us: Spread::of(&self.latency_us),
            p50_us: Spread::of(&self.p50_us),
            p99_us: Spread::of(&self.p99_us),
            client_cpu_us: spread(&self.client_cpu_us),
            client_busy: self.client_busy,
            server_cpu_us: spread(&self.server_cpu_us),
            tcp: self.tcp,
        }
    }
}

/// Rounds one after the other: differences add up, states are those of the last.
fn sum(earlier: Option<TcpFacts>, later: TcpFacts) -> TcpFacts {
    let Some(earlier) = earlier else {
        return later;
    };
    let add = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
    TcpFacts {
        busy_us: add(earlier.busy_us, later.busy_us),
        rwnd_limited_us: add(earlier.rwnd_limited_us, later.rwnd_limited_us),
        sndbuf_limited_us: add(earlier.sndbuf_limited_us, later.sndbuf_limited_us),
        retransmits: add(earlier.retransmits, later.retransmits),
        ..later
    }
}

/// Whether all operations went well.
fn check(result: &PointResult) -> Result<(), Error> {
    if let Some(lost) = &result.lost {
        return Err(Error::Errors(format!("the connection was lost: {lost}")));
    }
    if let Some(error) = result.errors.first() {
        return Err(Error::Errors(crate::convert::text(&error.error)));
    }
    if result.unanswered > 0 {
        let count = result.unanswered;
        return Err(Error::Errors(format!("{count} were never answered")));
    }
    Ok(())
}

fn look_at(points: &[PointFacts], course: &mut Course<'_>) {
    let busy = points.iter().filter(|point| point.client_busy >= BUSY);
    let busy: Vec<String> = busy.map(describe).collect();
    if !busy.is_empty() {
        let text = format!(
            "this machine is the limit, not the server: the thread that makes the load is busy all the time at {}",
            few(busy)
        );
        course.remark(RemarkKind::ClientIsLimit, text);
    }
    let noisy = points.iter().filter(|point| point.iops.relative() > NOISY);
    let mut noisy: Vec<&PointFacts> = noisy.collect();
    noisy.sort_by(|a, b| b.iops.relative().total_cmp(&a.iops.relative()));
    let noisy: Vec<String> = noisy
        .into_iter()
        .map(|point| {
            format!(
                "{} (±{:.0} %)",
                describe(point),
                point.iops.relative() * 100.0
            )
        })
        .collect();
    if !noisy.is_empty() {
        let text = format!("rounds differ much at {}", few(noisy));
        course.remark(RemarkKind::Noisy, text);
    }
}

/// The first of a list, and how many there are beside.
fn few(mut all: Vec<String>) -> String {
    const SHOWN: usize = 3;
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let shown = all.join("; ");
    if more > 0 {
        format!("{shown}; and at {more} more")
    } else {
        shown
    }
}

fn describe(point: &PointFacts) -> String {
    label(&Planned {
        direction: point.direction,
        pattern: point.pattern,
        size: u32::try_from(point.size_bytes).unwrap_or(u32::MAX),
        depth: point.depth,
        role: point.role,
    })
}

fn label(planned: &Planned) -> String {
    let direction = match planned.direction {
        Direction::Read => "reads",
        Direction::Write => "writes",
    };
    let pattern = match planned.pattern {
        Pattern::OnePlace => "of one place",
        Pattern::Random => "at random",
        Pattern::Sequential => "in order",
    };
    let size = longshore_bench::units::show_size(planned.size.into());
    format!("{direction} {pattern}, {size}, depth {}", planned.depth)
}

fn float(count: usize) -> f64 {
    longshore_bench::result::float(u64::try_from(count).unwrap_or(u64::MAX))
}
