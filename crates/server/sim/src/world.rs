//! One run: a server, its initiators and hosts, its troubles, and what must hold at the end.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longshore_iscsi::server::directory::LoginConfig;
use longshore_reactor::{EngineChoice, EngineEvent, Readiness};
use longshore_server::config::{
    Copies, ListenerConfig, NvmeListenerConfig, PeerLimits, ReactorConfig, ServerConfig,
    TransmitConfig,
};
use longshore_server::platform::Platform;
use longshore_server::stepped::{Next, SteppedServer};

use crate::change::{ChangeCounts, Exported};
use crate::checker::Violation;
use crate::checker::history::History;
use crate::deceived::Deceived;
use crate::disk::Disk;
use crate::environment::{Environment, Shared, SimulatedEvent};
use crate::host::Host;
use crate::initiator::Initiator;
use crate::network::SimLink;
use crate::party::Party;
use crate::platform::SimPlatform;
use crate::profile::Profile;
use crate::random::Random;
use crate::scene::{Absence, Noticed, Reservations, Resets, Scene};
use crate::settings::Settings;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::wire::Wire;
use crate::workload::UnitShape;

/// Virtual time after which no new commands are sent, however few there have been.
const WORK_LIMIT: u64 = 100 * SECOND;
/// Virtual time after which a run that does not come to its end is broken.
const END_LIMIT: u64 = 400 * SECOND;
/// Events after which a run that does not come to its end is broken, for each step.
const EVENTS_PER_STEP: u64 = 60_000;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// No new commands; those under way end.
    Settling,
    /// Initiators and hosts end their sessions.
    LoggingOut,
    Ending,
}

/// A run. See the module documentation.
pub struct World {
    pub(crate) environment: Shared,
    random: Random,
    server: Option<SteppedServer>,
    shards: usize,
    ended: Vec<bool>,
    events: Vec<Vec<EngineEvent>>,
    turn_at: Vec<Option<u64>>,
    parties: Vec<Party>,
    histories: Vec<History>,
    shapes: Vec<UnitShape>,
    resets: Vec<Resets>,
    reservations: Vec<Reservations>,
    next_id: u64,
    pub(crate) steps: u64,
    steps_max: u64,
    phase: Phase,
    phase_since: u64,
    restart_at: Option<u64>,
    limits: PeerLimits,
    exported: Exported,
    noticed: Noticed,
    files: Vec<PathBuf>,
    next_cut: Option<u64>,
    next_kill: Option<u64>,
    /// Shards look at their load, too.
    rebalance: bool,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for file in &self.files {
            // A file in the temporary directory that stays behind does no harm.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl World {
    /// The world of that seed.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let mut random = Random::new(settings.seed);
        let profile = match &settings.profile {
            Some(profile) => profile.clone(),
            None => Profile::draw(&mut random),
        };
        let shards = random.pick(&[1, 2, 2]);
        let (initiators, hosts) = random.pick(&[
            (2, 0),
            (4, 0),
            (0, 1),
            (0, 2),
            (1, 1),
            (2, 1),
            (1, 2),
            (2, 2),
        ]);
        let deceived = profile.deceived;
        let environment = Environment::new(Random::new(random.number()), profile, settings.echo);
        let environment = Shared::new(environment);
        let login = login(&mut random);
        let exported = Exported::new(environment.clone(), login, settings.planted, initiators);
        let mut world = Self {
            environment,
            server: None,
            shards,
            ended: vec![false; shards],
            events: (0..shards).map(|_| Vec::new()).collect(),
            turn_at: vec![None; shards],
            parties: parties(initiators, hosts, deceived, &mut random),
            histories: Vec::new(),
            shapes: Vec::new(),
            resets: Vec::new(),
            reservations: Vec::new(),
            next_id: 0,
            steps: 0,
            steps_max: settings.steps,
            phase: Phase::Working,
            phase_since: 0,
            restart_at: None,
            limits: limits(&mut random),
            exported,
            noticed: Noticed::default(),
            files: Vec::new(),
            next_cut: None,
            next_kill: None,
            rebalance: random.chance(5000),
            random,
        };
        world.noticed.denials = vec![Absence::default(); world.parties.len()];
        for unit in 0..world.random.pick(&[1, 1, 2]) {
            world.add_unit(unit, settings.seed);
        }
        world
    }

