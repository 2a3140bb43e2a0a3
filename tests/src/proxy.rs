//! A relay between an initiator and a server that knows where PDUs begin and end, in both protocols
//! and both directions, and breaks a connection exactly there: at the boundary before the Nth PDU, or
//! after so many bytes of it.
//!
//! ```text
//! initiator ──► Proxy ──► server      PDUs are counted by direction, over all connections
//!           ◄──       ◄──
//! ```
//!
//! PDUs are cut out of the stream by byte offsets of the standards ([`framing`]), with no code of the
//! product. A PDU is passed on when all of it has come.

pub mod framing;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use framing::{Digests, Framing};

/// How often a thread looks whether it should end.
const TICK: Duration = Duration::from_millis(50);

/// Which protocol is spoken through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// PDUs of RFC 7143.
    Iscsi,
    NvmeTcp,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// Both, in the order of arrays here.
pub const DIRECTIONS: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

impl Direction {
    fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

/// How a connection is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Both sides are closed in order: what was passed on before arrives.
    Close,
    /// Both sides are reset: what was passed on before and not read yet may be lost.
    Reset,
    /// Nothing passes any more in either direction, and nothing is closed.
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Whose PDUs are counted.
    pub direction: Direction,
    /// The PDU that does not pass as a whole, from 0 on, over all connections since the proxy was
    /// started or [`Proxy::reset_counts`] was called.
    pub pdu: u64,
    /// Bytes of it that still pass. Of a PDU that is not longer, all but the last pass.
    pub bytes: usize,
    /// What then happens to its connection.
    pub how: How,
}

/// A listening proxy. Closes everything when it goes away.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    protocol: Protocol,
    ended: AtomicBool,
    refusing: AtomicBool,
    /// Nanoseconds by which each PDU is held up, by direction.
    delays: [AtomicU64; 2],
    connections: AtomicUsize,
    plan: Mutex<Plan>,
    /// Connections that are open, each with the way to the initiator and the one to the server.
    open: Mutex<Vec<Arc<Pair>>>,
}

/// What is counted, and what is to be broken. In one lock, so that exactly one PDU is the Nth.
#[derive(Debug, Default)]
struct Plan {
    counts: [u64; 2],
    cut: Option<Cut>,
    done: u64,
}

/// One connection through the proxy.
#[derive(Debug)]
struct Pair {
    client: TcpStream,
    server: TcpStream,
    digests: Digests,
    silent: AtomicBool,
    broken: AtomicBool,
}

impl Proxy {
    /// Listens on a free loopback port in front of `server`.
    pub fn start(server: SocketAddr, protocol: Protocol) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            protocol,
            ended: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            delays: Default::default(),
            connections: AtomicUsize::new(0),
            plan: Mutex::default(),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = std::thread::spawn(move || accepting.accept(&listener));
        Ok(Self {
            address,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where initiators connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks one connection at this place; later ones are left alone. Counts go on.
    pub fn arm(&self, cut: Cut) {
        self.shared.plan().cut = Some(cut);
    }

    /// Breaks nothing any more.
    pub fn disarm(&self) {
        self.shared.plan().cut = None;
    }

    /// Whether a cut that was armed is still to come.
    pub fn is_armed(&self) -> bool {
        self.shared.plan().cut.is_some()
    }

    /// How many cuts have happened.
    pub fn cuts(&self) -> u64 {
        self.shared.plan().done
    }

    /// PDUs passed on so far to the server and to initiators.
    pub fn counts(&self) -> [u64; 2] {
        self.shared.plan().counts
    }

    /// Counts from 0 again.
    pub fn reset_counts(&self) {
        self.shared.plan().counts = [0; 2];
    }

    /// Connections taken so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Holds up each PDU of this direction.
    pub fn delay(&self, direction: Direction, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.shared.delays[direction.index()].store(nanos, Ordering::SeqCst);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refusing.store(refuse, Ordering::SeqCst);
    }

    /// Breaks all connections there are, wherever they are.
    pub fn break_all(&self, how: How) {
        let pairs: Vec<Arc<Pair>> = self.shared.open().drain(..).collect();
        for pair in pairs {
            pair.do_break(how);
            if how == How::Silence {
                self.shared.open().push(pair);
            }
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.break_all(How::Close);
        // The acceptor waits in `accept`; a connection wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("no panics while it is held")
    }

    fn open(&self) -> MutexGuard<'_, Vec<Arc<Pair>>> {
        self.open.lock().expect("no panics while it is held")
    }

    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            self.connections.fetch_add(1, Ordering::SeqCst);
            if self.refusing.load(Ordering::SeqCst) {
                continue;
            }
            // From here on `break_all` waits, so that it meets whatever the server has seen.
            let mut open = self.open();
            // A server that does not listen shows as a connection that is closed at once.
            let Ok(server) = TcpStream::connect(self.server) else {
                continue;
            };
            for stream in [&client, &server] {
                let _ = stream.set_nodelay(true);
                let _ = stream.set_read_timeout(Some(TICK));
                let _ = stream.set_write_timeout(Some(TICK));
            }
            let pair = Arc::new(Pair {
                client,
                server,
                digests: Digests::default(),
                silent: AtomicBool::new(false),
                broken: AtomicBool::new(false),
            });
            open.push(Arc::clone(&pair));
            drop(open);
            for direction in DIRECTIONS {
                let shared = Arc::clone(self);
                let pair = Arc::clone(&pair);
                std::thread::spawn(move || {
                    shared.relay(&pair, direction);
                    shared.open().retain(|other| !Arc::ptr_eq(other, &pair));
                });
            }
        }
    }

