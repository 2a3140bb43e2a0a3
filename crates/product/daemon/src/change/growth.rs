//! Files that a change makes longer. That is done before the commit, because it may fail, and undone with it: the volume
//! takes the new size up only after the switch.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use longshore_volume::Volume;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::pools::InPool;

/// What is looked at as a whole: a block of the file system that holds the old end of a file may be allocated.
const CHUNK_BYTES: u64 = 64 << 10;

/// A file that a change makes longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrownFile {
    pub path: PathBuf,
    pub before: u64,
    pub size: u64,
}

/// A volume that is to be larger.
#[derive(Clone)]
pub(super) struct Growth {
    pub name: String,
    pub volume: Arc<dyn Volume>,
    /// What has no file of its own grows after the switch.
    pub path: Option<PathBuf>,
    /// The volume of a pool that it is.
    pub in_pool: Option<InPool>,
    pub size: u64,
}

impl Growth {
    /// What it would make of the file; `None`: the file is long enough, or has no end. May block.
    ///
    /// # Errors
    /// Why the volume cannot grow.
    pub(super) fn plan(&self) -> Result<Option<GrownFile>, String> {
        let block_size = u64::from(self.volume.geometry().block_size);
        if !self.size.is_multiple_of(block_size) {
            return Err(format!("its size is no multiple of {block_size} bytes"));
        }
        if self.volume.characteristics().read_only {
            return Err("it is open for reading only".to_owned());
        }
        // A file that is short already must not be made long again.
        let condition = self.volume.inspect();
        if !condition.is_sound() {
            return Err(condition.to_string());
        }
        if let Some(in_pool) = &self.in_pool {
            in_pool
                .check_growth(self.size)
                .map_err(|error| error.to_string())?;
        }
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
        Ok(
            (found.is_file() && found.len() < self.size).then(|| GrownFile {
                path: path.clone(),
                before: found.len(),
                size: self.size,
            }),
        )
    }
}

impl GrownFile {
    pub(super) fn grow(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(self.size)?;
        file.sync_all()
    }

    /// Makes it as long as it was, unless somebody has used what was added. Nobody was told of it.
    pub(super) fn shrink_back(&self) {
        let path = self.path.display();
        match self.try_to_shrink_back() {
            Ok(true) => {
                tracing::info!("{path} has its length from before a change that did not come about")
            }
            Ok(false) => tracing::warn!(
                "{path} was made longer by a change that did not come about, and was used since: it stays as it is. \
                 Give its volume the size {}",
                self.size
            ),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(
                "cannot undo the growth of {path} to {} bytes: {error}; shorten it to {} bytes, or give its volume the \
                 larger size",
                self.size,
                self.before
            ),
        }
    }

    fn try_to_shrink_back(&self) -> io::Result<bool> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(&self.path)?;
        let length = file.metadata()?.len();
        if length <= self.before {
            return Ok(true);
        }
        if length != self.size || !is_empty(&file, self.before, self.size)? {
            return Ok(false);
        }
        file.set_len(self.before)?;
        file.sync_all()?;
        Ok(true)
    }
}

/// Whether a part of a file holds nothing but zeros. Most of it is a hole.
fn is_empty(file: &File, from: u64, to: u64) -> io::Result<bool> {
    let mut at = from;
    let mut chunk = vec![0; usize::try_from(CHUNK_BYTES).unwrap_or(usize::MAX)];
    while at < to {
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) if data < to => data,
            Ok(_) | Err(Errno::NXIO) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let next = (at + 1).next_multiple_of(CHUNK_BYTES).min(to);
        let chunk = &mut chunk[..usize::try_from(next - at).unwrap_or(usize::MAX)];
        file.read_exact_at(chunk, at)?;
        if chunk.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at = next;
    }
    Ok(true)
}

/// Makes files as long as they were.
pub(super) fn shrink_all_back(files: &[GrownFile]) {
    files.iter().for_each(GrownFile::shrink_back);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn length(path: &Path) -> u64 {
        std::fs::metadata(path).unwrap().len()
    }

    #[test]
    fn growth_is_undone_unless_somebody_has_written_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        // The old end lies within a block of the file system.
        std::fs::write(&path, [7; 1536]).unwrap();
        let grown = GrownFile {
            path: path.clone(),
            before: 1536,
            size: 1 << 20,
        };
        grown.grow().unwrap();
        assert_eq!(length(&path), 1 << 20);
        grown.shrink_back();
        assert_eq!(length(&path), 1536);
        for at in [1536, 4095, 1 << 19, (1 << 20) - 1] {
            grown.grow().unwrap();
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&[1], at).unwrap();
            grown.shrink_back();
            assert_eq!(length(&path), 1 << 20, "{at}");
            file.write_all_at(&[0], at).unwrap();
            grown.shrink_back();
            assert_eq!(length(&path), 1536, "{at}");
        }
    }
}
