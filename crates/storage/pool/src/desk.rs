//! Work on a pool that takes its time: what it is, and how far.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use crate::report::Finding;

/// What is done to the whole pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// All data is read, and compared with its checksums.
    Scrub,
    /// A drive is emptied, and taken out.
    Remove(PathBuf),
    /// A side of a mirror is filled.
    Rebuild(PathBuf),
}

impl WorkKind {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Scrub => "a scrub",
            Self::Remove(_) => "the removal of a drive",
            Self::Rebuild(_) => "the rebuild of a mirror",
        }
    }
}

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scrub => f.write_str("scrub"),
            Self::Remove(path) => write!(f, "remove {}", path.display()),
            Self::Rebuild(path) => write!(f, "rebuild {}", path.display()),
        }
    }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkState {
    Running,
    Done,
    /// It was told to end before.
    Stopped,
    /// Why it could not be done.
    Failed(String),
}

/// Work, and what came of it.
#[derive(Clone, Debug)]
pub struct Work {
    pub kind: WorkKind,
    pub state: WorkState,
    pub began: SystemTime,
    pub ended: Option<SystemTime>,
    /// Bytes that were read or moved, and those that were to be when it began.
    pub done: u64,
    pub sum: u64,
    /// What a scrub found.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are listed.
    pub more: u64,
}

impl Work {
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == WorkState::Running
    }
}

/// The work of a pool: what is done, or was last.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) work: Option<Work>,
    pub(crate) is_to_stop: bool,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes were read or moved.
    Did(u64),
    /// Others have to end something first.
    Wait,
    Done,
}
