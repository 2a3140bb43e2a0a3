//! What a pool holds: volumes, snapshots, and the tree of their layers.
//!
//! ```text
//! volume disk0 ──► layer 3 ──► layer 1 ◄── snapshot disk0@monday
//!                  (head)        ▲
//! volume copy  ──► layer 4 ──────┘
//! ```
//!
//! A read asks the head, then its ancestors. A layer that neither a volume nor a snapshot names is merged into
//! its only child, dropped if it has none, and kept as long as it has several. That takes as long as its map is large, and
//! is done step by step; until then it stays where it is.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;

use crate::cache::{Cache, Missing};
use crate::format::checkpoint::{Item, SnapshotRecord};
use crate::format::op::{Op, VolumeRecord};
use crate::format::record::LayerId;
use crate::format::{PAGE_BYTES, long};
use crate::leaf::{LEAF_PAGES, Leaf};
use crate::map::{Eviction, LayerMap};
use crate::place::Entry;

/// The writes between two snapshots.
#[derive(Debug)]
pub struct Layer {
    pub parent: Option<LayerId>,
    pub map: LayerMap,
}

impl Layer {
    #[must_use]
    pub const fn new(id: LayerId, parent: Option<LayerId>) -> Self {
        Self {
            parent,
            map: LayerMap::new(id),
        }
    }
}

/// What becomes of a layer that nothing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes, as nothing reads it.
    Dropped,
    /// Its only child gets what that lacks.
    Merged(LayerId),
}

/// Layers from this number on hold what was cut off of others. No record is of one.
pub const CUT_OFF: u32 = 1 << 31;

/// Leaves that are looked at for eviction at a time.
const EVICTIONS: usize = 64;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Catalog {
    pub volumes: BTreeMap<String, VolumeRecord>,
    /// By volume and name.
    pub snapshots: BTreeMap<(String, String), SnapshotRecord>,
    pub layers: BTreeMap<LayerId, Layer>,
    /// Layers that were merged, and what they were merged into.
    pub aliases: HashMap<LayerId, LayerId>,
    pub next_layer: u32,
    /// The leaves of all maps that are in memory.
    pub cache: Cache,
    /// Grows whenever layers come, go or change, entries move from one to another, or what cannot be read counts as lost.
    pub moves: u64,
    /// Layers that nothing names any more.
    released: BTreeSet<LayerId>,
    /// What is to be done with those of them that have one child or none.
    pub fates: BTreeMap<LayerId, Fate>,
}

/// Entries that a change of the catalogue removed.
pub type Freed = Vec<Entry>;

impl Catalog {
    /// A number that no layer has had.
    pub fn new_layer_id(&mut self) -> LayerId {
        let id = LayerId(self.next_layer);
        self.next_layer += 1;
        id
    }

    /// What a layer is called now; records of merged layers belong to others.
    #[must_use]
    pub fn current(&self, mut layer: LayerId) -> LayerId {
        while let Some(next) = self.aliases.get(&layer) {
            layer = *next;
        }
        layer
    }

    /// What a page of a layer reads as, and how many pages from it on are certainly absent in all layers.
    ///
    /// # Errors
    /// A leaf is needed that is not in memory.
    pub fn resolve(&self, head: LayerId, page: u64) -> Result<(Entry, u64), Missing> {
        let mut absent = u64::MAX;
        let mut next = Some(head);
        while let Some((id, layer)) = next.and_then(|id| Some((id, self.layers.get(&id)?))) {
            let entry = layer.map.get(page);
            let entry = entry.map_err(|home| Missing::new(id, leaf_of(page), home))?;
            if !entry.is_absent() {
                return Ok((entry, 0));
            }
            absent = absent.min(layer.map.absent_from(page));
            next = layer.parent;
        }
        Ok((Entry::ABSENT, if absent == u64::MAX { 1 } else { absent }))
    }

    /// The entry of a page, looking at that layer alone.
    ///
    /// # Errors
    /// Its leaf is not in memory.
    pub fn own(&self, layer: LayerId, page: u64) -> Result<Entry, Missing> {
        let id = self.current(layer);
        let Some(layer) = self.layers.get(&id) else {
            return Ok(Entry::ABSENT);
        };
        let entry = layer.map.get(page);
        entry.map_err(|home| Missing::new(id, leaf_of(page), home))
    }

