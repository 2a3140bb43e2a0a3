//! One end of a copy, as those see it that move bytes.

use std::sync::Arc;

use longshore_initiator::volume::Outage;
use longshore_volume::{Volume, WriteCache};

/// One end of a copy.
pub(crate) struct Side {
    pub(crate) volume: Arc<dyn Volume>,
    /// Name in messages, without passwords.
    pub(crate) name: String,
    /// How it is reached, where that is over a network.
    pub(crate) link: Option<Box<dyn Link>>,
}

/// The connections to a server.
pub(crate) trait Link {
    /// How many were lost so far.
    fn losses(&self) -> u64;

    /// Set while there is none.
    fn outage(&self) -> Option<Outage>;
}

impl Side {
    pub(crate) fn losses(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.losses())
    }

    pub(crate) fn outage(&self) -> Option<Outage> {
        self.link.as_ref()?.outage()
    }

    /// It has a write cache that may be lost without an operation failing: another machine's.
    pub(crate) fn may_forget(&self) -> bool {
        let cache = self.volume.characteristics().write_cache;
        self.link.is_some() && cache == WriteCache::Volatile
    }
}
