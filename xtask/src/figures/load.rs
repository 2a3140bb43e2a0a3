//! Runs of `longshore bench`, and what they report.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Plan;
use crate::bench::rounds::Figure;
use crate::bench::server::{CLIENT_CORE, pinned};
use crate::command::run_checked;

/// What one run reported.
pub struct Report(Value);

impl Report {
    /// A number, by its place, such as `/latency_ns/p99`.
    pub fn number(&self, place: &str) -> Result<f64> {
        let value = self.0.pointer(place).and_then(Value::as_f64);
        value.with_context(|| format!("longshore bench did not report {place}"))
    }
}

/// One run against `url`.
pub fn bench(plan: &Plan, url: &str, options: &[String]) -> Result<Report> {
    let mut words = pinned(CLIENT_CORE);
    words.extend([plan.program.display().to_string(), "bench".to_owned()]);
    words.push(url.to_owned());
    words.extend(["--output", "json", "--time"].map(str::to_owned));
    words.push(format!("{}s", plan.seconds));
    words.extend_from_slice(options);
    let mut command = Command::new(&words[0]);
    let output = run_checked(command.args(&words[1..]), Duration::from_secs(120))?;
    Ok(Report(
        serde_json::from_str(&output).context("longshore bench did not print JSON")?,
    ))
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

/// `words`, each as a string of its own.
pub fn words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}
