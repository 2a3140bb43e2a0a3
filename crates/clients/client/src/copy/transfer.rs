//! The copy itself: chunks are read at the source and written at the destination, many at once.
//!
//! Each chunk has a slot, and a slot one buffer, in which its bytes arrive and from which they are
//! written:
//!
//! ```text
//! data ─► Reading ─┬─────────────────────► cut into runs ─► Writing (run after run) ─► done
//!                  └─► ReadingTail (rest of the last block of the destination) ─┘
//! zeros ─► known to be there: done
//!       └► Writing (zeros)  ─► done
//! ```
//!
//! A checkpoint runs beside the copy: everything before some offset is done ─► flush ─► the journal
//! says so. What is written after the flush began is not in it.
//!
//! A server that was away may have been switched off, and what stood in its write cache is gone then, without
//! any operation having failed. So when a connection was lost since the last flush, the next flush
//! proves nothing of what was written before: everything behind the last good one is copied again.

mod checkpoint;

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use longshore_reactor::buffer::Buffer;
use longshore_volume::{Operation, Reply, VolumeError};

use super::driver::{Driver, Finished};
use super::error::CopyError;
use super::job::{Changes, Settings};
use super::journal::{JournalIoError, Record, Reserved};
use super::monitor::{Monitor, Phase};
use super::pace::Pace;
use super::plan::{Plan, Step};
use super::trouble::trouble;
use super::zeros::{self, Run};
use crate::side::Side;

/// Longest sleep: signals and clocks are looked at so often.
const TURN_MAX: Duration = Duration::from_millis(100);

/// How long operations may still wait for a server that is away once the copy is to stop.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What a transfer is about.
pub(super) struct Assignment<'a> {
    pub(super) source: &'a Side,
    pub(super) destination: &'a Side,
    /// Bytes to copy; the destination has as many.
    pub(super) size: u64,
    /// Everything before was copied by an earlier run.
    pub(super) start: u64,
    /// The destination reads as zeros wherever nothing was written.
    pub(super) zeros_known: bool,
    /// The destination holds all else already.
    pub(super) changes: Option<&'a Changes>,
    /// The journal, and its record now.
    pub(super) journal: Option<(Arc<Reserved>, Record)>,
    pub(super) settings: &'a Settings,
}

/// How far a transfer came.
#[derive(Debug)]
pub(super) struct Transferred {
    /// Everything before is at the destination, for good.
    pub(super) done: u64,
    /// The same according to the journal.
    pub(super) recorded: Option<u64>,
    pub(super) result: Result<(), CopyError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Reading,
    ReadingTail,
    Writing,
}

struct Slot {
    state: State,
    /// What it copies, in bytes of the volumes.
    range: Range<u64>,
    buffer: Option<Buffer>,
    /// What is to be written of the range.
    runs: Vec<Run>,
    /// The one under way.
    run: usize,
    /// How much of a run of zeros was written as data.
    run_done: usize,
    /// The buffer was filled with zeros.
    blank: bool,
}

enum Checkpoint {
    Resting {
        since: Instant,
    },
    Flushing {
        done: u64,
    },
    Storing {
        done: u64,
        thread: JoinHandle<Result<(), JournalIoError>>,
    },
}

/// See the module documentation.
pub(super) struct Transfer<'a> {
    task: Assignment<'a>,
    driver: Driver,
    plan: Plan,
    pace: Pace,
    slots: Vec<Slot>,
    idle: Vec<usize>,
    /// The destination refused to write zeros that are not sent.
    zeroes_unsupported: bool,
    checkpoint: Checkpoint,
    /// Everything before is at the destination for good.
    flushed: u64,
    /// Connections of the destination that were lost before that.
    losses: u64,
    /// What is behind `flushed` is to be copied again, once nothing is under way.
    rewinding: bool,
    /// Flushes since `flushed` that proved nothing.
    repeats: u32,
    /// What the journal says.
    recorded: Option<u64>,
    journal_broken: bool,
    stop: Option<CopyError>,
    /// Lowest offset of what failed.
    failed_at: u64,
}

impl<'a> Transfer<'a> {
    pub(super) fn new(task: Assignment<'a>) -> Result<Self, CopyError> {
        let settings = task.settings;
        let parallel = settings.parallel;
        let slot = |_| Slot {
            state: State::Idle,
            range: 0..0,
            buffer: Some(Buffer::allocate(in_memory(settings.chunk))),
            runs: Vec::new(),
            run: 0,
            run_done: 0,
            blank: false,
        };
        let now = Instant::now();
        Ok(Self {
            driver: Driver::new(settings.engine, parallel + 2)?,
            plan: plan(&task, task.start),
            pace: Pace::new(settings.rate, settings.chunk, now),
            slots: (0..parallel).map(slot).collect(),
            idle: (0..parallel).rev().collect(),
            zeroes_unsupported: false,
            checkpoint: Checkpoint::Resting { since: now },
            flushed: task.start,
            losses: task.destination.losses(),
            rewinding: false,
            repeats: 0,
            recorded: task.journal.as_ref().map(|(_, record)| record.done),
            journal_broken: false,
            stop: None,
            failed_at: u64::MAX,
            task,
        })
    }

