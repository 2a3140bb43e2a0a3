//! Trials of the ways to wait, for the one that makes the load fastest. Arithmetic alone: times are nanoseconds since
//! the shard began.
//!
//! How long the gaps between turns are says little about polling: with a client that sleeps between its operations they
//! are long *because* both ends sleep. So each [`Way`] is in use for some milliseconds (a *phase*), several rounds over
//! in changing order, and what the shard did in that time decides:
//!
//! ```text
//! load ─► 64 waits ─► trial: rounds of a phase for each way ─► decision ─► pause ─┐
//!              ▲                                                                  │
//!              └── the load has changed, or the pause is over ◄───────────────────┘
//! ```
//!
//! - **Work** is operations and bytes: one operation counts as 4 KiB. **Cost** is the time the shard did not
//!   sleep.
//! - **Fast enough** is a way that is not clearly slower than the fastest by 5 %. Among those the cheapest wins, and
//!   where costs are about equal, the fastest. So polling has to gain 5 %, and ends where sleeping is as fast.
//! - **Clear** is what exceeds the noise: the mean of the logarithms of the ratios of a round, against its standard
//!   error (Student's t). A trial has as many rounds as that takes, from 2 to 12; a way that is clearly slower drops out. What is
//!   unclear in the end changes the way in use only from 10 % on.
//! - A phase in which the load paused is tried again; begins and ends of phases leave out what the way before has left.
//! - The pauses grow from a quarter of a second to ten seconds while trials confirm what was found. A rate that
//!   changes by three tenths, twice in a row, ends the pause; but trials never take more than a tenth of the time, of which
//!   a quarter of a second is saved up: a new load after a time without one is tried at once.

/// How a shard waits that has nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    /// Sleeps at once, without polling.
    #[default]
    Sleep,
    /// Polling for as long as a wake-up takes, then asleep.
    Short,
    /// Polling for some times as long, then asleep.
    Long,
}

pub(super) const WAYS: usize = 3;

/// The ways in the order of each round: each as often first, second and third, so that a load that grows or fades
/// favours none.
const ORDER: [[Way; WAYS]; 6] = {
    use Way::{Long, Short, Sleep};
    [
        [Sleep, Long, Short],
        [Short, Long, Sleep],
        [Long, Sleep, Short],
        [Short, Sleep, Long],
        [Long, Short, Sleep],
        [Sleep, Short, Long],
    ]
};

/// So many waits under load make a trial worth it.
const OCCASIONS: u32 = 64;

/// At the beginning of a phase so much is left out: time, and waits.
const SETTLE_NS: u64 = 250_000;
const SETTLE_WAITS: u32 = 4;
/// A phase takes so long, and so many waits, at least.
const PHASE_NS: u64 = 2_000_000;
const PHASE_WAITS: u32 = 16;
/// One that took longer is tried again, but not more often than this in one trial.
const PHASE_NS_MAX: u64 = 25_000_000;
const RETRIES: u32 = 12;

const ROUNDS_MIN: usize = 2;
const ROUNDS_MAX: usize = 12;

/// What is slower by less than this is fast enough (the logarithm of 1.05).
const MARGIN: f64 = 0.0488;
/// What is not clear changes the way in use only if it is so much (of 1.10).
const MARGIN_UNCLEAR: f64 = 0.0953;
/// Two rounds decide only if both say more than this (of 1.65).
const MARGIN_OF_TWO: f64 = 0.5;
/// An outcome that differs by more than this (of 1.2) is followed by the next trial soon: what is less may be noise.
const MARGIN_CHANGED: f64 = 0.1823;
/// Of ways that cost the same, another one is taken if it is faster by so much (of 1.02).
const MARGIN_EVEN: f64 = 0.0198;
/// Costs that differ by less than this, as a ratio, are equal.
const COST_MARGIN: f64 = 1.1;

/// Between trials, at first and at most, and by what it grows.
const PAUSE_NS: (u64, u64) = (250_000_000, 10_000_000_000);
const PAUSE_GROWTH: u64 = 4;
/// Trials take one part of so many of the time.
const SHARE: i64 = 10;
/// Of that, so much is saved up for loads that change.
const SAVED_NS: i64 = 250_000_000;

