//! One connection: its bytes and its protocol.
//!
//! The driver feeds, polls, repeats: bytes from the socket go into the protocol, which does what they say, and what it
//! queued leaves in one send at the end of the turn. Seams:
//!
//! ```text
//!  shard ── Driven ──► Connection ── Protocol ──► iscsi, nvme ── Tasks ──► volumes
//!                          └────────────► Channel ◄───┴───────────┘
//! ```

pub(crate) mod driven;
pub(crate) mod export_user;
pub(crate) mod protocol;

use std::io::IoSliceMut;
use std::ops::ControlFlow;

use longshore_reactor::allocator;
use longshore_volume::Ended;

use crate::address::{ConnectionAddress, TaskAddress};
use crate::core::Core;
use crate::core::request::InFlight;
use crate::counters::clients::Ending;
use crate::execute::write_data;
use crate::memory::transmit::SHARE_MIN;
use crate::observe::ConnectionStatistics;
use crate::transport::channel::{Channel, Sent};
use crate::transport::socket::Received;
use crate::transport::trickle::Waiting;
use driven::{Driven, Handled, Movable, ShardEvent, State};
use export_user::ExportUser;
use protocol::Protocol;

/// Payload from this length on is received straight into the buffer it belongs to.
const DIRECT_RECEIVE_BYTES: u32 = 4096;
/// While the peer sends pieces from this length on that it was asked for, little is received behind the
/// piece under way: what arrives there has to be copied, up to the next piece that can be placed.
const PLACED_BYTES: u32 = 16 << 10;
const BEHIND_PLACED_BYTES: usize = 8 << 10;
/// For so many receives after such a piece it is taken that more of them come.
const PLACED_REMEMBERED: u8 = 4;
/// Receives of one connection in one turn; others come next.
const RECEIVES_PER_TURN: usize = 4;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Connection<P> {
    channel: Channel,
    protocol: P,
    /// Large pieces of write data come, and are received to where they belong, for so many receives yet.
    placing: u8,
}

impl<P: Protocol> Connection<P> {
    pub(crate) fn new(channel: Channel, protocol: P) -> Self {
        Self {
            channel,
            protocol,
            placing: 0,
        }
    }

    fn receive(&mut self, core: &mut Core) -> ControlFlow<()> {
        if self.channel.discards() {
            return self.channel.discard(&mut core.receive_buffer);
        }
        let is_short = core.transmit_part.is_short() || !allocator::has_reserve();
        self.channel.transmit.keep(if is_short {
            SHARE_MIN
        } else {
            core.transmit_share
        });
        let mut receive_buffer = std::mem::take(&mut core.receive_buffer);
        let direct = self
            .protocol
            .payload_wanted()
            .filter(|w| w.length >= DIRECT_RECEIVE_BYTES);
        if direct.is_some_and(|wanted| wanted.solicited && wanted.length >= PLACED_BYTES) {
            self.placing = PLACED_REMEMBERED;
        }
        let behind = if self.placing > 0 {
            self.placing -= 1;
            BEHIND_PLACED_BYTES
        } else if is_short {
            // Every byte of it may ask for one: a ping is answered however much waits.
            SHARE_MIN
        } else {
            receive_buffer.len()
        };
        let place = direct.and_then(|wanted| {
            let task = self.protocol.tasks_mut().get_mut(wanted.slot)?;
            let (start, length) = (wanted.buffer_offset as usize, wanted.length as usize);
            write_data::place(task, core, start, length)
        });
        let (received, placed_max) = match place {
            Some(place) => {
                let room = core.fairness.receive_room(place.len() + behind);
                let placed_max = place.len().min(room);
                let mut buffers = [
                    IoSliceMut::new(&mut place[..placed_max]),
                    IoSliceMut::new(&mut receive_buffer[..room - placed_max]),
                ];
                let counters = &mut core.counters;
                (
                    self.channel.receive(&mut buffers, room, counters),
                    placed_max,
                )
            }
            None => {
                let room = core.fairness.receive_room(behind);
                let buffers = &mut [IoSliceMut::new(&mut receive_buffer[..room])];
                let counters = &mut core.counters;
                (self.channel.receive(buffers, room, counters), 0)
            }
        };
        let flow = match received {
            Received::End => {
                // Perhaps one direction only: the answers that are ready are its due.
                while self.channel.may_send() {
                    if self.send(core).is_break() {
                        break;
                    }
                }
                ControlFlow::Break(())
            }
            Received::Bytes(n) => {
                core.fairness.received(n);
                let placed = n.min(placed_max);
                if placed > 0 {
                    core.counters.placed_bytes += placed as u64;
                    self.note_placed(placed, core.now_ms);
                }
                if core.stages.wants_time(n - placed) {
                    let now = core.clock();
                    core.stages.received(now);
                }
                let input = &receive_buffer[..n - placed];
                self.protocol.process(core, &mut self.channel, input);
                ControlFlow::Continue(())
            }
            Received::Nothing => ControlFlow::Continue(()),
            Received::Failed => ControlFlow::Break(()),
        };
        core.receive_buffer = receive_buffer;
        self.channel.note_memory(core);
        flow
    }

