//! A simulated initiator: the real initiator machine, a workload, and the bookkeeping that tells the
//! checkers what was sent and what was answered.
//!
//! ```text
//!   Down ──► LoggingIn ──► Up ──► LoggingOut ──► Down, or Gone at the end
//!     ▲          │          │          │
//!     └──────────┴──────────┴──────────┘ connection lost
//! ```
//!
//! It always uses the same ISID, so that a login while the target still has its old connection
//! reinstates the session.

use std::collections::BTreeMap;

use longshore_iscsi::initiator::login::LoginConfig;
use longshore_iscsi::initiator::{
    CloseReason, Command, CommandId, CommandOutcome, Connection, ConnectionEvent, R2tRequest,
    Residual, Transfer,
};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::negotiation::{DigestPolicy, Preferences};
use longshore_iscsi::pdu::{
    AsyncEvent, CmdSn, Function, InitiatorTaskTag, Isid, LogoutReason, Lun,
    TaskManagementResponseCode,
};
use longshore_wire::transmit::{Transmit, WriteData};

use crate::alarm::Alarm;
use crate::checker::{ANSWER_LIMIT, Violation};
use crate::random::Random;
use crate::scene::Scene;
use crate::time::{MICROSECOND, MILLISECOND, SECOND};
use crate::workload::Purpose;
use crate::workload::scsi::{Task, look, make_up};

/// The one target there is.
pub const TARGET: &str = "iqn.2026-11.local.longshore:simulated";

/// A command that a reset may have swallowed is aborted after this time.
const SWALLOWED_LIMIT: u64 = SECOND;
/// A login that takes longer is given up.
const LOGIN_LIMIT: u64 = 30 * SECOND;
/// Task management requests without an answer. They are immediate, and a target rejects more of
/// those than it has room for (RFC 7143 §4.2.2.1).
const MANAGEMENT_LIMIT: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down { until: u64 },
    LoggingIn { since: u64 },
    Up,
    LoggingOut { since: u64 },
    Gone,
}

/// A command without an answer.
#[derive(Debug)]
struct Outstanding {
    task: Task,
    data_in: Vec<u8>,
    sent_at: u64,
    /// Number of the command among all of this initiator.
    serial: u64,
    cmd_sn: CmdSn,
    aborting: bool,
}

