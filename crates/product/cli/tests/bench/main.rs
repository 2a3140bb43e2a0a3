//! `longshore bench`: figures, verification, and how it ends when something goes wrong.

#![forbid(unsafe_code)]

mod local;
mod support;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::server::Server;
use serde_json::Value;

use support::{Desk, Running, namespace, serve, unit, urls};

const MEMORY: &str = "v,backend=mem,size=8M";

/// Starts a run, and waits until the server has worked for it.
fn under_way(desk: &Desk, server: &Server, url: &str) -> Running {
    let used = || server.process().cpu_time().unwrap();
    let enough = used() + Duration::from_millis(200);
    let run = desk.start(url, "--time 60s --warmup 0s --output json");
    let end = Instant::now() + Duration::from_secs(60);
    while used() < enough {
        assert!(Instant::now() < end, "nothing is measured");
        thread::sleep(Duration::from_millis(20));
    }
    run
}

fn number(json: &Value, path: &str) -> f64 {
    let value = json.pointer(path).and_then(Value::as_f64);
    value.unwrap_or_else(|| panic!("no number at {path}: {json}"))
}

#[test]
fn the_keys_that_scripts_rely_on_are_there() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    let pid = server.pid();
    for url in urls(&server) {
        let words = format!(
            "--rw randread --bs 4k --iodepth 32 --sessions 2 --time 1s --warmup 50ms \
             --server-pid {pid} --output json"
        );
        let json = desk.bench(&url, &words).good().json();
        for path in [
            "/iops",
            "/bytes_per_second",
            "/latency_ns/mean",
            "/latency_ns/p50",
            "/latency_ns/p99",
            "/latency_ns/p99_9",
            "/latency_ns/max",
            "/client_cpu_us_per_op",
            "/server_cpu_us_per_op",
        ] {
            assert!(number(&json, path) > 0.0, "{path}: {json}");
        }
        let part = |path: &str| json.pointer(path).expect("a figure or null").as_f64();
        let parts = part("/server_user_us_per_op").zip(part("/server_system_us_per_op"));
        // A run so short may pass between two ticks.
        if let Some((user, system)) = parts {
            let sum = number(&json, "/server_cpu_us_per_op");
            assert!(user >= 0.0 && system >= 0.0, "{json}");
            assert!((user + system - sum).abs() < 1e-6 * sum, "{json}");
        }
        let ratio = number(&json, "/bytes_per_second") / number(&json, "/iops");
        assert!((ratio - 4096.0).abs() < 1e-3, "{json}");
        assert_eq!(json["sessions"], 2);
        assert_eq!(json["block_size"], 512);
    }
}

#[test]
fn a_sweep_has_a_point_for_each_pair_and_a_picture() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    let plot = desk.path("sweep.svg");
    let words = format!("--bs 512,4k --iodepth 1..4 --operations 200 --output json --plot {plot}");
    let json = desk.bench(&unit(&server, 0), &words).good().json();
    let points = json["points"].as_array().unwrap();
    assert_eq!(points.len(), 6);
    assert!(points.iter().all(|point| point["operations"] == 200));
    assert_eq!(points[5]["iodepth"], 4);
    assert!(desk.text("sweep.svg").contains("</svg>"));
    let csv = desk.bench(&unit(&server, 0), "--operations 10 --output csv");
    let csv = csv.good().stdout;
    assert_eq!(csv.lines().count(), 2);
    assert!(csv.starts_with("url,rw,bs,iodepth,"));
}

#[test]
fn what_is_written_and_read_at_random_is_verified() {
    let desk = Desk::new();
    for block_size in [512, 4096] {
        let server = serve(&[&format!("{MEMORY},block-size={block_size}")]);
        for url in urls(&server) {
            let words = "--rw randrw --bs 4k/70:64k/30 --iodepth 16 --sessions 2 \
                         --operations 1500 --verify --output json";
            let json = desk.bench(&url, words).good().json();
            assert_eq!(json["operations"], 1500);
            assert_eq!(json["verify"]["faults"], 0, "{json}");
            assert_eq!(json["verify"]["read_back_complete"], true);
            assert!(number(&json, "/verify/blocks_good") > 500.0, "{json}");
            assert!(number(&json, "/read/iops") > 0.0);
            assert!(number(&json, "/write/iops") > 0.0);
        }
    }
}

