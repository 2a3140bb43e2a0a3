//! A plain blocking initiator: one connection, one command at a time unless the test sends its
//! own PDUs.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::LIMIT;
use crate::pdu::{self, Pdu, RESERVED_TAG, opcode};
use crate::server::TARGET;

/// What a login asks for.
#[derive(Debug, Clone)]
pub struct Login {
    /// InitiatorName to log in with.
    pub initiator: String,
    /// TargetName; none for a discovery session.
    pub target: Option<String>,
    /// Which of several sessions of one initiator this is (the ISID's last bytes).
    pub isid: u16,
    /// Offers HeaderDigest=CRC32C instead of None.
    pub header_digest: bool,
    /// Offers DataDigest=CRC32C instead of None.
    pub data_digest: bool,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength that we declare.
    pub max_recv_data_segment_length: u32,
    pub first_burst_length: u32,
    pub max_burst_length: u32,
}

impl Default for Login {
    fn default() -> Self {
        Self {
            initiator: "iqn.2026-11.local.longshore:tests".to_owned(),
            target: Some(TARGET.to_owned()),
            isid: 1,
            header_digest: false,
            data_digest: false,
            initial_r2t: false,
            immediate_data: true,
            max_recv_data_segment_length: 262_144,
            first_burst_length: 262_144,
            max_burst_length: 1_048_576,
        }
    }
}

impl Login {
    /// A session whose ISID tells it from others of the same initiator.
    pub fn numbered(isid: u16) -> Self {
        Self {
            isid,
            ..Self::default()
        }
    }

    /// The login request that asks for all this in one PDU.
    pub fn request(&self) -> Pdu {
        let yes_no = |yes| if yes { "Yes" } else { "No" };
        let digest = |on| if on { "CRC32C" } else { "None" };
        let segment = self.max_recv_data_segment_length.to_string();
        let first_burst = self.first_burst_length.to_string();
        let max_burst = self.max_burst_length.to_string();
        let mut keys = vec![("InitiatorName", self.initiator.as_str())];
        match &self.target {
            Some(target) => keys.extend([("SessionType", "Normal"), ("TargetName", target)]),
            None => keys.push(("SessionType", "Discovery")),
        }
        keys.extend([
            ("HeaderDigest", digest(self.header_digest)),
            ("DataDigest", digest(self.data_digest)),
            ("MaxRecvDataSegmentLength", &segment),
            ("DefaultTime2Wait", "2"),
            ("DefaultTime2Retain", "0"),
            ("ErrorRecoveryLevel", "0"),
        ]);
        if self.target.is_some() {
            keys.extend([
                ("InitialR2T", yes_no(self.initial_r2t)),
                ("ImmediateData", yes_no(self.immediate_data)),
                ("FirstBurstLength", &first_burst),
                ("MaxBurstLength", &max_burst),
                ("MaxOutstandingR2T", "8"),
                ("MaxConnections", "1"),
                ("DataPDUInOrder", "Yes"),
                ("DataSequenceInOrder", "Yes"),
            ]);
        }
        let isid = self.isid.to_be_bytes();
        // Transit from the operational stage (1) to the full feature phase (3).
        Pdu::new(opcode::LOGIN_REQUEST)
            .immediate()
            .set_byte(1, 0x87)
            .set_word(8, 0x8012_3456) // ISID: random format
            .set_byte(12, isid[0])
            .set_byte(13, isid[1])
            .with_data(&pdu::text(&keys))
    }
}

/// What a target answered to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// iSCSI response: 0 is "completed at target".
    pub response: u8,
    /// SAM status: 0 GOOD, 2 CHECK CONDITION, …
    pub status: u8,
    /// Sense data, if any.
    pub sense: Vec<u8>,
    /// Data read, at the offsets the target gave.
    pub data: Vec<u8>,
    /// Flags of the last PDU: 0x04 overflow, 0x02 underflow.
    pub flags: u8,
    /// Residual count of the response, in bytes.
    pub residual: u32,
}

impl Answer {
    pub fn is_good(&self) -> bool {
        self.response == 0 && self.status == 0
    }

