//! Negotiation of the operational keys (RFC 7143 §6.2 and chapter 13), for both roles.
//!
//! [`select`] is what an acceptor answers to an offer and [`check_selection`] is what a proposer
//! accepts as answer: pure functions of a key's rule in the table, of what this side prefers and of
//! what the peer sent. [`Negotiation`] applies them to the keys of one login, remembers what was
//! proposed, and yields the [`OperationalParameters`] in force.
//!
//! | offered | answered |
//! |---|---|
//! | a list | its first value that we support; none: the negotiation has failed |
//! | a number, Minimum | the lower of it and ours; below the range: Reject |
//! | a number, Maximum | the higher of it and ours; above the range: Reject |
//! | Yes or No | AND or OR with ours |
//! | no number, neither Yes nor No | Reject |
//! | a session key on a discovery session | Irrelevant, where chapter 13 says so |
//! | FirstBurstLength after InitialR2T=Yes and ImmediateData=No | Irrelevant |
//! | a leading-only key on another than the leading connection | Reject |
//! | a marker key of RFC 3720 | Reject |
//!
//! After Reject and Irrelevant the value stays what it was.

use std::fmt;

use crate::keys::{Key, KeySet, Range, Rule, SEGMENT_LENGTH_MAX, Usage};
use crate::session_parameters::{Digest, OperationalParameters, SessionType, TaskReporting};
use crate::text::{self, IRRELEVANT, NO, NOT_UNDERSTOOD, REJECT, TextWriter, YES};

mod error;
mod ledger;
#[cfg(test)]
mod tests;

pub use self::error::NegotiationError;
pub use self::ledger::{Admission, Ledger, Role};

/// What a side thinks of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DigestPolicy {
    /// No digest: offers and accepts None alone.
    None,
    /// As the peer likes; the initiator offers `None,CRC32C`.
    #[default]
    PreferNone,
    /// As the peer likes; the initiator offers `CRC32C,None`.
    PreferCrc32c,
    /// Always: a peer that does not want it is refused.
    Crc32c,
}

impl DigestPolicy {
    /// What is acceptable, in order of preference, as it is written in an offer.
    #[must_use]
    pub const fn choices(self) -> &'static [&'static str] {
        match self {
            Self::None => &["None"],
            Self::PreferNone => &["None", "CRC32C"],
            Self::PreferCrc32c => &["CRC32C", "None"],
            Self::Crc32c => &["CRC32C"],
        }
    }
}

/// What one side would like the operational parameters to be.
///
/// One connection per session, error recovery level 0 and response fences are not preferences: they
/// are what this implementation does. Our initiator copes with data in any order; our target wants it
/// in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// What this side declares for itself: the longest data segment it takes, in bytes.
    pub max_recv_data_segment_length: u32,
    /// Bytes of the longest Data-In or solicited Data-Out sequence.
    pub max_burst_length: u32,
    /// Most bytes of unsolicited data for a command.
    pub first_burst_length: u32,
    /// R2Ts in flight per task.
    pub max_outstanding_r2t: u16,
    /// Whether unsolicited Data-Out PDUs are to be forbidden.
    pub initial_r2t: bool,
    /// Whether write data may come with the command.
    pub immediate_data: bool,
    pub header_digest: DigestPolicy,
    pub data_digest: DigestPolicy,
    /// Seconds to wait before reconnecting.
    pub default_time2wait: u16,
    /// Seconds for which tasks are kept afterwards.
    pub default_time2retain: u16,
    /// Whether the data PDUs of a sequence are to come in order of offset.
    pub data_pdu_in_order: bool,
    /// Whether sequences are to come in order of offset.
    pub data_sequence_in_order: bool,
}

/// A key's value, or what was chosen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of the rules Minimum, Maximum and NumberDeclaration.
    Number(u32),
    /// Of the rules And and Or.
    Boolean(bool),
    /// Of the rule List.
    Choice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Boolean(boolean) => f.write_str(if *boolean { YES } else { NO }),
            Self::Choice(choice) => f.write_str(choice),
        }
    }
}

