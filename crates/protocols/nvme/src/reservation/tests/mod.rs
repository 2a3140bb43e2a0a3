//! Conversations of several hosts with one namespace, command by command as a driver would.

use std::sync::Arc;

use longshore_block::reservation::{
    NexusIdentity, Participant, ReservationClass, Reservations, StoreOrder, is_same_participant,
};

use super::*;
use crate::command::{CommandId, NamespaceId, SubmissionEntry};
use crate::opcode::io;
use crate::status::Status;

mod acquire;
mod model;
mod notifications;
mod register;
mod release;
mod report;
mod storing;

const REGISTER: u32 = 0;
const UNREGISTER: u32 = 1;
const REPLACE: u32 = 2;
const IEKEY: u32 = 1 << 3;
const CPTPL_CLEAR: u32 = 2 << 30;
const CPTPL_PERSIST: u32 = 3 << 30;

const ACQUIRE: u32 = 0;
const PREEMPT: u32 = 1;
const PREEMPT_AND_ABORT: u32 = 2;

const RELEASE: u32 = 0;
const CLEAR: u32 = 1;

const WRITE_EXCLUSIVE: u8 = 1;
const EXCLUSIVE_ACCESS: u8 = 2;
const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 3;
const EXCLUSIVE_ACCESS_REGISTRANTS_ONLY: u8 = 4;
const WRITE_EXCLUSIVE_ALL_REGISTRANTS: u8 = 5;
const ALL_TYPES: [u8; 6] = [1, 2, 3, 4, 5, 6];

const SUCCESS: Status = Status::SUCCESS;
const CONFLICT: Status = Status::RESERVATION_CONFLICT.do_not_retry();
const INVALID_FIELD: Status = Status::INVALID_FIELD.do_not_retry();

/// A namespace and its driver.
struct World {
    reservations: Arc<Reservations>,
    /// The driver can store.
    can_store: bool,
    stores: bool,
    /// What was stored last.
    stored: Option<Vec<u8>>,
    /// Whose commands the driver was asked to abort.
    aborted: Vec<Arc<dyn Participant>>,
}

/// A controller of a host.
struct Controller {
    host: Arc<HostRegistrant>,
    log: Arc<NotificationLog>,
}

impl Controller {
    fn may_read(&self) -> bool {
        !self.host.conflicts(ReservationClass::Reads)
    }

    fn may_write(&self) -> bool {
        !self.host.conflicts(ReservationClass::Changes)
    }

    /// Types of the notifications that wait.
    fn told(&self) -> Vec<u8> {
        std::iter::from_fn(|| Some(self.log.read(false)[8]).filter(|kind| *kind != 0)).collect()
    }
}

fn host_identifier(number: u8) -> [u8; 16] {
    [number; 16]
}

fn entry(opcode: crate::opcode::Opcode, dword_10: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(opcode, CommandId(1), NamespaceId(1));
    entry.set_dword(10, dword_10);
    entry
}

fn keys(first: u64, second: u64) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

impl World {
    fn new() -> Self {
        Self {
            reservations: Reservations::new(),
            can_store: true,
            stores: true,
            stored: None,
            aborted: Vec::new(),
        }
    }

    fn controller(&self, host: u8) -> Controller {
        self.controller_of(host_identifier(host))
    }

    fn controller_of(&self, host_identifier: [u8; 16]) -> Controller {
        let log = NotificationLog::new();
        let namespace = NamespaceId(7);
        let join = HostRegistrant::join;
        let host = join(&self.reservations, host_identifier, namespace, log.clone());
        Controller { host, log }
    }

    fn hosts<const N: usize>(&self) -> [Controller; N] {
        std::array::from_fn(|index| self.controller(u8::try_from(index + 1).unwrap()))
    }

