//! The life of one operation: eight elements, from the client's application and back to it.
//!
//! ```text
//!  client application ► client send ► request wire ► server receive
//!           ▲                                              ▼
//!  client receive ◄ response wire ◄ server send ◄ server application
//! ```
//!
//! In each element an operation waits for others, then for something that sleeps or holds it back, and is then worked on
//! (Butterfield's pipeline). Waiting comes from mean value analysis. The time of the medium belongs to the server's
//! application, the way between the machines and waiting for R2Ts to the wires.

use serde::Serialize;

use crate::bounds::{knee, queueing};
use crate::operation::{Element, Operation};
use crate::parameter::{Key, Parts};
use crate::prediction::Estimate;
use crate::probe::{Direction, Pattern, Probe, STAGES, ServerFacts};
use crate::spread::Spread;

/// An element of the pipeline, in the order of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    ClientApplication,
    ClientSend,
    RequestWire,
    ServerReceive,
    ServerApplication,
    ServerSend,
    ResponseWire,
    ClientReceive,
}

pub const STOPS: [Stop; 8] = [
    Stop::ClientApplication,
    Stop::ClientSend,
    Stop::RequestWire,
    Stop::ServerReceive,
    Stop::ServerApplication,
    Stop::ServerSend,
    Stop::ResponseWire,
    Stop::ClientReceive,
];

impl Stop {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientApplication => "client application",
            Self::ClientSend => "client send",
            Self::RequestWire => "request wire",
            Self::ServerReceive => "server receive",
            Self::ServerApplication => "server application",
            Self::ServerSend => "server send",
            Self::ResponseWire => "response wire",
            Self::ClientReceive => "client receive",
        }
    }
}

/// What an operation spends in an element, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Segment {
    pub stop: Stop,
    /// Waits for other operations.
    pub queue_us: f64,
    /// Sleeps, travels, or is held back.
    pub latency_us: f64,
    /// Is worked on by a processor, the medium or the wire.
    pub work_us: f64,
    /// Part of the work that is the medium's.
    pub medium_us: f64,
    /// All of these, within the uncertainties of the parts.
    pub total_us: Estimate,
    /// Share of the round trip, from 0 to 1.
    pub share: f64,
    /// Something of it was measured, and not assumed.
    pub is_measured: bool,
}

impl Segment {
    #[must_use]
    pub fn sum_us(&self) -> f64 {
        self.queue_us + self.latency_us + self.work_us
    }
}

/// The life of an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pipeline {
    pub direction: Direction,
    pub size_bytes: u64,
    /// Operations under way on a connection. None: whatever clients do now.
    pub depth: Option<u16>,
    /// The depth is that of the knee.
    pub is_knee: bool,
    pub segments: Vec<Segment>,
    /// What the segments add up to.
    pub round_trip_us: Estimate,
    /// What was measured of such operations.
    pub measured_us: Option<Spread>,
}

impl Pipeline {
    /// What was measured beyond the segments.
    #[must_use]
    pub fn unexplained_us(&self) -> Option<f64> {
        Some(self.measured_us?.value - self.round_trip_us.value)
    }
}

/// Set-ups that are drawn for intervals.
const SAMPLES: usize = 64;

/// Times of an element: queue, latency, work, and of that the medium's.
type Times = [f64; 4];

/// The life of an operation of a set-up at a depth of each connection.
#[must_use]
pub fn of_parts(parts: &Parts, size: u64, depth: u16) -> Pipeline {
    let nominal = times(parts, size, depth);
    let count = if parts.is_certain() { 1 } else { SAMPLES };
    let samples: Vec<Vec<Times>> = parts
        .samples(count)
        .iter()
        .map(|sample| times(sample, size, depth))
        .collect();
    let sum = |times: &Times| times[..3].iter().sum::<f64>();
    let all = |times: &[Times]| times.iter().map(sum).sum::<f64>();
    let round_trip = all(&nominal);
    let segments = STOPS.iter().zip(&nominal).enumerate();
    let segments = segments.map(|(place, (stop, own))| Segment {
        stop: *stop,
        queue_us: own[0],
        latency_us: own[1],
        work_us: own[2],
        medium_us: own[3],
        total_us: around(
            sum(own),
            samples.iter().map(|times| sum(&times[place])).collect(),
        ),
        share: sum(own) / round_trip,
        is_measured: keys(*stop)
            .iter()
            .any(|key| parts.quantity(*key).source.kind() == "measured"),
    });
    Pipeline {
        direction: if parts.is(crate::parameter::Choice::Direction, "write") {
            Direction::Write
        } else {
            Direction::Read
        },
        size_bytes: size,
        depth: Some(depth),
        is_knee: false,
        segments: segments.collect(),
        round_trip_us: around(round_trip, samples.iter().map(|times| all(times)).collect()),
        measured_us: None,
    }
}

