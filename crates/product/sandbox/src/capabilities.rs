//! The privileges of root that the server has no use for.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

use crate::policy::Policy;

/// What a server of root may still do: files of other users, ports below 1024, priorities of packets and threads, limits of
/// descriptors and of locked memory.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Takes all others from this thread and those that it starts. No program that they run gets them back.
///
/// # Errors
/// Why not.
pub fn drop_unused(policy: &Policy) -> Result<(), String> {
    take(policy).map_err(|error| error.to_string())
}

fn take(policy: &Policy) -> io::Result<()> {
    set_no_new_privs(true)?;
    let has = capabilities(None)?;
    let kept = match policy.mounts {
        true => KEPT | CapabilitySet::SYS_ADMIN,
        false => KEPT,
    };
    // Without privileges there is nothing to take, and a unit of systemd may forbid the call.
    if kept.contains(has.effective | has.permitted | has.inheritable) {
        return Ok(());
    }
    set_capabilities(
        None,
        CapabilitySets {
            effective: has.effective & kept,
            permitted: has.permitted & kept,
            inheritable: CapabilitySet::empty(),
        },
    )
}
