//! The judge of blocks: knows what each of them may hold, and says what it holds instead.
//!
//! A host has a range of blocks to itself, so what they hold follows from its own operations:
//!
//! ```text
//!              begin            acknowledge
//!  known ───────────► in doubt ─────────────► known: the new content, and nothing else
//!    ▲                │  ▲  │
//!    │ seen           │  │  └── lose: no answer; the write may happen later ──► held
//!    └── refuse ◄─────┘  └───────────────── release: it cannot happen any more ──┘
//! ```
//!
//! - **Known**: one content, that of the last acknowledged write. It has to be there, whatever happens to the server.
//! - **In doubt**: that one, or one of a write that was not acknowledged: whole, and no mixture.
//! - **Held**: in doubt, and a write of a lost connection may still be under way. Nobody writes there until that is over,
//!   as such a write would replace a later one (see `longshore_initiator::volume`).
//!
//! A read that shows one of several contents decides: from then on it must stay.

use std::collections::BTreeMap;
use std::fmt;

use super::stamp::{self, Content, Found};

/// Blocks in a row, by their numbers on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub first: u64,
    pub count: u64,
}

impl Run {
    pub fn blocks(self) -> std::ops::Range<u64> {
        self.first..self.first + self.count
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.first < other.first + other.count && other.first < self.first + self.count
    }
}

/// A block that does not hold what it must.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    pub block: u64,
    pub kind: WrongKind,
    pub expected: Content,
    pub found: Found,
}

/// In which way a block is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrongKind {
    /// An older content: what was acknowledged since is not there.
    Lost,
    /// Something that was not written there.
    Changed,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            WrongKind::Lost => "lost",
            WrongKind::Changed => "changed",
        };
        write!(
            f,
            "block {} is {kind}: {:?} was acknowledged, and there is {:?}",
            self.block, self.expected, self.found
        )
    }
}

/// What may be there beside the known content.
#[derive(Debug, Default)]
struct Doubt {
    contents: Vec<Content>,
    /// The latest connection that was lost with a write under way.
    held_by: Option<u64>,
}

/// What the blocks of one host hold.
#[derive(Debug)]
pub struct Ledger {
    seed: u64,
    range: Run,
    known: Vec<Content>,
    doubts: BTreeMap<u64, Doubt>,
    /// The number of the last write.
    last: u64,
    /// Writes that somebody acknowledged, in blocks.
    pub acknowledged_blocks: u64,
}

impl Ledger {
    /// Of a range that holds zeros.
    pub fn new(seed: u64, range: Run) -> Self {
        let count = usize::try_from(range.count).expect("a range fits into memory");
        Self {
            seed,
            range,
            known: vec![Content::Zeros; count],
            doubts: BTreeMap::new(),
            last: 0,
            acknowledged_blocks: 0,
        }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn range(&self) -> Run {
        self.range
    }

    /// The number of a new write.
    pub fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether a new write may go there.
    pub fn is_writable(&self, run: Run) -> bool {
        let mut doubts = self.doubts.range(run.blocks());
        doubts.all(|(_, doubt)| doubt.held_by.is_none())
    }

    /// A write is about to be sent: from now on its content may be there.
    pub fn begin(&mut self, run: Run, content: Content) {
        for block in run.blocks() {
            self.doubts.entry(block).or_default().contents.push(content);
        }
    }

    pub fn acknowledge(&mut self, run: Run, content: Content) {
        for block in run.blocks() {
            self.doubts.remove(&block);
            let index = self.index(block);
            self.known[index] = content;
        }
        self.acknowledged_blocks += run.count;
    }

    /// Its connection was lost without an answer. `connection` is a number that grows.
    pub fn lose(&mut self, run: Run, connection: u64) {
        for block in run.blocks() {
            let doubt = self.doubts.entry(block).or_default();
            doubt.held_by = doubt.held_by.max(Some(connection));
        }
    }

    /// What was lost on connections up to this one happens no more.
    pub fn release(&mut self, connection: u64) {
        for doubt in self.doubts.values_mut() {
            if doubt.held_by.is_some_and(|by| by <= connection) {
                doubt.held_by = None;
            }
        }
    }

    /// Checks a block that was read while nothing else was under way there, and remembers what it showed.
    pub fn read(&mut self, block: u64, bytes: &[u8]) -> Result<(), Wrong> {
        let content = self.check(block, bytes)?;
        if self
            .doubts
            .get(&block)
            .is_some_and(|it| it.held_by.is_none())
        {
            self.doubts.remove(&block);
            let index = self.index(block);
            self.known[index] = content;
        }
        Ok(())
    }

    /// Checks a block, and leaves open what is in doubt.
    pub fn check(&self, block: u64, bytes: &[u8]) -> Result<Content, Wrong> {
        let expected = self.known[self.index(block)];
        let found = stamp::find(self.seed, block, bytes);
        let wrong = |kind| Wrong {
            block,
            kind,
            expected,
            found,
        };
        match found {
            Found::Whole(content) if content == expected => Ok(content),
            Found::Whole(content) => {
                let doubt = self.doubts.get(&block);
                if doubt.is_some_and(|doubt| doubt.contents.contains(&content)) {
                    return Ok(content);
                }
                Err(wrong(match content {
                    Content::Write(number) if number > self.last => WrongKind::Changed,
                    Content::Zeros | Content::Write(_) => WrongKind::Lost,
                }))
            }
            Found::Misplaced { .. } | Found::Damaged => Err(wrong(WrongKind::Changed)),
        }
    }

    /// A block with one content that is no zeros, from `start` on: what a planted fault changes.
    pub fn known_write(&self, start: u64) -> Option<u64> {
        let count = self.range.count;
        let blocks = (0..count).map(|offset| self.range.first + (start + offset) % count);
        let mut blocks = blocks.filter(|block| !self.doubts.contains_key(block));
        blocks.find(|block| self.known[self.index(*block)] != Content::Zeros)
    }

    fn index(&self, block: u64) -> usize {
        let offset = block
            .checked_sub(self.range.first)
            .expect("a block of the range");
        usize::try_from(offset).expect("ranges fit into memory")
    }
}

#[cfg(test)]
mod tests {
    use super::super::stamp::BLOCK;
    use super::*;

