//! Maps of layers: which entry a page has.

use crate::place::Entry;

/// Pages of a leaf: 2 MiB of a volume.
pub const LEAF_PAGES: usize = 512;
const LEAF_PAGES_LONG: u64 = 512;

/// Bytes of a leaf in a checkpoint, without its entries.
pub const LEAF_DUMP: u64 = 13;
/// Most bytes of an entry in a checkpoint.
pub const ENTRY_DUMP_MAX: u64 = 18;

/// The entries of 512 pages.
#[derive(Clone, PartialEq)]
pub struct Leaf {
    entries: [Entry; LEAF_PAGES],
    present: u16,
}

impl Default for Leaf {
    fn default() -> Self {
        Self::new()
    }
}

impl Leaf {
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: [Entry::ABSENT; LEAF_PAGES],
            present: 0,
        }
    }

    #[must_use]
    pub const fn entries(&self) -> &[Entry; LEAF_PAGES] {
        &self.entries
    }

    /// Sets an entry, and returns the one before.
    pub fn set(&mut self, place: usize, entry: Entry) -> Entry {
        let before = std::mem::replace(&mut self.entries[place], entry);
        match (before.is_absent(), entry.is_absent()) {
            (true, false) => self.present += 1,
            (false, true) => self.present -= 1,
            (true, true) | (false, false) => {}
        }
        before
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf")
            .field("present", &self.present)
            .finish_non_exhaustive()
    }
}

/// The map of a layer.
#[derive(Debug, Default)]
pub struct LayerMap {
    /// By number; a missing one has no entry.
    leaves: Vec<Option<Box<Leaf>>>,
    /// Leaves that are there.
    count: usize,
    /// Entries of all leaves together.
    entries: usize,
}

fn split(page: u64) -> (usize, usize) {
    let leaf = usize::try_from(page / LEAF_PAGES_LONG).expect("fewer leaves than bytes of memory");
    let place = usize::try_from(page % LEAF_PAGES_LONG).expect("below 512");
    (leaf, place)
}

impl LayerMap {
    /// What the layer says of a page.
    #[inline]
    #[must_use]
    pub fn get(&self, page: u64) -> Entry {
        let (leaf, place) = split(page);
        match self.leaves.get(leaf) {
            Some(Some(leaf)) => leaf.entries[place],
            Some(None) | None => Entry::ABSENT,
        }
    }

    /// Sets what it says, and returns what it said before.
    pub fn set(&mut self, page: u64, entry: Entry) -> Entry {
        let (number, place) = split(page);
        if self.leaves.len() <= number {
            if entry.is_absent() {
                return Entry::ABSENT;
            }
            self.leaves.resize_with(number + 1, || None);
        }
        let slot = &mut self.leaves[number];
        let leaf = match slot {
            Some(leaf) => leaf,
            None if entry.is_absent() => return Entry::ABSENT,
            None => {
                self.count += 1;
                slot.insert(Box::new(Leaf::new()))
            }
        };
        let before = leaf.set(place, entry);
        self.entries += usize::from(!entry.is_absent());
        self.entries -= usize::from(!before.is_absent());
        if leaf.present == 0 {
            *slot = None;
            self.count -= 1;
        }
        before
    }

    /// Takes a leaf from a checkpoint.
    pub fn insert_leaf(&mut self, number: u32, leaf: Box<Leaf>) {
        let number = usize::try_from(number).expect("32 bits fit");
        if leaf.present == 0 {
            return;
        }
        if self.leaves.len() <= number {
            self.leaves.resize_with(number + 1, || None);
        }
        self.entries += usize::from(leaf.present);
        match self.leaves[number].replace(leaf) {
            None => self.count += 1,
            Some(before) => self.entries -= usize::from(before.present),
        }
    }

    /// Leaves that have entries.
    #[must_use]
    pub const fn leaf_count(&self) -> usize {
        self.count
    }

    /// Pages that have entries.
    #[must_use]
    pub const fn entry_count(&self) -> usize {
        self.entries
    }

    /// The first leaf from `number` on, and its number.
    #[must_use]
    pub fn leaf_from(&self, number: usize) -> Option<(usize, &Leaf)> {
        let leaves = self.leaves.get(number..)?;
        let found = leaves.iter().position(Option::is_some)?;
        Some((number + found, self.leaves[number + found].as_deref()?))
    }

    /// Takes a leaf out.
    pub fn take_leaf(&mut self, number: usize) -> Option<Box<Leaf>> {
        let taken = self.leaves.get_mut(number)?.take();
        self.count -= usize::from(taken.is_some());
        self.entries -= taken.as_ref().map_or(0, |leaf| usize::from(leaf.present));
        taken
    }

    /// Whether there is any entry from this page on that shares its leaf with it; if not, how many pages are
    /// certainly absent.
    #[must_use]
    pub fn absent_from(&self, page: u64) -> u64 {
        let (leaf, place) = split(page);
        let missing = !matches!(self.leaves.get(leaf), Some(Some(_)));
        if missing {
            LEAF_PAGES_LONG - u64::try_from(place).expect("below 512")
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_back_what_was_set_and_frees_empty_leaves() {
        let mut map = LayerMap::default();
        assert!(map.set(10_000, Entry::ABSENT).is_absent());
        assert_eq!(map.leaf_count(), 0);
        assert!(map.set(10_000, Entry::ZERO).is_absent());
        assert_eq!(map.get(10_000), Entry::ZERO);
        assert_eq!((map.get(9_999), map.leaf_count()), (Entry::ABSENT, 1));
        assert_eq!(map.absent_from(0), 512);
        assert_eq!(map.absent_from(10_000), 0);
        assert_eq!(map.leaf_from(0).map(|(number, _)| number), Some(19));
        assert_eq!(map.set(10_000, Entry::ABSENT), Entry::ZERO);
        assert_eq!(map.leaf_count(), 0);
        assert!(map.leaf_from(0).is_none());
    }
}
