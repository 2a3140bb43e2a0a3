//! What each sector of a unit may hold, from what initiators and hosts sent and what was acknowledged.
//!
//! A write happens at some moment between its command and its answer. Of two writes whose times do
//! not overlap the order is known; of others it is not, and either may win. From that follows which
//! data a read may return (per sector, as for a register; Herlihy and Wing call it linearizability),
//! and which a medium may hold after a power cut:
//!
//! ```text
//!   A |----|                 R may return B, C or D, but not A: B is wholly after A
//!       B   |---|            and acknowledged before R begins.
//!         C   |------------  C was never answered; its session ended.
//!                R |---|     After a power cut the medium may hold A to D, unless B was FUA or
//!                 D |--|     flushed: then not A.
//! ```
//!
//! A read that returns a sector of one write in full tightens what is known: the write has landed, and
//! if no other write was under way, it is the last one. A successful COMPARE AND WRITE orders other
//! writes even more: what it did not see came after it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::Violation;
use crate::stamp::{Pattern, SECTOR, Stamp, WriteId, stamps};

/// A moment. Each event of a run has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(u64);

/// A row of COMPARE AND WRITE, each of which found what the one before had written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    /// The write the first of them found.
    root: WriteId,
    place: u32,
    /// When the root could no longer land. Writes that began later come after the whole chain.
    floor: Option<Tick>,
}

/// A write to one sector.
#[derive(Clone, Debug)]
struct Record {
    id: WriteId,
    stamp: Stamp,
    start: Tick,
    /// It cannot land after this moment. `None`: it still can.
    last: Option<Tick>,
    /// It had landed at this moment. `None`: perhaps it never did.
    by: Option<Tick>,
    /// It, or what came after it, is on the medium.
    durable: bool,
    /// Readers cannot see it since then.
    hidden: Option<Tick>,
    chain: Option<Chain>,
    /// The COMPARE AND WRITE that found it.
    winner: Option<WriteId>,
}

impl Record {
    /// Whether it certainly came after `other`.
    fn is_after(&self, other: &Self) -> bool {
        if let (Some(own), Some(its)) = (self.chain, other.chain)
            && own.root == its.root
        {
            return own.place > its.place;
        }
        let floor = other.chain.and_then(|chain| chain.floor);
        let last = [other.last, floor].into_iter().flatten().min();
        last.is_some_and(|last| last < self.start)
    }

    fn lands_no_later_than(&mut self, tick: Tick) {
        self.last = Some(self.last.map_or(tick, |last| last.min(tick)));
    }

    fn has_landed_by(&mut self, tick: Tick) {
        self.lands_no_later_than(tick);
        self.by = Some(self.by.map_or(tick, |by| by.min(tick)));
    }
}

/// The history of one unit. See the module documentation.
#[derive(Debug)]
pub struct History {
    unit: usize,
    now: Tick,
    sectors: Vec<Vec<Record>>,
    /// Where the writes went that may still be of interest.
    writes: BTreeMap<WriteId, Range<u64>>,
    /// Reads and compares under way.
    reads: BTreeSet<Tick>,
}

/// What was done under a [`Tick`] that has an answer to come.
pub type Started = Tick;

impl History {
    /// Of a fresh medium, all zeros.
    #[must_use]
    pub fn new(unit: usize, sectors: usize) -> Self {
        let zeros = Record {
            id: WriteId::ZEROS,
            stamp: Stamp::ZEROS,
            start: Tick(0),
            last: Some(Tick(0)),
            by: Some(Tick(0)),
            durable: true,
            hidden: None,
            chain: None,
            winner: None,
        };
        Self {
            unit,
            now: Tick(0),
            sectors: vec![vec![zeros]; sectors],
            writes: BTreeMap::new(),
            reads: BTreeSet::new(),
        }
    }

    fn tick(&mut self) -> Tick {
        self.now.0 += 1;
        self.now
    }

    fn records(&mut self, range: Range<u64>) -> impl Iterator<Item = (u64, &mut Vec<Record>)> {
        let bounds = crate::random::to_usize(range.start)..crate::random::to_usize(range.end);
        range.zip(&mut self.sectors[bounds])
    }

    /// Does something to the records of a write.
    fn each(&mut self, id: WriteId, mut act: impl FnMut(&mut Record)) {
        let Some(range) = self.writes.get(&id).cloned() else {
            return;
        };
        for (_, records) in self.records(range) {
            records
                .iter_mut()
                .filter(|record| record.id == id)
                .for_each(&mut act);
        }
    }

