//! What the shard says of itself.

use crate::observe::shard_report::ShardReport;
use crate::observe::{Sampling, ThreadTimes};

use super::state::Shard;

impl Shard {
    /// What it has done. Its own thread asks: the processor time is the calling thread's.
    pub(super) fn report(&mut self) -> ShardReport {
        let connections = self.connections.iter_mut();
        let connections = connections.map(|c| c.statistics()).collect();
        let core = &self.core;
        let elapsed = self.now.saturating_duration_since(self.started);
        let engine = core.platform.counters();
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let times = core.platform.processor_time().unwrap_or_default();
        let polling_ns = core.counters.spinning_ns.min(times.ran_ns);
        let awake_ns = times.ran_ns + times.waited_ns;
        ShardReport {
            shard: core.shard,
            counters: core.counters,
            engine,
            times: ThreadTimes {
                elapsed_ns,
                working_ns: times.ran_ns - polling_ns,
                polling_ns,
                waiting_for_core_ns: times.waited_ns,
                asleep_ns: elapsed_ns.saturating_sub(awake_ns),
                user_ns: times.user_ns,
                system_ns: times.system_ns,
            },
            waiting: core.waiting,
            connections,
            kept_bytes: core.memory.pool.kept_bytes(),
            receive_buffer_bytes: core.receive_buffer.len(),
            requests: core.requests.len(),
            stages: core.stages.histograms(),
            sampling: Sampling {
                one_in: core.stages.every(),
                beyond: core.stages.beyond(),
            },
        }
    }
}