/// A task management request without an answer.
#[derive(Clone, Copy, Debug)]
enum Management {
    Abort {
        command: CommandId,
        serial: u64,
    },
    /// Of all own tasks on the unit that were sent before.
    AbortSet {
        unit: usize,
        below: u64,
    },
    /// Of all tasks on the unit.
    Reset {
        unit: usize,
        below: u64,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub struct Initiator {
    index: usize,
    state: State,
    machine: Option<Connection>,
    transmit: Transmit,
    /// Where it is connected.
    pub wire: Option<usize>,
    commands: BTreeMap<u16, Outstanding>,
    management: BTreeMap<u32, Management>,
    /// Number of the last command.
    serial: u64,
    /// Writes of lost sessions, by unit: they may still land until this session's first answer.
    orphans: Vec<(usize, Purpose)>,
    /// Resets of lost sessions.
    lost_resets: Vec<usize>,
    depth: usize,
    random: Random,
    stopped_until: u64,
    alarm: Alarm,
    next_command: u64,
}

impl Initiator {
    /// One that is going to connect soon.
    #[must_use]
    pub fn new(index: usize, mut random: Random) -> Self {
        let until = random.below(MILLISECOND);
        Self {
            index,
            state: State::Down { until },
            machine: None,
            transmit: Transmit::new(),
            wire: None,
            commands: BTreeMap::new(),
            management: BTreeMap::new(),
            serial: 0,
            orphans: Vec::new(),
            lost_resets: Vec::new(),
            depth: random.pick(&[1, 4, 16, 32]),
            random,
            stopped_until: 0,
            alarm: Alarm::new(index),
            next_command: 0,
        }
    }

    /// Whether it has nothing under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.management.is_empty()
    }

    /// Whether it has a session in which commands can be sent.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Whether it is to be connected now.
    #[must_use]
    pub fn wants_connection(&self, now: u64) -> bool {
        matches!(self.state, State::Down { until } if until <= now) && self.wire.is_none()
    }

    /// It has a connection now: logs in.
    pub fn connected(&mut self, wire: usize, now: u64) {
        let number = u8::try_from(self.index).expect("few initiators");
        let isid = Isid([0x80, 0, 0, 0, 0, number]);
        let name = |text: &str| IscsiName::parse(text).expect("a valid name");
        let initiator = name(&initiator_name(self.index));
        let mut login = LoginConfig::normal(initiator, name(TARGET), isid);
        if self.random.chance(5000) {
            login.security = None;
        }
        login.cmd_sn = CmdSn(self.random.pick(&[0, 1, u32::MAX - 20, 0x7fff_fff0]));
        login.preferences = self.preferences();
        self.transmit = Transmit::new();
        let commands = u16::try_from(self.depth).expect("small");
        let random = &mut self.random;
        let mut fill =
            |bytes: &mut [u8]| bytes.fill_with(|| u8::try_from(random.below(256)).unwrap_or(0));
        self.machine = Some(Connection::new(
            login,
            commands,
            &mut fill,
            &mut self.transmit,
        ));
        self.wire = Some(wire);
        self.state = State::LoggingIn { since: now };
    }

    fn preferences(&mut self) -> Preferences {
        let random = &mut self.random;
        let digests = [
            DigestPolicy::None,
            DigestPolicy::None,
            DigestPolicy::PreferCrc32c,
            DigestPolicy::Crc32c,
        ];
        let max_burst_length = random.pick(&[1024, 8192, 65_536, 1 << 20]);
        Preferences {
            max_recv_data_segment_length: random.pick(&[512, 4096, 8192, 262_144]),
            max_burst_length,
            first_burst_length: random.pick(&[512, 4096, 65_536]).min(max_burst_length),
            max_outstanding_r2t: random.pick(&[1, 2, 8]),
            initial_r2t: random.chance(5000),
            immediate_data: random.chance(5000),
            header_digest: random.pick(&digests),
            data_digest: random.pick(&digests),
            ..Preferences::default()
        }
    }

    /// Does what is due: receives, sends commands, gives up.
    ///
    /// # Errors
    /// What the server did wrong.
    pub fn step(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        self.alarm.answered(now);
        if let Some(wire) = self.wire {
            if now >= self.stopped_until {
                let bytes = scene.environment.lock().take_at_initiator(wire);
                self.receive(&bytes, scene)?;
            }
            let over = scene.environment.lock().wires[wire].is_over_for_initiator();
            if over && self.wire.is_some() {
                self.lost(scene, "connection over");
            }
        }
        match self.state {
            State::LoggingIn { since } if now > since + LOGIN_LIMIT => {
                return Err(Violation::Login {
                    party: self.index,
                    problem: "no answer".to_owned(),
                });
            }
            State::LoggingOut { since } if now > since + LOGIN_LIMIT => {
                return Err(Violation::Unanswered {
                    party: self.index,
                    command: "logout".to_owned(),
                });
            }
            State::Up => self.work(scene)?,
            _ => {}
        }
        if let Some(wire) = self.wire {
            scene.environment.send(wire, &mut self.transmit);
        }
        self.plan_next(scene);
        Ok(())
    }

    fn plan_next(&mut self, scene: &mut Scene<'_>) {
        let now = scene.now();
        let at = match self.state {
            State::Gone => return,
            State::Down { until } => until.max(now + 100 * MICROSECOND),
            State::Up if !scene.quiet => self
                .next_command
                .max(self.stopped_until)
                .max(now + 20 * MICROSECOND)
                .min(now + 20 * MILLISECOND),
            _ => now + 20 * MILLISECOND,
        };
        self.alarm.set(at, scene.environment);
    }

    fn receive(&mut self, mut bytes: &[u8], scene: &mut Scene<'_>) -> Result<(), Violation> {
        while self.machine.is_some() {
            // The borrow of the data ends before anything is done about it.
            let mut machine = self.machine.take().expect("just looked");
            let event = machine.next(&mut bytes, &mut self.transmit);
            if let ConnectionEvent::NeedMore = event {
                self.machine = Some(machine);
                break;
            }
            if let ConnectionEvent::DataIn {
                command,
                buffer_offset,
                bytes,
            } = event
            {
                if let Some(outstanding) = self.commands.get_mut(&command.0) {
                    let start = buffer_offset as usize;
                    outstanding.data_in[start..start + bytes.len()].copy_from_slice(bytes);
                }
                self.machine = Some(machine);
                continue;
            }
            self.machine = Some(machine);
            self.handle(event, scene)?;
        }
        Ok(())
    }

    fn handle(
        &mut self,
        event: ConnectionEvent<'_>,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        match event {
            ConnectionEvent::NeedMore
            | ConnectionEvent::DataIn { .. }
            | ConnectionEvent::Pong { .. }
            | ConnectionEvent::Text(_) => Ok(()),
            ConnectionEvent::Established => {
                scene.trace(format_args!("initiator {}: logged in", self.index));
                self.state = State::Up;
                self.next_command = scene.now();
                Ok(())
            }
            ConnectionEvent::R2t(request) => {
                self.answer_r2t(&request);
                Ok(())
            }
            ConnectionEvent::Completed { command, outcome } => {
                self.completed(command, &outcome, scene)
            }
            ConnectionEvent::TaskManagementDone { request, response } => {
                self.managed(request, response, scene)
            }
            ConnectionEvent::Rejected { reason, .. } => {
                Err(self.protocol(format!("Reject, reason {reason:?}")))
            }
            ConnectionEvent::Async(message) if message.event == AsyncEvent::SCSI_EVENT => {
                scene.trace(format_args!("initiator {}: units have changed", self.index));
                Ok(())
            }
            ConnectionEvent::Async(message) => {
                scene.trace(format_args!(
                    "initiator {}: asked to go: {:?}",
                    self.index, message.event
                ));
                self.log_out(scene.now());
                Ok(())
            }
            ConnectionEvent::LoggedOut(_) => {
                scene.trace(format_args!("initiator {}: logged out", self.index));
                self.hang_up(scene);
                Ok(())
            }
            ConnectionEvent::Close(CloseReason::Logout) => {
                self.machine = None;
                Ok(())
            }
            ConnectionEvent::Close(CloseReason::Login(error)) => {
                let since = match self.state {
                    State::LoggingIn { since } => since,
                    _ => scene.now(),
                };
                if scene.closing || scene.noticed.denials[self.index].may_miss(since) {
                    self.hang_up(scene);
                    return Ok(());
                }
                Err(Violation::Login {
                    party: self.index,
                    problem: error.to_string(),
                })
            }
            ConnectionEvent::Close(reason) => Err(self.protocol(format!("{reason:?}"))),
        }
    }

