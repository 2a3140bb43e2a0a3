//! The records that a rebuild found, put into the maps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::base::{Base, BaseKind};
use crate::catalog::Layer;
use crate::error::PoolError;
use crate::format::record::{LayerId, Part, PartKind, RecordHeader};
use crate::format::{FormatError, PAGE_BYTES, long};
use crate::inspect::{Inspection, has_ops};
use crate::leaf::LEAF_PAGES;
use crate::place::{Content, Entry, Place};
use crate::recovery::{Recovered, lies_in_a_segment};
use crate::report::Report;
use crate::search::Found;
use crate::state::chunk;

/// Generations are far beyond those that a lost checkpoint may have handed out.
const GENERATIONS_AHEAD: u64 = 1 << 40;

/// Leaves of layers that nothing names, together: their lists take a GiB.
const LEAVES_MAX: u64 = 1 << 27;

/// A record that counts.
pub struct Counted {
    pub number: u64,
    pub parts: Arc<[Part]>,
    pub payload: Place,
    /// Its own header is gone.
    is_echo: bool,
}

pub struct PutTogether<'a> {
    inspection: Inspection<'a>,
    pub base: Base,
    pub found: Found,
    report: Report,
    is_whole: bool,
    /// Layers that were merged, and what they are part of now.
    merged: BTreeMap<LayerId, LayerId>,
    /// Pages of which it is not known whether they are of the last write.
    uncertain: u64,
    /// Parts that were not applied, as maps for their pages would take too much memory.
    skipped: u64,
    /// Leaves that maps of layers that nothing names have room for.
    leaves: HashMap<LayerId, u64>,
    leaves_sum: u64,
    /// All records behind the checkpoint are there.
    is_complete: bool,
}

impl<'a> PutTogether<'a> {
    pub fn new(inspection: Inspection<'a>, base: Base, found: Found, report: Report) -> Self {
        Self {
            inspection,
            base,
            found,
            report,
            is_whole: true,
            merged: BTreeMap::new(),
            uncertain: 0,
            skipped: 0,
            leaves: HashMap::new(),
            leaves_sum: 0,
            is_complete: false,
        }
    }

    /// Something is lost, or nobody knows.
    pub fn doubt(&mut self, subject: impl Into<String>, text: impl Into<String>) {
        self.is_whole = false;
        self.report.note(subject, text);
    }

    /// The pool, what is wrong with it, and whether it is whole.
    pub async fn run(mut self) -> Result<(Recovered, Report, bool), PoolError> {
        let durable = self.durable();
        let records = self.counted();
        self.note_base();
        self.note_missing(&records, durable);
        self.part_merged();
        let orphans = self.orphans();
        let mut damaged = 0;
        for record in &records {
            damaged += self.replay(record, durable, &orphans).await?;
        }
        self.merge_again();
        self.base.state.tidy_whole();
        if !self.base.state.catalog.is_sound() {
            let source = FormatError::Field("the tree of layers");
            return Err(crate::load::damaged(
                self.inspection.label,
                "the catalogue",
                source,
            ));
        }
        let stale = self.drop_stale(&records);
        let silent = self.silent_segments();
        self.name_orphans();
        for (count, text) in [
            (damaged, "parts of records are damaged"),
            (stale, "pages are lost: their segments were used anew"),
            (
                silent,
                "segments have data, and neither header nor records tell what it is",
            ),
            (
                self.uncertain,
                "pages were moved, and may be of an earlier write than the last one",
            ),
            (
                self.skipped,
                "parts of records are of volumes that nothing names, and too large",
            ),
        ] {
            if count > 0 {
                self.doubt("log", format!("{count} {text}"));
            }
        }
        self.settle_segments();
        self.settle_layers();
        let last = records.last().map_or(0, |record| record.number);
        let last = last.max(self.base.state.applied).max(durable);
        let next = last.saturating_add(1);
        let mut state = self.base.state;
        state.applied = last;
        let generations = state.segments.iter().map(|(_, it)| it.generation);
        let newest = generations.max().unwrap_or(0);
        Ok((
            Recovered {
                state,
                newest: self.base.newest,
                next,
                next_generation: newest
                    .max(self.base.next_generation)
                    .saturating_add(GENERATIONS_AHEAD),
                replayed: long(records.len()),
                torn: 0,
                used: self.found.used,
            },
            self.report,
            self.is_whole,
        ))
    }

