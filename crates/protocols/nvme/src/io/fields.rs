//! Where the commands of the NVM command set have their fields (NVM command set 1.0 §3.2).
//!
//! ```text
//! CDW10, 11   SLBA                     Copy: SDLBA
//! CDW12       LR 31, FUA 30, PRINFO 29:26, DEAC 25 and NSZ 23 (Write Zeroes), NLB 15:0
//!             Copy: LR 31, FUA 30, PRINFOW 29:26, PRINFOR 15:12, descriptor format 11:8, NR 7:0
//! CDW10       Dataset Management: NR 7:0
//! CDW11       Dataset Management: AD 2, IDW 1, IDR 0
//! ```

use longshore_block::extent::{BlockCount, Extent, Lba};

use crate::command::SubmissionEntry;
use crate::status::Status;

const FORCE_UNIT_ACCESS: u32 = 1 << 30;
const PROTECTION_ACTION: u32 = 1 << 29;
const DEALLOCATE_ZEROES: u32 = 1 << 25;
const NAMESPACE_ZEROES: u32 = 1 << 23;
const DATASET_DEALLOCATE: u32 = 1 << 2;

impl SubmissionEntry {
    /// SLBA and NLB, the latter as the true count.
    #[inline]
    pub(crate) fn extent(&self) -> Extent {
        Extent {
            lba: Lba(self.qword(10)),
            blocks: BlockCount(u64::from(self.dword(12) & 0xffff) + 1),
        }
    }

    /// FUA, bit 30 of dword 12.
    #[inline]
    pub(crate) fn force_unit_access(&self) -> bool {
        self.dword(12) & FORCE_UNIT_ACCESS != 0
    }

    /// PRACT, bit 29 of dword 12 (PRINFO).
    pub(crate) fn protection_action(&self) -> bool {
        self.dword(12) & PROTECTION_ACTION != 0
    }

    /// DEAC of Write Zeroes.
    pub(crate) fn deallocates_zeroes(&self) -> bool {
        self.dword(12) & DEALLOCATE_ZEROES != 0
    }

    /// NSZ of Write Zeroes, of later revisions.
    pub(crate) fn zeroes_namespace(&self) -> bool {
        self.dword(12) & NAMESPACE_ZEROES != 0
    }

    /// NR of Dataset Management, as the true count.
    pub(crate) fn dataset_ranges(&self) -> u32 {
        (self.dword(10) & 0xff) + 1
    }

    /// AD of Dataset Management.
    pub(crate) fn deallocates_dataset(&self) -> bool {
        self.dword(11) & DATASET_DEALLOCATE != 0
    }

    /// SDLBA of Copy: dwords 10 and 11.
    pub(crate) fn copy_destination(&self) -> Lba {
        Lba(self.qword(10))
    }

    /// NR of Copy, as the true count.
    pub(crate) fn copy_ranges(&self) -> u32 {
        (self.dword(12) & 0xff) + 1
    }

    /// Descriptor Format of Copy.
    pub(crate) fn copy_format(&self) -> u32 {
        self.dword(12) >> 8 & 0xf
    }
}

/// Bytes of parameters. The SGL may describe more: Linux sends room for 256 ranges with every Dataset
/// Management.
pub(crate) fn list_length(length: u32, data_length: u32) -> Result<u32, Status> {
    if data_length < length {
        return Err(Status::DATA_SGL_LENGTH_INVALID.do_not_retry());
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandId, NamespaceId};
    use crate::opcode::io;

    fn with(dword: usize, value: u32) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(io::COPY, CommandId(1), NamespaceId(1));
        entry.set_dword(dword, value);
        entry
    }

    #[test]
    fn each_field_is_its_bits_and_no_others() {
        assert!(with(12, 1 << 30).force_unit_access() && !with(12, !(1 << 30)).force_unit_access());
        assert!(with(12, 1 << 29).protection_action() && !with(12, !(1 << 29)).protection_action());
        assert!(
            with(12, 1 << 25).deallocates_zeroes() && !with(12, !(1 << 25)).deallocates_zeroes()
        );
        assert!(with(12, 1 << 23).zeroes_namespace() && !with(12, !(1 << 23)).zeroes_namespace());
        assert!(with(11, 4).deallocates_dataset() && !with(11, !4).deallocates_dataset());
        assert_eq!(with(12, 0x0000_0f00).copy_format(), 15);
        assert_eq!(with(12, !0x0000_0f00).copy_format(), 0);
        assert_eq!(with(12, 0xff).copy_ranges(), 256);
        assert_eq!(with(12, !0xff).copy_ranges(), 1);
        assert_eq!(with(10, 0xff).dataset_ranges(), 256);
        assert_eq!(with(10, !0xff).dataset_ranges(), 1);
        assert_eq!(with(12, 0xffff).extent().blocks.0, 65536);
        assert_eq!(with(12, !0xffff).extent().blocks.0, 1);
        let mut entry = with(12, 0);
        entry.set_qword(10, 0x0102_0304_0506_0708);
        assert_eq!(entry.extent().lba.0, 0x0102_0304_0506_0708);
        assert_eq!(entry.copy_destination().0, 0x0102_0304_0506_0708);
    }
}
