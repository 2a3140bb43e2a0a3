//! The script of a job: its text, its sizes, its time limit.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// The default limit of a job.
pub(super) const LIMIT: Duration = Duration::from_secs(600);

/// Reads a size with a unit: `512M`, `2G`.
pub(super) fn parse_size(text: &str) -> Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().with_context(|| format!("size {text:?}"))?;
    Ok(number << shift)
}

pub(super) fn read_script(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
