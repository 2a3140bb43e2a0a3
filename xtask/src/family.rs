//! All processes that a command starts, found by a mark in their environment.
//!
//! A process group is not enough: test programs start servers and daemons with groups and sessions of their
//! own. A new group would also escape Ctrl-C, which has to end everything.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};

/// Holds the marks, separated by spaces: a family can be part of a larger one.
const VARIABLE: &str = "LONGSHORE_FAMILY";

/// Time for killed processes to disappear.
pub const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A command with everything it starts, and so on.
#[derive(Debug)]
pub struct Family {
    mark: String,
}

impl Family {
    /// Marks a command that is about to start.
    pub fn of(command: &mut Command) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanoseconds = now.unwrap_or_default().as_nanos();
        let mark = format!("{}-{nanoseconds}-{number}", std::process::id());
        let outer = std::env::var(VARIABLE).unwrap_or_default();
        command.env(VARIABLE, format!("{outer} {mark}").trim_start());
        Self { mark }
    }

    /// Kills all processes, including those that start meanwhile. Gives up after [`KILL_LIMIT`].
    pub fn kill(&self) {
        let deadline = Instant::now() + KILL_LIMIT;
        loop {
            let members = self.members();
            if members.is_empty() || Instant::now() >= deadline {
                return;
            }
            for pid in members {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its running processes. The environment of a zombie is empty.
    fn members(&self) -> Vec<Pid> {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let pids = processes.flatten().filter_map(|entry| {
            let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            self.is_in(&environment).then_some(pid)
        });
        pids.collect()
    }

    fn is_in(&self, environment: &[u8]) -> bool {
        environment
            .split(|byte| *byte == 0)
            .filter_map(|variable| {
                variable
                    .strip_prefix(VARIABLE.as_bytes())?
                    .strip_prefix(b"=")
            })
            .any(|marks| {
                marks
                    .split(|byte| *byte == b' ')
                    .any(|mark| mark == self.mark.as_bytes())
            })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn processes_in_other_sessions_and_without_parents_are_killed() {
        let mut command = Command::new("sh");
        let script = "setsid sh -c 'echo; sleep 600; :' & (sleep 600; :) & wait $!";
        command.args(["-c", script]).stdout(Stdio::piped());
        let (family, other) = (Family::of(&mut command), Family::of(&mut Command::new("x")));
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        while family.members().len() < 3 {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(other.members().is_empty());
        child.kill().unwrap();
        family.kill();
        assert!(family.members().is_empty());
        child.wait().unwrap();
    }

    #[test]
    fn a_family_within_another_has_both_marks() {
        let family = |mark: &str| Family {
            mark: mark.to_owned(),
        };
        let environment = b"PATH=/bin\0LONGSHORE_FAMILY=1-2 3-4\0X=5-6";
        assert!(family("1-2").is_in(environment));
        assert!(family("3-4").is_in(environment));
        assert!(!family("5-6").is_in(environment));
        assert!(!family("3").is_in(environment));
    }
}
