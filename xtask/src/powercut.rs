//! The power fails while the server writes: everything acknowledged is found afterwards.
//!
//! The server runs *inside* a guest, on a disk with a volatile cache ([`VolatileDisk`]), and the
//! guest's own kernel is its initiator. A writer reports each generation of the [`Ledger`] that
//! was acknowledged. At a random moment QEMU is killed, so that server, page cache and everything
//! else in the guest are gone at once, and the disk then loses a random half of the sectors that
//! it was not told to flush. A server that answers a flush or a FUA write too early fails this in
//! two ways: by data in its own page cache, and by data in the cache of the disk.
//!
//! Runs with the block device served as it is (`block`) are checked on the medium by the host; with a file on
//! ext4 (`file`) or a volume of a pool on the disk (`pool`), a second boot with the same disk replays what there is of
//! journals, starts the server anew and checks through the initiator. A pool is then checked as a whole. A pool of a
//! mirror (`mirror`) lies on two disks, of which each loses another half; the second boot has both, or only one.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_tests::ledger::{BLOCK, Ledger};
use longshore_tests::random::Random;

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::rotation::Part;
use crate::vm::disk::VolatileDisk;
use crate::vm::guest::{Guest, Machine, Message};
use crate::vm::image;
use crate::vm::kernel::{Flavour, Kernel};
use crate::vm::system::System;
use crate::workspace;

const DISK_SIZE: usize = 128 << 20;
const BLOCKS: u64 = 1024;
/// Reports of so many generations may be on their way through the serial line at the cut.
const AHEAD: u64 = 16;
const MEMORY: u32 = 768;
const WATCHDOG: Duration = Duration::from_secs(450);

#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Backend under test: `block`, `file`, `pool` or `mirror`.
    backend: &'static str,
    /// `flush`, `fua` or `none`.
    durability: &'static str,
    /// Options of the volume behind its path.
    options: &'static str,
    /// Whether the disk does what flushes and FUA ask for. The check must find out when it does
    /// not, or it would not find out about a server either.
    honest: bool,
}

const CUTS: &[Cut] = &[
    Cut {
        backend: "block",
        durability: "flush",
        options: "",
        honest: true,
    },
    Cut {
        backend: "block",
        durability: "fua",
        options: "",
        honest: true,
    },
    Cut {
        backend: "block",
        durability: "fua",
        options: ",direct",
        honest: true,
    },
    Cut {
        backend: "file",
        durability: "flush",
        options: "",
        honest: true,
    },
    Cut {
        backend: "file",
        durability: "fua",
        options: "",
        honest: true,
    },
    // Nothing is asked for but writes.
    Cut {
        backend: "block",
        durability: "none",
        options: ",write-through",
        honest: true,
    },
    Cut {
        backend: "file",
        durability: "none",
        options: ",write-through",
        honest: true,
    },
    Cut {
        backend: "pool",
        durability: "flush",
        options: "",
        honest: true,
    },
    Cut {
        backend: "pool",
        durability: "fua",
        options: ",compression=lz4",
        honest: true,
    },
    Cut {
        backend: "pool",
        durability: "none",
        options: ",write-through,block-size=4096",
        honest: true,
    },
    Cut {
        backend: "mirror",
        durability: "flush",
        options: "",
        honest: true,
    },
    Cut {
        backend: "mirror",
        durability: "fua",
        options: "",
        honest: true,
    },
    Cut {
        backend: "block",
        durability: "flush",
        options: "",
        honest: false,
    },
    Cut {
        backend: "pool",
        durability: "flush",
        options: "",
        honest: false,
    },
];

impl Cut {
    fn name(self) -> String {
        let options = self.options.replace(',', "-");
        let control = if self.honest { "" } else { "-on-a-lying-disk" };
        format!("{}-{}{options}{control}", self.backend, self.durability)
    }
}

/// What all boots of a cut share.
struct Bench<'a> {
    kernel: &'a Kernel,
    base: &'a [u8],
    folder: &'a Path,
}

