//! Login Request and Login Response (RFC 7143 §11.12, §11.13).
//!
//! ```text
//!     |0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|0 1 2 3 4 5 6 7|
//!    0|.|1| 0x03      |T|C|.|.|CSG|NSG| Version-max   | Version-min   |  request
//!    0|.|.| 0x23      |T|C|.|.|CSG|NSG| Version-max   |Version-active |  response
//!    4|TotalAHSLength | DataSegmentLength                             |
//!    8| ISID                                                          |
//!   12|                               | TSIH                          |
//!   16| Initiator Task Tag                                            |
//!   20| CID (request)                 | Reserved                      |
//!   24| CmdSN                         /  StatSN                       |
//!   28| ExpStatSN                     /  ExpCmdSN                     |
//!   32| Reserved                      /  MaxCmdSN                     |
//!   36| Reserved                      /  Status-Class | Status-Detail |
//!   40/ Reserved                                                      /
//! ```
//!
//! The data segment is text. The I bit of a request is always sent as one; a request without it is
//! read all the same, since a Login Request is always immediate (§11.12).

use std::fmt;

use super::bhs::{Bhs, Field, open_bits, pdu};
use super::fields::{CmdSn, CommandWindow, ConnectionId, InitiatorTaskTag, Isid, StatSn, Tsih};

open_bits! {
    /// Stage of the login (RFC 7143 §11.12.3).
    Stage(3) {
        SECURITY_NEGOTIATION = 0,
        LOGIN_OPERATIONAL_NEGOTIATION = 1,
        FULL_FEATURE_PHASE = 3,
    }
}

pdu! {
    /// One step of the login, from the initiator.
    LoginRequest, LOGIN_REQUEST, 0x00 {
        /// T: the initiator is ready to go to `next_stage`.
        transit: bool, bit 1 0x80;
        /// C: the text goes on in the next request.
        continues: bool, bit 1 0x40;
        /// CSG: the stage that the request belongs to.
        current_stage: Stage, bits 1 0x0c;
        /// NSG; means something only with `transit`.
        next_stage: Stage, bits 1 0x03;
        /// Highest version the initiator speaks; there is only 0.
        version_max: u8, at 2;
        /// Lowest version the initiator speaks.
        version_min: u8, at 3;
        /// Initiator's part of the session identifier.
        isid: Isid, at 8;
        /// 0 for a new session, else the session to join or reinstate a connection of.
        tsih: Tsih, at 14;
        /// The same in all requests of a login.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// CID of this connection.
        connection_id: ConnectionId, at 20;
        /// First CmdSN of the session when this is its leading login.
        cmd_sn: CmdSn, at 24;
        /// Acknowledges responses, from the second request on.
        exp_stat_sn: StatSn, at 28;
    }
}

pdu! {
    /// The target's answer to a [`LoginRequest`].
    LoginResponse, LOGIN_RESPONSE, 0x00 {
        /// T: the target goes to `next_stage` too.
        transit: bool, bit 1 0x80;
        /// C: the text goes on in the next response.
        continues: bool, bit 1 0x40;
        /// CSG: the stage that the response belongs to.
        current_stage: Stage, bits 1 0x0c;
        /// NSG; means something only with `transit`.
        next_stage: Stage, bits 1 0x03;
        /// Highest version the target speaks.
        version_max: u8, at 2;
        /// The version both speak.
        version_active: u8, at 3;
        /// That of the request.
        isid: Isid, at 8;
        /// That of the request, but the new session's handle in its final response.
        tsih: Tsih, at 14;
        /// That of the request.
        initiator_task_tag: InitiatorTaskTag, at 16;
        /// Number of this response; valid when `status` is success.
        stat_sn: StatSn, at 24;
        /// Valid when `status` is success.
        window: CommandWindow, at 28;
        status: LoginStatus, at 36;
    }
}

/// Status-Class and Status-Detail of a [`LoginResponse`] (RFC 7143 §11.13.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub struct LoginStatus {
    /// 0 success, 1 redirection, 2 initiator error, 3 target error.
    pub class: u8,
    /// What exactly, within the class.
    pub detail: u8,
}

macro_rules! login_statuses {
    ($($(#[$meta:meta])* $name:ident = $class:literal $detail:literal, $text:literal;)*) => {
        impl LoginStatus {
            $(
                #[doc = $text]
                pub const $name: Self = Self { class: $class, detail: $detail };
            )*

            /// What a person reads.
            #[must_use]
            pub const fn description(self) -> &'static str {
                match (self.class, self.detail) {
                    $(($class, $detail) => $text,)*
                    _ => "unknown login status",
                }
            }
        }
    };
}

login_statuses! {
    SUCCESS = 0x00 0x00, "login is proceeding";
    TARGET_MOVED_TEMPORARILY = 0x01 0x01, "target has moved temporarily";
    TARGET_MOVED_PERMANENTLY = 0x01 0x02, "target has moved permanently";
    INITIATOR_ERROR = 0x02 0x00, "initiator error";
    AUTHENTICATION_FAILURE = 0x02 0x01, "authentication failure";
    AUTHORIZATION_FAILURE = 0x02 0x02, "initiator has no access to the target";
    NOT_FOUND = 0x02 0x03, "target not found";
    TARGET_REMOVED = 0x02 0x04, "target has been removed";
    UNSUPPORTED_VERSION = 0x02 0x05, "unsupported version";
    TOO_MANY_CONNECTIONS = 0x02 0x06, "too many connections in the session";
    MISSING_PARAMETER = 0x02 0x07, "missing parameter";
    CANNOT_INCLUDE_IN_SESSION = 0x02 0x08, "connection cannot be included in the session";
    SESSION_TYPE_NOT_SUPPORTED = 0x02 0x09, "session type not supported";
    SESSION_DOES_NOT_EXIST = 0x02 0x0a, "session does not exist";
    INVALID_DURING_LOGIN = 0x02 0x0b, "invalid request type during login";
    TARGET_ERROR = 0x03 0x00, "target error";
    SERVICE_UNAVAILABLE = 0x03 0x01, "service unavailable";
    OUT_OF_RESOURCES = 0x03 0x02, "out of resources";
}

impl LoginStatus {
    /// Whether the login goes on or is done.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.class == 0
    }

    /// Whether the initiator is sent elsewhere.
    #[must_use]
    pub const fn is_redirection(self) -> bool {
        self.class == 1
    }
}

impl fmt::Debug for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginStatus({self})")
    }
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, detail } = self;
        write!(f, "{class:02x}{detail:02x} {}", self.description())
    }
}

impl Field for LoginStatus {
    fn get(bhs: &Bhs, at: usize) -> Self {
        Self {
            class: u8::get(bhs, at),
            detail: u8::get(bhs, at + 1),
        }
    }

    fn put(self, bhs: &mut Bhs, at: usize) {
        self.class.put(bhs, at);
        self.detail.put(bhs, at + 1);
    }
}

impl LoginRequest {
    /// The header as an initiator sends it: with the I bit, which Login Requests always have.
    #[must_use]
    pub fn encode_immediate(&self) -> Bhs {
        let mut bhs = self.encode();
        bhs.set_bit(0, 0x40, true);
        bhs
    }
}
