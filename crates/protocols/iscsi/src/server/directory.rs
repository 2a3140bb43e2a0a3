//! What a login asks of the world: which targets there are, who may use them, and how they prove it.
//!
//! The [`Directory`] is implemented by the crate that knows the configuration and keeps the sessions.
//! Its calls return at once; a login never waits for one.

pub use crate::chap::ChapAccount;
use crate::chap::ChapAlgorithm;
use crate::name::IscsiName;
use crate::negotiation::{DigestPolicy, Preferences};
use crate::pdu::{ConnectionId, Isid, LoginStatus, Tsih};
use crate::session_parameters::{OperationalParameters, PortalGroupTag, SessionType};

#[cfg(test)]
pub(crate) mod fixture;

/// The world as a login sees it.
pub trait Directory {
    /// Authentication demanded of `initiator` for a discovery session.
    fn discovery_authentication(&self, initiator: &IscsiName) -> Authentication;

    /// A normal session to `target`, a name already normalised.
    ///
    /// # Errors
    /// Why this initiator does not get in here: no such target, not allowed, moved, out of service.
    fn target_login(
        &self,
        initiator: &IscsiName,
        target: &str,
    ) -> Result<TargetLogin, LoginRefusal>;

    /// The targets `initiator` may see, with their portals, in the order SendTargets lists them.
    fn visible_targets(&self, initiator: &IscsiName) -> Vec<TargetRecord>;

    /// The session-wide parameters of the session that a login with a TSIH other than zero wants to
    /// continue: the same initiator, target, portal group, ISID and TSIH (RFC 7143 §6.3.1). Asked at
    /// the first request, so that a stale TSIH is refused before anything is negotiated.
    ///
    /// # Errors
    /// [`LoginStatus::SESSION_DOES_NOT_EXIST`] when it is not there, as targets without connection
    /// reinstatement always answer.
    fn existing_session(
        &self,
        session: &SessionIdentity<'_>,
    ) -> Result<OperationalParameters, LoginStatus> {
        let _ = session;
        Err(LoginStatus::SESSION_DOES_NOT_EXIST)
    }

    /// Whether the response of an initiator to a challenge is looked at now, asked when it comes.
    ///
    /// # Errors
    /// What the initiator is told instead, whether it is right or not.
    fn may_prove(&self, initiator: &IscsiName) -> Result<(), LoginStatus> {
        let _ = initiator;
        Ok(())
    }

    /// Called once, when the login is about to succeed: creates the session, or reinstates the session
    /// or connection that has the same identity (RFC 7143 §6.3.4 and §6.3.5). Returns its TSIH, which
    /// is not zero.
    ///
    /// # Errors
    /// Why not: session does not exist, too many connections, out of resources.
    fn establish(&mut self, session: SessionRequest<'_>) -> Result<Tsih, LoginStatus>;

    /// Fills `bytes` with unpredictable bytes, for CHAP challenges.
    fn random(&mut self, bytes: &mut [u8]);
}

/// What a target demands of an initiator before it lets it in.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// An initiator that proves nothing may enter.
    pub none_allowed: bool,
    /// CHAP, when there are secrets to check against.
    pub chap: Option<ChapAuthentication>,
}

impl Authentication {
    /// Everybody may enter, unproved.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            none_allowed: true,
            chap: None,
        }
    }

    /// Only who passes `chap` may enter.
    #[must_use]
    pub const fn chap_required(chap: ChapAuthentication) -> Self {
        Self {
            none_allowed: false,
            chap: Some(chap),
        }
    }
}

/// The target's side of CHAP (RFC 7143 §12.1.3).
#[derive(Clone, Debug, Default)]
pub struct ChapAuthentication {
    /// Who may enter, and with which secret.
    pub accounts: Vec<ChapAccount>,
    /// The name and secret with which the target proves itself when the initiator asks it to.
    pub mutual: Option<ChapAccount>,
    /// Algorithms allowed. Of them the initiator's first choice is taken. Empty: all we know.
    pub algorithms: Vec<ChapAlgorithm>,
}

