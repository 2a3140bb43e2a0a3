//! The systems that programs and libraries of guests come from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{find_program, run_checked};

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "usr/lib64/ld-linux-x86-64.so.2";

/// A system with programs for guests.
#[derive(Debug, Clone, Copy)]
pub enum System<'a> {
    Host,
    /// One that lies unpacked in a folder.
    Unpacked(&'a Path),
}

impl System<'_> {
    /// The file of an installed program.
    pub fn program(self, name: &str) -> Result<PathBuf> {
        let found = match self {
            Self::Host => find_program(name),
            Self::Unpacked(root) => ["usr/sbin", "usr/bin"]
                .map(|folder| root.join(folder).join(name))
                .into_iter()
                .find(|path| path.is_file()),
        };
        found.with_context(|| format!("{name} is not installed"))
    }

    /// Shared libraries a program is loaded with, the loader among them; none for a static one. Without a search for those
    /// that a program loads as it runs.
    pub fn libraries(self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut command = match self {
            Self::Host => Command::new("ldd"),
            Self::Unpacked(root) => {
                let mut command = Command::new(root.join(LOADER));
                command.arg("--library-path").arg(root.join(LIBRARIES));
                command.arg("--list");
                command
            }
        };
        // Both fail for a static program; there is nothing to add then.
        let Ok(output) = run_checked(command.arg(program), Duration::from_secs(10)) else {
            return Ok(Vec::new());
        };
        let paths: Vec<PathBuf> = output.lines().filter_map(library).collect();
        if let Self::Unpacked(root) = self
            && let Some(foreign) = paths.iter().find(|path| !path.starts_with(root))
        {
            bail!(
                "{} would be loaded with {}, which is not below {}",
                program.display(),
                foreign.display(),
                root.display()
            );
        }
        Ok(paths)
    }

    /// Where a file of this system lies in the guest. Both have `/bin`, `/lib` and so on as links into
    /// `/usr`, so the folder is resolved; the name is kept, since libraries are found by it.
    pub fn place(self, path: &Path) -> Result<String> {
        let folder = path.parent().context("a file lies in a folder")?;
        let folder = fs::canonicalize(folder)?;
        let name = path.file_name().context("a file has a name")?;
        let place = folder.join(name);
        let place = match self {
            Self::Host => place.strip_prefix("/")?,
            Self::Unpacked(root) => place.strip_prefix(fs::canonicalize(root)?)?,
        };
        Ok(place.to_str().context("a path in UTF-8")?.to_owned())
    }
}

/// The file in a line of the loader: `libc.so.6 => /lib/libc.so.6 (0x7f…)`, or a path alone.
fn library(line: &str) -> Option<PathBuf> {
    let found = line.split_once(" => ").map_or(line, |(_, found)| found);
    let mut words = found.split_whitespace();
    words
        .next()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_names_libraries() {
        for (line, path) in [
            ("\tlinux-vdso.so.1 (0x00007f2b5bd9c000)", None),
            (
                "\tlibm.so.6 => /usr/lib/libm.so.6 (0x0)",
                Some("/usr/lib/libm.so.6"),
            ),
            ("\t/lib64/ld.so => /root/ld.so (0x0)", Some("/root/ld.so")),
            ("\t/lib64/ld.so (0x0)", Some("/lib64/ld.so")),
            ("\tlibgone.so => not found", None),
        ] {
            assert_eq!(library(line), path.map(PathBuf::from), "{line}");
        }
    }
}
