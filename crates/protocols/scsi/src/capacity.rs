//! READ CAPACITY (10) and (16) (SBC-3).

use crate::cdb::Cdb;
use crate::sense::Sense;
use crate::unit::LogicalUnit;

/// Last LBA (FFFFFFFFh if it needs more than 32 bits) and block length.
pub(crate) fn read_capacity_10(
    cdb: Cdb,
    unit: &LogicalUnit,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    check_partial_medium_indicator(cdb.flag(8, 0), u64::from(cdb.be32(2)))?;
    let (block_size, block_count) = unit.capacity();
    let last = u32::try_from(block_count.saturating_sub(1)).unwrap_or(u32::MAX);
    data_in.extend(last.to_be_bytes());
    data_in.extend(block_size.to_be_bytes());
    Ok(())
}

/// Last LBA, block length, provisioning.
pub(crate) fn read_capacity_16(
    cdb: Cdb,
    unit: &LogicalUnit,
    data_in: &mut Vec<u8>,
) -> Result<(), Sense> {
    check_partial_medium_indicator(cdb.flag(14, 0), cdb.be64(2))?;
    let (block_size, block_count) = unit.capacity();
    let mut data = [0; 32];
    data[..8].copy_from_slice(&block_count.saturating_sub(1).to_be_bytes());
    data[8..12].copy_from_slice(&block_size.to_be_bytes());
    let config = unit.config();
    // Byte 12: no protection information. Bytes 14 and 15: the lowest aligned block is 0.
    let exponent = config.blocks_per_physical_block().ilog2();
    data[13] = u8::try_from(exponent).unwrap_or(0).min(0xf);
    if config.unmap_granularity_blocks.is_some() {
        let lbpme = 0x80;
        let lbprz = if config.unmapped_reads_zeros { 0x40 } else { 0 };
        data[14] = lbpme | lbprz;
    }
    data_in.extend(data);
    Ok(())
}

/// Without PMI the LOGICAL BLOCK ADDRESS field must be zero. With it, the answer is the last block
/// before a substantial delay: there is none, so it is the last of the medium.
fn check_partial_medium_indicator(pmi: bool, lba: u64) -> Result<(), Sense> {
    if !pmi && lba != 0 {
        return Err(Sense::invalid_field_in_cdb(2, 7));
    }
    Ok(())
}
