//! Reads both sides again and compares them.
//!
//! Where the source tells that it has a hole, the destination must read as zeros; where the
//! destination is a file of this machine and has a hole too, nothing is read. Everything else is
//! read on both sides, at the same time, and compared byte by byte.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longshore_reactor::buffer::Buffer;
use longshore_volume::{ExtentState, Operation, Reply, Volume};

use super::driver::{Driver, Finished};
use super::error::CopyError;
use super::job::Settings;
use super::monitor::{Monitor, Phase};
use super::plan::{Plan, Step};
use super::transfer::PATIENCE;
use super::trouble::trouble;
use super::zeros;
use crate::side::Side;

/// Longest sleep before signs of an interruption are looked for.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Places of a slot: what it reads at the source, and at the destination.
const PLACES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// Both sides are being read.
    Comparing,
    /// The destination is asked where it has holes.
    Asking,
    /// The destination is read, and has to be zeros.
    Zeros,
}

struct Slot {
    state: State,
    range: Range<u64>,
    /// Of `Zeros`: what is being read.
    part: Range<u64>,
    /// Of the source and of the destination.
    buffers: [Option<Buffer>; PLACES],
    reading: usize,
    failed: bool,
}

pub(super) struct Comparison<'a> {
    pub(super) source: &'a Side,
    pub(super) destination: &'a Side,
    pub(super) size: u64,
    /// Holes of the destination are believed.
    pub(super) trust_destination: bool,
    pub(super) settings: &'a Settings,
}

/// See the module documentation.
pub(super) struct Verification<'a> {
    task: Comparison<'a>,
    driver: Driver,
    plan: Plan,
    slots: Vec<Slot>,
    idle: Vec<usize>,
    /// Lowest offset of what differs or could not be read, and why.
    stop: Option<(u64, CopyError)>,
}

impl<'a> Verification<'a> {
    pub(super) fn new(task: Comparison<'a>) -> Result<Self, CopyError> {
        let settings = task.settings;
        let parallel = settings.parallel;
        let chunk = in_memory(settings.chunk);
        let block = |side: &Side| u64::from(side.volume.geometry().block_size);
        let alignment = block(task.source).max(block(task.destination));
        let telling = task.source.volume.characteristics().unmapped_reads_zeros;
        let slot = |_| Slot {
            state: State::Idle,
            range: 0..0,
            part: 0..0,
            buffers: [(); PLACES].map(|()| Some(Buffer::allocate(chunk))),
            reading: 0,
            failed: false,
        };
        Ok(Self {
            driver: Driver::new(settings.engine, PLACES * parallel + 1)?,
            plan: Plan::new(0..task.size, settings.chunk, alignment, telling),
            slots: (0..parallel).map(slot).collect(),
            idle: (0..parallel).rev().collect(),
            stop: None,
            task,
        })
    }

    fn extent_place(&self) -> usize {
        PLACES * self.slots.len()
    }

    /// Compares until the end, or the first difference. Nothing is under way when it returns.
    pub(super) fn run(mut self, monitor: &mut Monitor<'_>) -> Result<(), CopyError> {
        monitor.begin(Phase::Verifying, 0, self.task.size);
        loop {
            if let Some(signal) = monitor.interrupted()
                && self.stop.is_none()
            {
                self.stop = Some((0, CopyError::Interrupted { signal }));
                self.task.source.volume.hurry(PATIENCE);
                self.task.destination.volume.hurry(PATIENCE);
            }
            self.start_work();
            let mut timeout = TURN_MAX;
            while let Some(finished) = self.driver.finished() {
                self.advance(finished, monitor);
                timeout = Duration::ZERO;
            }
            let idle = self.idle.len() == self.slots.len() && self.driver.in_flight() == 0;
            if idle && (self.stop.is_some() || self.plan.is_finished()) {
                return self.stop.map_or(Ok(()), |(_, error)| Err(error));
            }
            let now = Instant::now();
            let (source, destination) = (self.task.source, self.task.destination);
            monitor.tick(now, || {
                trouble(source, destination, self.driver.waiting(now))
            });
            self.driver.wait(timeout).map_err(CopyError::Wait)?;
        }
    }

    fn start_work(&mut self) {
        if self.stop.is_some() {
            return;
        }
        self.ask_source();
        while let Some(number) = self.idle.last().copied() {
            let (range, state) = match self.plan.next() {
                // All of both sides is compared.
                Step::Data(range) | Step::Unchanged(range) => (range, State::Comparing),
                Step::Zeros(range) => (range, State::Zeros),
                Step::Wait | Step::Finished => return,
            };
            self.idle.pop();
            let slot = &mut self.slots[number];
            slot.state = state;
            slot.failed = false;
            slot.part = range.start..range.start;
            slot.range = range.clone();
            if state == State::Comparing {
                let source = self.task.source.volume.clone();
                let destination = self.task.destination.volume.clone();
                self.read(number, 0, &source, range.clone());
                self.read(number, 1, &destination, range);
            } else {
                self.look_at_zeros(number);
            }
            self.ask_source();
        }
    }

    fn ask_source(&mut self) {
        if let Some(range) = self.plan.question() {
            let place = self.extent_place();
            let operation = question(&self.task.source.volume, &range);
            self.driver
                .start(place, &self.task.source.volume, operation, None);
        }
    }

