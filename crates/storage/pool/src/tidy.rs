//! Layers that nothing names are dropped or merged, leaf by leaf, while the pool is in use.
//!
//! At any moment each reader sees the same: an entry moves to the only layer that reads it through the one that goes. So
//! a checkpoint may be made in the middle, and whoever opens the pool goes on from there.

use std::sync::Arc;

use longshore_volume::Io;

use crate::cache::Missing;
use crate::catalog::Fate;
use crate::format::record::LayerId;
use crate::format::{long, short};
use crate::leaf::LEAF_PAGES;
use crate::leaves::Purpose;
use crate::log::Failure;
use crate::map::Slot;
use crate::pool::Pool;
use crate::state::State;

/// Leaves that are looked at while the pool is locked.
const TURN: usize = if cfg!(test) { 1 } else { 32 };

/// Leaves after which whoever has deleted something is told so, and the rest is left to those who keep house.
const TIDY_AT_ONCE: usize = if cfg!(test) { 2 } else { 1024 };

/// Leaves after which those who keep house look after other things, and the same while somebody waits for space.
pub const TIDY_IN_A_ROUND: usize = if cfg!(test) { 8 } else { 1 << 16 };
pub const TIDY_IN_A_HURRY: usize = if cfg!(test) { 4 } else { 1 << 12 };

/// What came of tidying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tidied {
    /// There is nothing left to do.
    All,
    /// There is more to do.
    Some,
    /// Nothing was done, as a checkpoint comes first.
    Nothing,
}

/// Leaves that are read at once.
const READS: usize = 32;

/// What came of a turn.
#[derive(Debug)]
enum Turn {
    Done,
    More,
    /// These leaves have to be in memory first.
    Needs(Vec<Missing>),
}

impl State {
    /// Drops and merges up to so many leaves. How many they were, and what comes next.
    fn tidy(&mut self, most: usize) -> (usize, Turn) {
        for count in 0..most {
            let fates = &self.catalog.fates;
            let dropped = fates.iter().find(|(_, fate)| **fate == Fate::Dropped);
            let Some((id, fate)) = dropped.or_else(|| fates.iter().next()) else {
                return (count, Turn::Done);
            };
            let done = match (*id, *fate) {
                (id, Fate::Dropped) => self.drop_leaf(id),
                (id, Fate::Merged(child)) => self.merge_leaf(id, child),
            };
            if let Err(missing) = done {
                return (count, Turn::Needs(missing));
            }
        }
        (most, Turn::More)
    }

    /// Does all of it, with maps that are in memory as a whole.
    pub fn tidy_whole(&mut self) {
        while matches!(self.tidy(TURN), (_, Turn::More)) {}
    }

    /// Drops the first leaf of a layer, or the layer if it has none.
    fn drop_leaf(&mut self, id: LayerId) -> Result<(), Vec<Missing>> {
        let Some(layer) = self.catalog.layers.get_mut(&id) else {
            self.catalog.foresee();
            return Ok(());
        };
        let Some((number, slot)) = layer.map.next(0) else {
            self.catalog.drop_layer(id);
            return Ok(());
        };
        // What has no data needs not be seen.
        if slot.away().is_some() && slot.owned() > 0 {
            return Err(self.next_away(&[id], number));
        }
        let slot = layer.map.take(number, &mut self.catalog.cache);
        self.give_back(slot, |_| true);
        Ok(())
    }

    /// Leaves of these layers, from a number on, that are not in memory.
    fn next_away(&self, ids: &[LayerId], from: usize) -> Vec<Missing> {
        let first = long(from) * long(LEAF_PAGES);
        let pages = first..first + long(READS * LEAF_PAGES);
        let away = |id: &LayerId| self.catalog.away_between(*id, pages.clone());
        ids.iter().flat_map(away).collect()
    }

    /// A leaf cannot be read: one of a layer that nothing reads goes without what it had, and others stay.
    fn skip_unreadable(&mut self, unreadable: &Missing) {
        let layer = unreadable.layer;
        if self.catalog.is_dropped(layer) {
            let number = short(u64::from(unreadable.number));
            let found = self.catalog.layers.get_mut(&layer);
            let cache = &mut self.catalog.cache;
            let slot = found.and_then(|it| it.map.take(number, cache));
            self.give_back(slot, |_| true);
            return;
        }
        // Until the catalogue changes, these are not merged.
        self.catalog
            .fates
            .retain(|id, fate| *id != layer && *fate != Fate::Merged(layer));
    }

