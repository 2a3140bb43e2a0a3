//! Marks of points.

use std::iter::{Once, once};

use plotters::element::{Drawable, PointCollection};
use plotters::prelude::{DrawingBackend, RGBAColor};
use plotters_backend::{BackendCoord, DrawingErrorKind};

/// A mark at a point. Lines of different numbers have different marks, so that colour does not have to tell them apart alone.
pub(super) struct Mark<C> {
    at: C,
    number: usize,
    colour: RGBAColor,
    /// Pixels from its middle to its edge.
    size: i32,
}

impl<C> Mark<C> {
    pub fn new(at: C, number: usize, colour: RGBAColor, scale: u32) -> Self {
        let size = i32::try_from(4 * scale).unwrap_or(4);
        Self {
            at,
            number,
            colour,
            size,
        }
    }
}

impl<'a, C: 'a> PointCollection<'a, C> for &'a Mark<C> {
    type Point = &'a C;
    type IntoIter = Once<&'a C>;

    fn point_iter(self) -> Self::IntoIter {
        once(&self.at)
    }
}

impl<C, D: DrawingBackend> Drawable<D> for Mark<C> {
    fn draw<I: Iterator<Item = BackendCoord>>(
        &self,
        mut places: I,
        backend: &mut D,
        _: (u32, u32),
    ) -> Result<(), DrawingErrorKind<D::ErrorType>> {
        let Some((x, y)) = places.next() else {
            return Ok(());
        };
        let size = self.size;
        let corners: &[(i32, i32)] = match self.number % 4 {
            0 => return backend.draw_circle((x, y), size.unsigned_abs(), &self.colour, true),
            1 => &[(-1, -1), (1, -1), (1, 1), (-1, 1)],
            2 => &[(0, -1), (1, 1), (-1, 1)],
            _ => &[(-1, -1), (1, -1), (0, 1)],
        };
        let corners = corners
            .iter()
            .map(|(dx, dy)| (x + dx * size, y + dy * size));
        backend.fill_polygon(corners, &self.colour)
    }
}
