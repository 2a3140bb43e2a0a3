//! Several volumes under the same load, by turns.
//!
//! In each round every volume gets the load once; the order changes from round to round, because
//! the first load changes the machine for the second. Ratios are taken within a round, so that what
//! disturbs the machine for longer than that falls out.

use serde::Serialize;

use crate::measure::{BenchError, Measured, Subject, TestedVolume, measure};
use crate::result::PointResult;
use crate::spec::Run;
use crate::watch::{Interrupt, Watch};

/// The median of some rounds, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` if there are no values.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (first, last) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self {
            median,
            min: first,
            max: last,
        })
    }
}

/// The figures that are compared. A figure that was not measured each time is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Operations per second, over the rounds.
    pub iops: Option<Spread>,
    pub bytes_per_second: Option<Spread>,
    pub latency_mean_ns: Option<Spread>,
    /// Median latency of an operation, over the rounds.
    pub latency_p50_ns: Option<Spread>,
    /// Latency that 99 % do not exceed.
    pub latency_p99_ns: Option<Spread>,
    /// Latency that 99.9 % do not exceed.
    pub latency_p99_9_ns: Option<Spread>,
    /// Processor time of the load.
    pub client_cpu_us_per_op: Option<Spread>,
    /// Processor time of the server.
    pub server_cpu_us_per_op: Option<Spread>,
}

type Figure = fn(&PointResult) -> Option<f64>;

impl Figures {
    fn from(spread: impl Fn(Figure) -> Option<Spread>) -> Self {
        Self {
            iops: spread(|r| Some(r.iops)),
            bytes_per_second: spread(|r| Some(r.bytes_per_second)),
            latency_mean_ns: spread(|r| r.latency_ns.map(|l| l.mean)),
            latency_p50_ns: spread(|r| r.latency_ns.map(|l| crate::result::float(l.p50))),
            latency_p99_ns: spread(|r| r.latency_ns.map(|l| crate::result::float(l.p99))),
            latency_p99_9_ns: spread(|r| r.latency_ns.map(|l| crate::result::float(l.p99_9))),
            client_cpu_us_per_op: spread(|r| r.client_cpu_us_per_op),
            server_cpu_us_per_op: spread(|r| r.server_cpu_us_per_op),
        }
    }

    /// Of one volume over all rounds.
    #[must_use]
    pub fn of(rounds: &[PointResult]) -> Self {
        Self::from(|figure| {
            let values: Option<Vec<f64>> = rounds.iter().map(figure).collect();
            values.and_then(Spread::of)
        })
    }

    /// One volume's divided by another's, round by round.
    #[must_use]
    pub fn ratio(ours: &[PointResult], theirs: &[PointResult]) -> Self {
        Self::from(|figure| {
            let ratios = ours.iter().zip(theirs).map(|(ours, theirs)| {
                let theirs = figure(theirs).filter(|value| *value > 0.0)?;
                Some(figure(ours)? / theirs)
            });
            ratios.collect::<Option<Vec<f64>>>().and_then(Spread::of)
        })
    }
}

/// One volume's part of a comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    #[serde(flatten)]
    pub place: TestedVolume,
    /// Spread of the figures over all rounds.
    pub figures: Figures,
    /// The first volume's figures divided by this one's; not of the first itself.
    pub ratio: Option<Figures>,
    pub rounds: Vec<PointResult>,
}

/// A point on several volumes.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub rw: String,
    pub bs: String,
    /// Operations under way on each session.
    pub iodepth: u32,
    /// The first volume, and those beside it.
    pub sides: Vec<Side>,
}

/// Measures one point on all of the volumes, so many rounds, or until something goes wrong or
/// somebody interrupts. Only rounds that are whole count.
///
/// # Errors
/// A volume cannot be reached, or not used so.
pub fn compare(
    run: &Run,
    subjects: &[Subject],
    rounds: usize,
    interrupt: &Interrupt,
    watch: &mut dyn Watch,
) -> Result<(Comparison, Vec<Measured>), BenchError> {
    let mut sides: Vec<(Option<TestedVolume>, Vec<PointResult>)> =
        vec![(None, Vec::new()); subjects.len()];
    let mut bad = Vec::new();
    'rounds: for round in 0..rounds {
        let mut order: Vec<usize> = (0..subjects.len()).collect();
        order.rotate_left(round % subjects.len());
        let mut results = Vec::new();
        for side in order {
            let measured = measure(run, &subjects[side], interrupt, watch)?;
            if !measured.result.is_good() || measured.result.interrupted {
                sides[side].0.get_or_insert(measured.place.clone());
                bad.push(measured);
                break 'rounds;
            }
            results.push((side, measured));
        }
        for (side, measured) in results {
            sides[side].0.get_or_insert(measured.place);
            sides[side].1.push(measured.result);
        }
    }
    Ok((put_together(run, sides), bad))
}

fn put_together(run: &Run, sides: Vec<(Option<TestedVolume>, Vec<PointResult>)>) -> Comparison {
    let first = sides[0].1.clone();
    let of_side = |(number, (place, rounds)): (usize, (Option<TestedVolume>, Vec<PointResult>))| {
        Some(Side {
            place: place?,
            figures: Figures::of(&rounds),
            ratio: (number > 0).then(|| Figures::ratio(&first, &rounds)),
            rounds,
        })
    };
    let shown = |part: fn(&crate::spec::Job) -> String| {
        let parts: Vec<String> = run.jobs.iter().map(part).collect();
        parts.join("+")
    };
    Comparison {
        rw: shown(|job| job.pattern.to_string()),
        bs: shown(|job| job.sizes.to_string()),
        iodepth: run
            .jobs
            .iter()
            .map(|job| u32::from(job.depth))
            .max()
            .unwrap_or(0),
        sides: sides.into_iter().enumerate().filter_map(of_side).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::point;

    fn rounds(iops: &[f64]) -> Vec<PointResult> {
        let of = |&iops| PointResult {
            iops,
            ..point("randread", "4k", 1)
        };
        iops.iter().map(of).collect()
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(vec![4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!(Spread::of(vec![7.0, 1.0, 3.0]).unwrap().median, 3.0);
        assert_eq!(Spread::of(Vec::new()), None);
    }

    #[test]
    fn what_hits_both_of_a_round_leaves_the_ratio_alone() {
        let ratio = Figures::ratio(
            &rounds(&[200.0, 100.0, 160.0]),
            &rounds(&[100.0, 50.0, 80.0]),
        );
        let two = Spread {
            median: 2.0,
            min: 2.0,
            max: 2.0,
        };
        assert_eq!(ratio.iops, Some(two));
    }

    #[test]
    fn what_was_not_measured_every_time_is_not_compared() {
        let mut ours = rounds(&[1.0, 2.0]);
        ours[1].server_cpu_us_per_op = None;
        assert_eq!(Figures::of(&ours).server_cpu_us_per_op, None);
        assert!(Figures::of(&ours).client_cpu_us_per_op.is_some());
        assert_eq!(Figures::ratio(&ours, &rounds(&[0.0, 1.0])).iops, None);
    }
}
