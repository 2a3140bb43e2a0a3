//! Where two snapshots of a pool differ.
//!
//! Both read chains of layers, which have the layers in common that are older than both. What differs has an entry in
//! one of the others: only their leaves are looked at, so the work grows with what was written between the two.

use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use uuid::Uuid;

use crate::cache::Missing;
use crate::catalog::Catalog;
use crate::error::PoolError;
use crate::format::op::VolumeRecord;
use crate::format::record::LayerId;
use crate::format::{PAGE_BYTES, long};
use crate::leaf::LEAF_PAGES;
use crate::leaves::Purpose;
use crate::log::Failure;
use crate::map::LayerMap;
use crate::place::{Content, Entry};
use crate::pool::Pool;

/// Leaves that are compared while the pool is locked.
const LEAVES_PER_TURN: usize = if cfg!(test) { 1 } else { 8 };
/// Turns of one call, which together take a fraction of a second.
const TURNS: usize = if cfg!(test) { 2 } else { 1024 };
/// Between two turns, so that whoever waits for the lock gets it.
const PAUSE: Duration = Duration::from_micros(100);

/// A snapshot of a volume, by the names of both.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotName<'a> {
    pub volume: &'a str,
    pub name: &'a str,
}

/// What a snapshot holds otherwise than an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// UUID of the older snapshot.
    pub since: Uuid,
    /// UUID of the newer one.
    pub id: Uuid,
    /// Bytes of the newer one.
    pub size: u64,
    /// In order and apart from each other, in bytes: whole pages, but for the ends of the snapshots.
    pub ranges: Vec<Range<u64>>,
    /// Where to go on, if that is not all.
    pub next: Option<u64>,
}

impl Pool {
    /// Where a snapshot differs from another one, from the page of a byte on. Others are left to another call when there
    /// are more than `most` ranges, or after a fraction of a second. Blocks meanwhile.
    ///
    /// # Errors
    /// There is no such snapshot.
    pub fn changes(
        self: &Arc<Self>,
        of: SnapshotName<'_>,
        since: SnapshotName<'_>,
        from: u64,
        most: usize,
    ) -> Result<Changes, PoolError> {
        self.changes_with(of, since, from, most, |missing| {
            self.run(
                move |pool, io| async move { pool.load_leaves(&io, &missing, Purpose::Look).await },
            )
        })
    }

    /// The same. `load`: has leaves be in memory.
    pub(crate) fn changes_with(
        &self,
        of: SnapshotName<'_>,
        since: SnapshotName<'_>,
        from: u64,
        most: usize,
        mut load: impl FnMut(Vec<Missing>) -> Result<(), Failure>,
    ) -> Result<Changes, PoolError> {
        let mut found: Option<Changes> = None;
        let from = from - from % PAGE_BYTES;
        let mut page = from / PAGE_BYTES;
        for turn in 1.. {
            let inner = self.lock();
            let catalog = &inner.state.catalog;
            let newer = self.snapshot_record(catalog, of)?;
            let older = self.snapshot_record(catalog, since)?;
            let changes = found.get_or_insert_with(|| Changes {
                since: older.id,
                id: newer.id,
                size: newer.size,
                ranges: Vec::new(),
                next: None,
            });
            // Others of the same name, made meanwhile.
            if newer.id != changes.id {
                return Err(self.no_snapshot(of.volume, of.name));
            }
            if older.id != changes.since {
                return Err(self.no_snapshot(since.volume, since.name));
            }
            let comparison = Comparison::new(catalog, newer, older);
            match comparison.compare(page, &mut changes.ranges) {
                Err(missing) => {
                    drop(inner);
                    load(missing).map_err(|failure| self.error(failure))?;
                }
                Ok(Some(next)) if changes.ranges.len() >= most || turn >= TURNS => {
                    changes.next = Some(next * PAGE_BYTES);
                    break;
                }
                Ok(Some(next)) => {
                    page = next;
                    drop(inner);
                    thread::sleep(PAUSE);
                }
                Ok(None) => {
                    // Whatever lay behind the end of the older one, this one has something else there.
                    let grown = older.size.max(from)..newer.size;
                    if !grown.is_empty() {
                        push(&mut changes.ranges, grown);
                    }
                    break;
                }
            }
        }
        Ok(found.expect("at least one turn"))
    }

