//! What the metrics are made of.

use crate::audit::LastChange;
use crate::collection::Collected;
use crate::requests::{RequestKind, Times};

/// What the metrics are made of.
pub(crate) struct Sources<'a> {
    pub collected: &'a Collected,
    pub requests: Vec<(RequestKind, Times)>,
    pub streams: usize,
    pub log_lines_dropped: u64,
    pub events_dropped: u64,
    pub last_change: Option<LastChange>,
}
