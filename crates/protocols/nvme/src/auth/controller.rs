//! The controller's role: asks a host to prove itself, and proves itself when asked.
//!
//! ```text
//!            Negotiate        [key pair]        read          Reply        [shared secret]     read
//!   Idle ──────────────► Computing ──► Challenge ──► Asked ─────────► Computing ──► Success1 ───────► Idle
//!    ▲                                                  │ wrong                        │ it had to prove itself
//!    │                                                  ▼                              ▼
//!    └── a new Negotiate                             Failure1 ──read──► over       AwaitSuccess2 ──► Idle
//! ```
//!
//! A queue has one transaction at a time, and may begin it anew once. It stays authenticated while another one goes on, until
//! that fails: from then on Failure1 can be read, and nothing else. What takes long, exponentiation, is handed out as a
//! [`Computation`], for another thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::entropy::Entropy;
use super::group::Group;
use super::hash::Hash;
use super::message::{Failure, Frame, Message};
use super::proof::{Parties, Question, generated_psk};
use super::secret::Secret;
use super::secure_channel::{Concatenation, QueueChannel, SecureChannel};
use crate::status::Status;

/// What a host has to prove, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// What the host knows.
    pub host: Secret,
    /// What the controller proves itself with when asked.
    pub controller: Option<Secret>,
    /// The hash functions that are allowed, the preferred one first.
    pub hashes: Vec<Hash>,
    /// The groups that are allowed, the preferred one first.
    pub groups: Vec<Group>,
    /// Nothing else is done for the host before it has proved itself.
    pub required: bool,
    /// Whether a key for TLS may be made of the authentication.
    pub concatenation: Concatenation,
}

/// What became of a message of the host.
#[derive(Debug)]
pub enum Sent {
    /// The message was taken; the command succeeds.
    Taken,
    /// It was the last message of a transaction: the host has proved itself, and the controller too.
    Authenticated,
    /// It is taken when this is computed: [`Controller::computed`].
    Compute(Computation),
    /// The host gives up: the queue is to be closed.
    GivenUp(Failure),
    /// The command fails with this status.
    Refused(Status),
}

/// What a host was given to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of a transaction that goes on.
    Message,
    /// The last message of a transaction: the host has proved itself.
    Authenticated,
    /// The host has not proved itself: the queue is to be closed when it has this message.
    Failed(Failure),
}

/// Negotiates that a queue may send until it is authenticated: each has a key pair computed.
const NEGOTIATIONS_MAX: u8 = 2;

/// An exponentiation. Takes up to some tens of milliseconds.
pub struct Computation {
    group: Group,
    /// The challenge to send; `None`: one of the generator.
    base: Option<Vec<u8>>,
    exponent: Zeroizing<Vec<u8>>,
}

/// What came of it.
#[derive(Clone)]
pub struct Computed(Zeroizing<Vec<u8>>);

impl Computation {
    /// What it takes, about.
    #[must_use]
    pub fn cost(&self) -> Duration {
        self.group.cost()
    }

    /// Computes the result; takes milliseconds with large groups.
    #[must_use]
    pub fn run(self) -> Computed {
        Computed(match &self.base {
            Some(base) => self.group.power(base, &self.exponent),
            None => self.group.public_value(&self.exponent),
        })
    }
}

impl fmt::Debug for Computation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Computation").field(&self.group).finish()
    }
}

impl fmt::Debug for GeneratedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GeneratedKey")
    }
}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Computed")
    }
}

/// What is known of a transaction from its first message on.
struct Transaction {
    id: u16,
    hash: Hash,
    group: Group,
    secure_channel: SecureChannel,
    credentials: Arc<Credentials>,
    challenge: Vec<u8>,
    /// S1, the sequence number of the challenge.
    sequence: u32,
    exponent: Zeroizing<Vec<u8>>,
}

/// A Reply, as far as it is needed while the shared secret is computed.
struct Reply {
    proof: Vec<u8>,
    sequence: u32,
    challenge: Option<Vec<u8>>,
}

enum State {
    Idle,
    /// The key pair is being computed.
    KeyPair(Transaction),
    /// Challenge is to be read.
    Challenge(Transaction, Zeroizing<Vec<u8>>),
    /// Reply is to come.
    Asked(Transaction),
    /// The shared secret is being computed.
    SharedSecret(Transaction, Reply),
    /// Success1 is to be read, with the proof that was asked for.
    Success {
        id: u16,
        hash: Hash,
        proof: Option<Vec<u8>>,
        /// The key that was made.
        generated: Option<GeneratedKey>,
    },
    /// Success2 is to come.
    AwaitSuccess2 {
        id: u16,
        generated: Option<GeneratedKey>,
    },
    /// Failure1 is to be read.
    Failure {
        id: u16,
        failure: Failure,
    },
    /// Nothing more is taken.
    Over,
}

