//! Times of the stages of sampled operations: one in [`Stages::every`] is followed from the socket to the medium and
//! back.
//!
//! ```text
//! Received ─parse► Parsed ─data► Queued ─gate► Submitted ─storage► Done ─answer► Answered ─send► Sent
//! ```
//!
//! The others cost one decrement and the look at a number that is zero. What is followed has its
//! place in a table of fixed size; while the table is full, operations are not followed. Times come
//! from the platform's clock, which a simulation does not have: there, they are those of turns.

use std::time::Instant;

use super::histogram::Histogram;
use super::protocol::ProtocolKind;

/// Operations that are followed at a time.
const FOLLOWED_MAX: usize = 256;
/// Kinds of operations (by volume, protocol, direction and size) that have histograms. What is
/// beyond is counted only.
const KINDS_MAX: usize = 512;
/// Fewest bytes of a command.
const COMMAND_BYTES_SHIFT: u32 = 5;

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Its last bytes were taken from the socket.
    Received,
    /// Its command was understood.
    Parsed,
    /// It asks for the medium: its data are there, and it is its turn.
    Queued,
    /// The volume was asked: the gate is open, and there is memory.
    Submitted,
    /// The volume has answered, for the last time.
    Done,
    /// The response is in the transmit queue.
    Answered,
    /// The last byte of the response was given to the kernel.
    Sent,
}

/// How many stages there are.
const STAGES: usize = Stage::Sent as usize + 1;

/// The times between two stages, and the whole.
pub(crate) const INTERVALS: usize = STAGES;
/// The place of the whole.
pub(crate) const TOTAL: usize = INTERVALS - 1;

/// Whether data goes to the peer or comes from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Read data, sent to the peer.
    Read,
    /// Write data, received from the peer.
    Write,
    /// Neither: flushes, unmapping, and the like.
    Other,
}

impl Direction {
    /// As reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Operations whose times are comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub unit: usize,
    pub protocol: ProtocolKind,
    pub direction: Direction,
    /// log2 of its bytes, rounded up.
    pub size_class: u32,
}

/// Names an operation that is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Followed(u16);

impl Followed {
    pub(crate) const NOT: Self = Self(0);

    #[inline]
    pub(crate) const fn is(self) -> bool {
        self.0 != 0
    }
}

/// The operations of a connection whose responses are queued and not sent, oldest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unsent {
    first: Followed,
    last: Followed,
}

impl Unsent {
    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        !self.first.is()
    }
}

/// One operation that is followed.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Nanoseconds since the shard started.
    at: [u64; STAGES],
    reached: Stage,
    protocol: ProtocolKind,
    /// What it does to which unit, once it asked for a medium.
    does: Option<(usize, Direction, u64)>,
    /// Its last byte in the stream of the connection.
    position: u64,
    /// The next one of its connection that is not sent, or the next free entry.
    next: Followed,
}

/// Histograms of one kind of operation.
pub(crate) type Histograms = [Histogram; INTERVALS];

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Stages {
    /// Operations until the next one that is followed.
    countdown: u32,
    /// One in so many is followed; 0: none.
    every: u32,
    started: Instant,
    /// When the bytes came that are being looked at.
    received: Instant,
    entries: Vec<Entry>,
    free: Followed,
    /// The kind that was met last is the first.
    histograms: Vec<(Kind, Box<Histograms>)>,
    /// Operations whose kind has no histograms.
    beyond: u64,
}

impl Stages {
    pub(crate) fn new(every: u32, now: Instant) -> Self {
        Self {
            countdown: first_countdown(every),
            every,
            started: now,
            received: now,
            entries: Vec::new(),
            free: Followed::NOT,
            histograms: Vec::new(),
            beyond: 0,
        }
    }

    /// The place of a unit is to be another one's.
    pub(crate) fn forget_unit(&mut self, unit: usize) {
        self.histograms.retain(|(kind, _)| kind.unit != unit);
    }

