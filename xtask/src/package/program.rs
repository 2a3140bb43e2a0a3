//! The programs in packages, without symbols.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::{run_captured, run_checked, run_for_output, run_shown};
use crate::counts::Skipped;
use crate::workspace;

/// The most bytes that the static program may have.
const SIZE_MAX: u64 = 15_000_000;

/// The target whose programs need no library.
pub const TARGET: &str = "x86_64-unknown-linux-musl";

/// The reason for which the step may be skipped.
pub const NO_TARGET: &str = "the standard library for x86_64-unknown-linux-musl cannot be had";

const LIMIT: Duration = Duration::from_secs(300);

/// How well the static program is optimised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As users get it.
    Full,
    /// In a third of the time, for a trial of packages.
    Quick,
}

/// What a quick build has in place of the release profile. As variables, so that both builds share what runs at build
/// time.
const QUICK: &[(&str, &str)] = &[
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
];

/// The program that uses the libraries of the machine.
pub fn shared(folder: &Path) -> Result<PathBuf> {
    stripped(&workspace::server_program()?, &folder.join("shared"))
}

/// The static program: `LONGSHORE_STATIC_BIN` when set, else built here.
pub fn alone(folder: &Path, effort: Effort) -> Result<PathBuf> {
    let built = match std::env::var_os("LONGSHORE_STATIC_BIN") {
        Some(path) => path.into(),
        None => build_alone(effort)?,
    };
    let program = stripped(&built, &folder.join("alone"))?;
    let mut file = Command::new("readelf");
    let headers = run_checked(file.arg("--program-headers").arg(&program), LIMIT)?;
    if headers.contains("INTERP") {
        bail!("{} needs a dynamic linker", program.display());
    }
    Ok(program)
}

fn build_alone(effort: Effort) -> Result<PathBuf> {
    add_target()?;
    let mut cargo = workspace::cargo();
    cargo.args([
        "build",
        "--release",
        "--package",
        "longshore-cli",
        "--target",
        TARGET,
        "--features",
        "tls-vendored",
    ]);
    // A panic aborts, so nothing unwinds, and a backtrace of a program without symbols says nothing.
    cargo.env(
        "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS",
        "-Cforce-unwind-tables=no",
    );
    if effort == Effort::Quick {
        cargo.envs(QUICK.iter().copied());
    }
    run_shown(&mut cargo)?;
    Ok(workspace::target_folder()
        .join(TARGET)
        .join("release/longshore"))
}

/// Has rustup install the standard library, where it is missing.
fn add_target() -> Result<()> {
    let sysroot = run_for_output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let library = Path::new(sysroot.trim()).join("lib/rustlib").join(TARGET);
    if library.is_dir() {
        return Ok(());
    }
    let mut rustup = Command::new("rustup");
    let ended = run_captured(rustup.args(["target", "add", TARGET]), LIMIT);
    match ended {
        Ok(ended) if ended.is_success() => Ok(()),
        Ok(ended) => {
            println!("{}", ended.output);
            Err(Skipped(NO_TARGET.to_owned()).into())
        }
        Err(error) => {
            println!("{error:#}");
            Err(Skipped(NO_TARGET.to_owned()).into())
        }
    }
}

/// Copies a program without its symbols.
fn stripped(program: &Path, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let path = folder.join("longshore");
    let mut strip = Command::new("strip");
    run_checked(strip.arg("-o").arg(&path).arg(program), LIMIT)?;
    Ok(path)
}

/// Refuses a program that is too large.
pub fn check_size(program: &Path) -> Result<()> {
    let bytes = fs::metadata(program)?.len();
    println!(
        "package: {} has {bytes} of at most {SIZE_MAX} bytes",
        program.display()
    );
    if bytes > SIZE_MAX {
        bail!(
            "{} has {bytes} bytes, more than {SIZE_MAX}",
            program.display()
        );
    }
    Ok(())
}
