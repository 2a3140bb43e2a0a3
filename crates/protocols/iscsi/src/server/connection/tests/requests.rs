//! Everything but SCSI commands and their data.

use super::*;
use crate::pdu::{
    ConnectionId, Function, LoginRequest, LogoutReason, LogoutRequest, LogoutResponse,
    LogoutResult, NopIn, NopOut, SnackRequest, SnackType, Stage, TaskManagementRequest as Request,
    TaskManagementResponse, TaskManagementResponseCode as Code, TextRequest, TextResponse, Tsih,
};
use crate::server::command::{TaskManagementFunction, TaskManagementResult};

fn ping(tag: u32, immediate: bool, cmd_sn: CmdSn) -> NopOut {
    NopOut {
        immediate,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: TargetTransferTag::RESERVED,
        cmd_sn,
        exp_stat_sn: StatSn(0),
    }
}

fn task_management(function: Function, referenced: u32, ref_cmd_sn: CmdSn) -> Request {
    Request {
        immediate: true,
        function,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag(900),
        referenced_task_tag: InitiatorTaskTag(referenced),
        cmd_sn: CmdSn(105),
        exp_stat_sn: StatSn(0),
        ref_cmd_sn,
        exp_data_sn: 0,
    }
}

fn text(tag: u32, is_final: bool, continues: bool) -> TextRequest {
    TextRequest {
        immediate: true,
        is_final,
        continues,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: TargetTransferTag::RESERVED,
        cmd_sn: CmdSn(100),
        exp_stat_sn: StatSn(0),
    }
}

fn logout(reason: LogoutReason, connection_id: u16) -> LogoutRequest {
    LogoutRequest {
        immediate: true,
        reason,
        initiator_task_tag: InitiatorTaskTag(800),
        connection_id: ConnectionId(connection_id),
        cmd_sn: CmdSn(100),
        exp_stat_sn: StatSn(0),
    }
}

#[test]
fn unknown_opcodes_are_rejected_with_their_header_and_the_connection_lives() {
    let mut wire = Wire::logged_in();
    for opcode in [0x07, 0x1c, 0x20, 0x21, 0x3f] {
        let bhs = Bhs::new(Opcode(opcode));
        assert_eq!(wire.send(bhs, &[1; 9]), []);
        wire.assert_rejected(with_length(bhs, 9), RejectReason::COMMAND_NOT_SUPPORTED);
    }
    wire.start(1, Transfer::Read(512));
}

#[test]
fn snack_is_rejected_as_level_0_demands() {
    let mut wire = Wire::logged_in();
    let snack = SnackRequest {
        kind: SnackType::STATUS,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        target_transfer_tag: TargetTransferTag::RESERVED,
        exp_stat_sn: StatSn(0),
        beg_run: 0,
        run_length: 0,
    };
    assert_eq!(wire.send(snack.encode(), &[]), []);
    wire.assert_rejected(snack.encode(), RejectReason::SNACK_REJECT);
}

#[test]
fn a_login_request_after_the_login_is_rejected() {
    let mut wire = Wire::logged_in();
    let request = LoginRequest {
        transit: true,
        continues: false,
        current_stage: Stage::LOGIN_OPERATIONAL_NEGOTIATION,
        next_stage: Stage::FULL_FEATURE_PHASE,
        version_max: 0,
        version_min: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        initiator_task_tag: InitiatorTaskTag(0),
        connection_id: ConnectionId(0),
        cmd_sn: CmdSn(100),
        exp_stat_sn: StatSn(0),
    };
    let bhs = request.encode_immediate();
    assert_eq!(wire.send(bhs, b"InitiatorName=iqn.x\0"), []);
    wire.assert_rejected(with_length(bhs, 20), RejectReason::PROTOCOL_ERROR);
}

