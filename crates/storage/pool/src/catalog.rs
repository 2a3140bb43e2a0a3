//! What a pool holds: volumes, snapshots, and the tree of their layers.
//!
//! ```text
//! volume disk0 ──► layer 3 ──► layer 1 ◄── snapshot disk0@monday
//!                  (head)        ▲
//! volume copy  ──► layer 4 ──────┘
//! ```
//!
//! A read asks the head, then its ancestors. A layer that neither a volume nor a snapshot names is merged into
//! its only child, dropped if it has none, and kept as long as it has several.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::format::checkpoint::{Item, SnapshotRecord};
use crate::format::op::{Op, VolumeRecord};
use crate::format::record::LayerId;
use crate::map::LayerMap;
use crate::place::{Content, Entry};

/// The writes between two snapshots.
#[derive(Debug, Default)]
pub struct Layer {
    pub parent: Option<LayerId>,
    pub map: LayerMap,
    /// Bytes of the pool that its entries take.
    pub owned: u64,
}

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
    #[must_use]
    pub fn resolve(&self, head: LayerId, page: u64) -> (Entry, u64) {
        let mut absent = u64::MAX;
        let mut next = Some(head);
        while let Some(layer) = next.and_then(|id| self.layers.get(&id)) {
            let entry = layer.map.get(page);
            if !entry.is_absent() {
                return (entry, 0);
            }
            absent = absent.min(layer.map.absent_from(page));
            next = layer.parent;
        }
        (Entry::ABSENT, if absent == u64::MAX { 1 } else { absent })
    }

    /// The layer and its entry of a page, looking at that layer alone.
    #[must_use]
    pub fn own(&self, layer: LayerId, page: u64) -> Entry {
        let layer = self.layers.get(&self.current(layer));
        layer.map_or(Entry::ABSENT, |layer| layer.map.get(page))
    }

    fn children(&self, of: LayerId) -> Vec<LayerId> {
        let is_child = |(id, layer): (&LayerId, &Layer)| (layer.parent == Some(of)).then_some(*id);
        self.layers.iter().filter_map(is_child).collect()
    }

    fn is_named(&self, id: LayerId) -> bool {
        self.volumes.values().any(|volume| volume.head == id)
            || self
                .snapshots
                .values()
                .any(|snapshot| snapshot.shape.head == id)
    }

    /// Carries out a change. What it frees is returned: entries, whose space is to be given back.
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
                self.release(dropped, &mut freed);
            }
            Op::DeleteVolume { volume } => {
                if let Some(volume) = self.volumes.remove(volume) {
                    self.release(volume.head, &mut freed);
                }
            }
            Op::DeleteSnapshot { volume, name } => {
                let key = (volume.clone(), name.clone());
                if let Some(snapshot) = self.snapshots.remove(&key) {
                    self.release(snapshot.shape.head, &mut freed);
                }
            }
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
        freed
    }

    fn insert_layer(&mut self, id: LayerId, parent: Option<LayerId>) {
        self.next_layer = self.next_layer.max(id.0.saturating_add(1));
        let layer = Layer {
            parent,
            ..Layer::default()
        };
        self.layers.insert(id, layer);
    }

    fn resize(&mut self, name: &str, size: u64, freed: &mut Freed) {
        let Some(volume) = self.volumes.get_mut(name) else {
            return;
        };
        if !size.is_multiple_of(u64::from(volume.block_size)) {
            return;
        }
        let (before, head) = (volume.size, volume.head);
        volume.size = size;
        if size >= before {
            return;
        }
        // Nothing of what was cut off comes back when the volume grows again.
        let pages = |bytes: u64| bytes.div_ceil(crate::format::PAGE_BYTES);
        let mut page = pages(size);
        while page < pages(before) {
            let (entry, absent) = self.resolve(head, page);
            if entry.is_absent() {
                page += absent.max(1);
                continue;
            }
            let layer = self.layers.get_mut(&head).expect("a head is a layer");
            let hides = layer.parent.is_some();
            let new = if hides { Entry::ZERO } else { Entry::ABSENT };
            let before = layer.map.set(page, new);
            if let Content::Data(stored) = before.content() {
                layer.owned -= stored.share();
            }
            freed.push(before);
            page += 1;
        }
    }

    /// Nobody names the layer any more.
    fn release(&mut self, id: LayerId, freed: &mut Freed) {
        let mut next = Some(id);
        while let Some(id) = next {
            if self.is_named(id) || !self.layers.contains_key(&id) {
                return;
            }
            let children = self.children(id);
            match children[..] {
                [] => {
                    let layer = self.layers.remove(&id).expect("it is there");
                    self.aliases.retain(|_, to| *to != id);
                    next = layer.parent;
                    for_each_entry(layer.map, |_, entry| freed.push(entry));
                }
                [child] => {
                    self.merge(id, child, freed);
                    return;
                }
                _ => return,
            }
        }
    }

    /// Hands the entries of a layer to its only child, where that has none of its own.
    fn merge(&mut self, id: LayerId, child: LayerId, freed: &mut Freed) {
        let layer = self.layers.remove(&id).expect("it is there");
        let into = self.layers.get_mut(&child).expect("a child is a layer");
        into.parent = layer.parent;
        into.owned += layer.owned;
        for_each_entry(layer.map, |page, entry| {
            if into.map.get(page).is_absent() {
                into.map.set(page, entry);
            } else {
                if let Content::Data(stored) = entry.content() {
                    into.owned -= stored.share();
                }
                freed.push(entry);
            }
        });
        for to in self.aliases.values_mut().filter(|to| **to == id) {
            *to = child;
        }
        self.aliases.insert(id, child);
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
        | Op::Set { .. } => (&[], None),
    };
    members.iter().map(|member| member.head).chain(own)
}

fn for_each_entry(mut map: LayerMap, mut f: impl FnMut(u64, Entry)) {
    let mut from = 0;
    while let Some(number) = map.leaf_from(from).map(|(number, _)| number) {
        let leaf = map.take_leaf(number).expect("it was just found");
        let first = crate::format::long(number) * crate::format::long(crate::map::LEAF_PAGES);
        for (page, entry) in (first..).zip(leaf.entries()) {
            if !entry.is_absent() {
                f(page, *entry);
            }
        }
        from = number + 1;
    }
}