    /// Records up to this one were on the medium.
    fn durable(&self) -> u64 {
        let mark = |(header, _): &(RecordHeader, Place)| header.durable.min(header.number);
        let marks = self.found.by_number.values().map(mark);
        marks.max().unwrap_or(0).max(self.base.claimed)
    }

    /// Records behind the checkpoint, or all: those that were found, and those that the next one repeats.
    fn counted(&mut self) -> Vec<Counted> {
        let floor = if self.base.is_whole() {
            self.base.state.applied
        } else {
            0
        };
        // No more records than there is room for.
        if self.base.is_whole() {
            let segments = &self.base.state.segments;
            let room = u64::from(segments.count()) * segments.bytes() / PAGE_BYTES;
            let end = floor.saturating_add(room).saturating_add(1);
            let beyond = self.found.by_number.split_off(&end);
            if !beyond.is_empty() {
                self.doubt(
                    "log",
                    format!("{} records have impossible numbers", beyond.len()),
                );
            }
        }
        // Another checkpoint of the same number took the place of this one.
        let is_of_another = |(header, _): &(RecordHeader, Place)| {
            header.generation >= self.base.next_generation && header.number <= floor
        };
        if self.base.is_whole() && self.found.by_number.values().any(is_of_another) {
            self.doubt(
                "checkpoint",
                "it was given up, perhaps, and another one of its number counted",
            );
        }
        let mut counted = Vec::new();
        let mut before = floor;
        let behind = floor.saturating_add(1)..;
        for (number, (header, payload)) in self.found.by_number.range(behind) {
            if *number - 1 > before && self.is_place(header) && !header.echo.is_empty() {
                counted.push(Counted {
                    number: number - 1,
                    parts: header.echo.clone(),
                    payload: header.echo_place,
                    is_echo: true,
                });
            }
            counted.push(Counted {
                number: *number,
                parts: header.parts.clone(),
                payload: *payload,
                is_echo: false,
            });
            before = *number;
        }
        counted
    }

    /// Whether the record before one lies where one can be read.
    fn is_place(&self, header: &RecordHeader) -> bool {
        let drive = self
            .inspection
            .drives
            .get(usize::from(header.echo_place.drive()));
        lies_in_a_segment(&self.base.state.segments, header) && drive.is_some_and(Option::is_some)
    }

    fn note_base(&mut self) {
        let text = match self.base.kind {
            BaseKind::Whole => return,
            BaseKind::Catalog(_) => {
                "no checkpoint is whole: maps are of records, and what was zeroed or unmapped may hold what it held before"
            }
            BaseKind::Nothing => {
                "no checkpoint is left: volumes and maps are of records; changes of volumes and snapshots may be missing, \
                 and what was zeroed or unmapped may hold what it held before"
            }
        };
        self.doubt("checkpoints", text);
    }

    /// Tells which records are missing behind the checkpoint.
    fn note_missing(&mut self, records: &[Counted], durable: u64) {
        let applied = self.base.state.applied;
        if self.base.kind == BaseKind::Nothing {
            return;
        }
        if self.base.is_claim_lost {
            self.doubt(
                "log",
                "a later checkpoint is lost, and nothing says how many records it had: the last ones may be missing",
            );
        }
        let mut missing = 0;
        let mut next = applied.saturating_add(1);
        // What is behind the durable mark may never have been written.
        let end = durable.saturating_add(1);
        let numbers = records.iter().map(|record| record.number);
        for number in numbers.filter(|number| *number > applied).chain([end]) {
            missing += number.min(end).saturating_sub(next);
            next = next.max(number.saturating_add(1));
        }
        #[cfg(test)]
        let missing = match crate::testing::has_planted(crate::testing::Planted::ForgetsMissing) {
            true => 0,
            false => missing,
        };
        self.is_complete = self.base.is_whole() && missing == 0;
        if missing > 0 {
            let text = format!(
                "{missing} records behind checkpoint record {applied} are missing: what they wrote is lost, and reads as \
                 what was there before"
            );
            self.doubt("log", text);
        }
    }