#[test]
fn a_data_segment_longer_than_declared_closes_the_connection_before_it_arrives() {
    let mut wire = Wire::logged_in();
    let bhs = with_length(ping(1, true, CmdSn(100)).encode(), 4097);
    let events = wire.feed(&bhs.0);
    assert!(matches!(
        events[..],
        [ConnectionEvent::Close(CloseReason::ProtocolError(_))]
    ));
    // Nothing is accepted any more.
    assert!(matches!(
        wire.feed(&[0; 4800])[..],
        [ConnectionEvent::Close(_)]
    ));
}

#[test]
fn anything_but_a_login_request_closes_a_connection_that_is_not_logged_in() {
    for bhs in [
        command(1, CmdSn(0), Transfer::None).encode(),
        ping(1, true, CmdSn(0)).encode(),
        Bhs::new(Opcode(0x3f)),
    ] {
        let mut wire = Wire::logged_in();
        wire.target = Connection::new(ConnectionConfig::default(), 0);
        let events = wire.send(bhs, &[]);
        assert!(matches!(
            events[..],
            [ConnectionEvent::Close(CloseReason::ProtocolError(_))]
        ));
        wire.assert_silent();
    }
}

#[test]
fn logins_are_refused_when_the_driver_says_so() {
    let mut wire = Wire::logged_in();
    let status = LoginStatus::SERVICE_UNAVAILABLE;
    let config = ConnectionConfig {
        refuse_logins: Some(status),
        ..ConnectionConfig::default()
    };
    wire.target = Connection::new(config, 0);
    let events = wire.send(Bhs::new(Opcode::LOGIN_REQUEST), &[]);
    assert_eq!(
        events,
        [ConnectionEvent::Close(CloseReason::LoginsRefused(status))]
    );
    assert_eq!(
        pdu::LoginResponse::decode(&wire.only_sent().bhs).status,
        status
    );
}

#[test]
fn a_ping_is_answered_with_its_data_and_its_number_is_used_up() {
    let mut wire = Wire::logged_in();
    assert_eq!(wire.send(ping(1, false, CmdSn(100)).encode(), b"hello"), []);
    let sent = wire.only_sent();
    assert_eq!(sent.data, b"hello");
    let nop_in = NopIn::decode(&sent.bhs);
    assert_eq!(nop_in.initiator_task_tag, InitiatorTaskTag(1));
    assert!(nop_in.target_transfer_tag.is_reserved());
    assert_eq!(nop_in.window.exp_cmd_sn, CmdSn(101));
    assert_eq!(nop_in.window.max_cmd_sn, CmdSn(108));
    wire.send(ping(2, true, CmdSn(101)).encode(), &[]);
    assert_eq!(
        NopIn::decode(&wire.only_sent().bhs).window.exp_cmd_sn,
        CmdSn(101)
    );
}

#[test]
fn a_ping_gives_back_no_more_than_the_initiator_takes() {
    let mut setup = Setup::default();
    setup.directory.config.max_recv_data_segment_length = 8192;
    let mut wire = Wire::with(setup);
    wire.send(ping(1, true, CmdSn(100)).encode(), &[5; 8000]);
    assert_eq!(wire.only_sent().data, [5; 4096]);
}

#[test]
fn a_nop_out_without_a_tag_is_not_answered() {
    let mut wire = Wire::logged_in();
    let nop = ping(0xffff_ffff, true, CmdSn(100));
    assert_eq!(wire.send(nop.encode(), &[1; 10]), []);
    wire.assert_silent();
}

#[test]
fn a_request_before_its_turn_waits_too() {
    let mut wire = Wire::logged_in();
    assert_eq!(wire.send(ping(2, false, CmdSn(101)).encode(), b"later"), []);
    wire.assert_silent();
    wire.send(ping(1, false, CmdSn(100)).encode(), b"sooner");
    let data: Vec<_> = wire.sent().into_iter().map(|sent| sent.data).collect();
    assert_eq!(data, [b"sooner".to_vec(), b"later".to_vec()]);
}

