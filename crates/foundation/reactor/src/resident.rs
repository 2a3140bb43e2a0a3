//! Memory that the start of a process has used, and its work does not.

use std::io;
use std::ops::Range;
use std::path::Path;

use rustix::mm::{Advice, madvise};

/// Gives back memory that the allocator holds free, and pages of the program and its libraries: most were used by the start
/// alone. Those that are used again come again from the page cache.
///
/// # Errors
/// The kernel does not list the mappings of the process. Then only the allocator's memory is given back.
pub fn give_back() -> io::Result<()> {
    let program = std::fs::read_link("/proc/self/exe")?;
    let listed = std::fs::read_to_string("/proc/self/smaps");
    let found = listed.as_deref().map(|smaps| clean(smaps, &program));
    for range in found.unwrap_or_default() {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: it is a private mapping of the program or of a library that nobody can write to, without a page that differs
        // from the file (a page that a relocation has changed is anonymous, in memory or in swap). So each page reads as
        // before, from the file, when it is used next. Nobody unloads libraries, so the mapping is still there.
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

/// Mappings of the program and its libraries, private and read-only, without changed pages in memory or in swap.
fn clean(smaps: &str, program: &Path) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut current = None;
    for line in smaps.lines() {
        if let Some((range, is_candidate)) = mapping(line, program) {
            current = is_candidate.then_some(range);
        } else if let Some(changed) = line.strip_prefix("Anonymous:") {
            current = current.filter(|_| changed.trim() == "0 kB");
        } else if let Some(changed) = line.strip_prefix("Swap:")
            && let Some(range) = current.take()
            && changed.trim() == "0 kB"
        {
            found.push(range);
        }
    }
    found
}

/// The first line of a mapping: where it is, and whether it is private, read-only, and of the program or a library.
fn mapping(line: &str, program: &Path) -> Option<(Range<usize>, bool)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let modes = words.next()?.as_bytes();
    let inode = words.nth(2)?;
    let path = line.find('/').map(|at| Path::new(&line[at..]));
    let is_code = path.is_some_and(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path == program || name.contains(".so")
    });
    let is_private = modes.get(1) == Some(&b'-') && modes.get(3) == Some(&b'p');
    Some((range, is_private && is_code && inode != "0"))
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
Swap:                  0 kB
00500000-00600000 r-xp 00100000 fe:00 77                  /usr/bin/a program
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
00600000-00601000 r--p 00200000 fe:00 77                  /usr/bin/a program
Anonymous:             0 kB
Swap:                  4 kB
00602000-00603000 r--p 00000000 fe:00 79                  /usr/lib/libx.so.6
Anonymous:             0 kB
Swap:                  0 kB
00604000-00605000 r--p 00000000 fe:00 80                  /srv/data
Anonymous:             0 kB
Swap:                  0 kB
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
            clean(smaps, Path::new("/usr/bin/a program")),
            [
                0x0040_0000..0x0050_0000,
                0x0050_0000..0x0060_0000,
                0x0060_2000..0x0060_3000
            ]
        );
        let none = "no mapping\nAnonymous: 0 kB\nSwap: 0 kB\n";
        assert!(clean(none, Path::new("/x")).is_empty());
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
        // Other tests of this process need pages meanwhile.
        let is_less = || {
            let before = resident_of_files();
            give_back().unwrap();
            resident_of_files() < before
        };
        assert!((0..50).any(|_| is_less()));
    }
}
