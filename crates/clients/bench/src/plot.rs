//! A sweep as a picture: throughput and latency by queue depth, or latency against throughput.

use std::borrow::Cow;
use std::path::Path;

use crate::chart::{Axis, Chart, Line, Panel, Scale, draw, thousands};
use crate::result::{PointResult, float};

pub use crate::chart::{Format, PlotError};

/// What is drawn against what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Operations and bytes per second, and latency, by queue depth.
    #[default]
    Depth,
    /// Latency against operations per second.
    Iops,
    /// Latency against bytes per second.
    Bytes,
}

/// A sweep of one volume, or of several beside each other.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// What was measured of each volume, the first one first.
    pub volumes: Vec<Volume>,
    /// How often each point was measured; the picture shows the middle one.
    pub rounds: usize,
}

/// What was measured of a volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Its URL or path.
    pub name: String,
    /// Points of the sweep, in any order.
    pub points: Vec<PointResult>,
}

/// A line of the picture.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    name: String,
    /// The volume it belongs to, from 0.
    volume: usize,
    points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    depth: f64,
    iops: f64,
    bytes: f64,
    p50_us: f64,
    p99_us: f64,
}

impl Sweep {
    /// Draws a picture into a file.
    ///
    /// # Errors
    /// There is nothing to draw, or the file cannot be written.
    pub fn plot(&self, path: &Path, view: View) -> Result<(), PlotError> {
        draw(path, &self.chart(view)?)
    }

    fn chart(&self, view: View) -> Result<Chart, PlotError> {
        let series = self.series();
        let mut depths = series.iter().flat_map(|series| &series.points);
        let first = depths.next().ok_or(PlotError::TooFew)?.depth;
        if depths.all(|point| point.depth.total_cmp(&first).is_eq()) {
            return Err(PlotError::TooFew);
        }
        let panels = match view {
            View::Depth => by_depth(&series),
            View::Iops => vec![against(&series, "operations per second", |point| {
                point.iops
            })],
            View::Bytes => vec![against(&series, "bytes per second", |point| point.bytes)],
        };
        let mut notes = Vec::new();
        if self.volumes.len() == 1 || self.sizes().len() > 1 {
            notes.extend(self.volumes.iter().enumerate().map(|(number, volume)| {
                match self.volumes.len() {
                    1 => volume.name.clone(),
                    _ => format!("{}: {}", number + 1, volume.name),
                }
            }));
        }
        if self.rounds > 1 {
            notes.push(format!("the middle one of {} rounds", self.rounds));
        }
        if view != View::Depth {
            notes.push("numbers beside the points are queue depths".to_owned());
        }
        Ok(Chart {
            title: self.title(),
            notes,
            dashed: Some(("median latency", "99th percentile")),
            panels,
        })
    }

    fn points(&self) -> impl Iterator<Item = &PointResult> {
        self.volumes.iter().flat_map(|volume| &volume.points)
    }

    /// Directions and sizes, each once, in the order of the points.
    fn sizes(&self) -> Vec<(&str, &str)> {
        let mut all = Vec::new();
        for point in self.points() {
            let kind = (point.rw.as_str(), point.bs.as_str());
            if !all.contains(&kind) {
                all.push(kind);
            }
        }
        all
    }

    fn title(&self) -> String {
        match &self.sizes()[..] {
            [(rw, bs)] => format!("{rw} {bs}"),
            [(rw, _), ..] => format!("{rw} by block size"),
            [] => String::new(),
        }
    }

