//! Maps of layers: which entry a page has.
//!
//! ```text
//! layer ──► branches ──► slots ──► leaf, in memory: 512 entries
//!           (256 MiB)    (2 MiB) └► home: where the newest checkpoint has it
//! ```
//!
//! A leaf that has a home need not be in memory: whoever needs it loads it. Branches and leaves are shared with whoever
//! took a [capture](LayerMap::capture), and copied when they change afterwards.

use std::sync::Arc;

use crate::cache::Cache;
use crate::format::record::LayerId;
use crate::leaf::{Home, Leaf, share};
use crate::place::Entry;

const LEAF_PAGES_LONG: u64 = 512;

/// Leaves of a branch: 256 MiB of a volume.
pub const BRANCH_LEAVES: usize = 128;
const BRANCH_LEAVES_LONG: u64 = 128;

/// What a map has for 512 pages.
#[derive(Clone, Debug, Default)]
pub struct Slot {
    home: Option<Home>,
    /// `None`: it is on the drives alone.
    leaf: Option<Arc<Leaf>>,
    /// Bytes of the pool that its entries take.
    owned: u32,
    /// Pages that have entries.
    present: u16,
    /// The leaf in memory is newer than the one on the drives.
    is_dirty: bool,
}

impl Slot {
    const fn is_vacant(&self) -> bool {
        self.present == 0
    }

    #[must_use]
    pub const fn home(&self) -> Option<Home> {
        self.home
    }

    /// The leaf, if it is in memory.
    #[must_use]
    pub const fn leaf(&self) -> Option<&Arc<Leaf>> {
        self.leaf.as_ref()
    }

    /// Where the leaf is, if it is not in memory.
    #[must_use]
    pub const fn away(&self) -> Option<Home> {
        match self.leaf {
            Some(_) => None,
            None => self.home,
        }
    }

    #[must_use]
    pub const fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    #[must_use]
    pub const fn owned(&self) -> u32 {
        self.owned
    }

    #[must_use]
    pub const fn present(&self) -> u16 {
        self.present
    }
}

/// Slots of 128 leaves.
#[derive(Clone, Debug)]
pub struct Branch {
    slots: [Slot; BRANCH_LEAVES],
    used: u16,
}

impl Branch {
    fn new() -> Self {
        Self {
            slots: std::array::from_fn(|_| Slot::default()),
            used: 0,
        }
    }

    /// The slots that have entries, with their places.
    pub fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter(|(_, slot)| !slot.is_vacant())
    }
}

/// Branches of a map at one moment, by number.
pub type Capture = Vec<Option<Arc<Branch>>>;

/// The map of a layer.
#[derive(Debug)]
pub struct LayerMap {
    id: LayerId,
    /// By number; a missing one has no entry.
    branches: Vec<Option<Arc<Branch>>>,
    /// Leaves that have entries.
    leaves: usize,
    /// Entries of all leaves together.
    entries: usize,
    /// Bytes of the pool that they take.
    owned: u64,
}

fn split(page: u64) -> (usize, usize) {
    let leaf = usize::try_from(page / LEAF_PAGES_LONG).expect("fewer leaves than bytes of memory");
    let place = usize::try_from(page % LEAF_PAGES_LONG).expect("below 512");
    (leaf, place)
}

/// The number of a leaf as others keep it.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("volumes are at most 256 TiB")
}

impl LayerMap {
    #[must_use]
    pub const fn new(id: LayerId) -> Self {
        Self {
            id,
            branches: Vec::new(),
            leaves: 0,
            entries: 0,
            owned: 0,
        }
    }

    /// What the map has for a leaf.
    #[must_use]
    pub fn slot(&self, number: usize) -> Option<&Slot> {
        let branch = self.branches.get(number / BRANCH_LEAVES)?.as_ref()?;
        let slot = &branch.slots[number % BRANCH_LEAVES];
        (!slot.is_vacant()).then_some(slot)
    }

