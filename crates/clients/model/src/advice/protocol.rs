//! Changes of what server and initiator negotiate.

use super::change::{Actor, Case, Change, float};
use super::terms;
use crate::identify::FitError;
use crate::operation::Operation;
use crate::parameter::{Choice, Key};
use crate::probe::Way;

const LOGIN: &str = "log in again; longshore info shows what was negotiated";

/// The least time that CRC32C takes for a byte, with the instructions that processors have for it.
const DIGEST_US_PER_BYTE: f64 = 0.05e-3;

/// Part of the time for a byte that a digest takes at most, as far as advice counts on it.
const DIGEST_SHARE: f64 = 0.5;

pub(super) fn changes(case: &Case<'_>) -> Result<Vec<Change>, FitError> {
    let mut all = Vec::new();
    let is_iscsi = case.probe.subject.way == Way::Iscsi;
    let is_nvme = case.probe.subject.way == Way::NvmeTcp;
    if case.is_write() && is_iscsi {
        all.extend(outstanding(case)?);
        all.extend(first_burst(case)?);
        all.extend(max_burst(case)?);
    }
    if case.is_write() && is_nvme {
        all.extend(in_capsule(case)?);
    }
    if is_iscsi || is_nvme {
        all.extend(no_digests(case, is_iscsi)?);
    }
    Ok(all)
}

fn operation(case: &Case<'_>) -> Operation {
    let size = float(case.goal.size_bytes);
    Operation::new(case.parts, size, f64::from(case.goal.depth))
}

fn outstanding(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let operation = operation(case);
    let outstanding = case.parts.get(Key::MaxOutstandingR2t);
    let enough = operation
        .enough_r2ts
        .unwrap_or(0)
        .min(operation.r2ts)
        .min(64);
    let enough = u32::try_from(enough).unwrap_or(64);
    if f64::from(enough) <= outstanding {
        return Ok(None);
    }
    let values = [(Key::MaxOutstandingR2t, f64::from(enough))];
    let make = case.probe.subject.make;
    Ok(Some(Change {
        what: format!("let {enough} R2Ts of a write be outstanding, not {outstanding:.0}"),
        how: terms::iscsi_key(make, "MaxOutstandingR2T", enough.into()),
        cost: "buffers for as many bursts of each write",
        risk: "none known; old initiators offer 1 and stay there",
        check: LOGIN,
        ..case.change("outstanding-r2ts", Actor::Server, &values)?
    }))
}

fn first_burst(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let (bytes, size) = (case.goal.size_bytes, float(case.goal.size_bytes));
    let unsolicited = case.parts.get(Key::FirstBurst);
    if operation(case).r2ts == 0 || bytes > 16_777_215 || unsolicited >= size {
        return Ok(None);
    }
    let before = case.parts.get(Key::MaxBurst);
    let burst = before.max(size);
    let values = [(Key::FirstBurst, size), (Key::MaxBurst, burst)];
    let mut change = case.change("first-burst", Actor::Server, &values)?;
    change.after.choose(Choice::InitialR2t, "no")?;
    let initial = ("initial-r2t".to_owned(), "no".to_owned());
    change.changes.push(initial);
    let make = case.probe.subject.make;
    let mut how = terms::iscsi_key(make, "FirstBurstLength", bytes);
    if burst > before {
        how.extend(terms::iscsi_key(make, "MaxBurstLength", bytes));
    }
    how.push("both: InitialR2T = No, ImmediateData = Yes".to_owned());
    Ok(Some(Change {
        what: "send the data of such a write without being asked".to_owned(),
        how,
        cost: "the server takes so much of every write before it has room for it",
        risk: "with many initiators, memory of the server; it then stops reading",
        check: LOGIN,
        ..change
    }))
}

fn max_burst(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    let burst = case.parts.get(Key::MaxBurst);
    if operation(case).r2ts < 2 || burst >= float(case.goal.size_bytes) {
        return Ok(None);
    }
    let bytes = case.goal.size_bytes.min(16_777_215);
    let values = [(Key::MaxBurst, float(bytes))];
    Ok(Some(Change {
        what: "ask for all data of such a write at once".to_owned(),
        how: terms::iscsi_key(case.probe.subject.make, "MaxBurstLength", bytes),
        cost: "a buffer of that size for each write under way",
        risk: "one write keeps the link for longer, so that others wait",
        check: LOGIN,
        ..case.change("max-burst", Actor::Server, &values)?
    }))
}

fn in_capsule(case: &Case<'_>) -> Result<Option<Change>, FitError> {
    if operation(case).r2ts == 0 || case.goal.size_bytes > 262_144 {
        return Ok(None);
    }
    // The unit of IOCCSZ.
    let bytes = case.goal.size_bytes.next_multiple_of(16);
    let values = [(Key::InCapsule, float(bytes))];
    Ok(Some(Change {
        what: "take the data of such a write in the capsule of its command".to_owned(),
        how: vec![terms::in_capsule(case.probe.subject.make, bytes)],
        cost: "so much memory for each entry of each queue",
        risk: "hosts have limits of their own and may go on to wait for an R2T",
        check: "connect again; longshore info shows the in-capsule data",
        ..case.change("in-capsule-data", Actor::Server, &values)?
    }))
}

/// Digests that were negotiated are part of the times for a byte that were fitted.
fn no_digests(case: &Case<'_>, is_iscsi: bool) -> Result<Option<Change>, FitError> {
    if !case.parts.is(Choice::DataDigest, "crc32c") {
        return Ok(None);
    }
    let without = |key| {
        let cost = case.parts.get(key);
        (key, cost - DIGEST_US_PER_BYTE.min(cost * DIGEST_SHARE))
    };
    let values = [
        without(Key::ServerCpuPerByte),
        without(Key::ClientCpuPerByte),
    ];
    let mut change = case.change("digests-off", Actor::Initiator, &values)?;
    for choice in [Choice::DataDigest, Choice::HeaderDigest] {
        change.after.choose(choice, "none")?;
        let name = choice.definition().name.to_owned();
        change.changes.push((name, "none".to_owned()));
    }
    Ok(Some(Change {
        what: "leave out the digests (CRC32C) of headers and data".to_owned(),
        how: terms::no_digests(case.probe.subject.make, is_iscsi),
        cost: "none; both ends compute less",
        risk: "only TCP's checksum is left to find what a card or switch has damaged",
        check: LOGIN,
        ..change
    }))
}
