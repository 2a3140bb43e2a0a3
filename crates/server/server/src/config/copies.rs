//! Sending payload without a copy: the settings, and the cases in which it pays.
//!
//! Reads of files and devices that are in the page cache send its pages, by way of a pipe ([`crate::execute::pages`]). Everything
//! else is copied by the kernel once, out of the buffer that it was read into.

/// Whether something that saves copies is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByReference {
    /// Where it is safe, and pays.
    #[default]
    Auto,
    Off,
    /// Wherever it is possible.
    Always,
}

impl ByReference {
    /// Whether it is done for a volume. It is safe for those that nobody can write to.
    pub(crate) const fn is_done(self, read_only: bool) -> bool {
        match self {
            Self::Auto => read_only,
            Self::Off => false,
            Self::Always => true,
        }
    }
}

/// What the kernel need not copy, nor look up each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Pages of the page cache, by splice(2).
    pub splice: ByReference,
    /// Buffers that are read into from O_DIRECT files, or written from, are registered with io_uring.
    pub registered: bool,
}
