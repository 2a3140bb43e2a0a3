//! Command descriptor blocks that an initiator sends (SPC-4, SBC-3, SBC-4), and the parameter lists that
//! go with them. All fields are big-endian.

use longshore_block::extent::Extent;

/// Most bytes of a CDB built here.
const LENGTH_MAX: usize = 16;

/// DPO and FUA share a byte; this is FUA.
const FUA: u8 = 0x08;
/// The UNMAP bit of WRITE SAME.
const WRITE_SAME_UNMAP: u8 = 0x08;
/// The NDOB bit of WRITE SAME (16), SBC-4: there is no data, zeros are meant.
const WRITE_SAME_NDOB: u8 = 0x01;

/// Operation codes that are asked for in more than one place.
pub mod opcode {
    /// TEST UNIT READY of SPC-4, six bytes.
    pub const TEST_UNIT_READY: u8 = 0x00;
    /// SYNCHRONIZE CACHE (10) of SBC-3: all blocks when LBA and length are 0.
    pub const SYNCHRONIZE_CACHE_10: u8 = 0x35;
    /// UNMAP of SBC-3: block descriptors follow as data.
    pub const UNMAP: u8 = 0x42;
    /// COMPARE AND WRITE of SBC-3: the data is what to expect, then what to write.
    pub const COMPARE_AND_WRITE: u8 = 0x89;
    /// READ (16) of SBC-3: 64-bit LBA, 32-bit length in blocks.
    pub const READ_16: u8 = 0x88;
    /// SYNCHRONIZE CACHE (16) of SBC-3, for targets without the short form.
    pub const SYNCHRONIZE_CACHE_16: u8 = 0x91;
    /// WRITE SAME (16) of SBC-3: one block as data, or NDOB.
    pub const WRITE_SAME_16: u8 = 0x93;
    /// SERVICE ACTION IN (16): READ CAPACITY (16), GET LBA STATUS.
    pub const SERVICE_ACTION_IN_16: u8 = 0x9e;
}

/// Service actions of SERVICE ACTION IN (16).
pub mod service_action {
    /// Service action of READ CAPACITY (16).
    pub const READ_CAPACITY_16: u8 = 0x10;
    /// Service action of GET LBA STATUS.
    pub const GET_LBA_STATUS: u8 = 0x12;
}

/// A command descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cdb {
    bytes: [u8; LENGTH_MAX],
    length: u8,
}

impl Cdb {
    /// One of the length that its operation code implies, with everything else zero.
    const fn new(opcode: u8) -> Self {
        let length = match opcode >> 5 {
            0 => 6,
            1 | 2 => 10,
            5 => 12,
            _ => 16,
        };
        let mut bytes = [0; LENGTH_MAX];
        bytes[0] = opcode;
        Self { bytes, length }
    }

