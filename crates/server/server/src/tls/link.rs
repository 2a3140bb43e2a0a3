//! A connection of the kernel with TLS on it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use longshore_nvme::psk::Identity;
use longshore_reactor::{SocketToken, socket};
use longshore_tls::Session;

use crate::platform::{Link, Platform};

/// Bytes that a peer may send before it has proved anything. A ClientHello has some hundred.
const UNPROVED_BYTES_MAX: usize = 32 << 10;

/// The stream below the records.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) socket: TcpStream,
    /// Bytes that may be received yet; `None`: the peer has proved itself.
    allowed: Option<usize>,
}

impl Stream {
    pub(super) const fn new(socket: TcpStream) -> Self {
        Self {
            socket,
            allowed: Some(UNPROVED_BYTES_MAX),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(self.allowed.unwrap_or(usize::MAX));
        if length == 0 {
            return Err(io::Error::other("the TLS handshake is too long"));
        }
        let received =
            socket::receive(&self.socket, &mut [IoSliceMut::new(&mut buffer[..length])])?;
        if let Some(allowed) = &mut self.allowed {
            *allowed -= received;
        }
        Ok(received)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(&self.socket, &[IoSlice::new(bytes)], false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct TlsLink {
    session: Session<Stream>,
    /// Of the key that the host has proved to know.
    identity: Identity,
}

impl TlsLink {
    /// `session` has done its handshake.
    pub(super) fn new(mut session: Session<Stream>, identity: Identity) -> Self {
        session.stream_mut().allowed = None;
        Self { session, identity }
    }

    fn tcp(&self) -> &TcpStream {
        &self.session.stream().socket
    }
}

impl Drop for TlsLink {
    /// Tells the peer that this is the end, and no cut (RFC 8446 §6.1), if there is room for that.
    fn drop(&mut self) {
        // It ends either way.
        let _ = self.session.close();
    }
}

impl Link for TlsLink {
    fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.session.receive(buffers)
    }

    fn has_more(&self) -> bool {
        self.session.has_more()
    }

    fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        self.session.send(buffers)
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tcp().as_fd())
    }

    fn release_memory(&mut self) {
        self.session.release_memory();
    }

    fn tls_identity(&self) -> Option<&Identity> {
        Some(&self.identity)
    }

    fn set_nodelay(&mut self, on: bool) -> io::Result<()> {
        socket::set_nodelay(self.tcp(), on)
    }

    fn finish_sending(&mut self) -> io::Result<bool> {
        self.session.close()?;
        socket::shutdown(self.tcp(), Shutdown::Write)?;
        Ok(true)
    }

    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.tcp().peer_addr()?, self.tcp().local_addr()?))
    }

    fn watch(&mut self, platform: &mut dyn Platform, token: SocketToken) -> io::Result<()> {
        platform.watch(self.tcp().as_fd(), token)
    }

    fn forget(&mut self, platform: &mut dyn Platform, token: SocketToken) {
        platform.forget(self.tcp().as_fd(), token);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_endless_hello_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = Stream::new(listener.accept().unwrap().0);
        peer.write_all(&vec![0x16; UNPROVED_BYTES_MAX + 1]).unwrap();
        let mut received = 0;
        let error = loop {
            match stream.read(&mut [0; 4096]) {
                Ok(length) => received += length,
                Err(error) => break error,
            }
        };
        assert_eq!(received, UNPROVED_BYTES_MAX);
        assert!(error.to_string().contains("too long"), "{error}");
        // It may go on once the peer has proved itself.
        stream.allowed = None;
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 1);
    }
}
