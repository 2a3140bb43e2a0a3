//! Transmit policies: when a response leaves, and in whose company.
//!
//! | policy | a send holds | a partial segment waits |
//! |---|---|---|
//! | `auto` | all responses of a turn; where that is faster, its first half and then the rest, or one (`early`) | for the next turn, if that comes without a pause; where that is faster, for the peer, 100 µs at most |
//! | `nodelay` | one response | never |
//! | `nagle` | one response | while sent data is unacknowledged (RFC 896) |
//! | `adaptive-nagle` | one response | the same, while the connection keeps its thread busy |
//!
//! The latter three leave it to the kernel to put responses together, as a server does that handles requests one by
//! one; `send = "turn"` has them, too, collect what a turn gives. Adaptive Nagle was specified by the
//! authors of a user-mode iSCSI target.
//!
//! Here is what is decided, without a socket: the driver (a shard of the server, or a simulation) tells of requests that were
//! read, of responses that were sent, and of the connection going idle, and sets TCP_NODELAY as it is told.
//!
//! **Idle** is a connection in whose receive buffer nothing was left, and which a look at all sockets
//! found no new data for. One thread serves many connections, so that is for each to say, not for the thread: what the
//! founding paper calls the session thread going to sleep.

#![forbid(unsafe_code)]

mod adaptive_nagle;
mod config;
mod early;
mod switch;
mod waiting;

use std::time::{Duration, Instant};

use adaptive_nagle::AdaptiveNagle;
use early::Early;

pub use config::{
    NagleCycles, NagleThreshold, SendUnit, TransmitConfig, TransmitPolicy, UnknownWord,
};
pub use early::Way;
pub use switch::Switch;
pub use waiting::WaitingState;

/// So long a response waits at most under `auto` for the peer to take in what was sent before. Peers that are worth
/// waiting for answer sooner; a kernel that keeps its acknowledgements back takes 40 ms.
const WAIT: Duration = Duration::from_micros(100);

/// What one connection has done under its policy since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct TransmitStatistics {
    pub policy: TransmitPolicy,
    /// Whether the kernel holds partial segments back now (Nagle's algorithm).
    pub nagle: bool,
    /// Requests of the current cycle. This and what follows is counted under `adaptive-nagle` alone.
    pub busy: u64,
    /// Requests of the longest cycle.
    pub max_busy: u64,
    /// Requests of a cycle in the average.
    pub avg_busy: f64,
    /// How often it went idle.
    pub idles: u64,
    /// Requests read since the connection was made.
    pub reads: u64,
    /// Those whose responses went out with Nagle enabled.
    pub reads_in_nagle: u64,
    /// The same in percent.
    pub nagle_percent: f64,
    /// Whether the first responses of a turn leave before its end. This and what follows is told under `auto` alone.
    pub early: bool,
    /// How the responses of a turn leave.
    pub way: Way,
    /// How often it was tried which way is fastest.
    pub trials: u64,
}

/// Counts since the policy is in use.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    max_busy: u64,
    /// Requests of all cycles that ended.
    ended: u64,
    idles: u64,
    reads: u64,
    reads_in_nagle: u64,
}

/// The policy of one connection. See the module documentation.
#[derive(Debug)]
pub struct PolicyState {
    config: TransmitConfig,
    sends_each_response: bool,
    adaptive: AdaptiveNagle,
    early: Early,
    counts: Counts,
    /// Something was sent that the kernel may hold back, and the connection has not been idle since.
    sent: bool,
    /// A partial segment waits for the connection's next turn.
    held: bool,
    /// It has waited for one.
    waited: bool,
}

impl PolicyState {
    pub fn new(config: &TransmitConfig) -> Self {
        Self {
            config: *config,
            sends_each_response: config.sends_each_response(),
            adaptive: AdaptiveNagle::new(config),
            early: Early::new(),
            counts: Counts::default(),
            sent: false,
            held: false,
            waited: false,
        }
    }

    /// What TCP_NODELAY is set to now.
    pub fn nodelay(&self) -> bool {
        match self.config.policy {
            TransmitPolicy::Auto => !self.early.is_paced(),
            TransmitPolicy::NoDelay => true,
            TransmitPolicy::Nagle => false,
            TransmitPolicy::AdaptiveNagle => !self.adaptive.is_nagle(),
        }
    }

    /// Takes other settings. Adaptive Nagle goes on where it is, with other numbers; it starts afresh when it was
    /// not in use.
    pub fn configure(&mut self, config: &TransmitConfig) -> Switch {
        if *config == self.config {
            return Switch::Keep;
        }
        let nodelay = self.nodelay();
        let both = [self.config.policy, config.policy];
        if both == [TransmitPolicy::AdaptiveNagle; 2] {
            self.adaptive.configure(config);
        } else {
            self.adaptive = AdaptiveNagle::new(config);
            self.early = Early::new();
            self.counts = Counts::default();
        }
        self.config = *config;
        self.sends_each_response = config.sends_each_response();
        match (nodelay, self.nodelay()) {
            (false, true) => Switch::NoDelay,
            (true, false) => Switch::Nagle,
            _ => Switch::Keep,
        }
    }

