//! How much payload memory there is: the least of the machine, the control group and the process's own limits.
//!
//! ```text
//!  limit ├── in use, or fixed ──┬──────────────── room ────────────────────────────────┤
//!                               ├── payload M: default 2/5, at most 3/5 of the room ──┤
//!                               │   (and 1/4 of M beside it: see docs/operating/memory.md)
//!                               ├── 1/4: connections, 128 KiB each
//! ```
//!
//! Beyond the limit of a control group the kernel kills; beyond RLIMIT_AS and RLIMIT_DATA allocations fail, of which
//! only those of payload can be answered. So what is left for others is more than they are known to take, and a reserve
//! ([`allocator`]) is theirs alone.

mod control_group;

use std::fs;

use longshore_pool::MAP_MEMORY_MIN;
use longshore_reactor::{affinity, allocator, resident};
use longshore_volume::BackendName;
use rustix::process::{Resource, getrlimit};

use crate::config::Config;
use crate::config::size::Size;

const MIB: u64 = 1 << 20;
/// What the process takes beside event loops: code, configuration, threads that wait.
const PROCESS_BYTES: u64 = 16 * MIB;
/// What an event loop takes: receive buffer, ring, stacks, statistics.
const EVENT_LOOP_BYTES: u64 = 6 * MIB;
/// What a connection is taken to need: transmit queue, tables, names.
const CONNECTION_BYTES: u64 = 128 << 10;
/// So many connections are always allowed.
const CONNECTIONS_MIN: u64 = 64;
/// Payload memory where nothing else is said, if there is room.
const PAYLOAD_DEFAULT: u64 = 1 << 30;
/// Least payload memory, as in the configuration.
const PAYLOAD_MIN: u64 = 8 * MIB;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bound {
    Machine,
    ControlGroup(String),
    AddressSpace,
    Data,
}

impl Bound {
    fn name(&self) -> String {
        match self {
            Self::Machine => "machine".to_owned(),
            Self::ControlGroup(file) => format!("control group ({file})"),
            Self::AddressSpace => "RLIMIT_AS".to_owned(),
            Self::Data => "RLIMIT_DATA".to_owned(),
        }
    }
}

/// A limit, and how much of it is spoken for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Limit {
    bound: Bound,
    bytes: u64,
    used_bytes: u64,
}

impl Limit {
    /// The same when volumes of `mem` have so many bytes, and had others before.
    fn with(&self, before: u64, bytes: u64) -> Self {
        let used_bytes = match self.bound {
            Bound::Machine | Bound::ControlGroup(_) => bytes.min(self.bytes / 2),
            Bound::AddressSpace | Bound::Data => {
                self.used_bytes.saturating_add(bytes.saturating_sub(before))
            }
        };
        Self {
            used_bytes,
            ..self.clone()
        }
    }

    fn room(&self, event_loops: u64) -> u64 {
        let fixed = PROCESS_BYTES + event_loops.saturating_mul(EVENT_LOOP_BYTES);
        self.bytes
            .saturating_sub(self.used_bytes.saturating_add(fixed))
    }
}

/// What the server may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Payload memory: `limits.memory`, or less.
    pub payload_bytes: u64,
    pub connections: usize,
}

/// What part of the room the maps of a pool may take, and most of it where nothing else is said. Payload memory and
/// connections leave as much.
const MAPS_PART: u64 = 8;
const MAPS_MAX: u64 = 4 << 30;

/// Memory for the maps of each pool: `limits.pool-maps`, or what there is room for. `sizes`: of the volumes, in bytes.
#[must_use]
pub fn map_bytes(config: &Config, sizes: &[u64]) -> u64 {
    let rooms = limits(bytes_of_memory_volumes(config, sizes)).into_iter();
    let room = rooms.map(|limit| limit.room(event_loops(config))).min();
    let usual = || map_bytes_of(room.unwrap_or(0));
    config.map_bytes.unwrap_or_else(usual)
}

fn map_bytes_of(room: u64) -> u64 {
    (room / MAPS_PART).clamp(MAP_MEMORY_MIN, MAPS_MAX)
}

impl Memory {
    /// Of so much room, where `asked` was asked for.
    fn of(room: u64, asked: Option<u64>) -> Self {
        let payload_bytes = match asked {
            // With what comes on top of it, these are three quarters of the room. Connections have the fourth.
            Some(asked) => asked.min((room / 5 * 3).max(PAYLOAD_MIN)),
            None => PAYLOAD_DEFAULT.min(room / 5 * 2).max(PAYLOAD_MIN),
        };
        let connections = (room / 4 / CONNECTION_BYTES).max(CONNECTIONS_MIN);
        Self {
            payload_bytes,
            connections: usize::try_from(connections).unwrap_or(usize::MAX),
        }
    }
}

