//! Throughput and latency of a closed loop of operations, in closed form.
//!
//! A load keeps `N` operations under way (*queue depth* times connections). With the latency of an operation that is
//! alone, `RTT`, and the demand `D` of an element that serves `m` operations at a time:
//!
//! ```text
//! IOPS ≤ N / RTT            latency bound: nothing is ever waited for but the operation itself
//! IOPS ≤ m / D, each D      capacity of an element; network bound, CPU bound, ...
//! knee: N* = RTT × least capacity
//! ```
//!
//! These bounds are reached where times do not vary. Where every service varies as an exponential distribution does,
//! mean value analysis is exact (Reiser and Lavenberg, 1980; several servers as an approximation after Suri, 2007). Real systems lie
//! between the two: far from the knee both agree.

use serde::Serialize;

use crate::operation::{Demand, Element, Operation};

/// What keeps the throughput from being more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The element; of a latency bound, the one with the largest part of the latency.
    pub element: Element,
    pub kind: LimitKind,
    /// Operations a second that it allows.
    pub iops: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    /// The depth is too small to keep any element busy.
    Latency,
    /// The element is busy all the time.
    Capacity,
}

impl Limit {
    /// The name of the limit, as outputs print it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.kind {
            LimitKind::Latency => format!("latency ({})", self.element.name()),
            LimitKind::Capacity => self.element.name().to_owned(),
        }
    }
}

/// The limits on operations a second at a queue depth, the lowest first.
#[must_use]
pub fn limits(operation: &Operation, outstanding: f64) -> Vec<Limit> {
    let latency = Limit {
        element: operation.largest().element,
        kind: LimitKind::Latency,
        iops: outstanding / operation.alone_us() * 1e6,
    };
    let capacities = operation.demands.iter().map(|demand| Limit {
        element: demand.element,
        kind: LimitKind::Capacity,
        iops: demand.capacity(),
    });
    let mut limits: Vec<Limit> = capacities.chain([latency]).collect();
    limits.sort_by(|a, b| a.iops.total_cmp(&b.iops));
    limits
}

/// The least capacity of all elements, in operations a second.
#[must_use]
pub fn peak(operation: &Operation) -> f64 {
    let capacities = operation.demands.iter().map(|demand| demand.capacity());
    capacities.fold(f64::INFINITY, f64::min)
}

/// The number of outstanding operations at which the latency bound meets the least capacity.
#[must_use]
pub fn knee(operation: &Operation) -> f64 {
    operation.alone_us() * peak(operation) / 1e6
}

/// Operations a second at a queue depth, by mean value analysis. Service times are exponentially distributed.
#[must_use]
pub fn mean_value(operation: &Operation, outstanding: u64) -> f64 {
    queueing(operation, outstanding, 1.0).iops
}

/// Operations a second at a queue depth, by approximate mean value analysis: an operation waits for those in front of it
/// in full, and for the rest of the one that is served, `cv` of its time. `cv2` is the variance of times by the square of
/// their mean: 1 gives [`mean_value`].
#[must_use]
pub fn amva(operation: &Operation, outstanding: f64, cv2: f64) -> f64 {
    queueing(operation, crate::parameter::as_bytes(outstanding), cv2).iops
}

/// A closed loop at a queue depth.
#[derive(Clone, Debug, PartialEq)]
pub struct Queueing {
    pub iops: f64,
    /// Time that an operation waits for each of [`Operation::demands`], in microseconds.
    pub waits_us: Vec<f64>,
}

/// Mean value analysis goes no further: by then the rate is that of the bounds.
const CUSTOMERS_MAX: u64 = 2000;

