//! Reviews of dependencies: each package of which the program is made stands in `docs/security/dependencies.md`, either
//! with a review, because it sees bytes of peers, or among the others.
//!
//! A new package, or one with a version that may break what was there before, is in neither, and fails the check until
//! somebody has looked at it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::{linked, workspace};

const DOCUMENT: &str = "docs/security/dependencies.md";

/// As `deny.toml` names them.
const TARGETS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The section of packages that see bytes of peers; its table names packages and versions in its first column.
const REVIEWED: &str = "## Packages that see bytes of peers";

/// The section of all others, which only names them.
const OTHERS: &str = "## Other packages";

/// What the document says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Reviews {
    /// Packages with the versions that were reviewed.
    reviewed: BTreeMap<String, String>,
    others: BTreeSet<String>,
}

/// What is missing in the document, or stands there without need.
pub fn problems() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(workspace::root().join(DOCUMENT)).context(DOCUMENT)?;
    Ok(compare(&linked::packages(TARGETS)?, &Reviews::of(&text)))
}

impl Reviews {
    fn of(text: &str) -> Self {
        let mut reviews = Self::default();
        let mut section = "";
        for line in text.lines() {
            if line.starts_with("## ") {
                section = line;
            } else if section == REVIEWED && line.starts_with("| `") {
                let cell = line.trim_start_matches("| ").split(" | ").next();
                let named = cell.unwrap_or_default().split(", ").filter_map(|named| {
                    let (name, version) = named.strip_prefix('`')?.split_once("` ")?;
                    Some((name.to_owned(), version.to_owned()))
                });
                reviews.reviewed.extend(named);
            } else if section == OTHERS {
                let names = line.split('`').skip(1).step_by(2);
                reviews.others.extend(names.map(str::to_owned));
            }
        }
        reviews
    }
}

fn compare(linked: &BTreeSet<(String, String)>, reviews: &Reviews) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, version) in linked {
        match (reviews.reviewed.get(name), reviews.others.contains(name)) {
            (Some(_), true) => {
                problems.push(format!("{name} stands in two sections of {DOCUMENT}"))
            }
            (Some(reviewed), false) if !is_compatible(reviewed, version) => {
                problems.push(format!(
                    "{name} {version} was reviewed as {reviewed}: see {DOCUMENT}"
                ));
            }
            (Some(_), false) | (None, true) => {}
            (None, false) => problems.push(format!(
                "{name} {version} is new: does it see bytes of peers? Say so in {DOCUMENT}"
            )),
        }
    }
    let names: BTreeSet<&String> = linked.iter().map(|(name, _)| name).collect();
    let stale = reviews.reviewed.keys().chain(&reviews.others);
    let stale = stale.filter(|name| !names.contains(name));
    problems.extend(stale.map(|name| format!("{name} is in {DOCUMENT} and not in the program")));
    problems
}

/// Whether a version counts as the same for who depends on it: the first number that is not 0 decides.
fn is_compatible(one: &str, other: &str) -> bool {
    let leading = |version: &str| -> Vec<String> {
        let mut numbers = Vec::new();
        for number in version.split('.') {
            numbers.push(number.to_owned());
            if number != "0" {
                break;
            }
        }
        numbers
    };
    leading(one) == leading(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Dependencies

`nothing` of this counts.

## Packages that see bytes of peers

| package | sees |
|---|---|
| `http` 1.5.0, `bytes` 1.12.1 | `nothing` here |

## Other packages

- of arguments: `clap`, `strsim`
";

    fn linked(packages: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        let owned = |(name, version): &(&str, &str)| ((*name).to_owned(), (*version).to_owned());
        packages.iter().map(owned).collect()
    }

    #[test]
    fn all_that_is_reviewed_or_named_may_be_in_the_program() {
        let reviews = Reviews::of(TEXT);
        let all = [
            ("http", "1.6.2"),
            ("bytes", "1.12.1"),
            ("clap", "9.0.0"),
            ("strsim", "0.1.0"),
        ];
        assert_eq!(compare(&linked(&all), &reviews), Vec::<String>::new());
    }

    #[test]
    fn a_new_package_another_version_and_a_stale_name_are_found() {
        let reviews = Reviews::of(TEXT);
        let all = [
            ("http", "2.0.0"),
            ("bytes", "1.12.1"),
            ("clap", "4.0.0"),
            ("sneaky", "0.1.0"),
        ];
        let problems = compare(&linked(&all), &reviews);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("http 2.0.0 was reviewed as 1.5.0"));
        assert!(problems[1].starts_with("sneaky 0.1.0 is new"));
        assert!(problems[2].starts_with("strsim is in"));
    }

    #[test]
    fn compatible_is_what_cargo_takes_for_it() {
        for (one, other) in [("1.2.3", "1.9.0"), ("0.9.1", "0.9.7"), ("0.0.3", "0.0.3")] {
            assert!(is_compatible(one, other), "{one} {other}");
        }
        for (one, other) in [("1.2.3", "2.0.0"), ("0.9.1", "0.10.0"), ("0.0.3", "0.0.4")] {
            assert!(!is_compatible(one, other), "{one} {other}");
        }
    }
}
