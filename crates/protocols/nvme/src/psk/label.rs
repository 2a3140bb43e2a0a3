//! HKDF-Expand-Label of RFC 8446 §7.1, and the form of it that libnvme had up to version 1.15.

use zeroize::Zeroizing;

use super::PskHash;

/// How the label is encoded of which keys are derived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Derivation {
    /// Length as a big-endian number; label and context each behind a byte with their length (RFC 8446).
    #[default]
    Standard,
    /// Length as a little-endian number; label and context without their lengths (libnvme up to 1.15).
    Compat,
}

impl Derivation {
    pub const ALL: [Self; 2] = [Self::Standard, Self::Compat];

    /// Its name in options and configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Compat => "compat",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// So many bytes, at most one value of the hash.
    ///
    /// # Panics
    /// When a context has more than 255 bytes, or more are wanted than the hash has.
    pub(super) fn expand(
        self,
        hash: PskHash,
        key: &[u8],
        label: &str,
        context: &[u8],
        length: usize,
    ) -> Zeroizing<Vec<u8>> {
        assert!(length <= hash.length(), "one block of HKDF-Expand");
        let number = u16::try_from(length).expect("a hash has at most 64 bytes");
        let byte = |length: usize| u8::try_from(length).expect("labels and contexts are short");
        let label = format!("tls13 {label}");
        let mut info = Vec::with_capacity(4 + label.len() + context.len());
        match self {
            Self::Standard => {
                info.extend(number.to_be_bytes());
                info.push(byte(label.len()));
                info.extend(label.as_bytes());
                info.push(byte(context.len()));
            }
            Self::Compat => {
                info.extend(number.to_le_bytes());
                info.extend(label.as_bytes());
            }
        }
        info.extend(context);
        // T(1) of HKDF-Expand (RFC 5869 §2.3).
        let mut block = hash.function().hmac(key, &[&info, &[1]]);
        block.truncate(length);
        block
    }
}

impl PskHash {
    /// HKDF-Extract with a salt of zeros (RFC 5869 §2.2).
    pub(super) fn extract(self, key: &[u8]) -> Zeroizing<Vec<u8>> {
        let salt = [0; 48];
        self.function().hmac(&salt[..self.length()], &[key])
    }
}
