//! A logarithmic axis with marks at 1, 2 and 5 of each power of ten.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;

/// Values from the one to the other, both above zero.
pub(super) struct Decades(pub Range<f64>);

/// An axis that spans more powers of ten than this has marks at the powers alone, none at 2 and 5.
const DETAILED: f64 = 3.5;

impl Decades {
    fn marks(&self) -> Vec<f64> {
        let (low, high) = (self.0.start.log10(), self.0.end.log10());
        let digits: &[f64] = if high - low <= DETAILED {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut marks = Vec::new();
        let mut power = 10_f64.powf(low.floor());
        while power <= self.0.end {
            let values = digits.iter().map(|digit| digit * power);
            marks.extend(values.filter(|value| (self.0.start..=self.0.end).contains(value)));
            power *= 10.0;
        }
        marks
    }
}

impl Ranged for Decades {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = (self.0.start.ln(), self.0.end.ln());
        RangedCoordf64::from(low..high).map(&value.ln(), limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

impl ValueFormatter<f64> for Decades {
    fn format(value: &f64) -> String {
        super::style::thousands(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_decades_have_marks_in_between_and_many_have_none() {
        assert_eq!(
            Decades(30.0..2500.0).marks(),
            [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0]
        );
        assert_eq!(
            Decades(5.0..200_000.0).marks(),
            [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]
        );
    }

    #[test]
    fn equal_ratios_have_equal_lengths() {
        let axis = Decades(1.0..100.0);
        assert_eq!(axis.map(&10.0, (0, 200)), 100);
    }
}