    /// Has layers that were merged be apart while records are replayed: those of their records are older than those of the
    /// layers that they became part of.
    fn part_merged(&mut self) {
        if self.base.is_whole() {
            return;
        }
        let catalog = &mut self.base.state.catalog;
        for from in catalog.aliases.keys().copied().collect::<Vec<_>>() {
            self.merged.insert(from, catalog.current(from));
        }
        catalog.aliases.clear();
        for from in self.merged.keys() {
            catalog.layers.insert(*from, Layer::new(*from, None));
        }
    }

    /// Gives merged layers to those that they became part of, the newest first.
    fn merge_again(&mut self) {
        let state = &mut self.base.state;
        for (from, to) in std::mem::take(&mut self.merged).into_iter().rev() {
            let Some(layer) = state.catalog.layers.remove(&from) else {
                continue;
            };
            let into = state.catalog.current(to);
            for (number, _, entries) in layer.map.resident() {
                let first = long(number) * long(LEAF_PAGES);
                for (page, entry) in (first..).zip(entries.entries()) {
                    if entry.is_absent() {
                        continue;
                    }
                    let is_kept = state.catalog.layers.contains_key(&into)
                        && state.catalog.own(into, page) == Ok(Entry::ABSENT);
                    if is_kept {
                        state.set(into, page, *entry);
                    }
                    if let Content::Data(stored) = entry.content() {
                        state.segments.sub_live(stored.place, stored.share());
                    }
                }
            }
            if state.catalog.layers.contains_key(&into) {
                state.catalog.aliases.insert(from, into);
            }
        }
    }

    /// Places from which something was moved, and whose records are gone.
    fn orphans(&self) -> HashSet<Place> {
        let mut orphans = HashSet::new();
        // Then a move counts only where a map names its origin, as in the recovery.
        if self.is_complete {
            return orphans;
        }
        let headers = || self.found.by_number.values();
        for (header, _) in headers() {
            for part in &*header.parts {
                if let PartKind::Moved { from, .. } | PartKind::Lost { from, .. } = &part.kind {
                    orphans.insert(*from);
                }
            }
        }
        for (header, payload) in headers() {
            for begin in header.parts.iter().flat_map(|part| begins(part, *payload)) {
                orphans.remove(&begin);
            }
            if lies_in_a_segment(&self.base.state.segments, header) {
                let echo = header.echo.iter();
                for begin in echo.flat_map(|part| begins(part, header.echo_place)) {
                    orphans.remove(&begin);
                }
            }
        }
        for layer in self.base.state.catalog.layers.values() {
            crate::state::for_each_stored(&layer.map, |_, stored| {
                orphans.remove(&stored.place);
            });
        }
        orphans
    }

    /// The layer that one is part of in the checkpoint.
    fn part_of(&self, layer: LayerId) -> LayerId {
        self.merged.get(&layer).copied().unwrap_or(layer)
    }

