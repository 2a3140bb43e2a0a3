//! What the server exports, and how it changes at random moments: units lose their numbers and get them back, become
//! read-only and writable again, and grow; their volumes are removed, closed and opened again; an initiator is not let
//! in for a while; and another volume, another target and another subsystem come and go beside them.

use std::ops::AddAssign;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_nvme::nqn::Nqn;
use longshore_server::config::{
    AccessRule, ExportsConfig, LunConfig, NamespaceMapEntry, RelativePorts, SubsystemConfig,
    TargetConfig,
};
use longshore_server::stepped::SteppedServer;
use longshore_server::{ClosedVolume, DrainOptions, SwitchError};
use longshore_volume::{BackendName, Volume, VolumeSpec};
use uuid::Uuid;

use crate::checker::Violation;
use crate::environment::Shared;
use crate::host::SUBSYSTEM;
use crate::initiator::{TARGET, initiator_name};
use crate::platform::SimVolume;
use crate::profile::Planted;
use crate::random::Random;
use crate::scene::{Absence, Noticed, Reservations};
use crate::stamp::SECTOR;
use crate::time::SECOND;
use crate::workload::UnitShape;

/// Numbers of the volume that no party uses. There is always one, as initiators that see nothing are not let in.
const BESIDE: [u16; 2] = [7, 9];
/// Commands under way at a removal have so long. Nothing stalls for longer, so that none is ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1000);
/// Or so long, and some are ended.
const SHORT_TIMEOUTS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(20),
];
/// A switch takes a few turns of each shard.
const SWITCH_LIMIT: u64 = SECOND;
/// How much a unit grows at a time, and how often.
const GROWTH: u64 = 64 << 10;
const GROWTHS: u64 = 4;

const OTHER_TARGET: &str = "iqn.2026-11.local.longshore:other";
const OTHER_SUBSYSTEM: &str = "nqn.2026-11.local.longshore:other";

/// How a unit is exported.
#[derive(Clone, Debug)]
enum Unit {
    Mapped(Opened),
    /// Its volume is there, and has no numbers.
    Unmapped(Opened),
    /// Its volume was removed and is not closed.
    Closing,
    Closed,
}

/// A volume that can be printed.
#[derive(Clone)]
struct Opened(Arc<dyn Volume>);

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.identity().name)
    }
}

pub struct Exported {
    environment: Shared,
    files: Vec<PathBuf>,
    shapes: Vec<UnitShape>,
    login: LoginConfig,
    planted: Option<Planted>,
    units: Vec<Unit>,
    read_only: Vec<bool>,
    /// How many initiators there are.
    initiators: usize,
    /// Rules name each initiator that is let in.
    has_rules: bool,
    /// The initiator that is not.
    denied: Option<usize>,
    /// There are another target and another subsystem.
    has_others: bool,
    /// When the last switch began.
    switched_at: u64,
    beside: Option<Arc<dyn Volume>>,
    beside_at: usize,
    closed: Arc<Mutex<Vec<ClosedVolume>>>,
    /// A switch or a removal is under way.
    pub is_changing: bool,
    /// Changes since the beginning of the run.
    pub counts: ChangeCounts,
}

/// How often the exports have changed, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCounts {
    /// All changes but growth.
    pub switches: u64,
    /// Units that became read-only.
    pub protected: u64,
    /// An initiator lost its access.
    pub denied: u64,
    /// Access rules came or went.
    pub rules: u64,
    /// Another target and another subsystem came or went.
    pub others: u64,
    /// Times that a unit grew.
    pub grown: u64,
    /// Volumes were closed whose commands had not ended in time.
    pub overdue: u64,
}

impl AddAssign for ChangeCounts {
    fn add_assign(&mut self, other: Self) {
        self.switches += other.switches;
        self.protected += other.protected;
        self.denied += other.denied;
        self.rules += other.rules;
        self.others += other.others;
        self.grown += other.grown;
        self.overdue += other.overdue;
    }
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported")
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}

impl Exported {
    pub fn new(
        environment: Shared,
        login: LoginConfig,
        planted: Option<Planted>,
        initiators: usize,
    ) -> Self {
        Self {
            environment,
            files: Vec::new(),
            shapes: Vec::new(),
            login,
            planted,
            units: Vec::new(),
            read_only: Vec::new(),
            initiators,
            has_rules: false,
            denied: None,
            has_others: false,
            switched_at: 0,
            beside: None,
            beside_at: 0,
            closed: Arc::default(),
            is_changing: false,
            counts: ChangeCounts::default(),
        }
    }