    /// Whether an operation will be followed that came with `bytes` more.
    #[inline]
    pub(crate) const fn wants_time(&self, bytes: usize) -> bool {
        (self.countdown as usize) <= (bytes >> COMMAND_BYTES_SHIFT) + 1
    }

    pub(crate) const fn received(&mut self, now: Instant) {
        self.received = now;
    }

    /// An operation begins. Whether it is to be followed: then call [`Self::follow`].
    #[inline]
    pub(crate) const fn is_next(&mut self) -> bool {
        self.countdown -= 1;
        self.countdown == 0
    }

    /// Follows an operation, if there is room for one more.
    #[cold]
    pub(crate) fn follow(&mut self, protocol: ProtocolKind, now: Instant) -> Followed {
        self.countdown = if self.every == 0 {
            u32::MAX
        } else {
            self.every
        };
        if self.every == 0 {
            return Followed::NOT;
        }
        let entry = Entry {
            at: [self.since_start(self.received.min(now)); STAGES],
            reached: Stage::Received,
            protocol,
            does: None,
            position: 0,
            next: Followed::NOT,
        };
        let followed = self.take_entry(entry);
        self.reach(followed, Stage::Parsed, now);
        followed
    }

    fn since_start(&self, now: Instant) -> u64 {
        let duration = now.saturating_duration_since(self.started);
        duration.as_secs() * 1_000_000_000 + u64::from(duration.subsec_nanos())
    }

    fn take_entry(&mut self, entry: Entry) -> Followed {
        let free = self.free;
        if free.is() {
            let place = self.entry(free);
            let next = place.next;
            *place = entry;
            self.free = next;
            free
        } else if self.entries.len() < FOLLOWED_MAX {
            self.entries.push(entry);
            Followed(u16::try_from(self.entries.len()).expect("the table is small"))
        } else {
            Followed::NOT
        }
    }

    fn entry(&mut self, followed: Followed) -> &mut Entry {
        &mut self.entries[usize::from(followed.0) - 1]
    }

    /// It has come to a stage, at least for the last time so far.
    #[cold]
    pub(crate) fn reach(&mut self, followed: Followed, stage: Stage, now: Instant) {
        if !followed.is() {
            return;
        }
        let at = self.since_start(now);
        let entry = self.entry(followed);
        // A stage that is left out took no time.
        entry.at[stage as usize..].fill(at);
        entry.reached = stage;
    }

    /// It asks for a medium. What it asks for first says what it is.
    #[cold]
    pub(crate) fn queue(
        &mut self,
        followed: Followed,
        unit: usize,
        direction: Direction,
        bytes: u64,
        now: Instant,
    ) {
        let entry = self.entry(followed);
        if entry.does.is_none() {
            entry.does = Some((unit, direction, bytes));
            self.reach(followed, Stage::Queued, now);
        }
    }

    /// It asks for a medium, and nothing keeps it from there.
    #[cold]
    pub(crate) fn submit(&mut self, followed: Followed, now: Instant) {
        if self.entry(followed).reached == Stage::Queued {
            self.reach(followed, Stage::Submitted, now);
        }
    }

    /// There was no memory for it: it is not with the volume yet.
    #[cold]
    pub(crate) fn wait_again(&mut self, followed: Followed) {
        if followed.is() && self.entry(followed).reached == Stage::Submitted {
            self.entry(followed).reached = Stage::Queued;
        }
    }

    /// Its response is queued, and ends at `position` of the connection's stream.
    #[cold]
    pub(crate) fn answer(
        &mut self,
        followed: Followed,
        unsent: &mut Unsent,
        position: u64,
        now: Instant,
    ) {
        if self.entry(followed).does.is_none() {
            return self.drop(followed);
        }
        self.reach(followed, Stage::Answered, now);
        let entry = self.entry(followed);
        entry.position = position;
        entry.next = Followed::NOT;
        if unsent.last.is() {
            self.entry(unsent.last).next = followed;
        } else {
            unsent.first = followed;
        }
        unsent.last = followed;
    }

