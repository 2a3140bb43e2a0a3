//! One thread that makes load: it owns its queues and keeps its streams going.
//!
//! A turn submits for all streams that have something to do, sends with one call a queue, waits
//! until something has come, and takes all of it in. The clock is read once a turn, when the answers
//! are there. So latency runs from the turn in which an operation was submitted to the turn in
//! which its answer was taken in: what this program takes to build and to take apart a batch is in it,
//! as it would be in an application's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longshore_block::extent::Extent;
use longshore_initiator::error::{Failure, Lost};
use longshore_initiator::operation::{Completion, Data, Operation};
use longshore_reactor::Buffer;

use crate::cpu;
use crate::queue::{LoadQueue, Refused};
use crate::stream::{Slot, Stream};
use crate::tally::{Errors, JobSum, JobTally};
use crate::verify::{Fault, Verifier};
use crate::waiter::Waiter;
use crate::workload::{Region, Step};

/// What one queue of several sends at a time: what takes some 15 µs. A send goes on for as long as the server takes
/// what it sends, and other queues would wait for milliseconds with requests that are small.
const SEND_QUANTUM: usize = 64 << 10;

/// So often a waiting thread looks whether it is to stop.
const LONGEST_WAIT_NS: u64 = 50_000_000;
/// At the end, answers that are still under way get so much time.
const DRAIN_LIMIT_NS: u64 = 5_000_000_000;
/// A place that is being written is given up for another so many times.
const CLAIM_TRIES: usize = 16;
/// A measurement of whole generations has so many operations at least.
const WHOLE_MIN: u64 = 4;
/// How often an operation is submitted again after unit attentions.
pub const REPEATS_MAX: u8 = 8;
/// Faults that are kept of each thread.
pub const FAULTS_MAX: usize = 16;

/// What threads and their supervisor share.
#[derive(Debug)]
pub struct Shared {
    /// Time counts from here.
    pub start: Instant,
    /// Everybody is to stop.
    pub stop: AtomicBool,
    /// Of each thread: operations and bytes that ended so far, for whoever watches.
    pub progress: Vec<Progress>,
}

/// What has ended so far. Each thread writes its own, so they do not share cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    pub operations: AtomicU64,
    pub bytes: AtomicU64,
}

impl Shared {
    /// Time since the start.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a run is shorter than centuries")
    }

    /// Everybody is to stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What does not change during a run.
#[derive(Debug, Clone)]
pub struct Settings {
    pub measure_from_ns: u64,
    /// When it ends, unless the streams end before.
    pub end_ns: u64,
    /// Measures generations of operations: begins and ends with an answer, earlier than which neither time counts.
    pub whole: bool,
    /// Polls instead of sleeping.
    pub spin: bool,
    /// Read data is dropped instead of being put into memory.
    pub discard: bool,
    /// Operations that fail do not end the run.
    pub continue_on_error: bool,
    /// A server that answers nothing for so long is lost.
    pub silence_ns: u64,
    /// What all writes hold that are not verified.
    pub content: Arc<Buffer>,
    /// The content is that of this region, and a write holds what belongs to its place.
    pub content_of: Option<Region>,
    /// Stamps what is written and checks what is read.
    pub verifier: Option<Arc<Verifier>>,
    /// How many jobs there are.
    pub jobs: usize,
}

/// What a thread has seen.
#[derive(Debug)]
pub struct Report {
    pub jobs: Vec<JobSum>,
    /// Time that was measured.
    pub measured: Duration,
    /// Processor time of this thread within it.
    pub cpu: Duration,
    /// Operations that ended badly.
    pub errors: Errors,
    /// Blocks that did not hold what they should, the first ones.
    pub faults: Vec<Fault>,
    /// Number of all faults; the list above is bounded.
    pub fault_count: u64,
    /// Blocks that did, and those of which nothing was expected.
    pub checked: (u64, u64),
    /// Why a connection ended.
    pub lost: Option<Lost>,
    /// Operations under way when the run ended that were never answered.
    pub unanswered: u64,
    /// Operations that were due by the end and did not begin.
    pub behind: u64,
}