/// What one side wants a key to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    Number(u32),
    /// Yes or No on the wire.
    Boolean(bool),
    /// One of these, the first best.
    Choices(&'static [&'static str]),
}

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => Value::Number(*number).fmt(f),
            Self::Boolean(boolean) => Value::Boolean(*boolean).fmt(f),
            Self::Choices(choices) => f.write_str(&choices.join(",")),
        }
    }
}

impl Default for Preferences {
    fn default() -> Self {
        Self {
            max_recv_data_segment_length: 262_144,
            max_burst_length: 1_048_576,
            first_burst_length: 262_144,
            max_outstanding_r2t: 8,
            initial_r2t: false,
            immediate_data: true,
            header_digest: DigestPolicy::PreferNone,
            data_digest: DigestPolicy::PreferNone,
            default_time2wait: 2,
            default_time2retain: 0,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
        }
    }
}

impl Preferences {
    /// What is wanted of `key`; `None` when it is no key that is negotiated. Numbers lie in the key's
    /// range whatever was configured.
    #[must_use]
    pub fn of(&self, key: Key) -> Option<Preference> {
        let number = |wanted: u32| {
            let (Rule::Minimum(range) | Rule::Maximum(range) | Rule::NumberDeclaration(range)) =
                key.definition().rule
            else {
                unreachable!("{key:?} is a number in the table");
            };
            Preference::Number(wanted.clamp(range.min, range.max))
        };
        Some(match key {
            Key::HeaderDigest => Preference::Choices(self.header_digest.choices()),
            Key::DataDigest => Preference::Choices(self.data_digest.choices()),
            Key::MaxConnections => number(1),
            Key::InitialR2T => Preference::Boolean(self.initial_r2t),
            Key::ImmediateData => Preference::Boolean(self.immediate_data),
            Key::MaxRecvDataSegmentLength => number(self.max_recv_data_segment_length),
            Key::MaxBurstLength => number(self.max_burst_length),
            Key::FirstBurstLength => number(self.first_burst_length.min(self.max_burst_length)),
            Key::DefaultTime2Wait => number(u32::from(self.default_time2wait)),
            Key::DefaultTime2Retain => number(u32::from(self.default_time2retain)),
            Key::MaxOutstandingR2T => number(u32::from(self.max_outstanding_r2t)),
            Key::DataPDUInOrder => Preference::Boolean(self.data_pdu_in_order),
            Key::DataSequenceInOrder => Preference::Boolean(self.data_sequence_in_order),
            Key::ErrorRecoveryLevel => number(0),
            Key::TaskReporting => Preference::Choices(&["ResponseFence", "RFC3720"]),
            Key::ProtocolLevel => number(1),
            Key::AuthMethod
            | Key::ChapA
            | Key::ChapI
            | Key::ChapC
            | Key::ChapN
            | Key::ChapR
            | Key::SendTargets
            | Key::TargetName
            | Key::InitiatorName
            | Key::TargetAlias
            | Key::InitiatorAlias
            | Key::TargetAddress
            | Key::TargetPortalGroupTag
            | Key::SessionType
            | Key::IFMarker
            | Key::OFMarker
            | Key::IFMarkInt
            | Key::OFMarkInt
            | Key::NodeArchitecture => return None,
        })
    }
}

/// An acceptor's answer to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// This is the result.
    Value(Value),
    /// Nothing admissible can be selected; the value stays what it was.
    Reject,
    /// A list without a single choice that we support.
    NoCommonChoice,
}