    /// Sense key, ASC and ASCQ of sense data in fixed format.
    pub fn sense_code(&self) -> Option<(u8, u8, u8)> {
        let sense = self.sense.get(..14)?;
        Some((sense[2] & 0x0f, sense[12], sense[13]))
    }
}

/// What a command does with data.
#[derive(Debug, Clone, Copy)]
pub enum Data<'a> {
    None,
    /// Reads up to this many bytes.
    In(u32),
    Out(&'a [u8]),
}

/// One connection of an initiator.
#[derive(Debug)]
pub struct Initiator {
    stream: TcpStream,
    header_digest: bool,
    data_digest: bool,
    immediate_data: bool,
    initial_r2t: bool,
    first_burst_length: usize,
    /// MaxRecvDataSegmentLength of the target.
    segment_length: usize,
    /// CmdSN of the next command.
    pub cmd_sn: u32,
    /// StatSN that the next response must have.
    pub exp_stat_sn: u32,
    /// Highest CmdSN the target takes now.
    pub max_cmd_sn: u32,
    next_tag: u32,
    /// Keys of the login responses, in order.
    pub negotiated: Vec<(String, String)>,
    /// SCSI events (asynchronous messages of event 0) that came while the answer of a command was awaited.
    pub events: Vec<Pdu>,
}

