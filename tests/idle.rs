//! A server that has nothing to do costs nothing to speak of.
//!
//! The bounds hold for two event loops and for pages of 4 KiB, so the tests ask for both: each event loop has memory of its
//! own, and a transparent huge page counts 2 MiB where a few KiB are used.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use longshore_reactor::affinity;
use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::nvme::{Host, HostOptions};
use longshore_tests::process::Process;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, program};
use rustix::thread::disable_transparent_huge_pages;

const SESSIONS: u16 = 100;
const WATCHED: Duration = Duration::from_secs(10);

/// 0.2 % of one core.
const CPU_LIMIT: Duration = Duration::from_millis(20);

/// Bytes of its own that a server may hold without peers, however it is built.
const OWN_LIMIT: u64 = 4 << 20;
/// Resident bytes of the same, with the pages that it uses of the program and libraries, if it is optimised. Others have
/// longer programs.
const RESIDENT_LIMIT: u64 = 10 << 20;
/// Bytes for each session or host, without those of the program.
const SESSION_LIMIT: u64 = 64 << 10;

#[test]
fn a_hundred_idle_sessions_use_next_to_no_cpu_and_little_memory() {
    watch("session", ServerBuilder::iscsi, |server| {
        (0..SESSIONS)
            .map(|isid| Initiator::log_in(server.portal(0), &Login::numbered(isid)).unwrap())
            .collect()
    });
}

#[test]
fn a_hundred_idle_hosts_use_next_to_no_cpu_and_little_memory() {
    // Each with an admin queue and an I/O queue.
    watch("host", ServerBuilder::nvme, |server| {
        (0..SESSIONS)
            .map(|_| Host::connect(server.nvme(0), &HostOptions::default()).unwrap())
            .collect()
    });
}

/// 0.1 % of one core, for a server whose metrics are read every five seconds.
const SCRAPED_FOR: Duration = Duration::from_secs(20);
const SCRAPE_INTERVAL: Duration = Duration::from_secs(5);
const SCRAPED_CPU_LIMIT: Duration = Duration::from_millis(20);

#[test]
fn a_server_whose_metrics_are_read_stays_idle_and_small() {
    let scratch = Scratch::new("scraped");
    let socket = scratch.join("s");
    let server = small()
        .volume("disk0,backend=null,size=1G")
        .iscsi()
        .argument("--socket")
        .argument(&socket.display().to_string())
        .start()
        .unwrap();
    let scrape = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("longshore_volume_up{volume=\"disk0\"} 1"),
            "{answer}"
        );
    };
    scrape();
    let process = server.process();
    process.wait_until_at_rest();
    let before = process.cpu_time().unwrap();
    let until = Instant::now() + SCRAPED_FOR;
    while Instant::now() < until {
        scrape();
        // Time is the subject, as above.
        std::thread::sleep(SCRAPE_INTERVAL);
    }
    let used = process.cpu_time().unwrap() - before;
    let resident = process.resident_bytes().unwrap();
    println!(
        "{used:.2?} CPU in {SCRAPED_FOR:?}, {} KiB resident, {} KiB of them its own",
        resident >> 10,
        process.own_bytes().unwrap() >> 10
    );
    assert!(used < SCRAPED_CPU_LIMIT, "{used:?} in {SCRAPED_FOR:?}");
    assert_small(process);
}

/// A server with at most two event loops and without transparent huge pages, which child processes inherit.
fn small() -> ServerBuilder {
    disable_transparent_huge_pages(true).unwrap();
    let cores = affinity::allowed_cores().unwrap();
    let cores: Vec<String> = cores.iter().take(2).map(ToString::to_string).collect();
    ServerBuilder::new()
        .argument("--cores")
        .argument(&cores.join(","))
}

/// Of a server without peers.
#[track_caller]
fn assert_small(process: Process) {
    let (own, resident) = (process.own_bytes(), process.resident_bytes());
    let (own, resident) = (own.unwrap(), resident.unwrap());
    assert!(own < OWN_LIMIT, "{own} bytes of its own");
    if program().components().all(|it| it.as_os_str() != "debug") {
        assert!(resident < RESIDENT_LIMIT, "{resident} bytes");
    }
}

/// Measures a server with peers that do nothing, on each engine.
fn watch<P>(
    peer: &str,
    listen: impl Fn(ServerBuilder) -> ServerBuilder,
    connect: impl Fn(&Server) -> Vec<P>,
) {
    for engine in ["io_uring", "epoll"] {
        let started = Instant::now();
        // An unused file is checked at intervals.
        let scratch = Scratch::new("idle");
        let file = scratch.join("disk1.img");
        let volume = small()
            .volume("disk0,backend=null,size=1G")
            .volume(&format!(
                "disk1,backend=file,path={},size=1M",
                file.display()
            ));
        let server = listen(volume)
            .argument("--engine")
            .argument(engine)
            .start()
            .unwrap();
        let start_time = started.elapsed();
        let process = server.process();
        assert_small(process);
        let alone = process.resident_bytes().unwrap();
        let alone_own = process.own_bytes().unwrap();
        let login_started = Instant::now();
        let peers = connect(&server);
        let login_time = login_started.elapsed() / u32::from(SESSIONS);
        process.wait_until_at_rest();
        let before = process.cpu_time().unwrap();
        // Time is the subject: what the server does meanwhile is measured.
        std::thread::sleep(WATCHED);
        let used = process.cpu_time().unwrap() - before;
        // Peers have the program run through more of its pages, too.
        let with_peers = process.own_bytes().unwrap();
        let each = with_peers.saturating_sub(alone_own) / u64::from(SESSIONS);
        println!(
            "{engine}: ready after {start_time:.1?}, login {login_time:.2?}, {used:.2?} CPU in \
             {WATCHED:?} with {SESSIONS} idle, {} KiB resident, {} KiB a {peer}",
            alone >> 10,
            each >> 10
        );
        assert!(used < CPU_LIMIT, "{engine}: {used:?} in {WATCHED:?}");
        assert!(each < SESSION_LIMIT, "{engine}: {each} bytes a {peer}");
        drop(peers);
    }
}
