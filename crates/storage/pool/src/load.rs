//! Checkpoints, as they are read from the drives.

use std::sync::Arc;

use longshore_volume::Io;

use crate::catalog::{Catalog, Layer};
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::checkpoint::{Item, PartHeader};
use crate::format::record::LayerId;
use crate::format::superblock::Superblock;
use crate::format::{FormatError, short};
use crate::leaves::fits;
use crate::place::Place;
use crate::pool::Newest;
use crate::reserve::PART;
use crate::segments::{Segments, Use};
use crate::state::State;

/// Bytes that entries account for are at most so many times those that are there: small chunks cost more than they take.
const SHARES_MAX: u64 = 16;

/// A checkpoint that was read.
#[derive(Debug)]
pub struct Loaded {
    pub state: State,
    pub newest: Newest,
    pub next_generation: u64,
    /// Segments that may have been written since, in the order of their use, with their generations.
    pub hand_out: Vec<(u32, u64)>,
}

impl Loaded {
    /// The beginning: nothing of it was read.
    pub fn nothing(label: &Superblock) -> Self {
        Self {
            state: State {
                catalog: Catalog::default(),
                segments: Segments::new(label.drives.clone(), label.segment_bytes),
                applied: 0,
            },
            newest: Newest {
                superblock: label.number,
                number: label.checkpoint_number,
                record: 0,
                segments: Vec::new(),
                tail: None,
            },
            next_generation: 0,
            hand_out: Vec::new(),
        }
    }
}

/// What could be read of a damaged checkpoint: at least the whole catalogue.
#[derive(Debug)]
pub struct Beginning {
    pub loaded: Loaded,
    /// The last leaf that it names. They come in the order of their layers and numbers, so all before it are known.
    pub last_leaf: Option<(LayerId, u32)>,
}

pub struct Loader<'a> {
    io: &'a Io,
    label: &'a Superblock,
    drives: &'a [Option<Arc<Drive>>],
    loaded: Loaded,
    items: u64,
    has_ended: bool,
    /// All of the catalogue was read.
    has_catalog: bool,
    last_leaf: Option<(LayerId, u32)>,
    /// An earlier version made it: it has leaves, and does not say what lives.
    is_uncounted: bool,
}

impl<'a> Loader<'a> {
    pub fn new(io: &'a Io, label: &'a Superblock, drives: &'a [Option<Arc<Drive>>]) -> Self {
        Self {
            io,
            label,
            drives,
            loaded: Loaded::nothing(label),
            items: 0,
            has_ended: false,
            has_catalog: false,
            last_leaf: None,
            is_uncounted: false,
        }
    }

    pub async fn load(mut self) -> Result<Loaded, PoolError> {
        self.read().await?;
        if !self.loaded.state.catalog.is_sound() {
            let source = FormatError::Field("the tree of layers");
            return Err(damaged(self.label, "the checkpoint", source));
        }
        self.loaded.state.catalog.release_unnamed();
        if self.is_uncounted {
            self.loaded.state.recount();
        }
        Ok(self.loaded)
    }

    /// Reads as much as there is. Nothing, if that is not the whole catalogue.
    pub async fn load_beginning(mut self) -> Option<Beginning> {
        // The caller has reported the error.
        let _ = self.read().await;
        let is_of_use = self.has_catalog && self.loaded.state.catalog.is_sound();
        self.loaded.state.catalog.release_unnamed();
        is_of_use.then_some(Beginning {
            loaded: self.loaded,
            last_leaf: self.last_leaf,
        })
    }

    async fn read(&mut self) -> Result<(), PoolError> {
        let mut stream: Vec<u8> = Vec::new();
        let mut next = Some(self.label.checkpoint);
        let mut index = 0;
        while let Some(place) = next {
            let (header, content) = self.part(place, index).await?;
            stream.extend_from_slice(&content);
            let mut rest = &stream[..];
            loop {
                let item = Item::decode(&mut rest);
                let item =
                    item.map_err(|error| damaged(self.label, "an item of the checkpoint", error))?;
                let Some(item) = item else {
                    break;
                };
                self.take(item)?;
            }
            let left = rest.len();
            stream.drain(..stream.len() - left);
            next = header.next;
            index += 1;
        }
        if !self.has_ended || !stream.is_empty() {
            let source = FormatError::Field("its end");
            return Err(damaged(self.label, "the checkpoint", source));
        }
        Ok(())
    }

