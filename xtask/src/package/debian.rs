//! The Debian package.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::release::{EPOCH, Release};
use super::{stage, tar, trial};
use crate::apt::update_index;
use crate::command::run_checked;
use crate::workspace;

/// The release of Debian in which the package is tried: the oldest that it is for.
const SUITE: &str = "bookworm";

const LIMIT: Duration = Duration::from_secs(300);
const ROOT_LIMIT: Duration = Duration::from_secs(900);

/// Packs into `target`; gives the package.
pub fn pack(
    release: &Release,
    program: &Path,
    bill: &Path,
    scratch: &Path,
    target: &Path,
) -> Result<PathBuf> {
    let dist = workspace::root().join("dist");
    let root = scratch.join("debian");
    stage::install(program, &root, "/usr")?;
    let documents = root.join("usr/share/doc/longshore");
    stage::put(bill, &documents.join("longshore.cdx.json"), 0o644)?;
    stage::put(
        &dist.join("debian/copyright"),
        &documents.join("copyright"),
        0o644,
    )?;
    // Their texts are in `copyright`.
    for licence in ["LICENSE-APACHE", "LICENSE-MIT", "LICENSE-uPlot"] {
        fs::remove_file(documents.join(licence))?;
    }
    // Where Debian's shell looks.
    let zsh = root.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
    for section in ["man1", "man5"] {
        for page in fs::read_dir(root.join("usr/share/man").join(section))? {
            tar::compress(&page?.path())?;
        }
    }
    stage::put(
        &dist.join("debian/longshore.conf"),
        &root.join("usr/lib/systemd/system/longshore.service.d/package.conf"),
        0o644,
    )?;
    stage::put(
        &dist.join("default.toml"),
        &root.join("etc/longshore/longshore.toml"),
        0o644,
    )?;

    let control = root.join("DEBIAN");
    let size = installed_kib(&root)?;
    let text = fs::read_to_string(dist.join("debian/control"))?
        .replace("@VERSION@", release.version)
        .replace("@ARCHITECTURE@", "amd64")
        .replace("@SIZE@", &size.to_string())
        .replace("@LIBC@", &libc_version(program)?);
    stage::write(&control.join("control"), text.as_bytes(), 0o644)?;
    stage::write(
        &control.join("conffiles"),
        b"/etc/longshore/longshore.toml\n",
        0o644,
    )?;
    for script in ["postinst", "prerm", "postrm"] {
        stage::put(
            &dist.join("debian").join(script),
            &control.join(script),
            0o755,
        )?;
    }
    let mut modes = Command::new("chmod");
    run_checked(modes.arg("-R").arg("u+rwX,go+rX,go-w").arg(&root), LIMIT)?;

    let package = target.join(format!("longshore_{}_amd64.deb", release.version));
    let mut build = Command::new("dpkg-deb");
    build
        .args(["--root-owner-group", "-Zxz", "--build"])
        .arg(&root)
        .arg(&package)
        .env(EPOCH, release.epoch.to_string());
    run_checked(&mut build, LIMIT)?;
    Ok(package)
}

/// What the files below `root` take, in KiB, each rounded up, as the policy of Debian asks (§5.6.20).
fn installed_kib(root: &Path) -> Result<u64> {
    let mut kib = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        kib += match metadata.is_dir() {
            true => 1 + installed_kib(&entry.path())?,
            false => metadata.len().div_ceil(1024),
        };
    }
    Ok(kib)
}

/// The version of the C library that the program needs: the newest of its symbols.
fn libc_version(program: &Path) -> Result<String> {
    let mut objdump = Command::new("objdump");
    let symbols = run_checked(objdump.arg("-T").arg(program), LIMIT)?;
    match newest_symbol_version(&symbols) {
        Some((major, minor)) => Ok(format!("{major}.{minor}")),
        None => bail!("{} uses no symbol of glibc", program.display()),
    }
}

fn newest_symbol_version(symbols: &str) -> Option<(u32, u32)> {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (major, rest) = rest[..end].split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    versions.max()
}

/// Installs the package in a new Debian, starts the server as its unit does, and removes the package.
pub fn try_in_clean_root(release: &Release, package: &Path, folder: &Path) -> Result<()> {
    let archive = folder.join(format!("{SUITE}.tar"));
    if !archive.is_file() {
        update_index()?;
        let partial = folder.join("root.partial.tar");
        let mut bootstrap = Command::new("mmdebstrap");
        bootstrap
            .args([
                "--quiet",
                "--variant=apt",
                "--include=adduser,procps,systemd",
                SUITE,
            ])
            .arg(&partial);
        run_checked(&mut bootstrap, ROOT_LIMIT)?;
        fs::rename(partial, &archive)?;
    }
    let root = trial::Root::unpacked(&folder.join("trial"), &[&archive])?;
    fs::copy(package, root.path().join("longshore.deb"))?;
    root.run_inside(
        "package",
        include_str!("../../../tests/packages/debian.sh"),
        &[release.version],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_symbols_compare_as_numbers() {
        let symbols =
            "0 DF *UND* (GLIBC_2.9) a\n0 DF *UND* (GLIBC_2.2.5) b\n0 DF *UND* (GLIBC_2.34) c\n";
        assert_eq!(newest_symbol_version(symbols), Some((2, 34)));
        assert_eq!(newest_symbol_version("0 DF *UND* c\n"), None);
    }
}
