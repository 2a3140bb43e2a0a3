//! Handshakes of newcomers, on a thread beside the event loops.
//!
//! Nobody has proved anything here, and each ClientHello costs an exchange of keys. So there are limits: of the newcomers that
//! are looked after, of the time and bytes of each, and of the handshakes in a second. A newcomer beyond the rate waits for
//! its turn; beyond the number, the oldest of the address with most of them makes room. Addresses take turns. Handshakes come
//! few at a time, so that newcomers without TLS do not wait for many.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use longshore_nvme::controller::{Subsystems, TlsUse};
use longshore_nvme::psk::Identity;
use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, EngineEvent, SocketToken, Waker, allocator,
};
use longshore_tls::{Handshake, Server, Session};

use super::fairness::Lines;
use super::keys::HostKeys;
use super::link::{Stream, TlsLink};
use crate::core::Shared;
use crate::counters::ProtocolKind;
use crate::counters::clients::Limit;
use crate::platform::TcpLink;
use crate::sessions::attempts::network;

/// The content type of a handshake: the first byte of TLS. An ICReq begins with 00h.
const HANDSHAKE: u8 = 0x16;

/// Newcomers that may wait for the thread to look at them, at least: a burst closes nobody that there would be room for.
const INBOX_MIN: usize = 1024;

/// Handshakes that begin before other newcomers are looked at: some milliseconds.
const HANDSHAKES_PER_TURN: usize = 8;

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub stream: TcpStream,
    pub peer: SocketAddr,
    /// The shard that is to serve it.
    pub shard: usize,
    /// The listener that it came in by.
    pub portal: usize,
    /// What that listener wants.
    pub tls: TlsUse,
}

/// See the module documentation. The thread ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handshakes {
    newcomers: Option<SyncSender<Newcomer>>,
    waker: Waker,
}

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// There is no thread or no memory for it, or OpenSSL lacks what it takes.
    pub(crate) fn start(shared: &Arc<Shared>, subsystems: Arc<Subsystems>) -> io::Result<Self> {
        let server = Server::new(Arc::new(HostKeys(subsystems))).map_err(io::Error::other)?;
        let waker = Waker::new()?;
        let most = shared.limits.pending_logins.max(1);
        let (newcomers, inbox) = sync_channel(most.max(INBOX_MIN));
        let desk = Desk {
            // The server does not wait for whoever has not proved anything.
            shared: Arc::downgrade(shared),
            timeout: shared.limits.login_timeout,
            rate: Rate::new(shared.limits.tls_handshakes),
            most,
            server,
            guests: HashMap::new(),
            order: VecDeque::new(),
            crowd: Lines::default(),
            waiting: Lines::default(),
            next: 0,
        };
        let engine_waker = waker.clone();
        let thread = thread::Builder::new().name("longshore-tls".to_owned());
        allocator::spawn(thread, move || {
            let config = EngineConfig::default();
            match Engine::new(EngineChoice::Epoll, config, engine_waker) {
                Ok(engine) => desk.run(engine, &inbox),
                Err(error) => tracing::error!(%error, "no TLS handshakes"),
            }
        })?;
        Ok(Self {
            newcomers: Some(newcomers),
            waker,
        })
    }

    /// Looks after a connection until a shard can have it. `false`: it is closed, since too many have come at once, or
    /// the thread has not come up.
    pub(crate) fn take(&self, newcomer: Newcomer) -> bool {
        let taken = self
            .newcomers
            .as_ref()
            .is_some_and(|newcomers| newcomers.try_send(newcomer).is_ok());
        self.waker.wake();
        taken
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.newcomers = None;
        self.waker.wake();
    }
}

/// How far a newcomer is.
#[derive(Debug)]
enum State {
    /// It has not sent anything.
    Fresh(TcpStream),
    /// It speaks TLS, and waits for its turn.
    Waiting(TcpStream),
    Shaking(Box<Session<Stream>>),
    /// While it goes from one to another.
    Gone,
}

#[derive(Debug)]
struct Guest {
    state: State,
    peer: SocketAddr,
    shard: usize,
    portal: usize,
    tls: TlsUse,
    until: Instant,
}

/// What became of a newcomer for now.
enum Step {
    Stays,
    Waits,
    Leaves,
}

/// What the thread works on.
struct Desk {
    shared: Weak<Shared>,
    timeout: Duration,
    rate: Rate,
    most: usize,
    server: Server,
    guests: HashMap<u64, Guest>,
    /// All of them, oldest first; some may have left.
    order: VecDeque<u64>,
    /// All of them, by address.
    crowd: Lines,
    /// Those that wait for their turn.
    waiting: Lines,
    next: u64,
}

