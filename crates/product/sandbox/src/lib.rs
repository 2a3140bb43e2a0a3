//! Confines the process of the server, so that what takes it over finds little to use.
//!
//! | layer | bounds | mechanism |
//! |---|---|---|
//! | files | the places of a [`Policy`]: volumes, state, configuration | Landlock |
//! | ports | TCP ports to connect to and, where the policy names some, to listen on | Landlock, Linux 6.7 and later |
//! | neighbours | signals and abstract sockets of other processes | Landlock, Linux 6.12 and later |
//! | calls | system calls that the server makes ([`calls`]) | seccomp |
//! | privileges | those of root that the server has no use for | capabilities, `no_new_privs` |
//!
//! [`enter`] is called once, before the first thread: Landlock binds the calling thread and those that it starts. What
//! was opened before stays open. A call outside of the list fails with EPERM and is written to the kernel's audit log;
//! calls that start programs, trace others or change the kernel end the process.
//!
//! Landlock knows files by their inodes: a rule for a file ends with its replacement, one for a folder does not. It bounds
//! ports and not addresses, and TCP alone: other kinds of network sockets are refused by the list of calls.
//! Operations of io_uring pass no seccomp filter. Landlock holds for them, and the rings of the event loops are restricted
//! to what they do (`longshore-reactor`); when they are there, [`Held::refuse_rings`] keeps others from being made.

#![forbid(unsafe_code)]

pub mod calls;
mod capabilities;
mod files;
mod filter;
mod held;
mod policy;

pub use held::{Held, Layer};
pub use policy::{Mode, Policy};

/// Takes from this process what the policy does not name. Returns what holds; nothing of it can be taken back.
///
/// The order is that of need: the filter of system calls comes last, since the others make calls outside of its list.
#[must_use]
pub fn enter(policy: Policy) -> Held {
    if policy.mounts && !rustix::process::geteuid().is_root() {
        let reason = || "SCST's trees are mounted by a program, fusermount3".to_owned();
        return Held::new(policy, Err(reason()), Err(reason()), Err(reason()));
    }
    let alone = files::is_alone();
    let privileges = capabilities::drop_unused(&policy);
    let files = match (&alone, policy.mounts) {
        _ if policy.anywhere => Err("sandbox-paths does not say where volumes may be".to_owned()),
        (_, true) => Err("SCST's trees are mounted, which Landlock forbids".to_owned()),
        (Err(reason), false) => Err(reason.clone()),
        (Ok(()), false) => files::restrict(&policy),
    };
    let calls = filter::install(&policy);
    Held::new(policy, privileges, files, calls)
}
