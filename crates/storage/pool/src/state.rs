//! The state that records build: the same code applies them while they are written, and after a crash.

use crate::catalog::Catalog;
use crate::format::op::Op;
use crate::format::record::{LayerId, Part, PartKind};
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
    /// Puts a record into the maps. `payload`: where its payload lies. `ops`: the changes of those parts that are one,
    /// in their order.
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
        let layer = self.catalog.current(part.layer);
        let place = || payload.plus(u64::from(part.offset));
        match &part.kind {
            PartKind::Raw { crcs } => {
                for (number, crc) in (0_u64..).zip(crcs) {
                    let stored = Stored {
                        place: place().plus(number * crate::format::PAGE_BYTES),
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
                    if self.lies_at(layer, number, *from) {
                        let entry = chunk(part, place(), *codec, *pages, *crc, page);
                        self.set(layer, number, entry);
                    }
                }
            }
            PartKind::Lost { mask, from } => {
                for page in (0..4_u8).filter(|page| mask & 1 << page != 0) {
                    let number = part.page + u64::from(page);
                    if self.lies_at(layer, number, *from) {
                        self.set(layer, number, Entry::LOST);
                    }
                }
            }
            PartKind::Zero { pages } => self.zero(layer, part.page, u64::from(*pages)),
            PartKind::Op { .. } => {}
        }
    }

    /// Carries out a change of the catalogue, and gives back what it frees.
    pub fn apply_op(&mut self, op: &Op) {
        for entry in self.catalog.apply(op) {
            self.forget(entry);
        }
    }

    /// Whether a layer's own entry of a page is the chunk at that place.
    #[must_use]
    pub fn lies_at(&self, layer: LayerId, page: u64, place: Place) -> bool {
        match self.catalog.own(layer, page).content() {
            Content::Data(stored) => stored.place == place,
            Content::Absent | Content::Zero | Content::Lost => false,
        }
    }

    pub fn set(&mut self, layer: LayerId, page: u64, entry: Entry) {
        let Some(found) = self.catalog.layers.get_mut(&layer) else {
            return;
        };
        let before = found.map.set(page, entry);
        if let Content::Data(stored) = entry.content() {
            found.owned += stored.share();
            self.segments.add_live(stored.place, stored.share());
        }
        if let Content::Data(stored) = before.content() {
            found.owned -= stored.share();
            self.segments.sub_live(stored.place, stored.share());
        }
    }

    fn forget(&mut self, entry: Entry) {
        if let Content::Data(stored) = entry.content() {
            self.segments.sub_live(stored.place, stored.share());
        }
    }

    fn zero(&mut self, layer: LayerId, first: u64, pages: u64) {
        let end = first.saturating_add(pages);
        let mut page = first;
        while page < end {
            let Some(found) = self.catalog.layers.get(&layer) else {
                return;
            };
            let (entry, absent) = self.catalog.resolve(layer, page);
            if entry.is_absent() {
                page += absent.max(1);
                continue;
            }
            let hides = found.parent.is_some();
            #[cfg(test)]
            let hides =
                hides && !crate::testing::has_planted(crate::testing::Planted::ForgetsZeros);
            let entry = if hides { Entry::ZERO } else { Entry::ABSENT };
            self.set(layer, page, entry);
            page += 1;
        }
    }

    /// Counts the live bytes anew, from the maps.
    pub fn recount(&mut self) {
        let mut found = Vec::new();
        for layer in self.catalog.layers.values_mut() {
            layer.owned = 0;
            for_each_stored(&layer.map, |_, stored| {
                layer.owned += stored.share();
                found.push((stored.place, stored.share()));
            });
        }
        for (place, share) in found {
            self.segments.add_live(place, share);
        }
    }
}

/// Each page of a map that has data.
pub fn for_each_stored(map: &LayerMap, mut f: impl FnMut(u64, Stored)) {
    let mut from = 0;
    while let Some((number, leaf)) = map.leaf_from(from) {
        let first = crate::format::long(number) * crate::format::long(crate::map::LEAF_PAGES);
        for (page, entry) in (first..).zip(leaf.entries()) {
            if let Content::Data(stored) = entry.content() {
                f(page, stored);
            }
        }
        from = number + 1;
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
