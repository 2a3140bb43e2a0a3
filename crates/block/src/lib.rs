//! What SCSI and NVMe share of a block device.
//!
//! - [`media`]: what a command asks of the medium, in logical blocks.
//! - [`reservation`]: who may do what while several initiators and hosts share it.

#![forbid(unsafe_code)]

pub mod media;
pub mod reservation;
