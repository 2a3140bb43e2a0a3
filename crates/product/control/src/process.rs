//! What the kernel says of this process.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// See proc(5). What cannot be read is absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Process {
    pub cpu_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
    pub open_descriptors: Option<u64>,
    pub max_descriptors: Option<u64>,
}

impl Process {
    pub(crate) fn read() -> Self {
        Self {
            cpu_seconds: cpu_seconds(),
            resident_bytes: resident_bytes(),
            // One of them is the directory itself.
            open_descriptors: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|entries| (entries.count() as u64).saturating_sub(1)),
            max_descriptors: getrlimit(Resource::Nofile).current,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Ticks of years fit into 53 bits.
fn cpu_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the process stands in parentheses and may hold anything.
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_all_of_it() {
        let process = Process::read();
        assert!(process.cpu_seconds.is_some());
        assert!(process.resident_bytes.is_some_and(|bytes| bytes > 4096));
        assert!(process.open_descriptors.is_some_and(|number| number > 2));
        assert!(process.max_descriptors >= process.open_descriptors);
    }
}
