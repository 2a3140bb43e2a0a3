//! What a volume is stored in, and what can happen to it behind the server's back.
//!
//! A file may be truncated or removed while it is served, a device may shrink or go away. The kernel does not report
//! this: a later write makes a truncated file longer again, and the blocks in between read as zeros; a file without a
//! name is gone with the process. So the size and the number of links are looked at after each flush and durable
//! write, after a short read, and from time to time by a control thread. A write or other change that touches the
//! last block is preceded by a look at the end of the file, because only such a change could restore the length of
//! the file unnoticed.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use longshore_reactor::block_device;

/// `f_type` of file systems that may ask another machine or process for the size of a file
/// (linux/magic.h): NFS, SMB, CIFS, SMB2, FUSE, Ceph, 9P, AFS, Lustre, GFS2, OCFS2.
const ELSEWHERE: [i128; 11] = [
    0x6969,
    0x517b,
    0xff53_4d42,
    0xfe53_4d42,
    0x6573_5546,
    0x00c3_6400,
    0x0102_1997,
    0x5346_414f,
    0x0bd0_0bd0,
    0x0116_1970,
    0x7461_636f,
];

/// Largest file offset that Linux knows.
pub(crate) const SIZE_MAX: u64 = i64::MAX.cast_unsigned();

/// What sort of object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A regular file. Writes beyond its end make it longer.
    File,
    Device,
    /// It has neither a size nor anything to lose (`/dev/zero`).
    Endless,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Backing {
    path: PathBuf,
    kind: Kind,
    /// Its size is known without asking anybody else, so that an event loop may look.
    is_local: bool,
    /// It had a name when it was opened. Files in memory and files that are passed on by number need not.
    had_name: bool,
    /// Somebody has been told that its path leads elsewhere.
    told: AtomicBool,
}

/// What a look at the object has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It is as it should be.
    Sound,
    /// It has no name any more.
    Removed,
    /// It has only so many bytes.
    Shortened { found: u64 },
}

impl Backing {
    /// A file or device that was opened from `path`.
    pub(crate) fn new(path: &Path, file: &File, kind: Kind) -> Backing {
        let is_local = kind == Kind::Device
            || rustix::fs::fstatfs(file)
                .is_ok_and(|status| !ELSEWHERE.contains(&i128::from(status.f_type)));
        Backing {
            path: path.to_owned(),
            kind,
            is_local,
            had_name: file.metadata().is_ok_and(|metadata| metadata.nlink() > 0),
            told: AtomicBool::new(false),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether an event loop may look: nobody else has to answer for it.
    pub(crate) fn is_local(&self) -> bool {
        self.is_local && self.kind != Kind::Endless
    }

    /// Looks at the object, which should have `expected` bytes.
    pub(crate) fn look(&self, file: &File, expected: u64) -> io::Result<Finding> {
        let (found, is_removed) = match self.kind {
            Kind::Endless => return Ok(Finding::Sound),
            Kind::File => {
                let metadata = file.metadata()?;
                (metadata.len(), self.had_name && metadata.nlink() == 0)
            }
            // The node is only a name; a device that is gone has no bytes.
            Kind::Device => (block_device::size_bytes(file)?, false),
        };
        Ok(if found < expected {
            Finding::Shortened { found }
        } else if is_removed {
            Finding::Removed
        } else {
            Finding::Sound
        })
    }

    /// Whether its path leads to something else than the open file, and nobody has been told yet. May
    /// block.
    pub(crate) fn was_moved(&self, file: &File) -> bool {
        if self.kind != Kind::File || !self.had_name {
            return false;
        }
        let Ok(open) = file.metadata() else {
            return false;
        };
        let is_elsewhere = match std::fs::metadata(&self.path) {
            Ok(named) => (named.dev(), named.ino()) != (open.dev(), open.ino()),
            // Of others nobody can tell: a directory on the way may be closed to us by now.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        is_elsewhere && self.tell()
    }

    /// Whether nobody has been told yet what became of its name.
    pub(crate) fn tell(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}
