//! EXTENDED COPY (LID1) and RECEIVE COPY RESULTS (SPC-4 §6.4, §6.20 to §6.24): blocks copied
//! inside the server.
//!
//! Sources and destinations are logical units that the initiator reaches through the same target,
//! named by identification descriptors (E4h); the only segment is block to block (02h). All
//! descriptors are checked before the first block is copied, so that a wrong list copies nothing.
//!
//! ```text
//!  Start ─► parameters ─► resolve ─► for each segment, for each chunk: Read ─► Write ─► Complete
//! ```
//!
//! A chunk is read into scratch memory and written from there. Segments that overlap themselves are
//! copied from the end where that is needed, so that the result is what the source was.
//!
//! Not supported: inline data, other descriptors, COPY OPERATION ABORT (an ABORT TASK stops a copy).

use std::sync::Arc;

use crate::access::{Access, ReservationClass};
use crate::completion::Completion;
use crate::nexus::Nexus;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::status::Status;
use crate::step::{CommandEvent, Procedure, Siblings, Step, StepContext, UnitIndex, UnitSelector};
use crate::unit::LogicalUnit;
use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent, Lba};
use longshore_block::operation::{MediaError, Operation};

mod parameters;
mod results;

use crate::copies::{CopyKey, CopyManagerStatus, TooManyCopies};
use parameters::MAX_PARAMETER_LIST_LENGTH;
pub(crate) use parameters::third_party_copy_page;
use parameters::{Cscd, Parameters, SegmentDescriptor};
pub(crate) use results::receive_copy_results;

/// Scratch memory of a copy: how much is read and written at a time. A multiple of every block size.
pub(crate) const SCRATCH_LENGTH: usize = 256 * 1024;

/// An EXTENDED COPY in progress.
#[derive(Debug)]
pub(crate) struct ExtendedCopy {
    unit: Arc<LogicalUnit>,
    nexus: Arc<Nexus>,
    parameter_list_length: u32,
    segments: Vec<Segment>,
    /// The segment under way.
    current: usize,
    /// Bytes of it that are copied.
    done: u64,
    writing: bool,
    /// Where progress and result are recorded, unless the initiator does not want to ask.
    record: Option<CopyKey>,
}

/// One segment with its ends resolved. Lengths are bytes.
#[derive(Clone, Copy, Debug)]
struct Segment {
    source: End,
    destination: End,
    length: u64,
    /// From the last chunk to the first.
    backwards: bool,
}

#[derive(Clone, Copy, Debug)]
struct End {
    unit: UnitSelector,
    block_size: u64,
    lba: u64,
}

impl End {
    fn blocks(&self, length: u64) -> BlockCount {
        BlockCount(length / self.block_size)
    }

    fn lba_at(&self, offset: u64) -> Lba {
        Lba(self.lba + offset / self.block_size)
    }
}

/// A logical unit a CSCD descriptor names.
#[derive(Clone, Copy, Debug)]
struct Target {
    unit: UnitSelector,
    block_size: u32,
    block_count: u64,
}

impl ExtendedCopy {
    /// Takes the PARAMETER LIST LENGTH of the CDB.
    ///
    /// # Errors
    /// The list is longer than any we take.
    pub(crate) fn begin(
        unit: &Arc<LogicalUnit>,
        nexus: &Arc<Nexus>,
        parameter_list_length: u32,
    ) -> Result<Self, Sense> {
        if parameter_list_length > MAX_PARAMETER_LIST_LENGTH {
            return Err(Sense::parameter_list_length_error());
        }
        Ok(Self {
            unit: Arc::clone(unit),
            nexus: Arc::clone(nexus),
            parameter_list_length,
            segments: Vec::new(),
            current: 0,
            done: 0,
            writing: false,
            record: None,
        })
    }

