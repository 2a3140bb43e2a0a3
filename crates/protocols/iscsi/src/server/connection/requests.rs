//! The requests that are short: Login, NOP-Out, Logout, and what numbered requests have in common.

use super::event::{CloseReason, ConnectionEvent};
use super::limits::NegotiatedLimits;
use super::reject::Refusal;
use super::state::{Connection, Phase, Receiving};
use crate::pdu::{
    Bhs, CmdSn, LoginRequest, LoginStatus, LogoutReason, LogoutRequest, LogoutResponse,
    LogoutResult, NopIn, NopOut, Opcode, TargetTransferTag, TextRequest,
};
use crate::server::directory::Directory;
use crate::server::login::{LoginError, LoginOutcome, refuse};
use crate::server::task::Tasks;
use crate::server::window::{Turn, Window};
use crate::session_parameters::{SessionParameters, SessionType};
use longshore_wire::transmit::Transmit;

impl Connection {
    /// The header of anything but a SCSI command in full feature phase.
    pub(super) fn other_header(
        &mut self,
        bhs: &Bhs,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let login = matches!(self.phase, Phase::Login(_));
        match bhs.opcode() {
            Opcode::LOGIN_REQUEST if login => self.collect(bhs, directory, transmit),
            _ if login => Some(self.invalid_during_login(transmit)),
            Opcode::DATA_OUT => {
                self.data_out_header(bhs, transmit);
                None
            }
            Opcode::NOP_OUT
            | Opcode::TASK_MANAGEMENT_REQUEST
            | Opcode::TEXT_REQUEST
            | Opcode::LOGOUT_REQUEST => self.numbered_header(bhs, directory, transmit),
            Opcode::SNACK_REQUEST => {
                self.refuse_current(Refusal::Snack, transmit);
                None
            }
            Opcode::LOGIN_REQUEST => {
                self.refuse_current(Refusal::LoginInFullFeaturePhase, transmit);
                None
            }
            _ => {
                self.refuse_current(Refusal::UnknownOpcode, transmit);
                None
            }
        }
    }

    /// The header of a request other than a SCSI command that has a CmdSN.
    fn numbered_header(
        &mut self,
        bhs: &Bhs,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        // §4.3 b): nothing but SendTargets and Logout.
        if self.limits.session_type == SessionType::Discovery
            && !matches!(bhs.opcode(), Opcode::TEXT_REQUEST | Opcode::LOGOUT_REQUEST)
        {
            self.refuse_current(Refusal::NotInDiscoverySession, transmit);
            return None;
        }
        // The number is where a Text Request has it, for all of them.
        let cmd_sn = TextRequest::cmd_sn_of(bhs);
        // §11.18.1: a NOP-Out that wants no answer does not advance CmdSN, whatever its I bit.
        let unanswered = bhs.opcode() == Opcode::NOP_OUT && bhs.initiator_task_tag().is_reserved();
        if bhs.immediate() || unanswered {
            return self.collect(bhs, directory, transmit);
        }
        match self.window.turn(cmd_sn) {
            Turn::Now => self.collect(bhs, directory, transmit),
            Turn::Later => {
                self.collected.clear();
                self.receiving = Receiving::HeldRequest(cmd_sn);
                None
            }
            Turn::Never => {
                self.receiving = Receiving::Discarded;
                None
            }
        }
    }

    /// Wants the data segment as a whole; without one the request is complete.
    fn collect(
        &mut self,
        bhs: &Bhs,
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        if bhs.data_segment_length() == 0 {
            return self.request(bhs, &[], directory, transmit);
        }
        self.collected.clear();
        self.receiving = Receiving::Collected;
        None
    }

    /// A request has arrived in full, and it is its turn.
    pub(super) fn request(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        match bhs.opcode() {
            Opcode::LOGIN_REQUEST => return self.login(bhs, data, directory, transmit),
            Opcode::TASK_MANAGEMENT_REQUEST => return self.task_management(bhs, transmit),
            Opcode::LOGOUT_REQUEST => return self.logout(bhs, transmit),
            Opcode::TEXT_REQUEST => self.text(bhs, data, directory, transmit),
            _ => self.nop_out(bhs, data, transmit),
        }
        None
    }