    /// Changes a slot, and keeps the counts. A vacant slot is as a new one afterwards.
    fn with_slot<T>(&mut self, number: usize, change: impl FnOnce(&mut Slot) -> T) -> T {
        let (branch, place) = (number / BRANCH_LEAVES, number % BRANCH_LEAVES);
        if self.branches.len() <= branch {
            self.branches.resize_with(branch + 1, || None);
        }
        let kept = self.branches[branch].get_or_insert_with(|| Arc::new(Branch::new()));
        let kept = Arc::make_mut(kept);
        let slot = &mut kept.slots[place];
        let (was_vacant, present, owned) = (slot.is_vacant(), slot.present, slot.owned);
        let result = change(slot);
        self.entries += usize::from(slot.present);
        self.entries -= usize::from(present);
        self.owned += u64::from(slot.owned);
        self.owned -= u64::from(owned);
        if slot.is_vacant() {
            *slot = Slot::default();
        }
        match (was_vacant, slot.is_vacant()) {
            (true, false) => {
                kept.used += 1;
                self.leaves += 1;
            }
            (false, true) => {
                kept.used -= 1;
                self.leaves -= 1;
            }
            (true, true) | (false, false) => {}
        }
        if kept.used == 0 {
            self.branches[branch] = None;
        }
        result
    }

    /// What the layer says of a page.
    ///
    /// # Errors
    /// The leaf is not in memory, but there.
    #[inline]
    pub fn get(&self, page: u64) -> Result<Entry, Home> {
        let (number, place) = split(page);
        let Some(Some(branch)) = self.branches.get(number / BRANCH_LEAVES) else {
            return Ok(Entry::ABSENT);
        };
        let slot = &branch.slots[number % BRANCH_LEAVES];
        match (&slot.leaf, slot.home) {
            (Some(leaf), _) => {
                leaf.warm();
                Ok(leaf.entries()[place])
            }
            (None, Some(home)) => Err(home),
            (None, None) => Ok(Entry::ABSENT),
        }
    }

    /// Sets what it says, and returns what it said before.
    ///
    /// # Panics
    /// The leaf is not in memory, but there.
    pub fn set(&mut self, page: u64, entry: Entry, cache: &mut Cache) -> Entry {
        let (number, place) = split(page);
        if entry.is_absent() && self.slot(number).is_none() {
            return Entry::ABSENT;
        }
        let id = self.id;
        self.with_slot(number, |slot| {
            if slot.leaf.is_none() {
                assert!(slot.home.is_none(), "whoever changes a leaf has loaded it");
                cache.arrived(id, narrow(number));
                slot.leaf = Some(Arc::new(Leaf::new()));
            }
            if !slot.is_dirty {
                slot.is_dirty = true;
                cache.dirty += 1;
            }
            let leaf = Arc::make_mut(slot.leaf.as_mut().expect("it was just put there"));
            let before = leaf.set(place, entry);
            slot.present = leaf.present();
            slot.owned = slot.owned + share(entry) - share(before);
            if slot.is_vacant() {
                cache.dropped(slot.leaf.is_some(), slot.is_dirty);
                cache.homeless.extend(slot.home);
            }
            before
        })
    }

    /// Takes a leaf that is in no checkpoint of this form.
    pub fn insert_leaf(&mut self, number: u32, leaf: Arc<Leaf>, cache: &mut Cache) {
        let place = usize::try_from(number).expect("32 bits fit");
        let before = self.take(place, cache);
        cache.homeless.extend(before.and_then(|slot| slot.home));
        if leaf.present() == 0 {
            return;
        }
        let slot = Slot {
            home: None,
            owned: leaf.owned(),
            present: leaf.present(),
            leaf: Some(leaf),
            is_dirty: true,
        };
        self.put(place, slot, cache);
    }

    /// Takes from a checkpoint where a leaf is. Whether there was none before.
    pub fn insert_home(&mut self, number: u32, home: Home, present: u16, owned: u32) -> bool {
        let number = usize::try_from(number).expect("32 bits fit");
        let is_new = self.slot(number).is_none();
        if is_new {
            self.with_slot(number, |slot| {
                slot.home = Some(home);
                slot.present = present;
                slot.owned = owned;
            });
        }
        is_new
    }

    /// Takes a leaf that was read from its home, if it is needed still.
    pub fn arrive(&mut self, number: u32, home: Home, leaf: Arc<Leaf>, cache: &mut Cache) {
        let place = usize::try_from(number).expect("32 bits fit");
        if self.slot(place).and_then(Slot::away) != Some(home) {
            return;
        }
        cache.arrived(self.id, number);
        self.with_slot(place, |slot| slot.leaf = Some(leaf));
    }

    /// What a leaf says that is damaged where it lies: its pages are lost.
    pub fn lose(&mut self, number: u32, home: Home, cache: &mut Cache) -> bool {
        let place = usize::try_from(number).expect("32 bits fit");
        if self.slot(place).and_then(Slot::away) != Some(home) {
            return false;
        }
        self.insert_leaf(number, Arc::new(Leaf::filled(Entry::LOST)), cache);
        true
    }

