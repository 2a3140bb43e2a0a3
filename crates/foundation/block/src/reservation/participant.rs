//! Who is concerned by reservations at the moment: a SCSI session, an NVMe controller.

use std::fmt::Debug;
use std::sync::Arc;

use super::table::{NexusIdentity, NoticeEvent};

/// One way to a volume, for as long as it exists: the nexus of an iSCSI session, or an NVMe
/// controller. Several may have the same identity, such as the controllers of one NVMe host.
///
/// The functions but `tasks_cleared` are called under the lock of
/// [`Reservations`](super::Reservations): they must not block, nor come back to it.
pub trait Participant: Debug + Send + Sync {
    /// Who this is to reservations.
    fn identity(&self) -> &NexusIdentity;

    /// What would conflict from now on, as bits of [`gate_bit`](super::gate_bit). The data path
    /// reads them without the lock.
    fn set_reservation_gate(&self, bits: u8);

    /// Something happened that registrants have to be told.
    fn notify(&self, event: NoticeEvent);

    /// Somebody else aborted commands of this participant.
    fn tasks_cleared(&self) {}
}

/// Whether both are the same participant, not just of the same identity.
#[must_use]
pub fn is_same_participant<A, B>(one: &A, other: &B) -> bool
where
    A: Participant + ?Sized,
    B: Participant + ?Sized,
{
    std::ptr::addr_eq(one, other)
}

/// `origin` cleared commands of `affected`: they learn of it, `origin` does not.
pub fn tasks_cleared_by<A, B>(origin: &A, affected: &[Arc<B>])
where
    A: Participant + ?Sized,
    B: Participant + ?Sized,
{
    for participant in affected {
        if !is_same_participant(origin, &**participant) {
            participant.tasks_cleared();
        }
    }
}
