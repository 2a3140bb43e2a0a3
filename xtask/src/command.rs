//! Runs other programs, with a limit on their time.

use std::io::{PipeReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::family::{Family, KILL_LIMIT};

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// None when the time limit ended it.
    pub status: Option<ExitStatus>,
    /// Standard output and standard error, in the order they came.
    pub output: String,
}

impl Ended {
    /// Whether it ended by itself with status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// "with status 1", "by signal 11" or "by the time limit".
    pub fn how(&self) -> String {
        self.status.map_or_else(
            || "by the time limit".to_owned(),
            longshore_tests::server::describe,
        )
    }
}

/// Runs `command` and takes in its output. When `limit` has passed, kills it and everything it has started,
/// even if it has ended and only these are left with its output open.
pub fn run_captured(command: &mut Command, limit: Duration) -> Result<Ended> {
    let name = name_of(command);
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null());
    command
        .stdout(writer.try_clone().context("share the pipe")?)
        .stderr(writer);
    let family = Family::of(command);
    let mut child = command.spawn().with_context(|| format!("start {name}"))?;
    // The parent's ends of the pipe live in `command`; they must go for the reader to see an end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let deadline = Instant::now() + limit;
    let (sender, pieces) = channel();
    std::thread::spawn(move || pass_on(reader, &sender));
    let mut output = Vec::new();
    let mut status = wait(&mut child, deadline).with_context(|| format!("wait for {name}"))?;
    if status.is_none() || !collect(&pieces, deadline, &mut output) {
        status = None;
        // The environment of a process may be hidden from us. The child needs no search.
        child.kill().with_context(|| format!("kill {name}"))?;
        family.kill();
        child.wait().with_context(|| format!("wait for {name}"))?;
        collect(&pieces, Instant::now() + KILL_LIMIT, &mut output);
    }
    Ok(Ended {
        status,
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

/// Sends what it reads until the end, or an error.
fn pass_on(mut reader: PipeReader, pieces: &Sender<Vec<u8>>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        if pieces.send(buffer[..length].to_vec()).is_err() {
            return;
        }
    }
}

/// Whether the output came to its end before the deadline.
fn collect(pieces: &Receiver<Vec<u8>>, deadline: Instant, output: &mut Vec<u8>) -> bool {
    loop {
        match pieces.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(piece) => output.extend(piece),
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => return false,
        }
    }
}

/// Runs `command` with its output shown; an error unless it ends with status 0.
pub fn run_shown(command: &mut Command) -> Result<()> {
    let name = name_of(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("start {name}"))?;
    if !status.success() {
        bail!("{name} ended {}", longshore_tests::server::describe(status));
    }
    Ok(())
}

/// Runs `command` with standard error shown, and gives its standard output; an error unless it ends with status 0.
pub fn run_for_output(command: &mut Command) -> Result<String> {
    let name = name_of(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} ended {}",
            longshore_tests::server::describe(output.status)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs `command` quietly; its output, or an error that holds it.
pub fn run_checked(command: &mut Command, limit: Duration) -> Result<String> {
    let name = name_of(command);
    let ended = run_captured(command, limit)?;
    if !ended.is_success() {
        bail!("{name} ended {}:\n{}", ended.how(), ended.output.trim_end());
    }
    Ok(ended.output)
}

/// The program's path when it is installed: looked up in PATH and where Debian keeps programs of
/// the administrator.
pub fn find_program(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path)
        .chain(admin)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The status of a child, unless it still runs at the deadline.
fn wait(child: &mut std::process::Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_past_its_limit_is_killed_and_its_output_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; exec sleep 60"]);
        let ended = run_captured(&mut command, Duration::from_secs(20)).unwrap();
        assert!(ended.status.is_none());
        assert_eq!(ended.output, "before\n");
    }

    #[test]
    fn what_a_program_has_started_ends_with_its_limit() {
        for script in [
            "sleep 600 & echo before; sleep 600; :",
            "echo before; sleep 600 &",
        ] {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let ended = run_captured(&mut command, Duration::from_secs(20)).unwrap();
            assert!(ended.status.is_none(), "{script}");
            assert_eq!(ended.output, "before\n", "{script}");
        }
    }

    #[test]
    fn failure_carries_the_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        let error = run_checked(&mut command, Duration::from_secs(5)).unwrap_err();
        assert!(error.to_string().contains("status 3"));
        assert!(error.to_string().contains("why"));
    }
}
