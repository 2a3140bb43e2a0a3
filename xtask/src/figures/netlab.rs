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
mod precedence;
mod rig;
mod share;
mod stages;
mod table;
mod way;

use anyhow::{Result, bail};

use super::Plan;

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
