//! Where two snapshots of a pool differ: `pool snapshot diff`, and for `copy --since`.

use std::path::Path;
use std::process::ExitCode;

use longshore_api::envelope::Versioned;
use longshore_api::pool::{PoolChanges, SnapshotId};
use longshore_daemon::pools;

use super::place::{How, Place, PoolVerbError, find};
use crate::output::Bytes;
use crate::server::ServerArguments;
use crate::server::client::{Client, ClientError};
use crate::server::path::{path, query};

/// Prints where a snapshot differs from an older one.
pub fn diff(
    server: &ServerArguments,
    config: Option<&Path>,
    pool: &str,
    of: &SnapshotId,
    since: &SnapshotId,
) -> Result<ExitCode, PoolVerbError> {
    let changes = match find(pool, config, How::Reads)? {
        Place::Here(pool) => {
            let part = |from| Ok::<_, PoolVerbError>(pools::compare(&pool, of, since, from)?);
            let compared = whole(part);
            pool.close()?;
            compared?
        }
        Place::Server(elsewhere) => {
            let client = server.client()?;
            let asked = fetch(&client, &elsewhere.name, of, since);
            elsewhere.explain(asked)?
        }
    };
    let versioned = Versioned::new(&changes);
    Ok(server.print(&versioned, |it| text(it.body)))
}

/// Asks the server that has the pool open.
pub fn fetch(
    client: &Client,
    pool: &str,
    of: &SnapshotId,
    since: &SnapshotId,
) -> Result<PoolChanges, ClientError> {
    let place = path(&["pools", pool, "snapshots", &of.to_string(), "changes"]);
    let since = since.to_string();
    whole(|from| {
        let from = from.to_string();
        let asked = format!("{place}?{}", query(&[("since", &since), ("from", &from)]));
        Ok(client.get(&asked)?.read::<Versioned<PoolChanges>>()?.body)
    })
}

/// Asks for all parts, and puts them together.
fn whole<E: From<ClientError>>(
    mut part: impl FnMut(u64) -> Result<PoolChanges, E>,
) -> Result<PoolChanges, E> {
    let wrong = |reason: &str| ClientError::Answer {
        address: "the server".to_owned(),
        reason: reason.to_owned(),
    };
    let mut all = part(0)?;
    check(&all, 0).map_err(wrong)?;
    while let Some(from) = all.next {
        let more = part(from)?;
        let is_same = more.uuid == all.uuid && more.since_uuid == all.since_uuid;
        if !is_same || more.size_bytes != all.size_bytes {
            return Err(wrong("a snapshot was replaced meanwhile").into());
        }
        check(&more, from).map_err(wrong)?;
        all.ranges.extend(more.ranges);
        all.next = more.next;
    }
    Ok(all)
}

/// Ranges are in order, none is empty, and each part goes on where the one before ended.
fn check(changes: &PoolChanges, from: u64) -> Result<(), &'static str> {
    let mut at = from;
    for range in &changes.ranges {
        let end = range.offset.checked_add(range.bytes);
        let end = end.filter(|end| range.bytes > 0 && *end <= changes.size_bytes);
        match end {
            Some(end) if range.offset >= at => at = end,
            _ => return Err("its ranges are not in order, or lie outside of the snapshot"),
        }
    }
    match changes.next {
        Some(next) if next < at || next <= from => Err("it does not go on"),
        _ => Ok(()),
    }
}

fn text(changes: &PoolChanges) -> String {
    let lines = changes
        .ranges
        .iter()
        .map(|range| format!("{:>16} {:>16}\n", range.offset, range.bytes));
    let mut text = match changes.ranges.is_empty() {
        true => String::new(),
        false => format!("{:>16} {:>16}\n", "OFFSET", "BYTES"),
    };
    text.extend(lines);
    let sum: u64 = changes.ranges.iter().map(|range| range.bytes).sum();
    let noun = if changes.ranges.len() == 1 {
        "range"
    } else {
        "ranges"
    };
    text += &format!(
        "{} of {} differ, in {} {noun}\n",
        Bytes(sum),
        Bytes(changes.size_bytes),
        changes.ranges.len()
    );
    text
}

#[cfg(test)]
mod tests {
    use longshore_api::pool::PoolRange;

    use super::*;

    fn part(ranges: &[(u64, u64)], next: Option<u64>) -> PoolChanges {
        let ranges = ranges.iter().map(|(offset, bytes)| PoolRange {
            offset: *offset,
            bytes: *bytes,
        });
        PoolChanges {
            uuid: "new".to_owned(),
            since_uuid: "old".to_owned(),
            size_bytes: 1 << 20,
            ranges: ranges.collect(),
            next,
        }
    }

    fn put_together(parts: &[PoolChanges]) -> Result<PoolChanges, ClientError> {
        let mut parts = parts.iter();
        whole(|_| Ok::<_, ClientError>(parts.next().expect("no more are asked for").clone()))
    }

    #[test]
    fn parts_are_put_together_and_nonsense_is_refused() {
        let parts = [
            part(&[(0, 4096)], Some(8192)),
            part(&[], Some(16384)),
            part(&[(16384, 4096)], None),
        ];
        let all = put_together(&parts).expect("all of it");
        assert_eq!(all.ranges.len(), 2);
        assert!(
            text(&all).ends_with("8 KiB of 1 MiB differ, in 2 ranges\n"),
            "{}",
            text(&all)
        );
        let other = PoolChanges {
            uuid: "other".to_owned(),
            ..part(&[], None)
        };
        for parts in [
            &[part(&[(4096, 0)], None)][..],
            &[part(&[(4096, 4096), (4096, 4096)], None)],
            &[part(&[(1 << 20, 4096)], None)],
            &[part(&[(u64::MAX, 4096)], None)],
            &[part(&[(0, 8192)], Some(4096))],
            &[part(&[], Some(0))],
            &[part(&[], Some(8192)), part(&[(0, 4096)], None)],
            &[part(&[], Some(8192)), part(&[], Some(8192))],
            &[part(&[], Some(8192)), other],
        ] {
            assert!(put_together(parts).is_err(), "{parts:?}");
        }
    }
}
