//! Runs of `longshore bench`, and what they report.

use anyhow::Result;

use super::Plan;
use crate::bench::load;
use crate::bench::rounds::Figure;

pub use crate::bench::load::{Report, words};

/// One run against `url`, as long as the plan says.
pub fn bench(plan: &Plan, url: &str, options: &[String]) -> Result<Report> {
    let mut all = words(&format!("--time {}s", plan.seconds));
    all.extend_from_slice(options);
    load::bench(&plan.program, url, &all)
}

/// Measures `count` ways of doing the same by turns, the first one not always first. Of each way, what
/// `measure` returned in each round.
pub fn by_turns<T>(
    plan: &Plan,
    count: usize,
    mut measure: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut all: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0..plan.rounds {
        let forth = 0..count;
        let order: Vec<usize> = if round % 2 == 0 {
            forth.collect()
        } else {
            forth.rev().collect()
        };
        for way in order {
            all[way].push(measure(way)?);
        }
    }
    Ok(all)
}

/// The median of what the rounds of one way reported at a place.
pub fn figure(reports: &[Report], place: &str) -> Result<Figure> {
    let values: Result<Vec<f64>> = reports.iter().map(|r| r.number(place)).collect();
    Ok(Figure::of(values?))
}
