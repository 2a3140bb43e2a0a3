//! The receiver of completions.

use crate::operation::Completion;

/// Takes completions of [`RemoteVolume::submit`](super::RemoteVolume::submit).
pub trait Completer: Send + Sync {
    /// An operation is over. Called exactly once for each submitted, by whatever thread, with no lock held.
    /// It must not block; it may submit further operations.
    fn complete(&self, completion: Completion);
}