    /// A write command is being sent.
    pub fn begin_write(&mut self, id: WriteId, range: Range<u64>, pattern: Pattern) {
        self.begin(id, range, |sector| pattern.stamp(id, sector));
    }

    /// A copy to `first` and behind it is being sent, of sectors that hold these stamps, and will until
    /// it is over.
    pub fn begin_copy(&mut self, id: WriteId, first: u64, stamps: &[Stamp]) {
        let range = first..first + stamps.len() as u64;
        self.begin(id, range, |sector| {
            stamps[crate::random::to_usize(sector - first)]
        });
    }

    fn begin(&mut self, id: WriteId, range: Range<u64>, stamp: impl Fn(u64) -> Stamp) {
        let start = self.tick();
        self.writes.insert(id, range.clone());
        for (sector, records) in self.records(range) {
            records.push(Record {
                id,
                stamp: stamp(sector),
                start,
                last: None,
                by: None,
                durable: false,
                hidden: None,
                chain: None,
                winner: None,
            });
        }
    }

    /// Where it goes, if that is still of interest.
    #[must_use]
    pub fn place_of(&self, id: WriteId) -> Option<Range<u64>> {
        self.writes.get(&id).cloned()
    }

    /// Notes that the write was acknowledged, perhaps as durable.
    pub fn write_done(&mut self, id: WriteId, durable: bool) {
        let now = self.tick();
        self.each(id, |record| {
            record.has_landed_by(now);
            record.durable |= durable;
        });
        self.prune(id);
    }

    /// It failed or was aborted: perhaps it landed, perhaps in part, but it will not land any more.
    pub fn write_over(&mut self, id: WriteId) {
        let now = self.tick();
        self.each(id, |record| record.lands_no_later_than(now));
    }

    /// It was refused before it began.
    pub fn write_refused(&mut self, id: WriteId) {
        let Some(range) = self.writes.remove(&id) else {
            return;
        };
        for (_, records) in self.records(range) {
            records.retain(|record| record.id != id);
        }
    }

    /// A read or compare is being sent, or a flush.
    pub fn begin_read(&mut self) -> Started {
        let start = self.tick();
        self.reads.insert(start);
        start
    }

    /// Nothing will be learnt from it.
    pub fn read_over(&mut self, start: Started) {
        self.reads.remove(&start);
    }