    const RANGE: Run = Run {
        first: 100,
        count: 8,
    };

    fn at(block: u64) -> Run {
        Run {
            first: block,
            count: 1,
        }
    }

    fn bytes_of(block: u64, content: Content) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        if let Content::Write(number) = content {
            stamp::fill(7, block, number, &mut bytes);
        }
        bytes
    }

    /// A ledger after acknowledged writes to block 103.
    fn written(times: u64) -> Ledger {
        let mut ledger = Ledger::new(7, RANGE);
        for _ in 0..times {
            let content = Content::Write(ledger.next_number());
            ledger.begin(at(103), content);
            ledger.acknowledge(at(103), content);
        }
        ledger
    }

    fn kind(ledger: &Ledger, block: u64, content: Content) -> Option<WrongKind> {
        let checked = ledger.check(block, &bytes_of(block, content));
        checked.err().map(|wrong| wrong.kind)
    }

    #[test]
    fn what_was_acknowledged_must_be_there_and_nothing_else() {
        let ledger = written(3);
        assert_eq!(kind(&ledger, 103, Content::Write(3)), None);
        assert_eq!(kind(&ledger, 102, Content::Zeros), None);
        // Planted: a lost write, by its predecessor and by zeros.
        assert_eq!(kind(&ledger, 103, Content::Write(2)), Some(WrongKind::Lost));
        assert_eq!(kind(&ledger, 103, Content::Zeros), Some(WrongKind::Lost));
        // Planted: blocks changed behind the server.
        let changed = Some(WrongKind::Changed);
        assert_eq!(kind(&ledger, 103, Content::Write(4)), changed);
        let other = ledger.check(103, &bytes_of(104, Content::Write(3)));
        assert_eq!(other.unwrap_err().kind, WrongKind::Changed);
        let mut flipped = bytes_of(103, Content::Write(3));
        flipped[4000] ^= 1;
        let flipped = ledger.check(103, &flipped);
        assert_eq!(flipped.unwrap_err().kind, WrongKind::Changed);
    }

    #[test]
    fn a_write_under_way_may_be_there_or_not() {
        let mut ledger = written(2);
        let third = Content::Write(ledger.next_number());
        ledger.begin(at(103), third);
        assert_eq!(kind(&ledger, 103, Content::Write(2)), None);
        assert_eq!(kind(&ledger, 103, third), None);
        assert_eq!(kind(&ledger, 103, Content::Write(1)), Some(WrongKind::Lost));
        ledger.acknowledge(at(103), third);
        assert_eq!(kind(&ledger, 103, Content::Write(2)), Some(WrongKind::Lost));
    }

    #[test]
    fn a_refused_write_is_decided_by_the_next_read() {
        let mut ledger = written(2);
        let third = Content::Write(ledger.next_number());
        ledger.begin(at(103), third);
        ledger.read(103, &bytes_of(103, third)).unwrap();
        assert_eq!(kind(&ledger, 103, Content::Write(2)), Some(WrongKind::Lost));
        assert_eq!(kind(&ledger, 103, third), None);
    }

    #[test]
    fn a_lost_write_holds_its_block_until_it_cannot_happen_any_more() {
        let mut ledger = written(2);
        let third = Content::Write(ledger.next_number());
        ledger.begin(at(103), third);
        ledger.lose(at(103), 5);
        assert!(!ledger.is_writable(RANGE));
        assert!(ledger.is_writable(at(102)));
        // It may come after this read.
        ledger.read(103, &bytes_of(103, Content::Write(2))).unwrap();
        assert_eq!(kind(&ledger, 103, third), None);
        ledger.release(4);
        assert!(!ledger.is_writable(RANGE));
        ledger.release(5);
        assert!(ledger.is_writable(RANGE));
        ledger.read(103, &bytes_of(103, Content::Write(2))).unwrap();
        assert_eq!(kind(&ledger, 103, third), Some(WrongKind::Lost));
    }

    #[test]
    fn zeroing_is_a_write_like_any_other() {
        let mut ledger = written(2);
        ledger.begin(at(103), Content::Zeros);
        ledger.acknowledge(at(103), Content::Zeros);
        assert_eq!(kind(&ledger, 103, Content::Write(2)), Some(WrongKind::Lost));
        assert_eq!(ledger.known_write(0), None);
        assert_eq!(written(1).known_write(6), Some(103));
    }
}
