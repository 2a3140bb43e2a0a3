//! Looks at what a volume is stored in (see [`backing`](super::backing)), and what they and errors say of the
//! volume as a whole.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use longshore_reactor::storage::FileOperationKind;
use rustix::io::Errno;

use super::backing::{Finding, Kind};
use super::errno::{is_errno, is_interruption, is_no_space};
use super::state::{Medium, inline};
use crate::condition::Condition;
use crate::error::VolumeError;
use crate::io::Io;

/// What is wrong with the volume as a whole.
impl Medium {
    /// Looks at what the volume is stored in, and notes what is wrong with it.
    pub(crate) fn inspect(&self) -> Condition {
        let expected = self.outline.size_bytes();
        match self.backing.look(self.file(), expected) {
            Ok(Finding::Sound) => {}
            Ok(Finding::Removed) => self.was_removed(),
            Ok(Finding::Shortened { found }) => self.was_shortened(Some(found), expected),
            Err(error) => {
                let path = self.backing.path().display();
                tracing::warn!(volume = self.outline.name(), %path, %error, "cannot read the size of the file or device");
            }
        }
        self.condition()
    }

    /// The same, and whether its path still leads to it. May block.
    pub(crate) fn inspect_all(&self) -> Condition {
        let condition = self.inspect();
        if condition.is_sound() && self.backing.was_moved(self.file()) {
            let path = self.backing.path().display();
            tracing::warn!(
                volume = self.outline.name(),
                %path,
                "the path no longer leads to the file that is served: it was renamed, or another mount \
                 covers it. The volume works on, but a restarted server will not find the file there"
            );
        }
        condition
    }

    #[cold]
    fn was_removed(&self) {
        let (volume, path) = (self.outline.name(), self.backing.path().display());
        // Readers lose nothing by it, and who replaces a file that is only read does it this way.
        if self.abilities.read_only {
            if self.backing.tell() {
                tracing::warn!(
                    volume,
                    %path,
                    "the file was removed or replaced: the volume serves the old one until the \
                     server restarts"
                );
            }
        } else if self.condition.worsen(Condition::Removed) {
            tracing::error!(
                volume,
                %path,
                "the file was removed while it is served: its data would be lost when the server \
                 ends, so the volume refuses writes. Save the data while the server runs (cp \
                 --sparse=always /proc/{}/fd/{} {path}.saved), put it in its place, then start the \
                 server again",
                std::process::id(),
                self.file().as_raw_fd(),
            );
        }
    }

    /// `found`: its size, where that is known.
    #[cold]
    fn was_shortened(&self, found: Option<u64>, expected: u64) {
        if !self.condition.worsen(Condition::Shortened) {
            return;
        }
        // What needs no sleep does not look at the condition.
        self.inline_reads.store(inline::OFF, Ordering::Relaxed);
        self.has_pages.store(false, Ordering::Relaxed);
        let (volume, path) = (self.outline.name(), self.backing.path().display());
        if self.backing.kind() == Kind::Device {
            tracing::error!(
                volume, %path, found, expected,
                "the device became smaller or is gone: data is lost, and the volume refuses reads \
                 and writes. Stop the server, bring the device back to its size, check the file \
                 system on it or restore a backup, then start the server again"
            );
        } else {
            tracing::error!(
                volume, %path, found, expected,
                "the file was shortened while it is served: data is lost, and the volume refuses \
                 reads and writes. Stop the server, restore the file from a backup, or make it as \
                 long as expected and check the file system on it, then start the server again"
            );
        }
    }

    /// There was nothing to read where there should be something.
    #[cold]
    pub(super) fn short_read(&self, expected_end: u64) -> VolumeError {
        if !self.backing.is_local() && self.backing.kind() == Kind::File {
            // Attributes may come out of a cache that is older than the answer, or after a long time.
            self.was_shortened(None, self.outline.size_bytes());
        } else {
            self.inspect();
        }
        match self.condition() {
            Condition::Shortened => VolumeError::Shortened,
            _ => VolumeError::ShortFile { expected_end },
        }
    }

    /// Looks whether the file still reaches to its last block. A seek, because it may sleep.
    pub(super) async fn check_end(&self, io: &Io) -> Result<(), VolumeError> {
        let offset = self.outline.size_bytes() - 1;
        let result = loop {
            let kind = FileOperationKind::SeekHole { offset };
            match io.call(self.file.clone(), kind).await {
                Err(error) if is_interruption(&error) => {}
                result => break result,
            }
        };
        match result {
            // There is a hole behind every last byte, so this byte does not exist. Attributes may
            // come out of a cache that does not know yet, and do not overrule this.
            Err(error) if is_errno(&error, Errno::NXIO) => {
                if self.backing.is_local() {
                    self.inspect();
                }
                self.was_shortened(None, self.outline.size_bytes());
            }
            // A file system that cannot tell.
            Err(_) if self.backing.is_local() => {
                self.inspect();
            }
            Err(_) | Ok(_) => {}
        }
        self.condition().admit_change()
    }

    /// What an operating system error means to the users of the volume.
    pub(crate) fn error(&self, operation: &'static str, source: io::Error) -> VolumeError {
        // Beyond its end a device has no space, and one that is gone answers with all kinds of errors.
        if self.backing.kind() == Kind::Device && self.inspect() == Condition::Shortened {
            return VolumeError::Shortened;
        }
        if is_no_space(&source) {
            return VolumeError::NoSpace;
        }
        if is_errno(&source, Errno::ROFS) {
            return VolumeError::ReadOnly;
        }
        let operation = format!("{operation} volume {}", self.outline.name());
        VolumeError::Io { operation, source }
    }
}

#[cfg(test)]
mod tests;
