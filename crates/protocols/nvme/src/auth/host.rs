//! The host's role: proves itself, and has the controller prove itself if it knows that secret.
//!
//! The host is on no data path, so it computes what it needs where it is called.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::entropy::Entropy;
use super::group::Group;
use super::hash::Hash;
use super::message::{Failure, Frame, Message};
use super::proof::{Parties, Question, generated_psk};
use super::secret::Secret;
use super::secure_channel::SecureChannel;

/// How an authentication ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The controller said so.
    #[error("the controller answers: {}", .0.text())]
    Refused(Failure),
    /// The controller broke the protocol.
    #[error("the controller sent a message that is not well-formed, or not the next one")]
    Malformed,
    /// It chose a hash function that was not offered.
    #[error("the controller chose a hash function that it was not offered")]
    HashNotOffered,
    /// It chose a group that was not offered.
    #[error("the controller chose a group that it was not offered")]
    GroupNotOffered,
    /// A public value that would give the shared secret away.
    #[error("the controller sent a Diffie-Hellman value that is none")]
    PublicValue,
    /// It did not prove itself.
    #[error("the controller has not proved that it knows its secret")]
    NotProved,
}

/// What is done after a message of the controller.
#[derive(Debug)]
pub enum Answer {
    /// This message is sent, and the next one read.
    Reply(Vec<u8>),
    /// This message is sent, and all is well.
    Confirm(Vec<u8>),
    /// Both ends have proved what they had to prove.
    Done,
    /// This message is sent, if there is one, and the connection closed.
    Failed(Option<Vec<u8>>, HostError),
}

enum State {
    Negotiated,
    Replied(Replied),
    Over,
}

/// What is known once the host has replied.
struct Replied {
    hash: Hash,
    session_key: Option<Zeroizing<Vec<u8>>>,
    /// C1, the controller's challenge.
    first: Vec<u8>,
    /// C2, our own: for its proof, for a key, or none.
    challenge: Option<Vec<u8>>,
}

/// The authentication of one queue. See the module documentation.
pub struct Host<'a> {
    parties: &'a Parties,
    secret: &'a Secret,
    controller_secret: Option<&'a Secret>,
    hashes: &'a [Hash],
    groups: &'a [Group],
    transaction: u16,
    secure_channel: SecureChannel,
    /// S2; 0: the controller does not have to prove itself.
    sequence: u32,
    state: State,
    generated: Option<Zeroizing<Vec<u8>>>,
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("parties", &self.parties)
            .field("transaction", &self.transaction)
            .finish_non_exhaustive()
    }
}

impl<'a> Host<'a> {
    /// Of a queue that is connected, with all hash functions and groups.
    #[must_use]
    pub const fn new(
        parties: &'a Parties,
        secret: &'a Secret,
        controller_secret: Option<&'a Secret>,
        transaction: u16,
    ) -> Self {
        Self {
            parties,
            secret,
            controller_secret,
            hashes: &Hash::ALL,
            groups: &Group::ALL,
            transaction,
            secure_channel: SecureChannel::None,
            sequence: 0,
            state: State::Negotiated,
            generated: None,
        }
    }

    /// Offers these hashes and groups only.
    #[must_use]
    pub const fn offering(mut self, hashes: &'a [Hash], groups: &'a [Group]) -> Self {
        (self.hashes, self.groups) = (hashes, groups);
        self
    }

    /// Has a key for TLS made. Offers what it can be made with.
    #[must_use]
    pub const fn concatenating(mut self, secure_channel: SecureChannel) -> Self {
        self.secure_channel = secure_channel;
        self
    }

    /// The key for TLS that was asked for, once all is well.
    pub const fn take_generated(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        self.generated.take()
    }

    /// Whether a key can be made with it, if one is wanted.
    fn has_use_for(&self, hash: Hash, group: Group) -> bool {
        !self.secure_channel.makes_key() || (hash.makes_keys() && group != Group::Null)
    }

    fn frame(&self, message: Message) -> Vec<u8> {
        let transaction = self.transaction;
        let frame = Frame {
            transaction,
            message,
        };
        frame.encode()
    }

    /// The first message of the exchange: AUTH_Negotiate.
    #[must_use]
    pub fn negotiate(&self) -> Vec<u8> {
        let hashes = self.hashes.iter();
        let groups = self.groups.iter();
        // Each with one that is of use.
        let hashes = hashes.filter(|hash| self.has_use_for(**hash, Group::Ffdhe2048));
        let groups = groups.filter(|group| self.has_use_for(Hash::Sha256, **group));
        let offer = (
            hashes.map(|hash| hash.id()).collect(),
            groups.map(|group| group.id()).collect(),
        );
        self.frame(Message::Negotiate {
            secure_channel: self.secure_channel.id(),
            offer: Some(offer),
        })
    }