    fn start(&mut self, context: &StepContext<'_, '_>) -> Result<Step, Completion> {
        let list = context.buffers.data_out;
        if u32::try_from(list.len()) != Ok(self.parameter_list_length) {
            return Err(Sense::parameter_list_length_error().into());
        }
        if list.is_empty() {
            return Ok(Step::Complete(Completion::GOOD));
        }
        let parameters = Parameters::decode(list)?;
        if parameters.uses_list_identifier() {
            let key = CopyKey::new(&self.nexus, parameters.list_identifier);
            let holds = parameters.holds_results();
            match self.unit.lock().copies.begin(key.clone(), holds) {
                Ok(true) => self.record = Some(key),
                Ok(false) => {
                    let additional = AdditionalSense::OPERATION_IN_PROGRESS;
                    return Err(Sense::illegal_request(additional).into());
                }
                Err(TooManyCopies) => return Err(Status::BUSY.into()),
            }
        }
        self.segments = match self.resolve(&parameters, context.siblings) {
            Ok(segments) => segments,
            Err(additional) => return Err(self.fail(additional)),
        };
        Ok(self.next())
    }

    /// Finds the units and checks the ranges.
    fn resolve(
        &self,
        parameters: &Parameters,
        siblings: &dyn Siblings,
    ) -> Result<Vec<Segment>, AdditionalSense> {
        let descriptors = parameters.segments.iter();
        descriptors
            .map(|one| self.resolve_segment(&parameters.cscds, one, siblings))
            .collect()
    }

    fn resolve_segment(
        &self,
        cscds: &[Cscd],
        descriptor: &SegmentDescriptor,
        siblings: &dyn Siblings,
    ) -> Result<Segment, AdditionalSense> {
        let target = |index, class| self.find(cscds, index, class, siblings);
        let from = target(descriptor.source, ReservationClass::Reads)?;
        let to = target(descriptor.destination, ReservationClass::Changes)?;
        let counted_in = if descriptor.counts_destination_blocks {
            &to
        } else {
            &from
        };
        let length = u64::from(descriptor.block_count) * u64::from(counted_in.block_size);
        let end = |target: &Target, lba: u64| {
            let block_size = u64::from(target.block_size);
            if length % block_size != 0 {
                return Err(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT);
            }
            let last = lba.checked_add(length / block_size);
            if last.is_none_or(|last| last > target.block_count) {
                // There is no code for this in SPC-4, and 21h/00h would speak of our own CDB.
                return Err(AdditionalSense::NONE);
            }
            Ok(End {
                unit: target.unit,
                block_size,
                lba,
            })
        };
        let source = end(&from, descriptor.source_lba)?;
        let destination = end(&to, descriptor.destination_lba)?;
        let backwards = source.unit == destination.unit && source.lba < destination.lba;
        Ok(Segment {
            source,
            destination,
            length,
            backwards,
        })
    }

