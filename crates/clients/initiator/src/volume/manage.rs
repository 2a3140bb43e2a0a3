//! Further work of the first driver: paths that come, go and change, and deadlines.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::backoff::{self, Jitter};
use super::identity::difference;
use super::link::{Link, LinkControl};
use super::mail::{Loss, Mail, QueueAddress};
use super::path::{Doubt, Management, Phase, select};
use super::queue_owner::{QueueOutcome, QueueOwner};
use super::request::TransferLimits;
use super::shared::Shared;
use super::state::count;
use crate::error::{CloseCause, Failure, Lost};
use crate::info::{Notice, VolumeInfo};

/// A path that said it cannot is the last choice for so long, unless it says something else before.
const SUSPICION: Duration = Duration::from_secs(1);

/// A peer that asks us to leave gets its operations under way finished, within so long.
const LEAVING: Duration = Duration::from_secs(1);

/// What is due within this is due.
const SLACK: Duration = Duration::from_millis(1);

/// How long the peer gets to answer a logout.
const LOGOUT_WAIT: Duration = Duration::from_millis(500);

/// See the module documentation.
pub(super) struct Manager {
    shared: Arc<Shared>,
    jitter: Jitter,
    next_tick: Instant,
    /// When something is due next. `None`: look.
    next: Option<Instant>,
    /// Since when there has been no path.
    outage_since: Option<Instant>,
    closing: ClosingStep,
    /// Sockets of controls to watch, or not any more: the driver has the engine.
    pub(super) watches: Vec<ControlWatch>,
}

/// What the driver is to do about a control's socket.
pub(super) enum ControlWatch {
    Begin {
        path: usize,
        generation: u64,
    },
    End {
        path: usize,
        control: Box<dyn LinkControl>,
        generation: u64,
        then: AfterControl,
    },
}

/// What becomes of a control that is watched no more.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterControl {
    /// It ends, in a thread of its own; that may prove that its link executes nothing any more.
    Ends,
    /// It identifies the volume and comes back.
    Identifies,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClosingStep {
    Open,
    /// Operations are being finished.
    Finishing,
    /// Logouts are under way.
    LoggingOut {
        until: Instant,
    },
    /// Queues are being taken down.
    TakingDown,
    Done,
}

