//! Changes, ranked by what the model says they gain.
//!
//! A change is a row of a table: other values of some parts, and how to make it in the terms of each server and
//! initiator. Its gain is the difference of two predictions with the same draws of uncertain parts. A change is advised
//! where nine tenths of these draws gain more than the *threshold*: the spread of the measurements, and the error of the
//! model at points that it was not fitted to. Where none does, there is a *ceiling* to name instead.

use serde::{Deserialize, Serialize};

use crate::bounds::{limits, peak};
use crate::identify::{self, FitError};
use crate::operation::Operation;
use crate::parameter::{Choice, Key, Parts, Quantity, Source};
use crate::pipeline::depths;
use crate::prediction::{Estimate, differences};
use crate::probe::{Direction, Make, Pattern, PointFacts, Probe, Way};
use crate::verdict::{Verdict, verdict};

/// Rises when a field goes away or changes its meaning.
pub const ADVICE_VERSION: u32 = 1;

/// What is to be faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    pub direction: Direction,
    pub size_bytes: u64,
    pub depth: u16,
}

/// Who makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    Server,
    Initiator,
    Host,
    Workload,
}

impl Place {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Initiator => "initiator",
            Self::Host => "host",
            Self::Workload => "workload",
        }
    }
}

/// A change that is worth something.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    pub id: &'static str,
    pub place: Place,
    pub what: String,
    /// How, in the terms of server, initiator or host.
    pub how: Vec<String>,
    /// The parts with their new values.
    pub changes: Vec<(String, String)>,
    /// Of operations a second.
    pub gain_percent: Estimate,
    pub cost: &'static str,
    pub risk: &'static str,
    pub check: &'static str,
}

/// Why nothing more is to be had.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// What limits, in words.
    pub limit: String,
    /// Operations a second that it allows.
    pub iops: f64,
    /// How near the goal is to that.
    pub reached_percent: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    pub version: u32,
    pub goal: Goal,
    /// Operations a second now, as predicted.
    pub iops: f64,
    /// Gains below are not told from nothing.
    pub threshold_percent: f64,
    /// Ranked by gain, the best one first.
    pub items: Vec<Item>,
    pub ceiling: Ceiling,
}

/// A row of the table: a change that makes sense, before it is known what it gains.
struct Change {
    id: &'static str,
    place: Place,
    what: String,
    how: Vec<String>,
    after: Parts,
    changes: Vec<(String, String)>,
    /// Depth at which it works.
    depth: u16,
    cost: &'static str,
    risk: &'static str,
    check: &'static str,
}

/// The least threshold, in percent.
const THRESHOLD_MIN: f64 = 2.0;

/// A goal for a probe without one: small reads at some depth, or else large writes by themselves.
#[must_use]
pub fn usual_goal(probe: &Probe, direction: Option<Direction>) -> Goal {
    let direction = direction.unwrap_or_else(|| identify::direction(probe));
    let block = probe.subject.block_size.max(1);
    let (size, depth) = match direction {
        Direction::Read => (4096, 4),
        Direction::Write => (256 << 10, 1),
    };
    Goal {
        direction,
        size_bytes: block.max(size),
        depth,
    }
}

/// What would help.
///
/// # Errors
/// The probe has too few points.
pub fn advise(probe: &Probe, goal: &Goal) -> Result<Advice, FitError> {
    let before = identify::parts(probe, goal.direction)?.parts;
    let threshold_percent = threshold(probe, goal);
    let size = goal.size_bytes;
    let mut items = Vec::new();
    for change in changes(probe, &before, goal)? {
        let gain_percent = if change.depth == goal.depth {
            differences(&before, &change.after, &[size], &[goal.depth])[0].iops_percent
        } else {
            deeper(&before, size, goal.depth, change.depth)
        };
        // What is no number is no certain gain either.
        let is_certain = gain_percent.low > 0.0 && gain_percent.value >= threshold_percent;
        if !is_certain {
            continue;
        }
        items.push(Item {
            id: change.id,
            place: change.place,
            what: change.what,
            how: change.how,
            changes: change.changes,
            gain_percent,
            cost: change.cost,
            risk: change.risk,
            check: change.check,
        });
    }
    items.sort_by(|a, b| b.gain_percent.value.total_cmp(&a.gain_percent.value));
    let iops = iops(&before, size, goal.depth);
    Ok(Advice {
        version: ADVICE_VERSION,
        goal: *goal,
        iops,
        threshold_percent,
        items,
        ceiling: ceiling(&before, goal, iops),
    })
}

