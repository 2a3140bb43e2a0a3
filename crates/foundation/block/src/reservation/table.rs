//! Registrations and the persistent reservation of one volume, as a value without protocol.
//!
//! SCSI (SPC-4 §5.12) and NVMe (NVM Express base specification, *Reservations*) share this model:
//! registrants with keys, at most one reservation of one of six types, a generation counter. They
//! differ in who a registrant is ([`NexusIdentity`]), in how they check a command, and in how they
//! tell registrants of a change ([`Notice`]). Each function here is one change that the protocol has
//! found to be permitted.

use std::fmt;

/// Registrations a volume takes; more are refused.
pub const MAX_REGISTRATIONS: usize = 256;

/// Who registers keys and holds reservations.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum NexusIdentity {
    /// An iSCSI I_T nexus. It outlives sessions: the same initiator port (name and ISID) on the
    /// same target port is the same registrant.
    Iscsi {
        /// iSCSI name of the initiator, normalised.
        initiator_name: String,
        /// ISID in its byte order on the wire (RFC 7143 §11.12.5).
        isid: [u8; 6],
        /// Relative target port identifier.
        relative_target_port: u16,
    },
    /// An NVMe host, whatever controllers it uses.
    NvmeHost {
        /// Host Identifier (HOSTID, 128 bits).
        host_identifier: [u8; 16],
    },
}

impl fmt::Debug for NexusIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iscsi {
                initiator_name,
                isid,
                relative_target_port,
            } => {
                write!(f, "{initiator_name},i,0x")?;
                isid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                write!(f, " on port {relative_target_port}")
            }
            Self::NvmeHost { host_identifier } => write!(f, "NVMe host {host_identifier:02x?}"),
        }
    }
}

/// Types of persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReservationType {
    /// All nexuses may read; only the holder writes.
    WriteExclusive,
    /// Others may not read or write.
    ExclusiveAccess,
    /// Registrants may read and write, others may read.
    WriteExclusiveRegistrantsOnly,
    /// Registrants may read and write, others neither.
    ExclusiveAccessRegistrantsOnly,
    /// As Write Exclusive, Registrants Only, and every registrant is a holder.
    WriteExclusiveAllRegistrants,
    /// As Exclusive Access, Registrants Only, and every registrant is a holder.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    /// All types, in ascending order of their codes.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// The TYPE field of SCSI (SPC-4 Table 177).
    pub fn scsi_code(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 3,
            Self::WriteExclusiveRegistrantsOnly => 5,
            Self::ExclusiveAccessRegistrantsOnly => 6,
            Self::WriteExclusiveAllRegistrants => 7,
            Self::ExclusiveAccessAllRegistrants => 8,
        }
    }

    /// The type of a TYPE field; `None` for obsolete and reserved codes.
    pub fn from_scsi_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.scsi_code() == code)
    }

    /// Every registrant may do what the holder may.
    pub fn shared_by_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Every registrant is a holder.
    pub fn held_by_all_registrants(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// Those shut out may not read either.
    pub fn excludes_reads(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::ExclusiveAccessAllRegistrants
        )
    }
}

/// A registrant and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub identity: NexusIdentity,
    /// Never zero: key 0 unregisters (SPC-4 §5.12.7).
    pub key: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub kind: ReservationType,
    /// A registrant; `None` for the All Registrants types, which all registrants hold.
    pub holder: Option<NexusIdentity>,
}

/// Something a registrant has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub to: NexusIdentity,
    pub event: NoticeEvent,
}

/// What happened to a registrant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoticeEvent {
    /// All reservations and registrations were cleared.
    ReservationsPreempted,
    /// A reservation it relied upon was released or changed.
    ReservationsReleased,
    /// Its registration was removed, and the reservation it held with it.
    RegistrationsPreempted,
}

/// There is no room for the registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull;

/// What a nexus is to a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Holds the reservation (every registrant does, of an All Registrants reservation).
    Holder,
    /// Registered, and not the holder.
    Registrant,
    /// Neither the holder nor registered.
    Other,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationTable {
    generation: u32,
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
    persists: bool,
}

