//! How often an initiator, or an NVMe host, may try to guess a secret of CHAP or DH-HMAC-CHAP.
//!
//! | failures counted for | free | then |
//! |---|---|---|
//! | an initiator name from an address | 5 | each failure doubles a pause, from 1 s to the limit of the configuration |
//! | an address, whatever names come from it | 20 | the same |
//!
//! Logins during a pause are refused before anything is proved, right secret or not, as if the target had no time for
//! them. A name alone counts for nothing: others could keep its owner out. A good login forgets the failures of its name
//! and address, and the pauses of the address do not hold for that name for a day: who shares an address (NAT) with one that
//! guesses gets in. The machine's own addresses, where tunnels end, have no pauses but those of names. Addresses of IPv6 count
//! by their first 64 bits, because a host has all of those behind them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Failures without a pause.
const FREE_OF_NAME: u32 = 5;
const FREE_OF_ADDRESS: u32 = 20;

/// The pause after the first failure.
const PAUSE_MS: u64 = 1000;

/// Entries; beyond, the one with the oldest failure makes room.
const ENTRIES_MAX: usize = 4096;

/// Failures that are older count no more.
const MEMORY_MS: u64 = 15 * 60 * 1000;

/// How long a name that has logged in from an address is spared the pauses of that address.
const SPARED_MS: u64 = 24 * 60 * 60 * 1000;

/// Where failures come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    address: IpAddr,
    /// `None`: all of them.
    initiator: Option<String>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    last_ms: u64,
    paused_until_ms: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Attempts {
    /// The longest pause; 0: none at all.
    pause_ms_max: u64,
    known: Mutex<Known>,
}

/// What is known of those who have come lately. Both tables have [`ENTRIES_MAX`] entries at most.
#[derive(Debug, Default)]
struct Known {
    failures: HashMap<Source, Failures>,
    /// When a name has logged in from an address last.
    successes: HashMap<Source, u64>,
}

impl Attempts {
    pub(crate) fn new(pause_max: Duration) -> Self {
        Self {
            pause_ms_max: u64::try_from(pause_max.as_millis()).unwrap_or(u64::MAX),
            known: Mutex::default(),
        }
    }

    /// Whether a login may prove something now.
    pub(crate) fn may_try(&self, address: IpAddr, initiator: &str, now_ms: u64) -> bool {
        let known = self.lock();
        let [(own, _), (all, _)] = sources(address, initiator);
        let is_paused = |source: &Source| {
            let failures = known.failures.get(source);
            failures.is_some_and(|failures| failures.paused_until_ms > now_ms)
        };
        if is_paused(&own) {
            return false;
        }
        let success = known.successes.get(&own);
        let is_spared = success.is_some_and(|at| at.saturating_add(SPARED_MS) >= now_ms);
        is_spared || !is_paused(&all)
    }

    /// A proof was wrong. Returns the pause that follows, if there is one.
    pub(crate) fn failed(&self, address: IpAddr, initiator: &str, now_ms: u64) -> Option<Duration> {
        if self.pause_ms_max == 0 {
            return None;
        }
        let mut guard = self.lock();
        let failures = &mut guard.failures;
        let mut longest = 0;
        let is_loopback = address.to_canonical().is_loopback();
        for (source, free) in sources(address, initiator) {
            if is_loopback && source.initiator.is_none() {
                continue;
            }
            if failures.len() >= ENTRIES_MAX && !failures.contains_key(&source) {
                make_room(failures, MEMORY_MS, now_ms, |known| known.last_ms);
            }
            let known = failures.entry(source).or_default();
            if known.last_ms.saturating_add(MEMORY_MS) < now_ms {
                known.count = 0;
            }
            known.count = known.count.saturating_add(1);
            known.last_ms = now_ms;
            if let Some(beyond) = known.count.checked_sub(free + 1) {
                let doubled = PAUSE_MS.saturating_mul(1 << beyond.min(32));
                let pause_ms = doubled.min(self.pause_ms_max);
                known.paused_until_ms = now_ms.saturating_add(pause_ms);
                longest = longest.max(pause_ms);
            }
        }
        (longest > 0).then(|| Duration::from_millis(longest))
    }

    /// A proof was right.
    pub(crate) fn succeeded(&self, address: IpAddr, initiator: &str, now_ms: u64) {
        if self.pause_ms_max == 0 {
            return;
        }
        let [(own, _), _] = sources(address, initiator);
        let mut known = self.lock();
        known.failures.remove(&own);
        let successes = &mut known.successes;
        if successes.len() >= ENTRIES_MAX && !successes.contains_key(&own) {
            make_room(successes, SPARED_MS, now_ms, |at| *at);
        }
        successes.insert(own, now_ms);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a failure counts for, and how many are free there.
fn sources(address: IpAddr, initiator: &str) -> [(Source, u32); 2] {
    let address = network(address);
    let own = Source {
        address,
        initiator: Some(initiator.to_owned()),
    };
    let all = Source {
        address,
        initiator: None,
    };
    [(own, FREE_OF_NAME), (all, FREE_OF_ADDRESS)]
}

/// What counts as one address.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    const PREFIX: u128 = !0 << 64;
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => std::net::Ipv6Addr::from_bits(address.to_bits() & PREFIX).into(),
    }
}

