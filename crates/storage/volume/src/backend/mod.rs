//! The backends of volumes. Each is one file.

pub mod block;
pub mod file;
pub mod mem;
pub mod null;
