//! A connection of the server.
//!
//! What it does to its socket is what a connection of the target does
//! (`crates/server/server/src/connection`, `transport`): one receive into the buffer that all share, large
//! data straight to its place with that buffer behind it, one send of all answers that are due, of which
//! large ones are a list of headers and data.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use longshore_reactor::{Buffer, socket};

use crate::shape::{SHAPE_BYTES, Shape, size};
use crate::source::{Loaded, Source, ZEROS};

/// Data from this length on is received straight to its place.
const DIRECT_RECEIVE_BYTES: usize = 4096;
/// Answers with less data are one run of bytes.
const GATHER_BYTES: usize = 1024;
const RECEIVES_PER_TURN: usize = 4;
/// Slices in one send, and shorter lists for fewer answers.
const MANY_SLICES: usize = 256;
const SOME_SLICES: usize = 64;
const FEW_SLICES: usize = 8;

/// What a connection did.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Counters {
    pub operations: u64,
    pub receive_calls: u64,
    pub send_calls: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Peer {
    socket: OwnedFd,
    /// What it says first.
    hello: Vec<u8>,
    shape: Option<Shape>,
    /// Bytes of the request that is coming.
    position: usize,
    /// Where its data goes.
    payload: Option<Buffer>,
    /// Bytes to be sent.
    owed: usize,
    /// Bytes that were sent of the answer that is next.
    sent: usize,
    loaded: Loaded,
    readable: bool,
    hang_up: bool,
    writable: bool,
    pub counters: Counters,
}

/// State of the connection after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    Open,
    Over,
}

