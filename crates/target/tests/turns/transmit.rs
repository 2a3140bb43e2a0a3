//! When answers leave: nothing stays behind in the kernel for want of a decision.

use longshore_target::config::{NagleThreshold, SendUnit, TransmitConfig, TransmitPolicy};
use longshore_volume::BackendKind;

use crate::rig::{Options, Rig};

fn rig(transmit: TransmitConfig) -> Rig {
    Rig::new(&Options {
        backend: BackendKind::Mem,
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
