//! Carries out the steps of commands as a target would.

use std::collections::BTreeMap;
use std::sync::Arc;

use longshore_block::command::DataLocation;
use longshore_block::extent::{BlockCount, Extent};
use longshore_block::names::WorldwideNames;
use longshore_block::operation::{ExtentState, MediaError, Operation, Reply};
use longshore_block::reservation::Reservations;
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Direction, SanitizeRequest, Siblings, Step, Transfer, UnitIndex,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::plain::{Plain, plain};
use longshore_scsi::sense::{AdditionalSense, Sense, SenseKey};
use longshore_scsi::status::Status;
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig};
use uuid::Uuid;

/// Steps after which a command is taken to run forever.
const MAX_STEPS: usize = 20_000;

pub fn config(block_size: u32, block_count: u64) -> LogicalUnitConfig {
    LogicalUnitConfig {
        uuid: Uuid::from_u128(0x1234_5678_9abc_def0_1122_3344_5566_7788),
        name: "disk0".into(),
        serial: "LS0001".into(),
        vendor: None,
        product: None,
        names: WorldwideNames::default(),
        block_size,
        block_count,
        read_only: false,
        volatile_cache: true,
        unmap_granularity_blocks: Some(8),
        unmapped_reads_zeros: true,
        rotational: false,
        physical_block_size: 4096,
        max_transfer_blocks: 4096,
        persistent_reservations_store: true,
        soft_thresholds: &[],
        product_revision: "0.1".into(),
    }
}

pub fn port(initiator: u8) -> NexusPort {
    NexusPort {
        initiator_name: format!("iqn.2026-11.local:host{initiator}"),
        isid: [0x80, 0, 0, 0, 0, initiator],
        relative_target_port: 1,
        target_port_name: "iqn.2026-11.local.longshore:default,t,0x0001".into(),
        read_only: false,
    }
}

/// What came of a command.
#[derive(Debug)]
pub struct CommandOutcome {
    pub status: Status,
    pub sense: Option<Sense>,
    pub sense_bytes: Vec<u8>,
    /// Parameter data, or the blocks read.
    pub data_in: Vec<u8>,
    pub transfer: Transfer,
    pub decided_early: bool,
    pub operations: Vec<Operation>,
    /// The range that it had for itself.
    pub locked: Option<Extent>,
}

impl CommandOutcome {
    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.status, Status::GOOD, "{self:?}");
        self
    }

    #[track_caller]
    pub fn failed(self, key: SenseKey, code: AdditionalSense) -> Self {
        assert_eq!(self.status, Status::CHECK_CONDITION, "{self:?}");
        let sense = self.sense.expect("sense data");
        assert_eq!((sense.key, sense.additional), (key, code), "{self:?}");
        assert!(self.data_in.is_empty());
        self
    }

    #[track_caller]
    pub fn illegal(self, code: AdditionalSense) -> Self {
        self.failed(SenseKey::IllegalRequest, code)
    }
}

/// A CDB of the length that its operation code has, as transports pad it.
fn padded(cdb: &[u8]) -> Option<[u8; 16]> {
    let length = match cdb.first()? >> 5 {
        0 => 6,
        1 | 2 => 10,
        5 => 12,
        _ => 16,
    };
    let mut padded = [0; 16];
    padded.get_mut(..cdb.len())?.copy_from_slice(cdb);
    (cdb.len() >= length).then_some(padded)
}

/// A logical unit, one nexus with it, and a medium.
#[derive(Debug)]
pub struct Device {
    pub unit: Arc<LogicalUnit>,
    pub nexus: Arc<Nexus>,
    /// Blocks that have space; others read as zeros.
    pub blocks: BTreeMap<u64, Vec<u8>>,
    /// Fails operations for which this says so.
    pub fault: fn(&Operation) -> Option<MediaError>,
    /// What SANITIZE has asked for.
    pub sanitize_requests: Vec<SanitizeRequest>,
}

struct OneUnit;

