//! A server that has nothing to do costs nothing to speak of.

use std::time::{Duration, Instant};

use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::server::ServerBuilder;

const SESSIONS: u16 = 100;
const WATCHED: Duration = Duration::from_secs(10);

/// 0.2 % of one core.
const CPU_LIMIT: Duration = Duration::from_millis(20);

/// Bytes a server may hold without sessions, and for each of them.
const RESIDENT_LIMIT: u64 = 16 << 20;
const SESSION_LIMIT: u64 = 64 << 10;

#[test]
fn a_hundred_idle_sessions_use_next_to_no_cpu_and_little_memory() {
    for engine in ["io_uring", "epoll"] {
        let started = Instant::now();
        let server = ServerBuilder::new()
            .volume("disk0,backend=null,size=1G")
            .iscsi()
            .argument("--engine")
            .argument(engine)
            .start()
            .unwrap();
        let start_time = started.elapsed();
        let process = server.process();
        let alone = process.resident_bytes().unwrap();
        let login_started = Instant::now();
        let sessions: Vec<Initiator> = (0..SESSIONS)
            .map(|isid| Initiator::log_in(server.portal(0), &Login::numbered(isid)).unwrap())
            .collect();
        let login_time = login_started.elapsed() / u32::from(SESSIONS);
        std::thread::sleep(Duration::from_millis(500));
        let before = process.cpu_time().unwrap();
        std::thread::sleep(WATCHED);
        let used = process.cpu_time().unwrap() - before;
        let with_sessions = process.resident_bytes().unwrap();
        let each = with_sessions.saturating_sub(alone) / u64::from(SESSIONS);
        println!(
            "{engine}: ready after {start_time:.1?}, login {login_time:.2?}, {used:.2?} CPU in \
             {WATCHED:?} with {SESSIONS} sessions, {} KiB resident, {} KiB a session",
            alone >> 10,
            each >> 10
        );
        assert!(used < CPU_LIMIT, "{engine}: {used:?} in {WATCHED:?}");
        assert!(
            alone < RESIDENT_LIMIT,
            "{engine}: {alone} bytes without sessions"
        );
        assert!(each < SESSION_LIMIT, "{engine}: {each} bytes a session");
        drop(sessions);
    }
}
