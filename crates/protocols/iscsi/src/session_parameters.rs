//! What a login settled: who talks to whom, and the values in force.

use crate::keys;
use crate::name::IscsiName;
use crate::pdu::{ConnectionId, Isid, Tsih};

/// What kind of session a login makes (RFC 7143 §13.21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SessionType {
    /// SCSI commands to one target.
    #[default]
    Normal,
    /// SendTargets and nothing else.
    Discovery,
}

/// Names a portal group within a target (RFC 7143 §13.9). Zero is a legal tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortalGroupTag(pub u16);

/// The digest in force behind headers, or behind data segments (RFC 7143 §13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Digest {
    #[default]
    None,
    /// Four bytes of CRC32C follow.
    Crc32c,
}

/// How a target reports the end of tasks it aborts (RFC 7143 §13.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TaskReporting {
    /// As RFC 3720 had it.
    #[default]
    Rfc3720,
    /// With response fences, which a session of one connection has by itself.
    ResponseFence,
    /// FastAbort semantics. Known, offered by some peers, not supported by this target.
    FastAbort,
}

/// Values of the operational keys (RFC 7143 §13). The default value is the standard's: what is in
/// force for keys nobody mentioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationalParameters {
    /// Follows every header in full feature phase. Of the connection.
    pub header_digest: Digest,
    /// Follows every data segment in full feature phase. Of the connection.
    pub data_digest: Digest,
    /// The longest data segment the initiator takes, in bytes. Of the connection; may change in full
    /// feature phase.
    pub initiator_max_recv_data_segment_length: u32,
    /// The longest data segment the target takes, in bytes. Of the connection. The default when the
    /// login had no operational stage in which to declare another.
    pub target_max_recv_data_segment_length: u32,
    /// Connections a session may have.
    pub max_connections: u16,
    /// Unsolicited Data-Out PDUs are not allowed.
    pub initial_r2t: bool,
    /// Write data may come with the command.
    pub immediate_data: bool,
    /// Bytes of the longest Data-In or solicited Data-Out sequence.
    pub max_burst_length: u32,
    /// Most bytes of unsolicited data for a command, never more than `max_burst_length`.
    pub first_burst_length: u32,
    /// Seconds to wait before reconnecting.
    pub default_time2wait: u16,
    /// Seconds, after that wait, for which tasks are kept.
    pub default_time2retain: u16,
    /// R2Ts in flight per task.
    pub max_outstanding_r2t: u16,
    /// Data PDUs of a sequence come in order of offset.
    pub data_pdu_in_order: bool,
    /// Sequences come in order of offset.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel, 0 to 2; negotiated down to 0.
    pub error_recovery_level: u8,
    /// How aborted tasks are reported.
    pub task_reporting: TaskReporting,
    /// iSCSIProtocolLevel (RFC 7144 §7.1.1).
    pub protocol_level: u8,
}

impl Default for OperationalParameters {
    fn default() -> Self {
        Self {
            header_digest: Digest::None,
            data_digest: Digest::None,
            initiator_max_recv_data_segment_length: keys::MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT,
            target_max_recv_data_segment_length: keys::MAX_RECV_DATA_SEGMENT_LENGTH_DEFAULT,
            max_connections: 1,
            initial_r2t: true,
            immediate_data: true,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            default_time2wait: 2,
            default_time2retain: 20,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            task_reporting: TaskReporting::Rfc3720,
            protocol_level: 1,
        }
    }
}

/// All that is known of a connection when its login is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionParameters {
    pub session_type: SessionType,
    pub initiator_name: IscsiName,
    /// The initiator's own description of itself. Never used to decide anything.
    pub initiator_alias: Option<String>,
    /// The target; `None` for a discovery session that names none.
    pub target_name: Option<IscsiName>,
    /// The target's description of itself.
    pub target_alias: Option<String>,
    /// The portal group that served the login; `None` without a target.
    pub portal_group_tag: Option<PortalGroupTag>,
    /// The initiator's part of the session identifier.
    pub isid: Isid,
    /// The target's handle for the session.
    pub tsih: Tsih,
    /// The connection within the session.
    pub connection_id: ConnectionId,
    /// The login continued an existing session instead of making one.
    pub continues_session: bool,
    /// The CHAP name the initiator proved to own, if it proved one.
    pub authenticated_as: Option<String>,
    /// Values of the operational keys.
    pub operational: OperationalParameters,
}
