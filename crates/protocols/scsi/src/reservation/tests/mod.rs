//! Conversations of several initiators with one logical unit, through [`Command`] as a driver would.

use std::sync::Arc;

use longshore_block::names::WorldwideNames;
use longshore_block::reservation::{Participant, Reservations, is_same_participant};
use uuid::Uuid;

use crate::command::Command;
use crate::completion::Completion;
use crate::lun::Lun;
use crate::nexus::{Nexus, NexusPort};
use crate::sense::AdditionalSense;
use crate::status::Status;
use crate::step::{Buffers, CommandEvent, Siblings, Step, UnitIndex};
use crate::unit::{LogicalUnit, LogicalUnitConfig};

mod access;
mod attentions;
mod legacy;
mod model;
mod persistent;
mod storing;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

const READ_KEYS: u8 = 0;
const READ_RESERVATION: u8 = 1;
const REPORT_CAPABILITIES: u8 = 2;
const READ_FULL_STATUS: u8 = 3;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 3;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;
const EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: u8 = 6;
const WRITE_EXCLUSIVE_ALL_REGISTRANTS: u8 = 7;
const EXCLUSIVE_ACCESS_ALL_REGISTRANTS: u8 = 8;
const ALL_TYPES: [u8; 6] = [1, 3, 5, 6, 7, 8];

const APTPL: u8 = 0x01;
const ALL_TG_PT: u8 = 0x04;
const SPEC_I_PT: u8 = 0x08;

/// How a command ended.
#[derive(Debug, PartialEq, Eq)]
enum ReservationOutcome {
    Good,
    Conflict,
    Busy,
    Check(AdditionalSense),
}

