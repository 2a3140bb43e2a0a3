//! One direction of a connection: what a socket has taken, sent and got acknowledged, and the messages in it.
//!
//! As Linux does it: full segments leave at once. A partial one waits under Nagle's algorithm while an earlier partial
//! one is not acknowledged (Minshall's variant), and while the sender has said that more follows.

use std::collections::VecDeque;

/// A part of an operation that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The header of a command.
    Command,
    /// The end of unsolicited data of a write.
    Unsolicited,
    /// The end of a burst.
    Burst,
    R2t,
    Response,
}

/// A message of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parcel {
    pub message: Message,
    pub operation: usize,
}

/// A train of packets on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    pub connection: usize,
    /// Bytes of data; 0: an acknowledgement by itself.
    pub bytes: u64,
    pub packets: u64,
    /// Position in the stream behind its last byte.
    pub end: u64,
    /// What has arrived in the other direction.
    pub acknowledges: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Stream {
    segment: u64,
    /// Segments of a train at most.
    train: u64,
    /// Bytes under way at most.
    window: u64,
    /// TCP_NODELAY is set on the socket.
    pub nodelay: bool,
    /// More follows: a partial segment waits.
    pub corked: bool,
    /// Positions: written by the sender, sent, acknowledged; the end of the last partial segment.
    written: u64,
    sent: u64,
    acknowledged: u64,
    partial_end: u64,
    /// Messages with the positions of their ends.
    messages: VecDeque<(u64, Parcel)>,
    /// What has arrived at the receiver, and what it has acknowledged.
    pub arrived: u64,
    pub told: u64,
    /// Counts the acknowledgements that were delayed, to know those that have left.
    pub delayed: u64,
}

impl Stream {
    pub(super) fn new(segment: u64, train: u64, window: u64) -> Self {
        Self {
            segment,
            train: (train / segment).max(1),
            window: window.max(segment),
            nodelay: true,
            corked: false,
            written: 0,
            sent: 0,
            acknowledged: 0,
            partial_end: 0,
            messages: VecDeque::new(),
            arrived: 0,
            told: 0,
            delayed: 0,
        }
    }

    pub(super) fn write(&mut self, bytes: u64, parcel: Parcel) {
        self.written += bytes;
        self.messages.push_back((self.written, parcel));
    }

    /// Bytes that were written and are not sent.
    pub(super) fn unsent(&self) -> u64 {
        self.written - self.sent
    }

    /// The bytes of the next train that may leave.
    fn next(&self, flush: bool) -> Option<u64> {
        let unsent = self.unsent();
        let room = self.window.saturating_sub(self.sent - self.acknowledged);
        let segments = (unsent.min(room) / self.segment).min(self.train);
        if segments > 0 {
            return Some(segments * self.segment);
        }
        let waits_for_peer = !self.nodelay && self.partial_end > self.acknowledged;
        let leaves = flush || !(waits_for_peer || self.corked);
        (unsent > 0 && unsent < self.segment && unsent <= room && leaves).then_some(unsent)
    }

    /// The trains that would leave now.
    pub(super) fn ready(&self) -> u64 {
        let unsent = self.unsent();
        let full = unsent / self.segment;
        let trains = full.div_ceil(self.train);
        let waits_for_peer = !self.nodelay && self.partial_end > self.acknowledged;
        let partial = !unsent.is_multiple_of(self.segment) && !waits_for_peer && !self.corked;
        // A partial segment behind full ones travels in their train.
        trains.max(u64::from(partial))
    }

    /// Takes the next train that may leave. `flush`: also what was to wait.
    pub(super) fn take(&mut self, connection: usize, flush: bool) -> Option<Train> {
        let bytes = self.next(flush)?;
        self.sent += bytes;
        if !bytes.is_multiple_of(self.segment) {
            self.partial_end = self.sent;
        }
        Some(Train {
            connection,
            bytes,
            packets: bytes.div_ceil(self.segment),
            end: self.sent,
            acknowledges: 0,
        })
    }

    pub(super) fn acknowledge(&mut self, position: u64) {
        self.acknowledged = self.acknowledged.max(position);
    }

    /// Data up to a position has arrived. Whether that calls for an acknowledgement at once.
    pub(super) fn arrive(&mut self, end: u64) -> bool {
        self.arrived = self.arrived.max(end);
        self.arrived - self.told >= 2 * self.segment
    }

    /// The next message whose last byte has arrived.
    pub(super) fn receive(&mut self) -> Option<Parcel> {
        let (end, _) = self.messages.front()?;
        if *end > self.arrived {
            return None;
        }
        self.messages.pop_front().map(|(_, parcel)| parcel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        Stream::new(1000, 64_000, 1_000_000)
    }

    const PARCEL: Parcel = Parcel {
        message: Message::Response,
        operation: 0,
    };

    #[test]
    fn without_nagle_everything_leaves_at_once() {
        let mut stream = stream();
        stream.write(2500, PARCEL);
        assert_eq!(stream.take(0, false).unwrap().bytes, 2000);
        assert_eq!(stream.take(0, false).unwrap().bytes, 500);
        assert!(stream.take(0, false).is_none());
    }

    #[test]
    fn a_partial_segment_waits_for_the_one_before_it() {
        let mut stream = stream();
        stream.nodelay = false;
        stream.write(300, PARCEL);
        assert_eq!(stream.take(0, false).unwrap().end, 300);
        stream.write(300, PARCEL);
        assert_eq!((stream.ready(), stream.take(0, false).is_none()), (0, true));
        // A segment that fills up leaves.
        stream.write(800, PARCEL);
        assert_eq!(stream.take(0, false).unwrap().bytes, 1000);
        assert!(stream.take(0, false).is_none());
        stream.acknowledge(300);
        assert_eq!(stream.take(0, false).unwrap().bytes, 100);
    }

    #[test]
    fn a_flush_sends_what_waits() {
        let mut stream = stream();
        stream.corked = true;
        stream.write(300, PARCEL);
        assert!(stream.take(0, false).is_none());
        assert_eq!(stream.take(0, true).unwrap().bytes, 300);
    }

    #[test]
    fn no_more_is_under_way_than_the_window_holds() {
        let mut stream = Stream::new(1000, 64_000, 2000);
        stream.write(5000, PARCEL);
        assert_eq!(stream.take(0, false).unwrap().bytes, 2000);
        assert!(stream.take(0, false).is_none());
        stream.acknowledge(1000);
        assert_eq!(stream.take(0, false).unwrap().bytes, 1000);
    }

    #[test]
    fn a_message_is_received_with_its_last_byte() {
        let mut stream = stream();
        stream.write(1500, PARCEL);
        assert!(!stream.arrive(1000) && stream.receive().is_none());
        assert!(!stream.arrive(1500) && stream.receive().is_some());
        assert!(stream.arrive(2000));
    }
}
