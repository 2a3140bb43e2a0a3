//! A walk over all maps, leaf by leaf, while the pool is in use.

use std::sync::Arc;

use longshore_volume::Io;

use crate::cache::Missing;
use crate::format::record::LayerId;
use crate::format::{PAGE_BYTES, long, short};
use crate::leaf::{LEAF_PAGES, Leaf};
use crate::leaves::Purpose;
use crate::log::Failure;
use crate::place::{Content, Entry, Stored};
use crate::pool::Pool;
use crate::state::State;

/// See the module documentation.
#[derive(Debug)]
pub struct Walk {
    /// Layers that are left; the last is looked at.
    layers: Vec<LayerId>,
    /// The leaf of its map where to go on.
    from: usize,
    purpose: Purpose,
}

/// A leaf that cannot be read.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    pub layer: LayerId,
    /// Of its first page, in bytes.
    pub offset: u64,
    pub failure: Failure,
}

/// A leaf as it was when the walk came there.
#[derive(Debug)]
pub struct Found {
    pub layer: LayerId,
    pub leaf: Arc<Leaf>,
    first: u64,
}

impl Found {
    /// Its entries, with their pages.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Entry)> {
        (self.first..).zip(self.leaf.entries().iter().copied())
    }

    /// The pages that have data.
    pub fn stored(&self) -> impl Iterator<Item = (u64, Stored)> {
        self.entries()
            .filter_map(|(page, entry)| match entry.content() {
                Content::Data(stored) => Some((page, stored)),
                Content::Absent | Content::Zero | Content::Lost => None,
            })
    }
}

/// The next leaf of a layer, and its number. `None`: there is none.
///
/// # Errors
/// It is not in memory.
pub fn next_leaf(
    state: &State,
    layer: LayerId,
    from: usize,
) -> Result<Option<(usize, Arc<Leaf>)>, Missing> {
    let found = state.catalog.layers.get(&layer);
    let Some((number, slot)) = found.and_then(|it| it.map.next(from)) else {
        return Ok(None);
    };
    match (slot.leaf(), slot.home()) {
        (Some(leaf), _) => Ok(Some((number, leaf.clone()))),
        (None, Some(home)) => Err(Missing::new(layer, number, home)),
        (None, None) => Ok(None),
    }
}

/// Leaves that a walk reads at once.
const AHEAD: usize = 16;

impl Walk {
    pub fn new(pool: &Pool, purpose: Purpose) -> Self {
        let inner = pool.lock();
        let layers = inner.state.catalog.layers.keys();
        Self {
            layers: layers.rev().copied().collect(),
            from: 0,
            purpose,
        }
    }

    /// The next leaf; `None`: there is no other. The next call goes on behind one that cannot be read.
    ///
    /// # Errors
    /// A leaf cannot be read.
    pub async fn next(&mut self, pool: &Arc<Pool>, io: &Io) -> Result<Option<Found>, Unread> {
        while let Some(layer) = self.layers.last().copied() {
            let next = next_leaf(&pool.lock().state, layer, self.from);
            match next {
                Ok(Some((number, leaf))) => {
                    self.from = number + 1;
                    return Ok(Some(Found {
                        layer,
                        leaf,
                        first: long(number) * long(LEAF_PAGES),
                    }));
                }
                Ok(None) => {
                    self.layers.pop();
                    self.from = 0;
                }
                Err(missing) => {
                    let first = u64::from(missing.number) * long(LEAF_PAGES);
                    let next: Vec<Missing> = {
                        let catalog = &pool.lock().state.catalog;
                        let away = catalog.away_between(layer, first..u64::MAX);
                        away.take(AHEAD).collect()
                    };
                    if next.len() > 1 && pool.load_leaves(io, &next, self.purpose).await.is_ok() {
                        continue;
                    }
                    // One of them cannot be read.
                    let loaded = pool.load_leaves(io, &[missing], self.purpose).await;
                    loaded.map_err(|failure| {
                        self.from = short(u64::from(missing.number)) + 1;
                        Unread {
                            layer,
                            offset: first * PAGE_BYTES,
                            failure,
                        }
                    })?;
                }
            }
        }
        Ok(None)
    }
}
