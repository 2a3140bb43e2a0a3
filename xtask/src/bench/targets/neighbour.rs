//! A process that wants the server's processor for itself.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::bench::server::{SERVER_CORE, pinned};

/// Spins on the server's processor until this value goes away.
#[derive(Debug)]
pub struct Neighbour(Child);

impl Neighbour {
    pub fn start() -> Result<Self> {
        let mut words = pinned(SERVER_CORE);
        // The shell neither sleeps nor makes system calls in this loop.
        words.extend(["sh", "-c", "while :; do :; done"].map(str::to_owned));
        let child = Command::new(&words[0])
            .args(&words[1..])
            .stdin(Stdio::null())
            .spawn();
        Ok(Self(child.context("start a busy process")?))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It has not ended by itself, so both succeed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
