//! LOG SENSE (SPC-4 §6.8) and the log pages (SPC-4 §7.3).
//!
//! | page | | where |
//! |---|---|---|
//! | 00h | supported log pages; subpage FFh: and subpages | everywhere |
//! | 0Ch | logical block provisioning | thin units that share space |
//!
//! No parameter can be changed, so all four sets of values (PC) are the same, and there is no LOG SELECT.

use crate::cdb::Cdb;
use crate::provisioning;
use crate::sense::Sense;
use crate::unit::LogicalUnit;

const SUPPORTED: u8 = 0x00;
const LOGICAL_BLOCK_PROVISIONING: u8 = 0x0c;
const ALL_SUBPAGES: u8 = 0xff;

/// DS: parameters are not saved.
const DS: u8 = 0x80;

/// SPF: the page has a subpage code.
const SPF: u8 = 0x40;

/// Pages and subpages of a unit, ascending.
fn supported(unit: &LogicalUnit) -> &'static [(u8, u8)] {
    const ALL: [(u8, u8); 3] = [
        (SUPPORTED, 0),
        (SUPPORTED, ALL_SUBPAGES),
        (LOGICAL_BLOCK_PROVISIONING, 0),
    ];
    let [pages @ .., _] = &ALL;
    if unit.config().has_thresholds() {
        &ALL
    } else {
        pages
    }
}

/// LOG SENSE. The allocation length cuts what it gives.
pub(crate) fn sense(cdb: Cdb, unit: &LogicalUnit, data_in: &mut Vec<u8>) -> Result<(), Sense> {
    let (code, subpage, first) = (cdb.bits(2, 0, 6), cdb.byte(3), cdb.be16(5));
    let pages = supported(unit);
    if !pages.iter().any(|(known, _)| *known == code) {
        return Err(Sense::invalid_field_in_cdb(2, 5));
    }
    if !pages.contains(&(code, subpage)) {
        return Err(Sense::invalid_field_in_cdb(3, 7));
    }
    let beyond = Sense::invalid_field_in_cdb(5, 7);
    let (head, body) = match (code, subpage) {
        (LOGICAL_BLOCK_PROVISIONING, _) => (
            DS | code,
            provisioning::log_parameters(unit, first).ok_or(beyond)?,
        ),
        // These have no parameters to begin at.
        _ if first != 0 => return Err(beyond),
        (_, ALL_SUBPAGES) => (
            SPF | code,
            pages.iter().flat_map(|(code, sub)| [*code, *sub]).collect(),
        ),
        _ => {
            let own = pages.iter().filter(|(_, subpage)| *subpage == 0);
            (code, own.map(|(code, _)| *code).collect())
        }
    };
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    data_in.extend([head, subpage]);
    data_in.extend(length.to_be_bytes());
    data_in.extend(body);
    Ok(())
}
