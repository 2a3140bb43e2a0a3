//! The processor time of a thread, in user mode and in the kernel.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

/// What the kernel says that the calling thread has spent on a processor.
///
/// Unless the kernel was built to look at the clock whenever a thread enters or leaves it (VIRT_CPU_ACCOUNTING), the sum is
/// exact, and its parts are an estimate: which of the two the timer interrupt met how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTime {
    /// Time in user mode, that is in this program.
    pub user: Duration,
    /// In the kernel, on behalf of this program.
    pub system: Duration,
}

/// Of the calling thread since it began: one system call.
pub fn of_this_thread() -> io::Result<ThreadTime> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes a `rusage`, for which there is room and which is ours, and keeps no reference to it.
    if unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it has filled in the structure.
    let usage = unsafe { usage.assume_init() };
    Ok(ThreadTime {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
    })
}

/// The kernel gives no negative times.
fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(microseconds)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::Instant;

    use super::*;

    #[test]
    fn time_grows_while_a_thread_works_and_not_beyond_the_clock() {
        let begun = Instant::now();
        let before = of_this_thread().unwrap();
        let spent = loop {
            black_box((0..10_000_u64).fold(0, |sum, i| black_box(sum ^ i)));
            let now = of_this_thread().unwrap();
            assert!(now.user >= before.user && now.system >= before.system);
            let spent = (now.user + now.system) - (before.user + before.system);
            if spent > Duration::from_millis(20) {
                break spent;
            }
        };
        // Both are given in microseconds.
        assert!(
            spent <= begun.elapsed() + Duration::from_millis(1),
            "{spent:?}"
        );
    }

    #[test]
    fn other_threads_are_not_in_it() {
        let before = of_this_thread().unwrap();
        std::thread::spawn(|| {
            let begun = of_this_thread().unwrap();
            while of_this_thread().unwrap().user <= begun.user + Duration::from_millis(50) {
                black_box((0..10_000_u64).fold(0, |sum, i| black_box(sum ^ i)));
            }
        })
        .join()
        .unwrap();
        let after = of_this_thread().unwrap();
        let spent = (after.user + after.system) - (before.user + before.system);
        assert!(spent < Duration::from_millis(50), "{spent:?}");
    }
}
