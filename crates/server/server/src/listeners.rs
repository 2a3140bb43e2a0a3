//! Listening sockets, and the choice of a shard for a new connection.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[cfg(feature = "tls")]
use longshore_nvme::controller::TlsUse;
use longshore_reactor::{SocketToken, allocator, socket};

use crate::config::SocketOptions;
use crate::core::Core;
use crate::counters::clients::Limit;
use crate::placement::arrivals::{Arrivals, Incoming};
use crate::placement::nearness::Surroundings;
use crate::placement::options::Options;
use crate::platform::{Platform, TcpLink};
#[cfg(feature = "tls")]
use crate::tls::{Handshakes, Newcomer};

/// What a connection may send ahead from its beginning. The kernel makes a window larger once more is received in a
/// round trip than before. With a first window of 64 KiB (net.ipv4.tcp_rmem) and as much received in a turn
/// ([`crate::fairness`]) that need not come about: some connections kept it for ever, and got half of what others got.
const RECEIVE_WINDOW: u32 = 512 << 10;

/// Tokens of listeners have this generation, which connections' slots never reach in practice; slots
/// tell them apart for certain.
const LISTENER_GENERATION: u32 = u32::MAX;
/// Slots of listeners count down from here. The token of all ones belongs to the engine.
const LISTENER_SLOT_TOP: u32 = u32::MAX - 1;

/// Connections accepted at a portal in one turn. Peers that connect faster than this thread can accept
/// must not keep it from everything else.
const ACCEPTS_PER_TURN: usize = 32;

/// Shards make room for newcomers at the limit of pending logins, a turn later. Where they do not keep
/// up, newcomers are closed at once from so many times the limit on, beside what one turn accepts.
const PENDING_FACTOR_MAX: usize = 2;

/// The kernel looks after peers that say nothing for so long, so often, and gives them up after so
/// many probes without an answer.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(15));
const KEEPALIVE_PROBES: u32 = 4;

/// How an attempt to accept ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// Nobody waits any more.
    All,
    /// Others may wait; connections that are there already come first.
    Enough,
    /// The process has no file descriptors left.
    OutOfDescriptors,
}

/// The listening sockets of a server, by place. They live on the first shard.
pub(crate) struct Listeners {
    sockets: BTreeMap<usize, TcpListener>,
    arrivals: Arrivals,
    options: Options,
    complained: bool,
    /// Newcomers have been turned away since the last that was not.
    crowded: bool,
    /// Who looks after connections that may speak TLS, once one has come.
    #[cfg(feature = "tls")]
    handshakes: Option<Handshakes>,
}

impl Listeners {
    pub(crate) fn new(
        sockets: Vec<TcpListener>,
        cores: Vec<Option<usize>>,
        options: SocketOptions,
    ) -> Self {
        let around = cores.into_iter().map(|core| core.map(Surroundings::of));
        Self {
            sockets: sockets.into_iter().enumerate().collect(),
            arrivals: Arrivals::new(around.collect()),
            options: Options::new(options),
            complained: false,
            crowded: false,
            #[cfg(feature = "tls")]
            handshakes: None,
        }
    }

    fn token(portal: usize) -> SocketToken {
        let portal = u32::try_from(portal).expect("few listeners");
        SocketToken::new(LISTENER_SLOT_TOP - portal, LISTENER_GENERATION)
    }

    pub(crate) fn portal_of(&self, token: SocketToken) -> Option<usize> {
        let portal = LISTENER_SLOT_TOP.checked_sub(token.slot())? as usize;
        self.sockets.contains_key(&portal).then_some(portal)
    }

    pub(crate) fn watch(&self, platform: &mut dyn Platform) -> std::io::Result<()> {
        for (portal, listener) in &self.sockets {
            listener.set_nonblocking(true)?;
            platform.watch(listener.as_fd(), Self::token(*portal))?;
        }
        Ok(())
    }

    /// Opens a listener on the socket.
    pub(crate) fn open(
        &mut self,
        portal: usize,
        listener: TcpListener,
        platform: &mut dyn Platform,
    ) -> std::io::Result<()> {
        listener.set_nonblocking(true)?;
        platform.watch(listener.as_fd(), Self::token(portal))?;
        self.sockets.insert(portal, listener);
        Ok(())
    }

    /// One less. Its connections stay.
    pub(crate) fn close_one(&mut self, portal: usize, platform: &mut dyn Platform) {
        if let Some(listener) = self.sockets.remove(&portal) {
            platform.forget(listener.as_fd(), Self::token(portal));
        }
    }

    /// Places of the listeners.
    pub(crate) fn places(&self) -> Vec<usize> {
        self.sockets.keys().copied().collect()
    }

