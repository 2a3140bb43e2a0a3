//! A sweep over sizes and depths, with intervals, and the difference that a change makes.
//!
//! The value of a point is that of mean value analysis with the given variation of times, and never above the bounds.
//! An interval holds nine tenths of what comes out when the parameters vary within their uncertainties. Its upper end is
//! that of the bounds ([`crate::bounds`]), its lower end that of mean value analysis: how much times vary is not among
//! the parameters. Where responses wait for acknowledgements (`nagle`, `adaptive-nagle`), bounds say nothing of the
//! waiting: the interval then reaches down to what each response for itself gives, and with `nagle` to one operation at a
//! time. The simulation knows better.

use serde::Serialize;

use crate::accounting::latency_us;
use crate::bounds::{Limit, LimitKind, amva, knee, limits, mean_value, peak};
use crate::link::full_send_buffer_depth;
use crate::operation::{Contribution, Demand, Operation};
use crate::parameter::{Choice, Key, Parts};
use crate::parts_file::holds_responses;
use crate::simulation::SimulatedLoad;

/// How often the parameters are varied.
const SAMPLES: usize = 128;

/// What lies outside of an interval, at each side.
const TAIL: f64 = 0.05;

/// The next limit is level with the first when it is no further away, in percent.
pub const LEVEL_PERCENT: f64 = 10.0;

/// A value and the interval around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// A size at a depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub size_bytes: u64,
    pub depth: u16,
    pub iops: Estimate,
    pub bytes_per_second: Estimate,
    /// The mean latency of an operation.
    pub latency_us: Estimate,
    pub limiting: Limit,
    /// The limit that comes next, if this one goes away.
    pub next: Option<Next>,
    /// Share of the variations in which the same element limits; of the closed form.
    pub limiting_share: Option<f64>,
    /// What a simulation gave, if there was one.
    pub simulated: Option<SimulatedLoad>,
}

/// The limit behind the first one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Next {
    pub limit: Limit,
    /// How far above the first it is.
    pub distance_percent: f64,
    /// It is so near that both limit.
    pub is_level: bool,
}

/// A size, whatever the depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizeSummary {
    pub size_bytes: u64,
    /// Latency of an operation that is alone.
    pub alone_us: f64,
    pub contributions: Vec<Contribution>,
    /// At the largest depth.
    pub demands: Vec<Demand>,
    /// Operations a second at which the first element has no time left.
    pub peak_iops: Option<f64>,
    /// Operations under way at which that is reached.
    pub knee: Option<f64>,
    pub r2ts: usize,
    /// R2Ts at a time from which more bring nothing.
    pub enough_r2ts: Option<usize>,
    /// Operations under way from which responses do not fit into the server's send buffer; for reads.
    pub full_send_buffer_depth: Option<f64>,
}

/// All points of a set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    pub points: Vec<Point>,
    pub sizes: Vec<SizeSummary>,
}

/// What a change makes of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub size_bytes: u64,
    pub depth: u16,
    pub iops_percent: Estimate,
    /// Whether the interval leaves out 0, or is nothing but 0. If not, the uncertainties of the parts hide the
    /// difference.
    pub is_certain: bool,
}

/// Operations a second by bounds, and by mean value analysis.
#[derive(Clone, Copy, Debug)]
struct Rates {
    bound: f64,
    mean_value: f64,
    /// Between the two, by the variation of times.
    expected: f64,
}

/// Rates of one size at one depth: with the parameters as they are, and varied.
struct Varied {
    nominal: Rates,
    samples: Vec<Rates>,
    /// The first limit, and how often it is the first.
    limits: Vec<Limit>,
    share: f64,
}

/// Predicts every size at every depth in closed form.
#[must_use]
pub fn sweep(parts: &Parts, sizes: &[u64], depths: &[u16]) -> Sweep {
    let samples = samples(parts);
    let points = points(sizes, depths)
        .map(|(size, depth)| point(size, depth, &vary(parts, &samples, size, depth), parts));
    Sweep {
        points: points.collect(),
        sizes: sizes
            .iter()
            .map(|size| summary(parts, *size, depths))
            .collect(),
    }
}

