//! A pool that has long been in use: its volume takes a part of it, and was overwritten several times, so that space is
//! gained back as fast as it is written to.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use longshore_pool::{POOL, Pool};
use longshore_volume::VolumeSpec;

use crate::driver::{Driver, Figures, drive_bytes};
use crate::load::{Content, Load, OVERWRITE, Spread};
use crate::{median, plain_volume, ratios};

/// How a pool is aged, and how long it is measured.
#[derive(Clone, Copy, Debug)]
pub struct Aged {
    /// Of the pool, what the volume takes.
    pub percent: u64,
    /// How often each of its blocks is overwritten before, on average.
    pub overwrites: u64,
    pub pairs: usize,
    pub seconds: u64,
}

/// Overwrites the volume, then measures beside a plain file of the same size.
pub fn measure(pool: &Arc<Pool>, directory: &Path, aged: Aged) -> anyhow::Result<()> {
    let size = (pool.usage().size / 100 * aged.percent) >> 20 << 20;
    let plain = plain_volume(directory, size)?;
    let packed = pool.open_volume(&VolumeSpec {
        size: Some(size),
        block_size: 4096,
        ..VolumeSpec::new("packed", POOL)
    })?;
    let mut driver = Driver::new(Content::new(1))?;
    for volume in [&plain, &packed] {
        driver.fill(volume)?;
    }
    println!(
        "{} MiB of {} MiB are live\n\
         load                              ratio of IOPS (all)   p99.9 us: file, pool   written per byte, records",
        size >> 20,
        pool.usage().size >> 20
    );
    for spread in [Spread::Even, Spread::Skewed] {
        let load = Load {
            spread,
            name: match spread {
                Spread::Even => "random write 4 KiB QD 32",
                Spread::Skewed => "the same, 90 % to a tenth",
            },
            ..OVERWRITE
        };
        driver.repeat(&packed, &load, aged.overwrites * (size / 4096))?;
        let mut rows = Vec::new();
        let (before, usage) = (drive_bytes()?, pool.usage());
        let mut of_file = 0;
        for _ in 0..aged.pairs {
            let before = drive_bytes()?;
            let file = driver.run(&plain, &load, aged.seconds)?;
            of_file += drive_bytes()? - before;
            rows.push((file, driver.run(&packed, &load, aged.seconds)?));
        }
        let written = drive_bytes()? - before - of_file;
        let after = pool.usage();
        let hosts = after.host_bytes - usage.host_bytes;
        let records = after.record_bytes - usage.record_bytes;
        print(
            &load,
            &rows,
            (ratio(written, hosts)?, ratio(records, hosts)?),
        );
    }
    Ok(())
}

fn print(load: &Load, rows: &[(Figures, Figures)], (written, records): (f64, f64)) {
    let column = |of: fn(&(Figures, Figures)) -> f64| median(rows.iter().map(of).collect());
    println!(
        "{:<30} {:>6.0} {:>6.0} {:>24} {:>13.0} {:>6.0} {:>18.2} {:>9.2}",
        load.name,
        column(|(file, _)| file.iops),
        column(|(_, pool)| pool.iops),
        ratios(rows),
        column(|(file, _)| file.slowest_micros),
        column(|(_, pool)| pool.slowest_micros),
        written,
        records,
    );
}

/// How many times one is of the other.
fn ratio(all: u64, part: u64) -> anyhow::Result<f64> {
    let pages = |bytes: u64| u32::try_from(bytes >> 12).context("too much");
    Ok(f64::from(pages(all)?) / f64::from(pages(part)?.max(1)))
}