    /// It returned this data.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn read_done(&mut self, start: Started, first: u64, bytes: &[u8]) -> Result<(), Violation> {
        let end = self.tick();
        self.reads.remove(&start);
        let unit = self.unit;
        let count = (bytes.len() / SECTOR) as u64;
        for ((sector, records), content) in
            self.records(first..first + count).zip(bytes.chunks(SECTOR))
        {
            let found = stamps(content);
            for stamp in &found {
                let legal = |record: &&Record| is_legal(records, record, start, end);
                if !records
                    .iter()
                    .filter(legal)
                    .any(|record| record.stamp == *stamp)
                {
                    let allowed = records.iter().filter(legal).map(|record| record.id);
                    return Err(Violation::Read {
                        unit,
                        sector,
                        found: *stamp,
                        allowed: allowed.collect(),
                    });
                }
            }
            if let [stamp] = found[..] {
                learn(records, stamp, start, end);
            }
        }
        Ok(())
    }

    /// A flush that began at `start` was acknowledged.
    pub fn flush_done(&mut self, start: Started) {
        self.tick();
        self.reads.remove(&start);
        let oldest = self.oldest_read();
        for records in &mut self.sectors {
            for record in records.iter_mut() {
                record.durable |= record.by.is_some_and(|by| by < start);
            }
            let over = |since| since < start && since < oldest;
            records.retain(|record| !record.hidden.is_some_and(over));
            prune(records, oldest);
        }
        self.forget_writes();
    }

    /// What a compare can expect to find, when it is to have a chance: what was acknowledged last.
    #[must_use]
    pub fn likely(&self, sector: u64) -> Stamp {
        let records = &self.sectors[crate::random::to_usize(sector)];
        let visible = records.iter().filter(|record| record.hidden.is_none());
        visible
            .max_by_key(|record| (record.by, record.start))
            .map_or(Stamp::ZEROS, |record| record.stamp)
    }

    /// What a read from now on returns, if that is certain.
    #[must_use]
    pub fn certain(&self, sector: u64) -> Option<Stamp> {
        let records = &self.sectors[crate::random::to_usize(sector)];
        let (start, end) = (Tick(self.now.0 + 1), Tick(self.now.0 + 2));
        let mut possible = records
            .iter()
            .filter(|record| is_legal(records, record, start, end));
        let first = possible.next()?;
        let settled = first.last.is_some() && possible.next().is_none();
        settled.then_some(first.stamp)
    }

    /// A compare that began at `start` found nothing else than `expected` from sector `first` on.
    ///
    /// # Errors
    /// When it cannot have found that.
    pub fn compare_matched(
        &mut self,
        start: Started,
        first: u64,
        expected: &[Stamp],
    ) -> Result<(), Violation> {
        let mut bytes = vec![0; expected.len() * SECTOR];
        for (part, stamp) in bytes.chunks_mut(SECTOR).zip(expected) {
            stamp.fill(part);
        }
        self.read_done(start, first, &bytes)
    }

    /// A compare that began at `start` found something else than `expected` from sector `first` on.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn compare_differed(
        &mut self,
        start: Started,
        first: u64,
        expected: &[Stamp],
    ) -> Result<(), Violation> {
        let end = self.tick();
        self.reads.remove(&start);
        self.look_for_difference(start, end, first, expected, None)
    }

    fn look_for_difference(
        &mut self,
        start: Started,
        end: Tick,
        first: u64,
        expected: &[Stamp],
        except: Option<WriteId>,
    ) -> Result<(), Violation> {
        let unit = self.unit;
        let range = first..first + expected.len() as u64;
        let different = self
            .records(range)
            .zip(expected)
            .any(|((_, records), expected)| {
                records.iter().any(|record| {
                    Some(record.id) != except
                        && record.stamp != *expected
                        && is_legal(records, record, start, end)
                })
            });
        if different {
            Ok(())
        } else {
            Err(Violation::FalseMiscompare {
                unit,
                sector: first,
            })
        }
    }

    /// COMPARE AND WRITE `id`, begun at `start`, found `expected` and wrote.
    ///
    /// # Errors
    /// When it cannot have found that.
    pub fn compare_won(
        &mut self,
        id: WriteId,
        start: Started,
        expected: &[Stamp],
        durable: bool,
    ) -> Result<(), Violation> {
        let now = self.tick();
        self.reads.remove(&start);
        let unit = self.unit;
        let range = self.writes[&id].clone();
        for ((sector, records), expected) in self.records(range).zip(expected) {
            let visible = |record: &Record| {
                record.id != id
                    && record.stamp == *expected
                    && is_legal(records, record, start, now)
            };
            let Some(index) = records.iter().position(visible) else {
                return Err(Violation::ComparedStale {
                    unit,
                    sector,
                    expected: *expected,
                });
            };
            if *expected == Stamp::ZEROS {
                continue;
            }
            let found = &mut records[index];
            if let Some(first) = found.winner.replace(id) {
                return Err(Violation::TwoWinners {
                    unit,
                    sector,
                    first,
                    second: id,
                });
            }
            found.has_landed_by(now);
            let chain = *found.chain.get_or_insert(Chain {
                root: found.id,
                place: 0,
                floor: found.last,
            });
            let written = records.iter_mut().find(|record| record.id == id);
            if let Some(written) = written {
                written.chain = Some(Chain {
                    place: chain.place + 1,
                    ..chain
                });
            }
        }
        self.write_done(id, durable);
        Ok(())
    }

    /// COMPARE AND WRITE `id`, begun at `start`, found something else than `expected`.
    ///
    /// # Errors
    /// When it cannot have.
    pub fn compare_lost(
        &mut self,
        id: WriteId,
        start: Started,
        expected: &[Stamp],
    ) -> Result<(), Violation> {
        let now = self.tick();
        self.reads.remove(&start);
        let first = self.writes[&id].start;
        self.look_for_difference(start, now, first, expected, Some(id))?;
        self.write_refused(id);
        Ok(())
    }

    /// The power was cut, and this is what the medium holds.
    ///
    /// # Errors
    /// When something is lost that must not be.
    pub fn power_cut(&mut self, image: &[u8]) -> Result<(), Violation> {
        let now = self.tick();
        let unit = self.unit;
        self.reads.clear();
        for ((records, content), sector) in
            self.sectors.iter_mut().zip(image.chunks(SECTOR)).zip(0..)
        {
            let found = stamps(content);
            for stamp in &found {
                let may_remain = |record: &&Record| {
                    !records
                        .iter()
                        .any(|other| other.durable && other.is_after(record))
                };
                if !records
                    .iter()
                    .filter(may_remain)
                    .any(|record| record.stamp == *stamp)
                {
                    let allowed = records.iter().filter(may_remain).map(|record| record.id);
                    return Err(Violation::Lost {
                        unit,
                        sector,
                        found: *stamp,
                        allowed: allowed.collect(),
                    });
                }
            }
            records.retain(|record| found.contains(&record.stamp));
            // Several zeros are one.
            let mut kept: Vec<Stamp> = Vec::new();
            records.retain(|record| {
                let is_new = !kept.contains(&record.stamp);
                kept.push(record.stamp);
                is_new
            });
            let whole = records.len() == 1;
            for record in records {
                record.last = Some(now);
                record.by = whole.then_some(now);
                record.durable = whole;
                record.hidden = None;
                record.chain = None;
                // What it wrote may be gone, and this be what there is again.
                record.winner = None;
            }
        }
        self.forget_writes();
        Ok(())
    }

    /// The server process was killed; the operating system and its cache live on, and this is what
    /// readers would see.
    ///
    /// # Errors
    /// When they would see what they cannot.
    pub fn process_killed(&mut self, image: &[u8]) -> Result<(), Violation> {
        let now = self.tick();
        let end = self.tick();
        let unit = self.unit;
        self.reads.clear();
        for ((records, content), sector) in
            self.sectors.iter_mut().zip(image.chunks(SECTOR)).zip(0..)
        {
            let found = stamps(content);
            for stamp in &found {
                let legal = |record: &&Record| is_legal(records, record, now, end);
                if !records
                    .iter()
                    .filter(legal)
                    .any(|record| record.stamp == *stamp)
                {
                    let allowed = records.iter().filter(legal).map(|record| record.id);
                    return Err(Violation::Survived {
                        unit,
                        sector,
                        found: *stamp,
                        allowed: allowed.collect(),
                    });
                }
            }
            for record in records.iter_mut() {
                record.lands_no_later_than(end);
                if !found.contains(&record.stamp) {
                    record.hidden.get_or_insert(end);
                }
            }
        }
        Ok(())
    }

    fn oldest_read(&self) -> Tick {
        self.reads.first().copied().unwrap_or(self.now)
    }

    fn prune(&mut self, id: WriteId) {
        let oldest = self.oldest_read();
        let Some(range) = self.writes.get(&id).cloned() else {
            return;
        };
        for (_, records) in self.records(range) {
            prune(records, oldest);
        }
    }

    fn forget_writes(&mut self) {
        let sectors = &self.sectors;
        self.writes.retain(|id, range| {
            let bounds = crate::random::to_usize(range.start)..crate::random::to_usize(range.end);
            sectors[bounds]
                .iter()
                .flatten()
                .any(|record| record.id == *id)
        });
    }
}

