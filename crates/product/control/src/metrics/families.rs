//! Which metrics there are. `docs/operating/metrics.md` lists them.

use std::collections::BTreeMap;

use longshore_api::object::{Object, ObjectState};
use longshore_api::pool::{Pool, PoolSideState, PoolState, PoolUsage};
use longshore_server::observe::{Octaves, ProtocolClients, ShardStatistics, VolumeCounts};
use serde_json::Value as Json;

use super::family::{Family, Labels, Value};
use super::sources::Sources;
use crate::app::STREAMS_MAX;
use crate::requests::{BOUNDS, bound};

/// All families with what was collected.
pub(super) fn families(sources: &Sources<'_>) -> Vec<Family> {
    let mut families = server(sources);
    families.extend(process(sources));
    families.extend(volumes(sources));
    families.extend(pools(sources));
    families.push(stages(sources));
    families.extend(sessions(sources));
    families.extend(clients(sources));
    families.extend(reactors(sources));
    families.extend(memory(sources));
    families.extend(reports(sources));
    families.extend(api(sources));
    families
}

#[allow(clippy::cast_precision_loss)] // Prometheus keeps 53 bits.
fn gauge(value: u64) -> Value {
    Value::Gauge(value as f64)
}

fn size(value: usize) -> Value {
    gauge(value as u64)
}

#[allow(clippy::cast_precision_loss)]
fn seconds_of_ns(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[allow(clippy::cast_precision_loss)]
fn seconds_of_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}

