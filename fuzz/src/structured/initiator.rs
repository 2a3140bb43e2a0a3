//! The initiator's end of a session and a target that may say anything, but mostly says what could be: the login,
//! commands and their data, the other requests, logout, and calls after the end.
//!
//! Whatever it says: data lands within what the initiator has room for, R2Ts ask for what there is, each command ends
//! at most once, what is sent is well-formed and bounded, and a connection that is over refuses everything.

use std::collections::BTreeMap;

use longshore_iscsi::initiator::login::LoginConfig;
use longshore_iscsi::initiator::{
    Command, CommandId, Connection, ConnectionEvent, NotSent, R2tRequest, Transfer,
};
use longshore_iscsi::name::IscsiName;
use longshore_iscsi::pdu::{Attribute, Function, Isid, LogoutReason, Lun};
use longshore_tests::pdu::{Pdu, RESERVED_TAG, opcode};
use longshore_wire::transmit::{Transmit, WriteData};

use super::connection::{INITIATOR, TARGET, Target, World, drain};
use crate::input::Input;

/// One event leaves no more than this to send: the longest text, with headers.
const SENT_MAX: usize = 64 << 10;

/// Requests that have no answer, at most.
const OTHERS_MAX: usize = 16;

struct Initiator {
    machine: Connection,
    transmit: Transmit,
    commands: BTreeMap<u16, Transfer>,
    r2ts: Vec<R2tRequest>,
    /// Initiator Task Tags of PDUs that were sent, the last ones.
    tags: Vec<u32>,
    digests: [bool; 2],
    /// StatSN of the target's next PDU.
    stat_sn: u32,
    established: bool,
    closed: bool,
}

impl Initiator {
    fn new(input: &mut Input<'_>) -> Self {
        let name = |text| IscsiName::parse(text).expect("a good name");
        let isid = Isid([0x80, 0, 0, 0, 0, 1]);
        let settings = input.byte();
        let mut login = if settings & 1 == 0 {
            LoginConfig::normal(name(INITIATOR), name(TARGET), isid)
        } else {
            LoginConfig::discovery(name(INITIATOR), isid)
        };
        login.preferences.initial_r2t = settings & 2 != 0;
        login.preferences.immediate_data = settings & 4 == 0;
        login.preferences.data_pdu_in_order = settings & 8 == 0;
        login.preferences.max_recv_data_segment_length = 4096;
        let mut transmit = Transmit::new();
        let machine = Connection::new(login, 6, &mut |bytes| bytes.fill(1), &mut transmit);
        Self {
            machine,
            transmit,
            commands: BTreeMap::new(),
            r2ts: Vec::new(),
            tags: Vec::new(),
            digests: [false; 2],
            stat_sn: 0,
            established: false,
            closed: false,
        }
    }

    /// Logs in at a well-behaved target; the input may change bytes.
    fn log_in(&mut self, input: &mut Input<'_>) {
        let mut target = Target::new(World::open());
        let spoils = input.byte();
        for _ in 0..8 {
            target.feed(&drain(&mut self.transmit), &mut Input(&[]));
            let mut answer = drain(&mut target.transmit);
            if answer.is_empty() || self.closed || self.established {
                return;
            }
            if spoils >= 0xc0 {
                let at = usize::from(input.byte()) % answer.len();
                answer[at] ^= input.byte();
            }
            // StatSN, which the session goes on from.
            if let Some(numbers) = answer.get(24..28) {
                let last = u32::from_be_bytes(numbers.try_into().expect("four bytes"));
                self.stat_sn = last.wrapping_add(1);
            }
            self.feed(&answer, input);
        }
    }