    /// One unit more, on that file.
    pub fn add(&mut self, shape: UnitShape, path: &Path) {
        self.shapes.push(shape);
        self.files.push(path.to_owned());
        self.units.push(Unit::Closed);
        self.read_only.push(false);
    }

    /// The server is gone, and nothing holds a volume any more.
    pub fn stopped(&mut self) {
        self.units.fill(Unit::Closed);
        self.read_only.fill(false);
        self.denied = None;
        self.beside = None;
        self.is_changing = false;
        self.closed_volumes().clear();
    }

    /// What a server that starts exports: all units.
    pub fn start(&mut self) -> ExportsConfig {
        for unit in 0..self.units.len() {
            self.units[unit] = Unit::Mapped(self.open(unit));
        }
        self.beside = Some(beside());
        self.config()
    }

    fn open(&self, unit: usize) -> Opened {
        let mut spec = VolumeSpec::new(format!("unit{unit}"), BackendName::FILE);
        spec.path = Some(self.files[unit].clone());
        spec.block_size = u32::try_from(self.shapes[unit].block_size).expect("512 or 4096");
        spec.uuid = Some(Uuid::from_u128(0x1000 + unit as u128));
        let inner = longshore_volume::open(&spec).expect("nobody else has the file");
        let forgets = self.planted == Some(Planted::ForgottenFlush);
        let volume = SimVolume::new(inner, self.environment.clone(), unit, forgets);
        Opened(Arc::new(volume))
    }

    fn config(&self) -> ExportsConfig {
        let mut volumes = Vec::new();
        let mut mapped = Vec::new();
        for (number, unit) in self.units.iter().enumerate() {
            if let Unit::Mapped(volume) | Unit::Unmapped(volume) = unit {
                if let Unit::Mapped(_) = unit {
                    mapped.push((number, volumes.len()));
                }
                volumes.push(Arc::clone(&volume.0));
            }
        }
        if self.planted == Some(Planted::MixedUpMap) && self.counts.switches > 0 && mapped.len() > 1
        {
            let (first, second) = (mapped[0].1, mapped[1].1);
            (mapped[0].1, mapped[1].1) = (second, first);
        }
        let beside = self.beside.as_ref().map(|beside| {
            let number = usize::from(BESIDE[self.beside_at]);
            mapped.push((number, volumes.len()));
            volumes.push(Arc::clone(beside));
            (number, volumes.len() - 1)
        });
        let mut targets = vec![self.target(TARGET, &mapped)];
        let mut subsystems = vec![self.subsystem(SUBSYSTEM, &mapped)];
        if self.has_others {
            let mapped: Vec<_> = beside.into_iter().collect();
            targets.push(self.target(OTHER_TARGET, &mapped));
            subsystems.push(self.subsystem(OTHER_SUBSYSTEM, &mapped));
        }
        ExportsConfig {
            targets,
            subsystems,
            volumes,
            discovery: Authentication::none(),
        }
    }

    fn is_read_only(&self, unit: usize) -> bool {
        let forgets = self.planted == Some(Planted::ForgottenProtection);
        !forgets && self.read_only.get(unit).copied().unwrap_or(false)
    }

    /// `mapped`: numbers, and places of volumes.
    fn target(&self, target: &str, mapped: &[(usize, usize)]) -> TargetConfig {
        let name = |text: &str| IscsiName::parse(text).expect("a valid name");
        let luns = mapped.iter().map(|(number, volume)| LunConfig {
            lun: u16::try_from(*number).expect("few units"),
            volume: *volume,
            read_only: self.is_read_only(*number),
        });
        let luns: Vec<LunConfig> = luns.collect();
        let named = (0..self.initiators).filter(|number| self.denied != Some(*number));
        let named = named.map(|number| name(&initiator_name(number)));
        let stranger = name("iqn.2026-11.local.longshore:stranger");
        let rule = AccessRule {
            initiators: named.chain([stranger]).map(Into::into).collect(),
            authentication: None,
            luns: luns.clone(),
        };
        let is_closed = self.denied.is_some();
        TargetConfig {
            name: name(target),
            alias: None,
            portal_groups: Vec::new(),
            login: self.login.clone(),
            authentication: Authentication::none(),
            default_luns: (!is_closed).then_some(luns),
            access: if is_closed || self.has_rules {
                vec![rule]
            } else {
                Vec::new()
            },
            moved_to: None,
            relative_ports: RelativePorts::Automatic,
        }
    }