    fn add_unit(&mut self, unit: usize, seed: u64) {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let block_size = self.random.pick(&[512, 4096]);
        let bytes = self.random.pick(&[128 << 10, 512 << 10]);
        let path = std::env::temp_dir().join(format!(
            "longshore-sim-{}-{seed}-{}",
            std::process::id(),
            RUNS.fetch_add(1, Ordering::Relaxed)
        ));
        let file = std::fs::File::create_new(&path).expect("create a temporary file");
        file.set_len(bytes as u64).expect("size a temporary file");
        let inode = file.metadata().expect("an open file has metadata").ino();
        self.files.push(path);
        let sectors = bytes / crate::stamp::SECTOR;
        self.environment.lock().disks.push(Disk::new(bytes, inode));
        self.histories.push(History::new(unit, sectors));
        let shape = UnitShape {
            block_size,
            sectors: sectors as u64,
        };
        self.shapes.push(shape);
        let path = self.files.last().expect("pushed above");
        self.exported.add(shape, path);
        self.noticed.add_unit();
        self.resets.push(Resets::default());
        self.reservations.push(Reservations::default());
    }

    fn config(&mut self) -> ServerConfig {
        // Nothing listens; but discovery needs an address to tell.
        let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind to loopback");
        let exports = self.exported.start();
        ServerConfig {
            targets: exports.targets,
            volumes: exports.volumes,
            discovery: exports.discovery,
            listeners: vec![ListenerConfig {
                listener: bind(),
                advertise: None,
                portal_group_tag: 1,
            }],
            subsystems: exports.subsystems,
            nvme_listeners: vec![NvmeListenerConfig {
                listener: bind(),
                advertise: None,
                discovery_only: false,
                tls: longshore_server::config::TlsUse::None,
            }],
            engine: EngineChoice::default(),
            cores: Vec::new(),
            transmit: TransmitConfig::default(),
            copies: Copies::default(),
            reactor: ReactorConfig {
                rebalance: self.rebalance,
                ..ReactorConfig::default()
            },
            limits: self.limits.clone(),
            state_directory: None,
            sample: 1,
        }
    }

