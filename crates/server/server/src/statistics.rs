//! Collection of the reports of all shards.

use std::collections::HashMap;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use longshore_reactor::EngineCounters;

use crate::core::Shared;
use crate::counters::Counters;
use crate::counters::stages::{Histograms, Kind};
use crate::exports::Exports;
use crate::mail::message::Message;
use crate::memory::transmit;
use crate::observe::shard_report::{Question, ShardReport};
use crate::observe::{
    self, Derived, MemoryStatistics, Sampling, ShardStatistics, StageStatistics, Statistics,
    ThreadTimes, VolumeCounts,
};
use crate::spin::WaitingState;

/// How long somebody who asks waits for all shards together. A shard that does not answer within is
/// stuck in a call of the kernel.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks all shards that have not ended, and puts the answers together. Blocks for [`PATIENCE`] at most. `tcp`: the kernel
/// is asked about each connection.
pub(crate) fn statistics(shared: &Shared, exports: &Exports, tcp: bool) -> Statistics {
    let board = &shared.board;
    let mut reports: Vec<Option<ShardReport>> = Vec::new();
    let (answers, inbox) = channel();
    let mut missing = 0;
    for (shard, post) in shared.posts.iter().enumerate() {
        let last = board.last(shard);
        if last.is_none() {
            missing += 1;
            let to = answers.clone();
            post.send(Message::Report(Question { to, tcp }));
        }
        reports.push(last);
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
    put_together(shared, exports, reports)
}

fn put_together(
    shared: &Shared,
    exports: &Exports,
    reports: Vec<Option<ShardReport>>,
) -> Statistics {
    let board = &shared.board;
    let mut connections = Vec::new();
    let mut memory = MemoryStatistics {
        budget_bytes: shared.budget.limit_bytes(),
        used_bytes: shared.budget.used_bytes(),
        transmit_budget_bytes: transmit::total(shared.limits.memory),
        ..MemoryStatistics::default()
    };
    let mut shards = Vec::new();
    let mut sampling = Sampling::default();
    let mut stages: HashMap<Kind, Box<Histograms>> = HashMap::new();
    for (shard, report) in reports.into_iter().enumerate() {
        // It may have ended between the question and the answer.
        let report = report.or_else(|| board.last(shard));
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
    let uptime = board.uptime();
    let name = |unit: usize| exports.unit(unit).volume.identity().name.clone();
    let stages = stages
        .iter()
        // A shard may know units that came later.
        .filter(|(kind, _)| kind.unit < exports.places())
        .map(|(kind, histograms)| StageStatistics::new(name(kind.unit), kind, histograms));
    let mut stages: Vec<_> = stages.collect();
    stages.sort_by(|a, b| a.order().cmp(&b.order()));
    let mut statistics = Statistics {
        version: observe::VERSION,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        total: Counters::default(),
        derived: Derived::default(),
        shards,
        connections,
        volumes: volumes(exports),
        clients: shared.clients.report(),
        stages,
        sampling,
        memory,
    };
    statistics.sum_up();
    statistics
}

fn volumes(exports: &Exports) -> Vec<VolumeCounts> {
    let counts = exports.exported().map(|(_, unit)| {
        let totals = unit.statistics.totals();
        let delays = unit.throttle.delays();
        VolumeCounts {
            name: unit.volume.identity().name.clone(),
            reads: totals.reads,
            read_bytes: totals.read_bytes,
            writes: totals.writes,
            written_bytes: totals.written_bytes,
            errors: totals.errors,
            delayed: delays.operations,
            delayed_ns: u64::try_from(delays.time.as_nanos()).unwrap_or(u64::MAX),
            limits: unit.throttle.limits().into(),
        }
    });
    counts.collect()
}