    /// A message of the controller.
    pub fn handle(&mut self, bytes: &[u8], entropy: Entropy<'_>) -> Answer {
        match self.answer(bytes, entropy) {
            Ok(answer) => answer,
            Err(error) => {
                self.state = State::Over;
                let failure = match error {
                    HostError::Refused(_) => return Answer::Failed(None, error),
                    HostError::Malformed | HostError::PublicValue => Failure::INCORRECT_PAYLOAD,
                    HostError::HashNotOffered => Failure::HASH_NOT_USABLE,
                    HostError::GroupNotOffered => Failure::GROUP_NOT_USABLE,
                    HostError::NotProved => Failure::FAILED,
                };
                Answer::Failed(Some(self.frame(Message::Failure2(failure))), error)
            }
        }
    }

    fn answer(&mut self, bytes: &[u8], entropy: Entropy<'_>) -> Result<Answer, HostError> {
        let frame = Frame::decode(bytes).map_err(|_| HostError::Malformed)?;
        if let Message::Failure1(failure) = frame.message {
            return Err(HostError::Refused(failure));
        }
        if frame.transaction != self.transaction {
            return Err(HostError::Malformed);
        }
        match (
            frame.message,
            std::mem::replace(&mut self.state, State::Over),
        ) {
            (
                Message::Challenge {
                    hash,
                    group,
                    sequence,
                    challenge,
                    public_value,
                },
                State::Negotiated,
            ) => {
                let hash = Hash::from_id(hash).filter(|hash| self.hashes.contains(hash));
                let group = Group::from_id(group).filter(|group| self.groups.contains(group));
                let hash = hash.filter(|hash| self.has_use_for(*hash, Group::Ffdhe2048));
                let group = group.filter(|group| self.has_use_for(Hash::Sha256, *group));
                let hash = hash.ok_or(HostError::HashNotOffered)?;
                let group = group.ok_or(HostError::GroupNotOffered)?;
                if challenge.len() != hash.length() || sequence == 0 {
                    return Err(HostError::Malformed);
                }
                self.reply((hash, group), sequence, &challenge, &public_value, entropy)
            }
            (Message::Success1 { proof, .. }, State::Replied(replied)) => {
                self.conclude(&replied, proof.as_deref())
            }
            _ => Err(HostError::Malformed),
        }
    }

    fn reply(
        &mut self,
        (hash, group): (Hash, Group),
        sequence: u32,
        challenge: &[u8],
        their_value: &[u8],
        entropy: Entropy<'_>,
    ) -> Result<Answer, HostError> {
        if !group.is_public_value(their_value) {
            return Err(HostError::PublicValue);
        }
        let (session_key, public_value) = if group == Group::Null {
            (None, Vec::new())
        } else {
            let exponent = group.private_exponent(entropy);
            let shared = group.power(their_value, &exponent);
            let ours = group.public_value(&exponent);
            (Some(hash.digest(&shared)), ours.to_vec())
        };
        let question = Question {
            hash,
            challenge,
            sequence,
            transaction: self.transaction,
            secure_channel: self.secure_channel,
            session_key: session_key.as_deref().map(Vec::as_slice),
        };
        let key = self.secret.transformed(&self.parties.host);
        let proof = question.of_host(&key, self.parties).to_vec();
        let is_mutual = self.controller_secret.is_some();
        let asked = (is_mutual || self.secure_channel.makes_key()).then(|| {
            let mut challenge = vec![0; hash.length()];
            entropy(&mut challenge);
            challenge
        });
        if is_mutual {
            let mut sequence = [0; 4];
            entropy(&mut sequence);
            self.sequence = u32::from_le_bytes(sequence).max(1);
        }
        self.state = State::Replied(Replied {
            hash,
            session_key,
            first: challenge.to_vec(),
            challenge: asked.clone(),
        });
        Ok(Answer::Reply(self.frame(Message::Reply {
            proof,
            sequence: self.sequence,
            challenge: asked,
            public_value,
        })))
    }

    fn conclude(&mut self, replied: &Replied, proof: Option<&[u8]>) -> Result<Answer, HostError> {
        let hash = replied.hash;
        let session_key = replied.session_key.as_deref().map(Vec::as_slice);
        let challenge = replied.challenge.as_deref();
        if let (Some(challenge), Some(secret)) = (challenge, self.controller_secret) {
            let question = Question {
                hash,
                challenge,
                sequence: self.sequence,
                transaction: self.transaction,
                secure_channel: self.secure_channel,
                session_key,
            };
            let key = secret.transformed(&self.parties.subsystem);
            let expected = question.of_controller(&key, self.parties);
            let is_right: bool = proof.is_some_and(|proof| expected.ct_eq(proof).into());
            if !is_right {
                return Err(HostError::NotProved);
            }
        }
        if self.secure_channel.makes_key() {
            let made = session_key
                .zip(challenge)
                .and_then(|(session_key, challenge)| {
                    generated_psk(hash, session_key, &replied.first, challenge)
                });
            // What it is made with was looked at.
            self.generated = Some(made.ok_or(HostError::Malformed)?);
        }
        match self.controller_secret {
            Some(_) => Ok(Answer::Confirm(self.frame(Message::Success2))),
            None => Ok(Answer::Done),
        }
    }
}