    fn login(
        &mut self,
        bhs: &Bhs,
        data: &[u8],
        directory: &mut dyn Directory,
        transmit: &mut Transmit,
    ) -> Option<ConnectionEvent<'static>> {
        let request = LoginRequest::decode(bhs);
        let Phase::Login(logging_in) = &mut self.phase else {
            unreachable!("Login Requests are refused once the login is over");
        };
        logging_in.last = Some(request);
        let (mut response, text, outcome) = match self.config.refuse_logins {
            Some(status) => (refuse(&request, status), Vec::new(), None),
            None => {
                let reply = logging_in.login.handle(&request, data, directory);
                (reply.response, reply.data, Some(reply.outcome))
            }
        };
        // §11.12.8: a leading login sets the first CmdSN; its requests do not use it up.
        self.window = Window::new(request.cmd_sn, self.config.queue_depth);
        response.window = self.window.announced();
        response.stat_sn = self.next_stat_sn();
        self.encoder.push(response.encode(), &text, transmit);
        match outcome {
            Some(LoginOutcome::Continue) => None,
            Some(LoginOutcome::Finished(session)) => Some(self.establish(*session, request.cmd_sn)),
            Some(LoginOutcome::Refused(error)) => {
                Some(self.close(CloseReason::LoginRefused(error)))
            }
            None => Some(self.close(CloseReason::LoginsRefused(response.status))),
        }
    }

    /// Anything but a Login Request during login (§4.2.4): answered by a login reject once the login
    /// has started, by nothing before; the end either way.
    fn invalid_during_login(&mut self, transmit: &mut Transmit) -> ConnectionEvent<'static> {
        if let Phase::Login(logging_in) = &self.phase
            && let Some(request) = logging_in.last
        {
            self.send_login_reject(&request, LoginStatus::INVALID_DURING_LOGIN, transmit);
        }
        self.close(CloseReason::ProtocolError(
            "a PDU other than a Login Request during login",
        ))
    }

    /// A Login Request whose data segment is longer than any may be.
    pub(super) fn refuse_long_login(
        &mut self,
        bhs: &Bhs,
        transmit: &mut Transmit,
    ) -> ConnectionEvent<'static> {
        let error = LoginError::DataSegmentTooLong(bhs.data_segment_length() as usize);
        self.send_login_reject(&LoginRequest::decode(bhs), error.status(), transmit);
        self.close(CloseReason::LoginRefused(error))
    }

    fn send_login_reject(
        &mut self,
        request: &LoginRequest,
        status: LoginStatus,
        transmit: &mut Transmit,
    ) {
        let mut response = refuse(request, status);
        response.stat_sn = self.next_stat_sn();
        self.encoder.push(response.encode(), &[], transmit);
    }

    /// The login has succeeded: what was negotiated is in force from the next PDU on.
    fn establish(&mut self, session: SessionParameters, first: CmdSn) -> ConnectionEvent<'static> {
        let operational = &session.operational;
        self.framing
            .set_digests(operational.header_digest, operational.data_digest);
        self.encoder
            .set_digests(operational.header_digest, operational.data_digest);
        self.limits = NegotiatedLimits::new(
            session.session_type,
            operational,
            self.config.inline_read_max,
        );
        self.window = Window::new(first, self.config.queue_depth);
        self.tasks = match session.session_type {
            SessionType::Normal => {
                Tasks::new(self.config.queue_depth, self.config.immediate_commands)
            }
            SessionType::Discovery => Tasks::new(0, 0),
        };
        self.session = Some(session);
        self.phase = Phase::FullFeature;
        ConnectionEvent::Established
    }

    fn nop_out(&mut self, bhs: &Bhs, data: &[u8], transmit: &mut Transmit) {
        let nop = NopOut::decode(bhs);
        if nop.initiator_task_tag.is_reserved() {
            // An answer to a ping of ours, or a mere ExpStatSN: neither is answered.
            self.timers.ping_answered(nop.target_transfer_tag);
            return;
        }
        self.receive_numbered(nop.immediate);
        self.give_back_numbered(nop.immediate);
        let limit = self.limits.initiator_max_recv_data_segment_length as usize;
        let echo = &data[..data.len().min(limit)];
        let nop_in = NopIn {
            lun: nop.lun,
            initiator_task_tag: nop.initiator_task_tag,
            target_transfer_tag: TargetTransferTag::RESERVED,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
        };
        self.encoder.push(nop_in.encode(), echo, transmit);
    }

    fn logout(&mut self, bhs: &Bhs, transmit: &mut Transmit) -> Option<ConnectionEvent<'static>> {
        let request = LogoutRequest::decode(bhs);
        let session = self
            .session
            .as_ref()
            .expect("there is a session in full feature phase");
        let own = request.connection_id == session.connection_id;
        let operational = &session.operational;
        let times = (
            operational.default_time2wait,
            operational.default_time2retain,
        );
        let discovery = session.session_type == SessionType::Discovery;
        let response = match request.reason {
            LogoutReason::CLOSE_SESSION => LogoutResult::CLOSED,
            _ if discovery => {
                // §4.3 b): a discovery session ends by "close the session".
                self.refuse(bhs, &[], Refusal::NotInDiscoverySession, transmit);
                return None;
            }
            LogoutReason::CLOSE_CONNECTION if own => LogoutResult::CLOSED,
            LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY if own => {
                LogoutResult::RECOVERY_NOT_SUPPORTED
            }
            LogoutReason::CLOSE_CONNECTION | LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY => {
                LogoutResult::CID_NOT_FOUND
            }
            _ => {
                self.refuse(bhs, &[], Refusal::ContradictoryFields, transmit);
                return None;
            }
        };
        self.receive_numbered(request.immediate);
        self.give_back_numbered(request.immediate);
        // §11.15.3, §11.15.4: the times mean something only when the connection lives on.
        let (time2wait, time2retain) = match response {
            LogoutResult::RECOVERY_NOT_SUPPORTED => times,
            _ => (0, 0),
        };
        let response = LogoutResponse {
            response,
            initiator_task_tag: request.initiator_task_tag,
            stat_sn: self.next_stat_sn(),
            window: self.window.announced(),
            time2wait,
            time2retain,
        };
        self.encoder.push(response.encode(), &[], transmit);
        (response.response == LogoutResult::CLOSED).then(|| self.close(CloseReason::Logout))
    }
}
