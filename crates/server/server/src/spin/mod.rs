//! Waiting for something to happen: polling for a moment where that pays, asleep else.
//!
//! This runs the shards of the product alone. Those of a simulation are told when to take a turn.

use std::io;
use std::time::{Duration, Instant};

use longshore_reactor::EngineEvent;

use crate::config::ReactorConfig;
use crate::core::Core;

mod allowance;
mod policy;
mod trials;
mod wake_up;

use allowance::PREEMPTED_NS;
use policy::Policy;
use trials::Totals;

/// How a shard waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WaitingState {
    /// What a wake-up costs, from readiness to running, in nanoseconds. 0: not measured.
    pub wake_up_ns: u64,
    /// For how long it polls before it sleeps, in nanoseconds.
    pub window_ns: u64,
    /// How often it was tried which way to wait is best.
    pub trials: u64,
    /// It is being tried.
    pub is_trying: bool,
    /// How often the outcome was another than before.
    pub changes: u32,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Waiting {
    policy: Policy,
    started: Instant,
    /// When the shard last had something to do after a wait, in nanoseconds since it began.
    woke_ns: u64,
}

/// A look at the clock. The difference of two instants costs more than the rest of a wait, so it is worked out once.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Instant,
    /// Since the shard began.
    ns: u64,
}

/// An operation is as much work as so many bytes.
const OPERATION_BYTES: u64 = 4 << 10;

/// How often a shard sleeps at its start to see what a wake-up costs.
const FIRST_SAMPLES: usize = 7;
/// For how long it sleeps to see that: a core that has just fallen idle wakes up sooner.
const SAMPLE: Duration = Duration::from_micros(60);

impl Waiting {
    pub(crate) fn new(config: &ReactorConfig, now: Instant) -> Self {
        Self {
            policy: Policy::new(config.spin, config.cpu_budget_percent),
            started: now,
            woke_ns: 0,
        }
    }

    /// Finds out what a wake-up costs, where that will decide. Ends when something happens.
    pub(crate) fn measure_wake_up(
        &mut self,
        core: &mut Core,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<()> {
        if self.policy.is_off() || !self.policy.is_auto() {
            return Ok(());
        }
        for _ in 0..FIRST_SAMPLES {
            self.take_sample(core, events)?;
            if !events.is_empty() {
                break;
            }
        }
        core.waiting = self.policy.state();
        Ok(())
    }

    /// Waits for events until `deadline` after a turn that began at `now`. Returns the time then.
    pub(crate) fn wait(
        &mut self,
        core: &mut Core,
        now: Instant,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Instant> {
        if deadline.is_some_and(|deadline| deadline <= now) {
            // There is more to do.
            core.platform.wait(Some(Duration::ZERO), events)?;
            return Ok(Instant::now());
        }
        let idle = self.look();
        core.counters.working_ns += idle.ns.saturating_sub(self.woke_ns);
        let woke = match self.window(core, idle) {
            Some(window) => self.poll_and_sleep(core, idle, window, deadline, events)?,
            None => self.sleep(core, idle, deadline, events)?,
        };
        self.woke_ns = woke.ns;
        if !self.policy.is_off() {
            let gap_ns = woke.ns.saturating_sub(idle.ns);
            self.policy.gap_ended(woke.ns, || totals(core), gap_ns);
        }
        Ok(woke.at)
    }

    /// Polls for so long before it sleeps. Returns when something came or `deadline` was over.
    fn poll_and_sleep(
        &mut self,
        core: &mut Core,
        idle: Moment,
        window: Duration,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let end = idle.at + window;
        let end = deadline.map_or(end, |deadline| deadline.min(end));
        let polled = self.poll(core, idle, end, events)?;
        if events.is_empty() {
            self.sleep(core, polled, deadline, events)
        } else {
            Ok(polled)
        }
    }

    fn look(&self) -> Moment {
        let at = Instant::now();
        Moment {
            at,
            ns: nanoseconds(self.started, at),
        }
    }

    /// For how long to poll, if that pays.
    fn window(&mut self, core: &mut Core, idle: Moment) -> Option<Duration> {
        // Whoever carries requests out may need this very core: helper threads inherit it.
        if self.policy.is_off() {
            return None;
        }
        if !core.requests.is_empty() {
            if core.waiting.is_trying {
                self.policy.not_waited(idle.ns, totals(core));
                core.waiting = self.policy.state();
            }
            return None;
        }
        let window_ns = self.policy.window_ns(idle.ns, totals(core));
        let before = std::mem::replace(&mut core.waiting, self.policy.state());
        if before.trials != core.waiting.trials {
            self.tell(core);
        }
        (window_ns > 0).then(|| Duration::from_nanos(window_ns))
    }

    /// Tells of a trial that has ended.
    #[cold]
    fn tell(&self, core: &Core) {
        let WaitingState {
            wake_up_ns,
            window_ns,
            trials,
            changes,
            ..
        } = core.waiting;
        tracing::debug!(
            shard = core.shard,
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
        core: &mut Core,
        from: Moment,
        deadline: Option<Instant>,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let mut since = from.at;
        let is_sample = !self.policy.is_off() && self.policy.is_sample();
        if is_sample && deadline.is_none_or(|deadline| deadline > since + SAMPLE) {
            since = self.take_sample(core, events)?;
        }
        if events.is_empty() {
            let timeout = deadline.map(|at| at.saturating_duration_since(since));
            core.platform.wait(timeout, events)?;
        }
        let woke = self.look();
        core.counters.asleep_ns += woke.ns.saturating_sub(from.ns);
        Ok(woke)
    }

    /// Sleeps for a moment. If nothing has come by its end, that shows what a wake-up costs. Returns the time then.
    fn take_sample(
        &mut self,
        core: &mut Core,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Instant> {
        let end = Instant::now() + SAMPLE;
        core.platform.wait(Some(SAMPLE), events)?;
        let woke = Instant::now();
        if events.is_empty() && woke > end {
            self.policy.overslept(nanoseconds(end, woke));
        }
        Ok(woke)
    }

    /// Polls until something comes or time is over. Returns when that was.
    fn poll(
        &mut self,
        core: &mut Core,
        from: Moment,
        end: Instant,
        events: &mut Vec<EngineEvent>,
    ) -> io::Result<Moment> {
        let mut last = from;
        let mut lost_ns = 0;
        loop {
            core.platform.wait(Some(Duration::ZERO), events)?;
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
        let counters = &mut core.counters;
        counters.spinning_ns += spent_ns;
        counters.spin_hits += u64::from(hit);
        counters.spin_misses += u64::from(!hit);
        let contended = self
            .policy
            .polled(last.ns, totals(core), spent_ns, lost_ns, hit);
        core.counters.spin_contended += u64::from(contended);
        Ok(last)
    }
}

/// What the shard has done so far.
fn totals(core: &Core) -> Totals {
    let counters = &core.counters;
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
