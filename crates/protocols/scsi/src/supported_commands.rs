//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 §6.35,
//! §6.36), from the one command table.

use crate::cdb::Cdb;
use crate::command_table::{self, CommandDescription, TABLE};
use crate::sense::Sense;
use crate::unit_config::LogicalUnitConfig;

/// Values of REPORTING OPTIONS (SPC-4 §6.35).
mod reporting {
    pub(super) const ALL: u8 = 0b000;
    pub(super) const OPERATION_CODE: u8 = 0b001;
    pub(super) const SERVICE_ACTION: u8 = 0b010;
    pub(super) const EITHER: u8 = 0b011;
}

/// SUPPORT field: not supported, or supported as the standard says.
const NOT_SUPPORTED: u8 = 0b001;
const SUPPORTED: u8 = 0b011;

/// REPORT SUPPORTED OPERATION CODES.
pub(crate) fn operation_codes(
    cdb: Cdb,
    config: &LogicalUnitConfig,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    let timeouts = cdb.flag(2, 7);
    let (operation_code, service_action) = (cdb.byte(3), cdb.be16(4));
    let commands = command_table::commands(operation_code);
    let has_actions = commands
        .iter()
        .any(|command| command.service_action.is_some());
    let by_action = match cdb.bits(2, 0, 3) {
        reporting::ALL => {
            all_commands(timeouts, config, data_in);
            return Ok(());
        }
        reporting::OPERATION_CODE if has_actions => return Err(Sense::invalid_field_in_cdb(2, 2)),
        reporting::OPERATION_CODE => false,
        reporting::SERVICE_ACTION if !has_actions && !commands.is_empty() => {
            return Err(Sense::invalid_field_in_cdb(2, 2));
        }
        reporting::SERVICE_ACTION => true,
        // Of a command without service actions only "service action 0" exists.
        reporting::EITHER => has_actions || service_action != 0,
        _ => return Err(Sense::invalid_field_in_cdb(2, 2)),
    };
    let found = commands
        .iter()
        .filter(|command| command.is_supported(config))
        .find(|command| {
            let action = command.service_action.map(u16::from);
            !by_action || action == Some(service_action)
        });
    one_command(found, timeouts, data_in);
    Ok(())
}

/// Command descriptors: operation code, service action, CTDP and SERVACTV, CDB length.
fn all_commands(timeouts: bool, config: &LogicalUnitConfig, data_in: &mut Vec<u8>) {
    let start = data_in.len();
    data_in.extend([0; 4]);
    for command in TABLE.iter().filter(|command| command.is_supported(config)) {
        let action = command.service_action;
        let flags = (u8::from(timeouts) << 1) | u8::from(action.is_some());
        data_in.extend([
            command.operation_code(),
            0,
            0,
            action.unwrap_or(0),
            0,
            flags,
        ]);
        data_in.extend([0, command.cdb_length()]);
        if timeouts {
            push_timeouts(command, data_in);
        }
    }
    let length = u32::try_from(data_in.len() - start - 4).unwrap_or(u32::MAX);
    data_in[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// CTDP and SUPPORT, CDB SIZE, CDB USAGE DATA.
fn one_command(command: Option<&CommandDescription>, timeouts: bool, data_in: &mut Vec<u8>) {
    let Some(command) = command else {
        data_in.extend([0, NOT_SUPPORTED, 0, 0]);
        return;
    };
    data_in.extend([
        0,
        (u8::from(timeouts) << 7) | SUPPORTED,
        0,
        command.cdb_length(),
    ]);
    data_in.extend(command.usage);
    if timeouts {
        push_timeouts(command, data_in);
    }
}

fn push_timeouts(command: &CommandDescription, data_in: &mut Vec<u8>) {
    let (nominal, recommended) = command.duration.timeouts_s();
    data_in.extend([0, 0x0a, 0, 0]);
    data_in.extend(nominal.to_be_bytes());
    data_in.extend(recommended.to_be_bytes());
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS: ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL
/// UNIT RESET, and (obsolete in SAM, alive in iSCSI) TARGET RESET.
pub(crate) fn task_management_functions(cdb: Cdb, data_in: &mut Vec<u8>) {
    const ATS: u8 = 0x80;
    const ATSS: u8 = 0x40;
    const CTSS: u8 = 0x10;
    const LURS: u8 = 0x08;
    const TRS: u8 = 0x02;
    data_in.extend([ATS | ATSS | CTSS | LURS | TRS, 0, 0, 0]);
    if cdb.flag(2, 7) {
        // REPD: the extended format; no timeouts are indicated.
        data_in[3] = 12;
        data_in.extend([0; 12]);
    }
}