    /// The layer's leaf of a page, if it is not in memory.
    #[must_use]
    pub fn away(&self, layer: LayerId, page: u64) -> Option<Missing> {
        let found = self.layers.get(&layer)?;
        let home = found.map.slot(leaf_of(page))?.away()?;
        Some(Missing::new(layer, leaf_of(page), home))
    }

    /// The layer's leaves of some pages that are not in memory.
    pub fn away_between(&self, layer: LayerId, pages: Range<u64>) -> impl Iterator<Item = Missing> {
        let found = self.layers.get(&layer);
        let mut from = leaf_of(pages.start);
        let end = leaf_of(pages.end.saturating_sub(1));
        let all = std::iter::from_fn(move || {
            let (number, slot) = found?.map.next(from).filter(|(it, _)| *it <= end)?;
            from = number + 1;
            Some((number, slot))
        });
        all.filter_map(move |(number, slot)| Some(Missing::new(layer, number, slot.away()?)))
    }

    /// Layers that volumes and snapshots name.
    fn named(&self) -> HashSet<LayerId> {
        let heads = self.volumes.values().map(|volume| volume.head);
        let frozen = self.snapshots.values().map(|it| it.shape.head);
        heads.chain(frozen).collect()
    }

    /// Nothing names the layers that a checkpoint has beside those of volumes and snapshots.
    pub fn release_unnamed(&mut self) {
        let named = self.named();
        let unnamed = self.layers.keys().filter(|id| !named.contains(id));
        self.released = unnamed.copied().collect();
        self.foresee();
    }

    /// Sees what is to become of layers that nothing names.
    pub fn foresee(&mut self) {
        self.moves += 1;
        self.fates.clear();
        let layers = &self.layers;
        self.released.retain(|id| layers.contains_key(id));
        if self.released.is_empty() {
            return;
        }
        let mut children: HashMap<LayerId, (u32, LayerId)> = HashMap::new();
        for (id, layer) in &self.layers {
            if let Some(parent) = layer.parent {
                children.entry(parent).or_insert((0, *id)).0 += 1;
            }
        }
        for id in &self.released {
            let fate = match children.get(id) {
                None => Fate::Dropped,
                Some((1, child)) => Fate::Merged(*child),
                Some(_) => continue,
            };
            self.fates.insert(*id, fate);
        }
    }

    /// Whether nothing reads a layer.
    #[must_use]
    pub fn is_dropped(&self, layer: LayerId) -> bool {
        self.fates.get(&layer) == Some(&Fate::Dropped)
    }

    /// Whether there are layers that nothing reads.
    #[must_use]
    pub fn has_dropped(&self) -> bool {
        self.fates.values().any(|fate| *fate == Fate::Dropped)
    }

    /// Bytes that nothing reads, and that are still to be given back.
    #[must_use]
    pub fn condemned(&self) -> u64 {
        let dropped = self
            .fates
            .iter()
            .filter(|(_, fate)| **fate == Fate::Dropped);
        dropped
            .filter_map(|(id, _)| self.layers.get(id))
            .map(|layer| layer.map.owned())
            .sum()
    }

    /// Has leaves leave the memory if there are too many: some of them.
    pub fn evict(&mut self) {
        self.evict_up_to(EVICTIONS);
    }

    /// Has leaves leave the memory until there are not too many, where a checkpoint has them.
    pub fn evict_all(&mut self) {
        // What was looked at lately stays the first time.
        self.evict_up_to(usize::MAX);
        self.evict_up_to(usize::MAX);
    }

