//! One connection of an iSCSI session.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::pdu::{BHS_LENGTH, Pdu, RESERVED_TAG, opcode};
use longshore_wire::crc32c;

use crate::address::Address;
use crate::figures::{Figures, Places};
use crate::load::{Queue, RECEIVE_BUFFER, check_volume, hung_up};
use crate::options::{Operation, Options};

const DIGEST_LENGTH: usize = 4;

/// Logs in, once for each queue.
pub fn connect(options: &Options) -> io::Result<Vec<Box<dyn Queue>>> {
    (1..=options.queues)
        .map(|number| Ok(Box::new(IscsiQueue::connect(options, number)?) as Box<dyn Queue>))
        .collect()
}

/// A session with `depth` commands under way.
struct IscsiQueue {
    session: Initiator,
    plan: Plan,
    /// When each command was sent; its tag is the index.
    sent: Vec<Instant>,
    /// Tags of commands that wait for their turn or the command window.
    waiting: Vec<u32>,
    receive: Vec<u8>,
    /// Bytes at the start of `receive` that are no whole header yet.
    kept: usize,
    /// Bytes of data segments still to come that nobody looks at.
    skip: usize,
    transmit: Vec<u8>,
    places: Places,
}

/// What does not change during a run.
struct Plan {
    operation: Operation,
    lun: u8,
    size: u32,
    blocks: u32,
    immediate: usize,
    segment: usize,
    pattern: Vec<u8>,
    header_digest: bool,
    data_digest: bool,
    /// The digest of immediate data, which is the same each time.
    immediate_digest: [u8; DIGEST_LENGTH],
}

impl IscsiQueue {
    /// Logs in and gets ready; nothing is sent yet.
    fn connect(options: &Options, number: u16) -> io::Result<Self> {
        let Address::Iscsi {
            portal,
            target,
            lun,
        } = &options.address
        else {
            unreachable!("the caller looked at the address");
        };
        let login = Login {
            target: Some(target.clone()),
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            ..Login::numbered(number)
        };
        let mut session = Initiator::ready_at(*portal, &login, *lun)?;
        for (asked, key) in [
            (options.header_digest, "HeaderDigest"),
            (options.data_digest, "DataDigest"),
        ] {
            let mut keys = session.negotiated.iter();
            if asked && !keys.any(|(name, value)| name == key && value == "CRC32C") {
                return Err(io::Error::other(format!("the target grants no {key}")));
            }
        }
        let (block_size, blocks) = capacity(&mut session, *lun)?;
        check_volume(options, block_size, blocks)?;
        let size = usize::try_from(options.size).map_err(io::Error::other)?;
        let pattern = vec![0xa5; size];
        let immediate = match options.operation {
            Operation::Read => 0,
            Operation::Write => session.immediate_length(size),
        };
        let plan = Plan {
            operation: options.operation,
            lun: *lun,
            size: options.size,
            blocks: options.size / block_size,
            immediate,
            segment: session.segment_length(),
            header_digest: options.header_digest,
            data_digest: options.data_digest,
            immediate_digest: crc32c(&pattern[..immediate]).to_bytes(),
            pattern,
        };
        Ok(Self {
            session,
            plan,
            sent: vec![Instant::now(); usize::from(options.depth)],
            waiting: (0..u32::from(options.depth)).collect(),
            receive: vec![0; RECEIVE_BUFFER],
            kept: 0,
            skip: 0,
            transmit: Vec::with_capacity(RECEIVE_BUFFER),
            places: Places::new(options, block_size, number),
        })
    }

    fn submit(&mut self, tag: u32, now: Instant) {
        let plan = &self.plan;
        let lba = self.places.next_lba();
        let (flags, opcode_of_cdb) = match plan.operation {
            Operation::Read => (0xc1, 0x88),
            Operation::Write => (0xa1, 0x8a),
        };
        let mut command = Pdu::new(opcode::SCSI_COMMAND)
            .set_byte(1, flags)
            .set_lun(plan.lun)
            .set_word(16, tag)
            .set_word(20, plan.size)
            .set_word(24, self.session.cmd_sn)
            .set_word(28, self.session.exp_stat_sn)
            .set_byte(32, opcode_of_cdb)
            .set_word(42, plan.blocks);
        command.bhs[34..42].copy_from_slice(&lba.to_be_bytes());
        let length = u32::try_from(plan.immediate).expect("immediate data is short");
        command = command.set_data_segment_length(length);
        push_header(&mut self.transmit, plan, &command);
        if plan.immediate > 0 {
            self.transmit.extend(&plan.pattern[..plan.immediate]);
            if plan.data_digest {
                self.transmit.extend(plan.immediate_digest);
            }
        }
        self.session.cmd_sn = self.session.cmd_sn.wrapping_add(1);
        self.sent[index(tag)] = now;
    }

