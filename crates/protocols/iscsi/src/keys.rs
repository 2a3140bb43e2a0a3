//! The key table: every text key of RFC 7143 chapters 12 and 13, of RFC 7144, and the obsolete ones,
//! with all that decides how it is handled. Key names are written here and nowhere else.
//!
//! Kerberos and SRP keys are not in it: neither method is offered, so their keys mean nothing to us
//! and are answered NotUnderstood (§12, "only need to be supported when the function to which they
//! refer" is).

/// Range of the MaxRecvDataSegmentLength, MaxBurstLength and FirstBurstLength keys, in bytes.
pub const SEGMENT_LENGTH_MIN: u32 = 512;
pub const SEGMENT_LENGTH_MAX: u32 = (1 << 24) - 1;
/// Data segments of a login, and of every peer that has declared nothing else (RFC 7143 §13.12).
pub const MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT: u32 = 8192;
/// Seconds, upper end of DefaultTime2Wait and DefaultTime2Retain.
pub const TIME_MAX: u32 = 3600;
/// The longest value that is not binary or a list, in bytes (RFC 7143 §6.1).
pub const SIMPLE_VALUE_LENGTH_MAX: usize = 255;

/// When a key may be sent ("use", RFC 7143 §13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// IO: initialize only, so during login.
    InitializeOnly,
    /// LO: during the login of a session's first connection.
    LeadingOnly,
    /// FFPO: in full feature phase.
    FullFeaturePhaseOnly,
    /// ALL: during login and in full feature phase.
    All,
}

/// In which stage of the login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginStage {
    /// Security negotiation: the keys of chapter 12.
    Security,
    /// Operational negotiation: the keys of chapter 13 that do not say otherwise.
    Operational,
    /// Any-Stage: security, operational and full feature phase.
    Any,
    /// No stage of the login: full feature phase only.
    Neither,
}

/// Where a connection stands when a key arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// During login, in the stage SecurityNegotiation.
    Security,
    /// During login, in the stage LoginOperationalNegotiation.
    Operational,
    /// In Text Requests of the full feature phase.
    FullFeature,
}

/// Who may send a key, as proposal or declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Senders {
    Both,
    Initiator,
    Target,
}

/// How far the value of a key reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// CO: the value holds for this connection.
    Connection,
    /// SW: the value holds for the session.
    Session,
}

/// Bounds of a number, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u32,
    pub max: u32,
}

/// How a value comes about (RFC 7143 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Declared as text; takes no answer.
    Declaration,
    /// A number declared; takes no answer.
    NumberDeclaration(Range),
    /// List: the first value of the proposer's that the acceptor supports (§6.2.1).
    List,
    /// Result function Minimum: the selected number is at most the offered one.
    Minimum(Range),
    /// Result function Maximum: the selected number is at least the offered one.
    Maximum(Range),
    /// Result function AND: an offer of No decides.
    And,
    /// Result function OR: an offer of Yes decides.
    Or,
    /// A step of an authentication exchange, which its own machine reads.
    Authentication,
    /// A request of its own kind: SendTargets.
    Request,
    /// Defined once, to be answered Reject for ever (§13.25).
    Obsolete,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    pub key: Key,
    /// As it is written.
    pub name: &'static str,
    pub usage: Usage,
    pub stage: LoginStage,
    pub senders: Senders,
    pub scope: Scope,
    pub rule: Rule,
    /// The standard says "Irrelevant when: SessionType=Discovery".
    pub irrelevant_in_discovery: bool,
    /// What is in force when nobody mentions the key, as text. Empty: no default.
    pub default: &'static str,
}

const LENGTH: Range = Range {
    min: SEGMENT_LENGTH_MIN,
    max: SEGMENT_LENGTH_MAX,
};
const TIME: Range = Range {
    min: 0,
    max: TIME_MAX,
};
const SIXTEEN_BITS_FROM_1: Range = Range {
    min: 1,
    max: 65_535,
};
const RECOVERY_LEVEL: Range = Range { min: 0, max: 2 };
const PROTOCOL_LEVEL: Range = Range { min: 0, max: 31 };