    /// Hands the first leaf of a layer to its only child, where that has no entries of its own; ends the merge if there is
    /// none.
    fn merge_leaf(&mut self, id: LayerId, child: LayerId) -> Result<(), Vec<Missing>> {
        let layers = &mut self.catalog.layers;
        let (Some(layer), Some(into)) = (layers.get(&id), layers.get(&child)) else {
            self.catalog.foresee();
            return Ok(());
        };
        let Some((number, slot)) = layer.map.next(0) else {
            self.catalog.end_merge(id, child);
            return Ok(());
        };
        let Some(present) = into.map.slot(number) else {
            self.catalog.moves += 1;
            let cache = &mut self.catalog.cache;
            let slot = layers
                .get_mut(&id)
                .and_then(|it| it.map.take(number, cache));
            if let (Some(slot), Some(into)) = (slot, layers.get_mut(&child)) {
                into.map.put(number, slot, cache);
            }
            return Ok(());
        };
        if slot.away().is_some() || present.away().is_some() {
            return Err(self.next_away(&[id, child], number));
        }
        self.catalog.moves += 1;
        let cache = &mut self.catalog.cache;
        let slot = layers
            .get_mut(&id)
            .and_then(|it| it.map.take(number, cache));
        let mut kept = vec![false; LEAF_PAGES];
        if let (Some(slot), Some(into)) = (&slot, layers.get_mut(&child))
            && let Some(leaf) = slot.leaf()
        {
            let first = long(number) * long(LEAF_PAGES);
            for ((page, entry), kept) in (first..).zip(leaf.entries()).zip(&mut kept) {
                if !entry.is_absent() && into.map.get(page).is_ok_and(|own| own.is_absent()) {
                    into.map.set(page, *entry, cache);
                    *kept = true;
                }
            }
        }
        self.give_back(slot, |place| !kept[place]);
        Ok(())
    }

    /// Gives back the space of a leaf that was taken out, and of those of its entries that nobody else has.
    fn give_back(&mut self, slot: Option<Slot>, is_gone: impl Fn(usize) -> bool) {
        let Some(slot) = slot else {
            return;
        };
        self.catalog.cache.homeless.extend(slot.home());
        if let Some(leaf) = slot.leaf() {
            for (place, entry) in leaf.entries().iter().enumerate() {
                if is_gone(place) {
                    self.forget(*entry);
                }
            }
        }
        self.forget_homes();
    }
}

impl Pool {
    /// Drops and merges layers that nothing names, up to so many leaves.
    pub(crate) async fn tidy(self: &Arc<Self>, io: &Io, most: usize) -> Result<Tidied, Failure> {
        let mut tidied = Tidied::Nothing;
        let mut left = most;
        while left > 0 {
            let (done, turn) = {
                let mut inner = self.lock();
                if let Some(failed) = inner.failed {
                    return Err(failed);
                }
                let catalog = &inner.state.catalog;
                // Somebody else makes the checkpoint.
                if catalog.cache.is_clogged() && !catalog.fates.is_empty() {
                    return Ok(tidied);
                }
                inner.state.tidy(TURN.min(left))
            };
            left -= done;
            if done > 0 {
                tidied = Tidied::Some;
            }
            match turn {
                Turn::Done => return Ok(Tidied::All),
                Turn::More => {}
                Turn::Needs(missing) => match self.load_for_tidying(io, &missing).await {
                    Err(failure) if tidied == Tidied::Nothing => return Err(failure),
                    // What was done counts; the rest is tried again.
                    Err(_) => return Ok(tidied),
                    Ok(()) => {}
                },
            }
        }
        Ok(tidied)
    }

    /// Has leaves be in memory; those that cannot be read are done without.
    async fn load_for_tidying(
        self: &Arc<Self>,
        io: &Io,
        missing: &[Missing],
    ) -> Result<(), Failure> {
        match self.load_leaves(io, missing, Purpose::Change).await {
            Err(Failure::Unreadable) => {}
            result => return result,
        }
        for one in missing {
            match self.load_leaves(io, &[*one], Purpose::Change).await {
                Ok(()) => {}
                Err(Failure::Unreadable) => {
                    self.lock().state.skip_unreadable(one);
                    tracing::warn!(pool = self.name(), "what was deleted may take space still");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// What a deletion has left behind is tidied up: at once, if that takes no time, and else by those who keep house.
    pub(crate) async fn tidy_up(self: &Arc<Self>, io: &Io) {
        match self.tidy(io, TIDY_AT_ONCE).await {
            Ok(Tidied::All) => {}
            Ok(Tidied::Some | Tidied::Nothing) => self.keep_house(io),
            Err(failure) => {
                let error = self.error(failure);
                tracing::warn!(pool = self.name(), %error, "what was deleted takes space still");
            }
        }
    }
}
