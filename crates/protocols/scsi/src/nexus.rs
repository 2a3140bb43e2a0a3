//! The I_T nexus: one initiator port seen through one target port, as one logical unit knows it.
//!
//! What a READ or WRITE has to know about its nexus is one atomic word, the *gate*:
//!
//! ```text
//! bit  0..12  pending unit attention conditions, highest precedence first
//! bit 24..26  reservations: what would conflict at this moment (see `longshore_block::reservation`)
//! bit 31      the volume is being sanitized
//! ```
//!
//! A command that finds its bits clear is admitted with one load. The reservation bits are written
//! under the lock of the reservations, the unit attention bits by the code that establishes or reports one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use longshore_block::reservation::{GATE_BLOCKED, NexusIdentity, NoticeEvent, Participant};

use crate::unit_attention::UnitAttention;

/// Names of both ends of an I_T nexus, as the transport knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NexusPort {
    /// iSCSI name of the initiator, normalised.
    pub initiator_name: String,
    /// Initiator session identifier; with the name it is the initiator port (RFC 7143 §4.4.2).
    pub isid: [u8; 6],
    /// Relative target port identifier, from 1 (SPC-4 §7.8.6.6). Registrations are told apart by
    /// it, so ports of different targets that export the same unit should differ in it too.
    pub relative_target_port: u16,
    /// Target port name: iSCSI name, `,t,0x`, portal group tag in four hexadecimal digits.
    pub target_port_name: String,
    /// At first, writes through this nexus are refused with WRITE PROTECTED, whatever the volume allows
    /// ([`LogicalUnit::set_read_only`](crate::unit::LogicalUnit::set_read_only)).
    pub read_only: bool,
}

impl NexusPort {
    /// The same, as reservations remember it.
    pub fn identity(&self) -> NexusIdentity {
        NexusIdentity::Iscsi {
            initiator_name: self.initiator_name.clone(),
            isid: self.isid,
            relative_target_port: self.relative_target_port,
        }
    }
}

/// Bits of the gate above those of unit attentions.
pub(crate) const GATE_RESERVATION_SHIFT: u32 = 24;
const GATE_RESERVATION_MASK: u32 = 0xff << GATE_RESERVATION_SHIFT;
/// The volume is being sanitized, or that has failed.
pub(crate) const GATE_SANITIZE: u32 = (GATE_BLOCKED as u32) << GATE_RESERVATION_SHIFT;
const _: () = assert!(UnitAttention::MASK & GATE_RESERVATION_MASK == 0);

/// An I_T nexus on one logical unit. Made by
/// [`LogicalUnit::attach`](crate::unit::LogicalUnit::attach).
#[derive(Debug)]
pub struct Nexus {
    port: NexusPort,
    identity: NexusIdentity,
    gate: AtomicU32,
    read_only: AtomicBool,
    attached: AtomicBool,
}

impl Nexus {
    pub(crate) fn new(port: NexusPort) -> Self {
        let identity = port.identity();
        Self {
            read_only: AtomicBool::new(port.read_only),
            port,
            identity,
            gate: AtomicU32::new(UnitAttention::PowerOnOrReset.bit()),
            attached: AtomicBool::new(true),
        }
    }

    /// Names of both ends.
    pub fn port(&self) -> &NexusPort {
        &self.port
    }

    /// Who this is to reservations.
    pub fn identity(&self) -> &NexusIdentity {
        &self.identity
    }

    /// Whether both go from the same initiator port to the same target port.
    pub(crate) fn is_same_port(&self, other: &Self) -> bool {
        self.identity == other.identity && self.port.target_port_name == other.port.target_port_name
    }

    /// Whether writes through this nexus are refused with WRITE PROTECTED, whatever the volume allows.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Returns whether that is news.
    pub(crate) fn set_read_only(&self, read_only: bool) -> bool {
        self.read_only.swap(read_only, Ordering::Relaxed) != read_only
    }