pub struct Worker<Q> {
    number: usize,
    shared: Arc<Shared>,
    settings: Settings,
    queues: Vec<Q>,
    /// The queue that sends first, the next time.
    first_to_send: usize,
    streams: Vec<Stream>,
    slots: Vec<Slot>,
    /// Streams that may have something to do.
    active: Vec<usize>,
    completions: Vec<Completion>,
    /// Slots of operations that unit attentions have ended, to be submitted again. They are in flight.
    repeats: Vec<u32>,
    in_flight: u64,
    now_ns: u64,
    last_answer_ns: u64,
    measuring_since: Option<(u64, Duration)>,
    /// Operations that had ended when the measurement began.
    ended_before: u64,
    /// Operations that have ended in this turn.
    ended_now: u64,
    tallies: Vec<JobTally>,
    errors: Errors,
    faults: Vec<Fault>,
    fault_count: u64,
    checked: (u64, u64),
    progress: (u64, u64),
    waiter: Waiter,
}

impl<Q: LoadQueue> Worker<Q> {
    pub fn new(
        number: usize,
        shared: Arc<Shared>,
        settings: Settings,
        queues: Vec<Q>,
        streams: Vec<Stream>,
    ) -> Self {
        let mut worker = Self {
            number,
            shared,
            queues,
            first_to_send: 0,
            slots: Vec::new(),
            active: (0..streams.len()).collect(),
            streams,
            completions: Vec::with_capacity(1024),
            repeats: Vec::new(),
            in_flight: 0,
            now_ns: 0,
            last_answer_ns: 0,
            measuring_since: None,
            ended_before: 0,
            ended_now: 0,
            tallies: (0..settings.jobs).map(|_| JobTally::default()).collect(),
            errors: Errors::default(),
            faults: Vec::new(),
            fault_count: 0,
            checked: (0, 0),
            progress: (0, 0),
            waiter: Waiter::default(),
            settings,
        };
        worker.make_slots();
        worker
    }

    fn make_slots(&mut self) {
        let own_memory = !self.settings.discard || self.settings.verifier.is_some();
        for (number, stream) in self.streams.iter_mut().enumerate() {
            for _ in 0..stream.depth {
                let slot = u32::try_from(self.slots.len()).expect("slots fit into memory");
                stream.idle.push(slot);
                let length = usize::try_from(stream.largest).expect("an operation fits");
                let buffer = own_memory.then(|| Buffer::allocate(length));
                self.slots.push(Slot::empty(number, buffer));
            }
            stream.idle.reverse();
        }
    }

    /// Makes load until the end; gives the queues back. The times of the settings count from
    /// `go_ns`.
    pub fn run(mut self, go_ns: u64) -> (Report, Vec<Q>) {
        self.settings.measure_from_ns = self.settings.measure_from_ns.saturating_add(go_ns);
        self.settings.end_ns = self.settings.end_ns.saturating_add(go_ns);
        self.last_answer_ns = go_ns;
        for stream in &mut self.streams {
            stream.start_at(go_ns);
        }
        let lost = self.turns().err();
        if lost.is_some() {
            // What came before the end counts.
            self.complete();
        }
        let (measured, cpu) = self.measured();
        let behind = self.behind();
        if lost.is_some() {
            self.shared.stop();
        }
        let lost = lost.or_else(|| self.drain().err());
        self.queues.iter_mut().for_each(LoadQueue::leave_thread);
        let report = Report {
            jobs: self.tallies.into_iter().map(JobTally::finish).collect(),
            measured,
            cpu,
            errors: self.errors,
            faults: self.faults,
            fault_count: self.fault_count,
            checked: self.checked,
            lost,
            unanswered: self.in_flight,
            behind,
        };
        (report, self.queues)
    }

    fn measured(&self) -> (Duration, Duration) {
        let Some((since_ns, cpu_before)) = self.measuring_since else {
            return (Duration::ZERO, Duration::ZERO);
        };
        let cpu = cpu::of_this_thread().saturating_sub(cpu_before);
        (Duration::from_nanos(self.now_ns - since_ns), cpu)
    }

    fn behind(&self) -> u64 {
        let end_ns = self.now_ns.min(self.settings.end_ns);
        let of_stream = |stream: &Stream| match (&stream.pacer, stream.is_exhausted()) {
            (Some(pacer), false) => pacer.behind(end_ns, f64::from(stream.largest)),
            _ => 0,
        };
        self.streams.iter().map(of_stream).sum()
    }

    fn turns(&mut self) -> Result<(), Lost> {
        self.waiter.prepare(&self.queues);
        loop {
            self.now_ns = self.shared.now_ns();
            self.complete();
            self.follow_the_clock();
            if self.is_over() || self.shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.in_flight > 0 && self.now_ns - self.last_answer_ns > self.settings.silence_ns {
                return Err(Lost::Silent);
            }
            if !self.repeats.is_empty() {
                self.repeat();
            }
            self.begin();
            if self.in_flight == 0 && self.streams.iter().all(Stream::is_exhausted) {
                return Ok(());
            }
            self.send()?;
            let deadline_ns = self.next_event_ns();
            self.wait(deadline_ns)?;
        }
    }

