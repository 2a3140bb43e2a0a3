//! ICReq, ICResp, Connect.

use super::*;

#[test]
fn an_ic_req_is_answered_with_what_is_in_force() {
    for digests in all_digests() {
        let setup = Setup {
            digests,
            ..Setup::default()
        };
        let mut wire = Wire::silent(&setup);
        wire.hear(&ic_req(&setup).encode());
        let response = IcResp {
            pfv: 0,
            cpda: 0,
            digests,
            max_h2c_data: 1 << 20,
        };
        assert_eq!(wire.one(), Said::IcResp(response));
    }
}

#[test]
fn digests_that_are_not_allowed_are_not_used() {
    let setup = Setup {
        digests: BOTH_DIGESTS,
        config: |config| config.data_digest = false,
        ..Setup::default()
    };
    let mut wire = Wire::silent(&setup);
    wire.hear(&ic_req(&setup).encode());
    let Said::IcResp(response) = wire.one() else {
        panic!("ICReq is answered by ICResp");
    };
    let only_header = Digests {
        header: true,
        data: false,
    };
    assert_eq!(response.digests, only_header);
}

#[test]
fn a_connection_can_be_opened_byte_by_byte() {
    let setup = Setup::default();
    let mut wire = Wire::silent(&setup);
    let capsule = wire.capsule(connect(0), &[7; 1024]);
    for byte in ic_req(&setup).encode().iter().chain(&capsule) {
        wire.hear(std::slice::from_ref(byte));
    }
    let said = wire.said();
    assert!(matches!(
        &said[..],
        [Said::IcResp(_), Said::Response(entry)] if entry.status.is_success()
    ));
    assert!(wire.target.is_connected());
    assert_eq!(wire.target.queue(), Some(setup.queue));
    let Seen::Complete(_, data) = &wire.seen[1] else {
        panic!("{:?}", wire.seen);
    };
    assert_eq!(*data, [7; 1024]);
}

#[test]
fn commands_before_connect_are_out_of_sequence() {
    let mut wire = Wire::initialized(&Setup::default());
    for (entry, data) in [
        (read(1, 512), &[][..]),
        (flush(2), &[]),
        (write_in_capsule(3, 0, 512), &[1; 512]),
    ] {
        let bytes = wire.capsule(entry, data);
        wire.hear(&bytes);
        let response = wire.response();
        assert_eq!(response.id, entry.id());
        let status = Status::COMMAND_SEQUENCE_ERROR.do_not_retry();
        assert_eq!(response.status, status);
        assert_eq!(response.sq_head, 0);
    }
    assert_eq!(wire.seen, []);
    let bytes = wire.capsule(connect(4), &[0; 1024]);
    wire.hear(&bytes);
    assert!(wire.response().status.is_success());
}

#[test]
fn a_refused_connect_leaves_the_queue_unconnected() {
    let mut wire = Wire::initialized(&Setup::default());
    wire.answers = false;
    let bytes = wire.capsule(connect(4), &[0; 1024]);
    wire.hear(&bytes);
    let slot = wire.arrived().slot;
    let status = Status::CONNECT_INVALID_HOST.do_not_retry();
    let refusal = Completion {
        status,
        result: 5,
        data: Payload::None,
    };
    wire.complete(slot, refusal);
    let response = CompletionEntry {
        result: 5,
        sq_head: 0,
        id: CommandId(4),
        status,
    };
    assert_eq!(wire.response(), response);
    assert!(!wire.target.is_connected());
}

#[test]
fn the_response_to_connect_says_whether_there_is_flow_control() {
    for (flow_control, sq_head) in [(true, 1), (false, u16::MAX)] {
        let mut setup = Setup::default();
        setup.queue.flow_control = flow_control;
        let mut wire = Wire::initialized(&setup);
        let bytes = wire.capsule(connect(4), &[0; 1024]);
        wire.hear(&bytes);
        assert_eq!(wire.response().sq_head, sq_head);
    }
}

#[test]
fn connect_data_may_be_asked_for_instead_of_coming_along() {
    let mut wire = Wire::initialized(&Setup::default());
    let mut entry = connect(0);
    entry.set_sgl(SglDescriptor::Transport { length: 1024 });
    let bytes = wire.capsule(entry, &[]);
    wire.hear(&bytes);
    let r2t = wire.r2t();
    assert_eq!((r2t.offset, r2t.length), (0, 1024));
    let bytes = wire.data(h2c_data(0, r2t.tag, 0, 1024, true), &[9; 1024]);
    wire.hear(&bytes);
    assert!(wire.response().status.is_success());
    assert!(wire.target.is_connected());
}

#[test]
fn a_host_cannot_have_many_commands_before_connect() {
    let mut wire = Wire::initialized(&Setup::default());
    wire.answers = false;
    for id in 0..5 {
        let bytes = wire.capsule(connect(id), &[0; 1024]);
        wire.hear(&bytes);
    }
    let error = wire.terminated();
    assert_eq!(error.status, FatalErrorStatus::PDU_SEQUENCE_ERROR);
    assert_eq!(wire.seen.len(), 5);
}
