//! Task management functions: decoded and checked here, carried out by the driver (RFC 7143 §11.5,
//! §11.6).

use super::event::ConnectionEvent;
use super::pending::PendingRequest;
use super::reject::Refusal;
use super::state::Connection;
use crate::pdu::{
    self, Bhs, CmdSn, Function, InitiatorTaskTag, TaskManagementResponse,
    TaskManagementResponseCode as Code,
};
use crate::server::command::{
    TaskId, TaskManagementFunction, TaskManagementId, TaskManagementRequest, TaskManagementResult,
};
use crate::server::window::Turn;
use longshore_wire::transmit::Transmit;

/// Requests that may wait for the driver's answer.
const PENDING_MAX: usize = 32;

impl Connection {
    /// A request has come in and it is its turn.
    pub(super) fn task_management(
        &mut self,
        bhs: &Bhs,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let request = pdu::TaskManagementRequest::decode(bhs);
        let tag = request.initiator_task_tag;
        if tag.is_reserved() || self.tag_in_use(tag) {
            self.refuse(bhs, &[], Refusal::TagInUse, transmit);
            return None;
        }
        if self.task_management.requests.len() >= PENDING_MAX {
            self.refuse(bhs, &[], Refusal::TooManyImmediate, transmit);
            return None;
        }
        self.receive_numbered(request.immediate);
        match self.decide(&request) {
            Ok((function, referenced_task)) => {
                Some(ConnectionEvent::TaskManagement(TaskManagementRequest {
                    id: self.task_management.add(&request),
                    function,
                    lun: request.lun,
                    referenced_task,
                    cmd_sn: request.cmd_sn,
                }))
            }
            Err(response) => {
                self.respond_to_task_management(tag, request.immediate, response, transmit);
                None
            }
        }
    }

    /// What the driver is to do, or what is answered without it.
    fn decide(
        &mut self,
        request: &pdu::TaskManagementRequest,
    ) -> Result<(TaskManagementFunction, Option<TaskId>), Code> {
        match request.function {
            Function::ABORT_TASK => {
                let tag = request.referenced_task_tag;
                match self.tasks.find(tag) {
                    Some(task) => Ok((TaskManagementFunction::AbortTask, Some(task))),
                    None => match self.abort_missing_task(request) {
                        // It may have been aborted otherwise, and still act; the driver knows.
                        Code::TASK_DOES_NOT_EXIST => Ok((TaskManagementFunction::AbortTask, None)),
                        response => Err(response),
                    },
                }
            }
            Function::ABORT_TASK_SET => Ok((TaskManagementFunction::AbortTaskSet, None)),
            Function::CLEAR_ACA => Ok((TaskManagementFunction::ClearAca, None)),
            Function::CLEAR_TASK_SET => Ok((TaskManagementFunction::ClearTaskSet, None)),
            Function::LOGICAL_UNIT_RESET => Ok((TaskManagementFunction::LogicalUnitReset, None)),
            Function::TARGET_WARM_RESET => Ok((TaskManagementFunction::TargetWarmReset, None)),
            Function::TARGET_COLD_RESET => Ok((TaskManagementFunction::TargetColdReset, None)),
            // §7.2.2: below level 2 there is nothing to be reassigned to.
            Function::TASK_REASSIGN => Err(Code::REASSIGNMENT_NOT_SUPPORTED),
            // RFC 7144's functions need a protocol level that is not offered.
            _ => Err(Code::FUNCTION_NOT_SUPPORTED),
        }
    }

    /// ABORT TASK for a task that is not here (§11.6.1): one whose command is still on its way
    /// counts as received, so that it has no effect when it comes.
    fn abort_missing_task(&mut self, request: &pdu::TaskManagementRequest) -> Code {
        if self.task_management.contains(request.referenced_task_tag) {
            // §11.5.1: "MUST NOT be executed on a task management request".
            return Code::FUNCTION_REJECTED;
        }
        let number = self
            .held
            .find(request.referenced_task_tag)
            .unwrap_or(request.ref_cmd_sn);
        let missing = self.window.turn(number) != Turn::Never && number.precedes(request.cmd_sn);
        if !missing {
            return Code::TASK_DOES_NOT_EXIST;
        }
        self.skip(number);
        Code::FUNCTION_COMPLETE
    }

    /// The command with this number counts as received.
    fn skip(&mut self, number: CmdSn) {
        self.held.skip(number);
    }

    /// Answers a task management request.
    ///
    /// # Panics
    /// When the request does not wait for an answer.
    pub fn task_management_done(
        &mut self,
        request: TaskManagementId,
        result: TaskManagementResult,
        transmit: &mut Transmit,
    ) {
        let response = match result {
            TaskManagementResult::FunctionComplete => Code::FUNCTION_COMPLETE,
            TaskManagementResult::TaskDoesNotExist => Code::TASK_DOES_NOT_EXIST,
            TaskManagementResult::LunDoesNotExist => Code::LUN_DOES_NOT_EXIST,
            TaskManagementResult::FunctionNotSupported => Code::FUNCTION_NOT_SUPPORTED,
            TaskManagementResult::FunctionAuthorizationFailed => Code::AUTHORIZATION_FAILED,
            TaskManagementResult::FunctionRejected => Code::FUNCTION_REJECTED,
        };
        let pending = self
            .task_management
            .take(request)
            .expect("each request is answered once");
        let PendingRequest {
            initiator_task_tag,
            immediate,
            ..
        } = pending;
        self.respond_to_task_management(initiator_task_tag, immediate, response, transmit);
    }

    fn respond_to_task_management(
        &mut self,
        initiator_task_tag: InitiatorTaskTag,
        immediate: bool,
        response: Code,
        transmit: &mut Transmit,
    ) {
        self.give_back_numbered(immediate);
        let response = TaskManagementResponse {
            response,
            initiator_task_tag,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
        };
        self.encoder.push(response.encode(), &[], transmit);
    }
}
