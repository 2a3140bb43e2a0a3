//! Builds the test programs and finds out where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::run_for_output;
use crate::workspace;

/// One program with tests.
#[derive(Debug, Clone)]
pub struct Program {
    /// `PACKAGE/TARGET`, with `unit` as the target of a library's unit tests.
    pub name: String,
    path: PathBuf,
    /// The folder of its package, where Cargo runs it too.
    folder: PathBuf,
    /// Environment variables with paths of other programs.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Program {
    /// What runs it, as Cargo would.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Whether its output is that of a program which is a single test, without the usual harness.
    pub fn is_one_test(&self, output: &str) -> bool {
        output
            .lines()
            .any(|line| line.starts_with("test ") && line.ends_with("... ok"))
    }
}

/// Where those messages are left.
pub fn messages_file() -> Result<PathBuf> {
    Ok(workspace::work_folder("ci")?.join("test-programs.json"))
}

/// Builds all test programs, with Cargo's progress shown, unless they are built already. The programs they start are
/// built, too.
pub fn test_programs() -> Result<Vec<Program>> {
    let messages = match std::env::var_os(workspace::BUILT) {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("read what {} names", workspace::BUILT))?,
        None => build()?,
    };
    let programs: Vec<Program> = messages.lines().filter_map(program).collect();
    if programs.is_empty() {
        bail!("cargo has built no test programs");
    }
    Ok(programs)
}

fn build() -> Result<String> {
    let mut command = workspace::cargo();
    command.args(["test", "--workspace", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics");
    let messages = run_for_output(&mut command).context("build the tests")?;
    std::fs::write(messages_file()?, &messages)?;
    Ok(messages)
}

/// The program that a message of Cargo is about.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = message["target"]["name"].as_str()?;
    let package = package(message["package_id"].as_str()?)?;
    let is_library = message["target"]["kind"]
        .as_array()?
        .iter()
        .any(|kind| kind == "lib");
    let target = if is_library { "unit" } else { target };
    Some(Program {
        name: format!("{package}/{target}"),
        path,
        folder: folder.to_owned(),
        variables: Vec::new(),
    })
}

/// The name in `path+file:///…/crates/foundation/wire#longshore-wire@0.1.0`, or in `path+file:///…/xtask#0.1.0`.
fn package(id: &str) -> Option<&str> {
    let (place, version) = id.rsplit_once('#')?;
    match version.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_messages_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","package_id":"path+file:///x/tests#longshore-tests@0.1.0",
            "manifest_path":"/x/tests/Cargo.toml","target":{"kind":["test"],"name":"idle"},
            "profile":{"test":true},"executable":"/x/target/debug/deps/idle-1"}"#;
        let found = program(message).unwrap();
        assert_eq!(found.name, "longshore-tests/idle");
        assert_eq!(found.folder, Path::new("/x/tests"));
        assert!(program(&message.replace("\"test\":true", "\"test\":false")).is_none());
        assert!(program("not a message").is_none());
    }

    #[test]
    fn packages_are_named_by_their_identifiers() {
        assert_eq!(
            package("path+file:///x/crates/foundation/wire#longshore-wire@0.1.0"),
            Some("longshore-wire")
        );
        assert_eq!(package("path+file:///x/xtask#0.1.0"), Some("xtask"));
    }
}
