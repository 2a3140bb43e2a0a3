//! A picture as data: panels, axes and lines.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PlotError {
    /// The name of the file ends in neither `.svg` nor `.png`.
    #[error("--plot {}: unknown format; use a name that ends in .svg or .png", .0.display())]
    Format(PathBuf),
    /// One point, or none.
    #[error(
        "--plot needs points of at least two queue depths; give --iodepth a range, such as 1..256"
    )]
    TooFew,
    #[error("--plot {}: {source}", path.display())]
    Write {
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    #[error("--plot: {0}")]
    Draw(String),
}

pub(super) fn drawing(error: impl std::fmt::Display) -> PlotError {
    PlotError::Draw(error.to_string())
}

#[derive(Debug, Clone, Default)]
pub struct Chart {
    /// Above all panels, in as many lines as it needs.
    pub title: String,
    /// Lines below the title: where the figures come from.
    pub notes: Vec<String>,
    /// What solid lines show, and what dashed ones; for the legend.
    pub dashed: Option<(&'static str, &'static str)>,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// How an axis grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly divided, beginning at zero.
    Linear,
    /// By powers of two.
    Doubling,
    /// By powers of ten.
    Decades,
}

#[derive(Debug, Clone)]
pub struct Axis {
    pub name: Cow<'static, str>,
    pub scale: Scale,
    /// How its values are written.
    pub label: fn(f64) -> String,
}

/// One pair of axes.
#[derive(Debug, Clone)]
pub struct Panel {
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    /// A second axis for y, at the right: its name, and its units in one of y.
    pub right: Option<(&'static str, f64)>,
    pub lines: Vec<Line>,
}

/// A line of a panel.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// In the legend; dashed lines are not in it.
    pub name: String,
    /// Lines of the same number have the same colour.
    pub colour: usize,
    /// Lines of the same number have the same marks.
    pub mark: usize,
    /// Dashed, and without marks.
    pub dashed: bool,
    /// From one to the next.
    pub points: Vec<(f64, f64)>,
    /// What stands beside the points; none when empty.
    pub labels: Vec<String>,
}