    fn extent_place(&self) -> usize {
        self.slots.len()
    }

    fn flush_place(&self) -> usize {
        self.slots.len() + 1
    }

    /// Copies until the end, a failure or an interruption. Nothing is under way when it returns.
    pub(super) fn run(mut self, monitor: &mut Monitor<'_>) -> Transferred {
        monitor.begin(Phase::Copying, self.task.start, self.task.size);
        loop {
            if let Err(error) = self.pump(monitor) {
                self.fail(0, error);
            }
            self.end_checkpoint(monitor);
            self.flush_all(monitor);
            if !self.rewinding || self.stop.is_some() {
                break;
            }
        }
        self.end(monitor)
    }

    fn pump(&mut self, monitor: &mut Monitor<'_>) -> Result<(), CopyError> {
        loop {
            let now = Instant::now();
            self.heed(monitor);
            let pause = self.start_work(now, monitor);
            self.drive_checkpoint(now, monitor);
            let mut timeout = pause.min(TURN_MAX);
            while let Some(finished) = self.driver.finished() {
                self.advance(finished, monitor);
                // There are idle slots now.
                timeout = Duration::ZERO;
            }
            let idle = self.idle.len() == self.slots.len() && self.driver.in_flight() == 0;
            if self.rewinding && idle && self.stop.is_none() {
                self.rewind(monitor);
                continue;
            }
            let over = self.stop.is_some() || self.plan.is_finished();
            if idle && over {
                return Ok(());
            }
            self.tick(now, monitor);
            self.driver.wait(timeout).map_err(CopyError::Wait)?;
        }
    }

    /// Stops the copy after an interruption.
    fn heed(&mut self, monitor: &Monitor<'_>) {
        if let Some(signal) = monitor.interrupted()
            && self.stop.is_none()
        {
            self.stop = Some(CopyError::Interrupted { signal });
            // An interrupted copy does not wait for a server that is away.
            self.task.source.volume.hurry(PATIENCE);
            self.task.destination.volume.hurry(PATIENCE);
        }
    }

    /// Reports progress, and what delays it.
    fn tick(&self, now: Instant, monitor: &mut Monitor<'_>) {
        let (source, destination) = (self.task.source, self.task.destination);
        monitor.tick(now, || {
            trouble(source, destination, self.driver.waiting(now))
        });
    }

    /// Gives idle slots something to do. Returns how long the pace has it wait for the next.
    fn start_work(&mut self, now: Instant, monitor: &mut Monitor<'_>) -> Duration {
        if self.stop.is_some() || self.rewinding {
            return TURN_MAX;
        }
        self.ask();
        while let Some(slot) = self.idle.last().copied() {
            if let Some(pause) = self.pace.pause(now) {
                return pause;
            }
            match self.plan.next() {
                Step::Data(range) => {
                    self.pace.spend(range.end - range.start);
                    self.idle.pop();
                    self.read(slot, range);
                }
                Step::Zeros(range) if self.task.zeros_known => {
                    monitor.count_zeros(range.end - range.start);
                }
                Step::Zeros(range) => {
                    self.idle.pop();
                    self.write_zeros(slot, range);
                }
                Step::Unchanged(range) => monitor.count_unchanged(range.end - range.start),
                Step::Wait | Step::Finished => break,
            }
            self.ask();
        }
        TURN_MAX
    }

    fn ask(&mut self) {
        if let Some(range) = self.plan.question() {
            let operation = Operation::ExtentStatus {
                extent: self.task.source.volume.geometry().extent_around(&range),
            };
            let place = self.extent_place();
            self.driver
                .start(place, &self.task.source.volume, operation, None);
        }
    }

    fn read(&mut self, number: usize, range: Range<u64>) {
        let slot = &mut self.slots[number];
        let length = in_memory(range.end - range.start);
        slot.state = State::Reading;
        slot.range = range;
        slot.blank = false;
        let buffer = slot.buffer.take().expect("an idle slot has its buffer");
        let operation = Operation::Read {
            extent: self.task.source.volume.geometry().extent(&slot.range),
        };
        let payload = Some((buffer, 0..length));
        self.driver
            .start(number, &self.task.source.volume, operation, payload);
    }

    fn write_zeros(&mut self, number: usize, range: Range<u64>) {
        let slot = &mut self.slots[number];
        slot.runs.clear();
        slot.runs.push(Run {
            range: 0..in_memory(range.end - range.start),
            zeros: true,
        });
        slot.range = range;
        (slot.run, slot.run_done) = (0, 0);
        self.write_run(number);
    }

