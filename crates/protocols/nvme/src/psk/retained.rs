//! Retained PSKs, and the keys that TLS takes.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use zeroize::Zeroizing;

use super::identity::{Identity, IdentityError, Origin, Version};
use super::{Derivation, PskHash};
use crate::nqn::Nqn;

/// What a server keeps of a key, for one host. Printed as `***`, wiped when dropped.
#[derive(Clone)]
pub struct RetainedPsk {
    key: Zeroizing<Vec<u8>>,
    hash: PskHash,
    derivation: Derivation,
}

/// The key that TLS takes, and its identity.
#[derive(Clone)]
pub struct TlsPsk {
    pub identity: Identity,
    key: Zeroizing<Vec<u8>>,
}

impl RetainedPsk {
    pub(super) const fn new(
        key: Zeroizing<Vec<u8>>,
        hash: PskHash,
        derivation: Derivation,
    ) -> Self {
        Self {
            key,
            hash,
            derivation,
        }
    }

    /// One that DH-HMAC-CHAP has made ([`generated_psk`](crate::auth::generated_psk)); `None`: no hash has its length.
    #[must_use]
    pub fn generated(key: Zeroizing<Vec<u8>>) -> Option<Self> {
        let hash = PskHash::ALL
            .into_iter()
            .find(|hash| hash.length() == key.len())?;
        Some(Self::new(key, hash, Derivation::Standard))
    }

    /// The key for TLS of this host at a subsystem.
    ///
    /// # Errors
    /// The names are too long for an identity of version 0.
    pub fn tls_psk(
        &self,
        host: &Nqn,
        subsystem: &Nqn,
        version: Version,
        origin: Origin,
    ) -> Result<TlsPsk, IdentityError> {
        let digest = match version {
            Version::V0 => String::new(),
            Version::V1 => self.digest(host, subsystem),
        };
        let identity = Identity {
            version,
            origin,
            hash: self.hash,
            host: host.clone(),
            subsystem: subsystem.clone(),
            digest,
        };
        identity.check()?;
        let context = match version {
            Version::V0 => identity.to_string(),
            Version::V1 => format!("{:02} {}", self.hash.id(), identity.digest),
        };
        let extracted = self.hash.extract(&self.key);
        let key = self.derivation.expand(
            self.hash,
            &extracted,
            "nvme-tls-psk",
            context.as_bytes(),
            self.hash.length(),
        );
        Ok(TlsPsk { identity, key })
    }

    /// Names the key without revealing it.
    fn digest(&self, host: &Nqn, subsystem: &Nqn) -> String {
        let names = format!("{host} {subsystem} NVMe-over-Fabrics");
        BASE64.encode(&*self.hash.function().hmac(&self.key, &[names.as_bytes()]))
    }
}

impl TlsPsk {
    /// The key's bytes: 32 or 48.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for RetainedPsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ***", self.identity)
    }
}
