//! The mixed load of N-05: many small readers beside a large writer, on one kind of queue and with
//! queues of their own for reads.

use anyhow::Result;
use longshore_tests::server::Server;

use super::Plan;
use super::load::{bench, by_turns, figure, words};
use crate::bench::point::Protocol;
use crate::bench::server::{Ours, url};
use crate::servers::Backend;

/// How operations are spread: its name, and the map.
const MAPS: &[(&str, &str)] = &[
    ("one queue for all", "default=1"),
    ("two queues for all", "default=2"),
    ("one for reads", "default=1,read=1"),
    ("two for reads", "default=1,read=2"),
];

/// 16 readers with two operations each: N-05's rates and latencies come to 31 or 32 operations under way, whatever
/// its text says of synchronous readers (80.4 k/s × 396 µs, 171 k/s × 181.5 µs).
const READERS: &str = "readers,rw=randread,bs=4k,iodepth=2,numjobs=16";
const WRITER: &str = "writer,rw=write,bs=1m,iodepth=32";

/// Places of the figures in a report, with their header and what they are divided by.
const READER_FIGURES: &[(&str, &str, f64)] = &[
    ("reads/s", "/jobs/0/iops", 1.0),
    ("mean µs", "/jobs/0/latency_ns/mean", 1e3),
    ("p50 µs", "/jobs/0/latency_ns/p50", 1e3),
    ("p99 µs", "/jobs/0/latency_ns/p99", 1e3),
    ("p99.99 µs", "/jobs/0/latency_ns/p99_99", 1e3),
];
const WRITER_FIGURE: (&str, &str, f64) = ("written MB/s", "/jobs/1/bytes_per_second", 1e6);

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let plan = &plan.lasting(if plan.quick { 0.5 } else { 2.0 });
    let ours = Ours {
        program: &plan.program,
        backend: Backend::Memory,
        engine: "auto",
        nvme: true,
        wrapper: &[],
        options: &[],
        folder: "queue-maps",
    };
    let server = ours.builder()?.iscsi().start()?;
    let mut text = plan.conditions()?;
    let mut points = 0;
    for protocol in [Protocol::Nvme, Protocol::Iscsi] {
        text += &table(plan, &server, protocol)?;
        points += MAPS.len() + 1;
    }
    plan.publish("small readers beside a large writer", &text)?;
    Ok(points)
}

fn table(plan: &Plan, server: &Server, protocol: Protocol) -> Result<String> {
    let url = url(server, protocol);
    let alone = ["--map", "default=1", "--job", READERS].map(str::to_owned);
    let all = by_turns(plan, MAPS.len() + 1, |way| {
        let Some((_, map)) = MAPS.get(way) else {
            return bench(plan, &url, &alone);
        };
        let mut options = words(&format!("--threads 1 --map {map} --job {READERS}"));
        options.extend(["--job".to_owned(), WRITER.to_owned()]);
        bench(plan, &url, &options)
    })?;
    let name = match protocol {
        Protocol::Nvme => "NVMe/TCP",
        Protocol::Iscsi => "iSCSI",
    };
    let mut text = format!("\n| {name} |");
    for (header, ..) in READER_FIGURES.iter().chain([&WRITER_FIGURE]) {
        text += &format!(" {header} |");
    }
    text += " spread of reads/s |\n|---|";
    text += &"---|".repeat(READER_FIGURES.len() + 2);
    text += "\n";
    for (way, reports) in all.iter().enumerate() {
        let (name, writes) = MAPS
            .get(way)
            .map_or(("readers alone", false), |map| (map.0, true));
        text += &format!("| {name} |");
        for (_, place, divisor) in READER_FIGURES {
            text += &format!(" {:.0} |", figure(reports, place)?.median / divisor);
        }
        if writes {
            let (_, place, divisor) = WRITER_FIGURE;
            text += &format!(" {:.0} |", figure(reports, place)?.median / divisor);
        } else {
            text += " |";
        }
        let reads = figure(reports, READER_FIGURES[0].1)?;
        text += &format!(" {:.0} % |\n", reads.spread() * 100.0);
    }
    println!("{text}");
    Ok(text)
}