    /// A leaf in memory is to be written anew: its home is damaged.
    pub fn soil(&mut self, number: usize, home: Home, cache: &mut Cache) {
        let is_it = |slot: &Slot| slot.home == Some(home) && slot.leaf.is_some() && !slot.is_dirty;
        if self.slot(number).is_some_and(is_it) {
            cache.dirty += 1;
            self.with_slot(number, |slot| slot.is_dirty = true);
        }
    }

    /// Whether a leaf leaves the memory.
    pub(crate) fn evict(&mut self, number: u32, cache: &mut Cache) -> Eviction {
        let place = usize::try_from(number).expect("32 bits fit");
        let Some(slot) = self.slot(place) else {
            return Eviction::Gone;
        };
        let Some(leaf) = &slot.leaf else {
            return Eviction::Gone;
        };
        if slot.is_dirty || slot.home.is_none() {
            return Eviction::Stays;
        }
        if leaf.cool() {
            return Eviction::Stays;
        }
        self.with_slot(place, |slot| slot.leaf = None);
        cache.dropped(true, false);
        Eviction::Gone
    }

    /// Leaves that have entries.
    #[must_use]
    pub const fn leaf_count(&self) -> usize {
        self.leaves
    }

    /// Pages that have entries.
    #[must_use]
    pub const fn entry_count(&self) -> usize {
        self.entries
    }

    /// Bytes of the pool that its entries take.
    #[must_use]
    pub const fn owned(&self) -> u64 {
        self.owned
    }

    /// The first leaf from `number` on, and its number.
    #[must_use]
    pub fn next(&self, number: usize) -> Option<(usize, &Slot)> {
        let mut branch = number / BRANCH_LEAVES;
        let mut place = number % BRANCH_LEAVES;
        while let Some(found) = self.branches.get(branch) {
            if let Some(found) = found
                && let Some(more) = found.slots[place..].iter().position(|it| !it.is_vacant())
            {
                let place = place + more;
                return Some((branch * BRANCH_LEAVES + place, &found.slots[place]));
            }
            (branch, place) = (branch + 1, 0);
        }
        None
    }

    /// The leaves that are in memory, with their numbers.
    pub fn resident(&self) -> impl Iterator<Item = (usize, &Slot, &Leaf)> {
        let mut from = 0;
        let all = std::iter::from_fn(move || {
            let (number, slot) = self.next(from)?;
            from = number + 1;
            Some((number, slot))
        });
        all.filter_map(|(number, slot)| Some((number, slot, slot.leaf.as_deref()?)))
    }

    /// Takes out what it has for a leaf.
    pub fn take(&mut self, number: usize, cache: &mut Cache) -> Option<Slot> {
        self.slot(number)?;
        let slot = self.with_slot(number, std::mem::take);
        cache.dropped(slot.leaf.is_some(), slot.is_dirty);
        Some(slot)
    }

    /// Takes over what another map had for a leaf. There was none before.
    pub fn put(&mut self, number: usize, slot: Slot, cache: &mut Cache) {
        if slot.leaf.is_some() {
            cache.arrived(self.id, narrow(number));
        }
        cache.dirty += usize::from(slot.is_dirty);
        self.with_slot(number, |present| *present = slot);
    }

    /// How many pages from this one on are certainly absent; 0: it may have an entry.
    #[must_use]
    pub fn absent_from(&self, page: u64) -> u64 {
        let (number, place) = split(page);
        let place = u64::try_from(place).expect("below 512");
        let branch = self.branches.get(number / BRANCH_LEAVES);
        match branch {
            Some(Some(branch)) => match branch.slots[number % BRANCH_LEAVES].is_vacant() {
                true => LEAF_PAGES_LONG - place,
                false => 0,
            },
            Some(None) | None => {
                let leaf = u64::try_from(number % BRANCH_LEAVES).expect("below 128");
                (BRANCH_LEAVES_LONG - leaf) * LEAF_PAGES_LONG - place
            }
        }
    }

    /// What the map says at this moment.
    #[must_use]
    pub fn capture(&self) -> Capture {
        self.branches.clone()
    }

