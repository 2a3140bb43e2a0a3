//! The server: one thread, one reactor.

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, EngineEvent, SocketToken, Waker, socket,
};

use crate::peer::{Disposition, Peer};
use crate::source::Source;

/// Bytes that one receive brings at most, as in `crates/server/server/src/core`.
const RECEIVE_BYTES: usize = 256 << 10;

/// The listener's token. Generations of connections start at 1.
const LISTENER: SocketToken = SocketToken(0);

struct Server {
    engine: Engine,
    listener: OwnedFd,
    /// By slot, with what tells a connection from others that had the slot before.
    peers: Vec<Option<(u32, Peer)>>,
    connections: u32,
    source: Source,
    receive_buffer: Vec<u8>,
    /// Slots to be received from, and those whose turn it is.
    listed: Vec<u32>,
    listing: Vec<u32>,
}

/// Serves until the process is killed.
pub fn serve(listen: SocketAddr, engine: EngineChoice, file: Option<&Path>) -> Result<()> {
    let source = Source::open(file).with_context(|| format!("open {file:?}"))?;
    let listener = socket::listen(listen, socket::ListenOptions::default())
        .with_context(|| format!("listen at {listen}"))?;
    let address = socket::local_address(&listener)?;
    let mut engine = Engine::new(engine, EngineConfig::default(), Waker::new()?)?;
    engine.register(listener.as_fd(), LISTENER)?;
    let mut server = Server {
        engine,
        listener,
        peers: Vec::new(),
        connections: 0,
        source,
        receive_buffer: vec![0; RECEIVE_BYTES],
        listed: Vec::new(),
        listing: Vec::new(),
    };
    println!("ready {address}");
    server.run()
}

impl Server {
    fn run(&mut self) -> Result<()> {
        let mut events = Vec::new();
        loop {
            // Who was not received to the end does not wait for the next event.
            let timeout = (!self.listed.is_empty()).then_some(Duration::ZERO);
            self.engine.wait(timeout, &mut events)?;
            for event in events.drain(..) {
                if let EngineEvent::Socket { token, readiness } = event {
                    if token == LISTENER {
                        self.accept()?;
                        continue;
                    }
                    let Some(peer) = self.peer(token) else {
                        continue;
                    };
                    if readiness.is_writable() {
                        peer.set_writable();
                    }
                    if readiness.is_readable() {
                        peer.set_readable(readiness.is_hang_up());
                    }
                    if !self.listed.contains(&token.slot()) {
                        self.listed.push(token.slot());
                    }
                }
            }
            self.turn()?;
        }
    }

    fn peer(&mut self, token: SocketToken) -> Option<&mut Peer> {
        let slot = usize::try_from(token.slot()).expect("an index");
        let (generation, peer) = self.peers.get_mut(slot)?.as_mut()?;
        (*generation == token.generation()).then_some(peer)
    }

    /// Receives from all that have something, then sends.
    fn turn(&mut self) -> Result<()> {
        std::mem::swap(&mut self.listed, &mut self.listing);
        let mut listing = std::mem::take(&mut self.listing);
        for &slot in &listing {
            let index = usize::try_from(slot).expect("an index");
            let Some((_, peer)) = &mut self.peers[index] else {
                continue;
            };
            let mut disposition = peer.receive_turn(&mut self.receive_buffer, &mut self.source)?;
            if disposition == Disposition::Open {
                disposition = peer.flush(&mut self.source)?;
            }
            match disposition {
                Disposition::Open if peer.is_readable() => self.listed.push(slot),
                Disposition::Open => {}
                Disposition::Over => self.close(index),
            }
        }
        listing.clear();
        self.listing = listing;
        Ok(())
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let socket = match socket::accept(&self.listener) {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("accept a connection"),
            };
            socket::set_nodelay(&socket, true)?;
            let free = self.peers.iter().position(Option::is_none);
            let index = free.unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let slot = u32::try_from(index).expect("fewer connections than descriptors");
            self.connections = self.connections.wrapping_add(1).max(1);
            let token = SocketToken::new(slot, self.connections);
            self.engine.register(socket.as_fd(), token)?;
            self.peers[index] = Some((self.connections, Peer::new(socket)));
            self.listed.push(slot);
        }
    }

    fn close(&mut self, index: usize) {
        let Some((generation, peer)) = self.peers[index].take() else {
            return;
        };
        let slot = u32::try_from(index).expect("fewer connections than descriptors");
        let token = SocketToken::new(slot, generation);
        self.engine.deregister(peer.socket().as_fd(), token);
        if let Ok(line) = serde_json::to_string(&peer.counters) {
            // Nobody has to look.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}