    /// Lines: one for each size of each volume.
    fn series(&self) -> Vec<Series> {
        let one_size = self.sizes().len() == 1;
        let mut series: Vec<Series> = Vec::new();
        for (volume, measured) in self.volumes.iter().enumerate() {
            let prefix = match self.volumes.len() {
                1 => String::new(),
                _ => format!("{}: ", volume + 1),
            };
            for result in &measured.points {
                let Some(latency) = result.latency_ns else {
                    continue;
                };
                let name = match (one_size, self.volumes.len()) {
                    (true, 2..) => format!("{prefix}{}", measured.name),
                    _ => format!("{prefix}{}", result.bs),
                };
                let point = Point {
                    depth: f64::from(result.iodepth),
                    iops: result.iops,
                    bytes: result.bytes_per_second,
                    p50_us: float(latency.p50) / 1e3,
                    p99_us: float(latency.p99) / 1e3,
                };
                let known = series.iter_mut().find(|series| series.name == name);
                match known {
                    Some(series) => series.points.push(point),
                    None => series.push(Series {
                        name,
                        volume,
                        points: vec![point],
                    }),
                }
            }
        }
        for series in &mut series {
            series.points.sort_by(|a, b| a.depth.total_cmp(&b.depth));
        }
        series
    }
}

fn lines(
    series: &[Series],
    x: impl Fn(&Point) -> f64,
    y: impl Fn(&Point) -> f64,
    dashed: bool,
) -> Vec<Line> {
    let lines = series.iter().enumerate().map(|(colour, series)| Line {
        name: series.name.clone(),
        colour,
        mark: series.volume,
        dashed,
        points: series.points.iter().map(|p| (x(p), y(p))).collect(),
        labels: Vec::new(),
    });
    lines.collect()
}

const fn axis(name: &'static str, scale: Scale) -> Axis {
    Axis {
        name: Cow::Borrowed(name),
        scale,
        label: thousands,
    }
}

const DEPTH: Axis = Axis {
    name: Cow::Borrowed("queue depth"),
    scale: Scale::Doubling,
    label: |depth| format!("{depth:.0}"),
};

const LATENCY: Axis = axis("latency in µs", Scale::Decades);

fn by_depth(series: &[Series]) -> Vec<Panel> {
    let rate = |name, value: fn(&Point) -> f64| Panel {
        x: DEPTH,
        y: axis(name, Scale::Linear),
        right: None,
        lines: lines(series, |point| point.depth, value, false),
    };
    let mut panels = vec![rate("operations per second", |point| point.iops)];
    match bytes_per_operation(series) {
        // One size for all: the same lines show both.
        Some(bytes) => panels[0].right = Some(("bytes per second", bytes)),
        None => panels.push(rate("bytes per second", |point| point.bytes)),
    }
    let mut latencies = lines(series, |point| point.depth, |point| point.p50_us, false);
    latencies.extend(lines(
        series,
        |point| point.depth,
        |point| point.p99_us,
        true,
    ));
    panels.push(Panel {
        x: DEPTH,
        y: LATENCY,
        right: None,
        lines: latencies,
    });
    panels
}

/// Bytes of an operation, where all have the same: within a percent, for mixes of sizes differ by chance.
fn bytes_per_operation(series: &[Series]) -> Option<f64> {
    let points = series.iter().flat_map(|series| &series.points);
    let mut sizes = points
        .filter(|point| point.iops > 0.0)
        .map(|point| point.bytes / point.iops);
    let first = sizes.next()?;
    sizes
        .all(|size| (size / first - 1.0).abs() < 0.01)
        .then_some(first)
}

