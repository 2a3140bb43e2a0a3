//! The messages of DH-HMAC-CHAP (NVMe base 2.0 §8.13.5.2 to §8.13.5.7).
//!
//! ```text
//!  0 AUTH_TYPE  1 AUTH_ID  2 reserved  4 T_ID
//!  Negotiate  6 SC_C  7 NAPD  8 descriptors of 64: 0 AuthID 1 reserved 2 HALEN 3 DHLEN 4 hashes (30) 34 groups (30)
//!  Challenge  6 HL  8 HashID  9 DHgID  10 DHVLEN  12 SEQNUM  16 C1 (HL)  g^x (DHVLEN)
//!  Reply      6 HL  8 CVALID  10 DHVLEN  12 SEQNUM  16 proof (HL)  C2 (HL)  g^y (DHVLEN)
//!  Success1   6 HL  8 RVALID  16 proof (HL)
//!  Success2   16 bytes
//!  Failure1, Failure2  6 reason  7 explanation
//! ```
//!
//! Reserved fields are written as zeros and not looked at. Bytes behind a message are no part of it: commands may carry
//! more than it has.

use longshore_wire::{OutOfBytes, Reader};

use super::group::Group;
use super::hash::Hash;

/// AUTH_TYPE of messages that all protocols share, and of those of this one.
const COMMON: u8 = 0x00;
const DH_HMAC_CHAP: u8 = 0x01;
/// AuthID of this protocol in a descriptor.
const PROTOCOL: u8 = 0x01;
/// Identifiers of either kind that a descriptor has room for.
const IDENTIFIERS_MAX: usize = 30;
/// Descriptors that are looked at. Hosts send one for each protocol, and there is one.
const DESCRIPTORS_MAX: u8 = 16;

mod id {
    pub(super) const NEGOTIATE: u8 = 0x00;
    pub(super) const CHALLENGE: u8 = 0x01;
    pub(super) const REPLY: u8 = 0x02;
    pub(super) const SUCCESS1: u8 = 0x03;
    pub(super) const SUCCESS2: u8 = 0x04;
    pub(super) const FAILURE2: u8 = 0xf0;
    pub(super) const FAILURE1: u8 = 0xf1;
}

/// Why an authentication failed: the explanation of Failure1 and Failure2. The reason is always 01h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure(pub u8);

impl Failure {
    /// The proof is wrong.
    pub const FAILED: Self = Self(0x01);
    /// No protocol that the host offers is usable.
    pub const PROTOCOL_NOT_USABLE: Self = Self(0x02);
    /// The parties do not agree on a secure channel.
    pub const CONCATENATION_MISMATCH: Self = Self(0x03);
    pub const HASH_NOT_USABLE: Self = Self(0x04);
    pub const GROUP_NOT_USABLE: Self = Self(0x05);
    pub const INCORRECT_PAYLOAD: Self = Self(0x06);
    pub const INCORRECT_MESSAGE: Self = Self(0x07);

    const REASON: u8 = 0x01;

    /// What it says, for messages.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::FAILED => "authentication failed",
            Self::PROTOCOL_NOT_USABLE => "no usable authentication protocol",
            Self::CONCATENATION_MISMATCH => "secure channel concatenation mismatch",
            Self::HASH_NOT_USABLE => "no usable hash function",
            Self::GROUP_NOT_USABLE => "no usable Diffie-Hellman group",
            Self::INCORRECT_PAYLOAD => "incorrect payload",
            Self::INCORRECT_MESSAGE => "incorrect protocol message",
            _ => "unknown reason",
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message of the host.
    Negotiate {
        /// SC_C: which secure channel is asked for; 0: none.
        secure_channel: u8,
        /// HashIDs and DHgIDs of this protocol, in the order of the host's preference; `None`: it is not offered.
        offer: Option<(Vec<u8>, Vec<u8>)>,
    },
    Challenge {
        hash: u8,
        group: u8,
        /// S1, the sequence number of the challenge.
        sequence: u32,
        challenge: Vec<u8>,
        public_value: Vec<u8>,
    },
    Reply {
        proof: Vec<u8>,
        /// S2, the sequence number of the host's challenge.
        sequence: u32,
        /// C2, if the controller has to prove itself.
        challenge: Option<Vec<u8>>,
        public_value: Vec<u8>,
    },
    Success1 {
        /// HL: bytes of values of the hash function, also without a proof. Linux insists on it.
        hash_length: u8,
        /// The controller's, if it was asked for.
        proof: Option<Vec<u8>>,
    },
    Success2,
    /// The failure as a controller sends it.
    Failure1(Failure),
    /// The failure as a host sends it.
    Failure2(Failure),
}