/// Before or after the cut.
enum Phase {
    Write,
    Check { acknowledged: u64 },
}

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let only = arguments.value("--only")?;
    let rounds = arguments.number("--rounds")?.unwrap_or(1);
    let seed = arguments
        .number("--seed")?
        .unwrap_or_else(Random::seed_from_clock);
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;
    let kernel = Kernel::prepare(Flavour::Cloud)?;
    let server = workspace::server_program()?;
    let ledger = workspace::build_for_tests("ledger")?;
    let base = image::base(
        &kernel,
        System::Host,
        &[&image::INITIATOR],
        &[server, ledger],
    )?;
    let is_wanted = |cut: &Cut| {
        only.as_ref()
            .is_none_or(|only| cut.name().contains(only.as_str()))
    };
    let cuts = CUTS.iter().copied().filter(is_wanted).collect();
    let cuts = part.choose("powercut", cuts, |cut| cut.name(), |_| false);
    let mut counts = Counts::default();
    for round in 0..rounds {
        for cut in &cuts {
            let seed = seed.wrapping_add(round);
            let started = Instant::now();
            match cut.run(&kernel, &base, seed) {
                Ok(summary) => {
                    println!(
                        "ok   powercut {}: {summary} in {:.1?}",
                        cut.name(),
                        started.elapsed()
                    );
                    counts += Counts::PASSED;
                }
                Err(error) => {
                    println!("FAIL powercut {} --seed {seed}: {error:#}", cut.name());
                    counts += Counts::FAILED;
                }
            }
        }
    }
    Ok(counts)
}

impl Cut {
    fn run(self, kernel: &Kernel, base: &[u8], seed: u64) -> Result<String> {
        let folder = workspace::work_folder(&format!("powercut/{}", self.name()))?;
        let disks = self.disks(&folder)?;
        let mut random = Random::new(seed);
        let ledger = Ledger {
            seed: random.below(1 << 32),
            blocks: BLOCKS,
            ahead: AHEAD,
        };

        let bench = Bench {
            kernel,
            base,
            folder: &folder,
        };
        let mut guest = self.boot(&bench, &disks, ledger, Phase::Write)?;
        let acknowledged = match write_until_cut(&mut guest, &mut random) {
            Ok(acknowledged) => acknowledged,
            Err(error) => bail!("{error:#}\n--- console\n{}", guest.console()),
        };
        let acknowledged = guest.kill()?.unwrap_or(0).max(acknowledged);
        let asked = disks[0].statistics();
        let (mut lost, mut kept) = (0, 0);
        for disk in &disks {
            let of_disk = disk.cut_power(&mut random);
            (lost, kept) = (lost + of_disk.0, kept + of_disk.1);
        }
        // Both sides of a mirror, or either.
        let (first, count) = match disks.len() {
            1 => (0, 1),
            _ => [(0, 2), (0, 1), (1, 1)][usize::try_from(random.below(3)).expect("below 3")],
        };
        let left = &disks[first..first + count];

        let found = if self.backend == "block" {
            let checked = ledger.check(acknowledged, |block, bytes| {
                disks[0].read(usize::try_from(block).expect("small") * BLOCK, bytes);
                Ok(())
            });
            match (checked, self.honest) {
                (Ok(checked), true) => format!("{} blocks intact", checked.intact),
                (Err(error), true) => return Err(error.into()),
                (Ok(_), false) => bail!("the check did not notice that flushes were ignored"),
                (Err(error), false) => format!("noticed: {error}"),
            }
        } else {
            let mut guest = self.boot(&bench, left, ledger, Phase::Check { acknowledged })?;
            match (verdict(&mut guest), self.honest) {
                (Ok(()), true) if left.len() < disks.len() => {
                    format!("all intact after a new start with side {first} alone")
                }
                (Ok(()), true) => "all intact after a new start".to_owned(),
                (Err(error), true) => bail!("{error:#}\n--- console\n{}", guest.console()),
                (Ok(()), false) => bail!("the check did not notice that flushes were ignored"),
                (Err(error), false) => format!("noticed: {error}"),
            }
        };
        Ok(format!(
            "{acknowledged} generations acknowledged, {found} ({} writes, {} with FUA, {} flushes; \
             {lost} sectors lost, {kept} kept)",
            asked.writes, asked.fua_writes, asked.flushes
        ))
    }

