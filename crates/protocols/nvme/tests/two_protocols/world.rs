//! A volume that is a logical unit and a namespace, and a driver for both.

use std::sync::Arc;

use longshore_block::names::WorldwideNames;
use longshore_block::reservation::{Participant, ReservationClass, Reservations};
use longshore_nvme::command::{CommandId, NamespaceId, SubmissionEntry};
use longshore_nvme::opcode::io;
use longshore_nvme::reservation::{
    HostRegistrant, NotificationLog, Report, ReservationCommand, ReservationEvent, ReservationStep,
};
use longshore_nvme::status::Status as NvmeStatus;
use longshore_scsi::access::Access;
use longshore_scsi::command::{
    Buffers, Command, CommandEvent, Completion, Siblings, Step, UnitIndex,
};
use longshore_scsi::lun::Lun;
use longshore_scsi::nexus::{Nexus, NexusPort};
use longshore_scsi::status::Status as ScsiStatus;
use longshore_scsi::unit::{LogicalUnit, LogicalUnitConfig};
use uuid::Uuid;

/// How a command of either protocol ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Success,
    Conflict,
    /// Another change is being stored.
    Later,
    /// A field is wrong: CHECK CONDITION, or Invalid Field in Command.
    Invalid,
}

impl From<Completion> for Ending {
    fn from(completion: Completion) -> Self {
        match completion.status {
            ScsiStatus::GOOD => Self::Success,
            ScsiStatus::RESERVATION_CONFLICT => Self::Conflict,
            ScsiStatus::BUSY => Self::Later,
            ScsiStatus::CHECK_CONDITION => Self::Invalid,
            other => panic!("unexpected {other:?}"),
        }
    }
}

