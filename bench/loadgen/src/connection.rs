//! One connection kept full of commands.

use std::io::{self, Read, Write};
use std::time::Instant;

use hdrhistogram::Histogram;
use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::pdu::{BHS_LENGTH, Pdu, RESERVED_TAG, opcode};
use longshore_tests::random::Random;

use crate::options::{Operation, Options};

/// What one receive call may bring.
const RECEIVE_BUFFER: usize = 1 << 20;

/// A session with `depth` commands under way.
pub struct Load {
    session: Initiator,
    plan: Plan,
    /// When each command was sent; its tag is the index.
    sent: Vec<Instant>,
    /// Tags of commands that wait for the command window.
    waiting: Vec<u32>,
    receive: Vec<u8>,
    /// Bytes at the start of `receive` that are no whole header yet.
    kept: usize,
    /// Bytes of data segments still to come that nobody looks at.
    skip: usize,
    transmit: Vec<u8>,
    random: Random,
    operations: u64,
    latency: Histogram<u64>,
}

/// What does not change during a run.
struct Plan {
    operation: Operation,
    lun: u8,
    size: usize,
    blocks: u32,
    /// Places to choose from.
    places: u64,
    immediate: usize,
    segment: usize,
    pattern: Vec<u8>,
}

impl Load {
    /// Logs in and gets ready; nothing is sent yet.
    pub fn start(options: &Options) -> io::Result<Self> {
        let login = Login {
            target: Some(options.target.clone()),
            ..Login::default()
        };
        let session = Initiator::ready_at(options.portal, &login, options.lun)?;
        let size = usize::try_from(options.size).map_err(io::Error::other)?;
        let plan = Plan {
            operation: options.operation,
            lun: options.lun,
            size,
            blocks: options.size / options.block_size,
            places: options.span / u64::from(options.size),
            immediate: session.immediate_length(size),
            segment: session.segment_length(),
            pattern: vec![0xa5; size],
        };
        let depth = usize::try_from(options.depth).map_err(io::Error::other)?;
        Ok(Self {
            session,
            plan,
            sent: vec![Instant::now(); depth],
            waiting: (0..options.depth).collect(),
            receive: vec![0; RECEIVE_BUFFER],
            kept: 0,
            skip: 0,
            transmit: Vec::with_capacity(RECEIVE_BUFFER),
            random: Random::new(1),
            operations: 0,
            latency: Histogram::new_with_bounds(100, 60_000_000_000, 3)
                .expect("from 100 ns to a minute, to three digits"),
        })
    }

