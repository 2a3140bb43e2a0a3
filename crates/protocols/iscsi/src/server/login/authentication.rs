//! The target's side of the security negotiation (RFC 7143 §6.3.2, §12.1 and §9.2.1).
//!
//! ```text
//!               AuthMethod chosen: None
//!  Unchosen ───────────────────────────────────────────────► Done
//!     │  ▲ asked to leave the stage with nothing chosen: we     ▲
//!     │  └─ offer AuthMethod=CHAP, once, unless None will do    │ CHAP_N, CHAP_R right
//!     │ AuthMethod chosen: CHAP                                 │ [CHAP_I, CHAP_C: answered]
//!     ▼                CHAP_A: we send the challenge            │
//!  AlgorithmsExpected ─────────────────────────────► ResponseExpected
//! ```
//!
//! Every other turn ends the login.

use subtle::ConstantTimeEq;

use super::error::LoginError;
use crate::chap::{self, Challenge, ChapAlgorithm, Secret};
use crate::keys::{Key, SecurityKeys};
use crate::name::IscsiName;
use crate::negotiation::Ledger;
use crate::server::directory::{Authentication, ChapAuthentication, Directory};
use crate::text::{self, NONE, TextWriter};

/// The one authentication method there is besides None.
const CHAP: &str = "CHAP";

/// How far the initiator has got in proving who it is.
#[derive(Debug)]
enum State {
    /// No method has been chosen. `offered`: we have offered CHAP of our own accord.
    Unchosen { offered: bool },
    /// CHAP has been chosen, the initiator lists its algorithms next.
    AlgorithmsExpected,
    /// Our challenge is out.
    ResponseExpected(Challenge),
    /// As much has been proved as was asked for.
    Done { name: Option<String> },
}

/// The security negotiation of one login.
#[derive(Debug)]
pub(super) struct Exchange {
    demanded: Authentication,
    state: State,
}

impl Exchange {
    pub const fn new(demanded: Authentication) -> Self {
        Self {
            demanded,
            state: State::Unchosen { offered: false },
        }
    }

    /// Whether the initiator may go on.
    pub const fn is_done(&self) -> bool {
        matches!(self.state, State::Done { .. })
    }

    /// The CHAP name that was proved.
    pub fn authenticated_as(&self) -> Option<&str> {
        match &self.state {
            State::Done { name } => name.as_deref(),
            State::Unchosen { .. } | State::AlgorithmsExpected | State::ResponseExpected(_) => None,
        }
    }

    /// The initiator starts with the operational stage, which it may when nothing has to be proved.
    pub fn skip(&mut self) -> Result<(), LoginError> {
        if !self.demanded.none_allowed {
            return Err(LoginError::AuthenticationSkipped);
        }
        self.state = State::Done { name: None };
        Ok(())
    }

    /// Takes in the security keys of a text, and writes what there is to say to them. `transit`: the
    /// initiator would like to leave the stage.
    pub fn receive(
        &mut self,
        keys: &SecurityKeys<'_>,
        transit: bool,
        initiator: &IscsiName,
        ledger: &mut Ledger,
        directory: &mut dyn Directory,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let mut out = Answers { ledger, out };
        if let State::Unchosen { offered } = self.state {
            self.choose_method(keys, offered, transit, &mut out)?;
        }
        match &self.state {
            // A method of which the keys are was not chosen.
            State::Unchosen { .. } => match (keys.chap_a, keys.has_chap_response()) {
                (None, false) => Ok(()),
                _ => Err(LoginError::AuthenticationOutOfOrder),
            },
            State::AlgorithmsExpected if keys.has_chap_response() => {
                Err(LoginError::AuthenticationOutOfOrder)
            }
            State::AlgorithmsExpected => match keys.chap_a {
                Some(algorithms) => self.send_challenge(algorithms, directory, &mut out),
                None => Ok(()),
            },
            State::ResponseExpected(challenge) => {
                let challenge = challenge.clone();
                self.check_response(keys, &challenge, (initiator, directory), &mut out)
            }
            State::Done { .. } if keys.chap_a.is_none() && !keys.has_chap_response() => Ok(()),
            State::Done { .. } => Err(LoginError::AuthenticationOutOfOrder),
        }
    }

    /// The first of the initiator's methods that this target supports and allows (§6.3.2).
    fn choose_method(
        &mut self,
        keys: &SecurityKeys<'_>,
        offered: bool,
        transit: bool,
        out: &mut Answers<'_>,
    ) -> Result<(), LoginError> {
        let Some(methods) = keys.auth_method else {
            if offered {
                return Err(LoginError::AuthMethodUnanswered);
            }
            if self.demanded.none_allowed {
                if transit {
                    self.state = State::Done { name: None };
                }
            } else if transit {
                // It supports security perhaps, and leaves it to us to propose (§6.3.2).
                out.push(Key::AuthMethod, CHAP);
                self.state = State::Unchosen { offered: true };
            }
            return Ok(());
        };
        let chap_allowed = self.demanded.chap.is_some();
        let chosen = methods.split(',').find(|method| match *method {
            NONE => self.demanded.none_allowed && !offered,
            CHAP => chap_allowed,
            _ => false,
        });
        match chosen {
            Some(method) => {
                if !offered {
                    out.push(Key::AuthMethod, method);
                }
                self.state = match method {
                    NONE => State::Done { name: None },
                    _ => State::AlgorithmsExpected,
                };
                Ok(())
            }
            None => Err(LoginError::NoCommonAuthMethod),
        }
    }

