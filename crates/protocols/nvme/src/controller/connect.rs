//! Connect: what makes a connection a queue (NVMe base 2.0 §6.3).
//!
//! ```text
//! entry  40 RECFMT   42 QID   44 SQSIZE   46 CATTR   48 KATO
//! data    0 HOSTID (16)   16 CNTLID   256 SUBNQN (256)   512 HOSTNQN (256)   of 1024
//! ```
//!
//! Controllers are dynamic: Connect of an admin queue makes one and says its CNTLID, Connect of an
//! I/O queue names it. Both ends of an association must stay who they were.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};

use longshore_wire::field::{bytes, le16};

use super::admin_command::QueueHandle;
use super::environment::Environment;
use super::namespace::AttachedNamespace;
use super::secure::TlsUse;
use super::state::{Activity, Controller, State};
use super::subsystems::{Member, Subsystems};
use crate::auth::{Concatenation, Credentials, QueueChannel};
use crate::command::SubmissionEntry;
use crate::io::limits;
use crate::nqn::{NQN_FIELD_LENGTH, Nqn};
use crate::psk::Origin;
use crate::reservation::NotificationLog;
use crate::status::Status;

/// Bytes of the data of Connect.
pub const CONNECT_DATA_LENGTH: u32 = 1024;

const DATA_BYTES: usize = 1024;
/// CNTLID of a host that takes any controller.
const CONTROLLER_DYNAMIC: u16 = 0xffff;

/// A queue that has been connected.
#[derive(Clone, Debug)]
pub struct Association {
    pub controller: Arc<Controller>,
    /// QID; 0 is the admin queue.
    pub queue_id: u16,
    /// Entries of the submission queue (SQSIZE + 1).
    pub entries: u16,
    /// The host wants SQ flow control: SQHD is maintained, and every command has a response.
    pub flow_control: bool,
    /// By what the host proves who it is; `None`: it does not.
    pub credentials: Option<Arc<Credentials>>,
    /// Nothing else is done for the host before it has.
    pub must_authenticate: bool,
    /// Whether keys for TLS can be made on it.
    pub channel: QueueChannel,
    /// Dwords 0 and 1 of the completion: CNTLID, and in AUTHREQ whether the host has to authenticate.
    pub result: u64,
}

/// ATR of AUTHREQ: only Authentication Send and Receive are carried out before the host has authenticated.
const AUTHENTICATION_REQUIRED: u64 = 1 << 17;

/// ASCR of AUTHREQ: it also has to have a key for TLS made.
const SECURE_CHANNEL_REQUIRED: u64 = 1 << 18;

/// How a Connect is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: Status,
    /// Dword 0 of the completion: with CONNECT INVALID PARAMETERS where the bad one is.
    pub result: u64,
}

/// A parameter of Connect, by the offset of its first byte (IPO).
#[derive(Clone, Copy, Debug)]
enum Parameter {
    QueueId,
    QueueSize,
    HostIdentifier,
    ControllerId,
    SubsystemNqn,
    HostNqn,
}

impl Parameter {
    /// IPO in bits 15:0, IATTR in bit 16: the offset is one into the data.
    const fn location(self) -> u64 {
        const IN_DATA: u64 = 1 << 16;
        match self {
            Self::QueueId => 42,
            Self::QueueSize => 44,
            Self::HostIdentifier => IN_DATA,
            Self::ControllerId => IN_DATA | 16,
            Self::SubsystemNqn => IN_DATA | 256,
            Self::HostNqn => IN_DATA | 512,
        }
    }
}

impl Refusal {
    /// The host may try the same again.
    const fn of(status: Status) -> Self {
        Self { status, result: 0 }
    }

    const fn last(status: Status) -> Self {
        Self::of(status.do_not_retry())
    }

    const fn invalid(parameter: Parameter) -> Self {
        Self {
            status: Status::CONNECT_INVALID_PARAMETERS.do_not_retry(),
            result: parameter.location(),
        }
    }
}

/// The fields of the command.
#[derive(Debug)]
struct Connect {
    queue_id: u16,
    /// SQSIZE + 1, since the field is zero-based.
    entries: u16,
    flow_control: bool,
    keep_alive_ms: u32,
    host_identifier: [u8; 16],
    controller_id: u16,
    subsystem: Nqn,
    host: Nqn,
}

