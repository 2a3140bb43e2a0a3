//! One phase: a fault at work, and well-behaved hosts beside it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longshore_tests::random::Random;

use super::besieged::{Besieged, Start};
use super::clock::Clock;
use super::configuration::{self, Key, Served, WAYS};
use super::disturb::{Disturbance, Disturbed};
use super::host::{self, Load};
use super::keeping::Keeping;
use super::ledger::Ledger;
use super::network::Network;
use super::peers::Peers;
use super::plan::{Fault, Step};
use super::plant::Plant;
use super::report::{HostReport, Phase};
use super::sweep;

/// How often the server is looked after.
const WATCH: Duration = Duration::from_millis(50);

/// Within this time hosts have written what can be lost.
const PLANT_LIMIT: Duration = Duration::from_secs(120);

/// What a disk that is slow takes for each operation, and how fast it moves bytes.
const SLOW_DISK: &str = "delay = \"25ms\"\nrate = \"40M\"";

/// A file behind the volume, and what it must hold.
pub struct Store {
    pub keeping: Keeping,
    pub path: PathBuf,
    pub bytes: u64,
    /// One for each host.
    pub ledgers: Vec<Mutex<Ledger>>,
}

impl Store {
    /// Whether the first host has written enough for something planted to show.
    fn is_written(&self) -> bool {
        let ledger = self.ledgers.first().map(|it| it.lock().expect("no panics"));
        ledger.is_some_and(|it| it.acknowledged_blocks >= 64)
    }
}

/// What all phases of a campaign share.
pub struct Campaign {
    pub besieged: Mutex<Besieged>,
    pub key: Key,
    pub disk: Store,
    /// On a file system that has less room than its volume; none where none can be made.
    pub small: Option<Store>,
    pub clock: Option<Clock>,
    pub connections: AtomicU64,
}

impl Campaign {
    /// Runs a phase. `plant` is something wrong that the judge has to find.
    pub fn phase(&self, step: Step, plant: Option<Plant>) -> Result<Phase> {
        let Some(store) = self.store(step.fault) else {
            let why = "no file system can be mounted here";
            return Ok(Phase::skipped(step, why.to_owned()));
        };
        if step.fault == Fault::Clock && self.clock.is_none() {
            let why = "there is no libfaketime, of the Debian package faketime";
            return Ok(Phase::skipped(step, why.to_owned()));
        }
        let (iscsi, nvme) = {
            let mut besieged = self.besieged();
            besieged.begin(self.start(step, store))?;
            // Of servers before this one nothing is under way.
            for ledger in &store.ledgers {
                ledger.lock().expect("no panics").release(u64::MAX);
            }
            besieged.restarts = 0;
            (besieged.iscsi, besieged.nvme)
        };
        let network = match step.fault.needs_network() {
            true => Some(Network::start(iscsi, nvme, step.seed)?),
            false => None,
        };
        let faults_end = AtomicBool::new(false);
        let hosts_end = AtomicBool::new(false);
        let disturbance = Disturbance {
            besieged: &self.besieged,
            ledgers: &store.ledgers,
            path: &store.path,
            keeping: store.keeping,
            peers: Peers {
                iscsi,
                nvme,
                stop: &faults_end,
            },
            network: network.as_ref(),
            clock: self.clock.as_ref(),
            stop: &faults_end,
        };
        let (hosts, disturbed) = std::thread::scope(|scope| {
            let hosts: Vec<_> = (0_u64..)
                .zip(WAYS)
                .zip(&store.ledgers)
                .map(|((number, way), ledger)| {
                    let relays = network.as_ref();
                    let url = match relays {
                        Some(relays) => way.url(relays.iscsi.address(), relays.nvme.address()),
                        None => way.url(iscsi, nvme),
                    };
                    let options = self.key.options(way, relays.is_some());
                    let epoch = self.besieged().epoch();
                    let end = &hosts_end;
                    scope.spawn(move || -> Result<_> {
                        let (url, options) = (url?, options?);
                        let load = Load {
                            url: &url,
                            options: &options,
                            ledger,
                            epoch: &epoch,
                            connections: &self.connections,
                            stop: end,
                            seed: step.seed ^ number,
                        };
                        Ok(host::run(&load))
                    })
                })
                .collect();
            let faults = scope.spawn(|| disturbance.run(step.fault, &mut Random::new(step.seed)));
            let watched = self.watch(step.length, plant, store);
            faults_end.store(true, Ordering::SeqCst);
            let disturbed = faults.join().expect("faults do not panic");
            hosts_end.store(true, Ordering::SeqCst);
            let hosts: Vec<_> = hosts
                .into_iter()
                .map(|host| host.join().expect("hosts do not panic"))
                .collect();
            watched?;
            Ok::<_, anyhow::Error>((hosts, disturbed?))
        })?;
        self.besieged().watch()?;
        self.end(step, store, hosts, disturbed)
    }

