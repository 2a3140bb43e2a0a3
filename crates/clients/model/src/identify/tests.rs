use super::*;
use crate::probe::{Subject, TransferFacts};
use crate::random::Random;
use crate::simulation::{Length, simulate};
use crate::spread::Distribution;

pub(super) fn known(changes: &[(&str, &str)]) -> Parts {
    let mut parts = Parts::default();
    let base = [
        ("rate", "1Gbit/s"),
        ("one-way-latency", "100us"),
        ("client-cpu-per-op", "6us"),
        ("client-cpu-per-byte", "0.1ns/B"),
        ("server-cpu-per-op", "9us"),
        ("server-cpu-per-byte", "0.15ns/B"),
        ("server-wake-up", "8us"),
        ("client-wake-up", "12us"),
        ("storage-access-time", "80us"),
        ("storage-rate", "500MB/s"),
        ("storage-parallel", "4"),
    ];
    for (name, value) in base.iter().chain(changes) {
        parts
            .change(name, value, Source::Given("a test".to_owned()))
            .unwrap();
    }
    parts
}

/// What a probe would measure of a simulated set-up, in rounds of so many operations.
pub(super) fn probe_of(parts: &Parts, seed: u64, operations: u64) -> Probe {
    let point = |role, size: u64, depth: u16, number: u64| {
        let round = |round: u64| {
            let seed = seed * 1000 + number * 10 + round;
            simulate(parts, size, depth, Length { operations, seed })
        };
        let rounds: Vec<_> = (0..3).map(round).collect();
        let spread = |of: &dyn Fn(&crate::simulation::SimulatedLoad) -> f64| {
            Spread::of(&rounds.iter().map(of).collect::<Vec<f64>>())
        };
        let mut facts = PointFacts {
            role,
            size_bytes: size,
            depth,
            connections: 1,
            iops: spread(&|it| it.iops),
            latency_us: spread(&|it| it.latency_us),
            p50_us: spread(&|it| it.latency_p50_us),
            p99_us: spread(&|it| it.latency_p99_us),
            ..PointFacts::default()
        };
        let (_, operation) = at_point(parts, &facts);
        let of = |element| {
            operation
                .demands
                .iter()
                .find(|it| it.element == element)
                .unwrap()
                .us
        };
        let exact = |value| {
            Some(Spread {
                value,
                uncertainty: value * 0.01,
                rounds: 3,
            })
        };
        facts.client_cpu_us = exact(of(Element::ClientProcessor));
        facts.server_cpu_us = exact(of(Element::ServerProcessor));
        facts
    };
    let loads = [
        (Role::Fit, 512, 1),
        (Role::Fit, 512, 64),
        (Role::Fit, 4096, 1),
        (Role::Fit, 4096, 4),
        (Role::Fit, 4096, 32),
        (Role::Fit, 16384, 1),
        (Role::Fit, 65536, 1),
        (Role::Fit, 65536, 8),
        (Role::Fit, 262_144, 1),
        (Role::Fit, 1_048_576, 8),
        (Role::Held, 1024, 2),
        (Role::Held, 4096, 16),
        (Role::Held, 8192, 2),
        (Role::Held, 32768, 4),
        (Role::Held, 131_072, 2),
    ];
    let points = loads
        .iter()
        .zip(0..)
        .map(|((role, size, depth), number)| point(*role, *size, *depth, number));
    let mut random = Random::new(seed);
    let mut near = |value: f64| {
        let values: Vec<f64> = (0..400)
            .map(|_| value * (0.97 + 0.06 * random.uniform()))
            .collect();
        Distribution::of(&values)
    };
    let way = 2.0 * (parts.get(Key::OneWayLatency) + 100.0 / parts.get(Key::Rate) * 1e6);
    let wakes = parts.get(Key::ServerWakeUp) + parts.get(Key::ClientWakeUp);
    let processors = parts.get(Key::ServerCpuPerOp) + parts.get(Key::ClientCpuPerOp);
    Probe {
        version: 1,
        subject: Subject {
            name: "iscsi://192.0.2.1/iqn.2026-01.example:simulated/0".to_owned(),
            block_size: 512,
            volume_bytes: 1 << 30,
            ..Subject::default()
        },
        network: Some(NetworkFacts {
            handshake_rtt_us: near(way),
            ping_us: near(way + wakes + processors / 2.0),
            mtu: Some(1500),
            echo_bytes_per_second: Some(Spread {
                value: parts.get(Key::Rate) * 0.95,
                uncertainty: parts.get(Key::Rate) * 0.02,
                rounds: 3,
            }),
            ..NetworkFacts::default()
        }),
        points: points.collect(),
        ..Probe::default()
    }
}

