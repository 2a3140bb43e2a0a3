//! Faults on purpose: a campaign against the server, on both engines and both protocols, with well-behaved hosts beside it
//! that check every block.
//!
//! ```text
//!  plan ─► phase ─┬─► disturb: the fault at work ──► rude peers, relays, signals, disks, limits, clocks
//!   seed          ├─► hosts: iSCSI, NVMe/TCP, NVMe/TLS ─► ledger: what each block must hold
//!                 ├─► watch: ends that nobody asked for
//!                 └─► sweep: every block, through the server, and in the file while it is down
//!          report ◄─ phases
//! ```
//!
//! A fault of the server is a block that is lost or changed, an end that nobody asked for, a panic, or blocks that are not
//! served when the fault is over. Errors that hosts see while it lasts are counted and no fault.
//!
//! Whether the judge sees what it should is tried each time: before the campaign a changed block, a lost write and a crash
//! are [planted](plant), and must be found.

mod besieged;
mod clock;
mod configuration;
mod disturb;
mod host;
mod keeping;
mod ledger;
mod network;
mod peers;
mod phase;
mod plan;
mod plant;
mod report;
mod small_disk;
mod stamp;
mod sweep;
mod tally;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_tests::process::allow_many_files;
use longshore_tests::random::Random;

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::rotation::Part;
use crate::workspace;
use besieged::Besieged;
use clock::Clock;
use configuration::{Key, WAYS};
use keeping::Keeping;
use ledger::{Ledger, Run};
use phase::{Campaign, Store};
use plan::{Fault, Step};
use plant::Plant;
use report::Phase;
use small_disk::SmallDisk;

/// Blocks of each host.
const BLOCKS: u64 = 4096;

/// How long a phase with something planted takes.
const PLANTED: Duration = Duration::from_secs(2);

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let minutes = arguments.number("--minutes")?.unwrap_or(1);
    let seed = arguments.number("--seed")?;
    let report = arguments.value("--report")?;
    let only = arguments.value("--only")?;
    let keeping = Keeping::parse(arguments.value("--backend")?.as_deref())?;
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;
    let seed = seed.unwrap_or_else(Random::seed_from_clock);
    println!("siege: --seed {seed}");
    allow_many_files();
    let mut faults = faults(part, only.as_deref())?;
    faults.retain(|fault| keeping.knows(*fault));
    let steps = plan::steps(&faults, Duration::from_secs(minutes * 60), seed);
    let folder = workspace::work_folder("siege")?;
    let small = SmallDisk::mount(&folder.join("small"));
    // Planted behind the server, which a pool would notice.
    let campaign = campaign(&folder, small.as_ref(), seed, Keeping::File)?;
    let mut counts = Counts::default();
    for plant in Plant::ALL {
        counts += planted(&campaign, plant, seed)?;
    }
    // What was planted is gone with the file.
    drop(campaign);
    let campaign = self::campaign(&folder, small.as_ref(), seed, keeping)?;
    let begin = Instant::now();
    let mut phases: Vec<Phase> = Vec::new();
    for step in steps {
        let phase = campaign.phase(step, None)?;
        println!("{}", phase.text());
        counts += phase.counts();
        phases.push(phase);
    }
    let late = campaign.finish()?;
    if let Some(last) = phases.last_mut().filter(|_| !late.is_empty()) {
        println!("FAIL siege: {}", late.join("\n"));
        counts += Counts::FAILED;
        last.crashes.extend(late);
    }
    println!(
        "\nsiege of {} s, {}",
        begin.elapsed().as_secs(),
        report::text(&phases, seed)
    );
    if let Some(file) = report {
        write(Path::new(&file), &phases, seed)?;
    }
    Ok(counts)
}

fn faults(part: Part, only: Option<&str>) -> Result<Vec<Fault>> {
    let mut faults = Fault::ALL.to_vec();
    if let Some(only) = only {
        faults.retain(|fault| only.split(',').any(|name| name == fault.name()));
        if faults.is_empty() {
            let names = Fault::ALL.map(Fault::name).join(", ");
            bail!("no fault is called {only:?}; there are {names}");
        }
    }
    Ok(part.choose("siege", faults, |fault| fault.name().to_owned(), |_| false))
}

fn campaign(
    folder: &Path,
    small: Option<&SmallDisk>,
    seed: u64,
    keeping: Keeping,
) -> Result<Campaign> {
    let state = folder.join("state");
    if state.exists() {
        std::fs::remove_dir_all(&state)?;
    }
    std::fs::create_dir_all(&state)?;
    Ok(Campaign {
        besieged: Mutex::new(Besieged::new(workspace::server_program()?, state)),
        key: Key::make(folder, seed)?,
        disk: store(folder, seed, keeping)?,
        small: small
            .map(|disk| store(disk.path(), seed ^ 1, keeping))
            .transpose()?,
        clock: Clock::find(folder)?,
        connections: AtomicU64::new(0),
    })
}

/// A new file or pool that holds nothing yet.
fn store(folder: &Path, seed: u64, keeping: Keeping) -> Result<Store> {
    let path = folder.join("verified.img");
    if path.exists() {
        std::fs::remove_file(&path)?;
    }
    keeping.prepare(&path)?;
    let ledger = |first| {
        let count = BLOCKS;
        Mutex::new(Ledger::new(seed, Run { first, count }))
    };
    let ledgers: Vec<_> = (0..).step_by(4096).map(ledger).take(WAYS.len()).collect();
    Ok(Store {
        keeping,
        path,
        bytes: BLOCKS * 4096 * u64::try_from(WAYS.len())?,
        ledgers,
    })
}

/// A phase in which something is wrong, which has to fail for that reason.
fn planted(campaign: &Campaign, plant: Plant, seed: u64) -> Result<Counts> {
    let step = Step {
        fault: Fault::Calm,
        engine: plan::ENGINES[usize::from(plant == Plant::LostWrite)],
        length: PLANTED,
        seed,
    };
    let phase = campaign.phase(step, Some(plant))?;
    if phase.shows(plant) {
        println!("ok   siege: a planted {} is found", plant.name());
        return Ok(Counts::PASSED);
    }
    println!(
        "FAIL siege: a planted {} is not found\n{}",
        plant.name(),
        phase.text()
    );
    Ok(Counts::FAILED)
}

fn write(file: &Path, phases: &[Phase], seed: u64) -> Result<()> {
    let document = serde_json::to_string_pretty(&report::json(phases, seed))?;
    std::fs::write(file, document + "\n").with_context(|| format!("write {}", file.display()))
}
