//! Where things lie, and the build of the server under test.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::command::run_shown;

/// Names a file with Cargo's messages about test programs that are built.
pub const BUILT: &str = "LONGSHORE_TEST_PROGRAMS";

/// The top folder of the repository.
pub fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask lies in the top folder")
        .to_owned()
}

/// Cargo's folder for what it builds.
pub fn target_folder() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        // Test programs run in other folders than this one.
        Some(path) => std::path::absolute(&path).unwrap_or_else(|_| PathBuf::from(path)),
        None => root().join("target"),
    }
}

/// A folder below `target` for what the suites make, such as guest images.
pub fn work_folder(name: &str) -> Result<PathBuf> {
    let folder = target_folder().join("xtask").join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Cargo, in the top folder.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Builds the server and the floor with optimisation, as users have them. One command for both, and the same one each
/// time: other packages together would be built with other features, and anew.
pub fn build_release() -> Result<()> {
    let packages = ["--package", "longshore-cli", "--package", "longshore-floor"];
    run_shown(cargo().args(["build", "--release"]).args(packages))
}

/// Builds the program `name` with the profile of tests, whose dependencies are built for them anyway. With the
/// features of the whole workspace, as the tests are.
pub fn build_for_tests(name: &str) -> Result<PathBuf> {
    // The tests start these programs, so they are built with them.
    if std::env::var_os(BUILT).is_none() {
        run_shown(cargo().args(["build", "--workspace", "--bin", name]))?;
    }
    Ok(target_folder().join("debug").join(name))
}

/// The server to test: `LONGSHORE_BIN` when set, else built with optimisation.
pub fn server_program() -> Result<PathBuf> {
    release_program("LONGSHORE_BIN", "longshore")
}

/// The floor that servers are measured against: `LONGSHORE_FLOOR_BIN` when set, else built with optimisation.
pub fn floor_program() -> Result<PathBuf> {
    release_program("LONGSHORE_FLOOR_BIN", "longshore-floor")
}

/// How steps find what [`build_release`] has built.
pub fn built() -> Vec<(&'static str, PathBuf)> {
    let folder = target_folder().join("release");
    vec![
        ("LONGSHORE_BIN", folder.join("longshore")),
        ("LONGSHORE_FLOOR_BIN", folder.join("longshore-floor")),
    ]
}

fn release_program(variable: &str, name: &str) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Ok(PathBuf::from(path));
    }
    build_release()?;
    Ok(target_folder().join("release").join(name))
}
