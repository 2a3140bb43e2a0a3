//! A relay between guest and server whose connections can be cut, silenced or tapped, as a cable can.

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
    tap: Mutex<Tap>,
}

/// What passes, in both directions of all connections.
#[derive(Debug, Default)]
struct Tap {
    text: Vec<u8>,
    bytes: u64,
    copies: u64,
}

impl Relay {
    /// Starts to forward to `server`.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let address = free_port();
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            state: AtomicU8::new(FORWARDING),
            streams: Mutex::new(Vec::new()),
            tap: Mutex::new(Tap::default()),
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

    /// From now on looks for a text in what passes.
    pub fn watch(&self, text: &str) {
        *self.shared.tap.lock().expect("no panics") = Tap {
            text: text.as_bytes().to_owned(),
            ..Tap::default()
        };
    }

    /// How many bytes have passed since [`Self::watch`], and how many copies of the text.
    pub fn seen(&self) -> (u64, u64) {
        let tap = self.shared.tap.lock().expect("no panics");
        (tap.bytes, tap.copies)
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
        let mut earlier = Vec::new();
        // Whatever ends one direction ends both.
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            while self.state.load(Ordering::SeqCst) == SILENT {
                std::thread::sleep(Duration::from_millis(20));
            }
            self.tap
                .lock()
                .expect("no panics")
                .take(&mut earlier, &buffer[..n]);
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

impl Tap {
    /// Counts the next bytes of one direction. `earlier` is what of the bytes before may be the text's beginning.
    fn take(&mut self, earlier: &mut Vec<u8>, bytes: &[u8]) {
        self.bytes += u64::try_from(bytes.len()).expect("a buffer's length");
        let length = self.text.len();
        if length == 0 {
            return;
        }
        earlier.extend(bytes);
        let found = earlier
            .windows(length)
            .filter(|window| *window == self.text);
        self.copies += u64::try_from(found.count()).expect("below the bytes");
        let whole = earlier.len().saturating_sub(length - 1);
        earlier.drain(..whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_across_pieces_and_once_each() {
        let mut tap = Tap {
            text: b"abc".to_vec(),
            ..Tap::default()
        };
        let mut one_way = Vec::new();
        let mut other_way = Vec::new();
        for piece in ["xxa", "b", "cabcab", "abc"] {
            tap.take(&mut one_way, piece.as_bytes());
            tap.take(&mut other_way, b"c");
        }
        assert_eq!((tap.bytes, tap.copies), (17, 3));
    }
}
