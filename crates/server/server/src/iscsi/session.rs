//! A session's view of the exports: its logical units and their nexuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_iscsi::session_parameters::SessionParameters;
use longshore_scsi::command::{Siblings, UnitIndex};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::unit::LogicalUnit;
use longshore_scsi::unit_attention::UnitAttention;
use uuid::Uuid;

use super::directory::EstablishedSession;
use crate::address::TargetId;
use crate::config::LunConfig;
use crate::exports::{Exports, Target};
use crate::observe::sessions::{MappedVolume, SessionId};
use crate::sessions::iscsi::SessionTicket;

/// The number of logical units that the session has no more. No LUN has it.
const GONE: u16 = u16::MAX;

/// A logical unit as this session knows it.
#[derive(Debug)]
pub(crate) struct LunEntry {
    pub number: u16,
    /// Place among the units of [`Exports`].
    pub unit: usize,
    pub nexus: Arc<Nexus>,
}

impl LunEntry {
    /// The session has it no more, but tasks of it may be under way.
    pub(crate) fn is_gone(&self) -> bool {
        self.number == GONE
    }
}

/// What other exports mean for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    Nothing,
    /// Other logical units, in the places that [`Session::renew`] told.
    Luns,
    /// Its initiator is not let in any more, or its target is no more. It has no logical units.
    Dismissed,
}

/// Places of logical units that have changed, by the old ones. `None`: no task was there.
pub(super) type Places = Vec<Option<usize>>;

/// What a connection keeps of its session.
#[derive(Debug)]
pub(crate) struct Session {
    pub ticket: SessionTicket,
    /// `None` in a discovery session.
    pub target: Option<TargetId>,
    /// By ascending number. Those that are gone are the last.
    pub luns: Vec<LunEntry>,
    /// Relative identifier of the port through which it came.
    port: Option<u16>,
    /// Volumes that had numbers in this session which they have no more.
    former: BTreeMap<u16, Uuid>,
    /// The version of the exports that it knows.
    pub revision: u64,
    /// For those who look at sessions.
    pub id: SessionId,
    /// When it began, in milliseconds since the shards started.
    pub since_ms: u64,
}

impl Session {
    /// Attaches a session that has just logged in to its logical units.
    pub(crate) fn begin(
        exports: &Exports,
        established: EstablishedSession,
        parameters: &SessionParameters,
        (id, since_ms): (SessionId, u64),
    ) -> Self {
        let EstablishedSession { ticket, target } = established;
        let mut session = Self {
            ticket,
            target,
            luns: Vec::new(),
            port: None,
            former: BTreeMap::new(),
            revision: exports.revision,
            id,
            since_ms,
        };
        let target = target.and_then(|id| exports.targets.get(id));
        let tag = parameters.portal_group_tag.map_or(0, |tag| tag.0);
        session.port = target.and_then(|target| target.relative_target_port(tag));
        if let Some(target) = target
            && let Some(admission) = target.admission(&parameters.initiator_name)
        {
            for lun in admission.luns {
                let entry = attach(exports, target, parameters, lun);
                session.luns.push(entry);
            }
            session.luns.sort_by_key(|lun| lun.number);
        }
        session
    }

    /// What its initiator sees.
    pub(super) fn volumes(&self, exports: &Exports) -> Vec<MappedVolume> {
        let luns = self.luns.iter().filter(|lun| !lun.is_gone());
        let volumes = luns.map(|lun| {
            let volume = &exports.unit(lun.unit).volume;
            MappedVolume {
                number: u32::from(lun.number),
                volume: volume.identity().name.clone(),
                read_only: lun.nexus.is_read_only() || volume.characteristics().read_only,
            }
        });
        volumes.collect()
    }

