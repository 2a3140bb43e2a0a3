//! Keeps the memory of the server, with its secrets, out of core dumps and away from other processes of its user.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on no core is dumped, and only root can trace the process or read its memory.
pub fn forbid() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "core dumps of this process may hold secrets");
    }
}