/// Whether a read from `start` to `end` may return that record.
fn is_legal(records: &[Record], record: &Record, start: Tick, end: Tick) -> bool {
    record.start < end
        && record.hidden.is_none_or(|since| since >= start)
        && !records
            .iter()
            .any(|other| other.by.is_some_and(|by| by < start) && other.is_after(record))
}

/// A read from `start` to `end` saw the whole sector from one write.
fn learn(records: &mut [Record], stamp: Stamp, start: Tick, end: Tick) {
    if stamp == Stamp::ZEROS {
        // Zeros do not tell whose they are.
        return;
    }
    if records.iter().filter(|r| r.stamp == stamp).count() > 1 {
        // Nor do stamps that were copied here again.
        return;
    }
    let alone = records
        .iter()
        .all(|record| record.stamp == stamp || record.last.is_some_and(|last| last < start));
    for record in records {
        if record.stamp == stamp {
            record.has_landed_by(end);
        } else if alone {
            record.hidden.get_or_insert(end);
        }
    }
}

/// Forgets what neither a reader nor a medium can hold any more.
fn prune(records: &mut Vec<Record>, oldest_read: Tick) {
    if records.len() < 2 {
        return;
    }
    let over: Vec<WriteId> = records
        .iter()
        .filter(|record| {
            records.iter().any(|other| {
                other.durable
                    && other.by.is_some_and(|by| by < oldest_read)
                    && other.is_after(record)
            })
        })
        .map(|record| record.id)
        .collect();
    records.retain(|record| !over.contains(&record.id));
}

#[cfg(test)]
mod tests;
