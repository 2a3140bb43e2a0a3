//! The state that records build: the same code applies them while they are written, and after a crash.

use std::sync::Arc;

use crate::cache::Missing;
use crate::catalog::{CUT_OFF, Catalog};
use crate::format::op::Op;
use crate::format::record::{LayerId, Part, PartKind};
use crate::format::{PAGE_BYTES, long};
use crate::leaf::{LEAF_PAGES, Leaf};
use crate::map::LayerMap;
use crate::place::{Codec, Content, Entry, Place, Stored};
use crate::segments::Segments;

/// Catalogue, maps and segments of a pool.
#[derive(Debug)]
pub struct State {
    pub catalog: Catalog,
    pub segments: Segments,
    /// Number of the last record that the maps contain.
    pub applied: u64,
}

impl State {
    /// Bytes of data, without those that nothing reads any more.
    #[must_use]
    pub fn used(&self) -> u64 {
        let condemned = self.catalog.condemned();
        self.segments.live.saturating_sub(condemned)
    }

    /// Leaves that have to be in memory before a record is put into the maps, and are not.
    #[must_use]
    pub fn missing(&self, parts: &[Part], ops: &[Op]) -> Vec<Missing> {
        let mut missing = Vec::new();
        for part in parts {
            self.missing_for(part.layer, part.page, &part.kind, &mut missing);
        }
        missing.extend(ops.iter().filter_map(|op| self.catalog.away_for(op)));
        missing
    }

    /// The same for what is to be a part of a record.
    pub fn missing_for(
        &self,
        layer: LayerId,
        page: u64,
        kind: &PartKind,
        missing: &mut Vec<Missing>,
    ) {
        if layer.0 >= CUT_OFF {
            return;
        }
        let pages = match kind {
            PartKind::Raw { crcs } => long(crcs.len()),
            PartKind::Chunk { pages, .. } => u64::from(*pages),
            PartKind::Zero { pages } => u64::from(*pages),
            PartKind::Moved { mask, from, .. } | PartKind::Lost { mask, from } => {
                for page in masked(*mask, page) {
                    missing.extend(self.holder(layer, page, *from).err());
                }
                return;
            }
            PartKind::Op { .. } => return,
        };
        let layer = self.catalog.current(layer);
        missing.extend(self.catalog.away(layer, page));
        let next = (page / long(LEAF_PAGES) + 1) * long(LEAF_PAGES);
        let end = page.saturating_add(pages);
        if end > next {
            missing.extend(self.catalog.away_between(layer, next..end));
        }
    }

    /// Puts a record into the maps. `payload`: where its payload lies. `ops`: the changes of those parts that are one,
    /// in their order. The caller has loaded what is [missing](Self::missing).
    pub fn apply(&mut self, parts: &[Part], payload: Place, ops: impl IntoIterator<Item = Op>) {
        let mut ops = ops.into_iter();
        for part in parts {
            if matches!(part.kind, PartKind::Op { .. }) {
                if let Some(op) = ops.next() {
                    self.apply_op(&op);
                }
            } else {
                self.apply_part(part, payload);
            }
        }
    }

    fn apply_part(&mut self, part: &Part, payload: Place) {
        // No record is of one of these layers.
        if part.layer.0 >= CUT_OFF {
            return;
        }
        let layer = self.catalog.current(part.layer);
        let place = || payload.plus(u64::from(part.offset));
        match &part.kind {
            PartKind::Raw { crcs } => {
                for (number, crc) in (0_u64..).zip(crcs) {
                    let stored = Stored {
                        place: place().plus(number * PAGE_BYTES),
                        length: 4096,
                        crc: *crc,
                        codec: Codec::Raw,
                        page: 0,
                        pages: 1,
                    };
                    self.set(layer, part.page + number, Entry::data(&stored));
                }
            }
            PartKind::Chunk { codec, pages, crc } => {
                for page in 0..*pages {
                    let entry = chunk(part, place(), *codec, *pages, *crc, page);
                    self.set(layer, part.page + u64::from(page), entry);
                }
            }
            PartKind::Moved {
                codec,
                pages,
                mask,
                crc,
                from,
            } => {
                for page in (0..*pages).filter(|page| mask & 1 << page != 0) {
                    let number = part.page + u64::from(page);
                    if let Ok(Some(holder)) = self.holder(layer, number, *from) {
                        let entry = chunk(part, place(), *codec, *pages, *crc, page);
                        self.set(holder, number, entry);
                    }
                }
            }
            PartKind::Lost { mask, from } => {
                for page in masked(*mask, part.page) {
                    if let Ok(Some(holder)) = self.holder(layer, page, *from) {
                        self.set(holder, page, Entry::LOST);
                    }
                }
            }
            PartKind::Zero { pages } => self.zero(layer, part.page, u64::from(*pages)),
            PartKind::Op { .. } => {}
        }
    }

    /// Carries out a change of the catalogue, and gives back what it frees at once.
    pub fn apply_op(&mut self, op: &Op) {
        for entry in self.catalog.apply(op) {
            self.forget(entry);
        }
        self.forget_homes();
    }

