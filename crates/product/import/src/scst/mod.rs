//! SCST: `scst.conf` in both grammars.

mod blocks;
mod device;
mod procfs;
mod sysfs;

use crate::configuration::Draft;
use crate::{ImportError, Options, Source};

pub(crate) fn read(
    source: &Source,
    options: &Options<'_>,
    draft: &mut Draft,
) -> Result<(), ImportError> {
    let section = |line: &str| line.trim_start().starts_with('[');
    if source.text.lines().any(section) {
        procfs::read(source, options, draft)
    } else {
        sysfs::read(source, options, draft)
    }
}

/// All initiators: SCST's targets listen on all addresses unless told otherwise.
fn listen_everywhere(draft: &mut Draft) {
    if draft.iscsi.is_empty() {
        draft.portal("0.0.0.0:3260");
        draft.ledger.note("SCST's iSCSI target listens on all addresses, port 3260, unless iscsi-scstd's options say otherwise");
    }
}

/// Why a pattern of initiators cannot be taken over.
fn pattern(name: &str) -> Result<String, &'static str> {
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
