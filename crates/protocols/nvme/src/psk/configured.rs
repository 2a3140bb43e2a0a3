//! Keys in their interchange format, as `nvme gen-tls-key` writes them.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::label::Derivation;
use super::{PskHash, RetainedPsk};
use crate::auth::Entropy;
use crate::interchange::{self, Malformed};
use crate::nqn::Nqn;

const PREFIX: &str = "NVMeTLSkey-1:";

/// What an administrator gives to a host and its server. Printed as `***`, wiped when dropped.
#[derive(Clone)]
pub struct ConfiguredKey {
    /// The hash that makes the retained PSK of it. `None`: it is the retained PSK.
    hash: Option<PskHash>,
    length: PskHash,
    key: Zeroizing<Vec<u8>>,
}

/// Why a text is no key. The text is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfiguredKeyError {
    #[error("a key has the form NVMeTLSkey-1:HH:<base64>:, as nvme gen-tls-key writes it")]
    Form,
    #[error("the key names hash {0:02}; it is 00, 01 (SHA-256) or 02 (SHA-384)")]
    Hash(u8),
    #[error("the base64 part of the key is not well-formed")]
    Base64,
    #[error("the key has {0} bytes; it has 32 or 48")]
    Length(usize),
    #[error("the checksum of the key is wrong: part of it is missing or mistyped")]
    Checksum,
    #[error("the key has {bytes} bytes, and its hash {hash:02} stands for {}", hash_length(*hash))]
    LengthOfHash { hash: u8, bytes: usize },
}

fn hash_length(id: u8) -> usize {
    PskHash::from_id(id).map_or(0, PskHash::length)
}

impl From<Malformed> for ConfiguredKeyError {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Form => Self::Form,
            Malformed::Base64 => Self::Base64,
            Malformed::Checksum => Self::Checksum,
            Malformed::Length(bytes) => Self::Length(bytes),
        }
    }
}

impl ConfiguredKey {
    /// Reads the interchange format.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self, ConfiguredKeyError> {
        let lengths = PskHash::ALL.map(PskHash::length);
        let (id, key) = interchange::read(text, PREFIX, &lengths)?;
        let length = of_length(key.len()).ok_or(ConfiguredKeyError::Length(key.len()))?;
        let hash = match id {
            0 => None,
            id => Some(PskHash::from_id(id).ok_or(ConfiguredKeyError::Hash(id))?),
        };
        if hash.is_some_and(|hash| hash != length) {
            let bytes = key.len();
            return Err(ConfiguredKeyError::LengthOfHash { hash: id, bytes });
        }
        Ok(Self { hash, length, key })
    }

    /// A new key with values of its hash as its length; without a hash, of 32 bytes.
    #[must_use]
    pub fn generate(hash: Option<PskHash>, entropy: Entropy<'_>) -> Self {
        let length = hash.unwrap_or(PskHash::Sha256);
        let mut key = Zeroizing::new(vec![0; length.length()]);
        entropy(&mut key);
        Self { hash, length, key }
    }

    /// The key in the interchange format `NVMeTLSkey-1`.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        interchange::write(PREFIX, self.hash.map_or(0, PskHash::id), &self.key)
    }

    /// The hash that makes the retained PSK of it, if one does.
    #[must_use]
    pub const fn hash(&self) -> Option<PskHash> {
        self.hash
    }

    /// The hash whose values are as long as the key. It chooses the cipher suite.
    #[must_use]
    pub const fn suite(&self) -> PskHash {
        self.length
    }

    /// Sixteen digits by which people compare keys without showing them.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        interchange::fingerprint(&self.key)
    }

    /// What the key becomes for a host.
    #[must_use]
    pub fn retained(&self, host: &Nqn, derivation: Derivation) -> RetainedPsk {
        let key = match self.hash {
            None => self.key.clone(),
            Some(hash) => {
                let extracted = hash.extract(&self.key);
                let context = host.as_str().as_bytes();
                derivation.expand(hash, &extracted, "HostNQN", context, self.key.len())
            }
        };
        RetainedPsk::new(key, self.length, derivation)
    }
}

fn of_length(bytes: usize) -> Option<PskHash> {
    PskHash::ALL.into_iter().find(|hash| hash.length() == bytes)
}

impl PartialEq for ConfiguredKey {
    fn eq(&self, other: &Self) -> bool {
        let same: bool = self.key.ct_eq(&other.key).into();
        same && self.hash == other.hash
    }
}

impl Eq for ConfiguredKey {}

impl fmt::Debug for ConfiguredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
