//! Fujita's comparison (F-12 … F-16): what one operation costs the client's processor, by size, when
//! data is copied on its way and when it is not, with data digests and without.

use std::fmt::Write;

use anyhow::Result;
use longshore_bench::chart::{Axis, Chart, Line, Panel, Scale, draw, thousands};

use super::Plan;
use super::load::{Report, bench, by_turns, figure, words};
use crate::bench::point::{Protocol, bytes};
use crate::bench::server::{Ours, url};
use crate::servers::Backend;

const CPU: &str = "/client_cpu_us_per_op";

/// A way to move data: its name in the table, and the options of `longshore bench`.
type Way = (&'static str, &'static str);

/// The first is what the others are compared with.
const WRITES: &[Way] = &[
    ("copy", "--send copy"),
    ("gather", "--send gather"),
    ("MSG_ZEROCOPY", "--send zerocopy --zerocopy-threshold 0"),
];

const READS: &[Way] = &[
    ("buffered", "--receive buffered"),
    ("direct", "--receive direct"),
];

const DIGESTS: &[Way] = &[("", ""), (", data digest", "--data-digest crc32c")];

/// A row: a size, and the median of each way.
struct Row {
    size: u32,
    cpu_us: Vec<f64>,
    spread: f64,
    bytes_per_second: Vec<f64>,
    /// Of the zero-copy sends, the share that the kernel copied.
    copied: Option<f64>,
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
        folder: "fujita",
    };
    let server = ours.builder()?.iscsi().start()?;
    let url = url(&server, Protocol::Iscsi);
    let mut text = plan.conditions()?;
    let mut panels = Vec::new();
    let mut points = 0;
    for (direction, ways) in [("write", WRITES), ("read", READS)] {
        let ways = with_digests(ways);
        let rows = measure(plan, &url, direction, &ways)?;
        points += rows.len() * ways.len();
        text += &table(direction, &ways, &rows);
        panels.push(panel(direction, &ways, &rows));
    }
    if !plan.quick {
        let chart = Chart {
            title: "Client CPU per operation over iSCSI, one operation at a time".to_owned(),
            panels,
            ..Chart::default()
        };
        draw(&plan.plot("fujita.svg")?, &chart)?;
        text += "\n![client CPU per operation by size](figures/fujita.svg)\n";
    }
    plan.publish("Fujita's comparison", &text)?;
    Ok(points)
}

fn with_digests(ways: &[Way]) -> Vec<(String, String)> {
    let all = DIGESTS.iter().flat_map(|digest| {
        ways.iter().map(move |way| {
            let name = format!("{}{}", way.0, digest.0);
            (name, format!("{} {}", way.1, digest.1))
        })
    });
    all.collect()
}

fn measure(plan: &Plan, url: &str, direction: &str, ways: &[(String, String)]) -> Result<Vec<Row>> {
    let sizes = if plan.quick { 12..=12 } else { 9..=20 };
    let mut rows = Vec::new();
    for size in sizes.map(|exponent| 1_u32 << exponent) {
        let all = by_turns(plan, ways.len(), |way| {
            let options = &ways[way].1;
            // The same disk block again and again, as there: the volume costs nothing.
            let options =
                format!("--rw {direction} --bs {size} --span {size} --iodepth 1 {options}");
            bench(plan, url, &words(&options))
        })?;
        let cpu = all.iter().map(|reports| figure(reports, CPU));
        let cpu = cpu.collect::<Result<Vec<_>>>()?;
        let rates = all
            .iter()
            .map(|reports| figure(reports, "/bytes_per_second"));
        let rates = rates.collect::<Result<Vec<_>>>()?;
        let row = Row {
            size,
            cpu_us: cpu.iter().map(|figure| figure.median).collect(),
            spread: cpu.iter().map(|figure| figure.spread()).fold(0.0, f64::max),
            bytes_per_second: rates.iter().map(|figure| figure.median).collect(),
            copied: copied(all.iter().flatten())?,
        };
        println!("{direction} {}: {:.2?} µs", bytes(size), row.cpu_us);
        rows.push(row);
    }
    Ok(rows)
}

/// The share of zero-copy sends that the kernel copied all the same.
fn copied<'a>(reports: impl Iterator<Item = &'a Report>) -> Result<Option<f64>> {
    let (mut sends, mut copied) = (0.0, 0.0);
    for report in reports {
        sends += report.number("/transport/zero_copy_sends")?;
        copied += report.number("/transport/zero_copy_copied")?;
    }
    Ok((sends > 0.0).then(|| copied / sends))
}

/// Microseconds of the first way, and of the others as shares of it.
fn table(direction: &str, ways: &[(String, String)], rows: &[Row]) -> String {
    let mut text = format!("\n| {direction} |");
    for (name, _) in ways {
        let _ = write!(text, " {name} |");
    }
    text += " MB/s | spread | copied all the same |\n|---|";
    text += &"---|".repeat(ways.len() + 3);
    text += "\n";
    for row in rows {
        let _ = write!(text, "| {} | {:.2} µs |", bytes(row.size), row.cpu_us[0]);
        for cpu_us in &row.cpu_us[1..] {
            let _ = write!(text, " {:.2} |", cpu_us / row.cpu_us[0]);
        }
        let rates = row.bytes_per_second.iter().copied();
        let copied = row
            .copied
            .map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
        let _ = writeln!(
            text,
            " {:.0}–{:.0} | {:.0} % | {copied} |",
            rates.clone().fold(f64::INFINITY, f64::min) / 1e6,
            rates.fold(0.0, f64::max) / 1e6,
            row.spread * 100.0
        );
    }
    text
}

fn panel(direction: &str, ways: &[(String, String)], rows: &[Row]) -> Panel {
    let lines = ways.iter().enumerate().map(|(way, (name, _))| Line {
        name: name.clone(),
        colour: way,
        mark: way / 6,
        points: rows
            .iter()
            .map(|row| (f64::from(row.size), row.cpu_us[way]))
            .collect(),
        ..Line::default()
    });
    Panel {
        x: Axis {
            name: "bytes of an operation".into(),
            scale: Scale::Doubling,
            label: |size| {
                if size < 1024.0 {
                    format!("{size:.0}")
                } else {
                    format!("{:.0}k", size / 1024.0)
                }
            },
        },
        y: Axis {
            name: format!("client CPU, µs per {direction}").into(),
            scale: Scale::Decades,
            label: thousands,
        },
        right: None,
        lines: lines.collect(),
    }
}
