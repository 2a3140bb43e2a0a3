//! Files of the state directory that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces a file: the bytes are written beside it and flushed, the new file takes its name, and the
/// directory is flushed. After a crash there is the old or the new file; when this returns, the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Servers that share a directory do not take each other's file away.
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// What a file holds; `None` if there is none. A larger one than `bytes_max` is not ours.
pub(crate) fn load(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(metadata) if metadata.len() > bytes_max => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "file is too large",
        )),
        Ok(_) => fs::read(path).map(Some),
    }
}