    fn snapshot_record<'a>(
        &self,
        catalog: &'a Catalog,
        of: SnapshotName<'_>,
    ) -> Result<&'a VolumeRecord, PoolError> {
        let key = (of.volume.to_owned(), of.name.to_owned());
        let found = catalog.snapshots.get(&key);
        found
            .map(|found| &found.shape)
            .ok_or_else(|| self.no_snapshot(of.volume, of.name))
    }
}

/// Two snapshots while the pool is locked.
struct Comparison<'a> {
    catalog: &'a Catalog,
    newer: LayerId,
    older: LayerId,
    /// Maps of the layers that only one of them reads.
    maps: Vec<&'a LayerMap>,
    /// Bytes that both have.
    common: u64,
}

impl<'a> Comparison<'a> {
    fn new(catalog: &'a Catalog, newer: &VolumeRecord, older: &VolumeRecord) -> Self {
        let (ones, others) = (catalog.chain(newer.head), catalog.chain(older.head));
        let only = |of: &[LayerId], not: &[LayerId]| -> Vec<LayerId> {
            of.iter().filter(|id| !not.contains(id)).copied().collect()
        };
        let different = [only(&ones, &others), only(&others, &ones)].concat();
        let maps = different.iter().filter_map(|id| catalog.layers.get(id));
        Self {
            catalog,
            newer: newer.head,
            older: older.head,
            maps: maps.map(|layer| &layer.map).collect(),
            common: newer.size.min(older.size),
        }
    }

    /// Adds what differs in [`LEAVES_PER_TURN`] from `page` on. Returns where to go on; `None`: there is nothing more.
    ///
    /// # Errors
    /// Leaves are needed that are not in memory; nothing was added.
    fn compare(
        &self,
        page: u64,
        ranges: &mut Vec<Range<u64>>,
    ) -> Result<Option<u64>, Vec<Missing>> {
        let end = self.common.div_ceil(PAGE_BYTES);
        let begin = page;
        let mut page = page;
        let Ok(first) = usize::try_from(page / long(LEAF_PAGES)) else {
            return Ok(None);
        };
        let next = |map: &LayerMap, from| map.next(from).map(|(number, _)| number);
        let mut cursors: Vec<_> = self.maps.iter().map(|map| next(map, first)).collect();
        for _ in 0..LEAVES_PER_TURN {
            let Some(number) = cursors.iter().flatten().min().copied() else {
                return Ok(None);
            };
            let leaf = long(number) * long(LEAF_PAGES);
            let missing = self.missing(leaf);
            if !missing.is_empty() {
                // What was compared before is told first.
                return match page > begin {
                    true => Ok(Some(page)),
                    false => Err(missing),
                };
            }
            for page in page.max(leaf)..end.min(leaf + long(LEAF_PAGES)) {
                // Elsewhere both read the layers that they have in common.
                let is_touched = |map: &&LayerMap| map.get(page).is_ok_and(|it| !it.is_absent());
                if self.maps.iter().any(is_touched) && !self.is_same(page) {
                    let bytes = page * PAGE_BYTES..((page + 1) * PAGE_BYTES).min(self.common);
                    push(ranges, bytes);
                }
            }
            page = leaf + long(LEAF_PAGES);
            if page >= end {
                return Ok(None);
            }
            for (map, cursor) in self.maps.iter().zip(&mut cursors) {
                if *cursor == Some(number) {
                    *cursor = next(map, number + 1);
                }
            }
        }
        Ok(Some(page))
    }

    /// The leaves of a page that any of both reads, and that are not in memory.
    fn missing(&self, page: u64) -> Vec<Missing> {
        let both = [self.newer, self.older];
        let layers = both.into_iter().flat_map(|head| self.catalog.chain(head));
        layers
            .filter_map(|id| self.catalog.away(id, page))
            .collect()
    }

    fn is_same(&self, page: u64) -> bool {
        let entry = |head| self.catalog.resolve(head, page);
        match (entry(self.newer), entry(self.older)) {
            (Ok((newer, _)), Ok((older, _))) => is_same(newer, older),
            _ => false,
        }
    }
}

/// Whether pages with these entries are known to read alike. Two pages that are lost may have held different data.
fn is_same(one: Entry, other: Entry) -> bool {
    match (one.content(), other.content()) {
        (Content::Absent | Content::Zero, Content::Absent | Content::Zero) => true,
        (Content::Data(_), Content::Data(_)) => one == other,
        (Content::Absent | Content::Zero | Content::Data(_) | Content::Lost, _) => false,
    }
}

fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
