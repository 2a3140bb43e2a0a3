//! What SCSI and NVMe share of a block device.
//!
//! - [`media`]: what a command asks of the medium, in logical blocks; [`extent`]: ranges of them;
//!   [`chunks`]: work on a long one in pieces.
//! - [`reservation`]: who may do what while several initiators and hosts share it.

#![forbid(unsafe_code)]

pub mod chunks;
pub mod extent;
pub mod media;
pub mod reservation;
