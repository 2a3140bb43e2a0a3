//! The two streams of a connection: bytes under way and bytes that have arrived.

use std::collections::VecDeque;

use longshore_reactor::SocketToken;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) bytes: VecDeque<u8>,
    /// Bytes at the front that have arrived.
    pub(crate) arrived: usize,
    /// When the last byte sent so far will have arrived.
    pub(crate) busy_until: u64,
    /// Nothing more will come behind the bytes.
    pub(crate) ended: bool,
}

#[derive(Debug)]
pub struct Wire {
    pub(crate) to_target: Stream,
    pub(crate) to_initiator: Stream,
    /// Which initiator is at the other end.
    pub initiator: usize,
    /// Which shard serves it.
    pub shard: usize,
    /// How the shard wants to be told of it.
    pub token: Option<SocketToken>,
    /// Both ends know that it is no more.
    pub reset: bool,
    /// The initiator's end is gone, and the target does not know: nothing arrives any more.
    pub vanished: bool,
    /// The target has given it up.
    pub dropped: bool,
    /// The target waits for room.
    pub(crate) blocked: bool,
}

impl Wire {
    /// A new connection of that initiator to that shard.
    #[must_use]
    pub fn new(initiator: usize, shard: usize) -> Self {
        Self {
            to_target: Stream::default(),
            to_initiator: Stream::default(),
            initiator,
            shard,
            token: None,
            reset: false,
            vanished: false,
            dropped: false,
            blocked: false,
        }
    }

    pub(crate) fn stream(&mut self, to_target: bool) -> &mut Stream {
        if to_target {
            &mut self.to_target
        } else {
            &mut self.to_initiator
        }
    }

    /// Whether the initiator can see that the connection is over.
    #[must_use]
    pub fn is_over_for_initiator(&self) -> bool {
        self.reset || (self.to_initiator.ended && self.to_initiator.bytes.is_empty())
    }

    /// Whether the target has been, or would have been, told of the end.
    pub(crate) fn is_over_for_target(&self) -> bool {
        let stream = &self.to_target;
        self.reset || (stream.ended && stream.arrived == stream.bytes.len())
    }

    /// Whether the target would find something to receive.
    #[must_use]
    pub fn is_readable_for_target(&self) -> bool {
        let stream = &self.to_target;
        self.reset || stream.arrived > 0 || (stream.ended && stream.bytes.is_empty())
    }
}
