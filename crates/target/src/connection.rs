//! One connection: its socket, its protocol machine, its tasks.
//!
//! The driver feeds, polls, repeats: bytes from the socket go into the machine, what the
//! machine says happened is done, and what it queued leaves in one send at the end of the turn.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use longshore_iscsi::session_parameters::SessionType;
use longshore_iscsi::target::{
    CloseReason, Completion, Connection as Machine, ConnectionConfig, DataOutFailure, Event,
    Payload, PayloadWanted, TaskId, TaskManagementId,
};
use longshore_reactor::{Buffer, TimerId};
use longshore_scsi::command::{CommandEvent, Completion as ScsiCompletion};
use longshore_scsi::nexus::Nexus;
use longshore_scsi::sense::{AdditionalSense, Sense, SenseKey};
use longshore_wire::transmit::{PayloadId, Segment, Transmit};
use slab::Slab;

use crate::core::{Core, Shared};
use crate::directory::{ConnectionDirectory, EstablishedSession};
use crate::message::{ConnectionAddress, TaskAddress};
use crate::platform::Link;
use crate::session::Session;
use crate::task::{TaskState, Tasks};
use crate::task_management::PendingManagement;

/// While so much waits to be sent, no more reads are started.
const BACKED_UP_BYTES: usize = 1 << 20;
/// While a connection reads this part of all memory, it starts no more reads.
const READING_PART: usize = 16;
/// One connection holds at most this part of all memory for write data, beyond its first command.
const WRITING_PART: usize = 2;
/// While so much waits to be sent, nothing more is received: the peer does not read.
const STOP_RECEIVING_BYTES: usize = 4 << 20;
/// Payload from this length on is received straight into the buffer it belongs to.
const DIRECT_RECEIVE_BYTES: u32 = 4096;
/// Receives of one connection in one turn; others come next.
const RECEIVES_PER_TURN: usize = 4;
/// Time for a peer to take what was queued before its connection closes.
const CLOSE_TIMEOUT_MS: u64 = 5_000;
/// Bytes taken from a peer after the last answer, so that it can read that answer.
const DISCARDED_BYTES_MAX: usize = 16 << 20;
/// Segments in one send. Linux takes up to 1,024.
const SEGMENTS_PER_SEND: usize = 256;
/// Shared zeros that zero segments point at.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// Whether the connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It does.
    Open,
    /// It is over; tear it down.
    Over,
}

/// See the module documentation.
pub(crate) struct Connection {
    pub address: ConnectionAddress,
    pub link: Box<dyn Link>,
    pub machine: Machine,
    pub transmit: Transmit,
    pub session: Option<Session>,
    pub tasks: Tasks,
    /// Tasks that wait for room to answer, oldest first.
    pub deferred: VecDeque<TaskAddress>,
    /// Bytes of memory that tasks read into, or wait for.
    pub reading: usize,
    /// Bytes of memory that tasks hold for write data.
    pub writing: usize,
    /// How many live tasks are ORDERED.
    pub ordered: usize,
    /// A task ended while there were ordered ones.
    pub order_changed: bool,
    /// Tasks that have arrived.
    pub sequence: u64,
    /// Payload that the transmit queue refers to, by [`PayloadId`].
    pub sending: Slab<Buffer>,
    pub management: Vec<PendingManagement>,
    pub timer: Option<(TimerId, u64)>,
    /// It is in the shard's list of connections to be received from.
    pub is_listed: bool,
    /// It is in the shard's list of connections with something to send.
    pub is_dirty: bool,
    peer: SocketAddr,
    reached: SocketAddr,
    portal: usize,
    readable: bool,
    /// The end of the stream has been reported, which happens once. Until it is reached, a short
    /// receive does not mean that nothing else is there.
    hang_up: bool,
    writable: bool,
    /// Commands wait for the end of the session this one takes the place of.
    held: bool,
    /// Nothing more is received; what is queued is sent, then it is over.
    closing: Option<CloseReason>,
    /// When it is over although the peer has not taken what is queued.
    close_by_ms: Option<u64>,
    /// Why it closes is in an answer that was queued then. The kernel would throw that away, and
    /// reset the connection, if it was closed with bytes that nobody received.
    explains: bool,
    /// Everything is sent and the peer knows. What it sends still is thrown away: so many bytes yet.
    discarded: Option<usize>,
}

