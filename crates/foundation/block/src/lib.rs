//! What SCSI and NVMe share of a block device.
//!
//! - [`operation`]: the one set of operations on a volume, in logical blocks; [`extent`]: ranges of them;
//!   [`chunks`]: work on a long one in pieces.
//! - [`naa`], [`names`]: worldwide names.
//! - [`command`]: what a command in progress needs of its driver.
//! - [`sanitize`]: making all data unreadable.
//! - [`reservation`]: who may do what while several initiators and hosts share it.

#![forbid(unsafe_code)]

pub mod chunks;
pub mod command;
pub mod extent;
pub mod naa;
pub mod names;
pub mod operation;
pub mod reservation;
pub mod sanitize;
