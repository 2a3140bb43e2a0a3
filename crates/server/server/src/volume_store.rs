//! State of volumes on disk: one file for each volume in a folder of the state directory.
//!
//! The bytes are those of `longshore_block` (docs/formats). A file is replaced as a whole, so that a crash leaves either the
//! old or the new state.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::state_file;

/// A stored table is far smaller; more is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where one kind of state of all volumes is.
#[derive(Clone, Debug)]
pub(crate) struct VolumeStore {
    directory: PathBuf,
}

impl VolumeStore {
    /// File name of persistent reservations.
    pub(crate) const RESERVATIONS: &str = "reservations";
    /// How far sanitize operations are.
    pub(crate) const SANITIZE: &str = "sanitize";

    /// Opens the store of a kind, creating its directory below `state_directory`.
    pub(crate) fn open(state_directory: &Path, kind: &str) -> io::Result<Self> {
        let directory = state_directory.join(kind);
        fs::create_dir_all(&directory)?;
        // Better to learn now than with the first change that it cannot be written.
        let probe = directory.join(format!(".probe-{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        Ok(Self { directory })
    }

    /// Where the state of `volume` is.
    pub(crate) fn path(&self, volume: Uuid) -> PathBuf {
        self.directory.join(volume.hyphenated().to_string())
    }

    /// What was stored for `volume`, if anything was.
    pub(crate) fn load(&self, volume: Uuid) -> io::Result<Option<Vec<u8>>> {
        state_file::load(&self.path(volume), FILE_BYTES_MAX)
    }

    /// Stores the state of `volume`; it is on the medium when this returns.
    pub(crate) fn store(&self, volume: Uuid, bytes: &[u8]) -> io::Result<()> {
        state_file::replace(&self.path(volume), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_loaded_and_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let store = VolumeStore::open(directory.path(), VolumeStore::SANITIZE).unwrap();
        let volume = Uuid::from_u128(7);
        assert_eq!(store.load(volume).unwrap(), None);
        store.store(volume, b"first, and longer").unwrap();
        store.store(volume, b"second").unwrap();
        assert_eq!(
            store.load(volume).unwrap().as_deref(),
            Some(b"second".as_slice())
        );
        assert_eq!(store.load(Uuid::from_u128(8)).unwrap(), None);
    }

    #[test]
    fn state_directory_that_cannot_be_written_is_found_out_at_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        VolumeStore::open(&file, VolumeStore::RESERVATIONS).unwrap_err();
    }
}
