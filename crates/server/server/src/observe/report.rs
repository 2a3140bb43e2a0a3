//! The report: plain values, with names and units as `docs/operating/statistics.md` has them.

use longshore_volume::RateLimits;
use std::net::SocketAddr;

use longshore_reactor::EngineCounters;
use longshore_reactor::socket::TcpInfo;
use longshore_transmit::TransmitStatistics;
use serde::Serialize;

use crate::counters::stages::{Direction, Histograms, INTERVALS, Kind, TOTAL};
use crate::counters::{ClientStatistics, Counters, Durations, Octaves, ProtocolKind};
use crate::spin::WaitingState;

/// Version of the report's form. A field that goes or changes its meaning raises it; a new one does not.
pub const VERSION: u32 = 3;

/// What a server has done since it started.
#[derive(Clone, Debug, Serialize)]
pub struct Statistics {
    /// Of the report's form.
    pub version: u32,
    /// Milliseconds since the server started.
    pub uptime_ms: u64,
    /// Sum of the counters of all shards.
    pub total: Counters,
    /// Means of all shards together.
    pub derived: Derived,
    pub shards: Vec<ShardStatistics>,
    /// Connections that are open.
    pub connections: Vec<ConnectionStatistics>,
    pub volumes: Vec<VolumeCounts>,
    /// Logins, ends of sessions, limits.
    pub clients: ClientStatistics,
    /// Where the time of operations went, by volume, protocol, direction and size.
    pub stages: Vec<StageStatistics>,
    /// How these were chosen.
    pub sampling: Sampling,
    pub memory: MemoryStatistics,
}

/// What one shard has done.
#[derive(Clone, Debug, Serialize)]
pub struct ShardStatistics {
    pub shard: usize,
    /// It answered in time, or told at its end. Otherwise the counters are what it published last,
    /// and the rest is missing.
    pub answered: bool,
    #[serde(flatten)]
    pub counters: Counters,
    /// Means computed from the counters.
    pub derived: Derived,
    /// What its engine has done.
    pub engine: EngineStatistics,
    /// Where its thread's time went.
    pub times: ThreadTimes,
    /// How it waits for work.
    pub waiting: WaitingState,
}

/// Means over the whole time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Derived {
    /// Operations that one turn took in.
    pub operations_per_turn: f64,
    /// Operations that came with one receive.
    pub operations_per_receive: f64,
    /// Responses that left with one send.
    pub operations_per_send: f64,
    /// System calls for an operation: receives, sends, options of sockets, calls of the engine and of helper threads,
    /// attempts at files and the taking of pages.
    pub system_calls_per_operation: f64,
    /// Bytes copied by the server itself for an operation.
    pub copied_bytes_per_operation: f64,
}

/// What an engine has done. See [`EngineCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineStatistics {
    /// Calls of its wait.
    pub waits: u64,
    /// Waits that could sleep.
    pub sleeps: u64,
    /// System calls: waits, submissions, registrations.
    pub system_calls: u64,
    /// Wake-ups by other threads.
    pub woken: u64,
    /// Sockets that the engine reported ready.
    pub socket_events: u64,
    /// Operations on helper threads.
    pub helper_operations: u64,
    /// Those of them on threads of other cores.
    pub handed_over: u64,
    /// Those of these that came back, because they had to wait for the medium.
    pub handed_back: u64,
    /// Times the completion queue overflowed.
    pub completion_overflows: u64,
    /// Reads and writes of direct volumes by the ring.
    pub direct_operations: u64,
    /// Those of them whose memory was registered with it.
    pub registered_operations: u64,
}

impl From<EngineCounters> for EngineStatistics {
    fn from(counters: EngineCounters) -> Self {
        Self {
            waits: counters.turns,
            sleeps: counters.sleeps,
            system_calls: counters.system_calls,
            woken: counters.woken,
            socket_events: counters.socket_events,
            helper_operations: counters.helper_operations,
            handed_over: counters.handed_over,
            handed_back: counters.handed_back,
            completion_overflows: counters.completion_overflows,
            direct_operations: counters.direct_operations,
            registered_operations: counters.registered_operations,
        }
    }
}

impl EngineStatistics {
    /// The sum of both engines, counter by counter.
    fn plus(self, other: &Self) -> Self {
        Self {
            waits: self.waits + other.waits,
            sleeps: self.sleeps + other.sleeps,
            system_calls: self.system_calls + other.system_calls,
            woken: self.woken + other.woken,
            socket_events: self.socket_events + other.socket_events,
            helper_operations: self.helper_operations + other.helper_operations,
            handed_over: self.handed_over + other.handed_over,
            handed_back: self.handed_back + other.handed_back,
            completion_overflows: self.completion_overflows + other.completion_overflows,
            direct_operations: self.direct_operations + other.direct_operations,
            registered_operations: self.registered_operations + other.registered_operations,
        }
    }
}