/// What an acceptor who prefers `preference` answers when `offered` (RFC 7143 §6.2.1 and §6.2.2).
///
/// An offer above the range of a Minimum key is answered with an admissible value, ours at most, as
/// §6.2.2 allows: some initiators offer 2^24 for lengths that end at 2^24 - 1.
#[must_use]
pub fn select(rule: Rule, preference: Preference, offered: &str) -> Selection {
    match (rule, preference) {
        (Rule::List, Preference::Choices(choices)) => offered
            .split(',')
            .find_map(|offer| choices.iter().find(|choice| **choice == offer))
            .map_or(Selection::NoCommonChoice, |choice| {
                Selection::Value(Value::Choice(choice))
            }),
        (Rule::Minimum(range), Preference::Number(ours)) => match text::parse_number(offered) {
            Some(theirs) if theirs >= u64::from(range.min) => {
                let theirs = u32::try_from(theirs).unwrap_or(u32::MAX);
                Selection::Value(Value::Number(theirs.min(ours)))
            }
            _ => Selection::Reject,
        },
        (Rule::Maximum(range), Preference::Number(ours)) => match number_in(offered, range) {
            Some(theirs) => Selection::Value(Value::Number(theirs.max(ours))),
            None => Selection::Reject,
        },
        (Rule::And, Preference::Boolean(ours)) => match parse_boolean(offered) {
            Some(theirs) => Selection::Value(Value::Boolean(theirs && ours)),
            None => Selection::Reject,
        },
        (Rule::Or, Preference::Boolean(ours)) => match parse_boolean(offered) {
            Some(theirs) => Selection::Value(Value::Boolean(theirs || ours)),
            None => Selection::Reject,
        },
        _ => Selection::Reject,
    }
}

/// What the answer of an acceptor to the offer of `preference` means. `None` when it is an answer that
/// no acceptor may give.
#[must_use]
pub fn check_selection(rule: Rule, preference: Preference, answer: &str) -> Option<Value> {
    match (rule, preference) {
        (Rule::List, Preference::Choices(choices)) => choices
            .iter()
            .find(|choice| **choice == answer)
            .map(|choice| Value::Choice(choice)),
        (Rule::Minimum(range), Preference::Number(offered)) => number_in(answer, range)
            .filter(|number| *number <= offered)
            .map(Value::Number),
        (Rule::Maximum(range), Preference::Number(offered)) => number_in(answer, range)
            .filter(|number| *number >= offered)
            .map(Value::Number),
        (Rule::And, Preference::Boolean(offered)) => parse_boolean(answer)
            .filter(|answer| offered || !answer)
            .map(Value::Boolean),
        (Rule::Or, Preference::Boolean(offered)) => parse_boolean(answer)
            .filter(|answer| !offered || *answer)
            .map(Value::Boolean),
        _ => None,
    }
}

/// The result of an offer whose answer is optional because the offer alone decides (§6.2.2).
fn result_without_answer(rule: Rule, preference: Preference) -> Option<Value> {
    match (rule, preference) {
        (Rule::And, Preference::Boolean(false)) => Some(Value::Boolean(false)),
        (Rule::Or, Preference::Boolean(true)) => Some(Value::Boolean(true)),
        _ => None,
    }
}

fn number_in(text: &str, range: Range) -> Option<u32> {
    let number = u32::try_from(text::parse_number(text)?).ok()?;
    (range.min..=range.max).contains(&number).then_some(number)
}

/// `Yes` or `No`, in exactly this case (§6.1).
fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        YES => Some(true),
        NO => Some(false),
        _ => None,
    }
}

/// A declared MaxRecvDataSegmentLength. What is longer than the length field of a PDU can say is taken
/// as the longest it can say.
#[must_use]
pub fn declared_segment_length(text: &str) -> Option<u32> {
    let number = text::parse_number(text)?;
    (number >= u64::from(crate::keys::SEGMENT_LENGTH_MIN)).then(|| {
        u32::try_from(number)
            .unwrap_or(u32::MAX)
            .min(SEGMENT_LENGTH_MAX)
    })
}

