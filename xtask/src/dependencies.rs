//! Licences and sources of all dependencies, held to `deny.toml` without a network, and their [reviews].
//!
//! `cargo deny` does the former and more, and is run where it is installed; to build it takes longer
//! than all the tests. Known vulnerabilities are in a database on the network that CI machines may
//! not reach, so they are looked up only by hand: `make deny`, or with a [copy](advisories) of the database.

mod advisories;
mod reviews;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::arguments::Arguments;
use crate::command::{find_program, run_checked, run_shown};
use crate::counts::Counts;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(300);
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let database = arguments.value("--advisories")?;
    arguments.finish()?;
    let allowed = allowed_licences()?;
    let packages = packages()?;
    let mut counts = Counts::default();
    for (name, version, source, licence) in packages.clone() {
        let problem = if source != CRATES_IO {
            Some(format!("comes from {source}"))
        } else if !satisfies(&licence, &allowed) {
            Some(format!("has the licence {licence:?}"))
        } else {
            None
        };
        match problem {
            None => counts += Counts::PASSED,
            Some(problem) => {
                println!("FAIL {name} {version} {problem}");
                counts += Counts::FAILED;
            }
        }
    }
    println!(
        "licences and sources of {} packages are allowed",
        counts.passed
    );
    for problem in reviews::problems()? {
        println!("FAIL {problem}");
        counts += Counts::FAILED;
    }
    match database {
        Some(folder) => {
            let packages = packages
                .into_iter()
                .map(|(name, version, ..)| (name, version));
            counts += advised(Path::new(&folder), &packages.collect())?;
        }
        None => println!("known vulnerabilities are not looked up without --advisories"),
    }
    if find_program("cargo-deny").is_some() {
        let what = ["bans", "licenses", "sources"];
        run_shown(
            workspace::cargo()
                .args(["deny", "--offline", "--workspace", "check"])
                .args(what),
        )?;
        counts += Counts::PASSED;
    }
    Ok(counts)
}

/// What a copy of the database says. Warnings that are no vulnerabilities are shown and pass.
fn advised(folder: &Path, packages: &BTreeSet<(String, String)>) -> Result<Counts> {
    let mut counts = Counts::default();
    for finding in advisories::find(folder, packages)? {
        match finding.informational {
            Some(kind) => println!("{}: {} ({kind})", finding.package, finding.advisory),
            None => {
                println!("FAIL {}: {}", finding.package, finding.advisory);
                counts += Counts::FAILED;
            }
        }
    }
    if counts.failed == 0 {
        println!(
            "no advisory in {} concerns {} packages",
            folder.display(),
            packages.len()
        );
        counts += Counts::PASSED;
    }
    Ok(counts)
}

fn allowed_licences() -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(workspace::root().join("deny.toml"))?;
    let document: toml::Table = text.parse().context("read deny.toml")?;
    let list = document
        .get("licenses")
        .and_then(|section| section.get("allow"))
        .and_then(toml::Value::as_array)
        .context("deny.toml has no licenses.allow")?;
    Ok(list
        .iter()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect())
}

/// Name, version, source and licence of every package that is not ours.
fn packages() -> Result<Vec<(String, String, String, String)>> {
    let mut command = workspace::cargo();
    command.args(["metadata", "--format-version", "1", "--locked", "--quiet"]);
    let metadata: Value = serde_json::from_str(&run_checked(&mut command, LIMIT)?)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let text = |package: &Value, key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let foreign: Vec<_> = packages
        .iter()
        .filter(|package| !package["source"].is_null())
        .map(|p| {
            (
                text(p, "name"),
                text(p, "version"),
                text(p, "source"),
                text(p, "license"),
            )
        })
        .collect();
    if foreign.is_empty() {
        bail!("cargo metadata lists no dependencies");
    }
    Ok(foreign)
}

/// Whether an SPDX expression can be met with the licences allowed. Parentheses are looked through
/// from the outside in: OR needs one side, AND both.
fn satisfies(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.trim();
    if let Some((left, right)) = split(expression, &[" AND "]) {
        return satisfies(left, allowed) && satisfies(right, allowed);
    }
    // Old crates write "MIT/Apache-2.0".
    if let Some((left, right)) = split(expression, &[" OR ", "/"]) {
        return satisfies(left, allowed) || satisfies(right, allowed);
    }
    match expression
        .strip_prefix('(')
        .and_then(|inner| inner.strip_suffix(')'))
    {
        Some(inner) => satisfies(inner, allowed),
        None => allowed.contains(expression),
    }
}

/// Splits at the first of the operators that stands outside of parentheses.
fn split<'a>(expression: &'a str, operators: &[&str]) -> Option<(&'a str, &'a str)> {
    let mut depth = 0_usize;
    for (at, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let operator = operators
            .iter()
            .find(|operator| expression[at..].starts_with(**operator));
        if let (0, Some(operator)) = (depth, operator) {
            return Some((&expression[..at], &expression[at + operator.len()..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_met_as_spdx_says() {
        let allowed = ["MIT", "Unicode-3.0"].map(str::to_owned).into();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(MIT OR X) AND Unicode-3.0",
        ] {
            assert!(satisfies(good, &allowed), "{good}");
        }
        for bad in ["", "GPL-3.0", "MIT AND X", "(MIT OR X) AND Y"] {
            assert!(!satisfies(bad, &allowed), "{bad}");
        }
    }
}
