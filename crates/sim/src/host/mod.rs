//! A simulated NVMe host: real host machines, a workload, and the bookkeeping that tells the checkers
//! what was sent and what was answered.
//!
//! ```text
//!   Down ─► Calling ─► Starting ─► Opening ─► Up ─► Leaving ─► Down, or Gone at the end
//!    ▲                    ▲           │        │       │
//!    │                    └ Resetting ┼────────┤       │
//!    └────────────────────────────────┴────────┴───────┘ connection lost
//! ```
//!
//! It has one controller at a time: an admin queue and some I/O queues, each a connection to any shard.
//! When it loses one of them it gives up all, comes back with a new controller, and sends again what it
//! has no answer to. How much it may rely on then depends on what the target knows: a queue that the target
//! has closed does nothing more once a later queue of the same host has answered; one that it
//! believes open may (there is no reinstatement as in iSCSI).

mod queue;
mod reservation;

use std::collections::BTreeMap;

use longshore_nvme::command::{CommandId, NamespaceId};
use longshore_nvme::host::commands::{self, ANY_CONTROLLER, Connect, Property};
use longshore_nvme::host::{Command, ConnectionConfig, Outcome, Transfer};
use longshore_nvme::nqn::Nqn;
use longshore_nvme::pdu::Digests;
use longshore_nvme::status::Status;
use longshore_wire::field;

use self::queue::{Errand, Happening, Queue};
use self::reservation::Plan;
use crate::checker::Violation;
use crate::checker::history::Started;
use crate::environment::{Event as Planned, MICROSECOND, MILLISECOND, SECOND};
use crate::random::Random;
use crate::scene::Scene;
use crate::workload::Purpose;
use crate::workload::nvme::{Task, make_up, write_again};

/// The one subsystem there is.
pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:simulated";

/// A command that has no answer after this time never gets one.
const ANSWER_LIMIT: u64 = 120 * SECOND;
/// What takes longer before and behind a controller's work is broken.
const CHANGE_LIMIT: u64 = 30 * SECOND;

/// CC: enabled, entries of 64 and 16 bytes.
const ENABLED: u64 = 0x0046_0001;
/// CC: not enabled.
const DISABLED: u64 = 0x0046_0000;
/// CC: a normal shutdown.
const SHUTDOWN: u64 = ENABLED | 1 << 14;

/// Number of Queues.
const NUMBER_OF_QUEUES: u8 = 0x07;
/// Reservation Notification.
const RESERVATION_LOG_PAGE: u8 = 0x80;

const ADMIN_ENTRIES: u16 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing is connected. It waits for the target to notice, up to `patience`.
    Down {
        until: u64,
        patience: u64,
    },
    /// It wants to connect an admin queue.
    Calling,
    Starting {
        since: u64,
    },
    /// I/O queues are being connected.
    Opening {
        since: u64,
    },
    Up,
    Resetting {
        since: u64,
    },
    Leaving {
        since: u64,
    },
    Gone,
}

/// A task under way.
#[derive(Debug)]
struct Job {
    task: Task,
    wire: usize,
    queue: u16,
    sent_at: u64,
    ids: Vec<CommandId>,
    statuses: Vec<Option<Status>>,
    data_in: Vec<u8>,
    aborting: bool,
    /// The controller says that it was aborted.
    aborted: bool,
}