    /// Applies a record. Returns how many of its parts are damaged.
    async fn replay(
        &mut self,
        record: &Counted,
        durable: u64,
        orphans: &HashSet<Place>,
    ) -> Result<u64, PoolError> {
        let is_behind = record.number > self.base.state.applied;
        // With a checkpoint, it is known to be needed.
        let is_new = is_behind && self.base.kind != BaseKind::Nothing;
        // What is damaged in payloads that are not looked at reads as a medium error.
        let is_inspected = is_new || record.is_echo || is_behind && has_ops(&record.parts);
        let (intact, ops) = if is_inspected {
            let inspected = self
                .inspection
                .inspect(&record.parts, record.payload)
                .await?;
            (inspected.intact, inspected.ops)
        } else {
            (vec![true; record.parts.len()], Vec::new())
        };
        let mut ops = ops.into_iter();
        let mut damaged = 0;
        for (part, is_intact) in record.parts.iter().zip(intact) {
            match (&part.kind, is_intact) {
                (PartKind::Op { .. }, true) => {
                    if let Some(op) = ops.next().filter(|_| is_behind) {
                        self.base.state.apply_op(&op);
                    }
                }
                (_, true) => self.apply(record, part, orphans),
                // It was torn when the power went, or its place is used by others since.
                (_, false) if record.number > durable || record.is_echo && !is_new => {}
                // What of it is damaged reads as a medium error.
                (_, false) if !record.is_echo => {
                    damaged += 1;
                    if !is_moved(part) {
                        self.apply(record, part, orphans);
                    }
                }
                // Its place may be used by others.
                (_, false) => {
                    damaged += 1;
                    self.lose(part);
                }
            }
        }
        Ok(damaged)
    }

    /// Whether the map of a part's layer may have its pages. Makes a layer that nothing names.
    fn has_room(&mut self, part: &Part) -> bool {
        let catalog = &mut self.base.state.catalog;
        let layer = catalog.current(part.layer);
        let is_there = catalog.layers.contains_key(&layer);
        if matches!(part.kind, PartKind::Zero { .. })
            || is_there && !self.leaves.contains_key(&layer)
        {
            return is_there;
        }
        let wanted = part.page / long(LEAF_PAGES) + 2;
        let has = self.leaves.get(&layer).copied().unwrap_or(0);
        let more = wanted.saturating_sub(has);
        if self.leaves_sum + more > LEAVES_MAX {
            return false;
        }
        self.leaves_sum += more;
        self.leaves.insert(layer, wanted.max(has));
        let new = || Layer::new(layer, None);
        catalog.layers.entry(layer).or_insert_with(new);
        true
    }

    fn apply(&mut self, record: &Counted, part: &Part, orphans: &HashSet<Place>) {
        if self.base.kind == BaseKind::Nothing && !self.has_room(part) {
            self.skipped += 1;
            return;
        }
        let layer = self.base.state.catalog.current(part.layer);
        let payload = record.payload;
        match &part.kind {
            PartKind::Moved { mask, from, .. } | PartKind::Lost { mask, from }
                if orphans.contains(from) =>
            {
                for place in (0..4_u8).filter(|place| mask & 1 << place != 0) {
                    let page = part.page + u64::from(place);
                    if self.is_known(record.number, layer, page) {
                        continue;
                    }
                    let before = self.base.state.catalog.own(layer, page);
                    let is_absent = before == Ok(Entry::ABSENT);
                    let is_at = self.base.state.holder(layer, page, *from);
                    let is_at = matches!(is_at, Ok(Some(_)));
                    self.uncertain += u64::from(!is_at && !is_absent);
                    let entry = match &part.kind {
                        PartKind::Moved {
                            codec, pages, crc, ..
                        } if place < *pages => {
                            let begin = payload.plus(u64::from(part.offset));
                            chunk(part, begin, *codec, *pages, *crc, place)
                        }
                        _ => Entry::LOST,
                    };
                    self.base.state.set(layer, page, entry);
                }
            }
            _ => self.apply_unknown(record, layer, part),
        }
    }

    /// Applies those pages of a part that the checkpoint does not have.
    fn apply_unknown(&mut self, record: &Counted, layer: LayerId, part: &Part) {
        if let PartKind::Chunk { codec, pages, crc } = part.kind {
            let begin = record.payload.plus(u64::from(part.offset));
            for number in 0..pages {
                let page = part.page + u64::from(number);
                if !self.is_known(record.number, layer, page) {
                    let entry = chunk(part, begin, codec, pages, crc, number);
                    self.base.state.set(layer, page, entry);
                }
            }
            return;
        }
        let mut rest = Some(part.clone());
        while let Some(part) = rest {
            let (is_known, pages) = self.known_span(record.number, layer, part.page);
            if !is_known {
                let first = first(&part, pages);
                self.base.state.apply(&[first], record.payload, []);
            }
            rest = behind(&part, pages);
        }
    }