    /// Reads whole blocks of one side.
    fn read(&mut self, number: usize, side: usize, volume: &Arc<dyn Volume>, range: Range<u64>) {
        let geometry = volume.geometry();
        let extent = geometry.extent_around(&range);
        let length = in_memory(geometry.bytes(extent.blocks));
        let slot = &mut self.slots[number];
        slot.reading += 1;
        let buffer = slot.buffers[side].take().expect("it is not in use");
        let operation = Operation::Read { extent };
        let place = PLACES * number + side;
        self.driver
            .start(place, volume, operation, Some((buffer, 0..length)));
    }

    /// Goes on with a range of zeros behind `part`.
    fn look_at_zeros(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        let at = slot.part.end;
        if at == slot.range.end || slot.failed {
            return self.release(number);
        }
        let volume = self.task.destination.volume.clone();
        if self.task.trust_destination {
            slot.state = State::Asking;
            let operation = question(&volume, &(at..slot.range.end));
            self.driver
                .start(PLACES * number + 1, &volume, operation, None);
        } else {
            self.read_zeros(number, at, &volume);
        }
    }

    fn read_zeros(&mut self, number: usize, at: u64, volume: &Arc<dyn Volume>) {
        let slot = &mut self.slots[number];
        slot.state = State::Zeros;
        slot.part = at..slot.range.end.min(at + self.task.settings.chunk);
        let part = slot.part.clone();
        self.read(number, 1, volume, part);
    }

    fn advance(&mut self, finished: Finished, monitor: &mut Monitor<'_>) {
        if finished.place == self.extent_place() {
            return match finished.result {
                Ok(Reply::Extent { blocks, state }) if blocks.0 > 0 => {
                    let geometry = self.task.source.volume.geometry();
                    self.plan.answer(geometry.bytes(blocks), state);
                }
                _ => self.plan.no_answer(),
            };
        }
        let (number, side) = (finished.place / PLACES, finished.place % PLACES);
        match self.slots[number].state {
            State::Idle => unreachable!("an idle slot has nothing under way"),
            State::Asking => self.was_told(number, &finished, monitor),
            State::Comparing | State::Zeros => self.was_read(number, side, finished, monitor),
        }
    }

    fn was_told(&mut self, number: usize, finished: &Finished, monitor: &mut Monitor<'_>) {
        let slot = &mut self.slots[number];
        let at = slot.part.end;
        match finished.result {
            Ok(Reply::Extent { blocks, state }) if state != ExtentState::Mapped && blocks.0 > 0 => {
                let length = self.task.destination.volume.geometry().bytes(blocks);
                let end = at.saturating_add(length).min(slot.range.end);
                slot.part = at..end;
                monitor.count_zeros(end - at);
                self.look_at_zeros(number);
            }
            _ => {
                let volume = self.task.destination.volume.clone();
                self.read_zeros(number, at, &volume);
            }
        }
    }

    fn was_read(
        &mut self,
        number: usize,
        side: usize,
        finished: Finished,
        monitor: &mut Monitor<'_>,
    ) {
        let slot = &mut self.slots[number];
        slot.reading -= 1;
        slot.buffers[side] = finished.buffer;
        let range = match slot.state {
            State::Zeros => slot.part.clone(),
            _ => slot.range.clone(),
        };
        if let Err(source) = finished.result {
            slot.failed = true;
            let sides = [self.task.source, self.task.destination];
            let error = CopyError::Read {
                name: sides[side].name.clone(),
                start: range.start,
                end: range.end,
                source,
            };
            self.stop_at(range.start, error);
        }
        let slot = &mut self.slots[number];
        if slot.reading > 0 {
            return;
        }
        if !slot.failed {
            let length = in_memory(range.end - range.start);
            let [wanted, found] = slot
                .buffers
                .each_ref()
                .map(|buffer| &buffer.as_ref().expect("a read gives its buffer back")[..length]);
            let difference = if slot.state == State::Zeros {
                first_not_zero(found)
            } else {
                first_difference(wanted, found)
            };
            if let Some(at) = difference {
                slot.failed = true;
                let offset = range.start + in_volume(at);
                self.stop_at(offset, CopyError::Differs { offset });
            } else {
                monitor.count_data(range.end - range.start);
            }
        }
        // What lies before the lowest difference so far may differ too.
        let wanted = |before: u64| range.end < before;
        let go_on = self.stop.as_ref().is_none_or(|(before, _)| wanted(*before));
        if self.slots[number].state == State::Zeros && go_on {
            self.look_at_zeros(number);
        } else {
            self.release(number);
        }
    }

    fn release(&mut self, number: usize) {
        let chunk = in_memory(self.task.settings.chunk);
        let slot = &mut self.slots[number];
        slot.state = State::Idle;
        for buffer in &mut slot.buffers {
            buffer.get_or_insert_with(|| Buffer::allocate(chunk));
        }
        self.idle.push(number);
    }

    /// Has it stop. Of several reasons the one at the lowest offset counts.
    fn stop_at(&mut self, offset: u64, error: CopyError) {
        if self
            .stop
            .as_ref()
            .is_none_or(|(before, _)| offset < *before)
        {
            self.stop = Some((offset, error));
        }
    }
}

fn question(volume: &Arc<dyn Volume>, range: &Range<u64>) -> Operation {
    Operation::ExtentStatus {
        extent: volume.geometry().extent_around(range),
    }
}

/// Where two slices of one length differ first.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    if one == other {
        return None;
    }
    one.iter().zip(other).position(|(one, other)| one != other)
}

fn first_not_zero(bytes: &[u8]) -> Option<usize> {
    if zeros::is_zero(bytes) {
        return None;
    }
    bytes.iter().position(|byte| *byte != 0)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a chunk fits in memory")
}

fn in_volume(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("usize is at most 64 bits wide")
}
