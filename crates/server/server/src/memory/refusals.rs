//! The order in which refused commands get scarce memory. They cannot wait for it themselves.
//!
//! An iSCSI command whose write data find no memory is refused, and its initiator sends it again a little later.
//! Freed memory goes to the first that asks, which is often the connection that has just ended a write: others could
//! be refused for ever. So a connection that is refused while it has no memory for write data at all gets a place in
//! a line, for one command, and leaves to those before it what they were refused:
//!
//! ```text
//!  line:    [ C 64 KiB, A 64 KiB, F 128 KiB ]        free: 160 KiB
//!             │         │         └ a write of F: 128 KiB before it, not enough left: refused again, keeps its place
//!             │         └ a write of A: 64 KiB before it, enough left: gets it, and its place ends
//!             └ may come whenever it likes
//!  a write of D, which has memory for other writes: 256 KiB before it: refused, without a place
//! ```
//!
//! Reads that wait leave a sixteenth of all memory to them. Who does not come back in time loses the place. (Places for
//! all that are refused would share more evenly still while each has something; but what is left to them lies unused
//! until they come back, and with memory for an eighth of what was asked for a fifth less got done.)

use std::collections::VecDeque;

/// So long a place is kept for somebody who does not come back. Initiators try again after some milliseconds.
const KEPT_MS: u64 = 50;

/// See the module documentation. Belongs to a shard.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    places: VecDeque<Refused>,
    /// When the place of each connection ends, by slot. Zero: it has none.
    until_ms: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    slot: u32,
    bytes: usize,
}

impl Refusals {
    /// Nobody has a place.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a connection may have so many bytes of what is free.
    pub(crate) fn admits(&mut self, slot: u32, bytes: usize, free: usize, now_ms: u64) -> bool {
        self.expire(now_ms);
        let mut left = free;
        for place in &self.places {
            if place.slot == slot || left < bytes {
                break;
            }
            left = left.saturating_sub(place.bytes);
        }
        bytes <= left
    }

    /// Ends places of those that did not come back in time.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        while let Some(first) = self.places.front()
            && self.until_ms[first.slot as usize] <= now_ms
        {
            self.until_ms[first.slot as usize] = 0;
            self.places.pop_front();
        }
    }

    /// A connection was refused so many bytes: it has a place, or keeps the one it has.
    #[cold]
    pub(crate) fn refuse(&mut self, slot: u32, bytes: usize, now_ms: u64) {
        let index = slot as usize;
        if self.until_ms.len() <= index {
            self.until_ms.resize(index + 1, 0);
        }
        if std::mem::replace(&mut self.until_ms[index], now_ms + KEPT_MS) == 0 {
            self.places.push_back(Refused { slot, bytes });
        }
    }

    /// A connection has got what it wanted, or is over.
    pub(crate) fn forget(&mut self, slot: u32) {
        if let Some(until) = self.until_ms.get_mut(slot as usize)
            && std::mem::take(until) != 0
        {
            let mut places = self.places.iter();
            if let Some(index) = places.position(|place| place.slot == slot) {
                self.places.remove(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000;

    /// What a connection with that much free does: takes it or gets a place.
    fn ask(refusals: &mut Refusals, slot: u32, bytes: usize, free: usize) -> bool {
        let admitted = refusals.admits(slot, bytes, free, NOW);
        if admitted {
            refusals.forget(slot);
        } else {
            refusals.refuse(slot, bytes, NOW);
        }
        admitted
    }

    #[test]
    fn who_was_refused_first_comes_first() {
        let mut refusals = Refusals::default();
        for slot in [3, 1, 2] {
            assert!(!ask(&mut refusals, slot, 64, 0));
        }
        // Enough for one, whoever asks first.
        for slot in [2, 1, 9] {
            assert!(!ask(&mut refusals, slot, 64, 64), "{slot}");
        }
        assert!(ask(&mut refusals, 3, 64, 64));
        // It goes behind the others with its next one.
        for slot in [3, 2] {
            assert!(!ask(&mut refusals, slot, 64, 64), "{slot}");
        }
        // Enough for two: what the first of them leaves is there for the second.
        assert!(ask(&mut refusals, 2, 64, 128));
        assert!(ask(&mut refusals, 1, 64, 64));
        assert!(ask(&mut refusals, 9, 64, 64));
        assert!(ask(&mut refusals, 3, 64, 64));
        assert!(refusals.is_empty());
        assert!(ask(&mut refusals, 5, 64, 64));
    }

    #[test]
    fn who_does_not_come_back_keeps_nothing_from_others_for_long() {
        let mut refusals = Refusals::default();
        for slot in [0, 1] {
            refusals.refuse(slot, 64, NOW);
        }
        refusals.refuse(1, 64, NOW + KEPT_MS - 1);
        assert!(!refusals.admits(2, 64, 128, NOW + KEPT_MS - 1));
        assert!(refusals.admits(2, 64, 128, NOW + KEPT_MS));
        assert!(!refusals.admits(2, 64, 127, NOW + KEPT_MS));
        assert!(refusals.admits(2, 64, 64, NOW + 2 * KEPT_MS));
        assert!(refusals.is_empty());
    }

    #[test]
    fn a_connection_that_is_over_has_no_place() {
        let mut refusals = Refusals::default();
        refusals.forget(7);
        for slot in 0..3 {
            refusals.refuse(slot, 64, NOW);
        }
        refusals.forget(0);
        refusals.forget(0);
        assert!(ask(&mut refusals, 1, 64, 64));
        refusals.forget(2);
        assert!(refusals.is_empty());
    }
}
