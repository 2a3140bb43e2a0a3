//! Shapes of a drawing, and the drawing as SVG.
//!
//! Lengths are in pixels, from the upper left corner. Style sheets can choose other colours by class.

use std::fmt::Write as _;

use crate::escape::markup;

/// A picture made of shapes, the later ones on top.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    pub title: String,
    pub width: f64,
    pub height: f64,
    pub shapes: Vec<Shape>,
}

/// A colour with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    /// The class in an SVG.
    pub class: &'static str,
    /// Red, green and blue.
    pub colour: [u8; 3],
}

#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A rectangle, with rounded corners where it has an edge.
    Box {
        at: (f64, f64),
        size: (f64, f64),
        paint: Paint,
        edge: Option<[u8; 3]>,
    },
    Line {
        from: (f64, f64),
        to: (f64, f64),
        width: f64,
        paint: Paint,
    },
    Polygon {
        points: Vec<(f64, f64)>,
        paint: Paint,
    },
    /// One line, from its left end on the baseline.
    Text {
        at: (f64, f64),
        size: f64,
        is_bold: bool,
        text: String,
        paint: Paint,
    },
}

impl Paint {
    pub(super) const fn new(class: &'static str, colour: [u8; 3]) -> Self {
        Self { class, colour }
    }
}

impl Shape {
    /// The same shape so much further down.
    #[must_use]
    pub(super) fn moved(mut self, down: f64) -> Self {
        match &mut self {
            Self::Box { at, .. } | Self::Text { at, .. } => at.1 += down,
            Self::Line { from, to, .. } => {
                from.1 += down;
                to.1 += down;
            }
            Self::Polygon { points, .. } => points.iter_mut().for_each(|it| it.1 += down),
        }
        self
    }

    fn svg(&self) -> String {
        match self {
            Self::Box {
                at,
                size,
                paint,
                edge,
            } => {
                let edge = edge.map_or_else(String::new, |colour| {
                    format!(" rx=\"5\" stroke=\"{}\"", hexadecimal(colour))
                });
                format!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"{edge} {}/>",
                    at.0,
                    at.1,
                    size.0,
                    size.1,
                    filled(*paint)
                )
            }
            Self::Line {
                from,
                to,
                width,
                paint,
            } => format!(
                "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"{width}\" class=\"{}\" stroke=\"{}\"/>",
                from.0,
                from.1,
                to.0,
                to.1,
                paint.class,
                hexadecimal(paint.colour)
            ),
            Self::Polygon { points, paint } => {
                let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
                let points = points.collect::<Vec<_>>().join(" ");
                format!("<polygon points=\"{points}\" {}/>", filled(*paint))
            }
            Self::Text {
                at,
                size,
                is_bold,
                text,
                paint,
            } => {
                let weight = if *is_bold {
                    " font-weight=\"bold\""
                } else {
                    ""
                };
                format!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\"{weight} {}>{}</text>",
                    at.0,
                    at.1,
                    filled(*paint),
                    markup(text)
                )
            }
        }
    }
}

impl Drawing {
    /// The drawing as SVG: its texts are escaped, and it names nothing outside of itself.
    #[must_use]
    pub fn svg(&self) -> String {
        let (width, height) = (self.width, self.height);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-family=\"sans-serif\">\n\
             <title>{}</title>\n",
            markup(&self.title)
        );
        for shape in &self.shapes {
            let _ = writeln!(text, "{}", shape.svg());
        }
        text += "</svg>\n";
        text
    }
}

fn filled(paint: Paint) -> String {
    format!(
        "class=\"{}\" fill=\"{}\"",
        paint.class,
        hexadecimal(paint.colour)
    )
}

fn hexadecimal([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
