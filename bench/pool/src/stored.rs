//! How small files become in a pool: what their data takes there, and what all records took to write it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use longshore_pool::place::Codec;
use longshore_pool::{POOL, Pool, PoolOptions};
use longshore_volume::VolumeSpec;

use crate::driver::Driver;
use crate::load::Content;

const PAGE: usize = 4096;

/// Bytes of a write.
const WRITES: [usize; 2] = [4 << 10, 64 << 10];

/// Writes the files below each path, and random bytes, to volumes of all compressions.
pub fn measure(pool: &Arc<Pool>, paths: &[PathBuf], most: usize) -> anyhow::Result<()> {
    println!(
        "content                         MiB  write KiB  codec  smaller by  records, %  CPU us"
    );
    for path in paths {
        let mut content = Vec::new();
        collect(path, most, &mut content).with_context(|| path.display().to_string())?;
        measure_content(pool, &path.display().to_string(), &content)?;
    }
    let random = Content::new(1);
    let random: Vec<u8> = (0_u64..)
        .step_by(256)
        .take(most.min(256 << 20) >> 20)
        .flat_map(|place| random.slice(place, 1 << 20).to_vec())
        .collect();
    measure_content(pool, "random", &random)
}

fn measure_content(pool: &Arc<Pool>, name: &str, content: &[u8]) -> anyhow::Result<()> {
    for bytes in WRITES {
        let content = &content[..content.len() / bytes * bytes];
        for (word, codec) in [
            ("none", Codec::Raw),
            ("lz4", Codec::Lz4),
            ("zstd", Codec::Zstd),
        ] {
            let mut driver = Driver::new(Content::new(1))?;
            let volume = pool.open_volume(&VolumeSpec {
                size: Some(u64::try_from(content.len())?),
                block_size: 4096,
                options: Some(Arc::new(PoolOptions {
                    compression: Some(codec),
                    ..PoolOptions::default()
                })),
                ..VolumeSpec::new("stored", POOL)
            })?;
            let before = pool.usage();
            let figures = driver.write(&volume, content.to_vec(), bytes)?;
            let after = pool.usage();
            let (stored, records) = (
                after.used - before.used,
                after.record_bytes - before.record_bytes,
            );
            println!(
                "{name:<30} {:>4} {:>10}  {word:<5} {:>11.2} {:>11.1} {:>7.1}",
                content.len() >> 20,
                bytes >> 10,
                parts(content.len(), stored)?,
                100.0 / parts(content.len(), records)?,
                figures.cpu_micros,
            );
            drop(volume);
            pool.run(|pool, io| async move { pool.delete_volume(&io, "stored").await })?;
        }
    }
    Ok(())
}

/// How many times one is of the other.
fn parts(all: usize, part: u64) -> anyhow::Result<f64> {
    let kib = |bytes: u64| u32::try_from(bytes >> 10).context("too much");
    Ok(f64::from(kib(u64::try_from(all)?)?) / f64::from(kib(part)?.max(1)))
}

/// Reads a file, or the files of a folder one after the other, up to a number of bytes. Each is filled up to whole pages.
fn collect(path: &Path, most: usize, into: &mut Vec<u8>) -> anyhow::Result<()> {
    let found = path.symlink_metadata()?;
    if found.is_dir() {
        let entries = std::fs::read_dir(path)?;
        let mut paths = entries
            .map(|entry| Ok(entry?.path()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            collect(&path, most, into)?;
        }
    } else if found.is_file() && into.len() < most {
        into.extend_from_slice(&std::fs::read(path)?);
        into.resize(into.len().next_multiple_of(PAGE).min(most), 0);
    }
    Ok(())
}
