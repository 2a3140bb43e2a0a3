//! Progress of peers while memory is short.
//!
//! The clocks of [`super::stall`] restart with each byte. That is right as long as there is memory for all. While a
//! connection finds none, a peer that moves a byte now and then would keep what it holds from others. So each direction
//! also has a window. Once it has been open for as long as is tolerated, the peer must have moved the *part* that is
//! due, and the window opens anew:
//!
//! ```text
//! part due = max(64 KiB, a sixteenth of the memory that waits for the peer)
//! ```
//!
//! | window | open while | counts |
//! |---|---|---|
//! | taking | something waits to be sent | bytes that are sent, or that the peer acknowledges, whichever is more |
//! | giving | write data were asked for; it pauses while something waits to be sent | bytes of write data |
//!
//! Windows are looked at only while memory is short. What storage works on does not wait for the peer.

/// The least part due.
const PART_MIN: u64 = 64 << 10;
/// The part due of what waits for the peer.
const PART: u64 = 16;

/// Bytes of payload memory that wait for the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Read data that it has to take.
    pub taking: usize,
    /// Memory for write data that it was asked for.
    pub giving: usize,
}

/// What a peer has moved in one direction, and since when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    /// When it was opened. A time for which it pauses is left out.
    since_ms: Option<u64>,
    /// Since when it pauses.
    paused_ms: Option<u64>,
    moved: u64,
    /// What the peer had acknowledged when the kernel was asked first.
    acknowledged_then: Option<u64>,
    /// What it has acknowledged since.
    acknowledged: u64,
}

impl Window {
    /// Something is to move, or nothing is. An open window stays as it is.
    #[inline]
    pub(super) fn expect(&mut self, moves: bool, now_ms: u64) {
        if !moves {
            self.since_ms = None;
        } else if self.since_ms.is_none() {
            self.open(now_ms);
        }
    }

    /// Whether the peer cannot know yet what is to move.
    #[inline]
    pub(super) fn pause(&mut self, pauses: bool, now_ms: u64) {
        if pauses {
            self.paused_ms.get_or_insert(now_ms);
        } else if let Some(paused_ms) = self.paused_ms.take() {
            let paused_for = now_ms.saturating_sub(paused_ms);
            self.since_ms = self.since_ms.map(|since| since.saturating_add(paused_for));
        }
    }

    #[inline]
    pub(super) fn moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes as u64);
    }

    /// The kernel was asked: the peer has acknowledged so many bytes of all. With the first answer the window opens
    /// anew: what the peer had acknowledged before is not known.
    pub(super) fn acknowledges(&mut self, acknowledged: u64, now_ms: u64) {
        if self.acknowledged_then.is_none() {
            self.restart(now_ms);
        }
        let then = *self.acknowledged_then.get_or_insert(acknowledged);
        self.acknowledged = acknowledged.saturating_sub(then);
    }

    /// Opens anew, if it is open.
    pub(super) fn restart(&mut self, now_ms: u64) {
        if self.since_ms.is_some() {
            *self = Self {
                since_ms: Some(now_ms),
                paused_ms: self.paused_ms.map(|_| now_ms),
                moved: 0,
                acknowledged_then: self.acknowledged_then.map(|then| then + self.acknowledged),
                acknowledged: 0,
            };
        }
    }

    fn open(&mut self, now_ms: u64) {
        *self = Self {
            since_ms: Some(now_ms),
            ..Self::default()
        };
    }

    /// The shard stood still until then.
    pub(super) fn stood_still_until(&mut self, until_ms: u64) {
        self.since_ms = self.since_ms.map(|since| since.max(until_ms));
    }

    /// For how long it has been open without the part that is due for so many bytes.
    pub(super) fn lacking_ms(&self, waiting: usize, now_ms: u64) -> Option<u64> {
        let lacks = self.moved.max(self.acknowledged) < part_due(waiting);
        let until = self.paused_ms.unwrap_or(now_ms);
        let since = self.since_ms.filter(|_| waiting > 0 && lacks)?;
        Some(until.saturating_sub(since))
    }

    /// Whether it has been open for so long, with the part that is due.
    pub(super) fn is_met(&self, waiting: usize, tolerated_ms: u64, now_ms: u64) -> bool {
        let is_old = self
            .since_ms
            .is_some_and(|since| now_ms.saturating_sub(since) >= tolerated_ms);
        is_old && self.lacking_ms(waiting, now_ms).is_none()
    }
}

fn part_due(waiting: usize) -> u64 {
    (waiting as u64 / PART).max(PART_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    fn open() -> Window {
        let mut window = Window::default();
        window.expect(true, 1_000);
        window
    }

    #[test]
    fn a_byte_now_and_then_is_not_the_part_due() {
        let mut window = open();
        for _ in 0..100 {
            window.moved(1);
        }
        window.expect(true, 5_000);
        assert_eq!(window.lacking_ms(KIB, 11_000), Some(10_000));
        window.moved(64 * KIB);
        assert_eq!(window.lacking_ms(MIB, 11_000), None);
        // More is due of what is more.
        assert_eq!(window.lacking_ms(2 * MIB, 11_000), Some(10_000));
        assert_eq!(part_due(16 * MIB), MIB as u64);
        // Nothing waits for it.
        assert_eq!(window.lacking_ms(0, 11_000), None);
    }

    #[test]
    fn the_part_due_counts_once() {
        let mut window = open();
        window.moved(MIB);
        assert!(!window.is_met(MIB, 10_000, 10_999) && window.is_met(MIB, 10_000, 11_000));
        window.restart(11_000);
        assert_eq!(window.lacking_ms(MIB, 20_000), Some(9_000));
        window.expect(false, 20_000);
        window.restart(21_000);
        assert_eq!(window.lacking_ms(MIB, 30_000), None);
    }

    #[test]
    fn what_is_acknowledged_counts_from_the_first_question_on() {
        let mut window = open();
        window.moved(MIB);
        window.acknowledges(5_000_000, 2_000);
        assert_eq!(window.lacking_ms(MIB, 3_000), Some(1_000));
        window.acknowledges(5_100_000, 3_000);
        assert_eq!(window.lacking_ms(MIB, 3_000), None);
        window.restart(3_000);
        window.acknowledges(5_150_000, 4_000);
        assert_eq!(window.lacking_ms(MIB, 5_000), Some(2_000));
        window.acknowledges(5_200_000, 5_000);
        assert_eq!(window.lacking_ms(MIB, 5_000), None);
    }

    #[test]
    fn a_pause_does_not_count_and_does_not_open_the_window_anew() {
        let mut window = open();
        window.pause(true, 3_000);
        window.pause(true, 4_000);
        assert_eq!(window.lacking_ms(MIB, 50_000), Some(2_000));
        window.pause(false, 50_000);
        assert_eq!(window.lacking_ms(MIB, 51_000), Some(3_000));
        window.pause(true, 51_000);
        window.restart(60_000);
        window.pause(false, 70_000);
        assert_eq!(window.lacking_ms(MIB, 71_000), Some(1_000));
        window.stood_still_until(70_500);
        assert_eq!(window.lacking_ms(MIB, 71_000), Some(500));
    }
}
