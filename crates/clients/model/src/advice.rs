//! Changes, ranked by what the model says they gain.
//!
//! A change is a row of a table: other values of some parts, and how to make it in the terms of each server and
//! initiator. Its gain is the difference of two predictions with the same draws of uncertain parts. A change is advised
//! where it gains at least the *threshold*: the spread of the measurements, and the error of the model at points that it
//! was not fitted to; and where nineteen of twenty draws gain at all. Where none does, there is a *ceiling* to name instead.

mod change;
mod host;
mod protocol;
mod terms;
mod workload;

use serde::Serialize;

use crate::bounds::{limits, peak};
use crate::identify::{self, FitError};
use crate::operation::Operation;
use crate::parameter::{Key, Parts, Source};
use crate::prediction::{Estimate, differences};
use crate::probe::{Direction, Pattern, PointFacts, Probe, Role};
use crate::simulation::{Length, simulate};
use crate::units::Unit;
use crate::verdict::{Verdict, verdict};
pub use change::{Actor, Beside, Gains, Goal};
use change::{Case, Change, POLLED_US, float};

/// Rises when a field goes away or changes its meaning.
pub const ADVICE_VERSION: u32 = 1;

/// A change that is worth something.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    pub id: &'static str,
    pub place: Actor,
    pub what: String,
    /// How, in the terms of server, initiator or host.
    pub how: Vec<String>,
    /// The parts with their new values.
    pub changes: Vec<(String, String)>,
    pub gains: Gains,
    /// Of operations or bytes a second.
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

/// The least threshold, in percent.
const THRESHOLD_MIN: f64 = 2.0;

/// Set-ups that are simulated where formulas do not do, and operations of each.
const SIMULATED: usize = 10;
const OPERATIONS: u64 = 1500;

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
        in_order: false,
        beside: None,
    }
}

/// What would help.
///
/// # Errors
/// The probe has too few points.
pub fn advise(probe: &Probe, goal: &Goal) -> Result<Advice, FitError> {
    let before = identify::parts(probe, goal.direction)?.parts;
    let threshold_percent = threshold(probe, goal);
    let case = Case {
        probe,
        parts: &before,
        goal,
    };
    let mut items = Vec::new();
    for change in changes(&case)? {
        let gain_percent = gain(&before, &change, goal)?;
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
            gains: change.gains,
            gain_percent,
            cost: change.cost,
            risk: change.risk,
            check: change.check,
        });
    }
    items.sort_by(|a, b| b.gain_percent.value.total_cmp(&a.gain_percent.value));
    let iops = iops(&before, goal.size_bytes, goal.depth);
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
        .filter(|it| it.direction == goal.direction && it.role != Role::Asked)
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

/// All changes that make sense for a set-up.
fn changes(case: &Case<'_>) -> Result<Vec<Change>, FitError> {
    let mut all = protocol::changes(case)?;
    all.extend(host::changes(case)?);
    all.extend(workload::changes(case)?);
    Ok(all)
}

/// What a change gains.
fn gain(before: &Parts, change: &Change, goal: &Goal) -> Result<Estimate, FitError> {
    let (size, depth) = (goal.size_bytes, goal.depth);
    if change.is_simulated {
        let before = workload::with_beside(before, goal.beside)?;
        let after = workload::with_beside(&change.after, goal.beside)?;
        let length = |seed| Length {
            operations: OPERATIONS,
            seed,
        };
        let one = |seed, before: &Parts, after: &Parts| {
            let iops = |parts| simulate(parts, size, depth, length(seed)).iops;
            100.0 * (iops(after) / iops(before) - 1.0)
        };
        let pairs = before.samples(SIMULATED).into_iter();
        let pairs = pairs.zip(after.samples(SIMULATED)).zip(2..);
        let all = pairs.map(|((before, after), seed)| one(seed, &before, &after));
        return Ok(around(one(1, &before, &after), all.collect()));
    }
    if (change.size_bytes, change.depth) == (size, depth) {
        return Ok(differences(before, &change.after, &[size], &[depth])[0].iops_percent);
    }
    let weight = match change.gains {
        Gains::Operations => 1.0,
        Gains::Bytes => float(change.size_bytes) / float(size),
    };
    let one = |before: &Parts, after: &Parts| {
        let to = iops(after, change.size_bytes, change.depth) * weight;
        100.0 * (to / iops(before, size, depth) - 1.0)
    };
    let pairs = before.samples(64).into_iter().zip(change.after.samples(64));
    let all = pairs.map(|(before, after)| one(&before, &after));
    Ok(around(one(before, &change.after), all.collect()))
}

