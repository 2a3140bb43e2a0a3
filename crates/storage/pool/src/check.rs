//! Checks a pool without writing to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use longshore_volume::Io;

use crate::error::PoolError;
use crate::format::record::LayerId;
use crate::format::superblock::{LENGTH, Superblock, copies};
use crate::format::{long, short};
use crate::leaves::Purpose;
use crate::place::{Content, Stored};
use crate::pool::Pool;
use crate::report::Report;
use crate::segments::Use;
use crate::state::State;
use crate::walk::{Found, Walk};

/// Chunks are looked at in portions, each of which takes another walk over the maps. Memory of a portion: a part of the
/// machine's, and how much at least.
const MEMORY_SHARE: u64 = 16;
const MEMORY_MIN: u64 = 256 << 20;

/// Pages whose chunks are in memory at once.
fn pages_max() -> u64 {
    if cfg!(test) {
        return 64;
    }
    let machine = rustix::system::sysinfo();
    let unit = u64::from(machine.mem_unit.max(1));
    let memory = machine.totalram.saturating_mul(unit);
    (memory / MEMORY_SHARE).max(MEMORY_MIN) / long(size_of::<Chunk>())
}

/// Runs of chunks that are read at once.
const READS_MAX: usize = 8;

/// A chunk, and who refers to it.
#[derive(Debug)]
struct Chunk {
    stored: Stored,
    layer: LayerId,
    /// Of its first page.
    page: u64,
}

impl Chunk {
    fn subject(&self) -> String {
        format!("layer {}, page {}", self.layer.0, self.page)
    }
}

impl Pool {
    /// Checks the pool on these drives. `with_data`: all data is read and compared with its checksums, and `progress` is
    /// told the bytes read and about how many there are. Blocks.
    ///
    /// # Errors
    /// It cannot be opened at all.
    pub fn check(
        drives: &[PathBuf],
        with_data: bool,
        progress: impl FnMut(u64, u64) + 'static,
    ) -> Result<Report, PoolError> {
        let pool = Self::open(drives, false, true)?;
        Ok(pool
            .run(move |pool, io| async move { check_pool(&pool, &io, with_data, progress).await }))
    }
}

/// Checks a pool that nobody writes to.
pub(crate) async fn check_pool(
    pool: &Arc<Pool>,
    io: &Io,
    with_data: bool,
    progress: impl FnMut(u64, u64),
) -> Report {
    let mut report = Report::default();
    check_superblocks(pool, io, &mut report).await;
    check_contents(pool, io, with_data, progress, &mut report).await;
    report
}

/// Checks everything but superblocks.
pub(crate) async fn check_contents(
    pool: &Arc<Pool>,
    io: &Io,
    with_data: bool,
    mut progress: impl FnMut(u64, u64),
    report: &mut Report,
) {
    check_catalog(pool, report);
    let mut looks = Looks::default();
    let mut counts = count(pool, io, &mut looks, report).await;
    let windows = windows(&counts);
    let sum: u64 = counts.values().map(|count| count.live).sum();
    add_leaves(pool, &mut counts);
    check_counts(pool, &counts, report);
    for segments in windows {
        let pages = counts.range(segments.clone()).map(|(_, count)| count.pages);
        // All of the memory at once: it does not grow beyond.
        let mut chunks = Vec::with_capacity(short(pages.sum()));
        collect(pool, io, &segments, &mut looks, &mut chunks, report).await;
        check_overlaps(&chunks, report);
        if with_data {
            // What lives in part is read as a whole: the end is told when it is there.
            let most = sum.saturating_sub(1);
            check_data(pool, io, &chunks, report, |bytes| {
                progress(bytes.min(most), sum);
            })
            .await;
        }
    }
    if with_data && sum > 0 {
        progress(sum, sum);
    }
}

pub(crate) async fn check_superblocks(pool: &Pool, io: &Io, report: &mut Report) {
    let newest = pool.newest().superblock;
    let present = pool.members.present();
    for (_, drive) in present.each() {
        let stale = drive.stale().map(|number| drive.side(number));
        match stale {
            None => {}
            Some(Some(side)) => report.note(
                side.path.display().to_string(),
                "is stale, and its mirror has one side; see: longshore pool replace",
            ),
            Some(None) => report.note(
                drive.path.display().to_string(),
                "the other side of its mirror is missing; see: longshore pool replace",
            ),
        }
    }
    for (_, side) in present.each().flat_map(|(_, drive)| drive.current()) {
        let mut whole = 0;
        for place in copies(side.bytes).concat() {
            let read = side.read_new(io, place, LENGTH).await;
            let is_newest = read
                .ok()
                .and_then(|bytes| Superblock::decode(&bytes).ok())
                .is_some_and(|found| found.number == newest);
            whole += usize::from(is_newest);
        }
        // Between the two pairs, the other two copies are of the checkpoint before.
        if whole < 2 {
            let text = format!("{whole} of 4 superblocks are whole and new; 2 are needed");
            report.note(side.path.display().to_string(), text);
        }
    }
}

