//! Asking shards for what they know.

use std::collections::HashMap;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longshore_reactor::EngineCounters;

use super::published::Published;
use super::report::{
    ConnectionStatistics, Derived, MemoryStatistics, Sampling, ShardStatistics, StageStatistics,
    Statistics, ThreadTimes, VolumeCounts,
};
use super::stages::{Histograms, Kind};
use super::{Counters, report};
use crate::budget;
use crate::core::{Core, Shared};
use crate::message::Message;
use crate::spin::WaitingState;

/// How long somebody who asks waits for all shards together. A shard that does not answer within is
/// stuck in a call of the kernel.
const PATIENCE: Duration = Duration::from_secs(1);

/// A question, and where the answer goes.
#[derive(Clone, Debug)]
pub(crate) struct Question(Sender<ShardReport>);

impl Question {
    pub(crate) fn answer(&self, report: ShardReport) {
        // Who has lost patience does not mind.
        let _ = self.0.send(report);
    }
}

/// What a shard knows.
#[derive(Clone, Debug)]
pub(crate) struct ShardReport {
    pub shard: usize,
    pub counters: Counters,
    pub engine: EngineCounters,
    pub times: ThreadTimes,
    pub waiting: WaitingState,
    pub connections: Vec<ConnectionStatistics>,
    pub kept_bytes: usize,
    pub receive_buffer_bytes: usize,
    pub requests: usize,
    pub stages: Vec<(Kind, Box<Histograms>)>,
    pub sampling: Sampling,
}

impl ShardReport {
    /// What a shard knows that has been there for `elapsed`. Its own thread asks: the processor time is
    /// the calling thread's.
    pub(crate) fn new(
        core: &Core,
        elapsed: Duration,
        connections: Vec<ConnectionStatistics>,
    ) -> Self {
        let engine = core.platform.counters();
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let times = core.platform.processor_time().unwrap_or_default();
        let polling_ns = core.counters.spinning_ns.min(times.ran_ns);
        let awake_ns = times.ran_ns + times.waited_ns;
        Self {
            shard: core.shard,
            counters: core.counters,
            engine,
            times: ThreadTimes {
                elapsed_ns,
                working_ns: times.ran_ns - polling_ns,
                polling_ns,
                waiting_for_core_ns: times.waited_ns,
                asleep_ns: elapsed_ns.saturating_sub(awake_ns),
                user_ns: times.user_ns,
                system_ns: times.system_ns,
            },
            waiting: core.waiting,
            connections,
            kept_bytes: core.pool.kept_bytes(),
            receive_buffer_bytes: core.receive_buffer.len(),
            requests: core.requests.len(),
            stages: core.stages.histograms(),
            sampling: Sampling {
                one_in: core.stages.every(),
                beyond: core.stages.beyond(),
            },
        }
    }
}

/// What shards leave for those who ask.
#[derive(Debug)]
pub(crate) struct Board {
    started: Instant,
    shards: Vec<Place>,
}

#[derive(Debug, Default)]
struct Place {
    published: Published,
    /// What the shard said at its end.
    last: Mutex<Option<Box<ShardReport>>>,
}

