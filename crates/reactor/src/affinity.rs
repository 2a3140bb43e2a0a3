//! Which cores this process may use, and keeping a thread on one.

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
