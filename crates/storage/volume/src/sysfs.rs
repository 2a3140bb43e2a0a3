//! Queue limits of a block device, from `/sys/dev/block`.

use std::path::PathBuf;

use rustix::fs::{major, minor};

/// A device's directory in sysfs.
#[derive(Debug)]
pub(crate) struct Queue {
    device: PathBuf,
    /// The queue belongs to the whole disk when the device is a partition.
    queue: PathBuf,
}

impl Queue {
    /// `None` where the device has no queue: file systems in memory or over the network, or no sysfs.
    pub(crate) fn of_device(device: u64) -> Option<Queue> {
        let device = PathBuf::from(format!(
            "/sys/dev/block/{}:{}",
            major(device),
            minor(device)
        ));
        let device = device.canonicalize().ok()?;
        let queue = [device.join("queue"), device.parent()?.join("queue")]
            .into_iter()
            .find(|path| path.is_dir())?;
        Some(Queue { device, queue })
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        number(&self.queue.join(attribute))
    }

    pub(crate) fn is_rotational(&self) -> bool {
        self.number("rotational") == Some(1)
    }

    pub(crate) fn is_read_only(&self) -> bool {
        number(&self.device.join("ro")) == Some(1)
    }

    /// The device frees blocks, in units of this many bytes.
    pub(crate) fn discard_granularity(&self) -> Option<u32> {
        self.number("discard_max_bytes")
            .filter(|bytes| *bytes > 0)?;
        u32::try_from(self.number("discard_granularity")?)
            .ok()
            .filter(|bytes| *bytes > 0)
    }

    /// The device zeroes ranges by itself; then a hole punched into it is sure to read as zeros.
    pub(crate) fn zeroes(&self) -> bool {
        self.number("write_zeroes_max_bytes")
            .is_some_and(|bytes| bytes > 0)
    }
}

fn number(path: &std::path::Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
