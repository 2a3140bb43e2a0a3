//! A directory, a server and the command, as a user has them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, signal};
use serde_json::Value;

/// How long anything here may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Where volumes of the command line appear.
pub const TARGET: &str = "iqn.2026-11.local.longshore:default";
pub const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// A server with these volumes, on free ports of both protocols.
pub fn serve(volumes: &[&str]) -> Server {
    let server = builder().iscsi().nvme();
    let server = volumes.iter().fold(server, |it, volume| it.volume(volume));
    server.start().expect("start a server")
}

pub fn builder() -> ServerBuilder {
    ServerBuilder::with_program(program())
}

pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_longshore").into()
}

/// The URL of a volume over iSCSI.
pub fn unit(server: &Server, number: usize) -> String {
    format!("iscsi://{}/{TARGET}/{number}", server.portal(0))
}

/// The URL of the same volume over NVMe/TCP.
pub fn namespace(server: &Server, number: usize) -> String {
    format!("nvme+tcp://{}/{SUBSYSTEM}/{}", server.nvme(0), number + 1)
}

/// Where a test has its files, and from where it runs the command.
pub struct Desk {
    pub scratch: Scratch,
}

impl Desk {
    pub fn new() -> Self {
        let scratch = Scratch::new("verbs");
        fs::create_dir(scratch.join("state")).expect("create a directory");
        Self { scratch }
    }

    /// The path of a file, as an argument.
    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    pub fn state(&self) -> PathBuf {
        self.scratch.join("state")
    }

    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("STATE_DIRECTORY", self.state())
            .env_remove("LIBISCSI_CHAP_USERNAME")
            .env_remove("LIBISCSI_CHAP_PASSWORD")
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(program()).args(arguments).output();
        Ran::new(output.expect("run longshore"))
    }

    pub fn start(&self, arguments: &[&str]) -> Running {
        let file = |name| File::create(self.scratch.join(name)).expect("create a file");
        let mut command = self.command(program());
        command
            .args(arguments)
            .stdout(file("stdout"))
            .stderr(file("stderr"));
        Running::spawn(&mut command)
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.scratch.join(name)).unwrap_or_default()
    }

    /// A file of this size: data and holes by turns, and zeros that are written.
    pub fn image(&self, name: &str, size: u64) -> Vec<u8> {
        const PIECE: u64 = 192 * 1024;
        let file = File::create(self.scratch.join(name)).expect("create a file");
        file.set_len(size).expect("make it long");
        let mut word = size | 1;
        for (number, start) in (0..size).step_by(192 * 1024).enumerate() {
            let length = usize::try_from(PIECE.min(size - start)).expect("small");
            let piece: Vec<u8> = match number % 5 {
                1 => continue,
                2 => vec![0; length],
                _ => std::iter::repeat_with(|| {
                    word ^= word << 13;
                    word ^= word >> 7;
                    word ^= word << 17;
                    word.to_le_bytes()
                })
                .flatten()
                .take(length)
                .collect(),
            };
            file.write_all_at(&piece, start).expect("write a file");
        }
        self.bytes(name)
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.scratch.join(name)).expect("read a file")
    }
}

/// What a run of the command came to.
#[derive(Debug)]
pub struct Ran {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn new(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Self {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    #[track_caller]
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Its standard error, after it has failed with this status.
    #[track_caller]
    pub fn refused(self, status: i32) -> String {
        assert_eq!(self.status.code(), Some(status), "{self:?}");
        self.stderr
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The command while it runs. Killed if the test ends first.
pub struct Running {
    child: Child,
}

impl Running {
    pub fn spawn(command: &mut Command) -> Self {
        Self {
            child: command.spawn().expect("start longshore"),
        }
    }

    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name).expect("send a signal");
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("look at a process").is_some()
    }

    pub fn end(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_for("the end of the command", || {
            ended = self.child.try_wait().expect("wait for a process");
            ended.is_some()
        });
        ended.expect("it has ended")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bytes that are copied and flushed according to the newer slot of a journal.
pub fn copied_and_flushed(journal: &str) -> u64 {
    let done = journal
        .lines()
        .filter_map(|line| line.strip_prefix("done "));
    done.filter_map(|done| done.parse().ok()).max().unwrap_or(0)
}

/// The journal of a copy to a remote volume.
pub fn journal(desk: &Desk) -> Option<String> {
    let entries = fs::read_dir(desk.state()).expect("read a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let journals = paths.filter(|path| path.extension().is_some_and(|it| it == "journal"));
    journals
        .map(|path| fs::read_to_string(path).unwrap_or_default())
        .next()
}

/// Whether a checkpoint of the copy to a remote volume was written.
pub fn is_recorded(desk: &Desk) -> bool {
    journal(desk).is_some_and(|text| copied_and_flushed(&text) > 0)
}

/// Waits until a condition holds.
#[track_caller]
pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < give_up, "waited for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