fn check_catalog(pool: &Pool, report: &mut Report) {
    let inner = pool.lock();
    let catalog = &inner.state.catalog;
    report.volumes = catalog.volumes.len();
    report.snapshots = catalog.snapshots.len();
    let heads = catalog
        .volumes
        .values()
        .map(|volume| (volume.name.clone(), volume.head));
    let snapshots = catalog.snapshots.iter().map(|((volume, name), snapshot)| {
        let name = crate::pool::snapshot_name(volume, name);
        (name, snapshot.shape.head)
    });
    for (name, head) in heads.chain(snapshots) {
        if !catalog.layers.contains_key(&head) {
            report.note(name, format!("its layer {} is missing", head.0));
        }
    }
    for (id, layer) in &catalog.layers {
        let subject = || format!("layer {}", id.0);
        if let Some(parent) = layer.parent
            && !catalog.layers.contains_key(&parent)
        {
            report.note(subject(), format!("its parent {} is missing", parent.0));
        }
        if catalog.chain(*id).len() > catalog.layers.len() {
            report.note(subject(), "is its own ancestor");
        }
    }
}

/// What all maps together say of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Bytes that live there.
    live: u64,
    /// Pages whose data lies there.
    pages: u64,
}

/// Walks over all maps.
#[derive(Debug, Default)]
struct Looks {
    /// Leaves that could not be read: layers, and bytes from their beginnings.
    unread: BTreeSet<(LayerId, u64)>,
}

impl Looks {
    /// Shows each leaf that can be read.
    async fn each(
        &mut self,
        pool: &Arc<Pool>,
        io: &Io,
        report: &mut Report,
        mut show: impl FnMut(&State, &Found, &mut Report),
    ) {
        let mut walk = Walk::new(pool, Purpose::Look);
        loop {
            match walk.next(pool, io).await {
                Ok(Some(found)) => show(&pool.lock().state, &found, report),
                Ok(None) => return,
                Err(unread) if self.unread.insert((unread.layer, unread.offset)) => {
                    let text = format!(
                        "the map of 2 MiB from offset {} on is damaged, or cannot be read",
                        unread.offset
                    );
                    report.note(format!("layer {}", unread.layer.0), text);
                }
                Err(_) => {}
            }
        }
    }
}

/// Counts what lives in each segment, and notes what cannot be.
async fn count(
    pool: &Arc<Pool>,
    io: &Io,
    looks: &mut Looks,
    report: &mut Report,
) -> BTreeMap<u32, Count> {
    let mut counts: BTreeMap<u32, Count> = BTreeMap::new();
    let show = |state: &State, found: &Found, report: &mut Report| {
        let segments = &state.segments;
        for (page, entry) in found.entries() {
            let stored = match entry.content() {
                Content::Data(stored) => stored,
                Content::Lost => {
                    let layer = format!("layer {}", found.layer.0);
                    report.note(layer, format!("page {page} is lost"));
                    continue;
                }
                Content::Absent | Content::Zero => continue,
            };
            report.pages += 1;
            let mut note = |text: &str| {
                report.note(format!("layer {}, page {page}", found.layer.0), text);
            };
            let Some(segment) = segments.of(stored.place) else {
                note("lies outside all segments");
                continue;
            };
            match segments.get(segment).used {
                Use::Sealed | Use::Open => {}
                Use::Free | Use::Ready | Use::Map | Use::Leaves | Use::Gone => {
                    note("lies in a segment that holds no data");
                }
            }
            if !segments.holds(stored.place, stored.length) {
                note("reaches beyond the end of its segment");
            }
            let count = counts.entry(segment).or_default();
            count.live += stored.share();
            count.pages += 1;
        }
    };
    looks.each(pool, io, report, show).await;
    counts
}

/// Neighbouring segments whose chunks are looked at together.
fn windows(counts: &BTreeMap<u32, Count>) -> Vec<RangeInclusive<u32>> {
    let mut windows: Vec<RangeInclusive<u32>> = Vec::new();
    let (most, mut pages) = (pages_max(), 0);
    for (number, count) in counts {
        pages += count.pages;
        match windows.last_mut() {
            Some(window) if pages <= most => *window = *window.start()..=*number,
            Some(_) | None => {
                windows.push(*number..=*number);
                pages = count.pages;
            }
        }
    }
    windows
}

