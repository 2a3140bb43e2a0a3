//! Which parts of the source are read, and which are known to be zeros without reading.
//!
//! A plan walks over the source from front to back. It asks where data is (SEEK_DATA and SEEK_HOLE
//! behind files, GET LBA STATUS behind iSCSI), somewhat ahead of the work, and hands out pieces of
//! work in order: data up to the next multiple of the chunk size, or zeros.
//!
//! Where only changes are copied, the plan asks about those alone, and hands out what lies between them as unchanged.
//!
//! Data includes small holes up to the end of its chunk: they read as zeros, which the copy
//! detects. So a source in shreds costs at most two questions a chunk.

use std::collections::VecDeque;
use std::ops::Range;

use longshore_volume::ExtentState;

/// Extents known ahead of the work.
const AHEAD: usize = 8;

/// Longest piece of zeros handed out at once: what one request may have to write on a medium that
/// cannot do it at once.
pub(super) const ZEROS_MAX: u64 = 32 << 20;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Data(Range<u64>),
    /// These bytes read as zeros.
    Zeros(Range<u64>),
    /// The destination has these bytes already.
    Unchanged(Range<u64>),
    /// Nothing is known before [`Plan::answer`].
    Wait,
    /// Everything was handed out.
    Finished,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Plan {
    /// Everything before was handed out.
    next: u64,
    end: u64,
    chunk: u64,
    /// Extents of zeros end at multiples of this: the larger block of both sides.
    alignment: u64,
    /// Known, in order; the first one begins at `next`.
    extents: VecDeque<Extent>,
    /// Everything before is in `extents` or was handed out.
    known: u64,
    /// A question is under way.
    asked: bool,
    /// The source tells where data is.
    telling: bool,
    /// Where the work is, if not everywhere; those that end before `known` are gone.
    only: Option<VecDeque<Range<u64>>>,
}

#[derive(Debug)]
struct Extent {
    end: u64,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Zeros,
    Unchanged,
}

impl Plan {
    /// Work on `range` in multiples of `chunk`, a multiple of `alignment`. `telling`: the source is asked where data is.
    pub(super) fn new(range: Range<u64>, chunk: u64, alignment: u64, telling: bool) -> Self {
        assert!(chunk > 0 && chunk.is_multiple_of(alignment));
        assert!(range.start <= range.end);
        Self {
            next: range.start,
            end: range.end,
            chunk,
            alignment,
            extents: VecDeque::with_capacity(AHEAD),
            known: range.start,
            asked: false,
            telling,
            only: None,
        }
    }

