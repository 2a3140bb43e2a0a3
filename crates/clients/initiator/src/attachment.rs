//! A volume that is attached over one path, and the control beside its queues.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::error::{Error, Lost};
use crate::info::{AccessState, Description, Notice, VolumeInfo};
use crate::options::QueueMaps;
use crate::queue::AnyQueue;
use crate::{iscsi, nvme};

/// A volume that is attached over one path.
#[derive(Debug)]
pub struct Attachment {
    /// What there is to know about it.
    pub info: VolumeInfo,
    /// Parameters of the connections, by their standard's names.
    pub negotiated: Vec<(String, String)>,
    /// The address that was connected.
    pub portal: SocketAddr,
    /// The queues, in the order of [`maps`](Self::maps).
    pub queues: Vec<AnyQueue>,
    /// How many of each kind there are, as granted.
    pub maps: QueueMaps,
    /// What keeps the attachment alive.
    pub control: Control,
}

/// The part of an attachment beside its queues: keep-alive, news of the peer, questions.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one of them for a path, and it is not moved about"
)]
pub enum Control {
    /// Opens a session for each question; keep-alive and news are matters of the queues.
    Iscsi(iscsi::Control),
    /// The connection of the admin queue, with the asynchronous events of the controller.
    NvmeTcp(nvme::Control),
}

impl Control {
    /// The socket on which news come, if there is one.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Iscsi(control) => control.socket(),
            Self::NvmeTcp(control) => control.socket(),
        }
    }

    /// How good this path is, as known by now.
    #[must_use]
    pub fn access(&self) -> AccessState {
        match self {
            Self::Iscsi(control) => control.access(),
            Self::NvmeTcp(control) => control.access(),
        }
    }

    /// When [`drive`](Self::drive) is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Iscsi(control) => control.deadline(),
            Self::NvmeTcp(control) => control.deadline(),
        }
    }

    /// Takes in what has come and sends what is due; does not block. Returns the news.
    ///
    /// # Errors
    /// The attachment is of no use any more.
    pub fn drive(&mut self, now: Instant) -> Result<Vec<Notice>, Lost> {
        match self {
            Self::Iscsi(control) => control.drive(now),
            Self::NvmeTcp(control) => control.drive(now),
        }
    }

    /// Asks the peer all there is to know about the volume. Blocks.
    ///
    /// # Errors
    /// The peer does not answer, or not as it should.
    pub fn describe(&mut self) -> Result<Description, Error> {
        match self {
            Self::Iscsi(control) => control.describe(),
            Self::NvmeTcp(control) => control.describe(),
        }
    }

    /// How long the peer takes to answer on the control path; `None` where that is the queues' own
    /// ([`AnyQueue::ping`]). Blocks.
    ///
    /// # Errors
    /// The attachment is of no use any more.
    pub fn round_trip(&mut self) -> Result<Option<Duration>, Lost> {
        match self {
            Self::Iscsi(_) => Ok(None),
            Self::NvmeTcp(control) => control.round_trip().map(Some),
        }
    }

    /// Ends the attachment in the protocol's own way, after its queues. Blocks for a short while at most. Whether the
    /// peer has confirmed that nothing submitted on any queue of this attachment is executed any more.
    pub fn close(self) -> bool {
        match self {
            Self::Iscsi(control) => {
                control.close();
                false
            }
            Self::NvmeTcp(control) => control.close(),
        }
    }
}
