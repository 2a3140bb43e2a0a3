//! Bytes to send, in order: headers and small payload in one arena, larger payload by reference.
//!
//! ```text
//! segments: [arena 0..96][buffer 7, 0..65536][arena 96..144][zeros 512][arena 144..192]
//! arena:    hdr hdr                          hdr                      hdr
//! ```
//!
//! Adjacent arena ranges are one segment, so a burst of small responses is one `write`. The memory
//! is reused: once warm, nothing is allocated. The arena is compacted when what has been sent
//! outweighs what has not, which a peer that never stops reading would otherwise never allow.

use crate::Crc32c;
use std::collections::VecDeque;

/// Names payload that a segment refers to; chosen by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PayloadId(pub u64);

/// Data that a command returns to its peer.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    None,
    /// Copied into the arena.
    Bytes(&'a [u8]),
    /// As many bytes, all zero, without memory of their own.
    Zeros(u32),
    /// Sent by reference: `id` is released once its last byte has left. `bytes` are all its bytes,
    /// for the length and for the data digest.
    Buffer {
        /// What [`Segment::Buffer`] will name.
        id: PayloadId,
        /// The bytes that will be sent, from index 0 of the payload.
        bytes: &'a [u8],
    },
    /// As [`Payload::Buffer`], but what the bytes are is not known here: the driver holds them in another form
    /// than memory, or they may change yet. So there can be no data digest.
    Unseen {
        /// What [`Segment::Buffer`] will name.
        id: PayloadId,
        /// Bytes that will be sent.
        length: u32,
    },
}

impl Payload<'_> {
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) | Self::Buffer { bytes, .. } => bytes.len(),
            Self::Zeros(length) | Self::Unseen { length, .. } => *length as usize,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Data that a host or an initiator sends: all of a command's, or the part that its peer asks for.
#[derive(Clone, Copy, Debug)]
pub enum WriteData<'a> {
    /// Copied into the transmit queue.
    Bytes(&'a [u8]),
    /// By reference: `bytes` lie at `start` of the payload `id`. For each call that was given one, and
    /// sent of it, the transmit queue releases `id` once.
    Buffer {
        /// What [`Segment::Buffer`] will name.
        id: PayloadId,
        /// Index of `bytes` in it.
        start: usize,
        bytes: &'a [u8],
    },
}

impl<'a> WriteData<'a> {
    pub const NONE: Self = Self::Bytes(&[]);

    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) | Self::Buffer { bytes, .. } => bytes,
        }
    }

    /// `length` bytes from index `from` on, to be sent in a PDU. `last`: no later part is sent.
    ///
    /// # Panics
    /// When there are fewer.
    #[inline]
    #[must_use]
    pub fn chunk(self, from: usize, length: usize, last: bool) -> Chunk<'a> {
        let bytes = &self.bytes()[from..from + length];
        match self {
            Self::Bytes(_) => Chunk::Bytes(bytes),
            Self::Buffer { id, start, .. } => Chunk::Buffer {
                id,
                start: start + from,
                bytes,
                last,
            },
        }
    }
}

/// A run of bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// `length` bytes at `start` of [`Transmit::arena`].
    Arena {
        /// Index into the arena.
        start: usize,
        length: usize,
    },
    Zeros {
        length: usize,
    },
    /// `length` bytes at `start` of payload the driver holds.
    Buffer {
        id: PayloadId,
        /// Index of the first byte in the buffer.
        start: usize,
        length: usize,
    },
}

impl Segment {
    #[must_use]
    pub const fn length(self) -> usize {
        match self {
            Self::Arena { length, .. } | Self::Zeros { length } | Self::Buffer { length, .. } => {
                length
            }
        }
    }

    /// Takes `n` bytes off its front.
    const fn advance(&mut self, n: usize) {
        match self {
            Self::Zeros { length } => *length -= n,
            Self::Arena { start, length } | Self::Buffer { start, length, .. } => {
                *start += n;
                *length -= n;
            }
        }
    }
}

/// A segment whose arena range counts from the beginning of time, so that compaction moves none.
#[derive(Clone, Copy, Debug)]
struct Queued {
    segment: Segment,
    /// The payload is referred to by no later segment.
    last_of_payload: bool,
}

