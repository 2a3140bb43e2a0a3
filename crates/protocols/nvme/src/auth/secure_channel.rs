//! Secure channel concatenation: a key for TLS is made of an authentication (NVMe base 2.0 §8.13.5.9, TP 8018).
//!
//! The admin queue authenticates without TLS, and host and controller both keep a pre-shared key that no other has. The
//! host then connects again, over TLS with that key.

/// SC_C of Negotiate: what the host asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecureChannel {
    /// No key is made: the host authenticates, and that is all.
    #[default]
    None,
    /// A key for TLS, on a queue without it.
    New,
    /// Another key, on a queue over TLS.
    Replace,
}

impl SecureChannel {
    /// Its number in messages and proofs.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::New => 2,
            Self::Replace => 3,
        }
    }

    /// Number 1 is for channels that are not those of NVMe/TCP.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        [Self::None, Self::New, Self::Replace]
            .into_iter()
            .find(|it| it.id() == id)
    }

    /// Whether a key is made.
    #[must_use]
    pub const fn makes_key(self) -> bool {
        !matches!(self, Self::None)
    }
}

/// Whether keys are made for the hosts of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Concatenation {
    #[default]
    None,
    Permitted,
    /// These hosts use I/O queues over TLS alone.
    Required,
}

/// The queue of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueChannel {
    /// It makes no keys: an I/O queue, or there is no TLS at this address.
    #[default]
    Other,
    /// An admin queue without TLS.
    Plain,
    /// An admin queue over TLS.
    Secure,
}

impl QueueChannel {
    /// Whether a host may ask for this here.
    pub(super) fn allows(self, wanted: SecureChannel, rule: Concatenation) -> bool {
        match wanted {
            SecureChannel::None => (self, rule) != (Self::Plain, Concatenation::Required),
            SecureChannel::New => self == Self::Plain && rule != Concatenation::None,
            SecureChannel::Replace => self == Self::Secure && rule != Concatenation::None,
        }
    }
}
