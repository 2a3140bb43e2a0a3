//! SCST's trees of files as a function of the configuration, and its commands as changes of it.
//!
//! ```text
//!  objects, sessions ─► State ─► node::Directory, node::File ─► names, text
//!                          └───► write::write(file, bytes) ───► Change │ Refusal (errno, text)
//! ```
//!
//! Both trees are here: today's (`/sys/kernel/scst_tgt`) and that of the procfs era (`/proc/scsi_tgt`). A look-up needs the
//! path alone, so its time does not grow with the number of objects. There is no file system, no socket and no clock: the
//! daemon mounts the tree and carries the changes out.
//!
//! A device is a volume, a target an iSCSI target, a group a rule of `[[target.access]]` with a name.

#![forbid(unsafe_code)]

pub mod change;
pub mod command;
pub mod errno;
pub mod map;
pub mod mutual;
pub mod node;
pub mod state;
pub mod write;

mod content;
mod copies;
mod device;
mod driver;
pub mod procfs;
mod target;

#[cfg(test)]
mod tests;

/// What the tools take for the version of SCST.
pub const VERSION: &str = "3.10.0";

/// The driver of the targets that are served.
pub const DRIVER: &str = "iscsi";
