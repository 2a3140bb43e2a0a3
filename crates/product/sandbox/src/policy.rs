//! What a process may still use in the sandbox.

use std::path::{Path, PathBuf};

/// The key `sandbox` of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What the kernel offers.
    #[default]
    Auto,
    /// Nothing is taken away.
    Off,
    /// All of it, or the server does not start.
    Strict,
}

/// Folders of the system: a rule for one of these would name far more than what lies in it for the server. They count as
/// themselves only; folders in them do not.
const SHARED_FOLDERS: [&str; 18] = [
    "/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/opt", "/proc", "/root",
    "/run", "/sbin", "/sys", "/tmp", "/usr", "/var", "/var/lib",
];

/// What the system's library reads, to resolve names of hosts and to tell users and times, and what the server reads of the
/// machine. Those that are missing are left out. Other processes are known by their names in `/proc` alone: Landlock keeps
/// their memory and environment closed, and the capability for the memory of the kernel is dropped.
const SYSTEM: [&str; 23] = [
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/nsswitch.conf",
    "/etc/nvme",
    "/etc/passwd",
    "/etc/resolv.conf",
    "/etc/services",
    "/lib",
    "/lib64",
    "/proc",
    "/run/NetworkManager",
    "/run/systemd/resolve",
    "/sys",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/share/zoneinfo",
    "/var/lib/dbus/machine-id",
];

/// Devices that any process may use.
const DEVICES: [&str; 6] = [
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

/// What may be done to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Read,
    /// Reads, writes, and control of devices.
    ReadWrite,
    /// All of that, and files and folders may come, move and go.
    Keep,
    /// Sockets may come and go, and nothing be read.
    Sockets,
}

/// Files, folders and ports.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// With symbolic links resolved.
    pub(crate) places: Vec<(PathBuf, Use)>,
    /// Ports to listen on. `None`: any.
    pub(crate) listen_ports: Option<Vec<u16>>,
    pub(crate) connect_ports: Vec<u16>,
    /// The server mounts a file system.
    pub(crate) mounts: bool,
    /// What is opened and connected to while the server runs is not known.
    pub(crate) anywhere: bool,
    /// The service manager is told of progress by a socket in the abstract namespace.
    pub(crate) abstract_sockets: bool,
}

impl Policy {
    /// What each server needs, whatever it serves.
    #[must_use]
    pub fn base() -> Self {
        let mut policy = Self::default();
        for path in SYSTEM {
            policy.add(Path::new(path), Use::Read);
        }
        for path in DEVICES {
            policy.add(Path::new(path), Use::ReadWrite);
        }
        policy
    }

    /// A file that is read, and may be replaced: its folder, where that is not shared with the system.
    pub fn read(&mut self, path: &Path) {
        self.with_folder(path, Use::Read, Use::Read);
    }

    /// A folder with all in it, to be read.
    pub fn read_folder(&mut self, path: &Path) {
        self.add(path, Use::Read);
    }

    /// The file of a volume. Others may be made beside it, where its folder is not shared with the system.
    pub fn file(&mut self, path: &Path) {
        self.with_folder(path, Use::ReadWrite, Use::Keep);
    }

    /// A device, and nothing beside it.
    pub fn device(&mut self, path: &Path) {
        self.add(path, Use::ReadWrite);
    }

    /// A folder of the server's own.
    pub fn keep(&mut self, path: &Path) {
        self.add(path, Use::Keep);
    }

    /// A Unix socket that is made and removed.
    pub fn socket(&mut self, path: &Path) {
        if let Some(folder) = folder(path) {
            self.add(&folder, Use::Sockets);
        }
    }

    /// Bounds what is listened on, from the first call on.
    pub fn listen(&mut self, port: u16) {
        insert(self.listen_ports.get_or_insert_default(), port);
    }

    pub fn connect(&mut self, port: u16) {
        insert(&mut self.connect_ports, port);
    }

    /// Volumes may come from any place and server while this one runs: neither files nor ports are bounded.
    pub const fn anywhere(&mut self) {
        self.anywhere = true;
    }