    fn protocol(&self, problem: String) -> Violation {
        Violation::Protocol {
            party: self.index,
            problem,
        }
    }

    fn answer_r2t(&mut self, request: &R2tRequest) {
        let Some(outstanding) = self.commands.get(&request.command.0) else {
            return;
        };
        let start = request.buffer_offset as usize;
        let data = &outstanding.task.data_out[start..start + request.length as usize];
        if let Some(machine) = &mut self.machine {
            machine.send_data_out(request, WriteData::Bytes(data), &mut self.transmit);
        }
    }

    fn completed(
        &mut self,
        command: CommandId,
        outcome: &CommandOutcome,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        // Commands run only when nothing of the session before can act any more.
        for (unit, purpose) in std::mem::take(&mut self.orphans) {
            scene.give_up(unit, &purpose);
        }
        for unit in std::mem::take(&mut self.lost_resets) {
            scene.reset_over(unit);
        }
        let outstanding = self
            .commands
            .remove(&command.0)
            .expect("the machine knows its commands");
        scene.trace(format_args!(
            "initiator {}: #{} answered {:?} {:02x?}",
            self.index,
            outstanding.serial,
            outcome.status,
            outcome.sense.get(..14)
        ));
        let task = &outstanding.task;
        if let Purpose::Stray = task.purpose {
            return Ok(());
        }
        let wrong = |problem: String| {
            Err(Violation::Answer {
                party: self.index,
                problem: format!("{problem} for {:02x?}: {outcome:?}", task.cdb),
            })
        };
        match outcome.status {
            Some(GOOD) => {
                if outcome.residual != Residual::None {
                    return wrong("a residual".to_owned());
                }
                if let Transfer::Read(length) = task.transfer
                    && outcome.data_in_length != length
                {
                    return wrong("missing data".to_owned());
                }
                if scene.is_excluded(
                    self.index,
                    false,
                    task.unit,
                    &task.purpose,
                    outstanding.sent_at,
                ) {
                    return wrong("success in spite of a reservation".to_owned());
                }
                let protection = scene.noticed.protections[task.unit];
                if task.purpose.writes() && protection.must_refuse(outstanding.sent_at) {
                    return wrong("a write to a read-only unit".to_owned());
                }
                scene.succeeded(task.unit, &task.purpose, &outstanding.data_in)
            }
            Some(CHECK_CONDITION) => match sense_key(&outcome.sense) {
                UNIT_ATTENTION => {
                    scene.refused(task.unit, &task.purpose);
                    Ok(())
                }
                ILLEGAL_REQUEST | COPY_ABORTED
                    if scene.noticed.absences[task.unit].may_miss(outstanding.sent_at)
                        || scene.noticed.denials[self.index].may_miss(outstanding.sent_at) =>
                {
                    let endings = scene.noticed.endings[task.unit];
                    let was_ended = endings.may_miss(outstanding.sent_at);
                    // A copy may have come to its middle.
                    if sense_key(&outcome.sense) == ILLEGAL_REQUEST && !was_ended {
                        scene.refused(task.unit, &task.purpose);
                    } else {
                        scene.give_up(task.unit, &task.purpose);
                    }
                    Ok(())
                }
                DATA_PROTECT
                    if scene.noticed.protections[task.unit].may_refuse(outstanding.sent_at)
                        && !scene.has_disk_errors(task.unit) =>
                {
                    scene.refused(task.unit, &task.purpose);
                    Ok(())
                }
                // A copy whose destination is read-only.
                COPY_ABORTED
                    if scene.noticed.protections[task.unit].may_refuse(outstanding.sent_at) =>
                {
                    scene.give_up(task.unit, &task.purpose);
                    Ok(())
                }
                MISCOMPARE => scene
                    .miscompared(task.unit, &task.purpose)
                    .unwrap_or_else(|| wrong("MISCOMPARE".to_owned())),
                MEDIUM_ERROR | HARDWARE_ERROR | DATA_PROTECT | ABORTED_COMMAND
                    if scene.has_disk_errors(task.unit) =>
                {
                    scene.give_up(task.unit, &task.purpose);
                    Ok(())
                }
                _ => wrong("an error without a cause".to_owned()),
            },
            Some(BUSY | TASK_SET_FULL) => {
                scene.refused(task.unit, &task.purpose);
                Ok(())
            }
            Some(RESERVATION_CONFLICT) if scene.reservations[task.unit].used => {
                scene.refused(task.unit, &task.purpose);
                Ok(())
            }
            _ => wrong("an unexpected status".to_owned()),
        }
    }