    /// The first of so many hosts holds a reservation, and all are registered with 11, 22, 33 …
    fn reserved<const N: usize>(kind: u8) -> (Self, [Controller; N]) {
        let mut world = Self::new();
        let hosts = world.hosts::<N>();
        for (key, host) in (1..).zip(&hosts) {
            assert_eq!(world.register(host, REGISTER, 0, key * 11), SUCCESS);
        }
        assert_eq!(world.acquire(&hosts[0], ACQUIRE, kind, 11, 0), SUCCESS);
        (world, hosts)
    }

    fn begin(
        &self,
        by: &Controller,
        entry: &SubmissionEntry,
    ) -> Result<ReservationCommand, Status> {
        ReservationCommand::begin(&self.reservations, &by.host, entry, self.can_store)
    }

    fn run(&mut self, by: &Controller, entry: &SubmissionEntry, data: &[u8]) -> Status {
        let mut command = match self.begin(by, entry) {
            Ok(command) => command,
            Err(status) => return status,
        };
        let mut event = ReservationEvent::Start;
        loop {
            event = match command.step(event, data) {
                ReservationStep::Complete(status) => return status,
                ReservationStep::Persist(order) => {
                    if self.stores {
                        self.stored = Some(order.to_vec());
                    }
                    ReservationEvent::Persisted(self.stores)
                }
                ReservationStep::Wait(wait) => panic!("nobody ends {wait:?}"),
                ReservationStep::AbortTasks(members) => {
                    self.aborted.extend(members);
                    ReservationEvent::TasksAborted
                }
            };
        }
    }

    /// Reservation Register; `action` with flags.
    fn register(&mut self, by: &Controller, action: u32, current: u64, new: u64) -> Status {
        let entry = entry(io::RESERVATION_REGISTER, action);
        self.run(by, &entry, &keys(current, new))
    }

    fn acquire(
        &mut self,
        by: &Controller,
        action: u32,
        kind: u8,
        key: u64,
        preempt: u64,
    ) -> Status {
        let entry = entry(io::RESERVATION_ACQUIRE, action | u32::from(kind) << 8);
        self.run(by, &entry, &keys(key, preempt))
    }

    fn release(&mut self, by: &Controller, action: u32, kind: u8, key: u64) -> Status {
        let entry = entry(io::RESERVATION_RELEASE, action | u32::from(kind) << 8);
        self.run(by, &entry, &key.to_le_bytes())
    }

    fn report(&self) -> Reported {
        let mut entry = entry(io::RESERVATION_REPORT, 8191);
        entry.set_dword(11, 1);
        let mut data = Vec::new();
        let report = Report::begin(&entry).unwrap();
        report.execute(&self.reservations, usize::MAX, &mut data);
        assert_eq!(data.len(), 32768);
        Reported::decode(&data)
    }

    fn keys(&self) -> Vec<u64> {
        self.report()
            .registrants
            .iter()
            .map(|one| one.key)
            .collect()
    }
}

/// A report, decoded independently of how it was encoded.
#[derive(Debug, PartialEq, Eq)]
struct Reported {
    generation: u32,
    kind: u8,
    persists: bool,
    registrants: Vec<ReportedRegistrant>,
}

#[derive(Debug, PartialEq, Eq)]
struct ReportedRegistrant {
    controller: u16,
    holds: bool,
    key: u64,
    host_identifier: [u8; 16],
}

impl Reported {
    fn decode(data: &[u8]) -> Self {
        let count = usize::from(u16::from_le_bytes([data[5], data[6]]));
        let (registrants, rest) = data[64..].split_at(count * 64);
        assert!(rest.iter().all(|byte| *byte == 0));
        Self {
            generation: u32::from_le_bytes(data[..4].try_into().unwrap()),
            kind: data[4],
            persists: data[9] != 0,
            registrants: registrants
                .chunks_exact(64)
                .map(|one| ReportedRegistrant {
                    controller: u16::from_le_bytes(one[..2].try_into().unwrap()),
                    holds: one[2] != 0,
                    key: u64::from_le_bytes(one[8..16].try_into().unwrap()),
                    host_identifier: one[16..32].try_into().unwrap(),
                })
                .collect(),
        }
    }
}
