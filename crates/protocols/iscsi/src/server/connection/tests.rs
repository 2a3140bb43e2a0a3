//! Conversations with initiators that break rules, PDU by PDU.

mod commands;
mod requests;
mod sequences;
mod timers;
mod write_data;

use super::*;
use crate::initiator;
use crate::initiator::login::LoginConfig;
use crate::pdu::{
    self, Attribute, CmdSn, DataOut, DataSn, InitiatorTaskTag, Isid, LoginStatus, Lun, R2t, Reject,
    RejectReason, ScsiResponse, StatSn, TargetTransferTag, padding,
};
use crate::server::TaskId;
use crate::server::command::{Completion, Payload, ScsiCommand};
use crate::server::directory::fixture::{INITIATOR, TARGET, TestDirectory, name};
use longshore_wire::transmit::Segment;

/// A target that has been logged in to, and what is said to it.
struct Wire {
    target: Connection,
    directory: TestDirectory,
    transmit: Transmit,
    /// The next number of a command in good order.
    cmd_sn: CmdSn,
    now_ms: u64,
}

struct Setup {
    config: ConnectionConfig,
    directory: TestDirectory,
    discovery: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let mut directory = TestDirectory::default();
        directory.config.max_recv_data_segment_length = 4096;
        directory.config.first_burst_length = 4096;
        directory.config.max_burst_length = 8192;
        directory.config.max_outstanding_r2t = 2;
        Self {
            config: ConnectionConfig {
                queue_depth: 8,
                ..ConnectionConfig::default()
            },
            directory,
            discovery: false,
        }
    }
}

/// A PDU of the target.
#[derive(Debug)]
struct Sent {
    bhs: Bhs,
    data: Vec<u8>,
}

impl Wire {
    fn logged_in() -> Self {
        Self::with(Setup::default())
    }

    fn with(setup: Setup) -> Self {
        let isid = Isid([0x80, 0, 0, 0, 0, 1]);
        let mut login = if setup.discovery {
            LoginConfig::discovery(name(INITIATOR), isid)
        } else {
            LoginConfig::normal(name(INITIATOR), name(TARGET), isid)
        };
        login.cmd_sn = CmdSn(100);
        login.preferences.max_recv_data_segment_length = 4096;
        login.preferences.initial_r2t = setup.directory.config.initial_r2t;
        login.preferences.max_outstanding_r2t = 4;
        let mut to_target = Transmit::new();
        let mut initiator =
            initiator::Connection::new(login, 1, &mut |bytes| bytes.fill(1), &mut to_target);
        let mut wire = Self {
            target: Connection::new(setup.config, 0),
            directory: setup.directory,
            transmit: Transmit::new(),
            cmd_sn: CmdSn(100),
            now_ms: 0,
        };
        while initiator.session().is_none() {
            let requests = bytes_of(&mut to_target);
            wire.feed(&requests);
            let responses = bytes_of(&mut wire.transmit);
            let mut input = &responses[..];
            while initiator.next(&mut input, &mut to_target) != initiator::ConnectionEvent::NeedMore
            {
            }
        }
        wire
    }