    fn start_server(&mut self) {
        let config = self.config();
        let platforms = (0..self.shards)
            .map(|shard| {
                Box::new(SimPlatform::new(self.environment.clone(), shard)) as Box<dyn Platform>
            })
            .collect();
        let now = self.environment.lock().instant();
        let server = SteppedServer::new(config, platforms, now);
        self.server = Some(server.expect("a good configuration"));
        self.ended.fill(false);
        self.units_are_back();
        for shard in 0..self.shards {
            self.ensure_turn(shard, 0);
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn run(&mut self) -> Result<(), Violation> {
        self.start_server();
        for index in 0..self.parties.len() {
            self.environment
                .lock()
                .plan(0, SimulatedEvent::Initiator { index });
        }
        self.plan_trouble();
        self.environment.lock().plan(0, SimulatedEvent::Trouble);
        let mut events = 0;
        loop {
            let next = self.environment.lock().take_next();
            let event = next.expect("initiators always have something planned");
            events += 1;
            if events > EVENTS_PER_STEP * (self.steps_max + 100) {
                return Err(Violation::NeverEnds);
            }
            self.handle(event)?;
            if self.advance()? {
                return self.finish();
            }
        }
    }

    fn handle(&mut self, event: SimulatedEvent) -> Result<(), Violation> {
        match event {
            SimulatedEvent::Arrive {
                wire,
                at_target,
                bytes,
            } => {
                let noticed = self.environment.lock().arrive(wire, at_target, bytes);
                if noticed && at_target {
                    self.socket_event(wire, Readiness::new(true, false));
                } else if noticed {
                    let index = self.environment.lock().wires[wire].initiator;
                    return self.step(index);
                }
            }
            SimulatedEvent::HangUp { wire } => self.socket_event(wire, Readiness::new(true, true)),
            SimulatedEvent::Writable { wire } => {
                self.socket_event(wire, Readiness::new(false, true))
            }
            SimulatedEvent::StorageEffect { disk, operation } => {
                self.environment.lock().storage_effect(disk, operation);
            }
            SimulatedEvent::StorageDone { disk, operation } => {
                let done = self.environment.lock().storage_done(disk, operation);
                if let Some((shard, completion)) = done {
                    self.events[shard].push(EngineEvent::File(completion));
                    self.ensure_turn_soon(shard);
                }
            }
            SimulatedEvent::DelegatedDone { operation } => {
                let done = self.environment.lock().delegated_done(operation);
                if let Some((shard, completion)) = done {
                    self.events[shard].push(EngineEvent::File(completion));
                    self.ensure_turn_soon(shard);
                }
            }
            SimulatedEvent::Turn { shard } => self.turn(shard),
            SimulatedEvent::Initiator { index } => return self.step(index),
            SimulatedEvent::Trouble => return self.trouble(),
        }
        Ok(())
    }

    fn socket_event(&mut self, wire: usize, readiness: Readiness) {
        let environment = self.environment.lock();
        let wire = &environment.wires[wire];
        let (shard, token) = (wire.shard, wire.token);
        drop(environment);
        if let Some(token) = token {
            self.events[shard].push(EngineEvent::Socket { token, readiness });
            self.ensure_turn_soon(shard);
        }
    }

    fn ensure_turn_soon(&mut self, shard: usize) {
        let delay = {
            let mut environment = self.environment.lock();
            environment.random.below(3 * MICROSECOND)
        };
        let at = self.environment.lock().now + delay;
        self.ensure_turn(shard, at);
    }

    fn ensure_turn(&mut self, shard: usize, at: u64) {
        let at = at.max(self.environment.lock().now);
        if self.turn_at[shard].is_none_or(|planned| at < planned) {
            self.turn_at[shard] = Some(at);
            self.environment
                .lock()
                .plan(at, SimulatedEvent::Turn { shard });
        }
    }

    fn turn(&mut self, shard: usize) {
        let (now, instant) = {
            let environment = self.environment.lock();
            (environment.now, environment.instant())
        };
        let Some(server) = &mut self.server else {
            return;
        };
        if self.turn_at[shard] != Some(now) || self.ended[shard] {
            return;
        }
        self.turn_at[shard] = None;
        let events = &mut self.events[shard];
        if server.has_mail(shard) {
            events.push(EngineEvent::Woken);
        }
        self.environment.lock().turning = shard;
        let next = server.turn(shard, events, instant);
        if self.exported.is_changing {
            server.advance();
        }
        let with_mail: Vec<usize> = (0..self.shards).filter(|s| server.has_mail(*s)).collect();
        match next {
            Next::Ended => self.ended[shard] = true,
            Next::Wait(None) => {}
            Next::Wait(Some(at)) => {
                let at = self.environment.lock().moment(at);
                // A turn takes some time.
                self.ensure_turn(shard, at.max(now + MICROSECOND / 2));
            }
        }
        for shard in with_mail {
            self.ensure_turn_soon(shard);
        }
    }

    fn step(&mut self, index: usize) -> Result<(), Violation> {
        let now = self.environment.lock().now;
        if self.server.is_some()
            && self.phase != Phase::Ending
            && self.parties[index].wants_connection(now)
        {
            self.connect(index, now);
        }
        self.with(index, Party::step)
    }

    /// Does something with a party in its scene.
    fn with<R>(&mut self, index: usize, act: impl FnOnce(&mut Party, &mut Scene<'_>) -> R) -> R {
        let mut scene = Scene {
            environment: &self.environment,
            histories: &mut self.histories,
            shapes: &self.shapes,
            resets: &mut self.resets,
            reservations: &mut self.reservations,
            noticed: &mut self.noticed,
            next_id: &mut self.next_id,
            steps: &mut self.steps,
            quiet: self.phase != Phase::Working,
            closing: matches!(self.phase, Phase::LoggingOut | Phase::Ending),
        };
        act(&mut self.parties[index], &mut scene)
    }

    fn connect(&mut self, index: usize, now: u64) {
        let mut environment = self.environment.lock();
        let shard = environment.random.index(self.shards);
        let wire = environment.wires.len();
        environment.wires.push(Wire::new(index, shard));
        environment.trace(format_args!(
            "party {index}: connects to shard {shard}, wire {wire}"
        ));
        drop(environment);
        let link = SimLink::new(self.environment.clone(), wire);
        if let Some(server) = &self.server {
            // The listeners of iSCSI are counted first.
            let portal = usize::from(self.parties[index].is_host());
            server.accept(shard, Box::new(link), portal);
        }
        self.parties[index].connected(wire, now);
        self.ensure_turn_soon(shard);
    }

    fn plan_trouble(&mut self) {
        let mut environment = self.environment.lock();
        let (cut, kill) = (
            environment.profile.cut_every,
            environment.profile.kill_every,
        );
        let now = environment.now;
        let mut after =
            |every: u64| (every > 0).then(|| now + 1 + environment.random.below(2 * every));
        if self.next_cut.is_none() {
            self.next_cut = after(cut);
        }
        if self.next_kill.is_none() {
            self.next_kill = after(kill);
        }
    }

    /// Looks whether it is time for a cut, a kill or a restart.
    fn trouble(&mut self) -> Result<(), Violation> {
        let now = self.environment.lock().now;
        let is_due = |at: Option<u64>| at.is_some_and(|at| at <= now);
        if is_due(self.restart_at) {
            self.restart_at = None;
            self.environment
                .lock()
                .trace(format_args!("server: starts again"));
            self.start_server();
        }
        if self.phase == Phase::Working {
            if is_due(self.next_cut) {
                self.next_cut = None;
                self.cut();
            }
            if is_due(self.next_kill) {
                self.next_kill = None;
                let power = self.random.chance(5000);
                self.kill(power)?;
            }
            self.plan_trouble();
        }
        self.change_exports()?;
        self.move_one();
        // Only a restart helps a volume whose sync has failed.
        let environment = self.environment.lock();
        let suspect = environment.disks.iter().any(Disk::is_suspect);
        drop(environment);
        if suspect && self.server.is_some() && self.random.chance(300) {
            self.kill(true)?;
        }
        self.environment
            .lock()
            .plan_in(MILLISECOND / 2, SimulatedEvent::Trouble);
        Ok(())
    }

    /// How often the exports have changed, and how.
    pub(crate) fn changes(&self) -> ChangeCounts {
        self.exported.counts
    }

    /// Units have their numbers again, take writes, and everybody is let in.
    fn units_are_back(&mut self) {
        let now = self.environment.lock().now;
        let Noticed {
            absences,
            protections,
            endings,
            denials,
            ..
        } = &mut self.noticed;
        for protection in protections.iter_mut() {
            protection.since = None;
        }
        let protections = protections.iter_mut().map(|it| &mut it.times);
        let all = absences.iter_mut().chain(endings).chain(denials);
        for absence in all.chain(protections).filter(|absence| absence.is_now) {
            *absence = Absence {
                is_now: false,
                until: Some(now),
            };
        }
        self.noticed.settle(&mut self.histories);
    }

    /// The exports change, perhaps. When the work is over, all units come back.
    fn change_exports(&mut self) -> Result<(), Violation> {
        let Some(server) = &self.server else {
            return Ok(());
        };
        let (now, changes) = {
            let environment = self.environment.lock();
            (environment.now, environment.profile.changes)
        };
        if self.exported.is_changing {
            server.advance();
            self.exported.look(server, now, &mut self.noticed)?;
            self.noticed.settle(&mut self.histories);
        }
        let restores = match self.phase {
            Phase::Working if self.random.chance(changes) => false,
            Phase::Settling => true,
            Phase::Working | Phase::LoggingOut | Phase::Ending => return Ok(()),
        };
        if server.is_switching() {
            return Ok(());
        }
        let scene = (&mut self.noticed, &mut self.reservations[..]);
        self.exported
            .change(server, &mut self.random, restores, scene);
        for shard in 0..self.shards {
            if self
                .server
                .as_ref()
                .is_some_and(|server| server.has_mail(shard))
            {
                self.ensure_turn_soon(shard);
            }
        }
        Ok(())
    }

    /// A connection is told to go to another shard, perhaps.
    fn move_one(&mut self) {
        let mut environment = self.environment.lock();
        let chance = environment.profile.moves;
        if self.shards < 2 || !environment.random.chance(chance) {
            return;
        }
        let from = environment.random.index(self.shards);
        let to = environment.random.index(self.shards);
        let index = environment.random.index(64);
        let now = environment.instant();
        drop(environment);
        let Some(server) = &mut self.server else {
            return;
        };
        if !self.ended[from] && server.move_connection(from, index, to, now) {
            self.ensure_turn_soon(from);
        }
    }

    /// Something happens to a connection.
    fn cut(&mut self) {
        let connected: Vec<usize> = (0..self.parties.len())
            .filter(|index| self.parties[*index].is_connected())
            .collect();
        if connected.is_empty() {
            return;
        }
        let index = self.random.pick(&connected);
        let wires = self.parties[index].wires();
        let wire = self.random.pick(&wires);
        match self.random.below(3) {
            0 => {
                let mut environment = self.environment.lock();
                environment.trace(format_args!("wire {wire}: reset"));
                environment.reset(wire);
            }
            1 => self.with(index, |party, scene| party.hang_up(scene)),
            _ => {
                let mut environment = self.environment.lock();
                for wire in wires {
                    environment.trace(format_args!("wire {wire}: vanishes"));
                    environment.vanish(wire);
                }
                drop(environment);
                self.with(index, |party, scene| party.vanished(scene));
            }
        }
    }

    /// The server process, or the whole machine, stops at once.
    fn kill(&mut self, power: bool) -> Result<(), Violation> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let budget = Arc::clone(server.memory_budget());
        drop(server);
        self.exported.stopped();
        for events in &mut self.events {
            events.clear();
        }
        self.turn_at.fill(None);
        let mut environment = self.environment.lock();
        let suspect = environment.disks.iter().any(Disk::is_suspect);
        let power = power || suspect;
        environment.trace(format_args!("server: killed, power {power}"));
        for wire in 0..environment.wires.len() {
            if !environment.wires[wire].reset {
                environment.reset(wire);
            }
        }
        environment.forget_delegated();
        let Environment { disks, random, .. } = &mut *environment;
        for (disk, history) in disks.iter_mut().zip(&mut self.histories) {
            if power {
                history.power_cut(disk.cut_power(random))?;
            } else {
                disk.kill(random);
                history.process_killed(disk.cache())?;
            }
        }
        for reservations in &mut self.reservations {
            // None of them was to survive.
            reservations.target_ended();
        }
        let pause = environment.random.between(MICROSECOND, 5 * MILLISECOND);
        self.restart_at = Some(environment.now + pause);
        drop(environment);
        let bytes = budget.used_bytes();
        if bytes > 0 {
            return Err(Violation::MemoryLeak { bytes });
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase) {
        let mut environment = self.environment.lock();
        environment.trace(format_args!("{phase:?}"));
        self.phase_since = environment.now;
        self.phase = phase;
    }

    /// Goes on to the next phase when it is time. Returns whether the run is over.
    fn advance(&mut self) -> Result<bool, Violation> {
        let now = self.environment.lock().now;
        if self.phase != Phase::Working && now > self.phase_since + END_LIMIT {
            return Err(Violation::NeverEnds);
        }
        let is_suspect = || {
            let environment = self.environment.lock();
            environment.disks.iter().any(Disk::is_suspect)
        };
        match self.phase {
            Phase::Working if self.steps >= self.steps_max || now > WORK_LIMIT => {
                self.environment.lock().profile.calm_down();
                self.enter(Phase::Settling);
            }
            Phase::Settling
                if self.server.is_some()
                    && !is_suspect()
                    && self.exported.is_whole()
                    && self.parties.iter().all(Party::is_settled) =>
            {
                let in_order = self.random.chance(7000);
                self.enter(Phase::LoggingOut);
                if in_order {
                    for index in 0..self.parties.len() {
                        self.with(index, Party::log_out);
                    }
                } else {
                    self.shut_down();
                }
            }
            Phase::LoggingOut
                if !self.parties.iter().any(Party::is_connected) && self.is_quiet()? =>
            {
                self.shut_down();
            }
            Phase::Ending => return Ok(self.ended.iter().all(|ended| *ended)),
            _ => {}
        }
        Ok(false)
    }

    /// Whether the server has had time to notice that all sessions are over, and nothing is left.
    fn is_quiet(&self) -> Result<bool, Violation> {
        let environment = self.environment.lock();
        let dropped = environment.wires.iter().all(|wire| wire.dropped);
        let now = environment.now;
        drop(environment);
        let Some(server) = &self.server else {
            return Ok(false);
        };
        let (requests, memory_bytes) = (server.requests_in_flight(), server.memory_in_use());
        if dropped && requests == 0 && memory_bytes == 0 {
            return Ok(true);
        }
        // Connections whose peers vanished are found out by pings.
        if now > self.phase_since + END_LIMIT / 2 {
            return Err(Violation::Leftover {
                requests,
                memory_bytes,
            });
        }
        Ok(false)
    }

    fn shut_down(&mut self) {
        self.enter(Phase::Ending);
        if let Some(server) = &self.server {
            server.shut_down();
        }
        for shard in 0..self.shards {
            self.ensure_turn_soon(shard);
        }
    }

    /// The server has come to its end: looks at what is left.
    fn finish(&mut self) -> Result<(), Violation> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let budget = Arc::clone(server.memory_budget());
        let requests = server.requests_in_flight();
        let memory_bytes = server.memory_in_use();
        if requests > 0 || memory_bytes > 0 {
            return Err(Violation::Leftover {
                requests,
                memory_bytes,
            });
        }
        drop(server);
        let bytes = budget.used_bytes();
        if bytes > 0 {
            return Err(Violation::MemoryLeak { bytes });
        }
        let mut environment = self.environment.lock();
        for (unit, disk) in environment.disks.iter().enumerate() {
            let sectors = disk.dirty_sectors();
            if sectors > 0 {
                return Err(Violation::NotFlushed { unit, sectors });
            }
        }
        let Environment { disks, random, .. } = &mut *environment;
        for (disk, history) in disks.iter_mut().zip(&mut self.histories) {
            history.process_killed(disk.cache())?;
            history.power_cut(disk.cut_power(random))?;
        }
        Ok(())
    }
}

/// `deceived`: clients of each protocol that are lied to.
fn parties(initiators: usize, hosts: usize, deceived: usize, random: &mut Random) -> Vec<Party> {
    let mut own = || Random::new(random.number());
    let initiators = (0..initiators).map(|index| (index, None));
    let first = initiators.len();
    let hosts = (0..hosts).zip(0_u64..);
    let hosts = hosts.map(|(index, number)| (first + index, Some(number)));
    let mut parties: Vec<Party> = initiators
        .chain(hosts)
        .map(|(index, host)| match host {
            None => Party::Initiator(Box::new(Initiator::new(index, own()))),
            Some(number) => Party::Host(Box::new(Host::new(index, number, own()))),
        })
        .collect();
    for is_host in [false, true].repeat(deceived) {
        let party = Deceived::new(parties.len(), is_host, own());
        parties.push(Party::Deceived(Box::new(party)));
    }
    parties
}

fn limits(random: &mut Random) -> PeerLimits {
    PeerLimits {
        queue_depth: u32::try_from(random.pick(&[1, 4, 16, 64])).expect("small"),
        memory: random.pick(&[1 << 20, 4 << 20, 64 << 20]),
        nvme_queue_depth: u16::try_from(random.pick(&[32, 128])).expect("small"),
        in_capsule_data: u32::try_from(random.pick(&[1024, 8192, 32_768])).expect("small"),
        r2t_bytes: u32::try_from(random.pick(&[4096, 12_288, 1 << 20])).expect("small"),
        ..PeerLimits::default()
    }
}

fn login(random: &mut Random) -> LoginConfig {
    let mut number = |choices: &[u64]| u32::try_from(random.pick(choices)).expect("small");
    let max_burst_length = number(&[2048, 16_384, 1 << 20]);
    LoginConfig {
        max_recv_data_segment_length: number(&[512, 8192, 262_144]),
        max_burst_length,
        first_burst_length: number(&[1024, 8192, 65_536]).min(max_burst_length),
        max_outstanding_r2t: u16::try_from(number(&[1, 3, 8])).expect("small"),
        initial_r2t: random.chance(3000),
        immediate_data: random.chance(7000),
        ..LoginConfig::default()
    }
}