/// Forgets what counts no more, or else what is oldest.
fn make_room<T>(
    table: &mut HashMap<Source, T>,
    counts_ms: u64,
    now_ms: u64,
    last_ms: impl Fn(&T) -> u64,
) {
    table.retain(|_, entry| last_ms(entry).saturating_add(counts_ms) >= now_ms);
    if table.len() < ENTRIES_MAX {
        return;
    }
    let oldest = table.iter().min_by_key(|(_, entry)| last_ms(entry));
    if let Some(oldest) = oldest.map(|(source, _)| source.clone()) {
        table.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn pauses_double_up_to_their_limit_and_end() {
        let attempts = Attempts::new(Duration::from_secs(5));
        for _ in 0..FREE_OF_NAME {
            assert_eq!(attempts.failed(address(1), "a", 0), None);
            assert!(attempts.may_try(address(1), "a", 0));
        }
        for seconds in [1, 2, 4, 5, 5] {
            let pause = attempts.failed(address(1), "a", 0);
            assert_eq!(pause, Some(Duration::from_secs(seconds)));
            assert!(!attempts.may_try(address(1), "a", seconds * 1000 - 1));
            assert!(attempts.may_try(address(1), "a", seconds * 1000));
        }
    }

    #[test]
    fn others_are_not_kept_out_with_a_name() {
        let attempts = Attempts::new(HOUR);
        for _ in 0..=FREE_OF_NAME {
            attempts.failed(address(1), "a", 0);
        }
        assert!(!attempts.may_try(address(1), "a", 0));
        assert!(attempts.may_try(address(2), "a", 0));
        assert!(attempts.may_try(address(1), "b", 0));
    }

    #[test]
    fn an_address_cannot_go_on_under_other_names() {
        let attempts = Attempts::new(HOUR);
        for number in 0..=FREE_OF_ADDRESS {
            attempts.failed(address(1), &number.to_string(), 0);
        }
        assert!(!attempts.may_try(address(1), "another", 0));
        let within = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, last]);
        for number in 0..=FREE_OF_ADDRESS {
            let last = u16::try_from(number).unwrap();
            attempts.failed(within(last), &number.to_string(), 0);
        }
        assert!(!attempts.may_try(within(999), "another", 0));
    }

    #[test]
    fn a_good_login_and_time_forget_failures() {
        let attempts = Attempts::new(HOUR);
        for _ in 0..FREE_OF_NAME {
            attempts.failed(address(1), "a", 0);
        }
        attempts.succeeded(address(1), "a", 0);
        assert_eq!(attempts.failed(address(1), "a", 0), None);
        for _ in 0..FREE_OF_NAME {
            attempts.failed(address(2), "a", 0);
        }
        assert_eq!(attempts.failed(address(2), "a", MEMORY_MS + 1), None);
    }

    #[test]
    fn who_has_logged_in_from_an_address_is_spared_what_others_there_do() {
        let attempts = Attempts::new(HOUR);
        attempts.succeeded(address(1), "good", 0);
        for _ in 0..=FREE_OF_ADDRESS {
            attempts.failed(address(1), "bad", 1);
        }
        assert!(attempts.may_try(address(1), "good", 1));
        assert!(!attempts.may_try(address(1), "bad", 1));
        assert!(!attempts.may_try(address(1), "another", 1));
        // Its name has its own pauses, and it is spared for a day.
        for _ in 0..=FREE_OF_NAME {
            attempts.failed(address(1), "good", 2);
        }
        assert!(!attempts.may_try(address(1), "good", 2));
        let attempts = Attempts::new(HOUR);
        attempts.succeeded(address(1), "good", 0);
        for _ in 0..=FREE_OF_ADDRESS {
            attempts.failed(address(1), "bad", SPARED_MS + 1);
        }
        assert!(!attempts.may_try(address(1), "good", SPARED_MS + 1));
    }

    #[test]
    fn tunnels_that_end_here_are_paused_by_name_only() {
        let attempts = Attempts::new(HOUR);
        for own in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let own: IpAddr = own.parse().unwrap();
            for _ in 0..=FREE_OF_ADDRESS {
                attempts.failed(own, "bad", 0);
            }
            assert!(!attempts.may_try(own, "bad", 0));
            assert!(attempts.may_try(own, "good", 0));
        }
    }

    #[test]
    fn tables_stay_within_their_limit() {
        let attempts = Attempts::new(HOUR);
        for number in 0..2 * ENTRIES_MAX {
            let bytes = u32::try_from(number).unwrap().to_be_bytes();
            attempts.failed(bytes.into(), "a", number as u64);
            attempts.succeeded(bytes.into(), "b", number as u64);
        }
        assert!(attempts.lock().successes.len() <= ENTRIES_MAX);
        assert!(attempts.lock().failures.len() <= ENTRIES_MAX);
        let last = u32::try_from(2 * ENTRIES_MAX - 1).unwrap().to_be_bytes();
        assert!(
            attempts
                .lock()
                .failures
                .contains_key(&sources(last.into(), "a")[0].0)
        );
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let attempts = Attempts::new(Duration::ZERO);
        for _ in 0..100 {
            assert_eq!(attempts.failed(address(1), "a", 0), None);
        }
        assert!(attempts.may_try(address(1), "a", 0));
    }
}