impl Connect {
    fn decode(entry: &SubmissionEntry, data: &[u8]) -> Result<Self, Refusal> {
        /// CATTR bit 2: no SQ flow control. The priority in bits 1:0 is for weighted arbitration.
        const DISABLE_FLOW_CONTROL: u32 = 1 << 18;
        let Some(data) = data.first_chunk::<DATA_BYTES>() else {
            return Err(Refusal::last(Status::DATA_SGL_LENGTH_INVALID));
        };
        let [format_low, format_high, id_low, id_high] = entry.dword(10).to_le_bytes();
        if [format_low, format_high] != [0, 0] {
            return Err(Refusal::last(Status::CONNECT_INCOMPATIBLE_FORMAT));
        }
        let [size_low, size_high, ..] = entry.dword(11).to_le_bytes();
        let entries = u16::from_le_bytes([size_low, size_high]).checked_add(1);
        let name = |at: usize, parameter: Parameter| {
            let field: [u8; NQN_FIELD_LENGTH] = bytes(data, at);
            Nqn::from_field(&field).map_err(|_| Refusal::invalid(parameter))
        };
        // SPDK's host sends no name unless it is told one, and its target takes that. An empty name is nobody's: no
        // access rule can be for it, so it gets what every host may have.
        let host = name(512, Parameter::HostNqn)?;
        if !host.as_str().is_empty() && Nqn::new(host.as_str()).is_err() {
            return Err(Refusal::invalid(Parameter::HostNqn));
        }
        Ok(Self {
            queue_id: u16::from_le_bytes([id_low, id_high]),
            entries: entries.ok_or(Refusal::invalid(Parameter::QueueSize))?,
            flow_control: entry.dword(11) & DISABLE_FLOW_CONTROL == 0,
            keep_alive_ms: entry.dword(12),
            host_identifier: bytes(data, 0),
            controller_id: le16(data, 16),
            subsystem: name(256, Parameter::SubsystemNqn)?,
            host,
        })
    }

    fn association(
        &self,
        controller: Arc<Controller>,
        credentials: Option<Arc<Credentials>>,
        way: &Way,
    ) -> Association {
        let channel = match way {
            _ if self.queue_id != 0 || controller.is_discovery() => QueueChannel::Other,
            Way::Secure(_) => QueueChannel::Secure,
            Way::Plain { has_tls: true } => QueueChannel::Plain,
            Way::Plain { has_tls: false } => QueueChannel::Other,
        };
        let rule = credentials.as_ref();
        let is_required = rule.is_some_and(|rule| rule.required);
        let concatenation = rule.map_or(Concatenation::None, |rule| rule.concatenation);
        let must_concatenate =
            channel == QueueChannel::Plain && concatenation == Concatenation::Required;
        // Who has a key that was made of a proof has given that proof.
        let must_authenticate =
            (is_required || must_concatenate) && *way != Way::Secure(Origin::Generated);
        let mut result = u64::from(controller.id());
        if must_authenticate {
            result |= AUTHENTICATION_REQUIRED;
        }
        if must_concatenate {
            result |= SECURE_CHANNEL_REQUIRED;
        }
        Association {
            queue_id: self.queue_id,
            entries: self.entries,
            flow_control: self.flow_control,
            credentials,
            must_authenticate,
            channel,
            result,
            controller,
        }
    }
}

/// What a queue comes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain {
        /// There could be TLS.
        has_tls: bool,
    },
    /// TLS, with such a key.
    Secure(Origin),
}

impl Way {
    fn of(environment: &dyn Environment) -> Self {
        match environment.tls_identity() {
            Some(proved) => Self::Secure(proved.origin),
            None => Self::Plain {
                has_tls: environment.has_tls(),
            },
        }
    }

    const fn is_secure(self) -> bool {
        matches!(self, Self::Secure(_))
    }
}

impl Subsystems {
    /// Connect, the first command of every connection. `queue`: the driver's name for it.
    ///
    /// # Errors
    /// The connection does not become a queue. The host may send another Connect.
    pub fn connect(
        &self,
        entry: &SubmissionEntry,
        data: &[u8],
        queue: QueueHandle,
        environment: &dyn Environment,
        now_ms: u64,
    ) -> Result<Association, Refusal> {
        let connect = Connect::decode(entry, data)?;
        let member = self
            .find(&connect.subsystem)
            .filter(|member| member.subsystem.is_discovery || !environment.is_discovery_only())
            .ok_or(Refusal::invalid(Parameter::SubsystemNqn))?;
        // SQSIZE counts from 0, and a queue of one entry could never hold a command.
        if !(2..=member.subsystem.limits.queue_entries_max).contains(&connect.entries) {
            return Err(Refusal::invalid(Parameter::QueueSize));
        }
        // Reservations know hosts by it, so "none" is no one.
        if connect.host_identifier == [0; 16] {
            return Err(Refusal::invalid(Parameter::HostIdentifier));
        }
        check_channel(&member, &connect, environment)?;
        let way = Way::of(environment);
        if connect.queue_id == 0 {
            self.connect_admin(&member, &connect, (queue, way), now_ms)
        } else {
            connect_io(&member, &connect, (queue, way))
        }
    }
}

