//! What PERSISTENT RESERVE OUT does (SPC-4 §5.12 and §6.16.2), as a function from the state before
//! and the request to the state after. Nothing is locked, stored or told here.

use longshore_block::reservation::Change;

use super::table::{ReservationTable, ReservationType, TableFull};
use super::transport_id::TransportId;
use super::{NexusIdentity, Relation};

/// The service actions of PERSISTENT RESERVE OUT (SPC-4 Table 213).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceAction {
    Register,
    Reserve,
    Release,
    Clear,
    Preempt,
    PreemptAndAbort,
    RegisterAndIgnoreExistingKey,
    RegisterAndMove,
}

impl ServiceAction {
    pub(crate) const ALL: [Self; 8] = [
        Self::Register,
        Self::Reserve,
        Self::Release,
        Self::Clear,
        Self::Preempt,
        Self::PreemptAndAbort,
        Self::RegisterAndIgnoreExistingKey,
        Self::RegisterAndMove,
    ];

    /// `None` for what does not exist, and for REPLACE LOST RESERVATION (8h): none is ever lost.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// A decoded PERSISTENT RESERVE OUT.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) action: ServiceAction,
    /// 0: the logical unit.
    pub(crate) scope: u8,
    pub(crate) type_code: u8,
    pub(crate) reservation_key: u64,
    pub(crate) service_action_key: u64,
    pub(crate) aptpl: bool,
    pub(crate) all_target_ports: bool,
    /// TransportIDs that come with SPEC_I_PT.
    pub(crate) initiator_ports: Option<Vec<TransportId>>,
    /// With REGISTER AND MOVE.
    pub(crate) r#move: Option<Move>,
}

/// Where REGISTER AND MOVE moves the reservation.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) unregister: bool,
    pub(crate) relative_target_port: u16,
    pub(crate) initiator_port: TransportId,
}

/// What is the case before.
pub(crate) struct Situation<'a> {
    pub(crate) table: &'a ReservationTable,
    /// Relative identifiers of the target ports there are.
    pub(crate) target_ports: &'a [u16],
    /// Nexuses with a session, and NVMe hosts.
    pub(crate) connected: Vec<&'a NexusIdentity>,
    /// Registrations can survive a power loss (APTPL).
    pub(crate) can_store: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    ReservationConflict,
    InvalidFieldInCdb { byte: u16, bit: u8 },
    InvalidFieldInParameterList { byte: u16 },
    InvalidRelease,
    NoRoom,
}

impl From<TableFull> for Refusal {
    fn from(TableFull: TableFull) -> Self {
        Self::NoRoom
    }
}

const BAD_SCOPE: Refusal = Refusal::InvalidFieldInCdb { byte: 2, bit: 7 };
const BAD_TYPE: Refusal = Refusal::InvalidFieldInCdb { byte: 2, bit: 3 };
const BAD_SERVICE_ACTION_KEY: Refusal = Refusal::InvalidFieldInParameterList { byte: 8 };
/// APTPL, or SPEC_I_PT where it makes no sense.
const BAD_FLAGS: Refusal = Refusal::InvalidFieldInParameterList { byte: 20 };
const BAD_TRANSPORT_ID: Refusal = Refusal::InvalidFieldInParameterList { byte: 24 };
const BAD_TRANSPORT_ID_LIST: Refusal = Refusal::InvalidFieldInParameterList { byte: 28 };

/// Decides what a request of the nexus `me` does.
///
/// # Errors
/// Why it does nothing.
pub(crate) fn decide(
    before: &Situation<'_>,
    me: &NexusIdentity,
    request: &Request,
) -> Result<Change, Refusal> {
    let change = Change::none(before.table);
    match request.action {
        ServiceAction::Register => register(before, me, request, change),
        ServiceAction::RegisterAndIgnoreExistingKey => {
            register_ignoring_key(before, me, request, change)
        }
        _ if before.table.key_of(me) != Some(request.reservation_key) => {
            Err(Refusal::ReservationConflict)
        }
        ServiceAction::Reserve => reserve(me, request, change),
        ServiceAction::Release => release(me, request, change),
        ServiceAction::Clear => Ok(clear(me, change)),
        ServiceAction::Preempt => preempt(me, request, change),
        ServiceAction::PreemptAndAbort => {
            let mut change = preempt(me, request, change)?;
            change.abort_removed(before.table, me);
            Ok(change)
        }
        ServiceAction::RegisterAndMove => register_and_move(before, me, request, change),
    }
}

