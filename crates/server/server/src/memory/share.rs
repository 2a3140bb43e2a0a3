//! Payload memory of one host or initiator, over all of its connections.
//!
//! A connection is bounded by itself, but a peer may have hundreds. So what the connections of one host hold is added
//! up: it gets at most three quarters of the memory, however many connections it opens, while there
//! are others (alone it may have all), and a peer that holds next to nothing gets memory for a small read or write although
//! others have used up all of theirs.
//!
//! ```text
//!  0                                           3/4 M                      M        17/16 M     18/16 M
//!  ├─── one host ────────────────────────────────┤                        │            │           │
//!  ├─── all hosts ────────────────────────────────────────────────────────┤            │           │
//!  ├─── those that hold less than 256 KiB ─────────────────────────────────────────────┤           │
//!  ├─── data that has arrived already ─────────────────────────────────────────────────────────────┤
//! ```
//!
//! The part for newcomers is used only while no connection gets memory for a moment: as long as some comes back, all
//! get it in turn. Peers that take nothing could use up the part for newcomers as well, if there are enough of them.
//! They are cut ([`crate::transport::stall`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A host that holds no more than this is a newcomer.
const NEWCOMER_BYTES: usize = 256 << 10;
/// The table is looked through for hosts that are gone when it has so many entries.
const FORGET_AT_LEAST: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// An iSCSI initiator, by its name.
    Initiator(String),
    /// An NVMe host, by HOSTNQN.
    Host(String),
    /// One without a name, by HOSTID.
    Nameless([u8; 16]),
}

/// What the connections of one holder have. Each has its own until it is known whose it is.
#[derive(Debug, Default)]
pub(crate) struct Share {
    held_bytes: AtomicUsize,
    /// Holders that there are.
    holders: Arc<AtomicUsize>,
}