/// The operational keys of one login, as one side sees them.
#[derive(Clone, Debug)]
pub struct Negotiation {
    role: Role,
    session_type: SessionType,
    /// This is the first connection of its session.
    leading: bool,
    preferences: Preferences,
    parameters: OperationalParameters,
    /// Offered by us, not answered yet.
    open: KeySet,
    /// Settled by an exchange, one way or the other.
    settled: KeySet,
}

impl Negotiation {
    /// The negotiation of a session's leading login: all values start as the standard's defaults.
    #[must_use]
    pub fn new(role: Role, session_type: SessionType, preferences: Preferences) -> Self {
        Self {
            role,
            session_type,
            leading: true,
            preferences,
            parameters: OperationalParameters::default(),
            open: KeySet::EMPTY,
            settled: KeySet::EMPTY,
        }
    }

    /// The negotiation of a login that continues a session: what is session-wide stays as it is, what
    /// belongs to the connection starts anew.
    #[must_use]
    pub fn continuing(
        role: Role,
        session_type: SessionType,
        preferences: Preferences,
        session: OperationalParameters,
    ) -> Self {
        let fresh = OperationalParameters::default();
        let parameters = OperationalParameters {
            header_digest: fresh.header_digest,
            data_digest: fresh.data_digest,
            initiator_max_recv_data_segment_length: fresh.initiator_max_recv_data_segment_length,
            target_max_recv_data_segment_length: fresh.target_max_recv_data_segment_length,
            ..session
        };
        Self {
            leading: false,
            parameters,
            ..Self::new(role, session_type, preferences)
        }
    }

    /// Declares our own MaxRecvDataSegmentLength.
    pub fn declare_segment_length(&mut self, ledger: &mut Ledger, out: &mut TextWriter) {
        let key = Key::MaxRecvDataSegmentLength;
        let Some(Preference::Number(length)) = self.preferences.of(key) else {
            unreachable!("{key:?} is a number in the table");
        };
        ledger.note_sent(key);
        out.push(key.name(), length);
        *self.segment_length_mut(self.role) = length;
    }

    /// Offers what we prefer for `key`.
    pub fn propose(&mut self, key: Key, ledger: &mut Ledger, out: &mut TextWriter) {
        let preference = self
            .preferences
            .of(key)
            .expect("only keys that are negotiated are offered");
        ledger.note_sent(key);
        self.open.insert(key);
        out.push(key.name(), preference);
    }

    /// Whether `key` means anything in this login.
    #[must_use]
    pub fn is_relevant(&self, key: Key) -> bool {
        let definition = key.definition();
        let discovery = self.session_type == SessionType::Discovery;
        !(discovery && definition.irrelevant_in_discovery)
            && (self.leading || definition.usage != Usage::LeadingOnly)
    }

    /// Keys that must be talked about before the login ends, and have not been: a digest that is
    /// required is not there by default.
    pub fn requirements(&self) -> impl Iterator<Item = Key> {
        [
            (Key::HeaderDigest, self.preferences.header_digest),
            (Key::DataDigest, self.preferences.data_digest),
        ]
        .into_iter()
        .filter(|(_, policy)| *policy == DigestPolicy::Crc32c)
        .map(|(key, _)| key)
        .filter(|key| !self.settled.contains(*key) && !self.open.contains(*key))
    }

    /// Whether an offer of ours still waits for its answer.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Takes in the operational keys of one logical text data segment, all admitted by the ledger, and
    /// writes the answers in the same order.
    ///
    /// FirstBurstLength depends on other keys, wherever in the text they stand, and is decided last.
    ///
    /// # Errors
    /// When no agreement is possible or the peer breaks the rules.
    pub fn receive(
        &mut self,
        pairs: &[(Key, &str)],
        out: &mut TextWriter,
    ) -> Result<(), NegotiationError> {
        let mut answers: Vec<Option<Answer>> = vec![None; pairs.len()];
        for late in [false, true] {
            for ((key, value), answer) in pairs.iter().zip(&mut answers) {
                if (*key == Key::FirstBurstLength) == late {
                    *answer = self.receive_one(*key, value)?;
                }
            }
        }
        for ((key, _), answer) in pairs.iter().zip(answers) {
            match answer {
                Some(Answer::Value(value)) => out.push(key.name(), value),
                Some(Answer::Reject) => out.push(key.name(), REJECT),
                Some(Answer::Irrelevant) => out.push(key.name(), IRRELEVANT),
                None => {}
            }
        }
        Ok(())
    }

