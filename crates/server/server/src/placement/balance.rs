//! The decision to move connections from a busy shard to another one, and the choice of connections.
//!
//! A shard that is awake looks at the share of its time it works, over windows of 100 ms. It knows
//! that from the times it wakes and falls asleep, which are taken anyway. When it has been above that of the least
//! busy shard by a margin for some windows, it weighs its connections, and plans to move as much as makes
//! both equal: the heaviest connections that fit. One that makes most of the load by itself fits nowhere. A shard that
//! sleeps has nothing to give away, so nothing of this needs a timer.

use super::load::{Load, WINDOW_MS};
use super::migration::Migration;

/// A shard that works less keeps what it has: there is nothing to win.
const BUSY_LEAST: u64 = 300;
/// So much more than the other one a shard works before it gives anything away.
const MARGIN: u64 = 200;
/// For so many windows in a row. The first weight is taken in the second of them.
const WINDOWS: u32 = 3;
/// Millionths of the time that make a thousandth.
const FINE: u64 = 1000;
/// Connections with less, in millionths, stay: to move one takes some ten microseconds.
const WEIGHT_LEAST: u64 = 100;
/// A connection that moved stays there so long at least.
const REST_MS: u64 = 2000;
/// A plan that takes longer is out of date.
const PLAN_MS: u64 = 2 * WINDOW_MS;

/// What is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub to: usize,
    /// So many millionths of a shard's time.
    wanted: u64,
    /// The shard's own, when it was made, in millionths.
    share: u64,
    /// The weight of all its connections.
    total: u64,
    until_ms: u64,
}

impl Plan {
    /// How well a connection suits the plan; `None`: not at all.
    pub(crate) fn suits(&self, migration: &Migration, now_ms: u64) -> Option<u64> {
        let share = self.share_of(migration.weight);
        let fits = share >= WEIGHT_LEAST && share <= self.wanted + self.wanted / 2;
        (fits && !migration.moved_within(now_ms, REST_MS)).then_some(share)
    }

    /// A connection of that weight has gone. `None`: that was enough.
    pub(crate) fn after(self, weight: u64) -> Option<Self> {
        let wanted = self.wanted.saturating_sub(self.share_of(weight));
        (wanted >= WEIGHT_LEAST).then_some(Self { wanted, ..self })
    }

