//! Pipelines as a picture.

use std::path::Path;

use longshore_bench::chart::{Canvas, Format, PlotError, canvas};
use longshore_report::diagram::{Drawing, Shape};

/// The content of a file whose name ends in `.svg` or `.png`.
pub fn drawn(path: &Path, drawing: &Drawing) -> Result<Vec<u8>, PlotError> {
    match Format::of(path)? {
        Format::Svg => Ok(drawing.svg().into_bytes()),
        Format::Png => canvas(drawing.width, drawing.height, |canvas| {
            drawing.shapes.iter().try_for_each(|it| draw(canvas, it))
        }),
    }
}

fn draw(canvas: &Canvas<'_, '_>, shape: &Shape) -> Result<(), PlotError> {
    match shape {
        Shape::Box {
            at,
            size,
            paint,
            edge,
        } => {
            canvas.rectangle(*at, *size, paint.colour)?;
            let Some(edge) = edge else { return Ok(()) };
            let (right, bottom) = (at.0 + size.0, at.1 + size.1);
            let corners = [*at, (right, at.1), (right, bottom), (at.0, bottom), *at];
            let mut sides = corners.windows(2);
            sides.try_for_each(|side| canvas.line(side[0], side[1], 1.0, *edge))
        }
        Shape::Line {
            from,
            to,
            width,
            paint,
        } => canvas.line(*from, *to, *width, paint.colour),
        Shape::Polygon { points, paint } => canvas.polygon(points, paint.colour),
        Shape::Text {
            at,
            size,
            is_bold,
            text,
            paint,
        } => canvas.text(text, *at, *size, *is_bold, paint.colour),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longshore_model::parameter::{Parts, Source};
    use longshore_model::pipeline::of_parts;
    use longshore_report::diagram::picture;

    fn drawing() -> Drawing {
        let mut parts = Parts::default();
        for (name, value) in [("rate", "1Gbit/s"), ("storage-access-time", "400us")] {
            let source = Source::Given("a test".to_owned());
            parts.change(name, value, source).unwrap();
        }
        picture(&[of_parts(&parts, 4096, 1)])
    }

    #[test]
    fn a_png_has_the_size_and_the_colours_of_the_shapes() {
        let drawing = drawing();
        let png = drawn(Path::new("a.png"), &drawing).unwrap();
        let decoder = png::Decoder::new(std::io::Cursor::new(png));
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert!((f64::from(info.width) - 2.0 * drawing.width).abs() <= 2.0);
        assert!((f64::from(info.height) - 2.0 * drawing.height).abs() <= 2.0);
        for shape in &drawing.shapes {
            let Shape::Box { size, paint, .. } = shape else {
                continue;
            };
            let has = pixels.chunks_exact(3).any(|pixel| pixel == paint.colour);
            assert!(has || size.0 < 1.0, "{shape:?}");
        }
        // Letters are black.
        assert!(pixels.chunks_exact(3).any(|pixel| pixel == [0, 0, 0]));
    }

    #[test]
    fn an_svg_is_text_and_other_names_are_refused() {
        let drawing = drawing();
        let svg = drawn(Path::new("a.svg"), &drawing).unwrap();
        assert!(svg.starts_with(b"<svg"));
        assert!(drawn(Path::new("a.gif"), &drawing).is_err());
    }
}
