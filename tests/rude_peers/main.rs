//! Peers that break the rules, on purpose or by accident. Each is answered or closed as RFC 7143
//! says, memory stays bounded, and a well-behaved session beside it does not notice.
#![allow(clippy::cast_possible_truncation)] // Numbers of tests are small.

mod commands;
mod load;
mod login;
mod noise;

use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::server::{Server, ServerBuilder};

/// A server with short limits, and a well-behaved session to it.
struct Scene {
    server: Server,
    healthy: Initiator,
    own_at_start: u64,
}

/// Limits that tests can reach.
const LIMITS: &str = "\
[limits]
login-timeout = \"10s\"
pending-logins = 64
nop-interval = 0
memory = \"64M\"
";

/// Those of a server that soon loses patience with a login.
const IMPATIENT: &str = "\
[limits]
login-timeout = \"1s\"
pending-logins = 64
nop-interval = 0
memory = \"64M\"
";

impl Scene {
    /// LUN 0 is 64 MiB of memory, LUN 1 a terabyte of nothing.
    fn new() -> Self {
        Self::with(LIMITS)
    }

    fn with(config: &str) -> Self {
        let server = ServerBuilder::new()
            .volume("memory,backend=mem,size=64M")
            .volume("nothing,backend=null,size=1T")
            .iscsi()
            .argument("--log-level")
            .argument("warn")
            .config(config)
            .start()
            .unwrap();
        let mut healthy = Initiator::ready(server.portal(0), &Login::numbered(999)).unwrap();
        let answer = healthy.command(0, &cdb::write_16(0, 8, false), Data::Out(&[7; 4096]));
        assert!(answer.unwrap().is_good());
        let own_at_start = server.process().own_bytes().unwrap();
        Self {
            server,
            healthy,
            own_at_start,
        }
    }

    /// Another session, ready for commands to both units.
    fn session(&self, isid: u16) -> Initiator {
        self.session_by(&Login::numbered(isid))
    }

    fn session_by(&self, login: &Login) -> Initiator {
        let mut session = Initiator::ready(self.server.portal(0), login).unwrap();
        session.become_ready(1).unwrap();
        session
    }

    /// A connection without login.
    fn connection(&self) -> Initiator {
        Initiator::connect(self.server.portal(0)).unwrap()
    }

    /// The well-behaved session works, its data is there, and it is answered soon.
    fn assert_others_do_not_notice(&mut self) {
        let mut took = Duration::ZERO;
        // A machine that stands still for a moment slows one read, not three.
        let is_soon = (0..3).any(|_| {
            let started = Instant::now();
            let answer = self
                .healthy
                .command(0, &cdb::read_16(0, 8), Data::In(4096))
                .unwrap();
            assert!(answer.is_good(), "{answer:?}");
            assert_eq!(answer.data, [7; 4096]);
            took = started.elapsed();
            took < Duration::from_secs(1)
        });
        assert!(
            is_soon,
            "reads beside the rude peer are slow, the last took {took:?}"
        );
    }

    /// Waits until the server has done all there is to do for now.
    fn wait_until_server_rests(&self) {
        self.server.process().wait_until_at_rest();
    }

    /// Memory of the server has not grown by more than `limit` bytes since the scene was set.
    fn assert_memory_grew_at_most(&self, limit: u64) {
        let now = self.server.process().own_bytes().unwrap();
        let grown = now.saturating_sub(self.own_at_start);
        assert!(grown <= limit, "memory grew by {} KiB", grown >> 10);
    }
}
