//! A volume in memory that can be told to go wrong.

use longshore_block::extent::{BlockCount, Lba};

use super::*;

const BLOCK: usize = 512;
const REGION: Region = Region {
    lba: 0,
    blocks: 16,
    block_size: 512,
};

struct Volume {
    bytes: Vec<u8>,
    verifier: Verifier,
}

impl Volume {
    fn new() -> Self {
        Self {
            bytes: vec![0; 16 * BLOCK],
            verifier: Verifier::new(REGION, 1, 2, false),
        }
    }

    fn block(&mut self, lba: usize) -> &mut [u8] {
        &mut self.bytes[lba * BLOCK..(lba + 1) * BLOCK]
    }

    /// A write of so many blocks, of which only the first `stored` are kept.
    fn write(&mut self, lba: u64, blocks: u64, stored: usize) {
        let extent = extent(lba, blocks);
        let mut buffer = vec![0; usize::try_from(blocks).unwrap() * BLOCK];
        assert!(self.verifier.begin_write(extent, &mut buffer));
        let start = usize::try_from(lba).unwrap() * BLOCK;
        self.bytes[start..start + stored * BLOCK].copy_from_slice(&buffer[..stored * BLOCK]);
        self.verifier.ledger().acknowledge(extent);
    }

    fn read(&self, lba: u64, blocks: u64) -> Result<Checked, Fault> {
        let extent = extent(lba, blocks);
        let mut low = Low::new();
        self.verifier.begin_read(extent, &mut low);
        let start = usize::try_from(lba).unwrap() * BLOCK;
        let end = start + usize::try_from(blocks).unwrap() * BLOCK;
        self.verifier
            .check_read(extent, &low, &self.bytes[start..end])
    }

    fn fault(&self, lba: u64) -> Fault {
        self.read(lba, 1).unwrap_err()
    }
}

fn extent(lba: u64, blocks: u64) -> Extent {
    Extent {
        lba: Lba(lba),
        blocks: BlockCount(blocks),
    }
}

#[test]
fn what_was_written_passes_and_what_was_not_is_open() {
    let mut volume = Volume::new();
    volume.write(4, 2, 2);
    let expected = Checked {
        stamped: 2,
        open: 2,
    };
    assert_eq!(volume.read(3, 4), Ok(expected));
    volume.write(4, 1, 1);
    assert_eq!(volume.read(4, 2).unwrap().stamped, 2);
}

#[test]
fn a_write_that_never_arrived_is_lost() {
    let mut volume = Volume::new();
    volume.write(4, 1, 0);
    let fault = volume.fault(4);
    assert_eq!(fault.kind, FaultKind::Lost);
    assert_eq!(
        fault.to_string(),
        "lost write at block 4: expected generation 1, found zeros"
    );
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    volume.write(4, 1, 0);
    let fault = volume.fault(4);
    assert_eq!(fault.kind, FaultKind::Lost);
    assert_eq!(
        fault.to_string(),
        "lost write at block 4: expected generation 2, found generation 1"
    );
}

#[test]
fn data_that_come_back_after_newer_ones_were_read_are_stale() {
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    let old = volume.block(4).to_vec();
    volume.write(4, 1, 1);
    assert!(volume.read(4, 1).is_ok());
    volume.block(4).copy_from_slice(&old);
    assert_eq!(volume.fault(4).kind, FaultKind::Stale);
    // Two writes ago is stale even if nobody has looked in between.
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    volume.write(4, 1, 0);
    volume.write(4, 1, 0);
    assert_eq!(volume.fault(4).kind, FaultKind::Stale);
}

#[test]
fn a_block_of_another_place_is_misplaced() {
    let mut volume = Volume::new();
    volume.write(4, 2, 2);
    let other = volume.block(4).to_vec();
    volume.block(5).copy_from_slice(&other);
    let fault = volume.fault(5);
    assert_eq!(fault.kind, FaultKind::Misplaced);
    assert!(fault.to_string().ends_with("found generation 1 of block 4"));
    // Also where this run has written nothing.
    volume.block(9).copy_from_slice(&other);
    assert_eq!(volume.fault(9).kind, FaultKind::Misplaced);
}

