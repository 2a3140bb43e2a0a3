//! Changes of the load, and of the connections that it takes.

use super::change::{Actor, Beside, Case, Change, Gains, float};
use super::terms;
use crate::identify::FitError;
use crate::parameter::{Choice, Key, Parts, Source};
use crate::pipeline::depths;
use crate::probe::{Direction, Way};

/// Operations of which larger ones are advised, and how large those may be.
const SMALL: u64 = 32 << 10;
const LARGE: u64 = 256 << 10;

pub(super) fn changes(case: &Case<'_>) -> Result<Vec<Change>, FitError> {
    let mut all = Vec::new();
    if case.probe.network.is_some() {
        all.extend(more_connections(case)?);
        all.extend(queue_maps(case)?);
    }
    all.extend(deeper(case)?);
    all.extend(larger(case)?);
    Ok(all)
}

fn is_iscsi(case: &Case<'_>) -> bool {
    case.probe.subject.way == Way::Iscsi
}

fn more_connections(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let cores = case.probe.server.as_ref().map_or(0, |server| server.cores);
    let more = f64::from(cores.min(case.probe.client.cpus));
    if more < 2.0 || more <= case.parts.get(Key::Connections) {
        return Ok(None);
    }
    let how = if is_iscsi(case) {
        format!("initiator: open-iscsi node.session.nr_sessions = {more:.0}, with multipath")
    } else {
        format!("initiator: nvme connect --nr-io-queues={more:.0}")
    };
    let depth = case.goal.depth;
    let values = [(Key::Connections, more)];
    Ok(Some(Change {
        what: format!("use {more:.0} connections, each with {depth} operations under way"),
        how: vec![how],
        cost: "memory of the queues; a device for each path with iSCSI",
        risk: "operations on different connections may pass each other",
        check: "longshore bench with that --sessions, beside one",
        ..case.change("more-connections", Actor::Initiator, &values)?
    }))
}

fn deeper(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let knee = depths(case.parts, case.goal.size_bytes).get(1).copied();
    let depth = case.goal.depth;
    let Some(to) = knee.map(|knee| knee.min(256)).filter(|to| *to > depth) else {
        return Ok(None);
    };
    let is_remote = case.probe.network.is_some();
    let mut how = terms::depth(is_iscsi(case), to);
    how.truncate(if is_remote { 2 } else { 1 });
    Ok(Some(Change {
        what: format!("keep {to} operations under way, not {depth}"),
        how,
        changes: vec![("depth".to_owned(), to.to_string())],
        depth: to,
        cost: "each operation waits for others, so single ones take longer",
        risk: "none, if the application has so much to do at once",
        check: "longshore bench with that --iodepth",
        ..case.change("depth", Actor::Workload, &[])?
    }))
}

/// Operations four or more times as large, of a load that is in order on the volume.
fn larger(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    if !case.goal.in_order || case.goal.size_bytes > SMALL {
        return Ok(None);
    }
    let to = (case.goal.size_bytes * 16).min(LARGE);
    let shown = crate::units::Unit::Size.show(float(to)).to_string();
    Ok(Some(Change {
        what: format!("move {shown} with each operation"),
        how: vec![
            format!("application: blocks of {shown}; fio --bs"),
            "host: read ahead: blockdev --setra, and max_sectors_kb of the device".to_owned(),
        ],
        changes: vec![("size".to_owned(), shown)],
        size_bytes: to,
        gains: Gains::Bytes,
        cost: "a single operation takes longer, and more memory",
        risk: "none for data in order; at random places most of the bytes are not wanted",
        check: "longshore bench with that --bs",
        ..case.change("block-size", Actor::Workload, &[])?
    }))
}

/// Connections of their own for a load beside this one.
fn queue_maps(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    if case.goal.beside.is_none() || case.parts.is(Choice::QueueMaps, "yes") {
        return Ok(None);
    }
    let mut change = case.change("queue-maps", Actor::Initiator, &[])?;
    change.after.choose(Choice::QueueMaps, "yes")?;
    let changes = vec![("queue-maps".to_owned(), "yes".to_owned())];
    Ok(Some(Change {
        what: "give the other load connections of its own".to_owned(),
        how: terms::apart(case.probe.subject.make, is_iscsi(case)),
        changes,
        is_simulated: true,
        cost: "memory of the queues",
        risk: "operations of the two loads may pass each other",
        check: "longshore bench with --job for each load, with and without --map",
        ..change
    }))
}

/// The set-up with the load of others.
pub(super) fn with_beside(parts: &Parts, beside: Option<Beside>) -> Result<Parts, FitError> {
    let mut parts = parts.clone();
    let Some(beside) = beside else {
        return Ok(parts);
    };
    let word = match beside.direction {
        Direction::Read => "read",
        Direction::Write => "write",
    };
    let values = [
        ("mix-size", beside.size_bytes.to_string()),
        ("mix-depth", beside.depth.to_string()),
        ("mix-rw", word.to_owned()),
    ];
    for (name, value) in values {
        parts.change(name, &value, Source::Given("the goal".to_owned()))?;
    }
    Ok(parts)
}
