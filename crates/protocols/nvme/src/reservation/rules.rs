//! What the reservation commands do (NVMe base 2.0 §8.19), as a function from the table before and the
//! request to the change. Nothing is locked, stored or told here.
//!
//! Where it differs from SCSI:
//!
//! - Registering again with the same key is no error, with another one it is a conflict: changing it
//!   is an action of its own, *replace*, and unregistering is another.
//! - The generation counts every successful Reservation Register, even one that changes nothing.
//! - Persistence through power loss stays as it was unless CPTPL says otherwise.
//! - *Preempt* with a key of zero is an invalid field, unless all registrants hold the reservation; so is
//!   *release* by the holder with another type.

use longshore_block::reservation::{
    Change, NexusIdentity, Relation, ReservationTable, ReservationType,
};

use crate::status::Status;

/// A decoded command with its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Register {
        action: RegisterAction,
        ignore_existing_key: bool,
        persistence: Persistence,
        current_key: u64,
        new_key: u64,
    },
    Acquire {
        action: AcquireAction,
        /// `None` for a reserved code.
        kind: Option<ReservationType>,
        current_key: u64,
        preempt_key: u64,
    },
    Release {
        action: ReleaseAction,
        /// `None` for a reserved code.
        kind: Option<ReservationType>,
        current_key: u64,
    },
}

/// RREGA, in bits 2:0 of dword 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterAction {
    Register,
    Unregister,
    Replace,
}

/// CPTPL: what becomes of the persist through power loss state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    Unchanged,
    Clear,
    Persist,
}

/// RACQA, in bits 2:0 of dword 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AcquireAction {
    Acquire,
    Preempt,
    PreemptAndAbort,
}

/// RRELA, in bits 2:0 of dword 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseAction {
    Release,
    Clear,
}

pub(super) const CONFLICT: Status = Status::RESERVATION_CONFLICT.do_not_retry();
pub(super) const INVALID_FIELD: Status = Status::INVALID_FIELD.do_not_retry();

/// Decides what a request of the host `me` does.
///
/// # Errors
/// The status it fails with; nothing changes then.
pub(super) fn decide(
    before: &ReservationTable,
    me: &NexusIdentity,
    request: &Request,
    can_store: bool,
) -> Result<Change, Status> {
    let mut change = Change::none(before);
    match *request {
        Request::Register {
            action,
            ignore_existing_key,
            persistence,
            current_key,
            new_key,
        } => {
            if persistence == Persistence::Persist && !can_store {
                return Err(INVALID_FIELD);
            }
            let given = (!ignore_existing_key).then_some(current_key);
            match action {
                RegisterAction::Register => register(&mut change, me, new_key)?,
                RegisterAction::Unregister => unregister(&mut change, me, given)?,
                RegisterAction::Replace => replace(&mut change, me, given, new_key)?,
            }
            match persistence {
                Persistence::Unchanged => {}
                Persistence::Clear => change.table.set_persists(false),
                Persistence::Persist => change.table.set_persists(true),
            }
            change.table.advance_generation();
        }
        Request::Acquire {
            action,
            kind,
            current_key,
            preempt_key,
        } => {
            check_key(before, me, current_key)?;
            match action {
                AcquireAction::Acquire => acquire(&mut change, me, kind)?,
                AcquireAction::Preempt => preempt(&mut change, me, kind, preempt_key)?,
                AcquireAction::PreemptAndAbort => {
                    preempt(&mut change, me, kind, preempt_key)?;
                    change.abort_removed(before, me);
                }
            }
        }
        Request::Release {
            action,
            kind,
            current_key,
        } => {
            check_key(before, me, current_key)?;
            match action {
                ReleaseAction::Release => release(&mut change, me, kind)?,
                ReleaseAction::Clear => {
                    change.notices = change.table.clear(me);
                    change.table.advance_generation();
                }
            }
        }
    }
    Ok(change)
}

/// CRKEY must be the key the host is registered with.
fn check_key(table: &ReservationTable, me: &NexusIdentity, given: u64) -> Result<(), Status> {
    match table.key_of(me) {
        Some(key) if key == given => Ok(()),
        Some(_) | None => Err(CONFLICT),
    }
}

fn register(change: &mut Change, me: &NexusIdentity, key: u64) -> Result<(), Status> {
    match change.table.key_of(me) {
        Some(registered) if registered == key => Ok(()),
        Some(_) => Err(CONFLICT),
        None => set_key(change, me, key),
    }
}

fn unregister(change: &mut Change, me: &NexusIdentity, given: Option<u64>) -> Result<(), Status> {
    let registered = change.table.key_of(me).ok_or(CONFLICT)?;
    if given.is_some_and(|given| given != registered) {
        return Err(CONFLICT);
    }
    change.notices = change.table.unregister(me);
    Ok(())
}

/// With IEKEY it registers a host that is not registered, too.
fn replace(
    change: &mut Change,
    me: &NexusIdentity,
    given: Option<u64>,
    key: u64,
) -> Result<(), Status> {
    if let Some(given) = given {
        check_key(&change.table, me, given)?;
    }
    set_key(change, me, key)
}

fn set_key(change: &mut Change, me: &NexusIdentity, key: u64) -> Result<(), Status> {
    if key == 0 {
        return Err(INVALID_FIELD);
    }
    // There is no status for a full table; trying again helps when others have gone.
    let registered = change.table.register(me, key);
    registered.map_err(|_| Status::INTERNAL_ERROR)
}

fn acquire(
    change: &mut Change,
    me: &NexusIdentity,
    kind: Option<ReservationType>,
) -> Result<(), Status> {
    let kind = kind.ok_or(INVALID_FIELD)?;
    match change.table.reservation() {
        None => change.table.reserve(me, kind),
        Some(held) if held.kind == kind && change.table.relation(me) == Relation::Holder => {}
        Some(_) => return Err(CONFLICT),
    }
    Ok(())
}

/// The preempted are those registered with the key. If the holder is among them, or the key is zero and
/// all registrants are holders, the reservation goes to `me`.
fn preempt(
    change: &mut Change,
    me: &NexusIdentity,
    kind: Option<ReservationType>,
    key: u64,
) -> Result<(), Status> {
    let takes_over = match change.table.reservation() {
        None => false,
        Some(held) => match &held.holder {
            None => key == 0,
            Some(holder) => change.table.key_of(holder) == Some(key),
        },
    };
    let has_key = |table: &ReservationTable| table.registrations().iter().any(|one| one.key == key);
    change.notices = if takes_over {
        let kind = kind.ok_or(INVALID_FIELD)?;
        change.table.preempt_reservation(me, kind)
    } else if key == 0 {
        return Err(INVALID_FIELD);
    } else if has_key(&change.table) {
        change.table.preempt_registrations(me, key)
    } else {
        return Err(CONFLICT);
    };
    change.table.advance_generation();
    Ok(())
}

/// By another than the holder it succeeds and does nothing.
fn release(
    change: &mut Change,
    me: &NexusIdentity,
    kind: Option<ReservationType>,
) -> Result<(), Status> {
    let Some(held) = change.table.reservation() else {
        return Ok(());
    };
    if change.table.relation(me) != Relation::Holder {
        return Ok(());
    }
    if kind != Some(held.kind) {
        return Err(INVALID_FIELD);
    }
    change.notices = change.table.release(me);
    Ok(())
}
