//! A shard and its client in virtual time.

use super::super::trials::Totals;
use super::*;

const US: u64 = 1000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// What a turn takes, and what it moves.
const TURN_NS: u64 = 4 * US;
const OPERATION: u64 = 8 << 10;

/// How a client answers.
#[derive(Clone, Copy)]
struct Client {
    /// The gap when the shard finds the request by polling.
    polled_ns: u64,
    /// The gap when it falls asleep, its wake-up included.
    slept_ns: u64,
    /// Gaps vary by so much, evenly, in percent.
    noise_percent: u64,
    /// Operations of a turn.
    operations: u64,
}

/// On a machine whose wake-ups take 50 µs: the client sleeps, and so does its core.
const DEAR: Client = Client {
    polled_ns: 10 * US,
    slept_ns: 90 * US,
    noise_percent: 0,
    operations: 1,
};

/// The same load where wake-ups take 3 µs.
const CHEAP: Client = Client {
    polled_ns: 60 * US,
    slept_ns: 62 * US,
    ..DEAR
};

struct Load {
    policy: Policy,
    client: Client,
    now: u64,
    work: u64,
    busy_ns: u64,
    polled_ns: u64,
    vain_ns: u64,
    waits: u64,
    random: u64,
}

impl Load {
    fn new(spin: Spin, budget_percent: u8, client: Client, wake_up_ns: u64) -> Self {
        let mut policy = Policy::new(spin, budget_percent);
        for _ in 0..7 {
            policy.overslept(wake_up_ns);
        }
        Self {
            policy,
            client,
            now: 1,
            work: 0,
            busy_ns: 0,
            polled_ns: 0,
            vain_ns: 0,
            waits: 0,
            random: 1,
        }
    }

    fn auto(client: Client, wake_up_ns: u64) -> Self {
        Self::new(Spin::Auto, 100, client, wake_up_ns)
    }

    fn totals(&self) -> Totals {
        Totals {
            work: self.work,
            busy_ns: self.busy_ns,
        }
    }

    /// From 0 to 999.
    fn random(&mut self) -> u64 {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 1000
    }

    /// A turn, and the gap after it. Returns whether the shard polled.
    fn turn(&mut self) -> bool {
        let percent = self.client.noise_percent;
        let noise = 1000 - percent * 10 + percent * 20 * self.random() / 1000;
        let gap = |ns| ns * noise / 1000;
        self.gap(gap(self.client.polled_ns), gap(self.client.slept_ns))
    }

    fn gap(&mut self, polled_ns: u64, slept_ns: u64) -> bool {
        self.now += TURN_NS;
        self.busy_ns += TURN_NS;
        self.work += OPERATION * self.client.operations;
        self.waits += 1;
        let window = self.policy.window_ns(self.now, self.totals());
        let is_hit = polled_ns <= window;
        let spent = window.min(polled_ns);
        if window > 0 {
            self.now += spent;
            self.busy_ns += spent;
            self.polled_ns += spent;
            if !is_hit && !self.policy.state().is_trying {
                self.vain_ns += spent;
            }
            self.policy
                .polled(self.now, self.totals(), spent, 0, is_hit);
        }
        let asleep_ns = if is_hit {
            0
        } else {
            slept_ns.saturating_sub(spent).max(US)
        };
        self.now += asleep_ns;
        let totals = self.totals();
        self.policy
            .gap_ended(self.now, || totals, spent + asleep_ns);
        window > 0
    }

    fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.turn();
        }
    }

    /// The share of the next `turns` after which the shard polls, in percent.
    fn polls(&mut self, turns: u64) -> u64 {
        let mut polls = 0;
        for _ in 0..turns {
            polls += u64::from(self.turn());
        }
        polls * 100 / turns
    }

    /// Operations a second, over the next `time`.
    fn rate(&mut self, time: u64) -> u64 {
        let (before, began) = (self.work, self.now);
        self.run(time);
        (self.work - before) / OPERATION * S / (self.now - began)
    }

    /// The scheduler gives somebody else half of the time. Returns whether polling pauses.
    fn lose_half(&mut self) -> bool {
        (0..20).any(|_| {
            self.now += 3 * MS;
            let totals = self.totals();
            self.policy
                .polled(self.now, totals, 3 * MS, 3 * MS / 2, false)
        })
    }

    fn trials(&self) -> u64 {
        self.policy.state().trials
    }
}

