//! What happens when nothing comes in.

use super::*;

fn deadline(wire: &mut Wire, now_ms: u64) -> Option<CloseReason> {
    wire.target.handle_deadline(&mut wire.transmit, now_ms)
}

#[test]
fn a_host_must_connect_in_time() {
    for start in [Wire::silent, Wire::initialized] {
        let mut wire = start(&Setup::default());
        assert_eq!(wire.target.next_deadline_ms(), Some(15_000));
        assert_eq!(deadline(&mut wire, 14_999), None);
        let reason = CloseReason::ConnectTimeout;
        assert_eq!(deadline(&mut wire, 15_000), Some(reason));
        wire.seen.clear();
        wire.hear(&[]);
        assert_eq!(wire.seen, [Seen::Close(reason)]);
        assert_eq!(wire.target.next_deadline_ms(), None);
    }
}

#[test]
fn bytes_do_not_put_off_the_connect_timeout() {
    let setup = Setup::default();
    let mut wire = Wire::silent(&setup);
    wire.now_ms = 14_000;
    wire.hear(&ic_req(&setup).encode()[..100]);
    assert_eq!(wire.target.next_deadline_ms(), Some(15_000));
}

#[test]
fn a_connected_host_may_be_silent() {
    let mut wire = Wire::connected(&Setup::default());
    assert_eq!(wire.target.next_deadline_ms(), Some(30_000));
    assert_eq!(deadline(&mut wire, 30_000), None);
    assert_eq!(wire.transmit.memory(), 0);
    assert_eq!(wire.target.next_deadline_ms(), None);
    wire.now_ms = 50_000;
    let bytes = wire.capsule(flush(1), &[]);
    wire.hear(&bytes);
    assert_eq!(wire.target.next_deadline_ms(), Some(80_000));
    wire.target.sent(60_000);
    assert_eq!(wire.target.next_deadline_ms(), Some(90_000));
}

#[test]
fn a_terminated_host_must_close_in_time() {
    let mut wire = Wire::connected(&Setup::default());
    wire.now_ms = 1000;
    wire.hear(&[0xff; 8]);
    wire.terminated();
    assert_eq!(wire.target.next_deadline_ms(), Some(31_000));
    // Whatever it sends or takes.
    wire.now_ms = 20_000;
    wire.hear(&[0xff; 8]);
    wire.target.sent(20_000);
    assert_eq!(wire.target.next_deadline_ms(), Some(31_000));
    let reason = CloseReason::TerminateTimeout;
    assert_eq!(deadline(&mut wire, 31_000), Some(reason));
}

#[test]
fn a_connection_that_the_driver_ends_gives_the_host_time() {
    let mut wire = Wire::connected(&Setup::default());
    let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
    wire.target.fatal(error, &mut wire.transmit, 100_000);
    assert_eq!(wire.target.next_deadline_ms(), Some(130_000));
}
