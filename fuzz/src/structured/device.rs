//! Commands against a logical unit whose medium answers anything.

use std::sync::Arc;

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::names::WorldwideNames;
use longshore_block::operation::{ExtentState, MediaError, Operation, Reply};
use longshore_block::reservation::Reservations;
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, SanitizeRequest, Siblings, Step, UnitIndex,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig, SharedSpace};
use uuid::Uuid;

use crate::input::Input;

/// Steps after which a command is taken to run forever.
const STEPS_MAX: usize = 100_000;
/// More data is not sent, so that a run stays short.
const DATA_MAX: u64 = 1 << 20;

struct Device {
    unit: Arc<LogicalUnit>,
    nexuses: Vec<Arc<Nexus>>,
}

struct Alone<'a>(&'a Device);

impl Siblings for Alone<'_> {
    fn luns(&self) -> Vec<Lun> {
        Lun::from_number(0).into_iter().collect()
    }

    fn find(&self, designator: &[u8]) -> Option<UnitIndex> {
        let named = self.0.unit.is_designated_by(designator);
        named.then_some(UnitIndex(0))
    }

    fn unit(&self, _: UnitIndex) -> &Arc<LogicalUnit> {
        &self.0.unit
    }

    fn nexus(&self, _: UnitIndex) -> &Arc<Nexus> {
        &self.0.nexuses[0]
    }
}

impl Device {
    fn new(block_size: u32) -> Self {
        let unit = LogicalUnit::new(
            LogicalUnitConfig {
                uuid: Uuid::from_u128(1),
                name: "fuzz".to_owned(),
                serial: "FUZZ".to_owned(),
                vendor: None,
                product: None,
                names: WorldwideNames::default(),
                block_size,
                block_count: 1 << 12,
                read_only: false,
                volatile_cache: true,
                unmap_granularity_blocks: Some(8),
                unmapped_reads_zeros: true,
                rotational: false,
                physical_block_size: 4096,
                max_transfer_blocks: 4096,
                persistent_reservations_store: true,
                soft_thresholds: &[80, 90, 95],
                product_revision: "0".to_owned(),
            },
            Reservations::new(),
        );
        unit.set_shared_space(SharedSpace {
            size: 100 << 30,
            capacity: 90 << 30,
            used: 50 << 30,
        });
        let nexuses = (0..3_u8).map(|number| {
            let nexus = unit.attach(NexusPort {
                initiator_name: format!("iqn.2026-11.local:fuzz{number}"),
                isid: [0x80, 0, 0, 0, 0, number],
                relative_target_port: 1,
                target_port_name: "iqn.2026-11.local.longshore:fuzz,t,0x0001".to_owned(),
                read_only: number == 2,
            });
            nexus.take_unit_attention();
            nexus
        });
        let nexuses = nexuses.collect();
        Self { unit, nexuses }
    }

    fn run(&self, nexus: usize, cdb: &[u8], offered: &[u8], input: &mut Input<'_>) {
        let nexus = &self.nexuses[nexus % self.nexuses.len()];
        let mut command = Command::begin(&self.unit, nexus, cdb);
        command.expect_data_out(offered.len() as u64);
        let transfer = command.transfer();
        if transfer.length > DATA_MAX || command.scratch_length() > 16 << 20 {
            return;
        }
        let wanted = match transfer.direction {
            Direction::FromInitiator => usize::try_from(transfer.length).unwrap_or(usize::MAX),
            Direction::None | Direction::ToInitiator => 0,
        };
        let data_out = offered[..offered.len().min(wanted)].to_vec();
        let mut scratch = vec![0; command.scratch_length()];
        let mut data_in = Vec::new();
        let mut event = CommandEvent::Start;
        for _ in 0..STEPS_MAX {
            let buffers = Buffers {
                data_out: &data_out,
                scratch: &mut scratch,
                data_in: &mut data_in,
            };
            event = match command.step(Some(&self.unit), event, buffers, &Alone(self)) {
                Step::Media {
                    operation, payload, ..
                } => {
                    self.check(&operation, payload, data_out.len(), scratch.len());
                    CommandEvent::Media(answer(&operation, input))
                }
                Step::LockRange(extent) => {
                    self.check_extent(extent);
                    CommandEvent::Locked
                }
                Step::Persist(bytes) => {
                    let fresh = Self::new(512);
                    let restored = fresh.unit.reservations().restore(&bytes);
                    assert!(restored.is_ok(), "what is stored can be restored");
                    CommandEvent::Persisted(input.byte() & 7 != 7)
                }
                Step::Sanitize(request) => CommandEvent::Persisted(self.sanitize(request, input)),
                Step::AbortTasks(_) => CommandEvent::TasksAborted,
                Step::Complete(completion) => {
                    let _ = completion.sense_bytes();
                    return;
                }
            };
        }
        panic!("the command does not end: {cdb:02x?}");
    }

