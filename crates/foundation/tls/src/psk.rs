//! Pre-shared keys.

use std::fmt;

use zeroize::Zeroizing;

/// The longest identity that is taken: those of NVMe have two names of up to 223 bytes and a digest.
pub const IDENTITY_BYTES_MAX: usize = 1024;

/// A cipher suite (RFC 8446 §B.4). Keys of the other three are not in use with NVMe/TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Suite {
    /// TLS_AES_128_GCM_SHA256, which has the number 1301h.
    Aes128GcmSha256,
    /// TLS_AES_256_GCM_SHA384, which has the number 1302h.
    Aes256GcmSha384,
}

impl Suite {
    pub const ALL: [Self; 2] = [Self::Aes128GcmSha256, Self::Aes256GcmSha384];

    /// Its number on the wire, big endian.
    #[must_use]
    pub const fn id(self) -> [u8; 2] {
        match self {
            Self::Aes128GcmSha256 => [0x13, 0x01],
            Self::Aes256GcmSha384 => [0x13, 0x02],
        }
    }

    /// Its name in the standard, and in OpenSSL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128GcmSha256 => "TLS_AES_128_GCM_SHA256",
            Self::Aes256GcmSha384 => "TLS_AES_256_GCM_SHA384",
        }
    }

    /// Bytes of its hash: of a key that NVMe derives for it, and of a binder.
    #[must_use]
    pub const fn hash_length(self) -> usize {
        match self {
            Self::Aes128GcmSha256 => 32,
            Self::Aes256GcmSha384 => 48,
        }
    }
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PskError {
    #[error("a key for {} has {} bytes, not {length}", suite.name(), suite.hash_length())]
    Length { length: usize, suite: Suite },
    #[error("an identity has 1 to {IDENTITY_BYTES_MAX} bytes, not {0}")]
    Identity(usize),
}

/// A key that both ends know, and its name. Printed without the key, which is wiped when dropped.
#[derive(Clone)]
pub struct Psk {
    identity: Box<[u8]>,
    suite: Suite,
    key: Zeroizing<Box<[u8]>>,
}

impl Psk {
    /// # Errors
    /// The key is not as long as the suite's hash, or the identity is empty or longer than [`IDENTITY_BYTES_MAX`].
    pub fn new(identity: &[u8], suite: Suite, key: &[u8]) -> Result<Self, PskError> {
        if key.len() != suite.hash_length() {
            let length = key.len();
            return Err(PskError::Length { length, suite });
        }
        if identity.is_empty() || identity.len() > IDENTITY_BYTES_MAX {
            return Err(PskError::Identity(identity.len()));
        }
        Ok(Self {
            identity: identity.into(),
            suite,
            key: Zeroizing::new(key.into()),
        })
    }

    #[must_use]
    pub const fn identity(&self) -> &[u8] {
        &self.identity
    }

    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk")
            .field("identity", &String::from_utf8_lossy(&self.identity))
            .field("suite", &self.suite)
            .field("key", &"***")
            .finish()
    }
}

/// The keys of a server. Asked during handshakes, with what anybody may have sent.
pub trait PskStore: Send + Sync {
    fn find(&self, identity: &[u8]) -> Option<Psk>;
}
