//! How long a pool takes to open after its process was killed, and after a clean end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use longshore_pool::{POOL, Pool};
use longshore_volume::VolumeSpec;

use crate::driver::Driver;
use crate::load::{Content, OVERWRITE};

/// What the process that is to be killed says when it has written everything.
const WRITTEN: &str = "written";

/// Makes a process with these arguments write to a volume until it is killed, and opens the pool.
pub fn measure(
    arguments: &[(&str, u64)],
    directory: &Path,
    drives: &[PathBuf],
) -> anyhow::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--directory").arg(directory);
    for (name, value) in arguments {
        command.arg(name).arg(value.to_string());
    }
    for drive in drives {
        command.arg("--drive").arg(drive);
    }
    let mut writer = command.stdout(Stdio::piped()).spawn()?;
    let output = writer.stdout.take().context("a pipe")?;
    let said = BufReader::new(output).lines().next();
    writer.kill()?;
    writer.wait()?;
    if said.transpose()?.as_deref() != Some(WRITTEN) {
        bail!("the process that writes has failed");
    }
    println!("opened after       seconds");
    open("kill -9", drives)?.close()?;
    open("a clean end", drives)?.close()?;
    Ok(())
}

fn open(after: &str, drives: &[PathBuf]) -> anyhow::Result<Arc<Pool>> {
    let begin = Instant::now();
    let pool = Pool::open(drives, true, false)?;
    println!("{after:<16} {:>9.2}", begin.elapsed().as_secs_f64());
    Ok(pool)
}

/// Writes, and waits to be killed.
pub fn write(drives: &[PathBuf], size: u64, mib: u64) -> anyhow::Result<()> {
    let pool = Pool::open(drives, true, false)?;
    let volume = pool.open_volume(&VolumeSpec {
        size: Some(size),
        block_size: 4096,
        ..VolumeSpec::new("packed", POOL)
    })?;
    let mut driver = Driver::new(Content::new(1))?;
    driver.attach(&volume);
    driver.repeat(&volume, &OVERWRITE, mib << 8)?;
    println!("{WRITTEN}");
    loop {
        std::thread::park();
    }
}
