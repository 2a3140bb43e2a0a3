//! Whether the first bytes of a turn leave before its end, found out by trying.
//!
//! A turn's responses leave in one send: that costs least. Yet the peer has nothing to do until the turn ends, and if
//! it then sends its next requests all at once, the two take turns instead of working side by side. Whether a send in
//! the middle of the turn makes the connection faster depends on the peer, its processor and the network, which a
//! server cannot know. So it tries: a few milliseconds this way, a few that way, four times each, and keeps what
//! brought more bytes to the peer. The one send a turn wins unless the other is better by [`GAIN`].
//!
//! A trial begins when many turns had enough to send. Connections at a low depth, or with small responses, have none;
//! nor has a connection that shares its turns with others, because these have work for the processor meanwhile. The
//! pauses between trials grow while their outcome is the same.

use std::time::{Duration, Instant};

/// So much leaves early. Less is too little for the peer to be busy with until the rest comes, and at more the rest
/// is too little to be worth another send.
const EARLY_BYTES: usize = 16 << 10;

/// So many turns with enough to send make a trial worth it.
const OCCASIONS: u32 = 64;

/// How long each way is tried at a time.
const WINDOW: Duration = Duration::from_millis(4);

/// A window that took longer had a pause in it, and says nothing.
const WINDOW_MAX: Duration = Duration::from_millis(20);

/// Early, in each window: each way as often first as second, so that a load that grows or fades favours none.
const ORDER: [bool; 8] = [false, true, true, false, false, true, true, false];

/// Early sends have to be better by so much, in percent, to be begun.
const GAIN: f64 = 5.0;

/// Between trials, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(4)];

/// A trial under way.
#[derive(Debug)]
struct Trial {
    window: usize,
    began: Instant,
    /// Bytes that had been sent when the window began.
    sent: u64,
    /// Bytes per second, each way, of the windows that ended.
    rates: [f64; 2],
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Early {
    /// What the trials have found best.
    pub(super) chosen: bool,
    /// Trials that came to an end.
    pub(super) trials: u64,
    /// What is done now, be it chosen or tried.
    now: bool,
    /// What [`Self::limit`] gives.
    limit: usize,
    /// Turns that had enough to send since the last trial, or in this window.
    occasions: u32,
    trial: Option<Trial>,
    /// There is no trial before this.
    next: Option<Instant>,
    pause: Duration,
}

impl Early {
    pub(super) fn new() -> Self {
        Self {
            chosen: false,
            trials: 0,
            now: false,
            limit: EARLY_BYTES,
            occasions: 0,
            trial: None,
            next: None,
            pause: PAUSE[0],
        }
    }

    /// With so many bytes ready it is to be asked whether they leave.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// So many bytes are ready: whether they leave. Asked once a turn at most.
    pub(super) fn leaves(&mut self) -> bool {
        self.limit = usize::MAX;
        self.now
    }

    /// A turn ended, at which `sent` bytes have been sent in all; `alone` is whether it was this connection's only.
    #[inline]
    pub(super) fn turn_ended(&mut self, now: Instant, sent: u64, alone: bool) {
        if self.limit == usize::MAX {
            self.limit = EARLY_BYTES;
            self.occasion(now, sent, alone);
        }
    }

    /// A turn had enough to send.
    fn occasion(&mut self, now: Instant, sent: u64, alone: bool) {
        if !alone {
            self.occasions = 0;
            self.give_up();
            self.now = false;
            return;
        }
        self.now = self
            .trial
            .as_ref()
            .map_or(self.chosen, |trial| ORDER[trial.window]);
        self.occasions = self.occasions.saturating_add(1);
        let Some(trial) = &mut self.trial else {
            let is_time = self.next.is_none_or(|next| now >= next);
            if is_time && self.occasions >= OCCASIONS {
                self.begin(now, sent);
            }
            return;
        };
        let lasted = now.saturating_duration_since(trial.began);
        if lasted < WINDOW {
            return;
        }
        if lasted > WINDOW_MAX {
            return self.give_up();
        }
        // Precise enough: bytes of some milliseconds.
        #[allow(clippy::cast_precision_loss)]
        let bytes = sent.wrapping_sub(trial.sent) as f64;
        trial.rates[usize::from(ORDER[trial.window])] += bytes / lasted.as_secs_f64();
        trial.window += 1;
        (trial.began, trial.sent) = (now, sent);
        let rates = trial.rates;
        match ORDER.get(trial.window) {
            Some(early) => self.now = *early,
            None => self.decide(now, rates),
        }
    }

    fn begin(&mut self, now: Instant, sent: u64) {
        self.now = ORDER[0];
        self.trial = Some(Trial {
            window: 0,
            began: now,
            sent,
            rates: [0.0; 2],
        });
    }

