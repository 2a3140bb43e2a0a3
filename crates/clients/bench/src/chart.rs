//! Lines in one panel or several, above each other, as SVG or PNG.
//!
//! ```text
//!  title, in as many lines as it needs
//!  notes
//!  legend: every line of every panel once
//!  panel
//!  panel …
//! ```
//!
//! The legend stands above the panels and not in them, where it would hide lines. A PNG is drawn four times as
//! large as the layout and then halved, so that lines have the same width at every angle.
//!
//! The font for measuring and drawing text is part of the program, so that it works where no fonts are
//! installed. An SVG names `sans-serif` and leaves the choice to the viewer.

mod canvas;
mod decades;
mod layout;
mod mark;
mod picture;
mod style;

use std::fs;
use std::path::Path;

use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use decades::Decades;
use layout::Layout;
use mark::Mark;
use picture::drawing;
use style::{FONT, LINE_WIDTH, colour};

pub use canvas::{Canvas, Colour, canvas};
pub use picture::{Axis, Chart, Line, Panel, PlotError, Scale};
pub use style::thousands;

/// Pixels of a PNG for each unit of the layout, and how many are drawn for each of them.
const PNG_SCALE: u32 = 2;
const PNG_SAMPLES: u32 = 2;

/// The format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// SVG: the text stays text.
    Svg,
    /// PNG, for pages that take no SVG.
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

fn svg(chart: &Chart) -> Result<String, PlotError> {
    let layout = Layout::new(chart)?;
    let mut text = String::new();
    let backend = SVGBackend::with_string(&mut text, layout.size(1));
    draw_on(&backend.into_drawing_area(), chart, &layout, 1)?;
    Ok(text)
}

fn png(chart: &Chart) -> Result<Vec<u8>, PlotError> {
    let layout = Layout::new(chart)?;
    bitmap(layout.size(1), |area, scale| {
        draw_on(area, chart, &layout, scale)
    })
}

/// A PNG of this size in units of the layout, from what is drawn at a scale.
fn bitmap(
    size: (u32, u32),
    draw: impl FnOnce(&DrawingArea<BitMapBackend<'_>, Shift>, u32) -> Result<(), PlotError>,
) -> Result<Vec<u8>, PlotError> {
    let scale = PNG_SCALE * PNG_SAMPLES;
    let drawn = (size.0 * scale, size.1 * scale);
    let mut pixels = vec![0; side(drawn.0) * side(drawn.1) * 3];
    let backend = BitMapBackend::with_buffer(&mut pixels, drawn);
    draw(&backend.into_drawing_area(), scale)?;
    let (width, height) = (size.0 * PNG_SCALE, size.1 * PNG_SCALE);
    let pixels = averaged(&pixels, side(width), side(height));
    let mut picture = Vec::new();
    let mut encoder = png::Encoder::new(&mut picture, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let written = encoder
        .write_header()
        .and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(drawing)?;
    Ok(picture)
}

fn side(pixels: u32) -> usize {
    usize::try_from(pixels).expect("a picture fits into memory")
}

/// A picture of this size from one with [`PNG_SAMPLES`] times as many pixels in both directions.
fn averaged(pixels: &[u8], width: usize, height: usize) -> Vec<u8> {
    let samples = side(PNG_SAMPLES);
    let row = width * samples * 3;
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let places = (0..samples * samples).map(|place| {
                    let (dx, dy) = (place % samples, place / samples);
                    (y * samples + dy) * row + (x * samples + dx) * 3 + channel
                });
                let sum: u32 = places.map(|place| u32::from(pixels[place])).sum();
                let mean = sum / (PNG_SAMPLES * PNG_SAMPLES);
                out.push(u8::try_from(mean).expect("a mean of bytes"));
            }
        }
    }
    out
}

