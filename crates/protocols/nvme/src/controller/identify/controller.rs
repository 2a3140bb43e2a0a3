//! Identify Controller (NVMe base 2.0 §5.17.2.1).

use super::Page;
use crate::controller::discovery::put_ascii;
use crate::controller::log_page::ERROR_ENTRIES;
use crate::controller::namespace::ANA_GROUP;
use crate::controller::state::{Controller, GRANULARITY_MS, VERSION, supported_notices};
use crate::io::limits;

const TYPE_IO: u8 = 1;
const TYPE_DISCOVERY: u8 = 2;

/// CRDT1 to CRDT3 in units of 100 ms, for hosts with ACRE.
const RETRY_DELAYS: [u16; 3] = [1, 10, 50];

/// Bytes of a submission queue entry, and the unit of IOCCSZ and IORCSZ.
const ENTRY_BYTES: u32 = 64;
const CAPSULE_UNIT: u32 = 16;

fn put_u16(page: &mut Page, at: usize, value: u16) {
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

fn put_u32(page: &mut Page, at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

impl Controller {
    pub(super) fn identify_controller(&self, page: &mut Page) {
        self.put_identity(page);
        self.put_admin_abilities(page);
        self.put_fabrics_attributes(page);
        if !self.is_discovery() {
            self.put_io_abilities(page);
        }
    }

    /// Who it is, and in which subsystem.
    fn put_identity(&self, page: &mut Page) {
        let subsystem = &self.subsystem;
        put_ascii(&mut page[4..24], &self.product.serial);
        put_ascii(&mut page[24..64], &self.product.model);
        put_ascii(&mut page[64..72], &self.product.firmware);
        put_u16(page, 78, self.id());
        put_u32(page, 80, VERSION);
        page[111] = if self.is_discovery() {
            TYPE_DISCOVERY
        } else {
            TYPE_IO
        };
        page[768..1024].copy_from_slice(&subsystem.nqn.to_field());
    }

    /// What both kinds of controller can do.
    fn put_admin_abilities(&self, page: &mut Page) {
        const HOST_IDENTIFIER_128: u32 = 1 << 0;
        const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
        const LOG_PAGE_OFFSET: u8 = 1 << 2;
        const LOG_PAGES_LISTED: u8 = 1 << 5;
        let limits = &self.subsystem.limits;
        // MDTS.
        page[77] = limits.transfer_exponent();
        put_u32(page, 92, supported_notices(self.is_discovery()));
        put_u32(page, 96, HOST_IDENTIFIER_128 | TRAFFIC_BASED_KEEP_ALIVE);
        page[259] = limits.async_events_max.max(1) - 1;
        page[261] = LOG_PAGE_OFFSET | LOG_PAGES_LISTED;
        page[262] = u8::try_from(ERROR_ENTRIES - 1).expect("few entries");
        // KAS.
        put_u16(page, 320, u16::try_from(GRANULARITY_MS / 100).expect("one"));
        put_u16(page, 514, limits.queue_entries_max);
        // SGLs without alignment, with offsets into the capsule, and of the transport.
        put_u32(page, 536, 1 | 1 << 20 | 1 << 21);
    }

    /// FCATT is 0: controllers are dynamic.
    fn put_fabrics_attributes(&self, page: &mut Page) {
        const DISCONNECT: u16 = 1;
        let in_capsule = if self.is_discovery() {
            0
        } else {
            self.subsystem.limits.in_capsule_data_bytes
        };
        // IOCCSZ, IORCSZ; ICDOFF is 0: data follows the entry at once.
        put_u32(page, 1792, (ENTRY_BYTES + in_capsule) / CAPSULE_UNIT);
        put_u32(page, 1796, 1);
        // MSDBD: one descriptor, that of the entry.
        page[1803] = 1;
        if !self.is_discovery() {
            put_u16(page, 1804, DISCONNECT);
        }
    }

    /// What only a controller with namespaces can do.
    fn put_io_abilities(&self, page: &mut Page) {
        const COMPARE: u16 = 1 << 0;
        const DATASET_MANAGEMENT: u16 = 1 << 2;
        const WRITE_ZEROES: u16 = 1 << 3;
        const SAVE_AND_SELECT: u16 = 1 << 4;
        const RESERVATIONS: u16 = 1 << 5;
        const TIMESTAMP: u16 = 1 << 6;
        const VERIFY: u16 = 1 << 7;
        const COPY: u16 = 1 << 8;
        // CMIC: several ports, several controllers, ANA reporting.
        page[76] = 1 << 0 | 1 << 1 | 1 << 3;
        for (at, delay) in [128, 130, 132].into_iter().zip(RETRY_DELAYS) {
            put_u16(page, at, delay);
        }
        page[258] = self.subsystem.limits.aborts_max.max(1) - 1;
        // FRMW: one slot, which is read-only.
        page[260] = 1 << 1 | 1;
        // LPA: SMART of a namespace, commands supported and effects.
        page[261] |= 1 << 0 | 1 << 1;
        self.put_asymmetric_access(page);
        put_u32(page, 328, self.sanitize_capabilities());
        // SQES and CQES: 64 and 16 bytes, required and maximum.
        page[512] = 0x66;
        page[513] = 0x44;
        // NN and MNAN.
        put_u32(page, 516, limits::NAMESPACES_MAX);
        put_u32(page, 540, self.attached_max);
        put_u16(
            page,
            520,
            COMPARE
                | DATASET_MANAGEMENT
                | WRITE_ZEROES
                | SAVE_AND_SELECT
                | RESERVATIONS
                | TIMESTAMP
                | VERIFY
                | COPY,
        );
        // FUSES: Compare and Write.
        put_u16(page, 522, 1);
        // VWC: whether there is one; Flush reaches all namespaces at once if asked to (11b).
        page[525] = u8::from(self.has_volatile_cache()) | 0b11 << 1;
        // AWUN and AWUPF are 0: one block. ACWU:
        put_u16(page, 532, limits::COMPARE_AND_WRITE_BLOCKS - 1);
        put_u16(page, 534, limits::COPY_FORMATS);
    }

    /// One group, always optimized: ANATT, ANACAP, ANAGRPMAX and NANAGRPID.
    fn put_asymmetric_access(&self, page: &mut Page) {
        const TRANSITION_S: u8 = 10;
        const REPORTS_OPTIMIZED: u8 = 1 << 0;
        const GROUPS_NEVER_CHANGE: u8 = 1 << 6;
        page[342] = TRANSITION_S;
        page[343] = REPORTS_OPTIMIZED | GROUPS_NEVER_CHANGE;
        put_u32(page, 344, ANA_GROUP);
        put_u32(page, 348, 1);
    }
}
