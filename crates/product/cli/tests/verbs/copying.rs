//! `longshore copy`: between all kinds of ends, and what it refuses.

use std::process::Command;

use crate::support::{Desk, Ran, namespace, program, serve, unit};

const MIB: u64 = 1 << 20;

/// Copies, compares, and gives the JSON.
fn copy(desk: &Desk, source: &str, destination: &str) -> serde_json::Value {
    let arguments = ["copy", source, destination, "--verify", "--output", "json"];
    let summary = desk.run(&arguments).good().json();
    assert_eq!(summary["status"], "done");
    assert_eq!(summary["verified"], true, "{summary}");
    summary
}

#[test]
fn every_kind_is_copied_to_every_kind() {
    let desk = Desk::new();
    let size = 3 * MIB;
    let image = desk.image("image", size);
    // One pair of volumes for each kind of remote end: 512 and 4096 byte blocks over each protocol.
    let volume = |name: &str, rest| format!("{name},backend=mem,size=3M{rest}");
    let volumes: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| volume(name, ""))
        .chain(
            ["e", "f", "g", "h"]
                .iter()
                .map(|it| volume(it, ",block-size=4096")),
        )
        .collect();
    let server = serve(&volumes.iter().map(String::as_str).collect::<Vec<_>>());
    let sources = [
        desk.path("image"),
        unit(&server, 0),
        namespace(&server, 1),
        unit(&server, 4),
        namespace(&server, 5),
    ];
    for source in &sources[1..] {
        copy(&desk, &sources[0], source);
    }
    for source in &sources {
        let destinations = [
            desk.path("new"),
            unit(&server, 2),
            namespace(&server, 3),
            unit(&server, 6),
            namespace(&server, 7),
        ];
        for destination in &destinations {
            let what = format!("{source} to {destination}");
            let _ = std::fs::remove_file(desk.path("new"));
            let summary = copy(&desk, source, destination);
            assert_eq!(summary["bytes"], size, "{what}");
            let data = summary["data_bytes"].as_u64().unwrap();
            assert!(data < size * 4 / 5, "zeros are not sent: {what}: {summary}");
            if !destination.contains("://") {
                assert!(desk.bytes("new") == image, "{what}");
                continue;
            }
            let _ = std::fs::remove_file(desk.path("back"));
            copy(&desk, destination, &desk.path("back"));
            assert!(desk.bytes("back") == image, "{what}");
            // What the next copy has to overwrite.
            let _ = std::fs::remove_file(desk.path("ones"));
            std::fs::write(desk.path("ones"), vec![1; image.len()]).unwrap();
            copy(&desk, &desk.path("ones"), destination);
        }
    }
}

/// A loop device over a file of the test.
struct LoopDevice(String);

