//! The login phase at the target (RFC 7143 §6.3, §11.12, §11.13).
//!
//! ```text
//!              CSG=0                            T, NSG=1
//!  (start) ───────────► SecurityNegotiation ───────────────► LoginOperationalNegotiation
//!     │                         │                                   │        ▲
//!     │                         │ T, NSG=3          T, NSG=3        │        │
//!     │                         └──────────► FullFeaturePhase ◄─────┘        │
//!     └──────────────────────────────────────────────────────────────────────┘
//!                     CSG=1, where nothing has to be proved
//! ```
//!
//! [`Login`] takes the decoded header and the data segment of each Login Request and returns the
//! response with its text. It knows nothing of sockets, of the digests (there are none yet) or of
//! the numbering: the connection fills StatSN and the command window of each response, and closes
//! after a refusal.
//!
//! A request with the C bit is answered by an empty response, and its text waits for the rest. The
//! text of a response is cut into data segments of 8192 bytes, the default
//! MaxRecvDataSegmentLength, which is what holds during login (§6.3).
//!
//! The target answers the keys it is offered, and of its own accord sends TargetPortalGroupTag,
//! TargetAlias and MaxRecvDataSegmentLength, which need no answer. It offers keys itself only where
//! its policy requires what is not the default: a digest, and CHAP.

mod authentication;
mod claims;
mod error;
#[cfg(test)]
mod tests;

use self::authentication::Exchange;
pub use self::claims::Claims;
pub use self::error::{LoginError, REQUESTS_MAX};
use super::directory::{Directory, LoginConfig, LoginRefusal, SessionIdentity, SessionRequest};
use crate::keys::{Key, MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT, Phase, SecurityKeys};
use crate::name::IscsiName;
use crate::negotiation::{Admission, Ledger, Negotiation, Role};
use crate::pdu::{
    CommandWindow, ConnectionId, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, LoginStatus,
    Stage, StatSn, Tsih,
};
use crate::session_parameters::{PortalGroupTag, SessionParameters, SessionType};
use crate::text::{self, NOT_UNDERSTOOD, Pair, REJECT, TextAssembly, TextSegments, TextWriter};

/// Bytes in the data segment of a login PDU, either way.
const DATA_SEGMENT_MAX: usize = MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT as usize;

/// The one version of the protocol.
const VERSION: u8 = 0;

/// What the connection is to do with a Login Request.
#[derive(Debug)]
pub struct LoginReply {
    /// To be sent, with StatSN and the command window filled in.
    pub response: LoginResponse,
    /// The response's data segment, at most 8192 bytes.
    pub data: Vec<u8>,
    /// What comes after it.
    pub outcome: LoginOutcome,
}

/// Where the login stands after a response.
#[derive(Debug)]
pub enum LoginOutcome {
    /// Another Login Request is to come.
    Continue,
    /// Full feature phase begins with the next PDU.
    Finished(Box<SessionParameters>),
    /// The login is refused; the connection is to be closed once the response is sent.
    Refused(LoginError),
}

/// A login in progress at the target.
#[derive(Debug)]
pub struct Login {
    requests: u32,
    /// What the first request said and all others have to repeat.
    fixed: Option<FixedFields>,
    /// The stage the login is in.
    stage: Stage,
    /// Text that has come in of the logical text data segment not complete yet.
    incoming: TextAssembly,
    /// Text that is still to go out.
    outgoing: TextSegments,
    /// There once the first text is complete.
    peer: Option<Peer>,
    claims: Claims,
    over: bool,
}

/// Fields that are the same in all requests of a login (§11.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FixedFields {
    version_max: u8,
    version_min: u8,
    isid: Isid,
    tsih: Tsih,
    connection_id: ConnectionId,
    initiator_task_tag: InitiatorTaskTag,
}

/// The initiator, what it wants, and how far it has got.
#[derive(Debug)]
struct Peer {
    name: IscsiName,
    alias: Option<String>,
    session_type: SessionType,
    /// The name by which the initiator asked for the target.
    asked_for: Option<IscsiName>,
    target: Option<IscsiName>,
    portal_group_tag: Option<PortalGroupTag>,
    target_alias: Option<String>,
    exchange: Exchange,
    negotiation: Negotiation,
    ledger: Ledger,
    /// TargetPortalGroupTag has been sent, as far as there is one.
    introduced: bool,
}

