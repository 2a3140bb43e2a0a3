//! The life of an operation as a diagram: lines for a terminal, boxes for a picture.

use std::fmt::Write as _;

use longshore_model::pipeline::{Pipeline, STOPS, Segment};
use longshore_model::probe::Direction;

use crate::escape::{markup, size, time};

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

/// Colours of waiting, latency, work and the medium.
const COLOURS: [(&str, &str); 4] = [
    ("waits", "#d9a441"),
    ("latency", "#7aa6c2"),
    ("work", "#4c8055"),
    ("medium", "#8a5a83"),
];

/// The loop as a picture: the way there above, the way back below.
#[must_use]
pub fn svg(pipeline: &Pipeline) -> String {
    let (width, height) = extent();
    let title = markup(&title(pipeline));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" class=\"ground\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"22\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{MARGIN}\" y=\"40\">{}</text>\n",
        markup(&summary(pipeline))
    );
    for place in 0..STOPS.len() {
        arrow(&mut text, place);
    }
    for (place, segment) in pipeline.segments.iter().enumerate() {
        element(&mut text, place, segment);
    }
    for (place, (name, colour)) in (0_u8..).zip(COLOURS) {
        let (x, y) = (MARGIN + 90.0 * f64::from(place), height - 20.0);
        let _ = writeln!(
            text,
            "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"12\" height=\"12\" class=\"{name}\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
            x + 18.0,
            y + 10.0
        );
    }
    text += "</svg>\n";
    text
}

/// Several loops below each other.
#[must_use]
pub fn picture(pipelines: &[Pipeline]) -> String {
    let (width, height) = extent();
    let rows = f64::from(u32::try_from(pipelines.len()).unwrap_or(u32::MAX));
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{:.0}\">\n",
        rows * height
    );
    for (row, pipeline) in (0_u32..).zip(pipelines) {
        let _ = writeln!(
            text,
            "<g transform=\"translate(0 {:.0})\">\n{}</g>",
            f64::from(row) * height,
            svg(pipeline)
        );
    }
    text += "</svg>\n";
    text
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

fn arrow(text: &mut String, place: usize) {
    let (from, to) = (corner(place), corner((place + 1) % STOPS.len()));
    let (right, left) = (from.0 < to.0, from.0 > to.0);
    let (x1, y1, x2, y2) = if right {
        (
            from.0 + BOX.0,
            from.1 + BOX.1 / 2.0,
            to.0,
            to.1 + BOX.1 / 2.0,
        )
    } else if left {
        (
            from.0,
            from.1 + BOX.1 / 2.0,
            to.0 + BOX.0,
            to.1 + BOX.1 / 2.0,
        )
    } else if from.1 < to.1 {
        (
            from.0 + BOX.0 / 2.0,
            from.1 + BOX.1,
            to.0 + BOX.0 / 2.0,
            to.1,
        )
    } else {
        (
            from.0 + BOX.0 / 2.0,
            from.1,
            to.0 + BOX.0 / 2.0,
            to.1 + BOX.1,
        )
    };
    let (dx, dy) = (
        (x2 - x1).signum() * f64::from(u8::from(x1 != x2)),
        (y2 - y1).signum() * f64::from(u8::from(y1 != y2)),
    );
    let (bx, by) = (x2 - 8.0 * dx, y2 - 8.0 * dy);
    let _ = writeln!(
        text,
        "<line x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{bx:.0}\" y2=\"{by:.0}\" class=\"arrow\" stroke=\"#555555\" stroke-width=\"1.5\"/>\
         <polygon class=\"head\" points=\"{x2:.0},{y2:.0} {:.0},{:.0} {:.0},{:.0}\" fill=\"#555555\"/>",
        bx + 4.0 * dy,
        by + 4.0 * dx,
        bx - 4.0 * dy,
        by - 4.0 * dx
    );
}

fn element(text: &mut String, place: usize, segment: &Segment) {
    let (x, y) = corner(place);
    let _ = writeln!(
        text,
        "<rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{}\" height=\"{}\" rx=\"5\" class=\"box\" fill=\"#f6f4ee\" stroke=\"#555555\"/>\
         <text x=\"{:.0}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>\
         <text x=\"{:.0}\" y=\"{:.0}\">{} ({:.0} %)</text>",
        BOX.0,
        BOX.1,
        x + 8.0,
        y + 18.0,
        segment.stop.name(),
        x + 8.0,
        y + 36.0,
        time(segment.sum_us()),
        100.0 * segment.share
    );
    let parts = [
        segment.queue_us,
        segment.latency_us,
        segment.work_us - segment.medium_us,
        segment.medium_us,
    ];
    let sum: f64 = parts.iter().sum();
    if sum > 0.0 {
        let (mut at, whole) = (x + 8.0, BOX.0 - 16.0);
        for (part, (name, colour)) in parts.iter().zip(COLOURS) {
            let width = whole * (part / sum).max(0.0);
            let _ = writeln!(
                text,
                "<rect x=\"{at:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"10\" class=\"{name}\" fill=\"{colour}\"/>",
                y + 46.0
            );
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
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.0}\" class=\"quiet\" font-size=\"11\" fill=\"#555555\">{range} {known}</text>",
        x + 8.0,
        y + 76.0
    );
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
        assert_eq!(svg.matches("rx=\"5\"").count(), 8);
        assert_eq!(svg.matches("<polygon").count(), 8);
        assert!(!svg.contains("NaN") && svg.trim_end().ends_with("</svg>"));
    }
}
