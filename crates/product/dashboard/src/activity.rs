//! What the server does: two samples, what happened between them, and the moments before.

use longshore_api::rates::Rates;
use longshore_api::sample::{Durations, Sample, Stages};
use longshore_model::probe::{Direction, ServerFacts, StageFacts, TcpFacts};

/// What rates are the mean of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Basis {
    /// The time between two samples.
    #[default]
    Interval,
    /// All the time since the server was started.
    Start,
}

/// One point of the charts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    pub time_ms: u64,
    pub reads: f64,
    pub writes: f64,
    pub read_bytes: f64,
    pub written_bytes: f64,
    /// Mean busy part of the event loops, in percent.
    pub working: f64,
}

impl Moment {
    /// A point from the rates at a time.
    #[must_use]
    pub fn new(time_ms: u64, rates: &Rates) -> Self {
        let loops: f64 = rates.cores.iter().map(|_| 1.0).sum();
        let working: f64 = rates.cores.iter().map(|it| it.working).sum();
        Self {
            time_ms,
            reads: rates.volumes.iter().map(|it| it.reads).sum(),
            writes: rates.volumes.iter().map(|it| it.writes).sum(),
            read_bytes: rates.volumes.iter().map(|it| it.read_bytes).sum(),
            written_bytes: rates.volumes.iter().map(|it| it.written_bytes).sum(),
            working: if loops > 0.0 { working / loops } else { 0.0 },
        }
    }
}

/// What the server does now.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The one that [`Activity::now`] is compared with.
    pub before: Sample,
    pub now: Sample,
    pub rates: Rates,
    pub basis: Basis,
    /// In order of time, the oldest first.
    pub history: Vec<Moment>,
}

/// A sample of the moment when a process was started.
#[must_use]
pub fn start_of(sample: &Sample) -> Sample {
    Sample {
        pid: sample.pid,
        monotonic_ns: (sample.monotonic_ns)
            .saturating_sub(sample.uptime_ms.saturating_mul(1_000_000)),
        time_ms: sample.time_ms.saturating_sub(sample.uptime_ms),
        ..Sample::default()
    }
}

impl Activity {
    /// Compares two samples. Those of two processes, or of one moment, give the mean since the start of the newer one.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample, history: Vec<Moment>) -> Self {
        let (before, rates, basis) = match Rates::between(before, now) {
            Some(rates) => (before.clone(), rates, Basis::Interval),
            None => {
                let start = start_of(now);
                let rates = Rates::between(&start, now).unwrap_or_default();
                (start, rates, Basis::Start)
            }
        };
        Self {
            before,
            now: now.clone(),
            rates,
            basis,
            history,
        }
    }

    /// The mean since the server was started.
    #[must_use]
    pub fn since_start(now: &Sample, history: Vec<Moment>) -> Self {
        Self::between(&start_of(now), now, history).with_basis(Basis::Start)
    }

    fn with_basis(mut self, basis: Basis) -> Self {
        self.basis = basis;
        self
    }

    /// What numbers are the mean of, in words.
    pub(crate) fn basis_text(&self) -> String {
        let milliseconds = self.now.uptime_ms.saturating_sub(self.before.uptime_ms);
        match self.basis {
            Basis::Start => "mean since the server was started".to_owned(),
            Basis::Interval if milliseconds < 1500 => "mean of the last second".to_owned(),
            Basis::Interval => {
                format!("mean of the last {}", crate::figures::span(milliseconds))
            }
        }
    }

    /// What the performance model needs to draw pipelines: the operations that were followed, by direction and size.
    pub(crate) fn facts(&self) -> ServerFacts {
        let all = |sample: &Sample, of: fn(&longshore_api::sample::Shard) -> u64| -> u64 {
            sample.shards.iter().map(of).sum()
        };
        let since = |of| all(&self.now, of).saturating_sub(all(&self.before, of));
        let wake_up = self.now.shards.iter().map(|it| it.waiting.wake_up_ns).max();
        let tcp = self.now.connections.iter().filter_map(|it| it.tcp.as_ref());
        ServerFacts {
            operations: since(|it| it.operations_iscsi + it.operations_nvme),
            sleeps: since(|it| it.engine.sleeps),
            wake_up_us: wake_up.filter(|ns| *ns > 0).map(microseconds),
            cores: u32::try_from(self.now.shards.len()).unwrap_or(u32::MAX),
            stages: self.stages(),
            tcp: tcp
                .map(|tcp| TcpFacts {
                    rtt_us: tcp.rtt_us,
                    min_rtt_us: tcp.min_rtt_us,
                    ..TcpFacts::default()
                })
                .collect(),
            ..ServerFacts::default()
        }
    }

    /// Those of all volumes and protocols together.
    fn stages(&self) -> Vec<StageFacts> {
        let mut found: Vec<(Direction, u64, u64, [u64; 6])> = Vec::new();
        for stage in &self.now.stages {
            let direction = match stage.direction.as_str() {
                "read" => Direction::Read,
                "write" => Direction::Write,
                _ => continue,
            };
            let was = self.before.stages.iter().find(|it| is_same(it, stage));
            let was = was.filter(|it| it.operations <= stage.operations);
            let earlier = was.map_or([Durations::default(); 6], Stages::intervals);
            let operations = stage.operations - was.map_or(0, |it| it.operations);
            if operations == 0 {
                continue;
            }
            let both = stage.intervals().into_iter().zip(earlier);
            let sums = both.map(|(now, then)| now.sum_ns.saturating_sub(then.sum_ns));
            let key = (direction, stage.bytes_up_to);
            let place = found.iter().position(|it| (it.0, it.1) == key);
            let place = place.unwrap_or_else(|| {
                found.push((direction, stage.bytes_up_to, 0, [0; 6]));
                found.len() - 1
            });
            found[place].2 += operations;
            for (sum, more) in found[place].3.iter_mut().zip(sums) {
                *sum += more;
            }
        }
        let facts = found.into_iter();
        let facts = facts.map(|(direction, bytes_up_to, operations, sums)| StageFacts {
            direction,
            bytes_up_to,
            operations,
            mean_us: sums.map(|sum| microseconds(sum / operations)),
        });
        facts.collect()
    }
}

