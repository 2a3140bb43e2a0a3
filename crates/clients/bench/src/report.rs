//! Results as text, JSON and CSV.

use std::fmt::Write as _;

use serde::Serialize;

use crate::compare::{Comparison, Figures, Spread};
use crate::latency::Latency;
use crate::measure::{Measured, TestedVolume};
use crate::result::{DirectionResult, PointResult};

mod table;

use table::Table;

/// Changes when a key goes away or means something else.
const JSON_VERSION: u32 = 1;

/// Everything that was measured of one volume.
#[derive(Debug, Clone)]
pub struct Report {
    /// The points, in the order they were measured.
    pub points: Vec<Measured>,
    /// A list was asked for: the points are an array, even if there is only one.
    pub is_sweep: bool,
    pub seed: u64,
}

#[derive(Serialize)]
struct Head<'a> {
    version: u32,
    #[serde(flatten)]
    place: Option<&'a TestedVolume>,
    seed: u64,
}

#[derive(Serialize)]
struct Single<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    #[serde(flatten)]
    point: &'a PointResult,
}

#[derive(Serialize)]
struct Many<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    points: Vec<&'a PointResult>,
}

#[derive(Serialize)]
struct Compared<'a> {
    version: u32,
    seed: u64,
    points: &'a [Comparison],
}

impl Report {
    fn head(&self) -> Head<'_> {
        Head {
            version: JSON_VERSION,
            place: self.points.first().map(|measured| &measured.place),
            seed: self.seed,
        }
    }

    /// A JSON document: the figures of one point at its top, or an array `points`.
    #[must_use]
    pub fn json(&self) -> String {
        match &self.points[..] {
            [only] if !self.is_sweep => json(&Single {
                head: self.head(),
                point: &only.result,
            }),
            points => json(&Many {
                head: self.head(),
                points: points.iter().map(|measured| &measured.result).collect(),
            }),
        }
    }

    /// A line of names, then a line for each point, and one for each direction and job of it.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = CSV_HEAD.join(",") + "\n";
        for measured in &self.points {
            for part in parts(&measured.result) {
                text += &csv_line(&measured.place, &measured.result, &part);
            }
        }
        text
    }

    /// A table for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if let Some(first) = self.points.first() {
            let _ = writeln!(text, "{}", conditions(first));
        }
        let mut table = Table::new(&[
            "rw",
            "bs",
            "depth",
            "",
            "IOPS",
            "MB/s",
            "mean µs",
            "p50",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "client µs/op",
            "server µs/op",
        ]);
        for measured in &self.points {
            let result = &measured.result;
            for part in parts(result) {
                table.row(text_row(&part));
            }
        }
        let _ = write!(text, "\n{table}");
        for measured in &self.points {
            for line in remarks(&measured.result) {
                let _ = writeln!(text, "{line}");
            }
        }
        text
    }
}

/// Comparisons as a JSON document.
#[must_use]
pub fn json_of_comparisons(points: &[Comparison], seed: u64) -> String {
    json(&Compared {
        version: JSON_VERSION,
        seed,
        points,
    })
}

/// Comparisons as a table for people.
#[must_use]
pub fn text_of_comparisons(points: &[Comparison]) -> String {
    let mut text = String::new();
    let sides = points.first().map_or(&[][..], |point| &point.sides[..]);
    for (number, side) in sides.iter().enumerate() {
        let _ = writeln!(text, "{}: {}", number + 1, side.place.url);
    }
    let rounds = sides.iter().map(|side| side.rounds.len()).min();
    let _ = writeln!(
        text,
        "medians of {} rounds; ratios are 1 divided by the other, round by round: median (smallest – largest)\n",
        rounds.unwrap_or(0)
    );
    let mut table = Table::new(&[
        "rw",
        "bs",
        "depth",
        "",
        "IOPS",
        "mean µs",
        "p99 µs",
        "client µs/op",
        "server µs/op",
    ]);
    for point in points {
        let head = || {
            [
                point.rw.clone(),
                point.bs.clone(),
                point.iodepth.to_string(),
            ]
        };
        for (number, side) in point.sides.iter().enumerate() {
            let row = comparison_row(&side.figures, |spread, scale, digits| {
                format!("{:.digits$}", spread.median / scale)
            });
            table.row(
                head()
                    .into_iter()
                    .chain([(number + 1).to_string()])
                    .chain(row)
                    .collect(),
            );
        }
        for (number, side) in point.sides.iter().enumerate() {
            let Some(ratio) = &side.ratio else { continue };
            let row = comparison_row(ratio, |spread, _, _| {
                format!(
                    "{:.2} ({:.2} – {:.2})",
                    spread.median, spread.min, spread.max
                )
            });
            let name = format!("1 / {}", number + 1);
            table.row(head().into_iter().chain([name]).chain(row).collect());
        }
    }
    let _ = write!(text, "{table}");
    text
}

