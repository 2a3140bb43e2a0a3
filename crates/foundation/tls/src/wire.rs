//! The stream below the records of a session.
//!
//! What OpenSSL writes is collected, so that the records of a turn leave in one call.

use std::io::{self, Read, Write};

/// More is never collected: a peer that has its questions answered and takes no answer is cut.
const UNSENT_MAX: usize = 1 << 20;

/// Bytes without any data in them that are taken one after another: a record and what tells of new keys. OpenSSL works such
/// records off within one call, as long as there are more.
const IDLE_MAX: usize = 64 << 10;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Wire<S> {
    pub(crate) stream: S,
    /// Bytes that have come since the last of use.
    idle: usize,
    unsent: Vec<u8>,
    /// Bytes at the front that have left.
    sent: usize,
}

impl<S> Wire<S> {
    pub(crate) const fn new(stream: S) -> Self {
        Self {
            stream,
            idle: 0,
            unsent: Vec::new(),
            sent: 0,
        }
    }

    /// What has come was of use: a handshake, or data.
    pub(crate) const fn is_of_use(&mut self) {
        self.idle = 0;
    }

    /// Whether records wait for the stream.
    pub(crate) fn has_unsent(&self) -> bool {
        self.sent < self.unsent.len()
    }
}

impl<S: Write> Wire<S> {
    /// Sends what is collected. `false`: the stream does not take all of it now.
    pub(crate) fn send(&mut self) -> io::Result<bool> {
        while self.has_unsent() {
            match self.stream.write(&self.unsent[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Gives memory back, if nothing waits.
    pub(crate) fn shrink(&mut self) {
        if !self.has_unsent() && self.unsent.capacity() > 0 {
            self.unsent = Vec::new();
            self.sent = 0;
        }
    }
}

impl<S: Read> Read for Wire<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.idle > IDLE_MAX {
            return Err(io::Error::other("the peer sends records without data"));
        }
        let received = loop {
            match self.stream.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // OpenSSL's stream takes that for "not yet".
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    break Err(io::ErrorKind::ConnectionReset.into());
                }
                other => break other,
            }
        }?;
        self.idle += received;
        Ok(received)
    }
}

impl<S> Write for Wire<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.unsent.len() - self.sent + bytes.len() > UNSENT_MAX {
            return Err(io::Error::other("the peer takes no records"));
        }
        self.unsent.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