impl ReservationTable {
    /// A table as it was stored. The generation starts anew (SPC-4 §6.15.2).
    ///
    /// `None` unless keys are not zero, registrants are told apart, and a reservation has holders as
    /// its type demands.
    pub(super) fn restored(
        registrations: Vec<Registration>,
        reservation: Option<Reservation>,
    ) -> Option<Self> {
        let table = Self {
            generation: 0,
            registrations,
            reservation,
            persists: true,
        };
        let fits = table.registrations.len() <= MAX_REGISTRATIONS;
        (fits && table.has_distinct_registrants() && table.has_holder()).then_some(table)
    }

    /// Whether keys are not zero and registrants are told apart.
    pub(super) fn has_distinct_registrants(&self) -> bool {
        let registrations = &self.registrations;
        registrations.iter().enumerate().all(|(index, one)| {
            one.key != 0
                && registrations[..index]
                    .iter()
                    .all(|other| other.identity != one.identity)
        })
    }

    /// Whether the reservation, if there is one, has holders as its type demands.
    pub(super) fn has_holder(&self) -> bool {
        let registrations = &self.registrations;
        self.reservation
            .as_ref()
            .is_none_or(|reservation| match &reservation.holder {
                None => reservation.kind.held_by_all_registrants() && !registrations.is_empty(),
                Some(holder) => {
                    !reservation.kind.held_by_all_registrants()
                        && registrations.iter().any(|one| one.identity == *holder)
                }
            })
    }

    /// Counts changes to registrations (PRGENERATION).
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Registrants in the order they registered.
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// The reservation, if there is one.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Whether the table is to survive loss of power (PTPL_A).
    pub fn persists(&self) -> bool {
        self.persists
    }

    /// Sets whether the table is to survive loss of power.
    pub fn set_persists(&mut self, persists: bool) {
        self.persists = persists;
    }

    /// The key of a registrant.
    pub fn key_of(&self, identity: &NexusIdentity) -> Option<u64> {
        self.registrations
            .iter()
            .find(|one| one.identity == *identity)
            .map(|one| one.key)
    }

    /// What somebody is to the reservation, or would be if there were one.
    pub fn relation(&self, identity: &NexusIdentity) -> Relation {
        if self.key_of(identity).is_none() {
            return Relation::Other;
        }
        match &self.reservation {
            Some(Reservation { holder: None, .. }) => Relation::Holder,
            Some(Reservation {
                holder: Some(holder),
                ..
            }) if holder == identity => Relation::Holder,
            Some(_) | None => Relation::Registrant,
        }
    }

    /// Counts one change to registrations: once for each command that makes any.
    pub fn advance_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// Registers somebody, or gives a registrant another key.
    ///
    /// # Errors
    /// There is no room for another registrant.
    pub fn register(&mut self, identity: &NexusIdentity, key: u64) -> Result<(), TableFull> {
        debug_assert_ne!(key, 0, "zero is how protocols spell `no key`");
        if let Some(known) = self
            .registrations
            .iter_mut()
            .find(|one| one.identity == *identity)
        {
            known.key = key;
        } else if self.registrations.len() < MAX_REGISTRATIONS {
            self.registrations.push(Registration {
                identity: identity.clone(),
                key,
            });
        } else {
            return Err(TableFull);
        }
        Ok(())
    }

    /// Removes a registrant at its own wish (SPC-4 §5.12.11.2.3).
    ///
    /// A reservation it held alone is released; the other registrants of a Registrants Only type
    /// are told.
    pub fn unregister(&mut self, identity: &NexusIdentity) -> Vec<Notice> {
        let holds_alone = self
            .reservation
            .as_ref()
            .is_some_and(|reservation| reservation.holder.as_ref() == Some(identity));
        self.registrations.retain(|one| one.identity != *identity);
        if holds_alone {
            return self.drop_reservation(identity);
        }
        if self.registrations.is_empty() {
            self.reservation = None;
        }
        Vec::new()
    }

    /// Makes a registrant the holder of a reservation.
    pub fn reserve(&mut self, identity: &NexusIdentity, kind: ReservationType) {
        debug_assert!(
            self.key_of(identity).is_some(),
            "only registrants hold reservations"
        );
        let holder = (!kind.held_by_all_registrants()).then(|| identity.clone());
        self.reservation = Some(Reservation { kind, holder });
    }