#[test]
fn every_way_of_moving_bytes_moves_the_right_ones() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    for url in urls(&server) {
        for way in [
            "--send copy --receive buffered",
            "--send gather --receive direct --header-digest crc32c --data-digest crc32c",
            "--send zerocopy --zerocopy-threshold 4k",
            "--send zerocopy --zerocopy-threshold 4k --data-digest crc32c",
            "--flow-control off --spin",
        ] {
            let words = format!(
                "--rw randrw --bs 512/40:4k/40:256k/20 --iodepth 8 --operations 400 --verify \
                 --output json {way}"
            );
            let json = desk.bench(&url, &words).good().json();
            assert_eq!(json["verify"]["faults"], 0, "{way}: {json}");
        }
    }
}

#[test]
fn blocks_that_were_changed_behind_the_back_of_the_run_are_found() {
    const BLOCK: u64 = 512;
    let desk = Desk::new();
    let path = desk.path("disk");
    let server = serve(&[&format!("v,backend=file,size=1M,path={path}")]);
    for url in urls(&server) {
        let fill = "--rw write --bs 64k --size 1m --verify";
        desk.bench(&url, fill).good();
        let only = "--verify-only --bs 64k --output json";
        let json = desk.bench(&url, only).good().json();
        assert_eq!(json["verify"]["blocks_good"], 2048);
        let disk = OpenOptions::new().read(true).write(true).open(&path);
        let disk = disk.unwrap();
        let mut block = [0; 512];
        disk.read_exact_at(&mut block, 3 * BLOCK).unwrap();
        disk.write_all_at(&block, 5 * BLOCK).unwrap();
        disk.read_exact_at(&mut block, 7 * BLOCK).unwrap();
        // What a run writes differs from run to run, and may itself be zero there.
        let torn_at = (256..512).find(|at| block[*at] != 0).unwrap();
        disk.write_all_at(&[0; 256], 7 * BLOCK + 256).unwrap();
        let found = desk.bench(&url, "--verify-only --bs 512 --continue-on-error");
        let error = found.refused(1);
        assert!(error.contains("misplaced write at block 5"), "{error}");
        assert!(error.contains("found generation 1 of block 3"), "{error}");
        assert!(error.contains("torn write at block 7"), "{error}");
        let torn = format!("up to byte {torn_at} and zeros behind it");
        assert!(error.contains(&torn), "{error}");
        let other = "--verify-only --bs 64k --seed 2 --output json";
        let json = desk.bench(&url, other).good().json();
        assert_eq!(json["verify"]["blocks_good"], 0);
    }
}

#[test]
fn a_rate_is_kept_and_both_latencies_are_told() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    let words = "--rate 500 --iodepth 4 --operations 500 --warmup 0s --output json";
    let json = desk.bench(&unit(&server, 0), words).good().json();
    assert_eq!(json["operations"], 500);
    let elapsed = number(&json, "/elapsed_s");
    assert!((0.95..30.0).contains(&elapsed), "{json}");
    let service = number(&json, "/service_latency_ns/max");
    assert!(service > 0.0 && number(&json, "/latency_ns/max") >= service);
}

#[test]
fn jobs_share_the_queues_of_their_maps() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    for url in urls(&server) {
        let words = "--map default=1,read=2 --job readers,rw=randread,bs=4k,numjobs=8 \
                     --job writer,rw=write,bs=256k,iodepth=4 --time 1s --output json";
        let json = desk.bench(&url, words).good().json();
        assert_eq!(json["sessions"], 3);
        assert_eq!(json["jobs"][0]["name"], "readers");
        assert!(number(&json, "/jobs/0/iops") > 0.0);
        assert!(number(&json, "/jobs/1/bytes_per_second") > 0.0);
    }
}

#[test]
fn a_comparison_alternates_and_tells_ratios() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    let [iscsi, nvme] = urls(&server);
    let pid = server.pid();
    let words = format!(
        "--vs {nvme} --rounds 2 --time 1s --server-pid {pid} --server-pid {pid} --output json"
    );
    let json = desk.bench(&iscsi, &words).good().json();
    let sides = json["points"][0]["sides"].as_array().unwrap();
    assert_eq!(sides.len(), 2);
    assert_eq!(sides[1]["rounds"].as_array().unwrap().len(), 2);
    for figure in [
        "iops",
        "latency_mean_ns",
        "client_cpu_us_per_op",
        "server_cpu_us_per_op",
    ] {
        for value in ["median", "min", "max"] {
            assert!(number(&sides[1], &format!("/ratio/{figure}/{value}")) > 0.0);
        }
    }
    let words = format!("--vs {nvme} --rounds 1 --time 1s");
    let text = desk.bench(&iscsi, &words).good().stdout;
    assert!(text.contains("1 / 2"), "{text}");
}