impl Subsystems {
    fn connect_admin(
        &self,
        member: &Member,
        connect: &Connect,
        (queue, way): (QueueHandle, Way),
        now_ms: u64,
    ) -> Result<Association, Refusal> {
        if connect.controller_id != CONTROLLER_DYNAMIC {
            return Err(Refusal::invalid(Parameter::ControllerId));
        }
        let subsystem = &member.subsystem;
        // Until the controller is known: a change of what it sees comes before, or finds it.
        let access = subsystem.access();
        if access.is_removed() {
            return Err(Refusal::invalid(Parameter::SubsystemNqn));
        }
        let visible = if subsystem.is_discovery {
            Some(Vec::new())
        } else {
            access.visible(&connect.host)
        };
        let visible = visible.ok_or(Refusal {
            status: Status::CONNECT_INVALID_HOST.do_not_retry(),
            result: Parameter::HostNqn.location(),
        })?;
        let controller_limits = &subsystem.limits;
        if connect.keep_alive_ms > controller_limits.keep_alive_ms_max {
            return Err(Refusal::last(Status::KEEP_ALIVE_TIMEOUT_INVALID));
        }
        // Others may leave: the host should come back.
        let busy = Refusal::of(Status::CONNECT_CONTROLLER_BUSY);
        let id = member.controllers.take_id().ok_or(busy)?;
        let io_queues_max = subsystem.io_queues_max();
        let reservations = NotificationLog::new();
        reservations.set_waker(self.waker(queue));
        let host_identifier = connect.host_identifier;
        let attach = |(config, grant)| {
            let log = Arc::clone(&reservations);
            AttachedNamespace::new(config, grant, host_identifier, controller_limits, log)
        };
        let namespaces: Arc<[_]> = visible.into_iter().map(attach).collect();
        let attached_max = u32::try_from(access.namespaces()).unwrap_or(u32::MAX);
        let controller = Arc::new(Controller {
            id,
            subsystem: Arc::clone(subsystem),
            registry: Arc::clone(&member.controllers),
            host_nqn: connect.host.clone(),
            host_identifier,
            admin_queue: queue,
            is_secure: way.is_secure(),
            product: Arc::clone(access.product()),
            attached_max: attached_max
                .checked_next_power_of_two()
                .unwrap_or(u32::MAX)
                .clamp(limits::ATTACHED_NAMESPACES_MAX, limits::NAMESPACES_MAX),
            namespaces: RwLock::new(namespaces),
            enabled: AtomicBool::new(false),
            advanced_retry: AtomicBool::new(false),
            activity: (0..=io_queues_max).map(|_| Activity::default()).collect(),
            reservations,
            state: Mutex::new(State::new(subsystem, connect.keep_alive_ms, now_ms)),
        });
        member.controllers.insert(id, &controller);
        let credentials = access.credentials(&connect.host);
        Ok(connect.association(controller, credentials, &way))
    }
}

/// Over TLS a host is who it has proved to be, and talks to the subsystem that its key is for. Without, it has to be
/// one that may.
fn check_channel(
    member: &Member,
    connect: &Connect,
    environment: &dyn Environment,
) -> Result<(), Refusal> {
    let refused = |parameter: Parameter| Refusal {
        status: Status::CONNECT_INVALID_HOST.do_not_retry(),
        result: parameter.location(),
    };
    match environment.tls_identity() {
        Some(proved) if proved.host != connect.host => Err(refused(Parameter::HostNqn)),
        Some(proved) if proved.subsystem != connect.subsystem => {
            Err(refused(Parameter::SubsystemNqn))
        }
        Some(_) => Ok(()),
        None if environment.requires_tls() => Err(refused(Parameter::HostNqn)),
        None if member.subsystem.tls_use(&connect.host) == TlsUse::Required => {
            Err(refused(Parameter::HostNqn))
        }
        // Its admin queue may come, to have a key made, where that can be used.
        None if (connect.queue_id != 0 || !environment.has_tls())
            && member.subsystem.must_concatenate(&connect.host) =>
        {
            Err(refused(Parameter::HostNqn))
        }
        None => Ok(()),
    }
}

fn connect_io(
    member: &Member,
    connect: &Connect,
    (queue, way): (QueueHandle, Way),
) -> Result<Association, Refusal> {
    if member.subsystem.is_discovery {
        return Err(Refusal::invalid(Parameter::QueueId));
    }
    let unknown = Refusal::invalid(Parameter::ControllerId);
    let controller = member
        .controllers
        .controller(connect.controller_id)
        .ok_or(unknown)?;
    if controller.host_nqn != connect.host {
        return Err(Refusal::invalid(Parameter::HostNqn));
    }
    if controller.host_identifier != connect.host_identifier {
        return Err(Refusal::invalid(Parameter::HostIdentifier));
    }
    // All queues of an association are as its first: none joins without the proof of the others.
    if controller.is_secure != way.is_secure() {
        return Err(Refusal {
            status: Status::CONNECT_INVALID_HOST.do_not_retry(),
            result: Parameter::HostNqn.location(),
        });
    }
    let mut state = controller.lock();
    if state.closed {
        return Err(unknown);
    }
    if !controller.is_enabled() || !state.properties.has_io_queue_entry_sizes() {
        return Err(Refusal::last(Status::COMMAND_SEQUENCE_ERROR));
    }
    let granted = usize::from(state.features.io_queues());
    let place = usize::from(connect.queue_id) - 1;
    let Some(slot) = state.io_queues.get_mut(place).filter(|_| place < granted) else {
        return Err(Refusal::invalid(Parameter::QueueId));
    };
    if slot.is_some() {
        // The connection before it may be about to end.
        return Err(Refusal::of(Status::INVALID_QUEUE_IDENTIFIER));
    }
    *slot = Some(queue);
    drop(state);
    let credentials = controller.credentials();
    Ok(connect.association(controller, credentials, &way))
}