    /// The bytes of the CDB without padding: 6, 10 or 16.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    #[inline]
    fn put<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        self.bytes[at..at + N].copy_from_slice(&field);
        self
    }

    /// TEST UNIT READY: GOOD, or the sense data that says what is missing.
    #[must_use]
    pub const fn test_unit_ready() -> Self {
        Self::new(opcode::TEST_UNIT_READY)
    }

    /// INQUIRY; `page`: a vital product data page.
    #[must_use]
    pub fn inquiry(page: Option<u8>, allocation_length: u16) -> Self {
        Self::new(0x12)
            .put(1, [u8::from(page.is_some()), page.unwrap_or(0)])
            .put(3, allocation_length.to_be_bytes())
    }

    /// READ CAPACITY (10): FFFFFFFFh blocks mean that READ CAPACITY (16) knows more.
    #[must_use]
    pub const fn read_capacity_10() -> Self {
        Self::new(0x25)
    }

    /// READ CAPACITY (16): block count, block sizes, LBPME and LBPRZ.
    #[must_use]
    pub fn read_capacity_16(allocation_length: u32) -> Self {
        Self::new(opcode::SERVICE_ACTION_IN_16)
            .put(1, [service_action::READ_CAPACITY_16])
            .put(10, allocation_length.to_be_bytes())
    }

    /// MODE SENSE (6) of current values, without block descriptors.
    #[must_use]
    pub fn mode_sense_6(page: u8, allocation_length: u8) -> Self {
        const DBD: u8 = 0x08;
        Self::new(0x1a).put(1, [DBD, page & 0x3f, 0, allocation_length])
    }

    /// REPORT LUNS of all logical units (SELECT REPORT 0).
    #[must_use]
    pub fn report_luns(allocation_length: u32) -> Self {
        Self::new(0xa0).put(6, allocation_length.to_be_bytes())
    }

    /// REPORT SUPPORTED OPERATION CODES, of one command.
    #[must_use]
    pub fn report_supported_operation_code(
        code: u8,
        action: Option<u8>,
        allocation_length: u32,
    ) -> Self {
        let reporting_options = if action.is_some() { 2 } else { 1 };
        Self::new(0xa3)
            .put(1, [0x0c, reporting_options, code])
            .put(4, u16::from(action.unwrap_or(0)).to_be_bytes())
            .put(6, allocation_length.to_be_bytes())
    }

    /// REPORT TARGET PORT GROUPS.
    #[must_use]
    pub fn report_target_port_groups(allocation_length: u32) -> Self {
        Self::new(0xa3)
            .put(1, [0x0a])
            .put(6, allocation_length.to_be_bytes())
    }

    /// PERSISTENT RESERVE IN with a service action, such as READ KEYS (0).
    #[must_use]
    pub fn persistent_reserve_in(action: u8, allocation_length: u16) -> Self {
        Self::new(0x5e)
            .put(1, [action & 0x1f])
            .put(7, allocation_length.to_be_bytes())
    }

    /// READ (10), or READ (16) where the range needs it.
    #[inline]
    #[must_use]
    pub fn read(extent: Extent) -> Self {
        Self::transfer(extent, 0x28, opcode::READ_16, 0)
    }

    /// WRITE (10), or WRITE (16) where the range needs it.
    #[inline]
    #[must_use]
    pub fn write(extent: Extent, fua: bool) -> Self {
        Self::transfer(extent, 0x2a, 0x8a, if fua { FUA } else { 0 })
    }

    #[inline]
    fn transfer(extent: Extent, short: u8, long: u8, flags: u8) -> Self {
        let (lba, blocks) = (extent.lba.0, extent.blocks.0);
        match (u32::try_from(lba), u16::try_from(blocks)) {
            (Ok(lba), Ok(blocks)) => Self::new(short)
                .put(1, [flags])
                .put(2, lba.to_be_bytes())
                .put(7, blocks.to_be_bytes()),
            _ => Self::long(long, flags, extent),
        }
    }

    /// A CDB with LBA and NUMBER OF LOGICAL BLOCKS where all of 16 bytes have them.
    #[inline]
    fn long(opcode: u8, flags: u8, extent: Extent) -> Self {
        Self::new(opcode)
            .put(1, [flags])
            .put(2, extent.lba.0.to_be_bytes())
            .put(10, blocks_u32(extent).to_be_bytes())
    }

    /// COMPARE AND WRITE; at most 255 blocks.
    #[must_use]
    pub fn compare_and_write(extent: Extent, fua: bool) -> Self {
        let blocks = u8::try_from(extent.blocks.0).unwrap_or(u8::MAX);
        Self::new(opcode::COMPARE_AND_WRITE)
            .put(1, [if fua { FUA } else { 0 }])
            .put(2, extent.lba.0.to_be_bytes())
            .put(13, [blocks])
    }

    /// WRITE SAME (16). `unmap`: the range may be deallocated. `without_data`: zeros are meant, and no
    /// block of them is sent.
    #[must_use]
    pub fn write_same_16(extent: Extent, unmap: bool, without_data: bool) -> Self {
        let flag = |set, bit| if set { bit } else { 0 };
        let flags = flag(unmap, WRITE_SAME_UNMAP) | flag(without_data, WRITE_SAME_NDOB);
        Self::long(opcode::WRITE_SAME_16, flags, extent)
    }

    /// UNMAP, with a list of [`unmap_list`].
    #[must_use]
    pub fn unmap() -> Self {
        let length = u16::try_from(UNMAP_LIST_LENGTH).expect("a short list");
        Self::new(opcode::UNMAP).put(7, length.to_be_bytes())
    }

    /// SYNCHRONIZE CACHE (10) of the whole medium.
    #[must_use]
    pub const fn synchronize_cache_10() -> Self {
        Self::new(opcode::SYNCHRONIZE_CACHE_10)
    }

    /// SYNCHRONIZE CACHE (16) of the whole medium.
    #[must_use]
    pub const fn synchronize_cache_16() -> Self {
        Self::new(opcode::SYNCHRONIZE_CACHE_16)
    }

    /// GET LBA STATUS from an LBA on.
    #[must_use]
    pub fn get_lba_status(lba: u64, allocation_length: u32) -> Self {
        Self::new(opcode::SERVICE_ACTION_IN_16)
            .put(1, [service_action::GET_LBA_STATUS])
            .put(2, lba.to_be_bytes())
            .put(10, allocation_length.to_be_bytes())
    }
}