#[test]
fn a_signal_ends_the_run_and_what_was_measured_is_printed() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    for (url, signal, status) in [
        (unit(&server, 0), "INT", 130),
        (namespace(&server, 0), "TERM", 143),
    ] {
        let run = under_way(&desk, &server, &url);
        run.signal(signal);
        assert_eq!(run.end(), status, "{}", desk.text("stderr"));
        let json: Value = serde_json::from_str(&desk.text("stdout")).unwrap();
        assert_eq!(json["interrupted"], true);
        assert!(number(&json, "/operations") > 0.0);
        assert!(number(&json, "/elapsed_s") < 30.0);
    }
}

#[test]
fn a_server_that_goes_away_is_told_with_what_was_done() {
    let desk = Desk::new();
    for protocol in 0..2 {
        let server = serve(&[MEMORY]);
        let url = urls(&server)[protocol].clone();
        let run = under_way(&desk, &server, &url);
        server.kill().unwrap();
        assert_eq!(run.end(), 1);
        let error = desk.text("stderr");
        assert!(error.contains("the connection was lost"), "{error}");
        assert!(error.contains("operations were measured"), "{error}");
        let json: Value = serde_json::from_str(&desk.text("stdout")).unwrap();
        assert!(json["lost"].is_string());
        assert!(number(&json, "/operations") > 0.0);
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_advice() {
    let desk = Desk::new();
    let server = serve(&[
        MEMORY,
        "r,backend=mem,size=1M,read-only",
        "b,backend=mem,size=1M,block-size=4096",
        "n,backend=null,size=1T",
    ]);
    let url = unit(&server, 0);
    for words in ["--rw trim", "--iodepth 0", "--vs ftp://a/b", "--plot a.gif"] {
        let error = desk.bench(&url, words).refused(2);
        assert!(error.contains("error:"), "{words}: {error}");
    }
    let error = desk.bench("ftp://a/b", "").refused(2);
    assert!(error.contains("iscsi://"), "{error}");
    for (url, words, advice) in [
        (&url, "--server-pid 4194305", "check that it is running"),
        (&url, "--span 16m", "--span reaches beyond the end"),
        (&url, "--bs 1m --span 4k", "smaller than one operation"),
        (&url, "--verify --data discard", "--data discard"),
        (&url, "--threads 2", "--sessions"),
        (&unit(&server, 1), "--rw randwrite", "write protected"),
        (&namespace(&server, 2), "--bs 512", "multiple of 4096"),
        (&unit(&server, 3), "--rw write --verify", "smaller --span"),
        (&unit(&server, 9), "", "9"),
    ] {
        let error = desk.bench(url, words).refused(1);
        assert!(error.contains(advice), "{words}: {error}");
    }
    let nobody = "iscsi://127.0.0.1:1/iqn.2026-11.local.longshore:default/0";
    let error = desk.bench(nobody, "").refused(1);
    assert!(error.contains("127.0.0.1:1"), "{error}");
    assert!(error.contains("check"), "{error}");
}

#[test]
fn a_picture_that_cannot_be_written_costs_no_measurement() {
    let desk = Desk::new();
    let server = serve(&[MEMORY]);
    let url = unit(&server, 0);
    let words = format!(
        "--iodepth 1..2 --time 1h --plot {}",
        desk.path("missing/a.svg")
    );
    let ran = desk.bench(&url, &words);
    assert_eq!(ran.stdout, "");
    let text = ran.refused(1);
    assert!(text.contains("missing/a.svg"), "{text}");
    // A run that fails leaves no empty picture.
    let plot = desk.path("b.svg");
    let words = format!("--iodepth 1..2 --operations 10 --offset 1T --plot {plot}");
    desk.bench(&url, &words).refused(1);
    assert!(!std::path::Path::new(&plot).exists());
}
