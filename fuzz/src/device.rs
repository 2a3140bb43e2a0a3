//! The SCSI device server with any CDB and any data: it ends every command in bounded steps, and
//! asks the medium only for what the medium has.

use std::sync::Arc;

use longshore_block::command::DataLocation;
use longshore_block::names::WorldwideNames;
use longshore_block::operation::{ExtentState, MediaError, Operation, Reply};
use longshore_block::reservation::Reservations;
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, Siblings, Step, UnitIndex,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig};
use uuid::Uuid;

const BLOCK_SIZE: u32 = 512;
const BLOCKS: u64 = 1_000;

/// The longest command writes same to all blocks, one by one.
const STEPS_MAX: usize = 20_000;

/// Only what a command may want from other units: there are none.
struct Alone;

impl Siblings for Alone {
    fn luns(&self) -> Vec<Lun> {
        Lun::from_number(0).into_iter().collect()
    }

    fn find(&self, _: &[u8]) -> Option<UnitIndex> {
        None
    }

    fn unit(&self, _: UnitIndex) -> &Arc<LogicalUnit> {
        unreachable!("find knows none")
    }

    fn nexus(&self, _: UnitIndex) -> &Arc<Nexus> {
        unreachable!("find knows none")
    }
}

/// Commands of two initiators, one after the other.
///
/// ```text
/// input, for each command: 1 byte length of the CDB and initiator, CDB, 1 byte length of data, data
/// ```
pub fn device_commands(input: &[u8]) {
    let unit = LogicalUnit::new(
        LogicalUnitConfig {
            uuid: Uuid::from_u128(1),
            name: "fuzz".into(),
            serial: "F".into(),
            vendor: None,
            product: None,
            names: WorldwideNames::default(),
            block_size: BLOCK_SIZE,
            block_count: BLOCKS,
            read_only: false,
            volatile_cache: true,
            unmap_granularity_blocks: Some(8),
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: 4096,
            max_transfer_blocks: 256,
            persistent_reservations_store: true,
            soft_thresholds: &[80, 90, 95],
            product_revision: "0".into(),
        },
        Reservations::new(),
    );
    let nexuses = [1, 2].map(|number| unit.attach(port(number)));
    let mut rest = input;
    while let Some((&shape, next)) = rest.split_first() {
        let cdb_length = [6, 10, 12, 16, 16, 16, 10, 32][usize::from(shape & 7)].min(next.len());
        let (cdb, next) = next.split_at(cdb_length);
        let length = next.first().map_or(0, |&length| usize::from(length));
        let next = next.get(1..).unwrap_or_default();
        let (data, next) = next.split_at(length.min(next.len()));
        rest = next;
        run(&unit, &nexuses[usize::from(shape >> 7)], cdb, data);
    }
}

fn port(number: u8) -> NexusPort {
    NexusPort {
        initiator_name: format!("iqn.2026-11.local:host{number}"),
        isid: [0x80, 0, 0, 0, 0, number],
        relative_target_port: 1,
        target_port_name: "iqn.2026-11.local.longshore:default,t,0x0001".into(),
        read_only: false,
    }
}

fn run(unit: &Arc<LogicalUnit>, nexus: &Arc<Nexus>, cdb: &[u8], offered: &[u8]) {
    let mut command = Command::begin(unit, nexus, cdb);
    let offered_length = u64::try_from(offered.len()).expect("inputs are short");
    command.expect_data_out(offered_length);
    let transfer = command.transfer();
    let wanted = match transfer.direction {
        Direction::FromInitiator => transfer.length.min(offered_length),
        Direction::None | Direction::ToInitiator => 0,
    };
    let data_out = &offered[..usize::try_from(wanted).expect("inputs are short")];
    let mut scratch = vec![0; command.scratch_length()];
    assert!(
        scratch.len() <= 1 << 20,
        "{} bytes of scratch",
        scratch.len()
    );
    let mut data_in = Vec::new();
    let mut event = CommandEvent::Start;
    for _ in 0..STEPS_MAX {
        let buffers = Buffers {
            data_out,
            scratch: &mut scratch,
            data_in: &mut data_in,
        };
        match command.step(Some(unit), event, buffers, &Alone) {
            Step::Media {
                operation, payload, ..
            } => {
                check_location(payload, data_out.len(), scratch.len());
                event = CommandEvent::Media(operate(&operation));
            }
            Step::LockRange(extent) => {
                assert!(extent.blocks.0 > 0 && extent.fits(BLOCKS), "{extent:?}");
                event = CommandEvent::Locked;
            }
            Step::Persist(_) | Step::Sanitize(_) => event = CommandEvent::Persisted(true),
            Step::AbortTasks(_) => event = CommandEvent::TasksAborted,
            Step::Complete(_) => {
                assert!(
                    data_in.len() <= 1 << 20,
                    "{} bytes of parameter data",
                    data_in.len()
                );
                return;
            }
        }
    }
    panic!("{cdb:02x?} does not end");
}

fn check_location(payload: DataLocation, data_out: usize, scratch: usize) {
    match payload {
        DataLocation::DataOut { start, length } => assert!(start + length <= data_out),
        DataLocation::Scratch { start, length } => assert!(start + length <= scratch),
        DataLocation::DataIn { .. } | DataLocation::None => {}
    }
}

/// A medium that holds nothing, but checks its bounds.
fn operate(operation: &Operation) -> Result<Reply, MediaError> {
    let Some(extent) = operation.extent() else {
        return Ok(Reply::Done);
    };
    assert!(extent.blocks.0 > 0 && extent.fits(BLOCKS), "{operation:?}");
    if let Operation::ExtentStatus { .. } = operation {
        return Ok(Reply::Extent {
            blocks: extent.blocks,
            state: ExtentState::Deallocated,
        });
    }
    Ok(Reply::Done)
}
