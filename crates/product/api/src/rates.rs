//! What happens in a second, from two samples and the clock of the server.

use std::collections::HashMap;

use serde::Serialize;

use crate::sample::{Durations, INTERVALS, Sample, Stages, Volume};

/// Between two samples of one process.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rates {
    pub seconds: f64,
    pub volumes: Vec<VolumeRates>,
    pub cores: Vec<CoreRates>,
    pub connections: Vec<ConnectionRates>,
    pub stages: Vec<StageRates>,
    pub memory_used_bytes: u64,
    pub memory_budget_bytes: u64,
    /// The bottleneck of the server, in one sentence.
    pub limited_by: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VolumeRates {
    pub name: String,
    pub reads: f64,
    pub writes: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Since the server started.
    pub errors: u64,
    /// Mean time of operations that were followed in the interval; absent: there were none.
    pub mean_ns: Option<u64>,
}

impl VolumeRates {
    #[must_use]
    pub fn operations(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Parts of the time of an event loop, in percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CoreRates {
    pub core: usize,
    pub answers: bool,
    pub working: f64,
    pub polling: f64,
    pub waiting: f64,
    pub asleep: f64,
    pub operations: f64,
    pub turns: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConnectionRates {
    pub peer: String,
    pub protocol: String,
    pub core: u32,
    pub operations: f64,
    pub received_bytes: f64,
    pub sent_bytes: f64,
    pub pending_bytes: u64,
}

/// Where the time of the operations of a kind went that were followed in the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StageRates {
    pub volume: String,
    pub protocol: String,
    pub direction: String,
    pub bytes_up_to: u64,
    pub followed: u64,
    pub mean_ns: u64,
    /// Since the server started.
    pub p99_ns: u64,
    /// Percentages by the names of the intervals, in their order.
    pub parts: [f64; INTERVALS.len()],
}

#[allow(clippy::cast_precision_loss)] // What people look at has three digits.
fn per(count: u64, seconds: f64) -> f64 {
    count as f64 / seconds
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        per(part, 1.0) * 100.0 / per(whole, 1.0)
    }
}

impl Rates {
    /// `None`: they are not of one process, or no time has passed.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample) -> Option<Self> {
        let is_same = before.pid == now.pid && before.uptime_ms <= now.uptime_ms;
        let ns = now.monotonic_ns.checked_sub(before.monotonic_ns)?;
        if !is_same || ns == 0 {
            return None;
        }
        let seconds = per(ns, 1e9);
        let stages = stages(before, now);
        let mut rates = Self {
            seconds,
            volumes: volumes(before, now, seconds, &stages),
            cores: cores(before, now, seconds),
            connections: connections(before, now, seconds),
            stages,
            memory_used_bytes: now.memory.used_bytes.saturating_sub(now.memory.kept_bytes),
            memory_budget_bytes: now.memory.budget_bytes,
            limited_by: String::new(),
        };
        rates.limited_by = rates.limit();
        Some(rates)
    }

    /// All operations of all volumes.
    #[must_use]
    pub fn operations(&self) -> f64 {
        self.volumes.iter().map(VolumeRates::operations).sum()
    }

    /// What keeps it from doing more, as far as the numbers tell.
    fn limit(&self) -> String {
        if let Some(core) = self.cores.iter().find(|core| !core.answers) {
            return format!("event loop {} does not answer", core.core);
        }
        if percent(self.memory_used_bytes, self.memory_budget_bytes) > 95.0 {
            return "payload memory: commands wait for it (limits.memory)".to_owned();
        }
        let waiting = self.cores.iter().find(|core| core.waiting > 25.0);
        if let Some(core) = waiting {
            return format!(
                "other processes: event loop {} waits {:.0} % of the time for its core",
                core.core, core.waiting
            );
        }
        let busy = self.cores.iter().filter(|core| core.working > 90.0).count();
        if busy > 0 && busy == self.cores.len() {
            return "processor: all event loops are busy".to_owned();
        }
        if busy > 0 {
            return format!(
                "processor: {busy} of {} event loops are busy",
                self.cores.len()
            );
        }
        if self.operations() < 1.0 {
            return "nothing: clients ask for nothing".to_owned();
        }
        let followed: u64 = self.stages.iter().map(|it| it.followed).sum();
        let storage: f64 = self
            .stages
            .iter()
            .map(|it| it.parts[3] * per(it.followed, 1.0))
            .sum();
        if followed > 0 && storage / per(followed, 1.0) > 60.0 {
            return format!(
                "storage: {:.0} % of the time of operations",
                storage / per(followed, 1.0)
            );
        }
        "clients or the network: the server waits for commands".to_owned()
    }
}

