//! What happens at each event.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use longshore_transmit::{
    NagleCycles, NagleThreshold, PolicyState, SendUnit, Switch, TransmitConfig, TransmitPolicy,
    WaitingState,
};

use super::events::{Events, SimulationEvent};
use super::outcome::{Busy, Length, SimulatedLoad};
use super::stream::{Message, Parcel, Stream, Train};
use super::time::Time;
use super::wire::{Direction, Kernel, Wire};
use crate::link::{Headers, Link, TRAIN};
use crate::operation::{Element, clock_scale, storage_moves_us, storage_us};
use crate::parameter::{Choice, Key, Parts, as_bytes};
use crate::random::Random;
use crate::write::WriteRules;

/// Parts of a run whose rates are compared.
const PARTS: usize = 10;

/// More events are not spent on a point, if it has a few operations by then.
const EVENTS_MAX: u64 = 4_000_000;
const OPERATIONS_MIN: usize = 50;

/// `auto` tries its ways within this time.
const WARM_UP_AUTO: Time = 120_000_000;
const WARM_UP: Time = 5_000_000;

/// One of the loads.
struct Load {
    is_write: bool,
    /// Bytes on the wire of the command's header, of what follows unasked, and of each burst.
    command: u64,
    unsolicited: u64,
    bursts: Vec<u64>,
    response: u64,
    storage_ns: f64,
    storage_moves_ns: f64,
    server_ns: f64,
    client_ns: f64,
}

/// An operation under way. Its place is taken by the next one when it ends.
#[derive(Clone, Copy, Debug, Default)]
struct Operation {
    load: usize,
    connection: usize,
    began: Time,
    /// Bursts that were asked for, and that have arrived.
    asked: usize,
    arrived: usize,
    /// Bursts that the client has sent.
    sent: usize,
}

struct Connection {
    /// What the server has received and not looked at.
    inbox: VecDeque<Parcel>,
    /// Responses that wait for a send: bytes and message.
    pending: Vec<(u64, Parcel)>,
    pending_bytes: u64,
    policy: PolicyState,
    /// Bytes that were handed to the socket.
    sent: u64,
    /// Counts waits for the peer; `None`: nothing waits.
    waits: Option<u64>,
    wait_count: u64,
    /// When responses were written that have not left, with their ends.
    written: VecDeque<(u64, Time)>,
    is_listed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Asleep,
    Awake,
}

#[derive(Default)]
struct ServerThread {
    state: State,
    /// Connections with something to do.
    ready: VecDeque<usize>,
    /// The connection whose turn it is, and what it has to do.
    turn: Option<(usize, VecDeque<Parcel>)>,
    /// The message that is dealt with.
    now: Option<Parcel>,
    /// The connection for which it is in a call to send.
    sending: Option<usize>,
    /// Time for calls that were made meanwhile.
    debt: f64,
    busy_ns: Time,
}

#[derive(Default)]
struct ClientThread {
    state: State,
    items: VecDeque<(usize, Parcel)>,
    now: Option<(usize, Parcel)>,
    /// Connections with commands that wait for the end of a batch.
    unsent: Vec<usize>,
    busy_ns: Time,
}

#[derive(Default)]
struct Storage {
    queue: VecDeque<usize>,
    /// Operations at a time, and how many more it can take now.
    parallel: usize,
    free: usize,
    busy_ns: Time,
    /// Until when it moves bytes, and for how long it has.
    moves_until: Time,
    moving_ns: Time,
}

/// Figures of all elements at one time, to take differences.
#[derive(Clone, Debug, Default)]
struct Marks {
    time: Time,
    busy: [Time; 8],
    trains: u64,
    responses: u64,
    held_ns: u64,
}

pub(super) struct World {
    random: Random,
    origin: Instant,
    events: Events,
    now: Time,
    /// Nanoseconds on the wire of a byte, and of a packet's headers.
    byte_ns: f64,
    packet_ns: f64,
    variation: f64,
    times: Times,
    rules: WriteRules,
    header: u64,
    loads: Vec<Load>,
    operations: Vec<Operation>,
    connections: Vec<Connection>,
    requests: Vec<Stream>,
    responses: Vec<Stream>,
    wires: [Wire; 2],
    kernels: [Vec<Kernel>; 2],
    servers: Vec<ServerThread>,
    clients: Vec<ClientThread>,
    storage: Storage,
    overlap: f64,
    batches: bool,
    length: Length,
    warm_up: Time,
    warm_operations: u64,
    trains: u64,
    answered: u64,
    held_ns: u64,
    completed: u64,
    start: Option<Marks>,
    latencies: Vec<u32>,
    mix: (u64, f64),
    /// When each part of the run ended.
    ends: Vec<Time>,
}

