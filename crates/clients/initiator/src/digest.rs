//! The user's choice of digests.

use longshore_iscsi::negotiation::DigestPolicy;

/// Whether there is to be a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DigestWish {
    /// None. A peer that insists is followed where the protocol can do that.
    #[default]
    Off,
    /// If the peer has it.
    Ask,
    /// The peer must have it: attaching fails with [`Error::NotGranted`](crate::error::Error::NotGranted) otherwise.
    Require,
}

impl DigestWish {
    /// Whether it is asked for.
    #[must_use]
    pub const fn is_asked_for(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// As iSCSI negotiates it.
    #[must_use]
    pub const fn policy(self) -> DigestPolicy {
        match self {
            Self::Off => DigestPolicy::PreferNone,
            Self::Ask => DigestPolicy::PreferCrc32c,
            Self::Require => DigestPolicy::Crc32c,
        }
    }
}
