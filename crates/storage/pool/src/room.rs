//! The room for data: what is there, what is on its way, and what is kept for volumes with reserved space.
//!
//! All three together fit into the capacity. So a volume with reserved space never lacks it because of others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use longshore_volume::{Fullness, SOFT_THRESHOLDS};

use crate::cache::Missing;
use crate::catalog::Catalog;
use crate::format::PAGE_BYTES;
use crate::format::op::VolumeRecord;
use crate::format::record::{LayerId, Part, PartKind};
use crate::leaf::{ENTRY_DUMP_MAX, LEAF_PAGES};
use crate::place::Content;
use crate::reserve::{LEAF_COST, capacity};
use crate::state::State;

/// All that a volume can hold is reserved for it, as its size may change.
pub const FULL: u64 = u64::MAX;

/// Usage must fall this many percent below a threshold before it is reported again.
const LEVEL_SLACK: u64 = 3;

/// What a byte of the maps takes of the room for data, in halves: it is written, there may be as much waste, and the next
/// checkpoint may write it again.
const MAP_HALVES: u64 = 7;

/// What an entry more in the maps takes of the room for data, where no other is near it.
const ENTRY_COST: u64 = (LEAF_COST + ENTRY_DUMP_MAX) * MAP_HALVES / 2 + 2;

/// Most bytes that may be on their way to a layer when another takes its place, and the segments that they take in small
/// pools.
const UNDER_WAY: u64 = 16 << 20;
const UNDER_WAY_SEGMENTS: u64 = 2;

/// What the maps take for so many bytes of data. `is_dense`: they lie side by side in the end.
const fn map_cost(bytes: u64, is_dense: bool) -> u64 {
    let pages = bytes.div_ceil(PAGE_BYTES);
    if !is_dense {
        return pages * ENTRY_COST;
    }
    // The last leaf, and the first, may have few.
    let leaves = pages / LEAF_PAGES as u64 + 2;
    let leaves = if leaves < pages { leaves } else { pages };
    (leaves * LEAF_COST + pages * ENTRY_DUMP_MAX) * MAP_HALVES / 2 + pages * 2
}

/// Space that is kept for what a volume writes to a layer.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    layer: LayerId,
    /// Bytes that the layer may come to own.
    bytes: u64,
    /// That is all that the volume can hold.
    is_full: bool,
    /// The layer whose promise this one replaces.
    before: Option<LayerId>,
    /// What of that layer is given back.
    freed: u64,
    /// That layer stays, as a snapshot.
    freezes: bool,
}

impl Promise {
    /// What is promised to a volume.
    #[must_use]
    pub fn of(volume: &VolumeRecord) -> Self {
        let all = volume.size.next_multiple_of(PAGE_BYTES);
        Self {
            layer: volume.head,
            bytes: volume.reserve.min(all),
            is_full: volume.reserve >= all,
            before: None,
            freed: 0,
            freezes: false,
        }
    }

    /// There is another promise for the volume now, with the same layer.
    #[must_use]
    pub fn renewed(self) -> Self {
        Self {
            before: Some(self.layer),
            ..self
        }
    }

    /// The volume's layer becomes a snapshot, and it writes to another.
    #[must_use]
    pub fn behind_snapshot(self, layer: LayerId) -> Self {
        Self {
            before: Some(self.layer),
            freezes: true,
            layer,
            ..self
        }
    }

