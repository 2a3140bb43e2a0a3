//! Set-ups that are drawn from a seed and simulated: whether the fit names what limits them, and predicts what it has not
//! seen. The truth comes from the simulation: what limits is what gains most if it is twice as fast.
//!
//! `LONGSHORE_DRAWN=120 cargo test -p longshore-model drawn -- --nocapture` prints the table of `docs/model.md`.

use super::tests::{known, probe_of};
use super::*;
use crate::operation::Element;
use crate::random::Random;
use crate::simulation::{Length, simulate};
use crate::verdict::{Verdict, verdict};

/// Set-ups of the test; the table has more.
const COUNT: u64 = 16;

/// Parts that can be twice as fast, with the elements that they stand for.
const ELEMENTS: [(&[Element], &[Key], f64); 5] = [
    (
        &[Element::ClientProcessor],
        &[Key::ClientCpuPerOp, Key::ClientCpuPerByte],
        0.5,
    ),
    (
        &[Element::ServerProcessor],
        &[Key::ServerCpuPerOp, Key::ServerCpuPerByte],
        0.5,
    ),
    (&[Element::Storage], &[Key::StorageAccess], 0.5),
    (
        &[Element::ResponseWire, Element::RequestWire],
        &[Key::Rate],
        2.0,
    ),
    (&[Element::Distance], &[Key::OneWayLatency], 0.5),
];

/// Gains whose difference is smaller, in parts of the larger one, are level.
const LEVEL: f64 = 0.2;

/// One of a few values.
fn one_of<T: Copy>(random: &mut Random, all: &[T]) -> T {
    let count = u64::try_from(all.len()).unwrap();
    all[usize::try_from(random.bits() % count).unwrap()]
}

/// A set-up, and the load that is asked about.
fn draw(random: &mut Random) -> (Parts, u64, u16) {
    let changes = [
        (
            "rate",
            one_of(random, &["200Mbit/s", "1Gbit/s", "10Gbit/s"]),
        ),
        (
            "one-way-latency",
            one_of(random, &["20us", "100us", "500us", "2ms"]),
        ),
        (
            "storage-access-time",
            one_of(random, &["15us", "80us", "400us", "3ms"]),
        ),
        ("storage-rate", "0"),
        ("storage-parallel", one_of(random, &["1", "4", "16"])),
        (
            "server-cpu-per-op",
            one_of(random, &["3us", "10us", "40us"]),
        ),
        (
            "client-cpu-per-op",
            one_of(random, &["3us", "10us", "40us"]),
        ),
        ("variation", "0.2"),
    ];
    let size = one_of(random, &[4096, 16384, 65536]);
    let depth = one_of(random, &[1, 4, 32]);
    (known(&changes), size, depth)
}

fn simulated(parts: &Parts, size: u64, depth: u16) -> f64 {
    let length = Length {
        operations: 1500,
        seed: 3,
    };
    simulate(parts, size, depth, length).iops
}

/// The elements that limit: the first, and those that are level with it.
fn truth(parts: &Parts, size: u64, depth: u16) -> Vec<Element> {
    let now = simulated(parts, size, depth);
    let gains: Vec<f64> = ELEMENTS
        .iter()
        .map(|(_, keys, factor)| {
            let mut faster = parts.clone();
            for key in *keys {
                faster.put(*key, parts.get(*key) * factor);
            }
            simulated(&faster, size, depth) / now - 1.0
        })
        .collect();
    let most = gains.iter().copied().fold(0.0, f64::max);
    let level = ELEMENTS.iter().zip(&gains);
    let level = level.filter(|(_, gain)| **gain >= most * (1.0 - LEVEL));
    level
        .flat_map(|((elements, ..), _)| *elements)
        .copied()
        .collect()
}

#[test]
fn drawn_set_ups_have_their_limit_named_and_what_was_kept_back_predicted() {
    let count = std::env::var("LONGSHORE_DRAWN").ok();
    let count = count.and_then(|text| text.parse().ok()).unwrap_or(COUNT);
    let mut random = Random::new(15);
    let (mut right, mut level, mut open, mut wrong) = (0_u32, 0_u32, 0_u32, 0_u32);
    let mut errors = Vec::new();
    for seed in 0..count {
        let (parts, size, depth) = draw(&mut random);
        let mut probe = probe_of(&parts, seed, 600);
        complete(&mut probe).unwrap();
        let held = &probe.fitted.as_ref().unwrap().held;
        errors.extend(
            held.iter()
                .flat_map(|it| [it.iops_percent.abs(), it.latency_percent.abs()]),
        );
        for error in held.iter().filter(|it| it.iops_percent.abs() > 10.0) {
            let point = &probe.points[error.point];
            let of = |key| parts.get(key);
            println!(
                "{} at depth {}: {:+.1} %; access {} µs, {} at a time, server {} µs, client {} µs, way {} µs, {} MB/s",
                point.size_bytes,
                point.depth,
                error.iops_percent,
                of(Key::StorageAccess),
                of(Key::StorageParallel),
                of(Key::ServerCpuPerOp),
                of(Key::ClientCpuPerOp),
                of(Key::OneWayLatency),
                of(Key::Rate) / 1e6
            );
        }
        let limits = truth(&parts, size, depth);
        let fitted = super::parts(&probe, Direction::Read).unwrap().parts;
        match verdict(&fitted, size, depth) {
            Verdict::Limit(limit) if limits.contains(&limit.element) => right += 1,
            Verdict::Level(one, other)
                if limits.contains(&one.element) || limits.contains(&other.element) =>
            {
                level += 1;
            }
            Verdict::CannotTell(all) if all.iter().any(|it| limits.contains(it)) => {
                open += 1;
            }
            other => {
                wrong += 1;
                println!("{size} at depth {depth}: {other:?}, not {limits:?}");
            }
        }
    }
    errors.sort_by(f64::total_cmp);
    let at = |share: usize| errors[(errors.len() - 1) * share / 100];
    println!("{count} set-ups: {right} right, {level} level, {open} not told, {wrong} wrong");
    println!(
        "kept back: median {:.1} %, p90 {:.1} %, worst {:.1} %",
        at(50),
        at(90),
        at(100)
    );
    assert!(
        u64::from(wrong) * 10 <= count,
        "{wrong} of {count} are wrong"
    );
    let named = u64::from(right + level);
    assert!(named * 10 >= count * 7, "{named} of {count} are named");
    assert!(at(50) <= 5.0, "{}", at(50));
}
