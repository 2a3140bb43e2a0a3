//! Log pages about what is supported: log pages, commands and features (NVMe base 2.0 §5.16.1.1,
//! §5.16.1.6, §5.16.1.18), and the firmware.

use crate::controller::discovery::put_ascii;
use crate::controller::failure::Failure;
use crate::controller::features::FeatureId;
use crate::controller::state::Controller;
use crate::opcode::{Opcode, admin, io};

/// Bytes of pages with one dword for each of 256 numbers.
pub(super) const EFFECTS_BYTES: usize = 1024;

/// CSUPP: the command is supported.
const SUPPORTED: u32 = 1 << 0;
/// LBCC: it may change what logical blocks hold.
const CHANGES_BLOCKS: u32 = 1 << 1;
/// Its scope is a controller. That of I/O commands is left open: Linux 6.1 warns of any other bit.
const OF_CONTROLLER: u32 = 1 << 21;

fn put(page: &mut [u8], number: u8, value: u32) {
    let at = usize::from(number) * 4;
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Its scope is the subsystem.
const OF_SUBSYSTEM: u32 = 1 << 25;

const ADMIN_COMMANDS: [Opcode; 7] = [
    admin::GET_LOG_PAGE,
    admin::IDENTIFY,
    admin::ABORT,
    admin::SET_FEATURES,
    admin::GET_FEATURES,
    admin::ASYNC_EVENT_REQUEST,
    admin::KEEP_ALIVE,
];

const IO_COMMANDS: [(Opcode, u32); 12] = [
    (io::FLUSH, 0),
    (io::WRITE, CHANGES_BLOCKS),
    (io::READ, 0),
    (io::COMPARE, 0),
    (io::WRITE_ZEROES, CHANGES_BLOCKS),
    (io::DATASET_MANAGEMENT, CHANGES_BLOCKS),
    (io::VERIFY, 0),
    (io::RESERVATION_REGISTER, 0),
    (io::RESERVATION_REPORT, 0),
    (io::RESERVATION_ACQUIRE, 0),
    (io::RESERVATION_RELEASE, 0),
    (io::COPY, CHANGES_BLOCKS),
];

/// Commands Supported and Effects: 256 dwords of admin commands, then as many of I/O commands.
pub(super) fn command_effects(command_set: u8, sanitizes: bool) -> Result<Vec<u8>, Failure> {
    const PAGE_BYTES: usize = 4096;
    const COMMAND_SET_AT: u16 = 59;
    if command_set != 0 {
        return Err(Failure::field(COMMAND_SET_AT));
    }
    let mut page = vec![0; PAGE_BYTES];
    let (admin_commands, io_commands) = page.split_at_mut(EFFECTS_BYTES);
    for opcode in ADMIN_COMMANDS {
        put(admin_commands, opcode.0, SUPPORTED | OF_CONTROLLER);
    }
    if sanitizes {
        let effects = SUPPORTED | CHANGES_BLOCKS | OF_SUBSYSTEM;
        put(admin_commands, admin::SANITIZE.0, effects);
    }
    for (opcode, effects) in IO_COMMANDS {
        put(io_commands, opcode.0, SUPPORTED | effects);
    }
    Ok(page)
}

impl Controller {
    /// Supported Log Pages: LSUPP in bit 0 of each dword.
    pub(super) fn supported_log_pages(&self) -> Vec<u8> {
        let mut page = vec![0; EFFECTS_BYTES];
        for number in (0..=u8::MAX).filter(|number| self.has_log_page(*number)) {
            put(&mut page, number, SUPPORTED);
        }
        page
    }

    /// Feature Identifiers Supported and Effects.
    pub(super) fn feature_effects(&self) -> Vec<u8> {
        let mut page = vec![0; EFFECTS_BYTES];
        for number in 0..=u8::MAX {
            if self.has_feature(FeatureId(number)) {
                put(&mut page, number, FeatureId(number).effects());
            }
        }
        page
    }

    /// Firmware Slot Information: slot 1 is active and holds this.
    pub(super) fn firmware_log(&self) -> Vec<u8> {
        const PAGE_BYTES: usize = 512;
        let mut page = vec![0; PAGE_BYTES];
        page[0] = 1;
        put_ascii(&mut page[8..16], &self.product.firmware);
        page
    }
}