    /// Begins an operation, which may go on, or ends it.
    fn sanitize(&self, request: SanitizeRequest, input: &mut Input<'_>) -> bool {
        let reservations = self.unit.reservations();
        let SanitizeRequest::Begin { order, .. } = request else {
            return reservations.exit_sanitize_failure().is_ok();
        };
        reservations
            .begin_sanitize(order)
            .expect("one that is running is refused before");
        let fresh = Self::new(512);
        let text = reservations.sanitize().to_text();
        let restored = fresh.unit.reservations().restore_sanitize(&text);
        assert!(restored.is_ok(), "what is stored can be restored");
        let end = input.byte();
        if end & 3 != 3 {
            reservations.end_sanitize(end & 1 == 0);
        }
        end & 1 == 0
    }

    /// What a driver relies on.
    fn check(&self, operation: &Operation, payload: DataLocation, data_out: usize, scratch: usize) {
        match payload {
            DataLocation::None | DataLocation::DataIn { .. } => {}
            DataLocation::DataOut { start, length } => assert!(start + length <= data_out),
            DataLocation::Scratch { start, length } => assert!(start + length <= scratch),
        }
        if let Some(extent) = operation.extent() {
            self.check_extent(extent);
        }
    }

    fn check_extent(&self, extent: Extent) {
        let inside = extent.fits(self.unit.block_count());
        assert!(extent.blocks.0 > 0 && inside, "{extent:?}");
    }
}

fn answer(operation: &Operation, input: &mut Input<'_>) -> Result<Reply, MediaError> {
    match input.byte() {
        250 => Err(MediaError::Io),
        251 => Err(MediaError::NoSpace),
        252 => Err(MediaError::Unsupported),
        253 => Err(MediaError::Poisoned),
        254 => Err(MediaError::ShortFile),
        255 => Err(MediaError::ReadOnly),
        byte => Ok(match operation {
            Operation::ExtentStatus { extent } => Reply::Extent {
                blocks: BlockCount(1 + u64::from(byte) % extent.blocks.0.max(1)),
                state: if byte & 1 == 0 {
                    ExtentState::Mapped
                } else {
                    ExtentState::Deallocated
                },
            },
            _ => Reply::Done,
        }),
    }
}

/// Commands: `nexus, CDB length, CDB, data length, data`, repeated.
pub(crate) fn device_sequences(data: &[u8]) {
    let mut input = Input(data);
    let device = Device::new(input.pick(&[512, 4096]));
    while !input.is_empty() {
        let nexus = usize::from(input.byte());
        let cdb = input.piece();
        let repeats = usize::from(input.byte() & 0x1f);
        let offered = input.piece().repeat(1 + repeats);
        if cdb.is_empty() {
            continue;
        }
        device.run(nexus, cdb, &offered, &mut input);
    }
}

/// PERSISTENT RESERVE OUT and the commands it is about: `nexus, action, type, list`, repeated.
pub(crate) fn persistent_reserve_out(data: &[u8]) {
    let mut input = Input(data);
    let device = Device::new(512);
    while !input.is_empty() {
        let nexus = usize::from(input.byte());
        let action = input.byte() & 0x1f;
        let kind = input.byte();
        let mut list = [0; 24];
        // Few keys, so that they meet.
        list[7] = input.byte() & 3;
        list[15] = input.byte() & 3;
        list[20] = input.byte() & 0x0d;
        let mut offered = list.to_vec();
        if list[20] & 8 != 0 {
            let ids = input.piece();
            let length = u32::try_from(ids.len()).unwrap_or(0);
            offered.extend(length.to_be_bytes());
            offered.extend(ids);
        }
        let length = u32::try_from(offered.len()).unwrap_or(24).to_be_bytes();
        let mut cdb = vec![0x5f, action, kind, 0, 0];
        cdb.extend(length);
        cdb.push(0);
        device.run(nexus, &cdb, &offered, &mut input);
        let read = [0x5e, input.byte() & 3, 0, 0, 0, 0, 0, 1, 0, 0];
        device.run(nexus, &read, &[], &mut input);
        device.run(
            nexus + 1,
            &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0],
            &[],
            &mut input,
        );
    }
}
