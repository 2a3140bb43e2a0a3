//! Files that jobs and their servers and clients share.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use longshore_tests::random::Random;
use sha2::{Digest, Sha256};

/// The file behind a volume of the server.
pub fn image(folder: &Path, volume: &str) -> PathBuf {
    folder.join(format!("{volume}.img"))
}

/// A file that only its owner may read, as the server and clients demand of secrets.
pub fn write_secret(path: &Path, text: &str) -> Result<()> {
    // The mode counts for new files alone.
    if path.exists() {
        fs::remove_file(path)?;
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options
        .open(path)
        .with_context(|| format!("make {}", path.display()))?;
    writeln!(file, "{text}")?;
    Ok(())
}

/// A file of bytes that repeat nowhere.
pub fn write_noise(path: &Path, length: u64) -> Result<()> {
    let mut bytes = vec![0; usize::try_from(length)?];
    Random::new(length).fill(&mut bytes);
    fs::write(path, bytes).with_context(|| format!("write {}", path.display()))
}

/// As `sha256sum` prints it.
pub fn sha256(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let digest = Sha256::digest(bytes);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