    fn decide(&mut self, now: Instant, rates: [f64; 2]) {
        let needed = if self.chosen { 1.0 } else { 1.0 + GAIN / 100.0 };
        let better = rates[1] > rates[0] * needed;
        self.pause = if better == self.chosen && self.trials > 0 {
            (self.pause * 2).min(PAUSE[1])
        } else {
            PAUSE[0]
        };
        self.chosen = better;
        self.trials += 1;
        self.next = Some(now + self.pause);
        self.give_up();
    }

    /// There is no trial any more.
    fn give_up(&mut self) {
        self.trial = None;
        self.occasions = 0;
        self.now = self.chosen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(50);

    /// A connection that sends so many bytes a turn, by whether some leave early.
    struct Load {
        early: Early,
        now: Instant,
        sent: u64,
        bytes: [u64; 2],
        alone: bool,
        /// Turns in which some left early.
        left: u32,
    }

    impl Load {
        fn new(bytes: [u64; 2]) -> Self {
            Self {
                early: Early::new(),
                now: Instant::now(),
                sent: 0,
                bytes,
                alone: true,
                left: 0,
            }
        }

        fn turn(&mut self) {
            self.now += TURN;
            let mut early = false;
            let enough = self.bytes[0] >= EARLY_BYTES as u64;
            if enough && self.early.limit() <= EARLY_BYTES {
                early = self.early.leaves();
                assert_eq!(self.early.limit(), usize::MAX, "asked once a turn");
            }
            self.left += u32::from(early);
            self.sent += self.bytes[usize::from(early)];
            self.early.turn_ended(self.now, self.sent, self.alone);
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.turn();
            }
        }
    }

    #[test]
    fn what_is_faster_is_kept() {
        let mut load = Load::new([50_000, 60_000]);
        load.run(Duration::from_millis(60));
        assert!(load.early.chosen);
        assert_eq!(load.early.trials, 1);
        load.left = 0;
        load.run(Duration::from_millis(50));
        assert_eq!(load.left, 1000);
    }

    #[test]
    fn one_send_a_turn_wins_unless_the_other_is_clearly_better() {
        for bytes in [[50_000, 40_000], [50_000, 50_000], [50_000, 52_000]] {
            let mut load = Load::new(bytes);
            load.run(Duration::from_millis(60));
            assert!(!load.early.chosen);
            assert_eq!(load.early.trials, 1);
            load.left = 0;
            load.run(Duration::from_millis(50));
            assert_eq!(load.left, 0);
        }
    }

    #[test]
    fn a_connection_that_changes_is_tried_again() {
        let mut load = Load::new([50_000, 60_000]);
        load.run(Duration::from_millis(100));
        assert!(load.early.chosen);
        load.bytes = [60_000, 50_000];
        load.run(Duration::from_millis(500));
        assert!(!load.early.chosen);
    }

    #[test]
    fn pauses_grow_while_the_outcome_is_the_same() {
        let mut load = Load::new([50_000, 50_000]);
        load.run(Duration::from_secs(60));
        // 0.2 + 0.4 + … + 3.2 s, then one every 4 s.
        assert!(
            (17..=20).contains(&load.early.trials),
            "{}",
            load.early.trials
        );
        // Half of the time of trials goes to the other way.
        assert!(load.left * 50 < 60_000_000 / 100, "{}", load.left);
    }

    #[test]
    fn small_turns_and_shared_ones_are_not_tried() {
        let mut small = Load::new([4096, 8192]);
        small.run(Duration::from_secs(1));
        assert_eq!((small.early.trials, small.left), (0, 0));
        let mut shared = Load::new([50_000, 60_000]);
        shared.alone = false;
        shared.run(Duration::from_secs(1));
        assert_eq!((shared.early.trials, shared.left), (0, 0));
    }

    #[test]
    fn whoever_comes_meanwhile_ends_it() {
        let mut load = Load::new([50_000, 60_000]);
        load.run(Duration::from_millis(60));
        assert!(load.early.chosen);
        load.alone = false;
        load.turn();
        load.left = 0;
        load.run(Duration::from_millis(60));
        assert_eq!(load.left, 0);
        load.alone = true;
        load.turn();
        load.run(Duration::from_millis(10));
        assert!(load.left > 0);
    }

    #[test]
    fn a_window_with_a_pause_in_it_says_nothing() {
        let mut load = Load::new([50_000, 60_000]);
        load.run(Duration::from_millis(20));
        assert!(load.early.trial.is_some());
        load.now += Duration::from_millis(30);
        load.turn();
        assert!(load.early.trial.is_none());
        assert_eq!(load.early.trials, 0);
    }
}