/// A message of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// T_ID, the number of the transaction.
    pub transaction: u16,
    pub message: Message,
}

impl From<OutOfBytes> for Failure {
    fn from(_: OutOfBytes) -> Self {
        Self::INCORRECT_PAYLOAD
    }
}

impl Frame {
    /// From the wire.
    ///
    /// # Errors
    /// What the peer is to be told.
    pub fn decode(bytes: &[u8]) -> Result<Self, Failure> {
        let mut reader = Reader::new(bytes);
        let [kind, id] = reader.array()?;
        let _reserved = reader.le16()?;
        let transaction = reader.le16()?;
        let message = match (kind, id) {
            (COMMON, id::NEGOTIATE) => Message::decode_negotiate(&mut reader)?,
            (DH_HMAC_CHAP, id::CHALLENGE) => Message::decode_challenge(&mut reader)?,
            (DH_HMAC_CHAP, id::REPLY) => Message::decode_reply(&mut reader)?,
            (DH_HMAC_CHAP, id::SUCCESS1) => Message::decode_success1(&mut reader)?,
            (DH_HMAC_CHAP, id::SUCCESS2) => {
                reader.take(10)?;
                Message::Success2
            }
            // Common messages by the standard.
            (COMMON | DH_HMAC_CHAP, id::FAILURE1) => {
                let [_reason, explanation] = reader.array()?;
                Message::Failure1(Failure(explanation))
            }
            (COMMON | DH_HMAC_CHAP, id::FAILURE2) => {
                let [_reason, explanation] = reader.array()?;
                Message::Failure2(Failure(explanation))
            }
            _ => return Err(Failure::INCORRECT_MESSAGE),
        };
        Ok(Self {
            transaction,
            message,
        })
    }

    /// As it travels.
    ///
    /// # Panics
    /// When lengths do not fit their fields: our own are those of hashes and groups.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let (kind, id) = self.message.identifiers();
        out.extend([kind, id, 0, 0]);
        out.extend(self.transaction.to_le_bytes());
        self.message.encode_rest(&mut out);
        out
    }
}

/// The length of a hash's values, as HL.
fn hash_length(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).expect("values of hashes are short")
}

/// DHVLEN, the length of the public value in bytes.
fn value_length(bytes: &[u8]) -> [u8; 2] {
    let length = u16::try_from(bytes.len()).expect("values of groups are short");
    length.to_le_bytes()
}

/// Takes a value of a hash.
fn hash_value(reader: &mut Reader<'_>, length: u8) -> Result<Vec<u8>, Failure> {
    let length = usize::from(length);
    match Hash::ALL.into_iter().any(|hash| hash.length() == length) {
        true => Ok(reader.take(length)?.to_vec()),
        false => Err(Failure::INCORRECT_PAYLOAD),
    }
}

/// Takes a public value of a group.
fn public_value(reader: &mut Reader<'_>, length: u16) -> Result<Vec<u8>, Failure> {
    let length = usize::from(length);
    match length <= Group::LENGTH_MAX {
        true => Ok(reader.take(length)?.to_vec()),
        false => Err(Failure::INCORRECT_PAYLOAD),
    }
}

impl Message {
    const fn identifiers(&self) -> (u8, u8) {
        match self {
            Self::Negotiate { .. } => (COMMON, id::NEGOTIATE),
            Self::Challenge { .. } => (DH_HMAC_CHAP, id::CHALLENGE),
            Self::Reply { .. } => (DH_HMAC_CHAP, id::REPLY),
            Self::Success1 { .. } => (DH_HMAC_CHAP, id::SUCCESS1),
            Self::Success2 => (DH_HMAC_CHAP, id::SUCCESS2),
            Self::Failure1(_) => (COMMON, id::FAILURE1),
            Self::Failure2(_) => (COMMON, id::FAILURE2),
        }
    }