impl Initiator {
    /// A TCP connection, without login.
    pub fn connect(portal: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(portal)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self {
            stream,
            header_digest: false,
            data_digest: false,
            immediate_data: true,
            initial_r2t: true,
            first_burst_length: 65_536,
            segment_length: 8_192,
            cmd_sn: 1,
            exp_stat_sn: 0,
            max_cmd_sn: 1,
            next_tag: 1,
            negotiated: Vec::new(),
            events: Vec::new(),
        })
    }

    /// Connects and logs in; a refused login is an error that names the status.
    pub fn log_in(portal: SocketAddr, login: &Login) -> io::Result<Self> {
        let mut initiator = Self::connect(portal)?;
        match initiator.try_login(login)? {
            0 => Ok(initiator),
            status => Err(io::Error::other(format!(
                "login refused with status {status:#06x}"
            ))),
        }
    }

    /// Connects, logs in and takes the unit attentions that wait for a new session.
    pub fn ready(portal: SocketAddr, login: &Login) -> io::Result<Self> {
        Self::ready_at(portal, login, 0)
    }

    /// The same for a unit other than LUN 0.
    pub fn ready_at(portal: SocketAddr, login: &Login, lun: u8) -> io::Result<Self> {
        let mut initiator = Self::log_in(portal, login)?;
        initiator.become_ready(lun)?;
        Ok(initiator)
    }

    /// Takes the unit attentions that wait at a unit.
    pub fn become_ready(&mut self, lun: u8) -> io::Result<()> {
        for _ in 0..8 {
            if self
                .command(lun, &cdb::TEST_UNIT_READY, Data::None)?
                .is_good()
            {
                return Ok(());
            }
        }
        Err(io::Error::other("the unit does not become ready"))
    }

    /// Logs in; the answer is the login status (class and detail), 0 for success.
    pub fn try_login(&mut self, login: &Login) -> io::Result<u16> {
        let request = login.request().set_word(24, self.cmd_sn);
        self.send(&request)?;
        loop {
            let response = self.receive()?;
            if response.opcode() != opcode::LOGIN_RESPONSE {
                return Err(io::Error::other(format!(
                    "{response:?} instead of a login response"
                )));
            }
            self.negotiated.extend(pdu::parse_text(&response.data));
            let status = u16::from_be_bytes([response.bhs[36], response.bhs[37]]);
            if status != 0 {
                return Ok(status);
            }
            if response.bhs[1] & 0x83 == 0x83 {
                self.adopt_negotiated(login);
                return Ok(0);
            }
            // The target wants to say more: an empty request gives it the chance.
            let mut next = Pdu::new(opcode::LOGIN_REQUEST)
                .immediate()
                .set_byte(1, 0x87);
            next.bhs[8..16].copy_from_slice(&request.bhs[8..16]);
            self.send(
                &next
                    .set_word(24, self.cmd_sn)
                    .set_word(28, self.exp_stat_sn),
            )?;
        }
    }

    fn adopt_negotiated(&mut self, login: &Login) {
        let value = |key: &str| {
            let pair = self.negotiated.iter().rev().find(|(name, _)| name == key);
            pair.map(|(_, value)| value.clone())
        };
        let number = |key: &str| value(key).and_then(|value| value.parse::<usize>().ok());
        let header_digest = value("HeaderDigest").as_deref() == Some("CRC32C");
        let data_digest = value("DataDigest").as_deref() == Some("CRC32C");
        let immediate_data = value("ImmediateData").as_deref() != Some("No");
        let initial_r2t = value("InitialR2T").as_deref() != Some("No");
        let first_burst_length = number("FirstBurstLength");
        let segment_length = number("MaxRecvDataSegmentLength").unwrap_or(8_192);
        self.header_digest = header_digest;
        self.data_digest = data_digest;
        self.immediate_data = immediate_data && login.immediate_data;
        self.initial_r2t = initial_r2t;
        self.segment_length = segment_length;
        self.first_burst_length = first_burst_length
            .unwrap_or(65_536)
            .min(usize::try_from(login.first_burst_length).expect("bursts are small"));
    }

    /// The longest data segment that the target takes.
    pub fn segment_length(&self) -> usize {
        self.segment_length
    }

    /// The socket, for tests that misuse it.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// A tag no other task of this connection has.
    pub fn new_tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// A command PDU with the next CmdSN. Data-out goes along as far as it may be immediate.
    pub fn command_pdu(&mut self, lun: u8, cdb: &[u8], data: Data<'_>) -> Pdu {
        let tag = self.new_tag();
        let (flags, length, immediate) = match data {
            Data::None => (0x80, 0, &[][..]),
            Data::In(length) => (0xc0, length, &[][..]),
            Data::Out(bytes) => {
                let length = u32::try_from(bytes.len()).expect("a transfer has a 32-bit length");
                (0xa0, length, &bytes[..self.immediate_length(bytes.len())])
            }
        };
        let command = Pdu::new(opcode::SCSI_COMMAND)
            .set_byte(1, flags | 0x01) // simple task
            .set_lun(lun)
            .set_word(16, tag)
            .set_word(20, length)
            .set_word(24, self.cmd_sn)
            .set_word(28, self.exp_stat_sn)
            .set_cdb(cdb)
            .with_data(immediate);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        command
    }

    /// How much of a write of this length goes along with its command.
    pub fn immediate_length(&self, length: usize) -> usize {
        if self.immediate_data {
            length.min(self.first_burst_length).min(self.segment_length)
        } else {
            0
        }
    }

    /// Sends a command and serves its transfers until the answer is there. Other tasks' PDUs are
    /// not expected meanwhile, but NOP-Ins are answered, and SCSI events kept.
    pub fn command(&mut self, lun: u8, cdb: &[u8], data: Data<'_>) -> io::Result<Answer> {
        let command = self.command_pdu(lun, cdb, data);
        self.send(&command)?;
        let out = if let Data::Out(bytes) = data {
            bytes
        } else {
            &[]
        };
        self.finish(command.initiator_task_tag(), out)
    }

    /// Serves the transfers of task `tag` until it has ended.
    pub fn finish(&mut self, tag: u32, out: &[u8]) -> io::Result<Answer> {
        let mut read = Vec::new();
        loop {
            let pdu = self.receive()?;
            if pdu.opcode() == opcode::NOP_IN && pdu.initiator_task_tag() == RESERVED_TAG {
                self.answer_nop_in(&pdu)?;
                continue;
            }
            if pdu.opcode() == opcode::ASYNCHRONOUS_MESSAGE && pdu.bhs[36] == 0 {
                self.events.push(pdu);
                continue;
            }
            if pdu.initiator_task_tag() != tag {
                return Err(io::Error::other(format!(
                    "{pdu:?} while task {tag:#x} is awaited"
                )));
            }
            match pdu.opcode() {
                opcode::DATA_IN => {
                    place(&mut read, pdu.word(40), &pdu.data);
                    if pdu.bhs[1] & 0x01 != 0 {
                        return Ok(answer(&pdu, Vec::new(), read));
                    }
                }
                opcode::R2T => self.answer_r2t(&pdu, out)?,
                opcode::SCSI_RESPONSE => {
                    let sense = sense_data(&pdu.data);
                    return Ok(answer(&pdu, sense, read));
                }
                _ => return Err(io::Error::other(format!("{pdu:?} for task {tag:#x}"))),
            }
        }
    }

    fn answer_r2t(&mut self, r2t: &Pdu, out: &[u8]) -> io::Result<()> {
        let as_usize = |word| usize::try_from(word).expect("32 bits fit");
        let (offset, length) = (as_usize(r2t.word(40)), as_usize(r2t.word(44)));
        let end = offset + length;
        let wanted = out
            .get(offset..end)
            .ok_or_else(|| io::Error::other(format!("R2T for {offset}..{end} of {}", out.len())))?;
        let mut position = offset;
        for (data_sn, part) in (0u32..).zip(wanted.chunks(self.segment_length)) {
            let last = position + part.len() == end;
            let data_out = Pdu::new(opcode::DATA_OUT)
                .set_byte(1, if last { 0x80 } else { 0 })
                .set_word(16, r2t.initiator_task_tag())
                .set_word(20, r2t.target_transfer_tag())
                .set_word(28, self.exp_stat_sn)
                .set_word(36, data_sn)
                .set_word(40, u32::try_from(position).expect("offsets have 32 bits"))
                .with_data(part);
            self.send(&data_out)?;
            position += part.len();
        }
        Ok(())
    }

    /// Answers a NOP-In that asks for it.
    pub fn answer_nop_in(&mut self, nop_in: &Pdu) -> io::Result<()> {
        if nop_in.target_transfer_tag() == RESERVED_TAG {
            return Ok(());
        }
        let mut nop_out = Pdu::new(opcode::NOP_OUT)
            .immediate()
            .set_byte(1, 0x80)
            .set_word(16, RESERVED_TAG)
            .set_word(20, nop_in.target_transfer_tag())
            .set_word(24, self.cmd_sn)
            .set_word(28, self.exp_stat_sn);
        nop_out.bhs[8..16].copy_from_slice(&nop_in.bhs[8..16]);
        self.send(&nop_out)
    }

    /// Sends a NOP-Out and expects its echo: the connection is alive.
    pub fn ping(&mut self) -> io::Result<()> {
        let tag = self.new_tag();
        let nop_out = Pdu::new(opcode::NOP_OUT)
            .immediate()
            .set_byte(1, 0x80)
            .set_word(16, tag)
            .set_word(20, RESERVED_TAG)
            .set_word(24, self.cmd_sn)
            .set_word(28, self.exp_stat_sn)
            .with_data(b"ping");
        self.send(&nop_out)?;
        loop {
            let echo = self.receive()?;
            if echo.opcode() == opcode::NOP_IN && echo.initiator_task_tag() == RESERVED_TAG {
                self.answer_nop_in(&echo)?;
                continue;
            }
            if echo.opcode() != opcode::NOP_IN || echo.initiator_task_tag() != tag {
                return Err(io::Error::other(format!("{echo:?} instead of the echo")));
            }
            return Ok(());
        }
    }

    /// Logs out and waits for the target's answer.
    pub fn log_out(mut self) -> io::Result<()> {
        let tag = self.new_tag();
        let logout = Pdu::new(opcode::LOGOUT_REQUEST)
            .immediate()
            .set_byte(1, 0x80) // closes the session
            .set_word(16, tag)
            .set_word(24, self.cmd_sn)
            .set_word(28, self.exp_stat_sn);
        self.send(&logout)?;
        let response = self.receive()?;
        if response.opcode() == opcode::LOGOUT_RESPONSE && response.bhs[2] == 0 {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "{response:?} instead of a logout response"
            )))
        }
    }

    /// Sends one PDU with the digests negotiated.
    pub fn send(&mut self, pdu: &Pdu) -> io::Result<()> {
        let bytes = pdu.to_bytes(self.header_digest, self.data_digest);
        self.stream.write_all(&bytes)
    }

    /// Sends bytes as they are.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Receives one PDU, checks its digests and keeps the numbers it carries.
    pub fn receive(&mut self) -> io::Result<Pdu> {
        let mut pdu = Pdu::new(0);
        self.stream.read_exact(&mut pdu.bhs)?;
        let full_feature_digests = pdu.opcode() != opcode::LOGIN_RESPONSE;
        if self.header_digest && full_feature_digests {
            self.check_digest(&pdu.bhs, "header")?;
        }
        let length = pdu.data_segment_length();
        if length > 0 {
            pdu.data.resize(length.next_multiple_of(4), 0);
            self.stream.read_exact(&mut pdu.data)?;
            if self.data_digest && full_feature_digests {
                self.check_digest(&pdu.data, "data")?;
            }
            pdu.data.truncate(length);
        }
        self.adopt_numbers(&pdu);
        Ok(pdu)
    }

    fn check_digest(&mut self, bytes: &[u8], what: &str) -> io::Result<()> {
        let mut digest = [0; 4];
        self.stream.read_exact(&mut digest)?;
        let expected = pdu::crc32c(bytes);
        if u32::from_le_bytes(digest) == expected {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("wrong {what} digest"),
            ))
        }
    }

    /// Keeps StatSN and command window of a PDU from the target.
    pub fn adopt_numbers(&mut self, pdu: &Pdu) {
        // An R2T, a Data-In without status and a NOP-In that asks do not use up a StatSN.
        let carries_status = match pdu.opcode() {
            opcode::R2T => false,
            opcode::DATA_IN => pdu.bhs[1] & 0x01 != 0,
            opcode::NOP_IN => pdu.initiator_task_tag() != RESERVED_TAG,
            _ => true,
        };
        if carries_status {
            self.exp_stat_sn = pdu.word(24).wrapping_add(1);
        }
        self.max_cmd_sn = pdu.word(32);
    }

    /// Whether the target closes the connection within `limit`; what it sends before is read and
    /// forgotten.
    pub fn is_closed_within(&mut self, limit: Duration) -> io::Result<bool> {
        self.drain(limit).map(|(_, closed)| closed)
    }

    /// Reads until the target closes the connection or `limit` has passed without anything.
    pub fn drain(&mut self, limit: Duration) -> io::Result<(Vec<u8>, bool)> {
        self.stream.set_read_timeout(Some(limit))?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 65_536];
        let closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(n) => bytes.extend(&buffer[..n]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => break false,
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => break true,
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        };
        self.stream.set_read_timeout(Some(LIMIT))?;
        Ok((bytes, closed))
    }
}