    async fn part(&mut self, place: Place, index: u32) -> Result<(PartHeader, Vec<u8>), PoolError> {
        let what = || format!("part {index} of the checkpoint");
        let wrong = |field| damaged(self.label, what(), FormatError::Field(field));
        let segment = self.loaded.state.segments.of(place);
        let segment = segment.ok_or_else(|| wrong("its place"))?;
        let drive = self.drives.get(usize::from(place.drive()));
        let drive = drive.and_then(Option::as_ref);
        let drive = drive.ok_or_else(|| wrong("its drive"))?;
        let begin = self.loaded.state.segments.place(segment).offset();
        let left = begin + self.loaded.state.segments.bytes() - place.offset();
        let length = short(left).min(PART);
        let mut found = Err(wrong("its drive"));
        // Of a mirror, the side counts that has it.
        for (_, side) in drive.current() {
            found = match side.read_new(self.io, place.offset(), length).await {
                Err(error) => Err(side.error("read", error)),
                Ok(bytes) => match PartHeader::open(&bytes) {
                    Err(error) => Err(damaged(self.label, what(), error)),
                    Ok((header, content)) => {
                        let fits = header.pool == self.label.pool
                            && header.checkpoint == self.label.checkpoint_number
                            && header.index == index;
                        fits.then(|| (header, content.to_vec()))
                            .ok_or_else(|| wrong("what it belongs to"))
                    }
                },
            };
            if found.is_ok() {
                break;
            }
        }
        let (header, content) = found?;
        self.loaded.state.segments.get_mut(segment).used = Use::Map;
        if !self.loaded.newest.segments.contains(&segment) {
            self.loaded.newest.segments.push(segment);
        }
        Ok((header, content))
    }

    fn take(&mut self, item: Item) -> Result<(), PoolError> {
        let wrong = |field| damaged(self.label, "the checkpoint", FormatError::Field(field));
        let Loaded {
            state,
            newest,
            hand_out,
            next_generation,
            ..
        } = &mut self.loaded;
        let catalog = &mut state.catalog;
        if self.has_ended {
            return Err(wrong("what follows its end"));
        }
        self.has_catalog |= !item.is_of_catalog();
        match item {
            Item::Head {
                record,
                next_generation: generation,
                next_layer,
            } => {
                state.applied = record;
                newest.record = record;
                *next_generation = generation;
                catalog.next_layer = next_layer;
            }
            Item::Volume(volume) => drop(catalog.volumes.insert(volume.name.clone(), volume)),
            Item::Snapshot(snapshot) => {
                let key = (snapshot.volume.clone(), snapshot.shape.name.clone());
                catalog.snapshots.insert(key, snapshot);
            }
            Item::Layer { id, parent } => {
                catalog.layers.insert(id, Layer::new(id, parent));
            }
            Item::Alias { from, to } => drop(catalog.aliases.insert(from, to)),
            Item::Segment { number, generation } => {
                if !state.segments.exists(number) {
                    return Err(wrong("a segment"));
                }
                let segment = state.segments.get_mut(number);
                segment.used = Use::Sealed;
                segment.generation = generation;
                self.is_uncounted = true;
            }
            Item::Data {
                number,
                generation,
                live,
            } => {
                let is_possible = state.segments.exists(number)
                    && state.segments.get(number).used == Use::Free
                    && live <= state.segments.bytes() * SHARES_MAX;
                if !is_possible {
                    return Err(wrong("a segment"));
                }
                let segment = state.segments.get_mut(number);
                segment.used = Use::Sealed;
                segment.generation = generation;
                let place = state.segments.place(number);
                state.segments.add_live(place, live);
            }
            Item::Homes { layer, leaves } => {
                let id = layer;
                let layer = catalog.layers.get_mut(&id);
                let layer = layer.ok_or_else(|| wrong("a layer"))?;
                for leaf in leaves {
                    let home = leaf.home;
                    let segment = state.segments.of(home.place);
                    let segment = segment.filter(|_| {
                        state.segments.holds(home.place, home.length.get())
                            && u64::from(leaf.number) <= crate::SIZE_MAX >> 21
                    });
                    let segment = segment.ok_or_else(|| wrong("the place of a leaf"))?;
                    let found = state.segments.get_mut(segment);
                    let is_possible = matches!(found.used, Use::Free | Use::Leaves)
                        && layer
                            .map
                            .insert_home(leaf.number, home, leaf.present, leaf.owned);
                    if !is_possible {
                        return Err(wrong("the place of a leaf"));
                    }
                    found.used = Use::Leaves;
                    state.segments.add_leaf(home.place, home.bytes());
                    self.last_leaf = Some((id, leaf.number));
                }
            }
            Item::HandOut { number, generation } => {
                if !state.segments.exists(number) {
                    return Err(wrong("a segment that was handed out"));
                }
                hand_out.push((number, generation));
            }
            Item::Leaf {
                layer,
                number,
                leaf,
            } => {
                if !fits(&leaf, &state.segments) || u64::from(number) > crate::SIZE_MAX >> 21 {
                    return Err(wrong("an entry of a map"));
                }
                let id = layer;
                let layer = catalog
                    .layers
                    .get_mut(&id)
                    .ok_or_else(|| wrong("a layer"))?;
                let leaf = Arc::from(leaf);
                layer.map.insert_leaf(number, leaf, &mut catalog.cache);
                self.is_uncounted = true;
                self.last_leaf = Some((id, number));
            }
            Item::Reserve { volume, bytes } => {
                let volume = catalog.volumes.get_mut(&volume);
                volume.ok_or_else(|| wrong("a volume"))?.reserve = bytes;
            }
            Item::End { items } => {
                if items != self.items {
                    return Err(wrong("the number of its items"));
                }
                self.has_ended = true;
            }
        }
        self.items += 1;
        Ok(())
    }
}

/// A structure of the pool is damaged.
pub fn damaged(label: &Superblock, what: impl Into<String>, source: FormatError) -> PoolError {
    PoolError::Damaged {
        pool: label.name.clone(),
        what: what.into(),
        source,
    }
}