fn volumes(before: &Sample, now: &Sample, seconds: f64, stages: &[StageRates]) -> Vec<VolumeRates> {
    let earlier: HashMap<&str, &Volume> = before
        .volumes
        .iter()
        .map(|volume| (volume.name.as_str(), volume))
        .collect();
    let rates = now.volumes.iter().map(|volume| {
        let none = Volume::default();
        let was = earlier.get(volume.name.as_str()).copied().unwrap_or(&none);
        // A volume of the same name that was made anew counts from zero.
        let rate = |now: u64, was: u64| per(now.checked_sub(was).unwrap_or(now), seconds);
        let of = stages.iter().filter(|it| it.volume == volume.name);
        let (followed, sum) = of.fold((0, 0), |(followed, sum), it| {
            (followed + it.followed, sum + it.followed * it.mean_ns)
        });
        VolumeRates {
            name: volume.name.clone(),
            reads: rate(volume.reads, was.reads),
            writes: rate(volume.writes, was.writes),
            read_bytes: rate(volume.read_bytes, was.read_bytes),
            written_bytes: rate(volume.written_bytes, was.written_bytes),
            errors: volume.errors,
            mean_ns: sum.checked_div(followed),
        }
    });
    rates.collect()
}

fn cores(before: &Sample, now: &Sample, seconds: f64) -> Vec<CoreRates> {
    let rates = now.shards.iter().map(|shard| {
        let was = before.shards.iter().find(|it| it.shard == shard.shard);
        let was = was.cloned().unwrap_or_default();
        let (times, then) = (shard.times, was.times);
        let elapsed = times.elapsed_ns.saturating_sub(then.elapsed_ns);
        let part = |now: u64, was: u64| percent(now.saturating_sub(was), elapsed);
        let operations = shard.operations_iscsi + shard.operations_nvme;
        let earlier = was.operations_iscsi + was.operations_nvme;
        CoreRates {
            core: shard.shard,
            answers: shard.answered,
            working: part(times.working_ns, then.working_ns),
            polling: part(times.polling_ns, then.polling_ns),
            waiting: part(times.waiting_for_core_ns, then.waiting_for_core_ns),
            asleep: part(times.asleep_ns, then.asleep_ns),
            operations: per(operations.saturating_sub(earlier), seconds),
            turns: per(shard.turns.saturating_sub(was.turns), seconds),
        }
    });
    rates.collect()
}

fn connections(before: &Sample, now: &Sample, seconds: f64) -> Vec<ConnectionRates> {
    let earlier: HashMap<&str, _> = before
        .connections
        .iter()
        .map(|connection| (connection.peer.as_str(), connection))
        .collect();
    let rates = now.connections.iter().map(|connection| {
        let was = earlier.get(connection.peer.as_str());
        let rate = |now: u64, was: Option<u64>| {
            let was = was.unwrap_or_default();
            per(now.checked_sub(was).unwrap_or(now), seconds)
        };
        ConnectionRates {
            peer: connection.peer.clone(),
            protocol: connection.protocol.clone(),
            core: connection.shard,
            operations: rate(connection.operations, was.map(|it| it.operations)),
            received_bytes: rate(connection.received_bytes, was.map(|it| it.received_bytes)),
            sent_bytes: rate(connection.sent_bytes, was.map(|it| it.sent_bytes)),
            pending_bytes: connection.pending_bytes,
        }
    });
    rates.collect()
}

