//! The same questions asked by clients of others: `iscsi-perf` of libiscsi, which reads, and
//! `qemu-img bench`, which reads and writes. Both count operations by themselves; the server's processor
//! time is the kernel's.
//!
//! For NVMe/TCP there is no client in user mode that could be installed here: what Linux' own host says
//! of correctness is in `docs/testing.md`, its speed below an emulator says nothing.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use longshore_tests::process::Process;

use super::judge::thousands;
use super::lab::{Lab, Which, iscsi_url, tgt_url};
use crate::bench::Plan;
use crate::bench::load::words;
use crate::bench::point::bytes;
use crate::bench::rounds::Figure;
use crate::bench::server::{CLIENT_CORE, pinned};
use crate::command::run_checked;
use crate::servers::Backend;

/// What `--only` selects them by.
pub const NAME: &str = "checks";

/// What is asked.
struct Question {
    client: &'static str,
    backend: Backend,
    write: bool,
    size: u32,
    depth: u32,
    /// Of `qemu-img bench`, which counts operations rather than time.
    operations: u32,
}

const QUESTIONS: &[Question] = &[
    perf(512, 32),
    perf(512, 128),
    perf(4096, 32),
    perf(4096, 128),
    perf(65_536, 32),
    qemu(Backend::Null, false, 4096, 32, 40_000),
    qemu(Backend::Null, true, 4096, 32, 40_000),
    qemu(Backend::File, true, 1 << 20, 8, 600),
    qemu(Backend::File, false, 1 << 20, 8, 1200),
];

const fn perf(size: u32, depth: u32) -> Question {
    Question {
        client: "iscsi-perf",
        backend: Backend::Null,
        write: false,
        size,
        depth,
        operations: 0,
    }
}

const fn qemu(backend: Backend, write: bool, size: u32, depth: u32, operations: u32) -> Question {
    Question {
        client: "qemu-img bench",
        backend,
        write,
        size,
        depth,
        operations,
    }
}

/// Rounds, and seconds of `iscsi-perf`, which takes whole ones.
const ROUNDS: u64 = 3;
const SECONDS: u32 = 1;

/// Operations per second, and processor time of the server for each.
type Answer = (f64, f64);

/// Asks all; a table.
pub fn run(plan: &Plan, lab: &Lab<'_>) -> Result<String> {
    let (ours, tgt) = (lab.server(Which::Ours)?, lab.tgt()?);
    let mut table = String::from(
        "\n**The same by clients of others**, over iSCSI, longshore beside tgt. Over NVMe/TCP there is none to \
         check with.\n\n\
         | client | volume | operation | QD | IOPS | tgt | CPU µs/op | tgt | tgt / longshore |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for question in QUESTIONS {
        let mut answers: [Vec<Answer>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..plan.rounds.min(ROUNDS) {
            let url = iscsi_url(ours, question.backend);
            answers[0].push(question.ask(&url, ours.process())?);
            let url = tgt_url(tgt, question.backend);
            answers[1].push(question.ask(&url, tgt.process())?);
        }
        let median = |side: usize, value: fn(&Answer) -> f64| {
            Figure::of(answers[side].iter().map(value).collect()).median
        };
        let iops = [0, 1].map(|side| median(side, |answer| answer.0));
        let cpu = [0, 1].map(|side| median(side, |answer| answer.1));
        let line = format!(
            "| {} | {} | {} {} | {} | {} | {} | {:.2} | {:.2} | {:.1} |",
            question.client,
            question.backend.name(),
            if question.write { "write" } else { "read" },
            bytes(question.size),
            question.depth,
            thousands(iops[0]),
            thousands(iops[1]),
            cpu[0],
            cpu[1],
            cpu[1] / cpu[0],
        );
        println!("{line}");
        table += &line;
        table.push('\n');
    }
    Ok(table)
}

impl Question {
    fn ask(&self, url: &str, server: Process) -> Result<Answer> {
        let text = if self.operations == 0 {
            let blocks = self.size / 512;
            format!(
                "iscsi-perf -r -m {} -b {blocks} -t {SECONDS} {url}",
                self.depth
            )
        } else {
            let write = if self.write { "-w" } else { "" };
            format!(
                "qemu-img bench -f raw -t none {write} -c {} -d {} -s {} {url}",
                self.operations, self.depth, self.size
            )
        };
        let mut all = pinned(CLIENT_CORE);
        all.extend(words(&text));
        let before = server.cpu_time()?;
        let output = run_checked(
            Command::new(&all[0]).args(&all[1..]),
            Duration::from_secs(60),
        )
        .with_context(|| format!("run {text}"))?;
        let used = server.cpu_time()?.saturating_sub(before).as_secs_f64();
        let (iops, operations) = if self.operations == 0 {
            let iops = average(&output)?;
            (iops, iops * f64::from(SECONDS))
        } else {
            let operations = f64::from(self.operations);
            (operations / run_time(&output)?, operations)
        };
        Ok((iops, used * 1e6 / operations))
    }
}

/// `iscsi-perf` overwrites its line by carriage returns; the last one holds the average of the run.
fn average(output: &str) -> Result<f64> {
    let averages = output
        .split(['\r', '\n'])
        .filter_map(|line| line.split_once("iops average "));
    let last = averages
        .filter_map(|(_, rest)| rest.split([',', ' ']).next())
        .next_back();
    let last = last.context("iscsi-perf printed no average")?;
    last.parse().with_context(|| format!("{last:?}"))
}

/// From `Run completed in 0.123 seconds.`
fn run_time(output: &str) -> Result<f64> {
    let rest = output.split_once("Run completed in ");
    let (_, rest) = rest.context("qemu-img printed no time")?;
    let number = rest.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{number:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_the_clients_print() {
        let perf = "\r iops average 100 (0 MB/s)  \riops average 2345, now 1\n";
        assert!((average(perf).unwrap() - 2345.0).abs() < 1e-9);
        let qemu = "Sending 40000 read requests\nRun completed in 0.500 seconds.\n";
        assert!((run_time(qemu).unwrap() - 0.5).abs() < 1e-9);
    }
}
