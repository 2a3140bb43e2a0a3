//! The log's lines about peers, and their number.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{HostOptions, SUBSYSTEM};
use longshore_tests::pdu::{self, Pdu, opcode};
use longshore_tests::server::{Server, ServerBuilder, TARGET};

/// A target with an account and a subsystem, each for one named client.
const CONFIG: &str = r#"
[[target]]
name = "iqn.2026-11.local.longshore:default"

[[target.access]]
initiators = ["iqn.2026-11.local.longshore:friend"]
accounts = [{ user = "alice", secret = "correct-horse-battery" }]

[[subsystem]]
nqn = "nqn.2026-11.local.longshore:default"

[[subsystem.access]]
hosts = ["nqn.2026-11.local.longshore:friend"]
"#;

fn guarded() -> Server {
    ServerBuilder::new()
        .volume("disk0,backend=mem,size=1M")
        .config(CONFIG)
        .iscsi()
        .nvme()
        .start()
        .unwrap()
}

/// Ends a server and gives its log.
fn stop(server: Server) -> String {
    let (status, log) = server.stop_and_read(Duration::from_secs(60)).unwrap();
    assert_eq!(status.code(), Some(0));
    log
}

/// The line with this message, once it is there.
fn line(server: &Server, message: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let log = server.log();
        let mut complete = log
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        if let Some(line) = complete.find(|line| line.contains(message)) {
            return line.to_owned();
        }
        assert!(Instant::now() < deadline, "{message} is missing in\n{log}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[track_caller]
fn has_all(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
}

/// How many events with this message there were: lines, and those that lines say were held back.
fn count(log: &str, message: &str) -> (usize, u64) {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(message)).collect();
    let held_back: u64 = lines
        .iter()
        .filter_map(|line| line.split_once("repeated="))
        .map(|(_, rest)| rest.split(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let told = lines
        .iter()
        .filter(|line| !line.contains("repeated="))
        .count();
    (lines.len(), held_back + u64::try_from(told).unwrap())
}

/// Logs in with a wrong answer to the challenge; the login status.
fn log_in_as(server: &Server, initiator: &str, user: &str) -> u16 {
    let mut connection = Initiator::connect(server.portal(0)).unwrap();
    let mut ask = |keys: &[(&str, &str)]| {
        // The security stage (0), to be left for the operational one (1).
        let request = Pdu::new(opcode::LOGIN_REQUEST)
            .immediate()
            .set_byte(1, 0x81)
            .set_word(8, 0x8012_3456)
            .with_data(&pdu::text(keys));
        connection.send(&request).unwrap();
        let response = connection.receive().unwrap();
        u16::from_be_bytes([response.bhs[36], response.bhs[37]])
    };
    let names = [
        ("InitiatorName", initiator),
        ("SessionType", "Normal"),
        ("TargetName", TARGET),
        ("AuthMethod", "CHAP"),
    ];
    for keys in [&names[..], &[("CHAP_A", "5")]] {
        let status = ask(keys);
        if status != 0 {
            return status;
        }
    }
    let response = format!("0x{}", "5a".repeat(16));
    ask(&[("CHAP_N", user), ("CHAP_R", &response)])
}

#[test]
fn a_refused_login_names_peer_initiator_user_and_target_and_no_secret() {
    let server = guarded();
    let target = format!("target={TARGET}");
    let friend = "iqn.2026-11.local.longshore:friend";
    assert_eq!(log_in_as(&server, friend, "mallory"), 0x0201);
    let text = line(&server, "user=mallory");
    has_all(
        &text,
        &[
            " WARN ",
            "login rejected peer=127.0.0.1:",
            &format!("initiator={friend}"),
            &target,
            "status=\"0201 ",
            "reason=\"the CHAP name or response is wrong\"",
        ],
    );
    assert!(!text.contains("5a5a"), "{text}");
    let stranger = "iqn.2026-11.local.longshore:stranger";
    assert_eq!(log_in_as(&server, stranger, "alice"), 0x0202);
    let text = line(&server, &format!("initiator={stranger}"));
    has_all(
        &text,
        &[
            &target,
            "status=\"0202 ",
            "reason=\"no rule of the target names this initiator",
        ],
    );
}

#[test]
fn a_refused_connect_names_peer_host_host_identifier_and_subsystem() {
    let server = guarded();
    let stranger = HostOptions::numbered(7);
    let (_queue, answer) = stranger.try_connect(server.nvme(0), 0, 0xffff).unwrap();
    assert!(!answer.status.is_success());
    has_all(
        &line(&server, "NVMe Connect refused"),
        &[
            " WARN ",
            "peer=127.0.0.1:",
            "host=nqn.2026-11.local.longshore:tests-7",
            "host_id=5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a07",
            &format!("subsystem={SUBSYSTEM}"),
            "reason=\"no rule of the subsystem names this host",
        ],
    );
}

#[test]
fn names_with_control_characters_stay_in_their_place() {
    let server = guarded();
    let forged = "iqn.x\n2026-11-23T00:00:00Z ERROR forged user=root \u{1b}[2J\"";
    let status = log_in_as(&server, forged, "alice");
    assert_ne!(status, 0);
    let text = line(&server, "login rejected");
    has_all(
        &text,
        &["initiator=\"iqn.x\\n2026-11-23T00:00:00Z ERROR forged user=root \\u{1b}[2J\\\"\""],
    );
    let log = stop(server);
    assert!(!log.contains('\u{1b}'), "{log}");
    for line in log.lines() {
        let level = line.split_ascii_whitespace().nth(1);
        assert!(line.starts_with("20") && level != Some("ERROR"), "{line}");
    }
}

#[test]
fn ten_thousand_writes_to_a_full_disk_are_eleven_lines_that_count_them() {
    const WRITES: u64 = 10_000;
    let server = ServerBuilder::new()
        .volume("full,backend=file,path=/dev/full,size=1M")
        .volume("full2,backend=file,path=/dev/full,size=1M")
        .iscsi()
        .start()
        .unwrap();
    let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
    let started = Instant::now();
    for _ in 0..WRITES {
        let write = cdb::write_16(0, 1, false);
        let answer = initiator.command(0, &write, Data::Out(&[1; 512])).unwrap();
        assert_eq!(answer.sense_code(), Some((7, 0x27, 7)));
    }
    // Another disk is another matter.
    initiator.become_ready(1).unwrap();
    let write = cdb::write_16(0, 1, false);
    let answer = initiator.command(1, &write, Data::Out(&[1; 512])).unwrap();
    assert_eq!(answer.sense_code(), Some((7, 0x27, 7)));
    drop(initiator);
    let periods = usize::try_from(started.elapsed().as_secs() / 10).unwrap() + 1;
    let log = stop(server);
    let (lines, events) = count(&log, "operation failed");
    assert_eq!(events, WRITES + 1, "{log}");
    // Ten, one that counts, one of the other disk; and two for each further period.
    assert!(lines <= 12 + 2 * periods, "{lines}\n{log}");
    assert!(log.contains("volume=full2"), "{log}");
}

#[test]
fn refusals_of_one_peer_are_counted_and_json_stays_valid() {
    const LOGINS: u64 = 300;
    let server = ServerBuilder::new()
        .volume("disk0,backend=mem,size=1M")
        .config(CONFIG)
        .argument("--log-format")
        .argument("json")
        .iscsi()
        .nvme()
        .start()
        .unwrap();
    for _ in 0..LOGINS {
        let status = log_in_as(&server, "iqn.2026-11.local.longshore:no\"body", "alice");
        assert_ne!(status, 0);
    }
    let log = stop(server);
    let mut by_message: BTreeMap<String, u64> = BTreeMap::new();
    let mut lines = 0;
    for line in log.lines() {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let message = event["message"].as_str().unwrap();
        if message.starts_with("login rejected") {
            lines += 1;
            assert_eq!(event["initiator"], "iqn.2026-11.local.longshore:no\"body");
            let count = event["repeated"].as_u64().unwrap_or(1);
            *by_message.entry("login rejected".to_owned()).or_default() += count;
        }
    }
    assert_eq!(by_message["login rejected"], LOGINS, "{log}");
    assert!(lines < 40, "{lines}\n{log}");
}
