//! Shapes as PNG, with the font and the sharpness of charts.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::layout::use_own_font;
use super::picture::{PlotError, drawing};
use super::style::FONT;

/// Red, green and blue.
pub type Colour = [u8; 3];

/// The height of a line of the font, in sizes of its letters.
const LINE: f64 = 1.164;

/// Pixels of each side of a picture at most.
const SIDE_MAX: f64 = 8192.0;

/// Where shapes are drawn; lengths are in pixels, from the upper left corner.
pub struct Canvas<'a, 'b> {
    area: &'a DrawingArea<BitMapBackend<'b>, Shift>,
    scale: f64,
}

/// Draws a PNG of a size in pixels. Screens of twice the density show it sharp.
///
/// # Errors
/// The picture is larger than 8192 pixels, or what draws says so.
pub fn canvas(
    width: f64,
    height: f64,
    draw: impl FnOnce(&Canvas<'_, '_>) -> Result<(), PlotError>,
) -> Result<Vec<u8>, PlotError> {
    if !(1.0..=SIDE_MAX).contains(&width) || !(1.0..=SIDE_MAX).contains(&height) {
        return Err(PlotError::Draw(format!(
            "{width:.0} × {height:.0} pixels; at most {SIDE_MAX:.0} are possible"
        )));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most SIDE_MAX.
    let size = (width.ceil() as u32, height.ceil() as u32);
    super::bitmap(size, |area, scale| {
        area.fill(&WHITE).map_err(drawing)?;
        draw(&Canvas {
            area,
            scale: scale.into(),
        })
    })
}

#[allow(clippy::cast_possible_truncation)] // Within a picture, or cut off at its edge.
const fn pixel(value: f64) -> i32 {
    value as i32
}

const fn rgb([red, green, blue]: Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

impl Canvas<'_, '_> {
    fn place(&self, at: (f64, f64)) -> (i32, i32) {
        (
            pixel((at.0 * self.scale).round()),
            pixel((at.1 * self.scale).round()),
        )
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Some pixels.
    fn width(&self, value: f64) -> u32 {
        (value * self.scale).round().max(1.0) as u32
    }

    /// A rectangle that is filled; nothing where it is smaller than a pixel.
    pub fn rectangle(
        &self,
        at: (f64, f64),
        size: (f64, f64),
        fill: Colour,
    ) -> Result<(), PlotError> {
        let end = (at.0 + size.0, at.1 + size.1);
        let (from, to) = (self.place(at), self.place(end));
        if from.0 >= to.0 || from.1 >= to.1 {
            return Ok(());
        }
        // The last pixel is part of a rectangle here.
        let corners = [from, (to.0 - 1, to.1 - 1)];
        let rectangle = Rectangle::new(corners, rgb(fill).filled());
        self.area.draw(&rectangle).map_err(drawing)
    }

    pub fn line(
        &self,
        from: (f64, f64),
        to: (f64, f64),
        width: f64,
        colour: Colour,
    ) -> Result<(), PlotError> {
        let style = rgb(colour).stroke_width(self.width(width));
        let line = PathElement::new([self.place(from), self.place(to)], style);
        self.area.draw(&line).map_err(drawing)
    }

    pub fn polygon(&self, points: &[(f64, f64)], fill: Colour) -> Result<(), PlotError> {
        let points: Vec<_> = points.iter().map(|at| self.place(*at)).collect();
        let polygon = Polygon::new(points, rgb(fill).filled());
        self.area.draw(&polygon).map_err(drawing)
    }

    /// A line of text, from its left end on the baseline.
    pub fn text(
        &self,
        text: &str,
        at: (f64, f64),
        size: f64,
        is_bold: bool,
        colour: Colour,
    ) -> Result<(), PlotError> {
        use_own_font();
        let height = size * LINE;
        let colour = rgb(colour);
        let style = TextStyle::from((FONT, height * self.scale).into_font()).color(&colour);
        // The backend puts the baseline half of the height below the place.
        let (x, y) = self.place((at.0, at.1 - height / 2.0));
        // The font has one weight: letters drawn twice are bold.
        let strokes = if is_bold { self.width(0.5) } else { 0 };
        for stroke in 0..=i32::try_from(strokes).map_err(drawing)? {
            let drawn = self.area.draw_text(text, &style, (x + stroke, y));
            drawn.map_err(drawing)?;
        }
        Ok(())
    }
}
