//! What `/proc` says of a process: memory, processor time, threads; and how many files it may open.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

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

/// Asserts that one of five attempts takes less than `limit`, each by its own clock. A machine that stands still for a
/// moment makes one attempt slow; a slow operation is slow each time.
///
/// # Panics
/// When none does.
pub fn assert_takes_less(limit: Duration, mut attempt: impl FnMut() -> Duration) {
    let mut took = Vec::new();
    for _ in 0..5 {
        took.push(attempt());
        if took.last().is_some_and(|last| *last < limit) {
            return;
        }
    }
    panic!("none of these took less than {limit:?}: {took:?}");
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

    /// Resident memory that is no page of a file, in bytes (`RssAnon`): without the program and its libraries.
    pub fn anonymous_bytes(self) -> io::Result<u64> {
        self.status_kib("RssAnon:").map(|kib| kib * 1024)
    }

    /// Resident memory that the process has made itself, in bytes: anonymous and shared, without pages of files. Those of the
    /// program come when they are first used.
    pub fn own_bytes(self) -> io::Result<u64> {
        Ok(self.anonymous_bytes()? + self.status_kib("RssShmem:")? * 1024)
    }

    /// The most resident memory there ever was, in bytes (`VmHWM`).
    pub fn resident_bytes_max(self) -> io::Result<u64> {
        self.status_kib("VmHWM:").map(|kib| kib * 1024)
    }

    /// Has [`Self::resident_bytes_max`] begin with what is resident now. Kernels without CONFIG_PROC_PAGE_MONITOR have no
    /// `clear_refs`, and some containers refuse it: then the peak stays, and the error says so.
    pub fn forget_peak(self) -> io::Result<()> {
        let path = format!("/proc/{}/clear_refs", self.pid);
        fs::write(&path, "5").map_err(|error| {
            let message = format!(
                "{path}: {error}; without it the peak of resident memory (VmHWM) cannot be reset"
            );
            io::Error::new(error.kind(), message)
        })
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

    /// Waits until the process has done all there is to do for now: at several looks in a row all of its threads sleep, and
    /// they have run for no longer than timers take. A process that waits for a processor is not taken for one that has
    /// nothing to do: its threads do not sleep.
    ///
    /// # Panics
    /// When it goes on for minutes, or cannot be looked at.
    pub fn wait_until_at_rest(self) {
        const LOOKS: u32 = 3;
        const PAUSE: Duration = Duration::from_millis(10);
        const TIMERS: Duration = Duration::from_millis(1);
        let deadline = Instant::now() + Duration::from_secs(120);
        let mut last = self.cpu_time().expect("the process is there");
        let mut at_rest = 0;
        while at_rest < LOOKS {
            std::thread::sleep(PAUSE);
            let time = self.cpu_time().expect("the process is there");
            let ran = time.saturating_sub(last);
            let sleeps = self.all_threads_sleep().expect("the process is there");
            at_rest = match sleeps && ran < TIMERS {
                true => at_rest + 1,
                false => 0,
            };
            last = time;
            assert!(
                Instant::now() < deadline,
                "process {} does not come to rest: it ran for {ran:?} of {PAUSE:?}",
                self.pid
            );
        }
    }

    fn all_threads_sleep(self) -> io::Result<bool> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid))? {
            // A thread that has ended meanwhile does nothing either.
            let stat = fs::read_to_string(thread?.path().join("stat")).unwrap_or_default();
            if !stat.is_empty() && !after_name(&stat).starts_with('S') {
                return Ok(false);
            }
        }
        Ok(true)
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
    fn a_process_at_rest_has_done_what_it_was_given() {
        let mut child = std::process::Command::new("sh")
            .args([
                "-c",
                "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; read line",
            ])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let process = Process::new(child.id());
        process.wait_until_at_rest();
        let before = process.cpu_time().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(process.cpu_time().unwrap(), before);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_exist_is_not_running() {
        assert!(!Process::new(u32::MAX - 1).is_running());
    }
}
