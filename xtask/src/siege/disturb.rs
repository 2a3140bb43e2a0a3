//! The faults at work.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use longshore_tests::random::Random;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use super::besieged::Besieged;
use super::clock::Clock;
use super::keeping::Keeping;
use super::ledger::Ledger;
use super::network::Network;
use super::peers::Peers;
use super::plan::Fault;
use super::sweep::Swept;
use super::tally::Deeds;

/// Descriptors beyond those in use that a server has left, fewer than this.
const SPARE_DESCRIPTORS: u64 = 4;

/// Address space beyond that in use that a server has left: too little for the buffers that its peers ask for, or none.
const SPARE_BYTES: u64 = 16 << 20;

/// What a fault can get at.
pub struct Disturbance<'a> {
    pub besieged: &'a Mutex<Besieged>,
    pub ledgers: &'a [Mutex<Ledger>],
    /// The file behind the volume.
    pub path: &'a Path,
    pub keeping: Keeping,
    pub peers: Peers<'a>,
    pub network: Option<&'a Network>,
    pub clock: Option<&'a Clock>,
    pub stop: &'a AtomicBool,
}

/// What it did, and what was found in the file while the server was down.
#[derive(Debug, Default)]
pub struct Disturbed {
    pub deeds: Deeds,
    pub stored: Swept,
}

