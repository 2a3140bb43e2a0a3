//! The server under siege: starts, stops and kills it, and notices when it ends otherwise.

use std::io;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_tests::server::{Server, ServerBuilder, describe, free_port, signal};

use crate::kernel::last_lines;

/// How long a server may take to end when it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Lines of the log that are kept of a crash.
const LINES: usize = 40;

/// What a server of this campaign always has.
#[derive(Debug)]
pub struct Besieged {
    pub program: PathBuf,
    pub iscsi: SocketAddr,
    pub nvme: SocketAddr,
    /// Where its state and the file of its configuration go.
    pub state: PathBuf,
    server: Option<Server>,
    start: Start,
    epoch: Arc<AtomicU64>,
    /// Ends that nobody asked for, and lines of panics.
    crashes: Vec<String>,
    pub restarts: u64,
}

/// How the server is started in a phase.
#[derive(Debug, Clone, Default)]
pub struct Start {
    pub engine: &'static str,
    pub configuration: String,
    /// The program below which it runs, with arguments.
    pub below: Vec<String>,
    /// Whether the storage fails, so that a server that is asked to end may say that data is lost (exit status 1).
    pub may_fail: bool,
}

/// How an end came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    Killed,
    /// We asked it to end; storage that fails may show in its exit status.
    Asked {
        may_fail: bool,
    },
    None,
}

/// Why an end is a crash, if it is one.
fn crash(cause: Cause, status: ExitStatus, log: &str) -> Option<String> {
    if let Some(line) = log.lines().find(|line| line.contains("panicked at")) {
        return Some(format!("panic: {line}"));
    }
    let is_expected = match cause {
        Cause::Killed => status.signal() == Some(9),
        Cause::Asked { may_fail } => match status.code() {
            Some(0) => true,
            Some(1) => may_fail,
            _ => false,
        },
        Cause::None => false,
    };
    (!is_expected).then(|| {
        let why = match cause {
            Cause::Killed => "before it was killed",
            Cause::Asked { .. } => "when it was asked to end",
            Cause::None => "unasked",
        };
        format!("ended {} {why}", describe(status))
    })
}

impl Besieged {
    pub fn new(program: PathBuf, state: PathBuf) -> Self {
        Self {
            program,
            iscsi: free_port(),
            nvme: free_port(),
            state,
            server: None,
            start: Start::default(),
            epoch: Arc::default(),
            crashes: Vec::new(),
            restarts: 0,
        }
    }

    /// How often a server has ended. Grows when it is certain that the old one does nothing any more.
    pub fn epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    /// Starts it in another way; one that runs is asked to end before.
    pub fn begin(&mut self, start: Start) -> Result<()> {
        self.stop()?;
        self.start = start;
        self.start()
    }

    /// Starts it as before.
    pub fn start(&mut self) -> Result<()> {
        let below: Vec<&str> = self.start.below.iter().map(String::as_str).collect();
        let server = ServerBuilder::with_program(self.program.clone())
            .below(&below)
            .config(&self.start.configuration)
            .iscsi_at(self.iscsi, "")
            .nvme_at(self.nvme, "")
            .argument("--engine")
            .argument(self.start.engine)
            .argument("--state-dir")
            .argument(&self.state.display().to_string())
            .argument("--log-level")
            .argument("warn")
            .start()
            .context("start the server")?;
        self.server = Some(server);
        self.restarts += 1;
        Ok(())
    }

    /// Asks it to end, and waits for that.
    pub fn stop(&mut self) -> Result<()> {
        self.look();
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let may_fail = self.start.may_fail;
        let ended = server.stop_and_read(STOP_LIMIT);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        match ended {
            Ok((status, log)) => self.judge(Cause::Asked { may_fail }, status, &log),
            Err(error) => self.crashes.push(error.to_string()),
        }
        Ok(())
    }

    /// Ends it without any warning.
    pub fn kill(&mut self) -> Result<()> {
        self.look();
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        let log = server.log();
        server.kill()?;
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.judge(Cause::Killed, ExitStatus::from_raw(9), &log);
        Ok(())
    }

    /// Sends a signal to it, such as STOP or CONT.
    pub fn signal(&self, name: &str) -> io::Result<()> {
        match &self.server {
            Some(server) => signal(server.pid(), name),
            None => Ok(()),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// Notices when it has ended unasked, and starts it anew.
    pub fn watch(&mut self) -> Result<()> {
        if self.look() { self.start() } else { Ok(()) }
    }

    /// Whether it has ended unasked.
    fn look(&mut self) -> bool {
        let Some(server) = &mut self.server else {
            return false;
        };
        let Ok(Some(status)) = server.ended() else {
            return false;
        };
        let log = server.log();
        self.server = None;
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.judge(Cause::None, status, &log);
        true
    }

    fn judge(&mut self, cause: Cause, status: ExitStatus, log: &str) {
        if let Some(why) = crash(cause, status, log) {
            self.crashes
                .push(format!("{why}\n{}", last_lines(log, LINES)));
        }
    }

    /// The crashes since the last call.
    pub fn take_crashes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.crashes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn ended(script: &str) -> ExitStatus {
        Command::new("sh").args(["-c", script]).status().unwrap()
    }

    #[test]
    fn an_end_that_nobody_asked_for_is_a_crash_however_it_looks() {
        for script in [
            "exit 0",
            "exit 101",
            "kill -SEGV $$",
            "kill -ABRT $$",
            "kill -KILL $$",
        ] {
            assert!(crash(Cause::None, ended(script), "").is_some(), "{script}");
        }
    }

    #[test]
    fn what_we_did_is_none() {
        let asked = Cause::Asked { may_fail: false };
        assert_eq!(crash(Cause::Killed, ended("kill -KILL $$"), ""), None);
        assert_eq!(crash(asked, ended("exit 0"), ""), None);
        let failing = Cause::Asked { may_fail: true };
        assert_eq!(crash(failing, ended("exit 1"), ""), None);
        assert!(crash(asked, ended("exit 1"), "").is_some());
        assert!(crash(failing, ended("kill -ABRT $$"), "").is_some());
        assert!(crash(Cause::Killed, ended("kill -SEGV $$"), "").is_some());
    }

    #[test]
    fn a_panic_counts_even_if_the_process_goes_on() {
        let log = "info: x\nthread 'shard-0' panicked at src/x.rs:1:2\n";
        let asked = Cause::Asked { may_fail: false };
        let found = crash(asked, ended("exit 0"), log).unwrap();
        assert!(found.starts_with("panic: thread 'shard-0'"), "{found}");
    }
}
