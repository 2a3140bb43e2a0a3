//! A server over remote volumes whose lines flip bits: it goes on, and so do its other volumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longshore_initiator::options::Options;
use longshore_initiator::volume::{RemoteVolume, block_on};
use longshore_reactor::Buffer;
use longshore_tests::proxy::{Direction, Protocol};
use longshore_tests::random::Random;
use longshore_tests::relay::{Flips, Passed, Relay, Tamper};
use longshore_tests::server::{Server, ServerBuilder, TARGET};
use longshore_tests::stop::StopsAtEnd;

use crate::{BOTH, honest_server, number_from, portal, seed, url};

/// Operations on the volume of memory beside the remote ones, each read back.
const NEIGHBOUR_OPERATIONS: u8 = 200;

/// Connections that each line has to damage before the test is over.
const DAMAGES: u64 = 3;

const LIMIT: Duration = Duration::from_secs(120);

/// A line that is good until it is told to flip bits.
struct Line {
    relay: Relay,
    is_bad: Arc<AtomicBool>,
    /// Connections that began while it was bad.
    damaged: Arc<AtomicU64>,
}

impl Line {
    fn to(server: &Server, protocol: Protocol, seed: u64) -> Self {
        let is_bad = Arc::new(AtomicBool::new(false));
        let damaged = Arc::new(AtomicU64::new(0));
        let (bad, connections) = (Arc::clone(&is_bad), Arc::clone(&damaged));
        let relay = Relay::start(portal(server, protocol), move |direction| {
            let number = match direction {
                Direction::ToServer if bad.load(Ordering::SeqCst) => {
                    connections.fetch_add(1, Ordering::SeqCst)
                }
                _ => connections.load(Ordering::SeqCst),
            };
            let mut random =
                Random::new(seed ^ number << 1 ^ u64::from(direction == Direction::ToClient));
            let spacing = 256 << random.below(6);
            let mut flips = Flips::new(random.next(), spacing);
            let bad = Arc::clone(&bad);
            Box::new(move |bytes: &[u8]| {
                if bad.load(Ordering::SeqCst) {
                    flips.pass(bytes)
                } else {
                    Passed::On(bytes.to_vec())
                }
            })
        })
        .expect("a relay");
        Self {
            relay,
            is_bad,
            damaged,
        }
    }
}

fn options() -> Options {
    let mut options = Options::default();
    // Beyond the time-outs of the server itself, so that those count.
    options.timeouts.request = Duration::from_secs(30);
    options.timeouts.give_up = Duration::from_secs(30);
    options.volume.retry_for = Duration::from_secs(1);
    options.volume.close_wait = Duration::from_secs(1);
    options
}

fn open(server: &Server, protocol: Protocol, number: u32) -> RemoteVolume {
    let url = match protocol {
        Protocol::Iscsi => format!("iscsi://{}/{TARGET}/{number}", server.portal(0)),
        Protocol::NvmeTcp => format!(
            "nvme+tcp://{}/{}/{}",
            server.nvme(0),
            crate::SUBSYSTEM,
            number + 1
        ),
    };
    let url = url.parse().expect("a URL");
    RemoteVolume::open(&url, &options()).expect("the server is there")
}

/// Uses a remote volume until the end. Errors are expected.
fn use_remote(volume: &RemoteVolume, ended: &AtomicBool) {
    let mut offset = 0;
    while !ended.load(Ordering::SeqCst) {
        let (written, _) = block_on(volume.write(offset, Buffer::allocate(32 << 10), false));
        let (read, _) = block_on(volume.read(offset, Buffer::allocate(64 << 10)));
        let flushed = block_on(volume.flush());
        if written.is_err() || read.is_err() || flushed.is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        offset = (offset + (64 << 10)) % (2 << 20);
    }
}

/// The contents of the neighbour stay right, whatever happens to the others.
fn use_neighbour(volume: &RemoteVolume) {
    for number in 0..NEIGHBOUR_OPERATIONS {
        let mut buffer = Buffer::allocate(8192);
        buffer.fill(number);
        let offset = u64::from(number) * 8192;
        let (written, _) = block_on(volume.write(offset, buffer, number % 16 == 0));
        written.expect("memory takes it");
        let (read, buffer) = block_on(volume.read(offset, Buffer::allocate(8192)));
        read.expect("memory gives it back");
        assert!(buffer.iter().all(|byte| *byte == number));
    }
}

#[test]
fn a_server_over_lines_that_flip_bits_goes_on_and_its_other_volumes_do_not_notice() {
    let upstream = honest_server();
    let mut random = Random::new(seed());
    let damages = u64::try_from(number_from("LONGSHORE_FLIP_RUNS", 1)).unwrap() * DAMAGES;
    let lines = BOTH.map(|protocol| Line::to(&upstream, protocol, random.next()));
    // No digests: damaged bytes shall reach the machines.
    let server = ServerBuilder::new().volume("m,backend=mem,size=4M");
    let server = BOTH.iter().zip(&lines).zip(["iscsi", "nvme-tcp"]).fold(
        server,
        |server, ((protocol, line), backend)| {
            let url = url(*protocol, line.relay.address(), false);
            server.volume(&format!(
                "r{backend},backend={backend},url={url},queues=2,give-up=500ms"
            ))
        },
    );
    let mut server = server
        .iscsi()
        .nvme()
        .start()
        .expect("lines are good so far");
    let remotes = [1, 2].map(|number| open(&server, Protocol::Iscsi, number));
    let neighbours = BOTH.map(|protocol| open(&server, protocol, 0));
    for line in &lines {
        line.is_bad.store(true, Ordering::SeqCst);
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = StopsAtEnd(&ended);
        for volume in &remotes {
            scope.spawn(|| use_remote(volume, &ended));
        }
        let until = Instant::now() + LIMIT;
        let is_enough = || {
            let few = |line: &Line| line.damaged.load(Ordering::SeqCst) < damages;
            !lines.iter().any(few) || Instant::now() > until
        };
        loop {
            neighbours.iter().for_each(use_neighbour);
            assert_eq!(server.ended().unwrap(), None, "{}", server.log());
            if is_enough() {
                break;
            }
        }
        for line in &lines {
            line.is_bad.store(false, Ordering::SeqCst);
        }
    });
    for line in &lines {
        let damaged = line.damaged.load(Ordering::SeqCst);
        assert!(damaged >= damages, "{damaged} connections were damaged");
    }
    // Over good lines the remote volumes come back.
    for volume in &remotes {
        let until = Instant::now() + LIMIT;
        while block_on(volume.read(0, Buffer::allocate(4096))).0.is_err() {
            assert!(Instant::now() < until, "{}", server.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop((remotes, neighbours));
    let log = server.log();
    assert!(!log.contains("panicked"), "{log}");
    let stopped = server
        .stop(Duration::from_secs(60))
        .expect("it ends when asked to");
    assert!(matches!(stopped.code(), Some(0 | 1)), "{stopped}");
}