    fn receive_one(&mut self, key: Key, value: &str) -> Result<Option<Answer>, NegotiationError> {
        if self.open.remove(key) {
            self.settled.insert(key);
            return self.receive_answer(key, value).map(|()| None);
        }
        if matches!(value, REJECT | IRRELEVANT | NOT_UNDERSTOOD) {
            return Err(NegotiationError::ReservedWord(key));
        }
        match key.definition().rule {
            Rule::Declaration => Ok(None),
            Rule::NumberDeclaration(_) => {
                let length = declared_segment_length(value)
                    .ok_or(NegotiationError::UnacceptableDeclaration(key))?;
                let peer = match self.role {
                    Role::Initiator => Role::Target,
                    Role::Target => Role::Initiator,
                };
                *self.segment_length_mut(peer) = length;
                Ok(None)
            }
            Rule::Obsolete => Ok(Some(Answer::Reject)),
            rule @ (Rule::List | Rule::Minimum(_) | Rule::Maximum(_) | Rule::And | Rule::Or) => {
                self.settled.insert(key);
                self.receive_offer(key, rule, value).map(Some)
            }
            Rule::Authentication | Rule::Request => Err(NegotiationError::WrongStage(key)),
        }
    }

    fn receive_offer(
        &mut self,
        key: Key,
        rule: Rule,
        offered: &str,
    ) -> Result<Answer, NegotiationError> {
        if self.session_type == SessionType::Discovery && key.definition().irrelevant_in_discovery {
            return Ok(Answer::Irrelevant);
        }
        if !self.leading && key.definition().usage == Usage::LeadingOnly {
            return Ok(Answer::Reject);
        }
        let preference = match (key, self.preferences.of(key)) {
            (Key::FirstBurstLength, _) if self.no_unsolicited_data() => {
                return Ok(Answer::Irrelevant);
            }
            (Key::FirstBurstLength, Some(Preference::Number(ours))) => {
                Preference::Number(ours.min(self.parameters.max_burst_length))
            }
            (_, Some(preference)) => preference,
            (_, None) => return Ok(Answer::Reject),
        };
        match select(rule, preference, offered) {
            Selection::Value(value) => {
                self.apply(key, value);
                Ok(Answer::Value(value))
            }
            Selection::Reject => Ok(Answer::Reject),
            Selection::NoCommonChoice => Err(NegotiationError::NoCommonChoice(key)),
        }
    }

    /// Both keys have been talked about, with the result that there is no first burst (§13.14).
    fn no_unsolicited_data(&self) -> bool {
        self.settled.contains(Key::InitialR2T)
            && self.settled.contains(Key::ImmediateData)
            && self.parameters.initial_r2t
            && !self.parameters.immediate_data
    }

    fn receive_answer(&mut self, key: Key, answer: &str) -> Result<(), NegotiationError> {
        // The value stays what it was. NotUnderstood is no answer to a key of the standard, but there
        // are peers older than some keys, and doing without is what it asks for.
        if matches!(answer, REJECT | IRRELEVANT | NOT_UNDERSTOOD) {
            return Ok(());
        }
        let preference = self
            .preferences
            .of(key)
            .expect("only keys that are negotiated are offered");
        let value = check_selection(key.definition().rule, preference, answer)
            .ok_or(NegotiationError::InadmissibleAnswer(key))?;
        self.apply(key, value);
        Ok(())
    }

