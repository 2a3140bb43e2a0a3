//! Which element limits, as far as the uncertainties of the parts let one tell.

use crate::bounds::{Limit, LimitKind, limits};
use crate::operation::{Element, Operation};
use crate::parameter::{Key, Parts};
use crate::prediction::LEVEL_PERCENT;

/// Set-ups that are drawn.
const SAMPLES: usize = 128;

/// Share of them in which a limit has to be the first.
const SURE: f64 = 0.9;

/// Share from which an element is among those that may limit.
const POSSIBLE: f64 = 0.05;

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Limit(Limit),
    /// Two are within a tenth of each other.
    Level(Limit, Limit),
    /// The measurements allow each of these.
    CannotTell(Vec<Element>),
}

/// Which element limits operations of a size at a depth of each connection.
#[must_use]
pub fn verdict(parts: &Parts, size: u64, depth: u16) -> Verdict {
    let nominal = ranked(parts, size, depth);
    let first = nominal[0];
    let near = nominal
        .iter()
        .find(|second| second.element != first.element)
        .filter(|second| is_level(second, &first));
    let count = if parts.is_certain() { 1 } else { SAMPLES };
    let mut found: Vec<((LimitKind, Element), f64)> = Vec::new();
    for sample in parts.samples(count) {
        let limit = ranked(&sample, size, depth)[0];
        let named = (limit.kind, limit.element);
        #[allow(clippy::cast_precision_loss)] // Some hundred.
        let share = 1.0 / count as f64;
        match found.iter_mut().find(|(known, _)| *known == named) {
            Some((_, sum)) => *sum += share,
            None => found.push((named, share)),
        }
    }
    let share = |limit: &Limit| {
        let named = (limit.kind, limit.element);
        found
            .iter()
            .find(|(known, _)| *known == named)
            .map_or(0.0, |(_, share)| *share)
    };
    match near {
        Some(second) if share(&first) + share(second) >= SURE => Verdict::Level(first, *second),
        _ if share(&first) >= SURE => Verdict::Limit(first),
        _ => {
            found.sort_by(|a, b| b.1.total_cmp(&a.1));
            let possible = found.iter().filter(|(_, share)| *share >= POSSIBLE);
            let mut elements: Vec<Element> = Vec::new();
            for ((_, element), _) in possible {
                if !elements.contains(element) {
                    elements.push(*element);
                }
            }
            match elements[..] {
                // Whether it limits by its latency or its capacity is all that is left open.
                [element] if element == first.element => Verdict::Limit(first),
                _ => Verdict::CannotTell(elements),
            }
        }
    }
}

/// Elements that limit, whatever the uncertainties: the first, and those that are level with it.
#[must_use]
pub fn level(parts: &Parts, size: u64, depth: u16) -> Vec<Element> {
    let all = ranked(parts, size, depth);
    let mut elements = Vec::new();
    for limit in all.iter().filter(|limit| is_level(limit, &all[0])) {
        if !elements.contains(&limit.element) {
            elements.push(limit.element);
        }
    }
    elements
}

fn is_level(limit: &Limit, first: &Limit) -> bool {
    limit.iops <= first.iops * (1.0 + LEVEL_PERCENT / 100.0)
}

/// Limits with the lowest first; of a latency, each of its parts is one that would be the limit if it were the largest.
fn ranked(parts: &Parts, size: u64, depth: u16) -> Vec<Limit> {
    #[allow(clippy::cast_precision_loss)] // Sizes of operations.
    let operation = Operation::new(parts, size as f64, f64::from(depth));
    let all = limits(&operation, f64::from(depth) * parts.get(Key::Connections));
    if all[0].kind == LimitKind::Capacity {
        return all;
    }
    // Parts of the latency are level if they are as long as each other.
    let (largest, alone) = (operation.largest().us, all[0].iops);
    let mut named: Vec<Limit> = operation
        .contributions
        .iter()
        .map(|part| Limit {
            element: part.element,
            kind: LimitKind::Latency,
            iops: alone * largest / part.us,
        })
        .chain(all.into_iter().filter(|it| it.kind == LimitKind::Capacity))
        .collect();
    named.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    named
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Source;

    fn parts(changes: &[(&str, &str)]) -> Parts {
        let mut parts = Parts::default();
        for (name, value) in changes {
            parts
                .change(name, value, Source::Given("a test".to_owned()))
                .unwrap();
        }
        parts
    }

    #[test]
    fn one_limit_is_named_two_may_be_level_and_sometimes_nobody_can_tell() {
        let base = [("rate", "1Gbit/s"), ("one-way-latency", "50us")];
        let of = |more: &[(&str, &str)], depth| {
            verdict(&parts(&[&base[..], more].concat()), 4096, depth)
        };
        // 4 KiB take 35 µs on this wire.
        let Verdict::Limit(limit) = of(&[("server-cpu-per-op", "5us±1us")], 64) else {
            panic!("one limit")
        };
        assert_eq!(limit.element, Element::ResponseWire);
        let Verdict::Level(one, other) = of(&[("server-cpu-per-op", "34us±2us")], 64) else {
            panic!("two limits")
        };
        let mut both = [one.element, other.element];
        both.sort_unstable();
        assert_eq!(both, [Element::ServerProcessor, Element::ResponseWire]);
        let Verdict::CannotTell(elements) = of(&[("server-cpu-per-op", "29us±12us")], 64) else {
            panic!("no verdict")
        };
        assert!(elements.contains(&Element::ServerProcessor));
        assert!(elements.contains(&Element::ResponseWire));
        let Verdict::Limit(limit) = of(&[], 1) else {
            panic!("a latency")
        };
        assert_eq!(
            (limit.kind, limit.element),
            (LimitKind::Latency, Element::Distance)
        );
    }
}