    fn managed(
        &mut self,
        request: InitiatorTaskTag,
        response: TaskManagementResponseCode,
        scene: &mut Scene<'_>,
    ) -> Result<(), Violation> {
        scene.trace(format_args!(
            "initiator {}: task management {response:?}",
            self.index
        ));
        let Some(management) = self.management.remove(&request.0) else {
            return Err(self.protocol("an answer to no task management request".to_owned()));
        };
        let complete = response == TaskManagementResponseCode::FUNCTION_COMPLETE;
        match management {
            Management::Abort { command, serial } => {
                let same = |outstanding: &&Outstanding| outstanding.serial == serial;
                let Some(outstanding) = self.commands.get(&command.0).filter(same) else {
                    return Ok(());
                };
                let unit = outstanding.task.unit;
                let aborted_otherwise = self.management.values().any(|other| match other {
                    Management::Abort { .. } => false,
                    Management::AbortSet { unit: of, below }
                    | Management::Reset { unit: of, below } => *of == unit && serial < *below,
                });
                let missing = response == TaskManagementResponseCode::TASK_DOES_NOT_EXIST;
                if missing && aborted_otherwise {
                    // The answer to the other request will say when it can no longer act.
                    return Ok(());
                }
                let gone = missing && scene.is_swallowed(unit, outstanding.sent_at);
                if !complete && !gone {
                    return Err(Violation::Answer {
                        party: self.index,
                        problem: format!(
                            "ABORT TASK of a command without answer: {response:?}, {:02x?}",
                            outstanding.task.cdb
                        ),
                    });
                }
                self.abandon(command, scene);
            }
            Management::AbortSet { unit, below } | Management::Reset { unit, below } => {
                let missing = response == TaskManagementResponseCode::LUN_DOES_NOT_EXIST;
                let is_denied = scene.noticed.denials[self.index].is_known();
                if missing && (is_denied || scene.noticed.absences[unit].is_known()) {
                    if let Management::Reset { .. } = management {
                        scene.reset_over(unit);
                    }
                    return Ok(());
                }
                if !complete {
                    return Err(self.protocol(format!("{management:?}: {response:?}")));
                }
                if let Management::Reset { .. } = management {
                    scene.reset_over(unit);
                }
                let aborted: Vec<u16> = self
                    .commands
                    .iter()
                    .filter(|(_, o)| o.task.unit == unit && o.serial < below)
                    .map(|(id, _)| *id)
                    .collect();
                for id in aborted {
                    self.abandon(CommandId(id), scene);
                }
            }
        }
        Ok(())
    }

