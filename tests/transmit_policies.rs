//! Transmit policies as peers see them: answers come, whole and all of them, whatever the policy is and
//! whenever it changes.

use std::io;
use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::report;
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};

/// All policies, with what else makes a difference.
const POLICIES: &[&str] = &[
    "auto",
    "nodelay",
    "nodelay --send turn",
    "nagle",
    "nagle --send turn",
    "adaptive-nagle",
    "adaptive-nagle --nagle-threshold 0",
    "adaptive-nagle --nagle-threshold 1 --nagle-margin 0",
    "adaptive-nagle --nagle-threshold 4 --nagle-margin 2 --nagle-cycles corrected",
    "adaptive-nagle --nagle-threshold infinite",
];

/// How long a signal may take to have its effect, on a machine that is busy with other tests.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

fn volumes() -> ServerBuilder {
    ServerBuilder::new()
        .volume("memory,backend=mem,size=16M")
        .iscsi()
        .nvme()
}

fn serve(policy: &str) -> Server {
    let words = format!("--transmit {policy}");
    let words = words.split_whitespace();
    words
        .fold(volumes(), ServerBuilder::argument)
        .start()
        .unwrap()
}

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i * 31 + seed * 7 + i / 251) % 256).unwrap())
        .collect()
}

/// Sends so many reads of a block each with one send, and takes all answers.
fn read_at_once(initiator: &mut Initiator, count: usize) -> io::Result<Vec<Vec<u8>>> {
    let reads: Vec<_> = (0..count)
        .map(|n| {
            let cdb = cdb::read_16(n as u64, 1);
            initiator.command_pdu(0, &cdb, Data::In(512))
        })
        .collect();
    let bytes: Vec<u8> = reads
        .iter()
        .flat_map(|read| read.to_bytes(false, false))
        .collect();
    initiator.send_bytes(&bytes)?;
    let answers = reads.iter().map(|read| {
        let answer = initiator.finish(read.initiator_task_tag(), &[])?;
        assert!(answer.is_good(), "{answer:?}");
        Ok(answer.data)
    });
    answers.collect()
}

#[test]
fn reads_and_writes_are_served_under_each_policy_over_iscsi() {
    for policy in POLICIES {
        let server = serve(policy);
        let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
        for blocks in [1, 17, 256, 2048] {
            let data = pattern(blocks as usize * 512, blocks as usize);
            let write = cdb::write_16(0, blocks, false);
            let answer = initiator.command(0, &write, Data::Out(&data)).unwrap();
            assert!(answer.is_good(), "{policy}: {answer:?}");
            let length = u32::try_from(data.len()).unwrap();
            let read = cdb::read_16(0, blocks);
            let answer = initiator.command(0, &read, Data::In(length)).unwrap();
            assert_eq!(answer.data, data, "{policy}: {blocks} blocks");
        }
        let written = pattern(2048 * 512, 2048);
        for (n, data) in read_at_once(&mut initiator, 100)
            .unwrap()
            .iter()
            .enumerate()
        {
            assert_eq!(data[..], written[n * 512..][..512], "{policy}: block {n}");
        }
        initiator.log_out().unwrap();
    }
}

#[test]
fn reads_and_writes_are_served_under_each_policy_over_nvme() {
    for policy in POLICIES {
        let server = serve(policy);
        let mut host = Host::connect(server.nvme(0), &HostOptions::default()).unwrap();
        for (seed, count) in [1, 8, 17, 256, 2048].into_iter().enumerate() {
            let at = blocks(64, count);
            let data = pattern(count as usize * 512, seed);
            host.write(at, &data).unwrap().expect_success();
            let read = host.read(at).unwrap().expect_success();
            assert_eq!(read.data, data, "{policy}: {count} blocks");
        }
    }
}

#[test]
fn nothing_is_kept_from_a_peer_that_acknowledges_late() {
    for policy in POLICIES {
        let server = serve(policy);
        let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
        for _ in 0..10 {
            // Acknowledgements wait for up to 40 ms then, unless something is sent.
            rustix::net::sockopt::set_tcp_quickack(initiator.stream(), false).unwrap();
            for count in [1, 2, 3, 33] {
                let answers = read_at_once(&mut initiator, count).unwrap();
                assert_eq!(answers.len(), count, "{policy}");
            }
        }
    }
}

