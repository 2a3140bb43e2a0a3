//! Roots in which packages are tried: with namespaces of their own for mounts, processes and network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run_checked;

const LIMIT: Duration = Duration::from_secs(180);

/// What surrounds each trial: `/proc` of its processes, devices, an empty `/run`, and a loopback of its own. `$1` is the
/// root, the rest a command.
const AROUND: &str = "set -e
mount --make-rprivate /
root=$1; shift
mkdir -p \"$root/proc\" \"$root/dev\" \"$root/run\"
mount -t proc proc /proc
mount -t proc proc \"$root/proc\"
mount --rbind /dev \"$root/dev\"
mount -t tmpfs tmpfs \"$root/run\"
ip link set lo up
exec \"$@\"";

/// A root file system.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// A root with the files of these archives only.
    pub fn unpacked(path: &Path, archives: &[&Path]) -> Result<Self> {
        let _ = fs::remove_dir_all(path);
        fs::create_dir_all(path)?;
        for archive in archives {
            let mut tar = Command::new("tar");
            tar.args([
                "--extract",
                "--numeric-owner",
                "--exclude=./dev/*",
                "--directory",
            ])
            .arg(path)
            .arg("--file")
            .arg(archive);
            run_checked(&mut tar, LIMIT)?;
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a script of the shell that is in the root.
    pub fn run_inside(&self, name: &str, script: &str, arguments: &[&str]) -> Result<()> {
        let inside = "trial.sh";
        fs::write(self.path.join(inside), script)?;
        let root = self.path.display().to_string();
        let command = ["chroot", &root, "/bin/sh", "/trial.sh"];
        self.run(name, &[&command, arguments].concat())
    }

    /// Runs a script of this machine's shell; its first argument is the root.
    pub fn run_beside(&self, name: &str, script: &str, arguments: &[&str]) -> Result<()> {
        let root = self.path.display().to_string();
        let command = ["sh", "-c", script, "sh", &root];
        self.run(name, &[&command, arguments].concat())
    }

    fn run(&self, name: &str, command: &[&str]) -> Result<()> {
        let mut unshare = Command::new("unshare");
        unshare
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--net",
                "sh",
                "-c",
                AROUND,
                "sh",
            ])
            .arg(&self.path)
            .args(command);
        let output =
            run_checked(&mut unshare, LIMIT).with_context(|| format!("the trial of the {name}"))?;
        println!("{}", output.trim_end());
        Ok(())
    }
}
