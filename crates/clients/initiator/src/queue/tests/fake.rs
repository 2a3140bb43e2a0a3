//! A protocol as small as can be, and a peer that speaks it.
//!
//! ```text
//! 13 bytes: kind, slot (4), offset (4), length (4); then data, when the kind has some
//!
//! to the peer:   c command without data along   i command with all its data   w data asked for   p ping   a answer
//! from it:       d data   r data wanted   e end, offset is a status   o pong   q question   x close
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use longshore_wire::transmit::{Chunk, Transmit, WriteData};

use crate::error::{CloseCause, Failure};
use crate::operation::{Operation, Reply};
use crate::options::TransferPaths;
use crate::queue::{Machine, MachineEvent, PayloadWanted, Queue, Refusal};

pub(super) const BLOCK: u32 = 512;
const HEADER: usize = 13;

/// Data up to this length goes along with its command.
pub(super) const ALONG_MAX: usize = 2048;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) slot: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl Message {
    pub(super) fn encode(self) -> [u8; HEADER] {
        let mut bytes = [self.kind; HEADER];
        bytes[1..5].copy_from_slice(&self.slot.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.offset.to_be_bytes());
        bytes[9..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    fn decode(bytes: [u8; HEADER]) -> Self {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        Self {
            kind: bytes[0],
            slot: word(1),
            offset: word(5),
            length: word(9),
        }
    }
}

fn length_of(data: &[u8]) -> u32 {
    u32::try_from(data.len()).unwrap()
}

#[derive(Debug)]
pub(super) struct Fake {
    free: Vec<u16>,
    slots: usize,
    header: Vec<u8>,
    /// Data that is coming: slot, offset, bytes left.
    incoming: Option<(u16, u32, u32)>,
}

impl Fake {
    pub(super) fn new(slots: u16) -> Self {
        Self {
            free: (0..slots).rev().collect(),
            slots: usize::from(slots),
            header: Vec::with_capacity(HEADER),
            incoming: None,
        }
    }
}

fn push(data: WriteData<'_>, transmit: &mut Transmit) {
    match data.chunk(0, data.bytes().len(), true) {
        Chunk::Bytes(bytes) => transmit.push_bytes(bytes),
        Chunk::Buffer {
            id,
            start,
            bytes,
            last,
        } => transmit.push_buffer(id, start, bytes.len(), last),
        Chunk::Zeros(_) | Chunk::Unseen { .. } => unreachable!("there are none"),
    }
}

impl Machine for Fake {
    type Token = (u16, u32);

    fn slots(&self) -> usize {
        self.slots
    }

    fn room(&self) -> usize {
        self.free.len()
    }

    fn block_size(&self) -> u32 {
        BLOCK
    }

    fn submit(
        &mut self,
        operation: &Operation,
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) -> Result<u16, Refusal> {
        if matches!(operation, Operation::ExtentStatus { .. }) {
            return Err(Refusal::Failed(Failure::Unsupported));
        }
        let slot = self.free.pop().ok_or(Refusal::Busy)?;
        let along = (1..=ALONG_MAX).contains(&data.bytes().len());
        let header = Message {
            kind: if along { b'i' } else { b'c' },
            slot: slot.into(),
            offset: 0,
            length: u32::try_from(operation.data_length(BLOCK)).unwrap(),
        };
        transmit.push_bytes(&header.encode());
        if along {
            push(data, transmit);
        }
        Ok(slot)
    }

    fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
        transmit: &mut Transmit,
    ) -> MachineEvent<'a, Self::Token> {
        loop {
            if let Some((slot, offset, left)) = self.incoming {
                let n = input.len().min(left as usize);
                if n == 0 {
                    return MachineEvent::NeedMore;
                }
                let (bytes, rest) = input.split_at(n);
                *input = rest;
                self.payload_received(bytes);
                return MachineEvent::DataIn {
                    slot,
                    offset,
                    bytes,
                };
            }
            let n = input.len().min(HEADER - self.header.len());
            let (bytes, rest) = input.split_at(n);
            *input = rest;
            self.header.extend_from_slice(bytes);
            let Ok(header) = self.header[..].try_into() else {
                return MachineEvent::NeedMore;
            };
            self.header.clear();
            let message = Message::decode(header);
            let slot = u16::try_from(message.slot).unwrap();
            match message.kind {
                b'd' => self.incoming = Some((slot, message.offset, message.length)),
                b'r' => {
                    return MachineEvent::DataWanted {
                        slot,
                        offset: message.offset,
                        length: message.length,
                        token: (slot, message.offset),
                    };
                }
                b'e' => {
                    self.free.push(slot);
                    let result = match message.offset {
                        0 => Ok(Reply::Done),
                        _ => Err(Failure::OutOfRange),
                    };
                    return MachineEvent::Completed { slot, result };
                }
                b'o' => return MachineEvent::Pong,
                b'q' => {
                    let answer = Message {
                        kind: b'a',
                        ..message
                    };
                    transmit.push_bytes(&answer.encode());
                }
                b'x' => return MachineEvent::Closed(CloseCause::Peer("that was it".to_owned())),
                other => unreachable!("kind {other}"),
            }
        }
    }

    fn payload_wanted(&self) -> Option<PayloadWanted> {
        let (slot, offset, length) = self.incoming?;
        Some(PayloadWanted {
            slot,
            offset,
            length,
        })
    }

    fn payload_received(&mut self, bytes: &[u8]) {
        let (slot, offset, left) = self.incoming.expect("data was wanted");
        let n = length_of(bytes);
        self.incoming = (left > n).then_some((slot, offset + n, left - n));
    }

    fn send_data(
        &mut self,
        (slot, offset): (u16, u32),
        data: WriteData<'_>,
        transmit: &mut Transmit,
    ) {
        let header = Message {
            kind: b'w',
            slot: slot.into(),
            offset,
            length: length_of(data.bytes()),
        };
        transmit.push_bytes(&header.encode());
        push(data, transmit);
    }

    fn data_pdus(&self) -> u64 {
        0
    }

    fn ping(&mut self, _data: &[u8], transmit: &mut Transmit) -> bool {
        let ping = Message {
            kind: b'p',
            slot: 0,
            offset: 0,
            length: 0,
        };
        transmit.push_bytes(&ping.encode());
        true
    }

    fn close(&mut self, _transmit: &mut Transmit) {}
}

