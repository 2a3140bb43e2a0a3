//! The login phase at the initiator (RFC 7143 §6.3, §11.12, §11.13): the mirror of
//! `server::login`.
//!
//! ```text
//!  (start) ──► SecurityNegotiation ──T──► LoginOperationalNegotiation ──T──► FullFeaturePhase
//!     └───── nothing to prove, and told so ─────────▲
//! ```
//!
//! [`Login::start`] yields the first request; every response goes to [`Login::handle`], which yields the
//! next request or the parameters of the session. All operational keys are offered in the first
//! request of the operational stage. The connection closes on every error.

mod authentication;
mod error;
#[cfg(test)]
mod tests;

pub use self::authentication::{ChapCredentials, Offer};
pub use self::error::LoginError;

use self::authentication::Exchange;
use self::error::REQUESTS_MAX;
use crate::keys::{self, Key, MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT, Phase, SecurityKeys};
use crate::name::IscsiName;
use crate::negotiation::{Ledger, Negotiation, Preferences, Role};
use crate::pdu::{
    CmdSn, ConnectionId, InitiatorTaskTag, Isid, LoginRequest, LoginResponse, LoginStatus, Stage,
    StatSn, Tsih,
};
use crate::session_parameters::{PortalGroupTag, SessionParameters, SessionType};
use crate::text::{self, NOT_UNDERSTOOD, TextAssembly, TextSegments, TextWriter};

/// What an initiator wants of a login.
#[derive(Clone, Debug)]
pub struct LoginConfig {
    pub initiator_name: IscsiName,
    /// A description of the initiator for people.
    pub initiator_alias: Option<String>,
    /// To what. A discovery session does not need it.
    pub target_name: Option<IscsiName>,
    pub session_type: SessionType,
    /// Which of the initiator's ports.
    pub isid: Isid,
    /// Zero for a new session; otherwise the session to be continued.
    pub tsih: Tsih,
    /// Which connection of the session.
    pub connection_id: ConnectionId,
    /// The same in all requests of a login.
    pub initiator_task_tag: InitiatorTaskTag,
    /// The first CmdSN of the session.
    pub cmd_sn: CmdSn,
    /// What is offered for authentication. `None`: the login starts with the operational stage.
    pub security: Option<Offer>,
    /// What is offered in the operational stage.
    pub preferences: Preferences,
    /// Requests are cut to this many bytes of text; 8192 is the most a target takes.
    pub data_segment_max: usize,
}

impl LoginConfig {
    /// A normal session to `target` without authentication, with default offers.
    #[must_use]
    pub fn normal(initiator: IscsiName, target: IscsiName, isid: Isid) -> Self {
        Self {
            initiator_name: initiator,
            initiator_alias: None,
            target_name: Some(target),
            session_type: SessionType::Normal,
            isid,
            tsih: Tsih::NEW_SESSION,
            connection_id: ConnectionId(0),
            initiator_task_tag: InitiatorTaskTag(0),
            cmd_sn: CmdSn(1),
            security: Some(Offer {
                none: true,
                chap: None,
            }),
            preferences: Preferences::default(),
            data_segment_max: MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT as usize,
        }
    }

    /// A discovery session without authentication.
    #[must_use]
    pub fn discovery(initiator: IscsiName, isid: Isid) -> Self {
        Self {
            target_name: None,
            session_type: SessionType::Discovery,
            ..Self::normal(initiator.clone(), initiator, isid)
        }
    }
}

#[derive(Debug)]
pub enum LoginStep {
    /// This is to be sent.
    Send {
        /// Header of the request.
        request: LoginRequest,
        /// The data segment of the request: text keys, each with its NUL.
        data: Vec<u8>,
    },
    /// The session is there.
    Finished(Box<SessionParameters>),
}

/// A login in progress at the initiator.
#[derive(Debug)]
pub struct Login {
    config: LoginConfig,
    stage: Stage,
    /// The last request asked to leave the stage.
    asked: bool,
    requests: u32,
    exp_stat_sn: StatSn,
    incoming: TextAssembly,
    outgoing: TextSegments,
    exchange: Exchange,
    negotiation: Negotiation,
    ledger: Ledger,
    target_alias: Option<String>,
    portal_group_tag: Option<PortalGroupTag>,
}

