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

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use fuser::{BackgroundSession, MountOption, Session};
use longshore_server::Control;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::change::plane::Plane;
use source::Source;
use tree::Tree;

/// The type of the mount, by which `longshore scst shell` finds it.
const SUBTYPE: &str = "longshore";

/// The trees, mounted as long as this lives.
pub struct MountedTree {
    session: Option<BackgroundSession>,
    path: PathBuf,
}

impl MountedTree {
    /// Mounts the trees. Where that is not possible, the log says why, and the server goes on without.
    pub fn mount(path: &Path, plane: &Arc<Plane>, server: Control) -> Option<Self> {
        match mount(path, plane, server) {
            Ok(session) => {
                tracing::info!("SCST's trees are at {}", path.display());
                Some(Self {
                    session: Some(session),
                    path: path.to_owned(),
                })
            }
            Err(error) => {
                tracing::warn!(
                    "SCST's trees cannot be mounted at {}: {error}; this needs /dev/fuse, an empty directory, and for \
                     users other than root fusermount3",
                    path.display()
                );
                None
            }
        }
    }
}

impl Drop for MountedTree {
    fn drop(&mut self) {
        // It lets go of the mount at once, whoever has files open.
        drop(self.session.take());
        tracing::debug!("SCST's trees are no more at {}", self.path.display());
    }
}

fn mount(path: &Path, plane: &Arc<Plane>, server: Control) -> io::Result<BackgroundSession> {
    clear(path)?;
    let source = Source::new(Arc::clone(plane), server);
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        MountOption::FSName("longshore-scst".to_owned()),
        MountOption::Subtype(SUBTYPE.to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    Session::new(Tree::new(source)?, path, &config)?.spawn()
}

/// Makes room for a mount: a directory is made, and the mount of a server that was killed is taken away.
fn clear(path: &Path) -> io::Result<()> {
    match rustix::fs::stat(path) {
        Ok(_) => Ok(()),
        Err(Errno::NOENT) => std::fs::create_dir_all(path),
        Err(Errno::NOTCONN) => {
            tracing::info!("{}: a server has left its mount behind", path.display());
            if rustix::mount::unmount(path, UnmountFlags::DETACH).is_err() {
                let mut unmount = Command::new("fusermount3");
                unmount.args(["-u", "-z"]).arg(path).stdin(Stdio::null());
                unmount.output()?;
            }
            rustix::fs::stat(path).map(drop).map_err(io::Error::from)
        }
        Err(error) => Err(error.into()),
    }
}
