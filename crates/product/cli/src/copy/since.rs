//! `--since`: what a snapshot of a pool has that an older one, which was copied before, has not.

use std::ops::Range;

use longshore_api::envelope::Versioned;
use longshore_api::pool::{Pool, PoolRange, SnapshotId};
use longshore_client::copy::Changes;
use longshore_client::info::info;
use longshore_initiator::error::Error;
use longshore_initiator::options::Options;
use longshore_initiator::url::Url;
use uuid::Uuid;

use crate::pool::changes::fetch;
use crate::server::client::{Client, ClientError};
use crate::server::path::path;

/// Bytes between two changes that are copied with them.
const GAP: u64 = 16 << 10;

/// The snapshot that the destination of a copy holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since {
    pool: String,
    snapshot: SnapshotId,
}

/// Why there is nothing to tell what changed.
#[derive(Debug, thiserror::Error)]
pub enum SinceError {
    #[error(transparent)]
    Source(#[from] Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(
        "{url} is no snapshot of pool {pool} in the server that --server names, or is served with a `uuid` of its own; a \
         volume that is written changes meanwhile: make a snapshot of it, serve that, and copy from there"
    )]
    NoSnapshot { url: String, pool: String },
    #[error(
        "{url} is the snapshot {snapshot} itself; name an older one, or the URL of a newer one"
    )]
    Same { url: String, snapshot: String },
    #[error("{url}: another snapshot took the place of {snapshot}; try again")]
    Replaced { url: String, snapshot: String },
}

impl Since {
    /// Reads the form `POOL/VOLUME@SNAPSHOT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(pool, snapshot)| Some((pool, SnapshotId::parse(snapshot)?)));
        match parts {
            Some((pool, snapshot)) if !pool.is_empty() => Ok(Self {
                pool: pool.to_owned(),
                snapshot,
            }),
            _ => Err("write POOL/VOLUME@SNAPSHOT, such as tank/disk0@monday".to_owned()),
        }
    }

    /// Finds out which snapshot the source is, and has the server compare it.
    pub fn changes(
        &self,
        client: &Client,
        url: &Url,
        options: &Options,
    ) -> Result<Changes, SinceError> {
        let source = info(url, options)?;
        let pool: Pool = client
            .get(&path(&["pools", &self.pool]))?
            .read::<Versioned<Pool>>()?
            .body;
        let snapshots = pool.volumes.iter().flat_map(|volume| &volume.snapshots);
        let found = snapshots.chain(&pool.orphans).find_map(|snapshot| {
            let uuid = Uuid::parse_str(&snapshot.uuid).ok()?;
            source.has_uuid(uuid).then_some((snapshot, uuid))
        });
        let (snapshot, uuid) = found.ok_or_else(|| SinceError::NoSnapshot {
            url: url.to_string(),
            pool: self.pool.clone(),
        })?;
        let of = SnapshotId {
            volume: snapshot.volume.clone(),
            name: snapshot.name.clone(),
        };
        let changes = fetch(client, &self.pool, &of, &self.snapshot)?;
        let (url, snapshot) = (url.to_string(), of.to_string());
        if changes.uuid == changes.since_uuid {
            return Err(SinceError::Same { url, snapshot });
        }
        match Uuid::parse_str(&changes.since_uuid) {
            Ok(since) if Uuid::parse_str(&changes.uuid) == Ok(uuid) => Ok(Changes {
                source: uuid,
                since,
                size: changes.size_bytes,
                ranges: joined(&changes.ranges).into(),
            }),
            _ => Err(SinceError::Replaced { url, snapshot }),
        }
    }
}

/// The ranges, with small gaps between them: one large operation takes less time than many small ones.
fn joined(ranges: &[PoolRange]) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let end = range.offset + range.bytes;
        match joined.last_mut() {
            Some(last) if range.offset - last.end <= GAP => last.end = end,
            _ => joined.push(range.offset..end),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gaps_are_copied_too() {
        let range = |offset, bytes| PoolRange { offset, bytes };
        let ranges = [
            range(0, 4096),
            range(4096 + GAP, 4096),
            range(8193 + 2 * GAP, 1),
        ];
        assert_eq!(
            joined(&ranges),
            [0..8192 + GAP, 8193 + 2 * GAP..8194 + 2 * GAP]
        );
        assert_eq!(joined(&[]), []);
    }

    #[test]
    fn a_snapshot_is_named_with_its_pool() {
        let since = Since::parse("tank/disk0@monday").expect("a name");
        assert_eq!(
            (since.pool.as_str(), since.snapshot.to_string().as_str()),
            ("tank", "disk0@monday")
        );
        for text in [
            "disk0@monday",
            "tank/disk0",
            "/disk0@monday",
            "tank/@monday",
            "",
        ] {
            assert!(Since::parse(text).is_err(), "{text}");
        }
    }
}