/// What measurement and model leave open, in percent of operations a second.
fn threshold(probe: &Probe, goal: &Goal) -> f64 {
    let points = probe.points.iter();
    let mut spreads: Vec<f64> = points
        .filter(|it| it.direction == goal.direction)
        .map(|it| 200.0 * it.iops.relative())
        .collect();
    spreads.sort_by(f64::total_cmp);
    let spread = spreads.get(spreads.len() / 2).copied().unwrap_or(0.0);
    let fitted = match goal.direction {
        Direction::Read => probe.fitted.as_ref(),
        Direction::Write => probe.fitted_writes.as_ref(),
    };
    let error = fitted
        .and_then(|it| it.error)
        .map_or(0.0, |it| it.median_percent);
    THRESHOLD_MIN.max(spread).max(error)
}

fn iops(parts: &Parts, size: u64, depth: u16) -> f64 {
    let operation = Operation::new(parts, float(size), f64::from(depth));
    let under_way = f64::from(depth) * parts.get(Key::Connections);
    crate::bounds::amva(&operation, under_way, parts.get(Key::Variation).powi(2))
}

/// What a larger depth gains.
fn deeper(parts: &Parts, size: u64, from: u16, to: u16) -> Estimate {
    let gain = |parts: &Parts| 100.0 * (iops(parts, size, to) / iops(parts, size, from) - 1.0);
    let mut all: Vec<f64> = parts.samples(64).iter().map(gain).collect();
    all.sort_by(f64::total_cmp);
    Estimate {
        value: gain(parts),
        low: all[3],
        high: all[60],
    }
}

fn ceiling(parts: &Parts, goal: &Goal, iops: f64) -> Ceiling {
    let operation = Operation::new(parts, float(goal.size_bytes), f64::from(goal.depth));
    let under_way = f64::from(goal.depth) * parts.get(Key::Connections);
    let limit = match verdict(parts, goal.size_bytes, goal.depth) {
        Verdict::Limit(limit) => limit.name(),
        Verdict::Level(one, other) => format!("{} and {}, level", one.name(), other.name()),
        Verdict::CannotTell(elements) => {
            let names: Vec<&str> = elements.iter().map(|it| it.name()).collect();
            format!("one of {}: the measurements do not tell", names.join(", "))
        }
    };
    let first = limits(&operation, under_way)[0].iops;
    let allowed = first.min(peak(&operation));
    Ceiling {
        limit,
        iops: allowed,
        reached_percent: 100.0 * iops / allowed,
    }
}

/// The set-up with other values. Those values are exact, since they are what is to be done.
fn with(parts: &Parts, values: &[(Key, f64)]) -> Result<(Parts, Vec<(String, String)>), FitError> {
    let mut after = parts.clone();
    let mut named = Vec::new();
    for (key, value) in values {
        let definition = key.definition();
        let quantity = Quantity {
            value: *value,
            uncertainty: 0.0,
            source: Source::Given("advice".to_owned()),
        };
        after.set(*key, quantity)?;
        named.push((
            definition.name.to_owned(),
            definition.unit.show(*value).to_string(),
        ));
    }
    Ok((after, named))
}

