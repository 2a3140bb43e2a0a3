//! A sweep by simulation, with intervals, limits, and the difference of two set-ups.
//!
//! An interval comes from a few runs with parameters that vary within their uncertainties, and from the spread of the run
//! itself. So few give its width to a third, which is enough to know whether a difference may be believed.

use crate::bounds::{Limit, LimitKind};
use crate::operation::{Contribution, Element, Operation};
use crate::parameter::{Key, Parts};
use crate::prediction::{Difference, Estimate, LEVEL_PERCENT, Next, Point, Sweep, points, summary};
use crate::simulation::{Length, SimulatedLoad, simulate};

/// Operations of a run, and of one with varied parameters.
const OPERATIONS: u64 = 6000;
const OPERATIONS_VARIED: u64 = 1500;

/// Runs with varied parameters.
const VARIED: usize = 4;

/// Half the width of an interval that holds nine tenths, by the standard deviation of the varied runs. Four samples of
/// equal parts of a normal distribution have nine tenths of its deviation; the rest is for how few they are.
const WIDTH: f64 = 2.2;

/// An element is busy all the time with this share of it: some of a closed loop's time is lost between two operations.
const BUSY: f64 = 0.92;

/// A set-up, with the variations that its uncertainties allow.
struct Setup {
    parts: Parts,
    varied: Vec<Parts>,
}

/// A point that was simulated.
struct Simulated {
    outcome: SimulatedLoad,
    /// Operations a second of the varied runs.
    varied: Vec<f64>,
}

/// Simulates every size at every depth, and with the changes, if there are any. `progress` is told after each point how
/// many are done.
pub fn sweep(
    parts: &Parts,
    changed: Option<&Parts>,
    sizes: &[u64],
    depths: &[u16],
    seed: u64,
    progress: &mut dyn FnMut(usize),
) -> (Sweep, Option<Sweep>, Vec<Difference>) {
    let before = Setup::new(parts);
    let after = changed.map(Setup::new);
    let (mut first, mut second, mut differences) = (Vec::new(), Vec::new(), Vec::new());
    for (number, (size, depth)) in points(sizes, depths).enumerate() {
        let one = before.simulate(size, depth, seed);
        first.push(before.point(size, depth, &one));
        if let Some(after) = &after {
            let other = after.simulate(size, depth, seed);
            second.push(after.point(size, depth, &other));
            differences.push(difference(size, depth, &one, &other));
        }
        progress(number + 1);
    }
    let all = |parts: &Parts, points| Sweep {
        points,
        sizes: sizes
            .iter()
            .map(|size| summary(parts, *size, depths))
            .collect(),
    };
    let changed = changed.map(|changed| all(changed, second));
    (all(parts, first), changed, differences)
}

impl Setup {
    fn new(parts: &Parts) -> Self {
        Self {
            parts: parts.clone(),
            varied: if parts.is_certain() {
                Vec::new()
            } else {
                parts.samples(VARIED)
            },
        }
    }

    fn simulate(&self, size: u64, depth: u16, seed: u64) -> Simulated {
        let length = |operations| Length { operations, seed };
        let varied = self.varied.iter().map(|parts| {
            let outcome = simulate(parts, size, depth, length(OPERATIONS_VARIED));
            outcome.iops
        });
        Simulated {
            outcome: simulate(&self.parts, size, depth, length(OPERATIONS)),
            varied: varied.collect(),
        }
    }

    #[allow(clippy::cast_precision_loss)] // Sizes of operations.
    fn point(&self, size: u64, depth: u16, simulated: &Simulated) -> Point {
        let outcome = &simulated.outcome;
        let half = half_width(&simulated.varied, outcome.iops_spread);
        let iops = around(outcome.iops, half, outcome.iops / 10.0);
        let customers = f64::from(depth) * self.parts.get(Key::Connections);
        let operation = Operation::new(&self.parts, size as f64, f64::from(depth));
        let limits = limits(&operation, outcome);
        let limiting = limits[0];
        let next = limits.get(1).map(|next| {
            let distance_percent = 100.0 * (next.iops / limiting.iops - 1.0).max(0.0);
            Next {
                limit: *next,
                distance_percent,
                is_level: distance_percent <= LEVEL_PERCENT,
            }
        });
        Point {
            size_bytes: size,
            depth,
            iops,
            bytes_per_second: iops.map(|iops| iops * size as f64),
            latency_us: Estimate {
                value: outcome.latency_us,
                low: outcome.latency_us.min(customers / iops.high * 1e6),
                high: outcome.latency_us.max(customers / iops.low * 1e6),
            },
            limiting,
            next,
            limiting_share: None,
            simulated: Some(outcome.clone()),
        }
    }
}

