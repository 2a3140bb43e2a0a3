//! The socket of a connection, and facts about it.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::SocketAddr;

use longshore_reactor::socket;
use longshore_transmit::Switch;

use crate::counters::Counters;
use crate::observe::ConnectionCounts;
use crate::platform::Link;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Socket {
    pub link: Box<dyn Link>,
    /// Who is at the other end.
    pub peer: SocketAddr,
    /// Our address, as the peer reached it.
    pub reached: SocketAddr,
    /// Index of the listener it came in by.
    pub portal: usize,
    /// There may be something to receive.
    pub(super) readable: bool,
    /// The end of the stream has been reported, which happens once. Until it is reached, a short
    /// receive does not mean that nothing else is there.
    hang_up: bool,
    /// It may take something.
    pub(super) writable: bool,
}

impl Socket {
    pub(super) fn new(link: Box<dyn Link>, portal: usize) -> io::Result<Self> {
        let (peer, reached) = link.addresses()?;
        Ok(Self {
            link,
            peer,
            reached,
            portal,
            readable: true,
            hang_up: false,
            writable: true,
        })
    }

    /// It was reported as readable.
    pub(super) fn set_readable(&mut self, hang_up: bool) {
        self.readable = true;
        self.hang_up |= hang_up;
    }

    /// Receives into `buffers`, which have `room`.
    pub(super) fn receive(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        room: usize,
        counters: &mut Counters,
        counts: &mut ConnectionCounts,
    ) -> Received {
        match self.link.receive(buffers) {
            Ok(0) => {
                counters.receives_empty += 1;
                tracing::debug!(peer = %self.peer, "peer closed the connection");
                Received::End
            }
            Ok(n) => {
                counters.receives += 1;
                counters.received_bytes += n as u64;
                counts.receives += 1;
                counts.received_bytes += n as u64;
                self.readable = self.hang_up || n == room || self.link.has_more();
                Received::Bytes(n)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                counters.receives_empty += 1;
                self.readable = false;
                // The end of the stream would have shown: what came was another error condition.
                self.hang_up = false;
                Received::Nothing
            }
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "receive failed");
                Received::Failed
            }
        }
    }

    #[inline]
    pub(super) fn switch_nodelay(&mut self, switch: Switch, counters: &mut Counters) {
        if switch != Switch::Keep {
            self.set_nodelay(switch, counters);
        }
    }

    #[cold]
    fn set_nodelay(&mut self, switch: Switch, counters: &mut Counters) {
        for on in switch.settings() {
            counters.option_calls += 1;
            if let Err(error) = self.link.set_nodelay(on) {
                // What is held back leaves with an acknowledgement, later.
                tracing::debug!(peer = %self.peer, %error, "TCP_NODELAY not set");
            }
        }
    }

    /// Bytes that it has taken and the peer has not acknowledged, if the kernel tells.
    pub(super) fn unacknowledged_bytes(&self) -> Option<u64> {
        let unacknowledged = socket::unacknowledged_bytes(self.link.socket()?).ok()?;
        Some(u64::try_from(unacknowledged).unwrap_or(u64::MAX))
    }
}

/// What came of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// The peer sends no more.
    End,
    /// The connection is broken.
    Failed,
}
