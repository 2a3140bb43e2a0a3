//! When polling for a moment is better than falling asleep at once. Arithmetic alone: times are
//! nanoseconds since the shard began.
//!
//! Falling asleep and being woken cost some microseconds of work and more of delay. Where one request
//! follows the other at once, as at queue depth 1, polling until the next one comes saves both. Where
//! nothing comes, or a turn takes in many requests anyway, polling only burns the core. So [`Policy`]
//! remembers how long the shard had nothing to do lately, whether that was short mostly, and how many
//! requests a turn had. Where answers take long to get through the network, what a wake-up adds is nothing; so it asks
//! for the round trip now and then. It gives up polling that does not pay, for longer and longer, and when somebody
//! else wants the core; and what it spends is bounded by the budget.

use crate::config::Spin;

/// A gap up to this is worth being polled through.
const SHORT_NS: u64 = 50_000;
/// `auto` polls only where gaps are expected to be this short.
const EXPECTED_NS_MAX: u64 = 30_000;
/// `auto` polls for at least and at most so long at a time.
const WINDOW_NS_MIN: u64 = 10_000;
const WINDOW_NS_MAX: u64 = 60_000;
/// After a gap this long what was learned before says nothing.
const FORGET_NS: u64 = 1_000_000;

/// Averages are kept in units of 1/256 and move by an eighth of the difference.
const UNIT: u64 = 256;
const WEIGHT: u64 = 8;
/// `auto` polls where more than so much of the gaps were short.
const SHORT_SHARE_MIN: u64 = UNIT * 5 / 8;
/// And as long as it is not in vain more often than this: a miss costs as much as some hits save.
const MISS_SHARE_MAX: u64 = UNIT / 4;
/// And where a turn has no more requests than this: with more, they share the price of a wake-up. Up to four, that
/// is still a third of the time.
const REQUESTS_MAX: u64 = UNIT * 9 / 2;

/// And where the network takes no longer than this for a round trip: it is full, or slow, and a wake-up adds a
/// twentieth at most.
const ROUND_TRIP_NS_MAX: u64 = 100_000;
/// A connection is asked for its round trip once in so many turns that would be polled after. It is that many turns, too, after
/// a pause, in which the kernel takes the time of acknowledgements that the peer kept back for the network's.
const ROUND_TRIP_TURNS: u32 = 64;
/// So many connections asked one after the other are all far: those that are close are worth polling for.
const ROUND_TRIPS: usize = 4;

/// The budget is kept over so long.
const BUDGET_WINDOW_NS: u64 = 100_000_000;

/// How long polling pauses at first, and at most, after too many windows in which nothing came, and
/// while others want the core.
const MISS_PAUSE_NS: (u64, u64) = (500_000, 500_000_000);
const CONTENTION_PAUSE_NS: (u64, u64) = (10_000_000, 1_000_000_000);

/// Two looks at the clock that are this far apart while polling: somebody else had the core in between.
pub(super) const PREEMPTED_NS: u64 = 100_000;
/// Others want the core when they had so much of the time that was polled for, or not, since. Kernel
/// threads and neighbours of a virtual machine take a few percent.
const LOST_PERCENT_MAX: u64 = 20;
/// Of so much time at least; older times count half after twice as much.
const LOST_EVIDENCE_NS: u64 = 25_000_000;

/// A pause that doubles while what caused it goes on.
#[derive(Clone, Copy, Debug)]
struct Pause {
    range_ns: (u64, u64),
    next_ns: u64,
    until: u64,
}

impl Pause {
    fn new(range_ns: (u64, u64)) -> Self {
        Self {
            range_ns,
            next_ns: range_ns.0,
            until: 0,
        }
    }

    fn begin(&mut self, now: u64) {
        let quiet_ns = now.saturating_sub(self.until);
        if quiet_ns > self.next_ns * 4 {
            self.next_ns = self.range_ns.0;
        }
        self.until = now + self.next_ns;
        self.next_ns = (self.next_ns * 2).min(self.range_ns.1);
    }

