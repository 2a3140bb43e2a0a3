//! How payload comes to be sent without a copy, and when that pays.
//!
//! Reads of files and devices that are in the page cache send its pages, by way of a pipe ([`pages`]). Everything else
//! is copied by the kernel once, out of the buffer that it was read into.

pub(crate) mod pages;

/// Whether something that saves copies is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByReference {
    /// Where it is safe, and pays.
    #[default]
    Auto,
    /// Never.
    Off,
    /// Wherever it is possible.
    Always,
}

/// What the kernel need not copy, nor look up each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Pages of the page cache, by splice(2).
    pub splice: ByReference,
    /// Buffers that are read into from O_DIRECT files, or written from, are registered with io_uring.
    pub registered: bool,
}
