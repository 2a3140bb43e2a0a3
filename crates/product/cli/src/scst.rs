//! `longshore scst`: SCST's tools on the trees of a server.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand};

use crate::exit::fail;

/// The mounts of this process and what they are.
const MOUNTS: &str = "/proc/self/mountinfo";

/// The type that a server gives to its trees.
const TYPE: &str = "fuse.longshore";

/// Puts the trees where the tools look, and runs the command. $1 is the tree.
///
/// No directory can be made in /sys/kernel or in /proc, so a file system in memory lies over each of them. /proc goes on
/// to lead to what is there.
const SCRIPT: &str = r#"
set -e
tree=$1
shift
mount -t tmpfs -o mode=755 longshore-scst /sys/kernel
mkdir /sys/kernel/scst_tgt /sys/kernel/.proc
mount --bind "$tree/sys" /sys/kernel/scst_tgt
mount -t tmpfs -o mode=755 longshore-scst /sys/kernel/.proc
cd /sys/kernel/.proc
mkdir scsi_tgt .system
mount --rbind /proc .system
mount --bind "$tree/proc/scsi_tgt" scsi_tgt
for name in /proc/[!0-9]*; do
    name=${name#/proc/}
    test -e "$name" || ln -s ".system/$name" "$name"
done
cd /
mount --rbind /sys/kernel/.proc /proc
cd "$LONGSHORE_SCST_DIRECTORY" 2>/dev/null || cd /
unset LONGSHORE_SCST_DIRECTORY
exec "$@"
"#;

#[derive(Debug, Args)]
pub struct ScstArguments {
    #[command(subcommand)]
    verb: ScstVerb,
}

#[derive(Debug, Subcommand)]
enum ScstVerb {
    /// Run a command, or a shell, that finds the trees at /sys/kernel/scst_tgt and /proc/scsi_tgt
    Shell {
        /// Where a server has mounted them [default: the only such mount]
        #[arg(long, value_name = "DIRECTORY")]
        tree: Option<PathBuf>,

        /// The command and its arguments [default: $SHELL]
        #[arg(last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

/// Why there is no such shell.
#[derive(Debug, thiserror::Error)]
enum ShellError {
    #[error("cannot read {MOUNTS}: {0}")]
    Mounts(#[source] std::io::Error),
    #[error(
        "no server has mounted SCST's trees; start one with `longshore serve --scst-tree DIRECTORY`"
    )]
    None,
    #[error("there are several trees: {0}; name one with --tree")]
    Several(String),
    #[error("{}: there is no tree of SCST here: {source}; name the directory of --scst-tree", path.display())]
    NoTree {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot run unshare: {0}; it is in the package util-linux")]
    Unshare(#[source] std::io::Error),
}

pub fn run(arguments: &ScstArguments) -> ExitCode {
    let ScstVerb::Shell { tree, command } = &arguments.verb;
    fail(&shell(tree.as_deref(), command))
}

/// Becomes the command. Comes back only if that fails.
fn shell(tree: Option<&Path>, command: &[String]) -> ShellError {
    let found = match tree {
        Some(tree) => Ok(tree.to_owned()),
        None => find_tree(),
    };
    let tree = match found {
        Ok(tree) => tree,
        Err(error) => return error,
    };
    let tree = match fs::canonicalize(&tree)
        .and_then(|it| fs::metadata(it.join("sys/version")).map(|_| it))
    {
        Ok(tree) => tree,
        Err(source) => return ShellError::NoTree { path: tree, source },
    };
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare
        .args([
            "--mount",
            "--propagation",
            "private",
            "--",
            "sh",
            "-c",
            SCRIPT,
            "sh",
        ])
        .arg(tree)
        .env(
            "LONGSHORE_SCST_DIRECTORY",
            std::env::current_dir().unwrap_or_default(),
        );
    match command {
        [] => unshare.arg(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
        command => unshare.args(command),
    };
    ShellError::Unshare(unshare.exec())
}

fn find_tree() -> Result<PathBuf, ShellError> {
    let text = fs::read_to_string(MOUNTS).map_err(ShellError::Mounts)?;
    let mut trees = trees(&text);
    match trees.len() {
        0 => Err(ShellError::None),
        1 => Ok(trees.remove(0)),
        _ => {
            let names: Vec<String> = trees.iter().map(|it| it.display().to_string()).collect();
            Err(ShellError::Several(names.join(", ")))
        }
    }
}

/// The mount points of trees: the fifth field of a line, where the type behind ` - ` is theirs.
fn trees(mounts: &str) -> Vec<PathBuf> {
    let lines = mounts.lines().filter_map(|line| {
        let (own, file_system) = line.split_once(" - ")?;
        let kind = file_system.split(' ').next()?;
        (kind == TYPE).then(|| own.split(' ').nth(4))?
    });
    let mut trees: Vec<PathBuf> = lines.map(|path| unescape(path).into()).collect();
    trees.dedup();
    trees
}

/// The kernel writes blanks and the like as `\040`.
fn unescape(path: &str) -> String {
    let mut text = String::new();
    let mut rest = path;
    while let Some(place) = rest.find('\\') {
        text += &rest[..place];
        let code = rest.get(place + 1..place + 4);
        match code.and_then(|code| u8::from_str_radix(code, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &rest[place + 4..];
            }
            None => {
                text.push('\\');
                rest = &rest[place + 1..];
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_server_is_found_among_the_mounts() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             40 22 0:50 / /run/a\\040b rw,nosuid shared:1 - fuse.longshore longshore-scst rw\n\
             41 22 0:51 / /mnt rw - fuse.sshfs x rw\n";
        assert_eq!(trees(mounts), [PathBuf::from("/run/a b")]);
        assert_eq!(unescape("a\\b\\04"), "a\\b\\04");
    }
}