/// What the change from `before` to `after` makes of every point.
#[must_use]
pub fn differences(
    before: &Parts,
    after: &Parts,
    sizes: &[u64],
    depths: &[u16],
) -> Vec<Difference> {
    let (samples_before, samples_after) = (samples(before), samples(after));
    let difference = |(size, depth)| {
        let before = vary(before, &samples_before, size, depth);
        let after = vary(after, &samples_after, size, depth);
        let percent = |after: f64, before: f64| 100.0 * (after / before - 1.0);
        let pairs = before.samples.iter().zip(&after.samples);
        let mut all: Vec<f64> = pairs
            .flat_map(|(before, after)| {
                [
                    percent(after.bound, before.bound),
                    percent(after.mean_value, before.mean_value),
                    percent(after.expected, before.expected),
                ]
            })
            .collect();
        let value = percent(after.nominal.expected, before.nominal.expected);
        all.push(value);
        let (low, high) = interval(all);
        Difference {
            size_bytes: size,
            depth,
            iops_percent: Estimate { value, low, high },
            // Nothing at all is certain, too.
            is_certain: low > 0.0 || high < 0.0 || high - low < 1e-9,
        }
    };
    points(sizes, depths).map(difference).collect()
}

/// Sizes and depths, depth by depth.
pub fn points(sizes: &[u64], depths: &[u16]) -> impl Iterator<Item = (u64, u16)> {
    let all = sizes
        .iter()
        .flat_map(|size| depths.iter().map(|depth| (*size, *depth)));
    all.collect::<Vec<_>>().into_iter()
}

/// The set-up with other values, as far as uncertainties allow.
fn samples(parts: &Parts) -> Vec<Parts> {
    let count = if parts.is_certain() { 1 } else { SAMPLES };
    parts.samples(count)
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations.
fn float(bytes: u64) -> f64 {
    bytes as f64
}

/// Operations under way on all connections.
fn outstanding(parts: &Parts, depth: u16) -> u64 {
    u64::from(depth) * parts.count(Key::Connections)
}

fn rates(parts: &Parts, size: u64, depth: u16) -> (Rates, Vec<Limit>) {
    let customers = outstanding(parts, depth);
    let operation = Operation::new(parts, float(size), f64::from(depth));
    let all = limits(&operation, float(customers));
    let slower = if holds_responses(parts) {
        let mut apart = parts.clone();
        let chosen = apart.choose(Choice::Transmit, "nodelay");
        chosen.expect("the word is in the table");
        let of_one = if parts.is(Choice::Transmit, "nagle") {
            1
        } else {
            customers
        };
        let apart = Operation::new(&apart, float(size), f64::from(depth));
        mean_value(&apart, of_one)
    } else {
        f64::INFINITY
    };
    let by_mean_value = mean_value(&operation, customers);
    let rates = Rates {
        bound: all[0].iops,
        mean_value: by_mean_value.min(slower),
        expected: amva(
            &operation,
            float(customers),
            parts.get(Key::Variation).powi(2),
        ),
    };
    (rates, all)
}

fn vary(parts: &Parts, samples: &[Parts], size: u64, depth: u16) -> Varied {
    let (nominal, all) = rates(parts, size, depth);
    let mut same = 0.0;
    let mut varied = Vec::with_capacity(samples.len());
    for sample in samples {
        let (rates, limits) = self::rates(sample, size, depth);
        let alike = limits[0].kind == all[0].kind
            && (limits[0].element == all[0].element || limits[0].kind == LimitKind::Latency);
        same += f64::from(u8::from(alike));
        varied.push(rates);
    }
    #[allow(clippy::cast_precision_loss)] // Some hundred.
    let share = same / samples.len() as f64;
    Varied {
        nominal,
        samples: varied,
        limits: all,
        share,
    }
}

fn point(size: u64, depth: u16, varied: &Varied, parts: &Parts) -> Point {
    let value = varied.nominal.expected;
    let ends = varied
        .samples
        .iter()
        .flat_map(|it| [it.bound, it.mean_value, it.expected]);
    let (low, high) = interval(
        ends.chain([value, varied.nominal.bound, varied.nominal.mean_value])
            .collect(),
    );
    let iops = Estimate { value, low, high };
    let customers = float(outstanding(parts, depth));
    let limiting = varied.limits[0];
    let next = varied.limits.get(1).map(|next| {
        let distance_percent = 100.0 * (next.iops / limiting.iops - 1.0);
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
        bytes_per_second: iops.map(|iops| iops * float(size)),
        latency_us: Estimate {
            value: latency_us(customers, iops.value),
            low: latency_us(customers, iops.high),
            high: latency_us(customers, iops.low),
        },
        limiting,
        next,
        limiting_share: Some(varied.share),
        simulated: None,
    }
}

impl Estimate {
    /// Something that grows with it.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Self {
        Self {
            value: of(self.value),
            low: of(self.low),
            high: of(self.high),
        }
    }
}

/// What is left without the tails.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // Some hundred values.
fn interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let tail = (values.len() as f64 * TAIL).floor() as usize;
    (values[tail], values[values.len() - 1 - tail])
}