#[test]
fn abort_task_names_a_live_task_to_the_driver() {
    let mut wire = Wire::logged_in();
    let task = wire.start(1, Transfer::Read(512));
    let request = task_management(Function::ABORT_TASK, 1, CmdSn(100));
    let events = wire.send(request.encode(), &[]);
    let [ConnectionEvent::TaskManagement(request)] = events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(request.function, TaskManagementFunction::AbortTask);
    assert_eq!(request.referenced_task, Some(task));
    // Another with the same tag is a mistake; one that aborts this one is rejected.
    let again = task_management(Function::ABORT_TASK_SET, 0xffff_ffff, CmdSn(0));
    wire.send(again.encode(), &[]);
    wire.assert_rejected(again.encode(), RejectReason::TASK_IN_PROGRESS);
    let mut recursive = task_management(Function::ABORT_TASK, 900, CmdSn(105));
    recursive.initiator_task_tag = InitiatorTaskTag(901);
    wire.send(recursive.encode(), &[]);
    let response = TaskManagementResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.response, Code::FUNCTION_REJECTED);

    wire.target.abort(task);
    let result = TaskManagementResult::FunctionComplete;
    wire.target
        .task_management_done(request.id, result, &mut wire.transmit);
    let response = TaskManagementResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.response, Code::FUNCTION_COMPLETE);
    assert_eq!(response.window.max_cmd_sn, CmdSn(108));
}

#[test]
fn functions_that_need_no_driver_are_answered_at_once() {
    let cases = [
        (
            Function::TASK_REASSIGN,
            CmdSn(0),
            Code::REASSIGNMENT_NOT_SUPPORTED,
        ),
        (Function::QUERY_TASK, CmdSn(0), Code::FUNCTION_NOT_SUPPORTED),
        (
            Function::from_bits(0x7f),
            CmdSn(0),
            Code::FUNCTION_NOT_SUPPORTED,
        ),
    ];
    for (function, ref_cmd_sn, expected) in cases {
        let mut wire = Wire::logged_in();
        let request = task_management(function, 1, ref_cmd_sn);
        assert_eq!(wire.send(request.encode(), &[]), []);
        let response = TaskManagementResponse::decode(&wire.only_sent().bhs);
        assert_eq!(response.response, expected, "{function:?}");
    }
}

#[test]
fn abort_of_a_task_that_has_ended_is_left_to_the_driver() {
    // Completed, aborted otherwise, or never heard of; or not before the request itself.
    for ref_cmd_sn in [99, 105, 500] {
        let mut wire = Wire::logged_in();
        let request = task_management(Function::ABORT_TASK, 1, CmdSn(ref_cmd_sn));
        let events = wire.send(request.encode(), &[]);
        let [ConnectionEvent::TaskManagement(request)] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(request.function, TaskManagementFunction::AbortTask);
        assert_eq!(request.referenced_task, None);
    }
}

#[test]
fn a_command_aborted_before_it_arrives_has_no_effect_when_it_does() {
    let mut wire = Wire::logged_in();
    let request = task_management(Function::ABORT_TASK, 1, CmdSn(100));
    assert_eq!(wire.send(request.encode(), &[]), []);
    let response = TaskManagementResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.response, Code::FUNCTION_COMPLETE);
    let late = command(1, CmdSn(100), Transfer::Write(100));
    assert_eq!(wire.send(late.encode(), &[1; 100]), []);
    let next = command(2, CmdSn(101), Transfer::None);
    assert_eq!(wire.send(next.encode(), &[]).len(), 1);
    assert_eq!(wire.target.command_window().max_cmd_sn, CmdSn(108));
}

#[test]
fn a_command_that_waits_for_its_turn_can_be_aborted() {
    let mut wire = Wire::logged_in();
    let late = command(2, CmdSn(101), Transfer::Write(100));
    wire.send(late.encode(), &[1; 100]);
    let request = task_management(Function::ABORT_TASK, 2, CmdSn(101));
    assert_eq!(wire.send(request.encode(), &[]), []);
    wire.only_sent();
    let first = command(1, CmdSn(100), Transfer::None);
    assert_eq!(wire.send(first.encode(), &[]).len(), 1);
    assert_eq!(wire.target.command_window().exp_cmd_sn, CmdSn(102));
}

