//! Reports of a server's statistics (`--statistics FILE`).

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::server::signal;

/// How long a report may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

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
