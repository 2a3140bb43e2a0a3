//! Lines in one panel or several, above each other, as SVG or PNG.
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

const WIDTH: u32 = 900;
const PANEL_HEIGHT: u32 = 450;
const FONT: &str = "sans-serif";

/// Those of Okabe and Ito, which most people can tell apart, without the two that are pale on white.
const COLOURS: [(u8, u8, u8); 6] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (0, 0, 0),
];

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

/// A picture.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Above all panels.
    pub title: String,
    /// From top to bottom. All show the same range of x.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// What x counts, in powers of two.
    pub x: &'static str,
    /// How x is written below its axis.
    pub x_label: fn(f64) -> String,
    /// What y counts.
    pub y: &'static str,
    /// Whether y grows by powers of ten, rather than from zero.
    pub logarithmic: bool,
    /// What is shown.
    pub lines: Vec<Line>,
}

/// A line of a panel.
#[derive(Debug, Clone)]
pub struct Line {
    /// In the legend; dashed lines are not in it.
    pub name: String,
    /// Lines of the same number have the same colour.
    pub colour: usize,
    /// Dashed, and without marks.
    pub dashed: bool,
    /// By x, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Draws a picture into a file.
///
/// # Errors
/// There is nothing to draw, or the file cannot be written.
pub fn draw(path: &Path, chart: &Chart) -> Result<(), PlotError> {
    let picture = match Format::of(path)? {
        Format::Svg => svg(chart)?.into_bytes(),
        Format::Png => png(chart)?,
    };
    fs::write(path, picture).map_err(|source| PlotError::Write {
        path: path.to_owned(),
        source,
    })
}

fn size(chart: &Chart) -> Result<(u32, u32), PlotError> {
    let panels = u32::try_from(chart.panels.len()).map_err(drawing)?;
    Ok((WIDTH, PANEL_HEIGHT.saturating_mul(panels)))
}

fn svg(chart: &Chart) -> Result<String, PlotError> {
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, size(chart)?);
    draw_on(&backend.into_drawing_area(), chart)?;
    Ok(text)
}

fn png(chart: &Chart) -> Result<Vec<u8>, PlotError> {
    let (width, height) = size(chart)?;
    let side = |pixels: u32| usize::try_from(pixels).expect("a picture fits into memory");
    let mut pixels = vec![0; side(width) * side(height) * 3];
    let backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
    draw_on(&backend.into_drawing_area(), chart)?;
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, width, height);
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

fn draw_on<D: DrawingBackend>(
    area: &DrawingArea<D, Shift>,
    chart: &Chart,
) -> Result<(), PlotError> {
    let lines = || chart.panels.iter().flat_map(|panel| &panel.lines);
    let x = range(lines(), |point| point.0).ok_or(PlotError::TooFew)?;
    if x.0 >= x.1 {
        return Err(PlotError::TooFew);
    }
    use_own_font();
    area.fill(&WHITE).map_err(drawing)?;
    let area = area.titled(&chart.title, (FONT, 18)).map_err(drawing)?;
    let areas = area.split_evenly((chart.panels.len(), 1));
    for (panel, area) in chart.panels.iter().zip(&areas) {
        panel.draw(area, x)?;
    }
    area.present().map_err(drawing)
}

/// The smallest and the largest.
fn range<'a>(
    lines: impl IntoIterator<Item = &'a Line>,
    value: impl Fn(&(f64, f64)) -> f64,
) -> Option<(f64, f64)> {
    let points = lines.into_iter().flat_map(|line| &line.points);
    points.map(value).fold(None, |range, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((value.min(low), value.max(high)))
    })
}

impl Panel {
    fn draw<D: DrawingBackend>(
        &self,
        area: &DrawingArea<D, Shift>,
        x: (f64, f64),
    ) -> Result<(), PlotError> {
        let (low, high) = range(&self.lines, |point| point.1).ok_or(PlotError::TooFew)?;
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(80);
        let x = (x.0..x.1).log_scale().base(2.0);
        if self.logarithmic {
            let range = (low.max(0.1) / 1.3..high.max(1.0) * 1.3).log_scale();
            let chart = builder.build_cartesian_2d(x, range).map_err(drawing)?;
            self.fill(chart)
        } else {
            let range = 0.0..high.max(1.0) * 1.1;
            let chart = builder.build_cartesian_2d(x, range).map_err(drawing)?;
            self.fill(chart)
        }
    }

    fn fill<'a, D: DrawingBackend + 'a, X, Y>(
        &self,
        mut chart: ChartContext<'a, D, Cartesian2d<X, Y>>,
    ) -> Result<(), PlotError>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&|x| (self.x_label)(*x))
            .y_label_formatter(&|value| thousands(*value))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .light_line_style(WHITE.mix(0.0))
            .draw()
            .map_err(drawing)?;
        for line in &self.lines {
            let (red, green, blue) = COLOURS[line.colour % COLOURS.len()];
            let colour = RGBColor(red, green, blue).to_rgba();
            let points = || line.points.iter().copied();
            if line.dashed {
                let dashed = DashedLineSeries::new(points(), 6, 4, colour.into());
                chart.draw_series(dashed).map_err(drawing)?;
                continue;
            }
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points(), style))
                .map_err(drawing)?
                .label(line.name.clone())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let dots = points().map(|at| Circle::new(at, 3, colour.filled()));
            chart.draw_series(dots).map_err(drawing)?;
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

    fn chart(points: &[(f64, f64)]) -> Chart {
        Chart {
            title: "a chart".to_owned(),
            panels: vec![Panel {
                x: "queue depth",
                x_label: |x| x.to_string(),
                y: "of something",
                logarithmic: false,
                lines: vec![Line {
                    name: "a line".to_owned(),
                    colour: 0,
                    dashed: false,
                    points: points.to_vec(),
                }],
            }],
        }
    }

    #[test]
    fn a_picture_needs_no_font_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let some = chart(&[(1.0, 10.0), (2.0, 30.0)]);
        let svg = folder.path().join("chart.svg");
        draw(&svg, &some).unwrap();
        let text = fs::read_to_string(&svg).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("queue depth") && text.contains("a line"));
        let png = folder.path().join("chart.png");
        draw(&png, &some).unwrap();
        assert!(fs::read(&png).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn other_formats_and_single_points_are_refused() {
        let refused = draw(Path::new("chart.gif"), &chart(&[(1.0, 1.0), (2.0, 2.0)]));
        assert!(matches!(refused, Err(PlotError::Format(_))));
        assert!(matches!(svg(&chart(&[(1.0, 1.0)])), Err(PlotError::TooFew)));
        assert!(matches!(svg(&chart(&[])), Err(PlotError::TooFew)));
    }

    #[test]
    fn large_numbers_are_short() {
        assert_eq!(thousands(1_500_000.0), "1.5 M");
        assert_eq!(thousands(20_000.0), "20 k");
        assert_eq!(thousands(500.0), "500");
        assert_eq!(thousands(0.5), "0.5");
    }
}
