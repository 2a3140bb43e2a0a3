//! One controller's part in the reservations of one namespace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use longshore_block::reservation::{
    GATE_BLOCKED, NexusIdentity, NoticeEvent, Participant, ReservationClass, Reservations, gate_bit,
};

use super::notification::{NotificationLog, NotificationMask};
use crate::command::NamespaceId;

/// A host at a namespace, through one controller. All queues of the controller look at its gate.
#[derive(Debug)]
pub struct HostRegistrant {
    identity: NexusIdentity,
    namespace: NamespaceId,
    gate: AtomicU8,
    notification_mask: AtomicU8,
    log: Arc<NotificationLog>,
}

impl HostRegistrant {
    /// A controller of the host begins to use a namespace: its gate is right when this returns.
    /// What the host has to be told of it goes into the controller's `log`.
    #[must_use]
    pub fn join(
        reservations: &Reservations,
        host_identifier: [u8; 16],
        namespace: NamespaceId,
        log: Arc<NotificationLog>,
    ) -> Arc<Self> {
        let host = Arc::new(Self {
            identity: NexusIdentity::NvmeHost { host_identifier },
            namespace,
            gate: AtomicU8::new(0),
            notification_mask: AtomicU8::new(0),
            log,
        });
        reservations.join(Arc::<Self>::clone(&host));
        host
    }

    /// The controller is gone. The host's registration and reservation stay.
    pub fn leave(&self, reservations: &Reservations) {
        reservations.leave(self);
    }

    /// Whether something stands against commands of this class now: a reservation, or that the namespace is being
    /// sanitized. One atomic load.
    #[inline]
    #[must_use]
    pub fn conflicts(&self, class: ReservationClass) -> bool {
        self.gate.load(Ordering::Acquire) & (gate_bit(class) | GATE_BLOCKED) != 0
    }

    /// Whether a reservation stands against commands of this class now.
    #[must_use]
    pub fn is_reserved_against(&self, class: ReservationClass) -> bool {
        self.gate.load(Ordering::Acquire) & gate_bit(class) != 0
    }

    /// What is not told (feature *Reservation Notification Mask*). Nothing is masked at first.
    #[must_use]
    pub fn notification_mask(&self) -> NotificationMask {
        NotificationMask(self.notification_mask.load(Ordering::Relaxed))
    }

    /// Changes what is not told from now on.
    pub fn set_notification_mask(&self, mask: NotificationMask) {
        self.notification_mask.store(mask.0, Ordering::Relaxed);
    }
}

impl Participant for HostRegistrant {
    fn identity(&self) -> &NexusIdentity {
        &self.identity
    }

    fn set_reservation_gate(&self, bits: u8) {
        self.gate.store(bits, Ordering::Release);
    }

    fn notify(&self, event: NoticeEvent) {
        if !self.notification_mask().masks(event) {
            self.log.add(event, self.namespace);
        }
    }
}
