//! One operation by itself: where its time goes, and how long it keeps each element busy.
//!
//! The elements are those of a pipeline: client, request wire, server, response wire, and back to the client. A
//! *contribution* is part of the latency of an operation that is alone. A *demand* is the time for which an element can
//! serve no other operation.

use serde::Serialize;

use crate::link::{Headers, Link, TRAIN};
use crate::parameter::{Choice, Key, Parts};
use crate::write::{DataTransfer, Latencies, WriteRules};

/// A part of the path of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    ClientProcessor,
    RequestWire,
    /// The server's kernel, for what it receives.
    ServerKernel,
    ServerProcessor,
    Storage,
    ResponseWire,
    /// The client's kernel, for what it receives.
    ClientKernel,
    /// The way between the machines.
    Distance,
    /// What TCP may have under way.
    Window,
    /// Waiting for R2Ts, beyond the way there and back.
    R2ts,
    /// Wake-ups of threads that sleep.
    WakeUps,
    /// Cards that hold packets back.
    Interrupts,
    /// Responses that the transmit policy or the kernel holds back; known to the simulation alone.
    Held,
}

impl Element {
    /// The name of the element, as outputs print it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientProcessor => "client processor",
            Self::RequestWire => "request wire",
            Self::ServerKernel => "server kernel",
            Self::ServerProcessor => "server processor",
            Self::Storage => "storage",
            Self::ResponseWire => "response wire",
            Self::ClientKernel => "client kernel",
            Self::Distance => "network latency",
            Self::Window => "TCP window",
            Self::R2ts => "waiting for R2Ts",
            Self::WakeUps => "wake-ups",
            Self::Interrupts => "interrupts",
            Self::Held => "held responses",
        }
    }
}

/// Part of the latency of an operation that is alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Contribution {
    pub element: Element,
    pub us: f64,
}

/// How long an operation keeps an element busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Demand {
    pub element: Element,
    /// Of one of its servers.
    pub us: f64,
    /// How many operations it serves at a time.
    pub servers: f64,
}

impl Demand {
    /// Operations a second that it can serve.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        if self.us > 0.0 {
            self.servers / self.us * 1e6
        } else {
            f64::INFINITY
        }
    }
}

/// One operation of a set-up.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub size: f64,
    pub contributions: Vec<Contribution>,
    pub demands: Vec<Demand>,
    /// Processor time of client and server for packets and trains that they send, within the times of the processors.
    pub sending_us: [f64; 2],
    /// R2Ts of a write.
    pub r2ts: usize,
    /// R2Ts from which more at a time bring nothing, for a write that has any.
    pub enough_r2ts: Option<usize>,
}

/// Times of a set-up that do not depend on the operation.
struct Setting<'a> {
    parts: &'a Parts,
    link: Link,
    headers: Headers,
}

impl Operation {
    /// An operation of `size` bytes among `depth` of its connection.
    #[must_use]
    pub fn new(parts: &Parts, size: f64, depth: f64) -> Self {
        let link = Link::new(parts);
        let headers = Headers::new(parts, &link);
        let setting = Setting {
            parts,
            link,
            headers,
        };
        if parts.is(Choice::Direction, "write") {
            setting.write(size, depth)
        } else {
            setting.read(size, depth)
        }
    }

    /// Latency of an operation that is alone, in microseconds.
    #[must_use]
    pub fn alone_us(&self) -> f64 {
        self.contributions.iter().map(|it| it.us).sum()
    }

    /// The largest part of that latency.
    #[must_use]
    pub fn largest(&self) -> Contribution {
        let largest = self
            .contributions
            .iter()
            .max_by(|a, b| a.us.total_cmp(&b.us));
        *largest.expect("there are contributions")
    }

    #[must_use]
    pub fn contribution(&self, element: Element) -> f64 {
        let of_element = self.contributions.iter().filter(|it| it.element == element);
        of_element.map(|it| it.us).sum()
    }
}

/// How much longer the server takes than its processor times: they were found at another clock rate, and other programs
/// have the processor meanwhile.
#[must_use]
pub fn clock_scale(parts: &Parts) -> f64 {
    parts.get(Key::ClockReference) / parts.get(Key::Clock) / parts.get(Key::ServerShare)
}

/// Time of the medium for an operation.
#[must_use]
pub fn storage_us(parts: &Parts, size: f64) -> f64 {
    let times = parts.storage_times();
    if times.is_empty() {
        let rate = parts.get(Key::StorageRate);
        let transfer = if rate > 0.0 { size / rate * 1e6 } else { 0.0 };
        return parts.get(Key::StorageAccess) + transfer;
    }
    let bytes = crate::parameter::as_bytes(size);
    let below = times.range(..=bytes).next_back();
    let above = times.range(bytes..).next();
    #[allow(clippy::cast_precision_loss)] // Sizes of operations.
    let float = |bytes: u64| bytes as f64;
    match (below, above) {
        // Beyond the largest size, the medium goes on at the rate of that one.
        (Some((largest, time)), None) => time * size / float(*largest),
        (None, Some((_, time))) => *time,
        (Some((low, from)), Some((high, to))) if high > low => {
            from + (to - from) * (size - float(*low)) / float(high - low)
        }
        (Some((_, time)), _) => *time,
        (None, None) => 0.0,
    }
}