    /// A file system is mounted after the start, and unmounted at the end.
    pub const fn mount(&mut self) {
        self.mounts = true;
    }

    /// Sockets in the abstract namespace can be reached.
    pub const fn abstract_sockets(&mut self) {
        self.abstract_sockets = true;
    }

    /// Whether a volume at this path could be opened, or made where there is none.
    #[must_use]
    pub fn permits_file(&self, path: &Path) -> bool {
        let is_there = path.exists();
        let Some(path) = resolved(path) else {
            return false;
        };
        self.places.iter().any(|(place, usage)| match usage {
            Use::Keep => path.starts_with(place),
            Use::ReadWrite => is_there && path.starts_with(place),
            Use::Read | Use::Sockets => false,
        })
    }

    /// Whether a file at this path could be read.
    #[must_use]
    pub fn permits_read(&self, path: &Path) -> bool {
        let Some(path) = resolved(path) else {
            return false;
        };
        let mut readable = self
            .places
            .iter()
            .filter(|(_, usage)| *usage != Use::Sockets);
        readable.any(|(place, _)| path.starts_with(place))
    }

    fn with_folder(&mut self, path: &Path, usage: Use, in_folder: Use) {
        let Some(path) = resolved(path) else {
            return;
        };
        let Some(folder) = path.parent() else {
            return;
        };
        let is_shared = SHARED_FOLDERS
            .iter()
            .any(|shared| folder == Path::new(shared));
        // A new file needs a rule for its folder: at the next start it has one of its own.
        if !is_shared || (usage == Use::ReadWrite && !path.exists()) {
            self.add(folder, in_folder);
        } else {
            self.add(&path, usage);
        }
    }

    fn add(&mut self, path: &Path, usage: Use) {
        if let Ok(path) = path.canonicalize()
            && !self.places.contains(&(path.clone(), usage))
        {
            self.places.push((path, usage));
        }
    }
}

fn insert(ports: &mut Vec<u16>, port: u16) {
    if !ports.contains(&port) {
        ports.push(port);
    }
}

/// The path without symbolic links; its last part may be missing.
fn resolved(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Some(path);
    }
    Some(folder(path)?.join(path.file_name()?))
}

/// The folder of a path, without symbolic links.
fn folder(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.parent()?.canonicalize().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_brings_its_folder_but_not_one_of_the_system() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let mut policy = Policy::default();
        policy.file(&place.join("new"));
        policy.read(Path::new("/etc/passwd"));
        policy.read(Path::new("/nowhere/at/all"));
        let expected = [
            (place.clone(), Use::Keep),
            (PathBuf::from("/etc/passwd"), Use::Read),
        ];
        assert_eq!(policy.places, expected);
        assert!(policy.permits_file(&place.join("another")));
        assert!(!policy.permits_file(Path::new("/etc/passwd")));
        assert!(!policy.permits_file(Path::new("/etc/another")));
        assert!(!policy.permits_file(Path::new("/nowhere/at/all")));
    }

    #[test]
    fn links_are_followed_to_what_they_name() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        for folder in ["real", "links"] {
            fs::create_dir(place.join(folder)).unwrap();
        }
        fs::write(place.join("real/file"), "").unwrap();
        std::os::unix::fs::symlink(place.join("real/file"), place.join("links/file")).unwrap();
        let mut policy = Policy::default();
        policy.file(&place.join("links/file"));
        assert_eq!(policy.places, [(place.join("real"), Use::Keep)]);
        assert!(policy.permits_file(&place.join("links/file")));
        assert!(!policy.permits_file(&place.join("links/new")));
    }

    #[test]
    fn a_place_of_reads_permits_no_volume() {
        let directory = tempfile::tempdir().unwrap();
        let mut policy = Policy::default();
        policy.read_folder(directory.path());
        policy.socket(&directory.path().join("socket"));
        assert!(policy.permits_read(&directory.path().join("file")));
        assert!(!policy.permits_read(Path::new("/etc/passwd")));
        assert!(!policy.permits_file(&directory.path().join("file")));
        policy.keep(directory.path());
        assert!(policy.permits_file(&directory.path().join("file")));
    }
}
