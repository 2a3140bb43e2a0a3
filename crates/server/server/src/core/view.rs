//! The exports as a shard sees them during a turn.

use std::fmt::Debug;
use std::sync::Arc;

use super::shared::Shared;
use crate::exports::Exports;

/// What all shards share, and what is exported. Each shard has one of its own, which is replaced between commands, so
/// that holding on to it touches no memory of other cores.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub shared: Arc<Shared>,
    pub exports: Exports,
}

impl View {
    pub(crate) fn new(shared: &Arc<Shared>, exports: &Exports) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            exports: exports.clone(),
        })
    }
}