    /// Passes on one direction of a connection until it ends.
    fn relay(&self, pair: &Pair, direction: Direction) {
        let (from, to) = match direction {
            Direction::ToServer => (&pair.client, &pair.server),
            Direction::ToClient => (&pair.server, &pair.client),
        };
        let mut framing = Framing::new(self.protocol);
        let mut buffer = vec![0; 256 << 10];
        while !self.ended.load(Ordering::SeqCst) {
            if pair.silent.load(Ordering::SeqCst) && !pair.broken.load(Ordering::SeqCst) {
                std::thread::sleep(TICK);
                continue;
            }
            match read(from, &mut buffer) {
                Ok(Some(0)) | Err(_) => break,
                Ok(None) => {}
                Ok(Some(length)) => framing.push(&buffer[..length]),
            }
            while !pair.is_stopped()
                && let Some(length) = framing.next(&pair.digests)
            {
                let pdu = framing.take(length);
                if !self.pass(pair, direction, to, &pdu) {
                    return;
                }
            }
            if pair.broken.load(Ordering::SeqCst) {
                return;
            }
        }
        // The peer has closed: what it had begun to say is passed on, and the end of it.
        if !pair.is_stopped() {
            let rest = framing.take(framing.len());
            let _ = self.write(to, &rest, pair);
            let _ = to.shutdown(Shutdown::Write);
        }
    }

    /// Passes one PDU on, or breaks the connection there; whether the connection goes on.
    fn pass(&self, pair: &Pair, direction: Direction, to: &TcpStream, pdu: &[u8]) -> bool {
        let delay = self.delays[direction.index()].load(Ordering::SeqCst);
        if delay > 0 {
            std::thread::sleep(Duration::from_nanos(delay));
        }
        let cut = self.plan().count(direction);
        let Some(cut) = cut else {
            // A side that takes nothing any more shows to the other when it is read from.
            return self.write(to, pdu, pair).is_ok();
        };
        let bytes = cut.bytes.min(pdu.len() - 1);
        let _ = self.write(to, &pdu[..bytes], pair);
        pair.do_break(cut.how);
        cut.how == How::Silence
    }
}

