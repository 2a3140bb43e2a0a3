//! Waiting for events: a moment of polling where that pays, sleep otherwise.
//!
//! This runs the shards of the product alone. Those of a simulation are told when to take a turn.

use std::io;
use std::time::{Duration, Instant};

use longshore_reactor::EngineEvent;

use crate::config::ReactorConfig;
use crate::counters::Counters;
use crate::platform::Platform;

mod allowance;
mod policy;
mod trials;
mod wake_up;

use allowance::PREEMPTED_NS;
pub use longshore_transmit::WaitingState;
use policy::Policy;
use trials::Totals;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: Policy,
    started: Instant,
    /// When the shard last had something to do after a wait, in nanoseconds since it began.
    woke_ns: u64,
}

/// A shard that has nothing to do: what waiting looks at and changes.
pub(crate) struct IdleShard<'a> {
    pub number: usize,
    pub platform: &'a mut dyn Platform,
    pub counters: &'a mut Counters,
    /// How it waits, for those who want to know.
    pub waiting: &'a mut WaitingState,
    /// Storage works for it.
    pub has_requests: bool,
}

/// A look at the clock. The difference of two instants costs more than the rest of a wait, so it is worked out once,
/// for the wait and for the turn behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub at: Instant,
    /// Since the shard began.
    pub ns: u64,
}

impl Moment {
    /// That time, for a shard that began then.
    pub(crate) fn since(started: Instant, at: Instant) -> Self {
        let ns = nanoseconds(started, at);
        Self { at, ns }
    }
}

/// An operation is as much work as so many bytes.
const OPERATION_BYTES: u64 = 4 << 10;

/// How often a shard sleeps at its start to see what a wake-up costs.
const FIRST_SAMPLES: usize = 7;
/// For how long it sleeps to see that: a core that has just fallen idle wakes up sooner.
const SAMPLE: Duration = Duration::from_micros(60);

impl Waiting {
    /// For a shard that began at `started`, and has waited until now.
    pub(crate) fn new(config: &ReactorConfig, started: Instant, now: Moment) -> Self {
        Self {
            policy: Policy::new(config.spin, config.cpu_budget_percent),
            started,
            woke_ns: now.ns,
        }
    }

