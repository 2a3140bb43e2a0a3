//! SCST's trees as a file system: a thin layer between the kernel and `longshore-scst`.
//!
//! ```text
//!  kernel ─► thread `scst` ──► nodes, state ─► answer
//!                   └ write ─► thread `scst-change` ─► plane: plan, commit, switch ─► answer
//! ```
//!
//! A write is answered when its effect is visible. Reading goes on meanwhile, since writes have a thread of their own.

mod nodes;
mod source;
mod tree;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use fuser::{BackgroundSession, MountOption, Session};
use longshore_server::Control;
use rustix::mount::UnmountFlags;

use crate::change::plane::Plane;
use crate::threads::THREAD_STACK_BYTES;
use source::Source;
use tree::Tree;

/// The type of the mount, by which `longshore scst shell` finds it.
const SUBTYPE: &str = "longshore";

/// The source of the mounts, as the list of mounts shows it.
const SOURCE: &str = "longshore-scst";

/// The type of the mount as the kernel lists it.
const TYPE: &str = "fuse.longshore";

/// The mounts of this process and what they are.
const MOUNTS: &str = "/proc/self/mountinfo";

/// How long mounting may take: where the directory is one of a file system that does not answer, it takes for ever.
const MOUNTING: Duration = Duration::from_secs(5);

/// The most mounts of servers that were killed, one over the other, that a start takes away.
const LEFT_MAX: usize = 16;

/// The trees, mounted as long as this lives.
pub struct MountedTree {
    session: Option<BackgroundSession>,
    path: PathBuf,
}

impl MountedTree {
    /// Mounts the trees. Where that is not possible, the log says why, and the server goes on without.
    pub fn mount(path: &Path, plane: &Arc<Plane>, server: Control) -> Option<Self> {
        match mount_in_time(path, Arc::clone(plane), server) {
            Ok(tree) => {
                tracing::info!("SCST's trees are at {}", path.display());
                Some(tree)
            }
            Err(error) => {
                tracing::warn!(
                    "SCST's trees cannot be mounted at {}: {error}; this needs /dev/fuse, an empty directory, for users \
                     other than root fusermount3, and a unit of systemd that allows it (docs/operating/scst.md)",
                    path.display()
                );
                None
            }
        }
    }
}

impl Drop for MountedTree {
    fn drop(&mut self) {
        // Nobody finds the trees any more, whoever has files open in them.
        if let Err(error) = detach(&self.path) {
            tracing::warn!("{} stays mounted: {error}", self.path.display());
        }
        drop(self.session.take());
        tracing::debug!("SCST's trees are no more at {}", self.path.display());
    }
}

/// Mounts in a thread of its own, which may wait for another file system. What it mounts too late it takes away again.
fn mount_in_time(path: &Path, plane: Arc<Plane>, server: Control) -> io::Result<MountedTree> {
    let (give, take) = sync_channel(0);
    let path = path.to_owned();
    thread::Builder::new()
        .name("scst-mount".to_owned())
        .stack_size(THREAD_STACK_BYTES)
        .spawn(move || {
            let tree = mount(&path, plane, server).map(|session| MountedTree {
                session: Some(session),
                path,
            });
            drop(give.send(tree));
        })?;
    match take.recv_timeout(MOUNTING) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "a file system there does not answer",
        )),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("mounting has failed")),
    }
}

fn mount(path: &Path, plane: Arc<Plane>, server: Control) -> io::Result<BackgroundSession> {
    clear(path)?;
    let source = Source::new(plane, server);
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.to_owned()),
        MountOption::Subtype(SUBTYPE.to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    Session::new(Tree::new(source)?, path, &config)?.spawn()
}

/// Makes room for a mount: the mount of a server that was killed is taken away, and a directory is made. Nothing here asks
/// a mount that may not answer.
fn clear(path: &Path) -> io::Result<()> {
    for _ in 0..LEFT_MAX {
        let mounts = fs::read(MOUNTS)?;
        match type_at(&mounts, &std::path::absolute(path)?) {
            Some(kind) if kind == TYPE => {
                tracing::info!("{}: a server has left its mount behind", path.display());
                detach(path)?;
            }
            Some(kind) if kind == "fuse" || kind.starts_with("fuse.") => {
                let text = format!("a file system of type {kind} is mounted there");
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            _ => return fs::create_dir_all(path),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::ResourceBusy,
        "too many mounts of servers lie there, one over the other",
    ))
}

/// Takes a mount away from its place. Files that are open in it stay open.
fn detach(path: &Path) -> io::Result<()> {
    let Err(error) = rustix::mount::unmount(path, UnmountFlags::DETACH) else {
        return Ok(());
    };
    let mut unmount = Command::new("fusermount3");
    unmount.args(["-u", "-z"]).arg(path).stdin(Stdio::null());
    match unmount.output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(error.into()),
    }
}

/// The type of the file system whose root is at a path: the upper one of several.
fn type_at(mounts: &[u8], path: &Path) -> Option<String> {
    let lines = mounts.split(|byte| *byte == b'\n');
    let mut types = lines.filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let place = PathBuf::from(OsString::from_vec(unescaped(fields.nth(4)?)));
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = rest.next()?;
        // A mount by root has no subtype, and the source tells whose it is.
        let is_ours = rest.next() == Some(SOURCE.as_bytes());
        let kind = if is_ours {
            TYPE.into()
        } else {
            String::from_utf8_lossy(kind)
        };
        (place == path).then(|| kind.into_owned())
    });
    types.next_back()
}

/// A field of the list of mounts, which has blanks and some others as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let code = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        text.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_mounts_are_found_without_asking_them() {
        let mounts = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:40 / /run/a\\040b rw,nosuid shared:2 master:3 - fuse.longshore longshore-scst rw\n\
            41 22 0:41 / /run/c rw - fuse.longshore longshore-scst rw\n\
            42 41 0:42 / /run/c rw - fuse.sshfs host: rw\n\
            broken\n";
        let at = |path: &str| type_at(mounts, Path::new(path));
        assert_eq!(at("/run/a b").as_deref(), Some(TYPE));
        assert_eq!(at("/run/c").as_deref(), Some("fuse.sshfs"));
        assert_eq!(at("/run/d"), None);
        assert_eq!(unescaped(br"\04"), br"\04");
        assert_eq!(unescaped(br"\134"), br"\");
    }
}
