//! The memory limit of the control group that the process is in, and of all those above it (cgroups(7)).
//!
//! `/proc/self/cgroup` names the group in each hierarchy, and `/proc/self/mountinfo` where that is mounted. In a
//! container the mount may show part of the hierarchy only: the group is looked for below the part's root.

use std::fs;
use std::path::{Path, PathBuf};

/// What beyond cannot be told from no limit: version 1 says that with the largest number of pages.
const NONE_FROM: u64 = 1 << 62;

/// The files that hold limits in a hierarchy. `max` says that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Version 1, with the file memory.limit_in_bytes.
    One,
    /// memory.max, and memory.high, above which the kernel slows the process down.
    Two,
}

impl Version {
    const fn files(self) -> &'static [&'static str] {
        match self {
            Self::One => &["memory.limit_in_bytes"],
            Self::Two => &["memory.max", "memory.high"],
        }
    }
}

/// A hierarchy that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The group that is seen at `point`.
    root: String,
    point: PathBuf,
}

/// The lowest limit and the file that says so; `None` when there is none.
pub(super) fn least() -> Option<(String, u64)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let limits = mounts.lines().filter_map(mount).filter_map(|mount| {
        let group = group_of(&groups, mount.version)?;
        least_of(&mount, group)
    });
    limits.min_by_key(|(_, bytes)| *bytes)
}

/// A line of mountinfo: numbers, root, mount point, options, "-", type, source, super options.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let mut fields = before.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let mut fields = after.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let version = match kind {
        "cgroup2" => Version::Two,
        "cgroup" if options.split(',').any(|option| option == "memory") => Version::One,
        _ => return None,
    };
    Some(Mount {
        version,
        root: root.to_owned(),
        point: PathBuf::from(point),
    })
}

/// The group of a process: a line `number:controllers:path` for each hierarchy.
fn group_of(groups: &str, version: Version) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match version {
            Version::Two => number == "0" && controllers.is_empty(),
            Version::One => controllers.split(',').any(|name| name == "memory"),
        };
        is_it.then_some(path)
    })
}

fn least_of(mount: &Mount, group: &str) -> Option<(String, u64)> {
    let below = Path::new(group)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    let below = below.strip_prefix("/").unwrap_or(below);
    // The group and all above it, up to what is mounted.
    let folders = below.ancestors().map(|folder| mount.point.join(folder));
    let files = folders.flat_map(|folder| {
        let files = mount.version.files().iter();
        files.map(move |file| folder.join(file))
    });
    let limits = files.filter_map(|file| Some((file.display().to_string(), limit_in(&file)?)));
    limits.min_by_key(|(_, bytes)| *bytes)
}

fn limit_in(file: &Path) -> Option<u64> {
    let bytes: u64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    (bytes < NONE_FROM).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_both_versions_are_known() {
        let one =
            "33 27 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory";
        let two = "35 24 0:30 /box /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(
            mount(one),
            Some(Mount {
                version: Version::One,
                root: "/".to_owned(),
                point: PathBuf::from("/sys/fs/cgroup/memory"),
            })
        );
        assert_eq!(mount(two).map(|mount| mount.root), Some("/box".to_owned()));
        for other in [
            "33 27 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct",
            "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw",
            "",
        ] {
            assert_eq!(mount(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_has_a_group_in_each_hierarchy() {
        let groups = "5:cpu,cpuacct:/a\n4:memory,hugetlb:/b/c\n1:name=systemd:/d\n0::/e:f\n";
        assert_eq!(group_of(groups, Version::One), Some("/b/c"));
        assert_eq!(group_of(groups, Version::Two), Some("/e:f"));
        assert_eq!(group_of("0::/e\n", Version::One), None);
    }

    #[test]
    fn the_lowest_limit_on_the_way_up_counts() {
        let point = std::env::temp_dir().join(format!("longshore-groups-{}", std::process::id()));
        let group = point.join("a/b/c");
        fs::create_dir_all(&group).unwrap();
        let write = |file: &str, text: &str| fs::write(point.join(file), text).unwrap();
        write("a/b/c/memory.max", "max\n");
        write("a/b/c/memory.high", "900\n");
        write("a/b/memory.max", "1000\n");
        write("a/memory.max", "700\n");
        write("a/b/c/memory.limit_in_bytes", "9223372036854771712\n");
        let least = |version, root: &str| {
            let mount = Mount {
                version,
                root: root.to_owned(),
                point: point.clone(),
            };
            least_of(&mount, "/a/b/c").map(|(_, bytes)| bytes)
        };
        assert_eq!(least(Version::Two, "/"), Some(700));
        assert_eq!(least(Version::One, "/"), None);
        // A container that sees its own group only, at the mount point.
        write("memory.max", "500\n");
        assert_eq!(least(Version::Two, "/a/b/c"), Some(500));
        assert_eq!(least(Version::Two, "/elsewhere"), Some(500));
        fs::remove_dir_all(&point).unwrap();
    }
}