/// The queue of one connection. See the module documentation.
#[derive(Debug)]
pub struct Transmit {
    /// Bytes beyond `arena_used` are stale and never sent.
    arena: Vec<u8>,
    arena_used: usize,
    /// Absolute position of `arena[0]`.
    arena_base: usize,
    segments: VecDeque<Queued>,
    pending_bytes: usize,
    releases_due: usize,
    /// An arena that has grown larger is given back when the queue is empty.
    arena_kept: usize,
}

/// The arena is compacted when this much of it has been sent.
const COMPACT_AT: usize = 16 << 10;

const ARENA_KEPT: usize = 1 << 20;

impl Default for Transmit {
    fn default() -> Self {
        Self {
            arena: Vec::new(),
            arena_used: 0,
            arena_base: 0,
            segments: VecDeque::new(),
            pending_bytes: 0,
            releases_due: 0,
            arena_kept: ARENA_KEPT,
        }
    }
}

impl Transmit {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps an arena of up to so many bytes when the queue is empty, rather than a MiB: for those who copy large
    /// payload, and would else allocate for each.
    pub const fn keep(&mut self, bytes: usize) {
        self.arena_kept = bytes;
    }

    /// Whether there is nothing to send.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// How many bytes there are to send.
    #[inline]
    #[must_use]
    pub const fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// How many payloads are still to be released. A driver that looks before and after a call which may
    /// have queued a payload knows whether it has.
    #[inline]
    #[must_use]
    pub const fn releases_due(&self) -> usize {
        self.releases_due
    }

