//! Two machines of one protocol against each other, without sockets: what the tests of all protocols share.
//!
//! A [`Pair`] is a client, a server and the byte array that the server reads and writes. What one sends, the
//! other receives, cut into pieces of any size. The functions are conversations that every pair can hold.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::transmit::{PayloadId, Segment, Transmit};

/// How the server sends read data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    Inline,
    Copied,
    ByReference,
}

pub const SENDINGS: [Sending; 3] = [Sending::Inline, Sending::Copied, Sending::ByReference];

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Line {
    /// What its sender has queued.
    pub transmit: Transmit,
    /// What of that is queued by reference.
    payloads: HashMap<PayloadId, Vec<u8>>,
    next_payload: u64,
    /// A byte of the stream that is flipped, by absolute position.
    pub damage: Option<usize>,
    /// Bytes that have left.
    pub sent: usize,
}

impl Line {
    /// Keeps bytes that are about to be queued by reference.
    pub fn keep(&mut self, bytes: Vec<u8>) -> PayloadId {
        let id = PayloadId(self.next_payload);
        self.next_payload += 1;
        self.payloads.insert(id, bytes);
        id
    }

    /// They were not queued.
    pub fn forget(&mut self, id: PayloadId) {
        self.payloads.remove(&id);
    }

    /// All that is queued, as one stream, which leaves.
    ///
    /// # Panics
    /// When payload is released that was not kept, or twice.
    pub fn take(&mut self) -> Vec<u8> {
        let mut stream = bytes_of(&self.transmit, |id| &self.payloads[&id]);
        // In two goes, so that a segment is cut.
        let half = stream.len() / 2;
        let mut released = Vec::new();
        self.transmit.advance(half, &mut released);
        self.transmit.advance(stream.len() - half, &mut released);
        assert!(self.transmit.is_empty());
        for id in released {
            assert!(self.payloads.remove(&id).is_some(), "{id:?} released twice");
        }
        if let Some(byte) = self
            .damage
            .and_then(|at| at.checked_sub(self.sent))
            .and_then(|at| stream.get_mut(at))
        {
            *byte ^= 0x20;
        }
        self.sent += stream.len();
        stream
    }
}

/// All that is queued, as one stream; payload is looked up.
pub fn bytes_of<'a>(transmit: &Transmit, payload: impl Fn(PayloadId) -> &'a [u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    for segment in transmit.segments() {
        match segment {
            Segment::Arena { start, length } => {
                stream.extend_from_slice(&transmit.arena()[start..start + length]);
            }
            Segment::Zeros { length } => stream.resize(stream.len() + length, 0),
            Segment::Buffer { id, start, length } => {
                stream.extend_from_slice(&payload(id)[start..start + length]);
            }
        }
    }
    assert_eq!(stream.len(), transmit.pending_bytes());
    stream
}

/// What lies between the two machines, and behind the server.
#[derive(Debug)]
pub struct Rig {
    pub to_server: Line,
    pub to_client: Line,
    /// Streams arrive in pieces of these lengths, one after the other, over and over.
    pieces: Vec<usize>,
    next_piece: usize,
    pub sending: Sending,
    /// Data goes straight to its place where the machine that receives it says where that is.
    pub placing: bool,
    /// The client sends write data by reference.
    pub referring: bool,
    pub device: Vec<u8>,
}

impl Rig {
    #[must_use]
    pub fn new(pieces: &[usize]) -> Self {
        Self {
            to_server: Line::default(),
            to_client: Line::default(),
            pieces: pieces.to_vec(),
            next_piece: 0,
            sending: Sending::ByReference,
            placing: false,
            referring: false,
            device: (0..1 << 20)
                .map(|i: u32| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[0])
                .collect(),
        }
    }

    /// Takes the next piece off a stream.
    fn cut<'a>(&mut self, rest: &mut &'a [u8]) -> &'a [u8] {
        let length = self.pieces[self.next_piece % self.pieces.len()];
        self.next_piece += 1;
        let (piece, later) = rest.split_at(length.min(rest.len()));
        *rest = later;
        piece
    }
}

/// Both ends of a connection.
pub trait Pair {
    /// A command of the client.
    type Command: Copy;

    fn rig(&mut self) -> &mut Rig;

    /// The server takes its next event off `input`. Returns whether there may be another.
    fn server_event(&mut self, input: &mut &[u8]) -> bool;
    fn client_event(&mut self, input: &mut &[u8]) -> bool;

    /// Does what a driver does that receives straight into the buffer of a command.
    fn place_at_server(&mut self, input: &mut &[u8]);
    fn place_at_client(&mut self, input: &mut &[u8]);

    fn is_server_closed(&self) -> bool;
    fn is_client_closed(&self) -> bool;

    fn start_write(&mut self, offset: usize, data: &[u8]) -> Self::Command;
    fn start_read(&mut self, offset: usize, length: usize) -> Self::Command;
    fn assert_good(&self, command: Self::Command);
    /// What a read has brought.
    fn data_in(&self, command: Self::Command) -> &[u8];
    /// Both ends are up and know of no command.
    fn assert_idle(&self);