    /// Whether it is out of date.
    pub(crate) const fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }

    fn share_of(&self, weight: u64) -> u64 {
        let share = u128::from(self.share) * u128::from(weight) / u128::from(self.total.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// See the module documentation. Belongs to a shard.
#[derive(Debug)]
pub(crate) struct Balance {
    /// When the window ends.
    pub due_ms: u64,
    started_ms: u64,
    /// Nanoseconds not worked by then.
    idle_ns: u64,
    /// Windows in a row with too much to do.
    uneven: u32,
}

/// What to do at the end of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The loads are even: no connection moves.
    Even,
    /// Ask the busy shard for the load of its connections.
    Weigh,
    /// Weigh them and [plan](Balance::plan).
    Move {
        /// The least busy shard.
        to: usize,
        /// How much more this one works, in thousandths of the time.
        difference: u64,
        /// How much this one works.
        share: u64,
    },
}

impl Balance {
    pub(crate) const fn new(now_ms: u64) -> Self {
        Self {
            due_ms: now_ms + WINDOW_MS,
            started_ms: now_ms,
            idle_ns: 0,
            uneven: 0,
        }
    }

    /// The window is over. `idle_ns`: time spent otherwise than working since the shard started. Returns the
    /// share of the time that it worked, in thousandths.
    pub(crate) fn measure(&mut self, now_ms: u64, idle_ns: u64) -> u64 {
        let window_ns = (now_ms - self.started_ms) * 1_000_000;
        let idle = (idle_ns - self.idle_ns).min(window_ns);
        self.started_ms = now_ms;
        self.idle_ns = idle_ns;
        self.due_ms = now_ms + WINDOW_MS;
        (window_ns - idle) * 1000 / window_ns.max(1)
    }

    /// Compares the share of this shard with those of others.
    pub(crate) fn judge(
        &mut self,
        shard: usize,
        share: u64,
        loads: &[Load],
        now_ms: u64,
    ) -> Verdict {
        let others = loads.iter().enumerate();
        let others = others.filter(|(other, load)| *other != shard && !load.is_claimed(now_ms));
        let least = others
            .map(|(other, load)| (load.share(now_ms), other))
            .min();
        let difference = least.map_or(0, |(least, _)| share.saturating_sub(least));
        if share < BUSY_LEAST || difference < MARGIN {
            self.uneven = 0;
            return Verdict::Even;
        }
        self.uneven += 1;
        match least {
            Some((_, to)) if self.uneven >= WINDOWS => {
                self.uneven = 0;
                Verdict::Move {
                    to,
                    difference,
                    share,
                }
            }
            _ => Verdict::Weigh,
        }
    }

    /// A plan to make two shards equal. `difference` and `share`: in thousandths. `total`: the weight of all connections.
    pub(crate) const fn plan(
        to: usize,
        difference: u64,
        share: u64,
        total: u64,
        now_ms: u64,
    ) -> Plan {
        Plan {
            to,
            wanted: difference * FINE / 2,
            share: share * FINE,
            total,
            until_ms: now_ms + PLAN_MS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ConnectionAddress;

    fn weighing(weight: u64) -> Migration {
        let mut migration = Migration::new(ConnectionAddress {
            shard: 0,
            slot: 0,
            generation: 0,
        });
        migration.weigh(0, weight);
        migration
    }

    /// What leaves a shard whose connections have these weights.
    fn moved(weights: &[u64], own: u64, other: u64) -> Vec<u64> {
        let mut left: Vec<Migration> = weights.iter().map(|w| weighing(*w)).collect();
        let total = weights.iter().sum();
        let mut plan = Some(Balance::plan(1, own - other, own, total, 0));
        let mut moved = Vec::new();
        while let Some(current) = plan {
            let suited = left.iter().enumerate();
            let suited = suited.filter_map(|(i, r)| Some((current.suits(r, 0)?, i)));
            let Some((_, index)) = suited.max() else {
                break;
            };
            let weight = left.swap_remove(index).weight;
            moved.push(weight);
            plan = current.after(weight);
        }
        moved
    }

    #[test]
    fn half_of_equal_connections_go_to_a_shard_without_any() {
        assert_eq!(moved(&[1000; 2], 900, 0).len(), 1);
        assert_eq!(moved(&[1000; 8], 1000, 0).len(), 4);
        assert_eq!(moved(&[1000; 64], 1000, 0).len(), 32);
        let very_many = moved(&[7; 3000], 400, 0).len();
        assert!((1490..=1510).contains(&very_many), "{very_many}");
    }

    #[test]
    fn a_connection_that_makes_all_the_load_stays() {
        assert!(moved(&[1_000_000, 0, 0], 1000, 0).is_empty());
        assert!(moved(&[1_000_000], 1000, 0).is_empty());
    }

    #[test]
    fn light_ones_make_room_for_one_that_fits_nowhere() {
        assert_eq!(moved(&[800_000, 100_000, 100_000], 1000, 0).len(), 2);
    }

    #[test]
    fn what_moves_never_makes_the_other_shard_the_busier_one_by_as_much() {
        for own in (300_u64..=1000).step_by(50) {
            for other in (0..own.saturating_sub(MARGIN)).step_by(50) {
                for weights in [&[5, 3, 2][..], &[9, 1], &[4, 4, 1, 1], &[1; 10]] {
                    let total: u64 = weights.iter().sum();
                    let gone: u64 = moved(weights, own, other).iter().sum();
                    let share = own * gone / total;
                    let after = (own - share).abs_diff(other + share);
                    assert!(after <= own - other, "{own} {other} {weights:?}");
                }
            }
        }
    }

    #[test]
    fn a_short_peak_moves_nothing() {
        let mut balance = Balance::new(0);
        let loads = Load::of_shards(&[1000, 0], 100);
        assert_eq!(balance.judge(0, 1000, &loads, 100), Verdict::Weigh);
        assert_eq!(balance.judge(0, 1000, &loads, 200), Verdict::Weigh);
        assert_eq!(balance.judge(0, 100, &loads, 300), Verdict::Even);
        assert_eq!(balance.judge(0, 1000, &loads, 400), Verdict::Weigh);
    }

    #[test]
    fn lasting_load_moves_to_the_least_busy_shard_that_nobody_else_gives_to() {
        let mut balance = Balance::new(0);
        let loads = Load::of_shards(&[1000, 100, 50, 400], 100);
        assert!(loads[2].claim(100));
        for _ in 1..WINDOWS {
            assert_eq!(balance.judge(0, 1000, &loads, 100), Verdict::Weigh);
        }
        let verdict = balance.judge(0, 1000, &loads, 100);
        let expected = Verdict::Move {
            to: 1,
            difference: 900,
            share: 1000,
        };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn shards_with_little_to_do_keep_it() {
        let mut balance = Balance::new(0);
        let loads = Load::of_shards(&[0, 0], 100);
        for _ in 0..10 {
            assert_eq!(balance.judge(0, 250, &loads, 100), Verdict::Even);
        }
    }

    #[test]
    fn a_connection_that_has_just_moved_stays() {
        let plan = Balance::plan(1, 1000, 1000, 100, 10_000);
        let mut migration = weighing(50);
        assert_eq!(plan.suits(&migration, 10_000), Some(500_000));
        migration.moved_ms = Some(9_000);
        assert_eq!(plan.suits(&migration, 10_000), None);
    }

    #[test]
    fn the_share_is_what_was_not_spent_idle() {
        let mut balance = Balance::new(0);
        assert_eq!(balance.measure(100, 25_000_000), 750);
        assert_eq!(balance.measure(300, 225_000_000), 0);
        assert_eq!(balance.measure(400, 225_000_000), 1000);
    }
}
