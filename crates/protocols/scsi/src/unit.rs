//! The logical unit: what all reactors share of one exported volume.
//!
//! A command asks two things of it on the data path, both answered by atomic loads: the capacity,
//! and whether its nexus may do this now ([`LogicalUnit::admit`]). Everything that changes who may
//! do what (attach, reset, reservations) takes a lock, and leaves its result in the gate of every
//! nexus (see [`crate::nexus`]). The lock of the unit may be held while that of the reservations is
//! taken, never the reverse.
//!
//! What happens to whom (SAM-5 §6.3):
//!
//! | event | RESERVE (6) | persistent reservation | mode pages | unit attention |
//! |---|---|---|---|---|
//! | session ends | released if held by it | kept | kept | none left |
//! | session begins | – | kept, known by its names | kept | 29/00 for the new nexus |
//! | logical unit reset | released | kept | defaults | 29/03 for all, the sender too |
//! | target warm or cold reset | released | kept | defaults | 29/00 for all |
//! | resize | kept | kept | kept | 2A/09 for all |
//! | shared space has another size | kept | kept | other thresholds | 2A/01 for all |
//! | process restarts | gone | kept if APTPL | defaults | 29/00 with each session |

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore_block::reservation::{self, Participant, Reservations, gate_bit};
use longshore_block::sanitize::Blocked;

use crate::access::Access;
use crate::completion::Completion;
use crate::copies::CopyResults;
use crate::mode_state::ModeState;
use crate::nexus::{GATE_RESERVATION_SHIFT, GATE_SANITIZE, Nexus, NexusPort};
use crate::sense::Sense;
use crate::status::Status;
use crate::unit_attention::UnitAttention;
pub use crate::unit_config::{LogicalUnitConfig, SharedSpace};

/// Kinds of reset (SAM-5 §6.3, §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    LogicalUnit,
    /// TARGET WARM RESET of iSCSI.
    TargetWarm,
    /// TARGET COLD RESET of iSCSI.
    TargetCold,
}

/// A logical unit. See the module documentation.
#[derive(Debug)]
pub struct LogicalUnit {
    config: LogicalUnitConfig,
    block_count: AtomicU64,
    modes: ModeState,
    /// RESERVE (6) and persistent reservations. Whatever else exports the volume has them too.
    reservations: Arc<Reservations>,
    shared: Mutex<Shared>,
}

/// Target ports of a unit that commands know: those that ALL_TG_PT stands for, and REPORT TARGET PORT GROUPS lists.
pub(crate) const MAX_TARGET_PORTS: usize = 64;

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Nexuses of the sessions that exist.
    pub(crate) nexuses: Vec<Arc<Nexus>>,
    /// As they were configured last.
    target_ports: Vec<u16>,
    /// At the last inspection.
    space: SharedSpace,
    /// The capacity that thresholds are shares of.
    threshold_capacity: u64,
    /// Results of EXTENDED COPY that RECEIVE COPY RESULTS may still ask for.
    pub(crate) copies: CopyResults,
}

impl LogicalUnit {
    /// A logical unit without sessions, whose reservations are those of its volume.
    pub fn new(config: LogicalUnitConfig, reservations: Arc<Reservations>) -> Arc<Self> {
        Arc::new(Self {
            block_count: AtomicU64::new(config.block_count),
            modes: ModeState::new(),
            reservations,
            shared: Mutex::new(Shared {
                nexuses: Vec::new(),
                target_ports: Vec::new(),
                space: SharedSpace::default(),
                threshold_capacity: 0,
                copies: CopyResults::default(),
            }),
            config,
        })
    }

    /// What it is and can do. The number of blocks in there is the one it started with; see
    /// [`Self::block_count`].
    pub fn config(&self) -> &LogicalUnitConfig {
        &self.config
    }

    /// Settings that MODE SELECT changes.
    pub fn modes(&self) -> &ModeState {
        &self.modes
    }

    /// Reservations of the volume.
    pub fn reservations(&self) -> &Arc<Reservations> {
        &self.reservations
    }

    /// Block size in bytes, and number of blocks at this moment.
    pub fn capacity(&self) -> (u32, u64) {
        (self.config.block_size, self.block_count())
    }

    /// Number of blocks at this moment.
    pub fn block_count(&self) -> u64 {
        self.block_count.load(Ordering::Acquire)
    }

    /// The volume has a new size.
    pub fn resize(&self, block_count: u64) {
        if self.block_count.swap(block_count, Ordering::AcqRel) != block_count {
            self.establish_for_all(UnitAttention::CapacityChanged);
        }
    }