/// The rate of work is looked at over this time, and so many waits.
const EPOCH_NS: u64 = 25_000_000;
const EPOCH_WAITS: u32 = 64;
/// So many rates in a row, higher or lower by so much (the logarithm of 1.3), are another load.
const EPOCHS_CHANGED: u32 = 2;
const MARGIN_LOAD: f64 = 0.2624;

/// What a shard has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// Bytes, and for each operation as many as it is worth.
    pub work: u64,
    /// Nanoseconds awake so far.
    pub busy_ns: u64,
}

/// A stretch of time that is measured.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    began: u64,
    totals: Totals,
    waits: u32,
}

impl Stretch {
    fn begin(now: u64, totals: Totals) -> Self {
        Self {
            began: now,
            totals,
            waits: 0,
        }
    }

    fn lasted(&self, now: u64) -> u64 {
        now.saturating_sub(self.began)
    }

    #[allow(clippy::cast_precision_loss)] // Work and nanoseconds of some milliseconds are far below 2^52.
    fn measure(&self, now: u64, totals: Totals) -> Measured {
        let work = totals.work.saturating_sub(self.totals.work).max(1) as f64;
        let busy_ns = totals.busy_ns.saturating_sub(self.totals.busy_ns) as f64;
        let lasted_ns = self.lasted(now).max(1) as f64;
        Measured {
            rate: (work / lasted_ns).ln(),
            cost_ns: busy_ns / work,
        }
    }
}

/// What a phase has shown.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// The logarithm of work per nanosecond.
    rate: f64,
    /// Nanoseconds of processor time per unit of work.
    cost_ns: f64,
}

/// A trial under way.
#[derive(Debug)]
struct Trial {
    /// Its length until `accounted`, without pauses of the load.
    spent_ns: u64,
    accounted: u64,
    /// Rounds that were completed.
    rounds: usize,
    /// The phase of this round.
    place: usize,
    phase: Stretch,
    settled: bool,
    retries: u32,
    measured: [[Measured; WAYS]; ROUNDS_MAX],
    /// Ways that have not dropped out.
    alive: [bool; WAYS],
    /// By how much each was slower than the fastest when that was last worked out.
    behind: [f64; WAYS],
}

/// How one way compares with another that is faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Slower,
    FastEnough,
    Unclear,
}

impl Trial {
    fn way(&self) -> Way {
        ORDER[self.rounds % ORDER.len()][self.place]
    }

    /// Goes to the next phase of a way that has not dropped out. Returns whether a round is complete.
    fn advance(&mut self) -> bool {
        loop {
            self.place += 1;
            if self.place == WAYS {
                self.place = 0;
                self.rounds += 1;
                return true;
            }
            if self.alive[self.way() as usize] {
                return false;
            }
        }
    }

    /// Goes to the first phase of a round.
    fn begin_round(&mut self) {
        while !self.alive[self.way() as usize] {
            self.place += 1;
        }
    }

    fn begin_phase(&mut self, now: u64, totals: Totals) {
        self.spend(now);
        self.phase = Stretch::begin(now, totals);
        self.settled = false;
    }

    /// Adds the time since the last call. What is longer than any phase is a pause of the load.
    fn spend(&mut self, now: u64) {
        self.spent_ns += now.saturating_sub(self.accounted).min(PHASE_NS_MAX);
        self.accounted = now;
    }

    /// The mean over all rounds of what `value` gives.
    fn mean(&self, value: impl Fn(&[Measured; WAYS]) -> f64) -> f64 {
        let rounds = &self.measured[..self.rounds];
        rounds.iter().map(value).sum::<f64>() / count(self.rounds)
    }

    fn cost(&self, way: usize) -> f64 {
        self.mean(|round| round[way].cost_ns)
    }