/// Latencies and times of the elements, in nanoseconds.
struct Times {
    distance: f64,
    transmit: [f64; 2],
    interrupt: [f64; 2],
    softirq: [f64; 2],
    client_wake_up: f64,
    server_wake_up: f64,
    client_send: f64,
    server_send: f64,
    delayed_ack: f64,
}

fn ns(us: f64) -> f64 {
    us * 1e3
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Saturates.
fn whole(ns: f64) -> Time {
    ns.max(0.0).round() as Time
}

#[allow(clippy::cast_precision_loss)] // Bytes of an operation, nanoseconds of a run.
fn float(value: u64) -> f64 {
    value as f64
}

fn index(direction: Direction) -> usize {
    direction as usize
}

fn count(parts: &Parts, key: Key) -> usize {
    usize::try_from(parts.count(key)).expect("counts are small")
}

impl World {
    pub(super) fn new(
        parts: &Parts,
        size: u64,
        depth: u16,
        length: Length,
        origin: Instant,
    ) -> Self {
        let link = Link::new(parts);
        let headers = Headers::new(parts, &link);
        let rules = WriteRules::new(parts);
        let us = |key| ns(parts.get(key));
        let mut loads = vec![Load::new(
            parts,
            &headers,
            &rules,
            size,
            parts.is(Choice::Direction, "write"),
        )];
        let each = count(parts, Key::Connections);
        let mut total = each;
        let mut places: Vec<Operation> = Vec::new();
        let fill = |places: &mut Vec<Operation>, load, first, depth: usize| {
            for connection in first..first + each {
                places.extend(std::iter::repeat_n(
                    Operation {
                        load,
                        connection,
                        ..Operation::default()
                    },
                    depth,
                ));
            }
        };
        fill(&mut places, 0, 0, usize::from(depth));
        let mix_size = as_bytes(parts.get(Key::MixSize));
        if mix_size > 0 {
            let is_write = parts.is(Choice::MixDirection, "write");
            loads.push(Load::new(parts, &headers, &rules, mix_size, is_write));
            let first = if parts.is(Choice::QueueMaps, "yes") {
                each
            } else {
                0
            };
            total = first + each;
            fill(&mut places, 1, first, count(parts, Key::MixDepth));
        }
        let config = transmit(parts);
        let segment = as_bytes(link.segment);
        let train = as_bytes(TRAIN);
        let buffer = as_bytes(parts.get(Key::ServerSendBuffer));
        let window = match as_bytes(parts.get(Key::Window)) {
            0 => buffer,
            window => window.min(buffer),
        };
        let streams = |nodelay| {
            let stream = || {
                let mut stream = Stream::new(segment, train, window);
                stream.nodelay = nodelay;
                stream
            };
            (0..total).map(|_| stream()).collect::<Vec<_>>()
        };
        let connection = || Connection {
            inbox: VecDeque::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            policy: PolicyState::new(&config),
            sent: 0,
            waits: None,
            wait_count: 0,
            written: VecDeque::new(),
            is_listed: false,
        };
        let connections: Vec<Connection> = (0..total).map(|_| connection()).collect();
        let nodelay = connections[0].policy.nodelay();
        let server_cores = count(parts, Key::ServerCores).min(total);
        let client_cores = count(parts, Key::ClientCores).min(total);
        let wire = || Wire::new(total, whole(ns(link.burst_us)));
        let kernels = |count| (0..count).map(|_| Kernel::default()).collect::<Vec<_>>();
        let under_way = places.len() as u64;
        Self {
            random: Random::named(length.seed, "simulation"),
            origin,
            events: Events::default(),
            now: 0,
            // A byte by itself has the headers of a packet, one more byte has none.
            byte_ns: ns(link.apart_us(2.0) - link.apart_us(1.0)),
            packet_ns: ns(2.0 * link.apart_us(1.0) - link.apart_us(2.0)),
            variation: parts.get(Key::Variation) * 3.0_f64.sqrt(),
            times: Times {
                distance: us(Key::OneWayLatency),
                transmit: [
                    us(Key::ClientTransmitLatency),
                    us(Key::ServerTransmitLatency),
                ],
                interrupt: [
                    us(Key::ServerInterruptLatency),
                    us(Key::ClientInterruptLatency),
                ],
                softirq: [us(Key::ServerSoftIrq), us(Key::ClientSoftIrq)],
                client_wake_up: us(Key::ClientWakeUp),
                server_wake_up: us(Key::ServerWakeUp),
                client_send: us(Key::ClientCpuPerSend),
                server_send: us(Key::ServerCpuPerSend) * clock_scale(parts),
                delayed_ack: us(Key::DelayedAck),
            },
            rules,
            header: as_bytes(headers.r2t).max(1),
            loads,
            operations: places,
            connections,
            requests: streams(parts.is(Choice::ClientNagle, "off")),
            responses: streams(nodelay),
            wires: [wire(), wire()],
            kernels: [kernels(server_cores), kernels(client_cores)],
            servers: (0..server_cores).map(|_| ServerThread::default()).collect(),
            clients: (0..client_cores).map(|_| ClientThread::default()).collect(),
            storage: Storage {
                parallel: count(parts, Key::StorageParallel),
                free: count(parts, Key::StorageParallel),
                ..Storage::default()
            },
            overlap: parts.get(Key::StorageOverlap),
            batches: parts.is(Choice::ClientSend, "batch"),
            length,
            warm_up: if config.policy == TransmitPolicy::Auto {
                WARM_UP_AUTO
            } else {
                WARM_UP
            },
            warm_operations: 4 * under_way,
            trains: 0,
            answered: 0,
            held_ns: 0,
            completed: 0,
            start: None,
            latencies: Vec::new(),
            mix: (0, 0.0),
            ends: Vec::new(),
        }
    }

    pub(super) fn run(mut self) -> SimulatedLoad {
        for place in 0..self.operations.len() {
            let connection = self.operations[place].connection;
            self.begin(place);
            self.push(Direction::Request, connection);
        }
        while let Some((time, event)) = self.events.next() {
            self.now = time;
            self.handle(event);
            let enough = self.latencies.len() as u64 >= self.length.operations;
            let spent = self.events.count > EVENTS_MAX && self.latencies.len() >= OPERATIONS_MIN;
            if enough || spent {
                break;
            }
        }
        self.outcome()
    }

    fn handle(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::ClientRuns(thread) => self.client_step(thread),
            SimulationEvent::ClientDone(thread) => self.client_done(thread),
            SimulationEvent::ServerRuns(thread) => self.server_step(thread),
            SimulationEvent::ServerDone(thread) => self.server_done(thread),
            SimulationEvent::ServerSent(thread) => {
                if let Some(connection) = self.servers[thread].sending.take() {
                    self.push(Direction::Response, connection);
                }
                self.server_step(thread);
            }
            SimulationEvent::WireDone(direction) => self.wire_done(direction),
            SimulationEvent::Arrived(direction) => self.arrived(direction),
            SimulationEvent::Received(direction, processor) => self.received(direction, processor),
            SimulationEvent::DelayedAck(direction, connection, number) => {
                if self.stream(direction, connection).delayed == number {
                    self.acknowledge_alone(direction, connection);
                }
            }
            SimulationEvent::WaitedForPeer(connection, number) => {
                if self.connections[connection].waits == Some(number) {
                    self.connections[connection].waits = None;
                    let switch = self.connections[connection].policy.waited();
                    self.apply(connection, switch);
                }
            }
            SimulationEvent::StorageMoved(place) => self.access(place),
            SimulationEvent::StorageDone(place) => {
                let connection = self.operations[place].connection;
                let parcel = Parcel {
                    message: Message::Response,
                    operation: place,
                };
                self.connections[connection].inbox.push_back(parcel);
                self.list(connection);
            }
            SimulationEvent::StorageFree => {
                self.storage.free += 1;
                self.start_storage();
            }
        }
    }

    /// A time that varies.
    fn varied(&mut self, ns: f64) -> Time {
        if ns <= 0.0 {
            return 0;
        }
        whole(ns * (1.0 + self.variation * (2.0 * self.random.uniform() - 1.0)))
    }

    fn stream(&mut self, direction: Direction, connection: usize) -> &mut Stream {
        match direction {
            Direction::Request => &mut self.requests[connection],
            Direction::Response => &mut self.responses[connection],
        }
    }

    // Sockets and wires.

    /// Sends what may leave.
    fn push(&mut self, direction: Direction, connection: usize) {
        self.emit(direction, connection, false);
    }

    fn emit(&mut self, direction: Direction, connection: usize, flush: bool) {
        while let Some(mut train) = self.stream(direction, connection).take(connection, flush) {
            if direction == Direction::Response {
                self.trains += 1;
                let written = &mut self.connections[connection].written;
                while written.front().is_some_and(|(end, _)| *end <= train.end) {
                    let (_, time) = written.pop_front().expect("it was looked at");
                    self.held_ns += self.now - time;
                    self.answered += 1;
                }
            }
            let back = self.stream(direction.reverse(), connection);
            back.told = back.arrived;
            back.delayed += 1;
            train.acknowledges = back.arrived;
            self.transmit(direction, train);
        }
    }

    fn acknowledge_alone(&mut self, direction: Direction, connection: usize) {
        let stream = self.stream(direction, connection);
        if stream.told == stream.arrived {
            return;
        }
        stream.told = stream.arrived;
        stream.delayed += 1;
        let train = Train {
            connection,
            bytes: 0,
            packets: 1,
            end: 0,
            acknowledges: stream.arrived,
        };
        self.transmit(direction.reverse(), train);
    }

    fn transmit(&mut self, direction: Direction, train: Train) {
        self.wires[index(direction)].push(train);
        if self.wires[index(direction)].now.is_none() {
            let latency = self.varied(self.times.transmit[index(direction)]);
            self.next_train(direction, latency);
        }
    }

    fn next_train(&mut self, direction: Direction, latency: Time) {
        let wire = &mut self.wires[index(direction)];
        wire.now = wire.next();
        if let Some(train) = wire.now {
            let time =
                whole(float(train.bytes) * self.byte_ns + float(train.packets) * self.packet_ns);
            let passed = wire.pass(self.now + latency, time);
            self.events.at(passed, SimulationEvent::WireDone(direction));
        }
    }

    fn wire_done(&mut self, direction: Direction) {
        let wire = &mut self.wires[index(direction)];
        let train = wire.now.take().expect("a train was on the wire");
        wire.away.push_back(train);
        let time = self.now + whole(self.times.distance);
        self.events.at(time, SimulationEvent::Arrived(direction));
        self.next_train(direction, 0);
    }

    fn processor(&self, direction: Direction, connection: usize) -> usize {
        connection % self.kernels[index(direction)].len()
    }

    fn arrived(&mut self, direction: Direction) {
        let train = self.wires[index(direction)].away.pop_front();
        let train = train.expect("a train was on its way");
        let processor = self.processor(direction, train.connection);
        let kernel = &mut self.kernels[index(direction)][processor];
        kernel.ring.push_back(train);
        if !kernel.is_awake {
            kernel.is_awake = true;
            let latency = self.varied(self.times.interrupt[index(direction)]);
            self.receive_next(direction, processor, latency);
        }
    }

    fn receive_next(&mut self, direction: Direction, processor: usize, latency: Time) {
        let kernel = &self.kernels[index(direction)][processor];
        let Some(train) = kernel.ring.front() else {
            return;
        };
        let packets = float(train.packets);
        let time = self.varied(self.times.softirq[index(direction)] * packets);
        self.kernels[index(direction)][processor].busy_ns += time;
        self.events.at(
            self.now + latency + time,
            SimulationEvent::Received(direction, processor),
        );
    }

    /// The kernel has dealt with a train.
    fn received(&mut self, direction: Direction, processor: usize) {
        let train = self.kernels[index(direction)][processor].ring.pop_front();
        let train = train.expect("there was a train");
        let connection = train.connection;
        if train.bytes > 0 {
            let at_once = self.stream(direction, connection).arrive(train.end);
            if at_once {
                self.acknowledge_alone(direction, connection);
            } else {
                let number = self.stream(direction, connection).delayed;
                let time = self.now + whole(self.times.delayed_ack);
                self.events.at(
                    time,
                    SimulationEvent::DelayedAck(direction, connection, number),
                );
            }
            while let Some(parcel) = self.stream(direction, connection).receive() {
                match direction {
                    Direction::Request => {
                        self.connections[connection].inbox.push_back(parcel);
                        self.list(connection);
                    }
                    Direction::Response => self.tell_client(connection, parcel),
                }
            }
        }
        let back = direction.reverse();
        self.stream(back, connection)
            .acknowledge(train.acknowledges);
        self.push(back, connection);
        let kernel = &mut self.kernels[index(direction)][processor];
        kernel.is_awake = !kernel.ring.is_empty();
        if kernel.is_awake {
            self.receive_next(direction, processor, 0);
        }
    }

    // The client.

    fn tell_client(&mut self, connection: usize, parcel: Parcel) {
        let thread = connection % self.clients.len();
        self.clients[thread].items.push_back((connection, parcel));
        if self.clients[thread].state == State::Asleep {
            self.clients[thread].state = State::Awake;
            let latency = self.varied(self.times.client_wake_up);
            self.events
                .at(self.now + latency, SimulationEvent::ClientRuns(thread));
        }
    }

    fn client_step(&mut self, thread: usize) {
        let Some((connection, parcel)) = self.clients[thread].items.pop_front() else {
            self.clients[thread].state = State::Asleep;
            return;
        };
        let load = &self.loads[self.operations[parcel.operation].load];
        let mut time = match parcel.message {
            Message::Response => load.client_ns,
            _ => 0.0,
        };
        let ends_batch = self.clients[thread].items.is_empty();
        if !self.batches || ends_batch {
            time += self.times.client_send;
        }
        let time = self.varied(time);
        self.clients[thread].busy_ns += time;
        self.clients[thread].now = Some((connection, parcel));
        self.events
            .at(self.now + time, SimulationEvent::ClientDone(thread));
    }

    fn client_done(&mut self, thread: usize) {
        let (connection, parcel) = self.clients[thread].now.take().expect("it had a message");
        match parcel.message {
            Message::R2t => self.send_burst(parcel.operation),
            _ => {
                self.complete(parcel.operation);
                self.begin(parcel.operation);
            }
        }
        if !self.batches {
            self.push(Direction::Request, connection);
        } else {
            if !self.clients[thread].unsent.contains(&connection) {
                self.clients[thread].unsent.push(connection);
            }
            if self.clients[thread].items.is_empty() {
                for connection in std::mem::take(&mut self.clients[thread].unsent) {
                    self.push(Direction::Request, connection);
                }
            }
        }
        self.client_step(thread);
    }

    /// Writes a command to the socket.
    fn begin(&mut self, place: usize) {
        let now = self.now;
        let operation = &mut self.operations[place];
        let connection = operation.connection;
        (
            operation.began,
            operation.asked,
            operation.arrived,
            operation.sent,
        ) = (now, 0, 0, 0);
        let load = &self.loads[operation.load];
        let (command, unsolicited, is_write) = (load.command, load.unsolicited, load.is_write);
        let parcel = |message| Parcel {
            message,
            operation: place,
        };
        self.requests[connection].write(command, parcel(Message::Command));
        if is_write {
            if self.rules.early {
                // The header leaves first, or its R2T would come no sooner.
                self.push(Direction::Request, connection);
            }
            self.requests[connection].write(unsolicited, parcel(Message::Unsolicited));
        }
    }

    fn send_burst(&mut self, place: usize) {
        let operation = &mut self.operations[place];
        let bytes = self.loads[operation.load].bursts[operation.sent];
        operation.sent += 1;
        let parcel = Parcel {
            message: Message::Burst,
            operation: place,
        };
        self.requests[operation.connection].write(bytes, parcel);
    }

    fn complete(&mut self, place: usize) {
        let operation = self.operations[place];
        let took = self.now - operation.began;
        if operation.load == 0 {
            self.completed += 1;
        }
        if self.start.is_none() {
            if self.now >= self.warm_up && self.completed >= self.warm_operations {
                self.start = Some(self.marks());
            }
            return;
        }
        if operation.load > 0 {
            self.mix.0 += 1;
            self.mix.1 += float(took);
            return;
        }
        self.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
        let part = self.length.operations / PARTS as u64;
        if (self.latencies.len() as u64).is_multiple_of(part.max(1)) {
            self.ends.push(self.now);
        }
    }

    // The server.

    /// A connection has something to do.
    fn list(&mut self, connection: usize) {
        let thread = connection % self.servers.len();
        if !self.connections[connection].is_listed {
            self.connections[connection].is_listed = true;
            self.servers[thread].ready.push_back(connection);
        }
        if self.servers[thread].state == State::Asleep {
            self.servers[thread].state = State::Awake;
            let latency = self.varied(self.times.server_wake_up);
            self.events
                .at(self.now + latency, SimulationEvent::ServerRuns(thread));
        }
    }

    /// The thread does the next thing.
    fn server_step(&mut self, thread: usize) {
        loop {
            match &mut self.servers[thread].turn {
                Some((connection, messages)) => {
                    let connection = *connection;
                    if let Some(parcel) = messages.pop_front() {
                        return self.deal_with(thread, parcel);
                    }
                    if !self.connections[connection].pending.is_empty() {
                        return self.send(thread, connection);
                    }
                    self.servers[thread].turn = None;
                    self.end_turn(thread, connection);
                }
                None => {
                    let Some(connection) = self.servers[thread].ready.pop_front() else {
                        return self.fall_asleep(thread);
                    };
                    self.connections[connection].is_listed = false;
                    let messages = std::mem::take(&mut self.connections[connection].inbox);
                    self.servers[thread].turn = Some((connection, messages));
                }
            }
        }
    }

    fn deal_with(&mut self, thread: usize, parcel: Parcel) {
        let load = &self.loads[self.operations[parcel.operation].load];
        let is_whole = match parcel.message {
            Message::Command => !load.is_write,
            // The last data.
            Message::Unsolicited => load.bursts.is_empty(),
            Message::Burst => self.operations[parcel.operation].arrived + 1 == load.bursts.len(),
            Message::R2t | Message::Response => false,
        };
        let time = if is_whole { load.server_ns } else { 0.0 };
        let debt = std::mem::take(&mut self.servers[thread].debt);
        let time = self.varied(time + debt);
        self.servers[thread].busy_ns += time;
        self.servers[thread].now = Some(parcel);
        self.events
            .at(self.now + time, SimulationEvent::ServerDone(thread));
    }

    fn server_done(&mut self, thread: usize) {
        let parcel = self.servers[thread].now.take().expect("it had a message");
        let place = parcel.operation;
        let connection = self.operations[place].connection;
        let (is_write, bursts) = {
            let load = &self.loads[self.operations[place].load];
            (load.is_write, load.bursts.len())
        };
        match parcel.message {
            Message::Command => {
                let switch = self.connections[connection].policy.request_read();
                self.apply(connection, switch);
                if !is_write {
                    self.execute(place);
                } else if self.rules.early {
                    self.ask(place);
                }
            }
            Message::Unsolicited if bursts == 0 => self.execute(place),
            Message::Unsolicited => self.ask(place),
            Message::Burst => {
                self.operations[place].arrived += 1;
                if self.operations[place].arrived == bursts {
                    self.execute(place);
                } else {
                    self.ask(place);
                }
            }
            Message::R2t | Message::Response => self.respond(place, Message::Response),
        }
        if self.leaves_early(connection) {
            return self.send(thread, connection);
        }
        self.server_step(thread);
    }

    /// Asks for as many bursts as may be outstanding.
    fn ask(&mut self, place: usize) {
        let bursts = self.loads[self.operations[place].load].bursts.len();
        loop {
            let operation = &mut self.operations[place];
            let outstanding = operation.asked - operation.arrived;
            if operation.asked == bursts || outstanding >= self.rules.outstanding {
                return;
            }
            operation.asked += 1;
            self.respond(place, Message::R2t);
        }
    }

    fn execute(&mut self, place: usize) {
        let load = &self.loads[self.operations[place].load];
        let (access, moves) = (load.storage_ns, load.storage_moves_ns);
        if moves > 0.0 {
            let time = self.varied(moves);
            self.storage.moving_ns += time;
            self.storage.moves_until = self.storage.moves_until.max(self.now) + time;
            let moved = self.storage.moves_until;
            self.events.at(moved, SimulationEvent::StorageMoved(place));
        } else if access > 0.0 {
            self.access(place);
        } else {
            self.respond(place, Message::Response);
        }
    }

    fn access(&mut self, place: usize) {
        if self.loads[self.operations[place].load].storage_ns <= 0.0 {
            return self
                .events
                .at(self.now, SimulationEvent::StorageDone(place));
        }
        self.storage.queue.push_back(place);
        self.start_storage();
    }

    fn start_storage(&mut self) {
        while self.storage.free > 0 {
            let Some(place) = self.storage.queue.pop_front() else {
                return;
            };
            self.storage.free -= 1;
            let time = self.loads[self.operations[place].load].storage_ns;
            let time = self.varied(time);
            self.storage.busy_ns += time;
            let visible = whole(float(time) * (1.0 - self.overlap));
            self.events
                .at(self.now + visible, SimulationEvent::StorageDone(place));
            self.events
                .at(self.now + time, SimulationEvent::StorageFree);
        }
    }

    fn respond(&mut self, place: usize, message: Message) {
        let operation = self.operations[place];
        let bytes = match message {
            Message::Response => self.loads[operation.load].response,
            _ => self.header,
        };
        let parcel = Parcel {
            message,
            operation: place,
        };
        let connection = &mut self.connections[operation.connection];
        connection.pending.push((bytes, parcel));
        connection.pending_bytes += bytes;
    }

    fn leaves_early(&mut self, connection: usize) -> bool {
        let connection = &mut self.connections[connection];
        let ready = usize::try_from(connection.pending_bytes).unwrap_or(usize::MAX);
        ready > 0
            && ready >= connection.policy.early_limit()
            && connection.policy.leaves_early(ready)
    }

    /// Hands all responses that are ready to the socket.
    fn send(&mut self, thread: usize, number: usize) {
        let connection = &mut self.connections[number];
        // The connection has another turn at once, which adds to what is sent now.
        let more = !connection.inbox.is_empty()
            && connection.policy.may_hold()
            && !connection.policy.holds();
        let stream = &mut self.responses[number];
        for (bytes, parcel) in connection.pending.drain(..) {
            stream.write(bytes, parcel);
            connection.sent += bytes;
            connection.written.push_back((connection.sent, self.now));
        }
        connection.pending_bytes = 0;
        connection.policy.sent(more);
        stream.corked = more;
        let trains = float(stream.ready());
        let time = self.varied(self.times.server_send * trains);
        self.servers[thread].busy_ns += time;
        self.servers[thread].sending = Some(number);
        self.events
            .at(self.now + time, SimulationEvent::ServerSent(thread));
    }

    fn instant(&self) -> Instant {
        self.origin + Duration::from_nanos(self.now)
    }

    fn end_turn(&mut self, thread: usize, number: usize) {
        let now = self.instant();
        let alone = self.servers[thread]
            .ready
            .iter()
            .all(|ready| *ready == number);
        let connection = &mut self.connections[number];
        let another = !connection.inbox.is_empty();
        let policy = &mut connection.policy;
        if policy.holds() && policy.stops_holding(another) && policy.nodelay() {
            self.apply(number, Switch::NoDelay);
        }
        let connection = &mut self.connections[number];
        let waiting = WaitingState::default();
        let switch = connection
            .policy
            .turn_ended(now, connection.sent, alone, waiting);
        connection.waits = None;
        if let Some(until) = connection.policy.waits_until(now) {
            connection.wait_count += 1;
            connection.waits = Some(connection.wait_count);
            let wait = until.saturating_duration_since(now);
            let time = self.now + u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
            let event = SimulationEvent::WaitedForPeer(number, connection.wait_count);
            self.events.at(time, event);
        }
        self.apply(number, switch);
    }

    fn fall_asleep(&mut self, thread: usize) {
        for number in (thread..self.connections.len()).step_by(self.servers.len()) {
            if self.connections[number].policy.awaits_idle() {
                let switch = self.connections[number].policy.idle();
                self.apply(number, switch);
            }
        }
        self.servers[thread].state = State::Asleep;
    }

    /// Sets TCP_NODELAY as the policy says.
    fn apply(&mut self, number: usize, switch: Switch) {
        for nodelay in switch.settings() {
            self.responses[number].nodelay = nodelay;
            if nodelay {
                self.responses[number].corked = false;
                let before = self.trains;
                self.emit(Direction::Response, number, true);
                let thread = number % self.servers.len();
                self.servers[thread].debt += self.times.server_send * float(self.trains - before);
            }
        }
    }

    // Figures.

    fn marks(&self) -> Marks {
        let sum = |times: &mut dyn Iterator<Item = Time>| times.sum::<Time>();
        Marks {
            time: self.now,
            busy: [
                sum(&mut self.clients.iter().map(|it| it.busy_ns)),
                self.wires[0].busy_ns,
                sum(&mut self.kernels[0].iter().map(|it| it.busy_ns)),
                sum(&mut self.servers.iter().map(|it| it.busy_ns)),
                self.storage.busy_ns,
                self.wires[1].busy_ns,
                sum(&mut self.kernels[1].iter().map(|it| it.busy_ns)),
                self.storage.moving_ns,
            ],
            trains: self.trains,
            responses: self.answered,
            held_ns: self.held_ns,
        }
    }

    #[allow(clippy::cast_precision_loss)] // Operations of a run.
    fn outcome(mut self) -> SimulatedLoad {
        let end = self.marks();
        let start = self.start.clone().unwrap_or_default();
        let elapsed = float((end.time - start.time).max(1));
        let measured = self.latencies.len() as f64;
        let iops = measured / elapsed * 1e9;
        let sum: f64 = self.latencies.iter().map(|ns| f64::from(*ns)).sum();
        self.latencies.sort_unstable();
        let quantile = |share: usize| {
            let place = self.latencies.len() * share / 100;
            let value = self
                .latencies
                .get(place.min(self.latencies.len().saturating_sub(1)));
            f64::from(value.copied().unwrap_or(0)) / 1e3
        };
        let elements = [
            (Element::ClientProcessor, self.clients.len()),
            (Element::RequestWire, 1),
            (Element::ServerKernel, self.kernels[0].len()),
            (Element::ServerProcessor, self.servers.len()),
            (Element::Storage, self.storage.parallel),
            (Element::ResponseWire, 1),
            (Element::ClientKernel, self.kernels[1].len()),
            (Element::Storage, 1),
        ];
        let busy = elements.iter().zip(end.busy.iter().zip(&start.busy));
        let busy = busy.map(|((element, servers), (end, start))| Busy {
            element: *element,
            share: float(end - start) / elapsed / *servers as f64,
        });
        let answered = float((end.responses - start.responses).max(1));
        let has_mix = self.loads.len() > 1;
        SimulatedLoad {
            iops,
            iops_spread: spread(&self.ends, start.time, self.length.operations),
            latency_us: sum / measured.max(1.0) / 1e3,
            latency_p50_us: quantile(50),
            latency_p99_us: quantile(99),
            mix_iops: has_mix.then(|| float(self.mix.0) / elapsed * 1e9),
            mix_latency_us: has_mix.then(|| self.mix.1 / float(self.mix.0.max(1)) / 1e3),
            responses_per_train: answered / float((end.trains - start.trains).max(1)),
            held_us: float(end.held_ns - start.held_ns) / answered / 1e3,
            busy: busy.filter(|busy| busy.share > 0.0).collect(),
            events: self.events.count,
        }
    }
}