    fn evict_up_to(&mut self, most: usize) {
        let Self { layers, cache, .. } = self;
        if cache.clock.len() > 2 * cache.resident + 1024 {
            // Of those that are gone, and that came again, there are too many.
            let mut known = HashSet::new();
            cache
                .clock
                .retain(|it| is_resident(layers, *it) && known.insert(*it));
        }
        // Each is looked at once: what has just come stays.
        for _ in 0..most.min(cache.clock.len()) {
            if !cache.is_over() {
                return;
            }
            let Some((id, number)) = cache.clock.pop_front() else {
                return;
            };
            let layer = layers.get_mut(&id);
            let eviction = layer.map_or(Eviction::Gone, |it| it.map.evict(number, cache));
            if eviction == Eviction::Stays {
                cache.clock.push_back((id, number));
            }
        }
    }

    /// Pages that a change needs, and whose leaf is not in memory.
    #[must_use]
    pub fn away_for(&self, op: &Op) -> Option<Missing> {
        let Op::Resize { volume, size } = op else {
            return None;
        };
        let volume = self.volumes.get(volume)?;
        (*size < volume.size)
            .then(|| self.away(volume.head, size.div_ceil(PAGE_BYTES)))
            .flatten()
    }

    /// Carries out a change. What it frees at once is returned: entries, whose space is to be given back. The caller has
    /// loaded what [`Self::away_for`] said.
    pub fn apply(&mut self, op: &Op) -> Freed {
        let mut freed = Freed::new();
        // Each change brings layers that nobody has had.
        let mut new = HashSet::new();
        let is_known =
            |layer: &LayerId| self.layers.contains_key(layer) || self.aliases.contains_key(layer);
        if !new_layers(op).all(|layer| new.insert(layer) && !is_known(&layer)) {
            return freed;
        }
        match op {
            Op::CreateVolume(volume) => {
                self.insert_layer(volume.head, None);
                self.volumes.insert(volume.name.clone(), volume.clone());
            }
            Op::Resize { volume, size } => self.resize(volume, *size, &mut freed),
            Op::Snapshot { name, members } => {
                for member in members {
                    let Some(volume) = self.volumes.get_mut(&member.volume) else {
                        continue;
                    };
                    let frozen = std::mem::replace(&mut volume.head, member.head);
                    let shape = VolumeRecord {
                        name: name.clone(),
                        id: member.id,
                        reserve: 0,
                        head: frozen,
                        ..volume.clone()
                    };
                    self.insert_layer(member.head, Some(frozen));
                    let snapshot = SnapshotRecord {
                        shape,
                        volume: member.volume.clone(),
                    };
                    let key = (member.volume.clone(), name.clone());
                    self.snapshots.insert(key, snapshot);
                }
            }
            Op::Clone {
                origin,
                snapshot,
                volume,
            } => {
                let key = (origin.clone(), snapshot.clone());
                let parent = self.snapshots.get(&key).map(|found| found.shape.head);
                self.insert_layer(volume.head, parent);
                self.volumes.insert(volume.name.clone(), volume.clone());
            }
            Op::RollBack {
                volume,
                snapshot,
                layer,
            } => {
                let key = (volume.clone(), snapshot.clone());
                let Some((frozen, size)) = self
                    .snapshots
                    .get(&key)
                    .map(|found| (found.shape.head, found.shape.size))
                else {
                    return freed;
                };
                let Some(volume) = self.volumes.get_mut(volume) else {
                    return freed;
                };
                let dropped = std::mem::replace(&mut volume.head, *layer);
                volume.size = size;
                self.insert_layer(*layer, Some(frozen));
                self.release(dropped);
            }
            Op::DeleteVolume { volume } => {
                if let Some(volume) = self.volumes.remove(volume) {
                    self.release(volume.head);
                }
            }
            Op::DeleteSnapshot { volume, name } => {
                let key = (volume.clone(), name.clone());
                if let Some(snapshot) = self.snapshots.remove(&key) {
                    self.release(snapshot.shape.head);
                }
            }
            // Nothing in the catalogue changes.
            Op::HandOut { .. } => return freed,
            Op::Set {
                volume,
                codec,
                quota,
                reserve,
            } => {
                if let Some(volume) = self.volumes.get_mut(volume) {
                    volume.codec = *codec;
                    volume.quota = *quota;
                    volume.reserve = *reserve;
                }
            }
        }
        self.foresee();
        freed
    }