    /// How much faster one way is than the other: the mean of the logarithms, and its standard error.
    fn faster(&self, one: usize, other: usize) -> (f64, f64) {
        let ratio = |round: &[Measured; WAYS]| round[one].rate - round[other].rate;
        let mean = self.mean(ratio);
        let squares = self.mean(|round| (ratio(round) - mean).powi(2));
        (mean, (squares / count(self.rounds.max(2) - 1)).sqrt())
    }

    fn verdict(&self, leader: usize, way: usize) -> Verdict {
        let (mean, error) = self.faster(leader, way);
        if self.rounds < 3 {
            let ratio = |round: &[Measured; WAYS]| round[leader].rate - round[way].rate;
            let mut rounds = self.measured[..self.rounds].iter();
            return if rounds.all(|round| ratio(round) > MARGIN_OF_TWO) {
                Verdict::Slower
            } else {
                Verdict::Unclear
            };
        }
        // Student's t. What changes something may be wrong in one of a hundred cases, what changes nothing in one of twenty.
        let freedom = count(self.rounds - 1);
        if mean - (2.6 + 9.6 / freedom) * error > MARGIN {
            Verdict::Slower
        } else if mean + (2.0 + 4.6 / freedom) * error < MARGIN_UNCLEAR {
            Verdict::FastEnough
        } else {
            Verdict::Unclear
        }
    }

    /// What may be said of a way that is not clearly slower after all rounds.
    fn is_probably_slower(&self, leader: usize, way: usize) -> bool {
        let (mean, error) = self.faster(leader, way);
        mean > MARGIN_UNCLEAR && mean > 3.0 * error
    }

    /// Ends a round. Returns what each way is worth once that is clear enough.
    fn end_round(&mut self) -> Option<[Verdict; WAYS]> {
        if self.rounds < ROUNDS_MIN {
            return None;
        }
        let rates: [f64; WAYS] = std::array::from_fn(|way| {
            if self.alive[way] {
                self.mean(|round| round[way].rate)
            } else {
                f64::NEG_INFINITY
            }
        });
        let leader = (0..WAYS)
            .max_by(|one, other| rates[*one].total_cmp(&rates[*other]))
            .unwrap_or(0);
        let verdicts = std::array::from_fn(|way| {
            if way == leader {
                Verdict::FastEnough
            } else if self.alive[way] {
                self.verdict(leader, way)
            } else {
                Verdict::Slower
            }
        });
        for way in 0..WAYS {
            if self.alive[way] {
                self.behind[way] = rates[leader] - rates[way];
                self.alive[way] = verdicts[way] != Verdict::Slower;
            }
        }
        let is_clear = !verdicts.contains(&Verdict::Unclear);
        if is_clear {
            return Some(verdicts);
        }
        (self.rounds == ROUNDS_MAX).then(|| {
            std::array::from_fn(|way| match verdicts[way] {
                Verdict::Unclear if self.is_probably_slower(leader, way) => Verdict::Slower,
                verdict @ (Verdict::Slower | Verdict::FastEnough | Verdict::Unclear) => verdict,
            })
        })
    }