/// Half the interval of the rate, by the rates of the parts of a run.
#[allow(clippy::cast_precision_loss)] // Parts of a run.
fn spread(ends: &[Time], start: Time, operations: u64) -> f64 {
    let part = float((operations / PARTS as u64).max(1));
    let mut rates = Vec::new();
    let mut from = start;
    for end in ends {
        rates.push(part / float((end - from).max(1)) * 1e9);
        from = *end;
    }
    let count = rates.len() as f64;
    if count < 2.0 {
        return 0.0;
    }
    let mean = rates.iter().sum::<f64>() / count;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    // Student's distribution with nine degrees of freedom.
    2.26 * (squares / (count - 1.0) / count).sqrt()
}

/// The transmit policy of a set-up, as a server is configured.
fn transmit(parts: &Parts) -> TransmitConfig {
    let requests = |key| u32::try_from(parts.count(key)).unwrap_or(u32::MAX);
    TransmitConfig {
        policy: match parts.word(Choice::Transmit) {
            "nagle" => TransmitPolicy::Nagle,
            "adaptive-nagle" => TransmitPolicy::AdaptiveNagle,
            "auto" => TransmitPolicy::Auto,
            _ => TransmitPolicy::NoDelay,
        },
        nagle_threshold: NagleThreshold::Requests(requests(Key::NagleThreshold)),
        nagle_margin: requests(Key::NagleMargin),
        nagle_cycles: if parts.is(Choice::NagleCycles, "corrected") {
            NagleCycles::Corrected
        } else {
            NagleCycles::Paper
        },
        send: if parts.is(Choice::Send, "turn") {
            SendUnit::Turn
        } else {
            SendUnit::Response
        },
    }
}