#[test]
fn a_block_of_two_writes_is_torn() {
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    let old = volume.block(4).to_vec();
    volume.write(4, 1, 1);
    let new = volume.block(4).to_vec();
    volume.block(4)[256..].copy_from_slice(&old[256..]);
    let fault = volume.fault(4);
    assert_eq!(fault.kind, FaultKind::Torn);
    assert!(
        fault
            .found
            .contains("generation 2 up to byte 256 and generation 1"),
        "{fault}"
    );
    volume.block(4).copy_from_slice(&old);
    volume.block(4)[64..].copy_from_slice(&new[64..]);
    assert_eq!(volume.fault(4).kind, FaultKind::Torn);
    volume.block(4).copy_from_slice(&new);
    volume.block(4)[384..].fill(0);
    assert_eq!(volume.fault(4).kind, FaultKind::Torn);
}

#[test]
fn an_acknowledged_write_of_which_blocks_are_missing_is_torn() {
    let mut volume = Volume::new();
    volume.write(4, 4, 2);
    let fault = volume.read(4, 4).unwrap_err();
    assert_eq!((fault.kind, fault.lba), (FaultKind::Torn, 6));
    assert!(fault.found.contains("block 4 of the same write"), "{fault}");
}

#[test]
fn a_flipped_bit_and_foreign_data_are_corrupt() {
    let mut volume = Volume::new();
    volume.write(4, 2, 2);
    volume.block(4)[100] ^= 1;
    assert_eq!(volume.fault(4).kind, FaultKind::Corrupt);
    volume.block(5).fill(0x55);
    assert_eq!(volume.fault(5).kind, FaultKind::Corrupt);
}

#[test]
fn while_a_block_is_written_old_and_new_pass_and_nothing_older() {
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    let first = volume.block(4).to_vec();
    volume.write(4, 1, 1);
    let mut third = vec![0; BLOCK];
    assert!(volume.verifier.begin_write(extent(4, 1), &mut third));
    assert!(volume.read(4, 1).is_ok(), "the acknowledged one");
    let second = volume.block(4).to_vec();
    volume.block(4).copy_from_slice(&third);
    assert!(volume.read(4, 1).is_ok(), "the one under way");
    volume.block(4)[256..].copy_from_slice(&second[256..]);
    assert_eq!(volume.read(4, 1).unwrap().open, 1, "in between");
    volume.block(4).copy_from_slice(&first);
    assert_eq!(volume.fault(4).kind, FaultKind::Stale);
}

#[test]
fn a_write_during_the_read_lets_newer_data_pass() {
    let mut volume = Volume::new();
    volume.write(4, 1, 1);
    let mut low = Low::new();
    volume.verifier.begin_read(extent(4, 1), &mut low);
    volume.write(4, 1, 1);
    let block = volume.block(4).to_vec();
    assert!(
        volume
            .verifier
            .check_read(extent(4, 1), &low, &block)
            .is_ok()
    );
}

#[test]
fn an_earlier_run_is_checked_as_far_as_its_stamps_go() {
    let mut volume = Volume::new();
    volume.write(4, 4, 4);
    let mut later = Volume::new();
    later.bytes = volume.bytes.clone();
    later.verifier = Verifier::new(REGION, 1, 99, true);
    let expected = Checked {
        stamped: 4,
        open: 2,
    };
    assert_eq!(later.read(3, 6), Ok(expected));
    let other = later.block(4).to_vec();
    later.block(5).copy_from_slice(&other);
    later.block(6)[300] ^= 1;
    assert_eq!(later.fault(5).kind, FaultKind::Misplaced);
    assert_eq!(later.fault(6).kind, FaultKind::Corrupt);
    // Whoever does not ask for it takes the volume as it is.
    later.verifier = Verifier::new(REGION, 1, 99, false);
    assert_eq!(later.read(4, 4).unwrap().open, 4);
    // Data of another run where this one has written are lost data.
    later.write(5, 1, 0);
    assert_eq!(later.fault(5).kind, FaultKind::Lost);
}