fn fitted(fit: &Fitted, key: Key) -> &Parameter {
    let name = key.definition().name;
    fit.parameters.iter().find(|it| it.name == name).unwrap()
}

#[test]
fn known_parts_are_found_again_and_the_points_kept_back_are_predicted() {
    for changes in [
        &[][..],
        &[("rate", "10Gbit/s"), ("one-way-latency", "400us")],
        &[("storage-access-time", "600us"), ("storage-parallel", "2")],
    ] {
        let parts = known(changes);
        let mut probe = probe_of(&parts, 5, 2000);
        complete(&mut probe).unwrap();
        let fit = probe.fitted.as_ref().unwrap();
        let mut identified = 0;
        for parameter in fit.parameters.iter().filter(|it| it.identified) {
            let Name::Key(key) = Name::find(&parameter.name).unwrap() else {
                panic!("a number")
            };
            if key == Key::Variation {
                continue;
            }
            identified += 1;
            let off = (parameter.value - parts.get(key)).abs() / parameter.uncertainty;
            assert!(
                off <= 3.0,
                "{changes:?} {parameter:?} is {off:.1} deviations from {}",
                parts.get(key)
            );
        }
        assert!(identified >= 5, "{fit:?}");
        for key in [Key::OneWayLatency, Key::StorageAccess] {
            let found = fitted(fit, key);
            assert!(found.identified, "{changes:?} {found:?}");
        }
        let error = fit.error.unwrap();
        assert_eq!(error.points, 5);
        assert!(
            error.median_percent < 5.0 && error.worst_percent < 12.0,
            "{changes:?} {:?}",
            fit.held
        );
    }
}

#[test]
fn what_the_measurements_cannot_separate_is_named() {
    let mut probe = probe_of(&known(&[]), 6, 2000);
    for point in &mut probe.points {
        point.server_cpu_us = None;
    }
    let fit = fit(&probe, Direction::Read).unwrap();
    let together = |group: &Vec<String>| group.iter().filter(|it| it.ends_with("wake-up")).count();
    let is_named = fit.confounded.iter().any(|group| together(group) == 2);
    assert!(is_named, "{:?}", fit.confounded);
    // So the sum is known better than each of the two, in what is drawn for predictions.
    let samples = parts(&probe, Direction::Read).unwrap().parts.samples(128);
    let spread = |of: &dyn Fn(&Parts) -> f64| {
        Spread::of(&samples.iter().map(of).collect::<Vec<_>>()).relative()
    };
    let one = spread(&|it| it.get(Key::ClientWakeUp));
    let sum = spread(&|it| it.get(Key::ClientWakeUp) + it.get(Key::ServerWakeUp));
    assert!(sum < one, "{sum} {one}");
}

#[test]
fn a_slow_wire_and_a_slow_medium_are_told_apart_by_an_echo_alone() {
    let slow = known(&[
        ("storage-rate", "10MB/s"),
        ("storage-parallel", "1"),
        ("rate", "10Gbit/s"),
    ]);
    let mut probe = probe_of(&slow, 9, 1000);
    let of = |probe: &Probe| {
        let parts = parts(probe, Direction::Read).unwrap().parts;
        crate::verdict::verdict(&parts, 65536, 8)
    };
    let crate::verdict::Verdict::Limit(limit) = of(&probe) else {
        panic!("{:?}", of(&probe))
    };
    assert_eq!(limit.element, Element::Storage);
    // Small differences in headers would tell, if measurements were exact.
    probe.network.as_mut().unwrap().echo_bytes_per_second = None;
    for point in &mut probe.points {
        point.iops.uncertainty = point.iops.value * 0.4;
    }
    let crate::verdict::Verdict::CannotTell(elements) = of(&probe) else {
        panic!("{:?}", of(&probe))
    };
    assert!(elements.contains(&Element::Storage), "{elements:?}");
    assert!(elements.contains(&Element::ResponseWire), "{elements:?}");
}