impl Disturbance<'_> {
    /// Goes on until it is told to stop, and leaves nothing behind.
    pub fn run(&self, fault: Fault, random: &mut Random) -> Result<Disturbed> {
        let deeds = match fault {
            Fault::Calm | Fault::SlowDisk => Deeds::default(),
            Fault::Garbage => self.peers.garbage(random),
            Fault::MadSessions => self.peers.mad(random),
            Fault::Flood => self.peers.flood(random),
            Fault::StalledLogins => self.peers.stalled_logins(random),
            Fault::NeverMove => self.peers.never_move(random),
            Fault::Flips => self.flips(),
            Fault::Cuts => self.cuts(random),
            Fault::Stalls => self.stalls(random),
            Fault::Kills => return self.kills(random),
            Fault::Restarts => self.restarts(random)?,
            Fault::Pauses => self.pauses(random)?,
            Fault::FullDisk => self.full_disk(random)?,
            Fault::Descriptors => self.descriptors(random)?,
            Fault::Memory => self.memory(random)?,
            Fault::Clock => self.clock(random)?,
            Fault::Storm => return self.storm(random),
        };
        let stored = Swept::default();
        Ok(Disturbed { deeds, stored })
    }

    fn flips(&self) -> Deeds {
        let mut deeds = Deeds::default();
        if let Some(network) = self.network {
            network.flip(true);
            while self.goes_on() {
                self.pause(Duration::from_millis(100));
            }
            network.flip(false);
            deeds.add("pieces with flipped bits", network.flipped());
        }
        deeds
    }

    fn cuts(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        while let Some(network) = self.network.filter(|_| self.goes_on()) {
            self.pause_between(random, 50, 700);
            network.cut();
            deeds.add("cuts", 1);
        }
        deeds
    }

    fn stalls(&self, random: &mut Random) -> Deeds {
        let mut deeds = Deeds::default();
        while let Some(network) = self.network.filter(|_| self.goes_on()) {
            self.pause_between(random, 100, 800);
            network.stall(true);
            self.pause_between(random, 50, 1500);
            // Half of them end as a cut.
            if random.below(2) == 0 {
                network.cut();
                deeds.add("cuts", 1);
            }
            network.stall(false);
            deeds.add("stalls of the network", 1);
        }
        deeds
    }

    /// Kills the server, looks at what is stored, and starts the server anew.
    fn kills(&self, random: &mut Random) -> Result<Disturbed> {
        let mut disturbed = Disturbed::default();
        while self.goes_on() {
            self.pause_between(random, 300, 2000);
            let mut besieged = self.besieged();
            besieged.kill()?;
            disturbed.deeds.add("kills", 1);
            disturbed
                .stored
                .join(self.keeping.look(self.path, self.ledgers)?);
            besieged.start()?;
        }
        Ok(disturbed)
    }

    fn restarts(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            self.pause_between(random, 200, 1500);
            let mut besieged = self.besieged();
            if random.below(2) == 0 {
                besieged.signal("HUP")?;
                deeds.add("reloads", 1);
            } else {
                besieged.stop()?;
                besieged.start()?;
                deeds.add("orderly restarts", 1);
            }
        }
        Ok(deeds)
    }

    fn pauses(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            self.pause_between(random, 50, 800);
            let besieged = self.besieged();
            besieged.signal("STOP")?;
            self.pause_between(random, 20, 1500);
            besieged.signal("CONT")?;
            deeds.add("pauses of the process", 1);
        }
        Ok(deeds)
    }

    /// Takes all room of the file system, and gives it back.
    fn full_disk(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        let filler = self.path.with_extension("filler");
        while self.goes_on() {
            self.pause_between(random, 100, 600);
            let mut file = File::create(&filler).context("make the file that fills the disk")?;
            let piece = vec![1; 64 << 10];
            // Until there is no room.
            while file.write_all(&piece).is_ok() {}
            deeds.add("times without room", 1);
            self.pause_between(random, 200, 1000);
            fs::remove_file(&filler).context("give the room back")?;
            // A volume whose storage has failed may refuse writes until it is opened again.
            if random.below(3) == 0 {
                let mut besieged = self.besieged();
                besieged.stop()?;
                besieged.start()?;
                deeds.add("orderly restarts", 1);
            }
        }
        Ok(deeds)
    }

    /// Leaves the server a handful of descriptors, and takes those.
    fn descriptors(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            self.pause_between(random, 100, 500);
            let Some(pid) = self.pid() else { continue };
            let open = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))?.count();
            let open = u64::try_from(open)? + random.below(SPARE_DESCRIPTORS);
            let before = squeeze(pid, Resource::Nofile, open)?;
            let stay = Duration::from_millis(200 + random.below(600));
            let crowd = self.peers.crowd(random, 24, stay);
            deeds.add("times without descriptors", 1);
            deeds.add("connections meanwhile", crowd);
            restore(pid, Resource::Nofile, before)?;
        }
        Ok(deeds)
    }

    /// Leaves the server little address space, and asks for much.
    fn memory(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        while self.goes_on() {
            let Some(pid) = self.pid() else { continue };
            let spare = random.below(SPARE_BYTES);
            let before = squeeze(pid, Resource::As, in_use(pid)? + spare)?;
            deeds.add("times without memory", 1);
            let until = AtomicBool::new(false);
            let hungry = Peers {
                stop: &until,
                ..self.peers
            };
            let stay = Duration::from_millis(500 + random.below(1500));
            let done = std::thread::scope(|scope| {
                let peers = scope.spawn(|| hungry.never_move(random));
                self.pause(stay);
                until.store(true, Ordering::SeqCst);
                peers.join().expect("peers do not panic")
            });
            deeds.join(&done);
            restore(pid, Resource::As, before)?;
            self.pause_between(random, 100, 500);
        }
        Ok(deeds)
    }

    fn clock(&self, random: &mut Random) -> Result<Deeds> {
        let mut deeds = Deeds::default();
        while let Some(clock) = self.clock.filter(|_| self.goes_on()) {
            self.pause_between(random, 300, 1500);
            clock.jump(random)?;
            deeds.add("jumps of the clock", 1);
        }
        Ok(deeds)
    }

    /// Rude peers of all kinds, over a network that flips bits and stands still, at a server that is killed, restarted and
    /// paused.
    fn storm(&self, random: &mut Random) -> Result<Disturbed> {
        let mut seeds = || Random::new(random.next());
        let mut others = [seeds(), seeds(), seeds(), seeds(), seeds()];
        let [garbage, mad, stalled, never, stalls] = &mut others;
        let mut random = seeds();
        std::thread::scope(|scope| {
            let crowd = [
                scope.spawn(|| self.peers.garbage(garbage)),
                scope.spawn(|| self.peers.mad(mad)),
                scope.spawn(|| self.peers.stalled_logins(stalled)),
                scope.spawn(|| self.peers.never_move(never)),
                scope.spawn(|| self.stalls(stalls)),
                scope.spawn(|| self.flips()),
            ];
            let mut disturbed = Disturbed::default();
            let mut result = Ok(());
            while self.goes_on() && result.is_ok() {
                result = self.blow(&mut random, &mut disturbed);
            }
            for peers in crowd {
                disturbed
                    .deeds
                    .join(&peers.join().expect("peers do not panic"));
            }
            result.map(|()| disturbed)
        })
    }

    /// One blow at the server in a storm.
    fn blow(&self, random: &mut Random, disturbed: &mut Disturbed) -> Result<()> {
        self.pause_between(random, 300, 2000);
        let mut besieged = self.besieged();
        match random.below(3) {
            0 => {
                besieged.kill()?;
                disturbed
                    .stored
                    .join(self.keeping.look(self.path, self.ledgers)?);
                besieged.start()?;
                disturbed.deeds.add("kills", 1);
            }
            1 => {
                besieged.stop()?;
                besieged.start()?;
                disturbed.deeds.add("orderly restarts", 1);
            }
            _ => {
                besieged.signal("STOP")?;
                self.pause_between(random, 20, 800);
                besieged.signal("CONT")?;
                disturbed.deeds.add("pauses of the process", 1);
            }
        }
        Ok(())
    }

    fn besieged(&self) -> MutexGuard<'_, Besieged> {
        self.besieged.lock().expect("no panics")
    }

    fn pid(&self) -> Option<Pid> {
        let pid = self.besieged().pid()?;
        Pid::from_raw(i32::try_from(pid).ok()?)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// Waits, for less if it is told to stop.
    fn pause(&self, length: Duration) {
        let end = Instant::now() + length;
        while self.goes_on() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn pause_between(&self, random: &mut Random, least_ms: u64, most_ms: u64) {
        self.pause(Duration::from_millis(
            least_ms + random.below(most_ms - least_ms),
        ));
    }
}

/// Bytes of address space that a process has.
fn in_use(pid: Pid) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: u64 = line
        .context("a process has a VmSize")?
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib * 1024)
}

/// Lowers a limit of a process; the limit before.
fn squeeze(pid: Pid, resource: Resource, to: u64) -> Result<Rlimit> {
    let before = rustix::process::getrlimit(resource);
    let limit = Rlimit {
        current: Some(to),
        maximum: before.maximum,
    };
    prlimit(Some(pid), resource, limit).context("lower a limit of the server")
}

fn restore(pid: Pid, resource: Resource, limit: Rlimit) -> Result<()> {
    match prlimit(Some(pid), resource, limit) {
        // It has ended meanwhile, which is noticed elsewhere.
        Ok(_) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error).context("restore a limit of the server"),
    }
}
