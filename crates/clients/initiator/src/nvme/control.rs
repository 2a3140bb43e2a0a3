//! The admin queue of an attached namespace: keeps the association alive, hears of changes, answers questions.
//!
//! | what comes | what is done | notice |
//! |---|---|---|
//! | Namespace Attribute Changed | changed namespaces are read (log page 04h), ours is identified | capacity, access or volumes changed |
//! | ANA Change | the ANA log page is read (0Ch) | access changed |
//! | another event | its log page is read, so that the next can come | other |
//! | half of KATO has passed, or as much silence as is allowed | Keep Alive, a look at CSTS, and at ANA while the path is closed | |
//! | no answer in time, CSTS.CFS | | the attachment is lost |
//!
//! [`Control::drive`] never waits: commands have purposes, and their answers are dealt with when they come.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use longshore_nvme::command::NamespaceId;
use longshore_nvme::host::Command;
use longshore_nvme::host::commands::{self, Property};
use tracing::debug;

use super::admin::{Admin, ControllerStatus};
use super::describe::{Facts, reservations};
use super::identify::{IDENTIFY_BYTES, IdentifyNamespace, cns, namespace_list};
use super::link::{Answer, Deadline, Ticket};
use super::log_page::{
    ANA_GROUPS_ONLY, AsyncEvent, AsyncEventKind, CHANGED_NAMESPACES_BYTES, HEALTH_BYTES,
    ana_log_bytes, ana_state, lid, notices,
};
use super::plan::{IoSettings, Plan};
use super::reservation_report::{REGISTRANTS_MAX, Report, UNIT_BYTES};
use crate::error::{CloseCause, Error, Lost};
use crate::info::{AccessState, Description, Notice, ReservationReport, VolumeInfo};

/// Asynchronous Event Requests that are kept outstanding.
const EVENT_REQUESTS_MAX: u16 = 4;

/// Events that come faster than this are not the news of a controller in its right mind.
const EVENTS_PER_SECOND_MAX: u32 = 100;

/// What a command of the admin queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// It stays until something happens.
    ConnectionEvent,
    KeepAlive,
    Status,
    ChangedNamespaces,
    Namespace,
    Ana,
    /// Reading a log page allows the next event of its kind.
    Acknowledge,
}

/// A command under way, and until when it may be.
#[derive(Clone, Copy, Debug)]
struct Underway {
    ticket: Ticket,
    purpose: Purpose,
    until: Option<Instant>,
}

/// The admin queue of an attached namespace. See the module documentation.
#[derive(Debug)]
pub struct Control {
    admin: Box<Admin>,
    facts: Box<Facts>,
    plan: Plan,
    io: IoSettings,
    access: Option<AccessState>,
    underway: Vec<Underway>,
    /// Keep Alive is sent.
    keeps_alive: bool,
    /// Between two looks at whether the controller is there; `None`: nobody looks.
    beat: Option<Duration>,
    next_beat: Option<Instant>,
    events: EventRate,
    /// What nobody was told yet.
    news: Vec<Notice>,
}

/// How many events have come in the current second.
#[derive(Debug)]
struct EventRate {
    since: Instant,
    count: u32,
}

impl Control {
    /// Takes over the admin queue when the I/O queues are connected.
    pub(super) fn start(
        mut admin: Admin,
        facts: Facts,
        plan: &Plan,
        io: IoSettings,
    ) -> Result<Self, Error> {
        if facts.controller.retry_delays[0] != 0 {
            admin.accept_retry_delays()?;
        }
        let wanted = facts.controller.async_events & (notices::NAMESPACES | notices::ANA);
        if wanted != 0 {
            admin.ask_for_notices(wanted)?;
        }
        let keep_alive = admin.keep_alive();
        let silence = silence(&admin);
        let beats = !keep_alive.is_zero() && facts.controller.keep_alive_granularity != 0;
        let mut control = Self {
            access: None,
            keeps_alive: beats,
            // Often enough for the controller, and to notice its silence as soon as is asked for.
            beat: match (beats, silence) {
                (true, Some(silence)) => Some((keep_alive / 2).min(silence)),
                (true, None) => Some(keep_alive / 2),
                (false, silence) => silence,
            },
            next_beat: None,
            underway: Vec::new(),
            events: EventRate {
                since: Instant::now(),
                count: 0,
            },
            news: Vec::new(),
            admin: Box::new(admin),
            facts: Box::new(facts),
            plan: *plan,
            io,
        };
        let requests = control.facts.controller.async_event_requests;
        for _ in 0..requests.min(EVENT_REQUESTS_MAX) {
            control.request_event()?;
        }
        control.access = control.read_access()?;
        control.next_beat = control.beat.map(|beat| Instant::now() + beat);
        Ok(control)
    }

