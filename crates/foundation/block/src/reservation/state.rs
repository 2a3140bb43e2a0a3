//! The reservations of one volume, behind one lock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::conflict::{self, GATE_BLOCKED};
use super::participant::{Participant, is_same_participant};
use super::store::ReservationFormatError;
use super::table::{Notice, ReservationTable};
use crate::sanitize::{Refusal, Sanitize, SanitizeFormatError, SanitizeOrder};

/// All reservation state of a volume. Whoever exports the volume shares it.
///
/// Nothing here is on the data path: every change leaves its result in the gate of every
/// [`Participant`], and that is what commands look at.
#[derive(Debug, Default)]
pub struct Reservations {
    state: Mutex<State>,
    sanitize: Sanitize,
}

/// What the lock protects.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) table: ReservationTable,
    /// Who holds RESERVE (6). A member.
    pub(super) legacy_holder: Option<Arc<dyn Participant>>,
    /// Who is concerned at the moment.
    pub(super) members: Vec<Arc<dyn Participant>>,
    /// A change waits for its bytes to be stored; others are refused meanwhile, so that what is
    /// stored last is what was decided last.
    pub(super) storing: bool,
    /// What is stored may differ from the table: the last attempt failed or was abandoned.
    pub(super) store_uncertain: bool,
    pub(super) waiters: Waiters,
    /// Commands that touch the medium are kept out: see [`Reservations::sanitize`].
    is_blocked: bool,
}

/// Callbacks for the end of storing.
#[derive(Default)]
pub(super) struct Waiters(pub(super) Vec<Box<dyn FnOnce() + Send>>);

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.0.len())
    }
}

/// Why the table cannot change now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchangeable {
    /// RESERVE (6) is in force, which excludes everything else.
    LegacyReservation,
    /// An earlier change is still being stored: later.
    Storing,
}

impl Reservations {
    /// No registrations, no reservation, nobody concerned.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Somebody begins to use the volume. Its gate is right when this returns.
    pub fn join(&self, member: Arc<dyn Participant>) {
        let mut state = self.state();
        member.set_reservation_gate(state.gate_of(&*member));
        state.members.push(member);
    }

    /// Somebody is gone: RESERVE (6) is released if it holds that, persistent reservations stay.
    pub fn leave(&self, member: &dyn Participant) {
        let mut state = self.state();
        state
            .members
            .retain(|known| !is_same_participant(&**known, member));
        if state.holds_legacy(member) {
            state.legacy_holder = None;
            state.refresh_gates();
        }
    }

