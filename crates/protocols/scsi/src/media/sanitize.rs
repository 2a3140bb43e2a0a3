//! SANITIZE (SBC-3 §5.26): all data of the medium is made unreadable.
//!
//! | service action | | parameter list |
//! |---|---|---|
//! | 01h OVERWRITE | blocks are written | see below |
//! | 02h BLOCK ERASE | blocks are freed | none |
//! | 03h CRYPTOGRAPHIC ERASE | refused: nothing is encrypted | |
//! | 1Fh EXIT FAILURE MODE | commands run again | none |
//!
//! ```text
//!  0  INVERT, TEST = 0, OVERWRITE COUNT (1 to 31)
//!  2  INITIALIZATION PATTERN LENGTH (2), at most a block
//!  4  initialization pattern
//! ```
//!
//! The operation belongs to the unit, not to the command: it goes on when the command is aborted, the unit is reset, or
//! the server starts again.

use longshore_block::sanitize::{Blocked, Method, SanitizeOrder};

use crate::cdb::Cdb;
use crate::completion::Completion;
use crate::sense::Sense;
use crate::step::{CommandEvent, Procedure, SanitizeRequest, Step, StepContext};
use crate::unit::LogicalUnit;

const HEADER_BYTES: usize = 4;

/// What NVMe calls the same (SANACT, AUSE, OWPASS, OIPBP, NDAS of dword 10).
mod nvme {
    pub(super) const BLOCK_ERASE: u32 = 2;
    pub(super) const OVERWRITE: u32 = 3;
    pub(super) const UNRESTRICTED_EXIT: u32 = 1 << 3;
    pub(super) const PASSES_SHIFT: u32 = 4;
    pub(super) const INVERT: u32 = 1 << 8;
    pub(super) const NO_DEALLOCATE: u32 = 1 << 9;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Overwrite,
    BlockErase,
    ExitFailureMode,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Sanitize {
    action: Action,
    immediate: bool,
    unrestricted_exit: bool,
}

impl Sanitize {
    /// Decides what can be decided without the parameter list.
    pub(crate) fn begin(cdb: Cdb, unit: &LogicalUnit) -> Result<Self, Completion> {
        let length = usize::from(cdb.be16(7));
        let (action, lengths) = match cdb.service_action() {
            0x01 => {
                let block = unit.config().block_size as usize;
                (Action::Overwrite, HEADER_BYTES + 1..=HEADER_BYTES + block)
            }
            0x02 => (Action::BlockErase, 0..=0),
            _ => (Action::ExitFailureMode, 0..=0),
        };
        if !lengths.contains(&length) {
            return Err(Sense::invalid_field_in_cdb(7, 7).into());
        }
        let sanitize = unit.reservations().sanitize();
        if sanitize.blocked() == Some(Blocked::InProgress) {
            return Err(Sense::sanitize_in_progress(sanitize.progress()).into());
        }
        Ok(Self {
            action,
            immediate: cdb.flag(1, 7),
            unrestricted_exit: cdb.flag(1, 5),
        })
    }

    fn request(&self, list: &[u8]) -> Result<SanitizeRequest, Sense> {
        let order = match self.action {
            Action::ExitFailureMode => return Ok(SanitizeRequest::ExitFailureMode),
            Action::BlockErase => self.order(Method::BlockErase, nvme::BLOCK_ERASE),
            Action::Overwrite => self.overwrite(list)?,
        };
        Ok(SanitizeRequest::Begin {
            order,
            immediate: self.immediate,
        })
    }

    fn order(&self, method: Method, nvme_dword_10: u32) -> SanitizeOrder {
        let exit = if self.unrestricted_exit {
            nvme::UNRESTRICTED_EXIT
        } else {
            0
        };
        SanitizeOrder {
            method,
            unrestricted_exit: self.unrestricted_exit,
            nvme_dword_10: nvme_dword_10 | exit,
        }
    }

    fn overwrite(&self, list: &[u8]) -> Result<SanitizeOrder, Sense> {
        let Some(([flags, _, high, low], pattern)) = list.split_first_chunk() else {
            return Err(Sense::parameter_list_length_error());
        };
        let (invert, test, passes) = (flags & 0x80 != 0, flags & 0x60, flags & 0x1f);
        if passes == 0 || test != 0 {
            return Err(Sense::invalid_field_in_parameter_list(0));
        }
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let pattern = pattern.get(..length).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.ok_or(Sense::invalid_field_in_parameter_list(2))?;
        let method = Method::Overwrite {
            pattern: pattern.to_vec(),
            passes,
            invert,
            deallocate: false,
        };
        // NVMe counts to 15, and says 0 for 16.
        let counted = if passes > 15 { 0 } else { u32::from(passes) };
        let inverts = if invert { nvme::INVERT } else { 0 };
        let passes = counted << nvme::PASSES_SHIFT;
        let dword = nvme::OVERWRITE | nvme::NO_DEALLOCATE | passes | inverts;
        Ok(self.order(method, dword))
    }
}

impl Procedure for Sanitize {
    fn step(&mut self, event: CommandEvent, context: &mut StepContext<'_, '_>) -> Step {
        let sense = |sense: Sense| Step::Complete(sense.into());
        match event {
            CommandEvent::Start => match self.request(context.buffers.data_out) {
                Ok(request) => Step::Sanitize(request),
                Err(wrong) => sense(wrong),
            },
            CommandEvent::Persisted(true) => Step::Complete(Completion::GOOD),
            // Another one was quicker, or it has failed.
            CommandEvent::Locked
            | CommandEvent::Media(_)
            | CommandEvent::Persisted(false)
            | CommandEvent::TasksAborted => sense(
                context
                    .unit
                    .sanitize_sense()
                    .unwrap_or(Sense::sanitize_failed()),
            ),
        }
    }
}
