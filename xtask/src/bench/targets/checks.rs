//! The same questions asked by third-party clients: `iscsi-perf` of libiscsi, which reads, and
//! `qemu-img bench`, which reads and writes. Both count operations by themselves; the server's processor
//! time is the kernel's.
//!
//! For NVMe/TCP the only other client is the kernel's: what Linux' own host says of correctness in virtual
//! machines is in `docs/testing.md`, its speed below an emulator says nothing.

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
    perf(Backend::Null, 512, 1),
    perf(Backend::Null, 512, 32),
    perf(Backend::Null, 512, 128),
    perf(Backend::Null, 4096, 1),
    perf(Backend::Null, 4096, 32),
    perf(Backend::Null, 4096, 128),
    perf(Backend::Null, 65_536, 32),
    perf(Backend::File, 4096, 1),
    perf(Backend::File, 4096, 32),
    perf(Backend::File, 4096, 128),
    perf(Backend::Memory, 4096, 32),
    qemu(Backend::Null, false, 4096, 32, 40_000),
    qemu(Backend::Null, true, 4096, 32, 40_000),
    qemu(Backend::Null, true, 65_536, 32, 10_000),
    qemu(Backend::Null, true, 1 << 20, 32, 1000),
    qemu(Backend::File, true, 1 << 20, 8, 600),
    qemu(Backend::File, false, 1 << 20, 8, 1200),
    qemu(Backend::Memory, false, 4096, 32, 40_000),
    qemu(Backend::Memory, true, 4096, 32, 40_000),
];

const fn perf(backend: Backend, size: u32, depth: u32) -> Question {
    Question {
        client: "iscsi-perf",
        backend,
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
const ROUNDS: u64 = 5;
const SECONDS: u32 = 1;

/// Operations per second, and processor time of the server for each.
type Answer = (f64, f64);

/// Asks all; a table.
pub fn run(plan: &Plan, lab: &Lab<'_>) -> Result<String> {
    let (ours, tgt) = (lab.server(Which::Ours)?, lab.tgt()?);
    let mut table = String::from(
        "\n**The same by third-party clients**, over iSCSI, longshore beside tgt, which has no volumes in memory. Over \
         NVMe/TCP there is none to check with: the only other client is the kernel's, which the kernel here lacks \
         (`CONFIG_NVME_TCP` is not set); in virtual machines (`cargo xtask kernel`) it checks what is right, not how \
         fast it is.\n\n\
         | client | volume | operation | QD | IOPS | tgt | CPU µs/op | tgt | tgt / longshore |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for question in QUESTIONS {
        let mut answers: [Vec<Answer>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..plan.rounds.min(ROUNDS) {
            let url = iscsi_url(ours, question.backend);
            answers[0].push(question.ask(&url, ours.process())?);
            if question.backend != Backend::Memory {
                let url = tgt_url(tgt, question.backend);
                answers[1].push(question.ask(&url, tgt.process())?);
            }
        }
        let line = question.line(answers);
        println!("{line}");
        table += &line;
        table.push('\n');
    }
    Ok(table)
}

fn median(answers: &[Answer]) -> Answer {
    let of = |value: fn(&Answer) -> f64| Figure::of(answers.iter().map(value).collect()).median;
    (of(|answer| answer.0), of(|answer| answer.1))
}

impl Question {
    /// Ours, and tgt where it was asked.
    fn line(&self, [ours, tgt]: [Vec<Answer>; 2]) -> String {
        let (iops, cpu) = median(&ours);
        let of_tgt = (!tgt.is_empty()).then(|| median(&tgt));
        let [tgt_iops, tgt_cpu, ratio] = of_tgt.map_or_else(
            || ["–"; 3].map(str::to_owned),
            |(tgt_iops, tgt_cpu)| {
                [
                    thousands(tgt_iops),
                    format!("{tgt_cpu:.2}"),
                    format!("{:.1}", tgt_cpu / cpu),
                ]
            },
        );
        format!(
            "| {} | {} | {} {} | {} | {} | {tgt_iops} | {cpu:.2} | {tgt_cpu} | {ratio} |",
            self.client,
            self.backend.name(),
            if self.write { "write" } else { "read" },
            bytes(self.size),
            self.depth,
            thousands(iops),
        )
    }

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

    #[test]
    fn a_line_has_figures_of_tgt_where_it_was_asked() {
        let ours = || vec![(2000.0, 2.0), (1000.0, 1.0), (9000.0, 9.0)];
        let question = perf(Backend::Null, 4096, 1);
        assert_eq!(
            question.line([ours(), vec![(1000.0, 8.0)]]),
            "| iscsi-perf | null | read 4 KiB | 1 | 2.0 k | 1.0 k | 2.00 | 8.00 | 4.0 |"
        );
        let question = qemu(Backend::Memory, true, 4096, 32, 1);
        assert_eq!(
            question.line([ours(), Vec::new()]),
            "| qemu-img bench | mem | write 4 KiB | 32 | 2.0 k | – | 2.00 | – | – |"
        );
    }
}