impl Board {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            started: Instant::now(),
            shards: (0..shards).map(|_| Place::default()).collect(),
        }
    }

    /// What a shard publishes.
    pub(crate) fn published(&self, shard: usize) -> &Published {
        &self.shards[shard].published
    }

    /// A shard has ended; this is its last word.
    pub(crate) fn leave(&self, report: ShardReport) {
        let place = &self.shards[report.shard];
        place.published.store(&report.counters);
        *lock(&place.last) = Some(Box::new(report));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks all shards that have not ended, and puts the answers together. Blocks for [`PATIENCE`] at most.
pub(crate) fn statistics(shared: &Shared) -> Statistics {
    let board = &shared.board;
    let mut reports: Vec<Option<ShardReport>> = Vec::new();
    let (answers, inbox) = channel();
    let mut missing = 0;
    for (place, post) in board.shards.iter().zip(&shared.posts) {
        let last = lock(&place.last).clone();
        if last.is_none() {
            missing += 1;
            post.send(Message::Report(Question(answers.clone())));
        }
        reports.push(last.map(|report| *report));
    }
    drop(answers);
    let until = Instant::now() + PATIENCE;
    while missing > 0 {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(report) = inbox.recv_timeout(left) else {
            break;
        };
        let shard = report.shard;
        reports[shard] = Some(report);
        missing -= 1;
    }
    put_together(shared, reports)
}

fn put_together(shared: &Shared, reports: Vec<Option<ShardReport>>) -> Statistics {
    let board = &shared.board;
    let mut connections = Vec::new();
    let mut memory = MemoryStatistics {
        budget_bytes: shared.budget.limit_bytes(),
        used_bytes: shared.budget.used_bytes(),
        transmit_budget_bytes: budget::total(shared.limits.memory),
        ..MemoryStatistics::default()
    };
    let mut shards = Vec::new();
    let mut sampling = Sampling::default();
    let mut stages: HashMap<Kind, Box<Histograms>> = HashMap::new();
    for (shard, report) in reports.into_iter().enumerate() {
        // It may have ended between the question and the answer.
        let report = report.or_else(|| lock(&board.shards[shard].last).as_deref().cloned());
        let Some(report) = report else {
            let counters = board.published(shard).load();
            shards.push(ShardStatistics {
                shard,
                answered: false,
                counters,
                derived: Derived::of(&counters, &EngineCounters::default().into()),
                engine: EngineCounters::default().into(),
                times: ThreadTimes::default(),
                waiting: WaitingState::default(),
            });
            continue;
        };
        memory.registered_bytes += report.engine.registered_bytes;
        memory.registered_budget_bytes += report.engine.registered_bytes_max;
        let engine = report.engine.into();
        shards.push(ShardStatistics {
            shard,
            answered: true,
            counters: report.counters,
            derived: Derived::of(&report.counters, &engine),
            engine,
            times: report.times,
            waiting: report.waiting,
        });
        memory.kept_bytes += report.kept_bytes;
        memory.receive_buffer_bytes += report.receive_buffer_bytes;
        memory.requests += report.requests;
        memory.connections += report.connections.len();
        connections.extend(report.connections);
        sampling.one_in = report.sampling.one_in;
        sampling.beyond += report.sampling.beyond;
        for (kind, more) in report.stages {
            let sum = stages.entry(kind).or_default();
            for (sum, more) in sum.iter_mut().zip(more.iter()) {
                sum.add(more);
            }
        }
    }
    memory.transmit_bytes = connections.iter().map(|it| it.transmit_bytes).sum();
    memory.task_bytes = connections.iter().map(|it| it.task_bytes).sum();
    let uptime = board.started.elapsed();
    let name = |unit: usize| shared.unit(unit).volume.identity().name.clone();
    let stages = stages
        .iter()
        .map(|(kind, histograms)| StageStatistics::new(name(kind.unit), kind, histograms));
    let mut stages: Vec<_> = stages.collect();
    stages.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut statistics = Statistics {
        version: report::VERSION,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        total: Counters::default(),
        derived: Derived::default(),
        shards,
        connections,
        volumes: volumes(shared),
        stages,
        sampling,
        memory,
    };
    statistics.sum_up();
    statistics
}

fn volumes(shared: &Shared) -> Vec<VolumeCounts> {
    let units = shared.exports.units.iter();
    let counts = units.map(|unit| {
        let totals = unit.statistics.totals();
        VolumeCounts {
            name: unit.volume.identity().name.clone(),
            reads: totals.reads,
            read_bytes: totals.read_bytes,
            writes: totals.writes,
            written_bytes: totals.written_bytes,
            errors: totals.errors,
        }
    });
    counts.collect()
}