    /// Releases the reservation at the wish of its holder (SPC-4 §5.12.11.2.2): the other
    /// registrants are told if they shared it.
    pub fn release(&mut self, holder: &NexusIdentity) -> Vec<Notice> {
        self.drop_reservation(holder)
    }

    /// Removes all registrations and the reservation (SPC-4 §5.12.11.2.6).
    pub fn clear(&mut self, by: &NexusIdentity) -> Vec<Notice> {
        let notices = self.notify_others(by, NoticeEvent::ReservationsPreempted);
        self.registrations.clear();
        self.reservation = None;
        notices
    }

    /// Removes the registrations chosen, that of `by` too if it is among them and `keep_own` is not
    /// set. Returns who was removed, but for `by`.
    fn remove_registrations(
        &mut self,
        by: &NexusIdentity,
        keep_own: bool,
        chosen: impl Fn(&Registration) -> bool,
    ) -> Vec<NexusIdentity> {
        let mut removed = Vec::new();
        self.registrations.retain(|one| {
            let own = one.identity == *by;
            let goes = chosen(one) && !(own && keep_own);
            if goes && !own {
                removed.push(one.identity.clone());
            }
            !goes
        });
        removed
    }

    /// Removes all registrations with this key and leaves the reservation (SPC-4 §5.12.11.2.4.3).
    /// Not for the key of a sole holder.
    pub fn preempt_registrations(&mut self, by: &NexusIdentity, key: u64) -> Vec<Notice> {
        let removed = self.remove_registrations(by, false, |one| one.key == key);
        if self.registrations.is_empty() {
            self.reservation = None;
        }
        notices(removed, NoticeEvent::RegistrationsPreempted)
    }

    /// Removes the holder of the reservation with all registrants that have its key, or all other
    /// registrants of an All Registrants reservation, and puts a reservation of `by` in its place
    /// (SPC-4 §5.12.11.2.4.2).
    pub fn preempt_reservation(
        &mut self,
        by: &NexusIdentity,
        kind: ReservationType,
    ) -> Vec<Notice> {
        let before = self.reservation.take();
        let holder_key = before
            .as_ref()
            .and_then(|reservation| reservation.holder.as_ref())
            .and_then(|holder| self.key_of(holder));
        let removed = self.remove_registrations(by, true, |one| {
            holder_key.is_none_or(|holder_key| one.key == holder_key)
        });
        let mut told = notices(removed, NoticeEvent::RegistrationsPreempted);
        if before.is_some_and(|before| before.kind != kind) {
            told.extend(self.notify_others(by, NoticeEvent::ReservationsReleased));
        }
        self.reserve(by, kind);
        told
    }

    /// Hands the reservation to another registrant, who gets this key (REGISTER AND MOVE).
    ///
    /// # Errors
    /// There is no room for another registrant.
    pub fn move_reservation(
        &mut self,
        from: &NexusIdentity,
        to: &NexusIdentity,
        key: u64,
        unregister: bool,
    ) -> Result<(), TableFull> {
        if unregister {
            self.registrations.retain(|one| one.identity != *from);
        }
        self.register(to, key)?;
        if let Some(reservation) = &mut self.reservation {
            reservation.holder = Some(to.clone());
        }
        Ok(())
    }

    fn drop_reservation(&mut self, by: &NexusIdentity) -> Vec<Notice> {
        match self.reservation.take() {
            Some(reservation) if reservation.kind.shared_by_registrants() => {
                self.notify_others(by, NoticeEvent::ReservationsReleased)
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn notify_others(&self, by: &NexusIdentity, event: NoticeEvent) -> Vec<Notice> {
        let others = self
            .registrations
            .iter()
            .map(|one| &one.identity)
            .filter(|one| *one != by);
        notices(others.cloned(), event)
    }
}

fn notices(to: impl IntoIterator<Item = NexusIdentity>, event: NoticeEvent) -> Vec<Notice> {
    to.into_iter().map(|to| Notice { to, event }).collect()
}