    /// Looks at everything at one moment.
    #[must_use]
    pub fn lock(self: &Arc<Self>) -> Locked<'_> {
        Locked {
            reservations: self,
            state: self.state(),
        }
    }

    /// Looks at everything, with the right to change it.
    ///
    /// # Errors
    /// Why nobody may.
    pub fn lock_for_change(self: &Arc<Self>) -> Result<Locked<'_>, Unchangeable> {
        let locked = self.lock();
        if locked.state.legacy_holder.is_some() {
            return Err(Unchangeable::LegacyReservation);
        }
        if locked.state.storing {
            return Err(Unchangeable::Storing);
        }
        Ok(locked)
    }

    /// Reservations as bytes that [`Self::restore`] takes (docs/formats/reservations.md).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.state().table.to_bytes()
    }

    /// Takes up reservations stored before a restart. Meant to be called before anybody joins.
    ///
    /// # Errors
    /// The bytes are not what [`Self::to_bytes`] or a [`StoreOrder`](super::StoreOrder) gave;
    /// nothing changes then.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), ReservationFormatError> {
        let table = ReservationTable::from_bytes(bytes)?;
        let mut state = self.state();
        state.table = table;
        state.refresh_gates();
        Ok(())
    }

    /// Whether the volume is being sanitized, and how far that is.
    #[must_use]
    pub fn sanitize(&self) -> &Sanitize {
        &self.sanitize
    }

    /// An operation begins: from here on, every gate keeps commands out. Those under way go on until the caller has
    /// seen them end.
    ///
    /// # Errors
    /// Another one is running.
    pub fn begin_sanitize(&self, order: SanitizeOrder) -> Result<(), Refusal> {
        let begun = self.sanitize.begin(order);
        self.refresh_blocked();
        begun
    }

    /// The operation is over. Commands run again if it did what it was to do.
    pub fn end_sanitize(&self, succeeded: bool) {
        self.sanitize.end(succeeded);
        self.refresh_blocked();
    }

    /// Leaves the failure of an operation behind. Does nothing where none has failed.
    ///
    /// # Errors
    /// One is running, or the one that failed did not allow that.
    pub fn exit_sanitize_failure(&self) -> Result<(), Refusal> {
        let left = self.sanitize.exit_failure();
        self.refresh_blocked();
        left
    }

    /// Takes up the state of an operation stored before a restart.
    ///
    /// # Errors
    /// The text is not what [`Sanitize::to_text`] gave.
    pub fn restore_sanitize(&self, text: &str) -> Result<(), SanitizeFormatError> {
        let restored = self.sanitize.restore(text);
        self.refresh_blocked();
        restored
    }

    fn refresh_blocked(&self) {
        let mut state = self.state();
        state.is_blocked = self.sanitize.is_blocked();
        state.refresh_gates();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not take the volume down with it; every change under the lock is
        // made by assigning finished values.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reservations of a volume at one moment: while this lives, nothing changes.
#[derive(Debug)]
pub struct Locked<'a> {
    pub(super) reservations: &'a Arc<Reservations>,
    pub(super) state: MutexGuard<'a, State>,
}

impl Locked<'_> {
    /// Registrations and the persistent reservation.
    #[must_use]
    pub fn table(&self) -> &ReservationTable {
        &self.state.table
    }

    /// Whether RESERVE (6) is in force.
    #[must_use]
    pub fn is_reserved_by_legacy(&self) -> bool {
        self.state.legacy_holder.is_some()
    }

    /// Who uses the volume at the moment.
    #[must_use]
    pub fn members(&self) -> &[Arc<dyn Participant>] {
        &self.state.members
    }
}

impl State {
    pub(super) fn is_member(&self, participant: &dyn Participant) -> bool {
        self.members
            .iter()
            .any(|member| is_same_participant(&**member, participant))
    }

    pub(super) fn holds_legacy(&self, participant: &dyn Participant) -> bool {
        self.legacy_holder
            .as_ref()
            .is_some_and(|holder| is_same_participant(&**holder, participant))
    }

    /// The gate bits of a participant.
    fn gate_of(&self, participant: &dyn Participant) -> u8 {
        let blocked = if self.is_blocked { GATE_BLOCKED } else { 0 };
        blocked | self.conflicts_of(participant)
    }

    /// One bit for each class of commands that would conflict now.
    fn conflicts_of(&self, participant: &dyn Participant) -> u8 {
        if self.legacy_holder.is_some() {
            return if self.holds_legacy(participant) {
                0
            } else {
                conflict::legacy_gate()
            };
        }
        match self.table.reservation() {
            None => 0,
            Some(reservation) => {
                let relation = self.table.relation(participant.identity());
                conflict::persistent_gate(reservation.kind, relation)
            }
        }
    }

    /// Writes what each member may do now into its gate.
    pub(super) fn refresh_gates(&self) {
        for member in &self.members {
            member.set_reservation_gate(self.gate_of(&**member));
        }
    }

    /// Registrants without a session learn in their protocol's way when they are back.
    pub(super) fn deliver(&self, notice: &Notice) {
        for member in &self.members {
            if *member.identity() == notice.to {
                member.notify(notice.event);
            }
        }
    }

    pub(super) fn end_storing(&mut self) {
        self.storing = false;
        for waker in std::mem::take(&mut self.waiters).0 {
            waker();
        }
    }
}