#[test]
fn task_management_requests_have_a_limit() {
    let mut wire = Wire::logged_in();
    for n in 0..33_u32 {
        let mut request = task_management(Function::LOGICAL_UNIT_RESET, 0xffff_ffff, CmdSn(0));
        request.initiator_task_tag = InitiatorTaskTag(1000 + n);
        let events = wire.send(request.encode(), &[]);
        assert_eq!(events.len(), usize::from(n < 32));
        if n == 32 {
            let reason = RejectReason::IMMEDIATE_COMMAND_REJECT;
            wire.assert_rejected(request.encode(), reason);
        }
    }
}

#[test]
fn logout_of_another_connection_finds_none_and_odd_reasons_are_rejected() {
    let mut wire = Wire::logged_in();
    let other = logout(LogoutReason::CLOSE_CONNECTION, 5);
    assert_eq!(wire.send(other.encode(), &[]), []);
    let response = LogoutResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.response, LogoutResult::CID_NOT_FOUND);
    let odd = logout(LogoutReason::from_bits(9), 0);
    assert_eq!(wire.send(odd.encode(), &[]), []);
    wire.assert_rejected(odd.encode(), RejectReason::PROTOCOL_ERROR);
    let recovery = logout(LogoutReason::REMOVE_CONNECTION_FOR_RECOVERY, 0);
    assert_eq!(wire.send(recovery.encode(), &[]), []);
    let response = LogoutResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.response, LogoutResult::RECOVERY_NOT_SUPPORTED);
    let close = logout(LogoutReason::CLOSE_CONNECTION, 0);
    let events = wire.send(close.encode(), &[]);
    assert_eq!(events, [ConnectionEvent::Close(CloseReason::Logout)]);
}

#[test]
fn a_discovery_session_takes_only_text_and_logout() {
    let mut wire = Wire::with(Setup {
        discovery: true,
        ..Setup::default()
    });
    let not_supported = RejectReason::COMMAND_NOT_SUPPORTED;
    for bhs in [
        command(1, CmdSn(100), Transfer::Read(512)).encode(),
        ping(1, true, CmdSn(100)).encode(),
        task_management(Function::TARGET_WARM_RESET, 0xffff_ffff, CmdSn(0)).encode(),
        logout(LogoutReason::CLOSE_CONNECTION, 0).encode(),
    ] {
        assert_eq!(wire.send(bhs, &[]), []);
        wire.assert_rejected(bhs, not_supported);
    }
    wire.send(text(1, true, false).encode(), b"SendTargets=All\0");
    let sent = wire.only_sent();
    assert!(TextResponse::decode(&sent.bhs).is_final);
    assert!(sent.data.starts_with(b"TargetName="));
    let close = logout(LogoutReason::CLOSE_SESSION, 0);
    assert_eq!(
        wire.send(close.encode(), &[]),
        [ConnectionEvent::Close(CloseReason::Logout)]
    );
}

#[test]
fn a_text_exchange_goes_on_only_by_its_own_tag() {
    let mut wire = Wire::logged_in();
    wire.send(text(1, false, true).encode(), b"X-com.exam");
    let response = TextResponse::decode(&wire.only_sent().bhs);
    assert!(!response.is_final && !response.target_transfer_tag.is_reserved());
    let next = TextRequest {
        target_transfer_tag: response.target_transfer_tag,
        ..text(1, true, false)
    };
    wire.send(next.encode(), b"ple=1\0");
    let sent = wire.only_sent();
    assert_eq!(sent.data, b"X-com.example=NotUnderstood\0");
    assert!(TextResponse::decode(&sent.bhs).is_final);
    // The exchange is over: its tag is stale.
    wire.send(next.encode(), &[]);
    wire.assert_rejected(next.encode(), RejectReason::INVALID_PDU_FIELD);
}