impl Login {
    /// A login that has not begun. `random` fills its argument with unpredictable bytes; they become
    /// the challenge to the target.
    #[must_use]
    pub fn new(config: LoginConfig, random: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut identifier = [0];
        let mut challenge = [0; 32];
        random(&mut identifier);
        random(&mut challenge);
        let offer = config.security.clone();
        let stage = match offer {
            Some(_) => Stage::SECURITY_NEGOTIATION,
            None => Stage::LOGIN_OPERATIONAL_NEGOTIATION,
        };
        let offer = offer.unwrap_or(Offer {
            none: true,
            chap: None,
        });
        let (role, session_type) = (Role::Initiator, config.session_type);
        let negotiation = Negotiation::new(role, session_type, config.preferences.clone());
        Self {
            stage,
            asked: false,
            requests: 0,
            exp_stat_sn: StatSn(0),
            incoming: TextAssembly::default(),
            outgoing: TextSegments::default(),
            exchange: Exchange::new(offer, (identifier[0], challenge)),
            negotiation,
            ledger: Ledger::new(Role::Target),
            target_alias: None,
            portal_group_tag: None,
            config,
        }
    }

    /// Makes the first Login Request, which declares names and offers security.
    pub fn start(&mut self) -> LoginStep {
        let mut out = TextWriter::new();
        let mut declare = |key: Key, value: &str| {
            self.ledger.note_sent(key);
            out.push(key.name(), value);
        };
        declare(Key::InitiatorName, self.config.initiator_name.as_str());
        if let Some(alias) = &self.config.initiator_alias {
            declare(Key::InitiatorAlias, alias);
        }
        if let Some(target) = &self.config.target_name {
            declare(Key::TargetName, target.as_str());
        }
        declare(
            Key::SessionType,
            match self.config.session_type {
                SessionType::Normal => "Normal",
                SessionType::Discovery => "Discovery",
            },
        );
        if self.stage == Stage::SECURITY_NEGOTIATION {
            self.exchange.offer_methods(&mut self.ledger, &mut out);
        } else {
            self.exchange.skip();
            self.offer_operational(&mut out);
        }
        self.send(out)
    }

    /// Takes in a response with its data segment.
    ///
    /// # Errors
    /// When the login has failed.
    pub fn handle(
        &mut self,
        response: &LoginResponse,
        data: &[u8],
    ) -> Result<LoginStep, LoginError> {
        if !response.status.is_success() {
            return Err(refusal(response.status, data));
        }
        self.check_header(response)?;
        if data.len() > MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT as usize {
            return Err(LoginError::DataSegmentTooLong(data.len()));
        }
        self.exp_stat_sn = response.stat_sn.next();
        if self.requests >= REQUESTS_MAX {
            return Err(LoginError::TooManyRequests);
        }
        if !self.outgoing.is_empty() {
            // §6.2: a request with the C bit is answered by an empty response.
            return if data.is_empty() && !response.continues && !response.transit {
                Ok(self.next_request())
            } else {
                Err(LoginError::EarlyText)
            };
        }
        self.incoming.push(data)?;
        if response.continues {
            return Ok(self.next_request());
        }
        let mut out = TextWriter::new();
        let text = self.incoming.take();
        let answers_due = self.receive(&text, &mut out)?;
        // §6.3: with the T bit nothing may be said that needs an answer.
        if response.transit && answers_due {
            return Err(LoginError::WrongTransition(response.next_stage));
        }
        if response.transit {
            self.transit(response, &mut out)?;
            if self.stage == Stage::FULL_FEATURE_PHASE {
                return self.finish(response.tsih);
            }
        }
        Ok(self.send(out))
    }

    fn check_header(&self, response: &LoginResponse) -> Result<(), LoginError> {
        let config = &self.config;
        for (wrong, name) in [
            (response.isid != config.isid, "ISID"),
            (
                response.initiator_task_tag != config.initiator_task_tag,
                "Initiator Task Tag",
            ),
            (response.version_active != 0, "Version-active"),
            (response.current_stage != self.stage, "CSG"),
        ] {
            if wrong {
                return Err(LoginError::WrongHeader(name));
            }
        }
        if response.transit && response.continues {
            return Err(LoginError::TransitWithContinue);
        }
        Ok(())
    }

    /// Takes in a complete text and writes the answers. Tells whether the target waits for one; for
    /// NotUnderstood it does not.
    fn receive(&mut self, text: &[u8], out: &mut TextWriter) -> Result<bool, LoginError> {
        let phase = match self.stage {
            Stage::SECURITY_NEGOTIATION => Phase::Security,
            _ => Phase::Operational,
        };
        let mut security = SecurityKeys::default();
        let mut operational = Vec::new();
        for pair in text::parse(text)? {
            let Some(key) = Key::from_name(pair.key) else {
                if pair.value != NOT_UNDERSTOOD {
                    out.push(pair.key, NOT_UNDERSTOOD);
                }
                continue;
            };
            self.ledger.admit(key, pair.value, phase)?;
            if security.insert(key, pair.value) {
                continue;
            }
            if key == Key::TargetAlias {
                self.target_alias = Some(pair.value.to_owned());
            } else if key == Key::TargetPortalGroupTag {
                let tag = text::parse_number(pair.value)
                    .and_then(|tag| u16::try_from(tag).ok())
                    .ok_or(LoginError::MalformedPortalGroupTag)?;
                self.portal_group_tag = Some(PortalGroupTag(tag));
            } else if key.definition().rule != keys::Rule::Declaration {
                operational.push((key, pair.value));
            }
            // The answer to a declaration is NotUnderstood or nothing; nothing follows from either.
        }
        let mut answers = TextWriter::new();
        if phase == Phase::Security {
            self.exchange
                .receive(&security, &mut self.ledger, &mut answers)?;
        } else {
            self.negotiation.receive(&operational, &mut answers)?;
        }
        let due = !answers.is_empty();
        out.append(answers);
        Ok(due)
    }