    /// Finds out what a wake-up costs, where that will decide. Ends when something happens.
    pub(crate) fn measure_wake_up(
        &mut self,
        shard: &mut IdleShard<'_>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        if self.policy.is_off() || !self.policy.is_auto() {
            return Ok(());
        }
        for _ in 0..FIRST_SAMPLES {
            self.take_sample(shard, events)?;
            if !events.is_empty() {
                break;
            }
        }
        *shard.waiting = self.policy.state();
        Ok(())
    }

    /// Waits for events until `deadline` after a turn that began at `now`. Returns the time then.
    pub(crate) fn wait(
        &mut self,
        shard: &mut IdleShard<'_>,
        now: Moment,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        if deadline.is_some_and(|deadline| deadline <= now.at) {
            // There is more to do.
            shard.platform.wait(Some(Duration::ZERO), events)?;
            return Ok(self.look());
        }
        let idle = self.look();
        shard.counters.working_ns += idle.ns.saturating_sub(self.woke_ns);
        let woke = match self.window(shard, idle) {
            Some(window) => self.poll_and_sleep(shard, idle, window, deadline, events)?,
            None => self.sleep(shard, idle, deadline, events)?,
        };
        self.woke_ns = woke.ns;
        if !self.policy.is_off() {
            let gap_ns = woke.ns.saturating_sub(idle.ns);
            self.policy.gap_ended(woke.ns, || totals(shard), gap_ns);
        }
        Ok(woke)
    }

    /// Polls for so long before it sleeps. Returns when something came or `deadline` was over.
    fn poll_and_sleep(
        &mut self,
        shard: &mut IdleShard<'_>,
        idle: Moment,
        window: Duration,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let end = idle.at + window;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let polled = self.poll(shard, idle, end, events)?;
        if events.is_empty() {
            self.sleep(shard, polled, deadline, events)
        } else {
            Ok(polled)
        }
    }

    fn look(&self) -> Moment {
        Moment::since(self.started, Instant::now())
    }

    /// For how long to poll, if that pays.
    fn window(&mut self, shard: &mut IdleShard<'_>, idle: Moment) -> Option<Duration> {
        // Whoever carries requests out may need this very core: helper threads inherit it.
        if self.policy.is_off() {
            return None;
        }
        if shard.has_requests {
            if shard.waiting.is_trying {
                self.policy.not_waited(idle.ns, totals(shard));
                *shard.waiting = self.policy.state();
            }
            return None;
        }
        let window_ns = self.policy.window_ns(idle.ns, totals(shard));
        let before = std::mem::replace(shard.waiting, self.policy.state());
        if before.trials != shard.waiting.trials {
            self.tell(shard);
        }
        (window_ns > 0).then(|| Duration::from_nanos(window_ns))
    }

    /// Tells of a trial that has ended.
    #[cold]
    fn tell(&self, shard: &IdleShard<'_>) {
        let WaitingState {
            wake_up_ns,
            window_ns,
            trials,
            changes,
            ..
        } = *shard.waiting;
        tracing::debug!(
            shard = shard.number,
            wake_up_ns,
            window_ns,
            trials,
            changes,
            rates = ?self.policy.last_trial(),
            "tried how to wait"
        );
    }

    /// Sleeps until something comes or `deadline` is over. Returns when that was.
    fn sleep(
        &mut self,
        shard: &mut IdleShard<'_>,
        from: Moment,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let mut since = from.at;
        let is_sample = !self.policy.is_off() && self.policy.is_sample();
        if is_sample && deadline.is_none_or(|deadline| deadline > since + SAMPLE) {
            since = self.take_sample(shard, events)?;
        }
        if events.is_empty() {
            let timeout = deadline.map(|at| at.saturating_duration_since(since));
            shard.platform.wait(timeout, events)?;
        }
        let woke = self.look();
        shard.counters.asleep_ns += woke.ns.saturating_sub(from.ns);
        Ok(woke)
    }

    /// Sleeps for a moment. If nothing has come by its end, that shows what a wake-up costs. Returns the time then.
    fn take_sample(
        &mut self,
        shard: &mut IdleShard<'_>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Instant> {
        let end = Instant::now() + SAMPLE;
        shard.platform.wait(Some(SAMPLE), events)?;
        let woke = Instant::now();
        if events.is_empty() && woke > end {
            self.policy.overslept(nanoseconds(end, woke));
        }
        Ok(woke)
    }

    /// Polls until something comes or time is over. Returns when that was.
    fn poll(
        &mut self,
        shard: &mut IdleShard<'_>,
        from: Moment,
        end: Instant,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let mut last = from;
        let mut lost_ns = 0;
        loop {
            shard.platform.wait(Some(Duration::ZERO), events)?;
            let now = self.look();
            let looked_ns = now.ns.saturating_sub(last.ns);
            if looked_ns > PREEMPTED_NS {
                lost_ns += looked_ns;
            }
            last = now;
            if !events.is_empty() || now.at >= end {
                break;
            }
            std::hint::spin_loop();
        }
        let spent_ns = last.ns.saturating_sub(from.ns);
        let hit = !events.is_empty();
        let counters = &mut shard.counters;
        counters.spinning_ns += spent_ns;
        counters.spin_hits += u64::from(hit);
        counters.spin_misses += u64::from(!hit);
        let contended = self
            .policy
            .polled(last.ns, totals(shard), spent_ns, lost_ns, hit);
        shard.counters.spin_contended += u64::from(contended);
        Ok(last)
    }
}

/// What the shard has done so far.
fn totals(shard: &IdleShard<'_>) -> Totals {
    let counters = &shard.counters;
    let bytes = counters.received_bytes + counters.sent_bytes;
    Totals {
        work: counters.operations() * OPERATION_BYTES + bytes,
        busy_ns: counters.working_ns + counters.spinning_ns,
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    // In 64 bits, which hold some centuries: this is worked out several times a turn.
    let duration = to.saturating_duration_since(from);
    duration.as_secs().wrapping_mul(1_000_000_000) + u64::from(duration.subsec_nanos())
}
