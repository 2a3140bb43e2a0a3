//! PERSISTENT RESERVE IN (SPC-4 §6.15): who is registered, and what is reserved.

use crate::completion::Completion;
use crate::sense::Sense;
use crate::status::Status;
use crate::unit::LogicalUnit;

use super::table::Reservation;
use super::{NexusIdentity, ReservationTable, ReservationType, transport_id};

/// Appends the whole parameter data; the caller cuts it at the allocation length.
///
/// # Errors
/// The completion: RESERVATION CONFLICT while RESERVE (6) holds (SPC-2 §5.5.1), or INVALID FIELD IN
/// CDB for a service action that does not exist.
pub(crate) fn persistent_reserve_in(
    unit: &LogicalUnit,
    cdb: &[u8],
    data_in: &mut Vec<u8>,
) -> Result<(), Completion> {
    let locked = unit.reservations().lock();
    if locked.is_reserved_by_legacy() {
        return Err(Status::RESERVATION_CONFLICT.into());
    }
    let table = locked.table();
    match cdb.get(1).copied().unwrap_or(0) & 0x1f {
        0 => read_keys(table, data_in),
        1 => read_reservation(table, data_in),
        2 => {
            let can_store = unit.config().persistent_reservations_store;
            data_in.extend_from_slice(&report_capabilities(table, can_store));
        }
        3 => read_full_status(table, data_in),
        _ => return Err(Sense::invalid_field_in_cdb(1, 4).into()),
    }
    Ok(())
}

/// PRGENERATION and ADDITIONAL LENGTH, then the list.
fn with_header(table: &ReservationTable, data_in: &mut Vec<u8>, list: impl FnOnce(&mut Vec<u8>)) {
    data_in.extend_from_slice(&table.generation().to_be_bytes());
    let length_at = data_in.len();
    data_in.extend_from_slice(&[0; 4]);
    list(data_in);
    set_length(data_in, length_at);
}

/// Fills in a 4-byte length field with the number of bytes that follow it.
fn set_length(data: &mut [u8], at: usize) {
    let length = u32::try_from(data.len() - at - 4).expect("registrations are limited in number");
    data[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn read_keys(table: &ReservationTable, data_in: &mut Vec<u8>) {
    with_header(table, data_in, |list| {
        for registration in table.registrations() {
            list.extend_from_slice(&registration.key.to_be_bytes());
        }
    });
}

/// SCOPE (always LU_SCOPE, 0h) and TYPE.
fn scope_and_type(reservation: &Reservation) -> u8 {
    reservation.kind.scsi_code()
}

fn read_reservation(table: &ReservationTable, data_in: &mut Vec<u8>) {
    with_header(table, data_in, |list| {
        let Some(reservation) = table.reservation() else {
            return;
        };
        // Of an All Registrants type no single key holds the reservation: zero.
        let holder = reservation.holder.as_ref();
        let key = holder.and_then(|holder| table.key_of(holder)).unwrap_or(0);
        list.extend_from_slice(&key.to_be_bytes());
        list.extend_from_slice(&[0, 0, 0, 0, 0, scope_and_type(reservation), 0, 0]);
    });
}

/// REPORT CAPABILITIES parameter data (SPC-4 Table 209).
fn report_capabilities(table: &ReservationTable, can_store: bool) -> [u8; 8] {
    const COMPATIBLE_RESERVATION_HANDLING: u8 = 1 << 4;
    const SPECIFY_INITIATOR_PORTS_CAPABLE: u8 = 1 << 3;
    const ALL_TARGET_PORTS_CAPABLE: u8 = 1 << 2;
    const PERSIST_THROUGH_POWER_LOSS_CAPABLE: u8 = 1;
    const TYPE_MASK_VALID: u8 = 1 << 7;
    /// TEST UNIT READY is allowed under every type; nothing is said about others.
    const ALLOW_COMMANDS: u8 = 0b001 << 4;

    let capable = if can_store {
        PERSIST_THROUGH_POWER_LOSS_CAPABLE
    } else {
        0
    };
    let [types_high, types_low] = ReservationType::ALL
        .into_iter()
        .fold(0, |mask, kind| mask | type_mask_bit(kind))
        .to_be_bytes();
    [
        0,
        8,
        COMPATIBLE_RESERVATION_HANDLING
            | SPECIFY_INITIATOR_PORTS_CAPABLE
            | ALL_TARGET_PORTS_CAPABLE
            | capable,
        TYPE_MASK_VALID | ALLOW_COMMANDS | u8::from(table.persists()),
        types_high,
        types_low,
        0,
        0,
    ]
}

/// PERSISTENT RESERVATION TYPE MASK (SPC-4 Table 211): the first byte counts from bit 0 for type 0,
/// the second from bit 0 for type 8.
fn type_mask_bit(kind: ReservationType) -> u16 {
    match kind.scsi_code() {
        code @ 0..=7 => 0x100 << code,
        code => 1 << (code - 8),
    }
}

fn read_full_status(table: &ReservationTable, data_in: &mut Vec<u8>) {
    with_header(table, data_in, |list| {
        for registration in table.registrations() {
            let held = table.reservation().filter(|reservation| {
                reservation
                    .holder
                    .as_ref()
                    .is_none_or(|holder| *holder == registration.identity)
            });
            list.extend_from_slice(&registration.key.to_be_bytes());
            list.extend_from_slice(&[0; 4]);
            // ALL_TG_PT is zero: registrations on all ports are kept one by one.
            list.push(u8::from(held.is_some()));
            list.push(held.map_or(0, scope_and_type));
            list.extend_from_slice(&[0; 4]);
            full_status_identity(&registration.identity, list);
        }
    });
}

/// RELATIVE TARGET PORT IDENTIFIER, ADDITIONAL DESCRIPTOR LENGTH, TransportID.
fn full_status_identity(identity: &NexusIdentity, list: &mut Vec<u8>) {
    match identity {
        NexusIdentity::Iscsi {
            initiator_name,
            isid,
            relative_target_port,
        } => {
            list.extend_from_slice(&relative_target_port.to_be_bytes());
            let length_at = list.len();
            list.extend_from_slice(&[0; 4]);
            transport_id::encode_initiator_port(initiator_name, *isid, list);
            set_length(list, length_at);
        }
        // No SCSI port: no TransportID can name it.
        NexusIdentity::NvmeHost { .. } => list.extend_from_slice(&[0; 6]),
    }
}