impl Login {
    /// Waits for the first request.
    #[must_use]
    pub fn new() -> Self {
        Self {
            requests: 0,
            fixed: None,
            stage: Stage::SECURITY_NEGOTIATION,
            incoming: TextAssembly::default(),
            outgoing: TextSegments::default(),
            peer: None,
            claims: Claims::default(),
            over: false,
        }
    }

    /// Whether the login has finished or been refused.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// What the initiator has said of itself so far.
    #[must_use]
    pub const fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Takes in one Login Request with its data segment.
    pub fn handle(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        directory: &mut dyn Directory,
    ) -> LoginReply {
        let step = self.receive(request, data, directory);
        match step.and_then(|()| self.respond(request, directory)) {
            Ok(reply) => reply,
            Err(error) => {
                self.over = true;
                refuse_with(request, error)
            }
        }
    }

    /// Takes in the request; what is to be said to it is in `self.outgoing` afterwards.
    fn receive(
        &mut self,
        request: &LoginRequest,
        data: &[u8],
        directory: &mut dyn Directory,
    ) -> Result<(), LoginError> {
        let stage = self.check_header(request)?;
        if data.len() > DATA_SEGMENT_MAX {
            return Err(LoginError::DataSegmentTooLong(data.len()));
        }
        if !self.outgoing.is_empty() {
            // §6.2: a response with the C bit is answered by an empty request.
            return if data.is_empty() && !request.continues {
                Ok(())
            } else {
                Err(LoginError::TextDuringLongResponse)
            };
        }
        self.incoming.push(data)?;
        if request.continues {
            return Ok(());
        }
        let incoming = self.incoming.take();
        let pairs = text::parse(&incoming)?;
        self.claims.note(&pairs);
        if self.peer.is_none() {
            let fixed = self
                .fixed
                .expect("check_header keeps the fields of the first request");
            self.peer = Some(Peer::identify(&pairs, &fixed, stage, directory)?);
        }
        let peer = self.peer.as_mut().expect("identified just now or before");
        let mut out = TextWriter::new();
        match stage {
            Stage::SECURITY_NEGOTIATION => {
                peer.receive_security(&pairs, request.transit, directory, &mut out)?;
            }
            _ => peer.receive_operational(&pairs, request.transit, &mut out)?,
        }
        peer.introduce(&mut out);
        self.outgoing = TextSegments::new(out.into_bytes());
        Ok(())
    }

    /// Checks the header against what came before, and returns the stage it belongs to.
    fn check_header(&mut self, request: &LoginRequest) -> Result<Stage, LoginError> {
        if self.over {
            return Err(LoginError::Over);
        }
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(LoginError::TooManyRequests);
        }
        let fields = FixedFields::of(request);
        match &self.fixed {
            None => {
                if request.version_min > VERSION {
                    let version_min = request.version_min;
                    return Err(LoginError::UnsupportedVersion { version_min });
                }
                match request.current_stage {
                    stage
                    @ (Stage::SECURITY_NEGOTIATION | Stage::LOGIN_OPERATIONAL_NEGOTIATION) => {
                        self.stage = stage
                    }
                    other => return Err(LoginError::WrongCurrentStage(other)),
                }
                self.fixed = Some(fields);
            }
            Some(fixed) => {
                if let Some(field) = fixed.difference(&fields) {
                    return Err(LoginError::HeaderChanged(field));
                }
            }
        }
        let stage = self.stage;
        if request.current_stage != stage {
            return Err(LoginError::WrongCurrentStage(request.current_stage));
        }
        if request.transit && request.continues {
            return Err(LoginError::TransitWithContinue);
        }
        // §6.3: the table of transitions. NSG is reserved without the T bit.
        let may_follow = match request.next_stage {
            Stage::LOGIN_OPERATIONAL_NEGOTIATION => stage == Stage::SECURITY_NEGOTIATION,
            Stage::FULL_FEATURE_PHASE => true,
            _ => false,
        };
        if request.transit && !may_follow {
            return Err(LoginError::WrongNextStage(request.next_stage));
        }
        Ok(stage)
    }

    /// The response, once the request has been taken in: the next piece of text, and the transition
    /// when the initiator asks for it and nothing is left to say or to wait for.
    fn respond(
        &mut self,
        request: &LoginRequest,
        directory: &mut dyn Directory,
    ) -> Result<LoginReply, LoginError> {
        let data = self.outgoing.next_segment(DATA_SEGMENT_MAX).to_vec();
        let mut response = response_to(request, LoginStatus::SUCCESS);
        response.continues = !self.outgoing.is_empty();
        let mut outcome = LoginOutcome::Continue;
        let peer = self.peer.as_mut().filter(|peer| {
            request.transit && !response.continues && peer.may_leave(request.current_stage)
        });
        if let Some(peer) = peer {
            response.transit = true;
            response.next_stage = request.next_stage;
            self.stage = request.next_stage;
            if request.next_stage == Stage::FULL_FEATURE_PHASE {
                let fixed = self
                    .fixed
                    .expect("there is a peer only after a first request");
                let session = peer.establish(&fixed, directory)?;
                response.tsih = session.tsih;
                self.over = true;
                outcome = LoginOutcome::Finished(Box::new(session));
            }
        }
        Ok(LoginReply {
            response,
            data,
            outcome,
        })
    }
}

