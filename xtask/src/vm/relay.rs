//! A relay between guest and server whose connections can be cut or silenced, as a cable can.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use longshore_tests::server::free_port;

const FORWARDING: u8 = 0;
const SILENT: u8 = 1;
const CUT: u8 = 2;

/// Forwards connections from a port of its own to a server.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts to forward to `server`.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let address = free_port();
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            state: AtomicU8::new(FORWARDING),
            streams: Mutex::new(Vec::new()),
        });
        let accepting = Arc::clone(&shared);
        // The thread lives as long as the process, which is one run of a suite.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepting.accept(stream, server);
            }
        });
        Ok(Self { address, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections, and new ones as they come.
    pub fn cut(&self) {
        self.shared.state.store(CUT, Ordering::SeqCst);
        for stream in self.shared.streams.lock().expect("no panics").drain(..) {
            // It may have been closed by its peer already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Lets nothing pass any more, with all connections open.
    pub fn silence(&self) {
        self.shared.state.store(SILENT, Ordering::SeqCst);
    }

    pub fn restore(&self) {
        self.shared.state.store(FORWARDING, Ordering::SeqCst);
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, from: TcpStream, server: SocketAddr) {
        if self.state.load(Ordering::SeqCst) == CUT {
            return;
        }
        let Ok(to) = TcpStream::connect(server) else {
            return;
        };
        for (a, b) in [(&from, &to), (&to, &from)] {
            let (Ok(a), Ok(b)) = (a.try_clone(), b.try_clone()) else {
                return;
            };
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.forward(a, b));
        }
        self.streams.lock().expect("no panics").extend([from, to]);
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 65_536];
        // Whatever ends one direction ends both.
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            while self.state.load(Ordering::SeqCst) == SILENT {
                std::thread::sleep(Duration::from_millis(20));
            }
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