#[test]
fn a_slow_wire_and_a_slow_medium_are_told_apart_by_the_pace_of_one_read_alone() {
    let medium = known(&[
        ("storage-rate", "10MB/s"),
        ("storage-parallel", "1"),
        ("rate", "10Gbit/s"),
    ]);
    let wire = known(&[("rate", "80Mbit/s"), ("storage-parallel", "1")]);
    for (parts, element) in [(medium, Element::Storage), (wire, Element::ResponseWire)] {
        let mut probe = probe_of(&parts, 9, 1000);
        probe.network.as_mut().unwrap().echo_bytes_per_second = None;
        for point in &mut probe.points {
            point.iops.uncertainty = point.iops.value * 0.4;
        }
        let arrival = |pause| ArrivalFacts {
            bytes: 1 << 20,
            bytes_per_second: Some(Spread {
                value: pace(&parts),
                uncertainty: pace(&parts) * 0.05,
                rounds: 5,
            }),
            pause,
            ..ArrivalFacts::default()
        };
        let mut of = |pause| {
            probe.transfer = Some(TransferFacts {
                arrival: Some(arrival(pause)),
                ..TransferFacts::default()
            });
            let parts = super::parts(&probe, Direction::Read).unwrap().parts;
            crate::verdict::verdict(&parts, 65536, 8)
        };
        let crate::verdict::Verdict::Limit(limit) = of(0.05) else {
            panic!("{element:?} {:?}", of(0.05))
        };
        assert_eq!(limit.element, element);
        // What comes in lumps may be a medium that delivers in pieces, or a window that is full.
        let lumps = of(0.5);
        assert!(
            matches!(lumps, crate::verdict::Verdict::CannotTell(_)),
            "{element:?} {lumps:?}"
        );
    }
}

/// A probe of a link of 80 Mbit/s, which the bytes of one read show.
fn probe_of_slow_link() -> Probe {
    let parts = known(&[("rate", "80Mbit/s"), ("storage-parallel", "1")]);
    let mut probe = probe_of(&parts, 9, 1000);
    probe.network.as_mut().unwrap().echo_bytes_per_second = None;
    let bytes_per_second = Some(Spread {
        value: pace(&parts),
        uncertainty: pace(&parts) * 0.01,
        rounds: 5,
    });
    probe.transfer = Some(TransferFacts {
        arrival: Some(ArrivalFacts {
            bytes: 1 << 20,
            bytes_per_second,
            pause: 0.05,
            ..ArrivalFacts::default()
        }),
        ..TransferFacts::default()
    });
    probe
}

fn assert_link_is_named(probe: &Probe) {
    let fit = fit(probe, Direction::Read).unwrap();
    let rate = fitted(&fit, Key::Rate);
    assert!(rate.identified, "{rate:?}");
    assert!((rate.value / 1e7 - 1.0).abs() < 0.1, "{rate:?}");
    let access = fitted(&fit, Key::StorageAccess);
    assert!(access.value < 500.0, "{access:?}");
    let parts = super::parts(probe, Direction::Read).unwrap().parts;
    let verdict = crate::verdict::verdict(&parts, 65536, 1);
    assert!(
        matches!(verdict, crate::verdict::Verdict::Limit(limit) if limit.element == Element::ResponseWire),
        "{verdict:?}"
    );
}

#[test]
fn rounds_that_differ_hide_no_link() {
    let mut probe = probe_of_slow_link();
    for point in &mut probe.points {
        point.iops.uncertainty = point.iops.value * 0.4;
    }
    assert_link_is_named(&probe);
}

#[test]
fn what_other_programs_disturb_hides_no_link() {
    let mut probe = probe_of_slow_link();
    // A few operations of small loads waited for the processor, far longer than they take.
    for point in &mut probe.points {
        if point.size_bytes <= 16384 && point.depth == 1 {
            point.latency_us.value *= 8.0;
            point.iops.value /= 8.0;
        }
    }
    assert_link_is_named(&probe);
}

#[test]
fn a_fit_does_not_read_what_is_kept_back() {
    let probe = probe_of(&known(&[]), 7, 2000);
    let mut other = probe.clone();
    for point in other.points.iter_mut().filter(|it| it.role == Role::Held) {
        *point = PointFacts {
            role: Role::Held,
            iops: Spread {
                value: f64::NAN,
                uncertainty: f64::NAN,
                rounds: 0,
            },
            size_bytes: point.size_bytes,
            depth: 1,
            connections: 1,
            ..PointFacts::default()
        };
    }
    assert_eq!(
        fit(&probe, Direction::Read).unwrap(),
        fit(&other, Direction::Read).unwrap()
    );
}

#[test]
fn too_few_points_and_a_hostile_fit_are_refused() {
    let mut probe = probe_of(&known(&[]), 8, 2000);
    probe.points.truncate(2);
    assert!(matches!(
        fit(&probe, Direction::Read),
        Err(FitError::TooFew(2))
    ));
    let hostile = |name: &str, value| Fitted {
        parameters: vec![Parameter {
            name: name.to_owned(),
            value,
            ..Parameter::default()
        }],
        ..Fitted::default()
    };
    probe.fitted = Some(hostile("no-such-part", 1.0));
    assert!(parts(&probe, Direction::Read).is_err());
    probe.fitted = Some(hostile("rate", -1.0));
    assert!(parts(&probe, Direction::Read).is_err());
}
