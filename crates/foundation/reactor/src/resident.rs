//! Memory that the start of a process has used, and its work does not.

use std::io;
use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Gives back memory that the allocator holds free, and pages of the program and its libraries: most were used by the start
/// alone. Those that are used again come again from the page cache.
///
/// # Errors
/// The kernel does not list the mappings of the process. Then only the allocator's memory is given back.
pub fn give_back() -> io::Result<()> {
    let listed = std::fs::read_to_string("/proc/self/smaps");
    for range in listed.as_deref().map(clean).unwrap_or_default() {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: it is a private mapping of a file that nobody can write to, without a page that differs from the file (a
        // page that a debugger or a relocation has changed is anonymous). So each page reads as before, from the file, when
        // it is used next. A mapping that is gone by now is an error, and nothing happens.
        let _ = unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) };
    }
    let listed = listed.map(drop);
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number, and gives back whole pages that are free under the lock of the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
    listed
}

/// Mappings of files, private and read-only, without changed pages.
fn clean(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some((range, is_candidate)) = mapping(line) {
            current = is_candidate.then_some(range);
        } else if let Some(changed) = line.strip_prefix("Anonymous:")
            && let Some(range) = current.take()
            && changed.trim() == "0 kB"
        {
            found.push(range);
        }
    }
    found
}

/// The first line of a mapping: where it is, and whether it is private, read-only, and of a file.
fn mapping(line: &str) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let modes = words.next()?.as_bytes();
    let inode = words.nth(2)?;
    let is_candidate = modes.get(1) == Some(&b'-') && modes.get(3) == Some(&b'p') && inode != "0";
    Some((range, is_candidate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_mappings_of_files_are_found() {
        let smaps = "\
00400000-00500000 r--p 00000000 fe:00 77                  /usr/bin/a program
Size:               1024 kB
Rss:                 512 kB
Anonymous:             0 kB
00500000-00600000 r-xp 00100000 fe:00 77                  /usr/bin/a program
Anonymous:             0 kB
VmFlags: rd ex mr mw me
00600000-00610000 r--p 00200000 fe:00 77                  /usr/bin/a program
Anonymous:            64 kB
00610000-00620000 rw-p 00210000 fe:00 77                  /usr/bin/a program
Anonymous:             0 kB
00700000-00800000 r--s 00000000 fe:00 78                  /srv/shared
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 00:00 0           [vdso]
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 00:00 0
Anonymous:             0 kB
";
        assert_eq!(
            clean(smaps),
            [0x0040_0000..0x0050_0000, 0x0050_0000..0x0060_0000]
        );
        assert!(clean("no mapping\nAnonymous: 0 kB\n").is_empty());
    }

    /// Resident bytes of mappings of files.
    fn resident_of_files() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find(|it| it.starts_with("RssFile:"))
            .unwrap();
        let kibibytes = line.split_ascii_whitespace().nth(1).unwrap();
        kibibytes.parse().unwrap()
    }

    #[test]
    fn pages_of_the_program_go_and_come_again() {
        let before = resident_of_files();
        give_back().unwrap();
        let after = resident_of_files();
        assert!(after < before, "{before} KiB before, {after} KiB after");
    }
}
