//! iSCSI of this server beside an earlier one: whether a change has made it slower.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::point::{self, Protocol};
use super::rounds::{Figure, Row, Sample, measure};
use super::server::{Ours, side};
use super::{Plan, instructions, page};
use crate::command::run_checked;
use crate::servers::Backend;
use crate::workspace;

/// Measures all points; how many there were. `label` says what the earlier program is.
pub fn run(plan: &Plan, program: &Path, label: Option<String>) -> Result<usize> {
    let after = workspace::server_program()?;
    let label = match label {
        Some(label) => label,
        None => version(program)?,
    };
    let ours = |program, backend, folder| Ours {
        program,
        backend,
        engine: &plan.engine,
        nvme: false,
        wrapper: &[],
        options: &[],
        folder,
    };
    let both = |backend| {
        [
            ours(program, backend, "before"),
            ours(&after, backend, "longshore"),
        ]
    };
    let points = plan.chosen(point::before(plan.quick));
    let mut rows = Vec::new();
    for backend in [Backend::File, Backend::Null] {
        let mut points = points.iter().filter(|p| p.backend == backend).peekable();
        if points.peek().is_none() {
            continue;
        }
        let [earlier, now] = both(backend);
        let (earlier, now) = (earlier.start(plan)?, now.start(plan)?);
        let earlier = side("before", &earlier, Protocol::Iscsi);
        let now = side("after", &now, Protocol::Iscsi);
        for &point in points {
            rows.push(measure(plan, point, [&earlier, &now])?);
        }
    }
    let mut text = page::conditions(plan, &[("before", label)])?;
    text += &table(&rows);
    let points = plan.chosen(point::counted(Protocol::Iscsi, plan.quick));
    text += &instructions::table(plan, &points, ["before", "after"], |point| {
        both(point.backend).map(|ours| (point, ours))
    })?;
    plan.publish("before and after", &text)?;
    Ok(rows.len())
}

/// What a program says of itself.
fn version(program: &Path) -> Result<String> {
    let output = run_checked(
        Command::new(program).arg("--version"),
        Duration::from_secs(5),
    )?;
    Ok(output.trim().to_owned())
}

/// Medians of both, and the ratios after/before: median, smallest and largest of the rounds.
fn table(rows: &[Row]) -> String {
    let mut table = "\
| volume | operation | QD | IOPS, before | after | after/before | CPU µs/op, before | after | after/before |
|---|---|---|---|---|---|---|---|---|
"
    .to_owned();
    for row in rows {
        let both = |value| [0, 1].map(|side| row.figure(side, value).median);
        let iops = both(|s| s.iops);
        let cpu_us = both(|s| s.cpu_us);
        table += &format!(
            "{} {:.0} | {:.0} | {} | {:.2} | {:.2} | {} |\n",
            row.point.cells(),
            iops[0],
            iops[1],
            with_range(row.ratio(|s| s.iops)),
            cpu_us[0],
            cpu_us[1],
            with_range(row.ratio(|s| s.cpu_us))
        );
    }
    if !rows.is_empty() {
        table += &format!(
            "\nGeometric mean of after/before over all points: IOPS {:.3}, CPU per operation {:.3}.\n",
            mean_ratio(rows, |s| s.iops),
            mean_ratio(rows, |s| s.cpu_us)
        );
    }
    table
}

fn with_range(ratio: Figure) -> String {
    format!(
        "{:.2} ({:.2} – {:.2})",
        ratio.median, ratio.smallest, ratio.largest
    )
}

/// The geometric mean of the median ratios.
fn mean_ratio(rows: &[Row], value: fn(&Sample) -> f64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // There are some dozens of points.
    let count = rows.len() as f64;
    let logarithms = rows.iter().map(|row| row.ratio(value).median.ln());
    (logarithms.sum::<f64>() / count).exp()
}
