//! The bill of materials: the packages of which the program is made, as CycloneDX 1.5 in JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::release::Release;
use crate::command::run_checked;
use crate::linked::{self, PROGRAM, by_id, used_by};
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(120);

/// What the charts of the dashboard say of themselves.
const CHARTS: &str = include_str!("../../../crates/product/dashboard/assets/uplot/README.md");

/// Writes that of the program for `target` into `folder`; gives the file.
pub fn write(release: &Release, target: &str, folder: &Path) -> Result<PathBuf> {
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--format-version", "1", "--locked", "--quiet"]);
    cargo.args(["--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&run_checked(&mut cargo, LIMIT)?)?;
    let lock: toml::Table = fs::read_to_string(workspace::root().join("Cargo.lock"))?.parse()?;
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("longshore-{}.cdx.json", release.version));
    let linked = linked::packages(&[target])?;
    let bill = bill(release, &metadata, &linked, &checksums(&lock))?;
    fs::write(&path, serde_json::to_string_pretty(&bill)?)?;
    Ok(path)
}

/// SHA-256 of packages, by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let sums = packages.into_iter().flatten().filter_map(|package| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    });
    sums.collect()
}

fn bill(
    release: &Release,
    metadata: &Value,
    linked: &BTreeSet<(String, String)>,
    checksums: &BTreeMap<(String, String), String>,
) -> Result<Value> {
    let packages = by_id(&metadata["packages"])?;
    let nodes = by_id(&metadata["resolve"]["nodes"])?;
    let program = packages.values().find(|package| package["name"] == PROGRAM);
    let program = program.with_context(|| format!("no package {PROGRAM}"))?;
    let mut used = used_by(
        program["id"].as_str().context("a package has an id")?,
        &nodes,
    );
    // Packages of this repository, and what the program's own features switch on.
    let is_part = |id: &&str| {
        packages.get(id).is_some_and(|package| {
            let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
            package["source"].is_null() || linked.contains(&(text("name"), text("version")))
        })
    };
    used.retain(|id, needs| {
        needs.retain(is_part);
        is_part(id)
    });
    let mut components = Vec::new();
    let mut dependencies = Vec::new();
    for (id, needs) in &used {
        let package = packages
            .get(id)
            .with_context(|| format!("no package {id}"))?;
        if package["name"] != PROGRAM {
            components.push(component(package, checksums));
        }
        let names = needs
            .iter()
            .filter_map(|id| packages.get(id))
            .map(|package| url(package));
        dependencies
            .push(json!({"ref": url(package), "dependsOn": names.collect::<BTreeSet<_>>()}));
    }
    components.push(charts()?);
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.time,
            "component": {
                "type": "application",
                "bom-ref": url(program),
                "name": "longshore",
                "version": release.version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The charts, which are a part of the program that is no package of Cargo.
fn charts() -> Result<Value> {
    let title = CHARTS.lines().next().unwrap_or_default();
    let version = title
        .strip_prefix("# uPlot ")
        .context("the charts have no version")?;
    let url = format!("pkg:npm/uplot@{version}");
    Ok(json!({
        "type": "library",
        "bom-ref": url,
        "name": "uplot",
        "version": version,
        "purl": url,
        "licenses": [{"expression": "MIT"}],
    }))
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let mut component = json!({
        "type": "library",
        "bom-ref": url(package),
        "name": text("name"),
        "version": text("version"),
        "purl": url(package),
        // Old packages write "MIT/Apache-2.0".
        "licenses": [{"expression": text("license").replace('/', " OR ")}],
    });
    if let Some(sum) = checksums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// The package URL (<https://github.com/package-url/purl-spec>).
fn url(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    format!(
        "pkg:cargo/{}@{}",
        text("name"),
        text("version").replace('+', "%2B")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_of_the_workspace_switch_on_is_no_part_of_the_bill() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "source": source});
        let dependency = |package: &str| json!({"pkg": package, "dep_kinds": [{"kind": null}]});
        let metadata = json!({
            "packages": [package(PROGRAM, json!(null)), package("used", json!("x")), package("proptest", json!("x"))],
            "resolve": {"nodes": [
                {"id": PROGRAM, "deps": [dependency("used"), dependency("proptest")]},
                {"id": "used", "deps": []},
                {"id": "proptest", "deps": []},
            ]},
        });
        let linked = [("used".to_owned(), "1.0.0".to_owned())].into();
        let release = Release {
            version: "1.0.0",
            epoch: 0,
            time: "1970-01-01T00:00:00Z".to_owned(),
        };
        let bill = bill(&release, &metadata, &linked, &BTreeMap::new()).unwrap();
        let text = bill.to_string();
        assert!(text.contains("pkg:cargo/used@1.0.0"), "{text}");
        assert!(!text.contains("proptest"), "{text}");
    }

    #[test]
    fn the_charts_are_a_component_with_their_version() {
        let charts = charts().unwrap();
        let version = charts["version"].as_str().unwrap();
        assert!(version.starts_with(|it: char| it.is_ascii_digit()));
        assert_eq!(charts["purl"], format!("pkg:npm/uplot@{version}"));
    }

    #[test]
    fn checksums_come_from_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0+x\"\nchecksum = \"00ff\"\n";
        let sums = checksums(&lock.parse().unwrap());
        let package = json!({"name": "a", "version": "1.0.0+x", "license": "MIT/Apache-2.0"});
        let component = component(&package, &sums);
        assert_eq!(component["purl"], "pkg:cargo/a@1.0.0%2Bx");
        assert_eq!(component["hashes"][0]["content"], "00ff");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
