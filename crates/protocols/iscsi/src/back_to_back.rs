//! The two machines against each other, without sockets.
//!
//! The device behind the target is a byte array. Its commands look like READ(10) and WRITE(10), but
//! bytes 2 to 5 of the CDB are an offset in bytes and bytes 6 to 9 a length.

mod conversations;

use std::collections::HashMap;

use crate::initiator::login::LoginConfig;
use crate::initiator::{self, Command, CommandId, CommandOutcome, Residual, Transfer};
use crate::negotiation::{DigestPolicy, Preferences};
use crate::pdu::{Attribute, CmdSn, Isid, LogoutResult, Lun};
use crate::server::directory::fixture::{INITIATOR, TARGET, TestDirectory, name};
use crate::server::{
    self, Completion, ConnectionConfig, Payload, TaskId, TaskManagementFunction,
    TaskManagementResult,
};
use longshore_wire::back_to_back::{self as shared, Pair as _, Rig, SENDINGS, Sending, pattern};
use longshore_wire::transmit::{Transmit, WriteData};

const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
/// Reads like READ, and fails after half of the data.
const FAILING_READ: u8 = 0x29;
/// Stays with the device until it is aborted.
const STUCK: u8 = 0xff;

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const SENSE: [u8; 18] = [
    0x70, 0, 0x0b, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x44, 0, 0, 0, 0, 0,
];

/// Both ends of a connection and what is between them.
struct Pair {
    initiator: initiator::Connection,
    target: server::Connection,
    rig: Rig,
    directory: TestDirectory,
    /// Write commands that wait for their data.
    writes: HashMap<TaskId, (u32, Vec<u8>)>,
    stuck: Vec<TaskId>,
    /// What the initiator writes and reads.
    data_out: HashMap<CommandId, Vec<u8>>,
    data_in: HashMap<CommandId, Vec<u8>>,
    outcomes: HashMap<CommandId, CommandOutcome>,
    /// The other events, as text.
    initiator_log: Vec<String>,
    target_log: Vec<String>,
    target_closed: Option<server::CloseReason>,
    initiator_closed: Option<initiator::CloseReason>,
    logged_out: Option<LogoutResult>,
}

#[derive(Clone, Debug, Default)]
struct Setup {
    initiator: Preferences,
    target: server::directory::LoginConfig,
    connection: ConnectionConfig,
    discovery: bool,
}

impl Setup {
    fn digests(mut self, header: bool, data: bool) -> Self {
        let policy = |on| {
            if on {
                DigestPolicy::Crc32c
            } else {
                DigestPolicy::None
            }
        };
        self.initiator.header_digest = policy(header);
        self.initiator.data_digest = policy(data);
        self
    }

    fn log_in(&self, piece: usize) -> Pair {
        let isid = Isid([0x80, 0, 0, 0, 0, 1]);
        let mut login = if self.discovery {
            LoginConfig::discovery(name(INITIATOR), isid)
        } else {
            LoginConfig::normal(name(INITIATOR), name(TARGET), isid)
        };
        login.preferences = self.initiator.clone();
        // So that the numbers wrap around early.
        login.cmd_sn = CmdSn(u32::MAX - 2);
        let mut rig = Rig::new(&[piece]);
        let transmit = &mut rig.to_server.transmit;
        let initiator = initiator::Connection::new(login, 64, &mut |bytes| bytes.fill(7), transmit);
        let directory = TestDirectory {
            config: self.target.clone(),
            ..TestDirectory::default()
        };
        let mut pair = Pair {
            initiator,
            target: server::Connection::new(self.connection.clone(), 0),
            rig,
            directory,
            writes: HashMap::new(),
            stuck: Vec::new(),
            data_out: HashMap::new(),
            data_in: HashMap::new(),
            outcomes: HashMap::new(),
            initiator_log: Vec::new(),
            target_log: Vec::new(),
            target_closed: None,
            initiator_closed: None,
            logged_out: None,
        };
        pair.run();
        assert!(pair.target.session().is_some(), "{:?}", pair.target_closed);
        assert!(pair.initiator.session().is_some());
        pair
    }
}

fn word(cdb: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(cdb[at..at + 4].try_into().unwrap())
}

fn cdb(opcode: u8, offset: usize, length: usize) -> [u8; 10] {
    let mut cdb = [0; 10];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&u32::try_from(offset).unwrap().to_be_bytes());
    cdb[6..10].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
    cdb
}

impl shared::Pair for Pair {
    type Command = CommandId;

    fn rig(&mut self) -> &mut Rig {
        &mut self.rig
    }

    fn place_at_server(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.target.payload_wanted() {
            let length = piece.len().min(wanted.length as usize);
            let (now, later) = piece.split_at(length);
            let start = wanted.buffer_offset as usize;
            let (_, buffer) = self.writes.get_mut(&wanted.task).unwrap();
            buffer[start..start + length].copy_from_slice(now);
            self.target.payload_received(now, 0);
            *piece = later;
        }
    }