    pub(crate) fn close(&mut self, platform: &mut dyn Platform) {
        for (portal, listener) in &self.sockets {
            platform.forget(listener.as_fd(), Self::token(*portal));
        }
        self.sockets.clear();
        #[cfg(feature = "tls")]
        {
            self.handshakes = None;
        }
    }

    /// Accepts those that wait at `portal` and hands them to their shards.
    pub(crate) fn accept(&mut self, portal: usize, core: &Core) -> Accepted {
        let limit = core.shared.limits.pending_logins;
        let pending_max = limit
            .saturating_mul(PENDING_FACTOR_MAX)
            .saturating_add(ACCEPTS_PER_TURN);
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.sockets.get(&portal) else {
                return Accepted::All;
            };
            match socket::accept(listener) {
                Ok((stream, peer)) => {
                    self.complained = false;
                    let is_full = core.shared.connections() >= core.shared.limits.connections;
                    if is_full || !allocator::has_reserve() {
                        core.shared.clients.reached(Limit::Connections);
                        if !std::mem::replace(&mut self.crowded, true) {
                            let connections = core.shared.limits.connections;
                            tracing::error!(
                                %peer,
                                connections,
                                "no memory for more connections; closing new ones"
                            );
                        }
                        continue;
                    }
                    self.crowded = false;
                    if core.shared.pending_logins() >= pending_max {
                        core.shared.clients.reached(Limit::PendingLogins);
                        tracing::debug!(%peer, "too many pending logins; new connection closed");
                        continue;
                    }
                    let stream = TcpStream::from(stream);
                    // Pings can be turned off, and discovery sessions get none.
                    let (idle, interval) = KEEPALIVE;
                    if let Err(error) =
                        socket::set_keepalive(&stream, idle, interval, KEEPALIVE_PROBES)
                    {
                        tracing::debug!(%peer, %error, "SO_KEEPALIVE not set");
                    }
                    if let Err(error) = socket::raise_receive_window(&stream, RECEIVE_WINDOW) {
                        tracing::debug!(%peer, %error, "SO_RCVLOWAT not set");
                    }
                    self.options.set(&stream);
                    let shard = place(&mut self.arrivals, core, &stream);
                    self.give(core, stream, peer, shard, portal);
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Accepted::All;
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::error!(
                            %error,
                            "cannot accept connections; raise the limit of open files (ulimit -n)"
                        );
                    }
                    core.shared.clients.reached(Limit::Descriptors);
                    return Accepted::OutOfDescriptors;
                }
            }
        }
        Accepted::Enough
    }
}

#[cfg(feature = "tls")]
impl Listeners {
    /// Gives a connection to its shard, after its TLS handshake if there may be one.
    fn give(
        &mut self,
        core: &Core,
        stream: TcpStream,
        peer: SocketAddr,
        shard: usize,
        portal: usize,
    ) {
        let exports = &core.view.exports;
        let tls = match exports.listeners[portal].nvme_port().map(|port| port.tls) {
            // Nobody has a key.
            Some(TlsUse::Permitted) if !exports.nvme.subsystems.has_tls_keys() => TlsUse::None,
            tls => tls.unwrap_or_default(),
        };
        if tls == TlsUse::None {
            return core.shared.give(shard, Box::new(TcpLink(stream)), portal);
        }
        if self.handshakes.is_none() {
            let subsystems = Arc::clone(&exports.nvme.subsystems);
            match Handshakes::start(&core.shared, subsystems) {
                Ok(handshakes) => self.handshakes = Some(handshakes),
                Err(error) => {
                    tracing::error!(%peer, %error, "no TLS; connection closed");
                    return;
                }
            }
        }
        let newcomer = Newcomer {
            stream,
            peer,
            shard,
            portal,
            tls,
        };
        if let Some(handshakes) = &self.handshakes
            && !handshakes.take(newcomer)
        {
            core.shared.clients.reached(Limit::PendingLogins);
            tracing::debug!(%peer, "too many pending logins; new connection closed");
        }
    }
}

#[cfg(not(feature = "tls"))]
impl Listeners {
    /// Gives a connection to its shard.
    fn give(
        &mut self,
        core: &Core,
        stream: TcpStream,
        _peer: SocketAddr,
        shard: usize,
        portal: usize,
    ) {
        core.shared.give(shard, Box::new(TcpLink(stream)), portal);
    }
}

/// The shard for a new connection.
fn place(arrivals: &mut Arrivals, core: &Core, stream: &TcpStream) -> usize {
    let shared = &core.shared;
    let connections = |shard: usize| shared.connections[shard].load(Ordering::Relaxed);
    let incoming = Incoming::of(stream);
    let loads = shared.rebalances().then_some(&shared.loads[..]);
    arrivals.place(incoming, loads, connections, core.now_ms)
}