impl Share {
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.holders.load(Ordering::Relaxed) <= 1
    }

    /// Counts so much more as held, if the holder may have it. The check and the count are one: connections on other
    /// shards may do the same at this moment.
    fn claim(&self, wanted: usize, memory: usize) -> bool {
        let is_alone = self.is_alone();
        let claimed = |held: usize| {
            let may = is_alone || may_hold(held, wanted, memory);
            may.then(|| held.saturating_add(wanted.next_power_of_two()))
        };
        let held = &self.held_bytes;
        held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed)
            .is_ok()
    }

    /// A connection that held `before` bytes holds `after` now.
    fn note(&self, before: usize, after: usize) {
        // Relaxed: the counter guards an amount, not other memory. What is noted as `before` has been added once.
        if after > before {
            self.held_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.held_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // That of a connection of which nobody knows whose it is counts for itself only.
        self.holders.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The shares of all holders.
#[derive(Debug, Default)]
pub(crate) struct Shares(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    shares: HashMap<Holder, Weak<Share>>,
    forget_at: usize,
    /// Shares that there are.
    holders: Arc<AtomicUsize>,
}

impl Shares {
    /// The share of a holder.
    pub(crate) fn of(&self, holder: Holder) -> Arc<Share> {
        let mut table = self.0.lock().expect("nothing panics under this lock");
        if table.shares.len() >= table.forget_at.max(FORGET_AT_LEAST) {
            table.shares.retain(|_, share| share.strong_count() > 0);
            table.forget_at = 2 * table.shares.len();
        }
        let holders = Arc::clone(&table.holders);
        let known = table.shares.entry(holder).or_default();
        known.upgrade().unwrap_or_else(|| {
            holders.fetch_add(1, Ordering::Relaxed);
            let share = Arc::new(Share {
                held_bytes: AtomicUsize::new(0),
                holders,
            });
            *known = Arc::downgrade(&share);
            share
        })
    }
}

/// What one connection has noted in its holder's share.
#[derive(Debug, Default)]
pub(crate) struct Stake {
    pub(super) share: Arc<Share>,
    noted: usize,
}

impl Stake {
    /// It is known whose connection it is.
    pub(crate) fn belongs_to(&mut self, share: Arc<Share>) {
        self.share.note(self.noted, 0);
        share.note(0, self.noted);
        self.share = share;
    }

    pub(super) fn claim(&mut self, wanted: usize, memory: usize) -> bool {
        let claimed = self.share.claim(wanted, memory);
        if claimed {
            self.noted += wanted.next_power_of_two();
        }
        claimed
    }

    #[inline]
    pub(super) fn note(&mut self, held: usize) {
        if held != self.noted {
            self.share.note(self.noted, held);
            self.noted = held;
        }
    }
}

impl Drop for Stake {
    fn drop(&mut self) {
        self.share.note(self.noted, 0);
    }
}

/// Most that one holder gets of so much memory.
pub(super) const fn holder_max(memory: usize) -> usize {
    memory / 4 * 3
}

/// Whether somebody who holds so much may have so much more.
pub(super) fn may_hold(held: usize, wanted: usize, memory: usize) -> bool {
    // What is larger than all it gets can only be had alone.
    held == 0 || held.saturating_add(wanted.next_power_of_two()) <= holder_max(memory)
}

pub(super) fn is_newcomer(held: usize, wanted: usize) -> bool {
    wanted <= NEWCOMER_BYTES && held + wanted.next_power_of_two() <= NEWCOMER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn host(name: &str) -> Holder {
        Holder::Host(name.to_owned())
    }

    #[test]
    fn connections_that_ask_at_the_same_time_get_no_more_than_the_share() {
        const MEMORY: usize = 64 * MIB;
        let shares = Shares::default();
        let _other = shares.of(host("other"));
        let start = std::sync::Barrier::new(4);
        let stakes: Vec<Stake> = std::thread::scope(|scope| {
            let ask = || {
                let mut stake = Stake::default();
                stake.belongs_to(shares.of(host("a")));
                start.wait();
                while stake.claim(4096, MEMORY) {}
                stake
            };
            let asking: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            asking.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let share = shares.of(host("a"));
        assert_eq!(share.held_bytes(), holder_max(MEMORY));
        // They got none of it.
        for mut stake in stakes {
            stake.note(0);
        }
        assert_eq!(share.held_bytes(), 0);
        // Alone it may have all.
        drop((share, _other));
        let mut stake = Stake::default();
        stake.belongs_to(shares.of(host("a")));
        assert!(stake.claim(MIB, MEMORY) && stake.claim(MEMORY, MEMORY));
    }

    #[test]
    fn connections_of_one_holder_have_one_share() {
        let shares = Shares::default();
        let mut stakes: Vec<Stake> = (0..3).map(|_| Stake::default()).collect();
        // Part of it before it is known whose connection it is.
        stakes[0].note(100);
        for stake in &mut stakes {
            stake.belongs_to(shares.of(host("a")));
            stake.note(1000);
        }
        let share = shares.of(host("a"));
        assert_eq!(share.held_bytes(), 3000);
        assert_eq!(shares.of(host("b")).held_bytes(), 0);
        let initiator = Holder::Initiator("a".to_owned());
        assert_eq!(shares.of(initiator).held_bytes(), 0);
        stakes[1].note(10);
        stakes.pop();
        assert_eq!(share.held_bytes(), 1010);
        drop(stakes);
        assert_eq!(share.held_bytes(), 0);
    }

    #[test]
    fn a_holder_knows_whether_it_is_alone() {
        let shares = Shares::default();
        let one = shares.of(host("a"));
        let same = shares.of(host("a"));
        assert!(one.is_alone() && Share::default().is_alone());
        let other = shares.of(host("b"));
        assert!(!one.is_alone() && !other.is_alone());
        drop((one, other));
        assert!(same.is_alone());
    }

    #[test]
    fn holders_that_are_gone_are_forgotten() {
        let shares = Shares::default();
        let kept = shares.of(host("kept"));
        kept.note(0, 7);
        for number in 0..10_000 {
            shares.of(host(&number.to_string()));
        }
        assert!(shares.0.lock().unwrap().shares.len() <= FORGET_AT_LEAST);
        assert_eq!(shares.of(host("kept")).held_bytes(), 7);
    }

    #[test]
    fn a_holder_gets_three_quarters_and_a_newcomer_something_small() {
        let memory = 64 * MIB;
        assert!(may_hold(0, 200 * MIB, memory), "nobody else could have it");
        assert!(may_hold(47 * MIB, MIB, memory));
        assert!(!may_hold(47 * MIB, MIB + 1, memory));
        assert!(is_newcomer(0, 256 << 10));
        assert!(is_newcomer(128 << 10, 128 << 10));
        assert!(!is_newcomer(4096, 256 << 10));
        assert!(!is_newcomer(0, MIB) && !is_newcomer(0, usize::MAX / 2));
    }
}