/// A size, whatever the depth.
#[must_use]
pub fn summary(parts: &Parts, size: u64, depths: &[u16]) -> SizeSummary {
    let deepest = depths.iter().max().copied().unwrap_or(1);
    let operation = Operation::new(parts, float(size), f64::from(deepest));
    let peak = peak(&operation);
    let is_read = parts.is(Choice::Direction, "read");
    SizeSummary {
        size_bytes: size,
        alone_us: operation.alone_us(),
        peak_iops: peak.is_finite().then_some(peak),
        knee: peak.is_finite().then(|| knee(&operation)),
        r2ts: operation.r2ts,
        enough_r2ts: operation.enough_r2ts,
        full_send_buffer_depth: is_read
            .then(|| full_send_buffer_depth(parts.get(Key::ServerSendBuffer), float(size))),
        contributions: operation.contributions,
        demands: operation.demands,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameter::Source;

    fn parts(changes: &[(&str, &str)]) -> Parts {
        let mut parts = Parts::default();
        for (name, value) in changes {
            let source = Source::Given("a test".to_owned());
            parts.change(name, value, source).unwrap();
        }
        parts
    }

    const LINK: &[(&str, &str)] = &[
        ("rate", "1Gbit/s"),
        ("one-way-latency", "100us±20us"),
        ("server-cpu-per-op", "10us±1us"),
    ];

    #[test]
    fn intervals_follow_from_the_uncertainties() {
        let sweep = sweep(&parts(LINK), &[512], &[1, 256]);
        let [alone, deep] = &sweep.points[..] else {
            panic!("two points")
        };
        // 214 µs, of which 40 are uncertain: 1.64 times that at each side.
        let relative = |point: &Point| (point.iops.high - point.iops.low) / point.iops.value;
        assert!((0.4..0.8).contains(&relative(alone)), "{alone:?}");
        assert!((0.2..0.5).contains(&relative(deep)), "{deep:?}");
        assert!(alone.iops.low < alone.iops.value && alone.iops.value < alone.iops.high);
        let certain = [("rate", "1Gbit/s"), ("one-way-latency", "100us")];
        let certain = self::sweep(&parts(&certain), &[512], &[1]);
        assert!(relative(&certain.points[0]).abs() < 1e-9);
    }

    #[test]
    fn at_the_knee_the_interval_says_that_variation_is_unknown() {
        let certain = [
            ("rate", "1Gbit/s"),
            ("one-way-latency", "100us"),
            ("server-cpu-per-op", "10us"),
        ];
        let sweep = sweep(&parts(&certain), &[512], &[1, 21, 256]);
        let widths = sweep
            .points
            .iter()
            .map(|point| 1.0 - point.iops.low / point.iops.high);
        let widths: Vec<f64> = widths.collect();
        assert!(
            widths[0] < 1e-9 && widths[1] > 0.1 && widths[2] < 0.01,
            "{widths:?}"
        );
    }

    #[test]
    fn a_change_within_the_uncertainty_of_what_it_changes_is_not_certain() {
        let before = parts(LINK);
        let mut after = before.clone();
        let given = || Source::Given("what if".to_owned());
        after
            .change("one-way-latency", "95us±19us", given())
            .unwrap();
        let alone = differences(&before, &after, &[512], &[1])[0];
        // The same draw moves both, so what is left is the change alone.
        assert!(alone.is_certain && alone.iops_percent.value > 0.0);
        let mut unknown = before.clone();
        let wide = "95us±40us";
        unknown.change("one-way-latency", wide, given()).unwrap();
        assert!(!differences(&before, &unknown, &[512], &[1])[0].is_certain);
        // Beyond the knee a shorter way brings nothing.
        let deep = differences(&before, &after, &[512], &[256])[0];
        assert!(deep.iops_percent.value.abs() < 0.01, "{deep:?}");
    }

    #[test]
    fn the_limit_and_the_next_one_are_named() {
        use crate::operation::Element;
        let sweep = sweep(&parts(LINK), &[512, 65536], &[1, 256]);
        let named: Vec<(LimitKind, Element)> = sweep
            .points
            .iter()
            .map(|point| (point.limiting.kind, point.limiting.element))
            .collect();
        assert_eq!(named[0], (LimitKind::Latency, Element::Distance));
        assert_eq!(named[1], (LimitKind::Capacity, Element::ServerProcessor));
        assert_eq!(named[3], (LimitKind::Capacity, Element::ResponseWire));
        let next = sweep.points[1].next.unwrap();
        assert_eq!(next.limit.element, Element::ResponseWire);
        assert!((50.0..150.0).contains(&next.distance_percent), "{next:?}");
    }
}
