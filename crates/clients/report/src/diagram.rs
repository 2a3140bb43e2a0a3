//! The life of an operation as a diagram: lines for a terminal, shapes for a picture.

mod shape;

use std::fmt::Write as _;

use longshore_model::pipeline::{Pipeline, STOPS, Segment};
use longshore_model::probe::Direction;

use crate::escape::{size, time};

pub use shape::{Drawing, Paint, Shape};

/// What an operation is, in a line.
#[must_use]
pub fn title(pipeline: &Pipeline) -> String {
    let direction = match pipeline.direction {
        Direction::Read => "read",
        Direction::Write => "write",
    };
    let size = size(pipeline.size_bytes);
    match pipeline.depth {
        Some(depth) if pipeline.is_knee => {
            format!("{direction} of {size}, depth {depth} (the knee)")
        }
        Some(depth) => format!("{direction} of {size}, depth {depth}"),
        None => format!("{direction} of up to {size}, as clients do now"),
    }
}

/// The round trip in a line: what the elements add up to, and what was measured.
#[must_use]
pub fn summary(pipeline: &Pipeline) -> String {
    let round_trip = pipeline.round_trip_us;
    let mut text = time(round_trip.value);
    if round_trip.high > round_trip.low {
        let _ = write!(
            text,
            " ({} to {})",
            time(round_trip.low),
            time(round_trip.high)
        );
    }
    if let (Some(measured), Some(unexplained)) = (pipeline.measured_us, pipeline.unexplained_us()) {
        let _ = write!(
            text,
            "; measured {}, {} ({:.0} %) not explained",
            time(measured.value),
            time(unexplained),
            100.0 * unexplained / measured.value
        );
    }
    text
}

const BAR: usize = 24;

/// Lines of text, no wider than a hundred characters.
#[must_use]
pub fn text(pipeline: &Pipeline) -> String {
    let mut text = format!("{}: {}\n", title(pipeline), summary(pipeline));
    text += "                        WAITS    LATENCY       WORK      TOTAL\n";
    for segment in &pipeline.segments {
        let cell = |us: f64| {
            if us.abs() < 0.05 {
                "–".to_owned()
            } else {
                time(us)
            }
        };
        let _ = write!(
            text,
            "  {:18} {:>10} {:>10} {:>10} {:>10} {:>4.0} %  {}",
            segment.stop.name(),
            cell(segment.queue_us),
            cell(segment.latency_us),
            cell(segment.work_us),
            cell(segment.sum_us()),
            100.0 * segment.share,
            bar(segment.share)
        );
        while text.ends_with(' ') {
            text.pop();
        }
        text.push('\n');
        if segment.medium_us >= 0.05 {
            let _ = writeln!(text, "    of that medium {:>26}", time(segment.medium_us));
        }
    }
    text
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)] // A share of a few characters.
fn bar(share: f64) -> String {
    let filled = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    "█".repeat(filled)
}

const BOX: (f64, f64) = (170.0, 92.0);
const GAP: (f64, f64) = (34.0, 54.0);
const MARGIN: f64 = 16.0;
const HEADER: f64 = 54.0;

const GROUND: Paint = Paint::new("ground", [0xff, 0xff, 0xff]);
const TEXT: Paint = Paint::new("text", [0, 0, 0]);
const QUIET: Paint = Paint::new("quiet", [0x55, 0x55, 0x55]);
const BOXES: Paint = Paint::new("box", [0xf6, 0xf4, 0xee]);
const ARROW: Paint = Paint::new("arrow", [0x55, 0x55, 0x55]);
const HEAD: Paint = Paint::new("head", [0x55, 0x55, 0x55]);

/// Colours of waiting, latency, work and the medium.
const COLOURS: [Paint; 4] = [
    Paint::new("waits", [0xd9, 0xa4, 0x41]),
    Paint::new("latency", [0x7a, 0xa6, 0xc2]),
    Paint::new("work", [0x4c, 0x80, 0x55]),
    Paint::new("medium", [0x8a, 0x5a, 0x83]),
];