/// A task whose queue was lost.
#[derive(Debug)]
struct Orphan {
    unit: usize,
    purpose: Purpose,
    wire: usize,
    own: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Host {
    index: usize,
    /// Its place among those that have blocks of their own.
    owner: Option<u64>,
    state: State,
    admin: Option<Queue>,
    io: Vec<Queue>,
    old_wires: Vec<usize>,
    controller: u16,
    entries_max: u16,
    in_capsule: u32,
    queues_wanted: u32,
    queues_granted: u16,
    keep_alive_ms: u32,
    spoke_at: u64,
    look_at: u64,
    jobs: BTreeMap<u64, Job>,
    serial: u64,
    orphans: Vec<Orphan>,
    /// Sectors to write again, by unit.
    again: Vec<(usize, std::ops::Range<u64>)>,
    plan: Option<Plan>,
    /// Units on which reservations may be left.
    unclean: Vec<usize>,
    /// What was acknowledged before the shutdown began, by unit.
    shutdown: Vec<Started>,
    random: Random,
    wake_at: Option<u64>,
    next_command: u64,
}

impl Host {
    /// One that is going to connect soon. `number`: its place among the hosts.
    #[must_use]
    pub fn new(index: usize, number: u64, mut random: Random) -> Self {
        let until = random.below(MILLISECOND);
        Self {
            index,
            owner: (number < crate::workload::OWNERS).then_some(number),
            state: State::Down { until, patience: 0 },
            admin: None,
            io: Vec::new(),
            old_wires: Vec::new(),
            controller: 0,
            entries_max: 0,
            in_capsule: 0,
            queues_wanted: u32::try_from(random.pick(&[1, 2, 3])).expect("small"),
            queues_granted: 0,
            keep_alive_ms: u32::try_from(random.pick(&[1_500, 4_000])).expect("small"),
            spoke_at: 0,
            look_at: 0,
            jobs: BTreeMap::new(),
            serial: 0,
            orphans: Vec::new(),
            again: Vec::new(),
            plan: None,
            unclean: Vec::new(),
            shutdown: Vec::new(),
            random,
            wake_at: None,
            next_command: 0,
        }
    }

    /// Whether it has nothing under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.plan.is_none() && self.unclean.is_empty()
    }

    /// Its connections.
    #[must_use]
    pub fn wires(&self) -> Vec<usize> {
        self.queues().map(|queue| queue.wire).collect()
    }

    /// Whether it has a controller and all of its queues.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether it is to be connected now.
    #[must_use]
    pub fn wants_connection(&self) -> bool {
        match self.state {
            State::Calling => self.admin.is_none(),
            State::Opening { .. } => {
                self.io.len() < usize::from(self.queues_granted)
                    && self.io.iter().all(|queue| queue.connected)
            }
            _ => false,
        }
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.admin.iter().chain(&self.io)
    }

    /// It has a connection now.
    pub fn connected(&mut self, wire: usize, now: u64) {
        let mut config = self.connection_config();
        if self.state == State::Calling {
            config.commands = ADMIN_ENTRIES - 1;
            config.in_capsule_data_bytes = 8192;
            self.admin = Some(Queue::new(0, wire, ADMIN_ENTRIES, config));
            self.state = State::Starting { since: now };
            return;
        }
        let entries = self.random.pick(&[2, 5, 17, 32]);
        let entries = u16::try_from(entries).expect("small").min(self.entries_max);
        config.commands = entries - 1;
        let id = u16::try_from(self.io.len() + 1).expect("few queues");
        // Connect has its data in the capsule.
        config.in_capsule_data_bytes = 1024;
        self.io.push(Queue::new(id, wire, entries, config));
    }

    fn connection_config(&mut self) -> ConnectionConfig {
        let random = &mut self.random;
        ConnectionConfig {
            digests: Digests {
                header: random.chance(3000),
                data: random.chance(3000),
            },
            hpda: u8::try_from(random.pick(&[0, 0, 1, 31])).expect("small"),
            max_r2t: u32::try_from(random.pick(&[1, 2, 16])).expect("small"),
            ..ConnectionConfig::default()
        }
    }

