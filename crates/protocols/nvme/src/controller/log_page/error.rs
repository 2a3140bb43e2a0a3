//! Error Information log page (NVMe base 2.0 §5.16.1.2): the latest errors, newest first.
//!
//! ```text
//!  0 error count   8 SQID   10 CID   12 status   14 parameter location   16 LBA   24 NSID
//! 28 vendor   29 TRTYPE   32 command specific   40 transport specific   of 64
//! ```

use std::collections::VecDeque;

use crate::command::{CommandId, NamespaceId};
use crate::status::Status;

/// Entries that are kept (ELPE + 1).
pub(crate) const ENTRIES: usize = 64;
const ENTRY_BYTES: usize = 64;

/// SQID and CID of an error that no command made.
const NO_COMMAND: u16 = 0xffff;
/// Parameter Error Location of an error that is not in a field.
const NOWHERE: u16 = 0xffff;
const TRANSPORT_TCP: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// SQID of the failed command.
    pub queue_id: u16,
    /// CID of the failed command.
    pub command: CommandId,
    /// How the command ended.
    pub status: Status,
    /// Byte of the entry in bits 7:0, bit in 10:8; FFFFh if no field is to blame.
    pub location: u16,
    /// The first block that failed.
    pub lba: u64,
    /// NSID of the failed command.
    pub namespace: NamespaceId,
}

impl ErrorRecord {
    fn encode(&self, count: u64) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..8].copy_from_slice(&count.to_le_bytes());
        out[8..10].copy_from_slice(&self.queue_id.to_le_bytes());
        out[10..12].copy_from_slice(&self.command.0.to_le_bytes());
        // Bit 0 stands where the phase tag would be.
        out[12..14].copy_from_slice(&(self.status.0 << 1).to_le_bytes());
        out[14..16].copy_from_slice(&self.location.to_le_bytes());
        out[16..24].copy_from_slice(&self.lba.to_le_bytes());
        out[24..28].copy_from_slice(&self.namespace.0.to_le_bytes());
        out[29] = TRANSPORT_TCP;
        out
    }
}

/// The latest errors of a controller.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog {
    /// The newest comes first; at most ELPE + 1.
    records: VecDeque<ErrorRecord>,
    /// Errors since the controller was created, those without a record included.
    count: u64,
}

impl ErrorLog {
    /// Remembers an error. Returns its status with M set.
    pub(crate) fn record(&mut self, record: &ErrorRecord) -> Status {
        let status = record.status.more();
        self.records.truncate(ENTRIES - 1);
        self.records.push_front(ErrorRecord { status, ..*record });
        self.count = self.count.wrapping_add(1);
        status
    }

    /// Remembers something that no command did.
    pub(crate) fn record_event(&mut self, status: Status) {
        self.record(&ErrorRecord {
            queue_id: NO_COMMAND,
            command: CommandId(NO_COMMAND),
            status,
            location: NOWHERE,
            lba: 0,
            namespace: NamespaceId::NONE,
        });
    }

    /// Errors since the controller was created (Error Count of the newest record).
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn page(&self) -> Vec<u8> {
        let counts = (0..=self.count).rev();
        let mut page = Vec::with_capacity(ENTRIES * ENTRY_BYTES);
        for (record, count) in self.records.iter().zip(counts) {
            page.extend_from_slice(&record.encode(count));
        }
        page.resize(ENTRIES * ENTRY_BYTES, 0);
        page
    }
}