#[test]
fn texts_that_break_the_rules_are_rejected() {
    for (request, data, reason) in [
        (
            text(1, true, true),
            &b"X-a=1\0"[..],
            RejectReason::PROTOCOL_ERROR,
        ),
        (
            text(1, true, false),
            b"no equals sign\0",
            RejectReason::PROTOCOL_ERROR,
        ),
        (
            text(1, true, false),
            b"InitialR2T=Yes\0",
            RejectReason::PROTOCOL_ERROR,
        ),
        (
            text(0xffff_ffff, true, false),
            b"X-a=1\0",
            RejectReason::INVALID_PDU_FIELD,
        ),
    ] {
        let mut wire = Wire::logged_in();
        assert_eq!(wire.send(request.encode(), data), []);
        let length = u32::try_from(data.len()).unwrap();
        wire.assert_rejected(with_length(request.encode(), length), reason);
    }
}

#[test]
fn a_text_that_never_ends_is_rejected() {
    let mut wire = Wire::logged_in();
    let mut request = text(1, false, true);
    for _ in 0..16 {
        wire.send(request.encode(), &[b'x'; 4096]);
        request.target_transfer_tag =
            TextResponse::decode(&wire.only_sent().bhs).target_transfer_tag;
    }
    wire.send(request.encode(), &[b'x'; 4096]);
    let header = with_length(request.encode(), 4096);
    wire.assert_rejected(header, RejectReason::LONG_OPERATION_REJECT);
}

/// A first request that leaves the login unfinished.
fn half_a_login() -> LoginRequest {
    LoginRequest {
        transit: false,
        continues: true,
        current_stage: Stage::SECURITY_NEGOTIATION,
        next_stage: Stage::SECURITY_NEGOTIATION,
        version_max: 0,
        version_min: 0,
        isid: Isid([0x80, 0, 0, 0, 0, 1]),
        tsih: Tsih(0),
        initiator_task_tag: InitiatorTaskTag(3),
        connection_id: ConnectionId(0),
        cmd_sn: CmdSn(7),
        exp_stat_sn: StatSn(0),
    }
}

#[test]
fn anything_else_in_the_middle_of_a_login_gets_a_login_reject() {
    let mut wire = Wire::logged_in();
    wire.target = Connection::new(ConnectionConfig::default(), 0);
    assert_eq!(wire.send(half_a_login().encode_immediate(), b"Init"), []);
    wire.only_sent();
    let events = wire.send(command(1, CmdSn(7), Transfer::None).encode(), &[]);
    assert!(matches!(
        events[..],
        [ConnectionEvent::Close(CloseReason::ProtocolError(_))]
    ));
    let response = pdu::LoginResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.status, LoginStatus::INVALID_DURING_LOGIN);
    assert_eq!(response.initiator_task_tag, InitiatorTaskTag(3));
}

#[test]
fn a_login_request_that_is_too_long_is_refused_before_it_arrives() {
    let mut wire = Wire::logged_in();
    wire.target = Connection::new(ConnectionConfig::default(), 0);
    let bhs = with_length(half_a_login().encode_immediate(), 8193);
    let events = wire.feed(&bhs.0);
    assert!(matches!(
        events[..],
        [ConnectionEvent::Close(CloseReason::LoginRefused(_))]
    ));
    let response = pdu::LoginResponse::decode(&wire.only_sent().bhs);
    assert_eq!(response.status, LoginStatus::INITIATOR_ERROR);
}

#[test]
fn a_reject_says_as_much_of_a_header_as_the_initiator_takes() {
    let mut wire = Wire::logged_in();
    wire.target.set_initiator_max_recv_data_segment_length(512);
    let mut bhs = Bhs::new(Opcode(0x1c));
    bhs.set_total_ahs_length_bytes(255 * 4);
    let mut bytes = bhs.0.to_vec();
    bytes.resize(pdu::BHS_LENGTH + 255 * 4, 7);
    wire.feed(&bytes);
    let sent = wire.only_sent();
    assert_eq!(sent.bhs.opcode(), Opcode::REJECT);
    assert_eq!(sent.data, bytes[..512]);
}
