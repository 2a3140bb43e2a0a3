//! The tables that `docs/benchmarks` keeps, and what they were measured on.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Plan;
use crate::command::run_checked;
use crate::workspace;

/// Where the tables are.
pub const FOLDER: &str = "docs/benchmarks";

/// The sections that are kept, and the file of each.
const KEPT: &[(&str, &str)] = &[
    ("beside tgt", "beside-tgt.md"),
    ("NVMe beside iSCSI", "nvme-beside-iscsi.md"),
    ("server and kernel", "server-and-kernel.md"),
    ("before and after", "before-and-after.md"),
    ("numbers to reach", "numbers-to-reach.md"),
    ("clients", "clients.md"),
    ("changes", "changes.md"),
    ("fairness", "fairness.md"),
    ("Fujita's comparison", "fujita.md"),
    ("polling", "polling.md"),
    ("many-volumes", "many-volumes.md"),
    ("small readers beside a large writer", "queue-maps.md"),
    ("transmit policies, loopback", "adaptive-nagle.md"),
    ("transmit policies, mtu-1500", "adaptive-nagle.md"),
    ("transmit policies, mtu-9000", "adaptive-nagle.md"),
    ("tunables of adaptive-nagle, loopback", "adaptive-nagle.md"),
    ("transmit policies, simulated", "adaptive-nagle.md"),
    ("netlab, limits", "netlab.md"),
    ("netlab, loopback", "netlab.md"),
    ("netlab, advice", "netlab.md"),
    ("netlab, stages", "netlab.md"),
];

impl Plan {
    /// Prints a page and keeps it, if that was asked for.
    pub fn publish(&self, section: &str, page: &str) -> Result<()> {
        println!("\n{page}");
        if self.update {
            update(section, page)?;
        }
        Ok(())
    }
}

/// Where and how a run was made, as a list; `others` are lines of its own.
pub fn conditions(plan: &Plan, others: &[(&str, String)]) -> Result<String> {
    let mut list = machine_and_commit()?;
    for (name, value) in others {
        list += &format!("- {name}: {value}\n");
    }
    list += &format!(
        "- engine: {}; {} rounds of {} s a point, interleaved; server on processor 0, client on \
         processor 1\n\n",
        plan.engine, plan.rounds, plan.seconds
    );
    Ok(list)
}

/// Where a run was made, and of what, as the beginning of a list.
pub fn machine_and_commit() -> Result<String> {
    Ok(format!(
        "- machine: {}\n- kernel: {}\n- commit: {}\n",
        machine()?,
        std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        commit(),
    ))
}

/// Replaces what the documentation keeps of this section.
pub fn update(section: &str, page: &str) -> Result<()> {
    let document = document(section)?;
    let text = std::fs::read_to_string(&document)
        .with_context(|| format!("read {}", document.display()))?;
    std::fs::write(document, replaced(&text, section, page)?)?;
    Ok(())
}

/// The file that keeps a section.
fn document(section: &str) -> Result<PathBuf> {
    let (_, file) = KEPT
        .iter()
        .find(|(kept, _)| *kept == section)
        .with_context(|| format!("no file of {FOLDER} keeps {section:?}"))?;
    Ok(workspace::root().join(FOLDER).join(file))
}

/// The document with another page between the marks of a section.
fn replaced(text: &str, section: &str, page: &str) -> Result<String> {
    let begin = format!("<!-- begin of the kept run: {section} -->\n");
    let end = format!("<!-- end of the kept run: {section} -->\n");
    let (head, rest) = text
        .split_once(&begin)
        .with_context(|| format!("the document lacks {begin}"))?;
    let (_, tail) = rest
        .split_once(&end)
        .with_context(|| format!("the document lacks {end}"))?;
    Ok(format!("{head}{begin}\n{page}\n{end}{tail}"))
}

fn machine() -> Result<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |rest| {
            rest.trim_start_matches(['\t', ' ', ':'])
        });
    let count = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or(0);
    Ok(format!(
        "{count} × {model}, {} GiB, loopback",
        (kib + (1 << 19)) >> 20
    ))
}

/// What the system says of the first processor's clock, the nominal one in most virtual machines. Not all
/// architectures say something.
pub fn clock_mhz() -> Option<f64> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = info.lines().find_map(|line| line.strip_prefix("cpu MHz"))?;
    value.trim_start_matches(['\t', ' ', ':']).parse().ok()
}

/// The commit, with a mark when files differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        run_checked(
            Command::new("git")
                .args(arguments)
                .current_dir(workspace::root()),
            Duration::from_secs(10),
        )
    };
    let Ok(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let mark = if changed.is_ok_and(|text| text.is_empty()) {
        ""
    } else {
        " with changes"
    };
    format!("{}{mark}", commit.trim())
}

/// What `tgtd` says of itself.
pub fn tgt_version() -> String {
    run_checked(
        Command::new("tgtd").arg("--version"),
        Duration::from_secs(5),
    )
    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_a_place_for_each_section() {
        for (section, _) in KEPT {
            let text = std::fs::read_to_string(document(section).unwrap()).unwrap();
            let page = format!("a page about {section}");
            let with_page = replaced(&text, section, &page).unwrap();
            assert_eq!(with_page.matches(&page).count(), 1);
            assert_eq!(replaced(&with_page, section, &page).unwrap(), with_page);
        }
    }
}