    /// Shared space at the last inspection.
    pub fn shared_space(&self) -> SharedSpace {
        self.lock().space
    }

    /// The capacity that thresholds are shares of: that of the time when the size changed last.
    pub(crate) fn threshold_capacity(&self) -> u64 {
        self.lock().threshold_capacity
    }

    /// Updates the shared space. A new size moves the thresholds, so hosts get MODE PARAMETERS CHANGED (SBC-3, logical
    /// block provisioning mode page).
    pub fn set_shared_space(&self, space: SharedSpace) {
        let mut shared = self.lock();
        let before = std::mem::replace(&mut shared.space, space);
        if before.size == space.size {
            return;
        }
        shared.threshold_capacity = space.capacity;
        drop(shared);
        if before.size != 0 {
            self.establish_for_all(UnitAttention::ModeParametersChanged);
        }
    }

    /// A session was established. The nexus starts with POWER ON, RESET, OR BUS DEVICE RESET
    /// OCCURRED pending: we do not remember sessions that ended, and this code tells the initiator
    /// to trust nothing it knew, whatever happened meanwhile (SAM-5 §5.14.6 permits it in place of
    /// I_T NEXUS LOSS OCCURRED).
    ///
    /// A session that is replaced by one with the same names (session reinstatement) is detached
    /// here, in whatever order the driver learns of the two.
    pub fn attach(self: &Arc<Self>, port: NexusPort) -> Arc<Nexus> {
        let nexus = Arc::new(Nexus::new(port));
        let mut shared = self.lock();
        let replaced = shared
            .nexuses
            .iter()
            .find(|known| known.is_same_port(&nexus))
            .cloned();
        if let Some(replaced) = replaced {
            self.detach_locked(&mut shared, &replaced);
        }
        shared.nexuses.push(Arc::clone(&nexus));
        self.reservations.join(Arc::<Nexus>::clone(&nexus));
        nexus
    }

    /// The session is gone (I_T nexus loss): RESERVE (6) is released, persistent reservations stay.
    pub fn detach(&self, nexus: &Arc<Nexus>) {
        self.detach_locked(&mut self.lock(), nexus);
    }

    fn detach_locked(&self, shared: &mut Shared, nexus: &Arc<Nexus>) {
        nexus.set_detached();
        shared.nexuses.retain(|known| !Arc::ptr_eq(known, nexus));
        shared.copies.nexus_lost(nexus);
        self.reservations.leave(&**nexus);
    }

    /// Nexuses of the sessions that exist.
    pub fn nexuses(&self) -> Vec<Arc<Nexus>> {
        self.lock().nexuses.clone()
    }

    /// Relative identifiers of the target ports through which this unit can be reached, for registrations on all of them
    /// (ALL_TG_PT) and on ports named by an initiator, and for REPORT TARGET PORT GROUPS. They replace those before. Ports
    /// of sessions belong to them by themselves.
    pub fn set_target_ports(&self, ports: &[u16]) {
        self.lock().target_ports = ports.to_vec();
    }

    /// Relative identifiers of the target ports through which this unit can be reached, ascending: `own`, and at most
    /// [`MAX_TARGET_PORTS`] in all.
    pub(crate) fn target_ports(&self, own: u16) -> Vec<u16> {
        let shared = self.lock();
        let nexuses = shared.nexuses.iter();
        let connected = nexuses.map(|nexus| nexus.port().relative_target_port);
        let mut ports = BTreeSet::from([own]);
        for port in shared.target_ports.iter().copied().chain(connected) {
            if ports.len() == MAX_TARGET_PORTS {
                break;
            }
            ports.insert(port);
        }
        ports.into_iter().collect()
    }

    /// Carries out a reset, after the driver aborted the tasks it has to abort.
    ///
    /// Every nexus learns of it, that of the sender too: SAM-5 §6.3.3 makes no exception. A target
    /// reset says 29/00, because that is the code that is understood everywhere.
    pub fn reset(&self, kind: Reset) {
        let mut shared = self.lock();
        self.reservations.reset_legacy();
        shared.copies.clear();
        self.modes.reset();
        let attention = match kind {
            Reset::LogicalUnit => UnitAttention::LogicalUnitReset,
            Reset::TargetWarm | Reset::TargetCold => UnitAttention::PowerOnOrReset,
        };
        for nexus in &shared.nexuses {
            nexus.establish(attention);
        }
    }

