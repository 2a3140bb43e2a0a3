//! Causes of lost connections.

use std::io;

use thiserror::Error;

/// Why a connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Lost {
    /// The peer closed its end.
    #[error("the server closed the connection")]
    HungUp,
    /// A call on the socket failed.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Socket(i32),
    /// The protocol ended it.
    #[error(transparent)]
    Closed(#[from] CloseCause),
    /// The peer did not answer in time, so we gave it up.
    #[error("the server does not answer")]
    Silent,
    /// [`Queue::close`](crate::queue::Queue::close), or the end of the volume.
    #[error("this side closed it")]
    Ours,
    /// The portal now leads to another volume than the one that was opened.
    #[error("another volume is there: {0}")]
    AnotherVolume(String),
}

impl Lost {
    /// A call on the socket failed.
    #[must_use]
    pub fn from_io(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::Socket(number),
            None if error.kind() == io::ErrorKind::UnexpectedEof => Self::HungUp,
            // A TLS record has failed its integrity check.
            None if error.kind() == io::ErrorKind::InvalidData => {
                Self::Closed(CloseCause::Protocol(error.to_string()))
            }
            None => Self::Socket(rustix::io::Errno::IO.raw_os_error()),
        }
    }
}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Socket(number) => Self::from_raw_os_error(number),
            Lost::HungUp => Self::new(io::ErrorKind::UnexpectedEof, lost),
            Lost::Silent => Self::new(io::ErrorKind::TimedOut, lost),
            Lost::Closed(_) | Lost::Ours | Lost::AnotherVolume(_) => {
                Self::new(io::ErrorKind::ConnectionAborted, lost)
            }
        }
    }
}

/// How a protocol ends a connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CloseCause {
    /// We logged out or disconnected.
    #[error("logged out")]
    LoggedOut,
    /// The peer ended it, and says why.
    #[error("the server ended the connection: {0}")]
    Peer(String),
    /// The peer broke a rule.
    #[error("the server broke a rule of the protocol: {0}")]
    Protocol(String),
    /// A digest did not match, and the protocol cannot go on from there.
    #[error("a {0} digest does not match")]
    Digest(&'static str),
}