/// Sizes of text, in pixels.
const SIZE: f64 = 12.0;
const SIZE_TITLE: f64 = 15.0;
const SIZE_SMALL: f64 = 11.0;

/// The loop as an SVG: the way there above, the way back below.
#[must_use]
pub fn svg(pipeline: &Pipeline) -> String {
    drawing(pipeline).svg()
}

/// Several loops below each other.
#[must_use]
pub fn picture(pipelines: &[Pipeline]) -> Drawing {
    let (width, height) = extent();
    let mut picture = Drawing {
        title: "Pipelines".to_owned(),
        width,
        height: 0.0,
        shapes: Vec::new(),
    };
    for pipeline in pipelines {
        let shapes = drawing(pipeline).shapes;
        let below = shapes.into_iter().map(|it| it.moved(picture.height));
        picture.shapes.extend(below);
        picture.height += height;
    }
    picture
}

fn drawing(pipeline: &Pipeline) -> Drawing {
    let (width, height) = extent();
    let title = title(pipeline);
    let mut shapes = vec![
        Shape::Box {
            at: (0.0, 0.0),
            size: (width, height),
            paint: GROUND,
            edge: None,
        },
        Shape::Text {
            at: (MARGIN, 22.0),
            size: SIZE_TITLE,
            is_bold: true,
            text: title.clone(),
            paint: TEXT,
        },
        line_of_text((MARGIN, 40.0), summary(pipeline)),
    ];
    for place in 0..STOPS.len() {
        shapes.extend(arrow(place));
    }
    for (place, segment) in pipeline.segments.iter().enumerate() {
        element(&mut shapes, place, segment);
    }
    for (place, paint) in (0_u8..).zip(COLOURS) {
        let (x, y) = (MARGIN + 90.0 * f64::from(place), height - 20.0);
        shapes.push(Shape::Box {
            at: (x, y),
            size: (12.0, 12.0),
            paint,
            edge: None,
        });
        shapes.push(line_of_text((x + 18.0, y + 10.0), paint.class.to_owned()));
    }
    Drawing {
        title,
        width,
        height,
        shapes,
    }
}

const fn line_of_text(at: (f64, f64), text: String) -> Shape {
    Shape::Text {
        at,
        size: SIZE,
        is_bold: false,
        text,
        paint: TEXT,
    }
}

/// Width and height of one loop.
fn extent() -> (f64, f64) {
    (
        2.0 * MARGIN + 4.0 * BOX.0 + 3.0 * GAP.0,
        HEADER + 2.0 * BOX.1 + GAP.1 + MARGIN + 24.0,
    )
}

/// The upper left corner of an element. The second half runs back from right to left.
fn corner(place: usize) -> (f64, f64) {
    let column = u8::try_from(if place < 4 { place } else { 7 - place }).expect("below 4");
    let row = if place < 4 { 0.0 } else { 1.0 };
    (
        MARGIN + f64::from(column) * (BOX.0 + GAP.0),
        HEADER + row * (BOX.1 + GAP.1),
    )
}

/// The line and the head of an arrow from an element to the next one.
fn arrow(place: usize) -> [Shape; 2] {
    let (from, to) = (corner(place), corner((place + 1) % STOPS.len()));
    let middle = |at: (f64, f64)| (at.0 + BOX.0 / 2.0, at.1 + BOX.1 / 2.0);
    let (from, to) = (middle(from), middle(to));
    // One of them is 0: arrows run along an axis.
    let (dx, dy) = (direction(from.0, to.0), direction(from.1, to.1));
    let edge =
        |at: (f64, f64), way: f64| (at.0 + way * dx * BOX.0 / 2.0, at.1 + way * dy * BOX.1 / 2.0);
    let (begin, tip) = (edge(from, 1.0), edge(to, -1.0));
    let back = (tip.0 - 8.0 * dx, tip.1 - 8.0 * dy);
    [
        Shape::Line {
            from: begin,
            to: back,
            width: 1.5,
            paint: ARROW,
        },
        Shape::Polygon {
            points: vec![
                tip,
                (back.0 + 4.0 * dy, back.1 + 4.0 * dx),
                (back.0 - 4.0 * dy, back.1 - 4.0 * dx),
            ],
            paint: HEAD,
        },
    ]
}

