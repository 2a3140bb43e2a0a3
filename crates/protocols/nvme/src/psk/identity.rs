//! Identities, by which a server finds the key that a host offers.

use std::fmt;

use super::PskHash;
use crate::nqn::{Nqn, NqnError};

/// The longest identity that implementations take.
pub const IDENTITY_LENGTH_MAX: usize = 10 + 2 * 224 + 64;

/// The longest context of HKDF-Expand-Label.
const CONTEXT_MAX: usize = 255;

/// The form of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// Names of host and subsystem.
    V0,
    /// The names and a digest of the retained PSK.
    V1,
}

impl Version {
    pub const ALL: [Self; 2] = [Self::V0, Self::V1];

    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// Where a retained PSK comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    Configured,
    /// DH-HMAC-CHAP with secure channel concatenation.
    Generated,
}

/// Who a PSK is for. It is sent in the clear.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    pub version: Version,
    pub origin: Origin,
    pub hash: PskHash,
    pub host: Nqn,
    pub subsystem: Nqn,
    /// Of the retained PSK, base64; empty in version 0.
    pub digest: String,
}

/// Why bytes are no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    #[error("an identity is `NVMe1R01 HOSTNQN SUBNQN DIGEST` or `NVMe0R01 HOSTNQN SUBNQN`")]
    Form,
    #[error("hash {0:?} of the identity is neither 01 nor 02")]
    Hash(String),
    #[error("the digest of the identity is not of its hash")]
    Digest,
    #[error("a name of the identity is not an NQN: {0}")]
    Name(#[from] NqnError),
    #[error(
        "names of host and subsystem are too long together for an identity of version 0: at most {CONTEXT_MAX} bytes"
    )]
    TooLong,
}

impl Identity {
    /// From what a peer has sent.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, IdentityError> {
        if bytes.len() > IDENTITY_LENGTH_MAX {
            return Err(IdentityError::Form);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| IdentityError::Form)?;
        let mut parts = text.split(' ');
        let mut next = || parts.next().ok_or(IdentityError::Form);
        let (kind, host, subsystem) = (next()?, next()?, next()?);
        let digest = parts.next().unwrap_or_default().to_owned();
        if parts.next().is_some() || !kind.is_ascii() {
            return Err(IdentityError::Form);
        }
        let (version, origin, hash) = match kind.split_at_checked(6) {
            Some(("NVMe0R", hash)) => (Version::V0, Origin::Configured, hash),
            Some(("NVMe1R", hash)) => (Version::V1, Origin::Configured, hash),
            Some(("NVMe1G", hash)) => (Version::V1, Origin::Generated, hash),
            _ => return Err(IdentityError::Form),
        };
        let hash = PskHash::ALL
            .into_iter()
            .find(|it| format!("{:02}", it.id()) == hash)
            .ok_or_else(|| IdentityError::Hash(hash.to_owned()))?;
        let digest_length = match version {
            Version::V0 => 0,
            Version::V1 => hash.length().div_ceil(3) * 4,
        };
        if digest.len() != digest_length {
            return Err(IdentityError::Digest);
        }
        let (host, subsystem) = (Nqn::new(host)?, Nqn::new(subsystem)?);
        let identity = Self {
            version,
            origin,
            hash,
            host,
            subsystem,
            digest,
        };
        identity.check()?;
        Ok(identity)
    }

    /// Refuses what no key can be derived for.
    pub(super) fn check(&self) -> Result<(), IdentityError> {
        let is_context = self.version == Version::V0;
        match is_context && self.to_string().len() > CONTEXT_MAX {
            true => Err(IdentityError::TooLong),
            false => Ok(()),
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = match self.version {
            Version::V0 => 0,
            Version::V1 => 1,
        };
        let origin = match self.origin {
            Origin::Configured => 'R',
            Origin::Generated => 'G',
        };
        let hash = self.hash.id();
        write!(
            f,
            "NVMe{version}{origin}{hash:02} {} {}",
            self.host, self.subsystem
        )?;
        match self.version {
            Version::V0 => Ok(()),
            Version::V1 => write!(f, " {}", self.digest),
        }
    }
}