    /// With so many bytes ready it is to be asked whether they leave before the turn ends.
    #[inline]
    pub fn early_limit(&self) -> usize {
        match self.config.policy {
            TransmitPolicy::Auto => self.early.limit(),
            _ if self.sends_each_response => 1,
            _ => usize::MAX,
        }
    }

    /// So many bytes are ready: whether they leave before the turn ends.
    #[inline]
    pub fn leaves_early(&mut self, ready: usize) -> bool {
        self.config.policy != TransmitPolicy::Auto || self.early.leaves(ready)
    }

    /// A turn ended, at which `sent` bytes have been sent in all; `alone` is whether it was this connection's only, and
    /// `waiting` how its shard waits.
    #[inline]
    pub fn turn_ended(
        &mut self,
        now: Instant,
        sent: u64,
        alone: bool,
        waiting: WaitingState,
    ) -> Switch {
        if self.config.policy != TransmitPolicy::Auto {
            return Switch::Keep;
        }
        let was_paced = self.early.is_paced();
        self.early.turn_ended(now, sent, alone, waiting);
        match (was_paced, self.early.is_paced()) {
            (false, true) => Switch::Nagle,
            (true, false) => Switch::NoDelay,
            _ => Switch::Keep,
        }
    }

    /// Until when what was sent by now may wait for the peer.
    #[inline]
    pub fn waits_until(&self, now: Instant) -> Option<Instant> {
        let waits =
            self.sent && self.config.policy == TransmitPolicy::Auto && self.early.is_paced();
        waits.then(|| now + WAIT)
    }

    /// What was sent has waited for long enough.
    pub fn waited(&mut self) -> Switch {
        self.sent = false;
        if self.nodelay() {
            Switch::Keep
        } else {
            Switch::Flush
        }
    }

    /// A complete request was read.
    #[inline]
    pub fn request_read(&mut self) -> Switch {
        if self.config.policy != TransmitPolicy::AdaptiveNagle {
            return Switch::Keep;
        }
        let switch = self.adaptive.request_read();
        self.counts.reads += 1;
        self.counts.reads_in_nagle += u64::from(self.adaptive.is_nagle());
        switch
    }

    /// Whether a partial segment may wait, given that this connection has another turn without a pause.
    #[inline]
    pub fn may_hold(&self) -> bool {
        self.config.policy == TransmitPolicy::Auto
    }

    /// Something was sent; a partial segment of it may be `held` back for more.
    #[inline]
    pub fn sent(&mut self, held: bool) {
        self.sent = true;
        self.held = held;
        self.waited = false;
    }

    /// A turn of the connection is over. Returns whether a partial segment that was held back has to leave: there is
    /// not `another` turn at once, or this was the one it waited for, which brought nothing to send.
    #[inline]
    pub fn stops_holding(&mut self, another: bool) -> bool {
        let leaves = self.held && (self.waited || !another);
        self.waited = self.held;
        self.held &= !leaves;
        leaves
    }

    /// Whether a partial segment was to wait for what comes next, and it must leave if nothing comes.
    #[inline]
    pub fn holds(&self) -> bool {
        self.held
    }

    /// Whether it has to be told when the connection goes idle.
    #[inline]
    pub fn awaits_idle(&self) -> bool {
        self.config.policy == TransmitPolicy::AdaptiveNagle
            && (self.adaptive.is_busy() || self.sent && self.adaptive.is_nagle())
    }

    /// The connection goes idle.
    pub fn idle(&mut self) -> Switch {
        if self.config.policy != TransmitPolicy::AdaptiveNagle {
            return Switch::Keep;
        }
        self.sent = false;
        if !self.adaptive.is_busy() {
            return self.adaptive.flush();
        }
        let busy = self.adaptive.busy();
        self.counts.max_busy = self.counts.max_busy.max(busy);
        self.counts.ended += busy;
        self.counts.idles += 1;
        self.adaptive.idle()
    }

