//! Sanitize (NVMe base 2.0 §5.24, §8.21) and the Sanitize Status log page.
//!
//! To NVMe, sanitizing is an affair of the subsystem: all its namespaces lose their data. So a host may ask for it only
//! if it could erase all of them anyway: if it sees every namespace of the subsystem, may write to it, and no other
//! host has reserved it.
//!
//! Each volume has one state, which SANITIZE of SCSI changes too. The log page tells the worst of them.
//!
//! ```text
//!  dword 10  SANACT 2:0   AUSE 3   OWPASS 7:4 (0: 16)   OIPBP 8   NDAS 9        dword 11  OVRPAT
//!
//!  log page  0 SPROG   2 SSTAT   4 SCDW10   8 estimates, in seconds: FFFFFFFFh, not known
//! ```

use longshore_block::reservation::ReservationClass;
use longshore_block::sanitize::{Method, SanitizeOrder, SanitizeState, SanitizeStatus};

use super::admin_command::{AdminOutcome, DONE};
use super::failure::Failure;
use super::namespace::Namespace;
use super::state::Controller;
use super::subsystem::Subsystem;
use crate::command::SubmissionEntry;
use crate::status::Status;

/// Byte of the entry at which SANACT is.
const ACTION_AT: u16 = 40;

/// SANACT 1: leave the failure mode, without a new operation.
const EXIT_FAILURE_MODE: u32 = 1;
const BLOCK_ERASE: u32 = 2;
const OVERWRITE: u32 = 3;

impl Namespace {
    /// It can be overwritten.
    fn sanitizes(&self) -> bool {
        self.parameters().can_store_reservations && !self.parameters().read_only
    }

    /// Its blocks can be freed, and read as zeros then.
    fn erases_blocks(&self) -> bool {
        let parameters = self.parameters();
        parameters.unmap_granularity_blocks.is_some() && parameters.unmapped_reads_zeros
    }
}

impl Subsystem {
    /// The worst of all namespaces, and of those that are being sanitized the one that is least far.
    pub(super) fn sanitize_status(&self) -> SanitizeStatus {
        let rank = |outcome: SanitizeState| match outcome {
            SanitizeState::InProgress => 3,
            SanitizeState::Failed => 2,
            SanitizeState::Completed => 1,
            SanitizeState::Never => 0,
        };
        let namespaces = self.namespaces();
        let all = namespaces.iter().map(|config| {
            let reservations = &config.namespace.parameters().reservations;
            reservations.sanitize().status()
        });
        let worst = all.max_by_key(|status| (rank(status.outcome), u16::MAX - status.progress));
        worst.unwrap_or(SanitizeStatus {
            outcome: SanitizeState::Never,
            progress: u16::MAX,
            nvme_dword_10: 0,
            passes_done: 0,
        })
    }
}

impl Controller {
    /// Whether there is the command and its log page.
    pub(super) fn sanitizes(&self) -> bool {
        let namespaces = self.subsystem.namespaces();
        !self.is_discovery()
            && !namespaces.is_empty()
            && namespaces.iter().all(|config| config.namespace.sanitizes())
    }

    fn erases_blocks(&self) -> bool {
        let namespaces = self.subsystem.namespaces();
        namespaces
            .iter()
            .all(|config| config.namespace.erases_blocks())
    }

    /// SANICAP: the sanitize operations that the volume can do.
    pub(super) fn sanitize_capabilities(&self) -> u32 {
        const CAN_ERASE_BLOCKS: u32 = 1 << 1;
        const CAN_OVERWRITE: u32 = 1 << 2;
        /// NODMMAS: nothing is done to the media after the operation.
        const NOT_MODIFIED_AFTERWARDS: u32 = 1 << 30;
        if !self.sanitizes() {
            return 0;
        }
        let erases = if self.erases_blocks() {
            CAN_ERASE_BLOCKS
        } else {
            0
        };
        CAN_OVERWRITE | NOT_MODIFIED_AFTERWARDS | erases
    }

    pub(super) fn sanitize(&self, entry: &SubmissionEntry) -> Result<AdminOutcome, Failure> {
        let dword = entry.dword(10);
        let volumes = self.volumes_to_sanitize()?;
        let status = self.subsystem.sanitize_status();
        if status.outcome == SanitizeState::InProgress {
            return Err(Failure::of(Status::SANITIZE_IN_PROGRESS));
        }
        let method = match dword & 7 {
            EXIT_FAILURE_MODE if status.outcome == SanitizeState::Failed => {
                return Ok(AdminOutcome::ExitSanitizeFailure { volumes });
            }
            EXIT_FAILURE_MODE => return Ok(DONE),
            BLOCK_ERASE if self.erases_blocks() => Method::BlockErase,
            OVERWRITE => Method::Overwrite {
                pattern: entry.dword(11).to_le_bytes().to_vec(),
                passes: match u8::try_from(dword >> 4 & 0xf) {
                    Ok(0) | Err(_) => 16,
                    Ok(passes) => passes,
                },
                invert: dword >> 8 & 1 != 0,
                deallocate: dword >> 9 & 1 == 0,
            },
            // Cryptographic erase: nothing is encrypted.
            _ => return Err(Failure::field(ACTION_AT)),
        };
        Ok(AdminOutcome::Sanitize {
            volumes,
            order: SanitizeOrder {
                method,
                unrestricted_exit: dword >> 3 & 1 != 0,
                nvme_dword_10: dword,
            },
        })
    }

    /// The volumes of the subsystem, if the host of this controller may erase all of them.
    fn volumes_to_sanitize(&self) -> Result<Vec<usize>, Failure> {
        let mut volumes = Vec::new();
        for config in self.subsystem.namespaces() {
            let attached = self.namespaces();
            let mut attached = attached.iter();
            let Some(attached) = attached.find(|it| it.id == config.id) else {
                return Err(Failure::of(Status::ACCESS_DENIED.do_not_retry()));
            };
            if attached.read_only {
                return Err(Failure::of(
                    Status::NAMESPACE_WRITE_PROTECTED.do_not_retry(),
                ));
            }
            if attached.host.is_reserved_against(ReservationClass::Changes) {
                return Err(Failure::of(Status::RESERVATION_CONFLICT.do_not_retry()));
            }
            volumes.push(config.index);
        }
        Ok(volumes)
    }

    /// Sanitize Status (log page 81h): progress, and the result of the last operation.
    pub(super) fn sanitize_log(&self) -> Vec<u8> {
        const PAGE_BYTES: usize = 512;
        let status = self.subsystem.sanitize_status();
        let outcome: u16 = match status.outcome {
            SanitizeState::Never => 0,
            SanitizeState::Completed => 1,
            SanitizeState::InProgress => 2,
            SanitizeState::Failed => 3,
        };
        let passes = u16::from(status.passes_done.min(31));
        let mut page = vec![0; PAGE_BYTES];
        page[0..2].copy_from_slice(&status.progress.to_le_bytes());
        page[2..4].copy_from_slice(&(outcome | passes << 3).to_le_bytes());
        page[4..8].copy_from_slice(&status.nvme_dword_10.to_le_bytes());
        page[8..32].fill(0xff);
        page
    }
}
