//! RateLimits of a volume: what each event loop gets of them, and what becomes of those who wait when the limits change.

use std::time::Duration;

use longshore_volume::RateLimits;

use crate::rig::{Options, Rig};

/// Commands that each client keeps outstanding.
const DEPTH: usize = 8;
/// Turns of a second: each takes 100 µs.
const TURNS_PER_SECOND: usize = 10_000;

fn iops(iops: u64) -> RateLimits {
    RateLimits {
        iops: Some(iops),
        burst: Some(Duration::from_millis(10)),
        ..RateLimits::default()
    }
}

/// Clients at two event loops.
fn rig(clients: usize, limits: RateLimits) -> Rig {
    let mut rig = Rig::new(&Options {
        clients,
        shards: 2,
        are_spread: true,
        limits,
        ..Options::default()
    });
    rig.pause(Duration::from_secs(1));
    rig
}

fn turns(rig: &mut Rig, turns: usize) {
    for _ in 0..turns {
        for client in &mut rig.clients {
            client.take();
            while client.outstanding < DEPTH {
                client.read(8);
            }
        }
        rig.turn();
    }
    rig.clients.iter_mut().for_each(|client| client.take());
}

/// What each client has been answered since the last time.
fn answered(rig: &mut Rig) -> Vec<u64> {
    let answered = |client: &mut crate::rig::Client| std::mem::take(&mut client.answered);
    rig.clients.iter_mut().map(answered).collect()
}

#[test]
fn two_event_loops_have_equal_shares_of_a_limit() {
    for clients in [2, 6] {
        let mut rig = rig(clients, iops(3000));
        turns(&mut rig, 2 * TURNS_PER_SECOND);
        let answered = answered(&mut rig);
        let shares = [0, 1].map(|shard| answered.iter().skip(shard).step_by(2).sum::<u64>());
        let total: u64 = shares.iter().sum();
        assert!((5900..=6100).contains(&total), "{shares:?}");
        let (least, most) = (shares[0].min(shares[1]), shares[0].max(shares[1]));
        assert!(most * 100 <= least * 110, "{shares:?}");
    }
}

#[test]
fn those_who_wait_go_on_by_the_limits_that_hold_now() {
    let mut rig = rig(2, iops(1));
    turns(&mut rig, 10);
    answered(&mut rig);
    // All wait for seconds.
    turns(&mut rig, TURNS_PER_SECOND / 10);
    assert!(answered(&mut rig).iter().sum::<u64>() <= 1);
    rig.limit(&iops(2000));
    turns(&mut rig, TURNS_PER_SECOND);
    let shares = answered(&mut rig);
    let total: u64 = shares.iter().sum();
    assert!((1950..=2050).contains(&total), "{shares:?}");
    assert!(shares.iter().all(|share| *share > 900), "{shares:?}");
    // The same again changes nothing, however often it is said.
    for _ in 0..100 {
        rig.limit(&iops(2000));
        turns(&mut rig, TURNS_PER_SECOND / 100);
    }
    let total: u64 = answered(&mut rig).iter().sum();
    assert!((1950..=2050).contains(&total), "{total}");
    // Slower: those who had a moment under the faster limit do not keep it.
    rig.limit(&iops(10));
    turns(&mut rig, TURNS_PER_SECOND);
    let total: u64 = answered(&mut rig).iter().sum();
    assert!((9..=12).contains(&total), "{total}");
}

#[test]
fn nobody_waits_any_more_for_a_limit_that_was_lifted() {
    let mut rig = rig(4, iops(1));
    turns(&mut rig, 10);
    assert!(
        rig.clients
            .iter()
            .all(|client| client.outstanding >= DEPTH - 1)
    );
    answered(&mut rig);
    rig.limit(&RateLimits::default());
    turns(&mut rig, 2);
    let shares = answered(&mut rig);
    assert!(
        shares.iter().all(|share| *share >= DEPTH as u64 - 1),
        "{shares:?}"
    );
}

#[test]
fn those_who_wait_for_a_limit_are_answered_well_when_their_volume_is_removed() {
    // Time for those that are under way: none, or more than the test has.
    for timeout in [Duration::ZERO, Duration::from_secs(1000)] {
        let mut rig = rig(4, iops(1));
        turns(&mut rig, 10);
        let waiting: Vec<u64> = rig.clients.iter().map(|it| it.outstanding as u64).collect();
        assert!(waiting.iter().all(|it| *it >= DEPTH as u64 - 1));
        answered(&mut rig);
        let began = rig.now();
        let closed = rig.remove_volume(timeout);
        assert_eq!((closed.failure, closed.timed_out), (None, false));
        assert_eq!(answered(&mut rig), waiting, "timeout {timeout:?}");
        // By the limit it would have taken much longer.
        assert!(rig.now() - began < Duration::from_secs(1));
    }
}
