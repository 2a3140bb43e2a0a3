//! A Longshore server's own statistics, for a probe of its volumes.

use std::collections::BTreeMap;

use longshore_model::probe::{Direction, ServerFacts, StageFacts, TcpFacts};
use longshore_probe::ServerView;
use serde::Deserialize;

use crate::server::client::Client;

/// Rows that are kept of a list at most; more would not fit into a document.
const ROWS_MAX: usize = 1000;

/// Asks the control API.
pub struct Statistics {
    client: Client,
}

impl Statistics {
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl ServerView for Statistics {
    fn read(&mut self) -> Result<ServerFacts, String> {
        let answer = self.client.get("/api/v1/statistics?tcp=true");
        let sample = answer.and_then(|answer| answer.read::<Sample>());
        sample
            .map(|sample| sample.facts())
            .map_err(|error| error.to_string())
    }
}

/// The report, as far as a probe wants it. What a server does not tell is zero.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Sample {
    total: Total,
    shards: Vec<Shard>,
    connections: Vec<Connection>,
    stages: Vec<Stage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Total {
    operations_iscsi: u64,
    operations_nvme: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Shard {
    times: Times,
    waiting: Waiting,
    engine: Engine,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Times {
    elapsed_ns: u64,
    working_ns: u64,
    waiting_for_core_ns: u64,
    user_ns: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    wake_up_ns: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Engine {
    sleeps: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Connection {
    tcp: Option<TcpFacts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Stage {
    direction: String,
    bytes_up_to: u64,
    operations: u64,
    parse: Durations,
    data: Durations,
    gate: Durations,
    storage: Durations,
    answer: Durations,
    send: Durations,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Durations {
    sum_ns: u64,
}

/// Counts of a server lie far below 2^52.
#[allow(clippy::cast_precision_loss)]
fn float(count: u64) -> f64 {
    count as f64
}

fn mean_us(sum_ns: f64, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        sum_ns / 1e3 / float(count)
    }
}

impl Sample {
    fn facts(&self) -> ServerFacts {
        let operations = self.total.operations_iscsi + self.total.operations_nvme;
        let sum = |of: fn(&Shard) -> u64| -> f64 {
            self.shards.iter().map(|shard| float(of(shard))).sum()
        };
        let elapsed = sum(|shard| shard.times.elapsed_ns);
        let waited = sum(|shard| shard.times.waiting_for_core_ns);
        let wake_ups = self.shards.iter().map(|shard| shard.waiting.wake_up_ns);
        let wake_up = wake_ups.max().filter(|ns| *ns > 0);
        let tcp = self.connections.iter().filter_map(|it| it.tcp);
        ServerFacts {
            operations,
            working_us_per_op: mean_us(sum(|shard| shard.times.working_ns), operations),
            user_us_per_op: mean_us(sum(|shard| shard.times.user_ns), operations),
            waiting_for_core: if elapsed > 0.0 { waited / elapsed } else { 0.0 },
            observed_us: self
                .shards
                .iter()
                .map(|it| it.times.elapsed_ns)
                .sum::<u64>()
                / 1000,
            wake_up_us: wake_up.map(|ns| float(ns) / 1e3),
            sleeps: self.shards.iter().map(|it| it.engine.sleeps).sum(),
            cores: u32::try_from(self.shards.len()).unwrap_or(u32::MAX),
            stages: self.stages(),
            tcp: tcp.take(ROWS_MAX).collect(),
            settings: BTreeMap::new(),
        }
    }

    /// Those of all volumes and protocols together.
    fn stages(&self) -> Vec<StageFacts> {
        let mut sums: BTreeMap<(Direction, u64), (u64, [f64; 6])> = BTreeMap::new();
        for stage in &self.stages {
            let direction = match stage.direction.as_str() {
                "read" => Direction::Read,
                "write" => Direction::Write,
                _ => continue,
            };
            let key = (direction, stage.bytes_up_to);
            if sums.len() >= ROWS_MAX && !sums.contains_key(&key) {
                continue;
            }
            let (operations, sum) = sums.entry(key).or_default();
            *operations += stage.operations;
            // In the order of the document.
            let all = [
                &stage.parse,
                &stage.data,
                &stage.gate,
                &stage.storage,
                &stage.answer,
                &stage.send,
            ];
            for (sum, more) in sum.iter_mut().zip(all) {
                *sum += float(more.sum_ns);
            }
        }
        let sums = sums.into_iter();
        let facts = sums.map(
            |((direction, bytes_up_to), (operations, sums))| StageFacts {
                direction,
                bytes_up_to,
                operations,
                mean_us: sums.map(|sum| mean_us(sum, operations)),
            },
        );
        facts.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"{
        "total": {"operations_iscsi": 900, "operations_nvme": 100},
        "shards": [
            {"times": {"elapsed_ns": 8000, "working_ns": 4000000, "user_ns": 1000000, "waiting_for_core_ns": 800},
             "waiting": {"wake_up_ns": 21000}},
            {"times": {"elapsed_ns": 8000, "working_ns": 2000000}}
        ],
        "connections": [{"tcp": {"rtt_us": 40, "delivery_rate": 1000}}, {}],
        "stages": [
            {"direction": "read", "bytes_up_to": 4096, "operations": 3, "storage": {"sum_ns": 30000}},
            {"direction": "read", "bytes_up_to": 4096, "operations": 1, "storage": {"sum_ns": 50000},
             "data": {"sum_ns": 4000}},
            {"direction": "compare", "bytes_up_to": 512, "operations": 9}
        ]
    }"#;

    #[test]
    fn a_report_becomes_means_of_an_operation() {
        let facts = serde_json::from_str::<Sample>(SAMPLE).unwrap().facts();
        assert_eq!((facts.operations, facts.cores), (1000, 2));
        assert!((facts.working_us_per_op - 6.0).abs() < 1e-9);
        assert!((facts.user_us_per_op - 1.0).abs() < 1e-9);
        assert!((facts.waiting_for_core - 0.05).abs() < 1e-9);
        assert_eq!(facts.observed_us, 16);
        assert_eq!(facts.wake_up_us, Some(21.0));
        assert_eq!(facts.tcp.len(), 1);
        assert_eq!(facts.tcp[0].rtt_us, Some(40));
        let [stage] = &facts.stages[..] else {
            panic!("{:?}", facts.stages)
        };
        assert_eq!(stage.operations, 4);
        assert_eq!(stage.mean_us, [0.0, 1.0, 0.0, 20.0, 0.0, 0.0]);
    }

    #[test]
    fn an_empty_report_has_no_means() {
        let facts = serde_json::from_str::<Sample>("{}").unwrap().facts();
        assert_eq!(
            facts,
            ServerFacts {
                cores: 0,
                ..ServerFacts::default()
            }
        );
    }
}