/// Time for which the medium moves the bytes of an operation, while it moves those of no other.
#[must_use]
pub fn storage_moves_us(parts: &Parts, size: f64) -> f64 {
    let throughput = parts.get(Key::StorageThroughput);
    if throughput > 0.0 {
        size / throughput * 1e6
    } else {
        0.0
    }
}

impl Setting<'_> {
    fn get(&self, key: Key) -> f64 {
        self.parts.get(key)
    }

    fn latencies(&self) -> Latencies {
        Latencies {
            to_server: self.get(Key::OneWayLatency)
                + self.get(Key::ClientTransmitLatency)
                + self.get(Key::ServerInterruptLatency)
                + self.get(Key::ServerSoftIrq)
                + self.get(Key::ServerWakeUp),
            to_client: self.get(Key::OneWayLatency)
                + self.get(Key::ServerTransmitLatency)
                + self.get(Key::ClientInterruptLatency)
                + self.get(Key::ClientSoftIrq)
                + self.get(Key::ClientWakeUp),
        }
    }

    /// Packets or trains in which the server sends `bytes` of each of `depth` operations.
    fn sends(&self, bytes: f64, depth: f64) -> f64 {
        let trains = bytes / TRAIN;
        let by_turn =
            self.parts.is(Choice::Transmit, "auto") || self.parts.is(Choice::Send, "turn");
        if by_turn {
            trains.max(1.0 / depth)
        } else if self.parts.is(Choice::Transmit, "nodelay") {
            trains.max(1.0)
        } else {
            // The kernel fills packets, as far as there are responses to fill them with.
            trains.max((bytes / self.link.segment).min(1.0).max(1.0 / depth))
        }
    }

    /// Whether packets of responses are full at this depth.
    fn response_us(&self, bytes: f64, depth: f64) -> f64 {
        let apart =
            self.parts.is(Choice::Transmit, "nodelay") && self.parts.is(Choice::Send, "response");
        if apart || depth < 2.0 {
            self.link.apart_us(bytes)
        } else {
            self.link.packed_us(bytes)
        }
    }

    fn processors(&self, key: Key) -> f64 {
        self.get(key).min(self.get(Key::Connections))
    }

    fn per_byte(&self, key: Key) -> f64 {
        let digest = if self.parts.is(Choice::DataDigest, "crc32c") {
            self.get(Key::DigestCost)
        } else {
            0.0
        };
        self.get(key) + digest
    }

    fn server_us(&self, size: f64, sends: f64) -> f64 {
        let plain = self.get(Key::ServerCpuPerOp)
            + self.per_byte(Key::ServerCpuPerByte) * size
            + self.get(Key::ServerCpuPerSend) * sends;
        plain * clock_scale(self.parts)
    }

    /// Sends of the client for an operation that takes `alone` of them by itself, among `depth`.
    fn client_sends(&self, alone: f64, depth: f64) -> f64 {
        if self.parts.is(Choice::ClientSend, "batch") {
            alone - 1.0 + 1.0 / depth
        } else {
            alone
        }
    }

    fn client_us(&self, size: f64, sends: f64) -> f64 {
        self.get(Key::ClientCpuPerOp)
            + self.per_byte(Key::ClientCpuPerByte) * size
            + self.get(Key::ClientCpuPerSend) * sends
    }

    /// Parts that reads and writes share: the way there and back, whoever sleeps, and the elements that serve.
    #[allow(clippy::too_many_arguments)] // Times of as many elements.
    fn operation(
        &self,
        size: f64,
        request_us: [f64; 2],
        response_us: [f64; 2],
        server_us: [f64; 2],
        client_us: [f64; 2],
        packets: [f64; 2],
        r2ts: (usize, f64),
        sends: [f64; 2],
    ) -> Operation {
        let window = self.window(size);
        let storage_us = storage_us(self.parts, size);
        let moves_us = storage_moves_us(self.parts, size);
        let visible = moves_us + storage_us * (1.0 - self.get(Key::StorageOverlap));
        // An operation that is alone finds a bucket that has filled up meanwhile.
        let alone_us = |wire: [f64; 2]| (wire[0] - self.link.burst_us).max(0.0);
        let contributions = [
            (Element::ClientProcessor, client_us[0]),
            (Element::RequestWire, alone_us(request_us)),
            (Element::ServerKernel, self.get(Key::ServerSoftIrq)),
            (Element::ServerProcessor, server_us[0]),
            (Element::Storage, visible),
            (Element::ResponseWire, alone_us(response_us)),
            (Element::ClientKernel, self.get(Key::ClientSoftIrq)),
            (Element::Distance, 2.0 * self.get(Key::OneWayLatency)),
            (Element::Window, window[0]),
            (Element::R2ts, r2ts.1),
            (
                Element::WakeUps,
                self.get(Key::ServerWakeUp) + self.get(Key::ClientWakeUp),
            ),
            (
                Element::Interrupts,
                self.get(Key::ClientTransmitLatency)
                    + self.get(Key::ServerInterruptLatency)
                    + self.get(Key::ServerTransmitLatency)
                    + self.get(Key::ClientInterruptLatency),
            ),
        ];
        let server_cores = self.processors(Key::ServerCores);
        let client_cores = self.processors(Key::ClientCores);
        let demands = [
            (Element::ClientProcessor, client_us[1], client_cores),
            (Element::RequestWire, request_us[1], 1.0),
            (
                Element::ServerKernel,
                self.get(Key::ServerSoftIrq) * packets[0],
                server_cores,
            ),
            (Element::ServerProcessor, server_us[1], server_cores),
            (Element::Storage, storage_us, self.get(Key::StorageParallel)),
            (Element::Storage, moves_us, 1.0),
            (Element::ResponseWire, response_us[1], 1.0),
            (
                Element::ClientKernel,
                self.get(Key::ClientSoftIrq) * packets[1],
                client_cores,
            ),
            (Element::Window, window[1], self.get(Key::Connections)),
        ];
        let contributions = contributions.into_iter().filter(|(_, us)| *us > 0.0);
        let demands = demands.into_iter().filter(|(_, us, _)| *us > 0.0);
        Operation {
            size,
            contributions: contributions
                .map(|(element, us)| Contribution { element, us })
                .collect(),
            demands: demands
                .map(|(element, us, servers)| Demand {
                    element,
                    us,
                    servers,
                })
                .collect(),
            sending_us: [
                self.get(Key::ClientCpuPerSend) * sends[0],
                self.get(Key::ServerCpuPerSend) * sends[1] * clock_scale(self.parts),
            ],
            r2ts: r2ts.0,
            enough_r2ts: None,
        }
    }

    /// What the window of TCP adds to an operation that is alone, and the time for which an operation takes a window's
    /// place: a window of data moves in each round trip.
    fn window(&self, size: f64) -> [f64; 2] {
        let window = self.get(Key::Window);
        if window <= 0.0 {
            return [0.0; 2];
        }
        let latencies = self.latencies();
        let round_trip = latencies.to_server + latencies.to_client;
        let full = self.link.packed_us(window);
        let pause = (round_trip - full).max(0.0);
        [
            (size / window - 1.0).max(0.0).ceil() * pause,
            round_trip.max(full) * size / window,
        ]
    }

    fn read(&self, size: f64, depth: f64) -> Operation {
        let segments = (size / self.get(Key::SegmentLength)).ceil().max(1.0);
        let status = if self.parts.is(Choice::Protocol, "iscsi") {
            0.0
        } else {
            self.headers.response
        };
        let answer = size + self.headers.data_in * segments + status;
        let request = self.link.packed_us(self.headers.command);
        let response = [self.link.apart_us(answer), self.response_us(answer, depth)];
        let sends = self.sends(answer, depth);
        let server = [
            self.server_us(size, self.sends(answer, 1.0)),
            self.server_us(size, sends),
        ];
        let packets = (answer / self.link.segment).max(sends.min(1.0));
        self.operation(
            size,
            [request; 2],
            response,
            server,
            [
                self.client_us(size, 1.0),
                self.client_us(size, self.client_sends(1.0, depth)),
            ],
            [1.0, packets],
            (0, 0.0),
            [1.0, self.sends(answer, 1.0)],
        )
    }

    fn write(&self, size: f64, depth: f64) -> Operation {
        let rules = WriteRules::new(self.parts);
        let latencies = self.latencies();
        let moved: DataTransfer = rules.transfer(size, &self.link, &self.headers, latencies);
        #[allow(clippy::cast_precision_loss)] // R2Ts of an operation.
        let (r2ts, rounds) = (moved.r2ts as f64, moved.rounds as f64);
        let answer = self.headers.response;
        let response = self.link.packed_us(answer);
        let requests = self.link.packed_us(self.headers.r2t * r2ts);
        let waiting = moved.arrived_us - moved.wire_us - latencies.to_server;
        let server = [
            self.server_us(size, rounds + 1.0),
            self.server_us(size, rounds + self.sends(answer, depth)),
        ];
        let client_sends = rounds + (size / TRAIN).max(1.0);
        let client = [
            self.client_us(size, client_sends),
            self.client_us(size, self.client_sends(client_sends, depth)),
        ];
        let mut operation = self.operation(
            size,
            [moved.wire_us; 2],
            [response, response + requests],
            server,
            client,
            [(size / self.link.segment).max(1.0) + rounds, 1.0 + rounds],
            (moved.r2ts, waiting),
            [client_sends, rounds + 1.0],
        );
        if moved.r2ts > 0 {
            let enough = rules.enough_r2ts(&self.link, &self.headers, latencies);
            operation.enough_r2ts = Some(enough.min(moved.r2ts));
        }
        operation
    }
}
