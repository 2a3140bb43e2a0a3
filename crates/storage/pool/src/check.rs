//! Checks a pool without writing to it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_volume::Io;

use crate::error::PoolError;
use crate::format::record::LayerId;
use crate::format::superblock::{LENGTH, Superblock, copies};
use crate::leaves::Purpose;
use crate::place::{Content, Place, Stored};
use crate::pool::Pool;
use crate::report::Report;
use crate::segments::Use;
use crate::walk::Walk;

/// A chunk, and who refers to it.
struct Chunk {
    stored: Stored,
    layer: LayerId,
    /// Of its first page.
    page: u64,
}

impl Pool {
    /// Checks the pool on these drives. `with_data`: all data is read and compared with its checksums, and `progress` is
    /// told the bytes read and their sum. Blocks.
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
    progress: impl FnMut(u64, u64),
    report: &mut Report,
) {
    check_catalog(pool, report);
    let Contents { chunks, live } = collect(pool, io, report).await;
    check_counts(pool, live, report);
    check_overlaps(&chunks, report);
    if with_data {
        check_data(pool, io, &chunks, report, progress).await;
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

/// What all maps together say.
#[derive(Default)]
struct Contents {
    chunks: BTreeMap<Place, Chunk>,
    /// Bytes that live in each segment.
    live: BTreeMap<u32, u64>,
}

async fn collect(pool: &Arc<Pool>, io: &Io, report: &mut Report) -> Contents {
    let mut contents = Contents::default();
    let Contents { chunks, live } = &mut contents;
    let mut walk = Walk::new(pool, Purpose::Look);
    loop {
        let found = match walk.next(pool, io).await {
            Ok(Some(found)) => found,
            Ok(None) => return contents,
            Err(unread) => {
                let text = format!(
                    "the map of 2 MiB from offset {} on is damaged, or cannot be read",
                    unread.offset
                );
                report.note(format!("layer {}", unread.layer.0), text);
                continue;
            }
        };
        let layer = found.layer;
        let inner = pool.lock();
        let segments = &inner.state.segments;
        for (page, entry) in found.entries() {
            let stored = match entry.content() {
                Content::Data(stored) => stored,
                Content::Lost => {
                    report.note(format!("layer {}", layer.0), format!("page {page} is lost"));
                    continue;
                }
                Content::Absent | Content::Zero => continue,
            };
            report.pages += 1;
            let subject = || format!("layer {}, page {page}", layer.0);
            let segment = segments.of(stored.place);
            if let Some(segment) = segment {
                *live.entry(segment).or_default() += stored.share();
            }
            match segment.map(|number| segments.get(number).used) {
                Some(Use::Sealed | Use::Open) => {}
                Some(Use::Free | Use::Ready | Use::Map | Use::Leaves | Use::Gone) => {
                    report.note(subject(), "lies in a segment that holds no data");
                }
                None => report.note(subject(), "lies outside all segments"),
            }
            let chunk = Chunk {
                stored,
                layer,
                page: page - u64::from(stored.page).min(page),
            };
            let known = chunks.entry(stored.place).or_insert(chunk);
            // What is being merged lies in two layers.
            let is_same = known.page + u64::from(stored.page) == page
                && known.stored.crc == stored.crc
                && (known.layer == layer
                    || inner.state.catalog.heirs(layer).contains(&known.layer));
            if !is_same {
                let text = format!(
                    "shares its data with layer {}, page {}",
                    known.layer.0, known.page
                );
                report.note(subject(), text);
            }
        }
    }
}

/// Compares what is counted of segments and leaves with the maps.
fn check_counts(pool: &Pool, mut live: BTreeMap<u32, u64>, report: &mut Report) {
    let inner = pool.lock();
    for layer in inner.state.catalog.layers.values() {
        let mut from = 0;
        while let Some((number, slot)) = layer.map.next(from) {
            let home = slot.home();
            let place = home.and_then(|it| Some((inner.state.segments.of(it.place)?, it.bytes())));
            if let Some((segment, bytes)) = place {
                *live.entry(segment).or_default() += bytes;
            }
            from = number + 1;
        }
    }
    for (number, segment) in inner.state.segments.iter() {
        let counted = live.get(&number).copied().unwrap_or(0);
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

fn check_overlaps(chunks: &BTreeMap<Place, Chunk>, report: &mut Report) {
    let mut before: Option<&Chunk> = None;
    for chunk in chunks.values() {
        if let Some(before) = before
            && before.stored.place.drive() == chunk.stored.place.drive()
            && before.stored.place.offset() + u64::from(before.stored.length)
                > chunk.stored.place.offset()
        {
            let subject = format!("layer {}, page {}", chunk.layer.0, chunk.page);
            let text = format!("overlaps layer {}, page {}", before.layer.0, before.page);
            report.note(subject, text);
        }
        before = Some(chunk);
    }
}

async fn check_data(
    pool: &Arc<Pool>,
    io: &Io,
    chunks: &BTreeMap<Place, Chunk>,
    report: &mut Report,
    mut progress: impl FnMut(u64, u64),
) {
    let sum = chunks
        .values()
        .map(|chunk| u64::from(chunk.stored.length))
        .sum();
    for chunk in chunks.values() {
        let length = usize::from(chunk.stored.length);
        let subject = || format!("layer {}, page {}", chunk.layer.0, chunk.page);
        if !pool.damaged(io, &[chunk.stored]).await.is_empty() {
            let read = pool.read_bytes(io, chunk.stored.place, length).await;
            let is_intact = |data: &[u8]| crate::format::crc(data) == chunk.stored.crc;
            let text = match read {
                Ok((data, skip)) if is_intact(&data[skip..skip + length]) => {
                    match pool.has_two(chunk.stored.place) {
                        true => "one side of the mirror is damaged; a scrub mends it".to_owned(),
                        false => "could not be read at first".to_owned(),
                    }
                }
                Ok(_) => "the checksum of its data does not match".to_owned(),
                Err(error) => std::io::Error::from(error).to_string(),
            };
            report.note(subject(), text);
        }
        report.data_bytes += u64::from(chunk.stored.length);
        progress(report.data_bytes, sum);
    }
}
