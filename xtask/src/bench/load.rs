//! Runs of `longshore bench`, and what they report.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::bounds::{CLIENT_CORE, pinned};
use crate::command::run_checked;

/// What one run reported.
pub struct Report(Value);

impl Report {
    /// What a client printed.
    pub fn parse(output: &str) -> Result<Self> {
        // Warnings come before it: that the server reports a change, for instance.
        let start = output.find('{').unwrap_or(0);
        let value = serde_json::from_str(&output[start..]);
        let value = value.context("the client did not print JSON")?;
        Ok(Self(value))
    }

    /// Whether all that ran was measured.
    fn is_whole(&self, with_server: bool) -> bool {
        let jobs = self.0["jobs"].as_array().into_iter().flatten();
        let mut loads = std::iter::once(&self.0).chain(jobs);
        loads.all(|load| !load["latency_ns"].is_null())
            && (!with_server || self.0["server_cpu_us_per_op"].is_number())
    }

    /// A number, by its place, such as `/latency_ns/p99`.
    pub fn number(&self, place: &str) -> Result<f64> {
        let value = self.0.pointer(place).and_then(Value::as_f64);
        value.with_context(|| format!("longshore bench did not report {place}"))
    }
}

/// One run against `url`, on the client's processor.
pub fn bench(program: &Path, url: &str, options: &[String]) -> Result<Report> {
    bench_below(&pinned(CLIENT_CORE), program, url, options)
}

/// The same below another program, which says where it runs.
pub fn bench_below(
    below: &[String],
    program: &Path,
    url: &str,
    options: &[String],
) -> Result<Report> {
    let mut words = below.to_vec();
    words.extend([program.display().to_string(), "bench".to_owned()]);
    words.push(url.to_owned());
    words.extend(["--output", "json"].map(str::to_owned));
    words.extend_from_slice(options);
    measured(&words)
}

/// How long a client is run again and again that measures nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a client, again if it has measured nothing: a machine that stands still may do so for the whole of a short
/// measurement.
pub fn measured(words: &[String]) -> Result<Report> {
    let began = Instant::now();
    loop {
        let mut command = Command::new(&words[0]);
        let output = run_checked(command.args(&words[1..]), Duration::from_secs(120))?;
        let report = Report::parse(&output)?;
        if began.elapsed() > PATIENCE
            || report.is_whole(words.iter().any(|word| word == "--server-pid"))
        {
            return Ok(report);
        }
    }
}

/// `words`, each as a string of its own.
pub fn words(words: &str) -> Vec<String> {
    words.split_whitespace().map(str::to_owned).collect()
}
