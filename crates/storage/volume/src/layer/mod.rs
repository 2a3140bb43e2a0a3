//! Volumes that wrap a volume.

pub mod fault;
pub mod slow;
