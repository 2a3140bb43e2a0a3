//! Processor time: of the threads that make the load, and of a server's process.

use std::io;
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::result::float;

/// Time that this thread has spent on a processor, user and system, to the nanosecond.
#[must_use]
pub fn of_this_thread() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Duration::ZERO, |time| duration_of(&time))
}

/// The processor clock of a process: all its threads, those that have ended too.
#[derive(Debug, Clone, Copy)]
pub struct ProcessClock {
    pid: i32,
    clock: ClockId,
}

impl ProcessClock {
    /// Of a process that runs.
    pub fn new(pid: u32) -> io::Result<Self> {
        let no_process = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot read the processor time of process {pid}: {error}; check that it \
                     is running"
                ),
            )
        };
        let pid = i32::try_from(pid).map_err(|_| no_process(io::ErrorKind::NotFound.into()))?;
        if pid == 0 {
            return Err(no_process(io::ErrorKind::InvalidInput.into()));
        }
        let clock = clock_getcpuclockid(Pid::from_raw(pid));
        let clock = clock.map_err(|errno| no_process(errno.into()))?;
        Ok(Self { pid, clock })
    }

    /// Time on a processor so far, to the nanosecond.
    pub fn time(&self) -> io::Result<Duration> {
        let time = clock_gettime(self.clock).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("process {} has ended: {error}", self.pid),
            )
        })?;
        Ok(duration_of(&time))
    }
}

/// What a process has spent on processors in itself and in the kernel, in ticks of the kernel's accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    /// Ticks in user mode, that is in the program.
    pub user: u64,
    /// Ticks in the kernel, for system calls.
    pub system: u64,
}

impl ProcessClock {
    /// How time on a processor has been spent so far; nothing where the kernel does not tell. A tick is a hundredth of a
    /// second, so this is for shares of [`Self::time`], not for times.
    #[must_use]
    pub fn ticks(&self) -> Option<Ticks> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        Ticks::parse(&text)
    }
}

impl Ticks {
    /// Of a line of `/proc/PID/stat` (proc(5)): fields 14 and 15.
    fn parse(line: &str) -> Option<Self> {
        // The second field is the name of the program in parentheses, which may have any character.
        let (_, fields) = line.rsplit_once(')')?;
        let mut fields = fields.split_ascii_whitespace().skip(11);
        let mut next = || fields.next()?.parse().ok();
        Some(Self {
            user: next()?,
            system: next()?,
        })
    }

    /// The part of the time since `before` that was spent in the kernel; nothing if no tick has passed.
    #[must_use]
    pub fn system_share_since(&self, before: &Self) -> Option<f64> {
        let user = float(self.user.checked_sub(before.user)?);
        let system = float(self.system.checked_sub(before.system)?);
        (user + system > 0.0).then(|| system / (user + system))
    }
}

fn duration_of(time: &TimeSpec) -> Duration {
    Duration::from(*time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;
    use std::thread;

    fn work() {
        let sum = (0..20_000_000_u64).fold(0, |sum, i| black_box(sum ^ i));
        black_box(sum);
    }

    #[test]
    fn a_thread_pays_for_what_it_does_and_not_for_others() {
        let before = of_this_thread();
        thread::spawn(work).join().unwrap();
        let idle = of_this_thread() - before;
        work();
        let busy = of_this_thread() - before - idle;
        assert!(busy > idle, "{busy:?} {idle:?}");
    }

    #[test]
    fn threads_that_have_ended_stay_in_the_time_of_their_process() {
        let clock = ProcessClock::new(std::process::id()).unwrap();
        let before = clock.time().unwrap();
        let spent = thread::spawn(|| {
            work();
            of_this_thread()
        });
        let spent = spent.join().unwrap();
        assert!(clock.time().unwrap() - before >= spent);
    }

    #[test]
    fn time_of_a_process_has_parts() {
        let line = "17 (a) b (c) R 1 17 17 0 -1 4194304 90 0 0 0 250 50 7 3 20 0 1 0 8 9 10";
        let before = Ticks::parse(line).unwrap();
        assert_eq!((before.user, before.system), (250, 50));
        let after = Ticks {
            user: 280,
            system: 60,
        };
        assert_eq!(after.system_share_since(&before), Some(0.25));
        assert_eq!(before.system_share_since(&before), None);
        assert_eq!(Ticks::parse("17 (a) R 1"), None);

        let clock = ProcessClock::new(std::process::id()).unwrap();
        let before = clock.ticks().unwrap();
        let share = loop {
            work();
            if let Some(share) = clock.ticks().unwrap().system_share_since(&before) {
                break share;
            }
        };
        assert!((0.0..=1.0).contains(&share), "{share}");
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error_that_names_it() {
        let error = ProcessClock::new(0x3fff_fffe).unwrap_err();
        assert!(error.to_string().contains("1073741822"), "{error}");
        assert!(ProcessClock::new(0).is_err());
    }
}
