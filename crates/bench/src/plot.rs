//! A sweep as a picture: IOPS above, latency below, by queue depth, a line for each block size.
//!
//! The font for measuring and drawing text is part of the program, so that it works where no fonts are
//! installed. An SVG names `sans-serif` and leaves the choice to whoever shows it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::result::{PointResult, float};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 900;
const FONT: &str = "sans-serif";

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// Neither format.
    #[error("--plot {}: the name has to end in .svg or .png", .0.display())]
    Format(PathBuf),
    /// One point, or none.
    #[error(
        "--plot needs points of at least two queue depths; give --iodepth a range, such as 1..256"
    )]
    TooFew,
    /// The file.
    #[error("--plot {}: {source}", path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The drawing.
    #[error("--plot: {0}")]
    Draw(String),
}

/// The format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Vectors.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// By the ending of a name.
    pub fn of(path: &Path) -> Result<Self, PlotError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(PlotError::Format(path.to_owned())),
        }
    }
}

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
    let picture = match Format::of(path)? {
        Format::Svg => svg(title, series)?.into_bytes(),
        Format::Png => png(title, series)?,
    };
    fs::write(path, picture).map_err(|source| PlotError::Write {
        path: path.to_owned(),
        source,
    })
}

fn svg(title: &str, series: &[Series]) -> Result<String, PlotError> {
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT));
    draw(&backend.into_drawing_area(), title, series)?;
    Ok(text)
}

fn png(title: &str, series: &[Series]) -> Result<Vec<u8>, PlotError> {
    let side = |pixels: u32| usize::try_from(pixels).expect("a picture fits into memory");
    let mut pixels = vec![0; side(WIDTH) * side(HEIGHT) * 3];
    let backend = BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT));
    draw(&backend.into_drawing_area(), title, series)?;
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, WIDTH, HEIGHT);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(drawing)?;
    Ok(picture)
}

fn drawing(error: impl std::fmt::Display) -> PlotError {
    PlotError::Draw(error.to_string())
}

fn use_own_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let registered = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        assert!(registered.is_ok(), "the font is part of the program");
    });
}

fn draw<D: DrawingBackend>(
    area: &DrawingArea<D, Shift>,
    title: &str,
    series: &[Series],
) -> Result<(), PlotError> {
    let depths = range(series, |point| [point.depth, point.depth]).ok_or(PlotError::TooFew)?;
    if depths.0 >= depths.1 {
        return Err(PlotError::TooFew);
    }
    use_own_font();
    area.fill(&WHITE).map_err(drawing)?;
    let area = area.titled(title, (FONT, 18)).map_err(drawing)?;
    let panels = area.split_evenly((2, 1));
    let iops = Panel {
        depths,
        unit: "operations per second",
        solid: |point| point.iops,
        dashed: None,
        logarithmic: false,
    };
    let latency = Panel {
        depths,
        unit: "latency in µs: median, and p99 dashed",
        solid: |point| point.p50_us,
        dashed: Some(|point| point.p99_us),
        logarithmic: true,
    };
    iops.draw(&panels[0], series)?;
    latency.draw(&panels[1], series)?;
    area.present().map_err(drawing)
}

/// The smallest and the largest.
fn range(series: &[Series], values: impl Fn(&PlotPoint) -> [f64; 2]) -> Option<(f64, f64)> {
    let values = series.iter().flat_map(|s| &s.points).flat_map(values);
    values.fold(None, |range, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

struct Panel {
    depths: (f64, f64),
    unit: &'static str,
    solid: fn(&PlotPoint) -> f64,
    dashed: Option<fn(&PlotPoint) -> f64>,
    logarithmic: bool,
}

impl Panel {
    fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        series: &[Series],
    ) -> Result<(), PlotError> {
        let values = |point: &PlotPoint| {
            let solid = (self.solid)(point);
            [solid, self.dashed.map_or(solid, |dashed| dashed(point))]
        };
        let (low, high) = range(series, values).ok_or(PlotError::TooFew)?;
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80);
        let depths = (self.depths.0..self.depths.1).log_scale().base(2.0);
        if self.logarithmic {
            let range = (low.max(0.1) / 1.3..high.max(1.0) * 1.3).log_scale();
            let chart = builder.build_cartesian_2d(depths, range).map_err(drawing)?;
            self.fill(chart, series)
        } else {
            let range = 0.0..high.max(1.0) * 1.1;
            let chart = builder.build_cartesian_2d(depths, range).map_err(drawing)?;
            self.fill(chart, series)
        }
    }

    fn fill<'a, D: DrawingBackend + 'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, D, Cartesian2d<X, Y>>,
        series: &[Series],
    ) -> Result<(), PlotError>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc("queue depth")
            .y_desc(self.unit)
            .x_label_formatter(&|depth| format!("{depth:.0}"))
            .y_label_formatter(&|value| thousands(*value))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .light_line_style(WHITE.mix(0.0))
            .draw()
            .map_err(drawing)?;
        for (number, line) in series.iter().enumerate() {
            let colour = Palette99::pick(number).to_rgba();
            let points = |value: fn(&PlotPoint) -> f64| {
                line.points
                    .iter()
                    .map(move |point| (point.depth, value(point)))
            };
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points(self.solid), style))
                .map_err(drawing)?
                .label(line.name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let dots = points(self.solid).map(|at| Circle::new(at, 3, colour.filled()));
            chart.draw_series(dots).map_err(drawing)?;
            if let Some(dashed) = self.dashed {
                let dashed = DashedLineSeries::new(points(dashed), 6, 4, colour.into());
                chart.draw_series(dashed).map_err(drawing)?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font((FONT, 13))
            .draw()
            .map_err(drawing)
    }
}

/// `1500000` as `1.5 M`.
fn thousands(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e4 => (v / 1e3, " k"),
        v => (v, ""),
    };
    let digits = if scaled < 10.0 && scaled.fract() > 0.0 {
        1
    } else {
        0
    };
    format!("{scaled:.digits$}{unit}")
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
    fn a_picture_needs_no_font_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let svg = folder.path().join("sweep.svg");
        plot(&svg, "a sweep", &sweep()).unwrap();
        let text = fs::read_to_string(&svg).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("queue depth") && text.contains("randread 4k"));
        let png = folder.path().join("sweep.png");
        plot(&png, "a sweep", &sweep()).unwrap();
        assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn other_formats_and_single_points_are_refused() {
        let refused = plot(Path::new("sweep.gif"), "", &sweep());
        assert!(matches!(refused, Err(PlotError::Format(_))));
        let one = series("", [&point("read", "4k", 1)]);
        assert!(matches!(svg("", &one), Err(PlotError::TooFew)));
        assert!(matches!(svg("", &[]), Err(PlotError::TooFew)));
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!(thousands(1_500_000.0), "1.5 M");
        assert_eq!(thousands(20_000.0), "20 k");
        assert_eq!(thousands(500.0), "500");
        assert_eq!(thousands(0.5), "0.5");
    }
}