fn persistent_type(request: &Request) -> Result<ReservationType, Refusal> {
    if request.scope != 0 {
        return Err(BAD_SCOPE);
    }
    ReservationType::from_scsi_code(request.type_code).ok_or(BAD_TYPE)
}

/// REGISTER (SPC-4 Table 75).
fn register(
    before: &Situation<'_>,
    me: &NexusIdentity,
    request: &Request,
    change: Change,
) -> Result<Change, Refusal> {
    let registered_key = before.table.key_of(me);
    // An unregistered nexus gives zero; a registered one its key.
    if request.reservation_key != registered_key.unwrap_or(0) {
        return Err(Refusal::ReservationConflict);
    }
    // Initiator ports can be specified only when something is newly registered.
    if request.initiator_ports.is_some()
        && (registered_key.is_some() || request.service_action_key == 0)
    {
        return Err(BAD_FLAGS);
    }
    let mut chosen = on_ports(before, me, request);
    // The same initiator port on other target ports: only what the key given covers.
    match request.service_action_key {
        0 => chosen.retain(|identity| before.table.key_of(identity) == registered_key),
        _ => {
            let foreign = |identity| {
                before
                    .table
                    .key_of(identity)
                    .is_some_and(|key| Some(key) != registered_key)
            };
            if chosen.iter().any(foreign) {
                return Err(Refusal::ReservationConflict);
            }
        }
    }
    for initiator_port in request.initiator_ports.iter().flatten() {
        chosen.extend(specified(before, me, request, initiator_port)?);
    }
    apply_registration(before, request, chosen, change)
}

/// REGISTER AND IGNORE EXISTING KEY (SPC-4 Table 76).
fn register_ignoring_key(
    before: &Situation<'_>,
    me: &NexusIdentity,
    request: &Request,
    change: Change,
) -> Result<Change, Refusal> {
    apply_registration(before, request, on_ports(before, me, request), change)
}

fn apply_registration(
    before: &Situation<'_>,
    request: &Request,
    chosen: Vec<NexusIdentity>,
    mut change: Change,
) -> Result<Change, Refusal> {
    if request.aptpl && !before.can_store {
        return Err(BAD_FLAGS);
    }
    let removes = request.service_action_key == 0;
    if removes
        && chosen
            .iter()
            .all(|identity| before.table.key_of(identity).is_none())
    {
        // Nothing to remove: GOOD, and nothing changes.
        return Ok(change);
    }
    for identity in chosen {
        if removes {
            change.notices.extend(change.table.unregister(&identity));
        } else {
            change
                .table
                .register(&identity, request.service_action_key)?;
        }
    }
    change.table.set_persists(request.aptpl);
    change.table.advance_generation();
    Ok(change)
}

/// The nexus itself, or with ALL_TG_PT its initiator port on every target port.
fn on_ports(before: &Situation<'_>, me: &NexusIdentity, request: &Request) -> Vec<NexusIdentity> {
    let mut chosen = vec![me.clone()];
    if let NexusIdentity::Iscsi {
        initiator_name,
        isid,
        relative_target_port,
    } = me
        && request.all_target_ports
    {
        let others = before
            .target_ports
            .iter()
            .filter(|port| *port != relative_target_port);
        chosen.extend(others.map(|port| NexusIdentity::Iscsi {
            initiator_name: initiator_name.clone(),
            isid: *isid,
            relative_target_port: *port,
        }));
    }
    chosen
}

/// The registrants a TransportID of SPEC_I_PT names: on the target port of the command, or with
/// ALL_TG_PT on every one. A device name stands for all initiator ports of that name that are known
/// by a session or a registration (SPC-4 §7.6.4.6).
fn specified(
    before: &Situation<'_>,
    me: &NexusIdentity,
    request: &Request,
    wanted: &TransportId,
) -> Result<Vec<NexusIdentity>, Refusal> {
    let NexusIdentity::Iscsi {
        relative_target_port: own_port,
        ..
    } = me
    else {
        return Err(BAD_TRANSPORT_ID_LIST);
    };
    let target_ports: &[u16] = if request.all_target_ports {
        before.target_ports
    } else {
        std::slice::from_ref(own_port)
    };
    let isids = known_isids(before, wanted);
    if isids.is_empty() {
        return Err(BAD_TRANSPORT_ID_LIST);
    }
    let mut chosen = Vec::new();
    for isid in isids {
        for port in target_ports {
            let identity = NexusIdentity::Iscsi {
                initiator_name: wanted.initiator_name.clone(),
                isid,
                relative_target_port: *port,
            };
            // Those registered already are the business of their owners.
            if before.table.key_of(&identity).is_some() {
                return Err(BAD_TRANSPORT_ID_LIST);
            }
            chosen.push(identity);
        }
    }
    Ok(chosen)
}

