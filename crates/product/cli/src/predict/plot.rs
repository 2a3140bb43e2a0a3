//! A prediction as a picture.

use std::borrow::Cow;
use std::path::Path;

use longshore_bench::chart::{
    Axis, Chart, Line, Panel, PlotError, Scale, draw as draw_chart, thousands,
};
use longshore_bench::units::show_size;
use longshore_model::prediction::{Estimate, Point, Sweep};
use longshore_model::report::Report;

/// A figure of a point.
type Figure = fn(&Point) -> Estimate;

const IOPS: Figure = |point| point.iops;
const BYTES: Figure = |point| point.bytes_per_second;
const LATENCY: Figure = |point| point.latency_us;

/// Draws throughput and latency. Dashed lines are those with the changes; without changes, the ends of intervals.
pub fn draw(path: &Path, report: &Report) -> Result<(), PlotError> {
    draw_chart(path, &chart(report))
}

fn chart(report: &Report) -> Chart {
    let sizes = distinct(
        report
            .prediction
            .points
            .iter()
            .map(|point| point.size_bytes),
    );
    let depths = distinct(
        report
            .prediction
            .points
            .iter()
            .map(|point| u64::from(point.depth)),
    );
    let by_depth = depths.len() > 1;
    let panel = |name: &'static str, scale, figure| {
        let lines = if by_depth {
            let of_size = |size: &u64| (show_size(*size), *size);
            lines(
                report,
                &sizes.iter().map(of_size).collect::<Vec<_>>(),
                figure,
                by_depth,
            )
        } else {
            let name = format!("depth {}", depths[0]);
            lines(report, &[(name, depths[0])], figure, by_depth)
        };
        Panel {
            x: if by_depth { DEPTH } else { SIZE },
            y: Axis {
                name: Cow::Borrowed(name),
                scale,
                label: thousands,
            },
            right: None,
            lines,
        }
    };
    let mut notes = vec![report.title.clone()];
    let changes = report.what_if.iter();
    let changes: Vec<String> = changes
        .map(|it| format!("{} = {}", it.name, it.value))
        .collect();
    if !changes.is_empty() {
        notes.push(format!("what if {}", changes.join(", ")));
    }
    Chart {
        title: format!("{}, predicted", report.setup),
        notes,
        dashed: Some(if report.changed.is_some() {
            ("as it is", "what if")
        } else {
            ("prediction", "interval")
        }),
        panels: vec![
            panel("operations per second", Scale::Linear, IOPS),
            panel("bytes per second", Scale::Linear, BYTES),
            panel("latency in µs", Scale::Decades, LATENCY),
        ],
    }
}

const DEPTH: Axis = Axis {
    name: Cow::Borrowed("queue depth"),
    scale: Scale::Doubling,
    label: |depth| format!("{depth:.0}"),
};

const SIZE: Axis = Axis {
    name: Cow::Borrowed("block size in bytes"),
    scale: Scale::Doubling,
    label: |size| format!("{size:.0}"),
};

fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

/// For each of these sizes, or depths, its line and the dashed ones beside it.
fn lines(report: &Report, of: &[(String, u64)], figure: Figure, by_depth: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for (colour, (name, which)) in of.iter().enumerate() {
        let line = |sweep: &Sweep, value: fn(Estimate) -> f64, dashed| Line {
            name: name.clone(),
            colour,
            mark: 0,
            dashed,
            points: points(sweep, *which, by_depth, |point| value(figure(point))),
            labels: Vec::new(),
        };
        lines.push(line(&report.prediction, |it| it.value, false));
        match &report.changed {
            Some(changed) => lines.push(line(changed, |it| it.value, true)),
            None => {
                lines.push(line(&report.prediction, |it| it.low, true));
                lines.push(line(&report.prediction, |it| it.high, true));
            }
        }
    }
    lines
}

#[allow(clippy::cast_precision_loss)] // Sizes of operations.
fn points(sweep: &Sweep, which: u64, by_depth: bool, y: impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let place = |point: &Point| {
        let (size, depth) = (point.size_bytes, u64::from(point.depth));
        if by_depth {
            (size, depth)
        } else {
            (depth, size)
        }
    };
    let of_line = sweep.points.iter().filter(|point| place(point).0 == which);
    let mut points: Vec<(f64, f64)> = of_line
        .map(|point| (place(point).1 as f64, y(point)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}
