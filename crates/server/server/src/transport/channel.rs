//! The socket side of a connection, for both protocols.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use longshore_reactor::{TimerId, allocator};
use longshore_wire::transmit::{Segment, Transmit};

use super::closing::Closing;
use super::pacing::Pacing;
use super::payload::{Held, Payloads};
use super::socket::{Received, Socket};
use super::stall::{Stall, Stalled};
use super::trickle::Waiting;
use crate::address::ConnectionAddress;
use crate::config::TransmitConfig;
use crate::core::Core;
use crate::counters::Counters;
use crate::counters::clients::Ending;
use crate::counters::stages::{Followed, Unsent};
use crate::memory::transmit::{READ_ROOM, SHARE_MIN};
use crate::observe::ConnectionCounts;
use crate::placement::migration::Migration;
use crate::platform::Link;

/// While so much waits to be sent, nothing more is received: the peer does not read.
const STOP_RECEIVING_BYTES: usize = 4 << 20;
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
    pub socket: Socket,
    pub transmit: Transmit,
    /// Payload that the transmit queue refers to.
    pub payloads: Payloads,
    /// When its responses leave.
    pub pacing: Pacing,
    closing: Closing,
    /// Why its session ends, as far as somebody said so.
    ending: Option<Ending>,
    pub timer: Option<(TimerId, u64)>,
    /// It is in the shard's list of connections to be received from.
    pub is_listed: bool,
    /// It is in the shard's list of connections with something to send.
    pub is_dirty: bool,
    /// It is in the shard's list of connections that may go idle.
    pub may_go_idle: bool,
    /// What it has done.
    pub counts: ConnectionCounts,
    /// For how long the peer has not moved.
    pub stall: Stall,
    /// Memory of the transmit queue that the shard knows of.
    noted_memory: usize,
    /// Responses whose sending is to be noted.
    unsent: Unsent,
}

impl Channel {
    pub(crate) fn new(
        address: ConnectionAddress,
        link: Box<dyn Link>,
        portal: usize,
        transmit: &TransmitConfig,
        stall_timeout: Duration,
        counters: &mut Counters,
    ) -> std::io::Result<Self> {
        let mut socket = Socket::new(link, portal)?;
        Ok(Self {
            address,
            migration: Migration::new(address),
            pacing: Pacing::new(transmit, &mut socket, counters),
            socket,
            transmit: Transmit::new(),
            payloads: Payloads::default(),
            closing: Closing::default(),
            ending: None,
            timer: None,
            is_listed: false,
            is_dirty: false,
            may_go_idle: false,
            counts: ConnectionCounts::default(),
            stall: Stall::new(stall_timeout),
            noted_memory: 0,
            unsent: Unsent::default(),
        })
    }

    pub(crate) fn set_readable(&mut self, hang_up: bool) {
        self.socket.set_readable(hang_up);
    }

    pub(crate) fn set_writable(&mut self) {
        self.socket.writable = true;
    }

    /// Whether there is something to receive and room for what may come of it. `wanted`: the protocol
    /// takes input now.
    pub(crate) fn wants_turn(&self, wanted: bool) -> bool {
        self.socket.readable
            && !self.migration.leaving
            && (self.closing.discards() || wanted && !self.closing.has_begun())
            && self.transmit.pending_bytes() < STOP_RECEIVING_BYTES
            && self.transmit.arena_used() < 2 * self.transmit.arena_kept()
    }

    /// A complete request was read.
    #[inline]
    pub(crate) fn request_read(&mut self, counters: &mut Counters) {
        let switch = self.pacing.policy.request_read();
        self.socket.switch_nodelay(switch, counters);
    }

    /// Gives back memory of the link, if the machine has given back the transmit queue: it has been silent for long.
    pub(crate) fn release_idle_memory(&mut self) {
        if self.transmit.memory() == 0 {
            self.socket.link.release_memory();
        }
    }

    /// Goes idle, if nothing has come since its receive buffer was found empty.
    pub(crate) fn look_for_idle(&mut self, counters: &mut Counters) {
        self.may_go_idle = false;
        if !self.socket.readable {
            let switch = self.pacing.policy.idle();
            self.socket.switch_nodelay(switch, counters);
        }
    }

    /// Has its responses leave like this from now on.
    pub(crate) fn set_transmit(&mut self, config: &TransmitConfig, counters: &mut Counters) {
        let switch = self.pacing.policy.configure(config);
        self.socket.switch_nodelay(switch, counters);
    }