impl Connection {
    pub(crate) fn new(
        shared: &Shared,
        address: ConnectionAddress,
        link: Box<dyn Link>,
        portal: usize,
        now_ms: u64,
    ) -> std::io::Result<Self> {
        let limits = &shared.limits;
        let (peer, reached) = link.addresses()?;
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
        let milliseconds =
            |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = ConnectionConfig {
            login_timeout_ms: milliseconds(limits.login_timeout),
            nop_interval_ms: milliseconds(limits.nop_interval),
            nop_timeout_ms: milliseconds(limits.nop_timeout),
            logout_timeout_ms: milliseconds(limits.drain_timeout),
            queue_depth: limits.queue_depth,
            tag_seed: u64::from_ne_bytes(seed),
            ..ConnectionConfig::default()
        };
        Ok(Self {
            address,
            peer,
            reached,
            link,
            machine: Machine::new(config, now_ms),
            transmit: Transmit::new(),
            session: None,
            tasks: Tasks::default(),
            deferred: VecDeque::new(),
            reading: 0,
            writing: 0,
            ordered: 0,
            order_changed: false,
            sequence: 0,
            sending: Slab::new(),
            management: Vec::new(),
            timer: None,
            is_listed: false,
            is_dirty: false,
            portal,
            readable: true,
            hang_up: false,
            writable: true,
            held: false,
            closing: None,
            close_by_ms: None,
            explains: false,
            discarded: None,
        })
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn set_readable(&mut self, hang_up: bool) {
        self.readable = true;
        self.hang_up |= hang_up;
    }

    pub(crate) fn set_writable(&mut self) {
        self.writable = true;
    }

    /// The session this one takes the place of has ended.
    pub(crate) fn release_hold(&mut self) {
        self.held = false;
    }

    /// Whether there is something to receive and room for what may come of it.
    pub(crate) fn wants_turn(&self) -> bool {
        self.readable
            && (self.discarded.is_some() || !self.held && self.closing.is_none())
            && self.transmit.pending_bytes() < STOP_RECEIVING_BYTES
    }

    /// So much waits to be sent, or is being read, that further reads had better wait.
    pub(crate) fn is_backed_up(&self, core: &Core) -> bool {
        !self.deferred.is_empty() || !self.has_room(core)
    }

    /// Whether a read may start. Connections that take nothing of what they ask for must not hold
    /// all the memory there is.
    fn has_room(&self, core: &Core) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        self.transmit.pending_bytes() < BACKED_UP_BYTES
            && self.reading < (memory / READING_PART).max(BACKED_UP_BYTES)
    }

    /// Whether so many bytes of write data may come. A connection that announces much and sends none
    /// of it must not hold all the memory there is.
    pub(crate) fn may_write(&self, core: &Core, wanted: usize) -> bool {
        let memory = usize::try_from(core.shared.limits.memory).unwrap_or(usize::MAX);
        // Buffers come in powers of two.
        self.writing == 0 || self.writing + wanted.next_power_of_two() <= memory / WRITING_PART
    }

