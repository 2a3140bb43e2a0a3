//! Reservation Report: who is registered, and what is reserved.
//!
//! ```text
//! header                                               for each registrant
//!  0..3   Generation (GEN)                              0..1   Controller ID (CNTLID)
//!  4      Reservation Type (RTYPE), 0: none             2      Reservation Status (RCSTS): holds it (0)
//!  5..6   Number of Registered Controllers (REGCTL)     8..15  Reservation Key (RKEY)
//!  9      Persist Through Power Loss State (PTPLS)     16..31  Host Identifier (HOSTID)
//! 10..63  reserved                                     32..63  reserved
//! ```
//!
//! That is the extended structure. The other one has no room for a Host Identifier of 128 bits, and
//! all hosts of fabrics have those: it is refused with Host Identifier Inconsistent Format.
//!
//! Controllers come and go (CNTLID FFFFh, dynamic), so each registrant is listed once, however many
//! controllers its host has.

use std::sync::Arc;

use longshore_block::reservation::{NexusIdentity, Relation, ReservationTable, Reservations};
use longshore_wire::field::{set_bytes, set_le16, set_le32, set_le64};
use uuid::Uuid;

use super::type_code;
use crate::command::SubmissionEntry;
use crate::status::Status;

const HEADER_LENGTH: usize = 64;
const REGISTRANT_LENGTH: usize = 64;
const DYNAMIC_CONTROLLER: u16 = 0xffff;

/// What Host Identifiers of registrants of other protocols are made from.
const OTHER_PROTOCOLS: Uuid = Uuid::from_u128(0x5ff8_7a0e_2b5c_4d3a_9a57_6c1b_7e0d_41c6);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    length: u64,
}

impl Report {
    /// Decodes the command.
    ///
    /// # Errors
    /// The status of one that cannot be answered.
    pub fn begin(entry: &SubmissionEntry) -> Result<Self, Status> {
        let extended = entry.dword(11) & 1 != 0;
        if !extended {
            return Err(Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT.do_not_retry());
        }
        Ok(Self {
            length: (u64::from(entry.dword(10)) + 1) * 4,
        })
    }

    /// Bytes the host asks for (NUMD).
    #[must_use]
    pub fn data_length(&self) -> u64 {
        self.length
    }

    /// Appends the report, cut or filled up with zeros to what the host asks for, but at most
    /// `length_max` bytes.
    pub fn execute(&self, reservations: &Arc<Reservations>, length_max: usize, out: &mut Vec<u8>) {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let end = out.len() + length.min(length_max);
        encode(reservations.lock().table(), out);
        out.resize(end, 0);
    }
}

pub(super) fn encode(table: &ReservationTable, out: &mut Vec<u8>) {
    let registrations = table.registrations();
    let mut header = [0; HEADER_LENGTH];
    set_le32(&mut header, 0, table.generation());
    header[4] = table.reservation().map_or(0, |held| type_code(held.kind));
    let count = u16::try_from(registrations.len()).expect("registrations are limited in number");
    set_le16(&mut header, 5, count);
    header[9] = u8::from(table.persists());
    out.extend_from_slice(&header);
    for registration in registrations {
        let holds = table.reservation().is_some()
            && table.relation(&registration.identity) == Relation::Holder;
        let mut entry = [0; REGISTRANT_LENGTH];
        set_le16(&mut entry, 0, DYNAMIC_CONTROLLER);
        entry[2] = u8::from(holds);
        set_le64(&mut entry, 8, registration.key);
        set_bytes(
            &mut entry,
            16,
            reported_host_identifier(&registration.identity),
        );
        out.extend_from_slice(&entry);
    }
}

/// The Host Identifier under which a registrant is reported.
///
/// An iSCSI nexus has none, and gets one that is always the same for it and that no host has by
/// chance: the UUID of version 5 of `iscsi:` with initiator port and relative target port, such as
/// `iscsi:iqn.2026-11.local.host:1,i,0x800000000001,1`.
#[must_use]
pub fn reported_host_identifier(identity: &NexusIdentity) -> [u8; 16] {
    match identity {
        NexusIdentity::NvmeHost { host_identifier } => *host_identifier,
        NexusIdentity::Iscsi {
            initiator_name,
            isid,
            relative_target_port,
        } => {
            let [a, b, c, d, e, f] = isid;
            let name = format!(
                "iscsi:{initiator_name},i,0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x},{relative_target_port}"
            );
            Uuid::new_v5(&OTHER_PROTOCOLS, name.as_bytes()).into_bytes()
        }
    }
}