/// A key for TLS, and of which credentials it was made.
pub struct GeneratedKey {
    pub key: Zeroizing<Vec<u8>>,
    pub credentials: Arc<Credentials>,
}

/// The authentication of one queue. See the module documentation.
pub struct Controller {
    parties: Parties,
    channel: QueueChannel,
    /// Made by the last transaction, and not taken.
    generated: Option<GeneratedKey>,
    state: State,
    is_authenticated: bool,
    /// S1 of the last transaction; 0: there was none.
    sequence: u32,
    /// Negotiates since the queue was authenticated last.
    negotiations: u8,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("parties", &self.parties)
            .field("is_authenticated", &self.is_authenticated)
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// Of a queue whose host has proved nothing.
    #[must_use]
    pub const fn new(parties: Parties) -> Self {
        Self {
            parties,
            channel: QueueChannel::Other,
            generated: None,
            state: State::Idle,
            is_authenticated: false,
            sequence: 0,
            negotiations: 0,
        }
    }

    /// The same on a queue that may make keys for TLS.
    #[must_use]
    pub const fn over(mut self, channel: QueueChannel) -> Self {
        self.channel = channel;
        self
    }

    /// The key for TLS that the host has had made, once it has proved itself.
    pub const fn take_generated(&mut self) -> Option<GeneratedKey> {
        self.generated.take()
    }