/// Mean value analysis with what is waited for; see [`amva`].
#[must_use]
pub fn queueing(operation: &Operation, outstanding: u64, cv2: f64) -> Queueing {
    let alone = operation.alone_us();
    let residual = residual(cv2);
    let mut lengths = vec![0.0; operation.demands.len()];
    let mut waits = vec![0.0; operation.demands.len()];
    let mut rate = 0.0;
    let peak = peak(operation) / 1e6;
    for customers in 1..=outstanding.clamp(1, CUSTOMERS_MAX) {
        // An operation finds what one operation less would leave there, and waits for that in addition to its own time.
        // That may be less than the sum of its demands, where they overlap.
        for ((wait, demand), length) in waits.iter_mut().zip(&operation.demands).zip(&lengths) {
            let (us, servers) = (demand.us / demand.servers, demand.servers);
            let busy = (rate * us).min(1.0);
            let ahead: f64 =
                length - busy * (servers - 1.0) - (rate * us).min(*length) * (1.0 - residual);
            *wait = us * all_busy(busy, servers) * ahead.max(0.0);
        }
        // A link serves an operation that is alone from its bucket, faster than many.
        rate = (f64_of(customers) / (alone + waits.iter().sum::<f64>())).min(peak);
        for ((length, demand), wait) in lengths.iter_mut().zip(&operation.demands).zip(&waits) {
            *length = rate * (demand.us + wait);
        }
    }
    let outstanding = f64_of(outstanding);
    let convoy = outstanding / (alone + convoy_us(operation, outstanding)) * 1e6;
    let most = limits(operation, outstanding)[0].iops.min(convoy);
    let iops = if outstanding > f64_of(CUSTOMERS_MAX) {
        most
    } else {
        (rate * 1e6).min(most)
    };
    // Where the bounds are lower, all waiting is longer.
    let waited = waits.iter().sum::<f64>();
    if waited > 0.0 {
        let longer = (outstanding / iops * 1e6 - alone).max(0.0) / waited;
        waits.iter_mut().for_each(|wait| *wait *= longer);
    }
    Queueing {
        iops,
        waits_us: waits,
    }
}

/// The part of the time of the operation that is served which another one waits for. Where nothing varies, operations
/// come one after the other and wait for none; between that and the exponential distribution, the simulation is met best by
/// the standard deviation itself.
fn residual(cv2: f64) -> f64 {
    cv2.clamp(0.0, 1.0).sqrt()
}

/// How much longer an operation takes whose answer waits in a convoy.
///
/// A server deals with all commands that have come before it deals with what its medium has completed meanwhile. Where it is
/// the slowest element, commands come faster than it takes them: the answer to the first is written when those that came
/// during its time in the medium have been dealt with, and answers leave together, so that the next commands come together
/// again. With time `s` of the server, `m` of the medium and `d` between commands, the medium completes operation `j` at
/// `(j + 1)·s + m`; its answer leaves when all commands have been dealt with that came until then.
fn convoy_us(operation: &Operation, outstanding: f64) -> f64 {
    let spacing = |demand: &Demand| demand.us / demand.servers;
    let demands = operation.demands.iter();
    let slowest = demands
        .clone()
        .max_by(|a, b| spacing(a).total_cmp(&spacing(b)));
    let server = slowest.filter(|it| it.element == Element::ServerProcessor);
    let medium = operation.contribution(Element::Storage);
    let (Some(server), true) = (server, medium > 0.0) else {
        return 0.0;
    };
    let others =
        demands.filter(|it| !matches!(it.element, Element::ServerProcessor | Element::Storage));
    let between = others.map(spacing).fold(1e-3, f64::max);
    let share = (outstanding / server.servers)
        .floor()
        .min(f64_of(CUSTOMERS_MAX));
    let count = crate::parameter::as_bytes(share).max(1);
    let stays = |place: u64| {
        let completed = f64_of(place + 1) * server.us + medium;
        let commands = (1.0 + (completed / between).floor()).min(f64_of(count));
        let answered = completed.max(commands * server.us);
        answered - f64_of(place) * between
    };
    let mean = (0..count).map(stays).sum::<f64>() / f64_of(count);
    (mean - server.us - medium).max(0.0)
}

/// How likely an operation finds all servers busy, each of which is busy for a share of the time (Suri and others, 2007).
fn all_busy(share: f64, servers: f64) -> f64 {
    share.powf(4.464 * (servers.powf(0.676) - 1.0))
}

#[allow(clippy::cast_precision_loss)] // Operations under way.
fn f64_of(count: u64) -> f64 {
    count as f64
}

