//! What SCSI and NVMe share of a block device.
//!
//! - [`media`]: what a command asks of the medium, in logical blocks.

#![forbid(unsafe_code)]

pub mod media;
