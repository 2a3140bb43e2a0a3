//! Addresses and names of initiators, as both grammars mean them.

use crate::configuration::Draft;

/// SCST's targets listen on all addresses unless its options say otherwise.
pub(super) fn listen_everywhere(draft: &mut Draft) {
    if draft.iscsi.is_empty() {
        draft.portal("0.0.0.0:3260");
        draft.ledger.note("SCST's iSCSI target listens on all addresses, port 3260, unless iscsi-scstd's options say otherwise");
    }
}

/// Why a pattern of initiators cannot be taken over.
pub(super) fn pattern(name: &str) -> Result<String, &'static str> {
    if name.starts_with('!') {
        Err("rules name those that are admitted; exceptions (`!`) have no equivalent")
    } else if name.contains('#') {
        Err("initiators are admitted by name, not by address (`#`)")
    } else if crate::values::initiator_pattern(name) {
        Ok(name.to_ascii_lowercase())
    } else {
        Err("this is no pattern of iSCSI names")
    }
}