    fn insert_layer(&mut self, id: LayerId, parent: Option<LayerId>) {
        self.next_layer = self.next_layer.max(id.0.saturating_add(1));
        self.layers.insert(id, Layer::new(id, parent));
    }

    /// A layer for what is cut off of others.
    fn cut_off(&mut self) -> LayerId {
        let mut free = (CUT_OFF..).map(LayerId);
        let free = free.find(|id| !self.layers.contains_key(id) && !self.aliases.contains_key(id));
        let id = free.expect("there are fewer layers than numbers");
        self.layers.insert(id, Layer::new(id, None));
        self.released.insert(id);
        id
    }

    /// The caller has loaded what [`Self::away_for`] said.
    fn resize(&mut self, name: &str, size: u64, freed: &mut Freed) {
        let Some(volume) = self.volumes.get_mut(name) else {
            return;
        };
        if !size.is_multiple_of(u64::from(volume.block_size)) {
            return;
        }
        let (before, head) = (volume.size, volume.head);
        volume.size = size;
        if size < before {
            self.shrink(head, size.div_ceil(PAGE_BYTES), freed);
        }
    }

    /// Nothing of what a layer has from a page on comes back when its volume grows again.
    fn shrink(&mut self, head: LayerId, cut: u64, freed: &mut Freed) {
        let mut above = Vec::new();
        let mut next = self.layers.get(&head).and_then(|layer| layer.parent);
        while let Some(layer) = next.and_then(|id| self.layers.get(&id)) {
            let mut from = leaf_of(cut);
            while let Some((number, _)) = layer.map.next(from) {
                above.push(number);
                from = number + 1;
            }
            next = layer.parent;
        }
        above.sort_unstable();
        above.dedup();
        let limbo = self.cut_off();
        let Self { layers, cache, .. } = self;
        let Some(mut cut_off) = layers.remove(&limbo) else {
            return;
        };
        if let Some(layer) = layers.get_mut(&head) {
            let first = leaf_of(cut);
            let behind = first + usize::from(!cut.is_multiple_of(long(LEAF_PAGES)));
            while let Some((number, _)) = layer.map.next(behind) {
                if let Some(slot) = layer.map.take(number, cache) {
                    cut_off.map.put(number, slot, cache);
                }
            }
            // What older layers have must not show through.
            let zeros = std::sync::Arc::new(Leaf::filled(Entry::ZERO));
            for number in above.iter().copied().filter(|number| *number >= behind) {
                let number = u32::try_from(number).expect("it was a number of a leaf");
                layer.map.insert_leaf(number, zeros.clone(), cache);
            }
            if behind > first {
                let entry = match above.contains(&first) {
                    true => Entry::ZERO,
                    false => Entry::ABSENT,
                };
                for page in cut..long(behind) * long(LEAF_PAGES) {
                    freed.push(layer.map.set(page, entry, cache));
                }
            }
        }
        layers.insert(limbo, cut_off);
    }

    /// Nobody names the layer any more.
    fn release(&mut self, id: LayerId) {
        if !self.named().contains(&id) && self.layers.contains_key(&id) {
            self.released.insert(id);
        }
    }

    /// A layer that nothing reads is empty.
    pub fn drop_layer(&mut self, id: LayerId) {
        self.layers.remove(&id);
        self.aliases.retain(|_, to| *to != id);
        self.foresee();
    }

    /// The only child of a layer has all of its entries.
    pub fn end_merge(&mut self, id: LayerId, child: LayerId) {
        let Some(layer) = self.layers.remove(&id) else {
            return;
        };
        if let Some(into) = self.layers.get_mut(&child) {
            into.parent = layer.parent;
        }
        for to in self.aliases.values_mut().filter(|to| **to == id) {
            *to = child;
        }
        self.aliases.insert(id, child);
        self.foresee();
    }