    /// What is to be sent, first things first. Arena ranges are indices into [`Self::arena`].
    pub fn segments(&self) -> impl Iterator<Item = Segment> + '_ {
        self.segments.iter().map(|queued| match queued.segment {
            Segment::Arena { start, length } => Segment::Arena {
                start: start - self.arena_base,
                length,
            },
            other => other,
        })
    }

    /// The memory that arena segments refer to, until the next call that changes the queue.
    #[inline]
    #[must_use]
    pub fn arena(&self) -> &[u8] {
        &self.arena[..self.arena_used]
    }

    /// Notes that `n` bytes have left. Payload whose last byte left is appended to `released`.
    ///
    /// # Panics
    /// When `n` is more than what is pending.
    pub fn advance(&mut self, mut n: usize, released: &mut Vec<PayloadId>) {
        assert!(n <= self.pending_bytes, "more bytes left than were queued");
        self.pending_bytes -= n;
        while let Some(front) = self.segments.front_mut() {
            let length = front.segment.length();
            if n < length {
                front.segment.advance(n);
                break;
            }
            n -= length;
            if let Some(id) = front.releases() {
                self.releases_due -= 1;
                released.push(id);
            }
            self.segments.pop_front();
        }
        self.reclaim();
    }

    /// Gives up all that is queued: the connection dies.
    pub fn release_all(&mut self, released: &mut Vec<PayloadId>) {
        released.extend(
            self.segments
                .drain(..)
                .filter_map(|queued| queued.releases()),
        );
        self.pending_bytes = 0;
        self.releases_due = 0;
        self.reclaim();
    }

    /// Bytes of memory for what is queued, whether in use or not.
    #[must_use]
    #[inline]
    pub fn memory(&self) -> usize {
        self.arena.capacity()
    }

    /// Bytes of the arena in use, with what has been sent of it and is not reclaimed yet.
    #[inline]
    #[must_use]
    pub const fn arena_used(&self) -> usize {
        self.arena_used
    }

    #[inline]
    #[must_use]
    pub const fn arena_kept(&self) -> usize {
        self.arena_kept
    }

    /// Bytes of memory for the list of what is queued.
    #[must_use]
    pub fn list_memory(&self) -> usize {
        self.segments.capacity() * size_of::<Queued>()
    }

    /// Gives back the memory of a queue that is empty. It grows again with the next use.
    pub fn release_memory(&mut self) {
        if self.is_empty() {
            self.reclaim();
            self.arena = Vec::new();
            self.segments = VecDeque::new();
        }
    }

    /// Frees arena memory that nothing refers to any more.
    fn reclaim(&mut self) {
        if self.segments.is_empty() {
            self.arena_base += self.arena_used;
            self.arena_used = 0;
            if self.arena.len() > self.arena_kept {
                self.arena = Vec::new();
            }
            return;
        }
        let first = self
            .segments
            .iter()
            .find_map(|queued| match queued.segment {
                Segment::Arena { start, .. } => Some(start - self.arena_base),
                _ => None,
            });
        let sent = first.unwrap_or(self.arena_used);
        if sent >= COMPACT_AT && sent * 2 >= self.arena_used {
            self.arena.copy_within(sent..self.arena_used, 0);
            self.arena_base += sent;
            self.arena_used -= sent;
        }
    }

    /// Makes room for `length` arena bytes at the end of the queue. Their contents are stale: the
    /// caller fills every one. Follow with [`Self::arena_bytes_mut`] or give back by
    /// [`Self::take_back`].
    #[inline]
    pub fn reserve_arena(&mut self, length: usize) -> ArenaRange {
        let start = self.arena_used;
        let end = start + length;
        if end > self.arena.len() {
            self.arena.resize(end.next_power_of_two().max(4096), 0);
        }
        self.arena_used = end;
        self.pending_bytes += length;
        let position = self.arena_base + start;
        match self.segments.back_mut() {
            Some(Queued {
                segment:
                    Segment::Arena {
                        start,
                        length: so_far,
                    },
                ..
            }) if *start + *so_far == position => {
                *so_far += length;
            }
            _ => self.segments.push_back(Queued {
                segment: Segment::Arena {
                    start: position,
                    length,
                },
                last_of_payload: false,
            }),
        }
        ArenaRange { position, length }
    }

    /// The bytes of a range that has not been sent.
    #[inline]
    pub fn arena_bytes_mut(&mut self, range: ArenaRange) -> &mut [u8] {
        let start = range.position - self.arena_base;
        &mut self.arena[start..start + range.length]
    }

    /// Undoes the [`Self::reserve_arena`] that was the last addition to the queue.
    pub fn take_back(&mut self, range: ArenaRange) {
        let end = self.arena_base + self.arena_used;
        assert_eq!(
            range.position + range.length,
            end,
            "only the newest range is taken back"
        );
        self.arena_used -= range.length;
        self.pending_bytes -= range.length;
        let Some(Queued {
            segment: Segment::Arena { length, .. },
            ..
        }) = self.segments.back_mut()
        else {
            unreachable!("the newest range is in the last segment");
        };
        *length -= range.length;
        if *length == 0 {
            self.segments.pop_back();
        }
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let range = self.reserve_arena(bytes.len());
        self.arena_bytes_mut(range).copy_from_slice(bytes);
    }

    /// Appends zero bytes without storing them.
    #[inline]
    pub fn push_zeros(&mut self, length: usize) {
        if length == 0 {
            return;
        }
        self.pending_bytes += length;
        if let Some(Queued {
            segment: Segment::Zeros { length: so_far },
            ..
        }) = self.segments.back_mut()
        {
            *so_far += length;
            return;
        }
        self.segments.push_back(Queued {
            segment: Segment::Zeros { length },
            last_of_payload: false,
        });
    }

    /// Appends payload by reference. `last`: it is the last reference to this payload.
    #[inline]
    pub fn push_buffer(&mut self, id: PayloadId, start: usize, length: usize, last: bool) {
        self.pending_bytes += length;
        self.releases_due += usize::from(last);
        self.segments.push_back(Queued {
            segment: Segment::Buffer { id, start, length },
            last_of_payload: last,
        });
    }

    /// Appends payload of a PDU.
    #[inline]
    pub fn push_chunk(&mut self, chunk: Chunk<'_>) {
        let length = chunk.len();
        match chunk {
            Chunk::Bytes(bytes) => self.push_bytes(bytes),
            Chunk::Zeros(_) => self.push_zeros(length),
            Chunk::Buffer {
                id, start, last, ..
            }
            | Chunk::Unseen {
                id, start, last, ..
            } => self.push_buffer(id, start, length, last),
        }
    }
}