/// Latency against throughput: what each depth gives, and what it costs.
fn against(series: &[Series], name: &'static str, x: fn(&Point) -> f64) -> Panel {
    let mut all = lines(series, x, |point| point.p50_us, false);
    for (line, series) in all.iter_mut().zip(series) {
        let depths = series
            .points
            .iter()
            .map(|point| format!("{:.0}", point.depth));
        line.labels = depths.collect();
    }
    all.extend(lines(series, x, |point| point.p99_us, true));
    Panel {
        x: axis(name, Scale::Linear),
        y: LATENCY,
        right: None,
        lines: all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::point;

    fn volume(name: &str, sizes: &[&str]) -> Volume {
        let points = sizes.iter().flat_map(|bs| {
            [32, 1, 4].map(|depth| {
                let mut point = point("randread", bs, depth);
                point.iops = f64::from(depth) * 1000.0;
                point.bytes_per_second = point.iops * if *bs == "4k" { 4096.0 } else { 512.0 };
                point
            })
        });
        Volume {
            name: name.to_owned(),
            points: points.collect(),
        }
    }

    fn sweep(volumes: &[(&str, &[&str])]) -> Sweep {
        Sweep {
            volumes: volumes
                .iter()
                .map(|(name, sizes)| volume(name, sizes))
                .collect(),
            rounds: 1,
        }
    }

    fn names(chart: &Chart) -> Vec<&str> {
        chart.panels[0]
            .lines
            .iter()
            .map(|line| line.name.as_str())
            .collect()
    }

    #[test]
    fn there_is_a_line_for_each_size_in_the_order_of_depths() {
        let series = sweep(&[("URL", &["512", "4k"])]).series();
        assert_eq!(series.len(), 2);
        assert_eq!(series[1].name, "4k");
        let depths: Vec<f64> = series[0].points.iter().map(|p| p.depth).collect();
        assert_eq!(depths, [1.0, 4.0, 32.0]);
    }

    #[test]
    fn one_size_has_its_bytes_at_the_right_and_several_have_a_panel_of_them() {
        let one = sweep(&[("URL", &["4k"])]).chart(View::Depth).unwrap();
        assert_eq!(one.panels.len(), 2);
        assert_eq!(one.panels[0].right, Some(("bytes per second", 4096.0)));
        assert_eq!(
            (one.title.as_str(), &one.notes[..]),
            ("randread 4k", &["URL".to_owned()][..])
        );
        let both = sweep(&[("URL", &["512", "4k"])])
            .chart(View::Depth)
            .unwrap();
        let panels: Vec<&str> = both
            .panels
            .iter()
            .map(|panel| panel.y.name.as_ref())
            .collect();
        let expected = ["operations per second", "bytes per second", "latency in µs"];
        assert_eq!(panels, expected);
        assert_eq!(both.panels[2].lines.len(), 4);
    }

    #[test]
    fn lines_of_a_comparison_are_named_by_their_volume() {
        let one = sweep(&[("URL1", &["4k"]), ("URL2", &["4k"])]);
        let chart = one.chart(View::Depth).unwrap();
        assert_eq!(names(&chart), ["1: URL1", "2: URL2"]);
        assert_eq!(chart.title, "randread 4k");
        let several = sweep(&[("URL1", &["512", "4k"]), ("URL2", &["512", "4k"])]);
        let chart = several.chart(View::Depth).unwrap();
        assert_eq!(names(&chart), ["1: 512", "1: 4k", "2: 512", "2: 4k"]);
        assert_eq!(chart.notes, ["1: URL1", "2: URL2"]);
        let marks: Vec<usize> = chart.panels[0].lines.iter().map(|line| line.mark).collect();
        assert_eq!(marks, [0, 0, 1, 1]);
    }

    #[test]
    fn latency_against_throughput_names_the_depths() {
        let sweep = sweep(&[("URL", &["4k"])]);
        for (view, x) in [(View::Iops, 1000.0), (View::Bytes, 4_096_000.0)] {
            let chart = sweep.chart(view).unwrap();
            let line = &chart.panels[0].lines[0];
            assert_eq!(line.labels, ["1", "4", "32"]);
            assert!((line.points[0].0 - x).abs() < 1e-6);
            assert!(chart.panels[0].lines[1].dashed);
        }
    }

    #[test]
    fn a_sweep_becomes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("sweep.svg");
        sweep(&[("URL", &["512", "4k"])])
            .plot(&svg, View::Depth)
            .unwrap();
        let text = std::fs::read_to_string(&svg).unwrap();
        for part in [
            "queue depth",
            "randread by block size",
            "99th percentile",
            "URL",
        ] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn one_depth_is_no_sweep() {
        let one = Sweep {
            volumes: vec![Volume {
                name: "URL".to_owned(),
                points: vec![point("read", "4k", 1)],
            }],
            rounds: 1,
        };
        for view in [View::Depth, View::Iops] {
            assert!(matches!(one.chart(view), Err(PlotError::TooFew)));
        }
    }
}
