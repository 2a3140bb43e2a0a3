//! What an engine costs, with nothing behind it: a server that answers each 48-byte request with a
//! response of fixed size, driven over loopback by one client thread.
//!
//! This is the floor under every target built on the reactor: the same bytes, the same system calls,
//! no protocol. A third variant, `io_uring+send`, queues its sends on the ring instead of calling
//! `sendmsg`, to tell whether that would pay.
//!
//! ```text
//! cargo run --release -p longshore-reactor --example echo_floor [MILLISECONDS]
//! ```
//! The server thread is pinned to the first core the process may use and the client to the last.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, types};
use longshore_reactor::{
    Engine, EngineChoice, EngineConfig, Event, SocketToken, Waker, affinity, socket,
};

const REQUEST_BYTES: usize = 48;
const RECEIVE_BYTES: usize = 64 << 10;

/// One row of the table.
#[derive(Clone, Copy)]
struct Load {
    connections: usize,
    /// Requests in flight on each connection.
    depth: usize,
    response_bytes: usize,
}

/// What a server did.
#[derive(Clone, Copy, Default)]
struct Work {
    operations: u64,
    system_calls: u64,
    processor_time: Duration,
}

/// A connection of the server: requests may be cut anywhere, responses may be sent in part.
struct Peer {
    socket: OwnedFd,
    /// Bytes of a request that has not come completely.
    partial: usize,
    /// Bytes of responses to be sent.
    owed: usize,
    gone: bool,
}

impl Peer {
    fn new(socket: OwnedFd) -> Self {
        socket::set_nodelay(&socket, true).expect("a TCP socket");
        Self {
            socket,
            partial: 0,
            owed: 0,
            gone: false,
        }
    }

    /// Receives all there is, and after a hang-up also the end. Returns the number of requests.
    fn receive(&mut self, hang_up: bool, buffer: &mut [u8], load: Load, work: &mut Work) -> usize {
        let mut requests = 0;
        loop {
            work.system_calls += 1;
            match socket::receive(&self.socket, &mut [IoSliceMut::new(buffer)]) {
                Ok(0) => self.gone = true,
                Ok(count) => {
                    let bytes = self.partial + count;
                    requests += bytes / REQUEST_BYTES;
                    self.partial = bytes % REQUEST_BYTES;
                    if hang_up || count == buffer.len() {
                        continue;
                    }
                }
                Err(error) => self.gone |= error.kind() != ErrorKind::WouldBlock,
            }
            self.owed += requests * load.response_bytes;
            return requests;
        }
    }

    fn send(&mut self, payload: &[u8], work: &mut Work) {
        while self.owed > 0 {
            work.system_calls += 1;
            let slice = [IoSlice::new(&payload[..self.owed.min(payload.len())])];
            match socket::send(&self.socket, &slice, false) {
                Ok(count) => self.owed -= count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.owed = 0,
            }
        }
    }
}

/// Answers until all connections are gone.
fn serve_with_engine(choice: EngineChoice, sockets: Vec<OwnedFd>, load: Load) -> Work {
    let waker = Waker::new().expect("an eventfd");
    let mut engine = Engine::new(choice, EngineConfig::default(), waker).expect("an engine");
    let mut peers: Vec<_> = sockets.into_iter().map(Peer::new).collect();
    for (token, peer) in (0..).zip(&peers) {
        engine
            .register(peer.socket.as_fd(), SocketToken(token))
            .expect("registers");
    }
    let (mut work, mut events) = (Work::default(), Vec::new());
    let (mut buffer, payload) = (vec![0; RECEIVE_BYTES], vec![0; 1 << 20]);
    let started = thread_time();
    while !peers.iter().all(|peer| peer.gone) {
        engine.wait(None, &mut events).expect("waits");
        for event in events.drain(..) {
            let Event::Socket { token, readiness } = event else {
                continue;
            };
            let peer = &mut peers[token.slot() as usize];
            if readiness.is_readable() {
                let hang_up = readiness.is_hang_up();
                work.operations += peer.receive(hang_up, &mut buffer, load, &mut work) as u64;
            }
            peer.send(&payload, &mut work);
        }
    }
    work.processor_time = thread_time() - started;
    work.system_calls += engine.counters().system_calls;
    work
}

