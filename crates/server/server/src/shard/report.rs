//! The report of a shard about itself.

use crate::observe::shard_report::ShardReport;
use crate::observe::{Sampling, ThreadTimes};

use super::state::Shard;
use longshore_reactor::socket::tcp_info;

impl Shard {
    /// What it has done. Its own thread asks: the processor time is the calling thread's. `tcp`: the kernel is asked
    /// about each connection, with a call for each.
    pub(super) fn report(&mut self, tcp: bool) -> ShardReport {
        let connections = self.connections.iter_mut().map(|connection| {
            let mut statistics = connection.statistics();
            if tcp && let Some(socket) = connection.channel().socket.link.socket() {
                // A connection that is over has none.
                statistics.tcp = tcp_info(socket).ok().map(Into::into);
            }
            statistics
        });
        let connections = connections.collect();
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