    /// What was counted since the policy is in use.
    #[allow(clippy::cast_precision_loss)] // An average need not be exact.
    pub fn statistics(&self) -> TransmitStatistics {
        let counts = &self.counts;
        TransmitStatistics {
            policy: self.config.policy,
            nagle: !self.nodelay(),
            busy: self.adaptive.busy(),
            max_busy: counts.max_busy.max(self.adaptive.busy()),
            avg_busy: counts.ended as f64 / counts.idles.max(1) as f64,
            idles: counts.idles,
            reads: counts.reads,
            reads_in_nagle: counts.reads_in_nagle,
            nagle_percent: counts.reads_in_nagle as f64 * 100.0 / counts.reads.max(1) as f64,
            early: self.early.chosen != Way::Together,
            way: self.early.chosen,
            trials: self.early.trials,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(policy: TransmitPolicy) -> TransmitConfig {
        TransmitConfig {
            policy,
            nagle_threshold: NagleThreshold::Requests(4),
            nagle_margin: 2,
            ..TransmitConfig::default()
        }
    }

    #[test]
    fn only_auto_collects_the_responses_of_a_turn_by_itself() {
        for policy in [
            TransmitPolicy::NoDelay,
            TransmitPolicy::Nagle,
            TransmitPolicy::AdaptiveNagle,
        ] {
            let mut config = config(policy);
            let mut state = PolicyState::new(&config);
            assert_eq!(state.early_limit(), 1);
            assert!(state.leaves_early(100));
            config.send = SendUnit::Turn;
            assert_eq!(PolicyState::new(&config).early_limit(), usize::MAX);
        }
        let mut auto = PolicyState::new(&config(TransmitPolicy::Auto));
        assert!(auto.early_limit() > 1);
        assert!(!auto.leaves_early(100_000));
        assert!(auto.may_hold());
    }

    #[test]
    fn a_changed_policy_changes_tcp_nodelay_at_once() {
        let mut state = PolicyState::new(&config(TransmitPolicy::Auto));
        let nagle = config(TransmitPolicy::Nagle);
        assert_eq!(state.configure(&nagle), Switch::Nagle);
        assert_eq!(state.configure(&nagle), Switch::Keep);
        let adaptive = config(TransmitPolicy::AdaptiveNagle);
        assert_eq!(state.configure(&adaptive), Switch::NoDelay);
        let nodelay = config(TransmitPolicy::NoDelay);
        assert_eq!(state.configure(&nodelay), Switch::Keep);
    }

    #[test]
    fn leaving_adaptive_nagle_while_it_holds_back_sends_what_it_held() {
        let mut state = PolicyState::new(&config(TransmitPolicy::AdaptiveNagle));
        while state.nodelay() {
            let _ = state.request_read();
        }
        assert_eq!(
            state.configure(&config(TransmitPolicy::Auto)),
            Switch::NoDelay
        );
    }

    #[test]
    fn other_numbers_leave_adaptive_nagle_where_it_is() {
        let mut state = PolicyState::new(&config(TransmitPolicy::AdaptiveNagle));
        while state.nodelay() {
            let _ = state.request_read();
        }
        let mut others = config(TransmitPolicy::AdaptiveNagle);
        others.nagle_margin = 1000;
        assert_eq!(state.configure(&others), Switch::Keep);
        assert!(!state.nodelay());
        assert_eq!(state.idle(), Switch::NoDelay);
    }

    #[test]
    fn a_response_that_storage_kept_is_flushed_before_the_thread_sleeps() {
        let mut state = PolicyState::new(&config(TransmitPolicy::AdaptiveNagle));
        for _ in 0..20 {
            let _ = state.request_read();
        }
        assert!(state.awaits_idle());
        assert_eq!(state.idle(), Switch::Flush);
        assert!(!state.awaits_idle());
        state.sent(false);
        assert!(state.awaits_idle());
        assert_eq!(state.idle(), Switch::Flush);
        // No request was read, so that was no cycle.
        assert_eq!(state.statistics().idles, 1);
    }

    #[test]
    fn reading_statistics_changes_none_of_them() {
        let mut state = PolicyState::new(&config(TransmitPolicy::AdaptiveNagle));
        for requests in [2, 14] {
            for _ in 0..requests {
                let _ = state.request_read();
            }
            let _ = state.idle();
        }
        let _ = state.request_read();
        let seen = state.statistics();
        assert_eq!(
            seen,
            TransmitStatistics {
                policy: TransmitPolicy::AdaptiveNagle,
                nagle: true,
                busy: 1,
                max_busy: 14,
                nagle_percent: 600.0 / 17.0,
                avg_busy: 8.0,
                idles: 2,
                reads: 17,
                // Half of threshold and margin is 3, the sum of two cycles 12 at the tenth request.
                reads_in_nagle: 6,
                early: false,
                way: Way::Together,
                trials: 0,
            }
        );
        assert_eq!(state.statistics(), seen);
    }

    #[test]
    fn the_other_policies_await_no_idle() {
        for policy in [
            TransmitPolicy::Auto,
            TransmitPolicy::NoDelay,
            TransmitPolicy::Nagle,
        ] {
            let mut state = PolicyState::new(&config(policy));
            assert_eq!(state.request_read(), Switch::Keep);
            state.sent(false);
            assert!(!state.awaits_idle());
            assert_eq!(state.idle(), Switch::Keep);
        }
    }
}
