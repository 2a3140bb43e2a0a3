//! How an admin command fails.

use super::log_page::error::ErrorRecord;
use crate::command::SubmissionEntry;
use crate::status::Status;

/// Parameter Error Location when no field is to blame.
const NOWHERE: u16 = 0xffff;

/// Why an admin command failed, and where its error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: Status,
    pub(super) result: u64,
    /// Parameter Error Location: byte of the entry in bits 7:0, bit of the byte in bits 10:8.
    location: u16,
}

impl Failure {
    /// Byte of the entry at which NSID is.
    pub(super) const NAMESPACE_AT: u16 = 4;

    /// NSID is not that of a namespace, nor one there could be.
    pub(super) const INVALID_NAMESPACE: Self =
        Self::at(Status::INVALID_NAMESPACE_OR_FORMAT, Self::NAMESPACE_AT);

    /// No field of the entry is to blame.
    pub(super) const fn of(status: Status) -> Self {
        Self {
            status,
            result: 0,
            location: NOWHERE,
        }
    }

    /// INVALID FIELD, for the one that starts at a byte of the entry.
    pub(super) const fn field(byte: u16) -> Self {
        Self::at(Status::INVALID_FIELD, byte)
    }

    /// A status that blames the field that starts at a byte of the entry.
    pub(super) const fn at(status: Status, byte: u16) -> Self {
        Self {
            status: status.do_not_retry(),
            result: 0,
            location: byte,
        }
    }

    /// As the error information log remembers it.
    pub(super) fn record(&self, entry: &SubmissionEntry) -> ErrorRecord {
        ErrorRecord {
            queue_id: 0,
            command: entry.id(),
            status: self.status,
            location: self.location,
            lba: 0,
            namespace: entry.namespace(),
        }
    }
}
