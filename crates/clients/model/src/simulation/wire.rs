//! The wires, one for each direction, and the kernels behind them.

use std::collections::VecDeque;

use super::stream::Train;
use super::time::Time;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Response,
}

impl Direction {
    pub(super) fn reverse(self) -> Self {
        match self {
            Self::Request => Self::Response,
            Self::Response => Self::Request,
        }
    }
}

/// A wire that serves connections in turn.
#[derive(Debug, Default)]
pub(super) struct Wire {
    queues: Vec<VecDeque<Train>>,
    /// Connections that have trains.
    order: VecDeque<usize>,
    /// What is on it now.
    pub now: Option<Train>,
    /// What is on its way behind the wire.
    pub away: VecDeque<Train>,
    pub busy_ns: Time,
    /// Time of what passes at once after a pause.
    burst_ns: Time,
    /// When a token bucket is full again.
    full_at: Time,
}

impl Wire {
    pub(super) fn new(connections: usize, burst_ns: Time) -> Self {
        Self {
            queues: vec![VecDeque::new(); connections],
            burst_ns,
            ..Self::default()
        }
    }

    /// When a train has passed that comes at a time, and takes so long without a bucket.
    pub(super) fn pass(&mut self, from: Time, time: Time) -> Time {
        self.busy_ns += time;
        self.full_at = self.full_at.max(from) + time;
        self.full_at.saturating_sub(self.burst_ns).max(from)
    }

    pub(super) fn push(&mut self, train: Train) {
        let queue = &mut self.queues[train.connection];
        if queue.is_empty() {
            self.order.push_back(train.connection);
        }
        queue.push_back(train);
    }

    /// The next train to go on the wire.
    pub(super) fn next(&mut self) -> Option<Train> {
        let connection = self.order.pop_front()?;
        let queue = &mut self.queues[connection];
        let train = queue.pop_front();
        if !queue.is_empty() {
            self.order.push_back(connection);
        }
        train
    }
}

/// A processor that takes packets from a card.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    pub ring: VecDeque<Train>,
    /// It is at work, or about to be.
    pub is_awake: bool,
    pub busy_ns: Time,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_its_bytes_pass_at_once_and_fills_up_at_the_rate() {
        let mut plain = Wire::new(1, 0);
        assert_eq!((plain.pass(100, 50), plain.pass(150, 50)), (150, 200));
        let mut shaped = Wire::new(1, 80);
        // 80 pass at once, of 50 twice; the rest at the rate.
        assert_eq!((shaped.pass(100, 50), shaped.pass(100, 50)), (100, 120));
        assert_eq!(shaped.pass(120, 50), 170);
        // After a pause as at the beginning.
        assert_eq!(shaped.pass(1000, 50), 1000);
    }
}