    /// Goes through the first `filled` bytes of the receive buffer.
    fn take_in(&mut self, filled: usize, figures: &mut Figures) -> io::Result<()> {
        let now = Instant::now();
        let header_length = BHS_LENGTH + digest_length(self.plan.header_digest);
        let mut position = self.skip.min(filled);
        self.skip -= position;
        while filled - position >= header_length {
            let mut pdu = Pdu::new(0);
            pdu.bhs
                .copy_from_slice(&self.receive[position..position + BHS_LENGTH]);
            position += header_length;
            let mut data = pdu.data_segment_length().next_multiple_of(4);
            if data > 0 {
                data += digest_length(self.plan.data_digest);
            }
            let here = data.min(filled - position);
            position += here;
            self.skip = data - here;
            self.handle(&pdu, now, figures)?;
        }
        self.receive.copy_within(position..filled, 0);
        self.kept = filled - position;
        Ok(())
    }

    fn handle(&mut self, pdu: &Pdu, now: Instant, figures: &mut Figures) -> io::Result<()> {
        self.session.adopt_numbers(pdu);
        match pdu.opcode() {
            opcode::DATA_IN if pdu.bhs[1] & 0x01 == 0 => Ok(()),
            opcode::DATA_IN => self.ended(pdu, now, figures),
            opcode::SCSI_RESPONSE => self.ended(pdu, now, figures),
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

    fn ended(&mut self, pdu: &Pdu, now: Instant, figures: &mut Figures) -> io::Result<()> {
        if pdu.bhs[3] != 0 || pdu.bhs[1] & 0x06 != 0 {
            return Err(io::Error::other(format!("a command failed: {pdu:?}")));
        }
        let tag = pdu.initiator_task_tag();
        let sent = self
            .sent
            .get(index(tag))
            .ok_or_else(|| io::Error::other("unknown tag"))?;
        figures.ended(*sent, now);
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
            push_header(&mut self.transmit, &self.plan, &header);
            let data = &self.plan.pattern[..part];
            self.transmit.extend(data);
            if self.plan.data_digest {
                self.transmit.extend(crc32c(data).to_bytes());
            }
            position += part;
            if last {
                break;
            }
        }
    }
}

impl Queue for IscsiQueue {
    fn stream(&self) -> &TcpStream {
        self.session.stream()
    }

    fn send(&mut self, figures: &mut Figures) -> io::Result<()> {
        let now = Instant::now();
        while let Some(&tag) = self.waiting.last() {
            let room = self.session.max_cmd_sn.wrapping_sub(self.session.cmd_sn);
            if room > u32::MAX / 2 || !figures.begin() {
                break; // the window is closed, or all is done
            }
            self.waiting.pop();
            self.submit(tag, now);
        }
        if !self.transmit.is_empty() {
            self.session.stream().write_all(&self.transmit)?;
            self.transmit.clear();
        }
        Ok(())
    }

    fn receive(&mut self, figures: &mut Figures) -> io::Result<()> {
        let n = self.session.stream().read(&mut self.receive[self.kept..])?;
        if n == 0 {
            return Err(hung_up());
        }
        self.take_in(self.kept + n, figures)
    }
}

/// Block size and count of blocks, of READ CAPACITY (16).
fn capacity(session: &mut Initiator, lun: u8) -> io::Result<(u32, u64)> {
    let answer = session.command(lun, &cdb::read_capacity_16(), Data::In(32))?;
    let (last, rest) = answer
        .data
        .split_first_chunk()
        .ok_or_else(|| io::Error::other("no capacity"))?;
    let block_size = rest
        .first_chunk()
        .ok_or_else(|| io::Error::other("no block size"))?;
    let blocks = u64::from_be_bytes(*last).saturating_add(1);
    Ok((u32::from_be_bytes(*block_size), blocks))
}

fn push_header(transmit: &mut Vec<u8>, plan: &Plan, pdu: &Pdu) {
    transmit.extend(&pdu.bhs);
    if plan.header_digest {
        transmit.extend(crc32c(&pdu.bhs).to_bytes());
    }
}

const fn digest_length(used: bool) -> usize {
    if used { DIGEST_LENGTH } else { 0 }
}

fn index(word: u32) -> usize {
    usize::try_from(word).expect("32 bits fit")
}