/// Makes the most of a bounded address space. To be called before there are threads.
pub fn prepare() {
    if getrlimit(Resource::As).current.is_some() {
        allocator::share_one_arena();
    }
    // Where there is not even so much, the start fails of it and says so.
    let _ = allocator::keep_reserve();
}

/// Gives back what only the start has used. To be called when the server is about to be ready.
pub fn settle() {
    if let Err(error) = resident::give_back() {
        tracing::debug!("pages of the program stay in memory: {error}");
    }
}

/// Decides what the server may take, and says so in one line of the log. `sizes`: of the volumes, in bytes.
#[must_use]
pub fn decide(config: &Config, sizes: &[u64]) -> Memory {
    let event_loops = event_loops(config);
    let asked = config.memory_bytes;
    let limits = limits(bytes_of_memory_volumes(config, sizes));
    let least = limits.iter().min_by_key(|limit| limit.room(event_loops));
    let Some(least) = least else {
        let memory = Memory {
            payload_bytes: asked.unwrap_or(PAYLOAD_DEFAULT),
            connections: usize::MAX,
        };
        tracing::warn!(
            memory = memory.payload_bytes,
            "payload memory; the size of the machine's memory is unknown"
        );
        return memory;
    };
    let memory = Memory::of(least.room(event_loops), asked);
    let (payload, connections) = (memory.payload_bytes, memory.connections);
    let (bound, limit) = (least.bound.name(), least.bytes);
    if asked.is_some_and(|asked| payload < asked) {
        tracing::warn!(
            memory = payload,
            asked,
            bound,
            limit,
            connections,
            "payload memory: less than `limits.memory`, because the limit leaves no room for it"
        );
    } else {
        let source = if asked.is_some() {
            "limits.memory"
        } else {
            "default"
        };
        tracing::info!(
            memory = payload,
            source,
            bound,
            limit,
            connections,
            "payload memory"
        );
    }
    memory
}

fn event_loops(config: &Config) -> u64 {
    let cores = config.engine.cores.as_ref().map(|cores| cores.0.len());
    let cores = cores.or_else(|| affinity::allowed_cores().ok().map(|cores| cores.len()));
    u64::try_from(cores.unwrap_or(1)).unwrap_or(u64::MAX)
}

/// What is left for volumes of `mem` in a server that has decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    limits: Vec<Limit>,
    /// What volumes of `mem` had when the limits were looked at.
    volumes_bytes: u64,
    event_loops: u64,
    memory: Memory,
}

/// What memory bounds in a running server, of which the volumes have these sizes.
#[must_use]
pub fn bounds(config: &Config, sizes: &[u64], memory: Memory) -> Bounds {
    let volumes_bytes = bytes_of_memory_volumes(config, sizes);
    Bounds {
        limits: limits(volumes_bytes),
        volumes_bytes,
        event_loops: event_loops(config),
        memory,
    }
}

impl Bounds {
    /// Those of a control group of so many bytes.
    #[cfg(test)]
    pub fn of_group(bytes: u64) -> Self {
        let limit = Limit {
            bound: Bound::ControlGroup("memory.max".to_owned()),
            bytes,
            used_bytes: 0,
        };
        Self {
            memory: Memory::of(limit.room(1), None),
            limits: vec![limit],
            volumes_bytes: 0,
            event_loops: 1,
        }
    }

    /// Whether volumes of `mem` of so many bytes fit beside what the server may take otherwise, by the rule of the
    /// start.
    ///
    /// # Errors
    /// What they do not fit in.
    pub fn admit(&self, volumes_bytes: u64) -> Result<(), String> {
        let connections = u64::try_from(self.memory.connections).unwrap_or(u64::MAX);
        let payload = self.memory.payload_bytes;
        let needed = (payload / 4).saturating_mul(5);
        let needed = needed.saturating_add(connections.saturating_mul(CONNECTION_BYTES));
        let is_short = |limit: &&Limit| {
            limit
                .with(self.volumes_bytes, volumes_bytes)
                .room(self.event_loops)
                < needed
        };
        let Some(limit) = self.limits.iter().find(is_short) else {
            return Ok(());
        };
        Err(format!(
            "volumes of `mem` would have {} together, and {} of memory by the limit of the {} leave no room for them \
             beside the payload memory of {} and {connections} connections",
            Size(volumes_bytes),
            Size(limit.bytes),
            limit.bound.name(),
            Size(payload)
        ))
    }
}

/// Volumes that are memory may come to take all of theirs. `sizes` are those of the volumes of the configuration.
fn bytes_of_memory_volumes(config: &Config, sizes: &[u64]) -> u64 {
    let volumes = config.volumes.iter().zip(sizes);
    let memory = volumes.filter(|(source, _)| source.spec.backend == BackendName::MEM);
    memory.fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes))
}