impl Load {
    fn new(
        parts: &Parts,
        headers: &Headers,
        rules: &WriteRules,
        size: u64,
        is_write: bool,
    ) -> Self {
        let bytes = float(size);
        let per_byte = |key| {
            let digest = if parts.is(Choice::DataDigest, "crc32c") {
                parts.get(Key::DigestCost)
            } else {
                0.0
            };
            (parts.get(key) + digest) * bytes
        };
        let segments = |bytes: f64| (bytes / rules.segment).ceil();
        let (mut unsolicited, mut bursts) = (0.0, Vec::new());
        if is_write {
            let data = rules.unsolicited(bytes);
            unsolicited = data + headers.data_out * (segments(data) - 1.0).max(0.0);
            bursts = rules
                .bursts(bytes)
                .map(|burst| burst + headers.data_out * segments(burst))
                .collect();
        }
        let response = if is_write {
            headers.response
        } else {
            let status = if parts.is(Choice::Protocol, "iscsi") {
                0.0
            } else {
                headers.response
            };
            bytes + headers.data_in * segments(bytes).max(1.0) + status
        };
        Self {
            is_write,
            // Where headers do not count, a byte stands for them.
            command: as_bytes(headers.command).max(1),
            unsolicited: as_bytes(unsolicited),
            bursts: bursts.into_iter().map(as_bytes).collect(),
            response: as_bytes(response).max(1),
            storage_ns: ns(storage_us(parts, bytes)),
            storage_moves_ns: ns(storage_moves_us(parts, bytes)),
            server_ns: ns(parts.get(Key::ServerCpuPerOp) + per_byte(Key::ServerCpuPerByte))
                * clock_scale(parts),
            client_ns: ns(parts.get(Key::ClientCpuPerOp) + per_byte(Key::ClientCpuPerByte)),
        }
    }
}