/// Takes the chunks that lie in some segments, sorted by their places.
async fn collect(
    pool: &Arc<Pool>,
    io: &Io,
    window: &RangeInclusive<u32>,
    looks: &mut Looks,
    chunks: &mut Vec<Chunk>,
    report: &mut Report,
) {
    let show = |state: &State, found: &Found, _: &mut Report| {
        let layer = found.layer;
        for (page, stored) in found.stored() {
            let segment = state.segments.of(stored.place);
            if !segment.is_some_and(|segment| window.contains(&segment)) {
                continue;
            }
            chunks.push(Chunk {
                stored,
                layer,
                // Of a damaged entry it may lie before the first one.
                page: page.wrapping_sub(u64::from(stored.page)),
            });
        }
    };
    looks.each(pool, io, report, show).await;
    // Of several entries for a chunk, the first that the walk came to stays.
    chunks.sort_unstable_by_key(|chunk| (chunk.stored.place, chunk.layer, chunk.page));
    let inner = pool.lock();
    let heirs = |layer| inner.state.catalog.heirs(layer);
    chunks.dedup_by(|chunk, known| {
        if chunk.stored.place != known.stored.place {
            return false;
        }
        // What is being merged lies in two layers.
        let is_same = chunk.page == known.page
            && chunk.stored.crc == known.stored.crc
            && (chunk.layer == known.layer || heirs(chunk.layer).contains(&known.layer));
        if !is_same {
            let text = format!(
                "shares its data with layer {}, page {}",
                known.layer.0, known.page
            );
            report.note(chunk.subject(), text);
        }
        true
    });
}

/// Counts the leaves of maps, too.
fn add_leaves(pool: &Pool, counts: &mut BTreeMap<u32, Count>) {
    let inner = pool.lock();
    for layer in inner.state.catalog.layers.values() {
        let mut from = 0;
        while let Some((number, slot)) = layer.map.next(from) {
            let home = slot.home();
            let place = home.and_then(|it| Some((inner.state.segments.of(it.place)?, it.bytes())));
            if let Some((segment, bytes)) = place {
                counts.entry(segment).or_default().live += bytes;
            }
            from = number + 1;
        }
    }
}

/// Compares what is counted of segments and leaves with the maps.
fn check_counts(pool: &Pool, counts: &BTreeMap<u32, Count>, report: &mut Report) {
    let inner = pool.lock();
    for (number, segment) in inner.state.segments.iter() {
        let counted = counts.get(&number).map_or(0, |count| count.live);
        // What a damaged leaf had is counted until its segment is cleaned; that does no harm.
        if segment.live < counted {
            let text = format!(
                "{counted} bytes live there, and {} are counted",
                segment.live
            );
            report.note(format!("segment {number}"), text);
        }
    }
}

fn check_overlaps(chunks: &[Chunk], report: &mut Report) {
    let mut before: Option<&Chunk> = None;
    for chunk in chunks {
        if let Some(before) = before
            && before.stored.place.drive() == chunk.stored.place.drive()
            && before.stored.place.offset() + u64::from(before.stored.length)
                > chunk.stored.place.offset()
        {
            let text = format!("overlaps layer {}, page {}", before.layer.0, before.page);
            report.note(chunk.subject(), text);
        }
        before = Some(chunk);
    }
}

/// Reads chunks, sorted by their places, and compares them with their checksums. `progress` is told the bytes that all
/// such calls have read.
async fn check_data(
    pool: &Arc<Pool>,
    io: &Io,
    chunks: &[Chunk],
    report: &mut Report,
    mut progress: impl FnMut(u64),
) {
    let mut rest = chunks;
    let runs = std::iter::from_fn(|| {
        let length = pool.run_length(rest.iter().map(|chunk| &chunk.stored));
        let (run, more) = rest.split_at(length);
        rest = more;
        (!run.is_empty()).then_some(run)
    });
    let reads = runs.map(|run| async move {
        let stored: Vec<Stored> = run.iter().map(|chunk| chunk.stored).collect();
        (run, pool.damaged(io, &stored).await)
    });
    let mut reads = stream::iter(reads).buffered(READS_MAX);
    while let Some((run, damaged)) = reads.next().await {
        for number in damaged {
            check_chunk(pool, io, &run[number], report).await;
        }
        let lengths = run.iter().map(|chunk| u64::from(chunk.stored.length));
        report.data_bytes += lengths.sum::<u64>();
        progress(report.data_bytes);
    }
}

/// Reads a chunk alone that could not be read with others, or not from all sides.
async fn check_chunk(pool: &Arc<Pool>, io: &Io, chunk: &Chunk, report: &mut Report) {
    let stored = &chunk.stored;
    let length = usize::from(stored.length);
    if pool.damaged(io, &[*stored]).await.is_empty() {
        return;
    }
    let read = pool.read_bytes(io, stored.place, length).await;
    let is_intact = |data: &[u8]| crate::format::crc(data) == stored.crc;
    let text = match read {
        Ok((data, skip)) if is_intact(&data[skip..skip + length]) => {
            match pool.has_two(stored.place) {
                true => "one side of the mirror is damaged; a scrub mends it".to_owned(),
                false => "could not be read at first".to_owned(),
            }
        }
        Ok(_) => "the checksum of its data does not match".to_owned(),
        Err(error) => std::io::Error::from(error).to_string(),
    };
    report.note(chunk.subject(), text);
}
