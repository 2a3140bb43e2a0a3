//! Messages to drivers.

use super::link::{Link, LinkControl};
use crate::error::Lost;
use crate::info::{Notice, VolumeInfo};

/// Which queue of which path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueAddress {
    pub(super) path: usize,
    pub(super) queue: usize,
}

/// What drivers are told.
pub(super) enum Mail {
    /// To the driver of the queue: its socket is to be watched.
    Watch(QueueAddress),
    /// To the driver of the queue: its inbox is to be looked after.
    Serve(QueueAddress),
    /// To the driver of the queue: its link is over.
    TakeDown(QueueAddress),
    /// To the first driver, as all that follow: a queue has been taken down.
    TakenDown { path: usize },
    /// A connector has a link.
    Dialled { path: usize, link: Box<Link> },
    /// A connector's attempt failed.
    DialFailed { path: usize, error: String },
    /// The control of a former link has ended.
    Ended {
        path: usize,
        generation: u64,
        confirmed: bool,
    },
    /// To each but the first, by the first: the volume is closed.
    Stop,
    /// A queue of this link failed.
    Lost {
        path: usize,
        generation: u64,
        loss: Loss,
    },
    /// A queue brought news.
    Notices { path: usize, notices: Vec<Notice> },
    /// An operation says that this path cannot do it.
    Suspect { path: usize },
    /// The volume was identified again.
    Identified {
        path: usize,
        generation: u64,
        control: Box<dyn LinkControl>,
        info: Result<Box<VolumeInfo>, String>,
    },
    /// Something is waiting in another place: deferred completions, retries, the wish to close.
    Recheck,
}

/// Why a path's connections are given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// It failed by itself.
    Lost(Lost),
    /// An operation was not answered in time.
    TimedOut,
    /// A question for a sign of life was not answered.
    Silent,
}

impl std::fmt::Display for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::TimedOut => f.write_str("an operation got no response in time"),
            Self::Silent => f.write_str("the server does not respond"),
        }
    }
}

impl Loss {
    pub(super) fn as_lost(&self) -> Lost {
        match self {
            Self::Lost(lost) => lost.clone(),
            Self::TimedOut | Self::Silent => Lost::Silent,
        }
    }
}
