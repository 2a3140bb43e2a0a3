//! The bytes of a connection: as they are, or in TLS records.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use longshore_reactor::socket;
#[cfg(feature = "tls")]
use longshore_tls::Session;

/// A connected socket that does not block, and what is spoken on it.
#[derive(Debug)]
pub struct Channel(Kind);

#[derive(Debug)]
enum Kind {
    Plain(OwnedFd),
    #[cfg(feature = "tls")]
    Tls(Box<Session<TcpStream>>),
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(Kind::Plain(socket))
    }
}

impl From<TcpStream> for Channel {
    fn from(stream: TcpStream) -> Self {
        Self(Kind::Plain(stream.into()))
    }
}

#[cfg(feature = "tls")]
impl From<Session<TcpStream>> for Channel {
    /// The handshake is done.
    fn from(session: Session<TcpStream>) -> Self {
        Self(Kind::Tls(Box::new(session)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Plain(socket) => socket.as_fd(),
            #[cfg(feature = "tls")]
            Kind::Tls(session) => session.stream().as_fd(),
        }
    }
}

impl Channel {
    /// Whether the kernel is given other bytes than ours.
    pub(crate) const fn is_encrypted(&self) -> bool {
        match &self.0 {
            Kind::Plain(_) => false,
            #[cfg(feature = "tls")]
            Kind::Tls(_) => true,
        }
    }

    /// Fills the buffers in order. 0: the peer sends no more. `WouldBlock`: there is nothing now.
    #[inline]
    pub(crate) fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket::receive(socket, buffers),
            #[cfg(feature = "tls")]
            Kind::Tls(session) => session.receive(buffers),
        }
    }

    /// Takes bytes from the front of the buffers; what it leaves is what the next call begins with. `WouldBlock`: there
    /// is no room now. `more`: further bytes follow at once.
    #[inline]
    pub(crate) fn send(&mut self, buffers: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket::send(socket, buffers, more),
            #[cfg(feature = "tls")]
            Kind::Tls(session) => session.send(buffers),
        }
    }

    /// Whether a receive has something to say although nothing new may arrive at the socket.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        match &self.0 {
            Kind::Plain(_) => false,
            #[cfg(feature = "tls")]
            Kind::Tls(session) => session.has_more(),
        }
    }
}
