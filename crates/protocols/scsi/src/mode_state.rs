//! Settings of a logical unit that MODE SELECT changes.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::sense::SenseFormat;

/// Settings that MODE SELECT can change, shared by all nexuses of a logical unit (MLUS = 0 would
/// say the same of subpages). Reset to their defaults by every reset.
#[derive(Debug, Default)]
pub struct ModeState {
    flags: AtomicU8,
}

impl ModeState {
    pub(crate) const D_SENSE: u8 = 1;
    pub(crate) const SWP: u8 = 2;

    /// The defaults: fixed format sense data, writes permitted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Back to the defaults.
    pub fn reset(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// D_SENSE of the control mode page.
    pub fn sense_format(&self) -> SenseFormat {
        if self.flags.load(Ordering::Relaxed) & Self::D_SENSE == 0 {
            SenseFormat::Fixed
        } else {
            SenseFormat::Descriptor
        }
    }

    pub(crate) fn flags(&self) -> u8 {
        self.flags.load(Ordering::Relaxed)
    }

    /// Gives the flags as they were.
    pub(crate) fn swap_flags(&self, flags: u8) -> u8 {
        self.flags.swap(flags, Ordering::Relaxed)
    }

    /// SWP of the control mode page: software write protection.
    pub fn software_write_protect(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & Self::SWP != 0
    }
}