    /// A command was aborted.
    fn abandon(&mut self, command: CommandId, scene: &mut Scene<'_>) {
        if let Some(outstanding) = self.commands.remove(&command.0) {
            scene.give_up(outstanding.task.unit, &outstanding.task.purpose);
            if let Some(machine) = &mut self.machine {
                machine.forget(command);
            }
        }
    }

    /// Sends commands and requests, and looks after those that take long.
    fn work(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        self.look_after(scene)?;
        let unclear = !self.orphans.is_empty() || !self.lost_resets.is_empty();
        if scene.quiet && unclear && self.commands.is_empty() {
            // The first answer of this session tells that the one before is over.
            self.send(look(0), scene);
        }
        if scene.quiet || now < self.next_command {
            return Ok(());
        }
        self.next_command = now + self.random.below(2) * self.random.below(400 * MICROSECOND);
        let stops = scene.environment.lock().profile.reader_stops;
        if self.random.chance(stops) {
            self.stopped_until = now + self.random.below(300 * MILLISECOND);
        }
        let may_manage = self.management.len() < MANAGEMENT_LIMIT;
        match self.random.below(400) {
            0 => self.log_out(now),
            1..=4 if may_manage => self.abort_one(scene),
            5 if may_manage => self.manage_unit(Function::ABORT_TASK_SET, scene),
            6 if may_manage => self.manage_unit(Function::LOGICAL_UNIT_RESET, scene),
            _ => self.issue(scene),
        }
        Ok(())
    }

    fn look_after(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        let mut swallowed = None;
        for (id, outstanding) in &self.commands {
            let age = now - outstanding.sent_at;
            let excused = scene.is_swallowed(outstanding.task.unit, outstanding.sent_at);
            if age > ANSWER_LIMIT && !excused {
                return Err(Violation::Unanswered {
                    party: self.index,
                    command: format!("#{} {:02x?}", outstanding.serial, outstanding.task.cdb),
                });
            }
            if age > SWALLOWED_LIMIT
                && excused
                && !outstanding.aborting
                && !scene.is_being_reset(outstanding.task.unit)
            {
                swallowed = Some(CommandId(*id));
            }
        }
        if let Some(command) = swallowed
            && self.management.len() < MANAGEMENT_LIMIT
        {
            self.abort(command, scene);
        }
        Ok(())
    }