    fn is_over(&self, now: u64) -> bool {
        now >= self.until
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Policy {
    spin: Spin,
    budget_percent: u64,
    /// Average gap, in nanoseconds; long ones count as [`WINDOW_NS_MAX`] twice.
    gap_ns: u64,
    /// The part of gaps that were short.
    short_share: u64,
    /// Average number of requests in a turn that had any.
    requests: u64,
    /// The part of the times polled in which nothing came.
    miss_share: u64,
    /// The last round trips of connections that sent something, and after how many turns one is asked again.
    round_trips_ns: [u64; ROUND_TRIPS],
    round_trip_turns: u32,
    misses: Pause,
    contention: Pause,
    /// Polled lately, and lost to others while polling.
    lately_polled_ns: u64,
    lately_lost_ns: u64,
    /// What may be spent now, and when that was worked out. Below zero after a window that was longer
    /// than what was left.
    budget_ns: i64,
    budget_at: u64,
}

impl Policy {
    pub(super) fn new(spin: Spin, budget_percent: u8) -> Self {
        Self {
            spin,
            budget_percent: u64::from(budget_percent.min(100)),
            gap_ns: EXPECTED_NS_MAX * 2,
            short_share: 0,
            requests: 0,
            miss_share: 0,
            round_trips_ns: [0; ROUND_TRIPS],
            round_trip_turns: ROUND_TRIP_TURNS,
            misses: Pause::new(MISS_PAUSE_NS),
            contention: Pause::new(CONTENTION_PAUSE_NS),
            lately_polled_ns: 0,
            lately_lost_ns: 0,
            budget_ns: 0,
            budget_at: 0,
        }
    }

    /// Whether it can ever say anything else than "sleep".
    pub(super) fn is_off(&self) -> bool {
        self.spin == Spin::Off || self.budget_percent == 0
    }

    /// For how long to poll before falling asleep, at the end of a turn that took in `requests`. Zero:
    /// not at all. `round_trip_ns` asks the connection that sent last, if it knows.
    pub(super) fn window_ns(
        &mut self,
        now: u64,
        requests: u64,
        round_trip_ns: impl FnOnce() -> Option<u64>,
    ) -> u64 {
        if requests > 0 {
            average(&mut self.requests, requests.saturating_mul(UNIT));
        }
        let wanted = match self.spin {
            Spin::Off => 0,
            Spin::For { microseconds } => u64::from(microseconds) * 1000,
            Spin::Auto if self.pays() && self.misses.is_over(now) => {
                (self.gap_ns * 3).clamp(WINDOW_NS_MIN, WINDOW_NS_MAX)
            }
            Spin::Auto => 0,
        };
        if wanted == 0 || !self.contention.is_over(now) || !self.is_within_budget(now) {
            return 0;
        }
        if self.spin == Spin::Auto && !self.is_close(round_trip_ns) {
            return 0;
        }
        wanted
    }

    fn pays(&self) -> bool {
        self.short_share > SHORT_SHARE_MIN
            && self.gap_ns <= EXPECTED_NS_MAX
            && self.requests <= REQUESTS_MAX
    }

    /// Whether answers of some connection are with the peer soon.
    fn is_close(&mut self, round_trip_ns: impl FnOnce() -> Option<u64>) -> bool {
        self.round_trip_turns -= 1;
        if self.round_trip_turns == 0 {
            self.round_trip_turns = ROUND_TRIP_TURNS;
            self.round_trips_ns.rotate_right(1);
            self.round_trips_ns[0] = round_trip_ns().unwrap_or(0);
        }
        let is_close = |ns: &u64| *ns <= ROUND_TRIP_NS_MAX;
        self.round_trips_ns.iter().any(is_close)
    }

    fn is_within_budget(&mut self, now: u64) -> bool {
        let earned = now.saturating_sub(self.budget_at) * self.budget_percent / 100;
        let most = BUDGET_WINDOW_NS * self.budget_percent / 100;
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        self.budget_ns = (self.budget_ns + signed(earned)).min(signed(most));
        self.budget_at = now;
        self.budget_ns > 0
    }

    /// `spent_ns` were polled. `hit`: until something came. `lost_ns` of it somebody else had the core.
    /// Returns whether others want it so much that polling pauses.
    pub(super) fn polled(&mut self, now: u64, spent_ns: u64, lost_ns: u64, hit: bool) -> bool {
        self.budget_ns -= i64::try_from(spent_ns).unwrap_or(i64::MAX);
        if lost_ns == 0 {
            average(&mut self.miss_share, if hit { 0 } else { UNIT });
            if self.miss_share > MISS_SHARE_MAX {
                self.miss_share = MISS_SHARE_MAX / 2;
                self.misses.begin(now);
            }
        }
        self.lately_polled_ns += spent_ns;
        self.lately_lost_ns += lost_ns;
        if self.lately_polled_ns < LOST_EVIDENCE_NS {
            return false;
        }
        let contended = self.lately_lost_ns * 100 > self.lately_polled_ns * LOST_PERCENT_MAX;
        if contended {
            self.lately_polled_ns = 0;
            self.lately_lost_ns = 0;
            self.contention.begin(now);
        } else if self.lately_polled_ns > LOST_EVIDENCE_NS * 2 {
            self.lately_polled_ns /= 2;
            self.lately_lost_ns /= 2;
        }
        contended
    }

    /// Something came after so long, asleep or not.
    pub(super) fn gap_ended(&mut self, gap_ns: u64) {
        if gap_ns > FORGET_NS {
            self.short_share = 0;
            self.gap_ns = EXPECTED_NS_MAX * 2;
            self.requests = 0;
            self.round_trips_ns = [0; ROUND_TRIPS];
            self.round_trip_turns = ROUND_TRIP_TURNS;
            return;
        }
        average(&mut self.gap_ns, gap_ns.min(WINDOW_NS_MAX * 2));
        let short = if gap_ns <= SHORT_NS { UNIT } else { 0 };
        average(&mut self.short_share, short);
    }
}

/// Moves an average towards a new value, all the way in the end.
fn average(average: &mut u64, value: u64) {
    if value >= *average {
        *average += (value - *average).div_ceil(WEIGHT);
    } else {
        *average -= (*average - value).div_ceil(WEIGHT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const MS: u64 = 1_000_000;

    /// A shard under a load that repeats: gaps of so long between turns of so many requests.
    struct Load {
        policy: Policy,
        now: u64,
        polled_ns: u64,
        /// And what the network takes.
        round_trip_ns: Option<u64>,
        round_trips_asked: usize,
    }

    impl Load {
        fn new(spin: Spin, budget_percent: u8) -> Self {
            Self {
                policy: Policy::new(spin, budget_percent),
                now: 1,
                polled_ns: 0,
                round_trip_ns: Some(20 * US),
                round_trips_asked: 0,
            }
        }

        /// Returns whether the shard polled.
        fn turn(&mut self, gap_ns: u64, requests: u64) -> bool {
            self.now += 4 * US;
            let window = self.policy.window_ns(self.now, requests, || {
                self.round_trips_asked += 1;
                self.round_trip_ns
            });
            let spent = window.min(gap_ns);
            self.polled_ns += spent;
            if window > 0 {
                let hit = gap_ns <= window;
                self.policy.polled(self.now + spent, spent, 0, hit);
            }
            self.now += gap_ns;
            self.policy.gap_ended(gap_ns);
            window > 0
        }

        fn polls_among(&mut self, turns: usize, gap_ns: u64, requests: u64) -> usize {
            (0..turns).filter(|_| self.turn(gap_ns, requests)).count()
        }
    }

    #[test]
    fn one_request_after_the_other_is_polled_for() {
        let mut load = Load::new(Spin::Auto, 100);
        load.turn(10 * MS, 1);
        let polled = load.polls_among(100, 10 * US, 1);
        assert!(polled > 80, "{polled}");
    }

    #[test]
    fn nothing_is_polled_for_after_a_long_silence() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        // The first gap of the silence may be polled into, once.
        load.turn(20 * MS, 1);
        assert_eq!(load.polls_among(50, 20 * MS, 1), 0);
    }

    #[test]
    fn turns_with_many_requests_are_slept_between() {
        let mut load = Load::new(Spin::Auto, 100);
        for requests in [5, 16] {
            load.polls_among(50, 10 * US, requests);
            assert_eq!(load.polls_among(1000, 10 * US, requests), 0);
        }
        load.polls_among(50, 10 * US, 4);
        assert!(load.polls_among(1000, 10 * US, 4) > 0);
    }

    #[test]
    fn gaps_longer_than_a_wake_up_are_not_polled_through() {
        let mut load = Load::new(Spin::Auto, 100);
        assert_eq!(load.polls_among(1000, 45 * US, 1), 0);
        assert_eq!(load.polls_among(1000, 200 * US, 1), 0);
    }

    #[test]
    fn a_network_that_is_full_is_not_polled() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        load.round_trip_ns = Some(300 * US);
        load.polls_among(256, 10 * US, 1);
        assert_eq!(load.polls_among(1000, 10 * US, 1), 0);
        load.round_trip_ns = Some(90 * US);
        load.polls_among(64, 10 * US, 1);
        assert_eq!(load.polls_among(1000, 10 * US, 1), 1000);
    }

    #[test]
    fn a_peer_that_is_far_takes_nothing_from_one_that_is_close() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        for asked in 0..100 {
            let is_close = asked % 4 == 3;
            load.round_trip_ns = Some(if is_close { 20 * US } else { 5 * MS });
            assert_eq!(load.polls_among(64, 10 * US, 1), 64, "{asked}");
        }
    }

    #[test]
    fn acknowledgements_kept_back_over_a_pause_are_not_the_network() {
        let mut load = Load::new(Spin::Auto, 100);
        // The kernel's average has them for some 30 round trips.
        for _ in 0..20 {
            for turn in 0..100 {
                load.round_trip_ns = Some(if turn < 40 { 400 * US } else { 20 * US });
                let polls = load.turn(10 * US, 1);
                assert!(polls || turn < 20, "{turn}");
            }
            load.turn(100 * MS, 1);
        }
    }

    #[test]
    fn the_network_is_asked_seldom_and_what_it_does_not_know_changes_nothing() {
        let mut load = Load::new(Spin::Auto, 100);
        load.round_trip_ns = None;
        let polls = load.polls_among(6400, 10 * US, 1);
        assert!(polls > 6300);
        assert_eq!(load.round_trips_asked, polls / 64);
        let mut idle = Load::new(Spin::Auto, 100);
        idle.polls_among(6400, 300 * US, 1);
        assert_eq!(idle.round_trips_asked, 0, "only where it decides");
        let mut fixed = Load::new(Spin::For { microseconds: 20 }, 100);
        fixed.round_trip_ns = Some(300 * US);
        assert_eq!(fixed.polls_among(100, 10 * US, 1), 100, "as asked for");
    }

    #[test]
    fn misses_make_the_pauses_longer() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        // One of five gaps is long.
        let mut windows = 0;
        for _ in 0..2000 {
            windows += load.polls_among(4, 10 * US, 1);
            load.turn(300 * US, 1);
        }
        assert!(windows < 4000, "{windows} of 8000");
    }