/// How a key of iSCSI is set on a server.
fn iscsi_key(make: Make, key: &str, value: u64) -> Vec<String> {
    let dashed = match key {
        "MaxOutstandingR2T" => "max-outstanding-r2t",
        "FirstBurstLength" => "first-burst-length",
        _ => "max-burst-length",
    };
    let server = match make {
        Make::Longshore => format!("server: {dashed} = {value} in [iscsi]"),
        Make::Lio => format!("server: targetcli /iscsi/IQN/tpg1 set parameter {key}={value}"),
        Make::Tgt => {
            format!(
                "server: tgtadm --lld iscsi --op update --mode target --tid N --name {key} --value {value}"
            )
        }
        Make::Scst => format!("server: {key} {value} in scst.conf, attribute of the target"),
        Make::Spdk if key == "MaxOutstandingR2T" => {
            format!("server: iscsi_set_options --max-r2t-per-connection {value}")
        }
        Make::Spdk if key == "FirstBurstLength" => {
            format!("server: iscsi_set_options --first-burst-length {value}")
        }
        Make::Spdk => format!("server: {key} of {value}, where the build allows it"),
        Make::Nvmet | Make::Unknown => format!("server: {key} of {value}"),
    };
    let mut how = vec![
        server,
        format!("initiator: open-iscsi node.session.iscsi.{key} = {value}"),
    ];
    if key == "MaxOutstandingR2T" {
        how.push(
            "initiator: libiscsi (QEMU) offers 1 whatever is set, so it gains nothing".to_owned(),
        );
    }
    how
}

const LOGIN: &str = "log in again; longshore info shows what was negotiated";