    fn issue(&mut self, scene: &mut Scene<'_>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        if self.commands.len() >= self.depth || machine.window_open() == 0 {
            return;
        }
        let unit = self.random.index(scene.shapes.len());
        let task = make_up(scene.maker(unit, &mut self.random));
        self.send(task, scene);
    }

    fn send(&mut self, task: Task, scene: &mut Scene<'_>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let unit = task.unit;
        let command = Command {
            lun: lun(unit),
            cdb: &task.cdb,
            attribute: task.attribute,
            immediate: false,
            transfer: task.transfer,
        };
        let cmd_sn = machine.next_cmd_sn();
        let id = machine
            .submit(
                &command,
                WriteData::Bytes(&task.data_out),
                &mut self.transmit,
            )
            .expect("the window is open, and there are as many numbers as commands");
        self.serial += 1;
        *scene.steps += 1;
        scene.trace(format_args!(
            "initiator {}: #{} unit {unit} {} {:02x?}",
            self.index, self.serial, task.purpose, task.cdb
        ));
        let data_in = match task.transfer {
            Transfer::Read(length) => vec![0xee; length as usize],
            _ => Vec::new(),
        };
        let outstanding = Outstanding {
            task,
            data_in,
            sent_at: scene.now(),
            serial: self.serial,
            cmd_sn,
            aborting: false,
        };
        self.commands.insert(id.0, outstanding);
    }

    fn abort_one(&mut self, scene: &mut Scene<'_>) {
        let candidates = self.commands.iter().filter(|(_, o)| !o.aborting);
        let ids: Vec<u16> = candidates.map(|(id, _)| *id).collect();
        if !ids.is_empty() {
            let id = self.random.pick(&ids);
            self.abort(CommandId(id), scene);
        }
    }

    fn abort(&mut self, command: CommandId, scene: &mut Scene<'_>) {
        let (Some(outstanding), Some(machine)) =
            (self.commands.get_mut(&command.0), &mut self.machine)
        else {
            return;
        };
        outstanding.aborting = true;
        let serial = outstanding.serial;
        scene.trace(format_args!("initiator {}: abort #{serial}", self.index));
        let asked = machine.task_management(
            Function::ABORT_TASK,
            lun(outstanding.task.unit),
            Some((command, outstanding.cmd_sn)),
            &mut self.transmit,
        );
        // A session that ends gives its commands up by itself.
        if let Ok(tag) = asked {
            self.management
                .insert(tag.0, Management::Abort { command, serial });
        }
    }

    fn manage_unit(&mut self, function: Function, scene: &mut Scene<'_>) {
        let Some(machine) = &mut self.machine else {
            return;
        };
        let unit = self.random.index(scene.shapes.len());
        scene.trace(format_args!(
            "initiator {}: {function:?} of unit {unit}",
            self.index
        ));
        let transmit = &mut self.transmit;
        let Ok(tag) = machine.task_management(function, lun(unit), None, transmit) else {
            return;
        };
        let below = self.serial + 1;
        let management = if function == Function::LOGICAL_UNIT_RESET {
            scene.reset_sent(unit);
            Management::Reset { unit, below }
        } else {
            Management::AbortSet { unit, below }
        };
        self.management.insert(tag.0, management);
    }

    /// Ends the session in order.
    pub fn log_out(&mut self, now: u64) {
        if self.state != State::Up {
            return;
        }
        if let Some(machine) = &mut self.machine {
            let reason = LogoutReason::CLOSE_SESSION;
            if machine.logout(reason, &mut self.transmit).is_ok() {
                self.state = State::LoggingOut { since: now };
            }
        }
    }

    /// Closes the connection from this end.
    pub fn hang_up(&mut self, scene: &mut Scene<'_>) {
        if let Some(wire) = self.wire {
            scene.environment.lock().close_at_initiator(wire);
            self.lost(scene, "hung up");
        }
    }

    /// There is no connection any more: nobody knows what became of the commands under way.
    pub fn lost(&mut self, scene: &mut Scene<'_>, why: &str) {
        scene.trace(format_args!("initiator {}: {why}", self.index));
        self.wire = None;
        self.machine = None;
        self.transmit = Transmit::new();
        for (_, outstanding) in std::mem::take(&mut self.commands) {
            let Task { unit, purpose, .. } = outstanding.task;
            self.orphans.push((unit, purpose));
        }
        for (_, management) in std::mem::take(&mut self.management) {
            if let Management::Reset { unit, .. } = management {
                self.lost_resets.push(unit);
            }
        }
        let pause = self
            .random
            .pick(&[0, 10 * MICROSECOND, MILLISECOND, 10 * MILLISECOND]);
        self.stopped_until = 0;
        self.state = if scene.closing {
            State::Gone
        } else {
            State::Down {
                until: scene.now() + pause,
            }
        };
    }
}

/// The name of an initiator, by its number.
pub fn initiator_name(number: usize) -> String {
    format!("iqn.2026-11.local.longshore:sim-{number}")
}

fn lun(unit: usize) -> Lun {
    let number = u8::try_from(unit).expect("few units");
    Lun([0, number, 0, 0, 0, 0, 0, 0])
}

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;

const MEDIUM_ERROR: u8 = 0x3;
const HARDWARE_ERROR: u8 = 0x4;
const ILLEGAL_REQUEST: u8 = 0x5;
const UNIT_ATTENTION: u8 = 0x6;
const DATA_PROTECT: u8 = 0x7;
const ABORTED_COMMAND: u8 = 0xb;
const COPY_ABORTED: u8 = 0xa;
const MISCOMPARE: u8 = 0xe;

/// The sense key; 0 when there is none.
fn sense_key(sense: &[u8]) -> u8 {
    let place = match sense.first().map(|code| code & 0x7f) {
        Some(0x70 | 0x71) => 2,
        Some(0x72 | 0x73) => 1,
        _ => return 0,
    };
    sense.get(place).map_or(0, |byte| byte & 0x0f)
}
