//! Servers that break the rules, and lines that damage bytes: no client of ours ends by a signal or a
//! panic, none hangs beyond its time-outs, and the other volumes of a process are served on.
//!
//! - [`acts`]: a rude thing to do with one PDU of a server, by byte offsets of the standards.
//! - [`steps`]: each of them at the steps of a conversation, against the library: discovery, attaching, operations,
//!   the end.
//! - [`flips`]: every verb of the command behind a relay that flips bits.
//! - [`serving`]: a server over remote volumes whose lines flip bits.
//!
//! Seeds are printed, and taken from `LONGSHORE_SEED`. `LONGSHORE_RUDE_STEPS` and `LONGSHORE_FLIP_RUNS` make the
//! suites longer.

mod acts;
mod flips;
mod serving;
mod steps;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use longshore_tests::proxy::Protocol;
use longshore_tests::random::Random;
use longshore_tests::server::{Server, ServerBuilder, TARGET};

const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

const BOTH: [Protocol; 2] = [Protocol::Iscsi, Protocol::NvmeTcp];

/// A server of a few megabytes of memory.
fn honest_server() -> Server {
    let server = ServerBuilder::new().volume("m,backend=mem,size=4M");
    server.iscsi().nvme().start().expect("start a server")
}

fn portal(server: &Server, protocol: Protocol) -> std::net::SocketAddr {
    match protocol {
        Protocol::Iscsi => server.portal(0),
        Protocol::NvmeTcp => server.nvme(0),
    }
}

/// The first volume at an address. Digests are asked for where `digests` says so.
fn url(protocol: Protocol, address: std::net::SocketAddr, digests: bool) -> String {
    let digests = if digests {
        "?header_digest=crc32c&data_digest=crc32c"
    } else {
        ""
    };
    match protocol {
        Protocol::Iscsi => format!("iscsi://{address}/{TARGET}/0{digests}"),
        Protocol::NvmeTcp => format!("nvme+tcp://{address}/{SUBSYSTEM}/1{digests}"),
    }
}

fn number_from(variable: &str, usual: usize) -> usize {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number"))
}

/// The seed of a run, printed.
fn seed() -> u64 {
    let seed = std::env::var("LONGSHORE_SEED")
        .map_or_else(|_| Random::seed_from_clock(), |text| text.parse().unwrap());
    println!("LONGSHORE_SEED={seed}");
    seed
}

/// Runs all of them, a few at a time: most of the time they wait.
fn side_by_side<T: Sync>(jobs: &[T], at_a_time: usize, run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                    run(job);
                }
            });
        }
    });
}