    /// Takes over what is exported now. Logical units that the session does not have any more lose their number, and
    /// stay for the tasks that refer to them until [`Self::forget_gone`].
    pub(super) fn renew(
        &mut self,
        exports: &Exports,
        parameters: &SessionParameters,
    ) -> (Renewed, Places) {
        let known = std::mem::replace(&mut self.revision, exports.revision);
        let Some(id) = self.target else {
            return (Renewed::Nothing, Vec::new());
        };
        let tag = parameters.portal_group_tag.map_or(0, |tag| tag.0);
        let target = exports.targets.get(id);
        // Its registrations name the port. With another identifier it would be another nexus, so it logs in again.
        let is_its_port = |target: &&Arc<Target>| {
            let port = target.relative_target_port(tag);
            port.is_some() && port == self.port
        };
        let target = target.filter(is_its_port);
        if target.is_some_and(|target| target.mapped <= known) {
            return (Renewed::Nothing, Vec::new());
        }
        let admitted =
            target.and_then(|target| Some((target, target.admission(&parameters.initiator_name)?)));
        let Some((target, admission)) = admitted else {
            let places = self.replace(BTreeMap::new(), |_| unreachable!("nothing is added"));
            return (Renewed::Dismissed, places);
        };
        let wanted: BTreeMap<u16, &LunConfig> =
            admission.luns.iter().map(|lun| (lun.lun, lun)).collect();
        let before = self.luns.iter().filter(|entry| !entry.is_gone());
        let is_same = |entry: &LunEntry| {
            let lun = wanted.get(&entry.number);
            lun.is_some_and(|lun| lun.volume == entry.unit)
        };
        let (mut kept, mut all) = (0, 0);
        for entry in before {
            all += 1;
            if is_same(entry) {
                kept += 1;
                let unit = &exports.unit(entry.unit).logical_unit;
                unit.set_read_only(&entry.nexus, wanted[&entry.number].read_only);
            }
        }
        if kept == all && kept == wanted.len() {
            return (Renewed::Nothing, Vec::new());
        }
        for entry in self.luns.iter().filter(|entry| !entry.is_gone()) {
            if !is_same(entry) {
                let uuid = exports.unit(entry.unit).volume.identity().uuid;
                self.former.insert(entry.number, uuid);
            }
        }
        let places = self.replace(wanted, |lun| attach(exports, target, parameters, lun));
        for entry in self.luns.iter().filter(|entry| !entry.is_gone()) {
            // Its initiator may have a disk at this number still, and take the volume for the former one.
            if let Some(former) = self.former.remove(&entry.number)
                && exports.unit(entry.unit).volume.identity().uuid != former
            {
                entry.nexus.establish(UnitAttention::InquiryDataChanged);
            }
            entry.nexus.establish(UnitAttention::ReportedLunsChanged);
        }
        (Renewed::Luns, places)
    }

    /// Keeps the logical units that are wanted, has the others gone, and adds those that are missing.
    fn replace(
        &mut self,
        mut wanted: BTreeMap<u16, &LunConfig>,
        add: impl Fn(&LunConfig) -> LunEntry,
    ) -> Places {
        let mut luns: Vec<(Option<usize>, LunEntry)> = Vec::new();
        for (place, mut entry) in std::mem::take(&mut self.luns).into_iter().enumerate() {
            let lun = wanted.get(&entry.number);
            if lun.is_some_and(|lun| lun.volume == entry.unit) {
                wanted.remove(&entry.number);
            } else {
                entry.number = GONE;
            }
            luns.push((Some(place), entry));
        }
        let added = wanted.into_values().map(|lun| (None, add(lun)));
        luns.extend(added);
        luns.sort_by_key(|(_, entry)| entry.number);
        let mut places = vec![None; luns.len()];
        for (place, (before, _)) in luns.iter().enumerate() {
            if let Some(before) = before {
                places[*before] = Some(place);
            }
        }
        self.luns = luns.into_iter().map(|(_, entry)| entry).collect();
        places
    }

