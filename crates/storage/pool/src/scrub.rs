//! Reads all data of a pool that is in use, and compares it with its checksums.

use std::sync::Arc;

use longshore_volume::Io;

use crate::catalog::Fate;
use crate::check::check_superblocks;
use crate::desk::Step;
use crate::format::record::LayerId;
use crate::format::{PAGE_BYTES, crc, long, short};
use crate::leaf::{LEAF_PAGES, Leaf};
use crate::leaves::Purpose;
use crate::map::Slot;
use crate::mend::Mended;
use crate::place::{Codec, Content, Stored};
use crate::pool::{Pool, snapshot_name};
use crate::report::Report;
use crate::segments::Pin;
use crate::walk::next_leaf;

/// A scrub under way.
#[derive(Debug, Default)]
pub struct Scrub {
    /// Those that are left; the last is looked at.
    layers: Vec<LayerId>,
    /// The leaf of its map where to go on.
    from: usize,
    has_checked_superblocks: bool,
    pub report: Report,
}

/// A chunk that lives.
#[derive(Debug)]
struct Chunk {
    /// A page of it, and its entry there.
    page: u64,
    stored: Stored,
    /// Keeps the data where it is.
    _pin: Option<Pin>,
}

impl Scrub {
    pub fn new(pool: &Pool) -> Self {
        let inner = pool.lock();
        Self {
            layers: inner.state.catalog.layers.keys().copied().collect(),
            ..Self::default()
        }
    }

    /// Looks at a leaf of a map.
    pub async fn step(mut self, pool: &Arc<Pool>, io: &Io) -> (Self, Step) {
        if !self.has_checked_superblocks {
            self.has_checked_superblocks = true;
            let _held = pool.maintenance.lock().await;
            check_superblocks(pool, io, &mut self.report).await;
            return (self, Step::Did(0));
        }
        let Some(layer) = self.layers.last().copied() else {
            return (self, Step::Done);
        };
        let next = next_leaf(&pool.lock().state, layer, self.from);
        let next = match next {
            Ok(next) => next,
            Err(missing) => {
                if let Err(failure) = pool.load_leaves(io, &[missing], Purpose::Look).await {
                    let text = format!("a part of its map: {}", pool.error(failure));
                    self.report.note(whose(pool, layer), text);
                    self.from = short(u64::from(missing.number)) + 1;
                }
                return (self, Step::Did(0));
            }
        };
        let Some((number, leaf)) = next else {
            self.layers.pop();
            self.from = 0;
            // What a deleted snapshot held may be part of another layer now, which was looked at before.
            let catalog = &pool.lock().state.catalog;
            let current = match catalog.fates.get(&layer) {
                Some(Fate::Merged(child)) => *child,
                Some(Fate::Dropped) | None => catalog.current(layer),
            };
            if current != layer && catalog.layers.contains_key(&current) {
                self.layers.push(current);
            }
            return (self, Step::Did(0));
        };
        self.from = number + 1;
        let Some(mut chunks) = self.chunks(pool, layer, number, &leaf) else {
            self.from = number;
            return (self, Step::Did(0));
        };
        self.look_at_home(pool, io, layer, number).await;
        let mut done = 0;
        chunks.sort_by_key(|chunk| chunk.stored.place);
        let mut rest = &chunks[..];
        while !rest.is_empty() {
            let (run, more) = rest.split_at(pool.run_length(rest.iter().map(|it| &it.stored)));
            rest = more;
            self.look_at(pool, io, layer, run).await;
            done += run
                .iter()
                .map(|it| u64::from(it.stored.length))
                .sum::<u64>();
        }
        self.report.data_bytes += done;
        (self, Step::Did(done))
    }

    /// The chunks of a leaf. `None`: it has changed.
    fn chunks(
        &mut self,
        pool: &Pool,
        layer: LayerId,
        number: usize,
        leaf: &Arc<Leaf>,
    ) -> Option<Vec<Chunk>> {
        let inner = pool.lock();
        let found = inner.state.catalog.layers.get(&layer)?.map.slot(number)?;
        if !found.leaf().is_some_and(|there| Arc::ptr_eq(there, leaf)) {
            return None;
        }
        let first = long(number) * long(LEAF_PAGES);
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut lost = Vec::new();
        for (page, entry) in (first..).zip(leaf.entries()) {
            match entry.content() {
                Content::Data(stored) => {
                    self.report.pages += 1;
                    let is_known = chunks
                        .last()
                        .is_some_and(|last| last.stored.place == stored.place);
                    if !is_known {
                        chunks.push(Chunk {
                            page,
                            stored,
                            _pin: inner.state.segments.pin(stored.place),
                        });
                    }
                }
                Content::Lost => lost.push(page),
                Content::Absent | Content::Zero => {}
            }
        }
        drop(inner);
        for page in lost {
            self.report.note(
                whose(pool, layer),
                format!("offset {}: was lost before", page * PAGE_BYTES),
            );
        }
        Some(chunks)
    }

