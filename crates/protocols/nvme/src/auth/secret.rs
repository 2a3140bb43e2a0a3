//! Secrets of DH-HMAC-CHAP in their interchange format (NVMe base 2.0 §8.13.5.8), and the keys made of them.
//!
//! ```text
//! DHHC-1:HH:<base64 of key ‖ CRC-32 of the key, little-endian>:
//!        HH 00: the key is used as it is   01, 02, 03: transformed by SHA-256, SHA-384, SHA-512
//! ```
//!
//! A transformed key is HMAC(key, NQN of its owner ‖ "NVMe-over-Fabrics").

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::entropy::Entropy;
use super::hash::Hash;
use crate::interchange::{self, Malformed};
use crate::nqn::Nqn;

const PREFIX: &str = "DHHC-1:";
const SEED: &[u8] = b"NVMe-over-Fabrics";
/// Lengths of keys in bytes.
const LENGTHS: [usize; 3] = [32, 48, 64];

/// What a host or a controller knows, and its peer. Printed as `***`, wiped when dropped.
#[derive(Clone)]
pub struct Secret {
    hash: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

/// Why a text is no secret. The text is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    #[error("a secret has the form DHHC-1:HH:<base64>:, as nvme gen-dhchap-key writes it")]
    Form,
    #[error("the secret names hash {0:02}; it is 00, 01 (SHA-256), 02 (SHA-384) or 03 (SHA-512)")]
    Hash(u8),
    #[error("the base64 part of the secret is not well-formed")]
    Base64,
    #[error("the key has {0} bytes; it has 32, 48 or 64")]
    Length(usize),
    #[error("the checksum of the secret is wrong: part of it is missing or mistyped")]
    Checksum,
}

impl From<Malformed> for SecretError {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Form => Self::Form,
            Malformed::Base64 => Self::Base64,
            Malformed::Checksum => Self::Checksum,
            Malformed::Length(bytes) => Self::Length(bytes),
        }
    }
}

impl Secret {
    /// Reads the interchange format.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let (id, key) = interchange::read(text, PREFIX, &LENGTHS)?;
        let hash = match id {
            0 => None,
            id => Some(Hash::from_id(id).ok_or(SecretError::Hash(id))?),
        };
        Ok(Self { hash, key })
    }

    /// A new secret. Its key is as long as values of its hash, or has 32 bytes.
    #[must_use]
    pub fn generate(hash: Option<Hash>, entropy: Entropy<'_>) -> Self {
        let mut key = Zeroizing::new(vec![0; hash.map_or(32, Hash::length)]);
        entropy(&mut key);
        Self { hash, key }
    }

    /// The secret in the interchange format `DHHC-1`.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        interchange::write(PREFIX, self.hash.map_or(0, Hash::id), &self.key)
    }

    /// The hash by which the key is transformed, if it is.
    #[must_use]
    pub const fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// Bytes of the key.
    #[must_use]
    pub fn key_length(&self) -> usize {
        self.key.len()
    }

    /// Sixteen digits by which people compare secrets without showing them.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        interchange::fingerprint(&self.key)
    }

    /// The key as it is used by its owner.
    #[must_use]
    pub fn transformed(&self, owner: &Nqn) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.key.clone(),
            Some(hash) => hash.hmac(&self.key, &[owner.as_str().as_bytes(), SEED]),
        }
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let same: bool = self.key.ct_eq(&other.key).into();
        same && self.hash == other.hash
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of K1 in libnvme's test/psk.c, in the format of DH-HMAC-CHAP.
    const TEXT: &str = "DHHC-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:";

    #[test]
    fn a_text_is_read_and_written() {
        let secret = Secret::parse(TEXT).unwrap();
        assert_eq!(secret.to_text().as_str(), TEXT);
        assert_eq!(format!("{secret:?}"), "***");
    }

    #[test]
    fn a_generated_secret_is_read_again() {
        for hash in [
            None,
            Some(Hash::Sha256),
            Some(Hash::Sha384),
            Some(Hash::Sha512),
        ] {
            let secret = Secret::generate(hash, &mut |bytes| bytes.fill(0x5a));
            assert_eq!(Secret::parse(&secret.to_text()), Ok(secret));
        }
    }

    #[test]
    fn what_is_wrong_with_a_text_is_said() {
        use SecretError::{Base64, Checksum, Form, Hash, Length};
        let base64 = &TEXT[10..TEXT.len() - 1];
        for (text, error) in [
            ("", Form),
            (&TEXT[..TEXT.len() - 1], Form),
            (&TEXT.replace("DHHC-1", "NVMeTLSkey-1"), Form),
            (&TEXT.replace(":01:", ":1:"), Form),
            (&TEXT.replace(":01:", ":+1:"), Form),
            (&TEXT.replace(":01:", ":04:"), Hash(4)),
            (&TEXT.replace("VRL", "V-L"), Base64),
            (&TEXT.replace("VRL", "WRL"), Checksum),
            (&format!("DHHC-1:01:{}:", &base64[..44]), Length(29)),
            (&format!("DHHC-1:01:{}:", "A".repeat(200)), Form),
        ] {
            assert_eq!(Secret::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn keys_are_transformed_with_the_name_of_their_owner() {
        let secret = Secret::parse(TEXT).unwrap();
        let plain = Secret::parse(&TEXT.replace(":01:", ":00:")).unwrap();
        let [one, other] =
            ["nqn.2026-11.test:a", "nqn.2026-11.test:b"].map(|n| Nqn::new(n).unwrap());
        assert_eq!(plain.transformed(&one), plain.transformed(&other));
        assert_ne!(secret.transformed(&one), secret.transformed(&other));
        // Computed by Python's hmac.
        let hex: String = secret
            .transformed(&one)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(
            hex,
            "5063c0a5a5d43e747102bb43e89ac32418d365c7a5864be92de4fc90e5ec61b6"
        );
    }
}
