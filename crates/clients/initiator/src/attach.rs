//! Attaching a volume: from a URL to connected queues.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::error::{Error, Lost};
use crate::info::{AccessState, Description, Notice, VolumeInfo};
use crate::options::{Options, QueueMaps};
use crate::other_protocol::attach_first;
use crate::queue::AnyQueue;
use crate::url::Url;
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
    /// Of iSCSI sessions.
    Iscsi(iscsi::Control),
    /// An admin queue.
    NvmeTcp(nvme::Control),
}

/// Attaches a volume over the first of its portals that works. Blocks, within the time-outs.
///
/// # Errors
/// No portal works; says why for each.
pub fn attach(url: &Url, options: &Options) -> Result<Attachment, Error> {
    let mut errors = Vec::new();
    for portal in 0..url.portals().len() {
        match attach_first(url, portal, options) {
            Ok(attachment) => return Ok(attachment),
            Err(error) => errors.push(error),
        }
    }
    match errors.pop() {
        Some(only) if errors.is_empty() => Err(only),
        Some(last) => {
            errors.push(last);
            Err(Error::AllPortals(errors))
        }
        None => Err(Error::Options("the URL names no portal".to_owned())),
    }
}

/// Attaches a volume over the portal with this number in its URL. Blocks, within the time-outs.
///
/// # Errors
/// Says where, why, and what to do next.
///
/// # Panics
/// When there is no such portal.
pub fn attach_path(url: &Url, portal: usize, options: &Options) -> Result<Attachment, Error> {
    let options = &options.for_url(url);
    match url {
        Url::Iscsi(url) => iscsi::attach_path(url, portal, options),
        Url::NvmeTcp(url) => nvme::attach_path(url, portal, options),
    }
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
