//! What the tests share: an engine of each kind, connected sockets, and patience with a limit.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use longshore_reactor::storage::FileCompletion;
use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, EngineError, EngineEvent, Readiness, SocketToken, Waker,
    socket,
};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// How long a test watches that nothing happens.
pub const A_WHILE: Duration = Duration::from_millis(30);

/// Makes two tests out of one, in modules `io_uring` and `epoll`.
macro_rules! on_both_engines {
    ($($(#[$attribute:meta])* fn $name:ident($rig:ident) $body:block)+) => {
        mod facts {
            #[allow(clippy::wildcard_imports)]
            use super::*;
            $($(#[$attribute])* pub fn $name(mut rig: $crate::rig::Rig) {
                let $rig = &mut rig;
                $body
            })+
        }
        mod io_uring {
            $(#[test] fn $name() {
                $crate::rig::with(longshore_reactor::EngineChoice::IoUring, super::facts::$name);
            })+
        }
        mod epoll {
            $(#[test] fn $name() {
                $crate::rig::with(longshore_reactor::EngineChoice::Epoll, super::facts::$name);
            })+
        }
    };
}
pub(crate) use on_both_engines;

/// Runs a test on one engine, or says aloud that it cannot run here.
pub fn with(choice: EngineChoice, test: fn(Rig)) {
    match Rig::new(choice, EngineConfig::default()) {
        Ok(rig) => test(rig),
        Err(EngineError::IoUring(reason)) => {
            eprintln!("SKIPPED: this host does not let us use io_uring: {reason}");
        }
        Err(error) => panic!("{error}"),
    }
}

/// An engine and the events it has reported.
pub struct Rig {
    pub engine: Engine,
    pub choice: EngineChoice,
    events: Vec<EngineEvent>,
}

impl Rig {
    pub fn new(choice: EngineChoice, config: EngineConfig) -> Result<Self, EngineError> {
        let engine = Engine::new(choice, config, Waker::new().unwrap())?;
        Ok(Self {
            engine,
            choice,
            events: Vec::new(),
        })
    }

    /// The same engine with other sizes.
    pub fn resized(&self, config: EngineConfig) -> Self {
        Self::new(self.choice, config).unwrap()
    }

    /// One turn; returns its events.
    pub fn turn(&mut self, timeout: Duration) -> Vec<EngineEvent> {
        self.engine.wait(Some(timeout), &mut self.events).unwrap();
        std::mem::take(&mut self.events)
    }

    /// Turns until one of them reports something, and returns that.
    pub fn next_events(&mut self) -> Vec<EngineEvent> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing happened");
            let events = self.turn(left);
            if !events.is_empty() {
                return events;
            }
        }
    }

    /// Turns until `token` is reported in a way that `wanted` accepts.
    pub fn wait_for(
        &mut self,
        token: SocketToken,
        wanted: impl Fn(Readiness) -> bool,
    ) -> Readiness {
        loop {
            for event in self.next_events() {
                match event {
                    EngineEvent::Socket {
                        token: found,
                        readiness,
                    } if found == token && wanted(readiness) => {
                        return readiness;
                    }
                    _ => {}
                }
            }
        }
    }

    /// Turns until `count` file operations are complete.
    pub fn completions(&mut self, count: usize) -> Vec<FileCompletion> {
        let mut found = Vec::new();
        while found.len() < count {
            found.extend(
                self.next_events()
                    .into_iter()
                    .filter_map(|event| match event {
                        EngineEvent::File(completion) => Some(completion),
                        _ => None,
                    }),
            );
        }
        found
    }

    /// Turns for a while; no socket may be reported as readable.
    pub fn expect_nothing_readable(&mut self) {
        let deadline = Instant::now() + A_WHILE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            for event in self.turn(left) {
                if let EngineEvent::Socket { readiness, token } = event {
                    assert!(!readiness.is_readable(), "{token:?} is {readiness:?}");
                }
            }
        }
    }

    /// A connection: our end registered as `token`, and the peer's.
    pub fn connection(&mut self, token: SocketToken) -> (OwnedFd, TcpStream) {
        let (ours, peer) = pair();
        self.engine.register(ours.as_fd(), token).unwrap();
        (ours, peer)
    }
}

/// Two connected sockets, the first non-blocking.
pub fn pair() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_nodelay(true).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    ours.set_nodelay(true).unwrap();
    (ours.into(), peer)
}

/// A listener on a free port.
pub fn listener() -> (OwnedFd, SocketAddr) {
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = socket::listen(address, socket::ListenOptions::default()).unwrap();
    let address = socket::local_address(&listener).unwrap();
    (listener, address)
}
