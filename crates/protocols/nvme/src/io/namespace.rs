//! What a command has to know of a namespace.

use std::sync::Arc;

use longshore_block::reservation::{ReservationClass, Reservations};

use crate::command::NamespaceId;
use crate::reservation::HostRegistrant;

/// A namespace as one controller sees it.
pub trait Attached {
    fn id(&self) -> NamespaceId;
    /// Bytes of a logical block.
    fn block_size(&self) -> u32;
    /// NSZE at this moment.
    fn block_count(&self) -> u64;
    /// MDTS of the controller, in bytes.
    fn max_transfer_bytes(&self) -> u32;
    /// The volume never changes, for any host.
    fn is_read_only(&self) -> bool;
    /// The host of this controller must not change it, or nobody.
    fn is_write_protected(&self) -> bool;
    /// A completed write may be lost until a flush.
    fn has_volatile_cache(&self) -> bool;
    /// Registrations and the reservation.
    fn reservations(&self) -> &Arc<Reservations>;
    /// The controller's part in them.
    fn host(&self) -> &Arc<HostRegistrant>;
    /// Reservations can be made to persist through power loss.
    fn can_store_reservations(&self) -> bool;

    /// Whether something stands against commands of a class at this moment: a reservation, or that the namespace is
    /// being sanitized.
    #[inline]
    fn conflicts(&self, class: ReservationClass) -> bool {
        self.host().conflicts(class)
    }
}
