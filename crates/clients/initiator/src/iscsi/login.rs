//! Login at a portal: credentials, redirections, and refusals with advice.

use longshore_iscsi::chap::{ChapAccount, ChapAlgorithm, Secret};
use longshore_iscsi::initiator::login::{ChapCredentials, LoginConfig, LoginError, Offer};
use longshore_iscsi::keys::Key;
use longshore_iscsi::negotiation::NegotiationError;
use longshore_iscsi::pdu::LoginStatus;

use super::identity::initiator_name;
use super::session::{LoginFailure, Session};
use crate::connect::connect;
use crate::error::Error;
use crate::options::Options;
use crate::url::{HostPort, ISCSI_PORT};

/// With what we prove who we are, and what the target has to prove.
#[derive(Clone, Debug, Default)]
pub(super) struct Credentials {
    own: Option<ChapAccount>,
    target: Option<ChapAccount>,
}

impl Credentials {
    /// Those of the options.
    pub(super) fn of(options: &Options) -> Self {
        Self {
            own: options.chap.clone(),
            target: options.mutual_chap.clone(),
        }
    }

    /// Those of the options, else those of the environment, in the variables of libiscsi.
    pub(super) fn of_options_or_environment(options: &Options) -> Self {
        let account = |name: &str, secret: &str| {
            Some(ChapAccount {
                name: std::env::var(name).ok()?,
                secret: Secret::from(std::env::var(secret).ok()?.as_str()),
            })
        };
        let found = Self::of(options);
        Self {
            own: found
                .own
                .or_else(|| account("LIBISCSI_CHAP_USERNAME", "LIBISCSI_CHAP_PASSWORD")),
            target: found.target.or_else(|| {
                account(
                    "LIBISCSI_CHAP_TARGET_USERNAME",
                    "LIBISCSI_CHAP_TARGET_PASSWORD",
                )
            }),
        }
    }

    /// Whether we can prove who we are.
    pub(super) fn has_own(&self) -> bool {
        self.own.is_some()
    }

    /// What is offered. Whoever wants the target to prove itself does not log in without that.
    pub(super) fn offer(self) -> Result<Offer, Error> {
        match (self.own, self.target) {
            (None, None) => Ok(Offer {
                none: true,
                chap: None,
            }),
            (None, Some(_)) => Err(Error::Options(
                "a target authenticates only to initiators that authenticate too: give user and \
                 password as well"
                    .to_owned(),
            )),
            (Some(own), target) => Ok(Offer {
                none: target.is_none(),
                chap: Some(ChapCredentials {
                    own,
                    target,
                    algorithms: Vec::new(),
                }),
            }),
        }
    }
}

pub(super) fn log_in_for_discovery(
    portal: &HostPort,
    credentials: Credentials,
    options: &Options,
) -> Result<Session, Error> {
    let mut config = LoginConfig::discovery(initiator_name(options), super::fresh_isid());
    config.security = Some(credentials.offer()?);
    log_in(portal, config, 1, options).map_err(|failure| failure.explain(false))
}

/// A login that failed.
#[derive(Debug)]
pub(super) enum NotLoggedIn {
    /// There is nothing to add.
    Error(Error),
    /// The machine's error, at the portal of the last redirection.
    Login(HostPort, LoginError),
}

impl NotLoggedIn {
    /// For a person; `has_credentials`: we could prove who we are.
    pub(super) fn explain(self, has_credentials: bool) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Login(portal, error) => explain(portal, &error, has_credentials),
        }
    }
}

/// Logs in, by way of as many redirections as the options allow, with so many commands at a time.
pub(super) fn log_in(
    portal: &HostPort,
    mut config: LoginConfig,
    commands: u16,
    options: &Options,
) -> Result<Session, NotLoggedIn> {
    config.initiator_alias.clone_from(&options.initiator_alias);
    config.preferences = options.iscsi.preferences.clone();
    config.preferences.header_digest = options.header_digest.policy();
    config.preferences.data_digest = options.data_digest.policy();
    let mut portal = portal.clone();
    let mut redirections = 0;
    loop {
        let (stream, address) =
            connect(&portal, options.timeouts.connect).map_err(NotLoggedIn::Error)?;
        let error =
            match Session::log_in(&portal, address, stream, config.clone(), commands, options) {
                Ok(session) => return Ok(session),
                Err(LoginFailure::Error(error)) => return Err(NotLoggedIn::Error(error)),
                Err(LoginFailure::Machine(error)) => error,
            };
        match redirection(&error) {
            Some(next) if redirections < options.iscsi.redirections_max => {
                tracing::debug!(from = %portal, to = %next, "the target has moved");
                portal = next;
                redirections += 1;
            }
            None if may_mean_another_hash(&error) && offer_less(&mut config) => {
                tracing::debug!(%portal, "trying CHAP again without SHA-256");
            }
            _ => return Err(NotLoggedIn::Login(portal, error)),
        }
    }
}

/// Whether the target may have taken the number of a hash for that of another. tgt 1.0.85 chooses 7, means SHA-1 by it, and
/// calls a response of SHA-256 an error of the initiator's, for it is too long.
fn may_mean_another_hash(error: &LoginError) -> bool {
    matches!(error, LoginError::Refused { status, .. } if *status == LoginStatus::INITIATOR_ERROR)
}