    /// The volume's layer, which owns so many bytes, is dropped, and it writes to another.
    #[must_use]
    pub fn rolled_back(self, freed: u64, layer: LayerId) -> Self {
        Self {
            before: Some(self.layer),
            freed,
            layer,
            ..self
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Room {
    /// Bytes of data that the pool has room for.
    pub capacity: u64,
    /// Bytes that are staged and not in the maps.
    charged: u64,
    promises: Vec<Promise>,
    /// The charged bytes by the layer that they go to.
    staged: HashMap<LayerId, u64>,
    /// What entries since the capacity was counted may take of it.
    debt: u64,
    /// The level of use that was told last, in percent.
    told: u64,
}

impl Room {
    /// Counts the capacity anew.
    pub fn measure(&mut self, state: &State) {
        self.capacity = capacity(state);
        self.debt = 0;
    }

    /// A level of use that has been reached, in percent, if it was not told before. A lower one is told again when use
    /// has been well below it.
    pub fn crossed(&mut self, used: u64) -> Option<u64> {
        let now = self.percent(used);
        let reaches = |percent: u64| now >= percent;
        let levels = SOFT_THRESHOLDS.into_iter().map(u64::from);
        let reached = levels.rev().find(|level| reaches(*level));
        let reached = reached.unwrap_or(0);
        if reached > self.told {
            self.told = reached;
            return Some(reached);
        }
        if self.told > reached && !reaches(self.told - LEVEL_SLACK) {
            self.told = reached;
        }
        None
    }

    /// Percent of the capacity that so many bytes are.
    fn percent(&self, used: u64) -> u64 {
        used / (self.capacity / 100).max(1)
    }

    /// What volumes of the pool say of it.
    pub fn fullness(&self, state: &State) -> Fullness {
        let segments = &state.segments;
        Fullness {
            size: u64::from(segments.count()) * segments.bytes(),
            ..self.levels(state.used())
        }
    }

    fn levels(&self, used: u64) -> Fullness {
        let byte = |percent: u64| u8::try_from(percent.min(100)).unwrap_or(100);
        Fullness {
            percent: byte(self.percent(used)),
            threshold: byte(self.told),
            size: 0,
            capacity: self.capacity,
            used,
        }
    }

    /// Reads the promises from the catalogue, while no change of it is under way.
    pub fn take_over(&mut self, catalog: &Catalog) {
        let reserved = catalog.volumes.values().filter(|it| it.reserve > 0);
        self.promises = reserved.map(Promise::of).collect();
    }

    /// Whether space is reserved for any volume.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        !self.promises.is_empty()
    }

    /// Bytes that are kept for volumes, and that they have not written yet.
    #[must_use]
    pub fn kept(&self, state: &State) -> u64 {
        self.kept_beside(state, &[])
    }

    fn kept_beside(&self, state: &State, layers: &[LayerId]) -> u64 {
        let others = self.promises.iter();
        let others = others.filter(|it| !layers.contains(&it.layer));
        others.map(|it| self.open_part(state, it)).sum()
    }

    /// Bytes that are kept for a promise, beside what is there.
    fn open_part(&self, state: &State, promise: &Promise) -> u64 {
        let there = owned(state, promise.layer) + self.staged_for(promise.layer);
        let rest = promise.bytes.saturating_sub(there);
        rest + map_cost(rest, promise.is_full)
    }

    fn staged_for(&self, layer: LayerId) -> u64 {
        self.staged.get(&layer).copied().unwrap_or(0)
    }

    /// What changes of the maps may take of the capacity, which shrinks by whole segments.
    fn margin(&self, state: &State) -> u64 {
        self.debt + state.segments.bytes()
    }

    /// Keeps space for volumes that are about to change, until [`Self::take_over`].
    ///
    /// # Errors
    /// So many bytes are missing.
    pub fn promise(&mut self, state: &State, promises: &[Promise]) -> Result<(), u64> {
        match self.missing(state, promises) {
            0 => {
                self.promises.extend_from_slice(promises);
                Ok(())
            }
            missing => Err(missing),
        }
    }

    /// Bytes that are missing to keep these promises.
    pub fn missing(&mut self, state: &State, promises: &[Promise]) -> u64 {
        self.measure(state);
        let replaced: Vec<LayerId> = promises.iter().filter_map(|it| it.before).collect();
        let mut wanted = state.used() + self.charged;
        wanted += self.kept_beside(state, &replaced) + self.margin(state);
        for promise in promises {
            wanted += self.open_part(state, promise);
            if let (true, Some(before)) = (promise.freezes, promise.before) {
                let rest = promise.bytes.saturating_sub(owned(state, before));
                let most = UNDER_WAY.min(UNDER_WAY_SEGMENTS * state.segments.bytes());
                wanted += rest.min(most);
            }
        }
        let freed: u64 = promises.iter().map(|it| it.freed).sum();
        wanted.saturating_sub(freed).saturating_sub(self.capacity)
    }

    /// Whether so many bytes of data for these pages may be staged for a layer. `None`: that is known when others are
    /// in the maps.
    ///
    /// # Errors
    /// A leaf is needed that is not in memory.
    pub fn admits(
        &self,
        state: &State,
        layer: LayerId,
        bytes: u64,
        spans: impl Iterator<Item = Range<u64>> + Clone,
    ) -> Result<Option<bool>, Missing> {
        let taken = state.used() + self.charged + bytes;
        if self.promises.is_empty() {
            return Ok(Some(taken <= self.capacity));
        }
        let kept = self.kept_beside(state, &[layer]) + self.margin(state);
        if taken + kept + entries_cost(spans.clone()) <= self.capacity {
            return Ok(Some(true));
        }
        let own = self.promises.iter().filter(|it| it.layer == layer);
        let Some(own) = own.max_by_key(|it| it.bytes) else {
            return Ok(Some(false));
        };
        if own.is_full {
            return Ok(Some(true));
        }
        let staged = self.staged_for(layer);
        let mut replaced = 0;
        for page in spans.flatten() {
            replaced += share(state, layer, page)?;
        }
        if owned(state, layer) + staged + bytes <= own.bytes + replaced {
            return Ok(Some(true));
        }
        // What is on its way may replace what is there.
        Ok((staged == 0).then_some(false))
    }

    /// Bytes of data are on their way to these pages of a layer.
    pub fn charge(&mut self, layer: LayerId, bytes: u64, spans: impl Iterator<Item = Range<u64>>) {
        self.charged += bytes;
        self.debt += entries_cost(spans);
        *self.staged.entry(layer).or_default() += bytes;
    }

    /// Parts of a record, with so many bytes of data, are in the maps, or will not get there.
    pub fn discharge(&mut self, parts: &[Part], bytes: u64) {
        self.charged -= bytes;
        for part in parts.iter().filter(|part| is_data(&part.kind)) {
            if let Entry::Occupied(mut staged) = self.staged.entry(part.layer) {
                let rest = staged.get().saturating_sub(u64::from(part.length));
                if rest == 0 {
                    staged.remove();
                } else {
                    *staged.get_mut() = rest;
                }
            }
        }
    }
}

fn entries_cost(spans: impl Iterator<Item = Range<u64>>) -> u64 {
    spans.map(|span| (span.end - span.start) * ENTRY_COST).sum()
}

fn owned(state: &State, layer: LayerId) -> u64 {
    let found = state.catalog.layers.get(&layer);
    found.map_or(0, |layer| layer.map.owned())
}

/// Bytes that a layer's own entry of a page takes.
fn share(state: &State, layer: LayerId, page: u64) -> Result<u64, Missing> {
    Ok(match state.catalog.own(layer, page)?.content() {
        Content::Data(stored) => stored.share(),
        Content::Absent | Content::Zero | Content::Lost => 0,
    })
}

/// Whether a part is what a host wrote.
const fn is_data(kind: &PartKind) -> bool {
    match kind {
        PartKind::Raw { .. } | PartKind::Chunk { .. } => true,
        PartKind::Moved { .. }
        | PartKind::Zero { .. }
        | PartKind::Lost { .. }
        | PartKind::Op { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_of_use_is_told_once_until_use_has_fallen() {
        let mut room = Room {
            capacity: 1000 << 20,
            ..Room::default()
        };
        let mut crossed = |percent: u64| room.crossed((10 << 20) * percent);
        assert_eq!(crossed(79), None);
        assert_eq!(crossed(80), Some(80));
        assert_eq!(crossed(85), None);
        assert_eq!(crossed(97), Some(95));
        assert_eq!(crossed(94), None);
        assert_eq!(crossed(96), None);
        assert_eq!(crossed(91), None);
        assert_eq!(crossed(95), Some(95));
        assert_eq!(crossed(10), None);
        assert_eq!(crossed(80), Some(80));
        // What volumes say agrees with what was told.
        let said = room.levels((10 << 20) * 96);
        assert_eq!((said.percent, said.threshold), (96, 80));
        let mut crossed = |percent: u64| room.crossed((10 << 20) * percent);
        assert_eq!(crossed(10), None);
        assert_eq!(crossed(80), Some(80));
    }
}