    /// Keeps the connection full until then.
    pub fn run_until(&mut self, end: Instant) -> io::Result<()> {
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Starts to count anew.
    pub fn forget_figures(&mut self) {
        self.operations = 0;
        self.latency.reset();
    }

    /// Commands that have ended since the count began.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Time from sending a command to its end.
    pub fn latency_ns(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Sends all that is due, then takes in all that has come.
    fn turn(&mut self) -> io::Result<()> {
        self.submit_waiting();
        if !self.transmit.is_empty() {
            self.session.stream().write_all(&self.transmit)?;
            self.transmit.clear();
        }
        let n = self.session.stream().read(&mut self.receive[self.kept..])?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server has hung up",
            ));
        }
        self.take_in(self.kept + n)
    }

    fn submit_waiting(&mut self) {
        let now = Instant::now();
        while let Some(&tag) = self.waiting.last() {
            let room = self.session.max_cmd_sn.wrapping_sub(self.session.cmd_sn);
            if room > u32::MAX / 2 {
                break; // the window is closed
            }
            self.waiting.pop();
            self.submit(tag, now);
        }
    }

    fn submit(&mut self, tag: u32, now: Instant) {
        let plan = &self.plan;
        let lba = self.random.below(plan.places) * u64::from(plan.blocks);
        let (flags, opcode_of_cdb) = match plan.operation {
            Operation::Read => (0xc1, 0x88),
            Operation::Write => (0xa1, 0x8a),
        };
        let mut command = Pdu::new(opcode::SCSI_COMMAND)
            .set_byte(1, flags)
            .set_lun(plan.lun)
            .set_word(16, tag)
            .set_word(20, u32::try_from(plan.size).expect("sizes have 32 bits"))
            .set_word(24, self.session.cmd_sn)
            .set_word(28, self.session.exp_stat_sn)
            .set_byte(32, opcode_of_cdb)
            .set_word(42, plan.blocks);
        command.bhs[34..42].copy_from_slice(&lba.to_be_bytes());
        let immediate = if plan.operation == Operation::Write {
            plan.immediate
        } else {
            0
        };
        let length = u32::try_from(immediate).expect("immediate data is short");
        command = command.set_data_segment_length(length);
        self.transmit.extend(&command.bhs);
        self.transmit.extend(&plan.pattern[..immediate]);
        self.session.cmd_sn = self.session.cmd_sn.wrapping_add(1);
        self.sent[index(tag)] = now;
    }

    /// Goes through the first `filled` bytes of the receive buffer.
    fn take_in(&mut self, filled: usize) -> io::Result<()> {
        let now = Instant::now();
        let mut position = self.skip.min(filled);
        self.skip -= position;
        while filled - position >= BHS_LENGTH {
            let mut pdu = Pdu::new(0);
            pdu.bhs
                .copy_from_slice(&self.receive[position..position + BHS_LENGTH]);
            position += BHS_LENGTH;
            let data = pdu.data_segment_length().next_multiple_of(4);
            let here = data.min(filled - position);
            position += here;
            self.skip = data - here;
            self.handle(&pdu, now)?;
        }
        self.receive.copy_within(position..filled, 0);
        self.kept = filled - position;
        Ok(())
    }

    fn handle(&mut self, pdu: &Pdu, now: Instant) -> io::Result<()> {
        self.session.adopt_numbers(pdu);
        match pdu.opcode() {
            opcode::DATA_IN if pdu.bhs[1] & 0x01 == 0 => Ok(()),
            opcode::DATA_IN => self.ended(pdu, now),
            opcode::SCSI_RESPONSE => self.ended(pdu, now),
            opcode::R2T => {
                self.answer_r2t(pdu);
                Ok(())
            }
            opcode::NOP_IN if pdu.initiator_task_tag() == RESERVED_TAG => {
                self.session.answer_nop_in(pdu)
            }
            _ => Err(io::Error::other(format!("unexpected {pdu:?}"))),
        }
    }

    fn ended(&mut self, pdu: &Pdu, now: Instant) -> io::Result<()> {
        if pdu.bhs[3] != 0 || pdu.bhs[1] & 0x06 != 0 {
            return Err(io::Error::other(format!("a command failed: {pdu:?}")));
        }
        let tag = pdu.initiator_task_tag();
        let sent = self
            .sent
            .get(index(tag))
            .ok_or_else(|| io::Error::other("unknown tag"))?;
        let nanos = u64::try_from((now - *sent).as_nanos()).expect("a run is short");
        self.latency.saturating_record(nanos);
        self.operations += 1;
        self.waiting.push(tag);
        Ok(())
    }

    fn answer_r2t(&mut self, r2t: &Pdu) {
        let (offset, length) = (index(r2t.word(40)), index(r2t.word(44)));
        let mut position = 0;
        for data_sn in 0.. {
            let part = self.plan.segment.min(length - position);
            let last = position + part == length;
            let header = Pdu::new(opcode::DATA_OUT)
                .set_byte(1, if last { 0x80 } else { 0 })
                .set_word(16, r2t.initiator_task_tag())
                .set_word(20, r2t.target_transfer_tag())
                .set_word(28, self.session.exp_stat_sn)
                .set_word(36, data_sn)
                .set_word(
                    40,
                    u32::try_from(offset + position).expect("offsets have 32 bits"),
                )
                .set_data_segment_length(u32::try_from(part).expect("segments are short"));
            self.transmit.extend(&header.bhs);
            self.transmit.extend(&self.plan.pattern[..part]);
            position += part;
            if last {
                break;
            }
        }
    }
}

fn index(word: u32) -> usize {
    usize::try_from(word).expect("32 bits fit")
}