#[test]
fn gaps_that_are_long_because_both_ends_sleep_are_polled_through() {
    for slept_us in [60, 80, 100, 150] {
        for polled_us in [10, 45] {
            let client = Client {
                slept_ns: slept_us * US,
                polled_ns: polled_us * US,
                ..DEAR
            };
            let mut load = Load::auto(client, 50 * US);
            load.run(250 * MS);
            let best = S / (TURN_NS + client.polled_ns);
            let rate = load.rate(4 * S);
            assert!(
                rate * 100 > best * 95,
                "{rate} of {best}, {slept_us}, {polled_us}"
            );
        }
    }
}

#[test]
fn dear_wake_ups_of_the_peer_are_spared_where_those_here_seem_cheap() {
    for (polled_us, slept_us) in [(8, 60), (55, 90), (120, 170)] {
        let client = Client {
            slept_ns: slept_us * US,
            polled_ns: polled_us * US,
            ..DEAR
        };
        let mut load = Load::auto(client, 2 * US);
        load.run(250 * MS);
        let best = S / (TURN_NS + client.polled_ns);
        let rate = load.rate(4 * S);
        assert!(rate * 100 > best * 95, "{rate} of {best}, {polled_us}");
    }
}

#[test]
fn polling_that_gains_nothing_is_left_alone() {
    for operations in [1, 16] {
        let mut load = Load::auto(
            Client {
                operations,
                ..CHEAP
            },
            3 * US,
        );
        load.run(S);
        load.polled_ns = 0;
        load.run(10 * S);
        assert!(load.trials() > 2);
        assert!(load.polled_ns < 10 * S / 50, "{}", load.polled_ns);
    }
}

#[test]
fn cheap_wake_ups_are_spared_where_gaps_are_short() {
    let client = Client {
        polled_ns: 10 * US,
        slept_ns: 14 * US,
        ..DEAR
    };
    let mut load = Load::auto(client, 3 * US);
    load.run(250 * MS);
    assert!(load.polls(10_000) > 95);
}

#[test]
fn of_windows_that_cost_the_same_the_faster_wins() {
    let mut load = Load::auto(DEAR, 50 * US);
    // Half of the gaps outlast the short window. It is slower by 4 %, and sleeping by 7 %.
    for _ in 0..20_000 {
        load.gap(45 * US, 49 * US);
        load.gap(56 * US, 60 * US);
    }
    assert_eq!(load.policy.state().window_ns, 400 * US);
}