impl Peer {
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            hello: Vec::with_capacity(SHAPE_BYTES),
            shape: None,
            position: 0,
            payload: None,
            owed: 0,
            sent: 0,
            loaded: Loaded::default(),
            readable: true,
            hang_up: false,
            writable: true,
            counters: Counters::default(),
        }
    }

    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub fn set_readable(&mut self, hang_up: bool) {
        self.readable = true;
        self.hang_up |= hang_up;
    }

    pub fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Whether it has something to receive.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Receives what has come, for one turn.
    pub fn receive_turn(
        &mut self,
        buffer: &mut [u8],
        source: &mut Source,
    ) -> io::Result<Disposition> {
        for _ in 0..RECEIVES_PER_TURN {
            if !self.readable {
                break;
            }
            if self.receive(buffer, source)? == Disposition::Over {
                return Ok(Disposition::Over);
            }
        }
        Ok(Disposition::Open)
    }

    fn receive(&mut self, buffer: &mut [u8], source: &mut Source) -> io::Result<Disposition> {
        self.counters.receive_calls += 1;
        let wanted = self.wanted();
        let (received, room) = match (&mut self.payload, wanted) {
            (Some(payload), Some(start)) => {
                let place = &mut payload[start..];
                let room = place.len() + buffer.len();
                let buffers = &mut [IoSliceMut::new(place), IoSliceMut::new(buffer)];
                (socket::receive(&self.socket, buffers), room)
            }
            _ => {
                let buffers = &mut [IoSliceMut::new(buffer)];
                (socket::receive(&self.socket, buffers), buffer.len())
            }
        };
        let n = match received {
            Ok(0) => return Ok(Disposition::Over),
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(Disposition::Open);
            }
            // The client has gone, which is how it ends.
            Err(_) => return Ok(Disposition::Over),
        };
        self.readable = self.hang_up || n == room;
        let placed = n.min(room - buffer.len());
        if placed > 0 {
            self.position += placed;
            self.end_request(source)?;
        }
        self.take_in(&buffer[..n - placed], source)
    }

    /// Where the next bytes belong, if that is worth a list of two.
    fn wanted(&self) -> Option<usize> {
        let shape = self.shape?;
        let start = self.position.checked_sub(size(shape.request_bytes))?;
        (size(shape.payload_in) - start >= DIRECT_RECEIVE_BYTES).then_some(start)
    }

    fn take_in(&mut self, mut input: &[u8], source: &mut Source) -> io::Result<Disposition> {
        let shape = match self.shape {
            Some(shape) => shape,
            None => match self.take_hello(&mut input) {
                Hello::Known(shape) => shape,
                Hello::Partial => return Ok(Disposition::Open),
                Hello::Wrong => return Ok(Disposition::Over),
            },
        };
        if shape.payload_in == 0 {
            let bytes = self.position + input.len();
            self.position = bytes % shape.request();
            self.owe(bytes / shape.request(), shape);
            return Ok(Disposition::Open);
        }
        let header = size(shape.request_bytes);
        while !input.is_empty() {
            let n = match self.position.checked_sub(header) {
                None => input.len().min(header - self.position),
                Some(start) => {
                    let n = input.len().min(size(shape.payload_in) - start);
                    if let Some(payload) = &mut self.payload {
                        payload[start..start + n].copy_from_slice(&input[..n]);
                    }
                    n
                }
            };
            input = &input[n..];
            self.position += n;
            self.end_request(source)?;
        }
        Ok(Disposition::Open)
    }

    fn take_hello(&mut self, input: &mut &[u8]) -> Hello {
        let n = input.len().min(SHAPE_BYTES - self.hello.len());
        let (hello, rest) = input.split_at(n);
        *input = rest;
        self.hello.extend_from_slice(hello);
        let Ok(hello) = self.hello[..].try_into() else {
            return Hello::Partial;
        };
        let Some(shape) = Shape::decode(hello) else {
            return Hello::Wrong;
        };
        self.shape = Some(shape);
        self.payload = (shape.payload_in > 0).then(|| Buffer::allocate(size(shape.payload_in)));
        Hello::Known(shape)
    }

    /// Acts on a request whose last byte has come.
    fn end_request(&mut self, source: &mut Source) -> io::Result<()> {
        let Some(shape) = self.shape.filter(|shape| self.position == shape.request()) else {
            return Ok(());
        };
        self.position = 0;
        if let Some(payload) = &self.payload {
            source.write(&payload[..size(shape.payload_in)])?;
        }
        self.owe(1, shape);
        Ok(())
    }

    fn owe(&mut self, requests: usize, shape: Shape) {
        self.owed += requests * shape.answer();
        self.counters.operations += u64::try_from(requests).expect("a number of 64 bits");
    }

    /// Sends what is due, as far as the socket takes it.
    pub fn flush(&mut self, source: &mut Source) -> io::Result<Disposition> {
        let Some(shape) = self.shape else {
            return Ok(Disposition::Open);
        };
        while self.owed > 0 && self.writable {
            let answers = (self.sent + self.owed) / shape.answer();
            let reads = source.is_file() && shape.payload_out > 0;
            if reads {
                let payload = size(shape.payload_out);
                self.loaded.fill(source, payload, answers)?;
            }
            if self.send(shape, reads) == Disposition::Over {
                return Ok(Disposition::Over);
            }
        }
        Ok(Disposition::Open)
    }

    fn send(&mut self, shape: Shape, reads: bool) -> Disposition {
        self.counters.send_calls += 1;
        let (result, length) = if !reads && size(shape.payload_out) < GATHER_BYTES {
            let bytes = &ZEROS[..self.owed.min(ZEROS.len())];
            let result = socket::send(&self.socket, &[IoSlice::new(bytes)], false);
            (result, bytes.len())
        } else {
            let slices = 2 * (self.sent + self.owed) / shape.answer();
            if slices <= FEW_SLICES {
                self.send_list::<FEW_SLICES>(shape, reads)
            } else if slices <= SOME_SLICES {
                self.send_list::<SOME_SLICES>(shape, reads)
            } else {
                self.send_list::<MANY_SLICES>(shape, reads)
            }
        };
        let n = match result {
            Ok(n) => n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Disposition::Over,
        };
        self.writable = n == length;
        self.owed -= n;
        let bytes = self.sent + n;
        self.sent = bytes % shape.answer();
        if reads {
            self.loaded.advance(bytes / shape.answer());
        }
        Disposition::Open
    }

    /// Sends headers and data from where they are: up to so many slices.
    fn send_list<const SLICES: usize>(
        &self,
        shape: Shape,
        reads: bool,
    ) -> (io::Result<usize>, usize) {
        let (header, payload) = (size(shape.answer_bytes), size(shape.payload_out));
        let due = (self.sent + self.owed) / shape.answer();
        let mut list = List::<SLICES> {
            slices: [IoSlice::new(&[]); SLICES],
            count: 0,
            length: 0,
            skip: self.sent,
        };
        let answers = if reads { self.loaded.left() } else { due };
        for answer in 0..answers {
            let fits = list.push(&ZEROS[..header])
                && if reads {
                    list.push(self.loaded.payload(answer, payload))
                } else {
                    list.push_zeros(payload)
                };
            if !fits {
                break;
            }
        }
        let sent = socket::send(&self.socket, &list.slices[..list.count], false);
        (sent, list.length)
    }
}

/// What one call sends.
struct List<'a, const SLICES: usize> {
    slices: [IoSlice<'a>; SLICES],
    count: usize,
    length: usize,
    /// Bytes at the beginning that were sent before.
    skip: usize,
}

impl<'a, const SLICES: usize> List<'a, SLICES> {
    /// Appends a slice; `false`: the list is full.
    #[inline]
    fn push(&mut self, bytes: &'a [u8]) -> bool {
        let Some(bytes) = bytes.get(self.skip..).filter(|bytes| !bytes.is_empty()) else {
            self.skip -= bytes.len();
            return true;
        };
        self.skip = 0;
        let Some(slice) = self.slices.get_mut(self.count) else {
            return false;
        };
        *slice = IoSlice::new(bytes);
        self.count += 1;
        self.length += bytes.len();
        true
    }

    #[inline]
    fn push_zeros(&mut self, mut length: usize) -> bool {
        while length > 0 {
            let n = length.min(ZEROS.len());
            if !self.push(&ZEROS[..n]) {
                return false;
            }
            length -= n;
        }
        true
    }
}

/// What a client says first.
enum Hello {
    Known(Shape),
    Partial,
    Wrong,
}
