//! How a step ended, from the process of the step to the run it belongs to, by a file.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::counts::{Counts, Skipped};

/// Names the file in the environment of a step.
pub const VARIABLE: &str = "LONGSHORE_STEP_RESULT";

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepResult {
    /// It came to its end.
    Ran {
        counts: Counts,
        /// Of its process and those it started.
        processor: Duration,
    },
    /// It cannot run on this machine, for this reason.
    Skipped(String),
    /// The run broke off; the reason.
    Failed(String),
}

impl StepResult {
    /// A step that broke off.
    pub fn failed(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }

    /// Of a step that returned this in this process.
    pub fn of(result: &Result<Counts>) -> Self {
        match result {
            Ok(counts) => Self::Ran {
                counts: *counts,
                processor: processor_time(),
            },
            Err(error) => match error.downcast_ref::<Skipped>() {
                Some(Skipped(reason)) => Self::Skipped(reason.clone()),
                None => Self::Failed(format!("{error:#}")),
            },
        }
    }

    /// Leaves it where the run wants it, if this process is a step of one.
    pub fn leave(&self) -> Result<()> {
        if let Some(path) = std::env::var_os(VARIABLE) {
            fs::write(path, self.to_json().to_string())?;
        }
        Ok(())
    }

    /// What a step has left; none if it ended before.
    pub fn read(path: &Path) -> Option<Self> {
        Self::from_json(&serde_json::from_slice(&fs::read(path).ok()?).ok()?)
    }

    fn to_json(&self) -> Value {
        match self {
            Self::Ran { counts, processor } => json!({
                "passed": counts.passed,
                "failed": counts.failed,
                "skipped": counts.skipped,
                "processor_ms": u64::try_from(processor.as_millis()).unwrap_or(u64::MAX),
            }),
            Self::Skipped(reason) => json!({ "reason": reason }),
            Self::Failed(why) => json!({ "error": why }),
        }
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        if let Some(reason) = text("reason") {
            return Some(Self::Skipped(reason));
        }
        if let Some(why) = text("error") {
            return Some(Self::Failed(why));
        }
        let number = |name: &str| usize::try_from(value[name].as_u64()?).ok();
        Some(Self::Ran {
            counts: Counts {
                passed: number("passed")?,
                failed: number("failed")?,
                skipped: number("skipped")?,
            },
            processor: Duration::from_millis(value["processor_ms"].as_u64()?),
        })
    }
}

/// User and system time of this process and of those it has waited for, from `/proc/self/stat` (fields 14 to 17,
/// in ticks of 10 ms).
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = behind_name.split(' ').skip(11).take(4);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_as_they_were_left() {
        let ran = StepResult::Ran {
            counts: Counts::PASSED,
            processor: Duration::from_millis(1230),
        };
        for outcome in [
            ran,
            StepResult::Skipped("no".to_owned()),
            StepResult::failed("why"),
        ] {
            assert_eq!(StepResult::from_json(&outcome.to_json()), Some(outcome));
        }
        assert_eq!(StepResult::from_json(&json!({ "passed": 1 })), None);
    }

    #[test]
    fn a_skip_is_told_apart_from_an_error() {
        let skipped = StepResult::of(&Err(Skipped("no root".to_owned()).into()));
        assert_eq!(skipped, StepResult::Skipped("no root".to_owned()));
        let failed = StepResult::of(&Err(anyhow::anyhow!("broken")));
        assert_eq!(failed, StepResult::failed("broken"));
    }
}