impl Desk {
    fn run(mut self, mut engine: Engine, inbox: &Receiver<Newcomer>) {
        let mut events = Vec::new();
        loop {
            let timeout = self.timeout(Instant::now());
            if let Err(error) = engine.wait(timeout, &mut events) {
                tracing::error!(%error, "no more TLS handshakes");
                return;
            }
            for event in events.drain(..) {
                if let EngineEvent::Socket { token, .. } = event {
                    self.look_at(token.0, &mut engine);
                }
            }
            loop {
                match inbox.try_recv() {
                    Ok(newcomer) => self.welcome(newcomer, &mut engine),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.serve_waiting(&mut engine);
            self.show_out_late(&mut engine);
        }
    }

    /// Until there is something to do by itself.
    fn timeout(&self, now: Instant) -> Option<Duration> {
        let oldest = self.order.iter().find_map(|id| self.guests.get(id));
        let late = oldest.map(|guest| guest.until.saturating_duration_since(now));
        let turn = (!self.waiting.is_empty()).then(|| self.rate.until_next(now));
        late.into_iter().chain(turn).min()
    }

    fn welcome(&mut self, newcomer: Newcomer, engine: &mut Engine) {
        while self.guests.len() >= self.most
            && let Some(oldest) = self.crowd.crowding()
        {
            if let Some(guest) = self.guests.get(&oldest) {
                tracing::debug!(peer = %guest.peer, "too many pending logins; oldest connection of an address closed");
            }
            if let Some(shared) = self.shared.upgrade() {
                shared.clients.reached(Limit::PendingLogins);
            }
            self.show_out(oldest, engine);
        }
        let id = self.next;
        self.next += 1;
        if let Err(error) = engine.register(newcomer.stream.as_fd(), SocketToken(id)) {
            tracing::debug!(peer = %newcomer.peer, %error, "connection lost before it began");
            return;
        }
        let guest = Guest {
            state: State::Fresh(newcomer.stream),
            peer: newcomer.peer,
            shard: newcomer.shard,
            portal: newcomer.portal,
            tls: newcomer.tls,
            until: Instant::now() + self.timeout,
        };
        self.crowd.enter(guest.address(), id);
        self.guests.insert(id, guest);
        self.order.push_back(id);
        // The bytes may be there already; the engine says so.
    }

    /// Something has happened on a socket.
    fn look_at(&mut self, id: u64, engine: &mut Engine) {
        let Some(guest) = self.guests.get_mut(&id) else {
            return;
        };
        match guest.proceed(&self.shared, engine, id) {
            Step::Stays => {}
            Step::Waits => self.waiting.enter(guest.address(), id),
            Step::Leaves => self.show_out(id, engine),
        }
    }

    /// As many of those that wait as the rate allows, a few at a time.
    fn serve_waiting(&mut self, engine: &mut Engine) {
        for _ in 0..HANDSHAKES_PER_TURN {
            if self.waiting.is_empty() || !self.rate.take(Instant::now()) {
                break;
            }
            let Some(id) = self.waiting.next() else {
                break;
            };
            let Some(guest) = self.guests.get_mut(&id) else {
                continue;
            };
            match guest.begin(&self.server) {
                true => self.look_at(id, engine),
                false => self.show_out(id, engine),
            }
        }
    }

    fn show_out_late(&mut self, engine: &mut Engine) {
        let now = Instant::now();
        while let Some(id) = self.order.front().copied() {
            match self.guests.get(&id) {
                Some(guest) if guest.until > now => return,
                Some(guest) => {
                    tracing::debug!(peer = %guest.peer, "no TLS handshake in time; connection closed");
                    self.show_out(id, engine);
                }
                None => {}
            }
            self.order.pop_front();
        }
    }

    fn show_out(&mut self, id: u64, engine: &mut Engine) {
        let Some(guest) = self.guests.remove(&id) else {
            return;
        };
        self.crowd.leave(guest.address(), id);
        self.waiting.leave(guest.address(), id);
        if let Some(stream) = guest.socket() {
            engine.deregister(stream.as_fd(), SocketToken(id));
        }
    }
}

impl Guest {
    /// For whom it counts.
    fn address(&self) -> IpAddr {
        network(self.peer.ip())
    }

    fn socket(&self) -> Option<&TcpStream> {
        match &self.state {
            State::Fresh(stream) | State::Waiting(stream) => Some(stream),
            State::Shaking(session) => Some(&session.stream().socket),
            State::Gone => None,
        }
    }

    /// Its turn has come. `false`: there is no memory for it.
    fn begin(&mut self, server: &Server) -> bool {
        let State::Waiting(stream) = std::mem::replace(&mut self.state, State::Gone) else {
            return false;
        };
        match server.accept(Stream::new(stream)) {
            Ok(session) => {
                self.state = State::Shaking(Box::new(session));
                true
            }
            Err(error) => {
                tracing::error!(peer = %self.peer, %error, "no TLS for a connection");
                false
            }
        }
    }

    fn proceed(&mut self, shared: &Weak<Shared>, engine: &mut Engine, id: u64) -> Step {
        let token = SocketToken(id);
        match std::mem::replace(&mut self.state, State::Gone) {
            State::Fresh(stream) => match first_byte(&stream) {
                Ok(None) => {
                    self.state = State::Fresh(stream);
                    Step::Stays
                }
                Ok(Some(HANDSHAKE)) => {
                    self.state = State::Waiting(stream);
                    Step::Waits
                }
                Ok(Some(_)) if self.tls == TlsUse::Required => {
                    tracing::warn!(peer = %self.peer, "connection without TLS refused: this address requires it");
                    self.failed(shared);
                    engine.deregister(stream.as_fd(), token);
                    Step::Leaves
                }
                Ok(Some(_)) => {
                    engine.deregister(stream.as_fd(), token);
                    if let Some(shared) = shared.upgrade() {
                        shared.give(self.shard, Box::new(TcpLink(stream)), self.portal);
                    }
                    Step::Leaves
                }
                Err(error) => {
                    tracing::debug!(peer = %self.peer, %error, "connection lost before it began");
                    engine.deregister(stream.as_fd(), token);
                    Step::Leaves
                }
            },
            State::Shaking(mut session) => match session.handshake() {
                Ok(Handshake::Waiting) => {
                    self.state = State::Shaking(session);
                    Step::Stays
                }
                Ok(Handshake::Done) => {
                    engine.deregister(session.stream().socket.as_fd(), token);
                    self.give(shared, *session);
                    Step::Leaves
                }
                Err(error) => {
                    engine.deregister(session.stream().socket.as_fd(), token);
                    tracing::warn!(peer = %self.peer, %error, "TLS handshake failed");
                    self.failed(shared);
                    Step::Leaves
                }
            },
            waits @ (State::Waiting(_) | State::Gone) => {
                self.state = waits;
                Step::Stays
            }
        }
    }

    fn failed(&self, shared: &Weak<Shared>) {
        if let Some(shared) = shared.upgrade() {
            shared.clients.login_failed(ProtocolKind::NvmeTcp);
        }
    }

    /// The host has proved to know a key.
    fn give(&self, shared: &Weak<Shared>, session: Session<Stream>) {
        let identity = session.identity().map(Identity::parse);
        // What the keys are looked up by is an identity.
        if let (Some(Ok(identity)), Some(shared)) = (identity, shared.upgrade()) {
            tracing::debug!(peer = %self.peer, %identity, "TLS handshake done");
            let link = TlsLink::new(session, identity);
            shared.give(self.shard, Box::new(link), self.portal);
        }
    }
}

/// What a connection begins with; `None`: nothing has come yet.
fn first_byte(stream: &TcpStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    match stream.peek(&mut byte) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(Some(byte[0])),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Handshakes in a second: a bucket of a second's worth.
#[derive(Debug)]
struct Rate {
    each: Duration,
    /// When the bucket was, or will be, empty, one second before it is full.
    empty: Option<Instant>,
}

const BUCKET: Duration = Duration::from_secs(1);

impl Rate {
    fn new(per_second: u32) -> Self {
        Self {
            each: BUCKET / per_second.max(1),
            empty: None,
        }
    }

    /// Takes one out, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        let full = now.checked_sub(BUCKET).unwrap_or(now);
        let empty = self.empty.map_or(full, |empty| empty.max(full));
        let is_there = empty + self.each <= now;
        if is_there {
            self.empty = Some(empty + self.each);
        }
        is_there
    }

    fn until_next(&self, now: Instant) -> Duration {
        self.empty.map_or(Duration::ZERO, |empty| {
            (empty + self.each).saturating_duration_since(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_allows_a_burst_and_then_one_at_a_time() {
        let mut rate = Rate::new(10);
        let start = Instant::now() + Duration::from_secs(10);
        let burst = (0..100).filter(|_| rate.take(start)).count();
        assert_eq!(burst, 10);
        assert_eq!(rate.until_next(start), Duration::from_millis(100));
        let mut taken = 0;
        for step in 1..=1000 {
            taken += u32::from(rate.take(start + Duration::from_millis(step * 10)));
        }
        assert_eq!(taken, 100);
        let later = start + Duration::from_secs(60);
        assert_eq!((0..100).filter(|_| rate.take(later)).count(), 10);
    }
}
