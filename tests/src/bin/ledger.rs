//! `ledger write` fills a device in generations and prints each one when it is durable;
//! `ledger check` proves that a device holds all that was acknowledged, `ledger shared` that each
//! block of a device with two writers is one of theirs. See [`longshore_tests::ledger`].
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use longshore_tests::ledger::{BLOCK, Ledger, aligned, check_shared};

const USAGE: &str = "\
usage: ledger write --device PATH --seed N --blocks N --seconds N [--durability flush|fua|none]
       ledger check --device PATH --seed N --blocks N --acknowledged N [--ahead N]
       ledger shared --device PATH --blocks N --seed N --acknowledged N \
           --other-seed N --other-acknowledged N";

/// Flags of open(2), as on all architectures that guests of ours have.
const O_DIRECT: i32 = 0o40000;
const O_DSYNC: i32 = 0o10000;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let words: Vec<String> = words.collect();
    let options: BTreeMap<&str, &str> = words
        .chunks_exact(2)
        .map(|pair| (pair[0].as_str(), pair[1].as_str()))
        .collect();
    let result = match verb.as_str() {
        "write" => write(&options),
        "check" => check(&options),
        "shared" => shared(&options),
        _ => Err(io::Error::other(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ledger: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(options: &BTreeMap<&str, &str>) -> io::Result<()> {
    let ledger = ledger(options)?;
    let (flags, flushes) = match options.get("--durability") {
        Some(&"fua") => (O_DIRECT | O_DSYNC, false),
        // The device promises that a completed write is on the medium.
        Some(&"none") => (O_DIRECT, false),
        _ => (O_DIRECT, true),
    };
    let device = open(options, flags)?;
    let end = Instant::now() + Duration::from_secs(number(options, "--seconds")?);
    let mut bytes = aligned(BLOCK);
    let mut report = io::stdout();
    for generation in 1.. {
        for block in ledger.blocks_of(generation) {
            ledger.contents(block, generation, bytes.bytes());
            device.write_all_at(bytes.bytes(), offset(block))?;
        }
        if flushes {
            device.sync_data()?;
        }
        writeln!(report, "acknowledged {generation}")?;
        report.flush()?;
        if Instant::now() > end {
            break;
        }
    }
    Ok(())
}

fn check(options: &BTreeMap<&str, &str>) -> io::Result<()> {
    let device = open(options, O_DIRECT)?;
    let acknowledged = number(options, "--acknowledged")?;
    let checked = ledger(options)?.check(acknowledged, |block, bytes| {
        device.read_exact_at(bytes, offset(block))
    })?;
    println!(
        "{acknowledged} generations: {} blocks intact, {} undecided",
        checked.intact, checked.undecided
    );
    Ok(())
}

fn shared(options: &BTreeMap<&str, &str>) -> io::Result<()> {
    let device = open(options, O_DIRECT)?;
    let one = ledger(options)?;
    let other = Ledger {
        seed: number(options, "--other-seed")?,
        ..one
    };
    let writers = [
        (one, number(options, "--acknowledged")?),
        (other, number(options, "--other-acknowledged")?),
    ];
    let counts = check_shared(&writers, |block, bytes| {
        device.read_exact_at(bytes, offset(block))
    })?;
    println!("blocks of each writer: {counts:?}");
    Ok(())
}

fn ledger(options: &BTreeMap<&str, &str>) -> io::Result<Ledger> {
    let ahead = if options.contains_key("--ahead") {
        number(options, "--ahead")?
    } else {
        1
    };
    Ok(Ledger {
        seed: number(options, "--seed")?,
        blocks: number(options, "--blocks")?,
        ahead,
    })
}

fn open(options: &BTreeMap<&str, &str>, flags: i32) -> io::Result<File> {
    let path = text(options, "--device")?;
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| io::Error::other(format!("open {path}: {error}")))
}

fn offset(block: u64) -> u64 {
    block * u64::try_from(BLOCK).expect("a block is small")
}

fn number(options: &BTreeMap<&str, &str>, name: &str) -> io::Result<u64> {
    text(options, name)?
        .parse()
        .map_err(|_| io::Error::other(format!("{name}: not a number")))
}

fn text<'a>(options: &BTreeMap<&str, &'a str>, name: &str) -> io::Result<&'a str> {
    options
        .get(name)
        .copied()
        .ok_or_else(|| io::Error::other(format!("{name} is missing\n{USAGE}")))
}
