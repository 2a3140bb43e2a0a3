//! Properties of a block device, read without a lock.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileTypeExt;

use rustix::io::Errno;
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// `BLKGETSIZE64` (linux/fs.h): bytes of a block device. The number is made with `size_t`, what is
/// written is 64 bits everywhere.
const GET_SIZE: Opcode = opcode::read::<usize>(0x12, 114);

/// Bytes of a block device; 0 when it is gone. A seek to its end says the same, but takes the lock of
/// its inode, which a discard holds until it is through. This takes none, so an event loop may ask.
///
/// # Errors
/// The file is not a block device (ENOTTY).
pub fn size_bytes(device: &File) -> io::Result<u64> {
    // The number means something only to block devices.
    if !device.metadata()?.file_type().is_block_device() {
        return Err(Errno::NOTTY.into());
    }
    // SAFETY: BLKGETSIZE64 writes a u64 to the address that it gets, and does nothing else; `Getter`
    // passes the address of a u64 of its own and reads it after success.
    let request = unsafe { Getter::<GET_SIZE, u64>::new() };
    // SAFETY: as above; the file is a block device, where the opcode has this meaning.
    Ok(unsafe { ioctl(device, request) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_no_size_of_a_device() {
        let file = File::open("/proc/self/exe").expect("own program");
        let refused = size_bytes(&file).expect_err("no device");
        assert_eq!(refused.raw_os_error(), Some(Errno::NOTTY.raw_os_error()));
    }

    /// Where the machine has a device that this user may open.
    #[test]
    fn a_device_is_as_long_as_a_seek_to_its_end_says() {
        use rustix::fs::{SeekFrom, seek};
        let nodes = std::fs::read_dir("/dev").expect("device nodes");
        for path in nodes.flatten().map(|node| node.path()) {
            let is_device =
                std::fs::metadata(&path).is_ok_and(|node| node.file_type().is_block_device());
            let Some(device) = is_device.then(|| File::open(&path).ok()).flatten() else {
                continue;
            };
            let end = seek(&device, SeekFrom::End(0)).expect("seek");
            assert_eq!(
                size_bytes(&device).expect("ioctl"),
                end,
                "{}",
                path.display()
            );
        }
    }
}