fn is_same(one: &Stages, other: &Stages) -> bool {
    one.volume == other.volume
        && one.protocol == other.protocol
        && one.direction == other.direction
        && one.bytes_up_to == other.bytes_up_to
}

/// Times of a server lie far below 2^52 ns.
#[allow(clippy::cast_precision_loss)]
fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_api::sample::{Shard, Volume};

    fn sample(seconds: u64, operations: u64) -> Sample {
        let sum = |ns| Durations {
            sum_ns: ns * operations,
            ..Durations::default()
        };
        let stage = |volume: &str| Stages {
            volume: volume.to_owned(),
            protocol: "iscsi".to_owned(),
            direction: "read".to_owned(),
            bytes_up_to: 4096,
            operations,
            storage: sum(30_000),
            ..Stages::default()
        };
        Sample {
            pid: 1,
            monotonic_ns: 5_000_000_000 + seconds * 1_000_000_000,
            uptime_ms: seconds * 1000,
            volumes: vec![Volume {
                name: "a".to_owned(),
                reads: operations,
                ..Volume::default()
            }],
            shards: vec![Shard {
                answered: true,
                operations_iscsi: operations,
                ..Shard::default()
            }],
            stages: vec![stage("a"), stage("b")],
            ..Sample::default()
        }
    }

    #[test]
    fn stages_of_all_volumes_are_joined_and_counted_from_the_earlier_sample() {
        let activity = Activity::between(&sample(1, 100), &sample(3, 300), Vec::new());
        let facts = activity.facts();
        assert_eq!(facts.operations, 200);
        let [stage] = &facts.stages[..] else {
            panic!("{:?}", facts.stages);
        };
        assert_eq!((stage.operations, stage.bytes_up_to), (400, 4096));
        assert!((stage.mean_us[3] - 30.0).abs() < 1e-9, "{stage:?}");
        assert_eq!(activity.basis_text(), "mean of the last 2 s");
    }

    #[test]
    fn one_sample_alone_gives_the_mean_since_the_start() {
        let now = sample(10, 1000);
        for activity in [
            Activity::between(&now, &now, Vec::new()),
            Activity::since_start(&now, Vec::new()),
        ] {
            assert_eq!(activity.basis, Basis::Start);
            assert!((activity.rates.volumes[0].reads - 100.0).abs() < 1e-6);
        }
    }
}
