//! What `/proc` says of a process: memory, processor time, threads; and how many files it may open.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process, and those it starts, open as many files as it may: a thousand sockets at both
/// ends need more than the usual 1,024.
///
/// # Panics
/// When the kernel refuses.
pub fn allow_many_files() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("up to its maximum a limit can be raised");
}

/// A running process, by number.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
}

impl Process {
    /// The process with this number.
    pub fn new(pid: u32) -> Self {
        Self { pid }
    }

    /// Resident memory in bytes (`VmRSS`).
    pub fn resident_bytes(self) -> io::Result<u64> {
        self.status_kib("VmRSS:").map(|kib| kib * 1024)
    }

    /// The most resident memory there ever was, in bytes (`VmHWM`).
    pub fn resident_bytes_max(self) -> io::Result<u64> {
        self.status_kib("VmHWM:").map(|kib| kib * 1024)
    }

    /// Time on a processor, user and system, of all threads that still run, to the nanosecond
    /// (`schedstat`), or to the 10 ms tick where the kernel keeps no such figure (`stat`).
    pub fn cpu_time(self) -> io::Result<Duration> {
        match self.cpu_time_of_threads() {
            Ok(time) if !time.is_zero() => Ok(time),
            _ => self.cpu_time_in_ticks(),
        }
    }

    /// Whether the process exists and has not ended.
    pub fn is_running(self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| {
            !matches!(after_name(&stat).split(' ').next(), Some("Z" | "X") | None)
        })
    }

    fn cpu_time_of_threads(self) -> io::Result<Duration> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // A thread that ends meanwhile has no file any more; its time is lost to us.
            let Ok(line) = fs::read_to_string(thread?.path().join("schedstat")) else {
                continue;
            };
            let first = line.split(' ').next().unwrap_or_default();
            nanos += first.parse::<u64>().map_err(io::Error::other)?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    fn cpu_time_in_ticks(self) -> io::Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // Fields 14 and 15 of the line are the 12th and 13th behind the name.
        let mut fields = after_name(&stat).split(' ').skip(11);
        let mut ticks = || {
            let field = fields.next().unwrap_or_default();
            field.parse::<u64>().map_err(io::Error::other)
        };
        let ticks = ticks()? + ticks()?;
        Ok(Duration::from_millis(ticks * 10)) // USER_HZ is 100 on every Linux we run on.
    }

    fn status_kib(self, key: &str) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .ok_or_else(|| io::Error::other(format!("process {} has no {key}", self.pid)))?;
        line.trim()
            .trim_end_matches(" kB")
            .parse()
            .map_err(io::Error::other)
    }
}

/// The part of a `stat` line behind the process's name, which may itself hold spaces.
fn after_name(stat: &str) -> &str {
    stat.rsplit_once(") ").map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_has_memory_and_time() {
        let this = Process::new(std::process::id());
        assert!(this.is_running());
        assert!(this.resident_bytes().unwrap() > 100 << 10);
        let before = this.cpu_time().unwrap();
        let mut sum = 0u64;
        for i in 0..50_000_000u64 {
            sum = std::hint::black_box(sum ^ i);
        }
        assert!(this.cpu_time().unwrap() > before);
    }

    #[test]
    fn a_process_that_does_not_exist_is_not_running() {
        assert!(!Process::new(u32::MAX - 1).is_running());
    }
}