    /// A checkpoint has put a leaf of a capture there. Returns the home that is needed no more: the one before, or this
    /// one.
    pub fn settle(
        &mut self,
        number: u32,
        captured: &Slot,
        home: Home,
        cache: &mut Cache,
    ) -> Option<Home> {
        let place = usize::try_from(number).expect("32 bits fit");
        let is_it = self
            .slot(place)
            .is_some_and(|slot| slot.home == captured.home);
        if !is_it {
            return Some(home);
        }
        let is_same = |slot: &Slot| match (&slot.leaf, &captured.leaf) {
            (Some(present), Some(captured)) => Arc::ptr_eq(present, captured),
            (_, None) => false,
            (None, Some(_)) => true,
        };
        self.with_slot(place, |slot| {
            if slot.is_dirty && is_same(slot) {
                slot.is_dirty = false;
                cache.dirty -= 1;
            }
            slot.home.replace(home)
        })
    }
}

/// What became of a leaf that was to leave the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    Stays,
    /// It is not in memory now.
    Gone,
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::place::Place;

    fn home(offset: u64) -> Home {
        Home {
            place: Place::new(0, offset),
            crc: 1,
            length: NonZeroU16::MIN,
        }
    }

    #[test]
    fn a_slot_takes_32_bytes() {
        assert_eq!(size_of::<Slot>(), 32);
    }

    #[test]
    fn a_map_gives_back_what_was_set_and_frees_empty_leaves() {
        let mut cache = Cache::default();
        let mut map = LayerMap::new(LayerId(0));
        assert!(map.set(10_000, Entry::ABSENT, &mut cache).is_absent());
        assert_eq!(map.leaf_count(), 0);
        assert!(map.set(10_000, Entry::ZERO, &mut cache).is_absent());
        assert_eq!(map.get(10_000), Ok(Entry::ZERO));
        assert_eq!((map.get(9_999), map.leaf_count()), (Ok(Entry::ABSENT), 1));
        assert_eq!((cache.resident, cache.dirty), (1, 1));
        assert_eq!(map.absent_from(0), 512);
        assert_eq!(map.absent_from(10_000), 0);
        assert_eq!(map.absent_from(65_536 + 1), 65_535);
        assert_eq!(map.next(0).map(|(number, _)| number), Some(19));
        assert_eq!(map.set(10_000, Entry::ABSENT, &mut cache), Entry::ZERO);
        assert_eq!(map.leaf_count(), 0);
        assert_eq!((cache.resident, cache.dirty), (0, 0));
        assert!(map.next(0).is_none());
    }

    #[test]
    fn a_leaf_leaves_the_memory_once_a_checkpoint_has_it() {
        let mut cache = Cache::default();
        let mut map = LayerMap::new(LayerId(0));
        map.set(3, Entry::ZERO, &mut cache);
        assert_eq!(map.evict(0, &mut cache), Eviction::Stays, "it is dirty");
        let capture = map.capture();
        let (_, captured) = capture[0]
            .as_ref()
            .expect("a branch")
            .slots()
            .next()
            .expect("a slot");
        assert_eq!(map.settle(0, captured, home(4096), &mut cache), None);
        assert_eq!(cache.dirty, 0);
        assert_eq!(map.evict(0, &mut cache), Eviction::Stays, "it is warm");
        assert_eq!(map.evict(0, &mut cache), Eviction::Gone);
        assert_eq!(map.get(3), Err(home(4096)));
        assert_eq!((map.entry_count(), cache.resident), (1, 0));
        let leaf = captured.leaf().expect("as it was").clone();
        map.arrive(0, home(8192), leaf.clone(), &mut cache);
        assert_eq!(map.get(3), Err(home(4096)), "another one");
        map.arrive(0, home(4096), leaf, &mut cache);
        assert_eq!(map.get(3), Ok(Entry::ZERO));
        // What changes while a checkpoint writes it is dirty still.
        let before = map.capture();
        map.set(3, Entry::LOST, &mut cache);
        map.set(4, Entry::ZERO, &mut cache);
        let (_, captured) = before[0]
            .as_ref()
            .expect("a branch")
            .slots()
            .next()
            .expect("a slot");
        assert_eq!(captured.present(), 1);
        assert_eq!(
            map.settle(0, captured, home(8192), &mut cache),
            Some(home(4096))
        );
        assert_eq!(cache.dirty, 1);
        // One that is gone needs no home.
        map.set(3, Entry::ABSENT, &mut cache);
        map.set(4, Entry::ABSENT, &mut cache);
        assert_eq!(std::mem::take(&mut cache.homeless), [home(8192)]);
        assert_eq!(
            map.settle(0, captured, home(12288), &mut cache),
            Some(home(12288))
        );
    }
}
