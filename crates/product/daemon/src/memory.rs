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
//! only those of payload can be answered. So what is left for others is more than they are known to take.

mod control_group;

use std::fs;

use longshore_reactor::{affinity, allocator};
use longshore_volume::BackendName;
use rustix::process::{Resource, getrlimit};

use crate::config::Config;

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
}

/// Decides what the server may take, and says so in one line of the log. `sizes`: of the volumes, in bytes.
#[must_use]
pub fn decide(config: &Config, sizes: &[u64]) -> Memory {
    let cores = config.engine.cores.as_ref().map(|cores| cores.0.len());
    let cores = cores.or_else(|| affinity::allowed_cores().ok().map(|cores| cores.len()));
    let event_loops = u64::try_from(cores.unwrap_or(1)).unwrap_or(u64::MAX);
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
    fn fields_of_proc_are_read_in_bytes() {
        let text = "VmPeak:\t  349096 kB\nVmSize:\t   21528 kB\n";
        assert_eq!(kib_of(text, "VmSize:"), Some(21528 * 1024));
        assert_eq!(kib_of(text, "VmData:"), None);
        assert!(total_memory().is_some_and(|bytes| bytes > MIB));
    }
}