/// The same with polls and sends on one ring: a turn is one `io_uring_enter` and the receives.
fn serve_with_queued_sends(sockets: Vec<OwnedFd>, load: Load) -> Work {
    const SEND: u64 = 1 << 32;
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4096)
        .build(256)
        .expect("a ring");
    let mut peers: Vec<_> = sockets.into_iter().map(Peer::new).collect();
    let payload = vec![0_u8; 1 << 20];
    let push = |ring: &mut IoUring, entry: io_uring::squeue::Entry| {
        // SAFETY: polls refer to no memory; sends refer to `payload`, which outlives the ring's last
        // completion: the loop ends when every connection is gone, and nothing writes to it.
        while unsafe { ring.submission().push(&entry) }.is_err() {
            ring.submit().expect("submits");
        }
    };
    for (index, peer) in (0..).zip(&peers) {
        let bits = u32::from((libc::POLLIN | libc::POLLRDHUP).cast_unsigned());
        let poll = opcode::PollAdd::new(types::Fd(peer.socket.as_raw_fd()), bits).multi(true);
        push(&mut ring, poll.build().user_data(index));
    }
    let (mut work, mut buffer) = (Work::default(), vec![0; RECEIVE_BYTES]);
    let mut sending = vec![false; peers.len()];
    let started = thread_time();
    while !peers.iter().all(|peer| peer.gone) {
        work.system_calls += 1;
        ring.submit_and_wait(1).expect("waits");
        let reaped: Vec<cqueue::Entry> = ring.completion().collect();
        for entry in reaped {
            let index = usize::try_from(entry.user_data() & 0xffff).expect("small");
            let peer = &mut peers[index];
            if entry.user_data() & SEND != 0 {
                sending[index] = false;
                peer.owed -= usize::try_from(entry.result()).unwrap_or(peer.owed);
            } else {
                let bits = u32::try_from(entry.result()).unwrap_or(u32::MAX);
                let hang_up = bits & u32::from(libc::POLLRDHUP.cast_unsigned()) != 0;
                work.operations += peer.receive(hang_up, &mut buffer, load, &mut work) as u64;
            }
            if peer.owed > 0 && !sending[index] && !peer.gone {
                sending[index] = true;
                let length = u32::try_from(peer.owed.min(payload.len())).expect("small");
                let fd = types::Fd(peer.socket.as_raw_fd());
                let send = opcode::Send::new(fd, payload.as_ptr(), length)
                    .flags(libc::MSG_NOSIGNAL)
                    .build();
                push(&mut ring, send.user_data(SEND | index as u64));
            }
        }
    }
    work.processor_time = thread_time() - started;
    work
}

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or(0),
        time.tv_nsec.try_into().unwrap_or(0),
    )
}

/// Keeps `depth` requests in flight on each connection until told to stop.
fn drive(address: SocketAddr, load: Load, stop: &AtomicBool) {
    let mut connections: Vec<_> = (0..load.connections)
        .map(|_| {
            let connection = TcpStream::connect(address).expect("connects");
            connection.set_nodelay(true).expect("a TCP socket");
            connection
        })
        .collect();
    let requests = vec![0; REQUEST_BYTES * load.depth];
    let mut responses = vec![0; load.response_bytes * load.depth];
    for connection in &mut connections {
        connection.write_all(&requests).expect("sends");
    }
    while !stop.load(Ordering::Relaxed) {
        for connection in &mut connections {
            // Whole responses only; whoever waits for one takes all that have come.
            let mut got = connection.read(&mut responses).expect("receives");
            while got % load.response_bytes != 0 {
                assert!(got > 0, "the server is gone");
                got += connection.read(&mut responses[got..]).expect("receives");
            }
            let answered = got / load.response_bytes;
            connection
                .write_all(&requests[..answered * REQUEST_BYTES])
                .expect("sends");
        }
    }
}

fn measure(variant: &str, load: Load, duration: Duration) -> (Work, Duration) {
    let cores = affinity::allowed_cores().expect("an affinity");
    let (first, last) = (cores[0], cores[cores.len() - 1]);
    let listen = socket::ListenOptions::default();
    let listener = socket::listen("127.0.0.1:0".parse().expect("an address"), listen);
    let listener = listener.expect("listens");
    let address = socket::local_address(&listener).expect("bound");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            affinity::pin_to_core(last).expect("an allowed core");
            drive(address, load, &stop);
        });
        let mut sockets = Vec::new();
        while sockets.len() < load.connections {
            match socket::accept(&listener) {
                Ok((socket, _)) => sockets.push(socket),
                Err(_) => std::thread::yield_now(),
            }
        }
        let server = scope.spawn(move || {
            affinity::pin_to_core(first).expect("an allowed core");
            match variant {
                "epoll" => serve_with_engine(EngineChoice::Epoll, sockets, load),
                "io_uring" => serve_with_engine(EngineChoice::IoUring, sockets, load),
                _ => serve_with_queued_sends(sockets, load),
            }
        });
        let started = Instant::now();
        std::thread::sleep(duration);
        stop.store(true, Ordering::Relaxed);
        client.join().expect("the client ends");
        let elapsed = started.elapsed();
        (server.join().expect("the server ends"), elapsed)
    })
}

fn main() {
    let duration = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);
    println!(
        "{:>5} {:>5} {:>9} {:>14} {:>10} {:>10} {:>9}",
        "conns", "depth", "response", "variant", "k ops/s", "CPU us/op", "calls/op"
    );
    for (connections, depth) in [(1, 1), (1, 32), (8, 4), (32, 1)] {
        for response_bytes in [560, 4144] {
            for variant in ["epoll", "io_uring", "io_uring+send"] {
                let load = Load {
                    connections,
                    depth,
                    response_bytes,
                };
                let (work, elapsed) = measure(variant, load, Duration::from_millis(duration));
                #[allow(clippy::cast_precision_loss)]
                let operations = work.operations.max(1) as f64;
                #[allow(clippy::cast_precision_loss)]
                let calls = work.system_calls as f64 / operations;
                println!(
                    "{connections:>5} {depth:>5} {response_bytes:>9} {variant:>14} {:>10.1} \
                     {:>10.2} {calls:>9.2}",
                    operations / elapsed.as_secs_f64() / 1e3,
                    work.processor_time.as_secs_f64() * 1e6 / operations,
                );
            }
        }
    }
}
