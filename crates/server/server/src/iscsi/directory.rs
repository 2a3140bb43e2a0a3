//! Answers to a login about targets, accounts and sessions (see [`longshore_iscsi::server::directory`]).

use std::net::{IpAddr, SocketAddr};

use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{LoginStatus, Tsih};
use longshore_iscsi::server::directory::{
    Authentication, Directory, LoginRefusal, PortalAddress, SessionIdentity, SessionRequest,
    TargetLogin, TargetRecord,
};
use longshore_iscsi::session_parameters::{OperationalParameters, PortalGroupTag, SessionType};

use crate::address::{ConnectionAddress, TargetId};
use crate::config::Moved;
use crate::core::Shared;
use crate::counters::clients::Limit;
use crate::exports::{Exports, Target};
use crate::mail::message::Post;
use crate::sessions::iscsi::{SessionClaim, SessionKey, SessionRefusal, SessionTicket};

/// The directory as one connection sees it.
pub(crate) struct ConnectionDirectory<'a> {
    pub shared: &'a Shared,
    pub exports: &'a Exports,
    pub connection: ConnectionAddress,
    pub post: &'a Post,
    /// The address that the initiator connects from.
    pub peer: IpAddr,
    pub now_ms: u64,
    /// Our address, as the initiator reached it.
    pub reached: SocketAddr,
    /// Index of the portal it came in by.
    pub portal: usize,
    pub portal_group_tag: u16,
    /// No new sessions: the server is shutting down.
    pub closing: bool,
    /// Where the session is left once it exists.
    pub established: &'a mut Option<EstablishedSession>,
}

/// What the driver keeps of a successful login.
#[derive(Debug)]
pub(crate) struct EstablishedSession {
    pub ticket: SessionTicket,
    pub target: Option<TargetId>,
}

impl Directory for ConnectionDirectory<'_> {
    fn discovery_authentication(&self, initiator: &IscsiName) -> Authentication {
        let demanded = &self.exports.discovery;
        if demanded.none_allowed || self.may_try(initiator) {
            return (**demanded).clone();
        }
        // No method is left, so the login ends without a proof.
        Authentication {
            none_allowed: false,
            chap: None,
        }
    }

    fn target_login(
        &self,
        initiator: &IscsiName,
        target: &str,
    ) -> Result<TargetLogin, LoginRefusal> {
        if self.closing {
            return Err(LoginStatus::SERVICE_UNAVAILABLE.into());
        }
        let target = self.target(target)?;
        let admission = target.admission(initiator);
        let admission = admission.ok_or(LoginStatus::AUTHORIZATION_FAILURE)?;
        let needs_proof = !admission.authentication.none_allowed;
        if needs_proof && !self.may_try(initiator) {
            return Err(LoginStatus::SERVICE_UNAVAILABLE.into());
        }
        let target = &target.config;
        // Before it proves anything, as §11.13.5 allows: the secret is for where the target is now.
        if let Some(moved) = &target.moved_to {
            return Err(redirection(moved));
        }
        let mut config = target.login.clone();
        config.target_alias.clone_from(&target.alias);
        Ok(TargetLogin {
            name: target.name.clone(),
            portal_group_tag: PortalGroupTag(self.portal_group_tag),
            authentication: admission.authentication.clone(),
            config,
        })
    }

    fn visible_targets(&self, initiator: &IscsiName) -> Vec<TargetRecord> {
        self.exports.visible_targets(initiator, self.reached)
    }

    fn existing_session(
        &self,
        session: &SessionIdentity<'_>,
    ) -> Result<OperationalParameters, LoginStatus> {
        let (key, _) = self.session_key(session)?;
        self.shared
            .sessions
            .continued(&key, session.tsih, session.connection_id)
            .map_err(login_status)
    }

    /// Logins that began together are no more guesses than one.
    fn may_prove(&self, initiator: &IscsiName) -> Result<(), LoginStatus> {
        match self.may_try(initiator) {
            true => Ok(()),
            false => Err(LoginStatus::SERVICE_UNAVAILABLE),
        }
    }

    fn establish(&mut self, request: SessionRequest<'_>) -> Result<Tsih, LoginStatus> {
        let identity = request.identity;
        let (key, target) = self.session_key(&identity)?;
        let claim = SessionClaim {
            key,
            tsih: identity.tsih,
            connection_id: identity.connection_id,
            parameters: request.parameters.clone(),
        };
        let ticket = self
            .shared
            .sessions
            .enter(claim, self.connection, self.post)
            .map_err(login_status)?;
        if let Some(replaced) = ticket.replaced {
            self.shared.close(replaced);
        }
        if request.authenticated_as.is_some() {
            let initiator = identity.initiator.as_str();
            self.shared
                .attempts
                .succeeded(self.peer, initiator, self.now_ms);
        }
        let tsih = ticket.tsih;
        *self.established = Some(EstablishedSession { ticket, target });
        Ok(tsih)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel gives random bytes");
    }
}

impl ConnectionDirectory<'_> {
    /// Whether the initiator may prove something now, after what it has got wrong lately.
    fn may_try(&self, initiator: &IscsiName) -> bool {
        let attempts = &self.shared.attempts;
        let may_try = attempts.may_try(self.peer, initiator.as_str(), self.now_ms);
        if !may_try {
            self.shared.clients.reached(Limit::LoginAttempts);
        }
        may_try
    }

    /// The target of that name, if it is reached through this portal.
    fn target(&self, name: &str) -> Result<&Target, LoginStatus> {
        let target = self.exports.targets.named(name);
        let target = target.filter(|target| target.is_reachable(self.portal_group_tag));
        Ok(target.ok_or(LoginStatus::NOT_FOUND)?)
    }

    fn session_key(
        &self,
        identity: &SessionIdentity<'_>,
    ) -> Result<(SessionKey, Option<TargetId>), LoginStatus> {
        let target = match identity.session_type {
            SessionType::Discovery => None,
            SessionType::Normal => {
                let name = identity.target.ok_or(LoginStatus::MISSING_PARAMETER)?;
                let target = self.target(name.as_str())?;
                // What was found at the beginning of the login may not hold any more.
                if target.admission(identity.initiator).is_none() {
                    return Err(LoginStatus::AUTHORIZATION_FAILURE);
                }
                Some(target.id)
            }
        };
        let key = SessionKey {
            initiator: identity.initiator.as_str().to_owned(),
            isid: identity.isid,
            target,
            portal_group_tag: self.portal_group_tag,
            discovery_portal: target.is_none().then_some(self.portal),
        };
        Ok((key, target))
    }
}

/// The answer to a login at a target that is elsewhere (RFC 7143 §11.13.5).
fn redirection(moved: &Moved) -> LoginRefusal {
    let address = PortalAddress(moved.address.clone());
    if moved.permanent {
        LoginRefusal::MovedPermanently(address)
    } else {
        LoginRefusal::MovedTemporarily(address)
    }
}

/// The answer to the peer for each refusal (RFC 7143 §11.13.5).
fn login_status(refusal: SessionRefusal) -> LoginStatus {
    match refusal {
        SessionRefusal::DoesNotExist => LoginStatus::SESSION_DOES_NOT_EXIST,
        SessionRefusal::OutOfResources => LoginStatus::OUT_OF_RESOURCES,
        SessionRefusal::TooManyConnections => LoginStatus::TOO_MANY_CONNECTIONS,
    }
}
