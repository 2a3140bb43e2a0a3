//! Names of backends.

use std::fmt;

/// The name of a backend on the command line and in the configuration. It is part of derived UUIDs, so it
/// never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackendName(&'static str);

impl BackendName {
    /// Reads give zeros, writes vanish.
    pub const NULL: Self = Self("null");
    /// Memory of this process.
    pub const MEM: Self = Self("mem");
    /// A regular file, `/dev/zero` or `/dev/full`.
    pub const FILE: Self = Self("file");
    /// A block device node.
    pub const BLOCK: Self = Self("block");

    /// A backend of another crate.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}
