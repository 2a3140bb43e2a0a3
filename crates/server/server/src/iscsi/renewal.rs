//! A change of the exports in an existing session.

use std::sync::Arc;

use longshore_iscsi::server::TaskId;
use longshore_scsi::command::{Completion, UnitIndex};
use longshore_scsi::sense::{AdditionalSense, Sense};

use super::session::{Places, Renewed};
use super::state::{Effect, Iscsi, ScsiWork};
use crate::core::Core;
use crate::counters::clients::Ending;
use crate::execute::task::{Task, TaskState};
use crate::execute::tasks::Tasks;
use crate::transport::channel::Channel;

impl Iscsi {
    /// Takes over what is exported now, and tells the initiator.
    pub(super) fn renew_session(&mut self, core: &mut Core, channel: &mut Channel) {
        let (Some(session), Some(parameters)) = (&mut self.session, self.machine.session()) else {
            return;
        };
        let view = Arc::clone(&core.view);
        let (renewed, places) = session.renew(&view.exports, parameters);
        if renewed == Renewed::Nothing {
            return;
        }
        self.renumber(&places);
        self.forget_gone(core);
        if channel.is_closing() {
            return;
        }
        let transmit = &mut channel.transmit;
        match renewed {
            Renewed::Nothing => {}
            Renewed::Luns => {
                let changed = AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED;
                let told = Completion::from(Sense::unit_attention(changed)).sense_bytes();
                let sense = told.as_ref().map_or(&[][..], |sense| sense.as_ref());
                self.machine.report_scsi_event(sense, transmit);
            }
            Renewed::Dismissed => {
                let initiator = parameters_name(&self.machine);
                let peer = channel.socket.peer;
                tracing::info!(%peer, initiator, "session ends: its target or its access is gone");
                self.machine.request_logout(transmit, core.now_ms);
                channel.ends_by(Ending::Access);
            }
        }
    }

    /// Forgets logical units that the session has no more and that no task needs. Whether some are left.
    pub(super) fn forget_gone(&mut self, core: &Core) -> bool {
        let Some(session) = self.session.as_mut().filter(|session| session.has_gone()) else {
            return false;
        };
        let tasks = &self.tasks;
        let is_used = |place| tasks.iter().any(|task| task.work.lun == Some(place));
        let (places, is_left) = session.forget_gone(&core.view.exports, is_used);
        self.renumber(&places);
        is_left
    }

    fn renumber(&mut self, places: &Places) {
        for task in self.tasks.iter_mut() {
            if let Some(lun) = &mut task.work.lun {
                *lun = places[*lun].expect("a logical unit stays as long as a task refers to it");
            }
        }
    }

    /// Tasks and other things of this connection that need a unit.
    pub(super) fn uses(&self, unit: usize) -> usize {
        let is_of = |task: &&Task<ScsiWork>| uses(task, unit);
        let tasks = self.tasks.iter().filter(is_of).count();
        let gone = self.luns().iter().filter(|entry| entry.is_gone());
        let gone = gone.filter(|entry| entry.unit == unit).count();
        let management = self
            .management
            .iter()
            .filter(|pending| match pending.effect {
                Effect::ClearTaskSet { unit: of } | Effect::ResetUnit { unit: of } => of == unit,
                Effect::None | Effect::Missing | Effect::ResetTarget { .. } => false,
            });
        // One that is gone stays for the sake of tasks.
        tasks.max(gone) + management.count()
    }

    /// The unit is to be removed, and its tasks have had their time.
    pub(super) fn end_uses(&mut self, core: &mut Core, channel: &mut Channel, unit: usize) {
        let tasks = self.tasks.iter().filter(|task| uses(task, unit));
        let slots: Vec<u32> = tasks.map(|task| task.address.slot).collect();
        for slot in slots {
            let Some(mut task) = self.tasks.take(slot) else {
                continue;
            };
            match task.state {
                // It ends soon, or when its initiator moves.
                TaskState::Elsewhere => self.tasks.park(task),
                // The initiator is sending, or should be: it would take a response for one to what it has sent.
                TaskState::Receiving => {
                    self.tasks.park(task);
                    self.machine.abort(TaskId(slot));
                    self.end_task(core, channel, slot, None);
                }
                TaskState::Memory { .. }
                | TaskState::Half
                | TaskState::Deferred
                | TaskState::Ordering
                | TaskState::Storage { .. }
                | TaskState::Medium(_)
                | TaskState::Delayed(_)
                | TaskState::Lock { .. } => {
                    let session = self.session.as_ref();
                    let activity = session.map(|session| Arc::clone(&session.ticket.activity));
                    Tasks::orphan(core, &mut task, Vec::new(), activity.as_ref());
                    let sense = Sense::logical_unit_not_supported();
                    self.finish(core, channel, task, sense.into());
                }
            }
        }
    }
}

fn parameters_name(machine: &longshore_iscsi::server::Connection) -> &str {
    machine
        .session()
        .map_or("", |session| session.initiator_name.as_str())
}

/// Whether a task needs a unit: its own, or one that it copies from or to.
fn uses(task: &Task<ScsiWork>, unit: usize) -> bool {
    let waits_for = match task.state {
        TaskState::Medium(wanted) | TaskState::Delayed(wanted) => wanted.unit == unit,
        TaskState::Receiving
        | TaskState::Memory { .. }
        | TaskState::Half
        | TaskState::Deferred
        | TaskState::Ordering
        | TaskState::Storage { .. }
        | TaskState::Lock { .. }
        | TaskState::Elsewhere => false,
    };
    task.unit == Some(unit) || waits_for || task.work.command.uses(UnitIndex(unit))
}
