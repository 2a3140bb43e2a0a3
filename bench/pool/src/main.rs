//! A volume of a pool beside a plain file on the same file system: operations a second and CPU time, interleaved, as
//! ratios of neighbouring runs. The volumes run on one event loop, without a protocol.
//!
//! ```text
//! longshore-pool-bench --directory /srv/bench --size-mib 1024 --seconds 2 --pairs 5
//! ```
#![forbid(unsafe_code)]

mod aged;
mod driver;
mod load;
mod pause;
mod recovery;
mod stored;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use longshore_pool::place::Codec;
use longshore_pool::{NewPool, POOL, Pool, PoolOptions};
use longshore_volume::{BackendName, Volume, VolumeSpec};

use aged::Aged;
use driver::{Driver, Figures};
use load::{Content, LOADS, Load};

/// A volume of a pool beside a plain file.
#[derive(Debug, Parser)]
#[command(name = "longshore-pool-bench", version)]
struct Arguments {
    /// Where the file and the drive of the pool are made, and removed afterwards.
    #[arg(long)]
    directory: PathBuf,
    /// Size of the volumes.
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// How many times as large the pool is.
    #[arg(long, default_value_t = 4)]
    times: u64,
    /// Write the pool's drive once before, as a pool has done that was used for a while: a file system converts extents
    /// at their first write.
    #[arg(long)]
    written: bool,
    /// The pool is a mirror of two files.
    #[arg(long)]
    mirror: bool,
    /// Memory for the maps of the pool.
    #[arg(long, default_value_t = 256)]
    maps_mib: u64,
    /// Length of a run.
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Runs of each of both, in turn.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Compress what is written.
    #[arg(long, conflicts_with = "zstd")]
    lz4: bool,
    /// Compress it with zstd.
    #[arg(long)]
    zstd: bool,
    /// Instead of all this, tell how small the files there become; repeatable.
    #[arg(long)]
    stored: Vec<PathBuf>,
    /// Measure random writes in a pool in long use instead: its volume takes this many percent of it.
    #[arg(long, conflicts_with_all = ["lz4", "zstd"])]
    aged: Option<u64>,
    /// With --aged: how many times the volume is overwritten before.
    #[arg(long, default_value_t = 5)]
    overwrites: u64,
    /// Measure how long writes wait for snapshots of a volume of a TiB instead: this many.
    #[arg(long)]
    snapshots: Option<usize>,
    /// Instead, kill a process that has written this many MiB, and measure how long the pool takes to open.
    #[arg(long)]
    recover_mib: Option<u64>,
    /// With --drive: the part of --recover-mib that is killed.
    #[arg(long, hide = true, requires = "drive")]
    write_until_killed: Option<u64>,
    #[arg(long, hide = true)]
    drive: Vec<PathBuf>,
    /// Loads whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    longshore_pool::set_map_memory(arguments.maps_mib << 20);
    let size = arguments.size_mib << 20;
    if let Some(mib) = arguments.write_until_killed {
        return recovery::write(&arguments.drive, size, mib);
    }
    let directory = tempfile::tempdir_in(&arguments.directory)?;
    let drive = directory.path().join("drive");
    if arguments.written {
        write_zeros(&drive, arguments.times * size)?;
    }
    let mut drives = vec![drive];
    if arguments.mirror {
        drives.push(directory.path().join("mirror"));
        if arguments.written {
            write_zeros(&drives[1], arguments.times * size)?;
        }
    }
    let pool = Pool::create(&NewPool {
        name: "bench".into(),
        drives: drives.clone(),
        size: Some(arguments.times * size),
        is_mirrored: arguments.mirror,
        is_direct: true,
        force: false,
    })?;
    if let Some(mib) = arguments.recover_mib {
        drop(pool);
        let same = [
            ("--size-mib", arguments.size_mib),
            ("--maps-mib", arguments.maps_mib),
            ("--write-until-killed", mib),
        ];
        return recovery::measure(&same, directory.path(), &drives);
    }
    if !arguments.stored.is_empty() {
        let most = usize::try_from(size)?;
        return stored::measure(&pool, &arguments.stored, most);
    }
    if let Some(percent) = arguments.aged {
        let aged = Aged {
            percent,
            overwrites: arguments.overwrites,
            pairs: arguments.pairs,
            seconds: arguments.seconds,
        };
        return aged::measure(&pool, directory.path(), aged);
    }
    if let Some(snapshots) = arguments.snapshots {
        return pause::measure(&pool, snapshots);
    }
    let plain = plain_volume(directory.path(), size)?;
    let codec = match (arguments.lz4, arguments.zstd) {
        (true, _) => Codec::Lz4,
        (false, true) => Codec::Zstd,
        (false, false) => Codec::Raw,
    };
    let packed = pool.open_volume(&VolumeSpec {
        size: Some(size),
        block_size: 4096,
        options: Some(Arc::new(PoolOptions {
            compression: Some(codec),
            ..PoolOptions::default()
        })),
        ..VolumeSpec::new("packed", POOL)
    })?;
    let mut driver = Driver::new(Content::new(if codec == Codec::Raw { 1 } else { 2 }))?;
    for volume in [&plain, &packed] {
        driver.fill(volume)?;
    }
    println!(
        "load                            file IOPS   pool IOPS   ratio (all)                 file CPU us  pool CPU us"
    );
    let wanted = LOADS
        .iter()
        .filter(|load| load.name.contains(&arguments.only));
    for load in wanted {
        let mut rows = Vec::new();
        for pair in 0..arguments.pairs {
            let beside = if load.after_snapshot { &packed } else { &plain };
            let before = driver.run(beside, load, arguments.seconds)?;
            if load.after_snapshot {
                snapshot(&mut driver, &pool, pair)?;
            }
            let pool = driver.run(&packed, load, arguments.seconds)?;
            rows.push((before, pool));
        }
        print(load, &rows);
        if load.after_snapshot {
            delete_snapshots(&mut driver, &pool, arguments.pairs)?;
        }
    }
    let usage = pool.usage();
    println!(
        "stored {} MiB of {} MiB written; records took {} MiB; maps {} KiB",
        usage.used >> 20,
        usage.host_bytes >> 20,
        usage.record_bytes >> 20,
        usage.map_bytes >> 10
    );
    Ok(())
}