macro_rules! key_table {
    ($(
        $(#[doc = $doc:literal])*
        $key:ident $name:literal,
        $usage:ident $stage:ident $senders:ident $scope:ident,
        $rule:expr, $discovery:ident, $default:literal;
    )*) => {
        /// A key we know.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Key {
            $($(#[doc = $doc])* $key,)*
        }

        /// The table, in the order of [`Key`].
        pub static TABLE: &[Definition] = &[
            $(Definition {
                key: Key::$key,
                name: $name,
                usage: Usage::$usage,
                stage: LoginStage::$stage,
                senders: Senders::$senders,
                scope: Scope::$scope,
                rule: {
                    #[allow(unused_imports)]
                    use Rule::*;
                    $rule
                },
                irrelevant_in_discovery: key_table!(@discovery $discovery),
                default: $default,
            },)*
        ];

        impl Key {
            #[must_use]
            pub fn definition(self) -> &'static Definition {
                &TABLE[self as usize]
            }
        }
    };
    (@discovery irrelevant) => { true };
    (@discovery relevant) => { false };
}

key_table! {
    /// §12.1: a list of methods; the target picks one.
    AuthMethod "AuthMethod",
        InitializeOnly Security Both Connection, List, relevant, "";
    /// §12.1.3: a list of algorithms; the target picks one.
    ChapA "CHAP_A",
        InitializeOnly Security Both Connection, Authentication, relevant, "";
    /// §12.1.3: identifier of the challenge, 0 to 255.
    ChapI "CHAP_I",
        InitializeOnly Security Both Connection, Authentication, relevant, "";
    /// §12.1.3: challenge, a binary value of up to 1024 bytes.
    ChapC "CHAP_C",
        InitializeOnly Security Both Connection, Authentication, relevant, "";
    /// §12.1.3: name of the side that proves its secret.
    ChapN "CHAP_N",
        InitializeOnly Security Both Connection, Authentication, relevant, "";
    /// §12.1.3: response, a binary value as long as the digest.
    ChapR "CHAP_R",
        InitializeOnly Security Both Connection, Authentication, relevant, "";
    /// §13.1: a list, None or CRC32C.
    HeaderDigest "HeaderDigest",
        InitializeOnly Operational Both Connection, List, relevant, "None";
    /// §13.1: a list, None or CRC32C.
    DataDigest "DataDigest",
        InitializeOnly Operational Both Connection, List, relevant, "None";
    /// §13.2: the lower number of both sides holds.
    MaxConnections "MaxConnections",
        LeadingOnly Operational Both Session, Minimum(SIXTEEN_BITS_FROM_1), irrelevant, "1";
    /// §13.3 and appendix C
    SendTargets "SendTargets",
        FullFeaturePhaseOnly Neither Initiator Session, Request, relevant, "";
    /// §13.4. Sent by targets only in answers to SendTargets.
    TargetName "TargetName",
        InitializeOnly Any Initiator Session, Declaration, relevant, "";
    /// §13.5: declared in the first Login Request.
    InitiatorName "InitiatorName",
        InitializeOnly Any Initiator Session, Declaration, relevant, "";
    /// §13.6: declared by the target, for people.
    TargetAlias "TargetAlias",
        All Any Target Session, Declaration, relevant, "";
    /// §13.7: declared by the initiator, for people.
    InitiatorAlias "InitiatorAlias",
        All Any Initiator Session, Declaration, relevant, "";
    /// §13.8: declared by the target, in SendTargets answers and redirections.
    TargetAddress "TargetAddress",
        All Any Target Session, Declaration, relevant, "";
    /// §13.9: declared by the target in its first Login Response.
    TargetPortalGroupTag "TargetPortalGroupTag",
        InitializeOnly Any Target Session, Declaration, relevant, "";
    /// §13.10: Yes if either side says Yes.
    InitialR2T "InitialR2T",
        LeadingOnly Operational Both Session, Or, irrelevant, "Yes";
    /// §13.11: Yes if both sides say Yes.
    ImmediateData "ImmediateData",
        LeadingOnly Operational Both Session, And, irrelevant, "Yes";
    /// §13.12: declared by each side for what it receives, in bytes.
    MaxRecvDataSegmentLength "MaxRecvDataSegmentLength",
        All Operational Both Connection, NumberDeclaration(LENGTH), relevant, "8192";
    /// §13.13: the lower number of both sides holds, in bytes.
    MaxBurstLength "MaxBurstLength",
        LeadingOnly Operational Both Session, Minimum(LENGTH), irrelevant, "262144";
    /// §13.14. Also irrelevant when InitialR2T=Yes and ImmediateData=No.
    FirstBurstLength "FirstBurstLength",
        LeadingOnly Operational Both Session, Minimum(LENGTH), irrelevant, "65536";
    /// §13.15: the higher number of both sides holds, in seconds.
    DefaultTime2Wait "DefaultTime2Wait",
        LeadingOnly Operational Both Session, Maximum(TIME), relevant, "2";
    /// §13.16: the lower number of both sides holds, in seconds.
    DefaultTime2Retain "DefaultTime2Retain",
        LeadingOnly Operational Both Session, Minimum(TIME), relevant, "20";
    /// §13.17: the lower number of both sides holds.
    MaxOutstandingR2T "MaxOutstandingR2T",
        LeadingOnly Operational Both Session, Minimum(SIXTEEN_BITS_FROM_1), irrelevant, "1";
    /// §13.18: Yes if either side says Yes.
    DataPDUInOrder "DataPDUInOrder",
        LeadingOnly Operational Both Session, Or, irrelevant, "Yes";
    /// §13.19: Yes if either side says Yes.
    DataSequenceInOrder "DataSequenceInOrder",
        LeadingOnly Operational Both Session, Or, irrelevant, "Yes";
    /// §13.20. Not irrelevant to discovery: 0 is to be answered (§7.4.1).
    ErrorRecoveryLevel "ErrorRecoveryLevel",
        LeadingOnly Operational Both Session, Minimum(RECOVERY_LEVEL), relevant, "0";
    /// §13.21: declared by the initiator, Normal or Discovery.
    SessionType "SessionType",
        LeadingOnly Any Initiator Session, Declaration, relevant, "Normal";
    /// §13.23: a list of task reporting modes (RFC3720, ResponseFence, FastAbort).
    TaskReporting "TaskReporting",
        LeadingOnly Operational Both Session, List, irrelevant, "RFC3720";
    /// §13.24 and RFC 7144 §7.1.1
    ProtocolLevel "iSCSIProtocolLevel",
        LeadingOnly Operational Both Session, Minimum(PROTOCOL_LEVEL), irrelevant, "1";
    /// §13.25: obsolete, and answered Reject.
    IFMarker "IFMarker",
        InitializeOnly Operational Both Connection, Obsolete, relevant, "No";
    /// §13.25: obsolete, and answered Reject.
    OFMarker "OFMarker",
        InitializeOnly Operational Both Connection, Obsolete, relevant, "No";
    /// §13.25: obsolete, and answered Reject.
    IFMarkInt "IFMarkInt",
        InitializeOnly Operational Both Connection, Obsolete, relevant, "";
    /// §13.25: obsolete, and answered Reject.
    OFMarkInt "OFMarkInt",
        InitializeOnly Operational Both Connection, Obsolete, relevant, "";
    /// §13.26: declared by either side, for people.
    NodeArchitecture "X#NodeArchitecture",
        LeadingOnly Operational Both Session, Declaration, relevant, "";
}

impl Definition {
    /// Whether the key may be sent in this phase.
    #[must_use]
    pub fn is_allowed_in(&self, phase: Phase) -> bool {
        match phase {
            Phase::Security => matches!(self.stage, LoginStage::Security | LoginStage::Any),
            Phase::Operational => matches!(self.stage, LoginStage::Operational | LoginStage::Any),
            Phase::FullFeature => {
                matches!(self.usage, Usage::FullFeaturePhaseOnly | Usage::All)
            }
        }
    }
}

impl Key {
    /// The key of this name, if it is one we know. Names are case sensitive (§6.1).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE
            .iter()
            .find(|definition| definition.name == name)
            .map(|definition| definition.key)
    }

    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// The longest value the key takes, in bytes of text.
    #[must_use]
    pub fn value_length_max(self) -> usize {
        match self.definition().rule {
            // "0x" and two digits a byte.
            Rule::Authentication => 2 + 2 * crate::chap::BINARY_LENGTH_MAX,
            Rule::List => crate::text::VALUE_LENGTH_MAX,
            Rule::Declaration
            | Rule::NumberDeclaration(_)
            | Rule::Minimum(_)
            | Rule::Maximum(_)
            | Rule::And
            | Rule::Or
            | Rule::Request
            | Rule::Obsolete => SIMPLE_VALUE_LENGTH_MAX,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeySet(u64);

const _: () = assert!(TABLE_LENGTH <= 64, "KeySet has a bit for each key");
const TABLE_LENGTH: usize = Key::NodeArchitecture as usize + 1;

impl KeySet {
    pub const EMPTY: Self = Self(0);

    /// Puts `key` in; false when it was in already.
    pub fn insert(&mut self, key: Key) -> bool {
        let was_in = self.contains(key);
        self.0 |= 1 << key as u64;
        !was_in
    }

    /// Takes `key` out; true when it was in.
    pub fn remove(&mut self, key: Key) -> bool {
        let was_in = self.contains(key);
        self.0 &= !(1 << key as u64);
        was_in
    }

    /// Whether `key` is in.
    #[must_use]
    pub const fn contains(self, key: Key) -> bool {
        self.0 & 1 << key as u64 != 0
    }

    /// Whether no key is in.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The keys that are in, in the order of the table.
    pub fn iter(self) -> impl Iterator<Item = Key> {
        TABLE
            .iter()
            .map(|definition| definition.key)
            .filter(move |key| self.contains(*key))
    }
}

/// The keys of chapter 12 in one logical text data segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SecurityKeys<'a> {
    pub auth_method: Option<&'a str>,
    pub chap_a: Option<&'a str>,
    pub chap_i: Option<&'a str>,
    pub chap_c: Option<&'a str>,
    pub chap_n: Option<&'a str>,
    pub chap_r: Option<&'a str>,
}

impl<'a> SecurityKeys<'a> {
    /// Puts `value` in its place; false when `key` is no security key.
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all others are operational keys"
    )]
    pub fn insert(&mut self, key: Key, value: &'a str) -> bool {
        let place = match key {
            Key::AuthMethod => &mut self.auth_method,
            Key::ChapA => &mut self.chap_a,
            Key::ChapI => &mut self.chap_i,
            Key::ChapC => &mut self.chap_c,
            Key::ChapN => &mut self.chap_n,
            Key::ChapR => &mut self.chap_r,
            _ => return false,
        };
        *place = Some(value);
        true
    }

    /// Whether there is anything of a response, or a challenge from the initiator.
    pub fn has_chap_response(&self) -> bool {
        [self.chap_i, self.chap_c, self.chap_n, self.chap_r]
            .iter()
            .any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_keys_and_names_are_unique() {
        for (index, definition) in TABLE.iter().enumerate() {
            assert_eq!(definition.key as usize, index);
            assert_eq!(definition.key.definition().name, definition.name);
            assert_eq!(Key::from_name(definition.name), Some(definition.key));
            assert!(definition.name.len() <= crate::text::KEY_LENGTH_MAX);
        }
        assert_eq!(TABLE.len(), TABLE_LENGTH);
    }

    #[test]
    fn names_are_case_sensitive_and_private_keys_unknown() {
        assert_eq!(Key::from_name("initiatorname"), None);
        assert_eq!(Key::from_name("X-com.example.key"), None);
        assert_eq!(Key::from_name("SRP_U"), None);
    }

    #[test]
    fn defaults_lie_in_their_ranges() {
        for definition in TABLE {
            if let Rule::Minimum(range) | Rule::Maximum(range) | Rule::NumberDeclaration(range) =
                definition.rule
            {
                let default = crate::text::parse_number(definition.default).unwrap();
                assert!(
                    (u64::from(range.min)..=u64::from(range.max)).contains(&default),
                    "{}",
                    definition.name
                );
            }
        }
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = KeySet::EMPTY;
        assert!(set.insert(Key::NodeArchitecture));
        assert!(set.insert(Key::AuthMethod));
        assert!(!set.insert(Key::AuthMethod));
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Key::AuthMethod, Key::NodeArchitecture]
        );
        assert!(set.remove(Key::AuthMethod));
        assert!(!set.remove(Key::AuthMethod));
        assert!(!set.contains(Key::AuthMethod) && !set.is_empty());
    }
}
