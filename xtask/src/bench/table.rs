//! The page that a run prints and `docs/benchmarks.md` keeps.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Figure, Point};
use crate::command::run_checked;
use crate::workspace;

/// One point with the figures of both servers: IOPS, CPU µs per operation, p99 in µs.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub point: Point,
    pub ours: [Figure; 3],
    pub theirs: [Figure; 3],
}

/// What `--update` puts its page between in `docs/benchmarks.md`.
const BEGIN: &str = "<!-- begin of the kept run -->\n";
const END: &str = "<!-- end of the kept run -->\n";

impl Row {
    /// For watching a run.
    pub fn in_one_line(&self) -> String {
        let [ours, theirs] = [&self.ours, &self.theirs];
        format!(
            "{:24} longshore {:>8.0} @ {:>7.2} µs   tgt {:>8.0} @ {:>7.2} µs",
            self.point.name(),
            ours[0].median,
            ours[1].median,
            theirs[0].median,
            theirs[1].median
        )
    }

    fn in_table(&self) -> String {
        let point = self.point;
        let spread = [self.ours[0], self.theirs[0], self.ours[1], self.theirs[1]]
            .iter()
            .fold(0.0_f64, |most, figure| most.max(figure.spread));
        format!(
            "| {} | {} {} | {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} | {:.0} | {:.0} | {:.0} % |\n",
            point.backend.name(),
            point.operation,
            size(point.size),
            point.depth,
            self.ours[0].median,
            self.theirs[0].median,
            self.ours[0].median / self.theirs[0].median,
            self.ours[1].median,
            self.theirs[1].median,
            self.theirs[1].median / self.ours[1].median,
            self.ours[2].median,
            self.theirs[2].median,
            spread * 100.0
        )
    }
}

fn size(bytes: u32) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// The whole page: where it was measured, and the table.
pub fn page(
    rows: &[Row],
    independent: &str,
    engine: &str,
    rounds: u64,
    seconds: &str,
) -> Result<String> {
    let mut page = format!(
        "- machine: {}\n- kernel: {}\n- commit: {}\n- tgt: {}\n- engine: {engine}; {rounds} rounds \
         of {seconds} s a point, interleaved; server on processor 0, client on processor 1\n\n",
        machine()?,
        std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        commit(),
        tgt_version()
    );
    page += "| volume | operation | QD | IOPS | tgt | ratio | CPU µs/op | tgt | tgt/ours | p99 µs | tgt | spread |\n";
    page += "|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        page += &row.in_table();
    }
    if !independent.is_empty() {
        page += "\n`iscsi-perf` (4 KiB random reads of a null volume, 32 deep), a client of others:\n\n";
        page += independent;
    }
    Ok(page)
}

/// Replaces the kept run in the document.
pub fn update(document: &Path, page: &str) -> Result<()> {
    let text = std::fs::read_to_string(document)
        .with_context(|| format!("read {}", document.display()))?;
    let (head, rest) = text
        .split_once(BEGIN)
        .context("the document has no begin mark")?;
    let (_, tail) = rest
        .split_once(END)
        .context("the document has no end mark")?;
    std::fs::write(document, format!("{head}{BEGIN}\n{page}\n{END}{tail}"))?;
    Ok(())
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

fn tgt_version() -> String {
    run_checked(
        Command::new("tgtd").arg("--version"),
        Duration::from_secs(5),
    )
    .map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