impl Manager {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let now = Instant::now();
        Self {
            next_tick: now + shared.tick(),
            shared,
            jitter: Jitter::from_environment(),
            next: None,
            outage_since: Some(now),
            closing: ClosingStep::Open,
            watches: Vec::new(),
        }
    }

    /// Nothing is left to be done.
    pub(super) fn is_done(&self) -> bool {
        self.closing == ClosingStep::Done
    }

    /// When [`Self::turn`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    // ---- mail ----

    pub(super) fn handle(&mut self, mail: Mail, now: Instant) {
        self.next = None;
        match mail {
            Mail::Watch(_) | Mail::Serve(_) | Mail::TakeDown(_) | Mail::Stop => {
                debug_assert!(false, "for drivers");
            }
            Mail::TakenDown { path } => self.taken_down(path),
            Mail::Dialled { path, link } => self.dialled(path, *link, now),
            Mail::DialFailed { path, error } => {
                count(&self.shared.counters.failed_connects);
                let mut management = self.shared.paths[path].management();
                tracing::debug!(
                    portal = self.shared.paths[path].portal(),
                    error,
                    "no connection"
                );
                // A refusal says more than that the portal is away since.
                if management.phase == Phase::Refused {
                    management.phase = Phase::Dialling;
                }
                management.last_error = Some(error);
            }
            Mail::Ended {
                path,
                generation,
                confirmed,
            } => {
                if confirmed {
                    let mut management = self.shared.paths[path].management();
                    management.ended_generation = management.ended_generation.max(generation);
                    drop(management);
                    // Not while its queues are being taken down; they come to it when they are through.
                    self.end_doubt(path, |doubt| {
                        doubt.generation == generation && doubt.ends.is_some()
                    });
                }
            }
            Mail::Lost {
                path,
                generation,
                loss,
            } => {
                let management = self.shared.paths[path].management();
                let is_current =
                    management.generation == generation && management.phase == Phase::Up;
                drop(management);
                if is_current {
                    self.lose(path, &loss, None, now);
                }
            }
            Mail::Notices { path, notices } => {
                for notice in notices {
                    self.notice(path, notice, now);
                }
            }
            Mail::Suspect { path } => {
                self.shared.paths[path].management().suspect_until = Some(now + SUSPICION);
                self.select_routes(now);
            }
            Mail::Identified {
                path,
                generation,
                control,
                info,
            } => {
                self.identified(path, generation, control, info, now);
            }
            Mail::Recheck => {}
        }
    }

    /// What has its time. Call it at each turn of the driver.
    pub(super) fn turn(&mut self, now: Instant, outcome: &mut QueueOutcome) {
        if self.next.is_some_and(|next| next > now) {
            return;
        }
        self.shared.finish_deferred();
        let now_ms = self.shared.set_clock(now);
        if now >= self.next_tick {
            self.next_tick = now + self.shared.tick();
            self.tick(outcome);
            self.give_up(now);
        }
        let mut next = self.next_tick;
        for path in 0..self.shared.paths.len() {
            if let Some(due) = self.path_turn(path, now) {
                next = next.min(due);
            }
        }
        if let Some(due_ms) = self.shared.submit_due(now_ms) {
            next = next.min(self.shared.instant(due_ms));
        }
        if let Some(due) = self.close(now) {
            next = next.min(due);
        }
        self.next = Some(next);
    }

    /// Looks for silence and for operations without an answer.
    fn tick(&mut self, outcome: &mut QueueOutcome) {
        let limits = self.shared.queue_timeouts();
        for path in &self.shared.paths {
            if path.management().phase != Phase::Up {
                continue;
            }
            for (index, queue) in path.queues.iter().enumerate() {
                // Nobody may be polling now: what has come must not look as if it had not.
                if path.is_poll_queue(index) {
                    queue.serve(&self.shared, outcome);
                }
                queue.check_time(&self.shared, limits, outcome);
            }
        }
    }

    /// What is due on one path, and when the next thing is.
    fn path_turn(&mut self, path: usize, now: Instant) -> Option<Instant> {
        // A deadline that says "at once" each time it is asked for is always a little later than `now`.
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now + SLACK);
        let mut management = self.shared.paths[path].management();
        if is_due(management.suspect_until) {
            management.suspect_until = None;
            drop(management);
            self.select_routes(now);
            management = self.shared.paths[path].management();
        }
        if is_due(management.doubt_ends()) {
            drop(management);
            self.end_doubt(path, |doubt| is_due(doubt.ends));
            management = self.shared.paths[path].management();
        }
        if is_due(
            management
                .control
                .as_ref()
                .and_then(|control| control.deadline()),
        ) {
            drop(management);
            self.drive_control(path, now);
            management = self.shared.paths[path].management();
        }
        if let Some(leaves_at) = management.leaves_at
            && management.phase == Phase::Up
            && (leaves_at <= now || self.shared.paths[path].load() == 0)
        {
            drop(management);
            let asked = CloseCause::Peer("it requested a logout".to_owned());
            self.lose(path, &Loss::Lost(Lost::Closed(asked)), None, now);
            management = self.shared.paths[path].management();
        }
        [
            management.suspect_until,
            management.doubt_ends(),
            management.leaves_at.map(|at| at.min(now + LEAVING / 20)),
            management
                .control
                .as_ref()
                .and_then(|control| control.deadline()),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    // ---- routes ----

    /// Looks which paths are best now.
    fn select_routes(&mut self, now: Instant) {
        let ranks: Vec<_> = self
            .shared
            .paths
            .iter()
            .map(|path| path.management().rank())
            .collect();
        let (routes, usable) = select(ranks.into_iter(), self.shared.settings.volume.policy);
        let before = self.shared.routes();
        if before != 0 && routes != 0 && before & routes == 0 {
            count(&self.shared.counters.failovers);
        }
        if routes == 0 {
            self.outage_since.get_or_insert(now);
        } else {
            self.outage_since = None;
        }
        self.shared.set_outage(self.outage_since);
        if self.wants_paths() {
            self.shared.set_routes(routes, usable);
        }
    }

    /// No path for too long, or no hope for one.
    fn give_up(&mut self, now: Instant) {
        let Some(since) = self.outage_since else {
            return;
        };
        let give_up = self.shared.patience();
        let too_long = !give_up.is_zero() && now.saturating_duration_since(since) >= give_up;
        let mut hopeless = true;
        let mut reason = None;
        for path in &self.shared.paths {
            let management = path.management();
            hopeless &= management.phase == Phase::Refused;
            if reason.is_none() || management.phase == Phase::Refused {
                reason = Some(management.lost.clone());
            }
        }
        if too_long || hopeless {
            self.shared
                .give_up(&Failure::ConnectionLost(reason.unwrap_or(Lost::Silent)));
        }
    }

    // ---- up ----

    /// A connector has made a link. Is it to the volume it should be?
    fn dialled(&mut self, path: usize, link: Link, now: Instant) {
        if !self.wants_paths() {
            self.discard(path, link);
            return;
        }
        let known = self.shared.info();
        if let Some(reason) = difference(&known, &link.info) {
            tracing::error!(
                portal = self.shared.paths[path].portal(),
                reason,
                "refused: not the volume that was opened"
            );
            self.discard(path, link);
            self.refuse(path, reason, now);
            return;
        }
        if *known != link.info {
            self.shared.set_info(link.info.clone());
        }
        self.up(path, link, now);
    }

    fn up(&mut self, path: usize, link: Link, now: Instant) {
        let place = &self.shared.paths[path];
        let mut management = place.management();
        debug_assert!(matches!(management.phase, Phase::Dialling | Phase::Refused));
        management.generation += 1;
        management.phase = Phase::Up;
        management.access = link.access;
        management.suspect_until = None;
        management.leaves_at = None;
        management.control = Some(link.control);
        management.up_since = Some(now);
        management.connects += 1;
        management.last_error = None;
        if management.connects > 1 {
            count(&self.shared.counters.reconnects);
        }
        let generation = management.generation;
        let (address, queues) = (link.address, link.queues.len());
        management.reach = Some((address, queues));
        tracing::info!(portal = place.portal(), "connected");
        drop(management);
        place.set_maps(link.maps);
        let limits = TransferLimits::from(&link.info);
        let now_ms = self.shared.set_clock(now);
        for (index, queue) in link.queues.into_iter().enumerate().take(place.queues.len()) {
            place.queues[index].attach(queue, limits, generation, now_ms);
            let address = QueueAddress { path, queue: index };
            self.shared
                .post(self.shared.driver_of(address), Mail::Watch(address));
        }
        self.watches.push(ControlWatch::Begin { path, generation });
        // What a former link left in doubt is over when the protocol says so, and each queue has taken the place of
        // its predecessor: the same number of the same peer. Otherwise its time goes on.
        if self.shared.dialer.redial_ends_former() {
            self.end_doubt(path, |doubt| {
                doubt
                    .reach
                    .is_some_and(|(former, count)| former == address && count <= queues)
            });
        }
        self.select_routes(now);
    }

    fn refuse(&mut self, path: usize, reason: String, now: Instant) {
        let mut management = self.shared.paths[path].management();
        management.phase = Phase::Refused;
        management.lost = Lost::AnotherVolume(reason.clone());
        management.last_error = Some(reason);
        // Nothing gets better soon.
        management.attempts = management.attempts.max(8);
        drop(management);
        self.dial(path);
        self.give_up(now);
    }

    /// Says goodbye to a link that is not used.
    fn discard(&mut self, path: usize, link: Link) {
        for mut queue in link.queues {
            if queue.close() {
                // Nobody waits for the answer.
                let _ = queue.send();
            }
            drop(queue.abandon());
        }
        self.watches.push(ControlWatch::End {
            path,
            control: link.control,
            generation: 0,
            then: AfterControl::Ends,
        });
    }

    // ---- down ----

    /// Gives the connections of a path up.
    fn lose(&mut self, path: usize, loss: &Loss, error: Option<String>, now: Instant) {
        let counters = &self.shared.counters;
        count(&counters.losses);
        match loss {
            Loss::TimedOut => count(&counters.timeouts),
            Loss::Silent => count(&counters.silences),
            Loss::Lost(_) => {}
        }
        let place = &self.shared.paths[path];
        let mut management = place.management();
        tracing::warn!(portal = place.portal(), reason = %loss, "connection lost");
        management.phase = Phase::TakingDown {
            queues: place.queues.len(),
        };
        management.lost = loss.as_lost();
        management.last_error = Some(error.unwrap_or_else(|| loss.to_string()));
        management.leaves_at = None;
        // A peer that takes connections only to drop them is not dialled more and more often.
        let was_stable = management.up_since.take().is_some_and(|since| {
            now.saturating_duration_since(since) > self.shared.settings.timeouts.reconnect_max
        });
        management.attempts = if was_stable {
            1
        } else {
            management.attempts + 1
        };
        let control = management.control.take();
        let generation = management.generation;
        drop(management);
        if let Some(control) = control {
            self.watches.push(ControlWatch::End {
                path,
                control,
                generation,
                then: AfterControl::Ends,
            });
        }
        // First nothing new goes there, then what is there goes elsewhere.
        self.select_routes(now);
        for queue in 0..self.shared.paths[path].queues.len() {
            let address = QueueAddress { path, queue };
            self.shared
                .post(self.shared.driver_of(address), Mail::TakeDown(address));
        }
    }

    /// One of its queues is empty.
    fn taken_down(&mut self, path: usize) {
        let mut management = self.shared.paths[path].management();
        let Phase::TakingDown { queues } = management.phase else {
            debug_assert!(false, "only then are queues taken down");
            return;
        };
        if queues > 1 {
            management.phase = Phase::TakingDown { queues: queues - 1 };
            return;
        }
        // Counted from here: the turn began before the last of the connections was closed. And what is due is
        // done a little early.
        let ends = Instant::now() + self.shared.settings.volume.settle + SLACK;
        let generation = management.generation;
        for doubt in &mut management.in_doubt {
            doubt.ends.get_or_insert(ends);
        }
        // The peer may have confirmed the end of a link before its queues were taken down.
        let is_over = management.ended_generation == generation;
        drop(management);
        if is_over {
            self.end_doubt(path, |doubt| doubt.generation == generation);
        }
        let mut management = self.shared.paths[path].management();
        if self.wants_paths() {
            management.phase = Phase::Dialling;
            drop(management);
            self.dial(path);
        } else {
            management.phase = Phase::Ended;
        }
    }

    /// These writes of former links cannot be executed any more, as far as anybody can tell: they go on.
    fn end_doubt(&mut self, path: usize, is_over: impl Fn(&Doubt) -> bool) {
        let mut management = self.shared.paths[path].management();
        let over: Vec<_> = management
            .in_doubt
            .extract_if(.., |doubt| is_over(doubt))
            .collect();
        drop(management);
        for doubt in over {
            self.shared.route(doubt.request);
        }
    }

    /// Has a connector connect a path, after a pause.
    pub(super) fn dial(&mut self, path: usize) {
        let mut attempts = self.shared.paths[path].management().attempts;
        let shared = self.shared.clone();
        let mut jitter = Jitter::new(self.jitter.next());
        let connector = thread::Builder::new()
            .name(format!("dial-{path}"))
            .spawn(move || {
                let (min, max) = {
                    let timeouts = &shared.settings.timeouts;
                    (timeouts.reconnect_min, timeouts.reconnect_max)
                };
                while shared.pause(backoff::pause(attempts, min, max, jitter.next())) {
                    attempts = attempts.saturating_add(1);
                    shared.paths[path].management().attempts = attempts;
                    match shared.dialer.dial(path) {
                        Ok(link) => {
                            let link = Box::new(link);
                            return shared.post(0, Mail::Dialled { path, link });
                        }
                        Err(error) => {
                            let error = error.to_string();
                            shared.post(0, Mail::DialFailed { path, error });
                        }
                    }
                }
            });
        match connector {
            Ok(handle) => self.shared.keep_connector(handle),
            Err(error) => {
                // Without threads nothing can be done but to say so; a later loss tries again.
                tracing::error!(%error, "cannot start a thread to reconnect");
                self.shared.paths[path].management().last_error =
                    Some(format!("cannot start a thread to reconnect: {error}"));
            }
        }
    }

    // ---- news ----

    fn notice(&mut self, path: usize, notice: Notice, now: Instant) {
        match notice {
            Notice::CapacityChanged | Notice::VolumesChanged => self.identify(path),
            Notice::AccessChanged(access) => {
                let mut management = self.shared.paths[path].management();
                management.access = access;
                management.suspect_until = None;
                drop(management);
                tracing::info!(
                    portal = self.shared.paths[path].portal(),
                    ?access,
                    "access state"
                );
                self.select_routes(now);
            }
            Notice::LogoutAsked => self.leave(path, now + LEAVING, now),
            Notice::ConnectionEnding { wait, .. } => self.leave(path, now + wait.min(LEAVING), now),
            Notice::Other(text) => {
                tracing::info!(portal = self.shared.paths[path].portal(), text, "news");
            }
        }
    }

    fn leave(&mut self, path: usize, at: Instant, now: Instant) {
        let mut management = self.shared.paths[path].management();
        if management.phase == Phase::Up {
            management.leaves_at.get_or_insert(at);
            drop(management);
            self.select_routes(now);
        }
    }

    /// Has a helper ask the peer about the volume.
    fn identify(&mut self, path: usize) {
        let mut management = self.shared.paths[path].management();
        if management.is_identifying {
            management.identify_again = true;
            return;
        }
        let Some(control) = management.control.take() else {
            return;
        };
        management.is_identifying = true;
        let generation = management.generation;
        drop(management);
        self.watches.push(ControlWatch::End {
            path,
            control,
            generation,
            then: AfterControl::Identifies,
        });
    }

    fn identified(
        &mut self,
        path: usize,
        generation: u64,
        control: Box<dyn LinkControl>,
        info: Result<Box<VolumeInfo>, String>,
        now: Instant,
    ) {
        let mut management = self.shared.paths[path].management();
        management.is_identifying = false;
        let again = std::mem::take(&mut management.identify_again);
        if management.generation != generation || management.phase != Phase::Up {
            drop(management);
            self.watches.push(ControlWatch::End {
                path,
                control,
                generation,
                then: AfterControl::Ends,
            });
            // Its successor may have had news meanwhile.
            if again {
                self.identify(path);
            }
            return;
        }
        management.control = Some(control);
        drop(management);
        self.watches.push(ControlWatch::Begin { path, generation });
        match info {
            Ok(info) => match difference(&self.shared.info(), &info) {
                None => {
                    tracing::info!(blocks = info.block_count, "identified the volume again");
                    self.shared.set_info(*info);
                }
                Some(reason) => {
                    let lost = Loss::Lost(Lost::AnotherVolume(reason.clone()));
                    self.lose(path, &lost, Some(reason), now);
                }
            },
            Err(error) => {
                tracing::warn!(error, "cannot identify the volume again");
            }
        }
        if again {
            self.identify(path);
        }
    }

    /// Takes in what has come on a control's socket, and does what is due there.
    pub(super) fn drive_control(&mut self, path: usize, now: Instant) {
        self.next = None;
        let mut management = self.shared.paths[path].management();
        if management.phase != Phase::Up {
            return;
        }
        let Some(control) = &mut management.control else {
            return;
        };
        let driven = control.drive(now);
        drop(management);
        match driven {
            Ok(notices) => {
                for notice in notices {
                    self.notice(path, notice, now);
                }
            }
            Err(lost) => self.lose(path, &Loss::Lost(lost), None, now),
        }
    }

    // ---- the end ----

    /// Whether there may be operations that need one.
    fn wants_paths(&self) -> bool {
        matches!(self.closing, ClosingStep::Open | ClosingStep::Finishing)
    }

    /// Takes the next step of closing, if it is time; when the one after may be.
    fn close(&mut self, now: Instant) -> Option<Instant> {
        let closing = self.shared.closing()?;
        if self.closing == ClosingStep::Open {
            self.closing = ClosingStep::Finishing;
        }
        if self.closing == ClosingStep::Finishing {
            if self.shared.outstanding() > 0 && now < closing.deadline {
                return Some(closing.deadline);
            }
            self.closing = ClosingStep::LoggingOut {
                until: now + LOGOUT_WAIT,
            };
            self.shared.set_routes(0, 0);
            self.shared.end_connectors();
            if !self.log_out() {
                self.closing = ClosingStep::LoggingOut { until: now };
            }
        }
        if let ClosingStep::LoggingOut { until } = self.closing {
            if self.any_path(|management| management.phase == Phase::Up) && now < until {
                return Some(until);
            }
            self.closing = ClosingStep::TakingDown;
            for path in 0..self.shared.paths.len() {
                let mut management = self.shared.paths[path].management();
                match management.phase {
                    Phase::Up => {
                        drop(management);
                        self.lose(path, &Loss::Lost(Lost::Ours), None, now);
                    }
                    Phase::Dialling | Phase::Refused => management.phase = Phase::Ended,
                    Phase::TakingDown { .. } | Phase::Ended => {}
                }
            }
        }
        if self.closing == ClosingStep::TakingDown
            && !self.any_path(|management| management.phase != Phase::Ended)
        {
            for path in &self.shared.paths {
                let in_doubt = std::mem::take(&mut path.management().in_doubt);
                for doubt in in_doubt {
                    self.shared.finish(doubt.request, Err(Failure::Closed));
                }
                // Paths that were not up had no queue taken down.
                for queue in &path.queues {
                    queue.flush(&self.shared);
                }
            }
            self.closing = ClosingStep::Done;
        }
        None
    }

    /// Logs out on all queues. Whether an answer is to be waited for.
    fn log_out(&self) -> bool {
        let mut waits = false;
        for path in &self.shared.paths {
            for queue in &path.queues {
                let asked = queue.with_queue(&self.shared, |queue| {
                    let asked = queue.close();
                    asked && queue.send().is_ok()
                });
                waits |= asked == Some(true);
            }
        }
        waits
    }

    fn any_path(&self, is: impl Fn(&Management) -> bool) -> bool {
        self.shared.paths.iter().any(|path| is(&path.management()))
    }
}