    /// `origin` cleared commands of `affected` (CLEAR TASK SET, PREEMPT AND ABORT).
    pub fn tasks_cleared_by<P>(&self, origin: &Nexus, affected: &[Arc<P>])
    where
        P: Participant + ?Sized,
    {
        reservation::tasks_cleared_by(origin, affected);
    }

    /// Establishes a condition for every nexus.
    pub fn establish_for_all(&self, attention: UnitAttention) {
        for nexus in &self.lock().nexuses {
            nexus.establish(attention);
        }
    }

    /// Establishes a condition for every nexus but the one that caused it (MODE SELECT).
    pub fn establish_for_others(&self, origin: &Nexus, attention: UnitAttention) {
        for nexus in &self.lock().nexuses {
            if !std::ptr::eq(Arc::as_ptr(nexus), origin) {
                nexus.establish(attention);
            }
        }
    }

    /// Whether writes of this nexus are refused: the volume, the initiator's LUN map, or SWP of the
    /// control mode page says so.
    pub fn is_write_protected(&self, nexus: &Nexus) -> bool {
        self.config.read_only || nexus.is_read_only() || self.modes.software_write_protect()
    }

    /// Has writes through a nexus refused with WRITE PROTECTED from now on, or no more. Its initiator learns that mode
    /// parameters (WP) and INQUIRY data have changed.
    pub fn set_read_only(&self, nexus: &Nexus, read_only: bool) {
        if nexus.set_read_only(read_only) {
            nexus.establish(UnitAttention::ModeParametersChanged);
            nexus.establish(UnitAttention::InquiryDataChanged);
        }
    }

    /// Decides whether a command of this kind may run now.
    ///
    /// The order is that of SAM-5 §5.3.3: a unit attention about a reset, then RESERVATION
    /// CONFLICT, then other unit attentions.
    ///
    /// # Errors
    /// The completion the command ends with.
    pub fn admit(&self, nexus: &Nexus, access: Access) -> Result<(), Completion> {
        let conflict_bits = u32::from(gate_bit(access.reservation)) << GATE_RESERVATION_SHIFT;
        let attention_bits = if access.ignores_unit_attention {
            0
        } else {
            UnitAttention::MASK
        };
        if nexus.gate() & (conflict_bits | attention_bits) == 0 {
            return Ok(());
        }
        Self::refuse(nexus, conflict_bits, attention_bits)
    }

    /// Refuses commands that touch the medium while it is being sanitized, and after that has failed.
    ///
    /// # Errors
    /// The completion the command ends with.
    #[inline]
    pub(crate) fn admit_medium(&self, nexus: &Nexus) -> Result<(), Completion> {
        if nexus.gate() & GATE_SANITIZE == 0 {
            return Ok(());
        }
        match self.sanitize_sense() {
            Some(sense) => Err(sense.into()),
            None => Ok(()),
        }
    }

    /// What commands are told while the medium is being sanitized, or after that has failed.
    pub(crate) fn sanitize_sense(&self) -> Option<Sense> {
        let sanitize = self.reservations.sanitize();
        sanitize.blocked().map(|blocked| match blocked {
            Blocked::InProgress => Sense::sanitize_in_progress(sanitize.progress()),
            Blocked::Failed => Sense::sanitize_failed(),
        })
    }

    /// Whether a command of this kind may run and has nothing to report. Changes nothing: whoever is
    /// told `false` asks [`Self::admit`].
    #[inline]
    pub(crate) fn admits_at_once(nexus: &Nexus, access: Access) -> bool {
        let conflict_bits = u32::from(gate_bit(access.reservation)) << GATE_RESERVATION_SHIFT;
        nexus.gate() & (conflict_bits | UnitAttention::MASK | GATE_SANITIZE) == 0
    }

    #[cold]
    fn refuse(nexus: &Nexus, conflict_bits: u32, attention_bits: u32) -> Result<(), Completion> {
        loop {
            let gate = nexus.gate();
            let first = UnitAttention::first_of(gate & attention_bits);
            if gate & conflict_bits != 0
                && !first.is_some_and(UnitAttention::precedes_reservation_conflict)
            {
                return Err(Completion::status(Status::RESERVATION_CONFLICT));
            }
            match first {
                None => return Ok(()),
                // Whoever clears the bit reports the condition; a loser looks again.
                Some(attention) if nexus.clear_unit_attention(attention) => {
                    return Err(Sense::unit_attention(attention.additional_sense()).into());
                }
                Some(_) => {}
            }
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panic elsewhere must not take the volume down with it; every change under the lock is
        // made by assigning finished values.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
