//! The events of an engine, and the tokens and readiness in them.

use crate::storage::FileCompletion;

/// Chosen by the caller at [`Engine::register`](super::Engine::register) and echoed in the events of the socket.
///
/// By convention a slot number and a generation, so that an event of a connection that is gone is
/// not taken for one of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketToken(pub u64);

impl SocketToken {
    /// Joins a slot number and the slot's generation.
    #[must_use]
    pub fn new(slot: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(slot))
    }

    /// The slot number given to [`SocketToken::new`].
    #[must_use]
    pub fn slot(self) -> u32 {
        u32::try_from(self.0 & u64::from(u32::MAX)).expect("masked to 32 bits")
    }

    /// The generation given to [`SocketToken::new`].
    #[must_use]
    pub fn generation(self) -> u32 {
        u32::try_from(self.0 >> 32).expect("shifted to 32 bits")
    }
}

/// What a socket is ready for. See the documentation of [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    readable: bool,
    writable: bool,
    hang_up: bool,
}

impl Readiness {
    /// For those who stand in for an engine: what a socket is ready for, its peer being there.
    #[must_use]
    pub fn new(readable: bool, writable: bool) -> Self {
        Self {
            readable,
            writable,
            hang_up: false,
        }
    }

    /// From the bits of poll(2), which epoll shares.
    pub(super) fn from_poll_bits(bits: u32) -> Self {
        let any = |mask: i16| bits & u32::from(mask.cast_unsigned()) != 0;
        let failed = any(libc::POLLERR | libc::POLLHUP);
        let hang_up = failed || any(libc::POLLRDHUP);
        Self {
            readable: hang_up || any(libc::POLLIN),
            writable: failed || any(libc::POLLOUT),
            hang_up,
        }
    }

    /// Bytes, a connection to accept, the end of the stream or an error is there to be received.
    #[must_use]
    pub fn is_readable(self) -> bool {
        self.readable
    }

    /// A send would take bytes or report an error.
    #[must_use]
    pub fn is_writable(self) -> bool {
        self.writable
    }

    /// The peer has closed its sending side, or the connection has failed.
    #[must_use]
    pub fn is_hang_up(self) -> bool {
        self.hang_up
    }
}

#[derive(Debug)]
pub enum EngineEvent {
    /// Something happened on a registered socket.
    Socket {
        /// As given to [`Engine::register`](super::Engine::register).
        token: SocketToken,
        /// What it is ready for now.
        readiness: Readiness,
    },
    /// A file operation is over.
    File(FileCompletion),
    /// [`Waker::wake`](crate::wake::Waker::wake) was called since the last `wait`: look into the mailboxes.
    Woken,
}
