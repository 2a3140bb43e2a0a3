//! Get Log Page (NVMe base 2.0 §5.16): what happened, and how things are.
//!
//! | page | | |
//! |---|---|---|
//! | 00h Supported Log Pages | `supported` | |
//! | 01h Error Information | `error` | of this controller |
//! | 02h SMART / Health Information | `health` | of the controller or a namespace |
//! | 03h Firmware Slot Information | `supported` | one slot |
//! | 04h Changed Namespace List | `changes` | |
//! | 05h Commands Supported and Effects | `supported` | |
//! | 0Ch Asymmetric Namespace Access | `changes` | one group, optimized |
//! | 12h Feature Identifiers Supported and Effects | `supported` | |
//! | 13h NVMe-MI Commands Supported and Effects | `supported` | none |
//! | 70h Discovery | `discovery` | |
//! | 80h Reservation Notification | [`NotificationLog`](crate::reservation::NotificationLog) | |
//! | 81h Sanitize Status | `sanitize` of the controller | of the subsystem |
//!
//! A controller of discovery has 00h, 01h, 12h, 13h and 70h. Each command generates its page, so a page read in
//! pieces may change between them; the discovery log page has a generation counter for that. Bytes beyond the end of
//! a page are zeros.

mod changes;
mod discovery;
pub(super) mod error;
mod health;
mod supported;

pub(super) use error::ENTRIES as ERROR_ENTRIES;
pub use error::ErrorRecord;

use super::admin_command::{AdminOutcome, DONE, Request};
use super::failure::Failure;
use super::log_page_id::{
    LOG_ANA, LOG_CHANGED_NAMESPACES, LOG_COMMAND_EFFECTS, LOG_DISCOVERY, LOG_ERROR,
    LOG_FEATURE_EFFECTS, LOG_FIRMWARE, LOG_HEALTH, LOG_MANAGEMENT_EFFECTS, LOG_RESERVATION,
    LOG_SANITIZE, LOG_SUPPORTED,
};
use super::state::{Controller, State};
use crate::command::SubmissionEntry;
use crate::status::Status;

/// Bytes of the entry at which LID, NUMD and the offset are.
const LOG_PAGE_AT: u16 = 40;
const LENGTH_AT: u16 = 42;
const OFFSET_AT: u16 = 48;

/// Fields of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogPageRequest {
    log_page: u8,
    /// LSP: Log Specific Parameter, 7 bits.
    specific: u8,
    /// RAE: events that go with the page stay masked.
    retain_event: bool,
    /// NUMD as the true count, in bytes.
    pub(super) length: u64,
    /// LPO in bytes, or an index if OT is set.
    offset: u64,
    /// OT: the offset counts entries instead of bytes.
    is_index: bool,
    /// CSI: Command Set Identifier, 0 for NVM.
    command_set: u8,
}

impl LogPageRequest {
    pub(super) fn decode(entry: &SubmissionEntry) -> Self {
        let [log_page, flags, _, _] = entry.dword(10).to_le_bytes();
        let dwords = entry.dword(10) >> 16 | (entry.dword(11) & 0xffff) << 16;
        Self {
            log_page,
            specific: flags & 0x7f,
            retain_event: flags & 0x80 != 0,
            length: (u64::from(dwords) + 1) * 4,
            offset: entry.qword(12),
            is_index: entry.dword(14) >> 23 & 1 != 0,
            command_set: entry.dword(14).to_le_bytes()[3],
        }
    }
}

impl Controller {
    fn has_log_page(&self, log_page: u8) -> bool {
        match log_page {
            LOG_SUPPORTED | LOG_ERROR | LOG_FEATURE_EFFECTS | LOG_MANAGEMENT_EFFECTS => true,
            LOG_HEALTH
            | LOG_FIRMWARE
            | LOG_CHANGED_NAMESPACES
            | LOG_COMMAND_EFFECTS
            | LOG_ANA
            | LOG_RESERVATION => !self.is_discovery(),
            LOG_DISCOVERY => self.is_discovery(),
            LOG_SANITIZE => self.sanitizes(),
            _ => false,
        }
    }

    pub(super) fn get_log_page(
        &self,
        state: &mut State,
        request: &mut Request,
    ) -> Result<AdminOutcome, Failure> {
        let wanted = LogPageRequest::decode(request.entry);
        if !self.has_log_page(wanted.log_page) {
            return Err(Failure::at(Status::INVALID_LOG_PAGE, LOG_PAGE_AT));
        }
        let length = usize::try_from(wanted.length)
            .ok()
            .filter(|_| wanted.length <= u64::from(self.subsystem.limits.transfer_bytes()));
        let length = length.ok_or(Failure::field(LENGTH_AT))?;
        // Offsets are in dwords, and no page of ours can be read by index.
        if wanted.is_index || !wanted.offset.is_multiple_of(4) {
            return Err(Failure::field(OFFSET_AT));
        }
        // Before anything is read: a page may be there once only.
        if request.out.try_reserve_exact(length).is_err() {
            return Err(Failure::of(Status::COMMAND_INTERRUPTED));
        }
        let page = self.log_page(state, request, wanted)?;
        let offset = usize::try_from(wanted.offset).ok();
        let rest = offset.and_then(|offset| page.get(offset..));
        let rest = rest.ok_or(Failure::field(OFFSET_AT))?;
        let end = request.out.len() + length;
        request
            .out
            .extend_from_slice(&rest[..rest.len().min(length)]);
        request.out.resize(end, 0);
        if !wanted.retain_event {
            self.log_page_read(state, wanted.log_page);
        }
        Ok(DONE)
    }

    fn log_page(
        &self,
        state: &State,
        request: &Request,
        wanted: LogPageRequest,
    ) -> Result<Vec<u8>, Failure> {
        Ok(match wanted.log_page {
            LOG_SUPPORTED => self.supported_log_pages(),
            LOG_ERROR => state.errors.page(),
            LOG_HEALTH => self.health_log(state, request)?,
            LOG_FIRMWARE => self.firmware_log(),
            LOG_CHANGED_NAMESPACES => state.changed_namespaces_log(),
            LOG_COMMAND_EFFECTS => {
                supported::command_effects(wanted.command_set, self.sanitizes())?
            }
            LOG_ANA => self.asymmetric_access_log(wanted.specific),
            LOG_FEATURE_EFFECTS => self.feature_effects(),
            LOG_MANAGEMENT_EFFECTS => vec![0; supported::EFFECTS_BYTES],
            LOG_DISCOVERY => self.discovery_log(request.environment),
            LOG_SANITIZE => self.sanitize_log(),
            LOG_RESERVATION => self.reservations.read(wanted.retain_event).to_vec(),
            _ => return Err(Failure::at(Status::INVALID_LOG_PAGE, LOG_PAGE_AT)),
        })
    }

    /// A page was read to be done with.
    fn log_page_read(&self, state: &mut State, log_page: u8) {
        if log_page == LOG_CHANGED_NAMESPACES {
            state.changed_namespaces.clear();
        }
        state.events.log_page_read(log_page);
    }
}
