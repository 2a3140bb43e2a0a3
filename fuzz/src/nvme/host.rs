//! The host's end of a queue and a controller that may say anything, but mostly says what could be.
//!
//! Whatever it says: data lands within what the host has room for, R2Ts ask for what there is, each
//! command ends at most once, and what the host sends is well-formed.

use std::collections::BTreeMap;

use longshore_nvme::command::{CommandId, NamespaceId};
use longshore_nvme::completion::CompletionEntry;
use longshore_nvme::host::{
    Command, CommandSlot, Connection, ConnectionConfig, ConnectionEvent, NotSent, R2tRequest,
    Transfer,
};
use longshore_nvme::opcode::io;
use longshore_nvme::pdu::{
    C2hData, CapsuleResp, Digests, FatalError, FatalErrorStatus, H2cData, IcReq, IcResp, PduType,
    R2t, TermReq, Terminator, TransferTag,
};
use longshore_nvme::status::Status;
use longshore_wire::transmit::{Transmit, WriteData};

use super::stream::Format;
use crate::input::Input;
use crate::structured::drain;

struct Host {
    machine: Connection,
    transmit: Transmit,
    commands: BTreeMap<u16, Transfer>,
    r2ts: Vec<R2tRequest>,
    format: Format,
    hpda: u8,
    closed: bool,
}

impl Host {
    fn new(input: &mut Input<'_>) -> Self {
        let settings = input.byte();
        let hpda = input.byte() % 32;
        let config = ConnectionConfig {
            digests: Digests {
                header: settings & 1 != 0,
                data: settings & 2 != 0,
            },
            hpda,
            max_r2t: u32::from(settings >> 4) + 1,
            commands: 6,
            in_capsule_data_bytes: 512,
        };
        let mut transmit = Transmit::new();
        let machine = Connection::new(config, &mut transmit);
        let heard = drain(&mut transmit);
        let request = Format::default().take(&mut &heard[..]);
        let request = IcReq::decode(request.expect("an ICReq comes first").header());
        assert_eq!((request.pfv, request.hpda), (0, hpda));
        Self {
            machine,
            transmit,
            commands: BTreeMap::new(),
            r2ts: Vec::new(),
            format: Format::default(),
            hpda,
            closed: false,
        }
    }