    /// The layer whose entry of a page is the chunk at that place: the one that had it when a record was made, or one that
    /// it was merged into meanwhile, or that is being merged into it.
    ///
    /// # Errors
    /// A leaf is needed that is not in memory.
    pub fn holder(
        &self,
        layer: LayerId,
        page: u64,
        place: Place,
    ) -> Result<Option<LayerId>, Missing> {
        for layer in self.catalog.heirs(layer) {
            if let Content::Data(stored) = self.catalog.own(layer, page)?.content()
                && stored.place == place
            {
                return Ok(Some(layer));
            }
        }
        Ok(None)
    }

    pub fn set(&mut self, layer: LayerId, page: u64, entry: Entry) {
        let Catalog { layers, cache, .. } = &mut self.catalog;
        let Some(found) = layers.get_mut(&layer) else {
            return;
        };
        let before = found.map.set(page, entry, cache);
        if let Content::Data(stored) = entry.content() {
            self.segments.add_live(stored.place, stored.share());
        }
        self.forget(before);
        self.forget_homes();
    }

    pub(crate) fn forget(&mut self, entry: Entry) {
        if let Content::Data(stored) = entry.content() {
            self.segments.sub_live(stored.place, stored.share());
        }
    }

    /// Gives back the space of leaves that are gone.
    pub(crate) fn forget_homes(&mut self) {
        for home in self.catalog.cache.homeless.drain(..) {
            self.segments.sub_leaf(home.place, home.bytes());
        }
    }

    fn zero(&mut self, layer: LayerId, first: u64, pages: u64) {
        let end = first.saturating_add(pages);
        let mut page = first;
        while page < end {
            let Some(found) = self.catalog.layers.get(&layer) else {
                return;
            };
            let hides = found.parent.is_some();
            match self.catalog.resolve(layer, page) {
                Ok((entry, absent)) if entry.is_absent() => {
                    page += absent.max(1);
                    continue;
                }
                // Whether an older layer has something there is not known; it is hidden all the same.
                Ok(_) | Err(_) => {}
            }
            #[cfg(test)]
            let hides =
                hides && !crate::testing::has_planted(crate::testing::Planted::ForgetsZeros);
            let entry = if hides { Entry::ZERO } else { Entry::ABSENT };
            self.set(layer, page, entry);
            page += 1;
        }
    }

    /// Counts the live bytes anew, from maps that are in memory as a whole.
    pub fn recount(&mut self) {
        let mut found = Vec::new();
        for layer in self.catalog.layers.values() {
            for_each_stored(&layer.map, |_, stored| {
                found.push((stored.place, stored.share()));
            });
        }
        for (place, share) in found {
            self.segments.add_live(place, share);
        }
    }

    /// Whether a leaf that was read is what the checkpoint says of it.
    #[must_use]
    pub fn is_leaf(&self, missing: &Missing, leaf: &Leaf) -> bool {
        let number = usize::try_from(missing.number).expect("32 bits fit");
        let layer = self.catalog.layers.get(&missing.layer);
        let slot = layer.and_then(|layer| layer.map.slot(number));
        // One that is not needed any more is none of these.
        slot.is_none_or(|slot| {
            slot.away() != Some(missing.home)
                || slot.present() == leaf.present() && slot.owned() == leaf.owned()
        })
    }

    /// Takes a leaf that was read, or has its pages be lost if it is damaged. Whether they are lost now.
    pub fn take_leaf(&mut self, missing: &Missing, leaf: Option<Arc<Leaf>>) -> bool {
        let Catalog { layers, cache, .. } = &mut self.catalog;
        let Some(layer) = layers.get_mut(&missing.layer) else {
            return false;
        };
        let is_lost = match leaf {
            Some(leaf) => {
                layer.map.arrive(missing.number, missing.home, leaf, cache);
                false
            }
            None => layer.map.lose(missing.number, missing.home, cache),
        };
        self.forget_homes();
        self.catalog.evict();
        is_lost
    }
}

/// The pages of a chunk that are in use.
fn masked(mask: u8, first: u64) -> impl Iterator<Item = u64> {
    let used = (0..4_u8).filter(move |page| mask & 1 << page != 0);
    used.map(move |page| first + u64::from(page))
}

/// Each page that has data, of the leaves of a map that are in memory.
pub fn for_each_stored(map: &LayerMap, mut f: impl FnMut(u64, Stored)) {
    for (number, _, leaf) in map.resident() {
        let first = long(number) * long(LEAF_PAGES);
        for (page, entry) in (first..).zip(leaf.entries()) {
            if let Content::Data(stored) = entry.content() {
                f(page, stored);
            }
        }
    }
}

pub fn chunk(part: &Part, place: Place, codec: Codec, pages: u8, crc: u32, page: u8) -> Entry {
    Entry::data(&Stored {
        place,
        length: u16::try_from(part.length).expect("a chunk is at most 16 KiB"),
        crc,
        codec,
        page,
        pages,
    })
}