    fn subsystem(&self, name: &str, mapped: &[(usize, usize)]) -> SubsystemConfig {
        let namespaces = mapped.iter().map(|(number, volume)| NamespaceMapEntry {
            nsid: u32::try_from(number + 1).expect("few units"),
            volume: *volume,
            read_only: self.is_read_only(*number),
        });
        SubsystemConfig {
            nqn: Nqn::new(name).expect("a valid name"),
            serial: None,
            hosts: Vec::new(),
            default_namespaces: Some(namespaces.collect()),
        }
    }

    fn closed_volumes(&self) -> std::sync::MutexGuard<'_, Vec<ClosedVolume>> {
        self.closed.lock().expect("nothing panics under this lock")
    }

    /// Whether all units have their numbers and take writes, all are let in, and nothing is under way.
    pub fn is_whole(&self) -> bool {
        let is_mapped = |unit: &Unit| matches!(unit, Unit::Mapped(_));
        let is_open = self.denied.is_none() && !self.read_only.contains(&true);
        !self.is_changing && is_open && self.units.iter().all(is_mapped)
    }

    /// Looks at what has become of the last change.
    ///
    /// # Errors
    /// A removed volume was closed and not flushed, or a switch does not end.
    pub fn look(
        &mut self,
        server: &SteppedServer,
        now: u64,
        noticed: &mut Noticed,
    ) -> Result<(), Violation> {
        let closed_volumes = std::mem::take(&mut *self.closed_volumes());
        for closed in closed_volumes {
            let number = closed.name.strip_prefix("unit");
            let Some(unit) = number.and_then(|number| number.parse::<usize>().ok()) else {
                continue;
            };
            let mut environment = self.environment.lock();
            environment.trace(format_args!("unit {unit}: closed, {:?}", closed.failure));
            let disk = &environment.disks[unit];
            let sectors = disk.dirty_sectors();
            let has_failed = closed.failure.is_some() && disk.errors > 0;
            let may_time_out = noticed.endings[unit].is_now;
            if closed.timed_out && !may_time_out || !has_failed && sectors > 0 {
                return Err(Violation::NotFlushed { unit, sectors });
            }
            drop(environment);
            self.counts.overdue += u64::from(closed.timed_out);
            self.units[unit] = Unit::Closed;
            end(&mut noticed.endings[unit], now);
        }
        if server.is_switching() {
            if now > self.switched_at + SWITCH_LIMIT {
                return Err(Violation::SwitchNeverEnds);
            }
            return Ok(());
        }
        for (unit, absence) in self.units.iter().zip(&mut noticed.absences) {
            if let Unit::Mapped(_) = unit {
                end(absence, now);
            }
        }
        for (is_read_only, protection) in self.read_only.iter().zip(&mut noticed.protections) {
            if *is_read_only {
                protection.since.get_or_insert(now);
            } else {
                end(&mut protection.times, now);
            }
        }
        for (number, denial) in noticed.denials.iter_mut().enumerate() {
            if self.denied != Some(number) {
                end(denial, now);
            }
        }
        self.is_changing = !server.draining().is_empty();
        Ok(())
    }

    /// Changes something. `restores`: what is missing comes back, and nothing else happens.
    pub fn change(
        &mut self,
        server: &SteppedServer,
        random: &mut Random,
        restores: bool,
        (noticed, reservations): (&mut Noticed, &mut [Reservations]),
    ) {
        let mut timeout = DRAIN_TIMEOUT;
        let mut has_changed = self.change_settings(server, random, restores, noticed);
        let chosen: Vec<usize> = if restores {
            (0..self.units.len()).collect()
        } else if has_changed {
            Vec::new()
        } else if random.chance(3000) {
            self.beside_at = 1 - self.beside_at;
            if random.chance(5000) {
                self.beside = Some(beside());
            }
            has_changed = true;
            Vec::new()
        } else {
            vec![random.index(self.units.len())]
        };
        for unit in chosen {
            let next = match &self.units[unit] {
                Unit::Mapped(_) if restores => continue,
                Unit::Mapped(_) if random.chance(5000) => Unit::Closing,
                Unit::Mapped(volume) => Unit::Unmapped(volume.clone()),
                Unit::Unmapped(_) if !restores && random.chance(3000) => Unit::Closing,
                Unit::Unmapped(volume) => Unit::Mapped(volume.clone()),
                Unit::Closing => continue,
                // Only a restart helps a medium that has lost something.
                Unit::Closed if self.environment.lock().disks[unit].is_suspect() => continue,
                Unit::Closed => Unit::Mapped(self.open(unit)),
            };
            self.environment
                .lock()
                .trace(format_args!("unit {unit}: {next:?}"));
            if !matches!(next, Unit::Mapped(_)) {
                noticed.absences[unit].is_now = true;
            }
            if matches!(next, Unit::Closing) && random.chance(5000) {
                timeout = random.pick(&SHORT_TIMEOUTS);
                noticed.endings[unit].is_now = true;
            }
            // The reservations of a volume end with it, and those of sessions with their logical units.
            reservations[unit].forget();
            self.units[unit] = next;
            has_changed = true;
        }
        if !has_changed {
            return;
        }
        self.counts.switches += 1;
        self.is_changing = true;
        self.switched_at = self.environment.lock().now;
        let closed = Arc::clone(&self.closed);
        let drain = DrainOptions {
            timeout,
            on_closed: Some(Arc::new(move |volume| {
                let mut closed = closed.lock().expect("nothing panics under this lock");
                closed.push(volume);
            })),
        };
        match server.switch(self.config(), drain) {
            Ok(_) | Err(SwitchError::Stopping) => server.advance(),
            Err(error) => panic!("a good configuration: {error}"),
        }
    }
}