/// A server whose configuration file can change.
struct Changing {
    server: Server,
    file: std::path::PathBuf,
    statistics: std::path::PathBuf,
    /// Removes the folder in the end.
    _folder: Scratch,
}

impl Changing {
    fn start(engine: &str, arguments: &[&str]) -> Self {
        let folder = Scratch::new("transmit");
        let (file, statistics) = (folder.join("server.toml"), folder.join("statistics"));
        std::fs::write(&file, format!("[engine]\n{engine}\n")).unwrap();
        let mut builder = volumes()
            .argument("--config")
            .argument(&file.display().to_string())
            .argument("--statistics")
            .argument(&statistics.display().to_string());
        for argument in arguments {
            builder = builder.argument(argument);
        }
        Self {
            server: builder.start().unwrap(),
            file,
            statistics,
            _folder: folder,
        }
    }

    /// Has other settings taken up; the log has to say so.
    fn change(&self, engine: &str, says: &str) {
        let before = self.server.log().len();
        std::fs::write(&self.file, format!("[engine]\n{engine}\n")).unwrap();
        self.server.reload().unwrap();
        wait_for(|| {
            self.server
                .log()
                .get(before..)?
                .contains(says)
                .then_some(())
        });
    }

    /// The report, without white space.
    fn report(&self) -> String {
        report::ask(self.server.pid(), &self.statistics).to_string()
    }
}

fn wait_for<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + SIGNAL_LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "nothing came of a signal");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn sighup_changes_the_policy_of_connections_that_are_up() {
    let changing = Changing::start("", &[]);
    let mut initiator = Initiator::ready(changing.server.portal(0), &Login::default()).unwrap();
    assert!(changing.report().contains("\"policy\":\"auto\""));
    for policy in ["nagle", "adaptive-nagle", "nodelay", "auto"] {
        let line = format!("transmit = \"{policy}\"");
        // The others come with words about their sends, and the log quotes values with spaces.
        let shown = match policy {
            "auto" => "now=auto".to_owned(),
            _ => format!("now=\"{policy},"),
        };
        changing.change(&line, &shown);
        assert_eq!(read_at_once(&mut initiator, 50).unwrap().len(), 50);
        let report = changing.report();
        let wanted = format!("\"policy\":\"{policy}\"");
        assert!(report.contains(&wanted), "{report}");
    }
}

#[test]
fn a_connection_that_is_busy_enters_nagle_and_its_statistics_say_so() {
    let engine = "transmit = \"adaptive-nagle\"\nnagle-threshold = 4\nnagle-margin = 0";
    let changing = Changing::start(engine, &[]);
    let mut initiator = Initiator::ready(changing.server.portal(0), &Login::default()).unwrap();
    changing.report();
    for _ in 0..4 {
        read_at_once(&mut initiator, 64).unwrap();
    }
    let report = changing.report();
    assert!(report.contains("\"nagle\":true"), "{report}");
    assert!(report.contains("\"reads\":256,"), "{report}");
    assert!(!report.contains("\"idles\":0,"), "{report}");
    // Reading has not begun the count again.
    assert!(changing.report().contains("\"reads\":256,"));
}

#[test]
fn a_file_with_a_mistake_leaves_everything_as_it_is() {
    let changing = Changing::start("transmit = \"nagle\"", &[]);
    changing.change("transmit = \"fast\"", "SIGHUP: all settings are unchanged");
    let _initiator = Initiator::ready(changing.server.portal(0), &Login::default()).unwrap();
    assert!(changing.report().contains("\"policy\":\"nagle\""));
}

#[test]
fn the_command_line_wins_over_a_file_that_changes() {
    let changing = Changing::start("", &["--transmit", "nodelay"]);
    changing.change(
        "transmit = \"nagle\"\nsend = \"turn\"",
        "now=\"nodelay, a send for each turn\"",
    );
}