/// All changes that make sense for a set-up.
#[allow(clippy::too_many_lines)] // A table.
fn changes(probe: &Probe, parts: &Parts, goal: &Goal) -> Result<Vec<Change>, FitError> {
    let mut all = Vec::new();
    let make = probe.subject.make;
    let size = float(goal.size_bytes);
    let depth = goal.depth;
    let operation = Operation::new(parts, size, f64::from(depth));
    let is_write = goal.direction == Direction::Write;
    let is_iscsi = probe.subject.way == Way::Iscsi;
    let is_remote = probe.network.is_some();
    if is_write && is_iscsi {
        let outstanding = parts.get(Key::MaxOutstandingR2t);
        let enough = operation
            .enough_r2ts
            .unwrap_or(0)
            .min(operation.r2ts)
            .min(64);
        let enough = u32::try_from(enough).unwrap_or(64);
        if f64::from(enough) > outstanding {
            let (after, changes) = with(parts, &[(Key::MaxOutstandingR2t, enough.into())])?;
            all.push(Change {
                id: "outstanding-r2ts",
                place: Place::Server,
                what: format!("let {enough} R2Ts of a write be outstanding, not {outstanding:.0}"),
                how: iscsi_key(make, "MaxOutstandingR2T", enough.into()),
                after,
                changes,
                depth,
                cost: "buffers for as many bursts of each write",
                risk: "none known; old initiators offer 1 and stay there",
                check: LOGIN,
            });
        }
        let unsolicited = parts.get(Key::FirstBurst);
        if operation.r2ts > 0 && size <= f64::from(16_777_215_u32) && unsolicited < size {
            let burst = parts.get(Key::MaxBurst).max(size);
            let (mut after, mut changes) =
                with(parts, &[(Key::FirstBurst, size), (Key::MaxBurst, burst)])?;
            after.choose(Choice::InitialR2t, "no")?;
            changes.push(("initial-r2t".to_owned(), "no".to_owned()));
            let mut how = iscsi_key(make, "FirstBurstLength", goal.size_bytes);
            if burst > parts.get(Key::MaxBurst) {
                how.extend(iscsi_key(make, "MaxBurstLength", goal.size_bytes));
            }
            how.push("both: InitialR2T = No, ImmediateData = Yes".to_owned());
            all.push(Change {
                id: "first-burst",
                place: Place::Server,
                what: "send the data of such a write without being asked".to_owned(),
                how,
                after,
                changes,
                depth,
                cost: "the server takes so much of every write before it has room for it",
                risk: "with many initiators, memory of the server; it then stops reading",
                check: LOGIN,
            });
        }
        let burst = parts.get(Key::MaxBurst);
        if operation.r2ts > 1 && burst < size {
            let bytes = goal.size_bytes.min(16_777_215);
            let (after, changes) = with(parts, &[(Key::MaxBurst, float(bytes))])?;
            all.push(Change {
                id: "max-burst",
                place: Place::Server,
                what: "ask for all data of such a write at once".to_owned(),
                how: iscsi_key(make, "MaxBurstLength", bytes),
                after,
                changes,
                depth,
                cost: "a buffer of that size for each write under way",
                risk: "one write keeps the link for longer, so that others wait",
                check: LOGIN,
            });
        }
    }
    if is_write && !is_iscsi && operation.r2ts > 0 && size <= 262_144.0 {
        // The unit of IOCCSZ.
        let bytes = goal.size_bytes.next_multiple_of(16);
        let (after, changes) = with(parts, &[(Key::InCapsule, float(bytes))])?;
        all.push(Change {
            id: "in-capsule-data",
            place: Place::Server,
            what: "take the data of such a write in the capsule of its command".to_owned(),
            how: vec![match make {
                Make::Longshore => format!("server: in-capsule-data = {bytes} in [limits]"),
                Make::Nvmet => format!("server: echo {bytes} > ports/N/param_inline_data_size (at most 16384 in older kernels)"),
                Make::Spdk => format!("server: nvmf_create_transport -t TCP --in-capsule-data-size {bytes}"),
                _ => format!("server: IOCCSZ for {bytes} bytes of data in a capsule"),
            }],
            after,
            changes,
            depth,
            cost: "so much memory for each entry of each queue",
            risk: "hosts have limits of their own and may go on to wait for an R2T",
            check: "connect again; longshore info shows the in-capsule data",
        });
    }
    if is_remote && parts.get(Key::Mtu) <= 1500.0 {
        let (after, changes) = with(parts, &[(Key::Mtu, 9000.0)])?;
        all.push(Change {
            id: "jumbo-frames",
            place: Place::Host,
            what: "use packets of 9000 bytes on the whole way".to_owned(),
            how: vec!["both hosts and every switch: ip link set dev DEVICE mtu 9000".to_owned()],
            after,
            changes,
            depth,
            cost: "all machines of the network segment change",
            risk: "a switch with a smaller MTU drops packets in silence: connections hang",
            check: "ping -M do -s 8972 SERVER",
        });
    }
    if is_remote {
        wake_ups(&mut all, probe, parts, depth)?;
    }
    let connections = parts.get(Key::Connections);
    let cores = probe.server.as_ref().map_or(0, |server| server.cores);
    if is_remote && cores > 1 && probe.client.cpus > 1 {
        let more = f64::from(cores.min(probe.client.cpus));
        if more > connections {
            let (after, changes) = with(parts, &[(Key::Connections, more)])?;
            let how = if is_iscsi {
                format!(
                    "initiator: open-iscsi node.session.nr_sessions = {more:.0}, with multipath"
                )
            } else {
                format!("initiator: nvme connect --nr-io-queues={more:.0}")
            };
            all.push(Change {
                id: "more-connections",
                place: Place::Initiator,
                what: format!("use {more:.0} connections, each with {depth} operations under way"),
                how: vec![how],
                after,
                changes,
                depth,
                cost: "memory of the queues; a device for each path with iSCSI",
                risk: "operations on different connections may pass each other",
                check: "longshore session list on the server",
            });
        }
    }
    if let Some(knee) = depths(parts, goal.size_bytes).get(1).copied() {
        let to = knee.min(256);
        if to > depth {
            all.push(Change {
                id: "depth",
                place: Place::Workload,
                what: format!("keep {to} operations under way, not {depth}"),
                how: vec![
                    "application: asynchronous I/O or more threads; fio --iodepth".to_owned(),
                ],
                after: parts.clone(),
                changes: vec![("depth".to_owned(), to.to_string())],
                depth: to,
                cost: "each operation waits for others, so single ones take longer",
                risk: "none, if the application has so much to do at once",
                check: "longshore bench with that --iodepth",
            });
        }
    }
    Ok(all)
}