/// Where the time of a shard's thread went, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadTimes {
    /// Since the shard started.
    pub elapsed_ns: u64,
    /// It ran and had something to do.
    pub working_ns: u64,
    /// It ran, looking for something to do.
    pub polling_ns: u64,
    /// It could have run, but something else had the core.
    pub waiting_for_core_ns: u64,
    /// Nanoseconds asleep in the kernel.
    pub asleep_ns: u64,
    /// It ran, in this program: a part of what it worked and polled.
    pub user_ns: u64,
    /// It ran, in the kernel: the rest of that.
    pub system_ns: u64,
}

/// What a connection that is open has done.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionStatistics {
    /// The shard it lives on.
    pub shard: u32,
    /// Slot of the connection in its shard.
    pub slot: u32,
    /// Who is at the other end.
    pub peer: SocketAddr,
    pub protocol: ProtocolKind,
    /// The login, or Connect, is over.
    pub established: bool,
    /// How often it went from one shard to another.
    pub moves: u64,
    #[serde(flatten)]
    pub counts: ConnectionCounts,
    /// Commands that are in progress.
    pub tasks: usize,
    /// Bytes that wait to be sent.
    pub pending_bytes: usize,
    /// Bytes of memory of its transmit queue.
    pub transmit_bytes: usize,
    /// Bytes of memory of its table of tasks.
    pub task_bytes: usize,
    /// Bytes of memory its commands read into.
    pub reading_bytes: usize,
    /// Bytes of memory its commands hold for write data.
    pub writing_bytes: usize,
    /// What its transmit policy did since it is in use.
    pub transmit: TransmitStatistics,
    /// What the kernel knows of it, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpStatistics>,
}

/// What the kernel knows of a connection (TCP_INFO). What an older kernel does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TcpStatistics {
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// The shortest round trip of the last minutes.
    pub min_rtt_us: Option<u32>,
    /// Bytes of payload in a segment that is sent.
    pub snd_mss: u32,
    /// Bytes per second, as last measured.
    pub delivery_rate: Option<u64>,
    /// That rate is the server's: it had nothing more to send.
    pub app_limited: Option<bool>,
    /// Time with something to send.
    pub busy_us: Option<u64>,
    /// The part of it in which the peer's receive window held back.
    pub rwnd_limited_us: Option<u64>,
    /// The part of it in which the send buffer held back.
    pub sndbuf_limited_us: Option<u64>,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
}

impl From<TcpInfo> for TcpStatistics {
    fn from(info: TcpInfo) -> Self {
        Self {
            rtt_us: info.rtt_us,
            min_rtt_us: info.min_rtt_us,
            snd_mss: info.send_segment_bytes,
            delivery_rate: info.delivery_rate,
            app_limited: info.is_app_limited,
            busy_us: info.busy_us,
            rwnd_limited_us: info.receive_window_limited_us,
            sndbuf_limited_us: info.send_buffer_limited_us,
            retransmits: info.retransmits,
            cwnd: info.congestion_window,
        }
    }
}

/// What a connection counts for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectionCounts {
    /// Commands that arrived, those that failed included.
    pub operations: u64,
    /// Receives that brought bytes.
    pub receives: u64,
    pub received_bytes: u64,
    /// Sends that took bytes.
    pub sends: u64,
    pub sent_bytes: u64,
}

/// A target that is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetReport {
    /// Its name in normal form.
    pub name: String,
    /// A number that no other target gets while the server runs.
    pub id: u32,
    /// Portal group tags with the relative identifiers of its ports there.
    pub ports: Vec<(u16, u16)>,
}

/// What was done to a volume by commands of peers.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeCounts {
    pub name: String,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Operations that the medium failed.
    pub errors: u64,
    /// Operations that its limits had wait.
    pub delayed: u64,
    /// For so long together.
    pub delayed_ns: u64,
    pub limits: VolumeLimits,
}

/// What the clients of a volume together may do in a second; `None`: as much as they can.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct VolumeLimits {
    pub iops: Option<u64>,
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
    pub bytes: Option<u64>,
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
}

impl From<RateLimits> for VolumeLimits {
    fn from(limits: RateLimits) -> Self {
        Self {
            iops: limits.iops,
            read_iops: limits.read_iops,
            write_iops: limits.write_iops,
            bytes: limits.bytes,
            read_bytes: limits.read_bytes,
            write_bytes: limits.write_bytes,
        }
    }
}

