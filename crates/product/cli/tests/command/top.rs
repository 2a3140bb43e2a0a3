//! `longshore top` on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::server::signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::support::Run;

/// How long anything here may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// The command on a terminal of 80 columns and 24 lines.
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
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master: OwnedFd = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
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
            .args(["top", "--interval", "250ms", "--server"])
            .arg(socket)
            .env("TERM", "xterm")
            .stdin(line.try_clone().unwrap())
            .stdout(line.try_clone().unwrap())
            .spawn()
            .unwrap();
        let (lines, columns) = (24.try_into().unwrap(), 80.try_into().unwrap());
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
