//! Whether the first responses of a turn leave before its end, found out by trying.
//!
//! A turn's responses leave in one send: that costs least. Yet the peer has nothing to do until the turn ends, and if
//! it then sends its next requests all at once, the two take turns instead of working side by side. Whether a send in
//! the middle of the turn makes the connection faster depends on the peer, its processor and the network, which a
//! server cannot know. So it tries each [`Way`] for a few milliseconds, four times, and keeps the one that brought most
//! bytes to the peer. [`Way::Together`] wins unless another is better by [`GAIN`], and so does what was chosen before.
//!
//! A turn of 32 KiB and more has the first two to choose from: a send for each response costs more there than it brings.
//!
//! A trial begins when many turns had several responses. Connections at depth 1 have none; nor has a connection that
//! shares its turns with others, because these have work for the processor meanwhile. The pauses between trials grow
//! while their outcome is the same, or hardly another. One trial goes on at a time: while the shard tries how to wait
//! ([`WaitingState`]), connections keep to what they have chosen, and try again soon when it waits in another way from then
//! on: what a wake-up costs decides here, too. Nothing here needs a timer: a connection that has nothing to send has no trial.

use std::time::{Duration, Instant};

use crate::waiting::WaitingState;

/// Half of a turn leaves early, but not more than this: the rest of a large turn is worth its send.
const EARLY_MAX: u64 = 16 << 10;

/// So many turns with several responses make a trial worth it.
const OCCASIONS: u32 = 64;

/// After others had turns, what was chosen comes back after so many turns without them.
const RETURN: u32 = 16;

/// How long each way is tried at a time, and for how many turns at least.
const WINDOW: Duration = Duration::from_micros(2500);
const WINDOW_TURNS: u32 = 32;

/// A window that took longer had a pause in it, and says nothing.
const WINDOW_MAX: Duration = Duration::from_millis(20);

/// How the responses of a turn leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// In one send, at its end.
    #[default]
    Together,
    /// The first half, up to 16 KiB, before its end.
    Early,
    /// The same, and what is no full segment waits until the peer has taken in what was sent before (RFC 896), for
    /// 100 µs at most: the peer works on one half while the server works on the other.
    Paced,
    /// Each by itself, waiting like that.
    Each,
}

impl Way {
    /// Whether what is no full segment waits for the peer.
    fn waits(self) -> bool {
        matches!(self, Self::Paced | Self::Each)
    }
}

const WAYS: usize = 4;
const ROUNDS: usize = 4;

/// What each window tries: each way as early as the others on the average, so that a load that grows or fades
/// favours none.
const ORDER: [Way; WAYS * ROUNDS] = {
    use Way::{Each, Early, Paced, Together};
    [
        Together, Early, Paced, Each, //
        Each, Paced, Early, Together, //
        Early, Together, Each, Paced, //
        Paced, Each, Together, Early,
    ]
};

/// Another way has to be better by so much, in percent, to be taken.
const GAIN: f64 = 5.0;

/// A trial that found another way better by so much, in percent, is followed by the next one soon: what is less may
/// be noise, and trials cost.
const CHANGED: f64 = 20.0;

/// Between trials, at first and at most.
const PAUSE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(4)];

/// A trial under way.
#[derive(Debug)]
struct Trial {
    window: usize,
    began: Instant,
    turns: u32,
    /// Bytes that had been sent when the window began.
    sent: u64,
    /// Bytes per second, each way, of the windows that ended.
    rates: [[f64; ROUNDS]; WAYS],
    /// Turns with several responses while they left together.
    several: u32,
    /// Turns are so large that nothing is tried that waits.
    large: bool,
}