    /// A request is over.
    fn advance(&mut self, finished: Finished, monitor: &mut Monitor<'_>) {
        let number = finished.place;
        if number == self.extent_place() {
            return match finished.result {
                Ok(Reply::Extent { blocks, state }) if blocks.0 > 0 => {
                    let geometry = self.task.source.volume.geometry();
                    self.plan.answer(geometry.bytes(blocks), state);
                }
                // If the source cannot be reached, reading will say so better.
                _ => self.plan.no_answer(),
            };
        }
        if number == self.flush_place() {
            return self.flushed(finished.result);
        }
        match self.slots[number].state {
            State::Idle => unreachable!("an idle slot has nothing under way"),
            State::Reading => self.was_read(number, finished, monitor),
            State::ReadingTail => self.tail_was_read(number, finished, monitor),
            State::Writing => self.was_written(number, finished, monitor),
        }
    }

    fn was_read(&mut self, number: usize, finished: Finished, monitor: &mut Monitor<'_>) {
        let slot = &mut self.slots[number];
        slot.buffer = finished.buffer;
        let range = slot.range.clone();
        if let Err(source) = finished.result {
            return self.slot_failed(number, |names| CopyError::Read {
                name: names.source.name.clone(),
                start: range.start,
                end: range.end,
                source,
            });
        }
        if self.tail_length(&range) > 0 {
            self.read_tail(number);
        } else {
            self.cut(number, monitor);
        }
    }

    /// Bytes that are missing at the end of the range to whole blocks of the destination.
    fn tail_length(&self, range: &Range<u64>) -> u64 {
        let block = u64::from(self.task.destination.volume.geometry().block_size);
        range.end.next_multiple_of(block) - range.end
    }

    /// The source ends within a block of the destination: what is behind stays as it is.
    fn read_tail(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.state = State::ReadingTail;
        let geometry = self.task.destination.volume.geometry();
        let length = in_memory(u64::from(geometry.block_size));
        let last = slot.range.end - 1;
        let operation = Operation::Read {
            extent: geometry.extent_around(&(last..slot.range.end)),
        };
        let payload = Some((Buffer::allocate(length), 0..length));
        self.driver
            .start(number, &self.task.destination.volume, operation, payload);
    }

    fn tail_was_read(&mut self, number: usize, finished: Finished, monitor: &mut Monitor<'_>) {
        let range = self.slots[number].range.clone();
        if let Err(source) = finished.result {
            return self.slot_failed(number, |names| CopyError::Read {
                name: names.destination.name.clone(),
                start: range.end,
                end: range.end,
                source,
            });
        }
        let tail = finished.buffer.expect("a read gives its buffer back");
        let missing = in_memory(self.tail_length(&range));
        let length = in_memory(range.end - range.start);
        let buffer = self.slots[number].buffer.as_mut();
        let buffer = buffer.expect("the slot kept its buffer");
        buffer[length..length + missing].copy_from_slice(&tail[tail.len() - missing..]);
        self.cut(number, monitor);
    }

    fn cut(&mut self, number: usize, monitor: &mut Monitor<'_>) {
        let padding = in_memory(self.tail_length(&self.slots[number].range));
        let thick = self.task.settings.thick;
        let slot = &mut self.slots[number];
        let length = in_memory(slot.range.end - slot.range.start) + padding;
        (slot.run, slot.run_done) = (0, 0);
        if thick {
            slot.runs.clear();
            slot.runs.push(Run {
                range: 0..length,
                zeros: false,
            });
        } else {
            let buffer = slot.buffer.as_ref().expect("its bytes are there");
            zeros::cut(&buffer[..length], &mut slot.runs);
        }
        self.next_run(number, monitor);
    }

    /// Writes the next run, or ends the slot's work.
    fn next_run(&mut self, number: usize, monitor: &mut Monitor<'_>) {
        loop {
            let slot = &mut self.slots[number];
            let Some(run) = slot.runs.get(slot.run) else {
                return self.release(number);
            };
            if !(run.zeros && self.task.zeros_known) {
                return self.write_run(number);
            }
            monitor.count_zeros(part_of(&slot.range, &run.range));
            slot.run += 1;
        }
    }

