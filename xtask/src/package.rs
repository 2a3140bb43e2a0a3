//! Packages of a release, and their trials: `cargo xtask package`.
//!
//! | package | program | content |
//! |---|---|---|
//! | `.deb` | glibc | program, units, manual pages, completions, configuration, a user |
//! | `.tar.gz` | static (musl) | the same without the user |
//! | `-oci.tar` | static (musl) | the program alone, as user 65534 |
//!
//! Packing needs neither Docker nor a network. The same programs and `SOURCE_DATE_EPOCH` (by default, the time of the
//! commit) give the same bytes. Each package is installed and used in an empty root.

mod archive;
mod debian;
mod image;
mod program;
mod release;
mod sbom;
mod schemas;
mod stage;
mod tar;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::arguments::Arguments;
use crate::counts::Counts;
use crate::workspace;
use program::Effort;
use release::Release;

pub use program::NO_TARGET;

/// The target of the program that uses the libraries of the machine.
const SHARED_TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs `cargo xtask package`.
pub fn run(mut arguments: Arguments) -> Result<Counts> {
    let effort = match arguments.flag("--quick") {
        true => Effort::Quick,
        false => Effort::Full,
    };
    let tried = !arguments.flag("--no-trials");
    let is_size_checked = arguments.flag("--check-size");
    arguments.finish()?;
    let release = Release::here()?;
    let folder = workspace::work_folder("package")?;
    let (scratch, out) = (folder.join("scratch"), folder.join("out"));
    let bill = sbom::write(&release, program::TARGET, &folder)?;
    let shared_bill = sbom::write(&release, SHARED_TARGET, &folder.join("shared"))?;

    let shared = program::shared(&folder)?;
    let made = |target: &Path| debian::pack(&release, &shared, &shared_bill, &scratch, target);
    let package = same_twice(&folder, made)?;
    if tried {
        debian::try_in_clean_root(&release, &package, &folder)?;
    }
    let mut counts = Counts::PASSED;

    let alone = program::alone(&folder, effort)?;
    let made = |target: &Path| archive::pack(&release, &shared, &alone, &bill, &scratch, target);
    let archive = same_twice(&folder, made)?;
    let made = |target: &Path| image::pack(&release, &alone, &scratch, target);
    let image = same_twice(&folder, made)?;
    counts = counts + Counts::PASSED + Counts::PASSED;
    if tried {
        archive::try_in_empty_root(&release, &archive, &folder)?;
        image::try_as_container(&image, &folder)?;
        schemas::check(&bill)?;
        counts += Counts::PASSED;
    }
    publish(&out, &[&package, &archive, &image, &bill])?;
    if is_size_checked {
        program::check_size(&alone)?;
        counts += Counts::PASSED;
    }
    Ok(counts)
}

/// Packs twice, and compares the bytes.
fn same_twice(folder: &Path, pack: impl Fn(&Path) -> Result<PathBuf>) -> Result<PathBuf> {
    let mut packages = Vec::new();
    for name in ["first", "second"] {
        let target = folder.join(name);
        fs::create_dir_all(&target)?;
        packages.push(pack(&target)?);
    }
    let [first, second] = packages.as_slice() else {
        unreachable!("two were packed");
    };
    if fs::read(first)? != fs::read(second)? {
        bail!(
            "{} and {} differ: packing depends on more than its input",
            first.display(),
            second.display()
        );
    }
    Ok(first.clone())
}

/// Copies the packages to the folder that is left, with their checksums.
fn publish(out: &Path, packages: &[&Path]) -> Result<()> {
    let _ = fs::remove_dir_all(out);
    fs::create_dir_all(out)?;
    let mut sums = String::new();
    for package in packages {
        let name = package.file_name().context("a package has a name")?;
        fs::copy(package, out.join(name))?;
        let sum = hex(&fs::read(package)?);
        sums += &format!("{sum}  {}\n", name.display());
        println!(
            "package: {} ({} bytes)",
            out.join(name).display(),
            fs::metadata(package)?.len()
        );
    }
    fs::write(out.join("SHA256SUMS"), sums)?;
    Ok(())
}

/// SHA-256 in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}