/// Payload of one PDU.
#[derive(Clone, Copy, Debug)]
pub enum Chunk<'a> {
    Bytes(&'a [u8]),
    /// So many zeros, not stored.
    Zeros(u32),
    /// Bytes that the driver holds until `id` is released.
    Buffer {
        id: PayloadId,
        /// Index of the chunk in it.
        start: usize,
        /// The chunk itself, for the digest.
        bytes: &'a [u8],
        /// No later chunk refers to the payload.
        last: bool,
    },
    /// By reference, and without a digest: see [`Payload::Unseen`].
    Unseen {
        id: PayloadId,
        /// Index of the chunk in it.
        start: usize,
        length: u32,
        /// No later chunk refers to the payload.
        last: bool,
    },
}

impl Chunk<'_> {
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) | Self::Buffer { bytes, .. } => bytes.len(),
            Self::Zeros(length) | Self::Unseen { length, .. } => *length as usize,
        }
    }

    /// The CRC of all bytes.
    ///
    /// # Panics
    /// When they are not seen.
    #[inline]
    #[must_use]
    pub fn crc(&self) -> Crc32c {
        match self {
            Self::Bytes(bytes) | Self::Buffer { bytes, .. } => crate::crc32c(bytes),
            Self::Zeros(length) => crate::crc32c_of_zeros(*length as usize),
            Self::Unseen { .. } => unreachable!("what is not seen has no digest"),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Room for a PDU whose payload is filled in before its header is known.
#[derive(Clone, Copy, Debug)]
pub struct OpenPdu {
    pub range: ArenaRange,
    /// Where the payload starts in it.
    pub data_start: usize,
    /// Payload of the PDU in bytes, without header, padding and digests.
    pub data_length: usize,
}

impl OpenPdu {
    /// The payload's place, holding stale bytes until filled.
    #[inline]
    pub fn payload_mut(self, transmit: &mut Transmit) -> &mut [u8] {
        let end = self.data_start + self.data_length;
        &mut transmit.arena_bytes_mut(self.range)[self.data_start..end]
    }

    /// Gives the room back. It was the last that was reserved.
    pub fn cancel(self, transmit: &mut Transmit) {
        transmit.take_back(self.range);
    }
}

/// Arena bytes by absolute position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRange {
    position: usize,
    length: usize,
}

impl Queued {
    /// The payload that is free once this segment has left.
    const fn releases(&self) -> Option<PayloadId> {
        match self.segment {
            Segment::Buffer { id, .. } if self.last_of_payload => Some(id),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: PayloadId = PayloadId(7);

    fn arena_of(transmit: &Transmit) -> Vec<&[u8]> {
        transmit
            .segments()
            .filter_map(|segment| match segment {
                Segment::Arena { start, length } => Some(&transmit.arena()[start..start + length]),
                Segment::Zeros { .. } | Segment::Buffer { .. } => None,
            })
            .collect()
    }

    #[test]
    fn adjacent_bytes_are_one_segment() {
        let mut transmit = Transmit::new();
        transmit.push_bytes(b"one");
        transmit.push_bytes(b"two");
        transmit.push_zeros(3);
        transmit.push_zeros(4);
        transmit.push_bytes(b"three");
        assert_eq!(transmit.segments().count(), 3);
        assert_eq!(arena_of(&transmit), [&b"onetwo"[..], b"three"]);
        assert_eq!(transmit.pending_bytes(), 18);
    }

    #[test]
    fn payload_is_released_with_its_last_byte() {
        let mut transmit = Transmit::new();
        transmit.push_buffer(ID, 0, 10, false);
        transmit.push_bytes(b"head");
        transmit.push_buffer(ID, 10, 10, true);
        let mut released = Vec::new();
        transmit.advance(23, &mut released);
        assert_eq!(released, []);
        assert_eq!(transmit.releases_due(), 1);
        let rest = Segment::Buffer {
            id: ID,
            start: 19,
            length: 1,
        };
        assert_eq!(transmit.segments().collect::<Vec<_>>(), [rest]);
        transmit.advance(1, &mut released);
        assert_eq!(released, [ID]);
        assert_eq!(transmit.releases_due(), 0);
        assert!(transmit.is_empty());
    }

    #[test]
    fn a_dying_connection_releases_all_payload_once() {
        let mut transmit = Transmit::new();
        transmit.push_buffer(ID, 0, 10, false);
        transmit.push_buffer(ID, 10, 10, true);
        transmit.push_buffer(PayloadId(8), 0, 10, true);
        let mut released = Vec::new();
        transmit.release_all(&mut released);
        assert_eq!(released, [ID, PayloadId(8)]);
        assert_eq!(transmit.releases_due(), 0);
        assert!(transmit.is_empty());
        assert_eq!(transmit.pending_bytes(), 0);
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let mut transmit = Transmit::new();
        let range = transmit.reserve_arena(10);
        transmit.take_back(range);
        assert!(transmit.is_empty());
        transmit.push_bytes(b"kept");
        let range = transmit.reserve_arena(10);
        transmit.take_back(range);
        transmit.push_bytes(b" too");
        assert_eq!(arena_of(&transmit), [b"kept too"]);
    }

    #[test]
    fn memory_is_given_back_only_when_nothing_is_queued() {
        let mut transmit = Transmit::new();
        transmit.push_bytes(&[7; 100_000]);
        transmit.release_memory();
        assert_eq!(arena_of(&transmit), [[7; 100_000]]);
        transmit.advance(100_000, &mut Vec::new());
        transmit.release_memory();
        assert_eq!(transmit.arena.capacity(), 0);
        transmit.push_bytes(b"again");
        assert_eq!(arena_of(&transmit), [b"again"]);
    }

    #[test]
    fn a_large_arena_is_kept_only_when_asked_for() {
        let mut transmit = Transmit::new();
        let grow = |transmit: &mut Transmit| {
            transmit.push_bytes(&vec![7; 3 << 20]);
            transmit.advance(3 << 20, &mut Vec::new());
            transmit.memory()
        };
        assert_eq!(grow(&mut transmit), 0);
        transmit.keep(4 << 20);
        assert_eq!(grow(&mut transmit), 4 << 20);
    }

    #[test]
    #[should_panic(expected = "more bytes left than were queued")]
    fn more_cannot_leave_than_is_queued() {
        Transmit::new().advance(1, &mut Vec::new());
    }

    #[test]
    fn the_arena_stays_bounded_when_the_queue_is_never_empty() {
        let mut transmit = Transmit::new();
        transmit.push_bytes(&[0; 1000]);
        for _ in 0..10_000 {
            transmit.push_bytes(&[1; 1000]);
            transmit.advance(1000, &mut Vec::new());
        }
        assert!(
            transmit.arena.len() <= 4 * COMPACT_AT,
            "{}",
            transmit.arena.len()
        );
    }

    proptest! {
        /// Sizes around the threshold of compaction, so that it happens at every state of the queue.
        #[test]
        fn bytes_leave_in_the_order_they_were_queued(
            steps in prop::collection::vec((0_usize..40_000, 0_usize..60_000, any::<bool>()), 1..60),
        ) {
            let mut transmit = Transmit::new();
            let (mut queued, mut sent) = (Vec::new(), Vec::new());
            let mut next = 0_u8;
            for (add, send, zeros) in steps {
                if zeros {
                    transmit.push_zeros(add);
                    queued.resize(queued.len() + add, 0);
                } else {
                    next = next.wrapping_add(1);
                    transmit.push_bytes(&vec![next; add]);
                    queued.resize(queued.len() + add, next);
                }
                let mut stream = Vec::new();
                for segment in transmit.segments() {
                    match segment {
                        Segment::Arena { start, length } => {
                            stream.extend_from_slice(&transmit.arena()[start..start + length]);
                        }
                        Segment::Zeros { length } => stream.resize(stream.len() + length, 0),
                        Segment::Buffer { .. } => unreachable!("none was queued"),
                    }
                }
                prop_assert_eq!(stream.len(), transmit.pending_bytes());
                let send = send.min(stream.len());
                sent.extend_from_slice(&stream[..send]);
                transmit.advance(send, &mut Vec::new());
                prop_assert_eq!(&stream[send..], &queued[sent.len()..]);
            }
            prop_assert_eq!(&sent[..], &queued[..sent.len()]);
        }
    }
}