    /// The way to take. `chosen` is in use.
    fn choose(&self, chosen: Way, verdicts: [Verdict; WAYS]) -> Way {
        let is = |way: Way, verdict| verdicts[way as usize] == verdict;
        let cost = |way: Way| self.cost(way as usize);
        let behind = |way: &Way| self.behind[*way as usize];
        let ways = [Way::Sleep, Way::Short, Way::Long];
        let candidates = ways.into_iter().filter(|way| is(*way, Verdict::FastEnough));
        let cheapest = candidates.clone().map(cost).fold(f64::INFINITY, f64::min);
        // What is not clear is no reason to pay more than for what is in use.
        let limit = if is(chosen, Verdict::Unclear) {
            cost(chosen)
        } else {
            cheapest
        };
        let fastest = candidates
            .filter(|way| cost(*way) <= limit * COST_MARGIN)
            .min_by(|one, other| behind(one).total_cmp(&behind(other)));
        match fastest {
            Some(fastest)
                if is(chosen, Verdict::Slower)
                    || cost(chosen) > limit * COST_MARGIN
                    || behind(&chosen) - behind(&fastest) > MARGIN_EVEN =>
            {
                fastest
            }
            _ => chosen,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // There are few rounds.
fn count(rounds: usize) -> f64 {
    rounds as f64
}

/// What the rate of work was while nothing was tried.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    epoch: Stretch,
    /// The logarithm of the rate when it was decided, or since it changed.
    reference: Option<f64>,
    /// Epochs in a row that were far from it.
    strange: u32,
}

impl Watch {
    /// A wait under load. Returns whether the load has changed.
    fn wait(&mut self, now: u64, totals: Totals) -> bool {
        self.epoch.waits += 1;
        if self.epoch.waits < EPOCH_WAITS || self.epoch.lasted(now) < EPOCH_NS {
            return false;
        }
        let rate = self.epoch.measure(now, totals).rate;
        self.epoch = Stretch::begin(now, totals);
        let reference = *self.reference.get_or_insert(rate);
        if (rate - reference).abs() <= MARGIN_LOAD {
            self.strange = 0;
            return false;
        }
        self.strange += 1;
        if self.strange < EPOCHS_CHANGED {
            return false;
        }
        self.reference = Some(rate);
        self.strange = 0;
        true
    }

    fn restart(&mut self, now: u64, totals: Totals) {
        self.epoch = Stretch::begin(now, totals);
        self.strange = 0;
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Trials {
    chosen: Way,
    trial: Option<Trial>,
    /// Waits under load since the last trial.
    waits: u32,
    /// There is no trial before.
    next: u64,
    /// Nor, whatever happens, before this.
    earliest: u64,
    /// What trials may still take, and when that was worked out.
    credit_ns: i64,
    credited: u64,
    pause_ns: u64,
    watch: Watch,
    /// That is why the next trial comes, or the one under way came.
    load_changed: bool,
    /// Trials that came to an end.
    ended: u64,
    /// Those of them that found another way than the one in use.
    changes: u32,
    /// What the last one found, for the log.
    last: ([f64; WAYS], usize),
}

impl Trials {
    pub(super) fn new() -> Self {
        Self {
            chosen: Way::Sleep,
            trial: None,
            waits: 0,
            next: 0,
            earliest: 0,
            credit_ns: SAVED_NS,
            credited: 0,
            pause_ns: PAUSE_NS.0,
            watch: Watch::default(),
            load_changed: false,
            ended: 0,
            changes: 0,
            last: ([0.0; WAYS], 0),
        }
    }

    /// How to wait now.
    pub(super) fn way(&self) -> Way {
        match &self.trial {
            Some(trial) => trial.way(),
            None => self.chosen,
        }
    }

    /// Whether a trial is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.trial.is_some()
    }

    /// Trials that came to an end.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// Those of them that found another way than the one in use.
    pub(super) fn changes(&self) -> u32 {
        self.changes
    }

    /// By how many percent each way was slower than the fastest in the last trial, and how many rounds that had.
    pub(super) fn last(&self) -> ([f64; WAYS], usize) {
        self.last
    }

    /// A turn has ended and a wait begins, under load.
    #[inline]
    pub(super) fn wait(&mut self, now: u64, totals: Totals) {
        if self.trial.is_some() {
            return self.wait_in_trial(now, totals);
        }
        self.waits = self.waits.saturating_add(1);
        if self.watch.wait(now, totals) {
            self.pause_ns = PAUSE_NS.0;
            self.next = self.earliest;
            self.load_changed = true;
        }
        if self.waits >= OCCASIONS && now >= self.next {
            self.begin(now, totals);
        }
    }

    fn begin(&mut self, now: u64, totals: Totals) {
        self.trial = Some(Trial {
            spent_ns: 0,
            accounted: now,
            rounds: 0,
            place: 0,
            phase: Stretch::begin(now, totals),
            settled: false,
            retries: 0,
            measured: [[Measured::default(); WAYS]; ROUNDS_MAX],
            alive: [true; WAYS],
            behind: [0.0; WAYS],
        });
    }

    fn wait_in_trial(&mut self, now: u64, totals: Totals) {
        let Some(trial) = &mut self.trial else {
            return;
        };
        let lasted = trial.phase.lasted(now);
        trial.phase.waits += 1;
        if lasted > PHASE_NS_MAX {
            return self.interrupted(now, totals);
        }
        if !trial.settled {
            if lasted >= SETTLE_NS && trial.phase.waits >= SETTLE_WAITS {
                trial.phase = Stretch::begin(now, totals);
                trial.settled = true;
            }
            return;
        }
        if lasted < PHASE_NS || trial.phase.waits < PHASE_WAITS {
            return;
        }
        let way = trial.way() as usize;
        trial.measured[trial.rounds][way] = trial.phase.measure(now, totals);
        let verdicts = trial.advance().then(|| trial.end_round()).flatten();
        match verdicts {
            Some(verdicts) => self.decide(now, totals, verdicts),
            None => {
                trial.begin_round();
                trial.begin_phase(now, totals);
            }
        }
    }

    /// A turn ended after which nothing could be tried. Some of those among others do no harm to a trial; a phase that
    /// they fill ends it.
    pub(super) fn not_waited(&mut self, now: u64, totals: Totals) {
        if let Some(trial) = &self.trial
            && trial.phase.lasted(now) > PHASE_NS_MAX
        {
            self.give_up(now, totals);
        }
    }

    fn decide(&mut self, now: u64, totals: Totals, verdicts: [Verdict; WAYS]) {
        let Some(mut trial) = self.trial.take() else {
            return;
        };
        trial.spend(now);
        let before = self.chosen;
        self.chosen = trial.choose(before, verdicts);
        let gain = trial.behind[before as usize] - trial.behind[self.chosen as usize];
        let is_news = self.ended == 0 || gain > MARGIN_CHANGED;
        self.ended += 1;
        self.last = (
            trial.behind.map(|ratio| ratio.exp_m1() * 100.0),
            trial.rounds,
        );
        self.pause_ns = if is_news {
            PAUSE_NS.0
        } else {
            (self.pause_ns * PAUSE_GROWTH).min(PAUSE_NS.1)
        };
        // Where the load seemed to have changed and has not, bounds on polling make the rate another one than in trials.
        let chosen = self.chosen as usize;
        let seemed = std::mem::take(&mut self.load_changed) && !is_news;
        self.watch.reference = (!seemed).then(|| trial.mean(|round| round[chosen].rate));
        if before != self.chosen {
            self.changes = self.changes.wrapping_add(1);
        }
        self.rest(now, totals, trial.spent_ns);
    }

    /// The load paused, or something else had the core: what was measured says nothing.
    #[inline]
    pub(super) fn interrupted(&mut self, now: u64, totals: Totals) {
        self.watch.restart(now, totals);
        let Some(trial) = &mut self.trial else {
            return;
        };
        trial.retries += 1;
        if trial.retries <= RETRIES {
            return trial.begin_phase(now, totals);
        }
        self.pause_ns = (self.pause_ns * PAUSE_GROWTH).min(PAUSE_NS.1);
        self.give_up(now, totals);
    }

    /// Ends a trial without a decision.
    pub(super) fn give_up(&mut self, now: u64, totals: Totals) {
        if let Some(mut trial) = self.trial.take() {
            trial.spend(now);
            self.rest(now, totals, trial.spent_ns);
        }
    }

    fn rest(&mut self, now: u64, totals: Totals, spent_ns: u64) {
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let earned_ns = signed(now.saturating_sub(self.credited)) / SHARE;
        let credit_ns = self.credit_ns.saturating_add(earned_ns).min(SAVED_NS);
        self.credit_ns = credit_ns.saturating_sub(signed(spent_ns));
        self.credited = now;
        let missing_ns = self.credit_ns.min(0).unsigned_abs();
        self.earliest = now.saturating_add(missing_ns.saturating_mul(SHARE.unsigned_abs()));
        let pause_ns = self.pause_ns.max(spent_ns * (SHARE.unsigned_abs() - 1));
        self.next = self.earliest.max(now + pause_ns);
        self.waits = 0;
        self.watch.restart(now, totals);
    }
}