impl Siblings for OneUnit {
    fn luns(&self) -> Vec<Lun> {
        vec![Lun::from_number(0).unwrap(), Lun::from_number(300).unwrap()]
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

impl Device {
    /// With 512-byte blocks and nothing pending.
    pub fn new(block_count: u64) -> Self {
        Self::with(config(512, block_count))
    }

    pub fn with(config: LogicalUnitConfig) -> Self {
        let unit = LogicalUnit::new(config, Reservations::new());
        let nexus = unit.attach(port(1));
        nexus.take_unit_attention();
        Self {
            unit,
            nexus,
            blocks: BTreeMap::new(),
            fault: |_| None,
            sanitize_requests: Vec::new(),
        }
    }

    pub fn block_size(&self) -> usize {
        self.unit.capacity().0 as usize
    }

    /// Runs a command that sends nothing.
    pub fn run(&mut self, cdb: &[u8]) -> CommandOutcome {
        self.send(cdb, &[])
    }

    /// Runs a command for which the initiator is willing to send `offered`.
    pub fn send(&mut self, cdb: &[u8], offered: &[u8]) -> CommandOutcome {
        let nexus = Arc::clone(&self.nexus);
        self.send_as(&nexus, cdb, offered)
    }

    pub fn send_as(&mut self, nexus: &Arc<Nexus>, cdb: &[u8], offered: &[u8]) -> CommandOutcome {
        let unit = Arc::clone(&self.unit);
        // Asked first: it must change nothing for the command.
        let plain = padded(cdb).and_then(|cdb| plain(&unit, nexus, &cdb));
        let mut command = Command::begin(&unit, nexus, cdb);
        command.expect_data_out(offered.len() as u64);
        let outcome = self.drive(command, Some(&unit), offered);
        if let Some(plain) = plain
            && (!plain.writes || plain.length as usize == offered.len())
        {
            self.assert_did(plain, &outcome);
        }
        outcome
    }

    /// What is plain is what the command does.
    fn assert_did(&self, plain: Plain, outcome: &CommandOutcome) {
        let blocks = BlockCount(u64::from(plain.length) / self.block_size() as u64);
        let extent = Extent {
            lba: plain.lba,
            blocks,
        };
        let fua = plain.fua;
        let (operation, direction) = if plain.writes {
            let write = Operation::Write { extent, fua };
            (write, Direction::FromInitiator)
        } else {
            let read = Operation::Read { extent };
            (read, Direction::ToInitiator)
        };
        let length = u64::from(plain.length);
        assert_eq!(outcome.operations, [operation], "{outcome:?}");
        assert_eq!(outcome.transfer, Transfer { direction, length });
        if let Some(error) = (self.fault)(&operation) {
            let failed = plain.failed(&self.unit, error);
            assert_eq!(
                (failed.status, failed.sense),
                (outcome.status, outcome.sense)
            );
            let bytes = failed.sense_bytes().map_or(Vec::new(), |b| b.to_vec());
            assert_eq!(bytes, outcome.sense_bytes);
        }
    }

    pub fn without_unit(&mut self, cdb: &[u8]) -> CommandOutcome {
        self.drive(Command::begin_without_unit(cdb), None, &[])
    }

    fn drive(
        &mut self,
        mut command: Command,
        unit: Option<&LogicalUnit>,
        offered: &[u8],
    ) -> CommandOutcome {
        let transfer = command.transfer();
        let decided_early = command.decided();
        let wanted = match transfer.direction {
            Direction::FromInitiator => usize::try_from(transfer.length).unwrap(),
            Direction::None | Direction::ToInitiator => 0,
        };
        let data_out = offered[..offered.len().min(wanted)].to_vec();
        let mut scratch = vec![0xee; command.scratch_length()];
        let mut data_in = Vec::new();
        let mut read = Vec::new();
        let mut operations = Vec::new();
        let mut locked = None;
        let mut event = CommandEvent::Start;
        for _ in 0..MAX_STEPS {
            let buffers = Buffers {
                data_out: &data_out,
                scratch: &mut scratch,
                data_in: &mut data_in,
            };
            match command.step(unit, event, buffers, &OneUnit) {
                Step::Media {
                    operation, payload, ..
                } => {
                    operations.push(operation);
                    let memory = match payload {
                        DataLocation::None => &mut [][..],
                        DataLocation::DataOut { start, length } => {
                            &mut data_out.clone()[start..start + length]
                        }
                        DataLocation::DataIn { length } => {
                            read.resize(length, 0);
                            &mut read[..]
                        }
                        DataLocation::Scratch { start, length } => {
                            &mut scratch[start..start + length]
                        }
                    };
                    event = CommandEvent::Media(self.operate(&operation, memory));
                }
                Step::LockRange(extent) => {
                    assert_eq!(locked, None, "a command asks for this at most once");
                    locked = Some(extent);
                    event = CommandEvent::Locked;
                }
                Step::Persist(_) => event = CommandEvent::Persisted(true),
                Step::Sanitize(request) => {
                    self.sanitize_requests.push(request);
                    event = CommandEvent::Persisted(true);
                }
                Step::AbortTasks(_) => event = CommandEvent::TasksAborted,
                Step::Complete(completion) => {
                    if completion.status == Status::GOOD {
                        data_in.extend(read);
                    }
                    return CommandOutcome {
                        status: completion.status,
                        sense: completion.sense,
                        sense_bytes: completion.sense_bytes().map_or(Vec::new(), |b| b.to_vec()),
                        data_in,
                        transfer,
                        decided_early,
                        operations,
                        locked,
                    };
                }
            }
        }
        panic!("the command does not end: {command:?}");
    }

    fn operate(&mut self, operation: &Operation, memory: &mut [u8]) -> Result<Reply, MediaError> {
        if let Some(error) = (self.fault)(operation) {
            return Err(error);
        }
        let (size, count) = (self.block_size(), self.unit.block_count());
        let check = |extent: Extent| {
            assert!(extent.blocks.0 > 0, "{operation:?}");
            assert!(extent.fits(count), "{operation:?}");
            extent.lba.0..extent.lba.0 + extent.blocks.0
        };
        match *operation {
            Operation::Read { extent } => {
                let range = check(extent);
                assert_eq!(memory.len(), extent.bytes(size as u32) as usize);
                for (lba, place) in range.zip(memory.chunks_exact_mut(size)) {
                    match self.blocks.get(&lba) {
                        Some(block) => place.copy_from_slice(block),
                        None => place.fill(0),
                    }
                }
            }
            Operation::Write { extent, .. } => {
                let range = check(extent);
                assert_eq!(memory.len(), extent.bytes(size as u32) as usize);
                for (lba, block) in range.zip(memory.chunks_exact(size)) {
                    self.blocks.insert(lba, block.to_vec());
                }
            }
            Operation::Unmap { extent }
            | Operation::WriteZeroes {
                extent,
                may_unmap: true,
                ..
            } => {
                for lba in check(extent) {
                    self.blocks.remove(&lba);
                }
            }
            Operation::WriteZeroes { extent, .. } => {
                for lba in check(extent) {
                    self.blocks.insert(lba, vec![0; size]);
                }
            }
            Operation::ExtentStatus { extent } => {
                let mut range = check(extent);
                let mapped = self.blocks.contains_key(&extent.lba.0);
                let end = range.find(|lba| self.blocks.contains_key(lba) != mapped);
                let end = end.unwrap_or(extent.lba.0 + extent.blocks.0);
                let state = if mapped {
                    ExtentState::Mapped
                } else {
                    ExtentState::Deallocated
                };
                let blocks = BlockCount(end - extent.lba.0);
                return Ok(Reply::Extent { blocks, state });
            }
            Operation::Anchor { extent } | Operation::Prefetch { extent } => {
                check(extent);
            }
            Operation::CompareAndWrite { .. } => panic!("made of reads and a write"),
            Operation::Flush => {}
        }
        Ok(Reply::Done)
    }
}

/// A 16-byte CDB with an LBA and a 32-bit length.
pub fn cdb_16(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// A 10-byte CDB with an LBA and a 16-bit length.
pub fn cdb_10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}
