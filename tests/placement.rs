//! Where connections run: those that are busy do not stay together while another event loop has nothing to do.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longshore_nvme::host::commands::{self, Command};
use longshore_reactor::affinity;
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use longshore_tests::skip::skip;
use serde_json::Value;

const ENGINES: [&str; 2] = ["io_uring", "epoll"];
const LIMIT: Duration = Duration::from_secs(30);

/// How long connections may take to go where there is less to do, on a busy machine.
const SPREAD: Duration = Duration::from_secs(120);

const LENGTH: usize = 64 << 10;
const BLOCKS: u32 = 128;

/// A server with two event loops, and the file of its reports.
struct Watched {
    server: Server,
    scratch: Scratch,
}

impl Watched {
    /// `None`: there are no two cores.
    fn start(engine: &str, rebalance: bool) -> Option<Self> {
        let cores = affinity::allowed_cores().unwrap();
        let [one, two, ..] = cores[..] else {
            return None;
        };
        let scratch = Scratch::new("placement");
        let (cores, rebalance) = (format!("{one},{two}"), rebalance.to_string());
        let arguments = [
            ["--engine", engine],
            ["--cores", &cores],
            ["--rebalance", &rebalance],
        ];
        let builder = ServerBuilder::new()
            .volume("d,backend=mem,size=64M")
            .iscsi()
            .nvme()
            .reports_to(&scratch);
        let arguments = arguments.into_iter().flatten();
        let server = arguments
            .fold(builder, ServerBuilder::argument)
            .start()
            .unwrap();
        Some(Self { server, scratch })
    }

    fn report(&self) -> Value {
        report::of(&self.server, &self.scratch)
    }

    /// The event loop of each of these connections. Those that are just moving may be missing.
    fn shards(&self, peers: &[SocketAddr]) -> HashMap<SocketAddr, u64> {
        let report = self.report();
        let connections = report["connections"].as_array().unwrap().iter();
        let pairs = connections.map(|connection| {
            let peer = connection["peer"].as_str().unwrap().parse().unwrap();
            (peer, connection["shard"].as_u64().unwrap())
        });
        pairs.filter(|(peer, _)| peers.contains(peer)).collect()
    }
}

/// A peer that writes and reads, each time something else.
struct Worker {
    peer: SocketAddr,
    round: Box<dyn FnMut(usize) + Send>,
}

/// What a worker writes in turns. Made beforehand: workers are to keep the server busy, and not themselves.
fn patterns(number: usize) -> Vec<Vec<u8>> {
    (0..4).map(|round| pattern(number, round)).collect()
}

fn pattern(number: usize, round: usize) -> Vec<u8> {
    let byte = |at: usize| (number * 57 + round * 31 + at * 7 + (at >> 9) * 13) % 251;
    (0..LENGTH)
        .map(|at| u8::try_from(byte(at)).unwrap())
        .collect()
}

fn place(number: usize) -> u64 {
    u64::try_from(number).unwrap() * u64::from(BLOCKS)
}

fn initiator(server: &Server, number: usize) -> Worker {
    let login = Login::numbered(u16::try_from(number).unwrap());
    let mut host = Initiator::ready(server.portal(0), &login).unwrap();
    let peer = host.stream().local_addr().unwrap();
    let patterns = patterns(number);
    let round = move |round: usize| {
        let data = &patterns[round % patterns.len()];
        let write = cdb::write_16(place(number), BLOCKS, false);
        let answer = host.command(0, &write, Data::Out(data)).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        for _ in 0..8 {
            let read = cdb::read_16(place(number), BLOCKS);
            let answer = host.command(0, &read, Data::In(64 << 10)).unwrap();
            assert!(
                answer.is_good() && answer.data == *data,
                "initiator {number}"
            );
        }
    };
    Worker {
        peer,
        round: Box::new(round),
    }
}

