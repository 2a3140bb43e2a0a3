//! What limits a server, and what would help: probe, explanation and advice. Times of a guest are those of an emulated
//! machine; they have to be consistent, and the rules of the protocol have to be found out right.

use std::time::Duration;

use longshore_bench::medium::Medium;
use longshore_bench::watch::Interrupt;
use longshore_initiator::info::Protocol;
use longshore_model::advice::{advise, usual_goal};
use longshore_model::identify;
use longshore_model::pipeline::of_probe;
use longshore_model::probe::{Direction, Make, Probe};
use longshore_probe::{Options, Unwatched, WriteRegion, probe};

use crate::Fact;
use crate::peer::{Maker, Peer, VOLUME_SIZE};

pub const FACTS: &[Fact] = &[
    Fact::of_all("is_probed_explained_and_advised", explained),
    Fact::of(
        is_iscsi,
        "its_r2ts_are_found_out_from_the_initiators_side",
        r2ts,
    ),
];

const REGION: u64 = 4 << 20;

fn is_iscsi(peer: &Peer) -> bool {
    peer.protocol == Protocol::Iscsi
}

fn probed(peer: &Peer) -> Probe {
    let medium = Medium::parse(peer.url().to_string().into()).unwrap();
    let options = Options {
        time: Duration::from_secs(if peer.maker.is_slow() { 12 } else { 4 }),
        writes: Some(WriteRegion {
            offset: VOLUME_SIZE / 2,
            length: REGION,
        }),
        ..Options::default()
    };
    probe(&medium, options, &Interrupt::default(), &mut Unwatched)
        .unwrap_or_else(|error| panic!("{}: {error}", peer.name))
}

fn explained(peer: &Peer) {
    let mut probe = probed(peer);
    let make = match peer.maker {
        Maker::Tgt => Make::Tgt,
        Maker::Lio => Make::Lio,
        Maker::Nvmet => Make::Nvmet,
        Maker::Longshore => Make::Longshore,
    };
    assert_eq!(probe.subject.make, make, "{:?}", probe.subject);
    assert_eq!(probe.subject.volume_bytes, VOLUME_SIZE);
    identify::complete(&mut probe).unwrap();
    for direction in [Direction::Read, Direction::Write] {
        let parts = identify::parts(&probe, direction).unwrap().parts;
        for pipeline in of_probe(&probe, &parts, direction, 4096) {
            let sum: f64 = pipeline.segments.iter().map(|it| it.sum_us()).sum();
            let whole = pipeline.round_trip_us.value;
            assert!(
                whole > 0.0 && (sum / whole - 1.0).abs() < 1e-6,
                "{pipeline:?}"
            );
            // Processor time of the client is measured by its clock: it is part of what was measured of the whole.
            if let Some(measured) = pipeline.measured_us {
                let client = pipeline.segments[0].work_us;
                assert!(client < measured.value, "{pipeline:?}");
            }
        }
        let goal = usual_goal(&probe, Some(direction));
        let advice = advise(&probe, &goal).unwrap();
        assert!(advice.iops.is_finite() && advice.iops > 0.0, "{advice:?}");
        assert!(!advice.ceiling.limit.is_empty(), "{advice:?}");
        for item in &advice.items {
            assert!(
                item.gain_percent.value >= advice.threshold_percent,
                "{item:?}"
            );
            assert!(!item.how.is_empty(), "{item:?}");
        }
    }
}

fn r2ts(peer: &Peer) {
    let probe = probed(peer);
    let number = |name: &str| -> u64 { probe.negotiated[name].parse().unwrap() };
    let is = |name: &str| probe.negotiated[name] == "Yes";
    let facts = probe.transfer.as_ref().unwrap();
    let burst = number("MaxBurstLength");
    let unsolicited = match (is("ImmediateData"), is("InitialR2T")) {
        (_, false) => number("FirstBurstLength"),
        (true, true) => number("FirstBurstLength").min(number("MaxRecvDataSegmentLength (target)")),
        (false, true) => 0,
    };
    for (size, found) in &facts.r2ts_per_write {
        let expected = size.saturating_sub(unsolicited).div_ceil(burst);
        assert_eq!(u64::from(*found), expected, "{size}: {facts:?}");
    }
    let most = facts.r2ts_per_write.values().max().copied().unwrap_or(0);
    let allowed = u32::try_from(number("MaxOutstandingR2T")).unwrap();
    // A server may use less than it may.
    let Some(outstanding) = facts.outstanding else {
        // An emulated machine may stand still for longer than the probe holds data back.
        println!("not told: how many R2Ts are outstanding: {facts:?}");
        return;
    };
    assert!((1..=allowed).contains(&outstanding), "{facts:?}");
    if peer.maker != Maker::Longshore {
        assert_eq!(outstanding, allowed.min(most), "{facts:?}");
    }
    let asked = facts.r2t_bytes.expect("a write has R2Ts");
    assert_eq!(asked, burst.min(REGION), "{facts:?}");
}
