//! Leaves of maps, read from where the newest checkpoint has them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use longshore_volume::Io;

use crate::cache::Missing;
use crate::catalog::Catalog;
use crate::drive::Drive;
use crate::error::PoolError;
use crate::format::checkpoint::Item;
use crate::format::record::LayerId;
use crate::format::superblock::Superblock;
use crate::format::{PAGE_BYTES, crc, long, short};
use crate::leaf::{Home, LEAF_PAGES, Leaf};
use crate::log::Failure;
use crate::mend::Mended;
use crate::place::Content;
use crate::pool::Pool;
use crate::segments::Segments;
use crate::side::Side;
use crate::state::State;

/// Leaves that are read at once.
const READS_MAX: usize = 16;

/// What a leaf is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody wants to see it.
    Look,
    /// It is about to change, or to go: if it is damaged, its pages are lost from then on.
    Change,
}

/// Why a leaf could not be read.
#[derive(Debug)]
pub enum LeafError {
    /// What lies there is something else.
    Damaged,
    Io(io::Error),
}

/// Reads the bytes of a leaf from the drive that it lies on, and tells whether that went well at once.
pub async fn read_leaf(io: &Io, drive: &Drive, home: Home) -> Result<(Vec<u8>, bool), LeafError> {
    let mut result = Err(LeafError::Damaged);
    let mut is_first = true;
    // What is wrong at first may be right when it is read again.
    for _ in 0..2 {
        for (_, side) in drive.current() {
            match read_bytes(io, side, drive.align, home).await {
                Ok(bytes) if crc(&bytes) == home.crc => return Ok((bytes, is_first)),
                Ok(_) => {}
                Err(error) => result = Err(LeafError::Io(error)),
            }
            is_first = false;
        }
    }
    result
}

async fn read_bytes(io: &Io, side: &Side, align: usize, home: Home) -> io::Result<Vec<u8>> {
    let unit = long(align);
    let begin = home.place.offset() / unit * unit;
    let end = (home.place.offset() + home.bytes()).next_multiple_of(unit);
    let data = side.read_new(io, begin, short(end - begin)).await?;
    let skip = short(home.place.offset() - begin);
    Ok(data[skip..skip + short(home.bytes())].to_vec())
}

/// The leaf of its bytes. `None`: they are none of this pool.
pub fn open_leaf(bytes: &[u8], segments: &Segments) -> Option<Arc<Leaf>> {
    let leaf = Item::decode_leaf(bytes, |place, bytes| segments.holds_run(place, bytes));
    leaf.ok().map(Arc::from)
}

/// Whether all that the entries of a leaf name is in the pool.
pub fn fits(leaf: &Leaf, segments: &Segments) -> bool {
    leaf.entries().iter().all(|entry| match entry.content() {
        Content::Data(stored) => segments.holds(stored.place, stored.length),
        Content::Absent | Content::Zero | Content::Lost => true,
    })
}

/// Tells that a part of a map is lost.
pub fn warn_lost(pool: &str, missing: &Missing) {
    let bytes = long(LEAF_PAGES) * PAGE_BYTES;
    tracing::error!(
        pool,
        layer = missing.layer.0,
        from = u64::from(missing.number) * bytes,
        bytes,
        drive = missing.home.place.drive(),
        offset = missing.home.place.offset(),
        "a part of a map is damaged: what it had reads as lost"
    );
}

/// Reads leaves of a pool that is not open yet.
#[derive(Clone, Copy)]
pub struct LeafReader<'a> {
    pub io: &'a Io,
    pub label: &'a Superblock,
    pub drives: &'a [Option<Arc<Drive>>],
}