    /// Forgets logical units that are gone and that no task refers to by its place. Returns where the others are
    /// now, and whether some are left that are gone.
    pub(super) fn forget_gone(
        &mut self,
        exports: &Exports,
        is_used: impl Fn(usize) -> bool,
    ) -> (Places, bool) {
        let mut places = Vec::new();
        let mut luns = Vec::new();
        let mut is_left = false;
        for (place, entry) in std::mem::take(&mut self.luns).into_iter().enumerate() {
            if entry.is_gone() && !is_used(place) {
                exports.unit(entry.unit).logical_unit.detach(&entry.nexus);
                places.push(None);
            } else {
                is_left |= entry.is_gone();
                places.push(Some(luns.len()));
                luns.push(entry);
            }
        }
        self.luns = luns;
        (places, is_left)
    }

    /// Whether it still refers to logical units that it has no more.
    pub(super) fn has_gone(&self) -> bool {
        self.luns.last().is_some_and(LunEntry::is_gone)
    }

    /// The session is over: its nexuses are lost.
    pub(crate) fn end(&self, exports: &Exports) {
        for lun in &self.luns {
            exports.unit(lun.unit).logical_unit.detach(&lun.nexus);
        }
    }

    /// Places of the units it reaches, each once, ascending.
    pub(crate) fn units(&self) -> Vec<usize> {
        let luns = self.luns.iter().filter(|lun| !lun.is_gone());
        let mut units: Vec<usize> = luns.map(|lun| lun.unit).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Place of the logical unit with that number.
    pub(crate) fn find_lun(&self, lun: Lun) -> Option<usize> {
        let number = lun.number()?;
        // Mostly they are numbered without gaps.
        let direct = usize::from(number);
        if self
            .luns
            .get(direct)
            .is_some_and(|entry| entry.number == number)
        {
            return Some(direct);
        }
        self.luns
            .binary_search_by_key(&number, |entry| entry.number)
            .ok()
    }
}

fn attach(
    exports: &Exports,
    target: &Target,
    parameters: &SessionParameters,
    lun: &LunConfig,
) -> LunEntry {
    let tag = parameters.portal_group_tag.map_or(0, |tag| tag.0);
    let port = target.relative_target_port(tag);
    let port = NexusPort {
        initiator_name: parameters.initiator_name.as_str().to_owned(),
        isid: parameters.isid.0,
        relative_target_port: port.expect("the login was refused at other portal groups"),
        target_port_name: format!("{},t,0x{tag:04x}", target.config.name.as_str()),
        read_only: lun.read_only,
    };
    LunEntry {
        number: lun.lun,
        unit: lun.volume,
        nexus: exports.unit(lun.volume).logical_unit.attach(port),
    }
}

/// The logical units a session reaches, for REPORT LUNS and EXTENDED COPY.
pub(crate) struct SessionSiblings<'a> {
    pub luns: &'a [LunEntry],
    pub exports: &'a Exports,
}

impl Siblings for SessionSiblings<'_> {
    fn luns(&self) -> Vec<Lun> {
        self.luns
            .iter()
            .filter_map(|entry| Lun::from_number(entry.number))
            .collect()
    }

    fn luns_reported(&self) {
        for entry in self.luns {
            let attention = UnitAttention::ReportedLunsChanged;
            entry.nexus.clear_unit_attention(attention);
        }
    }

    fn find(&self, designator: &[u8]) -> Option<UnitIndex> {
        let designated = |entry: &&LunEntry| {
            let unit = &self.exports.unit(entry.unit).logical_unit;
            !entry.is_gone() && unit.is_designated_by(designator)
        };
        let found = self.luns.iter().find(designated);
        found.map(|entry| UnitIndex(entry.unit))
    }

    fn unit(&self, index: UnitIndex) -> &Arc<LogicalUnit> {
        &self.exports.unit(index.0).logical_unit
    }

    fn nexus(&self, index: UnitIndex) -> &Arc<Nexus> {
        let mut luns = self.luns.iter();
        let entry = luns.find(|entry| entry.unit == index.0 && !entry.is_gone());
        &entry.expect("it was found just now").nexus
    }
}
