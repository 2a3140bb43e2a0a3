//! Names of metrics: in the text, in the documentation, in the dashboard.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use longshore_api::change::Revision;
use longshore_api::object::{Keys, Object, ObjectId, ObjectKind, ObjectState, Owner};
use longshore_api::pool::{Pool, PoolSnapshot, PoolState, PoolUsage, PoolVolume};
use longshore_api::state::{Health, Session, Status};
use longshore_server::Statistics;
use longshore_server::observe::{
    ClientStatistics, Counters, Derived, Direction, Durations, EngineStatistics, MemoryStatistics,
    NamedCount, Octaves, ProtocolClients, ProtocolKind, Sampling, ShardStatistics, StageStatistics,
    ThreadTimes, VolumeCounts, VolumeLimits,
};
use serde_json::json;

use super::*;
use crate::audit::LastChange;
use crate::collection::Collected;
use crate::process::Process;
use crate::requests::RequestKind;

fn statistics() -> Statistics {
    let mut octaves = [Octaves::default(); 7];
    for of_stage in &mut octaves {
        of_stage.below = std::array::from_fn(|place| place as u64);
        of_stage.count = 30;
        of_stage.sum_ns = 1_500_000;
    }
    let times = Durations::default();
    Statistics {
        version: 3,
        uptime_ms: 1,
        total: Counters::default(),
        derived: Derived::default(),
        shards: vec![ShardStatistics {
            shard: 0,
            answered: true,
            counters: Counters::default(),
            derived: Derived::default(),
            engine: EngineStatistics::default(),
            times: ThreadTimes::default(),
            waiting: longshore_server::WaitingState::default(),
        }],
        connections: Vec::new(),
        volumes: vec![VolumeCounts {
            name: "disk0".to_owned(),
            reads: 3,
            read_bytes: 4096,
            writes: 0,
            written_bytes: 0,
            errors: 0,
            delayed: 0,
            delayed_ns: 0,
            limits: VolumeLimits {
                iops: Some(500),
                ..VolumeLimits::default()
            },
        }],
        clients: ClientStatistics {
            protocols: vec![ProtocolClients {
                protocol: ProtocolKind::NvmeTcp,
                logins: 5,
                login_failures: 2,
                ends: vec![count("lost", 3)],
            }],
            limits: vec![count("sessions", 4)],
        },
        stages: vec![StageStatistics {
            volume: "disk0".to_owned(),
            protocol: ProtocolKind::Iscsi,
            direction: Direction::Read,
            bytes_up_to: 4096,
            operations: 30,
            parse: times,
            data: times,
            gate: times,
            storage: times,
            answer: times,
            send: times,
            total: times,
            octaves,
        }],
        sampling: Sampling {
            one_in: 256,
            beyond: 0,
        },
        memory: MemoryStatistics::default(),
    }
}

fn count(name: &'static str, count: u64) -> NamedCount {
    NamedCount { name, count }
}

fn pool() -> Pool {
    let snapshot = PoolSnapshot {
        name: "monday".to_owned(),
        volume: "disk0".to_owned(),
        uuid: String::new(),
        size_bytes: 1 << 20,
        owned_bytes: 1,
        in_use: false,
    };
    Pool {
        name: "tank".to_owned(),
        uuid: None,
        state: PoolState::Open,
        drives: Vec::new(),
        mirrors: Vec::new(),
        usage: Some(PoolUsage::default()),
        volumes: vec![PoolVolume {
            name: "disk0".to_owned(),
            uuid: String::new(),
            size_bytes: 1 << 20,
            block_size: 512,
            compression: "none".to_owned(),
            quota_bytes: None,
            reserve_bytes: None,
            reserve_full: false,
            owned_bytes: 4096,
            shared_bytes: 1,
            in_use: true,
            snapshots: vec![snapshot],
        }],
        orphans: Vec::new(),
        work: None,
    }
}

