//! What a policy has done to the socket.

/// What becomes of TCP_NODELAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Switch {
    Keep,
    /// It is set. What was held back leaves.
    NoDelay,
    /// TCP_NODELAY is cleared, so that Nagle's algorithm applies.
    Nagle,
    /// It is set and cleared again, so that what was held back leaves.
    Flush,
}

impl Switch {
    /// The values to set, one after the other.
    pub fn settings(self) -> impl Iterator<Item = bool> {
        let settings: &[bool] = match self {
            Self::Keep => &[],
            Self::NoDelay => &[true],
            Self::Nagle => &[false],
            Self::Flush => &[true, false],
        };
        settings.iter().copied()
    }
}