/// Depth 1, and the knee if that is another one.
#[must_use]
pub fn depths(parts: &Parts, size: u64) -> Vec<u16> {
    let operation = Operation::new(parts, float(size), 64.0);
    let connections = parts.get(Key::Connections);
    let knee = (knee(&operation) / connections).round().clamp(1.0, 1024.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Clamped.
    let knee = knee as u16;
    if knee > 1 { vec![1, knee] } else { vec![1] }
}

/// Operations of a probe: alone and at the knee, with what was measured of the same ones.
#[must_use]
pub fn of_probe(probe: &Probe, parts: &Parts, direction: Direction, size: u64) -> Vec<Pipeline> {
    let all = depths(parts, size).into_iter().map(|depth| {
        let mut pipeline = of_parts(parts, size, depth);
        pipeline.is_knee = depth > 1;
        let same = probe.points.iter().find(|point| {
            (
                point.direction,
                point.size_bytes,
                point.depth,
                point.connections,
            ) == (direction, size, depth, 1)
                && point.pattern == Pattern::Random
        });
        pipeline.measured_us = same.map(|point| point.latency_us);
        pipeline
    });
    all.collect()
}

/// Parameters of an element.
fn keys(stop: Stop) -> &'static [Key] {
    match stop {
        Stop::ClientApplication => &[Key::ClientWakeUp, Key::ClientCpuPerOp],
        Stop::ClientSend => &[Key::ClientCpuPerSend],
        Stop::RequestWire | Stop::ResponseWire => &[Key::OneWayLatency, Key::Rate],
        Stop::ServerReceive => &[Key::ServerInterruptLatency, Key::ServerSoftIrq],
        Stop::ServerApplication => &[Key::ServerWakeUp, Key::ServerCpuPerOp, Key::StorageAccess],
        Stop::ServerSend => &[Key::ServerCpuPerSend],
        Stop::ClientReceive => &[Key::ClientInterruptLatency, Key::ClientSoftIrq],
    }
}

fn times(parts: &Parts, size: u64, depth: u16) -> Vec<Times> {
    let operation = Operation::new(parts, float(size), f64::from(depth));
    let under_way = u64::from(depth) * parts.count(Key::Connections);
    let cv2 = parts.get(Key::Variation).powi(2);
    let queueing = queueing(&operation, under_way, cv2);
    let wait = |element| {
        let demands = operation.demands.iter().zip(&queueing.waits_us);
        let own = demands.filter(|(demand, _)| demand.element == element);
        own.map(|(_, wait)| wait).sum::<f64>()
    };
    let work = |element| operation.contribution(element);
    let [client_send, server_send] = operation.sending_us;
    let is_write = parts.is(crate::parameter::Choice::Direction, "write");
    let window = |is_here: bool| {
        if is_here {
            [wait(Element::Window), work(Element::Window)]
        } else {
            [0.0; 2]
        }
    };
    let wire = |element, transmit, carries_data, r2ts| {
        let window = window(carries_data);
        let way = parts.get(Key::OneWayLatency) + parts.get(transmit);
        [
            wait(element) + window[0],
            way + window[1] + r2ts,
            work(element),
            0.0,
        ]
    };
    let medium = work(Element::Storage);
    STOPS
        .iter()
        .map(|stop| match stop {
            Stop::ClientApplication => [
                wait(Element::ClientProcessor),
                parts.get(Key::ClientWakeUp),
                work(Element::ClientProcessor) - client_send,
                0.0,
            ],
            Stop::ClientSend => [0.0, 0.0, client_send, 0.0],
            Stop::RequestWire => wire(
                Element::RequestWire,
                Key::ClientTransmitLatency,
                is_write,
                work(Element::R2ts),
            ),
            Stop::ServerReceive => [
                wait(Element::ServerKernel),
                parts.get(Key::ServerInterruptLatency),
                work(Element::ServerKernel),
                0.0,
            ],
            Stop::ServerApplication => [
                wait(Element::ServerProcessor) + wait(Element::Storage),
                parts.get(Key::ServerWakeUp),
                work(Element::ServerProcessor) - server_send + medium,
                medium,
            ],
            Stop::ServerSend => [0.0, 0.0, server_send, 0.0],
            Stop::ResponseWire => wire(
                Element::ResponseWire,
                Key::ServerTransmitLatency,
                !is_write,
                0.0,
            ),
            Stop::ClientReceive => [
                wait(Element::ClientKernel),
                parts.get(Key::ClientInterruptLatency),
                work(Element::ClientKernel),
                0.0,
            ],
        })
        .collect()
}