    /// The unit a CSCD descriptor names, if this initiator may use it so.
    fn find(
        &self,
        cscds: &[Cscd],
        index: u16,
        class: ReservationClass,
        siblings: &dyn Siblings,
    ) -> Result<Target, AdditionalSense> {
        let unreachable = AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE;
        let cscd = cscds.get(usize::from(index)).ok_or(unreachable)?;
        let found = siblings.find(&cscd.designator).ok_or(unreachable)?;
        let (unit, nexus) = (siblings.unit(found), siblings.nexus(found));
        let (block_size, block_count) = unit.capacity();
        // A DISK BLOCK LENGTH of zero says nothing.
        if !cscd.is_direct_access || (cscd.block_length != 0 && cscd.block_length != block_size) {
            return Err(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
        }
        let access = Access {
            reservation: class,
            ignores_unit_attention: true,
        };
        if unit.admit(nexus, access).is_err() {
            return Err(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
        }
        if class == ReservationClass::Changes && unit.is_write_protected(nexus) {
            return Err(AdditionalSense::WRITE_PROTECTED);
        }
        let own = Arc::ptr_eq(unit, &self.unit);
        let unit = if own {
            UnitSelector::Own
        } else {
            UnitSelector::Sibling(found)
        };
        Ok(Target {
            unit,
            block_size,
            block_count,
        })
    }

    /// The next read, or the end.
    fn next(&mut self) -> Step {
        while let Some(segment) = self.segments.get(self.current) {
            let (offset, length) = chunk(segment, self.done);
            if length > 0 {
                self.writing = false;
                return self.media(segment, offset, length);
            }
            self.current += 1;
            self.done = 0;
            self.progress(0, 1);
        }
        self.finish(CopyManagerStatus::Completed);
        Step::Complete(Completion::GOOD)
    }

    fn media(&self, segment: &Segment, offset: u64, length: u64) -> Step {
        let end = if self.writing {
            &segment.destination
        } else {
            &segment.source
        };
        let extent = Extent {
            lba: end.lba_at(offset),
            blocks: end.blocks(length),
        };
        let operation = if self.writing {
            Operation::Write { extent, fua: false }
        } else {
            Operation::Read { extent }
        };
        let length = usize::try_from(length).expect("a chunk fits the scratch memory");
        Step::Media {
            unit: end.unit,
            operation,
            payload: DataLocation::Scratch { start: 0, length },
        }
    }

    fn media_done(&mut self, result: Result<(), MediaError>) -> Step {
        if let Err(error) = result {
            let failure = Sense::media_failure(error, self.writing);
            return Step::Complete(self.fail(failure.additional));
        }
        let Some(segment) = self.segments.get(self.current).copied() else {
            return Step::Complete(Completion::GOOD);
        };
        let (offset, length) = chunk(&segment, self.done);
        if !self.writing {
            self.writing = true;
            return self.media(&segment, offset, length);
        }
        self.done += length;
        self.progress(length, 0);
        self.next()
    }

    fn progress(&self, bytes: u64, segments: u16) {
        if let Some(key) = &self.record {
            self.unit.lock().copies.progress(key, bytes, segments);
        }
    }

    fn finish(&mut self, status: CopyManagerStatus) {
        if let Some(key) = self.record.take() {
            self.unit.lock().copies.finish(&key, status);
        }
    }

    /// Ends the copy: COPY ABORTED, and why.
    fn fail(&mut self, additional: AdditionalSense) -> Completion {
        let sense = Sense::new(SenseKey::CopyAborted, additional);
        self.finish(CopyManagerStatus::Failed(sense));
        sense.into()
    }
}

impl Procedure for ExtendedCopy {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        match event {
            CommandEvent::Start => self.start(context).unwrap_or_else(Step::Complete),
            CommandEvent::Media(result) => self.media_done(result.map(|_| ())),
            CommandEvent::Locked | CommandEvent::Persisted(_) | CommandEvent::TasksAborted => {
                Step::Complete(
                    Sense::new(
                        SenseKey::HardwareError,
                        AdditionalSense::INTERNAL_TARGET_FAILURE,
                    )
                    .into(),
                )
            }
        }
    }

    fn uses(&self, unit: UnitIndex) -> bool {
        let unit = UnitSelector::Sibling(unit);
        let segments = self.segments.iter().skip(self.current);
        let mut ends = segments.flat_map(|segment| [segment.source.unit, segment.destination.unit]);
        ends.any(|end| end == unit)
    }

    fn handles_failure(&self) -> bool {
        true
    }
}

/// A copy that is dropped before its end was aborted.
impl Drop for ExtendedCopy {
    fn drop(&mut self) {
        if let Some(key) = self.record.take() {
            self.unit.lock().copies.forget(&key);
        }
    }
}

/// Offset and length of the chunk that follows `done` bytes; empty at the end.
fn chunk(segment: &Segment, done: u64) -> (u64, u64) {
    let length = (segment.length - done).min(SCRATCH_LENGTH as u64);
    let offset = if segment.backwards {
        segment.length - done - length
    } else {
        done
    };
    (offset, length)
}

#[cfg(test)]
mod tests;
