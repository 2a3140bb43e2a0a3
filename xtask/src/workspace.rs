//! Where things lie, and the build of the server under test.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::command::run_shown;

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
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
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

/// Builds `package` with optimisation and gives the path of its program `name`.
pub fn build_release(package: &str, name: &str) -> Result<PathBuf> {
    run_shown(cargo().args(["build", "--quiet", "--release", "--package", package]))?;
    Ok(target_folder().join("release").join(name))
}

/// The server to test: `LONGSHORE_BIN` when set, else built with optimisation. Sets
/// `LONGSHORE_BIN` for the tests' own library through [`crate::servers`].
pub fn server_program() -> Result<PathBuf> {
    match std::env::var_os("LONGSHORE_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => build_release("longshore-cli", "longshore"),
    }
}

/// The floor that servers are measured against: `LONGSHORE_FLOOR_BIN` when set, else built with optimisation.
pub fn floor_program() -> Result<PathBuf> {
    match std::env::var_os("LONGSHORE_FLOOR_BIN") {
        Some(path) => Ok(PathBuf::from(path)),
        None => build_release("longshore-floor", "longshore-floor"),
    }
}