fn is(value: bool) -> Value {
    gauge(u64::from(value))
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn server(sources: &Sources<'_>) -> Vec<Family> {
    let status = &sources.collected.status;
    let labels = vec![
        ("version", status.version.clone()),
        ("engine", status.engine.clone()),
    ];
    let sampling = &sources.collected.statistics.sampling;
    let ratio = match sampling.one_in {
        0 => 0.0,
        one_in => 1.0 / f64::from(one_in),
    };
    vec![
        Family::new("longshore_build_info", "Version and engine; always 1").with(labels, gauge(1)),
        Family::new("longshore_config_revision", "Revision of the configuration")
            .with(Vec::new(), gauge(status.revision.0)),
        Family::new(
            "longshore_config_restart_pending",
            "Whether settings wait for the next start",
        )
        .with(Vec::new(), is(!status.needs_restart.is_empty())),
        Family::new(
            "longshore_config_last_apply_successful",
            "Whether the last change since the start was carried out; absent before the first",
        )
        .each(sources.last_change, |it| (Vec::new(), is(it.is_done))),
        Family::new(
            "longshore_config_last_apply_timestamp_seconds",
            "When that was, in seconds since 1970",
        )
        .each(sources.last_change, |it| {
            (Vec::new(), Value::Gauge(seconds_of_ms(it.time_ms)))
        }),
        Family::new("longshore_alive", "Whether every event loop answers")
            .with(Vec::new(), is(status.health.alive)),
        Family::new("longshore_ready", "Whether the server accepts connections and serves all enabled objects")
            .with(Vec::new(), is(status.health.ready)),
        Family::new(
            "longshore_operation_sample_ratio",
            "Part of all operations that operation_stage_seconds follows",
        )
        .with(Vec::new(), Value::Gauge(ratio)),
        Family::new(
            "longshore_operation_samples_beyond",
            "Operations that were followed and are not in operation_stage_seconds, whose table was full",
        )
        .with(Vec::new(), Value::Counter(sampling.beyond)),
    ]
}

/// The standard names of client libraries.
fn process(sources: &Sources<'_>) -> Vec<Family> {
    let process = &sources.collected.process;
    let started = seconds_of_ms(sources.collected.status.started_ms);
    let entries = [
        (
            "process_cpu_seconds",
            "Processor time of the process",
            process.cpu_seconds.map(Value::Seconds),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory of the process",
            process.resident_bytes.map(gauge),
        ),
        (
            "process_open_fds",
            "Open file descriptors",
            process.open_descriptors.map(gauge),
        ),
        (
            "process_max_fds",
            "Limit of open file descriptors",
            process.max_descriptors.map(gauge),
        ),
        (
            "process_start_time_seconds",
            "When the process started, in seconds since 1970",
            Some(Value::Gauge(started)),
        ),
    ];
    entries
        .into_iter()
        .filter_map(|(name, help, value)| Some(Family::new(name, help).with(Vec::new(), value?)))
        .collect()
}

fn volumes(sources: &Sources<'_>) -> Vec<Family> {
    let volumes = &sources.collected.volumes;
    let text = |value: Option<&Json>| match value {
        Some(Json::String(text)) => text.clone(),
        _ => String::new(),
    };
    let name = |object: &Object| label("volume", &object.id.name);
    let counts = &sources.collected.statistics.volumes;
    let counter = |name, help, value: fn(&VolumeCounts) -> u64| {
        Family::new(name, help).each(counts, |it: &VolumeCounts| {
            (label("volume", &it.name), Value::Counter(value(it)))
        })
    };
    vec![
        Family::new(
            "longshore_volume_info",
            "Backend and UUID of a volume; always 1",
        )
        .each(volumes, |it| {
            let mut labels = name(it);
            labels.push(("backend", text(it.keys.get("backend"))));
            labels.push(("uuid", text(it.facts.get("uuid"))));
            (labels, gauge(1))
        }),
        Family::new("longshore_volume_size_bytes", "Size of a volume").each(
            volumes.iter().filter_map(|it| {
                let bytes = it.facts.get("size-bytes").and_then(Json::as_u64)?;
                Some((it, bytes))
            }),
            |(it, bytes)| (name(it), gauge(bytes)),
        ),
        Family::new("longshore_volume_up", "Whether a volume is served")
            .each(volumes, |it| (name(it), is(it.state == ObjectState::Up))),
        Family::new(
            "longshore_volume_failed",
            "Whether a volume may have lost what was written to it",
        )
        .each(volumes, |it| {
            (name(it), is(it.state == ObjectState::Failed))
        }),
        counter(
            "longshore_volume_reads_completed",
            "Commands that read data",
            |it| it.reads,
        ),
        counter(
            "longshore_volume_writes_completed",
            "Commands that write data",
            |it| it.writes,
        ),
        counter(
            "longshore_volume_read_bytes",
            "Bytes that were read",
            |it| it.read_bytes,
        ),
        counter(
            "longshore_volume_written_bytes",
            "Bytes that were written",
            |it| it.written_bytes,
        ),
        counter(
            "longshore_volume_errors",
            "Operations that the medium failed",
            |it| it.errors,
        ),
        counter(
            "longshore_volume_delayed_operations",
            "Operations that the limits of their volume had wait",
            |it| it.delayed,
        ),
        Family::new(
            "longshore_volume_delay_seconds",
            "How long the limits of a volume had operations wait, together",
        )
        .each(counts, |it| {
            let seconds = seconds_of_ns(it.delayed_ns);
            (label("volume", &it.name), Value::Seconds(seconds))
        }),
        volume_limits(counts),
    ]
}

/// Limits of volumes that have any.
fn volume_limits(counts: &[VolumeCounts]) -> Family {
    let limits = counts.iter().flat_map(|it| {
        let limits = &it.limits;
        let kinds = [
            ("iops", limits.iops),
            ("read-iops", limits.read_iops),
            ("write-iops", limits.write_iops),
            ("bytes", limits.bytes),
            ("read-bytes", limits.read_bytes),
            ("write-bytes", limits.write_bytes),
        ];
        let set = kinds.into_iter();
        set.filter_map(|(kind, limit)| Some((&it.name, kind, limit?)))
    });
    let help = "What the clients of a volume together may do in a second";
    Family::new("longshore_volume_limit", help).each(limits, |(name, kind, limit)| {
        let mut labels = label("volume", name);
        labels.push(("kind", kind.to_owned()));
        (labels, gauge(limit))
    })
}

/// Pools that are open, and the volumes in them.
fn pools(sources: &Sources<'_>) -> Vec<Family> {
    let pools = &sources.collected.pools;
    let usages = || pools.iter().filter_map(|it| Some((it, it.usage.as_ref()?)));
    let name = |pool: &Pool| label("pool", &pool.name);
    let bytes = |family, help, value: fn(&PoolUsage) -> u64| {
        Family::new(family, help).each(usages(), |(pool, usage)| (name(pool), gauge(value(usage))))
    };
    let counter = |family, help, value: fn(&PoolUsage) -> u64| {
        Family::new(family, help).each(usages(), |(pool, usage)| {
            (name(pool), Value::Counter(value(usage)))
        })
    };
    let volumes = || {
        pools.iter().flat_map(|pool| {
            let volumes = pool.volumes.iter();
            volumes.map(move |volume| (pool, volume))
        })
    };
    vec![
        Family::new(
            "longshore_pool_failed",
            "Whether a pool takes no more writes, because a write or sync failed",
        )
        .each(pools, |pool| {
            (name(pool), is(pool.state == PoolState::Failed))
        }),
        Family::new(
            "longshore_pool_stale_sides",
            "Sides of a pool's mirrors that have not all data: missing, failed, left out or being filled",
        )
        .each(pools, |pool| {
            let mut stale = 0;
            for side in &pool.mirrors {
                stale += u64::from(side.state != PoolSideState::Current);
            }
            (name(pool), gauge(stale))
        }),
        bytes("longshore_pool_size_bytes", "Size of a pool", |it| {
            it.size_bytes
        }),
        bytes(
            "longshore_pool_capacity_bytes",
            "Data that a pool has room for",
            |it| it.capacity_bytes,
        ),
        bytes(
            "longshore_pool_used_bytes",
            "Data in a pool, compressed",
            |it| it.used_bytes,
        ),
        bytes(
            "longshore_pool_reserved_bytes",
            "What is kept in a pool for volumes with reserved space, beside their data",
            |it| it.reserved_bytes,
        ),
        bytes(
            "longshore_pool_map_bytes",
            "Memory of the maps of a pool",
            |it| it.map_bytes,
        ),
        counter(
            "longshore_pool_host_bytes",
            "Bytes that hosts have written since a pool was opened",
            |it| it.host_bytes,
        ),
        counter(
            "longshore_pool_record_bytes",
            "Bytes that these writes, and moving old data, took on the drives",
            |it| it.record_bytes,
        ),
        Family::new(
            "longshore_pool_volume_owned_bytes",
            "Bytes of a pool that deleting a volume would free",
        )
        .each(volumes(), |(pool, volume)| {
            let mut labels = name(pool);
            labels.push(("volume", volume.name.clone()));
            (labels, gauge(volume.owned_bytes))
        }),
        Family::new(
            "longshore_pool_volume_reserve_bytes",
            "Bytes of a pool that are kept for a volume",
        )
        .each(volumes(), |(pool, volume)| {
            let mut labels = name(pool);
            labels.push(("volume", volume.name.clone()));
            (labels, gauge(volume.reserve_bytes.unwrap_or(0)))
        }),
        Family::new(
            "longshore_pool_snapshots",
            "Snapshots of a volume of a pool",
        )
        .each(volumes(), |(pool, volume)| {
            let mut labels = name(pool);
            labels.push(("volume", volume.name.clone()));
            (labels, size(volume.snapshots.len()))
        }),
    ]
}

/// Where the time of operations went, over all sizes.
fn stages(sources: &Sources<'_>) -> Family {
    let mut sums: BTreeMap<(&str, &str, &str, &str), Octaves> = BTreeMap::new();
    for kind in &sources.collected.statistics.stages {
        let (protocol, direction) = (kind.protocol.name(), kind.direction.name());
        let names = kind.by_name().map(|(name, _)| name);
        for (stage, octaves) in names.into_iter().zip(&kind.octaves) {
            let key = (kind.volume.as_str(), protocol, direction, stage);
            sums.entry(key).or_default().add(octaves);
        }
    }
    let help = "Time between two stages of an operation, and the whole (stage=\"total\"); of a sample, so that _count is \
                no number of operations";
    Family::new("longshore_operation_stage_seconds", help).each(
        sums,
        |((volume, protocol, direction, stage), octaves)| {
            let labels = vec![
                ("volume", volume.to_owned()),
                ("protocol", protocol.to_owned()),
                ("direction", direction.to_owned()),
                ("stage", stage.to_owned()),
            ];
            (labels, histogram(&octaves))
        },
    )
}

fn histogram(octaves: &Octaves) -> Value {
    let mut before = 0;
    let bounds = Octaves::bounds_ns().zip(octaves.below);
    let mut buckets: Vec<(f64, u64)> = bounds
        .map(|(bound_ns, below)| {
            let within = below - before;
            before = below;
            (seconds_of_ns(bound_ns), within)
        })
        .collect();
    buckets.push((f64::INFINITY, octaves.count - before));
    Value::Histogram {
        sum: seconds_of_ns(octaves.sum_ns),
        count: octaves.count,
        buckets,
    }
}

fn sessions(sources: &Sources<'_>) -> Vec<Family> {
    let mut sessions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for session in &sources.collected.sessions {
        let key = (session.target.as_str(), session.protocol.as_str());
        *sessions.entry(key).or_default() += 1;
    }
    let mut connections = BTreeMap::from([("iscsi", 0), ("nvme-tcp", 0)]);
    for connection in &sources.collected.statistics.connections {
        *connections.entry(connection.protocol.name()).or_default() += 1;
    }
    vec![
        Family::new(
            "longshore_sessions",
            "Sessions of initiators, and controllers of hosts",
        )
        .each(sessions, |((target, protocol), count)| {
            let mut labels = label("target", target);
            labels.push(("protocol", protocol.to_owned()));
            (labels, gauge(count))
        }),
        Family::new("longshore_connections", "Open connections")
            .each(connections, |(protocol, count)| {
                (label("protocol", protocol), gauge(count))
            }),
    ]
}

/// Logins, ends of sessions, limits.
fn clients(sources: &Sources<'_>) -> Vec<Family> {
    let clients = &sources.collected.statistics.clients;
    let protocol = |it: &ProtocolClients| label("protocol", it.protocol.name());
    let counter = |name, help, value: fn(&ProtocolClients) -> u64| {
        let family = Family::new(name, help);
        family.each(&clients.protocols, |it| {
            (protocol(it), Value::Counter(value(it)))
        })
    };
    let ends = clients.protocols.iter().flat_map(|it| {
        let ends = it.ends.iter();
        ends.map(move |end| (it, end))
    });
    vec![
        counter(
            "longshore_logins",
            "Sessions of initiators and controllers of hosts that began",
            |it| it.logins,
        ),
        counter(
            "longshore_login_failures",
            "Logins and Connects that were refused or went wrong",
            |it| it.login_failures,
        ),
        Family::new(
            "longshore_session_ends",
            "Sessions of initiators and controllers of hosts that ended, by the reason",
        )
        .each(ends, |(it, end)| {
            let mut labels = protocol(it);
            labels.push(("reason", end.name.to_owned()));
            (labels, Value::Counter(end.count))
        }),
        Family::new(
            "longshore_limit_reached",
            "How often a client wanted what there was no more of",
        )
        .each(&clients.limits, |it| {
            (label("limit", it.name), Value::Counter(it.count))
        }),
    ]
}

fn reactors(sources: &Sources<'_>) -> Vec<Family> {
    let shards = &sources.collected.statistics.shards;
    let labels = |it: &ShardStatistics| label("reactor", it.shard);
    let counter = |name, help, value: fn(&ShardStatistics) -> u64| {
        Family::new(name, help).each(shards, |it| (labels(it), Value::Counter(value(it))))
    };
    let mut times = Family::new(
        "longshore_reactor_seconds",
        "Where the time of an event loop's thread went",
    );
    let mut operations = Family::new(
        "longshore_reactor_operations",
        "Commands of every kind that arrived",
    );
    for shard in shards {
        let of = &shard.times;
        for (state, ns) in [
            ("working", of.working_ns),
            ("polling", of.polling_ns),
            ("waiting", of.waiting_for_core_ns),
            ("asleep", of.asleep_ns),
        ] {
            let mut labels = labels(shard);
            labels.push(("state", state.to_owned()));
            times = times.with(labels, Value::Seconds(seconds_of_ns(ns)));
        }
        for (protocol, count) in [
            ("iscsi", shard.counters.operations_iscsi),
            ("nvme-tcp", shard.counters.operations_nvme),
        ] {
            let mut labels = labels(shard);
            labels.push(("protocol", protocol.to_owned()));
            operations = operations.with(labels, Value::Counter(count));
        }
    }
    vec![
        Family::new("longshore_reactor_up", "Whether an event loop answers")
            .each(shards, |it| (labels(it), is(it.answered))),
        times,
        operations,
        counter("longshore_reactor_turns", "Turns of an event loop", |it| {
            it.counters.turns
        }),
        counter(
            "longshore_reactor_system_calls",
            "System calls of an event loop: sockets, files, engine and helper threads",
            system_calls,
        ),
        counter(
            "longshore_reactor_copied_bytes",
            "Bytes that the server itself copied",
            copied_bytes,
        ),
        counter(
            "longshore_reactor_moves",
            "Connections that came from other event loops",
            |it| it.counters.moved_in,
        ),
    ]
}

/// The same sum as the report's `system_calls_per_operation`.
fn system_calls(shard: &ShardStatistics) -> u64 {
    let of = &shard.counters;
    let sockets = of.receives + of.receives_empty + of.sends + of.sends_blocked + of.option_calls;
    let files = of.attempt_calls + of.page_calls;
    sockets + files + shard.engine.system_calls + shard.engine.helper_operations
}

fn copied_bytes(shard: &ShardStatistics) -> u64 {
    let of = &shard.counters;
    of.copied_data_out_bytes + of.copied_transmit_bytes + of.bounced_bytes + of.copied_volume_bytes
}

fn memory(sources: &Sources<'_>) -> Vec<Family> {
    let memory = &sources.collected.statistics.memory;
    let budgets = [
        ("payload", memory.budget_bytes),
        ("transmit", memory.transmit_budget_bytes),
        ("registered", memory.registered_budget_bytes),
    ];
    let used = [
        ("payload", memory.used_bytes),
        ("payload_kept", memory.kept_bytes),
        ("transmit", memory.transmit_bytes),
        ("tasks", memory.task_bytes),
        ("receive_buffers", memory.receive_buffer_bytes),
        ("registered", memory.registered_bytes),
    ];
    let by_use = |(kind, bytes)| (label("use", kind), size(bytes));
    vec![
        Family::new(
            "longshore_memory_budget_bytes",
            "Limits of memory for what peers read and write, by use",
        )
        .each(budgets, by_use),
        Family::new(
            "longshore_memory_used_bytes",
            "Memory for what peers read and write, by use",
        )
        .each(used, by_use),
    ]
}

/// What the server could not tell those who listen to it.
fn reports(sources: &Sources<'_>) -> Vec<Family> {
    let counter =
        |name, help, value| Family::new(name, help).with(Vec::new(), Value::Counter(value));
    vec![
        counter(
            "longshore_log_lines_dropped",
            "Lines of the log that were lost because nothing read standard error in time",
            sources.log_lines_dropped,
        ),
        counter(
            "longshore_events_dropped",
            "Events that streams came too late for",
            sources.events_dropped,
        ),
    ]
}

fn api(sources: &Sources<'_>) -> Vec<Family> {
    let labels = |kind: &crate::requests::RequestKind| {
        vec![
            ("route", kind.route.to_owned()),
            ("method", kind.method.to_owned()),
            ("code", kind.code.to_string()),
        ]
    };
    vec![
        Family::new("longshore_api_requests", "Requests to the API")
            .each(&sources.requests, |(kind, times)| {
                (labels(kind), Value::Counter(times.count))
            }),
        Family::new(
            "longshore_api_request_seconds",
            "Requests to the API, by their time",
        )
        .each(&sources.requests, |(kind, times)| {
            let mut buckets: Vec<(f64, u64)> = (0..BOUNDS)
                .map(|place| (bound(place).as_secs_f64(), times.buckets[place]))
                .collect();
            let within: u64 = times.buckets.iter().sum();
            buckets.push((f64::INFINITY, times.count - within));
            let value = Value::Histogram {
                sum: times.sum.as_secs_f64(),
                count: times.count,
                buckets,
            };
            (labels(kind), value)
        }),
        Family::new("longshore_api_streams", "Streams of events that are open")
            .with(Vec::new(), size(sources.streams)),
        Family::new("longshore_api_streams_max", "Limit of streams of events")
            .with(Vec::new(), size(STREAMS_MAX)),
    ]
}