    /// Nothing of it is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        self.tasks.is_empty() && self.transmit.is_empty() && self.management.is_empty()
    }

    /// Stops receiving; the rest is sent.
    pub(crate) fn begin_close(&mut self, reason: CloseReason) {
        if self.closing.is_none() {
            let initiator = self
                .machine
                .session()
                .map(|s| s.initiator_name.as_str().to_owned());
            match reason {
                CloseReason::Logout => {
                    tracing::info!(peer = %self.peer, initiator, "logged out");
                }
                _ => tracing::warn!(peer = %self.peer, initiator, ?reason, "closing connection"),
            }
            // After a logout the initiator sends no more.
            self.explains = !self.transmit.is_empty() && !matches!(reason, CloseReason::Logout);
            self.closing = Some(reason);
        }
    }

    /// Tells the initiator, which did not log out when asked to, that the connection ends now.
    pub(crate) fn announce_drop(&mut self) {
        if self.closing.is_none() {
            self.machine.announce_drop(&mut self.transmit);
            self.begin_close(CloseReason::LogoutTimeout);
        }
    }

    /// Receives and acts, for one turn.
    pub(crate) fn receive_turn(&mut self, core: &mut Core) -> Fate {
        for _ in 0..RECEIVES_PER_TURN {
            if !self.wants_turn() {
                break;
            }
            if self.receive(core) == Fate::Over {
                return Fate::Over;
            }
        }
        Fate::Open
    }

    /// Receives what nobody wants, until the peer closes its end.
    fn discard(&mut self, core: &mut Core, discarded: usize) -> Fate {
        let mut place = [IoSliceMut::new(&mut core.receive_buffer)];
        match self.link.receive(&mut place) {
            Ok(n) if n > 0 && discarded + n <= DISCARDED_BYTES_MAX => {
                self.discarded = Some(discarded + n);
                Fate::Open
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Fate::Open
            }
            _ => Fate::Over,
        }
    }

    fn receive(&mut self, core: &mut Core) -> Fate {
        if let Some(discarded) = self.discarded {
            return self.discard(core, discarded);
        }
        let mut receive_buffer = std::mem::take(&mut core.receive_buffer);
        let direct = self
            .machine
            .payload_wanted()
            .filter(|w| w.length >= DIRECT_RECEIVE_BYTES);
        let place = direct.and_then(|wanted| place_of(&mut self.tasks, wanted));
        let received = match place {
            Some(place) => {
                let placed_max = place.len();
                let mut buffers = [IoSliceMut::new(place), IoSliceMut::new(&mut receive_buffer)];
                let room = placed_max + buffers[1].len();
                self.link
                    .receive(&mut buffers)
                    .map(|n| (n, n.min(placed_max), room))
            }
            None => self
                .link
                .receive(&mut [IoSliceMut::new(&mut receive_buffer)])
                .map(|n| (n, 0, receive_buffer.len())),
        };
        let fate = match received {
            Ok((0, ..)) => {
                tracing::debug!(peer = %self.peer, "peer closed the connection");
                // Perhaps one direction only: the answers that are ready are its due.
                while !self.transmit.is_empty() && self.writable {
                    if self.send(core) == Fate::Over {
                        break;
                    }
                }
                Fate::Over
            }
            Ok((n, placed, room)) => {
                self.readable = self.hang_up || n == room;
                if placed > 0 {
                    self.note_placed(placed, core.now_ms);
                }
                self.process(core, &receive_buffer[..n - placed], placed > 0);
                Fate::Open
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Fate::Open
            }
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "receive failed");
                Fate::Over
            }
        };
        core.receive_buffer = receive_buffer;
        fate
    }

    /// Tells the machine of payload that went straight to its place.
    fn note_placed(&mut self, placed: usize, now_ms: u64) {
        let wanted = self
            .machine
            .payload_wanted()
            .expect("asked for before the receive");
        let task = self
            .tasks
            .get_mut(wanted.task.0)
            .expect("its memory was received into");
        let start = wanted.buffer_offset as usize;
        let bytes = task.data_out.as_deref().unwrap_or_default();
        self.machine
            .payload_received(&bytes[start..start + placed], now_ms);
    }

    /// Feeds bytes to the machine and does what it says. `direct`: payload was placed before them, so
    /// the machine may have something to say even if they are none.
    fn process(&mut self, core: &mut Core, mut input: &[u8], direct: bool) {
        if input.is_empty() && !direct {
            return;
        }
        let shared = Arc::clone(&core.shared);
        let mut established = None;
        loop {
            let mut directory = ConnectionDirectory {
                exports: &shared.exports,
                sessions: &shared.sessions,
                connection: self.address,
                post: &shared.posts[core.shard],
                reached: self.reached,
                portal: self.portal,
                portal_group_tag: shared.exports.portals[self.portal].portal_group_tag,
                closing: shared.closing.load(Ordering::Relaxed),
                established: &mut established,
            };
            let event =
                self.machine
                    .next(&mut input, &mut directory, &mut self.transmit, core.now_ms);
            match event {
                Event::NeedMore => break,
                Event::Established => {
                    self.established(core, established.take());
                    if self.held && !input.is_empty() {
                        // It could not know yet that it is logged in, and what it sent must not run
                        // before the session it takes the place of has ended.
                        let early = "commands before the login response";
                        self.begin_close(CloseReason::ProtocolError(early));
                        break;
                    }
                }
                Event::Command(command) => self.start_command(core, &command),
                Event::DataOut {
                    task,
                    buffer_offset,
                    bytes,
                } => {
                    self.place(task, buffer_offset, &bytes);
                }
                Event::DataOutComplete { task } => self.data_out_complete(core, task),
                Event::DataOutFailed { task, failure } => self.data_out_failed(core, task, failure),
                Event::TaskManagement(request) => self.task_management(core, request),
                Event::Close(reason) => {
                    self.begin_close(reason);
                    break;
                }
            }
        }
        // A login that took the place of a session and then failed leaves a session behind that
        // nobody uses.
        if let Some(unused) = established {
            shared.sessions.leave(unused.ticket.tsih, self.address);
        }
    }

    fn established(&mut self, core: &mut Core, established: Option<EstablishedSession>) {
        let established = established.expect("a login that succeeds has established its session");
        let parameters = self.machine.session().expect("the login is over");
        tracing::info!(
            peer = %self.peer,
            initiator = %parameters.initiator_name.as_str(),
            target = parameters.target_name.as_ref().map(|name| name.as_str()),
            discovery = parameters.session_type == SessionType::Discovery,
            tsih = parameters.tsih.0,
            "logged in"
        );
        tracing::debug!(peer = %self.peer, parameters = ?parameters.operational, "negotiated");
        core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
        self.held = established.ticket.must_wait;
        self.session = Some(Session::begin(
            &core.shared.exports,
            established,
            parameters,
        ));
    }

    /// Puts write data where it belongs.
    fn place(&mut self, task: TaskId, buffer_offset: u32, bytes: &[u8]) {
        if !self.is_receiving(task) {
            // Nobody wants it: the command runs without, or waits for its turn to be refused.
            return;
        }
        let place = self
            .tasks
            .get_mut(task.0)
            .and_then(|task| task.data_out.as_deref_mut())
            .and_then(|buffer| {
                buffer
                    .get_mut(buffer_offset as usize..)?
                    .get_mut(..bytes.len())
            });
        match place {
            Some(place) => place.copy_from_slice(bytes),
            None => debug_assert!(false, "the machine delivers what was asked for only"),
        }
    }

    /// Whether a task waits for its write data.
    fn is_receiving(&mut self, task: TaskId) -> bool {
        let task = self.tasks.get_mut(task.0);
        task.is_some_and(|task| matches!(task.state, TaskState::Receiving))
    }

    fn data_out_failed(&mut self, core: &mut Core, task: TaskId, failure: DataOutFailure) {
        if self.tasks.get_mut(task.0).is_some() && !self.is_receiving(task) {
            // A command that takes no data, and was sent some, is under way. Its own end answers it.
            return;
        }
        let sense = Sense::new(
            SenseKey::AbortedCommand,
            AdditionalSense {
                asc: failure.asc,
                ascq: failure.ascq,
            },
        );
        match self.tasks.take(task.0) {
            Some(task) => self.finish(core, task, ScsiCompletion::check_condition(sense)),
            None => {
                let sense = ScsiCompletion::check_condition(sense);
                let bytes = sense.sense_bytes();
                let completion = Completion {
                    status: sense.status.0,
                    sense: bytes.as_ref().map_or(&[], |bytes| bytes.as_ref()),
                    data_in: Payload::None,
                    scsi_length: 0,
                };
                self.machine.complete(task, completion, &mut self.transmit);
            }
        }
    }

    /// Sends as much as the socket takes, and lets deferred tasks use the room.
    pub(crate) fn flush(&mut self, core: &mut Core) -> Fate {
        loop {
            while !self.transmit.is_empty() && self.writable {
                if self.send(core) == Fate::Over {
                    return Fate::Over;
                }
            }
            if !self.run_deferred(core) && !self.run_ordering(core) {
                break;
            }
        }
        if self.closing.is_none() {
            return Fate::Open;
        }
        // A peer that reads nothing must not keep its connection, and the memory of what it was to
        // read, for ever.
        let close_by_ms = *self
            .close_by_ms
            .get_or_insert(core.now_ms + CLOSE_TIMEOUT_MS);
        if core.now_ms >= close_by_ms {
            return Fate::Over;
        }
        if !self.transmit.is_empty() || self.discarded.is_some() {
            return Fate::Open;
        }
        if !self.explains || !self.link.finish_sending().unwrap_or(false) {
            return Fate::Over;
        }
        self.discarded = Some(0);
        self.readable = true;
        Fate::Open
    }

    fn send(&mut self, core: &mut Core) -> Fate {
        let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_SEND];
        let mut count = 0;
        let mut length = 0;
        let arena = self.transmit.arena();
        for (slice, segment) in slices.iter_mut().zip(self.transmit.segments()) {
            let bytes = match segment {
                Segment::Arena { start, length } => &arena[start..start + length],
                Segment::Zeros { length } => &ZEROS[..length.min(ZEROS.len())],
                Segment::Buffer { id, start, length } => {
                    let number = usize::try_from(id.0).expect("we numbered it");
                    &self.sending[number][start..start + length]
                }
            };
            *slice = IoSlice::new(bytes);
            count += 1;
            length += bytes.len();
            if bytes.len() < segment.length() {
                break;
            }
        }
        match self.link.send(&slices[..count]) {
            Ok(sent) => {
                self.writable = sent == length;
                self.machine.sent(core.now_ms);
                let mut released = std::mem::take(&mut core.released);
                self.transmit.advance(sent, &mut released);
                self.release(core, &mut released);
                core.released = released;
                Fate::Open
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                Fate::Open
            }
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "send failed");
                Fate::Over
            }
        }
    }

    /// Gives back payload that has left.
    fn release(&mut self, core: &mut Core, released: &mut Vec<PayloadId>) {
        for id in released.drain(..) {
            let number = usize::try_from(id.0).expect("we numbered it");
            core.pool.put(self.sending.remove(number));
        }
    }

    /// Runs tasks that waited for room. Returns whether any ran.
    fn run_deferred(&mut self, core: &mut Core) -> bool {
        let mut ran = false;
        while self.has_room(core) {
            let Some(address) = self.deferred.pop_front() else {
                break;
            };
            if let Some(task) = self.tasks.take_exact(address) {
                debug_assert!(matches!(task.state, TaskState::Deferred));
                self.run_in_order(core, task);
                ran = true;
            }
        }
        ran
    }

    /// A message for a task in [`TaskState::Elsewhere`] came.
    pub(crate) fn resume(&mut self, core: &mut Core, address: TaskAddress, event: CommandEvent) {
        if let Some(task) = self.tasks.take_exact(address) {
            debug_assert!(matches!(task.state, TaskState::Elsewhere));
            self.run(core, task, event);
        }
    }

    /// The tasks that a PREEMPT AND ABORT waits for are gone: whose they were learns of it, and the
    /// command goes on.
    pub(crate) fn preempted_tasks_aborted(
        &mut self,
        core: &mut Core,
        address: TaskAddress,
        aborted: &[Arc<Nexus>],
    ) {
        let task = self.tasks.iter().find(|task| task.address == address);
        let session = self.session.as_ref();
        if let Some(lun) = task.and_then(|task| session?.luns.get(task.lun?)) {
            let unit = &core.shared.unit(lun.unit).logical_unit;
            unit.tasks_cleared_by(&lun.nexus, aborted);
        }
        self.resume(core, address, CommandEvent::TasksAborted);
    }

    /// When [`Self::handle_deadline`] has something to do.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.close_by_ms.or_else(|| self.machine.next_deadline_ms())
    }

    /// Does what is due.
    pub(crate) fn handle_deadline(&mut self, now_ms: u64) {
        if let Some(reason) = self.machine.handle_deadline(&mut self.transmit, now_ms) {
            self.begin_close(reason);
        }
    }

    /// Ends everything the connection has in progress. Requests in flight live on as orphans.
    pub(crate) fn tear_down(&mut self, core: &mut Core) {
        self.abandon_management(core);
        let slots: Vec<u32> = self.tasks.iter().map(|task| task.address.slot).collect();
        for slot in slots {
            self.end_task(core, slot, None);
        }
        let mut released = Vec::new();
        self.transmit.release_all(&mut released);
        for (_, buffer) in std::mem::take(&mut self.sending) {
            core.pool.put(buffer);
        }
        match self.session.take() {
            Some(session) => {
                session.end(&core.shared.exports);
                core.shared
                    .sessions
                    .leave(session.ticket.tsih, self.address);
            }
            None => {
                core.shared.pending_logins[core.shard].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Answers a task management request.
    pub(crate) fn answer_management(
        &mut self,
        id: TaskManagementId,
        result: longshore_iscsi::target::TaskManagementResult,
    ) {
        self.machine
            .task_management_done(id, result, &mut self.transmit);
    }
}

/// The memory that the next payload bytes belong in.
fn place_of(tasks: &mut Tasks, wanted: PayloadWanted) -> Option<&mut [u8]> {
    let start = wanted.buffer_offset as usize;
    let buffer = tasks.get_mut(wanted.task.0)?.data_out.as_deref_mut()?;
    buffer.get_mut(start..start + wanted.length as usize)
}