impl LoopDevice {
    fn new(file: &str) -> Option<Self> {
        let output = Command::new("losetup")
            .args(["--find", "--show", file])
            .output()
            .ok()?;
        let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        let usable = output.status.success()
            && std::fs::metadata(&name).is_ok()
            && std::fs::File::open(&name).is_ok();
        usable.then_some(Self(name))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn block_devices_are_copied_too() {
    let desk = Desk::new();
    let image = desk.image("image", 3 * MIB);
    std::fs::write(desk.path("disk"), vec![7; 4 << 20]).unwrap();
    let Some(device) = LoopDevice::new(&desk.path("disk")) else {
        eprintln!("skipped: no loop device is to be had here");
        return;
    };
    let server = serve(&["v,backend=mem,size=4M"]);
    let summary = copy(&desk, &desk.path("image"), &device.0);
    assert_eq!(summary["left_alone_bytes"], MIB);
    copy(&desk, &device.0, &unit(&server, 0));
    copy(&desk, &namespace(&server, 0), &device.0);
    copy(&desk, &device.0, &desk.path("back"));
    let back = desk.bytes("back");
    assert!(back[..image.len()] == image);
    assert!(back[image.len()..].iter().all(|byte| *byte == 7));
}

#[test]
fn json_keys_stay() {
    let desk = Desk::new();
    desk.image("image", MIB);
    let ran = desk.run(&[
        "copy",
        &desk.path("image"),
        &desk.path("new"),
        "--output",
        "json",
    ]);
    let summary = ran.good().json();
    let keys: Vec<_> = summary.as_object().unwrap().keys().cloned().collect();
    let mut expected = [
        "version",
        "status",
        "source",
        "destination",
        "size",
        "done",
        "resumed_from",
        "bytes",
        "data_bytes",
        "zero_bytes",
        "left_alone_bytes",
        "seconds",
        "bytes_per_second",
        "unchanged_bytes",
        "verified",
        "verify_seconds",
        "error",
        "resume_command",
    ];
    expected.sort_unstable();
    let mut keys: Vec<_> = keys.iter().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, expected);
    assert!(summary["verified"].is_null());
}

#[test]
fn a_volume_that_is_too_small_is_refused_before_anything_is_written() {
    let desk = Desk::new();
    desk.image("image", 3 * MIB);
    std::fs::write(desk.path("ones"), vec![1; 2 << 20]).unwrap();
    let server = serve(&["v,backend=mem,size=2M"]);
    for url in [unit(&server, 0), namespace(&server, 0)] {
        copy(&desk, &desk.path("ones"), &url);
        let text = desk.run(&["copy", &desk.path("image"), &url]).refused(1);
        assert!(
            text.contains("has 2097152 bytes, and the source 3145728"),
            "{text}"
        );
        assert!(text.contains("nothing was written"), "{text}");
        let _ = std::fs::remove_file(desk.path("back"));
        copy(&desk, &url, &desk.path("back"));
        assert!(desk.bytes("back") == desk.bytes("ones"));
    }
}

#[test]
fn a_volume_is_not_copied_onto_itself_over_either_protocol() {
    let desk = Desk::new();
    let server = serve(&["v,backend=mem,size=2M"]);
    let (unit, namespace) = (unit(&server, 0), namespace(&server, 0));
    for (source, destination) in [(&unit, &unit), (&unit, &namespace), (&namespace, &unit)] {
        let text = desk.run(&["copy", source, destination]).refused(1);
        assert!(text.contains("are the same volume"), "{text}");
    }
}

#[test]
fn a_read_only_volume_is_a_source_alone() {
    let desk = Desk::new();
    let image = desk.image("image", MIB);
    let served = format!("v,backend=file,path={},read-only", desk.path("image"));
    let server = serve(&[&served]);
    for url in [unit(&server, 0), namespace(&server, 0)] {
        let _ = std::fs::remove_file(desk.path("new"));
        copy(&desk, &url, &desk.path("new"));
        assert!(desk.bytes("new") == image);
        let text = desk.run(&["copy", &desk.path("new"), &url]).refused(1);
        assert!(text.contains("write-protected"), "{text}");
    }
}

#[test]
fn what_is_not_there_is_said_in_the_first_line() {
    let desk = Desk::new();
    desk.image("image", MIB);
    let server = serve(&["v,backend=mem,size=2M"]);
    let portal = server.portal(0);
    let missing = format!("iscsi://{portal}/iqn.2026-11.local.longshore:default/7");
    let stranger = format!("iscsi://{portal}/iqn.2026-11.local.longshore:other/0");
    for url in [missing, stranger] {
        let text = desk.run(&["copy", &desk.path("image"), &url]).refused(1);
        assert!(text.starts_with("error: "), "{text}");
    }
    let text = desk
        .run(&["copy", &desk.path("image"), "iscsi://h/x"])
        .refused(2);
    assert!(text.contains("iscsi://"), "{text}");
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let desk = Desk::new();
    desk.image("image", MIB);
    let line = format!(
        "{} copy {} {} --output json | true",
        program().display(),
        desk.path("image"),
        desk.path("new")
    );
    let output = desk.command("sh").args(["-c", &line]).output().unwrap();
    let ran = Ran::new(output).good();
    assert_eq!(ran.stderr, "");
    assert!(desk.bytes("new") == desk.bytes("image"));
}
