//! The socket side of a connection, whatever it speaks.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::Instant;

use longshore_reactor::{Buffer, PagePipe, TimerId, socket};
use longshore_wire::transmit::{PayloadId, Segment, Transmit};
use slab::Slab;

use crate::budget::{READ_ROOM, SHARE_MIN};
use crate::core::Core;
use crate::message::ConnectionAddress;
use crate::observe::stages::{Followed, Unsent};
use crate::observe::{ConnectionCounts, Counters};
use crate::placement::migration::Migration;
use crate::platform::Link;
use crate::task::DataIn;
use crate::transmit_policy::config::TransmitConfig;
use crate::transmit_policy::{PolicyState, Switch};

/// While so much waits to be sent, nothing more is received: the peer does not read.
const STOP_RECEIVING_BYTES: usize = 4 << 20;
/// Time for a peer to take what was queued before its connection closes.
const CLOSE_TIMEOUT_MS: u64 = 5_000;
/// Bytes taken from a peer after the last answer, so that it can read that answer.
const DISCARDED_BYTES_MAX: usize = 16 << 20;
/// Segments in one send. Linux takes up to 1,024.
const SEGMENTS_PER_SEND: usize = 256;
/// A list for many costs hundreds of instructions to clear. One response has up to 8 segments, a turn
/// with 32 of them 64.
const FEW_SEGMENTS: usize = 8;
const SOME_SEGMENTS: usize = 64;
/// Shared zeros that zero segments point at.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Where it is now.
    pub address: ConnectionAddress,
    pub migration: Migration,
    pub link: Box<dyn Link>,
    pub transmit: Transmit,
    /// Payload that the transmit queue refers to, by [`PayloadId`].
    pub sending: Slab<Held>,
    pub timer: Option<(TimerId, u64)>,
    /// It is in the shard's list of connections to be received from.
    pub is_listed: bool,
    /// It is in the shard's list of connections with something to send.
    pub is_dirty: bool,
    /// It is in the shard's list of connections that may go idle.
    pub may_go_idle: bool,
    /// When its responses leave.
    pub policy: PolicyState,
    /// Until when what was sent may wait for the peer.
    pub waits_until: Option<Instant>,
    /// Who is at the other end.
    pub peer: SocketAddr,
    /// Our address, as the peer reached it.
    pub reached: SocketAddr,
    /// Index of the listener it came in by.
    pub portal: usize,
    /// What it has done.
    pub counts: ConnectionCounts,
    /// Memory of the payload in `sending`.
    pub held_bytes: usize,
    /// Memory of the transmit queue that the shard knows of.
    noted_memory: usize,
    /// Responses whose sending is to be noted.
    unsent: Unsent,
    readable: bool,
    /// The end of the stream has been reported, which happens once. Until it is reached, a short
    /// receive does not mean that nothing else is there.
    hang_up: bool,
    writable: bool,
    /// Nothing more is received; what is queued is sent, then it is over.
    closing: bool,
    /// When it is over although the peer has not taken what is queued.
    close_by_ms: Option<u64>,
    /// Why it closes is in an answer that was queued then. The kernel would throw that away, and
    /// reset the connection, if it was closed with bytes that nobody received.
    explains: bool,
    /// Everything is sent and the peer knows. What it sends still is thrown away: so many bytes yet.
    discarded: Option<usize>,
}

impl Channel {
    pub(crate) fn new(
        address: ConnectionAddress,
        link: Box<dyn Link>,
        portal: usize,
        transmit: &TransmitConfig,
        counters: &mut Counters,
    ) -> std::io::Result<Self> {
        let (peer, reached) = link.addresses()?;
        let policy = PolicyState::new(transmit);
        let mut channel = Self {
            address,
            migration: Migration::new(address),
            link,
            transmit: Transmit::new(),
            sending: Slab::new(),
            timer: None,
            is_listed: false,
            is_dirty: false,
            may_go_idle: false,
            policy,
            waits_until: None,
            peer,
            reached,
            portal,
            counts: ConnectionCounts::default(),
            held_bytes: 0,
            noted_memory: 0,
            unsent: Unsent::default(),
            readable: true,
            hang_up: false,
            writable: true,
            closing: false,
            close_by_ms: None,
            explains: false,
            discarded: None,
        };
        if channel.policy.nodelay() {
            channel.switch_nodelay(Switch::NoDelay, counters);
        }
        Ok(channel)
    }

