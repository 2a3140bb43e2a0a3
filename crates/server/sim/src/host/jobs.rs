//! What a host does with its I/O queues, and what it makes of the answers.

use longshore_nvme::command::CommandId;
use longshore_nvme::host::commands;
use longshore_nvme::host::{CommandOutcome, Transfer};
use longshore_nvme::status::Status;

use super::queue::CommandRole;
use super::reservation::Plan;
use super::{Host, Job};
use crate::checker::{ANSWER_LIMIT, Violation};
use crate::scene::Scene;
use crate::time::{MICROSECOND, MILLISECOND};
use crate::workload::Purpose;
use crate::workload::nvme::{Task, make_up, write_again};

impl Host {
    /// Sends commands, and looks after those that take long.
    pub(super) fn work(&mut self, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let now = scene.now();
        if let Some(job) = self
            .jobs
            .values()
            .find(|job| now - job.sent_at > ANSWER_LIMIT)
        {
            return Err(Violation::Unanswered {
                party: self.index,
                command: format!("QID {} {}", job.queue, job.task.purpose),
            });
        }
        self.follow_plan(scene);
        let events = self
            .admin
            .as_ref()
            .map_or(2, |q| q.count(CommandRole::AsyncEvent));
        if events < 2 {
            self.ask(CommandRole::AsyncEvent, &commands::async_event_request());
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
            12..=21 if self.plan.is_none() => {
                let unit = self.random.index(scene.shapes.len());
                let (index, random) = (self.index, &mut self.random);
                self.plan = Some(Plan::new(index, unit, false, random));
            }
            _ => self.issue(scene),
        }
        Ok(())
    }

    pub(super) fn follow_plan(&mut self, scene: &mut Scene<'_>) {
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
            queue.submit(CommandRole::Reservation, &command, &data);
        }
    }

    pub(super) fn reservation_answered(
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

    pub(super) fn issue(&mut self, scene: &mut Scene<'_>) {
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

    pub(super) fn send(&mut self, place: usize, task: Task, scene: &mut Scene<'_>) {
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
                queue.submit(CommandRole::Job { serial, part }, command, data)
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

    pub(super) fn job_part_done(
        &mut self,
        serial: u64,
        part: usize,
        outcome: &CommandOutcome,
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

    pub(super) fn job_done(&mut self, job: &Job, scene: &mut Scene<'_>) -> Result<(), Violation> {
        let (unit, purpose) = (job.task.unit, &job.task.purpose);
        let statuses: Vec<Status> = job.statuses.iter().flatten().map(|s| s.code()).collect();
        let index = self.index;
        let wrong = |problem: &str| {
            Err(Violation::Answer {
                party: index,
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
            if let Purpose::Flush { .. } = purpose
                && scene.noticed.absences[unit].may_miss(job.sent_at)
            {
                // One of all units was not one of this.
                scene.give_up(unit, purpose);
                return Ok(());
            }
            if purpose.writes() && scene.noticed.protections[unit].must_refuse(job.sent_at) {
                return wrong("a write to a read-only namespace");
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
                Status::INVALID_FIELD if scene.noticed.absences[unit].may_miss(job.sent_at) => {}
                Status::INVALID_NAMESPACE_OR_FORMAT
                    if scene.noticed.endings[unit].may_miss(job.sent_at) =>
                {
                    refused = false;
                }
                Status::NAMESPACE_WRITE_PROTECTED
                    if scene.noticed.protections[unit].may_refuse(job.sent_at) => {}
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

    pub(super) fn abort_one(&mut self, scene: &mut Scene<'_>) {
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
        self.ask(CommandRole::Abort(serial), &command);
    }

    pub(super) fn abort_answered(
        &mut self,
        serial: u64,
        outcome: &CommandOutcome,
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
}
