//! A relay between a client and a server that changes bytes in either direction.
//!
//! ```text
//! client ──► Relay ──► server      each direction of each connection has a Tamper of its own
//!        ◄──       ◄──
//! ```
//!
//! [`proxy`](crate::proxy) breaks connections between PDUs that are all in order. A relay knows no
//! PDUs: a [`Tamper`] gets the bytes as they come, and decides what is sent on in their place.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::proxy::Direction;
use crate::random::Random;

/// How often a thread looks whether it should end.
const TICK: Duration = Duration::from_millis(20);

/// The bytes to send on, and the fate of the connection after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// This, and the connection goes on.
    On(Vec<u8>),
    /// This, and then both sides are closed.
    Last(Vec<u8>),
    /// This, and then nothing any more in this direction, while the connection stays.
    Silence(Vec<u8>),
    /// This, a number of times, for as long as the other side takes it, and then nothing any more.
    Repeated(Vec<u8>, usize),
}

/// Changes one direction of one connection.
pub trait Tamper: Send {
    fn pass(&mut self, bytes: &[u8]) -> Passed;
}

impl<F: FnMut(&[u8]) -> Passed + Send> Tamper for F {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        self(bytes)
    }
}

type MakeTamper = dyn Fn(Direction) -> Box<dyn Tamper> + Send + Sync;

/// A listening relay. Closes everything when it goes away.
pub struct Relay {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on a free loopback port in front of `server`. `tamper` is asked twice for each connection.
    ///
    /// # Errors
    /// There is no port.
    pub fn start(
        server: SocketAddr,
        tamper: impl Fn(Direction) -> Box<dyn Tamper> + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let ended = Arc::new(AtomicBool::new(false));
        let its_end = Arc::clone(&ended);
        let tamper: Arc<MakeTamper> = Arc::new(tamper);
        let acceptor = std::thread::spawn(move || accept(&listener, server, &tamper, &its_end));
        Ok(Self {
            address,
            ended,
            acceptor: Some(acceptor),
        })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // The acceptor waits in `accept`; a connection wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(
    listener: &TcpListener,
    server: SocketAddr,
    tamper: &Arc<MakeTamper>,
    ended: &Arc<AtomicBool>,
) {
    for client in listener.incoming().flatten() {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        // A server that does not listen shows as a connection that is closed at once.
        let Ok(server) = TcpStream::connect(server) else {
            continue;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_read_timeout(Some(TICK));
            let _ = stream.set_write_timeout(Some(TICK));
        }
        let pair = Arc::new((client, server));
        for direction in crate::proxy::DIRECTIONS {
            let (pair, ended) = (Arc::clone(&pair), Arc::clone(ended));
            let mut tamper = tamper(direction);
            std::thread::spawn(move || {
                let (client, server) = (&pair.0, &pair.1);
                match direction {
                    Direction::ToServer => relay(client, server, &mut *tamper, &ended),
                    Direction::ToClient => relay(server, client, &mut *tamper, &ended),
                }
                for stream in [client, server] {
                    let _ = stream.shutdown(Shutdown::Both);
                }
            });
        }
    }
}

/// Passes on one direction of a connection until it ends.
fn relay(mut from: &TcpStream, to: &TcpStream, tamper: &mut dyn Tamper, ended: &AtomicBool) {
    let mut buffer = vec![0; 64 << 10];
    let mut silent = false;
    while !ended.load(Ordering::SeqCst) {
        let length = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if is_timeout(&error) => continue,
            Err(_) => return,
        };
        if silent {
            continue;
        }
        let goes_on = match tamper.pass(&buffer[..length]) {
            Passed::On(bytes) => write(to, &bytes, ended),
            Passed::Last(bytes) => {
                let _ = write(to, &bytes, ended);
                return;
            }
            Passed::Silence(bytes) => {
                silent = true;
                write(to, &bytes, ended)
            }
            Passed::Repeated(bytes, times) => {
                silent = true;
                (0..times).try_for_each(|_| write(to, &bytes, ended))
            }
        };
        if goes_on.is_err() {
            return;
        }
    }
}

fn write(mut to: &TcpStream, mut bytes: &[u8], ended: &AtomicBool) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_timeout(&error) && !ended.load(Ordering::SeqCst) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::Interrupted
    )
}

/// Flips one bit now and then.
pub struct Flips {
    random: Random,
    /// On average one bit in so many bytes.
    spacing: u64,
    /// Bytes that pass before the next one.
    until: u64,
}

impl Flips {
    /// On average one flipped bit in `spacing` bytes; the seed decides which.
    pub fn new(seed: u64, spacing: u64) -> Self {
        let mut random = Random::new(seed);
        let until = random.below(2 * spacing);
        Self {
            random,
            spacing,
            until,
        }
    }
}

impl Tamper for Flips {
    fn pass(&mut self, bytes: &[u8]) -> Passed {
        let mut bytes = bytes.to_vec();
        let mut at = 0;
        while let Some(byte) = usize::try_from(self.until)
            .ok()
            .and_then(|until| bytes.get_mut(at + until))
        {
            *byte ^= 1 << self.random.below(8);
            at += usize::try_from(self.until).expect("it was in the buffer") + 1;
            self.until = self.random.below(2 * self.spacing);
        }
        self.until -= u64::try_from(bytes.len() - at).expect("lengths fit 64 bits");
        Passed::On(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flips_are_as_frequent_as_asked_for_however_the_bytes_are_cut() {
        let passed = |piece: usize| -> Vec<u8> {
            let mut flips = Flips::new(7, 100);
            let zeros = vec![0; 100_000];
            let passed = zeros.chunks(piece).map(|piece| match flips.pass(piece) {
                Passed::On(bytes) => bytes,
                other => panic!("{other:?}"),
            });
            passed.flatten().collect()
        };
        let whole = passed(100_000);
        let count = whole.iter().filter(|byte| **byte != 0).count();
        assert!((800..1200).contains(&count), "{count} of about 1,000");
        assert_eq!(whole, passed(1));
        assert_eq!(whole, passed(4093));
    }

    #[test]
    fn what_the_tamper_says_reaches_the_other_side() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(listener.local_addr().unwrap(), |direction| {
            Box::new(move |bytes: &[u8]| match direction {
                Direction::ToServer => Passed::On(bytes.iter().rev().copied().collect()),
                Direction::ToClient => Passed::Last(bytes[1..].to_vec()),
            })
        })
        .unwrap();
        let mut client = TcpStream::connect(relay.address()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"abc").unwrap();
        let mut heard = [0; 3];
        server.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"cba");
        server.write_all(b"xyz").unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"yz");
    }
}