    /// Whether the host has proved itself.
    #[must_use]
    pub const fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether a transaction is under way.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Idle | State::Over)
    }

    /// With what a transaction has failed, while the host can read that.
    #[must_use]
    pub const fn failure(&self) -> Option<Failure> {
        if let State::Failure { failure, .. } = self.state {
            Some(failure)
        } else {
            None
        }
    }

    /// Data of an Authentication Send. `credentials`: what holds for the host now.
    pub fn send(
        &mut self,
        data: &[u8],
        credentials: &Arc<Credentials>,
        entropy: Entropy<'_>,
    ) -> Sent {
        if matches!(
            self.state,
            State::KeyPair(_) | State::SharedSecret(..) | State::Failure { .. } | State::Over
        ) {
            return Sent::Refused(Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
        }
        let frame = match Frame::decode(data) {
            Ok(frame) => frame,
            Err(failure) => return self.fail(None, failure),
        };
        if matches!(frame.message, Message::Negotiate { .. })
            && self.negotiations >= NEGOTIATIONS_MAX
        {
            return Sent::Refused(Status::COMMAND_SEQUENCE_ERROR.do_not_retry());
        }
        let id = frame.transaction;
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (frame.message, state) {
            (
                Message::Negotiate {
                    secure_channel,
                    offer,
                },
                _,
            ) => {
                let wanted = SecureChannel::from_id(secure_channel);
                let allows = |wanted: &SecureChannel| {
                    self.channel.allows(*wanted, credentials.concatenation)
                };
                match (wanted.filter(allows), offer) {
                    (None, _) => self.fail(Some(id), Failure::CONCATENATION_MISMATCH),
                    (_, None) => self.fail(Some(id), Failure::PROTOCOL_NOT_USABLE),
                    (Some(wanted), Some((hashes, groups))) => {
                        let offer = (&hashes[..], &groups[..], wanted);
                        self.begin(id, offer, credentials, entropy)
                    }
                }
            }
            (
                Message::Reply {
                    proof,
                    sequence,
                    challenge,
                    public_value,
                },
                State::Asked(transaction),
            ) if transaction.id == id => {
                let reply = Reply {
                    proof,
                    sequence,
                    challenge,
                };
                self.take_reply(transaction, reply, public_value)
            }
            (
                Message::Success2,
                State::AwaitSuccess2 {
                    id: expected,
                    generated,
                },
            ) if expected == id => {
                self.proved(generated);
                Sent::Authenticated
            }
            (Message::Failure2(failure), State::AwaitSuccess2 { .. } | State::Asked(_)) => {
                self.state = State::Over;
                self.is_authenticated = false;
                Sent::GivenUp(failure)
            }
            (Message::Reply { .. }, State::Asked(transaction)) => {
                self.fail(Some(transaction.id), Failure::INCORRECT_PAYLOAD)
            }
            (_, state) => {
                let known = state.transaction().unwrap_or(id);
                self.fail(Some(known), Failure::INCORRECT_MESSAGE)
            }
        }
    }

    /// The host will read that the transaction has failed.
    fn fail(&mut self, id: Option<u16>, failure: Failure) -> Sent {
        let id = id.or_else(|| self.state.transaction()).unwrap_or(0);
        self.state = State::Failure { id, failure };
        self.is_authenticated = false;
        Sent::Taken
    }

    fn proved(&mut self, generated: Option<GeneratedKey>) {
        self.is_authenticated = true;
        self.generated = generated;
        self.negotiations = 0;
    }

    fn begin(
        &mut self,
        id: u16,
        (hashes, groups, secure_channel): (&[u8], &[u8], SecureChannel),
        credentials: &Arc<Credentials>,
        entropy: Entropy<'_>,
    ) -> Sent {
        let hash = credentials
            .hashes
            .iter()
            .filter(|hash| !secure_channel.makes_key() || hash.makes_keys())
            .find(|hash| hashes.contains(&hash.id()));
        let Some(hash) = hash.copied() else {
            return self.fail(Some(id), Failure::HASH_NOT_USABLE);
        };
        let group = credentials
            .groups
            .iter()
            .filter(|group| !secure_channel.makes_key() || **group != Group::Null)
            .find(|group| groups.contains(&group.id()));
        let Some(group) = group.copied() else {
            return self.fail(Some(id), Failure::GROUP_NOT_USABLE);
        };
        self.negotiations += 1;
        let mut challenge = vec![0; hash.length()];
        entropy(&mut challenge);
        if self.sequence == 0 {
            let mut first = [0; 4];
            entropy(&mut first);
            self.sequence = u32::from_le_bytes(first);
        }
        // 0 means that nothing was asked.
        self.sequence = self.sequence.checked_add(1).unwrap_or(1);
        let mut transaction = Transaction {
            id,
            hash,
            group,
            secure_channel,
            credentials: Arc::clone(credentials),
            challenge,
            sequence: self.sequence,
            exponent: Zeroizing::default(),
        };
        if group == Group::Null {
            self.state = State::Challenge(transaction, Zeroizing::default());
            return Sent::Taken;
        }
        transaction.exponent = group.private_exponent(entropy);
        let exponent = transaction.exponent.clone();
        self.state = State::KeyPair(transaction);
        Sent::Compute(Computation {
            group,
            base: None,
            exponent,
        })
    }

    fn take_reply(
        &mut self,
        transaction: Transaction,
        reply: Reply,
        public_value: Vec<u8>,
    ) -> Sent {
        let (id, group) = (transaction.id, transaction.group);
        let is_well_formed = reply.proof.len() == transaction.hash.length()
            && match transaction.secure_channel.makes_key() {
                // C2 goes into the key, also when the controller does not have to prove itself.
                true => reply.challenge.is_some(),
                false => reply.challenge.is_none() || reply.sequence != 0,
            }
            && group.is_public_value(&public_value);
        if !is_well_formed {
            return self.fail(Some(id), Failure::INCORRECT_PAYLOAD);
        }
        if group == Group::Null {
            self.judge(&transaction, reply, None);
            return Sent::Taken;
        }
        let exponent = transaction.exponent.clone();
        self.state = State::SharedSecret(transaction, reply);
        Sent::Compute(Computation {
            group,
            base: Some(public_value),
            exponent,
        })
    }

    /// What was to be computed is not: the message counts as not sent, and the host may send it again.
    pub fn postponed(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::KeyPair(_) => {
                self.negotiations -= 1;
                State::Idle
            }
            State::SharedSecret(transaction, _) => State::Asked(transaction),
            other @ (State::Idle
            | State::Challenge(..)
            | State::Asked(_)
            | State::Success { .. }
            | State::AwaitSuccess2 { .. }
            | State::Failure { .. }
            | State::Over) => other,
        };
    }

    /// What was to be computed is.
    pub fn computed(&mut self, computed: Computed) {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::KeyPair(transaction) => {
                self.state = State::Challenge(transaction, computed.0);
            }
            State::SharedSecret(transaction, reply) => {
                let session_key = transaction.hash.digest(&computed.0);
                self.judge(&transaction, reply, Some(&session_key));
            }
            // Nothing is taken in while something is computed.
            other @ (State::Idle
            | State::Challenge(..)
            | State::Asked(_)
            | State::Success { .. }
            | State::AwaitSuccess2 { .. }
            | State::Failure { .. }
            | State::Over) => self.state = other,
        }
    }

    /// Whether the proof of the host is right.
    fn judge(&mut self, transaction: &Transaction, reply: Reply, session_key: Option<&[u8]>) {
        let credentials = &transaction.credentials;
        let question = Question {
            hash: transaction.hash,
            challenge: &transaction.challenge,
            sequence: transaction.sequence,
            transaction: transaction.id,
            secure_channel: transaction.secure_channel,
            session_key,
        };
        let parties = &self.parties;
        let expected = question.of_host(&credentials.host.transformed(&parties.host), parties);
        let is_right: bool = expected.ct_eq(&reply.proof).into();
        let asked = reply.challenge.as_ref().filter(|_| reply.sequence != 0);
        let proof = match (asked, &credentials.controller) {
            (None, _) => Some(None),
            // It is asked for a proof that it has no secret for.
            (Some(_), None) => None,
            (Some(challenge), Some(secret)) => {
                let question = Question {
                    challenge,
                    sequence: reply.sequence,
                    ..question
                };
                let key = secret.transformed(&parties.subsystem);
                Some(Some(question.of_controller(&key, parties).to_vec()))
            }
        };
        let id = transaction.id;
        let generate = || {
            let challenge = reply.challenge.as_ref()?;
            let first = &transaction.challenge;
            Some(GeneratedKey {
                key: generated_psk(transaction.hash, session_key?, first, challenge)?,
                credentials: Arc::clone(credentials),
            })
        };
        self.state = match proof.filter(|_| is_right) {
            Some(proof) => State::Success {
                id,
                hash: transaction.hash,
                proof,
                generated: transaction
                    .secure_channel
                    .makes_key()
                    .then(generate)
                    .flatten(),
            },
            None => {
                self.is_authenticated = false;
                State::Failure {
                    id,
                    failure: Failure::FAILED,
                }
            }
        };
    }

    /// Appends the message that an Authentication Receive of that length reads.
    ///
    /// # Errors
    /// The command fails with this status.
    pub fn receive(&mut self, length: u32, out: &mut Vec<u8>) -> Result<Received, Status> {
        let (message, id, received) = match &self.state {
            State::Challenge(transaction, public_value) => {
                let message = Message::Challenge {
                    hash: transaction.hash.id(),
                    group: transaction.group.id(),
                    sequence: transaction.sequence,
                    challenge: transaction.challenge.clone(),
                    public_value: public_value.to_vec(),
                };
                (message, transaction.id, Received::Message)
            }
            State::Success {
                id, hash, proof, ..
            } => {
                let message = Message::Success1 {
                    hash_length: u8::try_from(hash.length()).expect("at most 64"),
                    proof: proof.clone(),
                };
                let received = match proof {
                    Some(_) => Received::Message,
                    None => Received::Authenticated,
                };
                (message, *id, received)
            }
            State::Failure { id, failure } => {
                let message = Message::Failure1(*failure);
                (message, *id, Received::Failed(*failure))
            }
            State::Idle
            | State::KeyPair(_)
            | State::Asked(_)
            | State::SharedSecret(..)
            | State::AwaitSuccess2 { .. }
            | State::Over => return Err(Status::COMMAND_SEQUENCE_ERROR.do_not_retry()),
        };
        let bytes = Frame {
            transaction: id,
            message,
        }
        .encode();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes.len() > length {
            return Err(Status::INVALID_FIELD.do_not_retry());
        }
        out.extend(bytes);
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Challenge(transaction, _) => self.state = State::Asked(transaction),
            State::Success {
                id,
                proof: Some(_),
                generated,
                ..
            } => self.state = State::AwaitSuccess2 { id, generated },
            State::Success { generated, .. } => self.proved(generated),
            State::Failure { .. } => self.state = State::Over,
            other @ (State::Idle
            | State::KeyPair(_)
            | State::Asked(_)
            | State::SharedSecret(..)
            | State::AwaitSuccess2 { .. }
            | State::Over) => self.state = other,
        }
        Ok(received)
    }
}

impl State {
    /// T_ID, if there is a transaction.
    const fn transaction(&self) -> Option<u16> {
        match self {
            Self::Idle | Self::Over => None,
            Self::KeyPair(transaction)
            | Self::Challenge(transaction, _)
            | Self::Asked(transaction)
            | Self::SharedSecret(transaction, _) => Some(transaction.id),
            Self::Success { id, .. }
            | Self::AwaitSuccess2 { id, .. }
            | Self::Failure { id, .. } => Some(*id),
        }
    }
}