    /// What the target makes of some bytes.
    fn feed(&mut self, bytes: &[u8]) -> Vec<ConnectionEvent<'static>> {
        let mut input = bytes;
        let mut events = Vec::new();
        loop {
            let (directory, transmit) = (&mut self.directory, &mut self.transmit);
            let event = self
                .target
                .next(&mut input, directory, transmit, self.now_ms)
                .into_owned();
            match event {
                ConnectionEvent::NeedMore => return events,
                ConnectionEvent::Close(_) => {
                    events.push(event);
                    return events;
                }
                _ => events.push(event),
            }
        }
    }

    fn send(&mut self, bhs: Bhs, data: &[u8]) -> Vec<ConnectionEvent<'static>> {
        self.feed(&pdu_bytes(bhs, data))
    }

    /// What the target has queued, PDU by PDU.
    fn sent(&mut self) -> Vec<Sent> {
        let bytes = bytes_of(&mut self.transmit);
        let mut rest = &bytes[..];
        let mut sent = Vec::new();
        while let Some((bhs, after)) = rest.split_first_chunk() {
            let bhs = Bhs(*bhs);
            let length = bhs.data_segment_length() as usize;
            let (data, after) = after.split_at(length);
            rest = &after[padding(length)..];
            sent.push(Sent {
                bhs,
                data: data.to_vec(),
            });
        }
        assert!(rest.is_empty());
        sent
    }

    /// The only PDU the target has queued.
    fn only_sent(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    fn assert_silent(&mut self) {
        assert!(self.sent().is_empty());
    }

    fn assert_rejected(&mut self, header: Bhs, reason: RejectReason) {
        let sent = self.only_sent();
        assert_eq!(sent.bhs.opcode(), Opcode::REJECT);
        assert_eq!(Reject::decode(&sent.bhs).reason, reason);
        assert_eq!(sent.data, header.0);
    }

    /// A command in good order.
    fn command(&mut self, tag: u32, transfer: Transfer) -> pdu::ScsiCommand {
        let cmd_sn = self.cmd_sn;
        self.cmd_sn = cmd_sn.next();
        command(tag, cmd_sn, transfer)
    }

    /// Sends a command in good order and returns its task.
    fn start(&mut self, tag: u32, transfer: Transfer) -> TaskId {
        let command = self.command(tag, transfer);
        only_command(&self.send(command.encode(), &[])).task
    }

    fn good(&mut self, task: TaskId) {
        let completion = Completion {
            status: 0,
            sense: &[],
            data_in: Payload::None,
            scsi_length: 0,
        };
        self.target.complete(task, completion, &mut self.transmit);
    }

    /// The R2Ts the target has queued, and nothing else.
    fn r2ts(&mut self) -> Vec<R2t> {
        let r2t = |sent: Sent| {
            assert_eq!(sent.bhs.opcode(), Opcode::R2T);
            R2t::decode(&sent.bhs)
        };
        self.sent().into_iter().map(r2t).collect()
    }

    /// The SCSI Response the target has queued.
    fn response(&mut self) -> ScsiResponse {
        let sent = self.only_sent();
        assert_eq!(sent.bhs.opcode(), Opcode::SCSI_RESPONSE);
        ScsiResponse::decode(&sent.bhs)
    }
}

#[derive(Clone, Copy)]
enum Transfer {
    None,
    Read(u32),
    Write(u32),
}

fn command(tag: u32, cmd_sn: CmdSn, transfer: Transfer) -> pdu::ScsiCommand {
    let (read, write, expected_data_transfer_length) = match transfer {
        Transfer::None => (false, false, 0),
        Transfer::Read(length) => (true, false, length),
        Transfer::Write(length) => (false, true, length),
    };
    pdu::ScsiCommand {
        immediate: false,
        is_final: true,
        read,
        write,
        attribute: Attribute::SIMPLE,
        lun: Lun([0, 1, 0, 0, 0, 0, 0, 0]),
        initiator_task_tag: InitiatorTaskTag(tag),
        expected_data_transfer_length,
        cmd_sn,
        exp_stat_sn: StatSn(0),
        cdb: [0x5a; 16],
    }
}

/// A Data-Out that answers an R2T from its start.
fn answer(r2t: &R2t, is_final: bool) -> DataOut {
    DataOut {
        is_final,
        lun: r2t.lun,
        initiator_task_tag: r2t.initiator_task_tag,
        target_transfer_tag: r2t.target_transfer_tag,
        exp_stat_sn: StatSn(0),
        data_sn: DataSn(0),
        buffer_offset: r2t.buffer_offset,
    }
}

/// The first unsolicited Data-Out of a task.
fn unsolicited(tag: u32, buffer_offset: u32, is_final: bool) -> DataOut {
    DataOut {
        is_final,
        lun: Lun::ZERO,
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: TargetTransferTag::RESERVED,
        exp_stat_sn: StatSn(0),
        data_sn: DataSn(0),
        buffer_offset,
    }
}

fn only_command<'e>(events: &'e [ConnectionEvent<'static>]) -> &'e ScsiCommand {
    match events {
        [ConnectionEvent::Command(command)] => command,
        other => panic!("not one command: {other:?}"),
    }
}

fn pdu_bytes(mut bhs: Bhs, data: &[u8]) -> Vec<u8> {
    bhs.set_data_segment_length(u32::try_from(data.len()).unwrap());
    let mut bytes = [&bhs.0[..], data].concat();
    bytes.resize(bytes.len() + padding(data.len()), 0);
    bytes
}

/// A header as the target saw it, with the length of its data segment.
fn with_length(mut bhs: Bhs, length: u32) -> Bhs {
    bhs.set_data_segment_length(length);
    bhs
}

fn bytes_of(transmit: &mut Transmit) -> Vec<u8> {
    let mut bytes = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                bytes.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            Segment::Zeros { length } => bytes.resize(bytes.len() + length, 0),
            Segment::Buffer { .. } => panic!("nothing is sent by reference here"),
        }
    }
    transmit.advance(bytes.len(), &mut Vec::new());
    bytes
}
