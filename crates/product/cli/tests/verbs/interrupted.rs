//! Copies that are stopped, killed, or lose their server, and what comes after.

use std::fs;
use std::net::SocketAddr;
use std::time::Instant;

use longshore_tests::server::Server;

use crate::support::{
    Desk, Ran, builder, copied_and_flushed, is_recorded, journal, namespace, serve, unit, wait_for,
};

const MIB: u64 = 1 << 20;

/// Slow enough to be interrupted in the middle.
const SLOW: [&str; 8] = [
    "--rate",
    "1M",
    "--checkpoint",
    "50ms",
    "--block-size",
    "64K",
    "--parallel",
    "4",
];

fn slow<'a>(source: &'a str, destination: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["copy", source, destination], &SLOW[..], more].concat()
}

fn same(desk: &Desk, url: &str) {
    let back = desk.path("back");
    let _ = fs::remove_file(&back);
    desk.run(&["copy", url, &back]).good();
    assert!(desk.bytes("back") == desk.bytes("image"));
}

#[test]
fn a_killed_copy_goes_on_from_its_last_checkpoint() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let server = serve(&["v,backend=mem,size=4M"]);
    let image = desk.path("image");
    for url in [unit(&server, 0), namespace(&server, 0)] {
        let mut copy = desk.start(&slow(&image, &url, &[]));
        wait_for("a checkpoint", || is_recorded(&desk));
        copy.signal("KILL");
        copy.end();
        let arguments = [
            "copy", "--resume", "--verify", &image, &url, "--output", "json",
        ];
        let summary = desk.run(&arguments).good().json();
        let from = summary["resumed_from"].as_u64().unwrap();
        assert!(from > 0, "{summary}");
        assert_eq!(summary["bytes"].as_u64().unwrap() + from, 4 * MIB);
        assert_eq!(summary["verified"], true);
        assert_eq!(journal(&desk), None, "a finished copy has no journal");
        same(&desk, &url);
        // Other contents for the other protocol.
        fs::write(desk.path("ones"), vec![1; 4 << 20]).unwrap();
        desk.run(&["copy", &desk.path("ones"), &url]).good();
    }
}

#[test]
fn a_killed_copy_to_a_file_goes_on_too() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let (image, new) = (desk.path("image"), desk.path("new"));
    let mut copy = desk.start(&slow(&image, &new, &[]));
    let journal = desk.scratch.join("new.copy-journal");
    wait_for("a checkpoint", || {
        fs::read_to_string(&journal).is_ok_and(|text| copied_and_flushed(&text) > 0)
    });
    copy.signal("KILL");
    copy.end();
    desk.run(&["copy", "--resume", &image, &new]).good();
    assert!(desk.bytes("new") == desk.bytes("image"));
    assert!(!journal.exists());
}

#[test]
fn a_stopped_copy_says_how_to_go_on_and_that_works_as_printed() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let server = serve(&["v,backend=mem,size=4M"]);
    let (image, url) = (desk.path("image"), unit(&server, 0));
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let mut copy = desk.start(&slow(&image, &url, &[]));
        wait_for("a checkpoint", || is_recorded(&desk));
        copy.signal(signal);
        assert_eq!(copy.end().code(), Some(status));
        let text = desk.text("stderr");
        assert!(
            text.contains("are copied and flushed; continue with:"),
            "{text}"
        );
        let command = text.lines().last().unwrap().trim().to_owned();
        assert!(command.contains("--resume"), "{text}");
        let done = copied_and_flushed(&journal(&desk).unwrap());
        let command = format!("{command} --rate 1G --output json").replace("--rate 1M", "");
        let output = desk.command("sh").args(["-c", &command]).output().unwrap();
        let summary = Ran::new(output).good().json();
        assert_eq!(summary["resumed_from"], done);
        same(&desk, &url);
    }
}

#[test]
fn a_changed_source_is_not_gone_on_with() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let (image, new) = (desk.path("image"), desk.path("new"));
    let mut copy = desk.start(&slow(&image, &new, &["--output", "json"]));
    let journal = desk.scratch.join("new.copy-journal");
    wait_for("a checkpoint", || {
        fs::read_to_string(&journal).is_ok_and(|text| copied_and_flushed(&text) > 0)
    });
    copy.signal("TERM");
    assert_eq!(copy.end().code(), Some(143));
    let summary: serde_json::Value = serde_json::from_str(&desk.text("stdout")).unwrap();
    assert_eq!(summary["status"], "interrupted");
    assert!(
        summary["resume_command"]
            .as_str()
            .unwrap()
            .contains("--resume")
    );
    desk.image("image", 4 * MIB);
    let text = desk.run(&["copy", "--resume", &image, &new]).refused(1);
    assert!(text.contains("the source was"), "{text}");
    assert!(text.contains("remove --resume"), "{text}");
    desk.run(&["copy", &image, &new]).good();
    assert!(desk.bytes("new") == desk.bytes("image"));
    assert!(!journal.exists());
}