    /// The layers that may have an entry that a layer had when a record of it was made: that layer, those that it is being
    /// merged into, and those that are being merged into it.
    #[must_use]
    pub fn heirs(&self, layer: LayerId) -> Vec<LayerId> {
        let layer = self.current(layer);
        if self.fates.is_empty() {
            return vec![layer];
        }
        let into = |id: &LayerId| match self.fates.get(id) {
            Some(Fate::Merged(child)) => Some(*child),
            Some(Fate::Dropped) | None => None,
        };
        let from = |id: &LayerId| {
            let parent = self.layers.get(id)?.parent?;
            (into(&parent) == Some(*id)).then_some(parent)
        };
        let below = std::iter::successors(Some(layer), into);
        let above = std::iter::successors(from(&layer), from);
        below.chain(above).collect()
    }

    /// Whether layers and aliases lead to layers that are there, and never round in a circle.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let ends = |from: LayerId, next: &dyn Fn(LayerId) -> Option<LayerId>, most: usize| {
            let mut steps = std::iter::successors(Some(from), |id| next(*id));
            steps.nth(most + 1).is_none()
        };
        let parent = |id: LayerId| self.layers.get(&id).and_then(|layer| layer.parent);
        let alias = |id: LayerId| self.aliases.get(&id).copied();
        let heads = self.volumes.values().map(|volume| volume.head);
        let frozen = self.snapshots.values().map(|snapshot| snapshot.shape.head);
        let parents = self.layers.values().filter_map(|layer| layer.parent);
        heads
            .chain(frozen)
            .chain(parents)
            .all(|id| self.layers.contains_key(&id))
            && self.aliases.keys().all(|id| !self.layers.contains_key(id))
            && self
                .layers
                .keys()
                .all(|id| ends(*id, &parent, self.layers.len()))
            && self
                .aliases
                .keys()
                .all(|id| ends(*id, &alias, self.aliases.len()))
    }

    /// Leaves and entries of all maps.
    #[must_use]
    pub fn map_size(&self) -> (usize, usize) {
        let sizes = self.layers.values();
        sizes.fold((0, 0), |(leaves, entries), layer| {
            (
                leaves + layer.map.leaf_count(),
                entries + layer.map.entry_count(),
            )
        })
    }

    /// Everything but the maps, as a checkpoint has it.
    pub fn for_each_item(&self, put: &mut impl FnMut(&Item)) {
        for volume in self.volumes.values() {
            put(&Item::Volume(volume.clone()));
            if volume.reserve > 0 {
                put(&Item::Reserve {
                    volume: volume.name.clone(),
                    bytes: volume.reserve,
                });
            }
        }
        for snapshot in self.snapshots.values() {
            put(&Item::Snapshot(snapshot.clone()));
        }
        for (id, layer) in &self.layers {
            put(&Item::Layer {
                id: *id,
                parent: layer.parent,
            });
        }
        for (from, to) in &self.aliases {
            put(&Item::Alias {
                from: *from,
                to: *to,
            });
        }
    }

    /// The layers that a volume or snapshot reads, newest first.
    #[must_use]
    pub fn chain(&self, head: LayerId) -> Vec<LayerId> {
        let parent = |id: &LayerId| self.layers.get(id).and_then(|layer| layer.parent);
        std::iter::successors(Some(head), parent).collect()
    }
}

fn new_layers(op: &Op) -> impl Iterator<Item = LayerId> {
    let (members, own): (&[_], _) = match op {
        Op::Snapshot { members, .. } => (members, None),
        Op::CreateVolume(volume) | Op::Clone { volume, .. } => (&[], Some(volume.head)),
        Op::RollBack { layer, .. } => (&[], Some(*layer)),
        Op::Resize { .. }
        | Op::DeleteVolume { .. }
        | Op::DeleteSnapshot { .. }
        | Op::Set { .. }
        | Op::HandOut { .. } => (&[], None),
    };
    members.iter().map(|member| member.head).chain(own)
}

/// Whether a leaf is in memory.
fn is_resident(layers: &BTreeMap<LayerId, Layer>, (id, number): (LayerId, u32)) -> bool {
    let place = usize::try_from(number).expect("32 bits fit");
    let slot = layers.get(&id).and_then(|layer| layer.map.slot(place));
    slot.is_some_and(|slot| slot.leaf().is_some())
}

/// The number of a page's leaf.
fn leaf_of(page: u64) -> usize {
    usize::try_from(page / long(LEAF_PAGES)).expect("fewer leaves than bytes of memory")
}