impl From<Completion> for ReservationOutcome {
    fn from(completion: Completion) -> Self {
        match (completion.status, completion.sense) {
            (Status::GOOD, None) => Self::Good,
            (Status::RESERVATION_CONFLICT, None) => Self::Conflict,
            (Status::BUSY, None) => Self::Busy,
            (Status::CHECK_CONDITION, Some(sense)) => Self::Check(sense.additional),
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// A logical unit and its driver.
struct World {
    unit: Arc<LogicalUnit>,
    /// What the driver stored last.
    stored: Option<Vec<u8>>,
    stores: bool,
    /// Identities whose tasks the driver was asked to abort.
    aborted: Vec<Arc<dyn Participant>>,
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

pub(crate) fn config() -> LogicalUnitConfig {
    LogicalUnitConfig {
        uuid: Uuid::from_u128(0x1234_5678_9abc_def0),
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
    }
}

pub(crate) fn port(host: u8, target_port: u16) -> NexusPort {
    NexusPort {
        initiator_name: format!("iqn.2026-11.local.host:{host}"),
        isid: [0x80, 0, 0, 0, 0, host],
        relative_target_port: target_port,
        target_port_name: format!("iqn.2026-11.local.longshore:default,t,0x{target_port:04x}"),
        read_only: false,
    }
}

impl World {
    fn new() -> Self {
        Self::with_config(config())
    }

    fn with_config(config: LogicalUnitConfig) -> Self {
        let unit = LogicalUnit::new(config, Reservations::new());
        Self {
            unit,
            stored: None,
            stores: true,
            aborted: Vec::new(),
        }
    }

    /// A session of a host, through target port 1, that has seen its first unit attention.
    fn host(&self, number: u8) -> Arc<Nexus> {
        self.host_on(number, 1)
    }

    fn host_on(&self, number: u8, target_port: u16) -> Arc<Nexus> {
        let nexus = self.unit.attach(port(number, target_port));
        nexus.take_unit_attention();
        nexus
    }

    fn begin(&self, nexus: &Arc<Nexus>, cdb: &[u8]) -> Command {
        Command::begin(&self.unit, nexus, cdb)
    }

    /// One step as the driver of `unit` makes it.
    fn step(&self, command: &mut Command, event: CommandEvent, data_out: &[u8]) -> (Step, Vec<u8>) {
        let mut data_in = Vec::new();
        let mut scratch = vec![0; command.scratch_length()];
        let buffers = Buffers {
            data_out,
            scratch: &mut scratch,
            data_in: &mut data_in,
        };
        let step = command.step(Some(&self.unit), event, buffers, &Alone);
        (step, data_in)
    }

    fn run(
        &mut self,
        nexus: &Arc<Nexus>,
        cdb: &[u8],
        data_out: &[u8],
    ) -> (ReservationOutcome, Vec<u8>) {
        let mut command = self.begin(nexus, cdb);
        let mut event = CommandEvent::Start;
        loop {
            let (step, data_in) = self.step(&mut command, event, data_out);
            event = match step {
                Step::Complete(completion) => return (completion.into(), data_in),
                // Nothing here looks at the medium.
                Step::Media { .. } | Step::LockRange(_) | Step::Sanitize(_) => {
                    return (ReservationOutcome::Good, data_in);
                }
                Step::Persist(bytes) => {
                    if self.stores {
                        self.stored = Some(bytes.to_vec());
                    }
                    CommandEvent::Persisted(self.stores)
                }
                Step::AbortTasks(nexuses) => {
                    self.aborted.extend(nexuses);
                    CommandEvent::TasksAborted
                }
            };
        }
    }

    /// A command without data-out.
    fn send(&mut self, nexus: &Arc<Nexus>, cdb: &[u8]) -> ReservationOutcome {
        self.run(nexus, cdb, &[]).0
    }

    fn read(&mut self, nexus: &Arc<Nexus>) -> ReservationOutcome {
        self.send(nexus, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0])
    }

    fn write(&mut self, nexus: &Arc<Nexus>) -> ReservationOutcome {
        self.run(nexus, &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512])
            .0
    }

    fn test_unit_ready(&mut self, nexus: &Arc<Nexus>) -> ReservationOutcome {
        self.send(nexus, &[0; 6])
    }

    /// PERSISTENT RESERVE OUT with any parameter list.
    fn out_with(
        &mut self,
        nexus: &Arc<Nexus>,
        action: u8,
        kind: u8,
        list: &[u8],
    ) -> ReservationOutcome {
        self.run(nexus, &out_cdb(action, kind, list.len()), list).0
    }

    /// PERSISTENT RESERVE OUT with the usual parameter list.
    fn out(
        &mut self,
        nexus: &Arc<Nexus>,
        action: u8,
        kind: u8,
        key: u64,
        new_key: u64,
    ) -> ReservationOutcome {
        self.out_with(nexus, action, kind, &list(key, new_key, 0))
    }

    fn register(&mut self, nexus: &Arc<Nexus>, key: u64) {
        assert_eq!(
            self.out(nexus, REGISTER_AND_IGNORE, 0, 0, key),
            ReservationOutcome::Good
        );
    }

    fn reserve(&mut self, nexus: &Arc<Nexus>, key: u64, kind: u8) {
        assert_eq!(
            self.out(nexus, RESERVE, kind, key, 0),
            ReservationOutcome::Good
        );
    }

    fn read_in(&mut self, nexus: &Arc<Nexus>, action: u8) -> Vec<u8> {
        let (outcome, data) = self.run(nexus, &in_cdb(action), &[]);
        assert_eq!(outcome, ReservationOutcome::Good);
        data
    }

    fn generation(&mut self, nexus: &Arc<Nexus>) -> u32 {
        be32(&self.read_in(nexus, READ_KEYS)[..4])
    }

    fn keys(&mut self, nexus: &Arc<Nexus>) -> Vec<u64> {
        let data = self.read_in(nexus, READ_KEYS);
        assert_eq!(be32(&data[4..8]) as usize, data.len() - 8);
        data[8..].chunks(8).map(be64).collect()
    }

    /// Key and type of the reservation.
    fn reservation(&mut self, nexus: &Arc<Nexus>) -> Option<(u64, u8)> {
        let data = self.read_in(nexus, READ_RESERVATION);
        assert_eq!(be32(&data[4..8]) as usize, data.len() - 8);
        (data.len() > 8).then(|| (be64(&data[8..16]), data[21]))
    }
}

fn out_cdb(action: u8, scope_and_type: u8, length: usize) -> [u8; 10] {
    let [a, b, c, d] = u32::try_from(length).unwrap().to_be_bytes();
    [0x5f, action, scope_and_type, 0, 0, a, b, c, d, 0]
}

fn in_cdb(action: u8) -> [u8; 10] {
    [0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0]
}

/// The 24-byte parameter list.
fn list(key: u64, new_key: u64, flags: u8) -> Vec<u8> {
    let mut list = Vec::new();
    list.extend_from_slice(&key.to_be_bytes());
    list.extend_from_slice(&new_key.to_be_bytes());
    list.extend_from_slice(&[0, 0, 0, 0, flags, 0, 0, 0]);
    list
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

fn attentions(nexus: &Nexus) -> Vec<AdditionalSense> {
    std::iter::from_fn(|| nexus.take_unit_attention())
        .map(crate::unit_attention::UnitAttention::additional_sense)
        .collect()
}