fn answer(last: &Pdu, sense: Vec<u8>, data: Vec<u8>) -> Answer {
    let response = if last.opcode() == opcode::SCSI_RESPONSE {
        last.bhs[2]
    } else {
        0
    };
    Answer {
        response,
        status: last.bhs[3],
        sense,
        data,
        flags: last.bhs[1] & 0x06,
        residual: last.word(44),
    }
}

/// Sense data behind its two length bytes (RFC 7143 §11.4.7.2).
fn sense_data(data: &[u8]) -> Vec<u8> {
    let Some((length, rest)) = data.split_first_chunk::<2>() else {
        return Vec::new();
    };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.get(..length).unwrap_or(rest).to_vec()
}

fn place(buffer: &mut Vec<u8>, offset: u32, bytes: &[u8]) {
    let offset = usize::try_from(offset).expect("32 bits fit");
    let end = offset + bytes.len();
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    buffer[offset..end].copy_from_slice(bytes);
}

pub mod cdb {
    pub const TEST_UNIT_READY: [u8; 6] = [0; 6];

    pub fn read_16(lba: u64, blocks: u32) -> [u8; 16] {
        with_range(0x88, 0, lba, blocks)
    }

    /// WRITE (16), with or without FUA.
    pub fn write_16(lba: u64, blocks: u32, fua: bool) -> [u8; 16] {
        with_range(0x8a, if fua { 0x08 } else { 0 }, lba, blocks)
    }

    /// SYNCHRONIZE CACHE (16) of the whole unit.
    pub fn synchronize_cache_16() -> [u8; 16] {
        with_range(0x91, 0, 0, 0)
    }

    pub fn read_capacity_16() -> [u8; 16] {
        let mut cdb = with_range(0x9e, 0x10, 0, 0);
        cdb[13] = 32;
        cdb
    }

    pub const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];

    fn with_range(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb[0] = opcode;
        cdb[1] = flags;
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        cdb
    }
}