impl Default for Login {
    fn default() -> Self {
        Self::new()
    }
}

impl FixedFields {
    const fn of(request: &LoginRequest) -> Self {
        Self {
            version_max: request.version_max,
            version_min: request.version_min,
            isid: request.isid,
            tsih: request.tsih,
            connection_id: request.connection_id,
            initiator_task_tag: request.initiator_task_tag,
        }
    }

    /// The first field in which a request differs.
    fn difference(&self, later: &Self) -> Option<&'static str> {
        [
            (self.version_max != later.version_max, "Version-max"),
            (self.version_min != later.version_min, "Version-min"),
            (self.isid != later.isid, "ISID"),
            (self.tsih != later.tsih, "TSIH"),
            (self.connection_id != later.connection_id, "CID"),
            (
                self.initiator_task_tag != later.initiator_task_tag,
                "Initiator Task Tag",
            ),
        ]
        .into_iter()
        .find_map(|(differs, name)| differs.then_some(name))
    }
}

impl Peer {
    /// Who logs in, to what, and whether that is possible at all, from the first text (§6.3.1).
    fn identify(
        pairs: &[Pair<'_>],
        fixed: &FixedFields,
        stage: Stage,
        directory: &mut dyn Directory,
    ) -> Result<Self, LoginError> {
        let value_of = |key: Key| {
            pairs
                .iter()
                .find(|pair| pair.key == key.name())
                .map(|pair| pair.value)
        };
        let name = value_of(Key::InitiatorName).ok_or(LoginError::Missing(Key::InitiatorName))?;
        let name = IscsiName::from_peer(name).map_err(LoginError::MalformedInitiatorName)?;
        let session_type = match value_of(Key::SessionType) {
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(_) => return Err(LoginError::UnknownSessionType),
        };
        // §7.4.2: a name without anything in it names nothing.
        let target = value_of(Key::TargetName).filter(|target| !target.is_empty());
        if session_type == SessionType::Normal && target.is_none() {
            return Err(LoginError::Missing(Key::TargetName));
        }
        let asked_for = target
            .map(IscsiName::from_peer)
            .transpose()
            .map_err(LoginError::MalformedTargetName)?;
        let target = asked_for
            .as_ref()
            .map(|target| directory.target_login(&name, target.as_str()))
            .transpose()
            .map_err(LoginError::Refused)?;
        let (authentication, config) = match (session_type, &target) {
            (SessionType::Normal, Some(target)) => {
                (target.authentication.clone(), target.config.clone())
            }
            _ => (
                directory.discovery_authentication(&name),
                LoginConfig::default(),
            ),
        };
        let (target, portal_group_tag) = match target {
            Some(target) => (Some(target.name), Some(target.portal_group_tag)),
            None => (None, None),
        };
        let mut peer = Self {
            name,
            alias: None,
            session_type,
            asked_for,
            target,
            portal_group_tag,
            target_alias: config.target_alias.clone(),
            exchange: Exchange::new(authentication),
            negotiation: Negotiation::new(Role::Target, session_type, config.preferences()),
            ledger: Ledger::new(Role::Initiator),
            introduced: false,
        };
        if fixed.tsih != Tsih::NEW_SESSION {
            let parameters = directory
                .existing_session(&peer.identity(fixed))
                .map_err(LoginError::NotEstablished)?;
            peer.negotiation = Negotiation::continuing(
                Role::Target,
                session_type,
                config.preferences(),
                parameters,
            );
        }
        if stage != Stage::SECURITY_NEGOTIATION {
            peer.exchange.skip()?;
        }
        Ok(peer)
    }

    fn identity(&self, fixed: &FixedFields) -> SessionIdentity<'_> {
        SessionIdentity {
            initiator: &self.name,
            target: self.target.as_ref(),
            portal_group_tag: self.portal_group_tag,
            session_type: self.session_type,
            isid: fixed.isid,
            tsih: fixed.tsih,
            connection_id: fixed.connection_id,
        }
    }