/// Leaves SHA-256 out of what is offered for CHAP; false when there is no CHAP, or that was done already. Who could
/// force this refusal can choose the weakest hash of the first offer as well.
fn offer_less(config: &mut LoginConfig) -> bool {
    let chap = config
        .security
        .as_mut()
        .and_then(|offer| offer.chap.as_mut());
    match chap {
        Some(chap) if chap.algorithms.is_empty() => {
            let others = ChapAlgorithm::ALL.into_iter();
            chap.algorithms = others
                .filter(|hash| *hash != ChapAlgorithm::Sha256)
                .collect();
            true
        }
        _ => false,
    }
}

fn redirection(error: &LoginError) -> Option<HostPort> {
    let LoginError::Refused { status, addresses } = error else {
        return None;
    };
    if status.class != LoginStatus::TARGET_MOVED_TEMPORARILY.class {
        return None;
    }
    addresses.iter().find_map(|address| {
        let (address, _) = split_portal_group(address);
        HostPort::parse(address, ISCSI_PORT).ok()
    })
}

/// Address and portal group tag of a TargetAddress.
pub(super) fn split_portal_group(text: &str) -> (&str, Option<u16>) {
    match text.split_once(',') {
        Some((address, tag)) => (address, tag.parse().ok()),
        None => (text, None),
    }
}

/// Why there is no session, for a person.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "every other error is a breach of the protocol"
)]
fn explain(portal: HostPort, error: &LoginError, has_credentials: bool) -> Error {
    match error {
        LoginError::Refused { status, .. } => refused(portal, *status, has_credentials),
        LoginError::TargetNotAuthenticated
        | LoginError::AuthenticationUnfinished
        | LoginError::AuthenticationOutOfOrder
        | LoginError::MalformedChapValue(_) => Error::Authentication {
            portal,
            reason: error.to_string(),
            advice: "compare target_user and target_password with what the target has for outgoing CHAP",
        },
        LoginError::ChapSecretShared | LoginError::ChapChallengeReflected => {
            Error::Authentication {
                portal,
                reason: error.to_string(),
                advice: "give each direction a secret of its own, on both sides",
            }
        }
        LoginError::NoCommonAuthMethod => Error::Authentication {
            portal,
            reason: error.to_string(),
            advice: "the target requires CHAP: put USER%PASSWORD@ into the URL",
        },
        // tgt 1.0.85 answers None to an offer of CRC32C alone.
        LoginError::Negotiation(
            NegotiationError::RequirementNotMet(key @ (Key::HeaderDigest | Key::DataDigest))
            | NegotiationError::NoCommonChoice(key @ (Key::HeaderDigest | Key::DataDigest))
            | NegotiationError::InadmissibleAnswer(key @ (Key::HeaderDigest | Key::DataDigest)),
        ) => Error::NotGranted {
            portal,
            what: format!("{}=CRC32C", key.name()),
            advice: "disable the digest, or allow it at the target",
        },
        _ => Error::Protocol {
            portal,
            step: "login",
            reason: error.to_string(),
        },
    }
}

fn refused(portal: HostPort, status: LoginStatus, has_credentials: bool) -> Error {
    if status == LoginStatus::AUTHENTICATION_FAILURE {
        return Error::Authentication {
            portal,
            reason: status.to_string(),
            advice: if has_credentials {
                "compare user and password with what the target has; some targets also admit only \
                 initiators whose names they know"
            } else {
                "the target requires CHAP: put USER%PASSWORD@ into the URL, or set \
                 LIBISCSI_CHAP_USERNAME and LIBISCSI_CHAP_PASSWORD"
            },
        };
    }
    let advice = match status {
        LoginStatus::AUTHORIZATION_FAILURE => {
            "allow this initiator's name at the target, or use a name that it allows"
        }
        LoginStatus::TARGET_REMOVED => "ask the target's administrator where its volumes are now",
        LoginStatus::TARGET_MOVED_TEMPORARILY | LoginStatus::TARGET_MOVED_PERMANENTLY => {
            "the target redirects from portal to portal; name the portal that serves it"
        }
        LoginStatus::SERVICE_UNAVAILABLE | LoginStatus::OUT_OF_RESOURCES => {
            "try again later, or end sessions that are not needed"
        }
        LoginStatus::TOO_MANY_CONNECTIONS => "use fewer queues",
        _ => "the target's log may say more",
    };
    Error::Refused {
        portal,
        step: "login",
        reason: status.to_string(),
        advice,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(own: Option<ChapAccount>) -> LoginConfig {
        let [initiator, target] = [
            "iqn.2026-11.local.longshore:a",
            "iqn.2026-11.local.longshore:b",
        ]
        .map(|name| name.parse().expect("a name"));
        let mut config = LoginConfig::normal(initiator, target, super::super::fresh_isid());
        let credentials = Credentials { own, target: None };
        config.security = Some(
            credentials
                .offer()
                .expect("nobody has to prove itself to us"),
        );
        config
    }

    #[test]
    fn a_target_that_takes_sha256_for_another_hash_is_asked_once_more_without_it() {
        let mut config = config(Some(ChapAccount {
            name: "alice".to_owned(),
            secret: Secret::from("a secret of alice"),
        }));
        assert!(offer_less(&mut config));
        let chap = config
            .security
            .as_ref()
            .and_then(|offer| offer.chap.as_ref());
        let hashes = &chap.expect("there is CHAP").algorithms;
        let others = [
            ChapAlgorithm::Sha3_256,
            ChapAlgorithm::Sha1,
            ChapAlgorithm::Md5,
        ];
        assert_eq!(hashes[..], others);
        assert!(!offer_less(&mut config));
    }

    #[test]
    fn without_chap_there_is_nothing_to_leave_out() {
        assert!(!offer_less(&mut config(None)));
    }
}
