//! Keeps two servers, or two volumes of one server, from writing to one file.
//!
//! The lock is flock(2), advisory and bound to the open file description: two descriptions of one
//! file exclude each other inside a process as well as between processes, and the kernel releases it
//! when the holder dies however it dies. Writers hold it exclusively, read-only volumes share it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::open::{LockHolder, OpenError};

/// udev locks a block device shared for the moment in which it probes it, so a refusal is final only
/// when it lasts.
const ATTEMPTS: u32 = 5;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);

/// A process that was killed holds its locks until the kernel has ended what it had under way, which on a busy
/// machine outlasts the process by much more.
const ATTEMPTS_WHEN_GONE: u32 = 100;

/// Nobody knows whether who holds it is gone: in another container, or on another host.
const ATTEMPTS_WHEN_UNKNOWN: u32 = 25;

/// Locks `file`, which was opened from `path`, for as long as its description is open. May block for a moment.
///
/// # Errors
/// Another server, or another volume of this one, has it.
pub fn lock(file: &File, path: &Path, read_only: bool) -> Result<(), OpenError> {
    let operation = if read_only {
        FlockOperation::NonBlockingLockShared
    } else {
        FlockOperation::NonBlockingLockExclusive
    };
    for attempt in 1.. {
        match flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if attempt < attempts_for(holder(file)) => {
                thread::sleep(ATTEMPT_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => break,
            // Some network file systems have no locks at all; there, serving goes on unguarded.
            Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => {
                tracing::warn!(path = %path.display(), "the file system has no locks: make sure \
                    that no other server writes to the file");
                return Ok(());
            }
            Err(errno) => return Err(OpenError::io("flock", path, errno)),
        }
    }
    Err(OpenError::Locked {
        path: path.to_owned(),
        holder: holder(file),
    })
}

/// Who holds a flock on the file, as far as `/proc/locks` tells.
fn holder(file: &File) -> LockHolder {
    let Ok(metadata) = file.metadata() else {
        return LockHolder::Unknown;
    };
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else {
        return LockHolder::Unknown;
    };
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let inode = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    match holder_in(&locks, &inode) {
        None => LockHolder::Unknown,
        Some(pid) if pid == std::process::id() => LockHolder::ThisProcess,
        Some(pid) => LockHolder::Process(pid),
    }
}

/// How often to try for a lock that this one holds.
fn attempts_for(holder: LockHolder) -> u32 {
    match holder {
        LockHolder::Unknown => ATTEMPTS_WHEN_UNKNOWN,
        LockHolder::Process(pid) if is_gone(pid) => ATTEMPTS_WHEN_GONE,
        LockHolder::ThisProcess | LockHolder::Process(_) => ATTEMPTS,
    }
}

/// Whether nothing but the kernel holds what that process held. Nobody may have waited for it yet, or threads of it may
/// still be on their way out.
fn is_gone(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
    state.starts_with(['Z', 'X'])
}

/// Finds the inode (`major:minor:number`) among lines like
/// `1: FLOCK  ADVISORY  WRITE 707 08:02:1234 0 EOF`. A line whose second field is `->` is of a
/// process that waits; PID 0 and below stand for processes that we cannot see.
fn holder_in(locks: &str, inode: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, pid, place, ..] if place == inode => {
                pid.parse().ok().filter(|pid| *pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_is_found_by_inode_among_flocks_only() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:99 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:00:99 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 fe:00:98 0 EOF\n\
                     4: FLOCK  ADVISORY  READ  14 fe:00:99 0 EOF\n";
        assert_eq!(holder_in(locks, "fe:00:99"), Some(14));
        assert_eq!(holder_in(locks, "fe:00:97"), None);
        assert_eq!(
            holder_in("5: FLOCK ADVISORY WRITE 0 fe:00:97 0 EOF", "fe:00:97"),
            None
        );
        assert_eq!(holder_in("garbage\n\n", "fe:00:97"), None);
    }

    #[test]
    fn processes_that_are_there_are_not_gone() {
        assert!(!is_gone(std::process::id()));
        assert!(is_gone(u32::MAX - 1));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert!(!is_gone(child.id()));
        child.kill().unwrap();
        // Until it is waited for it has an entry.
        while !is_gone(child.id()) {
            thread::sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }
}