    fn receive_security(
        &mut self,
        pairs: &[Pair<'_>],
        transit: bool,
        directory: &mut dyn Directory,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let mut keys = SecurityKeys::default();
        for pair in pairs {
            if let Some(key) = self.admit(pair, Phase::Security, out)? {
                keys.insert(key, pair.value);
            }
        }
        self.exchange
            .receive(&keys, transit, &self.name, &mut self.ledger, directory, out)
    }

    fn receive_operational(
        &mut self,
        pairs: &[Pair<'_>],
        transit: bool,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let mut operational = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if let Some(key) = self.admit(pair, Phase::Operational, out)? {
                operational.push((key, pair.value));
            }
        }
        self.negotiation.receive(&operational, out)?;
        if !self.ledger.has_sent(Key::MaxRecvDataSegmentLength) {
            self.negotiation
                .declare_segment_length(&mut self.ledger, out);
        }
        if transit {
            let required: Vec<Key> = self.negotiation.requirements().collect();
            if required.is_empty() && self.negotiation.is_waiting() {
                // It wants to leave without having answered what we require.
                self.negotiation.conclude()?;
            }
            for key in required {
                self.negotiation.propose(key, &mut self.ledger, out);
            }
        }
        Ok(())
    }

    /// Checks a key in, answers it if we do not know it, and keeps what it declares about the session.
    /// Returns the keys that are somebody else's business.
    fn admit(
        &mut self,
        pair: &Pair<'_>,
        phase: Phase,
        out: &mut TextWriter,
    ) -> Result<Option<Key>, LoginError> {
        let Some(key) = Key::from_name(pair.key) else {
            // An answer to an answer would never end.
            if pair.value != NOT_UNDERSTOOD {
                out.push(pair.key, NOT_UNDERSTOOD);
            }
            return Ok(None);
        };
        let admission = self.ledger.admit(key, pair.value, phase)?;
        if let Some(is_same) = self.repeats(key, pair.value) {
            // These come too late to change anything after the first text.
            return if is_same {
                Ok(None)
            } else {
                Err(LoginError::RedeclaredDifferently(key))
            };
        }
        if key == Key::InitiatorAlias {
            self.alias = Some(pair.value.to_owned());
            return Ok(None);
        }
        // Nothing may depend on the architecture of a node (§13.26.2).
        if key == Key::NodeArchitecture || admission == Admission::NotUnderstood {
            return Ok(None);
        }
        Ok(Some(key))
    }

    /// Whether `value` is what the first text declared; `None`: another key.
    fn repeats(&self, key: Key, value: &str) -> Option<bool> {
        if key == Key::InitiatorName {
            Some(IscsiName::from_peer(value).as_ref() == Ok(&self.name))
        } else if key == Key::TargetName {
            Some(IscsiName::from_peer(value).ok() == self.asked_for)
        } else if key == Key::SessionType {
            Some(value == session_type_name(self.session_type))
        } else {
            None
        }
    }

    /// Adds what a target says about itself without being asked: its portal group in the first response
    /// to a complete text (§6.3.1), its alias once the initiator may know it (§13.6).
    fn introduce(&mut self, out: &mut TextWriter) {
        if !self.introduced {
            self.introduced = true;
            if let Some(PortalGroupTag(tag)) = self.portal_group_tag {
                self.ledger.note_sent(Key::TargetPortalGroupTag);
                out.push(Key::TargetPortalGroupTag.name(), tag);
            }
        }
        if let Some(alias) = &self.target_alias
            && self.session_type == SessionType::Normal
            && self.exchange.is_done()
            && !self.ledger.has_sent(Key::TargetAlias)
        {
            self.ledger.note_sent(Key::TargetAlias);
            out.push(Key::TargetAlias.name(), alias);
        }
    }

    /// Whether the target has nothing left to do in this stage.
    fn may_leave(&self, stage: Stage) -> bool {
        match stage {
            Stage::SECURITY_NEGOTIATION => self.exchange.is_done(),
            _ => !self.negotiation.is_waiting(),
        }
    }

    fn establish(
        &self,
        fixed: &FixedFields,
        directory: &mut dyn Directory,
    ) -> Result<SessionParameters, LoginError> {
        let operational = self.negotiation.conclude()?;
        let authenticated_as = self.exchange.authenticated_as();
        let tsih = directory
            .establish(SessionRequest {
                identity: self.identity(fixed),
                initiator_alias: self.alias.as_deref(),
                authenticated_as,
                parameters: &operational,
            })
            .map_err(LoginError::NotEstablished)?;
        Ok(SessionParameters {
            session_type: self.session_type,
            initiator_name: self.name.clone(),
            initiator_alias: self.alias.clone(),
            target_name: self.target.clone(),
            target_alias: self.target_alias.clone(),
            portal_group_tag: self.portal_group_tag,
            isid: fixed.isid,
            tsih,
            connection_id: fixed.connection_id,
            continues_session: fixed.tsih != Tsih::NEW_SESSION,
            authenticated_as: authenticated_as.map(str::to_owned),
            operational,
        })
    }
}

/// As SessionType writes it.
pub(crate) const fn session_type_name(session_type: SessionType) -> &'static str {
    match session_type {
        SessionType::Normal => "Normal",
        SessionType::Discovery => "Discovery",
    }
}

