//! Copies between memory volumes, through [`Command`] as a driver would.

use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::SCRATCH_LENGTH;
use super::parameters::{
    MAX_CSCD_DESCRIPTORS, MAX_DESCRIPTOR_LIST_LENGTH, MAX_SEGMENT_DESCRIPTORS,
    operating_parameters, third_party_copy_page,
};
use longshore_block::reservation::Reservations;

use crate::command::{
    Buffers, Command, CommandEvent, Completion, Siblings, Step, UnitIndex, UnitSelector,
};
use crate::lun::Lun;
use crate::nexus::Nexus;
use crate::reservation::tests::{config, port};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::status::Status;
use crate::unit::{LogicalUnit, LogicalUnitConfig, Reset};
use longshore_block::command::DataLocation;
use longshore_block::extent::Extent;
use longshore_block::operation::{MediaError, Operation, Reply};

/// Two logical units over memory; commands go to the first.
struct World {
    units: Vec<Arc<LogicalUnit>>,
    nexuses: Vec<Arc<Nexus>>,
    media: Vec<Vec<u8>>,
    /// Media operations from this one on fail.
    fails_at: Option<usize>,
    operations: usize,
}

impl Siblings for World {
    fn luns(&self) -> Vec<Lun> {
        Vec::new()
    }

    fn find(&self, designator: &[u8]) -> Option<UnitIndex> {
        let number = usize::from(*designator.first()?);
        (number < self.units.len()).then_some(UnitIndex(number))
    }

    fn unit(&self, index: UnitIndex) -> &Arc<LogicalUnit> {
        &self.units[index.0]
    }

    fn nexus(&self, index: UnitIndex) -> &Arc<Nexus> {
        &self.nexuses[index.0]
    }
}

impl World {
    fn new(block_sizes: [u32; 2], block_count: u64) -> Self {
        let units = block_sizes.map(|block_size| {
            let uuid = Uuid::from_u128(u128::from(block_size));
            LogicalUnit::new(
                LogicalUnitConfig {
                    uuid,
                    block_size,
                    block_count,
                    ..config()
                },
                Reservations::new(),
            )
        });
        let media = units.iter().enumerate().map(|(number, unit)| {
            let (block_size, block_count) = unit.capacity();
            // Every block differs from every other.
            (0..block_count * u64::from(block_size) / 8)
                .flat_map(|word| (word << 8 | number as u64).to_be_bytes())
                .collect()
        });
        let nexuses = units.iter().map(|unit| {
            let nexus = unit.attach(port(1, 1));
            nexus.take_unit_attention();
            nexus
        });
        Self {
            nexuses: nexuses.collect(),
            media: media.collect(),
            units: units.into(),
            fails_at: None,
            operations: 0,
        }
    }

    fn run(&mut self, cdb: &[u8], data_out: &[u8]) -> (Completion, Vec<u8>) {
        let mut command = Command::begin(&self.units[0], &self.nexuses[0], cdb);
        let mut scratch = vec![0; command.scratch_length()];
        let mut event = CommandEvent::Start;
        loop {
            let (step, data_in) = self.step(&mut command, event, data_out, &mut scratch);
            event = match step {
                Step::Complete(completion) => return (completion, data_in),
                Step::Media {
                    unit,
                    operation,
                    payload,
                } => CommandEvent::Media(self.media(unit, operation, payload, &mut scratch)),
                other => panic!("unexpected {other:?}"),
            };
        }
    }

    fn step(
        &self,
        command: &mut Command,
        event: CommandEvent,
        data_out: &[u8],
        scratch: &mut [u8],
    ) -> (Step, Vec<u8>) {
        let mut data_in = Vec::new();
        let buffers = Buffers {
            data_out,
            scratch,
            data_in: &mut data_in,
        };
        let step = command.step(Some(&self.units[0]), event, buffers, self);
        (step, data_in)
    }

