//! Reports of a server's statistics (`--statistics FILE`).

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scratch::Scratch;
use crate::server::{Server, ServerBuilder, signal};

/// How long a report may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the reports of [`ServerBuilder::reports_to`] are.
#[must_use]
pub fn path(scratch: &Scratch) -> PathBuf {
    scratch.join("report.json")
}

impl ServerBuilder {
    /// Reports of its statistics go to a file in that folder.
    #[must_use]
    pub fn reports_to(self, scratch: &Scratch) -> Self {
        self.argument("--statistics")
            .argument(&path(scratch).display().to_string())
    }
}

/// A new report of a server whose [reports go](ServerBuilder::reports_to) to that folder.
#[must_use]
pub fn of(server: &Server, scratch: &Scratch) -> Value {
    ask(server.pid(), &path(scratch))
}

/// Has the server with that process number write a new report to its file.
///
/// # Panics
/// When none comes, or one that is not whole.
#[must_use]
pub fn ask(pid: u32, path: &Path) -> Value {
    let _ = std::fs::remove_file(path);
    signal(pid, "USR1").expect("the server is there");
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(report) = read(path) {
            return report;
        }
        assert!(Instant::now() < end, "no report");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The report that is there now.
///
/// # Panics
/// When it is not whole.
#[must_use]
pub fn read(path: &Path) -> Option<Value> {
    let text = std::fs::read(path).ok()?;
    Some(serde_json::from_slice(&text).expect("reports are whole"))
}
