//! Persistent reservations on disk: one file for each volume in the state directory.
//!
//! The bytes are those of `longshore_block` (docs/formats/reservations.md). A file is replaced as a whole, so that a
//! crash leaves either the old or the new reservations.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::state_file;

/// A stored table is far smaller; more is not one of ours.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where the reservations of all volumes are.
#[derive(Clone, Debug)]
pub(crate) struct ReservationStore {
    directory: PathBuf,
}

impl ReservationStore {
    /// Opens the store, creating its directory below `state_directory`.
    pub(crate) fn open(state_directory: &Path) -> io::Result<Self> {
        let directory = state_directory.join("reservations");
        fs::create_dir_all(&directory)?;
        // Better to learn now than with the first reservation that it cannot be written.
        let probe = directory.join(format!(".probe-{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        Ok(Self { directory })
    }

    /// Where the reservations of `volume` are.
    pub(crate) fn path(&self, volume: Uuid) -> PathBuf {
        self.directory.join(volume.hyphenated().to_string())
    }

    /// What was stored for `volume`, if anything was.
    pub(crate) fn load(&self, volume: Uuid) -> io::Result<Option<Vec<u8>>> {
        state_file::load(&self.path(volume), FILE_BYTES_MAX)
    }

    /// Stores the reservations of `volume`; they are on the medium when this returns.
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
        let store = ReservationStore::open(directory.path()).unwrap();
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
        ReservationStore::open(&file).unwrap_err();
    }
}
