//! Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::run_checked;

/// The keys of Debian's archive, in the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const UPDATE_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

/// Fetches the lists of packages, once a process.
pub fn update_index() -> Result<()> {
    Repository::of_this_system().update()
}

/// `apt-get` that asks nothing, tries again where the network fails, and starts no services: a server that comes up by being installed
/// would take ports that tests want, and containers have nothing to start it with.
pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("RUNLEVEL", "1")
        .args(["-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120"]);
    command
}

/// Where packages come from.
#[derive(Debug, Clone)]
pub struct Repository {
    /// For `apt-get` and `apt-cache`.
    options: Vec<String>,
}

impl Repository {
    /// What this system has its own packages from.
    pub fn of_this_system() -> Self {
        Self {
            options: Vec::new(),
        }
    }

    /// Another release of Debian, by its name, from the same mirror. Lists and archives lie in `folder`; no package counts
    /// as installed, and nothing changes in this system.
    pub fn of_release(name: &str, folder: &Path) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let mirror = mirror()?;
        let source = format!("deb [signed-by={KEYRING}] {mirror} {name} main\n");
        fs::write(folder.join("sources.list"), source)?;
        fs::write(folder.join("status"), "")?;
        let folder = std::path::absolute(folder)?;
        let settings = [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", "cache"),
            ("Dir::State::status", "status"),
        ];
        let mut options: Vec<String> = settings
            .iter()
            .map(|(key, file)| format!("{key}={}", folder.join(file).display()))
            .collect();
        options.push("Dir::Etc::sourceparts=-".to_owned());
        // The folder may be closed to the user that apt would download as.
        options.push("APT::Sandbox::User=".to_owned());
        Ok(Self { options })
    }

    /// Fetches the lists of packages.
    pub fn update(&self) -> Result<()> {
        run_checked(self.apt_get().args(["update", "-qq"]), UPDATE_LIMIT).map(drop)
    }

    /// Fetches the archive of one package into `folder`.
    pub fn download(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        let mut command = self.apt_get();
        command
            .args(["download", "-qq", package])
            .current_dir(folder);
        run_checked(&mut command, DOWNLOAD_LIMIT)?;
        let begin = format!("{package}_");
        find_file(folder, |name| {
            name.starts_with(&begin) && name.ends_with(".deb")
        })
    }

    /// Fetches the archives of packages and of all that these need into the cache of this repository.
    pub fn download_with_dependencies(&self, packages: &[&str]) -> Result<()> {
        let mut command = self.apt_get();
        command
            .args([
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                "--download-only",
            ])
            .args(packages);
        run_checked(&mut command, DOWNLOAD_LIMIT).map(drop)
    }

    /// The packages that one package needs.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let mut command = Command::new("apt-cache");
        self.add_options(&mut command);
        let output = run_checked(command.args(["depends", package]), UPDATE_LIMIT)?;
        let names = output
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(|name| name.trim().to_owned()).collect())
    }

    fn apt_get(&self) -> Command {
        let mut command = apt_get();
        self.add_options(&mut command);
        command
    }

    fn add_options(&self, command: &mut Command) {
        for option in &self.options {
            command.args(["-o", option]);
        }
    }
}

/// Unpacks an archive, which installs nothing.
pub fn unpack(package: &Path, folder: &Path) -> Result<()> {
    let mut command = Command::new("dpkg-deb");
    command.arg("-x").args([package, folder]);
    run_checked(&mut command, DOWNLOAD_LIMIT).map(drop)
}

/// The file in a folder whose name fits.
fn find_file(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&fits) {
            return Ok(entry.path());
        }
    }
    bail!("no such file in {}", folder.display())
}

/// The mirror that this system has Debian's main archive from: all releases are in it.
fn mirror() -> Result<String> {
    let mut command = apt_get();
    command.args(["indextargets", "--format", "$(REPO_URI) $(COMPONENT)"]);
    command.arg("Created-By: Packages");
    let output = run_checked(&mut command, UPDATE_LIMIT)?;
    let mut found = output.lines().filter_map(|line| line.split_once(' '));
    found
        .find(|(address, component)| {
            *component == "main" && address.trim_end_matches('/').ends_with("/debian")
        })
        .map(|(address, _)| address.to_owned())
        .with_context(|| format!("apt has no mirror of Debian:\n{output}"))
}
