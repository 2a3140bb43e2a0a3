//! The end of a connection: queued data is sent first, and the peer gets to read it.

use std::io::{ErrorKind, IoSliceMut};
use std::ops::ControlFlow;

use super::socket::Socket;

/// Time for a peer to take what was queued before its connection closes.
const CLOSE_TIMEOUT_MS: u64 = 5_000;
/// Bytes taken from a peer after the last answer, so that it can read that answer.
const DISCARDED_BYTES_MAX: usize = 16 << 20;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// Nothing more is received; what is queued is sent, then it is over.
    has_begun: bool,
    /// When it is over although the peer has not taken what is queued.
    by_ms: Option<u64>,
    /// Why it closes is in an answer that was queued then. The kernel would throw that away, and
    /// reset the connection, if it was closed with bytes that nobody received.
    explains: bool,
    /// Everything is sent and the peer knows. What it sends still is thrown away: so many bytes yet.
    discarded: Option<usize>,
}

impl Closing {
    /// Whether it closes once everything is sent.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Stops receiving; the rest is sent. `explains`: the last of what is queued says why, and the peer may be sending
    /// still. Returns whether this is news.
    pub(super) fn begin(&mut self, explains: bool) -> bool {
        if self.has_begun {
            return false;
        }
        self.explains = explains;
        self.has_begun = true;
        true
    }

    /// Ends without waiting for the peer to take what is queued.
    pub(super) fn cut(&mut self, now_ms: u64) {
        self.has_begun = true;
        self.by_ms = Some(now_ms);
    }

    /// When it is to be over at the latest.
    pub(super) fn by_ms(&self) -> Option<u64> {
        self.by_ms
    }

    /// Whether what is received is thrown away.
    pub(super) fn discards(&self) -> bool {
        self.discarded.is_some()
    }

    /// Receives what nobody wants, until the peer closes its end.
    pub(super) fn discard(
        &mut self,
        socket: &mut Socket,
        receive_buffer: &mut [u8],
    ) -> ControlFlow<()> {
        let discarded = self.discarded.unwrap_or(0);
        let buffers = &mut [IoSliceMut::new(receive_buffer)];
        match socket.link.receive(buffers) {
            Ok(n) if n > 0 && discarded + n <= DISCARDED_BYTES_MAX => {
                self.discarded = Some(discarded + n);
                ControlFlow::Continue(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                socket.readable = false;
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    }

    /// Goes on after everything that could be sent was sent. `is_sent`: that was all.
    pub(super) fn proceed(
        &mut self,
        socket: &mut Socket,
        is_sent: bool,
        now_ms: u64,
    ) -> ControlFlow<()> {
        if !self.has_begun {
            return ControlFlow::Continue(());
        }
        // A peer that reads nothing must not keep its connection, and the memory of what it was to
        // read, for ever.
        let by_ms = *self.by_ms.get_or_insert(now_ms + CLOSE_TIMEOUT_MS);
        if now_ms >= by_ms {
            return ControlFlow::Break(());
        }
        if !is_sent || self.discarded.is_some() {
            return ControlFlow::Continue(());
        }
        if !self.explains || !socket.link.finish_sending().unwrap_or(false) {
            return ControlFlow::Break(());
        }
        self.discarded = Some(0);
        socket.readable = true;
        ControlFlow::Continue(())
    }
}
