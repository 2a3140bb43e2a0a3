//! `longshore bench` beside third-party clients on the same volume: `iscsi-perf` of libiscsi, and `fio` where one
//! is given that has the libiscsi engine.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Plan;
use super::load::{bench, by_turns, words};
use super::plan::Selection;
use crate::bench::point::{Protocol, bytes};
use crate::bench::rounds::Figure;
use crate::bench::server::{CLIENT_CORE, Ours, SPAN, pinned, url};
use crate::command::{find_program, run_checked};
use crate::servers::Backend;

/// Clock ticks of /proc a second, on all Linux that we know of.
const TICKS_PER_SECOND: f64 = 100.0;

/// A client of the comparison.
#[derive(Clone, Copy)]
enum Client {
    Longshore,
    IscsiPerf,
    Fio,
}

/// What a run came to.
struct Sample {
    iops: f64,
    /// Processor time of the whole process, from its start to its end.
    cpu_us: f64,
}

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let ours = Ours {
        program: &plan.program,
        backend: Backend::Null,
        engine: "auto",
        nvme: false,
        wrapper: &[],
        options: &[],
        folder: "clients",
    };
    let server = ours.builder()?.iscsi().start()?;
    let url = url(&server, Protocol::Iscsi);
    let mut clients = vec![Client::Longshore];
    let mut text = plan.conditions()?;
    if find_program("iscsi-perf").is_some() {
        clients.push(Client::IscsiPerf);
    }
    if plan.fio.is_some() {
        clients.push(Client::Fio);
    }
    text += "| random read | QD |";
    for client in &clients {
        text += &format!(" {0}: IOPS | {0}: CPU µs/op |", client.name());
    }
    text += " worst spread |\n|---|---|";
    text += &"---|".repeat(clients.len() * 2 + 1);
    text += "\n";
    let (sizes, depths): (&[u32], &[u32]) = if plan.quick {
        (&[4096], &[32])
    } else {
        (&[512, 4096, 65_536], &[1, 4, 16, 32, 64, 128])
    };
    let points = sizes
        .iter()
        .flat_map(|size| depths.iter().map(move |depth| (*size, *depth)));
    let mut count = 0;
    for (size, depth) in points {
        let all = by_turns(plan, clients.len(), |client| {
            clients[client].measure(plan, &url, size, depth)
        })?;
        let mut line = format!("| {} | {depth} |", bytes(size));
        let mut spread: f64 = 0.0;
        for samples in &all {
            let iops = Figure::of(samples.iter().map(|s| s.iops).collect());
            let cpu_us = Figure::of(samples.iter().map(|s| s.cpu_us).collect());
            spread = spread.max(iops.spread()).max(cpu_us.spread());
            line += &format!(" {:.0} | {:.2} |", iops.median, cpu_us.median);
        }
        line += &format!(" {:.0} % |\n", spread * 100.0);
        print!("{line}");
        text += &line;
        count += 1;
    }
    plan.publish("clients", &text)?;
    Ok(count)
}

impl Client {
    fn name(self) -> &'static str {
        match self {
            Self::Longshore => "longshore bench",
            Self::IscsiPerf => "iscsi-perf",
            Self::Fio => "fio",
        }
    }

    fn measure(self, plan: &Plan, url: &str, size: u32, depth: u32) -> Result<Sample> {
        let before = children_cpu_us()?;
        let (iops, operations) = match self {
            Self::Longshore => longshore(plan, url, size, depth)?,
            Self::IscsiPerf => iscsi_perf(plan, url, size, depth)?,
            Self::Fio => fio(plan, url, size, depth)?,
        };
        let cpu_us = (children_cpu_us()? - before) / operations;
        Ok(Sample { iops, cpu_us })
    }
}

/// Whole seconds, which is all that `iscsi-perf` can do.
fn seconds(plan: &Plan) -> f64 {
    plan.seconds.ceil().max(1.0)
}

fn longshore(plan: &Plan, url: &str, size: u32, depth: u32) -> Result<(f64, f64)> {
    let seconds = seconds(plan);
    let options = format!("--rw randread --bs {size} --iodepth {depth} --span {SPAN} --warmup 0s");
    let plan = Plan {
        seconds,
        program: plan.program.clone(),
        fio: None,
        spdk: None,
        selection: Selection::default(),
        netlab: plan.netlab.clone(),
        ..*plan
    };
    let report = bench(&plan, url, &words(&options))?;
    Ok((report.number("/iops")?, report.number("/operations")?))
}

fn iscsi_perf(plan: &Plan, url: &str, size: u32, depth: u32) -> Result<(f64, f64)> {
    let seconds = seconds(plan);
    let blocks = size / 512;
    let words = words(&format!(
        "iscsi-perf -r -m {depth} -b {blocks} -t {seconds} {url}"
    ));
    let output = run_pinned(&words)?;
    // It overwrites its line by carriage returns; the last one holds the average of the run.
    let average = output
        .split(['\r', '\n'])
        .filter_map(|line| line.split_once("iops average "))
        .filter_map(|(_, rest)| rest.split_whitespace().next())
        .next_back()
        .context("iscsi-perf printed no average")?;
    let iops: f64 = average
        .trim_end_matches(',')
        .parse()
        .context("iscsi-perf's average")?;
    Ok((iops, iops * seconds))
}

fn fio(plan: &Plan, url: &str, size: u32, depth: u32) -> Result<(f64, f64)> {
    let program = plan.fio.as_ref().context("no fio was given")?;
    let name = url.replace(':', "\\:");
    let options = format!(
        "--name=read --ioengine=libiscsi --rw=randread --bs={size} --iodepth={depth} --size={SPAN} \
         --norandommap --time_based --runtime={} --thread --output-format=json",
        seconds(plan)
    );
    let mut words = words(&format!("{} {options}", program.display()));
    words.push(format!("--filename={name}"));
    let output = run_pinned(&words)?;
    let start = output.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&output[start..])?;
    let value = |place: &str| {
        let value = report.pointer(place).and_then(Value::as_f64);
        value.with_context(|| format!("fio did not report {place}"))
    };
    Ok((
        value("/jobs/0/read/iops")?,
        value("/jobs/0/read/total_ios")?,
    ))
}

fn run_pinned(words: &[String]) -> Result<String> {
    let mut all = pinned(CLIENT_CORE);
    all.extend_from_slice(words);
    let mut command = Command::new(&all[0]);
    run_checked(command.args(&all[1..]), Duration::from_secs(60))
}

/// Processor time of all processes that this one has started and that have ended.
fn children_cpu_us() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name, in parentheses, may hold anything.
    let rest = stat.rsplit_once(')').context("/proc/self/stat")?.1;
    let mut fields = rest.split_whitespace().skip(13);
    let mut ticks = || -> Result<f64> {
        let field = fields.next().context("/proc/self/stat")?;
        Ok(field.parse()?)
    };
    Ok((ticks()? + ticks()?) / TICKS_PER_SECOND * 1e6)
}