    fn is_known(&self, number: u64, layer: LayerId, page: u64) -> bool {
        self.known_span(number, layer, page).0
    }

    /// Whether the checkpoint has what a record wrote to a page, and for how many pages that is the same.
    fn known_span(&self, number: u64, layer: LayerId, page: u64) -> (bool, u64) {
        match &self.base.kind {
            BaseKind::Catalog(known) if number <= self.base.state.applied => {
                known.span(self.part_of(layer), page)
            }
            BaseKind::Catalog(_) | BaseKind::Whole | BaseKind::Nothing => (false, u64::MAX),
        }
    }

    /// The pages of a part that is damaged are lost.
    fn lose(&mut self, part: &Part) {
        let pages = match &part.kind {
            PartKind::Raw { crcs } => long(crcs.len()),
            PartKind::Chunk { pages, .. } => u64::from(*pages),
            // The entry that names its origin stays, if it is still needed.
            PartKind::Moved { .. }
            | PartKind::Zero { .. }
            | PartKind::Lost { .. }
            | PartKind::Op { .. } => return,
        };
        let layer = self.base.state.catalog.current(part.layer);
        for page in 0..pages {
            self.base.state.set(layer, part.page + page, Entry::LOST);
        }
    }
}

/// Where the chunks and pages of a part begin.
pub fn begins(part: &Part, payload: Place) -> Vec<Place> {
    let begin = || payload.plus(u64::from(part.offset));
    match &part.kind {
        PartKind::Raw { crcs } => (0..long(crcs.len()))
            .map(|page| begin().plus(page * PAGE_BYTES))
            .collect(),
        PartKind::Chunk { .. } | PartKind::Moved { .. } => vec![begin()],
        PartKind::Zero { .. } | PartKind::Lost { .. } | PartKind::Op { .. } => Vec::new(),
    }
}

fn is_moved(part: &Part) -> bool {
    matches!(part.kind, PartKind::Moved { .. })
}

/// The first pages of a part. What is moved, or lost, counts page by page in any case.
fn first(part: &Part, pages: u64) -> Part {
    let mut first = part.clone();
    match &mut first.kind {
        PartKind::Raw { crcs } if pages < long(crcs.len()) => {
            crcs.truncate(usize::try_from(pages).unwrap_or(usize::MAX));
            first.length = u32::try_from(pages * PAGE_BYTES).unwrap_or(first.length);
        }
        PartKind::Zero { pages: all } => {
            *all = u32::try_from(pages).unwrap_or(u32::MAX).min(*all);
        }
        PartKind::Raw { .. }
        | PartKind::Chunk { .. }
        | PartKind::Moved { .. }
        | PartKind::Lost { .. }
        | PartKind::Op { .. } => {}
    }
    first
}

/// A part without its first pages. Nothing, if it ends there, or is none of pages that stand by themselves.
fn behind(part: &Part, pages: u64) -> Option<Part> {
    let mut rest = part.clone();
    rest.page = part.page.checked_add(pages)?;
    match &mut rest.kind {
        PartKind::Raw { crcs } => {
            let gone = usize::try_from(pages)
                .ok()
                .filter(|gone| *gone < crcs.len())?;
            crcs.drain(..gone);
            let bytes = u32::try_from(pages * PAGE_BYTES).ok()?;
            rest.offset += bytes;
            rest.length -= bytes;
        }
        PartKind::Zero { pages: left } => {
            let gone = u32::try_from(pages).ok().filter(|gone| gone < left)?;
            *left -= gone;
        }
        PartKind::Chunk { .. }
        | PartKind::Moved { .. }
        | PartKind::Lost { .. }
        | PartKind::Op { .. } => {
            return None;
        }
    }
    Some(rest)
}
