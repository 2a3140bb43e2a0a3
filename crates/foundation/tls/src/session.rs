//! One connection: its handshake, and records in both directions.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};

use openssl::ssl::{Error, ErrorCode, Ssl, SslStream};

use crate::context::SetUpError;
use crate::psk::{Psk, Suite};
use crate::wire::Wire;
use crate::{ffi, held};

/// Plaintext of a record (RFC 8446 §5.1).
const RECORD_BYTES: usize = 16 << 10;
/// Plaintext that is encrypted before its records are sent. A peer that reads nothing has the records of one batch waiting.
const BATCH_BYTES: usize = 64 << 10;
/// Records under one key: fewer than the 2^24.5 of RFC 8446 §5.5.
const RECORDS_PER_KEY: u64 = 1 << 24;

thread_local! {
    /// Where pieces of a record come together.
    static RECORD: RefCell<Box<[u8]>> = RefCell::new(vec![0; RECORD_BYTES].into_boxed_slice());
}

/// How far a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Both ends have proved that they know the key.
    Done,
    /// It goes on when the stream has more, or, if there is something [unsent](Session::has_unsent), takes more.
    Waiting,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection during the TLS handshake")]
    Closed,
    /// The reason is OpenSSL's.
    #[error("TLS: {0}")]
    Failed(String),
    /// Somebody proved something else than a key.
    #[error("TLS: the peer did not use a pre-shared key")]
    NoPsk,
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Io(error) => error,
            TlsError::Closed => Self::new(io::ErrorKind::UnexpectedEof, error),
            TlsError::Failed(_) | TlsError::NoPsk => Self::new(io::ErrorKind::InvalidData, error),
        }
    }
}

/// See the module documentation. `S` does not block: it says `WouldBlock`.
pub struct Session<S> {
    stream: SslStream<Wire<S>>,
    is_done: bool,
    /// The peer has said that it sends no more.
    has_ended: bool,
    /// A record was wrong: nothing that follows can be trusted.
    is_broken: bool,
    /// We have said that we send no more.
    is_closed: bool,
    /// Plaintext of the last record: it is encrypted, and its end has not left.
    kept_back: usize,
    /// Records that were sent under the present key.
    records: u64,
    records_per_key: u64,
}

impl<S> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("is_done", &self.is_done)
            .finish_non_exhaustive()
    }
}

impl<S: Read + Write> Session<S> {
    /// `ssl` knows its role.
    pub(crate) fn new(ssl: Ssl, stream: S) -> Result<Self, SetUpError> {
        Ok(Self {
            stream: SslStream::new(ssl, Wire::new(stream))?,
            is_done: false,
            has_ended: false,
            is_broken: false,
            is_closed: false,
            kept_back: 0,
            records: 0,
            records_per_key: RECORDS_PER_KEY,
        })
    }

    /// Goes on with the handshake as far as the stream lets it.
    ///
    /// # Errors
    /// The peer does not know the key, breaks the protocol, or is gone. It was told why, as far as it takes that.
    pub fn handshake(&mut self) -> Result<Handshake, TlsError> {
        if self.is_done {
            return Ok(Handshake::Done);
        }
        ffi::forget_errors();
        let outcome = self.stream.do_handshake();
        // Whatever came of it, an alert included.
        let sent = self.stream.get_mut().send();
        match outcome {
            Ok(()) => {
                if !sent? {
                    return Ok(Handshake::Waiting);
                }
                if self.psk().is_none() || !self.stream.ssl().session_reused() {
                    return Err(TlsError::NoPsk);
                }
                self.is_done = true;
                self.stream.get_mut().is_of_use();
                Ok(Handshake::Done)
            }
            Err(error) if is_wait(&error) => {
                sent?;
                Ok(Handshake::Waiting)
            }
            Err(error) => Err(failure(error)),
        }
    }

    fn psk(&self) -> Option<&Psk> {
        held::key_of(self.stream.ssl())
    }

    /// The identity of the key that both ends have proved to know, once the handshake is done.
    #[must_use]
    pub fn identity(&self) -> Option<&[u8]> {
        self.psk().filter(|_| self.is_done).map(Psk::identity)
    }

    /// The cipher suite, once the handshake is done.
    #[must_use]
    pub fn suite(&self) -> Option<Suite> {
        self.psk().filter(|_| self.is_done).map(Psk::suite)
    }

    #[must_use]
    pub fn stream(&self) -> &S {
        &self.stream.get_ref().stream
    }

    pub fn stream_mut(&mut self) -> &mut S {
        &mut self.stream.get_mut().stream
    }