    /// Reads a leaf where the newest checkpoint has it, on both sides of a mirror.
    async fn look_at_home(&mut self, pool: &Arc<Pool>, io: &Io, layer: LayerId, number: usize) {
        let (home, _pin) = {
            let inner = pool.lock();
            let found = inner.state.catalog.layers.get(&layer);
            let slot = found.and_then(|layer| layer.map.slot(number));
            let Some(home) = slot.and_then(Slot::home) else {
                return;
            };
            (home, inner.state.segments.pin(home.place))
        };
        let stored = Stored {
            place: home.place,
            length: home.length.get(),
            crc: home.crc,
            codec: Codec::Raw,
            page: 0,
            pages: 1,
        };
        if pool.damaged(io, &[stored]).await.is_empty() {
            return;
        }
        let length = usize::from(home.length.get());
        let mended = pool.mend(io, home.place, length, home.crc).await;
        let what = match mended {
            Mended::Intact(_) => return,
            Mended::Copied(_) => "one side of the mirror was damaged, and was copied",
            Mended::NoMirror | Mended::Lost | Mended::Unreadable => {
                "it is damaged, and what is in memory takes its place"
            }
        };
        if !matches!(mended, Mended::Copied(_)) {
            let mut inner = pool.lock();
            let crate::catalog::Catalog { layers, cache, .. } = &mut inner.state.catalog;
            if let Some(found) = layers.get_mut(&layer) {
                found.map.soil(number, home, cache);
            }
        }
        let text = format!(
            "the map from offset {} on, at {}: {what}",
            long(number) * long(LEAF_PAGES) * PAGE_BYTES,
            home.place.offset()
        );
        self.report.note(whose(pool, layer), text);
    }

    /// Reads chunks that lie near each other, on both sides of a mirror.
    async fn look_at(&mut self, pool: &Arc<Pool>, io: &Io, layer: LayerId, run: &[Chunk]) {
        let stored: Vec<Stored> = run.iter().map(|chunk| chunk.stored).collect();
        for number in pool.damaged(io, &stored).await {
            self.look_again(pool, io, layer, &run[number]).await;
        }
    }

    /// Reads a chunk alone, mends it where it can be, and tells of it if it is damaged and still in use.
    async fn look_again(&mut self, pool: &Arc<Pool>, io: &Io, layer: LayerId, chunk: &Chunk) {
        let length = usize::from(chunk.stored.length);
        let place = chunk.stored.place;
        let mended = pool.mend(io, place, length, chunk.stored.crc).await;
        if matches!(mended, Mended::Copied(_)) {
            self.report.note(
                whose(pool, layer),
                format!(
                    "offset {}: one side of the mirror was damaged at {}; the other one is intact, and was copied",
                    chunk.page * PAGE_BYTES,
                    place.offset()
                ),
            );
            return;
        }
        let what = match pool.read_bytes(io, chunk.stored.place, length).await {
            Ok((data, skip)) if crc(&data[skip..skip + length]) == chunk.stored.crc => return,
            Ok(_) => "the checksum does not match".to_owned(),
            Err(error) => std::io::Error::from(error).to_string(),
        };
        let is_current = loop {
            let holder = pool
                .lock()
                .state
                .holder(layer, chunk.page, chunk.stored.place);
            match holder {
                Ok(holder) => break holder.is_some(),
                Err(missing) => {
                    let loaded = pool.load_leaves(io, &[missing], Purpose::Look).await;
                    if loaded.is_err() {
                        break true;
                    }
                }
            }
        };
        if is_current {
            let drive = crate::drives::path_of(pool, chunk.stored.place);
            self.report.note(
                whose(pool, layer),
                format!(
                    "offset {}: {what}, on {} at {}",
                    chunk.page * PAGE_BYTES,
                    drive.display(),
                    chunk.stored.place.offset()
                ),
            );
        }
    }
}

/// Who reads a layer: the volume or snapshot whose own it is, or those that inherit it.
fn whose(pool: &Pool, layer: LayerId) -> String {
    let inner = pool.lock();
    let catalog = &inner.state.catalog;
    let layer = catalog.current(layer);
    let volumes = catalog
        .volumes
        .values()
        .map(|volume| (volume.name.clone(), volume.head));
    let snapshots = catalog
        .snapshots
        .iter()
        .map(|((of, name), snapshot)| (snapshot_name(of, name), snapshot.shape.head));
    let mut names: Vec<String> = volumes
        .chain(snapshots)
        .filter(|(_, head)| catalog.chain(*head).contains(&layer))
        .map(|(name, _)| name)
        .collect();
    names.sort();
    match names.is_empty() {
        true => format!("layer {}", layer.0),
        false => names.join(", "),
    }
}
