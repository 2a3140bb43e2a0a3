//! Cores of this process, and the binding of a thread to one of them.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores the calling thread may run on, in ascending order. Control groups (cpusets) and
/// `taskset` are accounted for, as the kernel does that in the affinity mask.
pub fn allowed_cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|core| set.is_set(*core))
        .collect())
}

/// Keeps the calling thread on one core from now on.
pub fn pin_to_core(core: usize) -> io::Result<()> {
    pin_to_cores(&[core])
}

/// Keeps the calling thread on some cores from now on.
pub fn pin_to_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The core the calling thread runs on at this moment.
#[must_use]
pub fn current_core() -> usize {
    rustix::thread::sched_getcpu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_thread_stays_on_its_core() {
        let cores = allowed_cores().unwrap();
        assert!(!cores.is_empty());
        // On a thread of its own: the affinity of the test's thread is not ours to change.
        std::thread::spawn(move || {
            for core in cores {
                pin_to_core(core).unwrap();
                assert_eq!(allowed_cores().unwrap(), [core]);
                assert_eq!(current_core(), core);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn core_that_does_not_exist_is_an_error() {
        assert!(pin_to_core(usize::MAX).is_err());
        assert!(pin_to_core(CpuSet::MAX_CPU - 1).is_err());
    }
}