    /// False once the session is gone.
    pub fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Acquire)
    }

    pub(crate) fn set_detached(&self) {
        self.attached.store(false, Ordering::Release);
    }

    /// Unit attention bits and reservation bits at this moment.
    pub(crate) fn gate(&self) -> u32 {
        self.gate.load(Ordering::Acquire)
    }

    /// Makes a condition pending. One of the same kind that is pending already absorbs it.
    pub fn establish(&self, attention: UnitAttention) {
        if attention == UnitAttention::PowerOnOrReset {
            self.gate.fetch_and(!UnitAttention::MASK, Ordering::AcqRel);
        }
        self.gate.fetch_or(attention.bit(), Ordering::AcqRel);
    }

    /// The condition that would be reported next.
    pub fn pending_unit_attention(&self) -> Option<UnitAttention> {
        UnitAttention::first_of(self.gate())
    }

    /// Takes the condition of highest precedence, to report it.
    pub fn take_unit_attention(&self) -> Option<UnitAttention> {
        loop {
            let first = self.pending_unit_attention()?;
            // Whoever clears the bit reports the condition; a loser looks for the next one.
            if self.clear_unit_attention(first) {
                return Some(first);
            }
        }
    }

    /// Makes a condition no longer pending; tells whether it was.
    pub fn clear_unit_attention(&self, attention: UnitAttention) -> bool {
        self.gate.fetch_and(!attention.bit(), Ordering::AcqRel) & attention.bit() != 0
    }

    /// Replaces the reservation bits. Only under the lock of the reservations.
    fn set_reservation_bits(&self, bits: u8) {
        let bits = u32::from(bits) << GATE_RESERVATION_SHIFT;
        let mut gate = self.gate.load(Ordering::Acquire);
        while let Err(now) = self.gate.compare_exchange_weak(
            gate,
            (gate & !GATE_RESERVATION_MASK) | bits,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            gate = now;
        }
    }
}

impl Participant for Nexus {
    fn identity(&self) -> &NexusIdentity {
        &self.identity
    }

    fn set_reservation_gate(&self, bits: u8) {
        self.set_reservation_bits(bits);
    }

    /// Registrants without a session learn from POWER ON … OCCURRED when they are back.
    fn notify(&self, event: NoticeEvent) {
        self.establish(match event {
            NoticeEvent::ReservationsPreempted => UnitAttention::ReservationsPreempted,
            NoticeEvent::ReservationsReleased => UnitAttention::ReservationsReleased,
            NoticeEvent::RegistrationsPreempted => UnitAttention::RegistrationsPreempted,
        });
    }

    fn tasks_cleared(&self) {
        self.establish(UnitAttention::CommandsCleared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nexus() -> Nexus {
        Nexus::new(NexusPort {
            initiator_name: "iqn.2026-11.local:host".into(),
            isid: [0x80, 0, 0, 0, 0, 1],
            relative_target_port: 1,
            target_port_name: "iqn.2026-11.local.longshore:default,t,0x0001".into(),
            read_only: false,
        })
    }

    #[test]
    fn a_new_nexus_starts_with_power_on() {
        let nexus = nexus();
        assert_eq!(
            nexus.take_unit_attention(),
            Some(UnitAttention::PowerOnOrReset)
        );
        assert_eq!(nexus.take_unit_attention(), None);
    }

    #[test]
    fn conditions_come_out_by_precedence_and_once() {
        let nexus = nexus();
        nexus.take_unit_attention();
        nexus.establish(UnitAttention::CapacityChanged);
        nexus.establish(UnitAttention::LogicalUnitReset);
        nexus.establish(UnitAttention::CapacityChanged);
        assert_eq!(
            nexus.take_unit_attention(),
            Some(UnitAttention::LogicalUnitReset)
        );
        assert_eq!(
            nexus.take_unit_attention(),
            Some(UnitAttention::CapacityChanged)
        );
        assert_eq!(nexus.take_unit_attention(), None);
    }

    #[test]
    fn power_on_clears_what_was_pending() {
        let nexus = nexus();
        nexus.establish(UnitAttention::ModeParametersChanged);
        nexus.establish(UnitAttention::PowerOnOrReset);
        assert_eq!(
            nexus.take_unit_attention(),
            Some(UnitAttention::PowerOnOrReset)
        );
        assert_eq!(nexus.take_unit_attention(), None);
    }

    #[test]
    fn reservation_bits_and_attentions_do_not_disturb_each_other() {
        let nexus = nexus();
        nexus.set_reservation_bits(0xff);
        assert_eq!(
            nexus.pending_unit_attention(),
            Some(UnitAttention::PowerOnOrReset)
        );
        nexus.take_unit_attention();
        assert_eq!(nexus.gate(), 0xff00_0000);
        nexus.establish(UnitAttention::CapacityChanged);
        nexus.set_reservation_bits(0);
        assert_eq!(nexus.gate(), UnitAttention::CapacityChanged.bit());
    }
}
