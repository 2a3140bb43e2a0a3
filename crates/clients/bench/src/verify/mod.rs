//! Checks that a volume returns what was written to it.
//!
//! Each block of a verified write carries a [`stamp`](stamp::Stamp), and a
//! [`Ledger`] knows which generations a block may have. What is found is one of
//!
//! | kind | the block |
//! |---|---|
//! | lost | holds what it held before its last acknowledged write, or zeros |
//! | stale | holds something older than that, or something older than what a read had returned before |
//! | misplaced | was written to another place |
//! | torn | holds parts of two writes, or an acknowledged write changed some of its blocks and not others |
//! | corrupt | holds data of no write |
//!
//! A block that is being written while it is read may be in between; it is looked at again at the
//! end of the run, when all that was written is read once more.

mod ledger;
pub mod stamp;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_block::extent::Extent;
use serde::Serialize;

pub use ledger::{Known, Ledger};
use stamp::{Content, Stamp};

use crate::workload::Region;

/// What is wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// An acknowledged write is not there.
    Lost,
    /// Older data came back.
    Stale,
    /// Data of another place.
    Misplaced,
    /// Parts of two writes.
    Torn,
    /// The data carries no valid stamp.
    Corrupt,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost write",
            Self::Stale => "stale data",
            Self::Misplaced => "misplaced write",
            Self::Torn => "torn write",
            Self::Corrupt => "corrupt data",
        })
    }
}

/// A block that does not hold what it must.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub kind: FaultKind,
    pub lba: u64,
    /// What should be there.
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            lba,
            expected,
            found,
        } = self;
        write!(
            f,
            "{kind} at block {lba}: expected {expected}, found {found}"
        )
    }
}

/// Stamps what is written and checks what is read.
#[derive(Debug)]
pub struct Verifier {
    ledger: Ledger,
    block_size: usize,
    seed: u64,
    run: u64,
    /// Blocks that this run has not written are expected to be whole, too.
    earlier: bool,
    writes: AtomicU64,
}

/// What the blocks of a read held when it was sent.
pub type Low = Vec<u64>;

/// What a read was found to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks that hold what this run, or an earlier one with the same seed, has written.
    pub stamped: u64,
    /// Blocks of which nothing is expected, or that were being written.
    pub open: u64,
}

impl Verifier {
    /// For a region. `run` tells runs with the same seed apart; `earlier` asks that blocks which an
    /// earlier run with this seed has written are whole and in their place.
    #[must_use]
    pub fn new(region: Region, seed: u64, run: u64, earlier: bool) -> Self {
        Self {
            block_size: usize::try_from(region.block_size).expect("a block fits into memory"),
            ledger: Ledger::new(region),
            seed,
            run,
            earlier,
            writes: AtomicU64::new(0),
        }
    }

    /// Which generations there are.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Reserves blocks for a write and fills its buffer; not if one of them is being written.
    pub fn begin_write(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        if !self.ledger.claim(extent) {
            return false;
        }
        let of = u16::try_from(extent.blocks.0).unwrap_or(0);
        let write = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let blocks = buffer.chunks_exact_mut(self.block_size);
        for ((block, lba), part) in blocks.zip(extent.lba.0..).zip(0_u64..) {
            let stamp = Stamp {
                lba,
                seed: self.seed,
                run: self.run,
                generation: self.ledger.known(lba).acknowledged + 1,
                part: if of == 0 {
                    0
                } else {
                    u16::try_from(part).unwrap_or(0)
                },
                of,
                write,
            };
            stamp.fill(block);
        }
        true
    }

    /// Notes what a read that is about to be sent must return at least.
    pub fn begin_read(&self, extent: Extent, low: &mut Low) {
        low.clear();
        let lbas = extent.lba.0..extent.lba.0 + extent.blocks.0;
        low.extend(lbas.map(|lba| self.ledger.known(lba).acknowledged));
    }

    /// Looks at what a read has returned.
    pub fn check_read(&self, extent: Extent, low: &Low, buffer: &[u8]) -> Result<Checked, Fault> {
        let mut checked = Checked::default();
        let blocks = buffer.chunks_exact(self.block_size).zip(low);
        for ((block, &low), lba) in blocks.zip(extent.lba.0..) {
            match self.check_block(lba, low, block) {
                Ok(true) => checked.stamped += 1,
                Ok(false) => checked.open += 1,
                Err(mut fault) => {
                    if fault.kind == FaultKind::Lost {
                        self.look_around(&mut fault, block, extent, buffer);
                    }
                    return Err(fault);
                }
            }
        }
        Ok(checked)
    }