/// A response that neither transits nor continues, with everything taken over that is to be.
fn response_to(request: &LoginRequest, status: LoginStatus) -> LoginResponse {
    LoginResponse {
        transit: false,
        continues: false,
        current_stage: request.current_stage,
        next_stage: Stage::SECURITY_NEGOTIATION,
        version_max: VERSION,
        version_active: VERSION,
        isid: request.isid,
        tsih: request.tsih,
        initiator_task_tag: request.initiator_task_tag,
        stat_sn: StatSn(0),
        window: CommandWindow::default(),
        status,
    }
}

/// The response by which a connection refuses a login for reasons of its own, such as too many
/// connections (0302) or a shutdown (0301).
#[must_use]
pub fn refuse(request: &LoginRequest, status: LoginStatus) -> LoginResponse {
    // §6.3.1: T, CSG and NSG of a reject are reserved.
    LoginResponse {
        current_stage: Stage::SECURITY_NEGOTIATION,
        ..response_to(request, status)
    }
}

fn refuse_with(request: &LoginRequest, error: LoginError) -> LoginReply {
    let mut text = TextWriter::new();
    if let LoginError::Refused(
        LoginRefusal::MovedTemporarily(address) | LoginRefusal::MovedPermanently(address),
    ) = &error
    {
        // §13.8: without the portal group tag.
        text.push(Key::TargetAddress.name(), &address.0);
    } else if error == LoginError::NoCommonAuthMethod {
        // §6.3.2: the answer to a list of methods without one that suits.
        text.push(Key::AuthMethod.name(), REJECT);
    }
    LoginReply {
        response: refuse(request, error.status()),
        data: text.into_bytes(),
        outcome: LoginOutcome::Refused(error),
    }
}