fn stages(before: &Sample, now: &Sample) -> Vec<StageRates> {
    let is_same = |a: &Stages, b: &Stages| {
        a.volume == b.volume
            && a.protocol == b.protocol
            && a.direction == b.direction
            && a.bytes_up_to == b.bytes_up_to
    };
    let rates = now.stages.iter().filter_map(|kind| {
        let was = before.stages.iter().find(|it| is_same(it, kind));
        let was = was.filter(|it| it.operations <= kind.operations).cloned();
        let was = was.unwrap_or_default();
        let followed = kind.operations - was.operations;
        if followed == 0 {
            return None;
        }
        let spent = |now: Durations, was: Durations| now.sum_ns.saturating_sub(was.sum_ns);
        let both = kind.intervals().into_iter().zip(was.intervals());
        let sums: Vec<u64> = both.map(|(now, was)| spent(now, was)).collect();
        let whole: u64 = sums.iter().sum();
        Some(StageRates {
            volume: kind.volume.clone(),
            protocol: kind.protocol.clone(),
            direction: kind.direction.clone(),
            bytes_up_to: kind.bytes_up_to,
            followed,
            mean_ns: spent(kind.total, was.total) / followed,
            p99_ns: kind.total.p99_ns,
            parts: std::array::from_fn(|place| percent(sums[place], whole)),
        })
    });
    rates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Durations, Shard, Times};

    fn sample(seconds: u64, reads: u64) -> Sample {
        let mean = |ns| Durations {
            sum_ns: ns * (reads / 100),
            ..Durations::default()
        };
        Sample {
            monotonic_ns: seconds * 1_000_000_000,
            pid: 7,
            uptime_ms: seconds * 1000,
            volumes: vec![Volume {
                name: "a".to_owned(),
                reads,
                read_bytes: reads * 4096,
                ..Volume::default()
            }],
            shards: vec![Shard {
                answered: true,
                times: Times {
                    elapsed_ns: seconds * 1_000_000_000,
                    working_ns: seconds * 250_000_000,
                    asleep_ns: seconds * 750_000_000,
                    ..Times::default()
                },
                ..Shard::default()
            }],
            stages: vec![Stages {
                volume: "a".to_owned(),
                operations: reads / 100,
                storage: mean(80_000),
                send: mean(20_000),
                total: mean(100_000),
                ..Stages::default()
            }],
            ..Sample::default()
        }
    }

    #[test]
    fn rates_go_by_the_clock_of_the_server() {
        let rates = Rates::between(&sample(10, 1000), &sample(12, 3000)).unwrap();
        let volume = &rates.volumes[0];
        assert!((volume.reads - 1000.0).abs() < 1e-6);
        assert!((volume.read_bytes - 4_096_000.0).abs() < 1e-3);
        assert_eq!(volume.mean_ns, Some(100_000));
        assert!((rates.cores[0].working - 25.0).abs() < 1e-6);
        assert!((rates.stages[0].parts[3] - 80.0).abs() < 1e-6);
        assert!(
            rates.limited_by.starts_with("storage: 80 %"),
            "{}",
            rates.limited_by
        );
    }

    #[test]
    fn samples_of_two_processes_give_no_rates() {
        let mut again = sample(1, 10);
        assert!(Rates::between(&sample(10, 1000), &again).is_none());
        again.pid = 8;
        again.monotonic_ns = 20_000_000_000;
        again.uptime_ms = 20_000;
        assert!(Rates::between(&sample(10, 1000), &again).is_none());
    }

    #[test]
    fn a_volume_that_was_made_anew_counts_from_zero() {
        let rates = Rates::between(&sample(10, 5000), &sample(11, 300)).unwrap();
        assert!((rates.volumes[0].reads - 300.0).abs() < 1e-6);
    }
}