    /// Tells the machine of payload that went straight to its place.
    fn note_placed(&mut self, placed: usize, now_ms: u64) {
        let wanted = self.protocol.payload_wanted();
        let wanted = wanted.expect("asked for before the receive");
        self.channel.stall.given(placed, now_ms);
        self.protocol.payload_received(wanted, placed, now_ms);
    }

    fn send(&mut self, core: &mut Core) -> ControlFlow<()> {
        match self.channel.send(core) {
            Sent::Some => {
                self.protocol.sent(core.now_ms);
                ControlFlow::Continue(())
            }
            Sent::Nothing => ControlFlow::Continue(()),
            Sent::Failed => ControlFlow::Break(()),
        }
    }

    /// The peer may have stalled for too long. What its socket held has been received.
    fn cut_if_stalled(&mut self, core: &mut Core, for_room: bool) {
        if self.channel.is_closing() {
            return;
        }
        // It may be storage that writes wait for.
        if !self.protocol.tasks().awaits_data() {
            self.channel.stall.all_given(core.now_ms);
        }
        if self.channel.may_send() && self.send(core).is_break() {
            return;
        }
        let held_bytes = self.protocol.tasks().held_bytes(&self.channel);
        let short = (for_room && held_bytes > 0).then(|| self.waiting());
        let Some(stalled) = self.channel.has_stalled(core, short) else {
            return;
        };
        let reason = if stalled.trickles {
            "memory is short, and it moves less than 64 KiB and a sixteenth of what it holds"
        } else {
            "it receives none of its read data, or sends none of the requested write data"
        };
        tracing::warn!(
            peer = %self.channel.socket.peer,
            name = self.protocol.peer_name(),
            stalled_ms = stalled.since_ms,
            held_bytes,
            "peer stalled: {reason}; closing connection"
        );
        self.channel.ends_by(Ending::Error);
        self.channel.cut(core.now_ms);
    }

    /// Payload memory that waits for the peer.
    fn waiting(&self) -> Waiting {
        let giving = self.protocol.tasks().awaited_bytes();
        // What asks for write data waits to be taken, too.
        let asking = match self.channel.transmit.is_empty() {
            true => 0,
            false => giving,
        };
        Waiting {
            taking: self.channel.payloads.bytes().saturating_add(asking),
            giving,
        }
    }
}

impl<P: Protocol> Driven for Connection<P> {
    fn channel(&self) -> &Channel {
        &self.channel
    }

    fn channel_mut(&mut self) -> &mut Channel {
        &mut self.channel
    }

    fn state(&self) -> State {
        let state = self.protocol.state();
        let is_idle = self.protocol.tasks().is_empty() && self.channel.transmit.is_empty();
        State {
            may_move: state.may_move && !self.channel.is_closing(),
            is_quiet: state.is_quiet && is_idle,
            ..state
        }
    }