/// What is left of a wake-up where a thread polls, in microseconds.
const POLLED_US: f64 = 1.0;

fn wake_ups(
    all: &mut Vec<Change>,
    probe: &Probe,
    parts: &Parts,
    depth: u16,
) -> Result<(), FitError> {
    // Polling needs a processor for each end; two ends on one machine share it.
    let is_loopback = probe
        .subject
        .portal
        .as_deref()
        .is_some_and(|portal| portal.starts_with("127.") || portal.starts_with("[::1]"));
    if parts.get(Key::ServerWakeUp) > 2.0 * POLLED_US && !is_loopback {
        let (after, changes) = with(parts, &[(Key::ServerWakeUp, POLLED_US)])?;
        let how = match probe.subject.make {
            Make::Longshore => "server: spin = 200 in [engine]",
            Make::Spdk => "server: it polls already; give its reactor a core of its own",
            Make::Lio | Make::Scst | Make::Nvmet => {
                "server: sysctl net.core.busy_read=50; cpupower idle-set -D 10"
            }
            Make::Tgt | Make::Unknown => "server: cpupower idle-set -D 10",
        };
        all.push(Change {
            id: "server-polls",
            place: Place::Server,
            what: "let the server poll before it sleeps".to_owned(),
            how: vec![how.to_owned()],
            after,
            changes,
            depth,
            cost: "a core is busy while there is a load",
            risk: "other programs on that core get less of it",
            check: "longshore probe: the round trip every 2 ms gets shorter",
        });
    }
    if parts.get(Key::ClientWakeUp) > 2.0 * POLLED_US && !is_loopback {
        let (after, changes) = with(parts, &[(Key::ClientWakeUp, POLLED_US)])?;
        all.push(Change {
            id: "client-polls",
            place: Place::Host,
            what: "let the client poll for answers".to_owned(),
            how: vec![
                "client: sysctl net.core.busy_read=50 net.core.busy_poll=50; cpupower idle-set -D 10"
                    .to_owned(),
                "NVMe: nvme connect --nr-poll-queues=N, with io_uring and fio --hipri".to_owned(),
            ],
            after,
            changes,
            depth,
            cost: "a core is busy while there is a load",
            risk: "other programs on that core get less of it",
            check: "longshore probe: the round trip every 2 ms gets shorter",
        });
    }
    Ok(())
}

/// What a change has achieved.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub id: &'static str,
    pub predicted_percent: Estimate,
    /// None: the two probes have no load in common from which it could be told.
    pub achieved_percent: Option<f64>,
    /// Whether the parts that the advice wanted changed have the values it wanted.
    pub is_followed: bool,
    /// Achieved and predicted are no more than 10 points apart, or the interval holds what was achieved.
    pub agrees: Option<bool>,
}

/// Points of a gain that prediction and outcome may differ.
const AGREES: f64 = 10.0;