    /// Delivers queued bytes in both directions until both queues are empty.
    fn run(&mut self) {
        loop {
            let to_server = self.rig().to_server.take();
            let to_client = self.rig().to_client.take();
            if to_server.is_empty() && to_client.is_empty() {
                break;
            }
            self.feed_server(&to_server);
            self.feed_client(&to_client);
        }
        let rig = self.rig();
        let referred = rig.to_server.payloads.len() + rig.to_client.payloads.len();
        assert_eq!(referred, 0, "payload was not released");
    }

    fn feed_server(&mut self, mut stream: &[u8]) {
        while !stream.is_empty() {
            let mut piece = self.rig().cut(&mut stream);
            loop {
                if self.rig().placing {
                    self.place_at_server(&mut piece);
                }
                if !self.server_event(&mut piece) {
                    break;
                }
            }
            assert!(piece.is_empty() || self.is_server_closed());
        }
    }

    fn feed_client(&mut self, mut stream: &[u8]) {
        while !stream.is_empty() {
            let mut piece = self.rig().cut(&mut stream);
            loop {
                if self.rig().placing {
                    self.place_at_client(&mut piece);
                }
                if !self.client_event(&mut piece) {
                    break;
                }
            }
            assert!(piece.is_empty() || self.is_client_closed());
        }
    }

    /// Writes and reads again, with every way to send.
    fn check_read_back(&mut self, lengths: &[usize]) {
        for (n, length) in lengths.iter().enumerate() {
            let data = pattern(*length, n);
            let write = self.start_write(n * 40_000, &data);
            self.run();
            self.assert_good(write);
            for sending in SENDINGS {
                self.rig().sending = sending;
                let read = self.start_read(n * 40_000, *length);
                self.run();
                self.assert_good(read);
                assert_eq!(self.data_in(read), data, "{sending:?}");
            }
        }
        self.assert_idle();
    }

    /// Reads and writes as `steps` say, and compares with a byte array. Commands in flight together may be
    /// served in any order as far as overlapping writes go, so a write waits for what came before; reads run
    /// along unless each `waits`.
    fn check_against_array(&mut self, steps: Vec<Step>, waits: bool) {
        let mut model = self.rig().device.clone();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write { offset, length } => {
                    let data = pattern(length, n);
                    model[offset..offset + length].copy_from_slice(&data);
                    self.run();
                    let write = self.start_write(offset, &data);
                    self.run();
                    self.assert_good(write);
                }
                Step::Read { offset, length } => {
                    let read = self.start_read(offset, length);
                    if waits {
                        self.run();
                        self.assert_good(read);
                        assert_eq!(self.data_in(read), &model[offset..offset + length]);
                    }
                }
                Step::Run => self.run(),
            }
        }
        self.run();
        assert_eq!(self.rig().device, model);
        self.assert_idle();
    }

    /// The answers to a burst of small reads are bytes of one segment, each read behind a header of
    /// `header_length`.
    fn check_burst_is_one_segment(&mut self, header_length: usize) {
        self.rig().sending = Sending::Inline;
        for n in 0..32 {
            self.start_read(n * 512, 512);
        }
        let to_server = self.rig().to_server.take();
        self.feed_server(&to_server);
        let answers = &self.rig().to_client.transmit;
        assert_eq!(answers.segments().count(), 1);
        assert_eq!(answers.pending_bytes(), 32 * (header_length + 512));
    }
}

/// Streams are cut into `pieces` of one length, with data placed and copied.
pub fn check_pieces<P: Pair>(pieces: &[usize], connect: impl Fn(usize) -> P) {
    let lengths = [1, 700, 5000];
    for piece in pieces {
        for placing in [false, true] {
            let mut pair = connect(*piece);
            pair.rig().placing = placing;
            pair.rig().referring = placing;
            let numbered = || lengths.iter().enumerate();
            let writes: Vec<_> = numbered()
                .map(|(n, length)| pair.start_write(n * 10_000, &pattern(*length, n)))
                .collect();
            pair.run();
            let reads: Vec<_> = numbered()
                .map(|(n, length)| pair.start_read(n * 10_000, *length))
                .collect();
            pair.run();
            for (n, (write, read)) in writes.into_iter().zip(reads).enumerate() {
                pair.assert_good(write);
                pair.assert_good(read);
                assert_eq!(pair.data_in(read), pattern(lengths[n], n), "piece {piece}");
            }
        }
    }
}

/// Data that tells one place and one write from another.
#[must_use]
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i * 31 + seed * 7 + i / 251).to_le_bytes()[0])
        .collect()
}

/// What a client does next.
#[derive(Clone, Debug)]
pub enum Step {
    Write { offset: usize, length: usize },
    Read { offset: usize, length: usize },
    Run,
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0_usize..50_000, 1_usize..12_000);
    let step = prop_oneof![
        place
            .clone()
            .prop_map(|(offset, length)| Step::Write { offset, length }),
        place.prop_map(|(offset, length)| Step::Read { offset, length }),
        Just(Step::Run),
    ];
    prop::collection::vec(step, 1..30)
}
