//! Metrics and `top` against what a load has counted itself.

use std::process::Stdio;
use std::thread;

use longshore_tests::api::{VerbResult, verb};
use longshore_tests::initiator::{Data, cdb};
use longshore_tests::nvme::blocks;
use serde_json::json;

use crate::rig::{Change, Hand, Rig, SUBSYSTEM, TARGET, ask_scsi, wait_for};

/// A sample of `/metrics`: of the family, with all of these labels.
pub fn metric(text: &str, family: &str, labels: &[(&str, &str)]) -> f64 {
    let samples = text.lines().filter(|line| {
        let name = line.split(['{', ' ']).next();
        let has = |&(label, value): &(&str, &str)| line.contains(&format!("{label}=\"{value}\""));
        name == Some(family) && labels.iter().all(has)
    });
    samples
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Bytes that a volume has read and written.
fn bytes(rig: &Rig, volume: &str) -> (f64, f64) {
    let text = rig.ask("GET", "/metrics", None).expect_success().body;
    let of = |family| metric(&text, family, &[("volume", volume)]);
    (
        of("longshore_volume_read_bytes_total"),
        of("longshore_volume_written_bytes_total"),
    )
}

/// How often statistics were asked for.
fn looks(rig: &Rig) -> f64 {
    let text = rig.ask("GET", "/metrics", None).expect_success().body;
    let route = [("route", "/api/v1/statistics")];
    metric(&text, "longshore_api_request_seconds_count", &route)
}

/// Two per cent of what was counted.
fn agrees(found: f64, counted: f64) -> bool {
    (found - counted).abs() <= counted * 0.02
}

#[test]
fn metrics_and_top_agree_with_the_bytes_that_a_load_has_counted() {
    let rig = Rig::start("");
    let keys = json!({"backend": "mem", "size": "4M"});
    for change in [
        Change::CreateVolume("v1", keys),
        Change::CreateTarget(TARGET),
        Change::CreateTarget(SUBSYSTEM),
        Change::Map(TARGET, "v1", 0),
        Change::Map(SUBSYSTEM, "v1", 0),
    ] {
        rig.make(Hand::Http, &change);
    }
    let (mut initiator, mut host) = (rig.initiator(TARGET, 1), rig.host(SUBSYSTEM, 1));
    // Reads a quarter of what it writes.
    let mut load = || {
        let (mut read, mut written) = (0.0, 0.0);
        for round in 0..64 {
            let lba = round * 32;
            let cdb = cdb::write_16(lba, 32, false);
            let (answer, _) = ask_scsi(&mut initiator, &cdb, Data::Out(&[1; 16_384]));
            assert!(answer.is_good(), "{answer:?}");
            host.write(blocks(lba, 16), &[2; 8_192])
                .unwrap()
                .expect_success();
            written += 24_576.0;
            let (answer, _) = ask_scsi(&mut initiator, &cdb::read_16(lba, 8), Data::In(4096));
            assert_eq!(answer.data.len(), 4096);
            let answer = host.read(blocks(lba, 4)).unwrap().expect_success();
            assert_eq!(answer.data.len(), 2048);
            read += 6_144.0;
        }
        (read, written)
    };
    // What waits at a new session is taken, and counts as well.
    load();
    let url = format!("http://{}", rig.api);
    let token = rig.path("state/admin-token");
    let words = [
        "top",
        "--once",
        "--output",
        "json",
        "--interval",
        "5s",
        "--server",
        &url,
        "--token-file",
        &token,
    ];
    // `top` looks twice. On a machine that stands still between, it may have looked again before the load was through.
    for _ in 0..5 {
        let before = looks(&rig);
        let mut command = verb(&rig.socket(), &words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let top = command.spawn().unwrap();
        wait_for("the first look", || looks(&rig) > before);
        let (read_before, written_before) = bytes(&rig, "v1");
        let (read, written) = load();
        wait_for("the bytes in the metrics", || {
            let now = bytes(&rig, "v1");
            agrees(now.0 - read_before, read) && agrees(now.1 - written_before, written)
        });
        let was_in_time = looks(&rig) < before + 1.5;
        let outcome = VerbResult::from(top.wait_with_output().unwrap()).expect(0);
        if !was_in_time {
            continue;
        }
        let rates = outcome.json();
        let seconds = rates["seconds"].as_f64().unwrap();
        let mut volumes = rates["volumes"].as_array().unwrap().iter();
        let volume = volumes.find(|volume| volume["name"] == "v1").unwrap();
        let in_all = |name: &str| volume[name].as_f64().unwrap() * seconds;
        assert!(agrees(in_all("read-bytes"), read), "{read} {volume}");
        assert!(
            agrees(in_all("written-bytes"), written),
            "{written} {volume}"
        );
        // Nothing is counted twice, or goes on.
        thread::sleep(std::time::Duration::from_millis(1100));
        let now = bytes(&rig, "v1");
        assert!(agrees(now.0 - read_before, read), "{now:?}");
        return;
    }
    panic!("the load was never through between two looks of top");
}
