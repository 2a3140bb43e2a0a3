//! A server, and the command to measure it with.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, signal};
use serde_json::Value;

const TARGET: &str = "iqn.2026-11.local.longshore:default";
const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_longshore").into()
}

/// A server with these volumes, on free ports of both protocols.
pub fn serve(volumes: &[&str]) -> Server {
    let server = ServerBuilder::with_program(program()).iscsi().nvme();
    let server = volumes.iter().fold(server, |it, volume| it.volume(volume));
    server.start().expect("start a server")
}

/// The URL of a volume over iSCSI.
pub fn unit(server: &Server, number: usize) -> String {
    format!("iscsi://{}/{TARGET}/{number}", server.portal(0))
}

/// The URL of a volume over NVMe/TCP.
pub fn namespace(server: &Server, number: usize) -> String {
    format!("nvme+tcp://{}/{SUBSYSTEM}/{}", server.nvme(0), number + 1)
}

/// The first volume over both.
pub fn urls(server: &Server) -> [String; 2] {
    [unit(server, 0), namespace(server, 0)]
}

/// A place for files, where the command runs.
pub struct Desk {
    scratch: Scratch,
}

impl Desk {
    pub fn new() -> Self {
        let scratch = Scratch::new("bench");
        Self { scratch }
    }

    pub fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.scratch.join(name)).unwrap_or_default()
    }

    /// Starts `longshore bench URL` with these words.
    pub fn start(&self, url: &str, words: &str) -> Running {
        let file = |name| File::create(self.scratch.join(name)).expect("create a file");
        let child = Command::new(program())
            .args(["bench", url])
            .args(words.split_whitespace())
            .env_remove("LIBISCSI_CHAP_USERNAME")
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn();
        Running(child.expect("start longshore"))
    }

    /// Runs it to its end.
    pub fn bench(&self, url: &str, words: &str) -> Ran {
        let status = self.start(url, words).end();
        Ran {
            status,
            stdout: self.text("stdout"),
            stderr: self.text("stderr"),
        }
    }
}

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn good(self) -> Self {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }

    /// Its standard error, after it has failed with this status.
    #[track_caller]
    pub fn refused(self, status: i32) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.stderr
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// The command while it runs. Killed if the test ends first.
pub struct Running(Child);

impl Running {
    pub fn signal(&self, name: &str) {
        signal(self.0.id(), name).expect("send a signal");
    }

    pub fn end(mut self) -> i32 {
        let status = self.0.wait().expect("wait for it");
        status.code().expect("it exits")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
