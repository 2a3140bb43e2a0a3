//! Every verb of the command over a line that flips bits in both directions: it ends, by itself, with success or with
//! an error.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longshore_tests::proxy::{Direction, Protocol};
use longshore_tests::random::Random;
use longshore_tests::relay::{Flips, Relay};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, program};

use crate::{BOTH, honest_server, number_from, portal, seed, side_by_side, url};

/// How long a run may take. Its time-outs are far below.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs of each verb over each protocol in an ordinary run of the tests; `LONGSHORE_FLIP_RUNS`: more.
const RUNS: usize = 1;

/// What is run. `URL` stands for the volume, `PORTAL` for its server, `FILE` for a local file.
const VERBS: [&str; 7] = [
    "discover PORTAL",
    "info URL",
    "copy URL FILE",
    "copy FILE URL",
    "bench URL --time 200ms --iodepth 8 --rw randread --bs 4k",
    "bench URL --time 200ms --iodepth 8 --rw randwrite --bs 64k",
    "probe URL --time 1s --write 0+1m",
];

/// Time limits of every command that talks to a server: connecting, requests, giving up.
type Times = [&'static str; 3];

/// Where the line is bad, nothing is worth waiting for.
const SHORT: Times = ["1s", "500ms", "1s"];
/// Where everything is to succeed, even on a machine that stands still for a while.
const LONG: Times = ["60s", "60s", "60s"];

#[derive(Clone, Debug)]
struct Run {
    verb: &'static str,
    protocol: Protocol,
    digests: bool,
    seed: u64,
    /// On average one bit in so many bytes.
    spacing: u64,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Failure,
}

impl Run {
    fn drawn(verb: &'static str, protocol: Protocol, random: &mut Random) -> Self {
        Self {
            verb,
            protocol,
            digests: random.below(2) == 0,
            seed: random.next(),
            // From one in 128 bytes, which spoils the login, to one in half a megabyte.
            spacing: 128 << random.below(13),
        }
    }

    fn run(&self, server: &Server, [connect, request, give_up]: Times) -> End {
        let Self { seed, spacing, .. } = *self;
        let relay = Relay::start(portal(server, self.protocol), move |direction| {
            let mark = match direction {
                Direction::ToServer => 0,
                Direction::ToClient => u64::MAX,
            };
            Box::new(Flips::new(seed ^ mark, spacing))
        })
        .expect("a relay");
        let scratch = Scratch::new("flips");
        let file = scratch.join("file");
        if self.verb.starts_with("copy FILE") {
            let file = File::create(&file).expect("create a file");
            file.set_len(4 << 20).expect("make it long");
        }
        let url = url(self.protocol, relay.address(), self.digests);
        let words = self.verb.split(' ').map(|word| match word {
            "URL" => url.clone(),
            "PORTAL" => relay.address().to_string(),
            "FILE" => file.display().to_string(),
            word => word.to_owned(),
        });
        let errors = scratch.join("stderr");
        let mut child = Command::new(program())
            .args(words)
            .args(["--connect-timeout", connect])
            .args(["--request-timeout", request])
            .args(["--give-up", give_up])
            .env("STATE_DIRECTORY", scratch.join("state"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&errors).expect("create a file"))
            .spawn()
            .expect("start longshore");
        let until = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = child.try_wait().expect("wait for it") {
                break status;
            }
            if Instant::now() > until {
                child.kill().expect("it is ours");
                child.wait().expect("it was killed");
                panic!("{self:?} does not end");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let text = std::fs::read_to_string(&errors).unwrap_or_default();
        assert_eq!(status.signal(), None, "{self:?}: {text}");
        assert!(!text.contains("panicked"), "{self:?}: {text}");
        match status.code() {
            Some(0) => End::Success,
            Some(1) => End::Failure,
            code => panic!("{self:?} ended with {code:?}: {text}"),
        }
    }
}

#[test]
fn every_verb_survives_a_line_that_flips_bits() {
    let server = honest_server();
    let mut random = Random::new(seed());
    let runs = number_from("LONGSHORE_FLIP_RUNS", RUNS);
    let jobs: Vec<Run> = (0..runs)
        .flat_map(|_| VERBS)
        .flat_map(|verb| BOTH.map(|protocol| (verb, protocol)))
        .map(|(verb, protocol)| Run::drawn(verb, protocol, &mut random))
        .collect();
    let failures = std::sync::atomic::AtomicUsize::new(0);
    side_by_side(&jobs, 4, |run| {
        if run.run(&server, SHORT) == End::Failure {
            failures.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    println!(
        "{} runs, {failures:?} of them ended with an error",
        jobs.len()
    );
}

/// The words above are right: over a line that flips nothing, every verb succeeds.
#[test]
fn every_verb_succeeds_over_a_line_that_flips_nothing() {
    let server = honest_server();
    let jobs: Vec<Run> = VERBS
        .into_iter()
        .flat_map(|verb| BOTH.map(|protocol| (verb, protocol)))
        .map(|(verb, protocol)| Run {
            verb,
            protocol,
            digests: true,
            seed: 1,
            spacing: 1 << 50,
        })
        .collect();
    side_by_side(&jobs, 4, |run| {
        assert_eq!(run.run(&server, LONG), End::Success, "{run:?}");
    });
}