    /// Whether a block holds what it must; `false` where anything may be there.
    fn check_block(&self, lba: u64, low: u64, block: &[u8]) -> Result<bool, Fault> {
        let known = self.ledger.known(lba);
        let in_flux = known.highest() > low;
        let content = stamp::read(block);
        let fault = |kind, found: String| {
            let expected = self.expectation(low, known.highest());
            Fault {
                kind,
                lba,
                expected,
                found,
            }
        };
        match content {
            Content::Stamp(stamp) if self.is_ours(&stamp) => {
                let shown = show(&stamp, lba);
                if stamp.lba != lba {
                    Err(fault(FaultKind::Misplaced, shown))
                } else if stamp.generation > known.highest() {
                    Err(fault(FaultKind::Corrupt, shown))
                } else if stamp.generation < low {
                    Err(fault(older(stamp.generation, low, known), shown))
                } else {
                    self.ledger.saw(lba, stamp.generation);
                    Ok(true)
                }
            }
            Content::Damaged(stamp) if low > 0 || self.is_earlier(&stamp) => {
                if in_flux {
                    return Ok(false);
                }
                let (kind, found) = damage(&stamp, lba, low, block);
                Err(fault(kind, found))
            }
            Content::Stamp(stamp) if low == 0 && self.is_earlier(&stamp) => {
                if stamp.lba == lba {
                    Ok(true)
                } else {
                    Err(fault(FaultKind::Misplaced, show(&stamp, lba)))
                }
            }
            _ if low == 0 => Ok(false),
            Content::Stamp(stamp) => Err(fault(older(0, low, known), self.show_other(&stamp, lba))),
            Content::Zeros => Err(fault(FaultKind::Lost, "zeros".to_owned())),
            Content::Foreign | Content::Damaged(_) => {
                let start = hex(&block[..16]);
                let found = format!("data that no run has written, starting with {start}");
                Err(fault(FaultKind::Corrupt, found))
            }
        }
    }

    /// A lost block beside one that a later write has reached, which covered both: that write is
    /// torn.
    fn look_around(&self, fault: &mut Fault, lost: &[u8], extent: Extent, buffer: &[u8]) {
        let held = match stamp::read(lost) {
            Content::Stamp(stamp) if self.is_ours(&stamp) => stamp.write,
            _ => 0,
        };
        let blocks = buffer.chunks_exact(self.block_size).zip(extent.lba.0..);
        for (block, lba) in blocks {
            let Content::Stamp(stamp) = stamp::read(block) else {
                continue;
            };
            let is_whole = self.is_ours(&stamp) && stamp.lba == lba;
            if is_whole && stamp.write > held && stamp.write_covers(fault.lba) {
                fault.kind = FaultKind::Torn;
                fault.found += &format!(
                    ", while block {lba} of the same write of {} blocks has arrived",
                    stamp.of
                );
                return;
            }
        }
    }

    fn is_ours(&self, stamp: &Stamp) -> bool {
        stamp.seed == self.seed && stamp.run == self.run
    }

    fn is_earlier(&self, stamp: &Stamp) -> bool {
        self.earlier && stamp.seed == self.seed
    }

    fn expectation(&self, low: u64, high: u64) -> String {
        match (low, high) {
            (0, 0) => format!("a whole block of seed {}", self.seed),
            (0, high) => format!("up to generation {high}"),
            (low, high) if low == high => format!("generation {low}"),
            (low, high) => format!("generation {low} to {high}"),
        }
    }

    fn show_other(&self, stamp: &Stamp, lba: u64) -> String {
        let whose = if stamp.seed == self.seed {
            "an earlier run with this seed".to_owned()
        } else {
            format!("a run with seed {}", stamp.seed)
        };
        format!("{} of {whose}", show(stamp, lba))
    }
}

fn show(stamp: &Stamp, lba: u64) -> String {
    if stamp.lba == lba {
        format!("generation {}", stamp.generation)
    } else {
        format!("generation {} of block {}", stamp.generation, stamp.lba)
    }
}

/// What it is when a block has an older generation than the one acknowledged; 0 stands for what was
/// there before the run.
fn older(found: u64, low: u64, known: Known) -> FaultKind {
    if known.seen || found + 1 < low {
        FaultKind::Stale
    } else {
        FaultKind::Lost
    }
}

/// Where a block stops being what its stamp says, and what it is from there on.
fn damage(stamp: &Stamp, lba: u64, low: u64, block: &[u8]) -> (FaultKind, String) {
    let shown = show(stamp, lba);
    let Some(at) = stamp.first_difference(block) else {
        return (FaultKind::Corrupt, format!("{shown} with a wrong checksum"));
    };
    let candidates = [low, stamp.generation, low.saturating_sub(2)];
    let near = candidates
        .iter()
        .flat_map(|&middle| middle.saturating_sub(2)..=middle.saturating_add(2))
        .filter(|generation| *generation > 0 && *generation != stamp.generation);
    for generation in near {
        let other = Stamp {
            generation,
            ..*stamp
        };
        if at >= stamp::HEADER && other.holds_from(block, at) {
            let found = format!("{shown} up to byte {at} and generation {generation} behind it");
            return (FaultKind::Torn, found);
        }
    }
    if at >= stamp::HEADER && block[at..].iter().all(|byte| *byte == 0) {
        return (
            FaultKind::Torn,
            format!("{shown} up to byte {at} and zeros behind it"),
        );
    }
    let found = format!("{shown} that differs from byte {at} on");
    (FaultKind::Corrupt, found)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests;
