//! Set-ups of known truth (`docs/benchmarks/netlab.md`): links of a known rate and delay, volumes of known times, a known
//! share of the server's processor. A probe of each is held against what is known.
//!
//! | part | measures |
//! |---|---|
//! | `limits` | whether the limit is named, and the error at loads that were kept back |
//! | `loopback` | that error where processors limit, beside the spread of repeated measurements |
//! | `advice` | the gain of advice that is followed, beside the predicted one |
//! | `stages` | whether a server's stages add up to what its client sees |

mod advice;
mod draw;
mod limits;
mod loopback;
mod rig;
mod share;
mod stages;
mod way;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::Plan;

/// The seed of the kept run.
const SEED: u64 = 15;

/// The seed and parts of a run.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    pub seed: Option<u64>,
    /// Set-ups of the first part.
    pub set_ups: Option<usize>,
    /// This part alone.
    pub part: Option<String>,
}

impl Choice {
    fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }
}

type Part = (&'static str, fn(&Plan) -> Result<usize>);

const PARTS: [Part; 4] = [
    ("limits", limits::run),
    ("loopback", loopback::run),
    ("advice", advice::run),
    ("stages", stages::run),
];

/// Measures and shows everything; how many points there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let wanted = plan.netlab.part.as_deref();
    let parts = PARTS
        .iter()
        .filter(|(name, _)| wanted.is_none_or(|it| it == *name));
    let parts: Vec<&Part> = parts.collect();
    if parts.is_empty() {
        bail!("--part is limits, loopback, advice or stages");
    }
    let mut points = 0;
    for (_, measure) in parts {
        points += measure(plan)?;
    }
    Ok(points)
}

/// A bar with the name of what is measured now; lines stand above it.
fn progress(what: &'static str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count.try_into().unwrap_or(u64::MAX));
    let style =
        ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}, {eta} left; {wide_msg}");
    bar.set_style(style.expect("the template is one"));
    bar.set_prefix(what);
    bar
}

/// Prints a line where a bar may be.
fn say(bar: &ProgressBar, line: &str) {
    if bar.is_hidden() {
        println!("{line}");
    } else {
        bar.println(line);
    }
}

/// Median, the value that nine tenths do not exceed, and the largest, of magnitudes.
fn summary(values: impl IntoIterator<Item = f64>) -> Option<[f64; 3]> {
    let mut all: Vec<f64> = values.into_iter().map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    let last = all.len().checked_sub(1)?;
    Some([all[last / 2], all[last * 9 / 10], all[last]])
}

/// The three figures of [`summary`] as cells.
fn cells(summary: Option<[f64; 3]>) -> String {
    summary.map_or(" – | – | – |".to_owned(), |all| {
        all.map(|value| format!(" {value:.1} |")).concat()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_magnitudes() {
        assert_eq!(summary([-5.0, 1.0, 2.0]), Some([2.0, 2.0, 5.0]));
        assert_eq!(summary([]), None);
        assert_eq!(cells(summary([-5.0, 1.0, 2.0])), " 2.0 | 2.0 | 5.0 |");
    }
}