    /// Starts to measure when it is time.
    fn follow_the_clock(&mut self) {
        let is_due = self.measuring_since.is_none()
            && self.now_ns >= self.settings.measure_from_ns
            && (!self.settings.whole || self.ended_now > 0 && self.progress.0 >= self.generation());
        if is_due {
            self.ended_before = self.progress.0;
            self.measuring_since = Some((self.now_ns, cpu::of_this_thread()));
            for tally in &mut self.tallies {
                tally.forget();
            }
        }
    }

    /// Operations that are under way at a time.
    fn generation(&self) -> u64 {
        u64::try_from(self.slots.len().max(1)).expect("slots fit into memory")
    }

    /// Whether all has been measured.
    fn is_over(&self) -> bool {
        if self.now_ns < self.settings.end_ns || !self.settings.whole {
            return self.now_ns >= self.settings.end_ns;
        }
        let measured = self.progress.0 - self.ended_before;
        let generation = self.generation();
        // A turn may take in the end of one generation and the beginning of the next.
        let earlier = measured.saturating_sub(self.ended_now);
        let is_complete = measured / generation > earlier / generation;
        self.measuring_since.is_some() && measured >= WHOLE_MIN && is_complete
    }

    /// Submits whatever can be submitted now.
    fn begin(&mut self) {
        let mut at = 0;
        while at < self.active.len() {
            let number = self.active[at];
            if self.begin_stream(number) {
                self.streams[number].listed = false;
                self.active.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Whether the stream has nothing to do until one of its operations ends.
    fn begin_stream(&mut self, number: usize) -> bool {
        loop {
            let stream = &mut self.streams[number];
            let Some(&slot) = stream.idle.last() else {
                return true;
            };
            let Some(step) = stream.peek() else {
                return true;
            };
            if stream.due_ns() > self.now_ns {
                return false;
            }
            let queue = stream.queue_for(step);
            if self.queues[queue].room() == 0 {
                return false;
            }
            if !self.submit(number, slot, step) {
                return false;
            }
        }
    }

    fn submit(&mut self, number: usize, slot_number: u32, step: Step) -> bool {
        let index = usize::try_from(slot_number).expect("an index");
        let Some((step, data)) = self.data_for(number, index, step) else {
            return false;
        };
        let queue = self.streams[number].queue_for(step);
        let operation = operation(step.write, step.extent);
        let refused = self.queues[queue].submit(operation, data, u64::from(slot_number));
        match refused {
            Ok(()) => {}
            Err(Refused::Busy(data)) => {
                self.take_back(index, step, data);
                return false;
            }
            Err(Refused::Failed(data, failure)) => {
                self.take_back(index, step, data);
                self.streams[number].submitted();
                self.failed(step.write, &failure);
                // Another one would fail as well, and this turn never end.
                return false;
            }
        }
        let stream = &mut self.streams[number];
        stream.idle.pop();
        let due = stream.submitted();
        let slot = &mut self.slots[index];
        slot.write = step.write;
        slot.bytes = step.bytes;
        slot.extent = step.extent;
        slot.repeats = 0;
        slot.submitted_ns = self.now_ns;
        slot.intended_ns = due.unwrap_or(self.now_ns);
        self.in_flight += 1;
        true
    }

    /// The memory of an operation; for a verified write perhaps another place, or none for now.
    fn data_for(&mut self, number: usize, index: usize, step: Step) -> Option<(Step, Data)> {
        let slot = &mut self.slots[index];
        let Some(verifier) = &self.settings.verifier else {
            if step.write {
                return Some((step, shared_content(&self.settings, step.extent)));
            }
            let place = slot.buffer.take().map_or(Data::Discard, Data::buffer);
            return Some((step, place));
        };
        let mut buffer = slot.buffer.take().expect("verified operations have memory");
        let mut step = step;
        for _ in 0..CLAIM_TRIES {
            if !step.write {
                verifier.begin_read(step.extent, &mut slot.low);
                return Some((step, Data::buffer(buffer)));
            }
            let length = usize::try_from(step.bytes).expect("an operation fits");
            if verifier.begin_write(step.extent, &mut buffer[..length]) {
                return Some((step, Data::buffer(buffer)));
            }
            let stream = &mut self.streams[number];
            if !stream.source.has_alternatives() {
                break;
            }
            stream.skip();
            step = stream.peek().unwrap_or(step);
        }
        slot.buffer = Some(buffer);
        None
    }

    fn take_back(&mut self, index: usize, step: Step, data: Data) {
        // Those that are not verified share what they write, and keep the memory of reads.
        if let Some(buffer) = data.into_buffer() {
            self.slots[index].buffer = Some(buffer);
        }
        if let Some(verifier) = self.settings.verifier.as_ref().filter(|_| step.write) {
            verifier.ledger().release(step.extent);
        }
    }

    /// Submits operations again that unit attentions have ended, as far as there is room.
    #[cold]
    fn repeat(&mut self) {
        while let Some(&slot_number) = self.repeats.last() {
            let index = usize::try_from(slot_number).expect("an index");
            let slot = &mut self.slots[index];
            let extent = slot.extent;
            // A verified write still has its stamps, and no other one may write there.
            let data = match slot.buffer.take() {
                Some(buffer) if !slot.write || self.settings.verifier.is_some() => {
                    Data::buffer(buffer)
                }
                kept => {
                    slot.buffer = kept;
                    if slot.write {
                        shared_content(&self.settings, extent)
                    } else {
                        Data::Discard
                    }
                }
            };
            let write = slot.write;
            let stream = &self.streams[slot.stream];
            let queue = match write {
                true => stream.write_queue,
                false => stream.read_queue,
            };
            let operation = operation(write, extent);
            let refused = self.queues[queue].submit(operation, data, u64::from(slot_number));
            let (data, failure) = match refused {
                Ok(()) => {
                    self.repeats.pop();
                    continue;
                }
                Err(Refused::Busy(data)) => (data, None),
                Err(Refused::Failed(data, failure)) => (data, Some(failure)),
            };
            if let Some(buffer) = data.into_buffer() {
                self.slots[index].buffer = Some(buffer);
            }
            let Some(failure) = failure else {
                return;
            };
            self.repeats.pop();
            self.leave_slot(index);
            self.failed(write, &failure);
        }
    }

    /// Whether an operation that ended so is to be submitted again: a unit attention reports a change of the unit or its
    /// target, and the command that got it was not executed (SPC-4 §5.15.6, SAM-5 §5.14).
    #[cold]
    fn is_repeated(&mut self, index: usize, failure: &Failure) -> bool {
        let slot = &mut self.slots[index];
        if !failure.is_unit_attention() || slot.repeats == REPEATS_MAX {
            return false;
        }
        slot.repeats += 1;
        let slot_number = u32::try_from(index).expect("a slot's number");
        self.repeats.push(slot_number);
        true
    }

    /// The operation of a slot has ended: its stream may begin another one.
    #[inline]
    fn leave_slot(&mut self, index: usize) {
        let number = self.slots[index].stream;
        let stream = &mut self.streams[number];
        stream
            .idle
            .push(u32::try_from(index).expect("a slot's number"));
        if !stream.listed {
            stream.listed = true;
            self.active.push(number);
        }
        self.in_flight -= 1;
    }

    /// Each time another queue is the first: a server that serves who comes first would else favour the first.
    fn send(&mut self) -> Result<(), Lost> {
        let most = if self.queues.len() > 1 {
            SEND_QUANTUM
        } else {
            usize::MAX
        };
        let (later, earlier) = self.queues.split_at_mut(self.first_to_send);
        for queue in earlier.iter_mut().chain(later) {
            if queue.has_unsent() {
                queue.send(most)?;
            }
        }
        self.first_to_send += 1;
        if self.first_to_send >= self.queues.len() {
            self.first_to_send = 0;
        }
        Ok(())
    }

    /// When something is to be done although nothing has come.
    fn next_event_ns(&self) -> u64 {
        let mut event = self.now_ns.saturating_add(LONGEST_WAIT_NS);
        // A measurement of whole generations goes on until an answer ends it.
        for known in [self.settings.measure_from_ns, self.settings.end_ns] {
            if known > self.now_ns {
                event = event.min(known);
            }
        }
        for &number in &self.active {
            let stream = &self.streams[number];
            let due = stream.due_ns();
            if due > self.now_ns && !stream.idle.is_empty() && !stream.is_exhausted() {
                event = event.min(due);
            }
        }
        event
    }

    /// Takes in what has come, once something has, or at the deadline.
    fn wait(&mut self, deadline_ns: u64) -> Result<(), Lost> {
        if self.settings.spin || self.queues.iter().any(|queue| queue.socket().is_none()) {
            if let ([only], false) = (&mut self.queues[..], self.settings.spin) {
                let left = deadline_ns.saturating_sub(self.shared.now_ns());
                only.sleep(Duration::from_nanos(left))?;
            }
            for queue in &mut self.queues {
                queue.receive(&mut self.completions)?;
            }
            return Ok(());
        }
        let shared = &self.shared;
        let timeout = || Duration::from_nanos(deadline_ns.saturating_sub(shared.now_ns()));
        self.waiter
            .receive(&mut self.queues, &mut self.completions, timeout)
    }

    /// Accounts for what has come.
    fn complete(&mut self) {
        self.ended_now = 0;
        if self.in_flight == 0 {
            // Nothing is awaited, so there is no silence.
            self.last_answer_ns = self.now_ns;
        }
        if self.completions.is_empty() {
            return;
        }
        self.last_answer_ns = self.now_ns;
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.complete_one(completion);
        }
        self.completions = completions;
        let progress = &self.shared.progress[self.number];
        progress
            .operations
            .store(self.progress.0, Ordering::Relaxed);
        progress.bytes.store(self.progress.1, Ordering::Relaxed);
    }

    #[inline]
    fn complete_one(&mut self, completion: Completion) {
        let index = usize::try_from(completion.tag).expect("our own tag");
        let slot = &mut self.slots[index];
        if let Some(buffer) = completion.data.into_buffer() {
            slot.buffer = Some(buffer);
        }
        let (write, bytes) = (slot.write, slot.bytes);
        let number = slot.stream;
        let (submitted_ns, intended_ns) = (slot.submitted_ns, slot.intended_ns);
        if let Err(failure) = &completion.result
            && self.is_repeated(index, failure)
        {
            return;
        }
        self.leave_slot(index);
        if let Err(failure) = &completion.result {
            self.failed(write, failure);
            return;
        }
        let stream = &self.streams[number];
        let tally = &mut self.tallies[stream.job];
        tally.ended(write, bytes, self.now_ns.saturating_sub(intended_ns));
        if stream.pacer.is_some() {
            tally.ended_service(write, self.now_ns.saturating_sub(submitted_ns));
        }
        self.progress.0 += 1;
        self.ended_now += 1;
        self.progress.1 += u64::from(bytes);
        if self.settings.verifier.is_some() {
            self.verify(index);
        }
    }

    /// A write is acknowledged; what a read has returned is looked at.
    fn verify(&mut self, index: usize) {
        let slot = &self.slots[index];
        let Some(verifier) = &self.settings.verifier else {
            return;
        };
        if slot.write {
            verifier.ledger().acknowledge(slot.extent);
            return;
        }
        let buffer = slot.buffer.as_ref().expect("it came back with the answer");
        let length = usize::try_from(slot.bytes).expect("an operation fits");
        match verifier.check_read(slot.extent, &slot.low, &buffer[..length]) {
            Ok(checked) => {
                self.checked.0 += checked.stamped;
                self.checked.1 += checked.open;
            }
            Err(fault) => {
                self.fault_count += 1;
                if self.faults.len() < FAULTS_MAX {
                    self.faults.push(fault);
                }
                if !self.settings.continue_on_error {
                    self.shared.stop();
                }
            }
        }
    }

    fn failed(&mut self, write: bool, failure: &Failure) {
        self.errors.count(write, failure);
        if !self.settings.continue_on_error {
            self.shared.stop();
        }
    }

    /// Takes in the answers that are still to come, which count no more.
    fn drain(&mut self) -> Result<(), Lost> {
        let give_up_ns = self.shared.now_ns() + DRAIN_LIMIT_NS;
        let counted = std::mem::take(&mut self.tallies);
        self.tallies = counted.iter().map(|_| JobTally::default()).collect();
        let mut result = Ok(());
        while self.in_flight > 0 && self.now_ns < give_up_ns && result.is_ok() {
            self.repeat();
            result = self.send().and_then(|()| self.wait(give_up_ns));
            self.now_ns = self.shared.now_ns();
            self.complete();
        }
        self.tallies = counted;
        result
    }
}

fn operation(write: bool, extent: Extent) -> Operation {
    if write {
        Operation::Write { extent, fua: false }
    } else {
        Operation::Read { extent }
    }
}

/// What a write holds that is not verified.
#[inline]
fn shared_content(settings: &Settings, extent: Extent) -> Data {
    let region = settings.content_of;
    Data::Shared {
        buffer: Arc::clone(&settings.content),
        start: region.map_or(0, |region| region.offset(extent.lba)),
    }
}

#[cfg(test)]
mod tests;
