//! REPORT TARGET PORT GROUPS (SPC-4 §6.37) of implicit asymmetric logical unit access (SPC-4 §5.15).
//!
//! Every target port reaches a unit equally well, always. So there is one target port group with all ports, in the state
//! active/optimized, which nothing changes: TPGS of the standard INQUIRY data is 01b, and SET TARGET PORT GROUPS is not
//! supported. Hosts that choose paths by this state (`prio alua` of multipath) find all of them equal.
//!
//! ```text
//! bytes  length only header          extended header (PARAMETER DATA FORMAT 001b)
//! 0..4   RETURN DATA LENGTH          RETURN DATA LENGTH
//! 4      first descriptor            001b in bits 6..4
//! 5                                  IMPLICIT TRANSITION TIME in seconds
//! 8                                  first descriptor
//!
//! descriptor
//! 0      PREF (bit 7), ASYMMETRIC ACCESS STATE (bits 3..0)
//! 1      supported states
//! 2..4   TARGET PORT GROUP
//! 5      STATUS CODE
//! 7      TARGET PORT COUNT
//! 8..    for each port: 2 bytes obsolete, RELATIVE TARGET PORT IDENTIFIER
//! ```

use crate::cdb::Cdb;
use crate::nexus::NexusPort;
use crate::sense::Sense;
use crate::unit::{LogicalUnit, MAX_TARGET_PORTS};

/// TPGS of the standard INQUIRY data in place: implicit asymmetric logical unit access.
pub(crate) const TPGS_IMPLICIT: u8 = 0x10;

/// TARGET PORT GROUP of every port, also in VPD page 83h.
pub(crate) const TARGET_PORT_GROUP: u16 = 1;

/// Values of PARAMETER DATA FORMAT.
mod format {
    pub(super) const LENGTH_ONLY: u8 = 0b000;
    pub(super) const EXTENDED: u8 = 0b001;
}

/// Answers REPORT TARGET PORT GROUPS that comes through `port`.
pub(crate) fn report(
    cdb: Cdb,
    unit: &LogicalUnit,
    port: &NexusPort,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    let start = data_in.len();
    data_in.extend([0; 4]);
    match cdb.bits(1, 5, 3) {
        format::LENGTH_ONLY => {}
        // IMPLICIT TRANSITION TIME: not specified, as there are no transitions.
        format::EXTENDED => data_in.extend([format::EXTENDED << 4, 0, 0, 0]),
        _ => return Err(Sense::invalid_field_in_cdb(1, 7)),
    }
    group(&unit.target_ports(port.relative_target_port), data_in);
    let length = u32::try_from(data_in.len() - start - 4).unwrap_or(u32::MAX);
    data_in[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The descriptor of the one target port group.
fn group(ports: &[u16], data_in: &mut Vec<u8>) {
    /// PREF is zero: no group is better than another.
    const ACTIVE_OPTIMIZED: u8 = 0x0;
    const AO_SUP: u8 = 0x01;
    const NO_STATUS: u8 = 0;
    const _: () = assert!(MAX_TARGET_PORTS <= 255, "TARGET PORT COUNT has one byte");

    let [high, low] = TARGET_PORT_GROUP.to_be_bytes();
    data_in.extend([ACTIVE_OPTIMIZED, AO_SUP, high, low, 0, NO_STATUS, 0]);
    data_in.push(u8::try_from(ports.len()).unwrap_or(u8::MAX));
    for port in ports {
        let [high, low] = port.to_be_bytes();
        data_in.extend([0, 0, high, low]);
    }
}
