//! Events in the order of their times; those of one time in the order in which they were made.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Time;
use super::wire::Direction;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimulationEvent {
    /// A thread of the client runs.
    ClientRuns(usize),
    /// It has dealt with one message.
    ClientDone(usize),
    ServerRuns(usize),
    /// It has dealt with one message.
    ServerDone(usize),
    /// Its call to send returns.
    ServerSent(usize),
    /// A train is on the wire as a whole.
    WireDone(Direction),
    /// A train reaches the card of the other machine.
    Arrived(Direction),
    /// The kernel has dealt with a train, on this processor.
    Received(Direction, usize),
    /// An acknowledgement has waited for long enough: connection, and number of the delay.
    DelayedAck(Direction, usize, u64),
    /// A response has waited for the peer for long enough: connection, and number of the wait.
    WaitedForPeer(usize, u64),
    /// The medium has moved the bytes of an operation.
    StorageMoved(usize),
    /// The medium answers: an operation.
    StorageDone(usize),
    /// The medium can take another operation.
    StorageFree,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Time, u64, SimulationEvent)>>,
    pub count: u64,
}

impl Events {
    pub(super) fn at(&mut self, time: Time, event: SimulationEvent) {
        self.count += 1;
        self.heap.push(Reverse((time, self.count, event)));
    }

    pub(super) fn next(&mut self) -> Option<(Time, SimulationEvent)> {
        let Reverse((time, _, event)) = self.heap.pop()?;
        Some((time, event))
    }
}