/// Nine tenths of what was drawn, and the value.
fn around(value: f64, mut all: Vec<f64>) -> Estimate {
    all.push(value);
    all.sort_by(f64::total_cmp);
    let tail = all.len() / 20;
    Estimate {
        value,
        low: all[tail],
        high: all[all.len() - 1 - tail],
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
    /// How to check what the probe does not show: it has one connection, one load at a time, and no deep or large ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_hand: Option<&'static str>,
}

/// Points of a gain that prediction and outcome may differ.
const AGREES: f64 = 10.0;

impl Advice {
    /// The loads that tell what becomes of it: that of the goal, and those that are advised in its place.
    #[must_use]
    pub fn loads_to_check(&self) -> Vec<Goal> {
        let mut loads = vec![self.goal];
        for load in self.items.iter().map(|item| instead(&self.goal, item)) {
            if !loads.contains(&load) {
                loads.push(load);
            }
        }
        loads
    }
}

/// The load that is advised in the place of another one, if any is.
fn instead(goal: &Goal, item: &Item) -> Goal {
    let deeper = item.changes.iter().find(|(name, _)| name == "depth");
    let deeper = deeper.and_then(|(_, depth)| depth.parse::<u16>().ok());
    let larger = item.changes.iter().find(|(name, _)| name == "size");
    let larger = larger.and_then(|(_, size)| Unit::Size.parse(size).ok());
    Goal {
        depth: deeper.unwrap_or(goal.depth),
        size_bytes: larger.map_or(goal.size_bytes, crate::parameter::as_bytes),
        ..*goal
    }
}

/// Parts that no probe shows.
const UNSEEN: [&str; 2] = ["connections", "queue-maps"];

/// Holds the advice for an earlier probe against a later one.
///
/// # Errors
/// The later one has too few points.
pub fn check(advice: &Advice, before: &Probe, after: &Probe) -> Result<Vec<Checked>, FitError> {
    let goal = &advice.goal;
    let parts_after = identify::parts(after, goal.direction)?.parts;
    let checked = advice.items.iter().map(|item| {
        let to = instead(goal, item);
        let (is_followed, achieved_percent) = if to != *goal {
            let achieved = achieved(before, goal, after, &to, item.gains);
            (achieved.is_some(), achieved)
        } else if follows(&parts_after, &item.changes) {
            (true, achieved(before, goal, after, &to, item.gains))
        } else {
            (false, None)
        };
        let is_unseen = |(name, _): &(String, String)| UNSEEN.contains(&name.as_str());
        let is_seen = to == *goal && !item.changes.iter().any(is_unseen);
        let by_hand = (!is_seen && !is_followed).then_some(item.check);
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
            by_hand,
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
                } else if matches!(key.definition().unit, Unit::Time | Unit::Cost) {
                    has <= wants * 1.1
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
fn achieved(before: &Probe, goal: &Goal, after: &Probe, to: &Goal, gains: Gains) -> Option<f64> {
    let of = |probe: &Probe, goal: &Goal| {
        let mut points = probe.points.iter();
        let is_it = |point: &&PointFacts| {
            let has = (point.direction, point.size_bytes, point.depth);
            has == (goal.direction, goal.size_bytes, goal.depth) && point.pattern == Pattern::Random
        };
        points.find(is_it).map(|point| point.iops.value)
    };
    let weight = match gains {
        Gains::Operations => 1.0,
        Gains::Bytes => float(to.size_bytes) / float(goal.size_bytes),
    };
    Some(100.0 * (weight * of(after, to)? / of(before, goal)? - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{Fitted, Make, NetworkFacts, Parameter, SourceKind, Subject};
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
            in_order: false,
            beside: None,
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
        let checked = check(&advise(&before, &goal).unwrap(), &before, &after).unwrap();
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

    fn ids(probe: &Probe, goal: &Goal) -> Vec<&'static str> {
        let advice = advise(probe, goal).unwrap();
        advice.items.iter().map(|item| item.id).collect()
    }

    /// A near network, where settings of hosts count.
    const NEAR: [(&str, f64); 7] = [
        ("one-way-latency", 60.0),
        ("rate", 1.2e9),
        ("server-cpu-per-op", 10.0),
        ("client-cpu-per-op", 5.0),
        ("server-cpu-per-byte", 4e-4),
        ("client-cpu-per-byte", 2e-4),
        ("storage-access-time", 1.0),
    ];

    fn with_settings(mut probe: Probe, client: &[(&str, &str)], server: &[(&str, &str)]) -> Probe {
        let owned = |all: &[(&str, &str)]| {
            let pairs = all.iter();
            pairs
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        probe.client.settings = owned(client);
        probe.server.get_or_insert_default().settings = owned(server);
        probe
    }

    #[test]
    fn interrupts_that_are_held_back_are_advised_against_where_latency_limits() {
        let held = [("rx-usecs", "50")];
        let slow = with_settings(probe(&NEAR, &[]), &held, &held);
        let one = goal(Direction::Read, 4096, 1);
        let advice = advise(&slow, &one).unwrap();
        let item = advice
            .items
            .iter()
            .find(|it| it.id == "interrupt-moderation");
        let item = item.unwrap_or_else(|| panic!("{advice:?}"));
        assert!(
            item.how.iter().any(|how| how.contains("ethtool -C")),
            "{item:?}"
        );
        // Of some 140 µs, 96 go away at most: the way is not shorter than a fifth of itself.
        assert!((80.0..350.0).contains(&item.gain_percent.value), "{item:?}");
        // Where the server's processor is the limit it changes nothing, nor where cards interrupt at once.
        let many = goal(Direction::Read, 4096, 128);
        assert!(!ids(&slow, &many).contains(&"interrupt-moderation"));
        let at_once = with_settings(probe(&NEAR, &[]), &[("rx-usecs", "0")], &[]);
        assert!(!ids(&at_once, &one).contains(&"interrupt-moderation"));
    }

    #[test]
    fn autocorking_is_advised_against_where_the_sender_of_data_holds_packets_back() {
        let corked = [("net.ipv4.tcp_autocorking", "1"), ("tx-usecs", "100")];
        let of_server = with_settings(probe(&NEAR, &[]), &[], &corked);
        assert!(ids(&of_server, &goal(Direction::Read, 4096, 2)).contains(&"autocorking"));
        // A single operation has no earlier packet; writes are sent by the client.
        assert!(!ids(&of_server, &goal(Direction::Read, 4096, 1)).contains(&"autocorking"));
        assert!(!ids(&of_server, &goal(Direction::Write, 4096, 2)).contains(&"autocorking"));
        let of_client = with_settings(probe(&NEAR, &[]), &corked, &[]);
        assert!(ids(&of_client, &goal(Direction::Write, 4096, 2)).contains(&"autocorking"));
        let off = [("net.ipv4.tcp_autocorking", "0"), ("tx-usecs", "100")];
        let off = with_settings(probe(&NEAR, &[]), &[], &off);
        assert!(!ids(&off, &goal(Direction::Read, 4096, 2)).contains(&"autocorking"));
    }

    #[test]
    fn more_memory_of_tcp_is_advised_to_the_side_that_held_data_back() {
        let large = goal(Direction::Write, 1 << 20, 4);
        let held_back = |rwnd, sndbuf| {
            let mut probe = probe(&[("one-way-latency", 2000.0), ("rate", 50e6)], &[]);
            probe.points.push(PointFacts {
                direction: Direction::Write,
                tcp: Some(crate::probe::TcpFacts {
                    busy_us: Some(1000),
                    rwnd_limited_us: Some(rwnd),
                    sndbuf_limited_us: Some(sndbuf),
                    ..crate::probe::TcpFacts::default()
                }),
                ..PointFacts::default()
            });
            let advice = advise(&probe, &large).unwrap();
            let item = advice.items.into_iter().find(|it| it.id == "tcp-memory");
            item.map(|item| item.how[0].clone())
        };
        assert!(
            held_back(500, 0)
                .unwrap()
                .starts_with("server: sysctl net.ipv4.tcp_rmem")
        );
        assert!(
            held_back(0, 500)
                .unwrap()
                .starts_with("client: sysctl net.ipv4.tcp_wmem")
        );
        assert_eq!(held_back(50, 50), None);
    }

    #[test]
    fn digests_are_advised_against_where_processors_limit_and_they_were_negotiated() {
        let digests = [("DataDigest", "CRC32C"), ("HeaderDigest", "CRC32C")];
        let busy = goal(Direction::Read, 256 << 10, 16);
        let mut fast = NEAR;
        fast[1].1 = 1.2e10;
        assert!(ids(&probe(&fast, &digests), &busy).contains(&"digests-off"));
        assert!(!ids(&probe(&fast, &[]), &busy).contains(&"digests-off"));
        // On a slow link nobody waits for them.
        assert!(!ids(&probe(&LINK, &digests), &busy).contains(&"digests-off"));
    }

    #[test]
    fn a_processor_of_its_own_is_advised_where_the_server_has_to_share_and_is_the_limit() {
        let mut parts = NEAR.to_vec();
        parts.push(("server-share", 0.4));
        let many = goal(Direction::Read, 4096, 64);
        let advice = advise(&probe(&parts, &[]), &many).unwrap();
        let item = advice.items.iter().find(|it| it.id == "own-processor");
        let item = item.unwrap_or_else(|| panic!("{advice:?}"));
        assert!((50.0..160.0).contains(&item.gain_percent.value), "{item:?}");
        assert!(!ids(&probe(&NEAR, &[]), &many).contains(&"own-processor"));
    }

    #[test]
    fn larger_blocks_are_advised_for_data_in_order_and_not_on_a_full_link() {
        let small = Goal {
            in_order: true,
            ..goal(Direction::Read, 4096, 1)
        };
        let advice = advise(&probe(&LINK, &[]), &small).unwrap();
        let item = advice.items.iter().find(|it| it.id == "block-size");
        let item = item.unwrap_or_else(|| panic!("{advice:?}"));
        assert_eq!(item.gains, Gains::Bytes);
        assert!(item.gain_percent.value > 300.0, "{item:?}");
        let full = Goal {
            size_bytes: 32 << 10,
            depth: 256,
            ..small
        };
        assert!(!ids(&probe(&LINK, &[]), &full).contains(&"block-size"));
        let random = Goal {
            in_order: false,
            ..small
        };
        assert!(!ids(&probe(&LINK, &[]), &random).contains(&"block-size"));
    }

    #[test]
    fn queues_apart_are_advised_to_small_reads_beside_large_writes() {
        let parts = [
            ("one-way-latency", 50.0),
            ("rate", 1.25e8),
            ("server-cpu-per-op", 10.0),
            ("client-cpu-per-op", 5.0),
        ];
        let beside = |size_bytes, depth| Goal {
            beside: Some(Beside {
                direction: Direction::Write,
                size_bytes,
                depth,
            }),
            ..goal(Direction::Read, 4096, 4)
        };
        let large = advise(&probe(&parts, &[]), &beside(1 << 20, 8)).unwrap();
        let item = large.items.iter().find(|it| it.id == "queue-maps");
        assert!(item.is_some(), "{large:?}");
        let alone = goal(Direction::Read, 4096, 4);
        assert!(!ids(&probe(&parts, &[]), &alone).contains(&"queue-maps"));
        // No probe shows whether they were given.
        let goal = beside(1 << 20, 8);
        let again = probe(&parts, &[]);
        let advice = advise(&again, &goal).unwrap();
        let checked = check(&advice, &again, &again).unwrap();
        let maps = checked.iter().find(|it| it.id == "queue-maps").unwrap();
        assert!(!maps.is_followed && maps.by_hand.is_some(), "{maps:?}");
        assert_eq!(advice.loads_to_check()[0], goal);
    }

    #[test]
    fn a_check_needs_the_loads_that_were_advised() {
        let small = Goal {
            in_order: true,
            ..goal(Direction::Read, 4096, 1)
        };
        let before = probe(&LINK, &[]);
        let advice = advise(&before, &small).unwrap();
        let loads = advice.loads_to_check();
        assert_eq!(loads[0], small);
        assert!(loads.iter().any(|it| it.size_bytes > 4096), "{loads:?}");
        let deeper = loads.iter().find(|it| it.depth > 1);
        let depth = deeper.unwrap_or_else(|| panic!("{loads:?}")).depth;
        // With these, it tells what was achieved.
        let point = |load: &Goal| PointFacts {
            role: Role::Asked,
            direction: load.direction,
            size_bytes: load.size_bytes,
            depth: load.depth,
            connections: 1,
            pattern: Pattern::Random,
            iops: Spread::of(&[100.0 * f64::from(load.depth)]),
            latency_us: Spread::default(),
            p50_us: Spread::default(),
            p99_us: Spread::default(),
            client_cpu_us: None,
            client_busy: 0.0,
            server_cpu_us: None,
            tcp: None,
        };
        let mut measured = before.clone();
        measured.points = loads.iter().map(point).collect();
        let checked = check(&advice, &measured, &measured).unwrap();
        let checked = checked.iter().find(|it| it.id == "depth").unwrap();
        assert!(checked.is_followed, "{checked:?}");
        let achieved = 100.0 * (f64::from(depth) - 1.0);
        assert_eq!(checked.achieved_percent, Some(achieved));
    }

    #[test]
    fn each_make_has_its_own_terms() {
        for (make, word) in [
            (Make::Longshore, "[iscsi]"),
            (Make::Lio, "targetcli"),
            (Make::Tgt, "tgtadm"),
            (Make::Scst, "scst.conf"),
            (Make::Spdk, "iscsi_set_options"),
        ] {
            let mut probe = probe(&LINK, &R2TS);
            probe.subject.make = make;
            let advice = advise(&probe, &goal(Direction::Write, 2 << 20, 1)).unwrap();
            let item = advice.items.iter().find(|it| it.id == "outstanding-r2ts");
            assert!(item.unwrap().how[0].contains(word), "{make:?}");
        }
        for (make, word) in [
            (Make::Longshore, "[limits]"),
            (Make::Nvmet, "param_inline_data_size"),
            (Make::Spdk, "nvmf_create_transport"),
        ] {
            let mut probe = probe(&LINK, &[]);
            probe.subject.make = make;
            probe.subject.way = crate::probe::Way::NvmeTcp;
            let advice = advise(&probe, &goal(Direction::Write, 64 << 10, 1)).unwrap();
            let item = advice.items.iter().find(|it| it.id == "in-capsule-data");
            assert!(item.unwrap().how[0].contains(word), "{make:?}");
        }
    }
}
