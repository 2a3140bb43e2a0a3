//! Known vulnerabilities, from a copy of RustSec's database (<https://github.com/RustSec/advisory-db>) that somebody has
//! brought here: CI machines may not reach the network.
//!
//! ```text
//! crates/NAME/RUSTSEC-2024-0001.md     ```toml … [versions] patched = [">= 1.2.3"] … ``` and a text
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};

/// An advisory that concerns a package in use.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub package: String,
    pub advisory: String,
    /// Why it warns without a vulnerability: "unmaintained", "unsound", "notice".
    pub informational: Option<String>,
}

/// Looks for each package, by name and version.
pub fn find(folder: &Path, packages: &BTreeSet<(String, String)>) -> Result<Vec<Finding>> {
    let crates = folder.join("crates");
    if !crates.is_dir() {
        bail!(
            "{} has no folder crates: give a copy of RustSec's advisory-db",
            folder.display()
        );
    }
    let mut findings = Vec::new();
    for (name, version) in packages {
        let Ok(entries) = std::fs::read_dir(crates.join(name)) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            let text = std::fs::read_to_string(&path)?;
            let found = concerns(&text, version).with_context(|| path.display().to_string())?;
            findings.extend(found.map(|(advisory, informational)| Finding {
                package: format!("{name} {version}"),
                advisory,
                informational,
            }));
        }
    }
    Ok(findings)
}

/// Name and kind of an advisory, if this version is concerned and it was not withdrawn.
fn concerns(text: &str, version: &str) -> Result<Option<(String, Option<String>)>> {
    let front = text
        .split("```toml")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let table: toml::Table = front.context("no front matter")?.parse()?;
    let advisory = table.get("advisory").context("no [advisory]")?;
    let word = |key: &str| {
        advisory
            .get(key)
            .and_then(toml::Value::as_str)
            .map(str::to_owned)
    };
    if advisory.get("withdrawn").is_some() {
        return Ok(None);
    }
    let version = Version::parse(version)?;
    let is_in = |key: &str| -> Result<bool> {
        let list = table.get("versions").and_then(|versions| versions.get(key));
        let ranges = list.and_then(toml::Value::as_array).into_iter().flatten();
        for range in ranges.filter_map(toml::Value::as_str) {
            if VersionReq::parse(range)?.matches(&version) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    if is_in("patched")? || is_in("unaffected")? {
        return Ok(None);
    }
    let id = word("id").context("no id")?;
    Ok(Some((id, word("informational"))))
}

#[cfg(test)]
mod tests {
    use longshore_tests::scratch::Scratch;

    use super::*;

    const TEXT: &str = "```toml\n[advisory]\nid = \"RUSTSEC-2024-0001\"\npackage = \"x\"\n\n\
        [versions]\npatched = [\">= 1.2.3\"]\nunaffected = [\"< 1.1.0\"]\n```\n\n# Title\n";

    #[test]
    fn versions_between_the_unaffected_and_the_patched_are_concerned() {
        let scratch = Scratch::new("advisories");
        let folder = scratch.join("crates/x");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("RUSTSEC-2024-0001.md"), TEXT).unwrap();
        let find = |version: &str| {
            let packages = [("x", version), ("y", "1.0.0")];
            let owned = packages.map(|(name, version)| (name.to_owned(), version.to_owned()));
            find(scratch.path(), &owned.into()).unwrap()
        };
        assert_eq!(find("1.2.2")[0].advisory, "RUSTSEC-2024-0001");
        for sound in ["1.0.9", "1.2.3", "1.9.0"] {
            assert_eq!(find(sound), [], "{sound}");
        }
        let withdrawn = TEXT.replace("[versions]", "withdrawn = \"2024-02-02\"\n[versions]");
        std::fs::write(folder.join("RUSTSEC-2024-0001.md"), withdrawn).unwrap();
        assert_eq!(find("1.2.2"), []);
        assert!(super::find(&scratch.join("crates"), &BTreeSet::new()).is_err());
    }
}
