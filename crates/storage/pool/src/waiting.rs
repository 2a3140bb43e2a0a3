//! Who waits for a sync of the drives.

use futures_channel::oneshot;

use crate::log::Failure;

/// Who waits for a sync.
#[derive(Debug, Default)]
pub struct Syncs {
    pub is_running: bool,
    pub waiting: Vec<oneshot::Sender<Result<(), Failure>>>,
}