    /// What is in force when both sides have said all they wanted. Checks what can only be checked then
    /// (§6.2, integrity rules).
    ///
    /// FirstBurstLength must not exceed MaxBurstLength (§13.14). A peer that lowers the second and
    /// leaves the first at its default breaks that without saying anything; the lower one holds for
    /// both then.
    ///
    /// # Errors
    /// When an offer of ours was not answered, or a requirement of ours is not met.
    pub fn conclude(&self) -> Result<OperationalParameters, NegotiationError> {
        let mut concluded = self.clone();
        for key in self.open.iter() {
            let value = self
                .preferences
                .of(key)
                .and_then(|preference| result_without_answer(key.definition().rule, preference))
                .ok_or(NegotiationError::Unanswered(key))?;
            concluded.apply(key, value);
        }
        let mut parameters = concluded.parameters;
        parameters.first_burst_length = parameters
            .first_burst_length
            .min(parameters.max_burst_length);
        for (key, policy, digest) in [
            (
                Key::HeaderDigest,
                self.preferences.header_digest,
                parameters.header_digest,
            ),
            (
                Key::DataDigest,
                self.preferences.data_digest,
                parameters.data_digest,
            ),
        ] {
            if policy == DigestPolicy::Crc32c && digest != Digest::Crc32c {
                return Err(NegotiationError::RequirementNotMet(key));
            }
        }
        Ok(parameters)
    }

    fn segment_length_mut(&mut self, receiver: Role) -> &mut u32 {
        match receiver {
            Role::Initiator => &mut self.parameters.initiator_max_recv_data_segment_length,
            Role::Target => &mut self.parameters.target_max_recv_data_segment_length,
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the table of keys gives each its kind of value"
    )]
    fn apply(&mut self, key: Key, value: Value) {
        let parameters = &mut self.parameters;
        match value {
            Value::Number(number) => match key {
                Key::MaxConnections => parameters.max_connections = narrow(number),
                Key::MaxBurstLength => parameters.max_burst_length = number,
                Key::FirstBurstLength => parameters.first_burst_length = number,
                Key::DefaultTime2Wait => parameters.default_time2wait = narrow(number),
                Key::DefaultTime2Retain => parameters.default_time2retain = narrow(number),
                Key::MaxOutstandingR2T => parameters.max_outstanding_r2t = narrow(number),
                Key::ErrorRecoveryLevel => parameters.error_recovery_level = narrow(number),
                Key::ProtocolLevel => parameters.protocol_level = narrow(number),
                _ => unreachable!("{key:?} is no number that is negotiated"),
            },
            Value::Boolean(boolean) => match key {
                Key::InitialR2T => parameters.initial_r2t = boolean,
                Key::ImmediateData => parameters.immediate_data = boolean,
                Key::DataPDUInOrder => parameters.data_pdu_in_order = boolean,
                Key::DataSequenceInOrder => parameters.data_sequence_in_order = boolean,
                _ => unreachable!("{key:?} is no boolean"),
            },
            Value::Choice(choice) => match key {
                Key::HeaderDigest => parameters.header_digest = digest_of(choice),
                Key::DataDigest => parameters.data_digest = digest_of(choice),
                Key::TaskReporting => {
                    parameters.task_reporting = match choice {
                        "ResponseFence" => TaskReporting::ResponseFence,
                        _ => TaskReporting::Rfc3720,
                    };
                }
                _ => unreachable!("{key:?} is no list of ours"),
            },
        }
    }
}

/// What [`Negotiation::receive`] answers to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Value(Value),
    Reject,
    Irrelevant,
}

fn digest_of(choice: &str) -> Digest {
    match choice {
        "CRC32C" => Digest::Crc32c,
        _ => Digest::None,
    }
}

/// Puts a number into the field of its key, which the key's range fits.
fn narrow<T: TryFrom<u32>>(number: u32) -> T {
    T::try_from(number)
        .ok()
        .expect("the key's range fits the field")
}