    fn feed(&mut self, mut bytes: &[u8], input: &mut Input<'_>) {
        let limit = 64 + bytes.len() * 4;
        for _ in 0..limit {
            if let Some(wanted) = self.machine.payload_wanted()
                && !bytes.is_empty()
                && input.byte() & 1 == 1
            {
                let length = bytes.len().min(wanted.length as usize);
                let (now, later) = bytes.split_at(length);
                self.data(wanted.command, wanted.buffer_offset, now.len());
                self.machine.payload_received(now);
                bytes = later;
            }
            let queued = self.transmit.pending_bytes();
            let event = self.machine.next(&mut bytes, &mut self.transmit);
            match event {
                ConnectionEvent::NeedMore => {
                    assert!(bytes.is_empty(), "the machine wants more and leaves some");
                    return;
                }
                ConnectionEvent::Established => {
                    assert!(!self.established, "a login ends once");
                    self.established = true;
                }
                ConnectionEvent::DataIn {
                    command,
                    buffer_offset,
                    bytes,
                } => self.data(command, buffer_offset, bytes.len()),
                ConnectionEvent::R2t(r2t) => {
                    let transfer = self.commands.get(&r2t.command.0);
                    let Some(Transfer::Write(length)) = transfer else {
                        panic!("an R2T for {transfer:?}");
                    };
                    assert!(r2t.length > 0 && r2t.length <= length - r2t.buffer_offset);
                    self.r2ts.push(r2t);
                }
                ConnectionEvent::Completed { command, outcome } => {
                    let ended = self.commands.remove(&command.0);
                    let transfer = ended.expect("a command ends once");
                    let Transfer::Read(room) = transfer else {
                        assert_eq!(outcome.data_in_length, 0);
                        continue;
                    };
                    assert!(outcome.data_in_length <= room);
                }
                ConnectionEvent::Text(text) => assert!(text.len() <= 1 << 20),
                ConnectionEvent::TaskManagementDone { .. }
                | ConnectionEvent::Pong { .. }
                | ConnectionEvent::Rejected { .. }
                | ConnectionEvent::Async(_)
                | ConnectionEvent::LoggedOut(_) => {}
                ConnectionEvent::Close(_) => {
                    self.closed = true;
                    return;
                }
            }
            let said = self.transmit.pending_bytes() - queued;
            assert!(said <= SENT_MAX, "{said} bytes to send after one event");
        }
        panic!("{limit} events of one input");
    }

    fn data(&self, command: CommandId, offset: u32, length: usize) {
        let transfer = self.commands.get(&command.0);
        let Some(Transfer::Read(room)) = transfer else {
            panic!("data for {transfer:?}");
        };
        assert!(length > 0 && offset as usize + length <= *room as usize);
    }

    /// Actions of a driver between two receives.
    fn turn(&mut self, input: &mut Input<'_>) {
        let (machine, transmit) = (&mut self.machine, &mut self.transmit);
        match input.byte() % 16 {
            0..=5 => self.submit(input),
            6..=8 => self.answer(),
            9 => drop(machine.ping(&[7; 32], transmit)),
            10 => drop(machine.text(b"SendTargets=All\0", transmit)),
            11 => {
                let under_way: Vec<_> = machine.under_way().collect();
                let command = under_way.get(usize::from(input.byte()) % 8).copied();
                let which = command.map(|command| (command, machine.cmd_sn_of(command)));
                let function = if which.is_some() {
                    Function::ABORT_TASK
                } else {
                    Function::LOGICAL_UNIT_RESET
                };
                let _ = machine.task_management(function, Lun::ZERO, which, transmit);
            }
            12 => {
                let under_way: Vec<_> = machine.under_way().collect();
                if let Some(command) = under_way.get(usize::from(input.byte()) % 8) {
                    machine.forget(*command);
                    self.commands.remove(&command.0);
                }
            }
            13 if input.byte() >= 0xf0 => {
                let _ = machine.logout(LogoutReason::CLOSE_SESSION, transmit);
            }
            14 if input.byte() == 0xff => {
                // A driver that has lost its place.
                self.machine.payload_received(&[0; 7000]);
                self.closed = true;
            }
            _ => {}
        }
        assert_eq!(self.machine.under_way().count(), self.commands.len());
        self.hear();
        if self.closed {
            self.check_end();
        }
    }

