//! When answers leave: nothing stays behind in the kernel for want of a decision.

use std::time::Duration;

use longshore_server::config::{NagleThreshold, SendUnit, TransmitConfig, TransmitPolicy};
use longshore_server::stepped::Next;
use longshore_volume::BackendName;

use crate::rig::{Options, Rig};

fn rig(transmit: TransmitConfig) -> Rig {
    Rig::new(&Options {
        backend: BackendName::MEM,
        clients: 2,
        transmit,
        ..Options::default()
    })
}

/// Turns until the shard would sleep.
fn finish(rig: &mut Rig) {
    let mut next = rig.turn();
    for _ in 0..1000 {
        if rig.sleeps(next) {
            return;
        }
        next = rig.turn_without_events();
    }
    panic!("it does not come to rest");
}

/// One client sends more than a turn takes in, the other one or several reads.
fn load(rig: &mut Rig, round: usize) {
    for _ in 0..12 {
        rig.clients[0].write(128, 64 << 10);
    }
    for _ in 0..1 + round % 40 {
        rig.clients[1].read(1);
    }
}

#[test]
fn nothing_is_kept_back_when_the_shard_falls_asleep() {
    let adaptive = TransmitConfig {
        policy: TransmitPolicy::AdaptiveNagle,
        nagle_threshold: NagleThreshold::Requests(4),
        nagle_margin: 0,
        ..TransmitConfig::default()
    };
    for transmit in [
        TransmitConfig::default(),
        TransmitConfig {
            policy: TransmitPolicy::NoDelay,
            ..TransmitConfig::default()
        },
        TransmitConfig {
            policy: TransmitPolicy::NoDelay,
            send: SendUnit::Turn,
            ..TransmitConfig::default()
        },
        adaptive,
        TransmitConfig {
            send: SendUnit::Turn,
            ..adaptive
        },
    ] {
        let mut rig = rig(transmit);
        for round in 0..100 {
            load(&mut rig, round);
            finish(&mut rig);
            for client in &mut rig.clients {
                client.take();
                assert_eq!(client.outstanding, 0, "{transmit:?}");
                assert!(!client.wire().is_kept, "{transmit:?}, round {round}");
            }
        }
    }
}

#[test]
fn auto_keeps_the_end_of_a_send_for_one_turn_at_most() {
    let mut rig = rig(TransmitConfig::default());
    for round in 0..50 {
        load(&mut rig, round);
        // Its data come for many turns in which there is nothing to answer.
        rig.clients[0].write(2048, 0);
        let mut kept_before = false;
        for turn in 0..100 {
            rig.turn();
            let is_kept = rig.clients[0].wire().is_kept;
            assert!(!(kept_before && is_kept), "round {round}, turn {turn}");
            kept_before = is_kept;
            for client in &mut rig.clients {
                client.take();
            }
        }
        assert_eq!(rig.clients[0].outstanding, 0);
    }
    let kept_sends = rig.clients[0].wire().kept_sends;
    assert!(kept_sends > 100, "it was worth a test: {kept_sends}");
}

/// Sends of each of so many turns, each with 16 answers of 4 KiB. A turn with one send takes longer by `one`.
fn sends_of_turns(rig: &mut Rig, turns: usize, one: Duration) -> Vec<usize> {
    let turn = |_| {
        for _ in 0..16 {
            rig.clients[0].read(8);
        }
        let before = rig.clients[0].wire().sends;
        rig.turn();
        rig.clients[0].take();
        assert_eq!(rig.clients[0].outstanding, 0);
        let sends = rig.clients[0].wire().sends - before;
        if sends == 1 {
            rig.pause(one);
        }
        sends
    };
    (0..turns).map(turn).collect()
}

#[test]
fn auto_sends_early_where_the_peer_gets_more_that_way() {
    for (one, chosen) in [(Duration::from_micros(30), 2), (Duration::ZERO, 1)] {
        let mut rig = Rig::new(&Options::default());
        // Enough to send to begin a trial, and the trial.
        let sends = sends_of_turns(&mut rig, 600, one);
        assert!(sends[..60].iter().all(|sends| *sends == 1), "{sends:?}");
        assert!(sends.contains(&2), "it was tried");
        let sends = sends_of_turns(&mut rig, 500, one);
        assert_eq!(sends, [chosen; 500]);
    }
}

/// Turns of the first client with four small answers each, which take longer while nothing waits for the peer.
fn load_that_is_better_paced(rig: &mut Rig, turns: usize) -> Next {
    let mut next = rig.turn();
    for _ in 0..turns {
        for _ in 0..4 {
            rig.clients[0].read(1);
        }
        next = rig.turn_of(0..1);
        rig.clients[0].take();
        assert_eq!(rig.clients[0].outstanding, 0);
        if !rig.clients[0].wire().nagle {
            rig.pause(Duration::from_micros(30));
        }
    }
    next
}

#[test]
fn auto_waits_for_the_peer_where_that_is_faster_and_not_for_long() {
    let mut rig = Rig::new(&Options::default());
    let next = load_that_is_better_paced(&mut rig, 900);
    assert!(rig.clients[0].wire().nagle);
    assert!(rig.clients[0].wire().is_kept);
    assert!(rig.sleeps(next));
    let Next::Wait(Some(until)) = next else {
        panic!("it has to end: {next:?}");
    };
    assert!(until <= rig.now() + Duration::from_micros(100));
    let next = rig.turn_without_events();
    assert!(!rig.clients[0].wire().is_kept);
    // And that was all: nothing ticks while nothing happens.
    let last = rig.turn_without_events();
    assert!(rig.sleeps(next) && rig.sleeps(last));
    let Next::Wait(until) = last else { panic!() };
    assert!(until.is_none_or(|until| until > rig.now() + Duration::from_millis(1)));
}

#[test]
fn auto_waits_for_nobody_once_another_connection_shares_its_turns() {
    let mut rig = Rig::new(&Options {
        clients: 2,
        ..Options::default()
    });
    load_that_is_better_paced(&mut rig, 900);
    assert!(rig.clients[0].wire().nagle);
    for client in &mut rig.clients {
        client.read(1);
    }
    rig.turn();
    for client in &mut rig.clients {
        assert!(!client.wire().nagle && !client.wire().is_kept);
        client.take();
        assert_eq!(client.outstanding, 0);
    }
}

#[test]
fn others_never_send_early() {
    let transmit = TransmitConfig {
        policy: TransmitPolicy::NoDelay,
        send: SendUnit::Turn,
        ..TransmitConfig::default()
    };
    let mut rig = Rig::new(&Options {
        transmit,
        ..Options::default()
    });
    assert_eq!(sends_of_turns(&mut rig, 600, Duration::ZERO), [1; 600]);
}
