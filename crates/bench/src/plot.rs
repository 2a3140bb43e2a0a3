//! A sweep as a picture: IOPS above, latency below, by queue depth, a line for each block size.

use std::path::Path;

use crate::chart::{Chart, Line, Panel, draw};
use crate::result::{PointResult, float};

pub use crate::chart::{Format, PlotError};

/// A line of the picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Depth, and what was measured there.
    pub points: Vec<PlotPoint>,
}

/// A point of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlotPoint {
    /// Operations under way.
    pub depth: f64,
    /// Operations per second.
    pub iops: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
}

/// Lines of a sweep: one for each size, with what `prefix` says in front.
#[must_use]
pub fn series<'a>(prefix: &str, results: impl IntoIterator<Item = &'a PointResult>) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for result in results {
        let Some(latency) = result.latency_ns else {
            continue;
        };
        let name = format!("{prefix}{} {}", result.rw, result.bs);
        let point = PlotPoint {
            depth: f64::from(result.iodepth),
            iops: result.iops,
            p50_us: float(latency.p50) / 1e3,
            p99_us: float(latency.p99) / 1e3,
        };
        match series.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => series.push(Series {
                name,
                points: vec![point],
            }),
        }
    }
    for series in &mut series {
        series.points.sort_by(|a, b| a.depth.total_cmp(&b.depth));
    }
    series
}

/// Draws a picture into a file.
///
/// # Errors
/// There is nothing to draw, or the file cannot be written.
pub fn plot(path: &Path, title: &str, series: &[Series]) -> Result<(), PlotError> {
    draw(path, &chart(title, series))
}

fn chart(title: &str, series: &[Series]) -> Chart {
    let lines = |value: fn(&PlotPoint) -> f64, dashed| {
        let lines = series.iter().enumerate().map(move |(colour, series)| Line {
            name: series.name.clone(),
            colour,
            dashed,
            points: series.points.iter().map(|p| (p.depth, value(p))).collect(),
        });
        lines.collect::<Vec<_>>()
    };
    let x_label = |depth: f64| format!("{depth:.0}");
    let iops = Panel {
        x: "queue depth",
        x_label,
        y: "operations per second",
        logarithmic: false,
        lines: lines(|point| point.iops, false),
    };
    let mut latencies = lines(|point| point.p50_us, false);
    latencies.extend(lines(|point| point.p99_us, true));
    let latency = Panel {
        x: "queue depth",
        x_label,
        y: "latency in µs: median, and p99 dashed",
        logarithmic: true,
        lines: latencies,
    };
    Chart {
        title: title.to_owned(),
        panels: vec![iops, latency],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::point;

    fn sweep() -> Vec<Series> {
        let results: Vec<PointResult> = ["512", "4k"]
            .into_iter()
            .flat_map(|bs| [32, 1, 4].map(|depth| point("randread", bs, depth)))
            .collect();
        series("", &results)
    }

    #[test]
    fn there_is_a_line_for_each_size_in_the_order_of_depths() {
        let series = sweep();
        assert_eq!(series.len(), 2);
        assert_eq!(series[1].name, "randread 4k");
        let depths: Vec<f64> = series[0].points.iter().map(|p| p.depth).collect();
        assert_eq!(depths, [1.0, 4.0, 32.0]);
    }

    #[test]
    fn a_sweep_becomes_a_panel_of_iops_and_one_of_latency() {
        let chart = chart("a sweep", &sweep());
        assert_eq!(chart.panels.len(), 2);
        assert_eq!(chart.panels[0].lines.len(), 2);
        assert_eq!(chart.panels[1].lines.len(), 4);
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("sweep.svg");
        plot(&svg, "a sweep", &sweep()).unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        assert!(text.contains("queue depth") && text.contains("randread 4k"));
    }

    #[test]
    fn one_depth_is_no_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let one = series("", [&point("read", "4k", 1)]);
        let refused = plot(&folder.path().join("one.svg"), "", &one);
        assert!(matches!(refused, Err(PlotError::TooFew)));
    }
}
