//! `cargo xtask bench --targets`: the numbers that are to be reached, each with what was measured.
//!
//! A [`Set`] is a load that goes to some servers by turns, and what its figures have to be. All servers
//! run all the time; in each round every set is measured once, so that a round sees all of them on the
//! same machine. What is judged is the median of ratios taken round by round.

mod bound;
mod checks;
mod idle;
mod judge;
mod lab;
mod neighbour;
mod sample;
mod set;
mod sets;

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Plan, page};
use judge::Judged;
use lab::Lab;
use sample::Sample;
use set::Set;

/// Where the table is kept in the document.
const SECTION: &str = "numbers to reach";

/// Measures all sets; how many there were.
pub fn run(plan: &Plan) -> Result<usize> {
    let lab = Lab::new(plan)?;
    let names: Vec<String> = sets::all(plan.quick)
        .into_iter()
        .map(|planned| planned.name())
        .filter(|name| plan.is_chosen(name))
        .collect();
    let idle = plan.is_chosen(idle::NAME) && !plan.quick;
    let checks = plan.is_chosen(checks::NAME) && !plan.quick;
    if names.is_empty() && !idle && !checks {
        println!("of the numbers to reach, none has that in its name");
        return Ok(0);
    }
    let sets: Vec<Set> = sets::all(plan.quick)
        .into_iter()
        .filter(|planned| names.contains(&planned.name()))
        .map(|planned| planned.set(&lab))
        .collect::<Result<_>>()?;
    let mut found: BTreeMap<String, Vec<Vec<Sample>>> = BTreeMap::new();
    for round in 0..plan.rounds {
        for set in &sets {
            let samples = set.measure(plan, round)?;
            if plan.only.is_some() || plan.quick {
                println!("{}", set.line(&samples));
            }
            found.entry(set.name.clone()).or_default().push(samples);
        }
        println!("round {} of {}", round + 1, plan.rounds);
    }
    let mut judged = Vec::new();
    for set in &sets {
        judged.extend(set.judge(&found[&set.name]));
    }
    if idle {
        judged.extend(idle::measure(&lab)?);
    }
    let checked = if checks {
        checks::run(plan, &lab)?
    } else {
        String::new()
    };
    let text = page(plan, &judged, &checked)?;
    if plan.quick || plan.only.is_some() {
        println!("\n{text}");
    } else {
        plan.publish(SECTION, &text)?;
    }
    Ok(judged.len())
}

/// The tables, and where they were made.
fn page(plan: &Plan, judged: &[Judged], checked: &str) -> Result<String> {
    let mut text = page::conditions(plan, &[("tgt", page::tgt_version())])?;
    text += &judge::table(judged);
    text += checked;
    Ok(text)
}
