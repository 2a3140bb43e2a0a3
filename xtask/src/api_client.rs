//! A client of the control API in Python, generated from the document that a running server serves.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::arguments::Arguments;
use crate::command::{run_captured, run_checked};
use crate::counts::{Counts, Skipped};
use crate::served::Served;
use crate::workspace;

/// The reason for which the step may be skipped.
pub const NO_PACKAGES: &str = "the generator cannot be had from PyPI";

/// What pip says where it does not reach the index.
const UNREACHABLE: [&str; 3] = [
    "connection broken by",
    "Could not fetch URL",
    "Failed to establish a new connection",
];

/// How long packages may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// How long any other program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Has a generated client use a server: `cargo xtask api-client`.
pub fn run(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let sources = workspace::root().join("tests/api_client");
    let folder = workspace::work_folder("api-client")?;
    let programs = install(&folder, &sources.join("requirements.txt"))?;

    let served = Served::start()?;
    let document = folder.join("openapi.json");
    let answer = served.get("/openapi.json", "application/json")?;
    std::fs::write(&document, answer.body)?;
    run_checked(
        Command::new(programs.join("openapi-spec-validator")).arg(&document),
        LIMIT,
    )
    .context("the document is not OpenAPI")?;

    let generated = folder.join("generated");
    run_checked(
        Command::new(programs.join("openapi-python-client"))
            .args(["generate", "--overwrite", "--fail-on-warning", "--path"])
            .arg(&document)
            .arg("--output-path")
            .arg(&generated)
            .env("PATH", with_first(&programs)?),
        LIMIT,
    )
    .context("no client can be made of the document")?;

    let output = run_checked(
        Command::new(programs.join("python3"))
            .arg(sources.join("client.py"))
            .arg(format!("http://{}", served.address))
            .env("PYTHONPATH", &generated)
            .env("LONGSHORE_TOKEN", served.token()?),
        LIMIT,
    )
    .with_context(|| format!("log of the server:\n{}", served.server.log()))?;
    println!("api-client: {}", output.trim());
    Ok(Counts::PASSED)
}

/// The folder of programs of a virtual environment with these packages.
fn install(folder: &Path, requirements: &Path) -> Result<PathBuf> {
    let environment = folder.join("environment");
    let programs = environment.join("bin");
    let installed = environment.join("requirements.txt");
    let wanted = std::fs::read_to_string(requirements)?;
    if std::fs::read_to_string(&installed).is_ok_and(|is| is == wanted) {
        return Ok(programs);
    }
    println!("api-client: installing a generator from PyPI");
    run_checked(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
        LIMIT,
    )?;
    let ended = run_captured(
        Command::new(programs.join("pip"))
            .args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--requirement",
            ])
            .arg(requirements),
        INSTALL_LIMIT,
    )?;
    if !ended.is_success() {
        println!("{}", ended.output);
        // Anything else is a mistake in the list.
        let is_away = UNREACHABLE.iter().any(|sign| ended.output.contains(sign));
        if is_away {
            return Err(Skipped(NO_PACKAGES.to_owned()).into());
        }
        bail!("pip ended {}", ended.how());
    }
    std::fs::write(&installed, wanted)?;
    Ok(programs)
}

/// The path for programs, with this folder before all others: the generator calls `ruff`.
fn with_first(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}
