//! The display of a copy on a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::{Desk, Running, builder, is_recorded, namespace, serve, unit, wait_for};

/// The command, with its standard error on a terminal of 100 columns.
struct OnTerminal {
    running: Running,
    shown: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    fn start(desk: &Desk, arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master: OwnedFd = openpt(flags).expect("open a terminal");
        grantpt(&master).expect("grant it");
        unlockpt(&master).expect("unlock it");
        let size = Winsize {
            ws_row: 40,
            ws_col: 100,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("set its size");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let mut options = File::options();
        options.read(true).write(true);
        let slave = options.open(name.to_str().expect("text"));
        let slave = slave.expect("open the terminal");
        let mut command = desk.command(crate::support::program());
        command
            .args(arguments)
            .env("TERM", "xterm")
            .stdout(Stdio::null())
            .stderr(slave);
        let running = Running::spawn(&mut command);
        drop(command);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let sink = shown.clone();
        let mut master = File::from(master);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: the other side is closed everywhere.
            while let Ok(length @ 1..) = master.read(&mut bytes) {
                sink.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Self {
            running,
            shown,
            reader: Some(reader),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        wait_for(text, || self.text().contains(text));
    }

    /// All that was shown, and the exit status.
    fn end(mut self) -> (String, Option<i32>) {
        let status = self.running.end();
        let reader = self.reader.take().expect("it runs once");
        reader.join().expect("read a terminal");
        (self.text(), status.code())
    }
}

/// Whether this text begins on an empty line of the terminal.
fn begins_a_line(shown: &str, text: &str) -> bool {
    let at = shown
        .find(text)
        .unwrap_or_else(|| panic!("{text}: {shown:?}"));
    // The bar's line is left, cleared, or not begun.
    let before = &shown[..at];
    ["\n", "\r", "\u{1b}[2K", "\u{1b}[K"]
        .iter()
        .any(|end| before.ends_with(end))
}

const SLOW: [&str; 8] = [
    "--rate",
    "1M",
    "--checkpoint",
    "0s",
    "--block-size",
    "64K",
    "--parallel",
    "4",
];

#[test]
fn an_interruption_is_told_of_on_a_line_of_its_own() {
    let desk = Desk::new();
    desk.image("image", 4 << 20);
    let server = serve(&["v,backend=mem,size=4M"]);
    let (image, url) = (desk.path("image"), unit(&server, 0));
    let copy = OnTerminal::start(&desk, &[&["copy", &image, &url], &SLOW[..]].concat());
    copy.wait_for("copying");
    wait_for("a checkpoint", || is_recorded(&desk));
    copy.running.signal("INT");
    let (shown, status) = copy.end();
    assert_eq!(status, Some(130), "{shown}");
    for text in [
        "stopping after the operations in progress",
        "are copied and flushed",
    ] {
        let at = shown
            .find(text)
            .unwrap_or_else(|| panic!("{text}: {shown:?}"));
        let line_start = shown[..at].rfind(['\n', '\r', 'K']).map_or(0, |at| at + 1);
        let line = &shown[line_start..];
        assert!(!line.starts_with("copying"), "{shown:?}");
    }
    assert!(begins_a_line(&shown, "stopping after"), "{shown:?}");
}

#[test]
fn a_lost_connection_stands_in_the_line_of_the_bar() {
    let desk = Desk::new();
    desk.image("image", 4 << 20);
    let volume = format!("v,backend=file,path={},size=4M", desk.path("served"));
    let server = builder().volume(&volume).iscsi().nvme().start().unwrap();
    let (image, url) = (desk.path("image"), namespace(&server, 0));
    let copy = OnTerminal::start(&desk, &[&["copy", &image, &url], &SLOW[..]].concat());
    copy.wait_for("copying");
    let (iscsi, nvme) = (server.portal(0), server.nvme(0));
    server.kill().expect("kill the server");
    copy.wait_for("destination: connection lost, reconnecting, ");
    copy.wait_for(" s left");
    let server = builder()
        .volume(&volume)
        .iscsi_at(iscsi, "")
        .nvme_at(nvme, "");
    let _server = server.start().expect("start the server again");
    let (shown, status) = copy.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(desk.bytes("served") == desk.bytes("image"));
}