/// What this target, or discovery, is willing to negotiate. The defaults are generous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginConfig {
    /// What the target declares for itself: the longest data segment an initiator may send, in bytes.
    pub max_recv_data_segment_length: u32,
    /// The longest sequence of Data-In, or of Data-Out for one R2T, in bytes.
    pub max_burst_length: u32,
    /// The most unsolicited data for a command, in bytes.
    pub first_burst_length: u32,
    /// R2Ts in flight per command.
    pub max_outstanding_r2t: u16,
    /// Unsolicited Data-Out PDUs are refused.
    pub initial_r2t: bool,
    /// Write data may come with the command.
    pub immediate_data: bool,
    /// What is thought of header digests.
    pub header_digest: DigestPolicy,
    /// What is thought of data digests.
    pub data_digest: DigestPolicy,
    /// Seconds to wait before reconnecting.
    pub default_time2wait: u16,
    /// Seconds for which tasks are kept for a connection that went away.
    pub default_time2retain: u16,
    /// Human-readable name of the target, shown by initiators.
    pub target_alias: Option<String>,
}

impl Default for LoginConfig {
    fn default() -> Self {
        let preferences = Preferences::default();
        Self {
            max_recv_data_segment_length: preferences.max_recv_data_segment_length,
            max_burst_length: preferences.max_burst_length,
            first_burst_length: preferences.first_burst_length,
            max_outstanding_r2t: preferences.max_outstanding_r2t,
            initial_r2t: preferences.initial_r2t,
            immediate_data: preferences.immediate_data,
            header_digest: preferences.header_digest,
            data_digest: preferences.data_digest,
            default_time2wait: preferences.default_time2wait,
            default_time2retain: preferences.default_time2retain,
            target_alias: None,
        }
    }
}

impl LoginConfig {
    /// What of this the negotiation of keys needs. One connection per session, error recovery level 0
    /// and data in order are fixed.
    #[must_use]
    pub fn preferences(&self) -> Preferences {
        Preferences {
            max_recv_data_segment_length: self.max_recv_data_segment_length,
            max_burst_length: self.max_burst_length,
            first_burst_length: self.first_burst_length,
            max_outstanding_r2t: self.max_outstanding_r2t,
            initial_r2t: self.initial_r2t,
            immediate_data: self.immediate_data,
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            default_time2wait: self.default_time2wait,
            default_time2retain: self.default_time2retain,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
        }
    }
}

/// A target that lets this initiator in, once it has authenticated itself.
#[derive(Clone, Debug)]
pub struct TargetLogin {
    pub name: IscsiName,
    /// The portal group of the portal that the connection came in by.
    pub portal_group_tag: PortalGroupTag,
    /// What the initiator has to prove.
    pub authentication: Authentication,
    /// What the target negotiates.
    pub config: LoginConfig,
}

/// Why a target does not let an initiator in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// A status without further data: not found, authorization failure, target removed, service
    /// unavailable and so on.
    Status(LoginStatus),
    /// The target has moved for now: status 0101.
    MovedTemporarily(PortalAddress),
    /// The target has moved for good: status 0102.
    MovedPermanently(PortalAddress),
}

impl From<LoginStatus> for LoginRefusal {
    fn from(status: LoginStatus) -> Self {
        Self::Status(status)
    }
}

/// Where a target can be reached, as TargetAddress writes it (RFC 7143 §13.8): `host:port`, an IPv6
/// address in brackets, `[2001:db8::1]:3260`. Without a port, 3260 is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortalAddress(pub String);

impl From<std::net::SocketAddr> for PortalAddress {
    fn from(address: std::net::SocketAddr) -> Self {
        Self(address.to_string())
    }
}

/// One portal of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortalRecord {
    /// What the initiator is told to connect to.
    pub address: PortalAddress,
    /// The portal group it belongs to.
    pub portal_group_tag: PortalGroupTag,
}

/// A target as discovery lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    pub name: IscsiName,
    /// Where it can be reached. Empty: where the discovery session is connected to.
    pub portals: Vec<PortalRecord>,
}

/// Which session and connection a login is about (RFC 7143 §6.3.1).
#[derive(Clone, Copy, Debug)]
pub struct SessionIdentity<'a> {
    pub initiator: &'a IscsiName,
    /// To what. `None` for a discovery session that names no target.
    pub target: Option<&'a IscsiName>,
    /// The portal group, where there is a target.
    pub portal_group_tag: Option<PortalGroupTag>,
    pub session_type: SessionType,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// Zero for a new session, or to reinstate one; otherwise the session to be continued.
    pub tsih: Tsih,
    /// The connection within the session.
    pub connection_id: ConnectionId,
}

/// A login about to succeed.
#[derive(Clone, Copy, Debug)]
pub struct SessionRequest<'a> {
    /// Which session and connection.
    pub identity: SessionIdentity<'a>,
    /// The initiator's own description of itself.
    pub initiator_alias: Option<&'a str>,
    /// The CHAP name that was authenticated, if any.
    pub authenticated_as: Option<&'a str>,
    pub parameters: &'a OperationalParameters,
}