    /// It ends without a response, or is none whose times anybody wants.
    #[cold]
    pub(crate) fn drop(&mut self, followed: Followed) {
        if followed.is() {
            let free = self.free;
            self.entry(followed).next = free;
            self.free = followed;
        }
    }

    /// The connection has sent its stream up to `position`.
    #[cold]
    pub(crate) fn sent(&mut self, unsent: &mut Unsent, position: u64, now: Instant) {
        while unsent.first.is() {
            let followed = unsent.first;
            let entry = *self.entry(followed);
            if entry.position > position {
                return;
            }
            self.reach(followed, Stage::Sent, now);
            self.record(followed);
            self.forget_first(unsent, entry.next);
        }
    }

    /// The connection is gone.
    pub(crate) fn forget(&mut self, unsent: &mut Unsent) {
        while unsent.first.is() {
            let next = self.entry(unsent.first).next;
            self.forget_first(unsent, next);
        }
    }

    fn forget_first(&mut self, unsent: &mut Unsent, next: Followed) {
        self.drop(unsent.first);
        unsent.first = next;
        if !next.is() {
            unsent.last = Followed::NOT;
        }
    }

    fn record(&mut self, followed: Followed) {
        let entry = *self.entry(followed);
        let Some((unit, direction, bytes)) = entry.does else {
            return;
        };
        let kind = Kind {
            unit,
            protocol: entry.protocol,
            direction,
            size_class: bytes.max(1).next_power_of_two().ilog2(),
        };
        let Some(histograms) = self.histograms_of(kind) else {
            self.beyond += 1;
            return;
        };
        for (index, pair) in entry.at.windows(2).enumerate() {
            histograms[index].record(pair[1].saturating_sub(pair[0]));
        }
        histograms[TOTAL].record(entry.at[STAGES - 1].saturating_sub(entry.at[0]));
    }

    /// The histograms of a kind; `None`: there is no room for any more.
    fn histograms_of(&mut self, kind: Kind) -> Option<&mut Histograms> {
        let place = self.histograms.iter().position(|(known, _)| *known == kind);
        let place = match place {
            Some(place) => place,
            None if self.histograms.len() < KINDS_MAX => {
                self.histograms.push((kind, Box::default()));
                self.histograms.len() - 1
            }
            None => return None,
        };
        self.histograms.swap(0, place);
        Some(&mut self.histograms[0].1)
    }

    /// One in so many operations is followed.
    pub(crate) const fn every(&self) -> u32 {
        self.every
    }

    /// Operations that were followed, whose kind had no histograms.
    pub(crate) const fn beyond(&self) -> u64 {
        self.beyond
    }

    pub(crate) fn histograms(&self) -> Vec<(Kind, Box<Histograms>)> {
        self.histograms.clone()
    }
}

