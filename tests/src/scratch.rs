//! Directories of a test's own, removed when the test ends.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is removed, with all in it, when this value goes away.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Scratch {
    /// A new directory below the system's temporary directory, readable by other users so that a
    /// server running as one of them can reach what is in it.
    ///
    /// # Panics
    /// When the directory cannot be made: no test can go on without it.
    pub fn new(name: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("longshore-{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing useful can be done about a file that will not go away.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
