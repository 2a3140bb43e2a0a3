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
//! `controller` takes it from Connect to its first command and from the last to the end, `jobs` is what it
//! does in between, on `queue`s.
//!
//! It has one controller at a time: an admin queue and some I/O queues, each a connection to any shard.
//! When it loses one of them it gives up all, comes back with a new controller, and sends again what it
//! has no answer to. How much it may rely on then depends on what the target knows: a queue that the target
//! has closed does nothing more once a later queue of the same host has answered; one that it
//! believes open may (there is no reinstatement as in iSCSI).

mod controller;
mod jobs;
mod queue;
mod reservation;

use std::collections::BTreeMap;

use longshore_nvme::command::{CommandId, NamespaceId};
use longshore_nvme::host::ConnectionConfig;
use longshore_nvme::host::commands::{self, Property};
use longshore_nvme::pdu::Digests;
use longshore_nvme::status::Status;

use self::queue::{CommandRole, Happening, Queue};
use self::reservation::Plan;
use crate::alarm::Alarm;
use crate::checker::Violation;
use crate::checker::history::Started;
use crate::random::Random;
use crate::scene::Scene;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::workload::Purpose;
use crate::workload::nvme::Task;

/// The one subsystem there is.
pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:simulated";

/// What takes longer before and behind a controller's work is broken.
const CHANGE_LIMIT: u64 = 30 * SECOND;

/// LID of the Reservation Notification log page.
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
    /// When it began to shut its controller down.
    left_at: u64,
    /// What was acknowledged before the shutdown began, by unit.
    shutdown: Vec<Started>,
    random: Random,
    alarm: Alarm,
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
            left_at: 0,
            shutdown: Vec::new(),
            random,
            alarm: Alarm::new(index),
            next_command: 0,
        }
    }

    /// Whether it has nothing under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.plan.is_none() && self.unclean.is_empty()
    }

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
        self.alarm.answered(now);
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
                self.ask(CommandRole::Status, &commands::property_get(Property::CSTS));
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
                party: self.index,
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
        self.alarm.set(at, scene.environment);
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
            party: self.index,
            problem,
        }
    }

    fn happened(
        &mut self,
        place: usize,
        happening: Happening,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        let (role, outcome, data, whole) = match happening {
            Happening::Ready => {
                self.connect(place, scene);
                return Ok(());
            }
            Happening::Done {
                role,
                outcome,
                data,
                whole,
            } => (role, outcome, data, whole),
        };
        let status = outcome.status;
        match role {
            CommandRole::Job { serial, part } => {
                self.predecessors_over(place, scene);
                if status.is_success() && !whole {
                    return Err(self.protocol("missing data".to_owned()));
                }
                self.job_part_done(serial, part, &outcome, data, scene)
            }
            CommandRole::Reservation => {
                self.predecessors_over(place, scene);
                self.reservation_answered(status, scene)
            }
            CommandRole::Abort(serial) => self.abort_answered(serial, &outcome, scene),
            CommandRole::AsyncEvent => {
                if status.is_success() && self.state == State::Up {
                    // Type, information and log page.
                    self.ask(
                        CommandRole::LogPage,
                        &commands::get_log_page(RESERVATION_LOG_PAGE, NamespaceId::NONE, 0, 64),
                    );
                }
                Ok(())
            }
            _ if !status.is_success() => {
                if role == CommandRole::Connect && scene.closing {
                    return Ok(());
                }
                if role == CommandRole::Connect && status.code() == Status::COMMAND_INTERRUPTED {
                    self.lost(scene, "no memory for its Connect", true);
                    return Ok(());
                }
                Err(Violation::Login {
                    party: self.index,
                    problem: format!("{role:?}: {status}, {:x}", outcome.result),
                })
            }
            _ => self.proceed(place, role, outcome.result, &data, scene),
        }
    }

    fn is_changing(&self) -> bool {
        matches!(self.state, State::Resetting { .. } | State::Leaving { .. })
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

    /// An I/O queue is over; the controller goes on.
    fn drop_queue(&mut self, wire: usize, scene: &mut Scene<'_>) {
        self.io.retain(|queue| queue.wire != wire);
        self.old_wires.push(wire);
        self.orphan(|job| job.wire == wire);
        if self.io.is_empty() {
            self.drop_plan(scene);
        }
    }

    /// Nobody knows what became of these jobs.
    fn orphan(&mut self, lost: impl Fn(&Job) -> bool) {
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
        self.orphan(|_| true);
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