impl Trial {
    /// The next window, and what it tries.
    fn next(&mut self) -> Option<Way> {
        loop {
            self.window += 1;
            let way = *ORDER.get(self.window)?;
            if !(self.large && way.waits()) {
                return Some(way);
            }
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Early {
    /// What the trials have found best.
    pub(super) chosen: Way,
    /// Trials that came to an end.
    pub(super) trials: u64,
    /// What is done now, be it chosen or tried.
    now: Way,
    limit: usize,
    /// Bytes that were ready when it was asked whether they leave.
    asked: u64,
    /// Bytes that had been sent when the last turn ended.
    sent: u64,
    /// Turns since the last trial that had several responses, or since others had turns.
    occasions: u32,
    trial: Option<Trial>,
    /// There is no trial before this.
    next: Option<Instant>,
    pause: Duration,
    /// How often the shard had begun to wait in another way.
    waiting_changes: u32,
}

impl Early {
    pub(super) fn new() -> Self {
        Self {
            chosen: Way::Together,
            trials: 0,
            now: Way::Together,
            limit: limit_after(EARLY_MAX),
            asked: u64::MAX,
            sent: 0,
            occasions: 0,
            trial: None,
            next: None,
            pause: PAUSE[0],
            waiting_changes: 0,
        }
    }

    /// With so many bytes ready it is to be asked whether they leave.
    #[inline]
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// So many bytes are ready: whether they leave. Asked once a turn, or at each response.
    #[inline]
    pub(super) fn leaves(&mut self, ready: usize) -> bool {
        if self.now != Way::Each {
            self.limit = usize::MAX;
        }
        self.asked = self.asked.min(ready as u64);
        self.now != Way::Together
    }

    /// Whether what is no full segment waits for the peer.
    #[inline]
    pub(super) fn is_paced(&self) -> bool {
        self.now.waits()
    }

    /// A turn ended, at which `sent` bytes have been sent in all; `alone` is whether it was this connection's only, and
    /// `waiting` how its shard waits.
    #[inline]
    pub(super) fn turn_ended(
        &mut self,
        now: Instant,
        sent: u64,
        alone: bool,
        waiting: WaitingState,
    ) {
        let bytes = sent.wrapping_sub(self.sent);
        if bytes == 0 {
            return;
        }
        self.sent = sent;
        let several = bytes > self.asked;
        self.asked = u64::MAX;
        if several || self.trial.is_some() || self.chosen != Way::Together {
            self.occasion(now, bytes, several, alone, waiting);
        }
        self.limit = if self.now == Way::Each {
            1
        } else {
            limit_after(bytes)
        };
    }

    /// A turn had several responses, or it is known what becomes of those that have.
    fn occasion(
        &mut self,
        now: Instant,
        bytes: u64,
        several: bool,
        alone: bool,
        waiting: WaitingState,
    ) {
        if !alone {
            self.give_up();
            self.now = Way::Together;
            return;
        }
        if waiting.is_trying {
            self.trial = None;
            self.now = self.chosen;
            return;
        }
        if waiting.changes != self.waiting_changes {
            self.waiting_changes = waiting.changes;
            self.next = None;
            self.pause = PAUSE[0];
        }
        self.occasions = self.occasions.saturating_add(1);
        let Some(trial) = &mut self.trial else {
            if self.occasions >= RETURN {
                self.now = self.chosen;
            }
            let is_time = self.next.is_none_or(|next| now >= next);
            if is_time && self.occasions >= OCCASIONS {
                self.begin(now, bytes >= 2 * EARLY_MAX);
            }
            return;
        };
        let way = ORDER[trial.window];
        trial.several += u32::from(several && way == Way::Together);
        let lasted = now.saturating_duration_since(trial.began);
        trial.turns += 1;
        if lasted > WINDOW_MAX {
            return self.give_up();
        }
        if lasted < WINDOW || trial.turns < WINDOW_TURNS {
            return;
        }
        // Precise enough: bytes of some milliseconds.
        #[allow(clippy::cast_precision_loss)]
        let bytes = self.sent.wrapping_sub(trial.sent) as f64;
        trial.rates[way as usize][trial.window / WAYS] = bytes / lasted.as_secs_f64();
        (trial.began, trial.sent, trial.turns) = (now, self.sent, 0);
        match trial.next() {
            Some(way) => self.now = way,
            None => self.decide(now),
        }
    }

    fn begin(&mut self, now: Instant, large: bool) {
        self.now = ORDER[0];
        self.trial = Some(Trial {
            window: 0,
            began: now,
            turns: 0,
            sent: self.sent,
            rates: [[0.0; ROUNDS]; WAYS],
            several: 0,
            large,
        });
    }

    fn decide(&mut self, now: Instant) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        let rates = trial.rates.map(middle);
        let best = best(self.chosen, rates);
        // Where no turn had several responses all ways are one.
        let best = if trial.several == 0 {
            Way::Together
        } else {
            best
        };
        let changed = 1.0 + CHANGED / 100.0;
        let is_settled = rates[best as usize] < rates[self.chosen as usize] * changed;
        self.pause = if self.trials > 0 && is_settled {
            (self.pause * 2).min(PAUSE[1])
        } else {
            PAUSE[0]
        };
        self.chosen = best;
        self.trials += 1;
        self.next = Some(now + self.pause);
        self.give_up();
        self.now = best;
    }

    /// There is no trial any more.
    fn give_up(&mut self) {
        self.trial = None;
        self.occasions = 0;
        self.now = self.chosen;
    }
}

/// With so many bytes ready it is asked, after a turn of so many.
#[inline]
fn limit_after(bytes: u64) -> usize {
    usize::try_from((bytes / 2).clamp(1, EARLY_MAX)).expect("it is bounded")
}

/// What is left without the best and the worst: others may have had the processor in some window.
fn middle(mut rates: [f64; ROUNDS]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[1..ROUNDS - 1].iter().sum()
}

/// The way to take, by what each has brought.
fn best(chosen: Way, rates: [f64; WAYS]) -> Way {
    let needed = 1.0 + GAIN / 100.0;
    let favoured = |way: Way| {
        let rate = rates[way as usize];
        if way == Way::Together || way == chosen {
            rate * needed
        } else {
            rate
        }
    };
    // The cheaper one where they are even.
    [Way::Early, Way::Paced, Way::Each]
        .into_iter()
        .fold(Way::Together, |best, way| {
            if favoured(way) > favoured(best) {
                way
            } else {
                best
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Duration = Duration::from_micros(50);
    /// Time of a trial of all ways, and what comes before it.
    const TRIAL: Duration = Duration::from_millis(45);

    /// A connection that sends so many bytes a turn, by the way they leave.
    struct Load {
        early: Early,
        now: Instant,
        sent: u64,
        bytes: [u64; WAYS],
        /// Responses of a turn.
        responses: u64,
        alone: bool,
        waiting: WaitingState,
        /// Turns in which some left early, and in which they waited.
        left: u32,
        paced: u32,
    }

    impl Load {
        fn new(bytes: [u64; WAYS]) -> Self {
            Self {
                early: Early::new(),
                now: Instant::now(),
                sent: 0,
                bytes,
                responses: 8,
                alone: true,
                waiting: WaitingState::default(),
                left: 0,
                paced: 0,
            }
        }

        fn turn(&mut self) {
            self.now += TURN;
            let way = self.early.now;
            let bytes = self.bytes[way as usize];
            let mut ready = 0;
            let mut leaves = 0;
            for _ in 0..self.responses {
                ready += bytes / self.responses;
                if ready >= u64::try_from(self.early.limit()).unwrap()
                    && self.early.leaves(usize::try_from(ready).unwrap())
                {
                    leaves += 1;
                    ready = 0;
                }
            }
            let most = if way == Way::Each { self.responses } else { 1 };
            assert!(leaves <= most, "{way:?}");
            self.left += u32::from(leaves > 0);
            self.paced += u32::from(self.early.is_paced());
            self.sent += bytes;
            self.early
                .turn_ended(self.now, self.sent, self.alone, self.waiting);
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                self.turn();
            }
        }
    }

    const WAYS_IN_ORDER: [Way; WAYS] = [Way::Together, Way::Early, Way::Paced, Way::Each];

    #[test]
    fn what_is_fastest_is_kept() {
        for way in WAYS_IN_ORDER {
            for size in [100, 1000] {
                let mut bytes = [8 * size; WAYS];
                bytes[way as usize] = 10 * size;
                let mut load = Load::new(bytes);
                load.run(TRIAL);
                assert_eq!((load.early.chosen, load.early.trials), (way, 1));
                (load.left, load.paced) = (0, 0);
                load.run(Duration::from_millis(50));
                let early = u32::from(way != Way::Together) * 1000;
                let paced = u32::from(way.waits()) * 1000;
                assert_eq!((load.left, load.paced), (early, paced), "{way:?}");
            }
        }
    }

    #[test]
    fn one_send_a_turn_wins_unless_another_way_is_clearly_better() {
        for other in [4000, 8000, 8300] {
            let mut load = Load::new([8000, other, other, other]);
            load.run(TRIAL);
            assert_eq!((load.early.chosen, load.early.trials), (Way::Together, 1));
            load.left = 0;
            load.run(Duration::from_millis(50));
            assert_eq!(load.left, 0);
        }
    }

    #[test]
    fn large_turns_do_not_wait() {
        let mut load = Load::new([50_000, 60_000, 90_000, 90_000]);
        load.run(TRIAL);
        assert_eq!((load.early.chosen, load.early.trials), (Way::Early, 1));
        assert_eq!(load.paced, 0);
    }

    #[test]
    fn a_connection_that_changes_is_tried_again() {
        let mut load = Load::new([8000, 10_000, 8000, 8000]);
        load.run(TRIAL);
        for (bytes, way) in [
            ([10_000, 8000, 8000, 8000], Way::Together),
            ([8000, 8000, 8000, 10_000], Way::Each),
            ([8000, 8000, 10_000, 8000], Way::Paced),
        ] {
            load.bytes = bytes;
            load.run(Duration::from_secs(4));
            assert_eq!(load.early.chosen, way);
        }
    }

    #[test]
    fn a_slow_window_of_each_way_changes_nothing() {
        let mut load = Load::new([8000, 8000, 10_000, 8000]);
        let full = load.bytes;
        for turn in 0..900 {
            // Once in four windows of a way, something else has the processor.
            load.bytes = if turn / 50 % 4 == 1 {
                [1000; WAYS]
            } else {
                full
            };
            load.turn();
        }
        assert_eq!((load.early.chosen, load.early.trials), (Way::Paced, 1));
    }

    #[test]
    fn a_depth_of_one_brings_back_one_send_a_turn() {
        let mut load = Load::new([8000, 8000, 8000, 10_000]);
        load.run(TRIAL);
        assert_eq!(load.early.chosen, Way::Each);
        load.responses = 1;
        load.run(Duration::from_millis(500));
        assert_eq!(load.early.chosen, Way::Together);
        let trials = load.early.trials;
        load.run(Duration::from_secs(1));
        assert_eq!(load.early.trials, trials);
    }

    #[test]
    fn pauses_grow_while_the_outcome_is_the_same_or_close() {
        let mut close = Load::new([8000; WAYS]);
        for trial in 0..10 {
            // One and then the other is better, by a tenth.
            close.bytes = [8000, 8000, 8000 + trial % 2 * 800, 8800 - trial % 2 * 800];
            let before = close.early.trials;
            while close.early.trials == before {
                close.turn();
            }
        }
        assert!(close.early.pause >= Duration::from_secs(3));

        let mut load = Load::new([8000; WAYS]);
        load.run(Duration::from_secs(60));
        // 0.2 + 0.4 + … + 3.2 s, then one every 4 s.
        let trials = load.early.trials;
        assert!((17..=20).contains(&trials), "{trials}");
        // Three quarters of the time of trials go to other ways.
        assert!(load.left * 50 < 60_000_000 / 50, "{}", load.left);
    }

    #[test]
    fn single_responses_and_shared_turns_are_not_tried() {
        let mut single = Load::new([8000; WAYS]);
        single.responses = 1;
        single.run(Duration::from_secs(1));
        assert_eq!((single.early.trials, single.left), (0, 0));
        let mut shared = Load::new([8000, 10_000, 10_000, 10_000]);
        shared.alone = false;
        shared.run(Duration::from_secs(1));
        assert_eq!((shared.early.trials, shared.left), (0, 0));
    }

    #[test]
    fn whoever_comes_meanwhile_ends_it() {
        let mut load = Load::new([8000, 8000, 10_000, 8000]);
        load.run(TRIAL);
        assert_eq!(load.early.chosen, Way::Paced);
        load.alone = false;
        load.turn();
        (load.left, load.paced) = (0, 0);
        load.run(Duration::from_millis(60));
        assert_eq!((load.left, load.paced), (0, 0));
        load.alone = true;
        load.run(Duration::from_millis(10));
        assert!(load.left > 0 && load.paced > 0);
    }

    #[test]
    fn nothing_is_tried_while_the_shard_tries_how_to_wait() {
        let mut load = Load::new([8000, 8000, 10_000, 8000]);
        load.run(Duration::from_millis(20));
        assert!(load.early.trial.is_some());
        load.waiting.is_trying = true;
        (load.left, load.paced) = (0, 0);
        load.run(Duration::from_secs(1));
        // The turn under way ends as it began.
        assert!(load.left <= 1 && load.paced <= 1);
        assert_eq!(load.early.trials, 0);
        load.waiting.is_trying = false;
        load.run(TRIAL);
        assert_eq!((load.early.chosen, load.early.trials), (Way::Paced, 1));
    }

    #[test]
    fn a_shard_that_waits_in_another_way_is_reason_to_try_again() {
        let mut load = Load::new([8000; WAYS]);
        load.run(Duration::from_secs(30));
        let trials = load.early.trials;
        load.bytes = [8000, 8000, 8000, 10_000];
        load.waiting.changes += 1;
        load.run(TRIAL);
        assert_eq!(
            (load.early.chosen, load.early.trials),
            (Way::Each, trials + 1)
        );
    }

    #[test]
    fn a_window_with_a_pause_in_it_says_nothing() {
        let mut load = Load::new([8000, 10_000, 8000, 8000]);
        load.run(Duration::from_millis(20));
        assert!(load.early.trial.is_some());
        load.now += Duration::from_millis(30);
        load.turn();
        assert!(load.early.trial.is_none());
        assert_eq!(load.early.trials, 0);
    }
}
