//! The packages of which the program is made.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::run_checked;
use crate::workspace;

/// The package that becomes the program.
pub const PROGRAM: &str = "longshore-cli";

const LIMIT: Duration = Duration::from_secs(120);

/// Names and versions of the packages of others that become part of the program for one of these targets, or run when it is
/// built.
///
/// `cargo metadata` would add what only tests of the workspace switch on; `cargo tree` resolves the features as the build of
/// the program does.
pub fn packages(targets: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let mut tree = workspace::cargo();
    tree.args(["tree", "--locked", "--quiet", "--package", PROGRAM]);
    tree.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    for target in targets {
        tree.args(["--target", target]);
    }
    let packages = parse(&run_checked(&mut tree, LIMIT)?);
    if packages.is_empty() {
        bail!("cargo tree lists no packages");
    }
    Ok(packages)
}

/// Lines as `serde v1.0.0`, those of this repository with their folder behind.
fn parse(tree: &str) -> BTreeSet<(String, String)> {
    let foreign = tree.lines().filter(|line| !line.contains("(/"));
    let named = foreign.filter_map(|line| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        Some((name, words.next()?.strip_prefix('v')?.to_owned()))
    });
    named.collect()
}

/// Packages or nodes of `cargo metadata` by their names.
pub fn by_id(list: &Value) -> Result<BTreeMap<&str, &Value>> {
    let list = list.as_array().context("cargo metadata has no such list")?;
    Ok(list
        .iter()
        .filter_map(|entry| Some((entry["id"].as_str()?, entry)))
        .collect())
}

/// The packages that become part of the program, each with those that it uses: neither those of tests nor those that run
/// at build time.
pub fn used_by<'a>(
    program: &'a str,
    nodes: &BTreeMap<&'a str, &'a Value>,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut used = BTreeMap::new();
    let mut waiting = vec![program];
    while let Some(id) = waiting.pop() {
        let list = nodes.get(id).and_then(|node| node["deps"].as_array());
        let is_linked = |dependency: &&Value| {
            let kinds = dependency["dep_kinds"].as_array();
            kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        };
        let needs: Vec<&str> = list
            .into_iter()
            .flatten()
            .filter(is_linked)
            .filter_map(|dependency| dependency["pkg"].as_str())
            .collect();
        waiting.extend(needs.iter().filter(|id| !used.contains_key(*id)));
        used.insert(id, needs);
    }
    used
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packages_of_others_are_listed_once_with_their_versions() {
        let tree = "longshore-cli v0.1.0 (/x/cli)\nclap v4.6.7\nclap_derive v4.6.7 (proc-macro)\n\
                    toml v0.9.12+spec-1.1.0\nclap v4.6.7 (*)\n";
        let all: Vec<_> = parse(tree).into_iter().collect();
        let all: Vec<_> = all
            .iter()
            .map(|(name, version)| (name.as_str(), version.as_str()))
            .collect();
        let expected = [
            ("clap", "4.6.7"),
            ("clap_derive", "4.6.7"),
            ("toml", "0.9.12+spec-1.1.0"),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_runs_at_build_time_or_in_tests_is_no_part_of_the_program() {
        let dependency =
            |package: &str, kind: Value| json!({"pkg": package, "dep_kinds": [{"kind": kind}]});
        let list = json!([
            {"id": "cli", "deps": [dependency("a", json!(null)), dependency("b", json!("build"))]},
            {"id": "a", "deps": [dependency("cli", json!("dev")), dependency("c", json!(null))]},
            {"id": "b", "deps": []},
            {"id": "c", "deps": [dependency("a", json!(null))]},
        ]);
        let nodes = by_id(&list).unwrap();
        let used: Vec<_> = used_by("cli", &nodes).into_iter().collect();
        assert_eq!(
            used,
            [("a", vec!["c"]), ("c", vec!["a"]), ("cli", vec!["a"])]
        );
    }
}
