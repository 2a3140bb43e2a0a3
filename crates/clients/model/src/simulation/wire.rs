//! The wires, one for each direction, and the kernels behind them.

use std::collections::VecDeque;

use super::stream::Train;
use super::time::Time;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// To the server.
    Request,
    /// To the client.
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
}

impl Wire {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            queues: vec![VecDeque::new(); connections],
            ..Self::default()
        }
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
