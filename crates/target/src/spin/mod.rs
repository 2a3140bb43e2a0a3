//! Waiting for something to happen: polling for a moment where that pays, asleep else.
//!
//! This runs the shards of the product alone. Those of a simulation are told when to take a turn.

use std::io;
use std::time::{Duration, Instant};

use longshore_reactor::Event;

use crate::config::ReactorConfig;
use crate::core::Core;

mod policy;

use policy::{PREEMPTED_NS, Policy};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: Policy,
    started: Instant,
    /// When the shard last had something to do after a wait.
    woke: Instant,
    /// Operations until then, and bytes received and sent.
    operations: u64,
    bytes: u64,
}

/// So many bytes are as much work as a request: next to moving them a wake-up costs little.
const REQUEST_BYTES: u64 = 16 << 10;

impl Waiting {
    pub(crate) fn new(config: &ReactorConfig, now: Instant) -> Self {
        Self {
            policy: Policy::new(config.spin, config.cpu_budget_percent),
            started: now,
            woke: now,
            operations: 0,
            bytes: 0,
        }
    }

    /// Waits for events until `deadline` after a turn that began at `now`. Returns the time then. `round_trip` asks the
    /// connection that sent last.
    pub(crate) fn wait(
        &mut self,
        core: &mut Core,
        now: Instant,
        deadline: Option<Instant>,
        round_trip: impl FnOnce() -> Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<Instant> {
        if deadline.is_some_and(|deadline| deadline <= now) {
            // There is more to do.
            core.platform.wait(Some(Duration::ZERO), events)?;
            return Ok(Instant::now());
        }
        let idle = Instant::now();
        core.counters.working_ns += nanoseconds(self.woke, idle);
        let mut from = idle;
        if let Some(window) = self.window(core, idle, round_trip) {
            let end = idle + window;
            let end = deadline.map_or(end, |deadline| deadline.min(end));
            let until = self.poll(core, idle, end, events)?;
            if !events.is_empty() {
                return Ok(self.ended(nanoseconds(idle, until), until));
            }
            from = until;
        }
        let timeout = deadline.map(|at| at.saturating_duration_since(from));
        core.platform.wait(timeout, events)?;
        let woke = Instant::now();
        let asleep_ns = nanoseconds(from, woke);
        core.counters.asleep_ns += asleep_ns;
        let gap_ns = asleep_ns
            + if from == idle {
                0
            } else {
                nanoseconds(idle, from)
            };
        Ok(self.ended(gap_ns, woke))
    }

    /// For how long to poll, if that pays.
    fn window(
        &mut self,
        core: &mut Core,
        idle: Instant,
        round_trip: impl FnOnce() -> Option<Duration>,
    ) -> Option<Duration> {
        // Whoever carries requests out may need this very core: helper threads inherit it.
        if self.policy.is_off() || !core.requests.is_empty() {
            return None;
        }
        let operations = core.counters.operations();
        let requests = operations - std::mem::replace(&mut self.operations, operations);
        let bytes = core.counters.received_bytes + core.counters.sent_bytes;
        let moved = bytes - std::mem::replace(&mut self.bytes, bytes);
        let requests = requests.max(moved / REQUEST_BYTES);
        let ask = || {
            let time = round_trip()?;
            core.counters.option_calls += 1;
            Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let window_ns = self.policy.window_ns(self.at(idle), requests, ask);
        (window_ns > 0).then(|| Duration::from_nanos(window_ns))
    }

    fn ended(&mut self, gap_ns: u64, now: Instant) -> Instant {
        self.woke = now;
        self.policy.gap_ended(gap_ns);
        now
    }

    /// Polls until something comes or time is over. Returns when that was.
    fn poll(
        &mut self,
        core: &mut Core,
        from: Instant,
        end: Instant,
        events: &mut Vec<Event>,
    ) -> io::Result<Instant> {
        let mut last = from;
        let mut lost_ns = 0;
        loop {
            core.platform.wait(Some(Duration::ZERO), events)?;
            let now = Instant::now();
            let looked_ns = nanoseconds(last, now);
            if looked_ns > PREEMPTED_NS {
                lost_ns += looked_ns;
            }
            last = now;
            if !events.is_empty() || now >= end {
                break;
            }
            std::hint::spin_loop();
        }
        let spent_ns = nanoseconds(from, last);
        let hit = !events.is_empty();
        let counters = &mut core.counters;
        counters.spinning_ns += spent_ns;
        counters.spin_hits += u64::from(hit);
        counters.spin_misses += u64::from(!hit);
        let contended = self.policy.polled(self.at(last), spent_ns, lost_ns, hit);
        counters.spin_contended += u64::from(contended);
        Ok(last)
    }

    fn at(&self, time: Instant) -> u64 {
        nanoseconds(self.started, time)
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    // In 64 bits, which hold some centuries: this is worked out several times a turn.
    let duration = to.saturating_duration_since(from);
    duration.as_secs().wrapping_mul(1_000_000_000) + u64::from(duration.subsec_nanos())
}
