//! A wall clock that jumps, for the server alone: libfaketime looks at a file for how far it is off.
//!
//! Monotonic clocks, on which timers hang, do not jump on Linux, and do not here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use longshore_tests::random::Random;

/// Where Debian has the library for programs with threads.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Days that it may be off, in either direction.
const DAYS: u64 = 4000;

pub struct Clock {
    file: PathBuf,
}

impl Clock {
    /// None where there is no libfaketime.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        if !Path::new(LIBRARY).exists() {
            return Ok(None);
        }
        let file = folder.join("clock");
        fs::write(&file, "+0\n")?;
        Ok(Some(Self { file }))
    }

    /// The words below which a server has this clock.
    pub fn below(&self) -> Vec<String> {
        let file = format!("FAKETIME_TIMESTAMP_FILE={}", self.file.display());
        let library = format!("LD_PRELOAD={LIBRARY}");
        let words = [
            "env",
            &library,
            &file,
            "FAKETIME_CACHE_DURATION=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Moves it to another time, years before or behind the true one, or by a second.
    pub fn jump(&self, random: &mut Random) -> Result<()> {
        let sign = if random.below(2) == 0 { '-' } else { '+' };
        let seconds = match random.below(3) {
            0 => 1,
            1 => random.below(86_400),
            _ => random.below(DAYS * 86_400),
        };
        // At once, so that nobody reads half of it.
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{sign}{seconds}\n"))?;
        Ok(fs::rename(&next, &self.file)?)
    }
}
