//! What can store a volume. Each backend is one file.

pub mod block;
pub mod file;
pub mod mem;
pub mod null;
