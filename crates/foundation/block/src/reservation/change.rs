//! Changing reservations: at once, or when they have been stored.
//!
//! ```text
//!  Locked::apply ─► kept over power loss?
//!                    │no            │yes
//!                    │       Applied::Store(order, pending) ─► driver stores order
//!                    │              │ pending.stored(true)
//!                    ▼              ▼
//!     table replaced, gates refreshed, registrants told; whose tasks are to be aborted
//! ```
//!
//! A change that must survive loss of power takes effect only after it is stored. So no acknowledged change is lost,
//! and no refused change is in force. While one waits to be stored, there is no other: there is one order of changes,
//! in memory and in what is stored ([`StoreOrder`]). After a failure, and after a command that was aborted while it
//! waited, the next change is stored in any case.

use std::sync::Arc;

use super::participant::Participant;
use super::state::{Locked, State};
use super::store_order::{StoreOrder, StoreRight};
use super::table::{NexusIdentity, Notice, ReservationTable};

/// What a request changes.
#[derive(Clone, Debug)]
pub struct Change {
    /// The table after it.
    pub table: ReservationTable,
    /// Who is told what.
    pub notices: Vec<Notice>,
    /// Whose commands are aborted (PREEMPT AND ABORT).
    pub abort: Vec<NexusIdentity>,
}

impl Change {
    /// A change that leaves the table as it is, for the command to amend.
    #[must_use]
    pub fn none(before: &ReservationTable) -> Self {
        Self {
            table: before.clone(),
            notices: Vec::new(),
            abort: Vec::new(),
        }
    }

    /// The commands of all who are registered in `before` and no more, but `by`, are to be aborted.
    pub fn abort_removed(&mut self, before: &ReservationTable, by: &NexusIdentity) {
        let registrants = before.registrations().iter().map(|one| &one.identity);
        self.abort = registrants
            .filter(|one| *one != by && self.table.key_of(one).is_none())
            .cloned()
            .collect();
    }
}

/// What became of a change.
#[derive(Debug)]
pub enum Applied {
    /// It is in force. Abort the commands of these members.
    Done(Vec<Arc<dyn Participant>>),
    /// It waits until the order has been carried out.
    Store(StoreOrder, PendingChange),
}

/// A change that waits to be stored. Dropped, it does not happen.
#[derive(Debug)]
pub struct PendingChange {
    change: Change,
    right: Arc<StoreRight>,
}

impl PendingChange {
    /// Storing is over. Returns the members whose commands are to be aborted, or `None` if the change
    /// could not be stored: then it does not happen.
    #[must_use]
    pub fn stored(self, stored: bool) -> Option<Vec<Arc<dyn Participant>>> {
        let Self { change, right } = self;
        // Nobody may decide anything between the end of storing and the change.
        let mut state = right.reservations().state();
        right.end(&mut state, stored);
        stored.then(|| state.commit(change))
    }
}

impl Locked<'_> {
    /// Makes a change that was decided under this lock, which
    /// [`Reservations::lock_for_change`](super::Reservations::lock_for_change) gave.
    #[must_use]
    pub fn apply(mut self, change: Change) -> Applied {
        assert!(
            change.table.has_holder(),
            "a reservation is held by registrants"
        );
        debug_assert!(
            change.table.has_distinct_registrants(),
            "a registrant has one key"
        );
        let state = &mut *self.state;
        let stores =
            (state.table.persists() || change.table.persists()) && state.table != change.table;
        if stores || state.store_uncertain {
            let right = StoreRight::take(self.reservations, state);
            let order = StoreOrder::new(change.table.to_bytes(), &right);
            return Applied::Store(order, PendingChange { change, right });
        }
        Applied::Done(state.commit(change))
    }
}

impl State {
    fn commit(&mut self, change: Change) -> Vec<Arc<dyn Participant>> {
        self.table = change.table;
        self.refresh_gates();
        for notice in &change.notices {
            self.deliver(notice);
        }
        let lose_tasks = |member: &&Arc<dyn Participant>| change.abort.contains(member.identity());
        self.members.iter().filter(lose_tasks).cloned().collect()
    }
}

// The table must stay cheap to copy: deciding works on a copy.
const _: () = assert!(size_of::<ReservationTable>() <= 128);