    fn media(
        &mut self,
        unit: UnitSelector,
        operation: Operation,
        payload: DataLocation,
        scratch: &mut [u8],
    ) -> Result<Reply, MediaError> {
        self.operations += 1;
        if self.fails_at.is_some_and(|first| self.operations > first) {
            return Err(MediaError::NoSpace);
        }
        let number = match unit {
            UnitSelector::Own => 0,
            UnitSelector::Sibling(index) => index.0,
        };
        let block_size = self.units[number].config().block_size as usize;
        let DataLocation::Scratch { start, length } = payload else {
            panic!("{payload:?}")
        };
        let memory = &mut scratch[start..start + length];
        let (Operation::Read {
            extent: Extent { lba, blocks },
        }
        | Operation::Write {
            extent: Extent { lba, blocks },
            ..
        }) = operation
        else {
            panic!("{operation:?}")
        };
        assert_eq!(usize::try_from(blocks.0).unwrap() * block_size, length);
        let offset = usize::try_from(lba.0).unwrap() * block_size;
        let medium = &mut self.media[number][offset..offset + length];
        match operation {
            Operation::Read { .. } => memory.copy_from_slice(medium),
            _ => medium.copy_from_slice(memory),
        }
        Ok(Reply::Done)
    }

    fn copy(&mut self, list: &[u8]) -> CopyOutcome {
        self.run(&xcopy_cdb(list.len()), list).0.into()
    }