    /// Parses the sent bytes: PDUs are whole, and their tags serve in answers.
    fn hear(&mut self) {
        let stream = drain(&mut self.transmit);
        let [header_digest, data_digest] = self.digests.map(|on| if on { 4 } else { 0 });
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let bhs = rest.get(..48).expect("a whole header");
            let itt = u32::from_be_bytes(bhs[16..20].try_into().expect("four bytes"));
            let data = u32::from_be_bytes([0, bhs[5], bhs[6], bhs[7]]) as usize;
            let limits = self.machine.operational();
            assert!(data <= limits.target_max_recv_data_segment_length as usize);
            let mut length = 48 + header_digest;
            if data > 0 {
                length += data.next_multiple_of(4) + data_digest;
            }
            rest = rest.get(length..).expect("a whole PDU");
            self.tags.push(itt);
        }
        let old = self.tags.len().saturating_sub(OTHERS_MAX);
        self.tags.drain(..old);
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let length = (input.word() >> 16) & 0x3fff;
        let transfer = match input.byte() % 3 {
            0 => Transfer::None,
            1 => Transfer::Read(length),
            _ => Transfer::Write(length),
        };
        let command = Command {
            lun: Lun::ZERO,
            cdb: &[0x2a; 16],
            attribute: Attribute::SIMPLE,
            immediate: input.byte() == 0xff,
            transfer,
        };
        let zeros = vec![0; length as usize];
        let payload = WriteData::Bytes(&zeros);
        let (room, is_ready) = (self.machine.room(), self.machine.is_ready());
        match self.machine.submit(&command, payload, &mut self.transmit) {
            Ok(id) => {
                assert!(is_ready);
                let before = self.commands.insert(id.0, transfer);
                assert!(before.is_none(), "a number is used twice");
            }
            Err(NotSent::Closed) => assert!(!is_ready),
            Err(NotSent::Busy) => assert_eq!(room, 0),
            Err(other) => panic!("{other}"),
        }
    }

    fn answer(&mut self) {
        if let Some(r2t) = self.r2ts.pop() {
            let zeros = vec![0; r2t.length as usize];
            let payload = WriteData::Bytes(&zeros);
            self.machine
                .send_data_out(&r2t, payload, &mut self.transmit);
        }
    }

    /// After the end every call is refused, and nothing is sent.
    fn check_end(&mut self) {
        let (machine, transmit) = (&mut self.machine, &mut self.transmit);
        let command = Command {
            lun: Lun::ZERO,
            cdb: &[0; 6],
            attribute: Attribute::SIMPLE,
            immediate: false,
            transfer: Transfer::None,
        };
        assert!(!machine.is_ready() && machine.room() == 0);
        let refused = [
            machine.submit(&command, WriteData::NONE, transmit).err(),
            machine.ping(&[], transmit).err(),
            machine.text(b"", transmit).err(),
            machine
                .task_management(Function::LOGICAL_UNIT_RESET, Lun::ZERO, None, transmit)
                .err(),
            machine.logout(LogoutReason::CLOSE_SESSION, transmit).err(),
        ];
        assert_eq!(refused, [Some(NotSent::Closed); 5]);
        assert_eq!(machine.payload_wanted(), None);
        let mut bytes = &[0x25; 64][..];
        assert!(matches!(
            machine.next(&mut bytes, transmit),
            ConnectionEvent::Close(_)
        ));
        while let Some(r2t) = self.r2ts.pop() {
            let zeros = vec![0; r2t.length as usize];
            machine.send_data_out(&r2t, WriteData::Bytes(&zeros), transmit);
        }
        machine.payload_received(&[0; 9]);
        assert!(transmit.is_empty(), "nothing is said after the end");
    }

    /// Something that a target could say, or could not.
    fn say(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        let shape = input.byte();
        let code = input.pick(&[
            opcode::SCSI_RESPONSE,
            opcode::DATA_IN,
            opcode::DATA_IN,
            opcode::R2T,
            opcode::R2T,
            opcode::NOP_IN,
            opcode::TEXT_RESPONSE,
            opcode::TASK_MANAGEMENT_RESPONSE,
            opcode::ASYNCHRONOUS_MESSAGE,
            opcode::REJECT,
            opcode::LOGOUT_RESPONSE,
            opcode::LOGIN_RESPONSE,
        ]);
        if shape == 0xff {
            return input.piece().to_vec();
        }
        let tag = match self.tags.len() {
            0 => RESERVED_TAG,
            count => self.tags[usize::from(input.byte()) % count],
        };
        let flags = match code {
            // The final bit mostly, and S where it is a status.
            opcode::DATA_IN => input.byte() & 0x07 | 0x80,
            opcode::TEXT_RESPONSE => input.pick(&[0x80, 0x80, 0x00, 0x40]),
            _ => 0x80 | input.byte() & 0x06,
        };
        let has_number = match code {
            opcode::DATA_IN => flags & 1 != 0,
            opcode::R2T => false,
            opcode::NOP_IN => tag != RESERVED_TAG,
            _ => true,
        };
        let number = |byte: u8| u32::from(byte) << 6;
        let mut pdu = Pdu::new(code).set_byte(1, flags);
        pdu = pdu.set_byte(2, input.pick(&[0, 0, 1, 4, 9])).set_byte(3, 0);
        pdu = pdu
            .set_word(16, tag)
            .set_word(20, input.pick(&[RESERVED_TAG, 5]));
        pdu = pdu.set_word(24, self.stat_sn);
        pdu = pdu.set_word(28, 1).set_word(32, input.pick(&[200, 3, 0]));
        pdu = pdu.set_word(36, u32::from(input.byte() % 4));
        pdu = pdu.set_word(40, number(input.byte()));
        if code == opcode::R2T {
            pdu = pdu.set_word(44, number(input.byte() % 64));
        }
        let length = match code {
            opcode::SCSI_RESPONSE | opcode::DATA_IN | opcode::NOP_IN | opcode::TEXT_RESPONSE => {
                usize::from(input.byte()) * 8
            }
            opcode::REJECT | opcode::ASYNCHRONOUS_MESSAGE => 48,
            _ => 0,
        };
        let mut data = vec![1; length];
        if code == opcode::REJECT {
            // The header that is refused.
            data[0] = input.byte() & 0x3f;
            data[16..20].copy_from_slice(&tag.to_be_bytes());
        }
        pdu = pdu.with_data(&data);
        if input.byte() == 0xff {
            let at = usize::from(input.byte()) % 48;
            pdu.bhs[at] ^= input.byte();
        }
        if has_number {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        }
        let mut bytes = pdu.to_bytes(self.digests[0], self.digests[1]);
        if input.byte() == 0xff {
            let at = usize::from(input.byte()) % bytes.len();
            bytes[at] ^= input.byte();
        }
        bytes
    }
}

/// Settings, the login, then PDUs and actions of the driver.
pub(crate) fn initiator_sequences(data: &[u8]) {
    let mut input = Input(data);
    let mut initiator = Initiator::new(&mut input);
    // A driver may ask for anything at any time.
    let early = initiator.machine.ping(&[], &mut Transmit::new());
    assert_eq!(early.err(), Some(NotSent::Closed));
    initiator.log_in(&mut input);
    while !input.is_empty() && !initiator.closed {
        initiator.turn(&mut input);
        let bytes = initiator.say(&mut input);
        let size = input.pick(&[usize::MAX, usize::MAX, 100, 7, 1]);
        for piece in bytes.chunks(size) {
            if !initiator.closed {
                initiator.feed(piece, &mut input);
            }
        }
    }
    // The last bytes before the end have left.
    drain(&mut initiator.transmit);
    initiator.turn(&mut Input(&[0xff]));
}