impl Exported {
    /// Changes something that is no matter of volumes: returns whether. `restores`: all becomes what it was.
    fn change_settings(
        &mut self,
        server: &SteppedServer,
        random: &mut Random,
        restores: bool,
        noticed: &mut Noticed,
    ) -> bool {
        if restores {
            let is_closed = self.denied.take().is_some();
            let is_protected = self.read_only.contains(&true);
            self.read_only.fill(false);
            for protection in &mut noticed.protections {
                protection.since = None;
            }
            return is_closed || is_protected;
        }
        let unit = random.index(self.units.len());
        match random.below(16) {
            0..=2 => {
                self.read_only[unit] = !self.read_only[unit];
                self.counts.protected += u64::from(self.read_only[unit]);
                let protection = &mut noticed.protections[unit];
                protection.times.is_now = true;
                protection.since = None;
            }
            3 => {
                self.has_rules = !self.has_rules;
                self.counts.rules += 1;
            }
            4 => {
                self.has_others = !self.has_others;
                self.counts.others += 1;
            }
            5 | 6 if self.initiators > 0 => match self.denied.take() {
                Some(_) => {}
                None => {
                    let number = random.index(self.initiators);
                    self.denied = Some(number);
                    self.counts.denied += 1;
                    noticed.denials[number].is_now = true;
                }
            },
            7 => {
                self.grow(unit, server);
                return false;
            }
            _ => return false,
        }
        true
    }

    /// A unit has more blocks, which no party uses.
    fn grow(&mut self, unit: usize, server: &SteppedServer) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&self.files[unit])
            .expect("the file of a unit");
        let size = file.metadata().expect("an open file has metadata").len();
        let shape = self.shapes[unit];
        if size >= shape.sectors * SECTOR as u64 + GROWTHS * GROWTH {
            return;
        }
        file.set_len(size + GROWTH).expect("a file can grow");
        let name = format!("unit{unit}");
        if let Some(outcome) = server.refresh_volume(&name) {
            outcome.expect("its file tells its size");
        }
        self.counts.grown += 1;
        let mut environment = self.environment.lock();
        environment.trace(format_args!("unit {unit}: has {} bytes", size + GROWTH));
    }
}

fn end(absence: &mut Absence, now: u64) {
    if absence.is_now {
        *absence = Absence {
            is_now: false,
            until: Some(now),
        };
    }
}

fn beside() -> Arc<dyn Volume> {
    let mut spec = VolumeSpec::new("beside", BackendName::MEM);
    spec.size = Some(64 << 10);
    spec.block_size = 512;
    longshore_volume::open(&spec).expect("memory for a small volume")
}
