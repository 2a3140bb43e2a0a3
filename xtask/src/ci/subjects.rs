//! Subjects of commits: `area: what changes`, at most 72 characters (see CONTRIBUTING.md).

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Commits before this day are as they are.
const SINCE: &str = "2026-11-23T12:40:00Z";
const LENGTH_MAX: usize = 72;

/// Checks the commits that a clone has. A folder without a history has none.
pub fn check() -> Result<()> {
    let root = workspace::root();
    if !root.join(".git").exists() {
        return Ok(());
    }
    let mut git = Command::new("git");
    git.current_dir(root)
        .args([
            "-c",
            "safe.directory=*",
            "log",
            "--no-merges",
            "--format=%h %s",
        ])
        .arg(format!("--since={SINCE}"));
    let output = git.output().context("git log")?;
    if !output.status.success() {
        bail!("git log: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let wrong: Vec<_> = text.lines().filter(|line| !is_well_formed(line)).collect();
    if !wrong.is_empty() {
        bail!(
            "subjects of commits are `area: what changes`, at most {LENGTH_MAX} characters:\n{}",
            wrong.join("\n")
        );
    }
    Ok(())
}

/// Whether the subject behind the commit's name is.
fn is_well_formed(line: &str) -> bool {
    let Some((_, subject)) = line.split_once(' ') else {
        return false;
    };
    let has_area = subject.split_once(": ").is_some_and(|(area, rest)| {
        !area.is_empty() && !area.contains(['.', '!']) && !rest.is_empty()
    });
    has_area && subject.chars().count() <= LENGTH_MAX && !subject.ends_with('.')
}

#[test]
fn subjects_name_an_area_and_fit_into_a_line() {
    assert!(is_well_formed(
        "1234567 iscsi: answer Data-Out with a bad TTT by Reject"
    ));
    assert!(is_well_formed(
        "1234567 tests, SPECIFICATION: follow deeper queues"
    ));
    assert!(!is_well_formed("1234567 fix things"));
    assert!(!is_well_formed("1234567 docs: end with a full stop."));
    assert!(!is_well_formed(&format!(
        "1234567 area: {}",
        "x".repeat(67)
    )));
}