    fn results(&mut self, action: u8, list_identifier: u8) -> Result<Vec<u8>, CopyOutcome> {
        let (completion, data) = self.run(&results_cdb(action, list_identifier), &[]);
        if completion == Completion::GOOD {
            Ok(data)
        } else {
            Err(completion.into())
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum CopyOutcome {
    Good,
    Busy,
    IllegalRequest(AdditionalSense),
    CopyAborted(AdditionalSense),
}

impl From<Completion> for CopyOutcome {
    fn from(completion: Completion) -> Self {
        match (completion.status, completion.sense) {
            (Status::GOOD, None) => Self::Good,
            (Status::BUSY, None) => Self::Busy,
            (
                _,
                Some(Sense {
                    key: SenseKey::IllegalRequest,
                    additional,
                    ..
                }),
            ) => Self::IllegalRequest(additional),
            (
                _,
                Some(Sense {
                    key: SenseKey::CopyAborted,
                    additional,
                    ..
                }),
            ) => Self::CopyAborted(additional),
            other => panic!("unexpected {other:?}"),
        }
    }
}

fn xcopy_cdb(length: usize) -> [u8; 16] {
    let [a, b, c, d] = u32::try_from(length).unwrap().to_be_bytes();
    [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, 0, 0]
}

fn results_cdb(action: u8, list_identifier: u8) -> [u8; 16] {
    [
        0x84,
        action,
        list_identifier,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        4,
        0,
        0,
        0,
    ]
}

/// Names the unit of that number to this test's `find`.
fn cscd(number: u8, block_length: u32) -> Vec<u8> {
    let mut descriptor = vec![0; 32];
    descriptor[0] = 0xe4;
    descriptor[4..9].copy_from_slice(&[1, 3, 0, 16, number]);
    descriptor[28..].copy_from_slice(&block_length.to_be_bytes());
    descriptor
}

fn segment(source: u16, destination: u16, blocks: u16, from: u64, to: u64) -> Vec<u8> {
    let mut descriptor = vec![0x02, 0, 0, 0x18];
    descriptor.extend_from_slice(&source.to_be_bytes());
    descriptor.extend_from_slice(&destination.to_be_bytes());
    descriptor.extend_from_slice(&[0, 0]);
    descriptor.extend_from_slice(&blocks.to_be_bytes());
    descriptor.extend_from_slice(&from.to_be_bytes());
    descriptor.extend_from_slice(&to.to_be_bytes());
    descriptor
}

fn list(identifier: u8, usage: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut list = vec![identifier, usage << 3];
    list.extend_from_slice(&u16::try_from(cscds.len()).unwrap().to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    list.extend_from_slice(&u32::try_from(segments.len()).unwrap().to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    list.extend(cscds);
    list.extend(segments);
    list
}

fn both() -> [Vec<u8>; 2] {
    [cscd(0, 0), cscd(1, 0)]
}

#[test]
fn blocks_are_copied_within_a_unit() {
    let mut world = World::new([512; 2], 4096);
    let copied = world.media[0][..2048 * 512].to_vec();
    let list = list(1, 2, &[cscd(0, 512)], &[segment(0, 0, 2048, 0, 2048)]);
    assert_eq!(world.copy(&list), CopyOutcome::Good);
    assert!(world.media[0][2048 * 512..] == copied);
    // 1 MiB in chunks of the scratch memory, each read and written.
    assert_eq!(world.operations, 2 * 2048 * 512 / SCRATCH_LENGTH);
}

#[test]
fn blocks_are_copied_between_units() {
    let mut world = World::new([512; 2], 4096);
    let copied = world.media[1][100 * 512..101 * 512].to_vec();
    let list = list(
        1,
        0,
        &both(),
        &[segment(1, 0, 1, 100, 7), segment(0, 1, 1, 7, 0)],
    );
    assert_eq!(world.copy(&list), CopyOutcome::Good);
    assert!(world.media[0][7 * 512..8 * 512] == copied);
    assert!(world.media[1][..512] == copied);
}

#[test]
fn units_of_different_block_size_take_what_comes_out_even() {
    let mut world = World::new([512, 4096], 4096);
    let copied = world.media[0][16 * 512..32 * 512].to_vec();
    let list_of = |segment| list(1, 0, &both(), &[segment]);
    assert_eq!(
        world.copy(&list_of(segment(0, 1, 16, 16, 3))),
        CopyOutcome::Good
    );
    assert!(world.media[1][3 * 4096..5 * 4096] == copied);
    let uneven = CopyOutcome::CopyAborted(AdditionalSense::UNEXPECTED_INEXACT_SEGMENT);
    assert_eq!(world.copy(&list_of(segment(0, 1, 15, 16, 3))), uneven);
    // DC: the number counts blocks of the destination.
    let mut counted = segment(0, 1, 1, 0, 9);
    counted[1] = 2;
    assert_eq!(world.copy(&list_of(counted)), CopyOutcome::Good);
    assert!(world.media[1][9 * 4096..10 * 4096] == world.media[0][..4096]);
}

#[test]
fn an_empty_list_and_an_empty_segment_copy_nothing() {
    let mut world = World::new([512; 2], 4096);
    assert_eq!(world.copy(&[]), CopyOutcome::Good);
    assert_eq!(world.copy(&list(1, 0, &[], &[])), CopyOutcome::Good);
    assert_eq!(
        world.copy(&list(1, 0, &both(), &[segment(0, 1, 0, 0, 4096)])),
        CopyOutcome::Good
    );
    assert_eq!(world.operations, 0);
}

#[test]
fn lists_cut_short_are_refused() {
    let mut world = World::new([512; 2], 4096);
    let wrong_length = CopyOutcome::IllegalRequest(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    let whole = list(1, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
    for length in 1..whole.len() {
        assert_eq!(world.copy(&whole[..length]), wrong_length, "{length} bytes");
    }
    // Less arrived than the CDB says.
    let (completion, _) = world.run(&xcopy_cdb(whole.len()), &whole[..20]);
    assert_eq!(CopyOutcome::from(completion), wrong_length);
    assert_eq!(world.operations, 0);
}

#[test]
fn limits_are_those_that_are_announced() {
    let mut world = World::new([512; 2], 4096);
    let refused = |additional| CopyOutcome::IllegalRequest(additional);
    let cscds = |count: u16| vec![cscd(0, 0); usize::from(count)];
    let segments = |count: u16| vec![segment(0, 0, 1, 0, 8); usize::from(count)];
    let most = list(
        1,
        0,
        &cscds(MAX_CSCD_DESCRIPTORS),
        &segments(MAX_SEGMENT_DESCRIPTORS),
    );
    assert_eq!(world.copy(&most), CopyOutcome::Good);
    assert_eq!(
        world.copy(&list(1, 0, &cscds(MAX_CSCD_DESCRIPTORS + 1), &segments(1))),
        refused(AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS)
    );
    assert_eq!(
        world.copy(&list(
            1,
            0,
            &cscds(1),
            &segments(MAX_SEGMENT_DESCRIPTORS + 1)
        )),
        refused(AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS)
    );
    assert_eq!(
        world.copy(&list(
            1,
            0,
            &cscds(MAX_CSCD_DESCRIPTORS + 1),
            &segments(200)
        )),
        refused(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
    );
    let mut inline = list(1, 0, &cscds(1), &segments(1));
    inline[15] = 1;
    assert_eq!(
        world.copy(&inline),
        refused(AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED)
    );

    let data = world.results(3, 0).unwrap();
    assert_eq!(data, operating_parameters(512));
    assert_eq!(data[..5], [0, 0, 0, 42, 1]);
    assert_eq!(data[8..12], [0, 16, 0, 64]);
    assert_eq!(data[12..16], MAX_DESCRIPTOR_LIST_LENGTH.to_be_bytes());
    assert_eq!(data[16..20], (65_535_u32 * 512).to_be_bytes());
    assert_eq!(data[34..], [0, 64, 64, 9, 0, 0, 0, 0, 0, 2, 0x02, 0xe4]);
}

#[test]
fn unknown_descriptors_are_refused() {
    let mut world = World::new([512; 2], 4096);
    let mut cscd_e0 = cscd(0, 0);
    cscd_e0[0] = 0xe0;
    let unknown = list(1, 0, &[cscd_e0], &[segment(0, 0, 1, 0, 8)]);
    let refused = AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE;
    assert_eq!(world.copy(&unknown), CopyOutcome::IllegalRequest(refused));
    let mut stream = segment(0, 0, 1, 0, 8);
    stream[0] = 0x03;
    let refused = AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE;
    assert_eq!(
        world.copy(&list(1, 0, &both(), &[stream])),
        CopyOutcome::IllegalRequest(refused)
    );
    let mut wrong_length = segment(0, 0, 1, 0, 8);
    wrong_length[3] = 0x14;
    let refused = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
    assert_eq!(
        world.copy(&list(1, 0, &both(), &[wrong_length])),
        CopyOutcome::IllegalRequest(refused)
    );
}

#[test]
fn units_that_cannot_be_reached_abort_the_copy_before_it_begins() {
    let mut world = World::new([512; 2], 4096);
    let unreachable = CopyOutcome::CopyAborted(AdditionalSense::COPY_TARGET_DEVICE_NOT_REACHABLE);
    let fine = segment(0, 1, 8, 0, 0);
    let beyond_the_list = [fine.clone(), segment(0, 2, 8, 0, 0)];
    assert_eq!(
        world.copy(&list(1, 0, &both(), &beyond_the_list)),
        unreachable
    );
    assert_eq!(
        world.copy(&list(1, 0, &[cscd(0, 0), cscd(9, 0)], &[fine])),
        unreachable
    );
    let wrong_block_length = list(1, 0, &[cscd(0, 520)], &[segment(0, 0, 8, 0, 8)]);
    let wrong = CopyOutcome::CopyAborted(AdditionalSense::INCORRECT_COPY_TARGET_DEVICE_TYPE);
    assert_eq!(world.copy(&wrong_block_length), wrong);
    assert_eq!(world.operations, 0);
}

#[test]
fn ranges_beyond_the_capacity_abort_the_copy_before_it_begins() {
    let mut world = World::new([512; 2], 4096);
    for (from, to) in [(4089, 0), (0, 4089), (u64::MAX, 0), (0, u64::MAX - 7)] {
        let beyond = list(
            1,
            0,
            &both(),
            &[segment(0, 1, 1, 0, 0), segment(0, 1, 8, from, to)],
        );
        assert_eq!(
            world.copy(&beyond),
            CopyOutcome::CopyAborted(AdditionalSense::NONE)
        );
    }
    assert_eq!(world.operations, 0);
}

#[test]
fn a_destination_that_must_not_be_written_aborts_the_copy() {
    let mut world = World::new([512; 2], 4096);
    let read_only = LogicalUnitConfig {
        read_only: true,
        ..world.units[1].config().clone()
    };
    world.units[1] = LogicalUnit::new(read_only, Reservations::new());
    let copy = list(1, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
    let refused = CopyOutcome::CopyAborted(AdditionalSense::WRITE_PROTECTED);
    assert_eq!(world.copy(&copy), refused);
    assert_eq!(
        world.copy(&list(1, 0, &both(), &[segment(1, 0, 8, 0, 0)])),
        CopyOutcome::Good
    );
}

#[test]
fn a_reservation_on_the_other_unit_counts() {
    let mut world = World::new([512; 2], 4096);
    let holder = world.units[1].attach(port(2, 1));
    crate::reservation::legacy::reserve(&world.units[1], &holder).unwrap();
    let copy = list(1, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
    let refused = CopyOutcome::CopyAborted(AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
    assert_eq!(world.copy(&copy), refused);
    world.units[1].detach(&holder);
    assert_eq!(world.copy(&copy), CopyOutcome::Good);
}

#[test]
fn a_failing_medium_aborts_the_copy_and_is_remembered() {
    let mut world = World::new([512; 2], 4096);
    world.fails_at = Some(3);
    let copy = list(
        5,
        0,
        &both(),
        &[segment(0, 1, 8, 0, 0), segment(0, 1, 8, 8, 8)],
    );
    let no_space = AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
    assert_eq!(world.copy(&copy), CopyOutcome::CopyAborted(no_space));
    // One segment and its 4 KiB are done.
    assert_eq!(
        world.results(0, 5),
        Ok(vec![0, 0, 0, 8, 2, 0, 1, 0, 0, 0, 0x10, 0])
    );
    let details = world.results(4, 5).unwrap();
    assert_eq!(be32(&details[..4]) as usize, details.len() - 4);
    assert_eq!(details[56..60], [2, 0, 0, 18]);
    assert_eq!((details[62], details[72], details[73]), (0xa, 0x27, 0x07));
}

#[test]
fn results_are_held_as_the_list_asks() {
    let unknown = Err(CopyOutcome::IllegalRequest(
        AdditionalSense::INVALID_FIELD_IN_CDB,
    ));
    let mut world = World::new([512; 2], 4096);
    let copy = |identifier, usage| list(identifier, usage, &both(), &[segment(0, 1, 8, 0, 0)]);
    assert_eq!(world.results(0, 1), unknown);
    assert_eq!(world.copy(&copy(1, 0)), CopyOutcome::Good);
    assert_eq!(world.copy(&copy(2, 2)), CopyOutcome::Good);
    assert_eq!(world.copy(&copy(0, 3)), CopyOutcome::Good);
    assert_eq!(
        world.results(0, 1),
        Ok(vec![0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 0x10, 0])
    );
    assert_eq!(world.results(4, 1), Ok(vec![0; 4]), "nothing failed");
    assert_eq!(world.results(0, 2), unknown, "discarded");
    assert_eq!(world.results(0, 0), unknown, "never known");
    world.units[0].reset(Reset::LogicalUnit);
    world.nexuses[0].take_unit_attention();
    assert_eq!(world.results(0, 1), unknown, "forgotten");
    let invalid = CopyOutcome::IllegalRequest(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
    assert_eq!(world.copy(&copy(1, 1)), invalid, "reserved usage");
    assert_eq!(
        world.copy(&copy(1, 3)),
        invalid,
        "no list identifier, and yet there is one"
    );
}

#[test]
fn a_copy_under_way_can_be_asked_for_and_leaves_no_trace_when_aborted() {
    let mut world = World::new([512; 2], 4096);
    let copy = list(1, 2, &both(), &[segment(0, 1, 8, 0, 0)]);
    let mut command = Command::begin(&world.units[0], &world.nexuses[0], &xcopy_cdb(copy.len()));
    let mut scratch = vec![0; command.scratch_length()];
    let (step, _) = world.step(&mut command, CommandEvent::Start, &copy, &mut scratch);
    assert!(matches!(step, Step::Media { .. }));
    assert_eq!(
        world.results(0, 1),
        Ok(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0])
    );
    let duplicate = AdditionalSense::OPERATION_IN_PROGRESS;
    assert_eq!(world.copy(&copy), CopyOutcome::IllegalRequest(duplicate));
    drop(command);
    assert!(world.results(0, 1).is_err());
    assert_eq!(world.copy(&copy), CopyOutcome::Good);
}

#[test]
fn copies_under_way_are_limited_in_number() {
    let mut world = World::new([512; 2], 4096);
    let mut under_way = Vec::new();
    for identifier in 0..64 {
        let copy = list(identifier, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
        let mut command =
            Command::begin(&world.units[0], &world.nexuses[0], &xcopy_cdb(copy.len()));
        let mut scratch = vec![0; command.scratch_length()];
        let _ = world.step(&mut command, CommandEvent::Start, &copy, &mut scratch);
        under_way.push(command);
    }
    let copy = list(64, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
    assert_eq!(world.copy(&copy), CopyOutcome::Busy);
    under_way.pop();
    assert_eq!(world.copy(&copy), CopyOutcome::Good);
    assert_eq!(
        world.copy(&list(65, 0, &both(), &[])),
        CopyOutcome::Good,
        "the finished one made room"
    );
}

#[test]
fn the_third_party_copy_page_is_well_formed() {
    let mut page = Vec::new();
    third_party_copy_page(512, &mut page);
    let mut rest = &page[..];
    let mut kinds = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        assert_eq!(length % 4, 0);
        kinds.push(u16::from_be_bytes([rest[0], rest[1]]));
        rest = &rest[4 + length..];
    }
    assert_eq!(kinds, [0x0001, 0x0004, 0x0008, 0x000c, 0x8001]);
    assert_eq!(
        page[..16],
        [0, 1, 0, 12, 8, 0x83, 1, 0, 0x84, 3, 0, 3, 4, 0, 0, 0]
    );
    assert_eq!(page[16..20], [0, 4, 0, 28]);
    assert_eq!(page[page.len() - 36..][..4], [0x80, 1, 0, 32]);
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn overlapping_segments_give_what_the_source_was(
        blocks in 0u16..1200, from in 0usize..300, to in 0usize..300,
    ) {
        let mut world = World::new([512; 2], 1536);
        let length = usize::from(blocks) * 512;
        let mut expected = world.media[0].clone();
        expected.copy_within(from * 512..from * 512 + length, to * 512);
        let copy = list(1, 0, &both(), &[segment(0, 0, blocks, from as u64, to as u64)]);
        prop_assert_eq!(world.copy(&copy), CopyOutcome::Good);
        prop_assert!(world.media[0] == expected);
    }

    #[test]
    fn random_lists_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        header in any::<bool>(),
    ) {
        let mut world = World::new([512; 2], 64);
        let mut copy = list(1, 0, &both(), &[segment(0, 1, 8, 0, 0)]);
        if header {
            for (place, byte) in copy[16..].iter_mut().zip(bytes) {
                *place ^= byte & 0x05;
            }
        } else {
            copy = bytes;
        }
        let _ = world.copy(&copy);
    }
}
