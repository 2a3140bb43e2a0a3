//! Task management functions: the tasks they end, and the steps after that.

use std::sync::Arc;

use longshore_block::reservation::Participant;
use longshore_iscsi::server::{
    TaskId, TaskManagementFunction, TaskManagementId, TaskManagementRequest, TaskManagementResult,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::unit::Reset;

use super::session::Session;
use super::state::{Effect, Iscsi, PendingManagement, ScsiWork};
use crate::core::Core;
use crate::execute::task::Task;
use crate::execute::tasks::Tasks;
use crate::mail::abort::{AbortOrder, AbortScope, Exception};
use crate::mail::message::{AbortNotice, AbortedFor, Message, Note};
use crate::transport::channel::Channel;

impl Iscsi {
    /// A task management request arrived (SAM-5 §7, RFC 7143 §11.5).
    pub(crate) fn task_management(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        request: TaskManagementRequest,
    ) {
        match self.plan(core, channel, request) {
            Ok((scope, effect)) => self.order(core, channel, request.id, scope, effect),
            Err(result) => self.answer_management(channel, request.id, result),
        }
    }

    fn plan(
        &mut self,
        core: &Core,
        channel: &mut Channel,
        request: TaskManagementRequest,
    ) -> Result<(AbortScope, Effect), TaskManagementResult> {
        use TaskManagementFunction as Function;
        let Some(session) = &self.session else {
            return Err(TaskManagementResult::FunctionRejected);
        };
        let unit = session
            .find_lun(Lun(request.lun.0))
            .map(|lun| session.luns[lun].unit)
            .ok_or(TaskManagementResult::LunDoesNotExist);
        let target = session.target.ok_or(TaskManagementResult::FunctionRejected);
        Ok(match request.function {
            Function::AbortTask => {
                let task = request
                    .referenced_task
                    .and_then(|task| self.tasks.get_mut(task.0));
                match task {
                    Some(task) => (AbortScope::Task(task.address), Effect::None),
                    // A reset by somebody else may have aborted it just now, and its write be on
                    // its way still. "Does not exist" would be an invitation to write anew.
                    None => {
                        let connection = channel.address;
                        (AbortScope::Ended { connection }, Effect::Missing)
                    }
                }
            }
            Function::AbortTaskSet => {
                let scope = AbortScope::ConnectionUnit {
                    connection: channel.address,
                    unit: unit?,
                };
                (scope, Effect::None)
            }
            // There is never an auto contingent allegiance: NACA is refused in every CDB.
            Function::ClearAca => {
                unit?;
                return Err(TaskManagementResult::FunctionNotSupported);
            }
            Function::ClearTaskSet => {
                let unit = unit?;
                (AbortScope::Unit { unit }, Effect::ClearTaskSet { unit })
            }
            Function::LogicalUnitReset => {
                let unit = unit?;
                (AbortScope::Unit { unit }, Effect::ResetUnit { unit })
            }
            Function::TargetWarmReset | Function::TargetColdReset => {
                let target = target?;
                let cold = request.function == Function::TargetColdReset;
                // Units that the initiator cannot see are not its to disturb.
                let units = session.units();
                let all = core.view.exports.targets.get(target);
                if cold && all.is_none_or(|all| units != all.units()) {
                    // It would end sessions that use others.
                    return Err(TaskManagementResult::FunctionAuthorizationFailed);
                }
                (
                    AbortScope::Units { units },
                    Effect::ResetTarget { target, cold },
                )
            }
        })
    }

    fn order(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        id: TaskManagementId,
        scope: AbortScope,
        effect: Effect,
    ) {
        let local = matches!(
            scope,
            AbortScope::Task(_) | AbortScope::Ended { .. } | AbortScope::ConnectionUnit { .. }
        );
        let waiter = AbortedFor::TaskManagement {
            connection: channel.address,
            request: id,
        };
        let except = Exception::Later {
            connection: channel.address,
            sequence: self.sequence,
        };
        let order = AbortOrder::new(
            scope,
            except,
            AbortNotice {
                waiter,
                post: core.post().clone(),
            },
        );
        self.management.push(PendingManagement { id, effect });
        if local {
            // At once: a task that is there now must not complete between the request and its answer.
            core.hold_for_orphans(&order);
            self.obey_order(core, channel, &order);
        } else {
            core.shared.broadcast(|| Message::Abort(Arc::clone(&order)));
        }
    }

    /// The tasks that a request named are no more; `aborted` are the nexuses that lost some.
    pub(crate) fn management_done(
        &mut self,
        core: &Core,
        channel: &mut Channel,
        id: TaskManagementId,
        aborted: &[Arc<dyn Participant>],
    ) {
        let Some(index) = self.management.iter().position(|pending| pending.id == id) else {
            return;
        };
        let pending = self.management.swap_remove(index);
        self.take_effect(core, pending.effect, aborted);
        let result = match pending.effect {
            Effect::Missing => TaskManagementResult::TaskDoesNotExist,
            Effect::None
            | Effect::ClearTaskSet { .. }
            | Effect::ResetUnit { .. }
            | Effect::ResetTarget { .. } => TaskManagementResult::FunctionComplete,
        };
        self.answer_management(channel, id, result);
    }

    /// The connection dies before its requests are answered. Tasks of others may be gone already, and
    /// they must hear of it.
    pub(crate) fn abandon_management(&mut self, core: &Core) {
        for pending in std::mem::take(&mut self.management) {
            let affected: Vec<Arc<dyn Participant>> = match pending.effect {
                Effect::ClearTaskSet { unit } => {
                    let nexuses = core.unit(unit).logical_unit.nexuses();
                    nexuses.into_iter().map(|nexus| nexus as _).collect()
                }
                Effect::None
                | Effect::Missing
                | Effect::ResetUnit { .. }
                | Effect::ResetTarget { .. } => Vec::new(),
            };
            self.take_effect(core, pending.effect, &affected);
        }
    }

    /// Does to the units what a function does once the tasks are gone.
    fn take_effect(&self, core: &Core, effect: Effect, aborted: &[Arc<dyn Participant>]) {
        let exports = &core.view.exports;
        match effect {
            Effect::None | Effect::Missing => {}
            Effect::ClearTaskSet { unit } => {
                let luns = self.luns();
                if let Some(origin) = luns.iter().find(|lun| lun.unit == unit) {
                    let unit = &exports.unit(unit).logical_unit;
                    unit.tasks_cleared_by(&origin.nexus, aborted);
                }
            }
            Effect::ResetUnit { unit } => {
                exports.unit(unit).logical_unit.reset(Reset::LogicalUnit);
            }
            Effect::ResetTarget { target, cold } => {
                let kind = if cold {
                    Reset::TargetCold
                } else {
                    Reset::TargetWarm
                };
                let units = self.session.as_ref().map(Session::units);
                for unit in units.unwrap_or_default() {
                    exports.unit(unit).logical_unit.reset(kind);
                }
                if cold {
                    core.shared
                        .broadcast(|| Message::NoteForAll(Note::TargetReset(target)));
                }
            }
        }
    }

    /// Carries out what an abort order says about this connection's tasks. Returns whether any ended.
    pub(super) fn obey_order(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        order: &Arc<AbortOrder>,
    ) -> bool {
        let luns = self.luns();
        let named = |task: &&Task<ScsiWork>| {
            let unit = task.work.lun.and_then(|lun| luns.get(lun));
            let on = unit.map(|entry| (entry.unit, &*entry.nexus as &dyn Participant));
            order.names(task.address, task.work.sequence, on)
        };
        let slots: Vec<u32> = self
            .tasks
            .iter()
            .filter(named)
            .map(|t| t.address.slot)
            .collect();
        for slot in &slots {
            self.machine.abort(TaskId(*slot));
            self.end_task(core, channel, *slot, Some(order));
        }
        !slots.is_empty()
    }

    /// Ends a parked task without an answer.
    pub(crate) fn end_task(
        &mut self,
        core: &mut Core,
        channel: &mut Channel,
        slot: u32,
        order: Option<&Arc<AbortOrder>>,
    ) {
        let Some(mut task) = self.tasks.take(slot) else {
            return;
        };
        if let Some(order) = order
            && let Some(entry) = task.work.lun.and_then(|lun| self.luns().get(lun))
        {
            order.note_aborted(Arc::clone(&entry.nexus) as _);
        }
        let orders = order.cloned().into_iter().collect();
        let session = self.session.as_ref();
        let activity = session.map(|session| &session.ticket.activity);
        Tasks::orphan(core, &mut task, orders, activity);
        core.stages.drop(std::mem::take(&mut task.followed));
        self.let_go(core, channel, task);
    }
}