    /// Everything that its turn gave has been sent, or is with the kernel.
    pub(crate) fn end_turn(&mut self, core: &mut Core) {
        let (pacing, socket) = (&mut self.pacing, &mut self.socket);
        if self.transmit.is_empty() {
            pacing.release_held(socket, self.is_listed, &mut core.counters);
        }
        pacing.end_turn(core, socket, self.counts.sent_bytes);
    }

    /// Whether what was sent may wait still; if not, it leaves.
    pub(crate) fn goes_on_waiting(&mut self, now: Instant, counters: &mut Counters) -> bool {
        self.pacing.goes_on_waiting(&mut self.socket, now, counters)
    }

    /// Whether it closes once everything is sent.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.has_begun()
    }

    /// Stops receiving; the rest is sent. `answered`: the last of what is queued says why, and the peer
    /// may be sending still. Returns whether this is news.
    pub(crate) fn close(&mut self, answered: bool) -> bool {
        self.closing.begin(answered && !self.transmit.is_empty())
    }

    /// Its session ends for this reason, unless there was another one before.
    pub(crate) fn ends_by(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// Why its session ends.
    pub(crate) fn ending(&self) -> Ending {
        self.ending.unwrap_or(Ending::Lost)
    }

    /// When it is to be over at the latest, if it closes.
    pub(crate) fn close_by_ms(&self) -> Option<u64> {
        self.closing.by_ms()
    }

    /// Ends the connection without waiting for the peer to take what is queued.
    pub(crate) fn cut(&mut self, now_ms: u64) {
        self.closing.cut(now_ms);
    }

    /// Goes on with closing after everything that could be sent was sent.
    pub(crate) fn continue_closing(&mut self, now_ms: u64) -> ControlFlow<()> {
        let is_sent = self.transmit.is_empty();
        self.closing.proceed(&mut self.socket, is_sent, now_ms)
    }

    /// Receives into `buffers`, which have `room`.
    pub(crate) fn receive(
        &mut self,
        buffers: &mut [IoSliceMut<'_>],
        room: usize,
        counters: &mut Counters,
    ) -> Received {
        self.socket
            .receive(buffers, room, counters, &mut self.counts)
    }

    /// Whether what is received is thrown away.
    pub(crate) fn discards(&self) -> bool {
        self.closing.discards()
    }

    /// Receives what nobody wants, until the peer closes its end.
    pub(crate) fn discard(&mut self, receive_buffer: &mut [u8]) -> ControlFlow<()> {
        self.closing.discard(&mut self.socket, receive_buffer)
    }

    /// Whether the transmit queue has room for a read.
    #[inline]
    pub(crate) fn has_room_for_read(&mut self, core: &mut Core) -> bool {
        let wanted = self.transmit.arena_used() + READ_ROOM;
        wanted <= self.transmit.arena_kept()
            && (wanted <= SHARE_MIN.max(self.transmit.memory()) || self.may_grow(core, wanted))
    }

    #[cold]
    fn may_grow(&mut self, core: &mut Core, wanted: usize) -> bool {
        self.note_memory(core);
        // The least share is there for each, whether it has been used or not.
        let has_room = wanted <= SHARE_MIN || allocator::has_reserve();
        has_room && core.transmit_part.may_grow(wanted, self.transmit.memory())
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
        let unacknowledged = self.socket.unacknowledged_bytes()?;
        Some(self.counts.sent_bytes.saturating_sub(unacknowledged))
    }

    /// Whether there is something to send and the socket may take it.
    pub(crate) fn may_send(&self) -> bool {
        !self.transmit.is_empty() && self.socket.writable
    }

    /// Makes one send call for what is queued.
    pub(crate) fn send(&mut self, core: &mut Core) -> Sent {
        if !self.payloads.is_empty()
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

    /// A response may be ready: sends it before the turn ends, if that is the policy. Returns whether something left.
    #[inline]
    pub(crate) fn respond(&mut self, core: &mut Core) -> bool {
        let ready = self.transmit.pending_bytes();
        // A broken connection fails again when the turn ends, and is closed then.
        ready >= self.pacing.policy.early_limit()
            && self.may_send()
            && self.pacing.policy.leaves_early(ready)
            && self.send(core) == Sent::Some
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
                    let Some(buffer) = self.payloads.buffer(id) else {
                        break;
                    };
                    &buffer[start..start + length]
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
            self.socket.link.send_more(slices)
        } else {
            self.socket.link.send(slices)
        };
        self.pacing.policy.sent(more);
        self.note_sent(core, sent, length)
    }

    /// Whether a send of `length` bytes has others behind it for sure: what does not fit into it, or what the
    /// connection's next turn adds, which is at once. It waits for one turn and not for a stream of them.
    #[inline]
    fn more_follows(&self, length: usize) -> bool {
        length < self.transmit.pending_bytes()
            || self.is_listed && self.pacing.policy.may_hold() && !self.pacing.policy.holds()
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
                self.socket.writable = sent == length;
                self.stall.taken(sent, core.now_ms);
                let mut released = std::mem::take(&mut core.released);
                self.transmit.advance(sent, &mut released);
                if !released.is_empty() {
                    self.payloads.release(core, &mut released);
                }
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
                self.socket.writable = false;
                Sent::Nothing
            }
            Err(error) => {
                tracing::debug!(peer = %self.socket.peer, %error, "send failed");
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
        let more = self.more_follows(length);
        let Held::Pages(pages) = self.payloads.get_mut(id) else {
            return None;
        };
        self.pacing.policy.sent(more);
        let sent = if length == 0 {
            Ok(0)
        } else {
            self.socket.link.send_pages(pages, length, more)
        };
        if let Ok(sent) = &sent {
            core.counters.spliced_bytes += *sent as u64;
        }
        // The kernel takes no more than one of its lists of pages holds, room or not: there is none only when it takes
        // nothing.
        let length = sent.as_ref().map_or(length, |sent| *sent);
        Some(self.note_sent(core, sent, length))
    }

    /// Leaves its shard, with all that is queued.
    pub(crate) fn depart(&mut self, core: &mut Core) {
        let counters = &mut core.counters;
        self.pacing.stop_waiting(&mut self.socket, counters);
        core.stages.forget(&mut self.unsent);
        for pages in self.payloads.pages() {
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
        for pages in self.payloads.pages() {
            core.pipes.take_in(pages);
        }
        self.note_memory(core);
        self.address = address;
        self.migration.leaving = false;
        (self.socket.readable, self.socket.writable) = (true, true);
    }

    /// A turn ends. `holds`: memory is held for write data.
    #[inline]
    pub(crate) fn look_at_progress(&mut self, holds: bool, now_ms: u64) {
        let takes = !self.transmit.is_empty();
        let sent = self.counts.sent_bytes;
        self.stall.expect(takes, holds, sent, now_ms);
    }

    /// The connection's deadline is over: whether that is because its peer may have stalled.
    pub(crate) fn is_stall_due(&self, now_ms: u64) -> bool {
        !self.closing.has_begun() && self.stall.deadline_ms().is_some_and(|at| now_ms >= at)
    }

    /// Whether the peer is to be looked at because others find no memory.
    pub(crate) fn may_make_room(&self, waiting: Waiting, now_ms: u64) -> bool {
        // A window with the part due is to open anew, or the next part would never be missed.
        let is_due = self.stall.is_over(Some(waiting), now_ms).is_some()
            || self.stall.has_met_window(waiting, now_ms);
        !self.closing.has_begun() && is_due
    }

    /// Whether the peer has stalled for too long. What its socket held has been received, and what could be sent was
    /// sent. `short`: a connection finds no memory, and so much waits for this peer, which keeps some.
    pub(crate) fn has_stalled(&mut self, core: &Core, short: Option<Waiting>) -> Option<Stalled> {
        let now_ms = core.now_ms;
        if self.transmit.is_empty() {
            self.stall.all_taken(now_ms);
        }
        self.stall.stood_still_until(core.stood_still_until_ms);
        let acknowledged = self.acknowledged_bytes();
        self.stall.acknowledges(acknowledged, now_ms);
        if let Some(waiting) = short {
            self.stall.open_met_windows(waiting, now_ms);
        }
        self.stall.is_over(short, now_ms)
    }

    /// Gives up what is queued.
    pub(crate) fn tear_down(&mut self, core: &mut Core) {
        core.stages.forget(&mut self.unsent);
        self.transmit.release_all(&mut Vec::new());
        core.transmit_part.note(self.noted_memory, 0);
        self.noted_memory = 0;
        self.payloads.tear_down(core);
    }
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
