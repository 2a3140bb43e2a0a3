//! B goes and comes back while clients of A are at work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, signal};
use longshore_tests::stop::StopsAtEnd;

use crate::rig::{BOTH, Client, ENGINES, Protocol, over, pattern};

const SIZE: u64 = 16 << 20;
const WRITERS: u64 = 4;
/// What one writer has to itself.
const SHARE: u64 = SIZE / WRITERS;
const PIECE: usize = 16 << 10;
const PIECES: u64 = SHARE / 16_384;
const RESTARTS: usize = 3;

/// What a writer has done: the generation that each of its pieces has.
fn write_until(client: &Client, writer: u64, stop: &AtomicBool, progress: &AtomicU64) -> Vec<u8> {
    let mut generations = vec![0; usize::try_from(PIECES).unwrap()];
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        let piece = usize::try_from(round % PIECES).unwrap();
        let generation = u8::try_from(round / PIECES % 250 + 1).unwrap();
        let offset = writer * SHARE + u64::try_from(piece * PIECE).unwrap();
        client
            .write(offset, &pattern(offset, PIECE, generation), round % 16 == 0)
            .unwrap_or_else(|error| panic!("a pause, not an error: {error}"));
        generations[piece] = generation;
        if round % 8 == 7 {
            let found = client.read(offset, PIECE).expect("a pause, not an error");
            assert!(found == pattern(offset, PIECE, generation), "at {offset}");
        }
        if round % 64 == 63 {
            client.flush().expect("a pause, not an error");
        }
        round += 1;
        progress.fetch_add(1, Ordering::Relaxed);
    }
    generations
}

fn check(client: &Client, writer: u64, generations: &[u8]) {
    for (offset, generation) in (writer * SHARE..).step_by(PIECE).zip(generations) {
        let expected = match generation {
            0 => vec![0; PIECE],
            _ => pattern(offset, PIECE, *generation),
        };
        let found = client.read(offset, PIECE).unwrap();
        assert!(
            found == expected,
            "piece at {offset} is not of generation {generation}"
        );
    }
}

fn wait_for_progress(progress: &AtomicU64, operations: u64) {
    let (before, start) = (progress.load(Ordering::Relaxed), Instant::now());
    while progress.load(Ordering::Relaxed) < before + operations {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "clients are stuck"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

/// B, always at the same addresses.
struct Remote {
    server: Option<Server>,
    builder: ServerBuilder,
}

impl Remote {
    fn start(scratch: &Scratch) -> Self {
        let path = scratch.join("disk");
        let server = ServerBuilder::new()
            .volume(&format!(
                "f,backend=file,path={},size={SIZE}",
                path.display()
            ))
            .iscsi()
            .nvme()
            .start()
            .unwrap();
        let builder = ServerBuilder::new()
            .volume(&format!("f,backend=file,path={}", path.display()))
            .iscsi_at(server.portal(0), "")
            .nvme_at(server.nvme(0), "");
        Self {
            server: Some(server),
            builder,
        }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    fn kill_and_restart(&mut self, pause: Duration) {
        self.server.take().unwrap().kill().unwrap();
        thread::sleep(pause);
        self.server = Some(self.builder.clone().start().unwrap());
    }
}

fn restart_under_load(behind: Protocol, in_front: Protocol, engine: &str) {
    let scratch = Scratch::new("re-export");
    let mut remote = Remote::start(&scratch);
    let a = over(remote.server(), behind, "")
        .argument("--engine")
        .argument(engine)
        .start()
        .unwrap();
    let (stop, progress) = (AtomicBool::new(false), AtomicU64::new(0));
    let client = Client::new(&a, in_front);
    let done = thread::scope(|scope| {
        let (client, stop, progress) = (&client, &stop, &progress);
        let _stops = StopsAtEnd(stop);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write_until(client, writer, stop, progress)))
            .collect();
        for restart in 0..RESTARTS {
            wait_for_progress(progress, 200);
            remote.kill_and_restart(Duration::from_millis(if restart == 0 { 0 } else { 700 }));
        }
        wait_for_progress(progress, 200);
        stop.store(true, Ordering::Relaxed);
        writers
            .into_iter()
            .map(|writer| writer.join().unwrap())
            .collect::<Vec<_>>()
    });
    for (writer, generations) in (0..).zip(&done) {
        check(&client, writer, generations);
        check(&Client::new(remote.server(), behind), writer, generations);
    }
    assert!(!a.log().contains("operation failed"), "{}", a.log());
    assert!(!a.log().contains("panicked"), "{}", a.log());
}

#[test]
fn clients_of_iscsi_over_iscsi_see_a_pause_and_no_error() {
    restart_under_load(BOTH[0], BOTH[0], ENGINES[0]);
}

#[test]
fn clients_of_nvme_over_nvme_see_a_pause_and_no_error() {
    restart_under_load(BOTH[1], BOTH[1], ENGINES[0]);
}

#[test]
fn clients_of_nvme_over_iscsi_see_a_pause_and_no_error() {
    restart_under_load(BOTH[0], BOTH[1], ENGINES[1]);
}

#[test]
fn clients_of_iscsi_over_nvme_see_a_pause_and_no_error() {
    restart_under_load(BOTH[1], BOTH[0], ENGINES[1]);
}

#[test]
fn a_server_that_stalls_for_a_while_is_a_pause() {
    for behind in BOTH {
        let scratch = Scratch::new("re-export");
        let remote = Remote::start(&scratch);
        let a = over(remote.server(), behind, "").start().unwrap();
        let client = Client::new(&a, behind);
        client.write(0, &pattern(0, PIECE, 1), false).unwrap();
        thread::scope(|scope| {
            let pid = remote.server().pid();
            signal(pid, "STOP").unwrap();
            let start = Instant::now();
            let stalled = scope.spawn(move || {
                thread::sleep(Duration::from_secs(2));
                signal(pid, "CONT")
            });
            client.write(0, &pattern(0, PIECE, 2), true).unwrap();
            assert!(start.elapsed() > Duration::from_secs(1), "it was stalled");
            stalled.join().unwrap().unwrap();
        });
        assert!(client.read(0, PIECE).unwrap() == pattern(0, PIECE, 2));
    }
}
