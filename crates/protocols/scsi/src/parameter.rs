//! Commands that exchange parameter data and leave the medium alone.

use std::sync::Arc;

use crate::cdb::Cdb;
use crate::command_table::CommandKind;
use crate::completion::Completion;
use crate::lun::Lun;
use crate::nexus::Nexus;
use crate::sense::{AdditionalSense, Sense, SenseFormat, SenseKey};
use crate::step::{Buffers, Siblings};
use crate::unit::LogicalUnit;
use crate::unit_attention::UnitAttention;
use crate::{
    capacity, extended_copy, inquiry, log_page, mode, reservation, supported_commands,
    target_port_groups,
};

/// A command of this kind, waiting for its only step.
#[derive(Debug)]
pub(crate) struct Parameter {
    operation: CommandKind,
    cdb: Cdb,
    nexus: Option<Arc<Nexus>>,
}

impl Parameter {
    pub(crate) fn new(operation: CommandKind, cdb: Cdb, nexus: Option<&Arc<Nexus>>) -> Self {
        Self {
            operation,
            cdb,
            nexus: nexus.cloned(),
        }
    }

    /// Carries it out. `transfer_length`: allocation length or parameter list length.
    pub(crate) fn execute(
        &self,
        unit: Option<&LogicalUnit>,
        buffers: &mut Buffers<'_>,
        siblings: &dyn Siblings,
        transfer_length: u64,
    ) -> Completion {
        let result = match (unit, &self.nexus) {
            (Some(unit), Some(nexus)) => {
                self.for_unit(unit, nexus, buffers, siblings, transfer_length)
            }
            _ => self.without_unit(buffers.data_in, siblings),
        };
        result.err().unwrap_or(Completion::GOOD)
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all other commands have no parameter data"
    )]
    fn for_unit(
        &self,
        unit: &LogicalUnit,
        nexus: &Arc<Nexus>,
        buffers: &mut Buffers<'_>,
        siblings: &dyn Siblings,
        transfer_length: u64,
    ) -> Result<(), Completion> {
        let cdb = self.cdb;
        let data_in = &mut *buffers.data_in;
        match self.operation {
            CommandKind::Inquiry => inquiry::inquiry(cdb, unit, nexus.port(), data_in)?,
            CommandKind::RequestSense => {
                let sense = match nexus.take_unit_attention() {
                    Some(attention) => Sense::unit_attention(attention.additional_sense()),
                    None => unit.sanitize_sense().unwrap_or(NO_SENSE),
                };
                request_sense(cdb, sense, data_in);
            }
            CommandKind::ReportLuns => {
                report_luns(cdb, siblings, data_in)?;
                // SAM-5 §5.14.7: who reads the list knows of its change.
                nexus.clear_unit_attention(UnitAttention::ReportedLunsChanged);
            }
            CommandKind::ModeSense6 | CommandKind::ModeSense10 => {
                mode::sense(self.operation, cdb, unit, nexus, data_in)?;
            }
            CommandKind::ModeSelect6 | CommandKind::ModeSelect10 => {
                let list = usize::try_from(transfer_length)
                    .ok()
                    .and_then(|length| buffers.data_out.get(..length))
                    .ok_or(Sense::parameter_list_length_error())?;
                mode::select(self.operation, list, unit, nexus)?;
            }
            CommandKind::LogSense => log_page::sense(cdb, unit, data_in)?,
            CommandKind::ReadCapacity10 => capacity::read_capacity_10(cdb, unit, data_in)?,
            CommandKind::ReadCapacity16 => capacity::read_capacity_16(cdb, unit, data_in)?,
            CommandKind::ReadDefectData10 => {
                data_in.extend([0, defect_list_header(cdb.byte(2)), 0, 0]);
            }
            CommandKind::ReadDefectData12 => {
                data_in.extend([0, defect_list_header(cdb.byte(1)), 0, 0, 0, 0, 0, 0]);
            }
            CommandKind::ReportTargetPortGroups => {
                target_port_groups::report(cdb, unit, nexus.port(), data_in)?;
            }
            CommandKind::ReportSupportedOperationCodes => {
                supported_commands::operation_codes(cdb, unit.config(), data_in)?;
            }
            CommandKind::ReportSupportedTaskManagementFunctions => {
                supported_commands::task_management_functions(cdb, data_in);
            }
            CommandKind::PersistentReserveIn => {
                reservation::persistent_in::persistent_reserve_in(unit, cdb.as_bytes(), data_in)?;
            }
            CommandKind::ReceiveCopyResults => {
                let (action, list) = (cdb.service_action(), cdb.byte(2));
                extended_copy::receive_copy_results(unit, nexus, action, list, data_in)?;
            }
            CommandKind::Reserve6 => reservation::legacy::reserve(unit, nexus)?,
            CommandKind::Release6 => reservation::legacy::release(unit, nexus)?,
            _ => return Err(Sense::invalid_operation_code().into()),
        }
        Ok(())
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all other commands need a logical unit"
    )]
    fn without_unit(
        &self,
        data_in: &mut Vec<u8>,
        siblings: &dyn Siblings,
    ) -> Result<(), Completion> {
        match self.operation {
            CommandKind::Inquiry => inquiry::without_unit(self.cdb, data_in)?,
            CommandKind::ReportLuns => report_luns(self.cdb, siblings, data_in)?,
            // SPC-4 §6.39: the sense data is the answer, and the command succeeds.
            CommandKind::RequestSense => {
                request_sense(self.cdb, Sense::logical_unit_not_supported(), data_in);
            }
            _ => return Err(Sense::logical_unit_not_supported().into()),
        }
        Ok(())
    }
}

const NO_SENSE: Sense = Sense::new(SenseKey::NoSense, AdditionalSense::NONE);

/// REQUEST SENSE (SPC-4 §6.39). DESC chooses the format here, D_SENSE has no say.
fn request_sense(cdb: Cdb, sense: Sense, data_in: &mut Vec<u8>) {
    let format = if cdb.flag(1, 0) {
        SenseFormat::Descriptor
    } else {
        SenseFormat::Fixed
    };
    data_in.extend_from_slice(&sense.to_bytes(format));
}

/// REPORT LUNS (SPC-4 §6.33). We have no well known logical units.
fn report_luns(cdb: Cdb, siblings: &dyn Siblings, data_in: &mut Vec<u8>) -> Result<(), Completion> {
    let luns: Vec<Lun> = match cdb.byte(2) {
        0x00 | 0x02 => siblings.luns(),
        0x01 => Vec::new(),
        _ => return Err(Sense::invalid_field_in_cdb(2, 7).into()),
    };
    siblings.luns_reported();
    let length = u32::try_from(luns.len() * 8).unwrap_or(u32::MAX - 7);
    data_in.extend(length.to_be_bytes());
    data_in.extend([0; 4]);
    for lun in luns {
        data_in.extend(lun.0);
    }
    Ok(())
}

/// READ DEFECT DATA (SBC-3): the lists asked for are there and empty. Byte 1 of the header:
/// PLISTV, GLISTV and the format, as in the CDB.
fn defect_list_header(request: u8) -> u8 {
    request & 0x1f
}