    fn feed(&mut self, mut bytes: &[u8], input: &mut Input<'_>) {
        let limit = 64 + bytes.len() * 4;
        for _ in 0..limit {
            if let Some(wanted) = self.machine.payload_wanted()
                && !bytes.is_empty()
                && input.byte() & 1 == 1
            {
                let length = wanted.length as usize;
                let (now, later) = bytes.split_at(length.min(bytes.len()));
                self.data(wanted.slot, wanted.buffer_offset, now.len());
                self.machine.payload_received(now);
                bytes = later;
            }
            match self.machine.next(&mut bytes, &mut self.transmit) {
                ConnectionEvent::NeedMore => {
                    assert!(bytes.is_empty(), "the machine wants more and leaves some");
                    return;
                }
                ConnectionEvent::Ready => {
                    assert!(self.machine.is_ready());
                    self.format.digests = self.machine.digests();
                }
                ConnectionEvent::DataIn {
                    slot,
                    buffer_offset,
                    bytes,
                } => self.data(slot, buffer_offset, bytes.len()),
                ConnectionEvent::R2t(r2t) => {
                    let transfer = self.commands.get(&r2t.slot.0);
                    let Some(Transfer::ToController(length)) = transfer else {
                        panic!("an R2T for {transfer:?}");
                    };
                    assert!(r2t.length > 0 && r2t.length <= length - r2t.buffer_offset);
                    self.r2ts.push(r2t);
                }
                ConnectionEvent::Completed { slot, outcome } => {
                    let ended = self.commands.remove(&slot.0);
                    let transfer = ended.expect("a command ends once");
                    assert!(outcome.data_in_length <= transfer.length());
                }
                ConnectionEvent::Close(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
        panic!("{limit} events of one input");
    }

    fn data(&mut self, slot: CommandSlot, offset: u32, length: usize) {
        let transfer = self.commands.get(&slot.0);
        let Some(Transfer::ToHost(room)) = transfer else {
            panic!("data for {transfer:?}");
        };
        assert!(length > 0 && offset as usize + length <= *room as usize);
    }

    /// What a driver does between two receives.
    fn turn(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0 | 1 => self.submit(input),
            2 | 3 => self.answer(),
            4 if input.byte() == 0xff => {
                let error = FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR);
                self.machine.terminate(error, &mut self.transmit);
                self.closed = true;
            }
            _ => {}
        }
        assert_eq!(self.machine.under_way().count(), self.commands.len());
        let heard = drain(&mut self.transmit);
        let mut stream = &heard[..];
        while let Some(pdu) = self.format.take(&mut stream) {
            match pdu.common.pdu_type {
                PduType::CAPSULE_CMD => assert!(pdu.data.len() <= 512),
                PduType::H2C_DATA => {
                    let data = H2cData::decode(pdu.header());
                    assert_eq!(data.length as usize, pdu.data.len());
                    assert!(data.length <= self.machine.max_h2c_data());
                }
                PduType::H2C_TERM_REQ => assert!(self.closed && stream.is_empty()),
                other => panic!("{other:?} by a host"),
            }
        }
        if self.closed {
            self.check_end();
        }
    }

    /// After the end every call is refused, and nothing is sent.
    fn check_end(&mut self) {
        let (machine, transmit) = (&mut self.machine, &mut self.transmit);
        let flush = Command::new(io::FLUSH, NamespaceId(1));
        assert!(!machine.is_ready() && machine.slots_free() == 0);
        let refused = machine.submit(&flush, WriteData::NONE, transmit);
        assert_eq!(refused.err(), Some(NotSent::Closed));
        let pair = machine.submit_fused([&flush, &flush], [WriteData::NONE; 2], transmit);
        assert_eq!(pair.err(), Some(NotSent::Closed));
        assert_eq!(machine.payload_wanted(), None);
        let mut bytes = &[0x07; 64][..];
        assert!(matches!(
            machine.next(&mut bytes, transmit),
            ConnectionEvent::Close(_)
        ));
        while let Some(r2t) = self.r2ts.pop() {
            let zeros = vec![0; r2t.length as usize];
            machine.send_data(&r2t, WriteData::Bytes(&zeros), transmit);
        }
        machine.payload_received(&[0; 9]);
        machine.terminate(
            FatalError::plain(FatalErrorStatus::PDU_SEQUENCE_ERROR),
            transmit,
        );
        assert!(transmit.is_empty(), "nothing is said after the end");
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let length = (input.word() >> 16) & 0x3fff;
        let (opcode, transfer) = match input.byte() % 4 {
            0 if length > 0 => (io::READ, Transfer::ToHost(length)),
            1 if length > 0 => (io::WRITE, Transfer::ToController(length)),
            2 => (io::WRITE, Transfer::ToController(length % 512 + 1)),
            _ => (io::FLUSH, Transfer::None),
        };
        let command = Command::new(opcode, NamespaceId(1)).with(transfer);
        let free = self.machine.slots_free();
        let zeros = vec![0; transfer.length() as usize];
        let payload = WriteData::Bytes(&zeros);
        let is_ready = self.machine.is_ready();
        match self.machine.submit(&command, payload, &mut self.transmit) {
            Ok(slot) => {
                assert!(is_ready);
                let before = self.commands.insert(slot.0, transfer);
                assert!(before.is_none(), "a slot is used twice");
            }
            Err(NotSent::Closed) => assert!(!is_ready),
            Err(NotSent::Busy) => assert_eq!(free, 0),
            Err(other) => panic!("{other}"),
        }
    }

    fn answer(&mut self) {
        if let Some(r2t) = self.r2ts.pop() {
            let zeros = vec![0; r2t.length as usize];
            let payload = WriteData::Bytes(&zeros);
            self.machine.send_data(&r2t, payload, &mut self.transmit);
        }
    }
}

/// Something that a controller could say, or could not.
fn say(host: &Host, format: Format, input: &mut Input<'_>) -> Vec<u8> {
    let under_way = host.machine.under_way().collect::<Vec<_>>();
    let command = match under_way.get(usize::from(input.byte())) {
        Some(slot) => host.machine.command_id(*slot),
        None => under_way
            .first()
            .map_or(CommandId(1), |slot| host.machine.command_id(*slot)),
    };
    let flags = input.byte();
    let offset = input.word() >> 18;
    let length = 1 + u32::from(input.byte()) * 8;
    let data = vec![7; length as usize];
    let none: &[u8] = &[];
    let (mut header, data) = match input.byte() % 8 {
        0 | 1 => {
            let entry = CompletionEntry {
                result: 0,
                sq_head: 1,
                id: command,
                status: Status(u16::from(flags & 1)),
            };
            (CapsuleResp { entry }.encode().to_vec(), none)
        }
        2 | 3 => {
            let pdu = C2hData {
                last: flags & 1 != 0,
                success: flags & 2 != 0,
                command,
                offset,
                length,
            };
            (pdu.encode().to_vec(), &data[..])
        }
        4 | 5 => {
            let pdu = R2t {
                command,
                tag: TransferTag(u16::from(flags)),
                offset,
                length,
            };
            (pdu.encode().to_vec(), none)
        }
        6 => return input.piece().to_vec(),
        _ => {
            let request = TermReq {
                by: Terminator::Controller,
                error: FatalError::plain(FatalErrorStatus(u16::from(flags))),
            };
            let echoed = usize::from(input.byte()).min(TermReq::DATA_LENGTH_MAX);
            let header = request.encode(0).to_vec();
            return format.pdu(&header, &data[..echoed.min(data.len())], |_| ());
        }
    };
    if input.byte() == 0xff {
        let at = usize::from(input.byte()) % header.len();
        header[at] ^= input.byte();
    }
    let mut pdu = format.pdu(&header, data, |_| ());
    if input.byte() == 0xff {
        let at = usize::from(input.byte()) % pdu.len();
        pdu[at] ^= input.byte();
    }
    pdu
}

/// Settings, ICResp, then PDUs and what the driver does.
pub(crate) fn nvme_host_sequences(data: &[u8]) {
    let mut input = Input(data);
    let mut host = Host::new(&mut input);
    let choice = input.byte();
    let response = IcResp {
        pfv: 0,
        cpda: input.byte() % 32,
        digests: Digests {
            header: choice & 1 != 0,
            data: choice & 2 != 0,
        },
        max_h2c_data: 4096 + u32::from(input.byte()) * 4,
    };
    host.format.alignment = response.cpda;
    let to_host = Format {
        digests: response.digests,
        alignment: host.hpda,
    };
    let mut response = response.encode();
    if choice >= 0x80 {
        response[..16].copy_from_slice(&input.array::<16>());
    }
    host.feed(&response, &mut input);
    while !input.is_empty() && !host.closed {
        host.turn(&mut input);
        let bytes = say(&host, to_host, &mut input);
        let size = input.pick(&[usize::MAX, usize::MAX, 100, 7, 1]);
        for piece in bytes.chunks(size) {
            if !host.closed {
                host.feed(piece, &mut input);
            }
        }
    }
    host.turn(&mut Input(&[0xff]));
}