    fn disks(self, folder: &Path) -> Result<Vec<VolatileDisk>> {
        let names: &[&str] = match self.backend {
            "mirror" => &["one", "other"],
            _ => &["disk"],
        };
        let start = |name: &&str| VolatileDisk::start(folder, name, DISK_SIZE, self.honest);
        names.iter().map(start).collect()
    }

    fn boot(
        self,
        bench: &Bench<'_>,
        disks: &[VolatileDisk],
        ledger: Ledger,
        phase: Phase,
    ) -> Result<Guest> {
        let (phase, acknowledged) = match phase {
            Phase::Write => ("write", 0),
            Phase::Check { acknowledged } => ("check", acknowledged),
        };
        let settings = [
            ("TARGET", longshore_tests::server::TARGET.to_owned()),
            ("WATCHDOG", WATCHDOG.as_secs().to_string()),
            ("PHASE", phase.to_owned()),
            ("BACKEND", self.backend.to_owned()),
            ("DISKS", disks.len().to_string()),
            ("OPTIONS", self.options.to_owned()),
            ("DURABILITY", self.durability.to_owned()),
            ("SEED", ledger.seed.to_string()),
            ("BLOCKS", ledger.blocks.to_string()),
            ("AHEAD", ledger.ahead.to_string()),
            ("ACKNOWLEDGED", acknowledged.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        let script = workspace::root().join("tests/powercut/job.sh");
        let job = image::job(&script, &settings)?;
        let drives: Vec<_> = disks.iter().map(VolatileDisk::drive).collect();
        let machine = Machine {
            kernel: bench.kernel,
            image: [bench.base, &job],
            forwards: &[],
            drives: &drives,
            memory: MEMORY,
            processors: 1,
            kernel_words: "",
            watchdog: WATCHDOG,
            folder: bench.folder,
        };
        machine.start()
    }
}

/// Lets the guest write for a random while; the last generation it reported.
fn write_until_cut(guest: &mut Guest, random: &mut Random) -> Result<u64> {
    let mut acknowledged = 0;
    let mut cut_at = None;
    loop {
        let Some(message) = guest.next(cut_at) else {
            return Ok(acknowledged);
        };
        match message {
            Message::Acknowledged(generation) => {
                acknowledged = generation;
                // The clock of the cut starts with the first generation.
                cut_at.get_or_insert_with(|| {
                    Instant::now() + Duration::from_millis(2_000 + random.below(3_000))
                });
            }
            Message::Log(text) => println!("     powercut: {text}"),
            Message::Check(check, Err(why)) => bail!("{check}: {why}"),
            Message::Check(_, Ok(())) | Message::Ask(_) => {}
            Message::Verdict(_) => bail!("the job ended before the cut"),
            Message::Ended(why) => bail!("{why}"),
        }
    }
}

fn verdict(guest: &mut Guest) -> Result<()> {
    let mut passed = 0;
    loop {
        match guest
            .next(None)
            .context("without a limit of ours there is a message")?
        {
            Message::Check(check, Err(why)) => bail!("{check}: {why}"),
            Message::Check(_, Ok(())) => passed += 1,
            Message::Verdict(Ok(())) if passed > 0 => return Ok(()),
            Message::Verdict(Ok(())) => bail!("nothing was checked"),
            Message::Verdict(Err(why)) | Message::Ended(why) => bail!("{why}"),
            Message::Log(text) => println!("     powercut: {text}"),
            Message::Acknowledged(_) | Message::Ask(_) => {}
        }
    }
}
