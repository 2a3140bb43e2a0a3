//! What each gets of a server that is asked for more than it can do: small readers beside a large writer, and
//! sessions of equal load.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use longshore_tests::report;
use longshore_tests::server::Server;
use serde_json::Value;

use super::Plan;
use super::load::{Report, bench, by_turns, figure, words};
use crate::bench::point::Protocol;
use crate::bench::rounds::Figure;
use crate::bench::server::{Ours, url};
use crate::servers::Backend;
use crate::workspace;

const READERS: &str = "readers,rw=randread,bs=4k,iodepth=32";
const WRITER: &str = "writer,rw=write,bs=1m,iodepth=32";

/// Sessions of equal load, and what each does.
const SESSIONS: usize = 64;
const EQUAL: &[(&str, &str)] = &[
    ("4 KiB reads", "--rw randread --bs 4k --iodepth 4"),
    ("64 KiB reads", "--rw randread --bs 64k --iodepth 4"),
    ("64 KiB writes", "--rw randwrite --bs 64k --iodepth 4"),
];

const SECTION: &str = "fairness";

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let plan = &plan.lasting(if plan.quick { 1.0 } else { 2.0 });
    let folder = workspace::work_folder("bench/fairness")?;
    let statistics = folder.join("statistics.json");
    let ours = Ours {
        program: &plan.program,
        backend: Backend::Memory,
        engine: "auto",
        nvme: true,
        wrapper: &[],
        options: &[],
        folder: "fairness",
    };
    let server = ours
        .builder()?
        .argument("--statistics")
        .argument(&statistics.display().to_string())
        .iscsi()
        .start()?;
    let mut text = plan.conditions()?;
    let protocols = [Protocol::Iscsi, Protocol::Nvme];
    text += "| | readers alone, /s | beside the writer | of a fair half | p50 µs alone | beside | p99.99 µs alone | beside | times | writer alone, MB/s | beside | of a fair half |\n";
    writeln!(text, "|{}", "---|".repeat(12))?;
    for protocol in protocols {
        text += &beside_a_writer(plan, &server, protocol)?;
    }
    text += "\n| 64 sessions | operations/s | least share | largest share |\n|---|---|---|---|\n";
    for protocol in protocols {
        for (what, options) in EQUAL {
            text += &equal(plan, &server, &statistics, protocol, what, options)?;
        }
    }
    plan.publish(SECTION, &text)?;
    Ok(protocols.len() * (1 + EQUAL.len()))
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Iscsi => "iSCSI",
        Protocol::Nvme => "NVMe/TCP",
    }
}

/// Readers and a writer, each alone and both together, on a session or queue each.
fn beside_a_writer(plan: &Plan, server: &Server, protocol: Protocol) -> Result<String> {
    let url = url(server, protocol);
    let loads: [&[&str]; 3] = [&[READERS], &[WRITER], &[READERS, WRITER]];
    let all = by_turns(plan, loads.len(), |way| {
        let mut options = words("--threads 1 --map default=1,read=1");
        for job in loads[way] {
            options.extend(["--job".to_owned(), (*job).to_owned()]);
        }
        bench(plan, &url, &options)
    })?;
    let of = |reports: &[Report], job: usize, what: &str| {
        figure(reports, &format!("/jobs/{job}/{what}")).map(|figure| figure.median)
    };
    let [alone, writer, both] = &all[..] else {
        bail!("three loads gave {} figures", all.len());
    };
    let reads = [of(alone, 0, "iops")?, of(both, 0, "iops")?];
    let p50 = [
        of(alone, 0, "latency_ns/p50")?,
        of(both, 0, "latency_ns/p50")?,
    ];
    let slowest = [
        of(alone, 0, "latency_ns/p99_99")?,
        of(both, 0, "latency_ns/p99_99")?,
    ];
    let written = [
        of(writer, 0, "bytes_per_second")?,
        of(both, 1, "bytes_per_second")?,
    ];
    let line = format!(
        "| {} | {:.0} | {:.0} | {:.0} % | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} | {:.0} % |\n",
        name(protocol),
        reads[0],
        reads[1],
        reads[1] / reads[0] * 200.0,
        p50[0] / 1e3,
        p50[1] / 1e3,
        slowest[0] / 1e3,
        slowest[1] / 1e3,
        slowest[1] / slowest[0],
        written[0] / 1e6,
        written[1] / 1e6,
        written[1] / written[0] * 200.0,
    );
    print!("{line}");
    Ok(line)
}

