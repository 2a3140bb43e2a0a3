//! `longshore top` on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::initiator::{Initiator, Login};
use longshore_tests::pdu::opcode;
use longshore_tests::server::{free_port, signal};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::Run;

/// How long anything here may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Lines and columns of a terminal.
const SMALL: (u16, u16) = (24, 80);
const LARGE: (u16, u16) = (60, 200);

/// The command on a terminal.
struct Top {
    child: Child,
    keyboard: File,
    /// The other side stays open, so that it can be looked at after the end.
    line: File,
    /// As the terminal was before.
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Top {
    fn start(socket: &Path) -> Self {
        Self::start_with(SMALL, &["--server", socket.to_str().unwrap()])
    }

    fn start_with((lines, columns): (u16, u16), arguments: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master: OwnedFd = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: lines,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let mut options = File::options();
        options.read(true).write(true);
        let line = options.open(name.to_str().unwrap()).unwrap();
        let before = tcgetattr(&line).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_longshore"))
            .args(["top", "--interval", "250ms"])
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("LONGSHORE_TOKEN")
            .stdin(line.try_clone().unwrap())
            .stdout(line.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (lines, columns) = (lines.try_into().unwrap(), columns.try_into().unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(lines, columns, 0)));
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().unwrap();
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..length]);
            }
        });
        Self {
            child,
            keyboard,
            line,
            before,
            screen,
        }
    }

    fn contents(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
        let give_up = Instant::now() + LIMIT;
        while !holds(self.screen.lock().unwrap().screen()) {
            assert!(Instant::now() < give_up, "{what}:\n{}", self.contents());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn wait_for_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text));
    }

    /// Waits for a text that is to go.
    fn wait_until_gone(&self, text: &str) {
        let what = format!("the end of {text}");
        self.wait_for(&what, |screen| !screen.contents().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Its exit status; the terminal must be as it was before.
    fn end(mut self) -> Option<i32> {
        let status = self.child.wait().unwrap();
        self.wait_for("the usual screen", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        let after = tcgetattr(&self.line).unwrap();
        let modes = |it: &Termios| {
            (
                it.input_modes,
                it.output_modes,
                it.local_modes,
                it.control_modes,
            )
        };
        assert_eq!(modes(&after), modes(&self.before));
        status.code()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn top_goes_on_when_the_server_is_started_anew_and_leaves_the_terminal_as_it_was() {
    let mut first = Run::serve_memory(&["--socket", "{dir}/s"]).start();
    let socket = first.path("s");
    let mut top = Top::start(&socket);
    top.wait_for_text("disk0");
    top.wait_for_text("limited by nothing");
    first.signal("KILL");
    first.end();
    top.wait_for_text("does not answer");
    let path = socket.display().to_string();
    let second = Run::serve_memory(&["--socket", &path]).start();
    top.wait_for_text("limited by nothing");
    top.press("c");
    top.wait_for_text("WORKING POLLING");
    top.press("?");
    top.wait_for_text("longer and shorter intervals");
    top.press("xq");
    assert_eq!(top.end(), Some(0));
    drop(second);
}

#[test]
fn a_signal_restores_the_terminal() {
    let run = Run::serve_memory(&["--socket", "{dir}/s"]).start();
    let top = Top::start(&run.path("s"));
    top.wait_for_text("disk0");
    signal(top.child.id(), "TERM").unwrap();
    assert_eq!(top.end(), Some(0));
}

/// A session of an initiator of this name.
fn session(run: &Run, name: &str) -> Initiator {
    let login = Login {
        initiator: format!("iqn.2026-11.local.longshore:{name}"),
        ..Login::default()
    };
    Initiator::log_in(run.addresses()[0], &login).unwrap()
}

#[test]
fn a_session_is_closed_from_the_list_when_it_is_confirmed() {
    let run = Run::serve_memory(&["--socket", "{dir}/s"]).start();
    let mut goes = session(&run, "a");
    let _stays = session(&run, "b");
    let mut top = Top::start(&run.path("s"));
    top.wait_for_text("disk0");
    top.press("s");
    top.wait_for_text("iscsi iqn.2026-11.local");
    top.wait_for("the key of the page", |screen| {
        screen.contents().contains("x close  q quit")
    });
    // One row is left.
    top.press("/longshore:a\r");
    top.wait_for_text("/longshore:a");
    top.press("x");
    top.wait_for_text("It may log in again.");
    // Any other key is a no.
    top.press("n");
    top.wait_until_gone("It may log in again.");
    top.press("x");
    top.wait_for_text("It may log in again.");
    top.press("y");
    top.wait_for_text("is asked to log out");
    let event = goes.receive().unwrap();
    assert_eq!(event.opcode(), opcode::ASYNCHRONOUS_MESSAGE, "{event:?}");
    assert_eq!(event.bhs[36], 1, "a request to log out: {event:?}");
    goes.log_out().unwrap();
    // Alone: with the next key at once, it would be one of Alt.
    top.press("\u{1b}");
    top.wait_until_gone("/longshore:a");
    top.wait_for("one session", |screen| {
        screen.contents().matches(" iscsi iqn.").count() == 1
    });
    top.press("\r");
    // The other one is there still, with all that is known of it.
    top.wait_for_text("volumes      disk0");
    top.wait_for_text("longshore:b");
    top.press("qq");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn a_small_and_a_large_terminal_show_every_page_whole() {
    let run = Run::serve_memory(&["--socket", "{dir}/s"]).start();
    let _session = session(&run, "a");
    let socket = run.path("s");
    for (lines, columns) in [SMALL, LARGE] {
        let server = socket.to_str().unwrap();
        let mut top = Top::start_with((lines, columns), &["--server", server]);
        top.wait_for_text("disk0");
        top.wait_for_text("limited by nothing");
        for (key, heading) in [
            ("v", "LAST MINUTE"),
            ("s", "RECV B"),
            ("c", "WORKING POLLING WAITING ASLEEP"),
            ("g", "stages"),
            ("e", "EVENT"),
        ] {
            top.press(key);
            top.wait_for_text(heading);
            // The last line of the terminal is that of the keys, to its end.
            top.wait_for("all keys", |screen| {
                let contents = screen.contents();
                let last = contents.lines().nth(usize::from(lines) - 1);
                last.is_some_and(|it| it.starts_with("? help") && it.trim_end().ends_with("q quit"))
            });
        }
        top.press("v");
        top.wait_for_text("LAST MINUTE");
        top.press("\r");
        top.wait_for_text("┌");
        top.wait_for("the volume", |screen| {
            screen.contents().contains("writes       ")
        });
        top.press("\r");
        top.wait_until_gone("┌");
        top.press("s");
        // A large terminal has room for a whole name.
        let whole = "iqn.2026-11.local.longshore:a";
        let name = if columns > 100 {
            whole
        } else {
            "iqn.2026-11.local.lo"
        };
        top.wait_for_text(name);
        top.press("q");
        assert_eq!(top.end(), Some(0));
    }
}

#[test]
fn top_by_url_needs_a_token_and_outlives_a_restart_of_the_server() {
    let address = free_port().to_string();
    let mut run = Run::serve_memory(&["--socket", "{dir}/s", "--api", &address]).start();
    let url = format!("http://{address}");
    let file = run.path("state/admin-token").display().to_string();
    let without = Command::new(env!("CARGO_BIN_EXE_longshore"))
        .args(["top", "--once", "--server", &url])
        .env_remove("LONGSHORE_TOKEN")
        .output()
        .unwrap();
    assert_eq!(without.status.code(), Some(1));
    let message = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(message.contains("--token-file"), "{message}");

    let mut top = Top::start_with(LARGE, &["--server", &url, "--token-file", &file]);
    top.wait_for_text("disk0");
    top.wait_for_text(&address);
    top.wait_for_text("limited by nothing");
    run.signal("TERM");
    assert!(run.end().success());
    top.wait_for_text("does not answer");
    // The names stay, the numbers go.
    top.wait_for_text("disk0");
    run = run.start();
    top.wait_until_gone("does not answer");
    top.wait_for_text("limited by nothing");
    // A session of the new server is shown and closed by the same token.
    let mut goes = session(&run, "c");
    top.press("s");
    top.wait_for_text("longshore:c");
    top.press("xy");
    top.wait_for_text("is asked to log out");
    assert_eq!(
        goes.receive().unwrap().opcode(),
        opcode::ASYNCHRONOUS_MESSAGE
    );
    top.press("q");
    assert_eq!(top.end(), Some(0));
    drop(run);
}