/// A server over a file of the desk, at these addresses or free ones.
fn file_server(desk: &Desk, at: Option<(SocketAddr, SocketAddr)>) -> Server {
    let volume = format!("v,backend=file,path={},size=4M", desk.path("served"));
    let server = builder().volume(&volume);
    let server = match at {
        None => server.iscsi().nvme(),
        Some((iscsi, nvme)) => server.iscsi_at(iscsi, "").nvme_at(nvme, ""),
    };
    server.start().expect("start a server")
}

#[test]
fn a_server_that_is_killed_and_comes_back_costs_nothing_but_time() {
    for over_iscsi in [true, false] {
        let desk = Desk::new();
        desk.image("image", 4 * MIB);
        let server = file_server(&desk, None);
        let url = if over_iscsi {
            unit(&server, 0)
        } else {
            namespace(&server, 0)
        };
        let image = desk.path("image");
        let mut copy = desk.start(&slow(&image, &url, &["--verify", "--output", "json"]));
        wait_for("a checkpoint", || is_recorded(&desk));
        assert!(!copy.has_ended());
        let addresses = (server.portal(0), server.nvme(0));
        server.kill().expect("kill the server");
        wait_for("a word about the connection", || {
            desk.text("stderr").contains("connection lost")
        });
        let _server = file_server(&desk, Some(addresses));
        let status = copy.end();
        assert!(status.success(), "{}", desk.text("stderr"));
        let summary: serde_json::Value = serde_json::from_str(&desk.text("stdout")).unwrap();
        assert_eq!(summary["verified"], true, "{summary}");
        // The server has a write cache, and might have been switched off.
        let text = desk.text("stderr");
        assert!(text.contains("copying again from byte"), "{text}");
        let lost = "destination: connection lost, reconnecting, ";
        assert_eq!(text.matches(lost).count(), 1, "{text}");
        assert!(text.contains("the copy continues"), "{text}");
        same(&desk, &url);
    }
}

#[test]
fn a_server_that_stays_away_fails_the_copy_which_can_go_on_later() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let server = file_server(&desk, None);
    let url = unit(&server, 0);
    let image = desk.path("image");
    let mut copy = desk.start(&slow(&image, &url, &["--give-up", "1s"]));
    wait_for("a checkpoint", || is_recorded(&desk));
    let addresses = (server.portal(0), server.nvme(0));
    server.kill().expect("kill the server");
    assert_eq!(copy.end().code(), Some(1));
    let text = desk.text("stderr");
    assert!(text.contains("error: cannot "), "{text}");
    let error = text.lines().find(|line| line.starts_with("error: "));
    assert_eq!(error.unwrap().matches(&url).count(), 1, "{text}");
    let _server = file_server(&desk, Some(addresses));
    let arguments = [
        "copy", "--resume", "--verify", &image, &url, "--output", "json",
    ];
    let summary = desk.run(&arguments).good().json();
    assert!(summary["resumed_from"].as_u64().unwrap() > 0, "{summary}");
    same(&desk, &url);
}

#[test]
fn an_interruption_does_not_wait_for_a_server_that_is_away() {
    let desk = Desk::new();
    desk.image("image", 4 * MIB);
    let server = file_server(&desk, None);
    let url = namespace(&server, 0);
    let image = desk.path("image");
    let mut copy = desk.start(&slow(&image, &url, &[]));
    wait_for("a checkpoint", || is_recorded(&desk));
    server.kill().expect("kill the server");
    copy.signal("INT");
    let asked = Instant::now();
    assert_eq!(copy.end().code(), Some(130), "{}", desk.text("stderr"));
    // Without the interruption it is two minutes.
    assert!(asked.elapsed().as_secs() < 30);
    let text = desk.text("stderr");
    assert!(
        text.contains("are copied and flushed; continue with:"),
        "{text}"
    );
}