    /// The target goes to another stage.
    fn transit(
        &mut self,
        response: &LoginResponse,
        out: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let next = response.next_stage;
        let legal = self.asked
            && match next {
                Stage::LOGIN_OPERATIONAL_NEGOTIATION | Stage::FULL_FEATURE_PHASE => {
                    next == self.wanted_stage()
                }
                _ => false,
            };
        if !legal {
            return Err(LoginError::WrongTransition(next));
        }
        if self.stage == Stage::SECURITY_NEGOTIATION {
            self.exchange.left_by_target()?;
        }
        self.stage = next;
        if next == Stage::LOGIN_OPERATIONAL_NEGOTIATION {
            self.offer_operational(out);
        }
        Ok(())
    }

    fn finish(&self, tsih: Tsih) -> Result<LoginStep, LoginError> {
        if tsih == Tsih::NEW_SESSION {
            return Err(LoginError::MissingTsih);
        }
        let operational = self.negotiation.conclude()?;
        let config = &self.config;
        Ok(LoginStep::Finished(Box::new(SessionParameters {
            session_type: config.session_type,
            initiator_name: config.initiator_name.clone(),
            initiator_alias: config.initiator_alias.clone(),
            target_name: config.target_name.clone(),
            target_alias: self.target_alias.clone(),
            portal_group_tag: self.portal_group_tag,
            isid: config.isid,
            tsih,
            connection_id: config.connection_id,
            continues_session: config.tsih != Tsih::NEW_SESSION,
            authenticated_as: self.exchange.proved_name().map(str::to_owned),
            operational,
        })))
    }

    /// Offers all that is negotiated in the operational stage. TaskReporting and iSCSIProtocolLevel are
    /// younger than many targets, and their defaults are what we do: they are answered, not offered.
    fn offer_operational(&mut self, out: &mut TextWriter) {
        for definition in keys::TABLE {
            let key = definition.key;
            let offered = matches!(
                definition.rule,
                keys::Rule::List
                    | keys::Rule::Minimum(_)
                    | keys::Rule::Maximum(_)
                    | keys::Rule::And
                    | keys::Rule::Or
            ) && definition.is_allowed_in(Phase::Operational)
                && !matches!(key, Key::TaskReporting | Key::ProtocolLevel)
                && self.negotiation.is_relevant(key);
            if offered {
                self.negotiation.propose(key, &mut self.ledger, out);
            }
        }
        self.negotiation
            .declare_segment_length(&mut self.ledger, out);
    }

    fn wanted_stage(&self) -> Stage {
        match self.stage {
            Stage::SECURITY_NEGOTIATION => Stage::LOGIN_OPERATIONAL_NEGOTIATION,
            _ => Stage::FULL_FEATURE_PHASE,
        }
    }

    fn send(&mut self, out: TextWriter) -> LoginStep {
        self.outgoing = TextSegments::new(out.into_bytes());
        self.next_request()
    }

    /// The next piece of our text, or an empty request to make the target go on.
    fn next_request(&mut self) -> LoginStep {
        self.requests += 1;
        let data = self
            .outgoing
            .next_segment(self.config.data_segment_max)
            .to_vec();
        let continues = !self.outgoing.is_empty();
        let ready = match self.stage {
            Stage::SECURITY_NEGOTIATION => self.exchange.wants_to_leave(),
            _ => true,
        };
        self.asked = ready && !continues;
        LoginStep::Send {
            request: LoginRequest {
                transit: self.asked,
                continues,
                current_stage: self.stage,
                next_stage: if self.asked {
                    self.wanted_stage()
                } else {
                    Stage::SECURITY_NEGOTIATION
                },
                version_max: 0,
                version_min: 0,
                isid: self.config.isid,
                tsih: self.config.tsih,
                initiator_task_tag: self.config.initiator_task_tag,
                connection_id: self.config.connection_id,
                cmd_sn: self.config.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
            },
            data,
        }
    }
}

fn refusal(status: LoginStatus, data: &[u8]) -> LoginError {
    let addresses = text::parse(data)
        .unwrap_or_default()
        .iter()
        .filter(|pair| pair.key == Key::TargetAddress.name())
        .map(|pair| pair.value.to_owned())
        .collect();
    LoginError::Refused { status, addresses }
}
