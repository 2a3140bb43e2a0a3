//! How long hosts wait for a snapshot of a large volume.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use longshore_pool::{POOL, Pool};
use longshore_volume::VolumeSpec;

use crate::driver::Driver;
use crate::load::{Content, OVERWRITE};

/// Bytes of the volume.
const SIZE: u64 = 1 << 40;

/// Blocks that are written to it before, all over it.
const WRITTEN: u64 = 200_000;

/// Writes at random places of a volume of a TiB, and snapshots meanwhile.
pub fn measure(pool: &Arc<Pool>, snapshots: usize) -> anyhow::Result<()> {
    let volume = pool.open_volume(&VolumeSpec {
        size: Some(SIZE),
        block_size: 4096,
        ..VolumeSpec::new("large", POOL)
    })?;
    let mut driver = Driver::new(Content::new(1))?;
    driver.repeat(&volume, &OVERWRITE, WRITTEN)?;
    println!(
        "snapshot  its call, ms  longest write within 1 s around it, ms  of the second before, ms"
    );
    for number in 0..snapshots {
        let calm = driver.run(&volume, &OVERWRITE, 1)?;
        let made: Rc<Cell<Option<Duration>>> = Rc::default();
        let (slot, of) = (made.clone(), pool.clone());
        driver.begin(move |io| async move {
            let begin = Instant::now();
            let result = of
                .snapshot(&io, &format!("at{number}"), &["large".into()])
                .await;
            if let Err(error) = result {
                eprintln!("no snapshot: {error}");
                return;
            }
            slot.set(Some(begin.elapsed()));
        });
        let around = driver.run(&volume, &OVERWRITE, 1)?;
        let call = made.get().context("no snapshot within a second")?;
        println!(
            "{number:>8} {:>13.1} {:>39.1} {:>25.1}",
            call.as_secs_f64() * 1e3,
            around.longest_micros / 1e3,
            calm.longest_micros / 1e3
        );
    }
    Ok(())
}