    fn statistics(&mut self) -> ConnectionStatistics {
        let established = self.protocol.state().established;
        let (channel, tasks) = (&mut self.channel, self.protocol.tasks());
        ConnectionStatistics {
            shard: channel.address.shard,
            slot: channel.address.slot,
            peer: channel.socket.peer,
            protocol: P::KIND,
            established,
            moves: channel.migration.moves,
            counts: channel.counts,
            transmit: channel.pacing.policy.statistics(),
            tcp: None,
            tasks: tasks.len(),
            pending_bytes: channel.transmit.pending_bytes(),
            transmit_bytes: channel.transmit.memory() + channel.transmit.list_memory(),
            task_bytes: tasks.memory(),
            reading_bytes: tasks.holdings.reading,
            writing_bytes: tasks.holdings.writing,
        }
    }

    fn wants_turn(&self) -> bool {
        self.channel.wants_turn(self.protocol.receives())
    }

    fn receive_turn(&mut self, core: &mut Core) -> ControlFlow<()> {
        for _ in 0..RECEIVES_PER_TURN {
            if !self.wants_turn() || !core.fairness.may_receive() {
                break;
            }
            if self.receive(core).is_break() {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self, core: &mut Core) -> ControlFlow<()> {
        loop {
            while self.channel.may_send() && core.fairness.may_send() {
                if self.send(core).is_break() {
                    return ControlFlow::Break(());
                }
            }
            if !core.fairness.may_send() || self.channel.migration.leaving {
                // The rest, and what waits for room, is for the next turn.
                break;
            }
            if !self.protocol.proceed(core, &mut self.channel) {
                break;
            }
        }
        self.channel.note_memory(core);
        let tasks = self.protocol.tasks_mut();
        tasks.note_held(&self.channel);
        let holds = tasks.holdings.writing > 0;
        self.channel.look_at_progress(holds, core.now_ms);
        self.channel.end_turn(core);
        self.channel.continue_closing(core.now_ms)
    }

    fn handle(&mut self, core: &mut Core, event: ShardEvent<'_>) -> Handled {
        match event {
            ShardEvent::Stalled { for_room } => {
                self.cut_if_stalled(core, for_room);
                Handled::Changed
            }
            ShardEvent::Deadline => {
                let handled = self.protocol.handle(core, &mut self.channel, event);
                if self.channel.is_stall_due(core.now_ms) {
                    core.suspects.push(self.channel.address.slot);
                }
                handled
            }
            ShardEvent::Retry(_)
            | ShardEvent::Abort(_)
            | ShardEvent::Note(_)
            | ShardEvent::Exports
            | ShardEvent::Removed(_)
            | ShardEvent::Close
            | ShardEvent::Drain
            | ShardEvent::Drop => self.protocol.handle(core, &mut self.channel, event),
        }
    }

    fn storage_done(
        &mut self,
        core: &mut Core,
        task: TaskAddress,
        in_flight: &InFlight,
        ended: Ended,
    ) {
        let channel = &mut self.channel;
        self.protocol
            .storage_done(core, channel, task, in_flight, ended);
    }

    fn exports(&self) -> &dyn ExportUser {
        &self.protocol
    }

    fn exports_mut(&mut self) -> &mut dyn ExportUser {
        &mut self.protocol
    }

    fn next_deadline_ms(&self) -> Option<u64> {
        self.channel.close_by_ms().or_else(|| {
            let protocol = self.protocol.next_deadline_ms().into_iter();
            protocol.chain(self.channel.stall.deadline_ms()).min()
        })
    }

    fn may_make_room(&self, core: &Core) -> bool {
        self.protocol.tasks().held_bytes(&self.channel) > 0
            && self.channel.may_make_room(self.waiting(), core.now_ms)
    }

    fn has_task(&self, task: TaskAddress) -> bool {
        self.protocol.tasks().is_current(task)
    }

    fn tear_down(&mut self, core: &mut Core) {
        self.protocol.tear_down(core, &mut self.channel);
        self.channel.tear_down(core);
    }
}

impl<P: Protocol> Movable for Connection<P> {
    fn is_at_rest(&self, core: &Core) -> bool {
        self.protocol.tasks().are_at_rest() && !core.has_orphans_of(self.channel.address)
    }

    fn depart(&mut self, core: &mut Core) {
        self.protocol.tasks_mut().depart(core);
        self.channel.depart(core);
    }

    fn arrive(&mut self, core: &mut Core, address: ConnectionAddress) {
        self.channel.arrive(core, address);
        self.protocol.tasks_mut().arrive(core, address);
    }
}