    fn request_event(&mut self) -> Result<(), Error> {
        let request = commands::async_event_request();
        self.begin(Purpose::ConnectionEvent, &request, None)
            .map_err(|lost| self.lost("Asynchronous Event Request", lost))
    }

    fn lost(&self, step: &'static str, lost: Lost) -> Error {
        Error::Lost {
            portal: self.admin.portal().clone(),
            step,
            lost,
        }
    }

    /// Reads the state of the namespace's ANA group, and waits for it. A controller that keeps it to itself is
    /// taken as it is.
    fn read_access(&mut self) -> Result<Option<AccessState>, Error> {
        if !self.facts.has_ana() {
            return Ok(None);
        }
        let group = self.facts.namespace.ana_group;
        let most = self.facts.transfer_bytes();
        match self.admin.access_state(&self.facts.controller, group, most) {
            Err(error @ Error::Command { .. }) => {
                debug!("{error}");
                Ok(None)
            }
            other => other,
        }
    }

    /// Another state is news, however it became known.
    fn set_access(&mut self, state: AccessState) {
        if self.access != Some(state) {
            self.access = Some(state);
            self.news.push(Notice::AccessChanged(state));
        }
    }

    /// The socket on which news come.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.admin.link.socket())
    }

    /// When [`drive`](Self::drive) is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let overdue = self.underway.iter().filter_map(|command| command.until);
        overdue.chain(self.next_beat).min()
    }

    /// How good this path is; without ANA all are alike.
    #[must_use]
    pub fn access(&self) -> AccessState {
        self.access.unwrap_or_default()
    }

    /// The volume, as known by now.
    #[must_use]
    pub fn info(&self) -> VolumeInfo {
        self.facts.volume_info()
    }

    /// Takes in what has come and sends what is due; does not block. Returns the news.
    ///
    /// # Errors
    /// The association is of no use any more.
    pub fn drive(&mut self, now: Instant) -> Result<Vec<Notice>, Lost> {
        self.admin.link.pump()?;
        self.take_answers(now)?;
        if self.next_beat.is_some_and(|at| at <= now) {
            self.beat(now)?;
        }
        let is_overdue = |command: &Underway| command.until.is_some_and(|until| until <= now);
        if self.underway.iter().any(is_overdue) {
            return Err(Lost::Silent);
        }
        self.admin.link.pump()?;
        Ok(std::mem::take(&mut self.news))
    }

    /// Keep Alive, and a look at CSTS: a controller that has failed may go on answering.
    fn beat(&mut self, now: Instant) -> Result<(), Lost> {
        let Some(beat) = self.beat else {
            return Ok(());
        };
        self.next_beat = Some(now + beat);
        if self.is_underway(Purpose::KeepAlive) || self.is_underway(Purpose::Status) {
            return Ok(());
        }
        let until = Some(now + self.patience());
        if self.keeps_alive {
            self.begin(Purpose::KeepAlive, &commands::keep_alive(), until)?;
        }
        let status = commands::property_get(Property::CSTS);
        self.begin(Purpose::Status, &status, until)?;
        // A path that was closed may open without a word.
        if self.access().is_usable() {
            return Ok(());
        }
        self.ask_for_access(now)
    }

    /// How long an answer may take: what a request may, and no longer than silence may last.
    fn patience(&self) -> Duration {
        let timeouts = &self.admin.options().timeouts;
        let silence = silence(&self.admin).filter(|_| self.beat.is_some());
        // To a volume zero is no limit.
        let request = Some(timeouts.request).filter(|limit| !limit.is_zero());
        let limit = silence.into_iter().chain(request).min();
        limit
            .unwrap_or(timeouts.login)
            .max(Duration::from_millis(100))
    }

    fn is_underway(&self, purpose: Purpose) -> bool {
        self.underway
            .iter()
            .any(|command| command.purpose == purpose)
    }

    fn begin(
        &mut self,
        purpose: Purpose,
        command: &Command,
        until: Option<Instant>,
    ) -> Result<(), Lost> {
        let ticket = self.admin.link.start(command, &[])?;
        self.underway.push(Underway {
            ticket,
            purpose,
            until,
        });
        Ok(())
    }

    /// Sends a command for a purpose, unless one is on its way.
    fn send_for(&mut self, purpose: Purpose, command: &Command, now: Instant) -> Result<(), Lost> {
        if self.is_underway(purpose) && purpose != Purpose::Acknowledge {
            return Ok(());
        }
        let until = Some(now + self.patience());
        self.begin(purpose, command, until)
    }

    fn take_answers(&mut self, now: Instant) -> Result<(), Lost> {
        while let Some((ticket, answer)) = self.admin.link.next_ended() {
            let known = self
                .underway
                .iter()
                .position(|command| command.ticket == ticket);
            // Answers nobody waits for any more are those of questions that ended with an error.
            let Some(known) = known else { continue };
            let purpose = self.underway.swap_remove(known).purpose;
            self.take_answer(purpose, &answer, now)?;
        }
        Ok(())
    }

    fn take_answer(&mut self, purpose: Purpose, answer: &Answer, now: Instant) -> Result<(), Lost> {
        let failed = !answer.status.is_success();
        if failed {
            debug!("{purpose:?} of {}: {}", self.admin.portal(), answer.status);
        }
        match purpose {
            // A controller that takes fewer requests than it says, or none, is left in peace.
            Purpose::ConnectionEvent if failed => {}
            Purpose::ConnectionEvent => self.take_event(AsyncEvent::decode(answer.result), now)?,
            Purpose::KeepAlive if failed => {
                let reason = format!("Keep Alive failed: {}", answer.status);
                return Err(CloseCause::Peer(reason).into());
            }
            Purpose::Status => check_status(ControllerStatus(answer.result), failed)?,
            Purpose::KeepAlive | Purpose::Acknowledge => {}
            Purpose::ChangedNamespaces => self.take_changed(answer, failed, now)?,
            Purpose::Namespace => self.take_namespace(answer, failed, now)?,
            Purpose::Ana if failed => {}
            Purpose::Ana => {
                let group = self.facts.namespace.ana_group;
                if let Some(state) = ana_state(&answer.data, group) {
                    self.set_access(state);
                }
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: AsyncEvent, now: Instant) -> Result<(), Lost> {
        self.events.count(now)?;
        self.begin(
            Purpose::ConnectionEvent,
            &commands::async_event_request(),
            None,
        )?;
        let all = NamespaceId::BROADCAST;
        match event.kind {
            AsyncEventKind::Namespaces => {
                let length = CHANGED_NAMESPACES_BYTES;
                let log = commands::get_log_page(lid::CHANGED_NAMESPACES, all, 0, length);
                self.send_for(Purpose::ChangedNamespaces, &log, now)
            }
            AsyncEventKind::Ana => self.ask_for_access(now),
            AsyncEventKind::Discovery => {
                self.news.push(Notice::VolumesChanged);
                Ok(())
            }
            AsyncEventKind::Other => {
                self.news.push(Notice::Other(format!(
                    "the controller reports an event, see log page {:02x}h",
                    event.log_page
                )));
                if event.log_page == 0 {
                    return Ok(());
                }
                let log = commands::get_log_page(event.log_page, all, 0, HEALTH_BYTES);
                self.send_for(Purpose::Acknowledge, &log, now)
            }
        }
    }

    fn ask_for_access(&mut self, now: Instant) -> Result<(), Lost> {
        if !self.facts.has_ana() {
            return Ok(());
        }
        let groups = self.facts.controller.ana_groups;
        let most = self.facts.transfer_bytes();
        let log = commands::get_log_page_with(
            lid::ANA,
            ANA_GROUPS_ONLY,
            NamespaceId::BROADCAST,
            0,
            ana_log_bytes(groups, most),
        );
        self.send_for(Purpose::Ana, &log, now)
    }

    fn take_changed(&mut self, answer: &Answer, failed: bool, now: Instant) -> Result<(), Lost> {
        let changed = namespace_list(&answer.data);
        let ours = self.facts.id;
        // More have changed than the list holds when it says so, or cannot be read.
        let any = failed || changed.first() == Some(&NamespaceId::BROADCAST);
        if any || changed.iter().any(|id| *id != ours) {
            self.news.push(Notice::VolumesChanged);
        }
        if any || changed.contains(&ours) {
            let identify = commands::identify(cns::NAMESPACE, ours);
            self.send_for(Purpose::Namespace, &identify, now)?;
        }
        Ok(())
    }

    fn take_namespace(&mut self, answer: &Answer, failed: bool, now: Instant) -> Result<(), Lost> {
        let found = if failed || answer.data.len() != IDENTIFY_BYTES {
            IdentifyNamespace::default()
        } else {
            IdentifyNamespace::decode(&answer.data)
        };
        if found.block_count == 0 {
            self.set_access(AccessState::PersistentLoss);
            return Ok(());
        }
        let before = std::mem::replace(&mut self.facts.namespace, found);
        let found = &self.facts.namespace;
        let was_lost = self.access == Some(AccessState::PersistentLoss);
        if found.block_count != before.block_count || found.block_size() != before.block_size() {
            self.news.push(Notice::CapacityChanged);
        }
        if was_lost && !self.facts.has_ana() {
            self.set_access(AccessState::Optimized);
        } else if was_lost || found.ana_group != before.ana_group {
            self.ask_for_access(now)?;
        }
        Ok(())
    }

    /// Parameters of the association and of its queues, by the standard's names.
    pub(super) fn negotiated(&self) -> Vec<(String, String)> {
        let (plan, io) = (&self.plan, &self.io);
        let state = self.facts.has_ana().then_some(self.access).flatten();
        let mut list = self.facts.negotiated(&self.admin, state);
        let on = |is_on| if is_on { "CRC32C" } else { "none" }.to_owned();
        let maps = |maps: crate::options::QueueMaps| {
            format!(
                "{} default, {} read, {} poll",
                maps.default, maps.read, maps.poll
            )
        };
        let mut push = |name: &str, value: String| list.push((name.to_owned(), value));
        push("I/O queues", maps(plan.maps));
        if plan.maps != plan.wanted {
            push("I/O queues asked for", maps(plan.wanted));
        }
        push("I/O queues granted", plan.granted.to_string());
        push("SQSIZE", format!("{} entries", plan.entries));
        let flow = if io.flow_control { "on" } else { "off" };
        push("SQ flow control", flow.to_owned());
        push(
            "In-capsule data",
            format!("{} bytes", plan.in_capsule_data_bytes),
        );
        push("MAXH2CDATA", format!("{} bytes", io.max_h2c_data));
        push("MAXR2T", self.admin.options().nvme.max_r2t.to_string());
        let alignment = (u32::from(self.admin.options().nvme.hpda) + 1) * 4;
        push("HPDA", format!("{alignment} bytes"));
        push("HDGST", on(io.header_digest));
        push("DDGST", on(io.data_digest));
        list
    }

    /// Asks the controller all there is to know about the namespace. Blocks.
    ///
    /// # Errors
    /// The controller does not answer, or not as it should.
    pub fn describe(&mut self) -> Result<Description, Error> {
        let before = self.facts.volume_info();
        self.facts.refresh(&mut self.admin)?;
        let info = self.facts.volume_info();
        if (info.block_count, info.block_size) != (before.block_count, before.block_size) {
            self.news.push(Notice::CapacityChanged);
        }
        if let Some(state) = self.read_access()? {
            self.set_access(state);
        }
        let mut negotiated = self.negotiated();
        negotiated.extend(self.health()?);
        Ok(Description {
            info,
            negotiated,
            reservation: self.reservations()?,
        })
    }

    /// What the controller says of its health, if anything.
    fn health(&mut self) -> Result<Vec<(String, String)>, Error> {
        let health = match self.admin.health() {
            Ok(health) => health,
            Err(Error::Command { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let warning = match health.critical_warning {
            0 => "none".to_owned(),
            bits => format!("{bits:#04x}"),
        };
        let list = [
            ("Critical Warning", warning),
            ("Percentage Used", format!("{} %", health.used_percent)),
            ("Media Errors", health.media_errors.to_string()),
        ];
        Ok(list.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// Reservation Report is a command of I/O queues, and those of the attachment are busy with other things. So it
    /// goes over one of its own, if the controller grants one.
    fn reservations(&mut self) -> Result<Option<ReservationReport>, Error> {
        if !self.facts.has_reservations() {
            return Ok(None);
        }
        let Some(queue_id) = self.plan.spare_queue() else {
            return Ok(None);
        };
        let step = "Reservation Report";
        let (mut link, _) = match self.plan.connect(&mut self.admin, queue_id) {
            Ok(connected) => connected,
            // Granted is not given.
            Err(error) => {
                debug!("{step}: {error}");
                return Ok(None);
            }
        };
        let length = UNIT_BYTES * (1 + REGISTRANTS_MAX);
        let length = length.min(self.facts.transfer_bytes() & !3);
        let command = commands::reservation_report(self.facts.id, length);
        let deadline = Deadline::after(self.admin.options().timeouts.login);
        let answer = link
            .run(&command, &[], deadline)
            .map_err(|error| self.admin.lost(step, error))?;
        if !answer.status.is_success() {
            debug!("{step} of {}: {}", self.admin.portal(), answer.status);
            return Ok(None);
        }
        Ok(Some(reservations(&Report::decode(&answer.data))))
    }

    /// How long the controller takes to answer a command that moves no data: Keep Alive, or a look at CSTS where it has
    /// none. Blocks.
    ///
    /// # Errors
    /// The association is of no use any more.
    pub fn round_trip(&mut self) -> Result<Duration, Lost> {
        let command = if self.keeps_alive {
            commands::keep_alive()
        } else {
            commands::property_get(Property::CSTS)
        };
        let deadline = Deadline::after(self.patience());
        let begun = Instant::now();
        self.admin.link.run(&command, &[], deadline)?;
        Ok(begun.elapsed())
    }

    /// Shuts the controller down. Blocks for a short while at most. Whether that proves that it executes nothing any
    /// more.
    pub fn close(self) -> bool {
        let is_proof = waits_for_commands(&self.facts.controller.model);
        self.admin.shut_down() && is_proof
    }
}

/// Whether a controller of this model is done with a shutdown or reset only when no command is executed any
/// more, as NVMe base 2.0 §3.6 has it. nvmet of Linux, which calls itself so unless it was given another
/// name, reports either as done at once, while its block device may still be at writes.
fn waits_for_commands(model: &str) -> bool {
    model != "Linux"
}

impl EventRate {
    /// Another one. Each costs us a command, so that a controller could keep us busy with nothing else.
    fn count(&mut self, now: Instant) -> Result<(), Lost> {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.count = 0;
        }
        self.count += 1;
        if self.count > EVENTS_PER_SECOND_MAX {
            let reason = "asynchronous events without end".to_owned();
            return Err(CloseCause::Protocol(reason).into());
        }
        Ok(())
    }
}

/// How long the controller may be silent: as the options say, and not longer than it would wait for us.
fn silence(admin: &Admin) -> Option<Duration> {
    let limits = [admin.options().timeouts.keep_alive, admin.keep_alive()];
    limits.into_iter().filter(|limit| !limit.is_zero()).min()
}

fn check_status(status: ControllerStatus, failed: bool) -> Result<(), Lost> {
    let reason = if failed {
        return Ok(());
    } else if status.is_fatal() {
        "it has a fatal error (CSTS.CFS)"
    } else if status.is_shutting_down() {
        "it is shutting down"
    } else if !status.is_ready() {
        "it was disabled"
    } else {
        return Ok(());
    };
    Err(CloseCause::Peer(reason.to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_of_nvmet_proves_nothing() {
        assert!(!waits_for_commands("Linux"));
        assert!(waits_for_commands("Longshore"));
    }
}