fn direction(from: f64, to: f64) -> f64 {
    f64::from(i8::from(to > from) - i8::from(to < from))
}

fn element(shapes: &mut Vec<Shape>, place: usize, segment: &Segment) {
    let (x, y) = corner(place);
    shapes.push(Shape::Box {
        at: (x, y),
        size: BOX,
        paint: BOXES,
        edge: Some(ARROW.colour),
    });
    shapes.push(Shape::Text {
        at: (x + 8.0, y + 18.0),
        size: SIZE,
        is_bold: true,
        text: segment.stop.name().to_owned(),
        paint: TEXT,
    });
    let time_and_share = format!(
        "{} ({:.0} %)",
        time(segment.sum_us()),
        100.0 * segment.share
    );
    shapes.push(line_of_text((x + 8.0, y + 36.0), time_and_share));
    let parts = [
        segment.queue_us,
        segment.latency_us,
        segment.work_us - segment.medium_us,
        segment.medium_us,
    ];
    let sum: f64 = parts.iter().sum();
    if sum > 0.0 {
        let (mut at, whole) = (x + 8.0, BOX.0 - 16.0);
        for (part, paint) in parts.iter().zip(COLOURS) {
            let width = whole * (part / sum).max(0.0);
            shapes.push(Shape::Box {
                at: (at, y + 46.0),
                size: (width, 10.0),
                paint,
                edge: None,
            });
            at += width;
        }
    }
    let known = if segment.is_measured { "" } else { "assumed" };
    let range = segment.total_us;
    let range = if range.high > range.low {
        format!("{} to {}", time(range.low), time(range.high))
    } else {
        String::new()
    };
    shapes.push(Shape::Text {
        at: (x + 8.0, y + 76.0),
        size: SIZE_SMALL,
        is_bold: false,
        text: format!("{range} {known}").trim().to_owned(),
        paint: QUIET,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_model::parameter::{Parts, Source};
    use longshore_model::pipeline::of_parts;

    fn pipeline() -> Pipeline {
        let mut parts = Parts::default();
        for (name, value) in [
            ("rate", "1Gbit/s"),
            ("one-way-latency", "100us±10us"),
            ("storage-access-time", "400us"),
            ("server-cpu-per-op", "9us"),
        ] {
            let source = Source::Given("a test".to_owned());
            parts.change(name, value, source).unwrap();
        }
        of_parts(&parts, 4096, 1)
    }

    #[test]
    fn a_terminal_gets_the_eight_elements_and_their_sum() {
        let text = text(&pipeline());
        for stop in STOPS {
            assert!(text.contains(stop.name()), "{text}");
        }
        assert!(text.starts_with("read of 4 KiB, depth 1: "), "{text}");
        assert!(text.contains("of that medium") && text.contains("400 µs"));
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }

    #[test]
    fn a_picture_has_eight_boxes_and_eight_arrows() {
        let svg = svg(&pipeline());
        assert_eq!(svg.matches("class=\"box\"").count(), 8);
        assert_eq!(svg.matches("<polygon").count(), 8);
        assert!(!svg.contains("NaN") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn loops_lie_below_each_other() {
        let (one, both) = (picture(&[pipeline()]), picture(&[pipeline(), pipeline()]));
        assert!((both.height - 2.0 * one.height).abs() < 1e-9);
        assert_eq!(both.shapes.len(), 2 * one.shapes.len());
        assert_eq!(both.svg().matches("<svg").count(), 1);
    }
}