    /// Does what is due: receives, sends commands, gives up.
    ///
    /// # Errors
    /// What the server did wrong.
    pub fn step(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
        }
        self.receive(scene)?;
        self.look_for_ends(scene)?;
        self.check_time(now)?;
        match self.state {
            State::Down { until, patience } if until <= now => {
                let environment = scene.environment.lock();
                let noticed = |wire: &usize| environment.wires[*wire].dropped;
                if now >= patience || self.old_wires.iter().all(noticed) {
                    self.state = State::Calling;
                }
            }
            State::Resetting { .. } | State::Leaving { .. } if now >= self.look_at => {
                self.look_at = now + 200 * MICROSECOND;
                self.ask(Errand::Status, &commands::property_get(Property::CSTS));
            }
            State::Up => self.work(scene)?,
            _ => {}
        }
        self.keep_alive(now);
        for queue in self.admin.iter_mut().chain(&mut self.io) {
            queue.pump(scene.environment);
        }
        self.plan_next(scene);
        Ok(())
    }

    fn check_time(&self, now: u64) -> Result<(), Violation> {
        let (what, since) = match self.state {
            State::Starting { since } => ("admin queue", since),
            State::Opening { since } => ("I/O queues", since),
            State::Resetting { since } => ("reset", since),
            State::Leaving { since } => ("shutdown", since),
            _ => return Ok(()),
        };
        if now > since + CHANGE_LIMIT {
            return Err(Violation::Unanswered {
                initiator: self.index,
                command: what.to_owned(),
            });
        }
        Ok(())
    }

    fn plan_next(&mut self, scene: &mut Scene<'_>) {
        let now = scene.now();
        let at = match self.state {
            State::Gone => return,
            State::Calling => now + MICROSECOND,
            _ if self.wants_connection() => now + MICROSECOND,
            State::Down { until, .. } => until.max(now + 100 * MICROSECOND),
            State::Up if !scene.quiet => self
                .next_command
                .max(now + 20 * MICROSECOND)
                .min(now + 20 * MILLISECOND),
            State::Resetting { .. } | State::Leaving { .. } => self.look_at.max(now + MICROSECOND),
            _ => now + 20 * MILLISECOND,
        };
        if self.wake_at.is_none_or(|planned| at < planned) {
            self.wake_at = Some(at);
            let index = self.index;
            scene
                .environment
                .lock()
                .plan(at, Planned::Initiator { index });
        }
    }

    /// Number of the queue with that place: 0 is the admin queue.
    fn queue(&mut self, place: usize) -> Option<&mut Queue> {
        match place.checked_sub(1) {
            None => self.admin.as_mut(),
            Some(index) => self.io.get_mut(index),
        }
    }

    fn receive(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        let mut place = 0;
        while place <= self.io.len() {
            if let Some(queue) = self.queue(place)
                && now >= queue.stopped_until
            {
                let bytes = scene.environment.lock().take_at_initiator(queue.wire);
                let id = queue.id;
                let happenings = queue.receive(&bytes);
                let happenings = happenings.map_err(|p| self.protocol(format!("QID {id}: {p}")))?;
                for happening in happenings {
                    self.happened(place, happening, scene)?;
                }
            }
            place += 1;
        }
        Ok(())
    }

    /// Looks which connections are over.
    fn look_for_ends(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let environment = scene.environment.lock();
        let over = |queue: &&Queue| environment.wires[queue.wire].is_over_for_initiator();
        let over: Vec<usize> = self.queues().filter(over).map(|queue| queue.wire).collect();
        let reset = self
            .queues()
            .any(|queue| environment.wires[queue.wire].reset);
        drop(environment);
        if over.is_empty() {
            return Ok(());
        }
        let changing = matches!(self.state, State::Resetting { .. } | State::Leaving { .. });
        let admin = self.admin.as_ref().map(|queue| queue.wire);
        if changing && !over.iter().any(|wire| Some(*wire) == admin) {
            for wire in over {
                self.drop_queue(wire, scene);
            }
            return Ok(());
        }
        if !reset && !scene.closing {
            return Err(self.protocol("a connection ended without a cause".to_owned()));
        }
        self.lost(scene, "connection over", true);
        Ok(())
    }

    fn protocol(&self, problem: String) -> Violation {
        Violation::Protocol {
            initiator: self.index,
            problem,
        }
    }

    fn happened(
        &mut self,
        place: usize,
        happening: Happening,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        let (errand, outcome, data, whole) = match happening {
            Happening::Ready => {
                self.connect(place, scene);
                return Ok(());
            }
            Happening::Done {
                errand,
                outcome,
                data,
                whole,
            } => (errand, outcome, data, whole),
        };
        let status = outcome.status;
        match errand {
            Errand::Job { serial, part } => {
                self.predecessors_over(place, scene);
                if status.is_success() && !whole {
                    return Err(self.protocol("missing data".to_owned()));
                }
                self.job_part_done(serial, part, &outcome, data, scene)
            }
            Errand::Reservation => {
                self.predecessors_over(place, scene);
                self.reservation_answered(status, scene)
            }
            Errand::Abort(serial) => self.abort_answered(serial, &outcome, scene),
            Errand::AsyncEvent => {
                if status.is_success() && self.state == State::Up {
                    // Type, information and log page.
                    self.ask(
                        Errand::LogPage,
                        &commands::get_log_page(RESERVATION_LOG_PAGE, NamespaceId::NONE, 0, 64),
                    );
                }
                Ok(())
            }
            _ if !status.is_success() => {
                if errand == Errand::Connect && scene.closing {
                    return Ok(());
                }
                if errand == Errand::Connect && status.code() == Status::COMMAND_INTERRUPTED {
                    self.lost(scene, "no memory for its Connect", true);
                    return Ok(());
                }
                Err(Violation::Login {
                    initiator: self.index,
                    problem: format!("{errand:?}: {status}, {:x}", outcome.result),
                })
            }
            _ => {
                self.proceed(place, errand, outcome.result, &data, scene);
                Ok(())
            }
        }
    }

    fn is_changing(&self) -> bool {
        matches!(self.state, State::Resetting { .. } | State::Leaving { .. })
    }

    /// A connection is initialized: connects the queue.
    fn connect(&mut self, place: usize, scene: &mut Scene<'_>) {
        let number = u8::try_from(self.index + 1).expect("few parties");
        let nqn = |text: &str| Nqn::new(text).expect("a valid name");
        let entries = self.queue(place).map_or(2, |queue| queue.entries);
        let is_admin = place == 0;
        let connect = Connect {
            host_identifier: [number; 16],
            host: nqn(&format!("nqn.2026-11.local.longshore:sim-{number}")),
            subsystem: nqn(SUBSYSTEM),
            controller_id: if is_admin {
                ANY_CONTROLLER
            } else {
                self.controller
            },
            queue_id: u16::try_from(place).expect("few queues"),
            entries,
            disable_flow_control: !is_admin && self.random.chance(5000),
            keep_alive_ms: if is_admin { self.keep_alive_ms } else { 0 },
        };
        let predecessors = if is_admin {
            Vec::new()
        } else {
            let environment = scene.environment.lock();
            let mut wires: Vec<usize> = self.orphans.iter().map(|orphan| orphan.wire).collect();
            wires.sort_unstable();
            wires.dedup();
            wires.retain(|wire| environment.wires[*wire].dropped);
            wires
        };
        if let Some(queue) = self.queue(place) {
            queue.predecessors = predecessors;
            queue.flow_control = !connect.disable_flow_control;
            queue.submit(Errand::Connect, &connect.command(), &connect.data());
        }
        self.spoke_at = scene.now();
    }

    /// Nothing of the queues that had ended before this one can act any more.
    fn predecessors_over(&mut self, place: usize, scene: &mut Scene<'_>) {
        let Some(queue) = self.queue(place) else {
            return;
        };
        let wires = std::mem::take(&mut queue.predecessors);
        if wires.is_empty() {
            return;
        }
        let (over, left) = std::mem::take(&mut self.orphans)
            .into_iter()
            .partition(|orphan| wires.contains(&orphan.wire));
        self.orphans = left;
        let over: Vec<Orphan> = over;
        for orphan in over {
            if let Purpose::Write { ids, .. } = &orphan.purpose
                && !orphan.own
                && let [id] = ids[..]
                && let Some(range) = scene.histories[orphan.unit].place_of(id)
            {
                self.again.push((orphan.unit, range));
            }
            scene.give_up(orphan.unit, &orphan.purpose);
        }
    }

    /// Sends a command without data on the admin queue.
    fn ask(&mut self, errand: Errand, command: &Command) {
        if let Some(admin) = &mut self.admin
            && admin.room() > 0
            && (errand == Errand::AsyncEvent || !admin.is_about(errand))
        {
            admin.submit(errand, command, &[]);
        }
    }

    /// The next step on the way to work.
    fn proceed(
        &mut self,
        place: usize,
        errand: Errand,
        result: u64,
        data: &[u8],
        scene: &mut Scene<'_>,
    ) {
        let now = scene.now();
        let low = |value: u64| u16::try_from(value & 0xffff).expect("masked");
        match errand {
            Errand::Connect if place == 0 => {
                self.controller = low(result);
                self.ask(Errand::Capabilities, &commands::property_get(Property::CAP));
            }
            Errand::Connect => {
                let limit = self.in_capsule;
                let in_capsule = self.random.pick(&[0, 600, 4096, 8192, u64::from(limit)]);
                let in_capsule = u32::try_from(in_capsule)
                    .expect("one of 32 bits")
                    .min(limit);
                if let Some(queue) = self.queue(place) {
                    queue.connected = true;
                    queue.set_in_capsule_data_bytes(in_capsule);
                }
                if place == usize::from(self.queues_granted) {
                    scene.trace(format_args!("host {}: up", self.index));
                    self.state = State::Up;
                    self.next_command = now;
                }
            }
            Errand::Capabilities => {
                self.entries_max = low(result).saturating_add(1);
                self.configure(ENABLED);
            }
            Errand::Configure | Errand::Status if !self.is_changing() => {
                if errand == Errand::Status && result & 1 == 1 {
                    self.ask(Errand::Identify, &commands::identify(1, NamespaceId::NONE));
                } else {
                    self.ask(Errand::Status, &commands::property_get(Property::CSTS));
                }
            }
            Errand::Status => self.changed(result, scene),
            Errand::Identify => {
                let identified: [u8; 4096] = data.try_into().expect("as long as asked for");
                // IOCCSZ, in units of 16 bytes.
                self.in_capsule = (field::le32(&identified, 1792) * 16).saturating_sub(64);
                let count = self.queues_wanted - 1;
                self.ask(
                    Errand::NumberOfQueues,
                    &commands::set_features(NUMBER_OF_QUEUES, count << 16 | count),
                );
            }
            Errand::NumberOfQueues => {
                let wanted = u16::try_from(self.queues_wanted).expect("small");
                self.queues_granted = wanted.min(low(result).saturating_add(1));
                self.state = State::Opening { since: now };
            }
            _ => {}
        }
    }

    fn configure(&mut self, value: u64) {
        let command = commands::property_set(Property::CC, value);
        self.ask(Errand::Configure, &command);
    }

    /// CSTS while the controller is reset or shut down.
    fn changed(&mut self, status: u64, scene: &mut Scene<'_>) {
        let now = scene.now();
        match self.state {
            State::Resetting { .. } if status & 1 == 0 => {
                for wire in self.io.iter().map(|queue| queue.wire).collect::<Vec<_>>() {
                    scene.environment.lock().close_at_initiator(wire);
                    self.drop_queue(wire, scene);
                }
                self.configure(ENABLED);
                self.state = State::Starting { since: now };
            }
            State::Leaving { .. } if status >> 2 & 3 == 2 => {
                scene.trace(format_args!("host {}: shut down", self.index));
                let shutdown = std::mem::take(&mut self.shutdown);
                for (unit, started) in shutdown.into_iter().enumerate() {
                    if scene.has_disk_errors(unit) {
                        scene.histories[unit].read_over(started);
                    } else {
                        scene.histories[unit].flush_done(started);
                    }
                }
                self.lost(scene, "left", true);
            }
            _ => {}
        }
    }

    /// An I/O queue is over; the controller goes on.
    fn drop_queue(&mut self, wire: usize, scene: &mut Scene<'_>) {
        self.io.retain(|queue| queue.wire != wire);
        self.old_wires.push(wire);
        self.orphan(scene, |job| job.wire == wire);
        if self.io.is_empty() {
            self.drop_plan(scene);
        }
    }

    fn orphan(&mut self, scene: &mut Scene<'_>, lost: impl Fn(&Job) -> bool) {
        let _ = scene;
        for (serial, job) in std::mem::take(&mut self.jobs) {
            if lost(&job) {
                self.orphans.push(Orphan {
                    unit: job.task.unit,
                    own: job.task.own,
                    wire: job.wire,
                    purpose: job.task.purpose,
                });
            } else {
                self.jobs.insert(serial, job);
            }
        }
    }

    fn drop_plan(&mut self, scene: &mut Scene<'_>) {
        if let Some(plan) = self.plan.take() {
            plan.lost(scene);
            self.unclean.push(plan.unit);
        }
    }

    /// The host must say something in time.
    fn keep_alive(&mut self, now: u64) {
        let interval = u64::from(self.keep_alive_ms) * MILLISECOND / 3;
        let speaks = matches!(self.state, State::Opening { .. } | State::Up);
        if speaks && now >= self.spoke_at + interval {
            self.spoke_at = now;
            self.ask(Errand::KeepAlive, &commands::keep_alive());
        }
    }

    /// Sends commands, and looks after those that take long.
    fn work(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        if let Some(job) = self
            .jobs
            .values()
            .find(|job| now - job.sent_at > ANSWER_LIMIT)
        {
            return Err(Violation::Unanswered {
                initiator: self.index,
                command: format!("QID {} {}", job.queue, job.task.purpose),
            });
        }
        self.follow_plan(scene);
        let events = self
            .admin
            .as_ref()
            .map_or(2, |q| q.count(Errand::AsyncEvent));
        if events < 2 {
            self.ask(Errand::AsyncEvent, &commands::async_event_request());
        }
        if scene.quiet || now < self.next_command {
            return Ok(());
        }
        self.next_command = now + self.random.below(2) * self.random.below(400 * MICROSECOND);
        let stops = scene.environment.lock().profile.reader_stops;
        if self.random.chance(stops) {
            let until = now + self.random.below(300 * MILLISECOND);
            let queue = self.random.index(self.io.len());
            self.io[queue].stopped_until = until;
        }
        match self.random.below(800) {
            0 => self.leave(scene),
            1..=3 => self.reset(scene),
            4..=11 => self.abort_one(scene),
            12..=14 if self.plan.is_none() => {
                let unit = self.random.index(scene.shapes.len());
                let (index, random) = (self.index, &mut self.random);
                self.plan = Some(Plan::new(index, unit, false, random));
            }
            _ => self.issue(scene),
        }
        Ok(())
    }

    fn follow_plan(&mut self, scene: &mut Scene<'_>) {
        if self.plan.is_none()
            && let Some(unit) = self.unclean.pop()
        {
            let (index, random) = (self.index, &mut self.random);
            self.plan = Some(Plan::new(index, unit, true, random));
        }
        if let Some(plan) = &mut self.plan
            && let Some(queue) = self.io.iter_mut().find(|queue| queue.room() > 0)
            && let Some((command, data)) = plan.next(scene)
        {
            queue.submit(Errand::Reservation, &command, &data);
        }
    }

    fn reservation_answered(
        &mut self,
        status: Status,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        let Some(mut plan) = self.plan.take() else {
            return Ok(());
        };
        scene.trace(format_args!("host {}: reservation: {status}", self.index));
        if self.is_changing() && !status.is_success() {
            self.plan = Some(plan);
            self.drop_plan(scene);
            return Ok(());
        }
        let over = plan.answered(status, &mut self.random, scene);
        if !over.map_err(|problem| self.protocol(problem))? {
            self.plan = Some(plan);
        }
        Ok(())
    }

    fn issue(&mut self, scene: &mut Scene<'_>) {
        let place = 1 + self.random.index(self.io.len());
        let room = self.queue(place).map_or(0, |queue| queue.room());
        if room == 0 {
            return;
        }
        if let Some((unit, sectors)) = self.again.pop() {
            let task = write_again(scene.maker(unit, &mut self.random), &sectors);
            return self.send(place, task, scene);
        }
        let unit = self.random.index(scene.shapes.len());
        let busy = self
            .jobs
            .values()
            .any(|j| j.task.own && j.task.unit == unit)
            || self.orphans.iter().any(|o| o.own && o.unit == unit);
        let owner = self.owner.filter(|_| !busy);
        let task = make_up(scene.maker(unit, &mut self.random), owner, room);
        self.send(place, task, scene);
    }

    fn send(&mut self, place: usize, task: Task, scene: &mut Scene<'_>) {
        self.serial += 1;
        let serial = self.serial;
        *scene.steps += 1;
        let entry = task.parts[0].0.entry;
        scene.trace(format_args!(
            "host {}: #{serial} QID {place} unit {} {} {entry:?}",
            self.index, task.unit, task.purpose
        ));
        let Some(queue) = self.queue(place) else {
            return;
        };
        let parts = task.parts.iter().enumerate();
        let ids = parts
            .map(|(part, (command, data))| {
                queue.submit(Errand::Job { serial, part }, command, data)
            })
            .collect();
        let job = Job {
            wire: queue.wire,
            queue: queue.id,
            sent_at: scene.now(),
            ids,
            statuses: vec![None; task.parts.len()],
            data_in: Vec::new(),
            aborting: false,
            aborted: false,
            task,
        };
        self.jobs.insert(serial, job);
    }

    fn job_part_done(
        &mut self,
        serial: u64,
        part: usize,
        outcome: &Outcome,
        data: Vec<u8>,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        scene.trace(format_args!(
            "host {}: #{serial} part {part} answered {}",
            self.index, outcome.status
        ));
        let Some(job) = self.jobs.get_mut(&serial) else {
            return Err(self.protocol("an answer to no command".to_owned()));
        };
        job.statuses[part] = Some(outcome.status);
        let (command, _) = &job.task.parts[part];
        if let Transfer::ToHost(_) = command.transfer {
            job.data_in = data;
        }
        if job.statuses.iter().any(Option::is_none) {
            return Ok(());
        }
        let job = self.jobs.remove(&serial).expect("just looked");
        self.job_done(&job, scene)
    }

    fn job_done(&mut self, job: &Job, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let (unit, purpose) = (job.task.unit, &job.task.purpose);
        let statuses: Vec<Status> = job.statuses.iter().flatten().map(|s| s.code()).collect();
        let index = self.index;
        let wrong = |problem: &str| {
            Err(Violation::Answer {
                initiator: index,
                problem: format!("{problem}: {statuses:?} for {purpose}"),
            })
        };
        if statuses.iter().all(|status| status.is_success()) {
            if job.aborted {
                return wrong("success of an aborted command");
            }
            if scene.is_excluded(index, true, unit, purpose, job.sent_at) {
                return wrong("success in spite of a reservation");
            }
            return scene.succeeded(unit, purpose, &job.data_in);
        }
        let compared = match statuses[..] {
            [only] => only == Status::COMPARE_FAILURE,
            [first, second] => {
                if second.is_success() {
                    return wrong("a write without its compare");
                }
                first == Status::COMPARE_FAILURE && second == Status::ABORTED_FAILED_FUSED
            }
            _ => false,
        };
        if compared {
            return scene
                .miscompared(unit, purpose)
                .unwrap_or_else(|| wrong("a failed compare"));
        }
        let secondary = [
            Status::SUCCESS,
            Status::ABORTED_FAILED_FUSED,
            Status::ABORTED_MISSING_FUSED,
        ];
        let is_primary = |status: &&Status| statuses.len() == 1 || !secondary.contains(status);
        // A flush may be one of all units.
        let reserved = match purpose {
            Purpose::Flush { .. } => scene.reservations.iter().any(|unit| unit.used),
            _ => scene.reservations[unit].used,
        };
        let broken = (0..scene.shapes.len()).any(|unit| scene.has_disk_errors(unit));
        let mut refused = true;
        let mut any = false;
        for status in statuses.iter().filter(is_primary) {
            any = true;
            match *status {
                Status::COMMAND_INTERRUPTED => {}
                Status::RESERVATION_CONFLICT if reserved => {}
                Status::COMMAND_SEQUENCE_ERROR if self.is_changing() => {}
                Status::ABORT_REQUESTED if job.aborting => refused = false,
                Status::ABORTED_PREEMPT_AND_ABORT if reserved => refused = false,
                Status::WRITE_FAULT
                | Status::UNRECOVERED_READ_ERROR
                | Status::CAPACITY_EXCEEDED
                    if broken =>
                {
                    refused = false;
                }
                _ => return wrong("an error without a cause"),
            }
        }
        if !any {
            return wrong("a fused command failed without a cause");
        }
        if refused {
            scene.refused(unit, purpose);
        } else {
            scene.give_up(unit, purpose);
        }
        Ok(())
    }

    fn abort_one(&mut self, scene: &mut Scene<'_>) {
        let candidates = self.jobs.iter().filter(|(_, job)| !job.aborting);
        let serials: Vec<u64> = candidates.map(|(serial, _)| *serial).collect();
        let busy = self.admin.as_ref().is_none_or(|admin| admin.room() < 8);
        if serials.is_empty() || busy {
            return;
        }
        let serial = self.random.pick(&serials);
        let job = self.jobs.get_mut(&serial).expect("just seen");
        job.aborting = true;
        let waiting: Vec<CommandId> = job
            .ids
            .iter()
            .zip(&job.statuses)
            .filter(|(_, status)| status.is_none())
            .map(|(id, _)| *id)
            .collect();
        let id = self.random.pick(&waiting);
        let command = commands::abort(job.queue, id);
        scene.trace(format_args!("host {}: abort #{serial}", self.index));
        self.ask(Errand::Abort(serial), &command);
    }

    fn abort_answered(
        &mut self,
        serial: u64,
        outcome: &Outcome,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        scene.trace(format_args!(
            "host {}: abort of #{serial} answered {} {}",
            self.index, outcome.status, outcome.result
        ));
        let limit = Status::ABORT_COMMAND_LIMIT_EXCEEDED;
        let status = outcome.status;
        if !status.is_success() && status.code() != limit && !self.is_changing() {
            return Err(self.protocol(format!("Abort: {status}")));
        }
        if let Some(job) = self.jobs.get_mut(&serial)
            && status.is_success()
        {
            job.aborted = outcome.result & 1 == 0 && job.ids.len() == 1;
        }
        Ok(())
    }

    /// Resets the controller; the admin queue stays.
    fn reset(&mut self, scene: &mut Scene<'_>) {
        scene.trace(format_args!("host {}: resets its controller", self.index));
        let now = scene.now();
        self.configure(DISABLED);
        self.state = State::Resetting { since: now };
        self.look_at = now;
    }

    /// Shuts the controller down.
    fn leave(&mut self, scene: &mut Scene<'_>) {
        scene.trace(format_args!("host {}: shuts down", self.index));
        let now = scene.now();
        for started in std::mem::take(&mut self.shutdown).into_iter().enumerate() {
            scene.histories[started.0].read_over(started.1);
        }
        let histories = scene.histories.iter_mut();
        self.shutdown = histories.map(|history| history.begin_read()).collect();
        self.configure(SHUTDOWN);
        self.state = State::Leaving { since: now };
        self.look_at = now;
    }

    /// Ends in order.
    pub fn log_out(&mut self, scene: &mut Scene<'_>) {
        if self.state == State::Up {
            if self.random.chance(7000) {
                self.leave(scene);
            } else {
                self.lost(scene, "hangs up", true);
            }
        }
    }

    /// The target is not there any more for this host: nobody knows what became of the commands under
    /// way. `ends`: the connections that are left are ended, rather than forgotten.
    pub fn lost(&mut self, scene: &mut Scene<'_>, why: &str, ends: bool) {
        scene.trace(format_args!("host {}: {why}", self.index));
        let wires = self.wires();
        let now = scene.now();
        if ends {
            let abruptly = self.random.chance(3000);
            let mut environment = scene.environment.lock();
            for wire in &wires {
                if environment.wires[*wire].reset {
                    continue;
                }
                if abruptly {
                    environment.reset(*wire);
                } else {
                    environment.close_at_initiator(*wire);
                }
            }
        }
        self.admin = None;
        self.io.clear();
        self.orphan(scene, |_| true);
        self.drop_plan(scene);
        for (unit, started) in std::mem::take(&mut self.shutdown).into_iter().enumerate() {
            scene.histories[unit].read_over(started);
        }
        self.old_wires = wires;
        let pause = self
            .random
            .pick(&[0, 10 * MICROSECOND, MILLISECOND, 10 * MILLISECOND]);
        let patience = self.random.pick(&[0, 20 * MILLISECOND, 10 * SECOND]);
        self.state = if scene.closing {
            State::Gone
        } else {
            State::Down {
                until: now + pause,
                patience: now + patience,
            }
        };
    }
}