/// What each of many sessions got in the middle of a run, by the server's own count.
fn equal(
    plan: &Plan,
    server: &Server,
    statistics: &Path,
    protocol: Protocol,
    what: &str,
    options: &str,
) -> Result<String> {
    let mut options = words(options);
    options.extend(words(&format!("--threads 1 --sessions {SESSIONS}")));
    let url = url(server, protocol);
    let mut rates = Vec::new();
    let mut shares = [Vec::new(), Vec::new()];
    let round = || {
        thread::scope(|scope| {
            let load = scope.spawn(|| bench(plan, &url, &options));
            let third = Duration::from_secs_f64(plan.seconds / 3.0);
            thread::sleep(third);
            let before = operations(&report::ask(server.pid(), statistics))?;
            thread::sleep(third);
            let after = operations(&report::ask(server.pid(), statistics))?;
            let load = load.join().expect("the load's thread does not panic")?;
            anyhow::Ok((load, difference(&before, &after)))
        })
    };
    for _ in 0..plan.rounds {
        let (mut report, mut counts) = round()?;
        // In a short round a machine that stands still may hide some of them.
        for _ in 1..5 {
            if counts.len() == SESSIONS {
                break;
            }
            (report, counts) = round()?;
        }
        if counts.len() != SESSIONS {
            bail!(
                "{} connections instead of {SESSIONS} were at work",
                counts.len()
            );
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let least = counts.iter().copied().fold(f64::INFINITY, f64::min);
        let most = counts.iter().copied().fold(0.0, f64::max);
        shares[0].push(least / mean);
        shares[1].push(most / mean);
        rates.push(report.number("/iops")?);
    }
    let [least, most] = shares.map(Figure::of);
    let line = format!(
        "| {}, {what} | {:.0} | {:.1} % | {:.1} % |\n",
        name(protocol),
        Figure::of(rates).median,
        least.smallest * 100.0,
        most.largest * 100.0
    );
    print!("{line}");
    Ok(line)
}

/// Operations of each connection, by its peer.
fn operations(report: &Value) -> Result<BTreeMap<String, u64>> {
    let connections = report["connections"].as_array().context("no connections")?;
    let of = |connection: &Value| {
        let peer = connection["peer"].as_str().context("no peer")?;
        let operations = connection["operations"].as_u64().context("no count")?;
        Ok((peer.to_owned(), operations))
    };
    connections.iter().map(of).collect()
}

/// What was done between two looks by connections that did anything: the admin queue of NVMe did not.
#[allow(clippy::cast_precision_loss)] // Counts of a few seconds.
fn difference(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<f64> {
    let done = after.iter().map(|(peer, operations)| {
        let earlier = before.get(peer).copied().unwrap_or(0);
        operations.saturating_sub(earlier)
    });
    done.filter(|operations| *operations > 1)
        .map(|it| it as f64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_connections_that_work() {
        let report = |counts: [u64; 3]| {
            let connection =
                |(peer, operations)| serde_json::json!({ "peer": peer, "operations": operations });
            let peers = ["a", "b", "admin"].into_iter().zip(counts);
            serde_json::json!({ "connections": peers.map(connection).collect::<Vec<_>>() })
        };
        let looks = [report([10, 20, 1]), report([110, 220, 2])];
        let [before, after] = looks.map(|look| operations(&look).unwrap());
        assert_eq!(difference(&before, &after), [100.0, 200.0]);
    }
}
