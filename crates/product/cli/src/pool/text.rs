//! Pools as people read them.

use longshore_api::pool::{
    Pool, PoolSide, PoolSnapshot, PoolVolume, PoolWork, PoolWorkKind, PoolWorkState,
};

use crate::output::{Bytes, Table, columns, printable};

pub fn table(pools: &[Pool]) -> String {
    let rows = pools.iter().map(|pool| {
        let usage = pool.usage.as_ref();
        let bytes = |bytes: Option<u64>| bytes.map_or_else(String::new, |it| Bytes(it).to_string());
        vec![
            printable(&pool.name),
            pool.state.name().to_owned(),
            bytes(usage.map(|usage| usage.capacity_bytes)),
            bytes(usage.map(|usage| usage.used_bytes)),
            printable(&pool.drives.join(" ")),
            pool.uuid.clone().unwrap_or_default(),
        ]
    });
    columns(
        &["NAME", "STATE", "CAPACITY", "USED", "DRIVES", "UUID"],
        rows.collect(),
    )
}

/// A pool with what it holds.
pub fn detail(pool: &Pool) -> String {
    let mut table = Table::default();
    table.row("name", printable(&pool.name));
    table.optional("uuid", pool.uuid.as_ref());
    table.row("state", pool.state.name());
    table.row("drives", printable(&pool.drives.join(" ")));
    if let Some(usage) = &pool.usage {
        table.row("size", Bytes(usage.size_bytes));
        table.row("capacity", Bytes(usage.capacity_bytes));
        table.row("used", used(usage.used_bytes, usage.capacity_bytes));
        if usage.reserved_bytes > 0 {
            table.row("reserved", Bytes(usage.reserved_bytes));
        }
        let free = format!(
            "{} of {}, of {} each",
            usage.free_segments,
            usage.segments,
            Bytes(usage.segment_bytes)
        );
        table.row("free segments", free);
        table.row("memory of maps", Bytes(usage.map_bytes));
    }
    if let Some(work) = &pool.work {
        table.row("work", work_line(work));
    }
    let mut text = table.to_string();
    if let Some(work) = &pool.work {
        for finding in &work.findings {
            let finding = format!("{}: {}", finding.subject, finding.text);
            text += &format!("{}\n", printable(&finding));
        }
        if work.more_findings > 0 {
            text += &format!("and {} more\n", work.more_findings);
        }
    }
    if !pool.mirrors.is_empty() {
        text += "\n";
        text += &columns(
            &["MIRROR", "SIDE", "STATE", "READ ERRORS", "MENDED"],
            pool.mirrors.iter().map(side_row).collect(),
        );
    }
    if !pool.volumes.is_empty() {
        text += "\n";
        text += &columns(
            &[
                "VOLUME",
                "SIZE",
                "OWNED",
                "SHARED",
                "COMPRESSION",
                "QUOTA",
                "RESERVED",
                "SERVED",
            ],
            pool.volumes.iter().map(volume_row).collect(),
        );
    }
    let snapshots = pool.volumes.iter().flat_map(|volume| &volume.snapshots);
    let rows: Vec<Vec<String>> = snapshots.chain(&pool.orphans).map(snapshot_row).collect();
    if !rows.is_empty() {
        text += "\n";
        text += &columns(&["SNAPSHOT", "SIZE", "OWNED", "SERVED"], rows);
    }
    text
}

/// What is done to the pool, or was last, and what came of it.
fn work_line(work: &PoolWork) -> String {
    let what = match (work.kind, &work.drive) {
        (PoolWorkKind::Scrub, _) => "scrub".to_owned(),
        (PoolWorkKind::RemoveDrive, drive) => {
            format!("remove drive {}", printable(drive.as_deref().unwrap_or("")))
        }
        (PoolWorkKind::Rebuild, drive) => {
            format!("fill {}", printable(drive.as_deref().unwrap_or("")))
        }
    };
    let state = work.state.name();
    let bytes = format!("{} of {}", Bytes(work.done_bytes), Bytes(work.sum_bytes));
    match (&work.error, work.kind, work.state) {
        (Some(error), ..) => format!("{what}: {state} after {bytes}: {}", printable(error)),
        (None, PoolWorkKind::Scrub, PoolWorkState::Done) => {
            let findings = match work.findings.len() {
                1 => "1 finding".to_owned(),
                count => format!("{count} findings"),
            };
            format!("{what}: {state}, {findings} in {}", Bytes(work.done_bytes))
        }
        (None, ..) => format!("{what}: {state}, {bytes}"),
    }
}

/// Used space, and what part of all it is.
fn used(used: u64, capacity: u64) -> String {
    let percent = u128::from(used) * 100 / u128::from(capacity.max(1));
    format!("{} ({percent} %)", Bytes(used))
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn side_row(side: &PoolSide) -> Vec<String> {
    let path = side.path.as_deref();
    vec![
        side.mirror.to_string(),
        path.map_or_else(|| format!("{} (missing)", side.uuid), printable),
        side.state.name().to_owned(),
        side.read_errors.to_string(),
        side.mended.to_string(),
    ]
}

fn volume_row(volume: &PoolVolume) -> Vec<String> {
    let quota = volume.quota_bytes;
    vec![
        printable(&volume.name),
        Bytes(volume.size_bytes).to_string(),
        Bytes(volume.owned_bytes).to_string(),
        Bytes(volume.shared_bytes).to_string(),
        printable(&volume.compression),
        quota.map_or_else(|| "none".to_owned(), |quota| Bytes(quota).to_string()),
        reserve(volume),
        yes(volume.in_use),
    ]
}

fn reserve(volume: &PoolVolume) -> String {
    let full = if volume.reserve_full { " (full)" } else { "" };
    let bytes = volume.reserve_bytes;
    bytes.map_or_else(
        || "none".to_owned(),
        |bytes| format!("{}{full}", Bytes(bytes)),
    )
}

fn snapshot_row(snapshot: &PoolSnapshot) -> Vec<String> {
    vec![
        printable(&format!("{}@{}", snapshot.volume, snapshot.name)),
        Bytes(snapshot.size_bytes).to_string(),
        Bytes(snapshot.owned_bytes).to_string(),
        yes(snapshot.in_use),
    ]
}
