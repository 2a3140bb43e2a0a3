//! What the server exports, and how it changes at random moments: units lose their numbers and get them back, their
//! volumes are removed, closed and opened again, and another volume comes and goes beside them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::server::directory::{Authentication, LoginConfig};
use longshore_nvme::nqn::Nqn;
use longshore_server::config::{
    ExportsConfig, LunConfig, NamespaceMapEntry, SubsystemConfig, TargetConfig,
};
use longshore_server::stepped::SteppedServer;
use longshore_server::{ClosedVolume, DrainOptions, SwitchError};
use longshore_volume::{BackendName, Volume, VolumeSpec};
use uuid::Uuid;

use crate::checker::Violation;
use crate::environment::Shared;
use crate::host::SUBSYSTEM;
use crate::initiator::TARGET;
use crate::platform::SimVolume;
use crate::profile::Planted;
use crate::random::Random;
use crate::scene::{Absence, Reservations};
use crate::workload::UnitShape;

/// Numbers of the volume that no party uses. There is always one, as initiators that see nothing are not let in.
const BESIDE: [u16; 2] = [7, 9];
/// Commands under way at a removal have so long. Nothing stalls for longer, so that none is ended: those that are may
/// come into effect after their answer, which no checker could tell from a mistake.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1000);

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
    beside: Option<Arc<dyn Volume>>,
    beside_at: usize,
    closed: Arc<Mutex<Vec<ClosedVolume>>>,
    /// A switch or a removal is under way.
    pub is_changing: bool,
    /// Switches so far.
    pub switches: u64,
}

impl std::fmt::Debug for Exported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exported")
            .field("units", &self.units)
            .finish_non_exhaustive()
    }
}

impl Exported {
    /// Nothing yet.
    pub fn new(environment: Shared, login: LoginConfig, planted: Option<Planted>) -> Self {
        Self {
            environment,
            files: Vec::new(),
            shapes: Vec::new(),
            login,
            planted,
            units: Vec::new(),
            beside: None,
            beside_at: 0,
            closed: Arc::default(),
            is_changing: false,
            switches: 0,
        }
    }

    /// One unit more, on that file.
    pub fn add(&mut self, shape: UnitShape, path: &Path) {
        self.shapes.push(shape);
        self.files.push(path.to_owned());
        self.units.push(Unit::Closed);
    }

    /// The server is gone, and nothing holds a volume any more.
    pub fn stopped(&mut self) {
        self.units.fill(Unit::Closed);
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
        if self.planted == Some(Planted::MixedUpMap) && self.switches > 0 && mapped.len() > 1 {
            let (first, second) = (mapped[0].1, mapped[1].1);
            (mapped[0].1, mapped[1].1) = (second, first);
        }
        if let Some(beside) = &self.beside {
            let number = usize::from(BESIDE[self.beside_at]);
            mapped.push((number, volumes.len()));
            volumes.push(Arc::clone(beside));
        }
        let luns = mapped.iter().map(|(number, volume)| LunConfig {
            lun: u16::try_from(*number).expect("few units"),
            volume: *volume,
            read_only: false,
        });
        let namespaces = mapped.iter().map(|(number, volume)| NamespaceMapEntry {
            nsid: u32::try_from(number + 1).expect("few units"),
            volume: *volume,
            read_only: false,
        });
        ExportsConfig {
            targets: vec![TargetConfig {
                name: IscsiName::parse(TARGET).expect("a valid name"),
                alias: None,
                portal_groups: Vec::new(),
                login: self.login.clone(),
                authentication: Authentication::none(),
                default_luns: Some(luns.collect()),
                access: Vec::new(),
                moved_to: None,
            }],
            subsystems: vec![SubsystemConfig {
                nqn: Nqn::new(SUBSYSTEM).expect("a valid name"),
                serial: None,
                hosts: Vec::new(),
                default_namespaces: Some(namespaces.collect()),
            }],
            volumes,
            discovery: Authentication::none(),
        }
    }

    fn closed_volumes(&self) -> std::sync::MutexGuard<'_, Vec<ClosedVolume>> {
        self.closed.lock().expect("nothing panics under this lock")
    }

    /// Whether all units have their numbers, and nothing is under way.
    pub fn is_whole(&self) -> bool {
        let is_mapped = |unit: &Unit| matches!(unit, Unit::Mapped(_));
        !self.is_changing && self.units.iter().all(is_mapped)
    }

    /// Looks at what has become of the last change.
    ///
    /// # Errors
    /// A removed volume was closed and not flushed.
    pub fn look(
        &mut self,
        server: &SteppedServer,
        now: u64,
        absences: &mut [Absence],
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
            if closed.timed_out || !has_failed && sectors > 0 {
                return Err(Violation::NotFlushed { unit, sectors });
            }
            drop(environment);
            self.units[unit] = Unit::Closed;
        }
        if server.is_switching() {
            return Ok(());
        }
        for (unit, absence) in self.units.iter().zip(absences) {
            if let Unit::Mapped(_) = unit
                && absence.is_now
            {
                *absence = Absence {
                    is_now: false,
                    until: Some(now),
                };
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
        (absences, reservations): (&mut [Absence], &mut [Reservations]),
    ) {
        let chosen: Vec<usize> = if restores {
            (0..self.units.len()).collect()
        } else if random.chance(3000) {
            self.beside_at = 1 - self.beside_at;
            if random.chance(5000) {
                self.beside = Some(beside());
            }
            Vec::new()
        } else {
            vec![random.index(self.units.len())]
        };
        let mut has_changed = chosen.is_empty();
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
                absences[unit].is_now = true;
            }
            // The reservations of a volume end with it, and those of sessions with their logical units.
            reservations[unit].forget();
            self.units[unit] = next;
            has_changed = true;
        }
        if !has_changed {
            return;
        }
        self.switches += 1;
        self.is_changing = true;
        let closed = Arc::clone(&self.closed);
        let drain = DrainOptions {
            timeout: DRAIN_TIMEOUT,
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

fn beside() -> Arc<dyn Volume> {
    let mut spec = VolumeSpec::new("beside", BackendName::MEM);
    spec.size = Some(64 << 10);
    spec.block_size = 512;
    longshore_volume::open(&spec).expect("memory for a small volume")
}
