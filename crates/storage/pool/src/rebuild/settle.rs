//! What a rebuild makes of segments and layers once the records are in the maps.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::base::BaseKind;
use super::replay::{Counted, PutTogether, begins};
use crate::catalog::{CUT_OFF, Layer};
use crate::format::op::VolumeRecord;
use crate::format::record::LayerId;
use crate::format::{PAGE_BYTES, long};
use crate::place::{Codec, Entry};
use crate::reserve::map_reserve;
use crate::segments::Use;
use crate::survey::Head;

/// Of a volume that nothing names, the size is a multiple of this.
const SIZE_STEP: u64 = 1 << 20;

impl PutTogether<'_> {
    /// Entries of the checkpoint whose segments were used anew, and that no record has replaced, are lost. Returns how many.
    pub fn drop_stale(&mut self, records: &[Counted]) -> u64 {
        let base = &mut self.base;
        let is_reused = |segment: u32, generation: u64, head: Head| match head {
            Head::Map => !base.newest.segments.contains(&segment),
            Head::Records(found) => found != generation,
            Head::Unknown => false,
        };
        let reused: HashSet<u32> = base
            .state
            .segments
            .iter()
            .filter(|(number, it)| {
                it.used == Use::Sealed
                    && is_reused(*number, it.generation, base.survey.head(*number))
            })
            .map(|(number, _)| number)
            .collect();
        if reused.is_empty() {
            return 0;
        }
        let segments = &base.state.segments;
        let mut there = HashSet::new();
        for record in records {
            let parts = record.parts.iter();
            let begins = parts.flat_map(|part| begins(part, record.payload));
            there.extend(
                begins.filter(|it| segments.of(*it).is_some_and(|it| reused.contains(&it))),
            );
        }
        let mut stale = Vec::new();
        for (id, layer) in &base.state.catalog.layers {
            crate::state::for_each_stored(&layer.map, |page, stored| {
                let is_in = segments
                    .of(stored.place)
                    .is_some_and(|it| reused.contains(&it));
                if is_in && !there.contains(&stored.place) {
                    stale.push((*id, page));
                }
            });
        }
        for (layer, page) in &stale {
            base.state.set(*layer, *page, Entry::LOST);
        }
        long(stale.len())
    }

    /// Layers that no volume and no snapshot reads become volumes.
    pub fn name_orphans(&mut self) {
        if self.base.kind != BaseKind::Nothing {
            return;
        }
        let catalog = &self.base.state.catalog;
        let heads = catalog.volumes.values().map(|volume| volume.head);
        let frozen = catalog.snapshots.values().map(|it| it.shape.head);
        let read: HashSet<LayerId> = heads
            .chain(frozen)
            .flat_map(|head| catalog.chain(head))
            .collect();
        let layers = catalog.layers.iter().filter(|(id, _)| !read.contains(id));
        let orphans = layers.filter_map(|(id, layer)| Some((*id, end_of(layer)?)));
        for (head, end) in orphans.collect::<Vec<_>>() {
            let name = format!("recovered-{}", head.0);
            let size = (end * PAGE_BYTES)
                .next_multiple_of(SIZE_STEP)
                .min(crate::SIZE_MAX);
            let text =
                format!("nothing names its volume or snapshot; it has a size of {size} bytes now");
            self.doubt(&name, text);
            let volume = VolumeRecord {
                name: name.clone(),
                id: Uuid::new_v4(),
                size,
                block_size: 512,
                codec: Codec::Raw,
                quota: 0,
                reserve: 0,
                head,
            };
            self.base.state.catalog.volumes.insert(name, volume);
        }
    }

    /// Segments that have data by the checkpoint, and say nothing of themselves. How many they are.
    pub fn silent_segments(&self) -> u64 {
        let generations = self.generations();
        let silent = self.base.state.segments.iter().filter(|(number, it)| {
            it.used == Use::Sealed
                && it.live > 0
                && self.base.survey.head(*number) == Head::Unknown
                && generations.get(number) != Some(&it.generation)
        });
        long(silent.count())
    }

    /// Generations of segments by the records that were found in them.
    fn generations(&self) -> HashMap<u32, u64> {
        let records = self.found.by_number.values();
        records
            .map(|(header, _)| (header.segment, header.generation))
            .collect()
    }

    /// New layers have numbers that no record has.
    pub fn settle_layers(&mut self) {
        let headers = self.found.by_number.values();
        let parts = headers.flat_map(|(header, _)| header.parts.iter().chain(header.echo.iter()));
        let of_parts = parts.map(|part| part.layer.0).filter(|id| *id < CUT_OFF);
        let of_parts = of_parts.max().unwrap_or(0);
        let catalog = &mut self.base.state.catalog;
        let ids = catalog.layers.keys().map(|id| id.0);
        let there = ids.filter(|id| *id < CUT_OFF).max().unwrap_or(0);
        let last = of_parts.max(there);
        catalog.next_layer = catalog.next_layer.max(last.saturating_add(1));
    }

    /// What each segment is used for from now on.
    pub fn settle_segments(&mut self) {
        let generations = self.generations();
        for number in 0..self.base.state.segments.count() {
            let head = self.base.survey.head(number);
            let segment = self.base.state.segments.get_mut(number);
            if matches!(segment.used, Use::Map | Use::Leaves | Use::Gone) {
                continue;
            }
            let of_records = generations.get(&number);
            let generation = match head {
                Head::Records(generation) => Some(generation),
                Head::Map | Head::Unknown => of_records.copied(),
            };
            let was_sealed = segment.used == Use::Sealed && generation == Some(segment.generation);
            segment.generation = generation.unwrap_or(segment.generation);
            // Another rebuild may need its records, until there is a checkpoint.
            segment.used = match segment.live > 0 || was_sealed || of_records.is_some() {
                true => Use::Sealed,
                false => Use::Free,
            };
        }
        // Without a checkpoint, all that was ever written has records. The next one needs room.
        let wanted = map_reserve(&self.base.state) + 1;
        let segments = &mut self.base.state.segments;
        let mut dead: Vec<u32> = segments.dead().collect();
        dead.sort_by_key(|number| std::cmp::Reverse(segments.get(*number).generation));
        while segments.free().count() < wanted
            && let Some(number) = dead.pop()
        {
            segments.release(number);
        }
    }
}

/// The page behind the last one of a layer.
fn end_of(layer: &Layer) -> Option<u64> {
    let mut end = None;
    crate::state::for_each_stored(&layer.map, |page, _| end = Some(page + 1));
    end
}