    fn write_run(&mut self, number: usize) {
        let zeroes_unsupported = self.zeroes_unsupported;
        let slot = &mut self.slots[number];
        slot.state = State::Writing;
        let run = &slot.runs[slot.run];
        let start = run.range.start + slot.run_done;
        let geometry = self.task.destination.volume.geometry();
        let in_chunk = slot.range.start;
        let extent = |bytes: &Range<usize>| {
            geometry.extent(&(in_chunk + in_volume(bytes.start)..in_chunk + in_volume(bytes.end)))
        };
        let fua = false;
        let whole = start..run.range.end;
        let (operation, payload) = if !run.zeros {
            let buffer = slot.buffer.take().expect("its bytes are there");
            let extent = extent(&whole);
            (Operation::Write { extent, fua }, Some((buffer, whole)))
        } else if zeroes_unsupported {
            let mut buffer = slot.buffer.take().expect("the slot has its buffer");
            // Within a chunk that was read, the bytes of the run are the zeros that were found.
            if !slot.blank && slot.runs.len() == 1 {
                buffer.fill(0);
                slot.blank = true;
            }
            let (written, place) = if slot.runs.len() == 1 {
                // All zeros, and perhaps more than the buffer holds: from its beginning, in pieces.
                let length = buffer.len().min(whole.len());
                (start..start + length, 0..length)
            } else {
                (whole.clone(), whole)
            };
            let extent = extent(&written);
            (Operation::Write { extent, fua }, Some((buffer, place)))
        } else {
            let zeroes = Operation::WriteZeroes {
                extent: extent(&whole),
                may_unmap: true,
                fua,
            };
            (zeroes, None)
        };
        self.driver
            .start(number, &self.task.destination.volume, operation, payload);
    }

    fn was_written(&mut self, number: usize, finished: Finished, monitor: &mut Monitor<'_>) {
        let slot = &mut self.slots[number];
        let sent_as_data = finished.buffer.is_some();
        if let Some(buffer) = finished.buffer {
            slot.buffer = Some(buffer);
        }
        let run = slot.runs[slot.run].clone();
        match finished.result {
            Ok(_) => {}
            Err(VolumeError::Unsupported) if run.zeros && !sent_as_data => {
                self.zeroes_unsupported = true;
                return self.write_run(number);
            }
            Err(source) => {
                let at = slot.range.start;
                let (start, end) = (
                    at + in_volume(run.range.start),
                    at + in_volume(run.range.end),
                );
                return self.slot_failed(number, |names| CopyError::Write {
                    name: names.destination.name.clone(),
                    start,
                    end,
                    source,
                });
            }
        }
        if run.zeros && sent_as_data && slot.runs.len() == 1 {
            let room = slot.buffer.as_ref().map_or(0, |buffer| buffer.len());
            slot.run_done += room.min(run.range.len() - slot.run_done);
            if slot.run_done < run.range.len() {
                return self.write_run(number);
            }
        }
        let length = part_of(&slot.range, &run.range);
        (slot.run, slot.run_done) = (slot.run + 1, 0);
        if run.zeros {
            monitor.count_zeros(length);
        } else {
            monitor.count_data(length);
        }
        self.next_run(number, monitor);
    }

    fn release(&mut self, number: usize) {
        self.slots[number].state = State::Idle;
        self.idle.push(number);
    }

    fn slot_failed(&mut self, number: usize, error: impl FnOnce(&Assignment<'a>) -> CopyError) {
        let error = error(&self.task);
        self.fail(self.slots[number].range.start, error);
        let chunk = in_memory(self.task.settings.chunk);
        self.slots[number]
            .buffer
            .get_or_insert_with(|| Buffer::allocate(chunk));
        self.release(number);
    }

    /// Has the copy stop. What is at and behind `offset` does not count as done.
    fn fail(&mut self, offset: u64, error: CopyError) {
        // Of several the one at the lowest offset is the one to look at. What fails after an
        // interruption is not done, and that is all there is to say of it.
        let wanted = match &self.stop {
            None => true,
            Some(stop) => stop.is_failure() && offset < self.failed_at,
        };
        if wanted {
            self.stop = Some(error);
        }
        self.failed_at = self.failed_at.min(offset);
    }

    /// Everything before is at the destination.
    fn done(&self) -> u64 {
        self.slots
            .iter()
            .filter(|slot| slot.state != State::Idle)
            .map(|slot| slot.range.start)
            .fold(self.plan.position().min(self.failed_at), u64::min)
    }
}

/// What is to be copied from `start` on.
fn plan(task: &Assignment<'_>, start: u64) -> Plan {
    let block = |side: &Side| u64::from(side.volume.geometry().block_size);
    let alignment = block(task.source).max(block(task.destination));
    let telling = task.source.volume.characteristics().unmapped_reads_zeros;
    let telling = telling && !task.settings.thick;
    let only = task.changes.map(|changes| &*changes.ranges);
    Plan::new(start..task.size, task.settings.chunk, alignment, telling).restricted_to(only)
}

/// Bytes of a run that count: not what stands behind the end of the source in its last block.
fn part_of(range: &Range<u64>, run: &Range<usize>) -> u64 {
    let length = range.end - range.start;
    in_volume(run.end).min(length) - in_volume(run.start).min(length)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a chunk, or a piece of zeros, fits in memory")
}

fn in_volume(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize is at most 64 bits wide")
}