    /// Looks at everything, and writes the report.
    fn end(
        &self,
        step: Step,
        store: &Store,
        hosts: Vec<Result<(super::tally::Tally, Vec<super::ledger::Wrong>)>>,
        disturbed: Disturbed,
    ) -> Result<Phase> {
        let mut reports = Vec::new();
        let mut wrong = disturbed.stored.wrong;
        for (way, host) in WAYS.into_iter().zip(hosts) {
            let (tally, found) = host?;
            wrong.extend(found);
            reports.push(HostReport {
                name: way.name(),
                tally,
            });
        }
        let (iscsi, nvme) = {
            let besieged = self.besieged();
            (besieged.iscsi, besieged.nvme)
        };
        let way = WAYS[usize::try_from(step.seed % 3).expect("small")];
        let options = self.key.options(way, false)?;
        let swept = sweep::served(&way.url(iscsi, nvme)?, &options, &store.ledgers);
        let mut checked = disturbed.stored.blocks;
        let mut unserved = None;
        match swept {
            Ok(swept) => {
                checked += swept.blocks;
                wrong.extend(swept.wrong);
            }
            Err(error) => unserved = Some(format!("{error:#}")),
        }
        let mut besieged = self.besieged();
        besieged.watch()?;
        Ok(Phase {
            step,
            hosts: reports,
            deeds: disturbed.deeds,
            restarts: besieged.restarts,
            checked,
            wrong,
            crashes: besieged.take_crashes(),
            unserved,
            skipped: None,
        })
    }

    /// Looks after the server for so long; in the middle of it, plants what is to be found.
    fn watch(&self, length: Duration, plant: Option<Plant>, store: &Store) -> Result<()> {
        let begin = Instant::now();
        let mut plant = plant;
        while begin.elapsed() < length || plant.is_some() {
            std::thread::sleep(WATCH);
            self.besieged().watch()?;
            // Where nothing was written there is nothing to lose.
            let is_time = begin.elapsed() > length / 2 && store.is_written();
            if let Some(plant) = plant.take_if(|_| is_time) {
                let besieged = self.besieged();
                plant.put(&besieged, &store.path, &store.ledgers)?;
            }
            if begin.elapsed() > length + PLANT_LIMIT {
                bail!("no host has written anything within {PLANT_LIMIT:?}");
            }
        }
        Ok(())
    }

    fn start(&self, step: Step, store: &Store) -> Start {
        let served = Served {
            path: &store.path,
            keeping: store.keeping,
            bytes: store.bytes,
            volume: match step.fault {
                Fault::SlowDisk => SLOW_DISK,
                // Now and then every write goes to the medium.
                _ if step.seed.is_multiple_of(4) && step.fault != Fault::FullDisk => {
                    "write-through = true"
                }
                _ => "",
            },
            memory: match step.fault {
                Fault::Memory => "16M",
                _ => "64M",
            },
        };
        Start {
            engine: step.engine,
            configuration: configuration::text(served, &self.key),
            below: match (&self.clock, step.fault) {
                (Some(clock), Fault::Clock) => clock.below(),
                _ => Vec::new(),
            },
            may_fail: step.fault == Fault::FullDisk,
        }
    }

    fn store(&self, fault: Fault) -> Option<&Store> {
        match fault {
            Fault::FullDisk => self.small.as_ref(),
            _ => Some(&self.disk),
        }
    }

    /// Ends the server; crashes that showed only then.
    pub fn finish(&self) -> Result<Vec<String>> {
        let mut besieged = self.besieged();
        besieged.stop().context("end the server")?;
        Ok(besieged.take_crashes())
    }

    fn besieged(&self) -> MutexGuard<'_, Besieged> {
        self.besieged.lock().expect("no panics")
    }
}
