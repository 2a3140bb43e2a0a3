//! Every benchmark and figure for a moment: that it can be made. What it says is not judged.

use anyhow::{Context, Result};

use crate::arguments::Arguments;
use crate::counts::{Counts, Skipped};
use crate::rotation::Part;
use crate::{bench, figures};

/// The benchmark, and the figures.
const NAMES: &[&str] = &[
    "bench",
    "fujita",
    "queue-maps",
    "fairness",
    "clients",
    "polling",
    "many-volumes",
    "changes",
    "adaptive-nagle",
    "adaptive-nagle-model",
    "netlab",
];

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let part = Part::take(&mut arguments)?;
    arguments.finish()?;
    let names = part.choose(
        "small-figures",
        NAMES.to_vec(),
        |name| (*name).to_owned(),
        |_| false,
    );
    let mut counts = Counts::default();
    for name in names {
        println!("--- {name}");
        let made = match name {
            "bench" => bench::run(Arguments::of(&["--quick"])),
            name => figures::run(Arguments::of(&[name, "--quick"])),
        };
        match made {
            Ok(made) => counts += made,
            // The figures that need networks of their own are the last, and the others count all the same.
            Err(error) if is_allowed(&error) => {
                println!("SKIPPED {name}: {error}");
                counts += Counts::SKIPPED;
            }
            Err(error) => return Err(error).with_context(|| format!("figure {name}")),
        }
    }
    Ok(counts)
}

/// Containers may not make networks of their own.
fn is_allowed(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Skipped(reason)) if reason == figures::NO_NAMESPACES)
}