    #[test]
    fn a_late_request_now_and_then_does_not_stop_polling() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        let mut windows = 0;
        for _ in 0..200 {
            windows += load.polls_among(50, 10 * US, 1);
            load.turn(100 * US, 1);
        }
        assert!(windows > 9_900, "{windows} of 10000");
    }

    #[test]
    fn polling_keeps_to_the_budget() {
        for percent in [1, 10, 50] {
            let mut load = Load::new(Spin::Auto, percent);
            for _ in 0..200_000 {
                load.turn(16 * US, 1);
            }
            let share = load.polled_ns * 100 / load.now;
            assert!(share <= u64::from(percent), "{share} of {percent}");
            assert!(share + 2 >= u64::from(percent), "{share} of {percent}");
        }
    }

    #[test]
    fn a_fixed_window_is_polled_after_each_turn() {
        let spin = Spin::For { microseconds: 20 };
        let mut load = Load::new(spin, 100);
        load.turn(10 * MS, 1);
        assert_eq!(load.polls_among(100, 10 * US, 16), 100);
        let before = load.polled_ns;
        load.turn(1000 * MS, 1);
        assert_eq!(load.polled_ns - before, 20 * US, "and no longer");
    }

    #[test]
    fn polling_pauses_while_others_want_the_core() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        // The scheduler gave somebody else half of the time.
        load.now += 30 * MS;
        assert!(load.policy.polled(load.now, 30 * MS, 15 * MS, false));
        assert_eq!(load.polls_among(500, 10 * US, 1), 0, "7 ms");
        assert!(load.polls_among(500, 10 * US, 1) > 0);
    }

    #[test]
    fn a_neighbour_who_takes_the_core_now_and_then_does_not_stop_polling() {
        let mut load = Load::new(Spin::Auto, 100);
        load.polls_among(100, 10 * US, 1);
        for _ in 0..50 {
            load.polls_among(5000, 10 * US, 1);
            load.now += 3 * MS;
            assert!(!load.policy.polled(load.now, 3 * MS, 3 * MS, false));
        }
    }

    #[test]
    fn off_never_polls() {
        for mut load in [Load::new(Spin::Off, 100), Load::new(Spin::Auto, 0)] {
            assert!(load.policy.is_off());
            assert_eq!(load.polls_among(1000, 10 * US, 1), 0);
        }
    }
}