    fn send_challenge(
        &mut self,
        algorithms: &str,
        directory: &mut dyn Directory,
        out: &mut Answers<'_>,
    ) -> Result<(), LoginError> {
        let allowed = match &self.chap()?.algorithms {
            empty if empty.is_empty() => &ChapAlgorithm::ALL[..],
            algorithms => algorithms,
        };
        let algorithm = algorithms
            .split(',')
            .filter_map(|number| ChapAlgorithm::from_number(text::parse_number(number)?))
            .find(|algorithm| allowed.contains(algorithm))
            .ok_or(LoginError::NoCommonChapAlgorithm)?;
        let mut identifier = [0];
        directory.random(&mut identifier);
        let mut bytes = vec![0; algorithm.digest_length()];
        directory.random(&mut bytes);
        let challenge = Challenge {
            algorithm,
            identifier: identifier[0],
            bytes,
        };
        out.push(Key::ChapA, algorithm.number());
        out.push(Key::ChapI, challenge.identifier);
        out.push(Key::ChapC, chap::format_binary_value(&challenge.bytes));
        self.state = State::ResponseExpected(challenge);
        Ok(())
    }

    fn check_response(
        &mut self,
        keys: &SecurityKeys<'_>,
        ours: &Challenge,
        (initiator, directory): (&IscsiName, &dyn Directory),
        out: &mut Answers<'_>,
    ) -> Result<(), LoginError> {
        let (name, response) = match (keys.chap_n, keys.chap_r) {
            (Some(name), Some(response)) => (name, response),
            // An empty request, to which an empty response says that we still wait.
            (None, None) if keys.chap_i.is_none() && keys.chap_c.is_none() => return Ok(()),
            _ => return Err(LoginError::AuthenticationOutOfOrder),
        };
        directory
            .may_prove(initiator)
            .map_err(|status| LoginError::Refused(status.into()))?;
        let response =
            chap::parse_binary_value(response).map_err(LoginError::MalformedChapValue)?;
        if response.len() != ours.algorithm.digest_length() {
            return Err(LoginError::ChapResponseWrong);
        }
        let chap = self.chap()?;
        let account = chap.accounts.iter().find(|account| account.name == name);
        // A name that does not exist costs as much time as one that does, whose secret is as long.
        let nobody = Secret::new([0; 16]);
        let stand_in = chap.accounts.first().map_or(&nobody, |any| &any.secret);
        let secret = account.map_or(stand_in, |account| &account.secret);
        let right = ours.is_answered_by(&response, secret);
        if account.is_none() || !right {
            return Err(LoginError::ChapResponseWrong);
        }
        // Our own secret must not open this direction too (§9.2.1).
        if let Some(own) = &chap.mutual
            && ours.is_answered_by(&response, &own.secret)
        {
            return Err(LoginError::ChapSecretShared);
        }
        if let Some(theirs) = challenge_of(keys, ours)? {
            if bool::from(theirs.bytes.ct_eq(&ours.bytes)) {
                return Err(LoginError::ChapChallengeReflected);
            }
            let own = chap
                .mutual
                .as_ref()
                .ok_or(LoginError::TargetAuthenticationUnavailable)?;
            out.push(Key::ChapN, &own.name);
            out.push(
                Key::ChapR,
                chap::format_binary_value(&theirs.response(&own.secret)),
            );
        }
        self.state = State::Done {
            name: Some(name.to_owned()),
        };
        Ok(())
    }

    fn chap(&self) -> Result<&ChapAuthentication, LoginError> {
        self.demanded
            .chap
            .as_ref()
            .ok_or(LoginError::NoCommonAuthMethod)
    }
}

/// The challenge with which the initiator asks the target to prove itself, if it does.
fn challenge_of(
    keys: &SecurityKeys<'_>,
    ours: &Challenge,
) -> Result<Option<Challenge>, LoginError> {
    let (identifier, challenge) = match (keys.chap_i, keys.chap_c) {
        (None, None) => return Ok(None),
        (Some(identifier), Some(challenge)) => (identifier, challenge),
        _ => return Err(LoginError::AuthenticationOutOfOrder),
    };
    let identifier = text::parse_number(identifier)
        .and_then(|number| u8::try_from(number).ok())
        .ok_or(LoginError::MalformedChapIdentifier)?;
    let bytes = chap::parse_binary_value(challenge).map_err(LoginError::MalformedChapValue)?;
    Ok(Some(Challenge {
        algorithm: ours.algorithm,
        identifier,
        bytes,
    }))
}

/// Where the exchange writes, and notes what it wrote.
struct Answers<'a> {
    ledger: &'a mut Ledger,
    out: &'a mut TextWriter,
}

impl Answers<'_> {
    fn push(&mut self, key: Key, value: impl std::fmt::Display) {
        self.ledger.note_sent(key);
        self.out.push(key.name(), value);
    }
}
