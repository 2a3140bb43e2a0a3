//! Faults of the server that are planted, to see that the judge finds them.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context, Result};

use super::besieged::Besieged;
use super::ledger::Ledger;
use super::stamp::BLOCK;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A bit of a block changes behind the server.
    ChangedBlock,
    /// A block is as if its writes had never been made.
    LostWrite,
    /// The process ends without a word.
    Crash,
}

impl Plant {
    pub const ALL: [Self; 3] = [Self::ChangedBlock, Self::LostWrite, Self::Crash];

    pub fn name(self) -> &'static str {
        match self {
            Self::ChangedBlock => "changed-block",
            Self::LostWrite => "lost-write",
            Self::Crash => "crash",
        }
    }

    /// Plants it, while the server runs and hosts write elsewhere.
    pub fn put(self, besieged: &Besieged, path: &Path, ledgers: &[Mutex<Ledger>]) -> Result<()> {
        if self == Self::Crash {
            return Ok(besieged.signal("KILL")?);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .with_context(|| format!("open {}", path.display()))?;
        let ledger = ledgers.first().context("there are hosts")?;
        // Nobody begins a write meanwhile. One may be on its way here and replace what is planted, so there are several.
        let ledger = ledger.lock().expect("no panics");
        let range = ledger.range();
        for start in (0..range.count).step_by(64) {
            let Some(block) = ledger.known_write(start) else {
                continue;
            };
            let offset = block * u64::try_from(BLOCK)?;
            let mut bytes = vec![0; BLOCK];
            if self == Self::ChangedBlock {
                file.read_exact_at(&mut bytes, offset)?;
                bytes[BLOCK / 2] ^= 1;
            }
            file.write_all_at(&bytes, offset)?;
        }
        Ok(())
    }
}
