//! Files and block devices, measured like volumes of servers.

use std::fs;
use std::process::Command;

use longshore_tests::skip::skip;

use crate::support::{Desk, serve, unit};

const LENGTH: usize = 8 << 20;

fn file(desk: &Desk) -> String {
    fs::write(desk.path("image"), vec![7; LENGTH]).expect("write a file");
    desk.path("image")
}

#[test]
fn files_are_measured_as_volumes_are() {
    let desk = Desk::new();
    let file = file(&desk);
    for (engine, more) in [
        ("auto", "--rw randread --bs 4k --iodepth 8"),
        (
            "epoll",
            "--rw randrw --bs 4k/50:16k/50 --iodepth 4 --sessions 2",
        ),
        ("auto", "--rw randwrite --bs 512 --iodepth 300 --verify"),
        (
            "epoll",
            "--rw write --bs 64k --iodepth 2 --sessions 3 --verify",
        ),
        ("auto", "--rw randread --bs 4k --data discard --spin"),
        ("auto", "--rw randwrite --bs 4k --rate 10k"),
    ] {
        let words = format!("{more} --operations 2000 --engine {engine} --output json");
        let json = desk.bench(&file, &words).good().json();
        assert_eq!(json["protocol"], "file", "{json}");
        assert_eq!(json["url"], file.as_str());
        assert!(json["portal"].is_null());
        assert_eq!(json["negotiated"]["direct"], "false");
        if engine == "epoll" {
            assert_eq!(json["negotiated"]["engine"], "epoll");
        }
        assert_eq!(json["operations"], 2000, "{words}: {json}");
        assert!(json["latency_ns"]["p99"].as_f64().unwrap() > 0.0);
        if more.contains("--verify") {
            assert_eq!(json["verify"]["read_back_complete"], true, "{json}");
            assert_eq!(json["verify"]["faults"], 0);
        }
    }
    let text = desk.bench(&file, "--operations 100").good().stdout;
    assert!(text.contains("file through the page cache, "), "{text}");
    // Where the file system has no O_DIRECT it is refused, and said so.
    let ran = desk.bench(&file, "--operations 100 --direct");
    if ran.status == 0 {
        assert!(
            ran.stdout.contains("without the page cache (O_DIRECT)"),
            "{ran:?}"
        );
    } else {
        assert!(ran.stderr.contains("direct"), "{ran:?}");
    }
}

#[test]
fn reading_changes_nothing_and_needs_no_permission_to_write() {
    let desk = Desk::new();
    let file = file(&desk);
    let before = fs::metadata(&file).unwrap().modified().unwrap();
    desk.bench(&file, "--operations 500").good();
    desk.bench(&file, "--verify-only --rw randwrite").good();
    assert_eq!(fs::metadata(&file).unwrap().modified().unwrap(), before);
    assert!(fs::read(&file).unwrap() == vec![7; LENGTH]);
}

#[test]
fn a_file_that_a_server_has_is_read_and_not_written() {
    let desk = Desk::new();
    let file = file(&desk);
    let server = serve(&[&format!("v,backend=file,path={file}")]);
    let url = unit(&server, 0);
    let words = format!("--operations 500 --vs {file} --rounds 2 --output json");
    let json = desk.bench(&url, &words).good().json();
    let sides = &json["points"][0]["sides"];
    assert_eq!(sides[0]["protocol"], "iscsi", "{json}");
    assert_eq!(sides[1]["protocol"], "file");
    assert_eq!(sides[1]["url"], file.as_str());
    assert!(sides[1]["ratio"]["iops"]["median"].as_f64().unwrap() > 0.0);
    let text = desk
        .bench(&file, "--rw randwrite --operations 10")
        .refused(1);
    let process = format!("process {}", server.pid());
    assert!(text.contains(&process), "{text}");
    assert!(fs::read(&file).unwrap() == vec![7; LENGTH]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let desk = Desk::new();
    let uneven = desk.path("uneven");
    fs::write(&uneven, vec![7; 1000]).unwrap();
    let image = file(&desk);
    for (path, words, expected) in [
        (desk.path("none"), "", "no such file or device"),
        (uneven, "", "truncate --size=1024"),
        ("/dev/zero".to_owned(), "", "only regular files"),
        (
            image,
            "--sessions 4 --threads 2",
            "one thread for each session",
        ),
    ] {
        let words = format!("{words} --operations 10");
        let text = desk.bench(&path, &words).refused(1);
        assert!(text.contains(expected), "{text}");
    }
    let sparse = desk.path("sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 20).unwrap();
    let ran = desk.bench(&sparse, "--operations 10").good();
    assert!(ran.stderr.contains("are allocated"), "{ran:?}");
}

#[test]
fn block_devices_are_measured() {
    let desk = Desk::new();
    let file = file(&desk);
    let made = Command::new("losetup")
        .args(["--find", "--show", &file])
        .output();
    let device = match made {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .expect("a path")
            .trim()
            .to_owned(),
        _ => {
            skip("no loop device here");
            return;
        }
    };
    let read = desk.bench(&device, "--operations 500 --output json");
    let words = "--rw randwrite --verify --operations 500 --direct --output json";
    let written = desk.bench(&device, words);
    let _ = Command::new("losetup").args(["--detach", &device]).status();
    let json = read.good().json();
    assert_eq!(json["protocol"], "block", "{json}");
    let json = written.good().json();
    assert_eq!(json["negotiated"]["direct"], "true");
    assert_eq!(json["verify"]["read_back_complete"], true, "{json}");
}