    fn place_at_client(&mut self, piece: &mut &[u8]) {
        if let Some(wanted) = self.initiator.payload_wanted() {
            let length = piece.len().min(wanted.length as usize);
            let (now, later) = piece.split_at(length);
            let start = wanted.buffer_offset as usize;
            let buffer = self.data_in.get_mut(&wanted.command).unwrap();
            buffer[start..start + length].copy_from_slice(now);
            self.initiator.payload_received(now);
            *piece = later;
        }
    }

    fn server_event(&mut self, input: &mut &[u8]) -> bool {
        let (directory, transmit) = (&mut self.directory, &mut self.rig.to_client.transmit);
        match self.target.next(input, directory, transmit, 0) {
            server::ConnectionEvent::NeedMore => return false,
            server::ConnectionEvent::Established => {}
            server::ConnectionEvent::Command(command) => self.execute(&command),
            server::ConnectionEvent::DataOut {
                task,
                buffer_offset,
                bytes,
            } => {
                let start = buffer_offset as usize;
                let (_, buffer) = self.writes.get_mut(&task).unwrap();
                buffer[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            server::ConnectionEvent::DataOutComplete { task } => {
                let (offset, buffer) = self.writes.remove(&task).unwrap();
                let start = offset as usize;
                self.rig.device[start..start + buffer.len()].copy_from_slice(&buffer);
                self.complete(task, GOOD, Payload::None, buffer.len());
            }
            server::ConnectionEvent::DataOutFailed { task, failure } => {
                self.writes.remove(&task);
                self.target_log.push(format!("{failure:?}"));
                self.complete(task, CHECK_CONDITION, Payload::None, 0);
            }
            server::ConnectionEvent::TaskManagement(request) => {
                let tasks = match request.function {
                    TaskManagementFunction::AbortTask => {
                        request.referenced_task.into_iter().collect()
                    }
                    _ => std::mem::take(&mut self.stuck),
                };
                for task in tasks {
                    self.stuck.retain(|stuck| *stuck != task);
                    self.writes.remove(&task);
                    self.target.abort(task);
                }
                let result = TaskManagementResult::FunctionComplete;
                self.target.task_management_done(
                    request.id,
                    result,
                    &mut self.rig.to_client.transmit,
                );
            }
            server::ConnectionEvent::Close(reason) => {
                self.target_closed = Some(reason);
                return false;
            }
        }
        true
    }

    fn client_event(&mut self, input: &mut &[u8]) -> bool {
        match self.initiator.next(input, &mut self.rig.to_server.transmit) {
            initiator::ConnectionEvent::NeedMore => return false,
            initiator::ConnectionEvent::DataIn {
                command,
                buffer_offset,
                bytes,
            } => {
                let start = buffer_offset as usize;
                let buffer = self.data_in.get_mut(&command).unwrap();
                buffer[start..start + bytes.len()].copy_from_slice(bytes);
            }
            initiator::ConnectionEvent::R2t(r2t) => {
                let start = r2t.buffer_offset as usize;
                let data = self.data_out[&r2t.command][start..start + r2t.length as usize].to_vec();
                self.with_data(&data, |initiator, data, transmit| {
                    initiator.send_data_out(&r2t, data, transmit);
                });
            }
            initiator::ConnectionEvent::Completed { command, outcome } => {
                self.outcomes.insert(command, outcome);
            }
            initiator::ConnectionEvent::LoggedOut(result) => self.logged_out = Some(result),
            initiator::ConnectionEvent::Close(reason) => {
                self.initiator_closed = Some(reason);
                return false;
            }
            initiator::ConnectionEvent::Established => {}
            initiator::ConnectionEvent::Text(text) => {
                self.initiator_log
                    .push(format!("Text {}", String::from_utf8(text).unwrap()));
            }
            other => self.initiator_log.push(format!("{other:?}")),
        }
        true
    }

    fn is_server_closed(&self) -> bool {
        self.target_closed.is_some()
    }

    fn is_client_closed(&self) -> bool {
        self.initiator_closed.is_some()
    }

    fn start_write(&mut self, offset: usize, data: &[u8]) -> CommandId {
        let expected = u32::try_from(data.len()).unwrap();
        self.submit(
            &cdb(WRITE, offset, data.len()),
            Transfer::Write(expected),
            data,
        )
    }

    fn start_read(&mut self, offset: usize, length: usize) -> CommandId {
        let expected = u32::try_from(length).unwrap();
        self.submit(&cdb(READ, offset, length), Transfer::Read(expected), &[])
    }

    fn assert_good(&self, command: CommandId) {
        let outcome = self.outcome(command);
        assert_eq!(
            (outcome.status, outcome.residual),
            (Some(GOOD), Residual::None)
        );
    }

    fn data_in(&self, command: CommandId) -> &[u8] {
        &self.data_in[&command]
    }

    fn assert_idle(&self) {
        assert_eq!(self.target.tasks().count(), 0);
        assert_eq!(self.target_closed, None);
    }
}

impl Pair {
    /// Hands write data to a call of the initiator, copied or by reference.
    fn with_data<T>(
        &mut self,
        bytes: &[u8],
        call: impl FnOnce(&mut initiator::Connection, WriteData<'_>, &mut Transmit) -> T,
    ) -> T {
        let line = &mut self.rig.to_server;
        if !self.rig.referring {
            let data = WriteData::Bytes(bytes);
            return call(&mut self.initiator, data, &mut line.transmit);
        }
        let (start, payload) = (5, [b"....." as &[u8], bytes].concat());
        let id = line.keep(payload);
        let due = line.transmit.releases_due();
        let data = WriteData::Buffer { id, start, bytes };
        let result = call(&mut self.initiator, data, &mut line.transmit);
        // A payload that the queue does not refer to is never released.
        if line.transmit.releases_due() == due {
            line.forget(id);
        }
        result
    }

    fn execute(&mut self, command: &server::ScsiCommand) {
        let bytes = command.cdb.as_bytes();
        let (offset, length) = (word(bytes, 2), word(bytes, 6));
        let task = command.task;
        match bytes[0] {
            READ => self.read(task, offset as usize, length),
            FAILING_READ => {
                let half = self.rig.device[offset as usize..][..length as usize / 2].to_vec();
                self.complete(
                    task,
                    CHECK_CONDITION,
                    Payload::Bytes(&half),
                    length as usize,
                );
            }
            WRITE => {
                let wanted = length.min(command.expected_data_transfer_length);
                self.writes.insert(task, (offset, vec![0; wanted as usize]));
                self.target.want_data_out(
                    task,
                    u64::from(length),
                    &mut self.rig.to_client.transmit,
                );
            }
            STUCK if command.write => {
                self.writes.insert(task, (0, vec![0; length as usize]));
                self.target.want_data_out(
                    task,
                    u64::from(length),
                    &mut self.rig.to_client.transmit,
                );
            }
            STUCK => self.stuck.push(task),
            _ => self.complete(task, CHECK_CONDITION, Payload::None, 0),
        }
    }

    fn read(&mut self, task: TaskId, offset: usize, length: u32) {
        let data = self.rig.device[offset..offset + length as usize].to_vec();
        match self.rig.sending {
            Sending::Inline => {
                let inline =
                    self.target
                        .begin_inline_read(task, length, &mut self.rig.to_client.transmit);
                if let Some(place) = inline {
                    // Once for nothing, to see that it leaves no trace.
                    place.fill(0xee);
                    self.target
                        .rollback_inline_read(task, &mut self.rig.to_client.transmit);
                    let place = self
                        .target
                        .begin_inline_read(task, length, &mut self.rig.to_client.transmit)
                        .unwrap();
                    let sent = place.len();
                    place.copy_from_slice(&data[..sent]);
                    self.target
                        .commit_inline_read(task, &mut self.rig.to_client.transmit);
                } else {
                    self.complete(task, GOOD, Payload::Bytes(&data), data.len());
                }
            }
            Sending::Copied => self.complete(task, GOOD, Payload::Bytes(&data), data.len()),
            Sending::ByReference => {
                let id = self.rig.to_client.keep(data.clone());
                self.complete(task, GOOD, Payload::Buffer { id, bytes: &data }, data.len());
            }
        }
    }

    fn complete(&mut self, task: TaskId, status: u8, data_in: Payload<'_>, scsi_length: usize) {
        let sense: &[u8] = if status == CHECK_CONDITION {
            &SENSE
        } else {
            &[]
        };
        let scsi_length = scsi_length as u64;
        let completion = Completion {
            status,
            sense,
            data_in,
            scsi_length,
        };
        self.target
            .complete(task, completion, &mut self.rig.to_client.transmit);
    }

    fn submit(&mut self, cdb: &[u8], transfer: Transfer, data: &[u8]) -> CommandId {
        let command = Command {
            lun: Lun::ZERO,
            cdb,
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer,
        };
        let id = self
            .with_data(data, |initiator, data, transmit| {
                initiator.submit(&command, data, transmit)
            })
            .unwrap();
        self.outcomes.remove(&id);
        self.data_out.insert(id, data.to_vec());
        if let Transfer::Read(length) = transfer {
            self.data_in.insert(id, vec![0; length as usize]);
        }
        id
    }

    fn outcome(&self, command: CommandId) -> &CommandOutcome {
        self.outcomes.get(&command).unwrap_or_else(|| {
            panic!(
                "no outcome; target: {:?} initiator: {:?}",
                self.target_closed, self.initiator_closed
            )
        })
    }
}

/// Small limits, so that everything is cut.
fn small(initial_r2t: bool, immediate_data: bool, max_outstanding_r2t: u16) -> Setup {
    let mut setup = Setup::default();
    setup.target.max_recv_data_segment_length = 1024;
    setup.target.first_burst_length = 3 * 1024;
    setup.target.max_burst_length = 4 * 1024;
    setup.target.initial_r2t = initial_r2t;
    setup.target.immediate_data = immediate_data;
    setup.target.max_outstanding_r2t = max_outstanding_r2t;
    setup.initiator.max_outstanding_r2t = max_outstanding_r2t;
    setup.initiator.initial_r2t = initial_r2t;
    setup.initiator.max_recv_data_segment_length = 2 * 1024;
    setup
}