impl LeafReader<'_> {
    async fn read(&self, missing: Missing) -> (Missing, Result<Vec<u8>, LeafError>) {
        let drive = usize::from(missing.home.place.drive());
        let read = match self.drives.get(drive) {
            Some(Some(drive)) => {
                let read = read_leaf(self.io, drive, missing.home).await;
                read.map(|(bytes, _)| bytes)
            }
            Some(None) | None => Err(LeafError::Io(io::ErrorKind::NotFound.into())),
        };
        (missing, read)
    }

    /// Has leaves be in memory that will be needed, as far as they can be read.
    pub async fn read_ahead(&self, state: &mut State, wanted: &[Missing]) {
        let mut reads =
            stream::iter(wanted.iter().map(|it| self.read(*it))).buffer_unordered(READS_MAX);
        while let Some((missing, read)) = reads.next().await {
            let leaf = read.ok().and_then(|it| open_leaf(&it, &state.segments));
            if let Some(leaf) = leaf.filter(|leaf| state.is_leaf(&missing, leaf)) {
                state.take_leaf(&missing, Some(leaf));
            }
        }
    }

    /// Has leaves be in memory. Those that are damaged are lost from then on.
    pub async fn load(&self, state: &mut State, wanted: &[Missing]) -> Result<(), PoolError> {
        state.catalog.cache.need(wanted.len());
        let mut reads =
            stream::iter(wanted.iter().map(|it| self.read(*it))).buffer_unordered(READS_MAX);
        while let Some((missing, read)) = reads.next().await {
            let leaf = match read {
                Ok(bytes) => open_leaf(&bytes, &state.segments),
                Err(LeafError::Damaged) => None,
                Err(LeafError::Io(source)) => {
                    let drive = self.drives.get(usize::from(missing.home.place.drive()));
                    let path = drive.and_then(Option::as_ref).map(|it| it.path.clone());
                    return Err(PoolError::Io {
                        operation: "read",
                        path: path.unwrap_or_default(),
                        source,
                    });
                }
            };
            let leaf = leaf.filter(|leaf| state.is_leaf(&missing, leaf));
            if state.take_leaf(&missing, leaf) {
                warn_lost(&self.label.name, &missing);
            }
        }
        Ok(())
    }

    /// Has all leaves be in memory, however many. Those that cannot be read are taken out, and returned.
    pub async fn load_all(&self, state: &mut State) -> BTreeSet<(LayerId, u32)> {
        let mut wanted = Vec::new();
        for (id, layer) in &state.catalog.layers {
            let mut from = 0;
            while let Some((number, slot)) = layer.map.next(from) {
                wanted.extend(slot.away().map(|home| Missing::new(*id, number, home)));
                from = number + 1;
            }
        }
        state.catalog.cache.hold_all();
        let mut damaged = BTreeSet::new();
        let mut reads =
            stream::iter(wanted.into_iter().map(|it| self.read(it))).buffer_unordered(READS_MAX);
        while let Some((missing, read)) = reads.next().await {
            let leaf = read.ok();
            let leaf = leaf.and_then(|bytes| open_leaf(&bytes, &state.segments));
            match leaf.filter(|leaf| state.is_leaf(&missing, leaf)) {
                Some(leaf) => drop(state.take_leaf(&missing, Some(leaf))),
                None => {
                    damaged.insert((missing.layer, missing.number));
                    let Catalog { layers, cache, .. } = &mut state.catalog;
                    if let Some(layer) = layers.get_mut(&missing.layer) {
                        layer.map.take(short(u64::from(missing.number)), cache);
                    }
                    state
                        .segments
                        .sub_leaf(missing.home.place, missing.home.bytes());
                }
            }
        }
        damaged
    }
}

impl Pool {
    /// Has leaves be in memory, if they are needed still.
    pub(crate) async fn load_leaves(
        self: &Arc<Self>,
        io: &Io,
        missing: &[Missing],
        purpose: Purpose,
    ) -> Result<(), Failure> {
        let mut missing = missing.to_vec();
        missing.sort_by_key(|it| (it.layer, it.number));
        missing.dedup();
        self.lock().state.catalog.cache.need(missing.len());
        let reads = missing.iter().map(|it| self.load_leaf(io, it, purpose));
        let mut reads = stream::iter(reads).buffer_unordered(READS_MAX);
        let mut result = Ok(());
        while let Some(loaded) = reads.next().await {
            result = result.and(loaded);
        }
        result
    }

    async fn load_leaf(&self, io: &Io, missing: &Missing, purpose: Purpose) -> Result<(), Failure> {
        let home = missing.home;
        let (_pin, drive) = {
            let inner = self.lock();
            let catalog = &inner.state.catalog;
            let first = u64::from(missing.number) * long(LEAF_PAGES);
            if catalog.away(missing.layer, first) != Some(*missing) {
                return Ok(());
            }
            (inner.state.segments.pin(home.place), self.drive(home.place))
        };
        let Some(drive) = drive else {
            return Err(Failure::Unreadable);
        };
        let mut read = read_leaf(io, &drive, home).await;
        if drive.has_two() && !matches!(read, Ok((_, true))) {
            let length = usize::from(home.length.get());
            match self.mend(io, home.place, length, home.crc).await {
                Mended::Intact(bytes) | Mended::Copied(bytes) => read = Ok((bytes, true)),
                Mended::Lost => read = Err(LeafError::Damaged),
                Mended::NoMirror | Mended::Unreadable => {}
            }
        }
        let mut inner = self.lock();
        let leaf = match read {
            Ok((bytes, _)) => open_leaf(&bytes, &inner.state.segments),
            Err(LeafError::Damaged) => None,
            Err(LeafError::Io(error)) => {
                drop(inner);
                tracing::error!(
                    pool = self.name(),
                    path = %drive.path.display(),
                    offset = home.place.offset(),
                    %error,
                    "a part of a map cannot be read"
                );
                return Err(match error.kind() {
                    io::ErrorKind::OutOfMemory => Failure::OutOfMemory,
                    _ => Failure::Unreadable,
                });
            }
        };
        let is_whole = leaf
            .as_ref()
            .is_some_and(|it| inner.state.is_leaf(missing, it));
        if !is_whole && purpose == Purpose::Look {
            return Err(Failure::Unreadable);
        }
        if inner.state.take_leaf(missing, leaf.filter(|_| is_whole)) {
            drop(inner);
            warn_lost(self.name(), missing);
        }
        Ok(())
    }
}