    /// Work on these ranges alone, which are in order. They grow to whole blocks.
    pub(super) fn restricted_to(mut self, ranges: Option<&[Range<u64>]>) -> Self {
        let Some(ranges) = ranges else {
            return self;
        };
        let mut only: VecDeque<Range<u64>> = VecDeque::with_capacity(ranges.len());
        for range in ranges {
            let start = range.start - range.start % self.alignment;
            let end = range.end.next_multiple_of(self.alignment).min(self.end);
            match only.back_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ if start < end => only.push_back(start..end),
                _ => {}
            }
        }
        self.only = Some(only);
        self
    }

    /// Hands out what lies before the next range to work on. Returns the end of that range.
    fn skip_unchanged(&mut self) -> u64 {
        let Some(only) = &mut self.only else {
            return self.end;
        };
        while only.front().is_some_and(|range| range.end <= self.known) {
            only.pop_front();
        }
        let next = only.front().cloned().unwrap_or(self.end..self.end);
        if self.known < next.start {
            self.know(next.start, Kind::Unchanged);
        }
        next.end
    }

    /// End of the range that was asked about.
    fn end_of_work(&self) -> u64 {
        let next = self.only.as_ref().and_then(|only| only.front());
        next.map_or(self.end, |range| range.end)
    }

    /// Everything before was handed out.
    pub(super) fn position(&self) -> u64 {
        self.next
    }

    /// Everything was handed out.
    pub(super) fn is_finished(&self) -> bool {
        self.next == self.end
    }

    /// The range to ask the source about, if there is one. Ends with [`Plan::answer`].
    pub(super) fn question(&mut self) -> Option<Range<u64>> {
        if self.asked || self.known == self.end || self.extents.len() >= AHEAD {
            return None;
        }
        let end = self.skip_unchanged();
        if self.known == end {
            return None;
        }
        // To read little takes no longer than to ask; zeros are found all the same.
        let is_little = self.only.is_some() && end - self.known < self.chunk;
        if !self.telling || is_little {
            self.know(end, Kind::Data);
            return None;
        }
        self.asked = true;
        Some(self.known..end)
    }

    /// The first `length` bytes asked about have this state.
    pub(super) fn answer(&mut self, length: u64, state: ExtentState) {
        assert!(self.asked, "an answer follows a question");
        self.asked = false;
        let end = self.known.saturating_add(length).min(self.end_of_work());
        match state {
            ExtentState::Deallocated | ExtentState::Anchored => {
                let end = end - end % self.alignment;
                if end > self.known {
                    self.know(end, Kind::Zeros);
                } else {
                    // Less than a block of the destination.
                    self.know(self.chunk_end(self.known), Kind::Data);
                }
            }
            ExtentState::Mapped => {
                let last = end.max(self.known + 1) - 1;
                self.know(self.chunk_end(last), Kind::Data);
            }
        }
    }

    /// The source cannot tell; everything is read from here on.
    pub(super) fn no_answer(&mut self) {
        self.asked = false;
        self.telling = false;
    }

    /// End of the chunk that `offset` is in, or of the range asked about.
    fn chunk_end(&self, offset: u64) -> u64 {
        self.end_of_chunk(offset).min(self.end_of_work())
    }

    fn end_of_chunk(&self, offset: u64) -> u64 {
        (offset - offset % self.chunk).saturating_add(self.chunk)
    }

    fn know(&mut self, end: u64, kind: Kind) {
        match self.extents.back_mut() {
            Some(last) if last.kind == kind => last.end = end,
            _ => self.extents.push_back(Extent { end, kind }),
        }
        self.known = end;
    }

    /// The next piece of work.
    pub(super) fn next(&mut self) -> Step {
        let Some(extent) = self.extents.front() else {
            return if self.is_finished() {
                Step::Finished
            } else {
                Step::Wait
            };
        };
        let start = self.next;
        let (kind, extent_end) = (extent.kind, extent.end);
        let end = match kind {
            Kind::Data => extent_end.min(self.end_of_chunk(start)),
            Kind::Zeros => extent_end.min(start.saturating_add(ZEROS_MAX)),
            Kind::Unchanged => extent_end,
        };
        self.next = end;
        if end == extent_end {
            self.extents.pop_front();
        }
        match kind {
            Kind::Data => Step::Data(start..end),
            Kind::Zeros => Step::Zeros(start..end),
            Kind::Unchanged => Step::Unchanged(start..end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: u64 = 1 << 20;

    /// Runs a plan over a source of which `states` tells one state per 512 bytes.
    fn run(states: &[ExtentState], start: u64, alignment: u64) -> (Vec<Step>, usize) {
        run_restricted(states, start, alignment, None)
    }

    fn run_restricted(
        states: &[ExtentState],
        start: u64,
        alignment: u64,
        only: Option<&[Range<u64>]>,
    ) -> (Vec<Step>, usize) {
        let end = 512 * u64::try_from(states.len()).unwrap();
        let plan = Plan::new(start..end, CHUNK, alignment, true);
        let mut plan = plan.restricted_to(only);
        let (mut steps, mut questions) = (Vec::new(), 0);
        loop {
            if let Some(asked) = plan.question() {
                questions += 1;
                let first = usize::try_from(asked.start / 512).unwrap();
                let run = states[first..]
                    .iter()
                    .take_while(|state| **state == states[first])
                    .count();
                plan.answer(512 * u64::try_from(run).unwrap(), states[first]);
            }
            match plan.next() {
                Step::Wait => {}
                Step::Finished => return (steps, questions),
                step => steps.push(step),
            }
        }
    }

    fn states(runs: &[(u64, ExtentState)]) -> Vec<ExtentState> {
        runs.iter()
            .flat_map(|(bytes, state)| {
                std::iter::repeat_n(*state, usize::try_from(bytes / 512).unwrap())
            })
            .collect()
    }

    use ExtentState::{Anchored, Deallocated, Mapped};

    #[test]
    fn data_comes_in_chunks_of_the_grid_and_holes_whole() {
        let source = states(&[
            (CHUNK + 4096, Mapped),
            (3 * CHUNK - 4096, Deallocated),
            (CHUNK, Mapped),
        ]);
        let (steps, questions) = run(&source, 0, 512);
        assert_eq!(
            steps,
            [
                Step::Data(0..CHUNK),
                Step::Data(CHUNK..2 * CHUNK),
                Step::Zeros(2 * CHUNK..4 * CHUNK),
                Step::Data(4 * CHUNK..5 * CHUNK)
            ]
        );
        assert_eq!(questions, 3);
    }

    #[test]
    fn long_holes_come_in_pieces() {
        let source = states(&[(3 * ZEROS_MAX / 2, Anchored)]);
        assert_eq!(
            run(&source, 0, 512).0,
            [
                Step::Zeros(0..ZEROS_MAX),
                Step::Zeros(ZEROS_MAX..3 * ZEROS_MAX / 2)
            ]
        );
    }

    #[test]
    fn a_plan_that_goes_on_begins_inside_the_grid() {
        let source = states(&[(3 * CHUNK, Mapped)]);
        assert_eq!(
            run(&source, CHUNK / 2, 512).0,
            [
                Step::Data(CHUNK / 2..CHUNK),
                Step::Data(CHUNK..2 * CHUNK),
                Step::Data(2 * CHUNK..3 * CHUNK)
            ]
        );
    }

    #[test]
    fn holes_end_where_blocks_of_the_destination_end() {
        let source = states(&[
            (512, Deallocated),
            (512, Mapped),
            (CHUNK - 1536, Deallocated),
        ]);
        assert_eq!(run(&source, 0, 4096).0, [Step::Data(0..CHUNK - 512)]);
        let source = states(&[(8192 + 512, Deallocated), (512, Mapped)]);
        assert_eq!(
            run(&source, 0, 4096).0,
            [Step::Zeros(0..8192), Step::Data(8192..9216)]
        );
    }

    #[test]
    fn a_source_that_does_not_tell_is_read_whole() {
        let mut plan = Plan::new(0..CHUNK + 512, CHUNK, 512, false);
        assert_eq!(plan.question(), None);
        assert_eq!(plan.next(), Step::Data(0..CHUNK));
        assert_eq!(plan.next(), Step::Data(CHUNK..CHUNK + 512));
        assert_eq!(plan.next(), Step::Finished);

        let mut plan = Plan::new(0..512, CHUNK, 512, true);
        assert_eq!(plan.question(), Some(0..512));
        assert_eq!((plan.question(), plan.next()), (None, Step::Wait));
        plan.no_answer();
        assert_eq!(plan.question(), None);
        assert_eq!(plan.next(), Step::Data(0..512));
    }

    #[test]
    fn a_source_in_shreds_costs_few_questions() {
        let source: Vec<_> = (0..8 * CHUNK / 512)
            .map(|n| if n / 8 % 2 == 0 { Deallocated } else { Mapped })
            .collect();
        let (_, questions) = run(&source, 0, 512);
        assert!(questions <= 16, "{questions}");
    }

    #[test]
    fn what_did_not_change_is_neither_asked_about_nor_copied() {
        let source = states(&[(4 * CHUNK, Mapped), (4 * CHUNK, Deallocated)]);
        let only = [
            4096..8192,
            CHUNK - 4096..CHUNK + 4096,
            CHUNK + 4608..CHUNK + 5120,
            4 * CHUNK - 4096..6 * CHUNK,
        ];
        let (steps, questions) = run_restricted(&source, 0, 4096, Some(&only));
        assert_eq!(
            steps,
            [
                Step::Unchanged(0..4096),
                Step::Data(4096..8192),
                Step::Unchanged(8192..CHUNK - 4096),
                Step::Data(CHUNK - 4096..CHUNK),
                // To whole blocks of the destination.
                Step::Data(CHUNK..CHUNK + 8192),
                Step::Unchanged(CHUNK + 8192..4 * CHUNK - 4096),
                Step::Data(4 * CHUNK - 4096..4 * CHUNK),
                Step::Zeros(4 * CHUNK..6 * CHUNK),
                Step::Unchanged(6 * CHUNK..8 * CHUNK),
            ]
        );
        // The plan asks nothing about ranges shorter than a chunk.
        assert_eq!(questions, 2);
        // Again from the middle, and without anything to do.
        let (steps, _) = run_restricted(&source, 5 * CHUNK, 4096, Some(&only));
        assert_eq!(steps[0], Step::Zeros(5 * CHUNK..6 * CHUNK));
        let (steps, questions) = run_restricted(&source, 0, 4096, Some(&[]));
        assert_eq!((steps, questions), (vec![Step::Unchanged(0..8 * CHUNK)], 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn pieces_cover_the_source_in_order_and_zeros_are_holes(
            runs in proptest::collection::vec((1..3000_u64, 0..3_u8), 1..20),
            start in 0..100_u64,
            large in any::<bool>(),
        ) {
            let runs: Vec<_> = runs
                .into_iter()
                .map(|(blocks, kind)| (blocks * 512, [Mapped, Deallocated, Anchored][usize::from(kind)]))
                .collect();
            let source = states(&runs);
            let alignment = if large { 4096 } else { 512 };
            let end = 512 * u64::try_from(source.len()).unwrap();
            let start = (start * alignment).min(end - end % alignment);
            let mut at = start;
            for step in run(&source, start, alignment).0 {
                let (range, zeros) = match step {
                    Step::Data(range) => (range, false),
                    Step::Zeros(range) => (range, true),
                    _ => unreachable!(),
                };
                prop_assert_eq!(range.start, at);
                prop_assert!(range.end > at);
                at = range.end;
                if zeros {
                    prop_assert!(range.end.is_multiple_of(alignment));
                    for block in range.start / 512..range.end / 512 {
                        prop_assert_ne!(source[usize::try_from(block).unwrap()], Mapped);
                    }
                } else {
                    prop_assert!(range.end - range.start <= CHUNK);
                }
                prop_assert!(range.end == end || range.end.is_multiple_of(alignment));
            }
            prop_assert_eq!(at, end);
        }

        #[test]
        fn all_changes_are_handed_out_and_nothing_else(
            pieces in proptest::collection::vec((1..900_u64, 1..900_u64), 0..12),
            start in 0..2000_u64,
            large in any::<bool>(),
            telling in any::<bool>(),
        ) {
            let alignment = if large { 4096 } else { 512 };
            let mut at = 0;
            let only: Vec<Range<u64>> = pieces
                .into_iter()
                .map(|(gap, length)| {
                    let start = at + 512 * gap;
                    at = start + 512 * length;
                    start..at
                })
                .collect();
            let end = at + 512;
            let source: Vec<_> = (0..end / 512)
                .map(|block| if block / 700 % 2 == 0 { Mapped } else { Deallocated })
                .collect();
            let start = (start * alignment).min(end - end % alignment);
            let plan = Plan::new(start..end, CHUNK, alignment, telling);
            let mut plan = plan.restricted_to(Some(&only));
            let mut at = start;
            loop {
                if let Some(asked) = plan.question() {
                    let first = usize::try_from(asked.start / 512).unwrap();
                    let run = source[first..].iter().take_while(|it| **it == source[first]).count();
                    plan.answer(512 * u64::try_from(run).unwrap(), source[first]);
                }
                let (range, is_work) = match plan.next() {
                    Step::Data(range) | Step::Zeros(range) => (range, true),
                    Step::Unchanged(range) => (range, false),
                    Step::Wait => continue,
                    Step::Finished => break,
                };
                prop_assert_eq!(range.start, at);
                prop_assert!(range.end > at);
                at = range.end;
                for block in (range.start / alignment)..range.end.div_ceil(alignment) {
                    let bytes = block * alignment..(block + 1) * alignment;
                    let changed = only.iter().any(|it| it.start < bytes.end && bytes.start < it.end);
                    prop_assert_eq!(changed, is_work, "{:?} of {:?}", bytes, only);
                }
            }
            prop_assert_eq!(at, end);
        }
    }
}