#[test]
fn windows_are_as_long_as_wake_ups_are_dear() {
    let windows = |wake_up_us| {
        let mut load = Load::auto(DEAR, wake_up_us * US);
        let mut seen = vec![];
        for _ in 0..5000 {
            load.turn();
            seen.push(load.policy.state().window_ns);
        }
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    assert_eq!(windows(3), [0, 10 * US, 200 * US]);
    assert_eq!(windows(40), [0, 40 * US, 320 * US]);
    assert_eq!(windows(200), [0, 100 * US, 500 * US]);
}

#[test]
fn nothing_is_polled_for_once_the_client_has_gone() {
    let mut load = Load::auto(DEAR, 50 * US);
    load.run(S);
    assert!(load.polls(1000) > 95);
    // What keeps the session alive, and a late look at it.
    load.gap(20 * MS, 20 * MS);
    load.polled_ns = 0;
    for _ in 0..1000 {
        load.gap(20 * MS, 20 * MS);
    }
    assert_eq!(load.polled_ns, 0);
    // It comes back: what was found holds until the next trial.
    load.run(2 * MS);
    assert!(load.polls(1000) > 80);
}

#[test]
fn a_load_that_changes_is_tried_again() {
    let mut load = Load::auto(CHEAP, 50 * US);
    load.run(30 * S);
    for _ in 0..3 {
        load.client = DEAR;
        load.run(S);
        assert!(load.polls(1000) > 90);
        load.run(30 * S);
        // Three times as many operations, and no gain from polling.
        load.client = Client {
            polled_ns: 29 * US,
            slept_ns: 29 * US,
            operations: 8,
            ..DEAR
        };
        load.run(S);
        assert!(load.polls(1000) < 10);
        load.run(30 * S);
    }
}

#[test]
fn a_load_that_changes_right_after_a_trial_is_tried_at_once() {
    let noisy = Client {
        noise_percent: 60,
        ..CHEAP
    };
    let mut load = Load::auto(noisy, 50 * US);
    load.run(30 * S);
    for _ in 0..20 {
        load.client = noisy;
        load.run(2 * S);
        let trials = load.trials();
        while load.trials() == trials {
            load.turn();
        }
        load.client = DEAR;
        load.run(200 * MS);
        assert!(load.polls(1000) > 60);
    }
}

#[test]
fn a_trial_that_the_load_leaves_and_finds_again_holds_up_no_other() {
    for pause_s in [1, 10, 3600] {
        let mut load = Load::auto(CHEAP, 50 * US);
        while !load.policy.state().is_trying {
            load.turn();
        }
        load.gap(pause_s * S, pause_s * S);
        load.run(S);
        assert_eq!(load.policy.state().window_ns, 0);
        // Now polling pays.
        load.client = DEAR;
        load.run(S);
        assert!(load.polls(1000) > 90, "after {pause_s} s");
    }
}

#[test]
fn noise_does_not_decide() {
    for seed in 1..50 {
        let mut load = Load::auto(
            Client {
                noise_percent: 60,
                polled_ns: 40 * US,
                slept_ns: 41 * US,
                ..DEAR
            },
            50 * US,
        );
        load.random = seed;
        load.run(3 * S);
        assert_eq!(load.policy.state().changes, 0, "seed {seed}");
    }
}

#[test]
fn what_is_better_is_found_through_noise() {
    for seed in 1..50 {
        let mut load = Load::auto(
            Client {
                noise_percent: 60,
                ..DEAR
            },
            50 * US,
        );
        load.random = seed;
        load.run(S);
        assert!(load.polls(1000) > 90, "seed {seed}");
    }
}

#[test]
fn a_phase_in_which_something_else_had_the_core_changes_nothing() {
    for seed in 1..20 {
        let mut load = Load::auto(CHEAP, 50 * US);
        load.random = seed;
        for _ in 0..500 {
            let time = 2 * MS + load.random() * 10 * US;
            load.run(time);
            // For less than what counts as a pause.
            load.now += 900 * US;
        }
        assert_eq!(load.policy.state().changes, 0, "seed {seed}");
    }
}

#[test]
fn time_polled_in_vain_is_no_more_than_wake_ups_cost() {
    for gap_us in [60, 120, 450, 700, 900] {
        let mut load = Load::auto(
            Client {
                polled_ns: gap_us * US,
                slept_ns: gap_us * US,
                ..DEAR
            },
            50 * US,
        );
        load.run(5 * S);
        let bound = load.waits * 50 * US;
        assert!(load.vain_ns <= bound, "{} of {bound}", load.vain_ns);
        assert!(
            load.polled_ns < S / 10,
            "{}, gaps of {gap_us}",
            load.polled_ns
        );
    }
    // Half of the gaps are long, so that windows end in vain whatever the trials say.
    let mut load = Load::auto(DEAR, 50 * US);
    for _ in 0..100_000 {
        load.turn();
        load.gap(800 * US, 850 * US);
        assert!(load.vain_ns <= load.waits * 50 * US);
    }
}

#[test]
fn windows_that_end_in_vain_now_and_then_keep_no_way_from_being_taken() {
    let mut load = Load::auto(DEAR, 3 * US);
    let turns = |load: &mut Load, time| {
        let (began, mut turns) = (load.now, 0);
        while load.now - began < time {
            turns += 1;
            match turns % 10 {
                0 => load.gap(400 * US, 400 * US),
                _ => load.gap(12 * US, 60 * US),
            };
        }
        turns
    };
    turns(&mut load, S);
    let before = load.trials();
    let done = turns(&mut load, 60 * S);
    let best = 60 * S / (9 * (TURN_NS + 12 * US) + TURN_NS + 400 * US) * 10;
    assert!(done * 10 > best * 9, "{done} of {best}");
    assert!(load.trials() - before <= 12, "{}", load.trials());
}

#[test]
fn trials_become_rare_and_take_a_tenth_of_the_time_at_most() {
    let mut load = Load::auto(DEAR, 50 * US);
    let mut trying_ns = 0;
    let mut run = |load: &mut Load, time| {
        let end = load.now + time;
        while load.now < end {
            let began = load.now;
            load.turn();
            trying_ns += if load.policy.state().is_trying {
                load.now - began
            } else {
                0
            };
        }
        std::mem::take(&mut trying_ns)
    };
    let trying = run(&mut load, 2 * S);
    assert!(trying < S / 10, "{trying}");
    let trying = run(&mut load, 60 * S);
    assert!(trying < S / 4, "{trying}");
    assert!((7..=12).contains(&load.trials()), "{}", load.trials());
    // Whatever a load does.
    let mut trying = 0;
    for round in 0..200 {
        load.client.operations = 1 + round % 2 * 9;
        trying += run(&mut load, 300 * MS);
    }
    assert!(trying < 60 * S / 9, "{trying}");
}

#[test]
fn polling_keeps_to_the_budget() {
    for percent in [1, 10, 50] {
        for spin in [Spin::Auto, Spin::For { microseconds: 50 }] {
            let mut load = Load::new(spin, percent, DEAR, 50 * US);
            load.run(10 * S);
            let share = load.polled_ns * 100 / load.now;
            assert!(share <= u64::from(percent), "{share} of {percent}");
            // With little of it, a trial sees no difference.
            if percent == 50 || spin != Spin::Auto {
                assert!(share + 2 >= u64::from(percent), "{share} of {percent}");
            }
        }
    }
}

#[test]
fn a_fixed_window_is_polled_after_each_turn() {
    let spin = Spin::For { microseconds: 20 };
    let mut load = Load::new(spin, 100, DEAR, 50 * US);
    load.gap(10 * MS, 10 * MS);
    assert_eq!(load.polls(100), 100);
    let before = load.polled_ns;
    load.gap(S, S);
    assert_eq!(load.polled_ns - before, 20 * US, "and no longer");
    assert_eq!(load.trials(), 0);
}

#[test]
fn polling_pauses_while_others_want_the_core() {
    let mut load = Load::auto(DEAR, 50 * US);
    load.run(S);
    assert!(load.lose_half());
    assert_eq!(load.polls(50), 0, "4 ms");
    load.run(20 * MS);
    assert!(load.polls(500) > 90);
}

#[test]
fn a_trial_is_not_held_while_polling_pauses() {
    let mut load = Load::auto(DEAR, 50 * US);
    load.run(MS);
    assert!(load.lose_half());
    // All ways are sleeping as long as it pauses: a trial would find them even.
    load.run(9 * MS);
    assert_eq!(load.trials(), 0);
    load.run(S);
    assert!(load.polls(1000) > 90);
}

#[test]
fn trials_end_where_a_scheduler_delays_those_who_sleep() {
    let mut load = Load::auto(DEAR, 50 * US);
    for gap in 0..20_000 {
        if gap % 40 == 0 {
            load.gap(10 * US, 3 * MS);
        } else {
            load.turn();
        }
    }
    assert!(load.trials() > 0);
    assert!(load.polls(1000) > 90);
}

#[test]
fn a_neighbour_who_takes_the_core_now_and_then_does_not_stop_polling() {
    let mut load = Load::auto(DEAR, 50 * US);
    load.run(S);
    for _ in 0..50 {
        load.polls(5000);
        load.now += 3 * MS;
        let totals = load.totals();
        assert!(!load.policy.polled(load.now, totals, 3 * MS, 3 * MS, false));
    }
}

#[test]
fn off_never_polls() {
    for mut load in [
        Load::new(Spin::Off, 100, DEAR, 50 * US),
        Load::new(Spin::Auto, 0, DEAR, 50 * US),
    ] {
        assert!(load.policy.is_off());
        assert_eq!(load.polls(1000), 0);
    }
}

/// Requests are with the storage after each turn, so that no turn may poll.
#[test]
fn a_trial_ends_where_nothing_can_be_tried_any_more() {
    let mut load = Load::auto(DEAR, 50 * US);
    while !load.policy.state().is_trying {
        load.turn();
    }
    let not_waited = |load: &mut Load, time| {
        let end = load.now + time;
        while load.now < end {
            load.now += 100 * US;
            load.policy.not_waited(load.now, load.totals());
        }
    };
    // For a moment that is no reason.
    not_waited(&mut load, 5 * MS);
    assert!(load.policy.state().is_trying);
    not_waited(&mut load, 30 * MS);
    assert!(!load.policy.state().is_trying);
    // It is tried again once there is something to try.
    let trials = load.trials();
    load.run(2 * S);
    assert!(load.trials() > trials);
}
