//! Tests that cannot run on this machine.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};

/// Names the file to which skipped tests are appended.
const FILE: &str = "LONGSHORE_SKIPS";

/// Says that the running test is skipped, or a part of it, and why. Its caller returns.
///
/// The harness counts such a test as passed and hides what it prints. So the line `SKIPPED PROGRAM::TEST: REASON` is
/// appended to the file named by `LONGSHORE_SKIPS`, from which `cargo xtask` counts. Without that variable it is
/// printed to standard error, past the harness.
///
/// # Panics
/// When the file cannot be written: a skipped test would pass silently.
pub fn skip(reason: impl AsRef<str>) {
    let line = line(&program(), &test(), reason.as_ref());
    // One write each: lines of tests that run side by side do not mix.
    let written = match env::var_os(FILE) {
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
        None => io::stderr().write_all(line.as_bytes()),
    };
    written.expect("tell of a skipped test");
}

fn line(program: &str, test: &str, reason: &str) -> String {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    format!("SKIPPED {program}::{test}: {}\n", reason.join(" "))
}

/// The name of the test program, without the hash that Cargo adds.
fn program() -> String {
    let path = env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-')
        .map_or(&*name, |(name, _)| name)
        .to_owned()
}

/// The name of the test: the harness gives it to the thread.
fn test() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("a thread").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_test_is_one_line_with_its_name_and_reason() {
        assert_eq!(
            line(&program(), &test(), "no device:\n  not permitted"),
            "SKIPPED longshore_tests::skip::tests::a_skipped_test_is_one_line_with_its_name_and_reason: \
             no device: not permitted\n"
        );
    }
}