const fn first_countdown(every: u32) -> u32 {
    if every == 0 { u32::MAX } else { every }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PROTOCOL: ProtocolKind = ProtocolKind::Iscsi;

    fn at(start: Instant, us: u64) -> Instant {
        start + Duration::from_micros(us)
    }

    /// Takes one operation through all stages, each of which takes 10 µs more than the one before.
    fn run(stages: &mut Stages, unsent: &mut Unsent, start: Instant, position: u64) -> bool {
        stages.received(start);
        if !stages.is_next() {
            return false;
        }
        let followed = stages.follow(PROTOCOL, at(start, 10));
        if !followed.is() {
            return false;
        }
        stages.queue(followed, 0, Direction::Read, 4096, at(start, 30));
        stages.submit(followed, at(start, 60));
        stages.reach(followed, Stage::Done, at(start, 100));
        stages.answer(followed, unsent, position, at(start, 150));
        true
    }

    #[test]
    fn one_in_so_many_is_followed_and_its_times_add_up() {
        let start = Instant::now();
        let mut stages = Stages::new(4, start);
        let mut unsent = Unsent::default();
        let mut followed = 0;
        for number in 0..40 {
            followed += u32::from(run(&mut stages, &mut unsent, start, number));
        }
        assert_eq!(followed, 10);
        stages.sent(&mut unsent, 100, at(start, 210));
        assert!(unsent.is_empty());
        let histograms = stages.histograms();
        let (kind, of_kind) = histograms.first().expect("one kind");
        assert_eq!((histograms.len(), kind.size_class), (1, 12));
        let means = of_kind.iter().map(|it| it.durations().mean_ns / 1000);
        assert_eq!(means.collect::<Vec<_>>(), [10, 20, 30, 40, 50, 60, 210]);
        assert!(of_kind.iter().all(|it| it.count() == 10));
    }

    #[test]
    fn none_is_followed_when_told_so() {
        let start = Instant::now();
        let mut stages = Stages::new(0, start);
        let mut unsent = Unsent::default();
        for number in 0..1000 {
            assert!(!run(&mut stages, &mut unsent, start, number));
        }
        stages.countdown = 1;
        assert!(!run(&mut stages, &mut unsent, start, 0));
    }

    #[test]
    fn a_response_is_sent_with_its_last_byte() {
        let start = Instant::now();
        let mut stages = Stages::new(1, start);
        let mut unsent = Unsent::default();
        for position in [100, 200, 300] {
            assert!(run(&mut stages, &mut unsent, start, position));
        }
        let count = |stages: &Stages| {
            let histograms = stages.histograms();
            let counts = histograms.iter().map(|(_, it)| it[TOTAL].count());
            counts.sum::<u64>()
        };
        stages.sent(&mut unsent, 199, at(start, 300));
        assert_eq!(count(&stages), 1);
        stages.sent(&mut unsent, 200, at(start, 300));
        assert_eq!(count(&stages), 2);
        stages.forget(&mut unsent);
        assert!(unsent.is_empty());
        assert_eq!(count(&stages), 2);
    }

    #[test]
    fn a_full_table_follows_no_more_and_places_are_used_again() {
        let start = Instant::now();
        let mut stages = Stages::new(1, start);
        for _ in 0..3 {
            let mut unsent = Unsent::default();
            let room = 0..FOLLOWED_MAX as u64 + 10;
            let followed = room
                .filter(|number| run(&mut stages, &mut unsent, start, *number))
                .count();
            assert_eq!(followed, FOLLOWED_MAX);
            stages.forget(&mut unsent);
        }
        assert_eq!(stages.entries.len(), FOLLOWED_MAX);
    }

    #[test]
    fn what_never_asks_for_a_medium_is_not_recorded() {
        let start = Instant::now();
        let mut stages = Stages::new(1, start);
        let mut unsent = Unsent::default();
        assert!(stages.is_next());
        let followed = stages.follow(PROTOCOL, start);
        stages.answer(followed, &mut unsent, 1, start);
        assert!(unsent.is_empty() && stages.histograms().is_empty());
    }

    #[test]
    fn kinds_are_bounded() {
        let start = Instant::now();
        let mut stages = Stages::new(1, start);
        let mut unsent = Unsent::default();
        for unit in 0..KINDS_MAX + 5 {
            assert!(stages.is_next());
            let followed = stages.follow(PROTOCOL, start);
            stages.queue(followed, unit, Direction::Write, 512, start);
            stages.answer(followed, &mut unsent, 1, start);
            stages.sent(&mut unsent, 1, start);
        }
        assert_eq!(stages.histograms().len(), KINDS_MAX);
        assert_eq!(stages.beyond(), 5);
        let memory = FOLLOWED_MAX * size_of::<Entry>() + KINDS_MAX * (size_of::<Histograms>() + 64);
        assert!(memory < 6 << 20, "{memory}");
    }
}
