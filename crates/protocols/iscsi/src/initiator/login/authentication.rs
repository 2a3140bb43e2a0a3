//! The initiator's side of the security negotiation (RFC 7143 §6.3.2, §12.1 and §9.2.1).
//!
//! ```text
//!  MethodOffered ──AuthMethod=None──────────────────────────────► Done
//!     │ AuthMethod=CHAP: we send CHAP_A                            ▲
//!     ▼                                                           │
//!  AlgorithmsOffered ──CHAP_A, CHAP_I, CHAP_C: we send CHAP_N,    │ CHAP_N and CHAP_R are right,
//!     │                CHAP_R [and our own challenge]             │ or we asked for nothing
//!     └─────────────────────────────────────────► ResponseSent ───┘
//! ```

use super::error::LoginError;
use crate::chap::{self, Challenge, ChapAccount, ChapAlgorithm};
use crate::keys::{Key, SecurityKeys};
use crate::negotiation::Ledger;
use crate::text::{self, NONE, TextWriter};

/// The one authentication method there is besides None.
const CHAP: &str = "CHAP";

/// Which authentication methods are offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// None, after CHAP where both are offered.
    pub none: bool,
    /// CHAP, with what is to be proved.
    pub chap: Option<ChapCredentials>,
}

/// With what an initiator proves who it is, and whether the target has to.
#[derive(Clone, Debug)]
pub struct ChapCredentials {
    /// The initiator's own name and secret.
    pub own: ChapAccount,
    /// The target has to prove that it is this one.
    pub target: Option<ChapAccount>,
    /// Algorithms offered, the most wanted first. Empty: all we know, the strongest first. MD5 should
    /// be among them (§12.1.3).
    pub algorithms: Vec<ChapAlgorithm>,
}

impl ChapCredentials {
    fn algorithms(&self) -> &[ChapAlgorithm] {
        if self.algorithms.is_empty() {
            &ChapAlgorithm::ALL
        } else {
            &self.algorithms
        }
    }
}

/// How far the exchange has got.
#[derive(Debug)]
enum State {
    MethodOffered,
    AlgorithmsOffered,
    /// With what the target's response is to be checked, if it has to give one.
    ResponseSent(Option<Challenge>),
    Done {
        proved: bool,
    },
}

/// The security negotiation of one login.
#[derive(Debug)]
pub(super) struct Exchange {
    offer: Offer,
    state: State,
    /// Our challenge to the target: identifier and bytes.
    challenge: (u8, [u8; 32]),
}

impl Exchange {
    pub const fn new(offer: Offer, challenge: (u8, [u8; 32])) -> Self {
        Self {
            offer,
            state: State::MethodOffered,
            challenge,
        }
    }

    /// The CHAP name with which we have proved who we are.
    pub fn proved_name(&self) -> Option<&str> {
        match (&self.state, &self.offer.chap) {
            (State::Done { proved: true }, Some(chap)) => Some(&chap.own.name),
            _ => None,
        }
    }

    /// Whether the next request should ask to leave the stage.
    pub const fn wants_to_leave(&self) -> bool {
        match self.state {
            State::MethodOffered => self.offer.none,
            State::AlgorithmsOffered => false,
            State::ResponseSent(_) | State::Done { .. } => true,
        }
    }

    /// Nothing is negotiated: the login starts with the operational stage.
    pub fn skip(&mut self) {
        self.state = State::Done { proved: false };
    }

    /// Offers the methods, CHAP first.
    pub fn offer_methods(&self, ledger: &mut Ledger, out: &mut TextWriter) {
        let methods: Vec<&str> = [(self.offer.chap.is_some(), CHAP), (self.offer.none, NONE)]
            .into_iter()
            .filter_map(|(offered, method)| offered.then_some(method))
            .collect();
        push(Key::AuthMethod, methods.join(","), ledger, out);
    }

    /// The target has left the stage without a word about the method.
    pub fn left_by_target(&mut self) -> Result<(), LoginError> {
        match self.state {
            State::Done { .. } => Ok(()),
            State::MethodOffered if self.offer.none => {
                self.state = State::Done { proved: false };
                Ok(())
            }
            State::MethodOffered | State::AlgorithmsOffered | State::ResponseSent(_) => {
                Err(LoginError::AuthenticationUnfinished)
            }
        }
    }