/// Holds the advice for an earlier probe against a later one.
///
/// # Errors
/// One of the probes has too few points.
pub fn check(before: &Probe, after: &Probe, goal: &Goal) -> Result<Vec<Checked>, FitError> {
    let advice = advise(before, goal)?;
    let parts_after = identify::parts(after, goal.direction)?.parts;
    let checked = advice.items.into_iter().map(|item| {
        let deeper = item.changes.iter().find(|(name, _)| name == "depth");
        let deeper = deeper.and_then(|(_, depth)| depth.parse::<u16>().ok());
        let to = Goal {
            depth: deeper.unwrap_or(goal.depth),
            ..*goal
        };
        let (is_followed, achieved_percent) = if deeper.is_some() {
            let achieved = achieved(before, goal, after, &to);
            (achieved.is_some(), achieved)
        } else if follows(&parts_after, &item.changes) {
            (true, achieved(before, goal, after, &to))
        } else {
            (false, None)
        };
        let agrees = achieved_percent.map(|achieved| {
            let gain = item.gain_percent;
            (gain.low..=gain.high).contains(&achieved) || (achieved - gain.value).abs() <= AGREES
        });
        Checked {
            id: item.id,
            predicted_percent: item.gain_percent,
            achieved_percent,
            is_followed,
            agrees,
        }
    });
    Ok(checked.collect())
}

/// Whether the parts have the values that were wanted, or better ones: every change but that of a wake-up makes more of
/// something.
fn follows(parts: &Parts, changes: &[(String, String)]) -> bool {
    changes.iter().all(|(name, value)| {
        let mut wanted = parts.clone();
        if wanted
            .change(name, value, Source::Given(String::new()))
            .is_err()
        {
            return false;
        }
        match crate::parameter::Name::find(name) {
            Ok(crate::parameter::Name::Key(key)) => {
                let (has, wants) = (parts.get(key), wanted.get(key));
                if name.ends_with("wake-up") {
                    has < 5.0 * POLLED_US
                } else {
                    has >= wants * 0.99
                }
            }
            Ok(crate::parameter::Name::Choice(choice)) => parts.word(choice) == wanted.word(choice),
            _ => false,
        }
    })
}

