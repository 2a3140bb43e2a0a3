//! A load that goes to some servers by turns.

use anyhow::{Context, Result};

use super::bound::Test;
use super::neighbour::Neighbour;
use super::sample::Sample;
use crate::bench::Plan;
use crate::bench::load::measured;
use crate::bench::server::{CLIENT_CORE, pinned};

/// How a load gets to a server.
#[derive(Debug, Clone)]
pub struct Way {
    /// What the table calls it.
    pub name: &'static str,
    /// The client with its arguments, but for the time.
    pub words: Vec<String>,
    /// Process identifier of the server under test.
    pub pid: u32,
    /// A process that never sleeps shares the server's processor.
    pub disturbed: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Set {
    pub name: String,
    pub ways: Vec<Way>,
    pub tests: Vec<Test>,
    /// Bytes of an operation.
    pub size: u32,
    /// A run takes so many times as long as others.
    pub longer: f64,
}

impl Set {
    /// Every way once. Who is second finds the machine as the first has left it, so they change places.
    pub fn measure(&self, plan: &Plan, round: u64) -> Result<Vec<Sample>> {
        let mut samples = vec![Sample::default(); self.ways.len()];
        let mut order: Vec<usize> = (0..self.ways.len()).collect();
        if !round.is_multiple_of(2) {
            order.reverse();
        }
        for index in order {
            let way = &self.ways[index];
            samples[index] = self
                .sample(plan, way)
                .with_context(|| format!("{} of {}", self.name, way.name))?;
        }
        Ok(samples)
    }

    fn sample(&self, plan: &Plan, way: &Way) -> Result<Sample> {
        let seconds: f64 = plan.seconds.parse().context("--seconds")?;
        let seconds = seconds * self.longer;
        let mut words = pinned(CLIENT_CORE);
        words.extend_from_slice(&way.words);
        let is_floor = way.words.iter().any(|word| word == "drive");
        let unit = if is_floor { "" } else { "s" };
        words.extend(["--time".to_owned(), format!("{seconds:.3}{unit}")]);
        words.extend(["--server-pid".to_owned(), way.pid.to_string()]);
        let neighbour = way.disturbed.then(Neighbour::start).transpose()?;
        let report = measured(&words)?;
        drop(neighbour);
        Ok(Sample {
            iops: report.number("/iops")?,
            cpu_us: report.number("/server_cpu_us_per_op")?,
            client_us: report.number("/client_cpu_us_per_op")?,
            p99_us: report.number("/latency_ns/p99")? / 1e3,
        })
    }

    /// For watching a run.
    pub fn line(&self, samples: &[Sample]) -> String {
        let mut line = format!("{:30}", self.name);
        for (way, sample) in self.ways.iter().zip(samples) {
            line += &format!(
                " {} {:>8.0} @ {:>7.3} µs p99 {:.0}, busy {:.2} client {:.2} ",
                way.name,
                sample.iops,
                sample.cpu_us,
                sample.p99_us,
                sample.busy(),
                sample.client_busy(),
            );
        }
        line
    }
}