fn host(server: &Server, number: usize) -> Worker {
    let options = HostOptions::numbered(u8::try_from(number).unwrap()).queues(1);
    let mut host = Host::connect(server.nvme(0), &options).unwrap();
    let peer = host.queues[0].stream().local_addr().unwrap();
    let blocks = blocks(place(number), BLOCKS);
    let patterns = patterns(number);
    let round = move |round: usize| {
        let data = &patterns[round % patterns.len()];
        let write: Command = commands::write(blocks, 0);
        host.io(&write, data).unwrap().expect_success();
        for _ in 0..8 {
            let answer = host.io(&commands::read(blocks), &[]).unwrap();
            assert!(answer.expect_success().data == *data, "host {number}");
        }
    };
    Worker {
        peer,
        round: Box::new(round),
    }
}

/// Those that are on the event loop with most of them; the others stay, and say nothing.
fn crowd(watched: &Watched, workers: Vec<Worker>) -> (Vec<Worker>, Vec<Worker>) {
    let peers: Vec<SocketAddr> = workers.iter().map(|worker| worker.peer).collect();
    let shards = watched.shards(&peers);
    assert_eq!(shards.len(), peers.len());
    let mut counts = BTreeMap::new();
    for shard in shards.values() {
        *counts.entry(*shard).or_insert(0) += 1;
    }
    let (crowded, _) = counts.into_iter().max_by_key(|(_, count)| *count).unwrap();
    workers
        .into_iter()
        .partition(|worker| shards[&worker.peer] == crowded)
}

fn spreads(engine: &str, connect: fn(&Server, usize) -> Worker) {
    let Some(watched) = Watched::start(engine, true) else {
        skip("there is one core only");
        return;
    };
    let all: Vec<Worker> = (1..=6)
        .map(|number| connect(&watched.server, number))
        .collect();
    let (busy, _silent) = crowd(&watched, all);
    let peers: Vec<SocketAddr> = busy.iter().map(|worker| worker.peer).collect();
    assert!(peers.len() >= 3);
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = busy
        .into_iter()
        .map(|mut worker| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                let mut round = 0;
                while !done.load(Ordering::Relaxed) {
                    (worker.round)(round);
                    round += 1;
                }
                // It still works where it is now.
                (worker.round)(round);
            })
        })
        .collect();
    let deadline = Instant::now() + SPREAD;
    loop {
        let shards = watched.shards(&peers);
        let on_first = shards.values().filter(|shard| **shard == 0).count();
        if shards.len() == peers.len() && on_first > 0 && on_first < peers.len() {
            break;
        }
        assert!(Instant::now() < deadline, "they stay: {shards:?}");
        thread::sleep(Duration::from_millis(20));
    }
    done.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(watched.server.stop(LIMIT).unwrap().success());
}

#[test]
fn busy_sessions_spread() {
    for engine in ENGINES {
        spreads(engine, initiator);
    }
}

#[test]
fn busy_queues_of_hosts_spread() {
    for engine in ENGINES {
        spreads(engine, host);
    }
}

#[test]
fn connections_stay_where_that_was_asked_for() {
    let Some(watched) = Watched::start("epoll", false) else {
        skip("there is one core only");
        return;
    };
    let all: Vec<Worker> = (1..=4).map(|n| initiator(&watched.server, n)).collect();
    let (busy, _silent) = crowd(&watched, all);
    let peers: Vec<SocketAddr> = busy.iter().map(|worker| worker.peer).collect();
    let until = Instant::now() + Duration::from_secs(2);
    let threads = busy.into_iter().map(|mut worker| {
        thread::spawn(move || {
            for round in 0.. {
                if Instant::now() >= until {
                    break;
                }
                (worker.round)(round);
            }
            worker
        })
    });
    let threads: Vec<_> = threads.collect();
    let _connected: Vec<Worker> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let shards = watched.shards(&peers);
    let first = shards[&peers[0]];
    assert!(shards.values().all(|shard| *shard == first), "{shards:?}");
}