    pub(crate) fn set_readable(&mut self, hang_up: bool) {
        self.readable = true;
        self.hang_up |= hang_up;
    }

    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// Whether there is something to receive and room for what may come of it. `wanted`: the protocol
    /// takes input now.
    pub(crate) fn wants_turn(&self, wanted: bool) -> bool {
        self.readable
            && !self.migration.leaving
            && (self.discarded.is_some() || wanted && !self.closing)
            && self.transmit.pending_bytes() < STOP_RECEIVING_BYTES
            && self.transmit.arena_used() < 2 * self.transmit.arena_kept()
    }

    /// A complete request was read.
    #[inline]
    pub(crate) fn request_read(&mut self, counters: &mut Counters) {
        let switch = self.policy.request_read();
        self.switch_nodelay(switch, counters);
    }

    /// Goes idle, if nothing has come since its receive buffer was found empty.
    pub(crate) fn look_for_idle(&mut self, counters: &mut Counters) {
        self.may_go_idle = false;
        if !self.readable {
            let switch = self.policy.idle();
            self.switch_nodelay(switch, counters);
        }
    }

    /// Has its responses leave like this from now on.
    pub(crate) fn set_transmit(&mut self, config: &TransmitConfig, counters: &mut Counters) {
        let switch = self.policy.configure(config);
        self.switch_nodelay(switch, counters);
    }

    /// Everything that its turn gave has been sent, or is with the kernel.
    pub(crate) fn end_turn(&mut self, core: &mut Core) {
        self.release_held(&mut core.counters);
        let sent = self.counts.sent_bytes;
        let switch = self
            .policy
            .turn_ended(core.now, sent, core.alone, core.waiting);
        self.switch_nodelay(switch, &mut core.counters);
        self.waits_until = self.policy.waits_until(core.now);
    }

    /// Whether what was sent may wait still; if not, it leaves.
    pub(crate) fn goes_on_waiting(&mut self, now: Instant, counters: &mut Counters) -> bool {
        match self.waits_until {
            None => false,
            Some(until) if now < until => true,
            Some(_) => {
                self.stop_waiting(counters);
                false
            }
        }
    }

    fn stop_waiting(&mut self, counters: &mut Counters) {
        if self.waits_until.take().is_some() {
            let switch = self.policy.waited();
            self.switch_nodelay(switch, counters);
        }
    }

    /// Sends a partial segment that waited for a turn which brought nothing.
    fn release_held(&mut self, counters: &mut Counters) {
        // With Nagle's algorithm, which may have been chosen meanwhile, acknowledgements release it.
        if self.policy.holds()
            && self.transmit.is_empty()
            && self.policy.stops_holding(self.is_listed)
            && self.policy.nodelay()
        {
            self.switch_nodelay(Switch::NoDelay, counters);
        }
    }

    #[inline]
    fn switch_nodelay(&mut self, switch: Switch, counters: &mut Counters) {
        if switch != Switch::Keep {
            self.set_nodelay(switch, counters);
        }
    }

    #[cold]
    fn set_nodelay(&mut self, switch: Switch, counters: &mut Counters) {
        for on in switch.settings() {
            counters.option_calls += 1;
            if let Err(error) = self.link.set_nodelay(on) {
                // What is held back leaves with an acknowledgement, later.
                tracing::debug!(peer = %self.peer, %error, "TCP_NODELAY not set");
            }
        }
    }

    /// Whether it closes once everything is sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Stops receiving; the rest is sent. `answered`: the last of what is queued says why, and the peer
    /// may be sending still. Returns whether this is news.
    pub(crate) fn close(&mut self, answered: bool) -> bool {
        if self.closing {
            return false;
        }
        self.explains = answered && !self.transmit.is_empty();
        self.closing = true;
        true
    }

    /// When it is to be over at the latest, if it closes.
    pub(crate) fn close_by_ms(&self) -> Option<u64> {
        self.close_by_ms
    }