/// Nine tenths of what was drawn.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // Some dozens of values.
fn around(value: f64, mut all: Vec<f64>) -> Estimate {
    all.push(value);
    all.sort_by(f64::total_cmp);
    let tail = (all.len() as f64 * 0.05).floor() as usize;
    Estimate {
        value,
        low: all[tail],
        high: all[all.len() - 1 - tail],
    }
}

/// What a running Longshore server says of the operations of its clients, the most frequent kinds first.
///
/// The server does not see its clients: what they and the network take beyond the round trip of TCP comes from
/// `client_us`, the latency that a client has measured, if there is one.
#[must_use]
pub fn of_server(facts: &ServerFacts, client_us: Option<f64>) -> Vec<Pipeline> {
    let mut round_trips: Vec<f64> = facts
        .tcp
        .iter()
        .filter_map(|tcp| tcp.min_rtt_us.or(tcp.rtt_us))
        .map(float)
        .collect();
    round_trips.sort_by(f64::total_cmp);
    let network = round_trips.get(round_trips.len() / 2).copied();
    // An operation waits for an event loop to wake up where loops sleep as often as operations come.
    let often = float(facts.sleeps) / float(facts.operations.max(1));
    let wakes = facts.wake_up_us.unwrap_or(0.0) * often.min(1.0);
    let mut stages: Vec<_> = facts.stages.iter().collect();
    stages.sort_by_key(|stage| std::cmp::Reverse(stage.operations));
    let pipelines = stages.into_iter().map(|stage| {
        let of = |name: &str| {
            let place = STAGES.iter().position(|stage| *stage == name);
            place.map_or(0.0, |place| stage.mean_us[place])
        };
        let way = network.unwrap_or(0.0) / 2.0;
        let known: f64 = stage.mean_us.iter().sum::<f64>() + 2.0 * way + wakes;
        let beyond = client_us.map_or(0.0, |client| (client - known).max(0.0));
        let of_stop = |stop| match stop {
            Stop::ClientApplication => [0.0, beyond, 0.0, 0.0],
            Stop::RequestWire => [0.0, way + of("data"), 0.0, 0.0],
            Stop::ServerApplication => [
                of("parse") + of("gate"),
                wakes,
                of("storage") + of("answer"),
                of("storage"),
            ],
            Stop::ServerSend => [of("send"), 0.0, 0.0, 0.0],
            Stop::ResponseWire => [0.0, way, 0.0, 0.0],
            Stop::ClientSend | Stop::ServerReceive | Stop::ClientReceive => [0.0; 4],
        };
        let total = known + beyond;
        let exact = |value| Estimate {
            value,
            low: value,
            high: value,
        };
        let segment = |stop: Stop| {
            let own = of_stop(stop);
            let sum: f64 = own[..3].iter().sum();
            Segment {
                stop,
                queue_us: own[0],
                latency_us: own[1],
                work_us: own[2],
                medium_us: own[3],
                total_us: exact(sum),
                share: if total > 0.0 { sum / total } else { 0.0 },
                is_measured: sum > 0.0,
            }
        };
        Pipeline {
            direction: stage.direction,
            size_bytes: stage.bytes_up_to,
            depth: None,
            is_knee: false,
            segments: STOPS.map(segment).to_vec(),
            round_trip_us: exact(total),
            measured_us: client_us.map(|value| Spread {
                value,
                uncertainty: 0.0,
                rounds: 1,
            }),
        }
    });
    pipelines.collect()
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations, and microseconds.
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounting::latency_us;
    use crate::bounds::amva;
    use crate::parameter::Source;
    use crate::probe::{StageFacts, TcpFacts};

    fn parts(changes: &[(&str, &str)]) -> Parts {
        let base = [
            ("rate", "1Gbit/s"),
            ("one-way-latency", "50us±5us"),
            ("client-cpu-per-op", "6us"),
            ("client-cpu-per-send", "2us"),
            ("server-cpu-per-op", "9us"),
            ("server-cpu-per-send", "3us"),
            ("server-wake-up", "8us"),
            ("client-wake-up", "12us"),
            ("storage-access-time", "80us"),
            ("server-softirq-per-packet", "1us"),
            ("client-interrupt-latency", "2us"),
        ];
        let mut parts = Parts::default();
        for (name, value) in base.iter().chain(changes) {
            let source = Source::Given("a test".to_owned());
            parts.change(name, value, source).unwrap();
        }
        parts
    }

    #[test]
    fn the_segments_add_up_to_the_round_trip_at_every_depth() {
        let window = ("window", "64k");
        for changes in [
            &[][..],
            &[("rw", "write")],
            &[window],
            &[("rw", "write"), window],
        ] {
            let parts = parts(changes);
            for (size, depth) in [(4096, 1), (4096, 3), (65536, 8), (1 << 20, 2), (512, 200)] {
                let pipeline = of_parts(&parts, size, depth);
                let sum: f64 = pipeline.segments.iter().map(Segment::sum_us).sum();
                let operation = Operation::new(&parts, float(size), f64::from(depth));
                let cv2 = parts.get(Key::Variation).powi(2);
                let whole = latency_us(f64::from(depth), amva(&operation, f64::from(depth), cv2));
                assert!(
                    (sum / whole - 1.0).abs() < 1e-6,
                    "{changes:?} {size} {depth}: {sum} {whole}"
                );
                assert!((pipeline.round_trip_us.value / sum - 1.0).abs() < 1e-9);
                let shares: f64 = pipeline.segments.iter().map(|it| it.share).sum();
                assert!((shares - 1.0).abs() < 1e-9);
                let none_is_negative = pipeline
                    .segments
                    .iter()
                    .all(|it| it.queue_us >= 0.0 && it.latency_us >= 0.0 && it.work_us > -1e-9);
                assert!(none_is_negative, "{pipeline:?}");
            }
        }
    }

    #[test]
    fn what_waits_at_the_knee_waits_for_the_slowest_element() {
        let parts = parts(&[]);
        let [one, knee] = depths(&parts, 4096)[..] else {
            panic!("two depths")
        };
        assert_eq!(one, 1);
        let pipeline = of_parts(&parts, 4096, knee);
        let waits = pipeline.segments.iter();
        let longest = waits
            .max_by(|a, b| a.queue_us.total_cmp(&b.queue_us))
            .unwrap();
        assert_eq!(longest.stop, Stop::ServerApplication);
        let alone = of_parts(&parts, 4096, 1);
        assert!(alone.segments.iter().all(|it| it.queue_us < 1e-9));
        let wire = &alone.segments[2];
        assert!(
            wire.total_us.low < wire.total_us.value && wire.total_us.value < wire.total_us.high
        );
    }

    #[test]
    fn a_server_tells_its_stages_and_what_is_left_is_the_clients() {
        let stage = |operations, mean| StageFacts {
            direction: Direction::Read,
            bytes_up_to: 4096,
            operations,
            mean_us: mean,
        };
        let tcp = |rtt| TcpFacts {
            rtt_us: Some(rtt),
            ..TcpFacts::default()
        };
        let facts = ServerFacts {
            stages: vec![
                stage(3, [0.0; 6]),
                stage(90, [1.0, 2.0, 3.0, 40.0, 5.0, 6.0]),
            ],
            tcp: vec![tcp(30), tcp(20), tcp(900)],
            ..ServerFacts::default()
        };
        let pipelines = of_server(&facts, Some(120.0));
        let busiest = &pipelines[0];
        assert!((busiest.round_trip_us.value - 120.0).abs() < 1e-9);
        let client = &busiest.segments[0];
        assert!(
            (client.latency_us - (120.0 - 57.0 - 30.0)).abs() < 1e-9,
            "{client:?}"
        );
        assert!((busiest.segments[4].medium_us - 40.0).abs() < 1e-9);
        let alone = of_server(&facts, None);
        assert!((alone[0].round_trip_us.value - 87.0).abs() < 1e-9);
        assert_eq!(alone[0].unexplained_us(), None);
    }
}