fn collected() -> Collected {
    let facts = json!({"size-bytes": 1_048_576, "uuid": "317d9cfa"});
    let volume = Object {
        id: ObjectId {
            kind: ObjectKind::Volume,
            name: "disk0".to_owned(),
        },
        owner: Owner::Api,
        state: ObjectState::Up,
        location: None,
        keys: Keys::from_iter([("backend".to_owned(), json!("mem"))]),
        facts: facts.as_object().cloned().unwrap_or_default(),
    };
    Collected {
        time_ms: 1,
        monotonic_ns: 1,
        statistics: statistics(),
        status: Status {
            version: "0.1.0".to_owned(),
            pid: 1,
            started_ms: 1,
            revision: Revision(3),
            engine: "epoll".to_owned(),
            sandbox: "off".to_owned(),
            config_file: None,
            listeners: Vec::new(),
            volumes: 1,
            targets: 0,
            subsystems: 0,
            sessions: 1,
            needs_restart: Vec::new(),
            health: Health::default(),
        },
        volumes: vec![volume],
        pools: vec![pool()],
        sessions: vec![Session {
            id: "1".to_owned(),
            protocol: "iscsi".to_owned(),
            peer_name: "iqn.a".to_owned(),
            addresses: Vec::new(),
            target: "iqn.\"odd\\name".to_owned(),
            connections: 1,
            since_ms: 0,
            volumes: Vec::new(),
        }],
        process: Process::read(),
    }
}

fn text(form: Form) -> String {
    let requests = crate::requests::RequestCounts::default();
    let kind = RequestKind {
        route: "/metrics",
        method: "GET",
        code: 200,
    };
    requests.count(kind, std::time::Duration::from_millis(2));
    render(
        &Sources {
            collected: &collected(),
            requests: requests.all(),
            streams: 0,
            log_lines_dropped: 6,
            events_dropped: 7,
            last_change: Some(LastChange {
                is_done: true,
                time_ms: 1,
            }),
        },
        form,
    )
}

/// Names of samples, those of histograms without their endings.
fn names() -> BTreeSet<String> {
    let text = text(Form::Text);
    let names = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("# TYPE ")?;
        rest.split(' ').next().map(str::to_owned)
    });
    names.collect()
}

/// Words of a text that look like names of metrics.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let words = words.filter(|word| word.starts_with("longshore_"));
    words
        .map(|word| {
            let ended = ["_bucket", "_sum", "_count"];
            let base = ended.iter().find_map(|end| word.strip_suffix(end));
            base.unwrap_or(word).to_owned()
        })
        .collect()
}

#[test]
fn the_documentation_has_every_metric_and_no_other() {
    let page = include_str!("../../../../../docs/operating/metrics.md");
    let names = names();
    let of_server: BTreeSet<String> = names
        .iter()
        .filter(|name| name.starts_with("longshore_"))
        .cloned()
        .collect();
    assert_eq!(mentioned(page), of_server);
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn the_dashboard_uses_metrics_that_are_there() {
    let dashboard = include_str!("../../../../../dist/grafana.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = parsed["panels"].as_array().unwrap();
    assert!(panels.len() > 10);
    let names = names();
    for name in mentioned(dashboard) {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn buckets_of_histograms_add_up_and_end_with_all() {
    let text = text(Form::OpenMetrics);
    let total = "longshore_operation_stage_seconds_bucket{le=\"";
    let counts: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with(total) && line.contains("stage=\"total\""))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), Octaves::bounds_ns().count() + 1);
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!(counts.last(), Some(&30));
    assert!(
        text.contains("le=\"0.000004096\"") || text.contains("le=\"4.096e-6\""),
        "{text}"
    );
}

#[test]
fn what_is_counted_of_clients_and_of_what_is_lost_has_its_labels() {
    let text = text(Form::Text);
    for line in [
        "longshore_logins_total{protocol=\"nvme-tcp\"} 5",
        "longshore_login_failures_total{protocol=\"nvme-tcp\"} 2",
        "longshore_session_ends_total{protocol=\"nvme-tcp\",reason=\"lost\"} 3",
        "longshore_limit_reached_total{limit=\"sessions\"} 4",
        "longshore_log_lines_dropped_total 6",
        "longshore_events_dropped_total 7",
        "longshore_api_requests_total{route=\"/metrics\",method=\"GET\",code=\"200\"} 1",
        "longshore_memory_used_bytes{use=\"payload\"} 0.0",
        "longshore_memory_budget_bytes{use=\"payload\"} 0.0",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
}

#[test]
fn promtool_finds_nothing_wrong() {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = match promtool {
        Ok(promtool) => promtool,
        Err(error) => return println!("SKIPPED: promtool (Debian package prometheus): {error}"),
    };
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(text(Form::Text).as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}