/// The file that the pool is measured beside.
fn plain_volume(directory: &Path, size: u64) -> anyhow::Result<Arc<dyn Volume>> {
    Ok(longshore_volume::open(&VolumeSpec {
        path: Some(directory.join("plain")),
        size: Some(size),
        block_size: 4096,
        direct: true,
        ..VolumeSpec::new("plain", BackendName::FILE)
    })?)
}

fn write_zeros(path: &Path, bytes: u64) -> anyhow::Result<()> {
    let file = std::fs::File::create_new(path)?;
    let zeros = vec![0; 1 << 20];
    for place in 0..bytes >> 20 {
        std::os::unix::fs::FileExt::write_all_at(&file, &zeros, place << 20)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Makes the snapshot of a pair. Those before stay: what they hold is not cleaned meanwhile.
fn snapshot(driver: &mut Driver, pool: &Arc<Pool>, pair: usize) -> anyhow::Result<()> {
    let pool = pool.clone();
    driver.wait_for(move |io| async move {
        pool.snapshot(&io, &format!("pair{pair}"), &["packed".into()])
            .await
    })??;
    Ok(())
}

fn delete_snapshots(driver: &mut Driver, pool: &Arc<Pool>, pairs: usize) -> anyhow::Result<()> {
    for pair in 0..pairs {
        let pool = pool.clone();
        driver.wait_for(move |io| async move {
            pool.delete_snapshot(&io, "packed", &format!("pair{pair}"))
                .await
        })??;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The pool's operations for each of the file's: the median, the lowest and the highest.
fn ratios(rows: &[(Figures, Figures)]) -> String {
    let ratio = |(file, pool): &(Figures, Figures)| pool.iops / file.iops;
    let mut ratios: Vec<f64> = rows.iter().map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    format!("{:.2} ({lowest:.2} to {highest:.2})", median(ratios))
}

fn print(load: &Load, rows: &[(Figures, Figures)]) {
    let column = |value: fn(&(Figures, Figures)) -> f64| median(rows.iter().map(value).collect());
    println!(
        "{:<30} {:>10.0} {:>11.0}   {:>21} {:>18.1} {:>12.1}",
        load.name,
        column(|(file, _)| file.iops),
        column(|(_, pool)| pool.iops),
        ratios(rows),
        column(|(file, _)| file.cpu_micros),
        column(|(_, pool)| pool.cpu_micros),
    );
}
