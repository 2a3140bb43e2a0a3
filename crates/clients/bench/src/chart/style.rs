//! Style of pictures: sizes, font, colours.

use plotters::style::{Color, RGBAColor, RGBColor};

pub(super) const PANEL_HEIGHT: u32 = 420;
pub(super) const FONT: &str = "sans-serif";

/// Width of all lines, solid and dashed.
pub(super) const LINE_WIDTH: u32 = 2;

/// Those of Okabe and Ito, which most people can tell apart, without the two that are pale on white.
const COLOURS: [(u8, u8, u8); 6] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (0, 0, 0),
];

pub(super) fn colour(number: usize) -> RGBAColor {
    let (red, green, blue) = COLOURS[number % COLOURS.len()];
    RGBColor(red, green, blue).to_rgba()
}

/// `1500000` as `1.5 M`.
#[must_use]
pub fn thousands(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v >= 1e9 => (v / 1e9, " G"),
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