/// Throughput time: microseconds between two operations that end, at the peak. Network bound or processor bound,
/// whichever takes longer; the processor's time scales with its clock.
#[must_use]
pub fn throughput_time_us(net_reply_us: f64, cpu_us: f64, clock_scale: f64) -> f64 {
    net_reply_us.max(cpu_us * clock_scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Contribution;

    /// One element of 10 µs, and 90 µs of way.
    fn operation(servers: f64) -> Operation {
        let part = |element, us| Contribution { element, us };
        Operation {
            size: 512.0,
            contributions: vec![
                part(Element::ServerProcessor, 10.0),
                part(Element::Distance, 90.0),
            ],
            demands: vec![Demand {
                element: Element::ServerProcessor,
                us: 10.0,
                servers,
            }],
            sending_us: [0.0; 2],
            r2ts: 0,
            enough_r2ts: None,
        }
    }

    #[test]
    fn the_knee_is_where_latency_bound_and_capacity_meet() {
        let operation = operation(1.0);
        assert!((knee(&operation) - 10.0).abs() < 1e-9);
        let few = limits(&operation, 5.0)[0];
        assert_eq!(
            (few.kind, few.element),
            (LimitKind::Latency, Element::Distance)
        );
        assert!((few.iops - 50_000.0).abs() < 1e-6);
        let many = limits(&operation, 20.0)[0];
        assert_eq!(many.kind, LimitKind::Capacity);
        assert!((many.iops - 100_000.0).abs() < 1e-6);
    }

    #[test]
    fn mean_value_analysis_meets_the_bounds_at_both_ends_and_is_lower_at_the_knee() {
        let operation = operation(1.0);
        assert!((mean_value(&operation, 1) - 10_000.0).abs() < 1e-6);
        let knee = mean_value(&operation, 10);
        assert!((65_000.0..90_000.0).contains(&knee), "{knee}");
        assert!(mean_value(&operation, 200) > 99_000.0);
    }

    #[test]
    fn mean_value_analysis_is_that_of_the_repairman_model() {
        // Two machines, each 1 s of thinking and 1 s of service: 2/(2.5 s) = 0.8 a second.
        let part = |element, us| Contribution { element, us };
        let operation = Operation {
            contributions: vec![
                part(Element::Distance, 1e6),
                part(Element::ServerProcessor, 1e6),
            ],
            demands: vec![Demand {
                element: Element::ServerProcessor,
                us: 1e6,
                servers: 1.0,
            }],
            ..self::operation(1.0)
        };
        assert!((mean_value(&operation, 2) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn a_link_that_is_faster_for_one_operation_is_no_slower_for_two() {
        let part = |element, us| Contribution { element, us };
        // 100 µs of the wire pass from a bucket.
        let operation = Operation {
            contributions: vec![part(Element::ClientProcessor, 5.0)],
            demands: vec![Demand {
                element: Element::ResponseWire,
                us: 100.0,
                servers: 1.0,
            }],
            ..self::operation(1.0)
        };
        for outstanding in [1.0, 2.0, 3.0, 16.0] {
            let iops = amva(&operation, outstanding, 0.1);
            assert!((iops - 10_000.0).abs() < 1.0, "{iops} at {outstanding}");
        }
    }

    #[test]
    fn as_many_operations_as_servers_hardly_wait_and_many_more_keep_all_busy() {
        let operation = operation(4.0);
        let few = mean_value(&operation, 4);
        assert!((39_500.0..=40_000.0).contains(&few), "{few}");
        let many = mean_value(&operation, 200);
        assert!((390_000.0..=400_000.0).contains(&many), "{many}");
    }

    #[test]
    fn answers_that_wait_for_commands_make_a_convoy_behind_a_slow_server_alone() {
        let part = |element, us| Contribution { element, us };
        let demand = |element, us, servers| Demand {
            element,
            us,
            servers,
        };
        let of = |server: f64, wire: f64, medium: f64| Operation {
            contributions: vec![
                part(Element::ServerProcessor, server),
                part(Element::Storage, medium),
                part(Element::Distance, 1000.0),
            ],
            demands: vec![
                demand(Element::ServerProcessor, server, 1.0),
                demand(Element::ResponseWire, wire, 1.0),
                demand(Element::Storage, medium, 8.0),
            ],
            ..operation(1.0)
        };
        // Seven other commands of 40 µs pass while the medium takes 16 µs.
        let convoy = convoy_us(&of(40.0, 1.0, 16.0), 8.0);
        assert!((250.0..270.0).contains(&convoy), "{convoy}");
        // All is over before the medium answers; nothing waits at the medium; the wire spreads what comes.
        assert!(convoy_us(&of(40.0, 1.0, 400.0), 8.0) < 40.0);
        assert!(convoy_us(&of(40.0, 1.0, 0.0), 8.0) < 1e-9);
        assert!(convoy_us(&of(40.0, 50.0, 16.0), 8.0) < 1e-9);
        assert!(convoy_us(&of(40.0, 1.0, 16.0), 1.0) < 1e-9);
    }

    #[test]
    fn two_servers_have_twice_the_capacity() {
        assert!((peak(&operation(2.0)) - 200_000.0).abs() < 1e-6);
    }
}
