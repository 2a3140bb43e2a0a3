//! A session's view of the exports: its logical units and their nexuses.

use std::sync::Arc;

use longshore_iscsi::session_parameters::SessionParameters;
use longshore_scsi::command::{Siblings, UnitIndex};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::unit::LogicalUnit;

use super::directory::EstablishedSession;
use crate::exports::Exports;
use crate::sessions::iscsi::SessionTicket;

/// A logical unit as this session knows it.
#[derive(Debug)]
pub(crate) struct LunEntry {
    pub number: u16,
    /// Index into [`Exports::units`].
    pub unit: usize,
    pub nexus: Arc<Nexus>,
}

/// What a connection keeps of its session.
#[derive(Debug)]
pub(crate) struct Session {
    pub ticket: SessionTicket,
    /// Index of the target; `None` for discovery.
    pub target: Option<usize>,
    /// By ascending number.
    pub luns: Vec<LunEntry>,
}

impl Session {
    /// Attaches a session that has just logged in to its logical units.
    pub(crate) fn begin(
        exports: &Exports,
        established: EstablishedSession,
        parameters: &SessionParameters,
    ) -> Self {
        let EstablishedSession { ticket, target } = established;
        let mut luns = Vec::new();
        if let Some((index, config)) = target.map(|index| (index, &exports.targets[index]))
            && let Some(admission) = Exports::admission(config, &parameters.initiator_name)
        {
            let tag = parameters.portal_group_tag.map_or(0, |tag| tag.0);
            let port = exports.relative_target_port(index, tag);
            luns.extend(admission.luns.iter().map(|lun| LunEntry {
                number: lun.lun,
                unit: lun.volume,
                nexus: exports.units[lun.volume].logical_unit.attach(NexusPort {
                    initiator_name: parameters.initiator_name.as_str().to_owned(),
                    isid: parameters.isid.0,
                    relative_target_port: port,
                    target_port_name: format!("{},t,0x{tag:04x}", config.name.as_str()),
                    read_only: lun.read_only,
                }),
            }));
            luns.sort_by_key(|lun| lun.number);
        }
        Self {
            ticket,
            target,
            luns,
        }
    }

    /// The session is over: its nexuses are lost.
    pub(crate) fn end(&self, exports: &Exports) {
        for lun in &self.luns {
            exports.units[lun.unit].logical_unit.detach(&lun.nexus);
        }
    }

    /// Indices of the units it reaches, each once, ascending.
    pub(crate) fn units(&self) -> Vec<usize> {
        let mut units: Vec<usize> = self.luns.iter().map(|lun| lun.unit).collect();
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Index of the logical unit with that number.
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

    fn find(&self, designator: &[u8]) -> Option<UnitIndex> {
        let designated = |entry: &LunEntry| {
            self.exports.units[entry.unit]
                .logical_unit
                .is_designated_by(designator)
        };
        self.luns.iter().position(designated).map(UnitIndex)
    }

    fn unit(&self, index: UnitIndex) -> &Arc<LogicalUnit> {
        &self.exports.units[self.luns[index.0].unit].logical_unit
    }

    fn nexus(&self, index: UnitIndex) -> &Arc<Nexus> {
        &self.luns[index.0].nexus
    }
}