    /// Receives into `buffers`, which have `room`.
    pub(crate) fn receive(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        room: usize,
        counters: &mut Counters,
    ) -> Received {
        match self.link.receive(buffers) {
            Ok(0) => {
                counters.receives_empty += 1;
                tracing::debug!(peer = %self.peer, "peer closed the connection");
                Received::End
            }
            Ok(n) => {
                counters.receives += 1;
                counters.received_bytes += n as u64;
                self.counts.receives += 1;
                self.counts.received_bytes += n as u64;
                self.readable = self.hang_up || n == room;
                Received::Bytes(n)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                counters.receives_empty += 1;
                self.readable = false;
                // The end of the stream would have shown: what came was another error condition.
                self.hang_up = false;
                Received::Nothing
            }
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "receive failed");
                Received::Failed
            }
        }
    }

    /// Whether what is received is thrown away.
    pub(crate) fn discards(&self) -> bool {
        self.discarded.is_some()
    }

    /// Receives what nobody wants, until the peer closes its end.
    pub(crate) fn discard(&mut self, receive_buffer: &mut [u8]) -> ControlFlow<()> {
        let discarded = self.discarded.unwrap_or(0);
        match self.link.receive(&mut [IoSliceMut::new(receive_buffer)]) {
            Ok(n) if n > 0 && discarded + n <= DISCARDED_BYTES_MAX => {
                self.discarded = Some(discarded + n);
                ControlFlow::Continue(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(()),
        }
    }

    /// Whether the transmit queue has room for a read.
    #[inline]
    pub(crate) fn has_room_for_read(&mut self, core: &mut Core) -> bool {
        let wanted = self.transmit.arena_used() + READ_ROOM;
        // The least share is there for each, whether it has been used or not.
        wanted <= self.transmit.arena_kept()
            && (wanted <= SHARE_MIN.max(self.transmit.memory()) || self.may_grow(core, wanted))
    }

    #[cold]
    fn may_grow(&mut self, core: &mut Core, wanted: usize) -> bool {
        self.note_memory(core);
        core.transmit_part.may_grow(wanted, self.transmit.memory())
    }

    /// Has the shard count what the transmit queue holds.
    #[inline]
    pub(crate) fn note_memory(&mut self, core: &mut Core) {
        let memory = self.transmit.memory();
        if memory != self.noted_memory {
            core.transmit_part.note(self.noted_memory, memory);
            self.noted_memory = memory;
        }
    }

    /// Bytes of what was sent that the peer has acknowledged, if the kernel tells.
    pub(crate) fn acknowledged_bytes(&self) -> Option<u64> {
        let unacknowledged = socket::unacknowledged_bytes(self.link.socket()?).ok()?;
        let unacknowledged = u64::try_from(unacknowledged).unwrap_or(u64::MAX);
        Some(self.counts.sent_bytes.saturating_sub(unacknowledged))
    }

    /// Ends the connection without waiting for the peer to take what is queued.
    pub(crate) fn cut(&mut self, now_ms: u64) {
        self.closing = true;
        self.close_by_ms = Some(now_ms);
    }

    /// Whether there is something to send and the socket may take it.
    pub(crate) fn may_send(&self) -> bool {
        !self.transmit.is_empty() && self.writable
    }

    /// Sends once.
    pub(crate) fn send(&mut self, core: &mut Core) -> Sent {
        if !self.sending.is_empty()
            && let Some(sent) = self.send_pages(core)
        {
            return sent;
        }
        let segments = self.transmit.segments().size_hint().0;
        if segments <= FEW_SEGMENTS {
            self.send_up_to::<FEW_SEGMENTS>(core)
        } else if segments <= SOME_SEGMENTS {
            self.send_up_to::<SOME_SEGMENTS>(core)
        } else {
            self.send_up_to::<SEGMENTS_PER_SEND>(core)
        }
    }

    fn send_up_to<const SEGMENTS: usize>(&mut self, core: &mut Core) -> Sent {
        let mut slices = [IoSlice::new(&[]); SEGMENTS];
        let mut count = 0;
        let mut length = 0;
        let most = core.fairness.send_max();
        let arena = self.transmit.arena();
        for (slice, segment) in slices.iter_mut().zip(self.transmit.segments()) {
            let bytes = match segment {
                Segment::Arena { start, length } => &arena[start..start + length],
                Segment::Zeros { length } => &ZEROS[..length.min(ZEROS.len())],
                Segment::Buffer { id, start, length } => {
                    let number = usize::try_from(id.0).expect("we numbered it");
                    match &self.sending[number] {
                        Held::Buffer(buffer) => &buffer[start..start + length],
                        Held::Pages(_) => break,
                    }
                }
            };
            let bytes = &bytes[..bytes.len().min(most - length)];
            *slice = IoSlice::new(bytes);
            count += 1;
            length += bytes.len();
            if bytes.len() < segment.length() || length == most {
                break;
            }
        }
        let slices = &slices[..count];
        let more = self.more_follows(length);
        let sent = if more {
            self.link.send_more(slices)
        } else {
            self.link.send(slices)
        };
        self.policy.sent(more);
        self.note_sent(core, sent, length)
    }

    /// Whether a send of `length` bytes has others behind it for sure: what does not fit into it, or what the
    /// connection's next turn adds, which is at once. It waits for one turn and not for a stream of them.
    #[inline]
    fn more_follows(&self, length: usize) -> bool {
        length < self.transmit.pending_bytes()
            || self.is_listed && self.policy.may_hold() && !self.policy.holds()
    }

    /// Takes note of a send of `length` bytes.
    fn note_sent(&mut self, core: &mut Core, sent: io::Result<usize>, length: usize) -> Sent {
        match sent {
            Ok(sent) => {
                core.fairness.sent(sent);
                core.counters.sends += 1;
                core.counters.sent_bytes += sent as u64;
                self.counts.sends += 1;
                self.counts.sent_bytes += sent as u64;
                self.writable = sent == length;
                let mut released = std::mem::take(&mut core.released);
                self.transmit.advance(sent, &mut released);
                self.release(core, &mut released);
                core.released = released;
                if !self.unsent.is_empty() {
                    let now = core.clock();
                    let position = self.counts.sent_bytes;
                    core.stages.sent(&mut self.unsent, position, now);
                }
                Sent::Some
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                core.counters.sends_blocked += 1;
                self.writable = false;
                Sent::Nothing
            }
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "send failed");
                Sent::Failed
            }
        }
    }

    /// An operation's response is the last that was queued: its sending is to be noted.
    #[cold]
    pub(crate) fn follow_response(&mut self, core: &mut Core, followed: Followed) {
        let position = self.counts.sent_bytes + self.transmit.pending_bytes() as u64;
        let now = core.clock();
        core.stages
            .answer(followed, &mut self.unsent, position, now);
    }

    /// Sends what is first in the queue, if it is pages.
    fn send_pages(&mut self, core: &mut Core) -> Option<Sent> {
        let Segment::Buffer { id, length, .. } = self.transmit.segments().next()? else {
            return None;
        };
        let number = usize::try_from(id.0).expect("we numbered it");
        let more = self.more_follows(length);
        let Held::Pages(pages) = &mut self.sending[number] else {
            return None;
        };
        self.policy.sent(more);
        let sent = if length == 0 {
            Ok(0)
        } else {
            self.link.send_pages(pages, length, more)
        };
        if let Ok(sent) = &sent {
            core.counters.spliced_bytes += *sent as u64;
        }
        // The kernel takes no more than one of its lists of pages holds, room or not: there is none only when it takes
        // nothing.
        let length = sent.as_ref().map_or(length, |sent| *sent);
        Some(self.note_sent(core, sent, length))
    }

    /// Keeps the data of a task that the transmit queue refers to by the number `sent`, or gives back what it does
    /// not refer to.
    #[inline]
    pub(crate) fn keep(&mut self, core: &mut Core, data_in: DataIn, sent: Option<usize>) {
        let held = match (data_in, sent) {
            (DataIn::Buffer(buffer), Some(_)) => {
                self.held_bytes += buffer.capacity();
                Held::Buffer(buffer)
            }
            (DataIn::Pages(pages), Some(_)) => Held::Pages(pages),
            (DataIn::Buffer(buffer), None) => return core.pool.put(buffer),
            (DataIn::Pages(pages), None) => return core.pipes.put(pages),
            (DataIn::None | DataIn::Inline | DataIn::Zeros(_), _) => return,
        };
        let number = self.sending.insert(held);
        assert_eq!(
            Some(number),
            sent,
            "payload is kept under the number that is queued"
        );
    }

    /// Goes on with closing after everything that could be sent was sent.
    pub(crate) fn continue_closing(&mut self, now_ms: u64) -> ControlFlow<()> {
        if !self.closing {
            return ControlFlow::Continue(());
        }
        // A peer that reads nothing must not keep its connection, and the memory of what it was to
        // read, for ever.
        let close_by_ms = *self.close_by_ms.get_or_insert(now_ms + CLOSE_TIMEOUT_MS);
        if now_ms >= close_by_ms {
            return ControlFlow::Break(());
        }
        if !self.transmit.is_empty() || self.discarded.is_some() {
            return ControlFlow::Continue(());
        }
        if !self.explains || !self.link.finish_sending().unwrap_or(false) {
            return ControlFlow::Break(());
        }
        self.discarded = Some(0);
        self.readable = true;
        ControlFlow::Continue(())
    }

    /// Gives back payload that has left.
    fn release(&mut self, core: &mut Core, released: &mut Vec<PayloadId>) {
        for id in released.drain(..) {
            let number = usize::try_from(id.0).expect("we numbered it");
            match self.sending.remove(number) {
                Held::Pages(pages) => core.pipes.put(pages),
                Held::Buffer(buffer) => {
                    self.held_bytes -= buffer.capacity();
                    core.pool.put(buffer);
                }
            }
        }
    }

    /// Leaves its shard, with all that is queued.
    pub(crate) fn depart(&mut self, core: &mut Core) {
        self.stop_waiting(&mut core.counters);
        core.stages.forget(&mut self.unsent);
        for pages in self.pages() {
            core.pipes.send_away(pages);
        }
        core.transmit_part.note(self.noted_memory, 0);
        self.noted_memory = 0;
        (self.is_listed, self.is_dirty, self.may_go_idle) = (false, false, false);
        self.migration.moves += 1;
        self.migration.moved_ms = Some(core.now_ms);
    }

    /// Comes to another shard. What it may do is found out by trying: events were reported elsewhere.
    pub(crate) fn arrive(&mut self, core: &mut Core, address: ConnectionAddress) {
        for pages in self.pages() {
            core.pipes.take_in(pages);
        }
        self.note_memory(core);
        self.address = address;
        self.migration.leaving = false;
        (self.readable, self.writable) = (true, true);
    }

    /// Pipes of pages among what is queued.
    fn pages(&self) -> impl Iterator<Item = &PagePipe> {
        self.sending.iter().filter_map(|(_, held)| match held {
            Held::Pages(pages) => Some(pages),
            Held::Buffer(_) => None,
        })
    }

    /// Gives up what is queued.
    pub(crate) fn tear_down(&mut self, core: &mut Core) {
        core.stages.forget(&mut self.unsent);
        self.transmit.release_all(&mut Vec::new());
        core.transmit_part.note(self.noted_memory, 0);
        self.noted_memory = 0;
        self.held_bytes = 0;
        for (_, held) in std::mem::take(&mut self.sending) {
            match held {
                Held::Pages(pages) => core.pipes.put(pages),
                Held::Buffer(buffer) => core.pool.put(buffer),
            }
        }
    }
}

/// Payload that the transmit queue refers to.
#[derive(Debug)]
pub(crate) enum Held {
    /// In memory.
    Buffer(Buffer),
    /// In pages of the page cache; what was sent of them is gone.
    Pages(PagePipe),
}

/// What came of an attempt to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// The peer sends no more.
    End,
    /// The connection is broken.
    Failed,
}

/// What came of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// At least a byte left.
    Some,
    /// The socket takes nothing now.
    Nothing,
    /// The connection is broken.
    Failed,
}
