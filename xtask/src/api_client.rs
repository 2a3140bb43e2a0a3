//! A client of the control API in Python, generated from the document that a running server serves.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::arguments::Arguments;
use crate::command::run_checked;
use crate::counts::Counts;
use crate::served::Served;
use crate::{python, workspace};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Has a generated client use a server: `cargo xtask api-client`.
pub fn run(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    let sources = workspace::root().join("tests/api_client");
    let folder = workspace::work_folder("api-client")?;
    let programs = python::environment(&folder, &sources.join("requirements.txt"))?;

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

/// The path for programs, with this folder before all others: the generator calls `ruff`.
fn with_first(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}
