//! Commands that touch the medium in more than one step, a file to each family, and what they have
//! in common (SBC-3 §5).
//!
//! They work on long ranges in [`chunks`](longshore_block::chunks).

use crate::sense::{AdditionalSense, Sense};
use longshore_block::extent::BlockCount;

pub(crate) mod atomic;
pub(crate) mod compare_and_write;
pub(crate) mod lba_status;
pub(crate) mod or_write;
pub(crate) mod partial_write;
pub(crate) mod sanitize;
pub(crate) mod unmap;
pub(crate) mod verify;
pub(crate) mod write_same;

/// Bytes of so many blocks. Saturates: no buffer is that long, and lengths are compared only.
pub(crate) fn bytes(blocks: BlockCount, block_size: u32) -> usize {
    usize::try_from(blocks.0.saturating_mul(u64::from(block_size))).unwrap_or(usize::MAX)
}

/// Blocks that fit into so many bytes.
pub(crate) fn blocks(bytes: usize, block_size: u32) -> BlockCount {
    BlockCount(bytes as u64 / u64::from(block_size))
}

/// How many of the `wanted` blocks the initiator really sent. It may send less than the CDB says
/// (iSCSI: Expected Data Transfer Length); then the whole blocks it sent count. A torn block is
/// refused before anything is written: ILLEGAL REQUEST, INVALID FIELD IN COMMAND INFORMATION UNIT.
pub(crate) fn whole_blocks_sent(
    data_out: &[u8],
    wanted: BlockCount,
    block_size: u32,
) -> Result<BlockCount, Sense> {
    if data_out.len() >= bytes(wanted, block_size) {
        return Ok(wanted);
    }
    let sent = blocks(data_out.len(), block_size);
    if bytes(sent, block_size) == data_out.len() {
        Ok(sent)
    } else {
        Err(data_out_too_short())
    }
}

/// The initiator sent less than the command can work with.
pub(crate) fn data_out_too_short() -> Sense {
    Sense::illegal_request(AdditionalSense::INVALID_FIELD_IN_COMMAND_INFORMATION_UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_block_is_refused_and_whole_blocks_count() {
        let wanted = BlockCount(3);
        assert_eq!(
            whole_blocks_sent(&[0; 1024], wanted, 512),
            Ok(BlockCount(2))
        );
        assert_eq!(whole_blocks_sent(&[0; 4096], wanted, 512), Ok(wanted));
        assert_eq!(whole_blocks_sent(&[], wanted, 512), Ok(BlockCount(0)));
        let sense = whole_blocks_sent(&[0; 700], wanted, 512).unwrap_err();
        assert_eq!((sense.additional.asc, sense.additional.ascq), (0x0e, 0x03));
    }
}
