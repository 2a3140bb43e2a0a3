//! Measured figures with what repeated measurements say of them.

use serde::{Deserialize, Serialize};

/// A figure from rounds of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean of the rounds.
    pub value: f64,
    /// One standard deviation of that mean.
    pub uncertainty: f64,
    pub rounds: u16,
}

impl Spread {
    /// The mean of rounds, and the standard deviation of that mean: 0 for a single round.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // A few rounds.
    pub fn of(rounds: &[f64]) -> Self {
        let count = rounds.len() as f64;
        if rounds.is_empty() {
            return Self::default();
        }
        let value = rounds.iter().sum::<f64>() / count;
        let squares: f64 = rounds.iter().map(|round| (round - value).powi(2)).sum();
        let uncertainty = if rounds.len() > 1 {
            (squares / (count - 1.0) / count).sqrt()
        } else {
            0.0
        };
        Self {
            value,
            uncertainty,
            rounds: u16::try_from(rounds.len()).unwrap_or(u16::MAX),
        }
    }

    /// The uncertainty by the value.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.value == 0.0 {
            0.0
        } else {
            (self.uncertainty / self.value).abs()
        }
    }

    /// Whether both numbers are finite, and the uncertainty is not negative.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.value.is_finite() && self.uncertainty.is_finite() && self.uncertainty >= 0.0
    }
}

/// A heap of values in a distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mode {
    /// Where it is highest, in microseconds.
    pub at: f64,
    /// Its share of the values.
    pub share: f64,
}

/// Many times, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub count: u64,
    pub mean: f64,
    /// Standard deviation of the values.
    pub sd: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// One, or more if the values lie in separate heaps.
    pub modes: Vec<Mode>,
}

/// A gap of this factor between neighbours divides a distribution, if enough lies at each side.
const GAP: f64 = 1.5;

/// The share that the smaller heap has at least.
const SHARE_MIN: f64 = 0.05;

impl Distribution {
    /// Describes the values. Values that are not finite are left out.
    #[must_use]
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )] // Thousands of values.
    pub fn of(values: &[f64]) -> Self {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Self::default();
        };
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        let at = |share: f64| sorted[((count - 1.0) * share).round() as usize];
        Self {
            count: sorted.len() as u64,
            mean,
            sd: (squares / (count - 1.0).max(1.0)).sqrt(),
            min: *min,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: *max,
            modes: modes(&sorted),
        }
    }

    /// Whether there is more than one heap.
    #[must_use]
    pub fn is_bimodal(&self) -> bool {
        self.modes.len() > 1
    }

    /// Whether all numbers are finite.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let modes = self.modes.iter().flat_map(|mode| [mode.at, mode.share]);
        let rest = [
            self.mean, self.sd, self.min, self.p50, self.p90, self.p99, self.max,
        ];
        rest.into_iter().chain(modes).all(f64::is_finite)
    }
}

/// Divides sorted values where a valley of a histogram, whose bins grow by a seventh, is a third as deep as the lower of
/// the hills at its sides, and the hills are [`GAP`] apart.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)] // A histogram of thousands of values.
fn modes(sorted: &[f64]) -> Vec<Mode> {
    let total = sorted.len() as f64;
    let median = sorted[sorted.len() / 2];
    let whole = vec![Mode {
        at: median,
        share: 1.0,
    }];
    if sorted.len() < 40 || sorted[0] <= 0.0 {
        return whole;
    }
    let bin = |value: f64| ((value / sorted[0]).ln() / (1.0_f64 + 1.0 / 7.0).ln()) as usize;
    let mut bins = vec![0.0_f64; bin(sorted[sorted.len() - 1]) + 1];
    for value in sorted {
        bins[bin(*value)] += 1.0;
    }
    let best = (1..bins.len())
        .filter_map(|valley| {
            let peak = |range: std::ops::Range<usize>| {
                let all = range.max_by(|a, b| bins[*a].total_cmp(&bins[*b]));
                all.map(|place| (place, bins[place]))
            };
            let (left, left_height) = peak(0..valley)?;
            let (right, right_height) = peak(valley..bins.len())?;
            let low: f64 = bins[valley - 1].min(bins[valley]);
            let below: f64 = bins[..valley].iter().sum::<f64>() / total;
            let apart = (1.0 + 1.0 / 7.0_f64).powf((right - left) as f64);
            let deep = low * 3.0 <= left_height.min(right_height);
            let both = below.min(1.0 - below) >= SHARE_MIN;
            (deep && both && apart >= GAP).then_some((low, below, left, right))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let Some((_, below, left, right)) = best else {
        return whole;
    };
    let at = |place: usize| sorted[0] * (1.0 + 1.0 / 7.0_f64).powf(place as f64 + 0.5);
    vec![
        Mode {
            at: at(left),
            share: below,
        },
        Mode {
            at: at(right),
            share: 1.0 - below,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Random, normal_quantile};

    fn normal(random: &mut Random, mean: f64, sd: f64) -> f64 {
        mean + sd * normal_quantile(random.uniform().clamp(1e-9, 1.0 - 1e-9))
    }

    #[test]
    fn the_uncertainty_is_that_of_the_mean() {
        let spread = Spread::of(&[9.0, 10.0, 11.0]);
        assert!((spread.value - 10.0).abs() < 1e-12);
        assert!((spread.uncertainty - (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(spread.rounds, 3);
        assert!(Spread::of(&[4.0]).uncertainty.abs() < 1e-12);
    }

    #[test]
    fn one_heap_is_one_mode_and_two_are_two() {
        let mut random = Random::new(4);
        let one: Vec<f64> = (0..2000)
            .map(|_| normal(&mut random, 200.0, 30.0))
            .collect();
        let distribution = Distribution::of(&one);
        assert!(!distribution.is_bimodal(), "{distribution:?}");
        assert!((distribution.p50 - 200.0).abs() < 4.0);
        let two: Vec<f64> = (0..2000)
            .map(|it| match it % 4 {
                0 => normal(&mut random, 900.0, 60.0),
                _ => normal(&mut random, 200.0, 20.0),
            })
            .collect();
        let distribution = Distribution::of(&two);
        assert!(distribution.is_bimodal(), "{distribution:?}");
        let far = distribution.modes[1];
        assert!((far.share - 0.25).abs() < 0.02, "{far:?}");
        assert!((800.0..1000.0).contains(&far.at), "{far:?}");
    }

    #[test]
    fn no_values_are_a_distribution_too() {
        assert_eq!(Distribution::of(&[f64::NAN]), Distribution::default());
    }
}
