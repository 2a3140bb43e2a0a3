//! Where connections run, and what the kernel is told of them.

pub(crate) mod options;