fn comparison_row(figures: &Figures, show: impl Fn(&Spread, f64, usize) -> String) -> [String; 5] {
    let cell = |spread: &Option<Spread>, scale, digits| {
        spread
            .as_ref()
            .map_or_else(|| "-".to_owned(), |spread| show(spread, scale, digits))
    };
    [
        cell(&figures.iops, 1.0, 0),
        cell(&figures.latency_mean_ns, 1e3, 1),
        cell(&figures.latency_p99_ns, 1e3, 1),
        cell(&figures.client_cpu_us_per_op, 1.0, 2),
        cell(&figures.server_cpu_us_per_op, 1.0, 2),
    ]
}

/// Comparisons as CSV: a line for each volume of each point.
#[must_use]
pub fn csv_of_comparisons(points: &[Comparison]) -> String {
    const FIGURES: [&str; 6] = [
        "iops",
        "latency_mean_ns",
        "latency_p50_ns",
        "latency_p99_ns",
        "client_cpu_us_per_op",
        "server_cpu_us_per_op",
    ];
    let mut text = "url,rw,bs,iodepth,rounds".to_owned();
    for name in FIGURES {
        let _ = write!(text, ",{name}_median,{name}_min,{name}_max");
    }
    for name in FIGURES {
        let _ = write!(
            text,
            ",ratio_{name}_median,ratio_{name}_min,ratio_{name}_max"
        );
    }
    text.push('\n');
    let spreads = |figures: Option<&Figures>| {
        let all = |f: &Figures| {
            [
                f.iops,
                f.latency_mean_ns,
                f.latency_p50_ns,
                f.latency_p99_ns,
                f.client_cpu_us_per_op,
                f.server_cpu_us_per_op,
            ]
        };
        let all = figures.map_or([None; FIGURES.len()], all);
        all.iter().fold(String::new(), |text, spread| match spread {
            Some(s) => text + &format!(",{},{},{}", s.median, s.min, s.max),
            None => text + ",,,",
        })
    };
    for point in points {
        for side in &point.sides {
            let _ = writeln!(
                text,
                "{},{},{},{},{}{}{}",
                quoted(&side.place.url),
                point.rw,
                quoted(&point.bs),
                point.iodepth,
                side.rounds.len(),
                spreads(Some(&side.figures)),
                spreads(side.ratio.as_ref())
            );
        }
    }
    text
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("keys are texts") + "\n"
}

/// A line of a table: the whole, a direction, or a job.
struct Part<'a> {
    name: &'a str,
    rw: &'a str,
    bs: &'a str,
    depth: u32,
    iops: f64,
    bytes_per_second: f64,
    operations: u64,
    latency: Option<Latency>,
    service: Option<Latency>,
    /// Of the whole alone.
    cpu: [Option<f64>; 2],
}

fn parts(result: &PointResult) -> Vec<Part<'_>> {
    let mut parts = vec![Part {
        name: "",
        rw: &result.rw,
        bs: &result.bs,
        depth: result.iodepth,
        iops: result.iops,
        bytes_per_second: result.bytes_per_second,
        operations: result.operations,
        latency: result.latency_ns,
        service: result.service_latency_ns,
        cpu: [result.client_cpu_us_per_op, result.server_cpu_us_per_op],
    }];
    let of_direction = |name, direction: &DirectionResult| Part {
        name,
        rw: &result.rw,
        bs: &result.bs,
        depth: result.iodepth,
        iops: direction.iops,
        bytes_per_second: direction.bytes_per_second,
        operations: direction.operations,
        latency: direction.latency_ns,
        service: direction.service_latency_ns,
        cpu: [None, None],
    };
    for (name, direction) in [("read", &result.read), ("write", &result.write)] {
        parts.extend(
            direction
                .iter()
                .map(|direction| of_direction(name, direction)),
        );
    }
    for job in &result.jobs {
        parts.push(Part {
            rw: &job.rw,
            bs: &job.bs,
            depth: job.iodepth,
            ..of_direction(&job.name, &job.total)
        });
    }
    parts
}

const CSV_HEAD: [&str; 23] = [
    "url",
    "rw",
    "bs",
    "iodepth",
    "sessions",
    "threads",
    "part",
    "elapsed_s",
    "operations",
    "iops",
    "bytes_per_second",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p99_ns",
    "latency_p99_9_ns",
    "latency_p99_99_ns",
    "latency_max_ns",
    "service_latency_mean_ns",
    "service_latency_p99_ns",
    "client_cpu_us_per_op",
    "server_cpu_us_per_op",
    "errors",
    "interrupted",
];

fn csv_line(place: &TestedVolume, result: &PointResult, part: &Part<'_>) -> String {
    let latency = part.latency.map_or_else(
        || [const { String::new() }; 6],
        |l| {
            let rest = [l.p50, l.p99, l.p99_9, l.p99_99, l.max].map(|ns| ns.to_string());
            let [p50, p99, p99_9, p99_99, max] = rest;
            [format!("{:.0}", l.mean), p50, p99, p99_9, p99_99, max]
        },
    );
    let service = part.service.map_or_else(
        || [String::new(), String::new()],
        |l| [format!("{:.0}", l.mean), l.p99.to_string()],
    );
    let cpu = part
        .cpu
        .map(|us| us.map_or_else(String::new, |us| format!("{us:.4}")));
    let errors: u64 = result.errors.iter().map(|error| error.count).sum();
    let head = [
        quoted(&place.url),
        part.rw.to_owned(),
        quoted(part.bs),
        part.depth.to_string(),
        result.sessions.to_string(),
        result.threads.to_string(),
        quoted(part.name),
        format!("{:.6}", result.elapsed_s),
        part.operations.to_string(),
        format!("{:.1}", part.iops),
        format!("{:.0}", part.bytes_per_second),
    ];
    let tail = [errors.to_string(), result.interrupted.to_string()];
    let cells: Vec<String> = head
        .into_iter()
        .chain(latency)
        .chain(service)
        .chain(cpu)
        .chain(tail)
        .collect();
    cells.join(",") + "\n"
}