    /// Whether records wait until the stream takes more.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.stream.get_ref().has_unsent()
    }

    /// Whether a receive has something to say although nothing new may arrive.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.has_ended || self.stream.ssl().pending() > 0
    }

    /// Fills the buffers in order, as far as there is something. 0: the peer sends no more.
    ///
    /// A stream that ends without a `close_notify` ends here as well: what TLS carries has lengths of its own.
    ///
    /// # Errors
    /// `WouldBlock`: there is nothing now. Otherwise the connection is broken, and what came before in the same call is
    /// lost.
    pub fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.is_broken {
            return Err(TlsError::Failed("a record was wrong".to_owned()).into());
        }
        ffi::forget_errors();
        let mut received = 0;
        for buffer in buffers {
            let mut filled = 0;
            while filled < buffer.len() {
                match self.stream.ssl_read(&mut buffer[filled..]) {
                    Ok(0) => return self.stopped(received),
                    Ok(length) => {
                        self.stream.get_mut().is_of_use();
                        filled += length;
                        received += length;
                    }
                    Err(error) if is_wait(&error) => return self.stopped(received),
                    Err(error) => match failure(error) {
                        TlsError::Closed => {
                            self.has_ended = true;
                            return Ok(received);
                        }
                        failed => {
                            self.is_broken = true;
                            // The alert, as far as it goes.
                            let _ = self.stream.get_mut().send();
                            return Err(failed.into());
                        }
                    },
                }
            }
        }
        Ok(received)
    }

    /// There is nothing more now.
    fn stopped(&mut self, received: usize) -> io::Result<usize> {
        // A KeyUpdate may have asked for one in return.
        let answered = self.stream.get_mut().send();
        if received > 0 {
            // If the stream is broken, the next call says so.
            return Ok(received);
        }
        answered?;
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Gives back memory that only a busy connection needs. The next bytes take it again.
    pub fn release_memory(&mut self) {
        self.stream.get_mut().shrink();
        ffi::free_buffers(&mut self.stream);
    }

    /// Takes bytes from the front of the buffers, as far as the stream takes their records.
    ///
    /// If it takes less than all, the next call must begin with the bytes that were not taken: they may be encrypted already.
    ///
    /// # Errors
    /// `WouldBlock`: there is no room now. Otherwise the connection is broken.
    pub fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.stream.get_mut().send()? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = buffers.iter().map(|buffer| buffer.len()).sum();
        let mut taken = self.kept_back.min(length);
        self.kept_back -= taken;
        let mut plain = Plain::after(buffers, taken);
        loop {
            let (batch, last) =
                RECORD.with_borrow_mut(|scratch| self.encrypt(&mut plain, scratch))?;
            taken += batch;
            if !self.stream.get_mut().send()? {
                // The caller has to wait for room, so not all is taken.
                self.kept_back = last;
                taken -= last;
                break;
            }
            if batch == 0 {
                break;
            }
        }
        match taken {
            0 if length > 0 => Err(io::ErrorKind::WouldBlock.into()),
            taken => Ok(taken),
        }
    }

    /// Makes records of a batch of plaintext: of how much, and how much of that is in the last of them.
    fn encrypt(&mut self, plain: &mut Plain<'_>, scratch: &mut [u8]) -> io::Result<(usize, usize)> {
        let (mut batch, mut last) = (0, 0);
        while batch < BATCH_BYTES
            && let Some(record) = plain.next(scratch)
        {
            self.write_record(record)?;
            last = record.len();
            batch += last;
        }
        Ok((batch, last))
    }

    fn write_record(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        ffi::forget_errors();
        if self.records >= self.records_per_key {
            self.records = 0;
            ffi::update_key(&mut self.stream).map_err(io::Error::other)?;
        }
        while !bytes.is_empty() {
            let written = self.stream.ssl_write(bytes).map_err(failure)?;
            self.records += 1;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Tells the peer that nothing more is sent, once, if it can be told.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn close(&mut self) -> io::Result<()> {
        if !self.is_done || self.is_broken || std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        ffi::forget_errors();
        match self.stream.shutdown() {
            Err(error) if !is_wait(&error) => Err(failure(error).into()),
            _ => self.stream.get_mut().send().map(drop),
        }
    }
}

fn is_wait(error: &Error) -> bool {
    error.code() == ErrorCode::WANT_READ || error.code() == ErrorCode::WANT_WRITE
}

fn failure(error: Error) -> TlsError {
    if error.code() == ErrorCode::ZERO_RETURN {
        return TlsError::Closed;
    }
    if let Some(stack) = error.ssl_error() {
        let reasons = stack.errors().iter().filter_map(|error| error.reason());
        let reasons: Vec<&str> = reasons.collect();
        return TlsError::Failed(match &reasons[..] {
            [] => "unknown error".to_owned(),
            reasons => reasons.join(", "),
        });
    }
    match error.into_io_error() {
        Ok(error) => TlsError::Io(error),
        // The stream ended.
        Err(_) => TlsError::Closed,
    }
}

/// Pieces of plaintext that become records.
struct Plain<'a> {
    buffers: &'a [IoSlice<'a>],
    /// Into the first of them.
    start: usize,
}

impl<'a> Plain<'a> {
    fn after(buffers: &'a [IoSlice<'a>], taken: usize) -> Self {
        let mut plain = Self {
            buffers,
            start: taken,
        };
        plain.settle();
        plain
    }

    /// Leaves buffers behind that are used up.
    fn settle(&mut self) {
        while let Some((first, rest)) = self.buffers.split_first()
            && self.start >= first.len()
        {
            self.start -= first.len();
            self.buffers = rest;
        }
    }

    /// What the next record holds: a piece of one buffer, or small ones put together.
    fn next<'b>(&mut self, scratch: &'b mut [u8]) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        let first = &self.buffers.first()?[self.start..];
        if first.len() >= RECORD_BYTES || self.buffers.len() == 1 {
            let length = first.len().min(RECORD_BYTES);
            self.start += length;
            self.settle();
            return Some(&first[..length]);
        }
        let mut filled = 0;
        while filled < scratch.len()
            && let Some(buffer) = self.buffers.first()
        {
            let bytes = &buffer[self.start..];
            let length = bytes.len().min(scratch.len() - filled);
            scratch[filled..filled + length].copy_from_slice(&bytes[..length]);
            filled += length;
            self.start += length;
            self.settle();
        }
        Some(&scratch[..filled])
    }
}

#[cfg(test)]
mod tests;