    /// Takes in the target's keys and writes what there is to say to them.
    pub fn receive(
        &mut self,
        keys: &SecurityKeys<'_>,
        ledger: &mut Ledger,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        match &self.state {
            State::MethodOffered => match keys.auth_method {
                None => Ok(()),
                Some(NONE) if self.offer.none => {
                    self.state = State::Done { proved: false };
                    Ok(())
                }
                Some(CHAP) => {
                    let credentials = self
                        .offer
                        .chap
                        .as_ref()
                        .ok_or(LoginError::NoCommonAuthMethod)?;
                    let numbers: Vec<String> = credentials
                        .algorithms()
                        .iter()
                        .map(|algorithm| algorithm.number().to_string())
                        .collect();
                    push(Key::ChapA, numbers.join(","), ledger, out);
                    self.state = State::AlgorithmsOffered;
                    Ok(())
                }
                Some(_) => Err(LoginError::NoCommonAuthMethod),
            },
            State::AlgorithmsOffered => self.answer_challenge(keys, ledger, out),
            State::ResponseSent(None) => {
                self.state = State::Done { proved: true };
                Ok(())
            }
            State::ResponseSent(Some(challenge)) => {
                self.check_target(keys, challenge)?;
                self.state = State::Done { proved: true };
                Ok(())
            }
            State::Done { .. } => Ok(()),
        }
    }

    fn answer_challenge(
        &mut self,
        keys: &SecurityKeys<'_>,
        ledger: &mut Ledger,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let (Some(algorithm), Some(identifier), Some(challenge)) =
            (keys.chap_a, keys.chap_i, keys.chap_c)
        else {
            return Err(LoginError::AuthenticationOutOfOrder);
        };
        let credentials = self
            .offer
            .chap
            .as_ref()
            .ok_or(LoginError::NoCommonAuthMethod)?;
        let algorithm = text::parse_number(algorithm)
            .and_then(ChapAlgorithm::from_number)
            .filter(|algorithm| credentials.algorithms().contains(algorithm))
            .ok_or(LoginError::AuthenticationOutOfOrder)?;
        let theirs = Challenge {
            algorithm,
            identifier: text::parse_number(identifier)
                .and_then(|number| u8::try_from(number).ok())
                .ok_or(LoginError::AuthenticationOutOfOrder)?,
            bytes: chap::parse_binary_value(challenge).map_err(LoginError::MalformedChapValue)?,
        };
        let mut ours = None;
        if let Some(target) = &credentials.target {
            // One secret for both directions would let the target answer with our own response
            // (§9.2.1).
            if target.secret == credentials.own.secret {
                return Err(LoginError::ChapSecretShared);
            }
            let (identifier, bytes) = self.challenge;
            if theirs.bytes == bytes {
                return Err(LoginError::ChapChallengeReflected);
            }
            ours = Some(Challenge {
                algorithm,
                identifier,
                bytes: bytes.to_vec(),
            });
        }
        push(Key::ChapN, &credentials.own.name, ledger, out);
        let response = theirs.response(&credentials.own.secret);
        push(
            Key::ChapR,
            chap::format_binary_value(&response),
            ledger,
            out,
        );
        if let Some(ours) = &ours {
            push(Key::ChapI, ours.identifier, ledger, out);
            push(
                Key::ChapC,
                chap::format_binary_value(&ours.bytes),
                ledger,
                out,
            );
        }
        self.state = State::ResponseSent(ours);
        Ok(())
    }

    fn check_target(
        &self,
        keys: &SecurityKeys<'_>,
        challenge: &Challenge,
    ) -> Result<(), LoginError> {
        let expected = self
            .offer
            .chap
            .as_ref()
            .and_then(|chap| chap.target.as_ref());
        let (Some(name), Some(response), Some(expected)) = (keys.chap_n, keys.chap_r, expected)
        else {
            return Err(LoginError::TargetNotAuthenticated);
        };
        let response =
            chap::parse_binary_value(response).map_err(LoginError::MalformedChapValue)?;
        let right = challenge.is_answered_by(&response, &expected.secret);
        if name == expected.name && right {
            Ok(())
        } else {
            Err(LoginError::TargetNotAuthenticated)
        }
    }
}

fn push(key: Key, value: impl std::fmt::Display, ledger: &mut Ledger, out: &mut TextWriter) {
    ledger.note_sent(key);
    out.push(key.name(), value);
}