    fn decode_negotiate(reader: &mut Reader<'_>) -> Result<Self, Failure> {
        let [secure_channel, descriptors] = reader.array()?;
        let mut offer = None;
        for _ in 0..descriptors.min(DESCRIPTORS_MAX) {
            let [protocol, _reserved, hashes, groups] = reader.array()?;
            let of_hashes: [u8; IDENTIFIERS_MAX] = reader.array()?;
            let of_groups: [u8; IDENTIFIERS_MAX] = reader.array()?;
            if protocol != PROTOCOL || offer.is_some() {
                continue;
            }
            let hashes = of_hashes.get(..usize::from(hashes));
            let groups = of_groups.get(..usize::from(groups));
            let (Some(hashes), Some(groups)) = (hashes, groups) else {
                return Err(Failure::INCORRECT_PAYLOAD);
            };
            offer = Some((hashes.to_vec(), groups.to_vec()));
        }
        Ok(Self::Negotiate {
            secure_channel,
            offer,
        })
    }

    fn decode_challenge(reader: &mut Reader<'_>) -> Result<Self, Failure> {
        let [length, _reserved, hash, group] = reader.array()?;
        let value_length = reader.le16()?;
        let sequence = reader.le32()?;
        Ok(Self::Challenge {
            hash,
            group,
            sequence,
            challenge: hash_value(reader, length)?,
            public_value: public_value(reader, value_length)?,
        })
    }

    fn decode_reply(reader: &mut Reader<'_>) -> Result<Self, Failure> {
        let [length, _reserved, is_valid, _] = reader.array()?;
        let value_length = reader.le16()?;
        let sequence = reader.le32()?;
        let proof = hash_value(reader, length)?;
        let challenge = hash_value(reader, length)?;
        Ok(Self::Reply {
            proof,
            sequence,
            challenge: (is_valid & 1 != 0).then_some(challenge),
            public_value: public_value(reader, value_length)?,
        })
    }

    fn decode_success1(reader: &mut Reader<'_>) -> Result<Self, Failure> {
        let [hash_length, _reserved, is_valid] = reader.array()?;
        reader.take(7)?;
        let proof = match is_valid & 1 {
            // Some leave the bytes out then.
            0 => None,
            _ => Some(hash_value(reader, hash_length)?),
        };
        Ok(Self::Success1 { hash_length, proof })
    }

    fn encode_rest(&self, out: &mut Vec<u8>) {
        match self {
            Self::Negotiate {
                secure_channel,
                offer,
            } => {
                out.extend([*secure_channel, u8::from(offer.is_some())]);
                let Some((hashes, groups)) = offer else {
                    return;
                };
                out.extend([PROTOCOL, 0, hash_length(hashes), hash_length(groups)]);
                for identifiers in [hashes, groups] {
                    let mut field = [0; IDENTIFIERS_MAX];
                    field[..identifiers.len()].copy_from_slice(identifiers);
                    out.extend(field);
                }
            }
            Self::Challenge {
                hash,
                group,
                sequence,
                challenge,
                public_value,
            } => {
                out.extend([hash_length(challenge), 0, *hash, *group]);
                out.extend(value_length(public_value));
                out.extend(sequence.to_le_bytes());
                out.extend(challenge);
                out.extend(public_value);
            }
            Self::Reply {
                proof,
                sequence,
                challenge,
                public_value,
            } => {
                out.extend([hash_length(proof), 0, u8::from(challenge.is_some()), 0]);
                out.extend(value_length(public_value));
                out.extend(sequence.to_le_bytes());
                out.extend(proof);
                match challenge {
                    Some(challenge) => out.extend(challenge),
                    None => out.resize(out.len() + proof.len(), 0),
                }
                out.extend(public_value);
            }
            Self::Success1 { hash_length, proof } => {
                out.extend([*hash_length, 0, u8::from(proof.is_some())]);
                out.extend([0; 7]);
                match proof {
                    Some(proof) => out.extend(proof),
                    None => out.resize(out.len() + usize::from(*hash_length), 0),
                }
            }
            Self::Success2 => out.extend([0; 10]),
            Self::Failure1(failure) | Self::Failure2(failure) => {
                out.extend([Failure::REASON, failure.0]);
            }
        }
    }
}