fn around(value: f64, half: f64, least: f64) -> Estimate {
    Estimate {
        value,
        low: (value - half).max(least.min(value)),
        high: value + half,
    }
}

/// Half the width of an interval, by varied values and the spread of one run.
#[allow(clippy::cast_precision_loss)] // A few values.
fn half_width(values: &[f64], spread: f64) -> f64 {
    let count = values.len() as f64;
    if count < 2.0 {
        return spread;
    }
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    WIDTH.mul_add((squares / (count - 1.0)).sqrt(), spread)
}

fn difference(size: u64, depth: u16, before: &Simulated, after: &Simulated) -> Difference {
    let percent = |after: f64, before: f64| 100.0 * (after / before - 1.0);
    let value = percent(after.outcome.iops, before.outcome.iops);
    let pairs = before.varied.iter().zip(&after.varied);
    let varied: Vec<f64> = pairs
        .map(|(before, after)| percent(*after, *before))
        .collect();
    let relative = |simulated: &Simulated| simulated.outcome.iops_spread / simulated.outcome.iops;
    let spread = 100.0 * relative(before).hypot(relative(after));
    let half = half_width(&varied, spread);
    let iops_percent = around(value, half, f64::NEG_INFINITY);
    Difference {
        size_bytes: size,
        depth,
        iops_percent,
        is_certain: iops_percent.low > 0.0 || iops_percent.high < 0.0 || half < 1e-9,
    }
}

/// What limits a run, and what comes next: elements by their share of the time, or the latency with its largest part.
fn limits(operation: &Operation, outcome: &SimulatedLoad) -> Vec<Limit> {
    let capacities = outcome.busy.iter().map(|busy| Limit {
        element: busy.element,
        kind: LimitKind::Capacity,
        iops: outcome.iops / busy.share.max(1e-9),
    });
    let mut limits: Vec<Limit> = capacities.collect();
    limits.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    if outcome.busiest().is_none_or(|busiest| busiest.share < BUSY) {
        let held = Contribution {
            element: Element::Held,
            us: outcome.held_us,
        };
        let parts = operation.contributions.iter().copied().chain([held]);
        let largest = parts.max_by(|a, b| a.us.total_cmp(&b.us)).unwrap_or(held);
        let latency = Limit {
            element: largest.element,
            kind: LimitKind::Latency,
            iops: outcome.iops,
        };
        limits.insert(0, latency);
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Source;
    use crate::presets::preset;

    fn with(changes: &[(&str, &str)]) -> Parts {
        let mut parts = preset("butterfield-2017").unwrap().parts;
        for (key, value) in changes {
            let source = Source::Given("a test".to_owned());
            parts.change(key, value, source).unwrap();
        }
        parts
    }

    #[test]
    fn points_have_intervals_limits_and_differences() {
        let (before, after) = (
            with(&[("transmit", "nodelay")]),
            with(&[("transmit", "nagle")]),
        );
        let mut done = Vec::new();
        let (sweep, changed, differences) =
            sweep(&before, Some(&after), &[512], &[8, 64], 1, &mut |points| {
                done.push(points)
            });
        assert_eq!(done, [1, 2]);
        let changed = changed.unwrap();
        for point in sweep.points.iter().chain(&changed.points) {
            assert!(point.iops.low < point.iops.value && point.iops.value < point.iops.high);
        }
        let named = |sweep: &Sweep, place: usize| {
            let limit = sweep.points[place].limiting;
            (limit.kind, limit.element)
        };
        assert_eq!(named(&sweep, 0).0, LimitKind::Latency);
        assert_eq!(
            named(&sweep, 1),
            (LimitKind::Capacity, Element::ServerProcessor)
        );
        // At small depth, Nagle's algorithm holds responses back for a third of the time.
        let held = |sweep: &Sweep| sweep.points[0].simulated.as_ref().unwrap().held_us;
        assert!(held(&sweep) < 10.0, "{}", held(&sweep));
        assert!(held(&changed) > 80.0, "{}", held(&changed));
        assert!(differences[0].is_certain && differences[0].iops_percent.high < 0.0);
        assert!(differences[1].is_certain && differences[1].iops_percent.low > 0.0);
    }

    #[test]
    fn certain_parts_and_times_that_do_not_vary_have_narrow_intervals() {
        let file = preset("scst-10ms").unwrap();
        let mut parts = file.parts;
        let given = Source::Given("a test".to_owned());
        parts.change("variation", "0", given).unwrap();
        let (sweep, _, _) = sweep(&parts, None, &[1 << 20], &[1], 1, &mut |_| {});
        let iops = sweep.points[0].iops;
        assert!((iops.high - iops.low) / iops.value < 1e-6, "{iops:?}");
    }
}