/// A CSV field (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn text_row(part: &Part<'_>) -> Vec<String> {
    let us = |ns: f64| format!("{:.1}", ns / 1e3);
    let latency = part.latency.map_or_else(
        || [const { String::new() }; 6],
        |l| {
            let rest = [l.p50, l.p99, l.p99_9, l.p99_99, l.max];
            let [p50, p99, p99_9, p99_99, max] = rest.map(|ns| us(crate::result::float(ns)));
            [us(l.mean), p50, p99, p99_9, p99_99, max]
        },
    );
    let cpu = part
        .cpu
        .map(|us| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}")));
    let cpu = if part.name.is_empty() {
        cpu
    } else {
        [String::new(), String::new()]
    };
    [
        part.rw.to_owned(),
        part.bs.to_owned(),
        part.depth.to_string(),
        part.name.to_owned(),
        format!("{:.0}", part.iops),
        format!("{:.1}", part.bytes_per_second / 1e6),
    ]
    .into_iter()
    .chain(latency)
    .chain(cpu)
    .collect()
}

/// What was measured, in a line or two.
fn conditions(measured: &Measured) -> String {
    let Measured { place, result } = measured;
    let count = |number: usize, name: &str| {
        let plural = if number == 1 { "" } else { "s" };
        format!("{number} {name}{plural}")
    };
    let setting = |name| place.negotiated.get(name).map_or("", String::as_str);
    let reached = match &place.portal {
        Some(portal) => format!("{} at {portal}", place.protocol),
        None if setting("direct") == "true" => format!(
            "{} without the page cache (O_DIRECT), {}",
            place.protocol,
            setting("engine")
        ),
        None => format!(
            "{} through the page cache, {}",
            place.protocol,
            setting("engine")
        ),
    };
    format!(
        "{}\n{reached}, {} over {}, {:.1} s{}",
        place.url,
        count(result.sessions, "session"),
        count(result.threads, "thread"),
        result.elapsed_s,
        if result.elapsed_s > 0.0 { " each" } else { "" }
    )
}

/// What has to be said of a point beside its figures.
fn remarks(result: &PointResult) -> Vec<String> {
    let mut lines = Vec::new();
    let which = format!("{} {} iodepth {}", result.rw, result.bs, result.iodepth);
    if let Some(service) = &result.service_latency_ns {
        lines.push(format!(
            "{which}: latency counts from when operations were due; from submission it is {:.1} µs \
             in the mean, p99 {:.1}, p99.9 {:.1}, max {:.1}",
            service.mean / 1e3,
            crate::result::float(service.p99) / 1e3,
            crate::result::float(service.p99_9) / 1e3,
            crate::result::float(service.max) / 1e3
        ));
    }
    if let Some(behind) = result.behind.filter(|behind| *behind > 0) {
        lines.push(format!(
            "{which}: {behind} operations were due and could not begin: the rate exceeds what the \
             volume, or the depth, allows"
        ));
    }
    if let Some(verify) = &result.verify {
        let complete = if verify.read_back_complete {
            "all written blocks were read back"
        } else {
            "the written blocks were NOT all read back"
        };
        lines.push(format!(
            "{which}: verified {} blocks, {} faults; {complete}",
            verify.blocks_good + verify.faults,
            verify.faults
        ));
    }
    if result.interrupted {
        lines.push(format!(
            "{which}: interrupted after {:.1} s and {} operations; the figures are those up to \
             then",
            result.elapsed_s, result.operations
        ));
    }
    lines
}

/// What went wrong at a point, a line for each; for standard error.
#[must_use]
pub fn problems(result: &PointResult) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(verify) = &result.verify {
        lines.extend(verify.first_faults.iter().map(ToString::to_string));
        let shown = u64::try_from(verify.first_faults.len()).unwrap_or(u64::MAX);
        if verify.faults > shown {
            lines.push(format!("and {} more blocks", verify.faults - shown));
        }
    }
    for error in &result.errors {
        lines.push(format!("{} ({} times)", error.error, error.count));
    }
    if let Some(lost) = &result.lost {
        lines.push(format!(
            "the connection was lost: {lost}; {} operations were measured, {} were in progress",
            result.operations, result.unanswered
        ));
    } else if result.unanswered > 0 {
        lines.push(format!("{} operations got no response", result.unanswered));
    }
    lines
}

#[cfg(test)]
pub mod tests;
