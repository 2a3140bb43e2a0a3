//! Silence and deadlines.

use super::*;
use crate::pdu::{AsyncEvent, AsyncMessage, NopIn, NopOut};

fn setup() -> Setup {
    let mut setup = Setup::default();
    setup.config.login_timeout_ms = 1000;
    setup.config.nop_interval_ms = 100;
    setup.config.nop_timeout_ms = 50;
    setup.config.logout_timeout_ms = 2500;
    setup
}

impl Wire {
    fn deadline(&mut self, now_ms: u64) -> Option<CloseReason> {
        self.now_ms = now_ms;
        self.target.handle_deadline(&mut self.transmit, now_ms)
    }
}

#[test]
fn a_login_that_takes_too_long_ends_the_connection() {
    let mut wire = Wire::with(setup());
    wire.target = Connection::new(setup().config, 500);
    assert_eq!(wire.target.next_deadline_ms(), Some(1500));
    // Bytes that are no progress do not help.
    wire.now_ms = 1400;
    wire.feed(&[0x43; 10]);
    assert_eq!(wire.deadline(1499), None);
    assert_eq!(wire.deadline(1500), Some(CloseReason::LoginTimeout));
    assert_eq!(wire.target.next_deadline_ms(), None);
}

#[test]
fn a_silent_initiator_is_pinged_and_given_up_when_it_does_not_answer() {
    let mut wire = Wire::with(setup());
    assert_eq!(wire.target.next_deadline_ms(), Some(100));
    assert_eq!(wire.deadline(99), None);
    wire.assert_silent();
    assert_eq!(wire.deadline(100), None);
    let before = wire.target.stat_sn;
    let nop_in = NopIn::decode(&wire.only_sent().bhs);
    assert!(nop_in.initiator_task_tag.is_reserved());
    assert!(!nop_in.target_transfer_tag.is_reserved());
    assert_eq!(nop_in.stat_sn, before);
    assert_eq!(wire.target.next_deadline_ms(), Some(150));
    assert_eq!(wire.deadline(150), Some(CloseReason::NopTimeout));
}

#[test]
fn an_answer_stops_the_clock_and_other_bytes_give_time() {
    let mut wire = Wire::with(setup());
    wire.deadline(100);
    let nop_in = NopIn::decode(&wire.only_sent().bhs);
    wire.now_ms = 140;
    wire.start(1, Transfer::None);
    assert_eq!(wire.target.next_deadline_ms(), Some(190));
    wire.now_ms = 180;
    let answer = NopOut {
        immediate: true,
        lun: nop_in.lun,
        initiator_task_tag: InitiatorTaskTag::RESERVED,
        target_transfer_tag: nop_in.target_transfer_tag,
        cmd_sn: CmdSn(101),
        exp_stat_sn: StatSn(0),
    };
    assert_eq!(wire.send(answer.encode(), &[]), []);
    wire.assert_silent();
    assert_eq!(wire.target.next_deadline_ms(), Some(280));
}

#[test]
fn half_a_pdu_and_then_silence_is_pinged_too() {
    let mut wire = Wire::with(setup());
    wire.feed(&[1; 47]);
    assert!(wire.target.is_inside_pdu());
    assert_eq!(wire.deadline(100), None);
    wire.only_sent();
    assert_eq!(wire.deadline(150), Some(CloseReason::NopTimeout));
}

#[test]
fn pings_can_be_switched_off() {
    let mut setup = setup();
    setup.config.nop_interval_ms = 0;
    assert_eq!(Wire::with(setup).target.next_deadline_ms(), None);
}

#[test]
fn a_discovery_session_is_not_pinged_but_ends_when_silent() {
    let mut wire = Wire::with(Setup {
        discovery: true,
        ..setup()
    });
    assert_eq!(wire.target.next_deadline_ms(), Some(150));
    assert_eq!(wire.deadline(150), Some(CloseReason::NopTimeout));
    wire.assert_silent();
}

#[test]
fn an_initiator_asked_to_log_out_has_the_time_it_is_told() {
    let mut setup = setup();
    setup.config.nop_interval_ms = 0;
    let mut wire = Wire::with(setup);
    wire.target.request_logout(&mut wire.transmit, 1000);
    wire.target.request_logout(&mut wire.transmit, 1100);
    let message = AsyncMessage::decode(&wire.only_sent().bhs);
    assert_eq!(message.event, AsyncEvent::LOGOUT_REQUEST);
    // 2.5 seconds, rounded up.
    assert_eq!(message.parameter3, 3);
    assert_eq!(wire.target.next_deadline_ms(), Some(3500));
    // Commands are served meanwhile.
    let task = wire.start(1, Transfer::None);
    wire.good(task);
    wire.response();
    assert_eq!(wire.deadline(3500), Some(CloseReason::LogoutTimeout));
    let message = AsyncMessage::decode(&wire.only_sent().bhs);
    assert_eq!(message.event, AsyncEvent::CONNECTION_DROP);
    assert_eq!((message.parameter2, message.parameter3), (2, 0));
}

#[test]
fn a_discovery_session_is_simply_closed_instead_of_asked_to_log_out() {
    let mut wire = Wire::with(Setup {
        discovery: true,
        ..setup()
    });
    wire.target.request_logout(&mut wire.transmit, 60);
    wire.assert_silent();
    assert_eq!(wire.deadline(60), Some(CloseReason::LogoutTimeout));
    wire.assert_silent();
}

#[test]
fn a_window_opened_by_an_abortion_is_announced_at_once() {
    let mut setup = setup();
    setup.config.queue_depth = 1;
    let mut wire = Wire::with(setup);
    let task = wire.start(1, Transfer::None);
    wire.target.abort(task);
    assert_eq!(wire.target.next_deadline_ms(), Some(0));
    assert_eq!(wire.deadline(5), None);
    let nop_in = NopIn::decode(&wire.only_sent().bhs);
    assert!(nop_in.target_transfer_tag.is_reserved());
    assert_eq!(nop_in.window.max_cmd_sn, CmdSn(101));
    assert_eq!(wire.target.next_deadline_ms(), Some(100));
    // With the window open there is no hurry.
    let task = wire.start(2, Transfer::None);
    wire.good(task);
    wire.response();
    let task = wire.start(3, Transfer::None);
    wire.good(task);
    wire.response();
    assert_eq!(wire.target.next_deadline_ms(), Some(105));
}

#[test]
fn a_session_that_has_fallen_silent_gives_back_its_transmit_memory() {
    let mut wire = Wire::with(setup());
    let nop_out = NopOut {
        immediate: true,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag(1),
        target_transfer_tag: TargetTransferTag::RESERVED,
        cmd_sn: wire.cmd_sn,
        exp_stat_sn: StatSn(0),
    };
    for _ in 0..100 {
        wire.send(nop_out.encode(), &[1; 4000]);
    }
    wire.sent();
    assert!(wire.transmit.memory() > 400_000);
    wire.deadline(100);
    assert!(wire.transmit.memory() <= 4096);
}

#[test]
fn an_initiator_that_takes_long_over_much_data_is_not_given_up() {
    let mut wire = Wire::with(setup());
    wire.deadline(100);
    wire.target.sent(130);
    assert_eq!(wire.deadline(150), None);
    wire.target.sent(170);
    assert_eq!(wire.target.next_deadline_ms(), Some(220));
    assert_eq!(wire.deadline(220), Some(CloseReason::NopTimeout));
}
