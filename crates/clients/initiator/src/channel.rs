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

impl Drop for Channel {
    /// Tells the peer that this is the end, and no cut (RFC 8446 §6.1), if there is room for that.
    fn drop(&mut self) {
        match &mut self.0 {
            Kind::Plain(_) => {}
            #[cfg(feature = "tls")]
            Kind::Tls(session) => {
                // It ends either way.
                let _ = session.close();
            }
        }
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

    /// Gives back memory that only a busy connection needs.
    pub(crate) fn release_memory(&mut self) {
        match &mut self.0 {
            Kind::Plain(_) => {}
            #[cfg(feature = "tls")]
            Kind::Tls(session) => session.release_memory(),
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

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::Arc;

    use longshore_tls::{Client, Handshake, Psk, PskStore, Server, Suite};

    use super::*;

    struct OneKey(Psk);

    impl PskStore for OneKey {
        fn find(&self, identity: &[u8]) -> Option<Psk> {
            (self.0.identity() == identity).then(|| self.0.clone())
        }
    }

    #[test]
    fn a_channel_that_is_dropped_says_that_this_is_the_end() {
        let psk = Psk::new(b"a", Suite::Aes128GcmSha256, &[1; 32]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let up = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let down = listener.accept().unwrap().0;
        for stream in [&up, &down] {
            stream.set_nonblocking(true).unwrap();
        }
        let mut raw = down.try_clone().unwrap();
        let server = Server::new(Arc::new(OneKey(psk.clone()))).unwrap();
        let mut server = server.accept(down).unwrap();
        let mut client = Client::new().unwrap().connect(up, psk).unwrap();
        while (client.handshake().unwrap(), server.handshake().unwrap())
            != (Handshake::Done, Handshake::Done)
        {}
        drop(Channel::from(client));
        raw.set_nonblocking(false).unwrap();
        let mut rest = Vec::new();
        raw.read_to_end(&mut rest).unwrap();
        // One record, with an alert of two bytes.
        assert_eq!((rest.len(), &rest[..5]), (24, &[0x17, 3, 3, 0, 19][..]));
    }
}