fn known_isids(before: &Situation<'_>, wanted: &TransportId) -> Vec<[u8; 6]> {
    if let Some(isid) = wanted.isid {
        return vec![isid];
    }
    let registered = before.table.registrations().iter().map(|one| &one.identity);
    let mut isids = Vec::new();
    for identity in before.connected.iter().copied().chain(registered) {
        if let NexusIdentity::Iscsi { isid, .. } = identity
            && wanted.matches(identity)
            && !isids.contains(isid)
        {
            isids.push(*isid);
        }
    }
    isids
}

/// RESERVE (SPC-4 §5.12.9): only a registrant gets it.
fn reserve(me: &NexusIdentity, request: &Request, mut change: Change) -> Result<Change, Refusal> {
    let kind = persistent_type(request)?;
    match change.table.reservation() {
        None => change.table.reserve(me, kind),
        Some(held) if held.kind == kind && change.table.relation(me) == Relation::Holder => {}
        Some(_) => return Err(Refusal::ReservationConflict),
    }
    Ok(change)
}

/// RELEASE (SPC-4 §5.12.11.2.2): GOOD without effect from a registrant that holds nothing.
fn release(me: &NexusIdentity, request: &Request, mut change: Change) -> Result<Change, Refusal> {
    let Some(held) = change.table.reservation() else {
        return Ok(change);
    };
    if change.table.relation(me) != Relation::Holder {
        return Ok(change);
    }
    if request.scope != 0 || held.kind.scsi_code() != request.type_code {
        return Err(Refusal::InvalidRelease);
    }
    change.notices = change.table.release(me);
    Ok(change)
}

/// CLEAR (SPC-4 §5.12.11.2.6): removes the reservation and all registrations.
fn clear(me: &NexusIdentity, mut change: Change) -> Change {
    change.notices = change.table.clear(me);
    change.table.advance_generation();
    change
}

/// PREEMPT, and the same part of PREEMPT AND ABORT (SPC-4 §5.12.11.2.4).
fn preempt(me: &NexusIdentity, request: &Request, mut change: Change) -> Result<Change, Refusal> {
    let key = request.service_action_key;
    let takes_over = match change.table.reservation() {
        None => false,
        Some(held) => match &held.holder {
            // All Registrants: zero means all of them.
            None => key == 0,
            Some(holder) => change.table.key_of(holder) == Some(key),
        },
    };
    change.notices = if takes_over {
        change
            .table
            .preempt_reservation(me, persistent_type(request)?)
    } else if key == 0 {
        return Err(BAD_SERVICE_ACTION_KEY);
    } else if change
        .table
        .registrations()
        .iter()
        .any(|one| one.key == key)
    {
        change.table.preempt_registrations(me, key)
    } else {
        return Err(Refusal::ReservationConflict);
    };
    change.table.advance_generation();
    Ok(change)
}

/// REGISTER AND MOVE (SPC-4 §5.12.8).
fn register_and_move(
    before: &Situation<'_>,
    me: &NexusIdentity,
    request: &Request,
    mut change: Change,
) -> Result<Change, Refusal> {
    let Some(to) = &request.r#move else {
        return Err(BAD_TRANSPORT_ID);
    };
    let holds = before
        .table
        .reservation()
        .is_some_and(|held| held.holder.as_ref() == Some(me));
    if !holds {
        return Err(Refusal::ReservationConflict);
    }
    if request.service_action_key == 0 {
        return Err(BAD_SERVICE_ACTION_KEY);
    }
    if request.aptpl && !before.can_store {
        return Err(Refusal::InvalidFieldInParameterList { byte: 17 });
    }
    if !before.target_ports.contains(&to.relative_target_port) {
        return Err(Refusal::InvalidFieldInParameterList { byte: 18 });
    }
    // A device name must leave no doubt which of its ports is meant.
    let &[isid] = known_isids(before, &to.initiator_port).as_slice() else {
        return Err(BAD_TRANSPORT_ID);
    };
    let destination = NexusIdentity::Iscsi {
        initiator_name: to.initiator_port.initiator_name.clone(),
        isid,
        relative_target_port: to.relative_target_port,
    };
    if destination == *me {
        return Err(BAD_TRANSPORT_ID);
    }
    change
        .table
        .move_reservation(me, &destination, request.service_action_key, to.unregister)?;
    change.table.set_persists(request.aptpl);
    change.table.advance_generation();
    Ok(change)
}