/// Where the time went of those operations of a kind that were followed.
#[derive(Clone, Debug, Serialize)]
pub struct StageStatistics {
    /// Name of the volume.
    pub volume: String,
    pub protocol: ProtocolKind,
    /// Which way the data went.
    pub direction: Direction,
    /// They moved so many bytes or less, and more than half of that.
    pub bytes_up_to: u64,
    /// How many were followed.
    pub operations: u64,
    /// From the receive that brought the command until it was understood: behind others that came with it.
    pub parse: Durations,
    /// Until it asked for the medium: waiting for write data, for room to answer, for older tasks.
    pub data: Durations,
    /// Until the volume was asked: waiting for the write gate, and for memory.
    pub gate: Durations,
    /// Until the volume had answered.
    pub storage: Durations,
    /// Until the response was in the transmit queue.
    pub answer: Durations,
    /// Until the kernel had the last byte of it.
    pub send: Durations,
    /// From the receive to the send.
    pub total: Durations,
    /// The same intervals in the order of [`Self::by_name`], for metrics.
    #[serde(skip)]
    pub octaves: [Octaves; INTERVALS],
}

/// How operations are chosen that are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sampling {
    /// One in so many; 0: none.
    pub one_in: u32,
    /// Some that were followed and are not in the list, which has no room for more kinds.
    pub beyond: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryStatistics {
    /// What payload may take.
    pub budget_bytes: usize,
    /// What it takes, with what is kept for the next use.
    pub used_bytes: usize,
    /// What is kept for the next use.
    pub kept_bytes: usize,
    /// What transmit queues may take, beyond the budget of payload and the least for each connection.
    pub transmit_budget_bytes: usize,
    /// What transmit queues take.
    pub transmit_bytes: usize,
    /// Bytes of the tables of tasks.
    pub task_bytes: usize,
    /// Receive buffers of shards.
    pub receive_buffer_bytes: usize,
    /// What may be registered with io_uring, part of the payload.
    pub registered_budget_bytes: usize,
    pub registered_bytes: usize,
    /// Connections that are open.
    pub connections: usize,
    /// Storage requests in progress.
    pub requests: usize,
}

impl Derived {
    /// From what was counted.
    #[must_use]
    pub fn of(counters: &Counters, engine: &EngineStatistics) -> Self {
        let operations = counters.operations();
        let socket_calls = counters.receives
            + counters.receives_empty
            + counters.sends
            + counters.sends_blocked
            + counters.option_calls;
        let file_calls = counters.attempt_calls + counters.page_calls;
        let other_calls = file_calls + engine.system_calls + engine.helper_operations;
        let copied = counters.copied_data_out_bytes
            + counters.copied_transmit_bytes
            + counters.bounced_bytes
            + counters.copied_volume_bytes;
        Self {
            operations_per_turn: ratio(operations, counters.turns),
            operations_per_receive: ratio(operations, counters.receives),
            operations_per_send: ratio(operations, counters.sends),
            system_calls_per_operation: ratio(socket_calls + other_calls, operations),
            copied_bytes_per_operation: ratio(copied, operations),
        }
    }
}

/// A mean; 0 where there is nothing to take it of.
#[allow(clippy::cast_precision_loss)] // 53 bits are plenty for a mean.
fn ratio(sum: u64, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        sum as f64 / count as f64
    }
}

impl Statistics {
    /// Fills in the sums and means.
    pub(crate) fn sum_up(&mut self) {
        let mut engine = EngineStatistics::default();
        self.total = Counters::default();
        for shard in &self.shards {
            self.total = self.total.plus(&shard.counters);
            engine = engine.plus(&shard.engine);
        }
        self.derived = Derived::of(&self.total, &engine);
    }
}

impl StageStatistics {
    pub(crate) fn new(volume: String, kind: &Kind, histograms: &Histograms) -> Self {
        let [parse, data, gate, storage, answer, send, total] =
            std::array::from_fn(|index| histograms[index].durations());
        Self {
            volume,
            protocol: kind.protocol,
            direction: kind.direction,
            bytes_up_to: 1 << kind.size_class,
            operations: histograms[TOTAL].count(),
            parse,
            data,
            gate,
            storage,
            answer,
            send,
            total,
            octaves: std::array::from_fn(|index| histograms[index].octaves()),
        }
    }

    /// The times between stages in their order, and the whole.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, &Durations); INTERVALS] {
        [
            ("parse", &self.parse),
            ("data", &self.data),
            ("gate", &self.gate),
            ("storage", &self.storage),
            ("answer", &self.answer),
            ("send", &self.send),
            ("total", &self.total),
        ]
    }

    /// What the list is sorted by.
    pub(crate) fn order(&self) -> (&str, &'static str, Direction, u64) {
        (
            &self.volume,
            self.protocol.name(),
            self.direction,
            self.bytes_up_to,
        )
    }
}
