//! Room on the disk. A full disk shows late, and as anything but itself.

use std::fs::DirEntry;
use std::path::Path;

use anyhow::{Result, bail};

use crate::workspace;

/// What the builds, guests and volumes of all steps take below the target folder, with some room to spare. Fuzz targets,
/// which have one turn of four, take 5 GiB more.
const DISK_BYTES: u64 = 12 << 30;

/// What must be free even where an earlier run has left all of that: room for scratch files of tests, and
/// for new builds beside those they replace.
const FREE_BYTES: u64 = 2 << 30;

/// A step that fails beside so little may have failed for that.
const SCARCE_BYTES: u64 = 512 << 20;

/// Refuses to begin where a run would find the disk full. What an earlier run has left counts as room.
pub fn check() -> Result<()> {
    let folder = workspace::work_folder("ci")?;
    let free = free_bytes()?;
    let needed = needed_bytes(folder_bytes(&workspace::target_folder()));
    if free < needed {
        bail!(
            "{} MiB are free at {}, and this run needs {} MiB: free some, or set CARGO_TARGET_DIR to a \
             folder on a larger disk",
            free >> 20,
            folder.display(),
            needed >> 20
        );
    }
    Ok(())
}

/// Reports how full the disk was, and whether that may have caused failures.
pub fn report(some_failed: bool, least_free: u64) {
    let target = workspace::target_folder();
    println!(
        "{} holds {} MiB; at least {} MiB of the disk were free",
        target.display(),
        folder_bytes(&target) >> 20,
        least_free >> 20
    );
    if some_failed && least_free < SCARCE_BYTES {
        println!("the disk was almost full: what failed may have failed for that");
    }
}

/// Free bytes where steps build, or where they have their scratch files: whichever is less.
pub fn free_bytes() -> Result<u64> {
    let folders = [workspace::work_folder("ci")?, std::env::temp_dir()];
    let mut least = u64::MAX;
    for folder in folders {
        let disk = rustix::fs::statvfs(&folder)?;
        least = least.min(disk.f_bavail.saturating_mul(disk.f_frsize));
    }
    Ok(least)
}

/// Free space for a run, where the target folder holds this much.
fn needed_bytes(used: u64) -> u64 {
    DISK_BYTES.saturating_sub(used).max(FREE_BYTES)
}

/// Bytes of all files below a folder, without holes; what cannot be looked at counts as nothing.
fn folder_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;

    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let of_entry = |entry: DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        // A file with several names has each of them here.
        Ok(metadata) => metadata.blocks() * 512 / metadata.nlink().max(1),
        Err(_) => 0,
    };
    entries.flatten().map(of_entry).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use longshore_tests::scratch::Scratch;

    use super::*;

    #[test]
    fn room_counts_what_is_built_and_asks_for_some_that_is_free() {
        assert_eq!(needed_bytes(0), DISK_BYTES);
        assert_eq!(needed_bytes(2 << 30), DISK_BYTES - (2 << 30));
        assert_eq!(needed_bytes(100 << 30), FREE_BYTES);
    }

    #[test]
    fn holes_and_second_names_take_no_room() {
        let scratch = Scratch::new("room");
        let path = scratch.join("file");
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        file.sync_all().unwrap(); // blocks may be allocated late
        let alone = folder_bytes(scratch.path());
        assert!(alone >= 1 << 20);
        std::fs::hard_link(&path, scratch.join("again")).unwrap();
        let sparse = std::fs::File::create(scratch.join("sparse")).unwrap();
        sparse.set_len(1 << 40).unwrap();
        assert_eq!(folder_bytes(scratch.path()), alone);
    }
}