fn draw_on<D: DrawingBackend>(
    area: &DrawingArea<D, Shift>,
    chart: &Chart,
    layout: &Layout,
    scale: u32,
) -> Result<(), PlotError> {
    area.fill(&WHITE).map_err(drawing)?;
    layout.draw(area, scale)?;
    let (_, below) = area.split_vertically(layout.header * scale);
    let areas = below.split_evenly((chart.panels.len(), 1));
    for (panel, area) in chart.panels.iter().zip(&areas) {
        panel.draw(area, chart, scale)?;
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
        chart: &Chart,
        scale: u32,
    ) -> Result<(), PlotError> {
        // Panels with the same axis below show the same range of it.
        let alike = chart.panels.iter().filter(|it| it.x.name == self.x.name);
        let x = range(alike.flat_map(|panel| &panel.lines), |point| point.0);
        let x = x.ok_or(PlotError::TooFew)?;
        let y = range(&self.lines, |point| point.1).ok_or(PlotError::TooFew)?;
        if self.x.scale != Scale::Linear && x.0 >= x.1 {
            return Err(PlotError::TooFew);
        }
        let mut builder = ChartBuilder::on(area);
        builder
            .margin(10 * scale)
            .x_label_area_size(44 * scale)
            .y_label_area_size(84 * scale);
        if self.right.is_some() {
            builder.right_y_label_area_size(84 * scale);
        } else {
            builder.margin_right(94 * scale);
        }
        let (top, linear_x) = (y.1.max(1.0) * 1.1, 0.0..x.1.max(1.0) * 1.08);
        let decades = || Decades(y.0.max(0.1) / 1.3..y.1.max(1.0) * 1.3);
        let doubling = || (x.0..x.1).log_scale().base(2.0);
        match (self.x.scale, self.y.scale) {
            (Scale::Linear, Scale::Linear) => self.fill(&mut builder, linear_x, 0.0..top, scale),
            (Scale::Linear, _) => self.fill(&mut builder, linear_x, decades(), scale),
            (_, Scale::Linear) => self.fill(&mut builder, doubling(), 0.0..top, scale),
            _ => self.fill(&mut builder, doubling(), decades(), scale),
        }
    }

    fn fill<'a, D: DrawingBackend + 'a, X, Y>(
        &self,
        builder: &mut ChartBuilder<'a, '_, D>,
        x: X,
        y: Y,
        scale: u32,
    ) -> Result<(), PlotError>
    where
        X: AsRangedCoord<Value = f64> + Clone,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = builder.build_cartesian_2d(x.clone(), y).map_err(drawing)?;
        let Some((name, factor)) = self.right else {
            return self.fill_in(&mut chart, scale);
        };
        let left = chart.y_range();
        let right = left.start * factor..left.end * factor;
        // First, or the axis at the left would be drawn at the right as well.
        let mut chart = chart.set_secondary_coord(x, right);
        self.fill_in(&mut chart, scale)?;
        chart
            .configure_secondary_axes()
            .y_desc(name)
            .y_label_formatter(&|value| thousands(*value))
            .label_style((FONT, 13 * scale))
            .axis_desc_style((FONT, 14 * scale))
            .set_all_tick_mark_size(5 * scale)
            .axis_style(BLACK.stroke_width(scale))
            .draw()
            .map_err(drawing)
    }

    fn fill_in<'a, D: DrawingBackend + 'a, X, Y>(
        &self,
        chart: &mut ChartContext<'a, D, Cartesian2d<X, Y>>,
        scale: u32,
    ) -> Result<(), PlotError>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let count = |axis: &Axis| if axis.scale == Scale::Linear { 8 } else { 16 };
        chart
            .configure_mesh()
            .x_desc(self.x.name.as_ref())
            .y_desc(self.y.name.as_ref())
            .x_label_formatter(&|x| (self.x.label)(*x))
            .y_label_formatter(&|y| (self.y.label)(*y))
            .x_labels(count(&self.x))
            .y_labels(count(&self.y))
            .label_style((FONT, 13 * scale))
            .axis_desc_style((FONT, 14 * scale))
            .set_all_tick_mark_size(5 * scale)
            .axis_style(BLACK.stroke_width(scale))
            .bold_line_style(BLACK.mix(0.15).stroke_width(scale))
            .light_line_style(WHITE.mix(0.0))
            .draw()
            .map_err(drawing)?;
        for line in &self.lines {
            line.draw(chart, scale)?;
        }
        Ok(())
    }
}

impl Line {
    fn draw<'a, D: DrawingBackend + 'a, X, Y>(
        &self,
        chart: &mut ChartContext<'a, D, Cartesian2d<X, Y>>,
        scale: u32,
    ) -> Result<(), PlotError>
    where
        X: Ranged<ValueType = f64>,
        Y: Ranged<ValueType = f64>,
    {
        let colour = colour(self.colour);
        let style = colour.stroke_width(LINE_WIDTH * scale);
        let points = || self.points.iter().copied();
        if self.dashed {
            let dashed = DashedLineSeries::new(points(), 6 * scale, 4 * scale, style);
            chart.draw_series(dashed).map_err(drawing)?;
            return Ok(());
        }
        chart
            .draw_series(LineSeries::new(points(), style))
            .map_err(drawing)?;
        let marks = points().map(|at| Mark::new(at, self.mark, colour, scale));
        chart.draw_series(marks).map_err(drawing)?;
        let pixels = i32::try_from(scale).map_err(drawing)?;
        let labels = points().zip(&self.labels).map(|(at, label)| {
            let style = TextStyle::from((FONT, 12 * scale).into_font()).color(&colour);
            EmptyElement::at(at) + Text::new(label.clone(), (6 * pixels, 4 * pixels), style)
        });
        chart.draw_series(labels).map_err(drawing)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