pub(super) struct Peer {
    pub(super) stream: TcpStream,
}

impl Peer {
    /// A queue, and the peer that it is connected to.
    pub(super) fn pair(slots: u16, paths: &TransferPaths) -> std::io::Result<(Queue<Fake>, Self)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let machine = Fake::new(slots);
        let queue = Queue::start(client, machine, Transmit::new(), &[], paths)?;
        Ok((queue, Self { stream }))
    }

    pub(super) fn send(&mut self, kind: u8, slot: u32, offset: u32, length: u32) {
        let message = Message {
            kind,
            slot,
            offset,
            length,
        };
        self.stream.write_all(&message.encode()).unwrap();
    }

    pub(super) fn send_data(&mut self, slot: u32, offset: u32, data: &[u8]) {
        self.send(b'd', slot, offset, length_of(data));
        self.stream.write_all(data).unwrap();
    }

    pub(super) fn end(&mut self, slot: u32) {
        self.send(b'e', slot, 0, 0);
    }

    /// The next message, and its data.
    pub(super) fn take(&mut self) -> (Message, Vec<u8>) {
        let mut header = [0; HEADER];
        self.stream.read_exact(&mut header).unwrap();
        let message = Message::decode(header);
        let mut data = Vec::new();
        if matches!(message.kind, b'i' | b'w') {
            data.resize(message.length as usize, 0);
            self.stream.read_exact(&mut data).unwrap();
        }
        (message, data)
    }
}