/// What measurements of the same load, or of the deeper one, differ by.
fn achieved(before: &Probe, goal: &Goal, after: &Probe, to: &Goal) -> Option<f64> {
    let of = |probe: &Probe, goal: &Goal| {
        let mut points = probe.points.iter();
        let is_it = |point: &&PointFacts| {
            let has = (point.direction, point.size_bytes, point.depth);
            has == (goal.direction, goal.size_bytes, goal.depth) && point.pattern == Pattern::Random
        };
        points.find(is_it).map(|point| point.iops.value)
    };
    Some(100.0 * (of(after, to)? / of(before, goal)? - 1.0))
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations.
fn float(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Fitted, NetworkFacts, Parameter, SourceKind, Subject};
    use crate::spread::{Distribution, Spread};

    /// A fitted probe with these parts; their uncertainty is a hundredth of them.
    fn probe(parts: &[(&str, f64)], negotiated: &[(&str, &str)]) -> Probe {
        let parameter = |(name, value): &(&str, f64)| Parameter {
            name: (*name).to_owned(),
            value: *value,
            uncertainty: value * 0.01,
            source: SourceKind::Measured,
            identified: true,
            ..Parameter::default()
        };
        let fitted = Fitted {
            parameters: parts.iter().map(parameter).collect(),
            ..Fitted::default()
        };
        Probe {
            version: 1,
            subject: Subject {
                name: "iscsi://192.0.2.1/iqn.2026-01.example:a/0".to_owned(),
                portal: Some("192.0.2.1:3260".to_owned()),
                block_size: 512,
                volume_bytes: 1 << 30,
                make: Make::Lio,
                ..Subject::default()
            },
            network: Some(NetworkFacts {
                ping_us: Distribution::of(&[100.0; 50]),
                mtu: Some(9000),
                ..NetworkFacts::default()
            }),
            negotiated: negotiated
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fitted: Some(fitted.clone()),
            fitted_writes: Some(fitted),
            ..Probe::default()
        }
    }

    const LINK: [(&str, f64); 5] = [
        ("one-way-latency", 1500.0),
        ("rate", 75e6),
        ("server-cpu-per-op", 10.0),
        ("client-cpu-per-op", 10.0),
        ("storage-access-time", 100.0),
    ];

    const R2TS: [(&str, &str); 4] = [
        ("FirstBurstLength", "65536"),
        ("MaxBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("InitialR2T", "No"),
    ];

    fn goal(direction: Direction, size_bytes: u64, depth: u16) -> Goal {
        Goal {
            direction,
            size_bytes,
            depth,
        }
    }

    #[test]
    fn more_r2ts_are_advised_where_writes_wait_for_them_in_the_terms_of_the_server() {
        let probe = probe(&LINK, &R2TS);
        let advice = advise(&probe, &goal(Direction::Write, 2 << 20, 1)).unwrap();
        let item = advice.items.iter().find(|it| it.id == "outstanding-r2ts");
        let item = item.unwrap_or_else(|| panic!("{advice:?}"));
        assert!(item.how[0].contains("targetcli"), "{item:?}");
        assert!(item.how.iter().any(|how| how.contains("open-iscsi")));
        // 18 of 22 latencies of 1.5 ms go away, beside 28 ms on the wire.
        assert!((50.0..90.0).contains(&item.gain_percent.value), "{item:?}");
        assert!(advice.items.iter().any(|it| it.id == "first-burst"));
        // Reads have no R2Ts.
        let reads = advise(&probe, &goal(Direction::Read, 2 << 20, 1)).unwrap();
        assert!(reads.items.iter().all(|it| it.id != "outstanding-r2ts"));
    }

    #[test]
    fn no_change_is_advised_where_the_medium_is_the_limit() {
        let mut parts = LINK;
        parts[0].1 = 20.0;
        parts[4].1 = 5000.0;
        let probe = probe(&parts, &R2TS);
        for depth in [16, 64] {
            let advice = advise(&probe, &goal(Direction::Read, 4096, depth)).unwrap();
            assert_eq!(advice.items, [], "{advice:?}");
            assert_eq!(advice.ceiling.limit, "storage");
            assert!(advice.ceiling.reached_percent > 95.0, "{advice:?}");
        }
        // What is uncertain is no advice.
        let mut vague = probe.clone();
        for parameter in &mut vague.fitted.as_mut().unwrap().parameters {
            parameter.uncertainty = parameter.value;
        }
        let advice = advise(&vague, &goal(Direction::Read, 4096, 16)).unwrap();
        assert!(advice.items.iter().all(|it| it.gain_percent.low > 0.0));
    }

    #[test]
    fn the_gain_of_a_change_is_that_of_the_model_with_its_values() {
        let before = probe(&LINK, &R2TS);
        let goal = goal(Direction::Write, 1 << 20, 1);
        let mut after = before.clone();
        after
            .negotiated
            .insert("MaxOutstandingR2T".to_owned(), "3".to_owned());
        let iops_of = |probe: &Probe| {
            let parts = identify::parts(probe, Direction::Write).unwrap().parts;
            iops(&parts, goal.size_bytes, goal.depth)
        };
        let (slow, fast) = (iops_of(&before), iops_of(&after));
        let with = |mut probe: Probe, iops: f64| {
            let spread = |value| Spread {
                value,
                uncertainty: 0.0,
                rounds: 3,
            };
            probe.points.push(PointFacts {
                direction: goal.direction,
                size_bytes: goal.size_bytes,
                depth: 1,
                connections: 1,
                iops: spread(iops),
                latency_us: spread(1e6 / iops),
                ..PointFacts::default()
            });
            probe
        };
        let (before, after) = (with(before, slow), with(after, fast));
        let checked = check(&before, &after, &goal).unwrap();
        let followed: Vec<&Checked> = checked.iter().filter(|it| it.is_followed).collect();
        let [followed] = followed[..] else {
            panic!("{checked:?}")
        };
        assert_eq!(
            (followed.id, followed.agrees),
            ("outstanding-r2ts", Some(true))
        );
        let achieved = followed.achieved_percent.unwrap();
        assert!(
            (achieved - followed.predicted_percent.value).abs() < 0.5,
            "{followed:?}"
        );
    }
}