fn limits(volumes_bytes: u64) -> Vec<Limit> {
    let resident = |bound, bytes: u64| Limit {
        bound,
        bytes,
        // They may be larger than all there is, and stay nearly empty.
        used_bytes: volumes_bytes.min(bytes / 2),
    };
    let machine = total_memory().map(|bytes| resident(Bound::Machine, bytes));
    let group =
        control_group::least().map(|(file, bytes)| resident(Bound::ControlGroup(file), bytes));
    let own = |bound, resource, field| {
        Some(Limit {
            bound,
            bytes: getrlimit(resource).current?,
            used_bytes: kib_of(&fs::read_to_string("/proc/self/status").ok()?, field)?,
        })
    };
    let address_space = own(Bound::AddressSpace, Resource::As, "VmSize:");
    let data = own(Bound::Data, Resource::Data, "VmData:");
    [machine, group, address_space, data]
        .into_iter()
        .flatten()
        .collect()
}

fn total_memory() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// A field of `/proc` that is given in kB, in bytes.
fn kib_of(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(bytes: u64, used_bytes: u64) -> u64 {
        let limit = Limit {
            bound: Bound::AddressSpace,
            bytes,
            used_bytes,
        };
        limit.room(2)
    }

    #[test]
    fn maps_of_pools_take_an_eighth_of_the_room() {
        assert_eq!(map_bytes_of(0), 4 * MIB);
        assert_eq!(map_bytes_of(1 << 30), 128 * MIB);
        assert_eq!(map_bytes_of(1 << 40), 4 << 30);
    }

    #[test]
    fn there_is_a_gibibyte_where_there_is_room_and_less_where_there_is_not() {
        let default = |bytes| Memory::of(room(bytes, 0), None).payload_bytes;
        assert_eq!(default(16 << 30), 1 << 30);
        assert_eq!(default(300 * MIB) / MIB, 108);
        assert_eq!(default(120 * MIB) / MIB, 36);
        assert_eq!(default(20 * MIB), PAYLOAD_MIN);
        assert_eq!(room(100 * MIB, 200 * MIB), 0);
    }

    #[test]
    fn what_is_asked_for_is_bounded_by_what_there_is() {
        let with = |asked| Memory::of(room(300 * MIB, 0), Some(asked)).payload_bytes;
        assert_eq!(with(64 * MIB), 64 * MIB);
        assert_eq!(with(150 * MIB), 150 * MIB);
        assert_eq!(with(1 << 30) / MIB, 163);
    }

    #[test]
    fn whatever_is_asked_for_all_parts_fit() {
        for bytes in (80..2000).map(|mib| mib * MIB) {
            for asked in [None, Some(PAYLOAD_MIN), Some(u64::MAX)] {
                let room = room(bytes, 0);
                let memory = Memory::of(room, asked);
                let payload = memory.payload_bytes / 4 * 5;
                let connections = memory.connections as u64 * CONNECTION_BYTES;
                assert!(payload + connections <= room, "{bytes}: {memory:?}");
            }
        }
    }

    #[test]
    fn volumes_that_come_later_are_weighed_as_at_start() {
        let limit = |bound, bytes, used_bytes| Limit {
            bound,
            bytes,
            used_bytes,
        };
        let memory = Memory::of(room(300 * MIB, 0), None);
        let bounds = |limit| Bounds {
            limits: vec![limit],
            volumes_bytes: 10 * MIB,
            event_loops: 2,
            memory,
        };
        let group = bounds(limit(
            Bound::ControlGroup("x".to_owned()),
            300 * MIB,
            10 * MIB,
        ));
        assert_eq!(group.admit(60 * MIB), Ok(()));
        let refused = group.admit(100 * MIB).unwrap_err();
        assert!(refused.contains("control group (x)"), "{refused}");
        // Of a large machine, volumes get half at most, however large they are.
        let machine = bounds(limit(Bound::Machine, 16 << 30, 0));
        assert_eq!(machine.admit(1 << 40), Ok(()));
        let space = bounds(limit(Bound::AddressSpace, 300 * MIB, 50 * MIB));
        assert_eq!(space.admit(10 * MIB), Ok(()));
        assert!(space.admit(60 * MIB).is_err());
    }

    #[test]
    fn fields_of_proc_are_read_in_bytes() {
        let text = "VmPeak:\t  349096 kB\nVmSize:\t   21528 kB\n";
        assert_eq!(kib_of(text, "VmSize:"), Some(21528 * 1024));
        assert_eq!(kib_of(text, "VmData:"), None);
        assert!(total_memory().is_some_and(|bytes| bytes > MIB));
    }
}