impl From<NvmeStatus> for Ending {
    fn from(status: NvmeStatus) -> Self {
        match status.code() {
            NvmeStatus::SUCCESS => Self::Success,
            NvmeStatus::RESERVATION_CONFLICT => Self::Conflict,
            NvmeStatus::INVALID_FIELD => Self::Invalid,
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// A controller of a host.
pub struct Controller {
    pub host: Arc<HostRegistrant>,
    pub log: Arc<NotificationLog>,
}

pub struct World {
    pub unit: Arc<LogicalUnit>,
    pub reservations: Arc<Reservations>,
    /// What was stored last.
    pub stored: Option<Vec<u8>>,
    /// Whose commands the driver was asked to abort by the last command.
    pub aborted: Vec<Arc<dyn Participant>>,
}

pub fn session_port(number: u8) -> NexusPort {
    NexusPort {
        initiator_name: format!("iqn.2026-11.local.host:{number}"),
        isid: [0x80, 0, 0, 0, 0, number],
        relative_target_port: 1,
        target_port_name: "iqn.2026-11.local.longshore:default,t,0x0001".into(),
        read_only: false,
    }
}

pub fn host_identifier(number: u8) -> [u8; 16] {
    [number; 16]
}

/// PERSISTENT RESERVE OUT: CDB and parameter list.
pub fn out(action: u8, kind: u8, key: u64, second_key: u64, aptpl: bool) -> ([u8; 10], Vec<u8>) {
    let mut list = [key.to_be_bytes(), second_key.to_be_bytes()].concat();
    list.extend_from_slice(&[0, 0, 0, 0, u8::from(aptpl), 0, 0, 0]);
    ([0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0], list)
}

/// A reservation command of NVMe: entry and data.
pub fn nvme(opcode: u8, dword_10: u32, key: u64, second_key: u64) -> (SubmissionEntry, Vec<u8>) {
    let opcode = longshore_nvme::opcode::Opcode(opcode);
    let mut entry = SubmissionEntry::new(opcode, CommandId(1), NamespaceId(1));
    entry.set_dword(10, dword_10);
    (
        entry,
        [key.to_le_bytes(), second_key.to_le_bytes()].concat(),
    )
}

impl World {
    pub fn new() -> Self {
        let reservations = Reservations::new();
        let config = LogicalUnitConfig {
            uuid: Uuid::from_u128(1),
            name: "disk0".into(),
            serial: "disk0".into(),
            vendor: None,
            product: None,
            names: WorldwideNames::default(),
            block_size: 512,
            block_count: 10_000,
            read_only: false,
            volatile_cache: true,
            unmap_granularity_blocks: None,
            unmapped_reads_zeros: true,
            rotational: false,
            physical_block_size: 4096,
            max_transfer_blocks: 8192,
            persistent_reservations_store: true,
            soft_thresholds: &[],
            product_revision: "1".into(),
        };
        Self {
            unit: LogicalUnit::new(config, Arc::clone(&reservations)),
            reservations,
            stored: None,
            aborted: Vec::new(),
        }
    }

    /// A session that has seen its first unit attention.
    pub fn session(&self, number: u8) -> Arc<Nexus> {
        let nexus = self.unit.attach(session_port(number));
        nexus.take_unit_attention();
        nexus
    }

    pub fn controller(&self, host: u8) -> Controller {
        let log = NotificationLog::new();
        let identifier = host_identifier(host);
        let join = HostRegistrant::join;
        let host = join(&self.reservations, identifier, NamespaceId(1), log.clone());
        Controller { host, log }
    }

    pub fn scsi(&mut self, by: &Arc<Nexus>, cdb: &[u8], list: &[u8]) -> (Ending, Vec<u8>) {
        self.aborted.clear();
        let mut command = Command::begin(&self.unit, by, cdb);
        let mut event = CommandEvent::Start;
        loop {
            let mut data_in = Vec::new();
            let buffers = Buffers {
                data_out: list,
                scratch: &mut [],
                data_in: &mut data_in,
            };
            event = match command.step(Some(&self.unit), event, buffers, &Alone) {
                Step::Complete(completion) => return (completion.into(), data_in),
                Step::Media { .. } | Step::LockRange(_) | Step::Sanitize(_) => {
                    return (Ending::Success, data_in);
                }
                Step::Persist(order) => {
                    self.stored = Some(order.to_vec());
                    CommandEvent::Persisted(true)
                }
                Step::AbortTasks(members) => {
                    self.aborted = members;
                    CommandEvent::TasksAborted
                }
            };
        }
    }

    pub fn begin(&self, by: &Controller, entry: &SubmissionEntry) -> ReservationCommand {
        ReservationCommand::begin(&self.reservations, &by.host, entry, true).unwrap()
    }

    pub fn nvme(&mut self, by: &Controller, entry: &SubmissionEntry, data: &[u8]) -> Ending {
        self.aborted.clear();
        let mut command = match ReservationCommand::begin(&self.reservations, &by.host, entry, true)
        {
            Ok(command) => command,
            Err(status) => return status.into(),
        };
        let mut event = ReservationEvent::Start;
        loop {
            event = match command.step(event, data) {
                ReservationStep::Complete(status) => return status.into(),
                ReservationStep::Persist(order) => {
                    self.stored = Some(order.to_vec());
                    ReservationEvent::Persisted(true)
                }
                ReservationStep::Wait(wait) => panic!("nobody ends {wait:?}"),
                ReservationStep::AbortTasks(members) => {
                    self.aborted = members;
                    ReservationEvent::TasksAborted
                }
            };
        }
    }

    pub fn session_may(&self, nexus: &Nexus, reservation: ReservationClass) -> bool {
        let access = Access {
            reservation,
            ignores_unit_attention: true,
        };
        self.unit.admit(nexus, access).is_ok()
    }

    /// Sends PERSISTENT RESERVE IN with a service action, and returns its data.
    pub fn read_in(&mut self, by: &Arc<Nexus>, action: u8) -> (Ending, Vec<u8>) {
        self.scsi(by, &[0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0], &[])
    }

    /// Reservation Report with EDS.
    pub fn report(&self) -> Vec<u8> {
        let (mut entry, _) = nvme(io::RESERVATION_REPORT.0, 1023, 0, 0);
        entry.set_dword(11, 1);
        let mut data = Vec::new();
        let report = Report::begin(&entry).unwrap();
        report.execute(&self.reservations, usize::MAX, &mut data);
        data
    }
}

struct Alone;

impl Siblings for Alone {
    fn luns(&self) -> Vec<Lun> {
        Vec::new()
    }

    fn find(&self, _: &[u8]) -> Option<UnitIndex> {
        None
    }

    fn unit(&self, _: UnitIndex) -> &Arc<LogicalUnit> {
        unreachable!("find finds none")
    }

    fn nexus(&self, _: UnitIndex) -> &Arc<Nexus> {
        unreachable!("find finds none")
    }
}