impl Shared {
    /// Writes all of it, unless the connection is broken meanwhile.
    fn write(&self, mut to: &TcpStream, mut bytes: &[u8], pair: &Pair) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if is_timeout(&error) && !pair.is_stopped() => {
                    if self.ended.load(Ordering::SeqCst) {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// None when nothing has come for a while.
fn read(mut from: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    match from.read(buffer) {
        Ok(length) => Ok(Some(length)),
        Err(error) if is_timeout(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), TimedOut | WouldBlock | Interrupted)
}

/// Has the stream reset when the last of the threads that use it lets it go, and wakes them.
fn reset(stream: &TcpStream) {
    // Both fail only for a stream that its peer has reset already.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
    let _ = stream.shutdown(Shutdown::Read);
}

impl Plan {
    /// Counts one PDU; the cut, when this is where it is.
    fn count(&mut self, direction: Direction) -> Option<Cut> {
        let count = &mut self.counts[direction.index()];
        let number = *count;
        *count += 1;
        let cut = self
            .cut
            .take_if(|cut| cut.direction == direction && cut.pdu == number)?;
        self.done += 1;
        Some(cut)
    }
}

impl Pair {
    fn is_stopped(&self) -> bool {
        self.silent.load(Ordering::SeqCst) || self.broken.load(Ordering::SeqCst)
    }

    fn do_break(&self, how: How) {
        match how {
            How::Silence => self.silent.store(true, Ordering::SeqCst),
            How::Close => {
                self.broken.store(true, Ordering::SeqCst);
                // Either may be closed by its peer already.
                let _ = self.client.shutdown(Shutdown::Both);
                let _ = self.server.shutdown(Shutdown::Both);
            }
            How::Reset => {
                self.broken.store(true, Ordering::SeqCst);
                for stream in [&self.client, &self.server] {
                    reset(stream);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PDU of NVMe/TCP whose bytes are all `mark`, but for its length.
    fn pdu(mark: u8, length: u8) -> Vec<u8> {
        let mut pdu = vec![mark; usize::from(length)];
        pdu[4..8].copy_from_slice(&u32::from(length).to_le_bytes());
        pdu
    }

    /// A proxy in front of a listener, and one connection through it, both ends.
    fn connection() -> (Proxy, TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap(), Protocol::NvmeTcp).unwrap();
        let (client, server) = connect(&proxy, &listener);
        (proxy, listener, client, server)
    }

    fn connect(proxy: &Proxy, listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(proxy.address()).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            let limit = Some(Duration::from_secs(5));
            stream.set_read_timeout(limit).unwrap();
        }
        (client, server)
    }

    fn read_all(mut stream: &TcpStream) -> (Vec<u8>, Option<io::ErrorKind>) {
        let mut bytes = Vec::new();
        let error = stream.read_to_end(&mut bytes).err();
        (bytes, error.map(|error| error.kind()))
    }

    #[test]
    fn pdus_pass_in_both_directions_and_are_counted() {
        let (proxy, _listener, mut client, mut server) = connection();
        client.write_all(&pdu(1, 16)).unwrap();
        client.write_all(&pdu(2, 24)).unwrap();
        let mut bytes = [0; 40];
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[16..], pdu(2, 24));
        server.write_all(&pdu(3, 8)).unwrap();
        client.read_exact(&mut bytes[..8]).unwrap();
        assert_eq!(proxy.counts(), [2, 1]);
    }

    #[test]
    fn a_pdu_waits_until_all_of_it_has_come() {
        let (proxy, _listener, mut client, server) = connection();
        client.write_all(&pdu(1, 16)[..15]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(proxy.counts(), [0, 0]);
        // What an initiator leaves unfinished reaches the server as such.
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&server), (pdu(1, 16)[..15].to_vec(), None));
    }

    #[test]
    fn a_connection_is_closed_before_the_pdu_that_is_named() {
        let (proxy, _listener, mut client, server) = connection();
        proxy.arm(Cut {
            direction: Direction::ToServer,
            pdu: 2,
            bytes: 0,
            how: How::Close,
        });
        let stream = [pdu(1, 16), pdu(2, 16), pdu(3, 16)].concat();
        client.write_all(&stream).unwrap();
        assert_eq!(read_all(&server), (stream[..32].to_vec(), None));
        assert_eq!(read_all(&client), (Vec::new(), None));
        assert_eq!((proxy.cuts(), proxy.is_armed()), (1, false));
    }

    #[test]
    fn half_a_pdu_passes_before_a_reset() {
        let (proxy, _listener, client, mut server) = connection();
        proxy.arm(Cut {
            direction: Direction::ToClient,
            pdu: 0,
            bytes: 10,
            how: How::Reset,
        });
        server.write_all(&pdu(1, 16)).unwrap();
        let (bytes, error) = read_all(&client);
        assert_eq!(bytes, pdu(1, 16)[..10]);
        assert_eq!(error, Some(io::ErrorKind::ConnectionReset));
        assert_eq!(read_all(&server).1, Some(io::ErrorKind::ConnectionReset));
    }

    #[test]
    fn other_connections_go_on_when_one_falls_silent() {
        let (proxy, listener, mut client, server) = connection();
        proxy.arm(Cut {
            direction: Direction::ToServer,
            pdu: 0,
            bytes: 0,
            how: How::Silence,
        });
        client.write_all(&pdu(1, 16)).unwrap();
        let limit = Some(Duration::from_millis(200));
        server.set_read_timeout(limit).unwrap();
        assert_eq!(read_all(&server).1, Some(io::ErrorKind::WouldBlock));
        let (mut client, mut server) = connect(&proxy, &listener);
        client.write_all(&pdu(2, 16)).unwrap();
        server.read_exact(&mut [0; 16]).unwrap();
    }

    #[test]
    fn all_are_broken_and_new_ones_refused() {
        let (proxy, listener, client, _server) = connection();
        proxy.refuse(true);
        proxy.break_all(How::Close);
        assert_eq!(read_all(&client), (Vec::new(), None));
        let refused = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(read_all(&refused), (Vec::new(), None));
        proxy.refuse(false);
        let (mut client, mut server) = connect(&proxy, &listener);
        client.write_all(&pdu(2, 16)).unwrap();
        server.read_exact(&mut [0; 16]).unwrap();
        assert_eq!(proxy.connections(), 3);
    }
}