/// Bytes of an [`unmap_list`].
pub const UNMAP_LIST_LENGTH: usize = 24;

/// The parameter list of UNMAP with one descriptor (SBC-3 §5.29.2):
///
/// ```text
///  0  UNMAP DATA LENGTH (22)  | UNMAP BLOCK DESCRIPTOR DATA LENGTH (16) | Reserved
///  8  UNMAP LOGICAL BLOCK ADDRESS
/// 16  NUMBER OF LOGICAL BLOCKS | Reserved
/// ```
#[must_use]
pub fn unmap_list(extent: Extent) -> [u8; UNMAP_LIST_LENGTH] {
    let mut list = [0; UNMAP_LIST_LENGTH];
    list[1] = 22;
    list[3] = 16;
    list[8..16].copy_from_slice(&extent.lba.0.to_be_bytes());
    list[16..20].copy_from_slice(&blocks_u32(extent).to_be_bytes());
    list
}

/// Callers keep ranges below the limits that the volume states, which have 32 bits.
#[inline]
fn blocks_u32(extent: Extent) -> u32 {
    u32::try_from(extent.blocks.0).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn extent(lba: u64, blocks: u64) -> Extent {
        Extent::new(lba, blocks)
    }

    fn hex(cdb: Cdb) -> String {
        cdb.as_bytes().iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn reads_and_writes_are_short_where_the_range_allows() {
        let edge = extent(u32::MAX.into(), u16::MAX.into());
        assert_eq!(hex(Cdb::read(edge)), "2800ffffffff00ffff00");
        let far = extent(1 << 32, 1);
        assert_eq!(hex(Cdb::read(far)), "88000000000100000000000000010000");
        let long = extent(5, 1 << 16);
        assert_eq!(
            hex(Cdb::write(long, true)),
            "8a080000000000000005000100000000"
        );
        assert_eq!(hex(Cdb::write(extent(5, 8), true)), "2a080000000500000800");
        assert_eq!(hex(Cdb::write(extent(5, 8), false)), "2a000000000500000800");
    }

    #[test]
    fn the_rest_has_its_fields_where_the_standards_put_them() {
        let range = extent(0x0102_0304_0506, 0x11);
        for (cdb, expected) in [
            (
                Cdb::compare_and_write(range, true),
                "89080000010203040506000000110000",
            ),
            (
                Cdb::write_same_16(range, true, false),
                "93080000010203040506000000110000",
            ),
            (
                Cdb::write_same_16(range, true, true),
                "93090000010203040506000000110000",
            ),
            (
                Cdb::write_same_16(range, false, false),
                "93000000010203040506000000110000",
            ),
            (Cdb::unmap(), "42000000000000001800"),
            (Cdb::synchronize_cache_10(), "35000000000000000000"),
            (
                Cdb::synchronize_cache_16(),
                "91000000000000000000000000000000",
            ),
            (
                Cdb::get_lba_status(0x0102_0304_0506, 24),
                "9e120000010203040506000000180000",
            ),
            (
                Cdb::read_capacity_16(32),
                "9e100000000000000000000000200000",
            ),
            (Cdb::read_capacity_10(), "25000000000000000000"),
            (Cdb::inquiry(None, 96), "120000006000"),
            (Cdb::inquiry(Some(0x83), 1024), "120183040000"),
            (Cdb::mode_sense_6(8, 252), "1a080800fc00"),
            (Cdb::report_luns(4096), "a00000000000000010000000"),
            (
                Cdb::report_supported_operation_code(0x89, None, 512),
                "a30c01890000000002000000",
            ),
            (
                Cdb::report_supported_operation_code(0x9e, Some(0x12), 512),
                "a30c029e0012000002000000",
            ),
            (
                Cdb::report_target_port_groups(512),
                "a30a00000000000002000000",
            ),
            (Cdb::persistent_reserve_in(3, 4096), "5e030000000000100000"),
            (Cdb::test_unit_ready(), "000000000000"),
        ] {
            assert_eq!(hex(cdb), expected);
        }
    }

    #[test]
    fn an_unmap_list_has_one_range() {
        let list = unmap_list(extent(0x0102, 0x30));
        let expected = [
            0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0x30, 0, 0, 0, 0,
        ];
        assert_eq!(list, expected);
    }
}
