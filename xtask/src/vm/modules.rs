//! Kernel modules for the guest: those asked for and what they depend on, without debug
//! information, with the `modules.dep` that `modprobe` reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::strip::strip;

/// Adds `names` and their dependencies to the archive. What is built into the kernel is passed
/// over.
pub fn add(archive: &mut Archive, kernel: &Kernel, names: &[&str], scratch: &Path) -> Result<()> {
    let catalogue = Catalogue::read(kernel)?;
    let chosen = catalogue.closure(names)?;
    let base = format!("usr/lib/modules/{}", kernel.version);
    archive.folder("usr/lib/modules");
    archive.folder(&base);
    let mut dependencies = String::new();
    for (name, needs) in &chosen {
        let stripped = strip(&load(&catalogue.files[name])?, scratch)?;
        archive.file(&format!("{base}/{name}.ko"), &stripped);
        dependencies += &format!("{name}.ko:");
        for need in needs {
            dependencies += &format!(" {need}.ko");
        }
        dependencies.push('\n');
    }
    archive.file(&format!("{base}/modules.dep"), dependencies.as_bytes());
    Ok(())
}

/// All modules of a kernel, by name with underscores.
struct Catalogue {
    files: BTreeMap<String, PathBuf>,
    builtin: Vec<String>,
}

impl Catalogue {
    fn read(kernel: &Kernel) -> Result<Self> {
        let mut files = BTreeMap::new();
        collect(&kernel.modules.join("kernel"), &mut files)?;
        let builtin = fs::read_to_string(kernel.modules.join("modules.builtin"))?
            .lines()
            .map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, builtin })
    }

    /// The modules and all they need, each with its own direct needs.
    fn closure(&self, names: &[&str]) -> Result<BTreeMap<String, Vec<String>>> {
        let mut chosen = BTreeMap::new();
        let mut open: Vec<String> = names.iter().map(|name| name.replace('-', "_")).collect();
        while let Some(name) = open.pop() {
            if chosen.contains_key(&name) || self.builtin.contains(&name) {
                continue;
            }
            let Some(file) = self.files.get(&name) else {
                bail!("no kernel module {name}")
            };
            let needs = depends(&load(file)?);
            open.extend(needs.iter().cloned());
            chosen.insert(name, needs);
        }
        Ok(self.flatten(chosen))
    }

    /// `modules.dep` lists all that must be loaded before, not only what a module names itself.
    fn flatten(&self, direct: BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
        let mut all = BTreeMap::new();
        for name in direct.keys() {
            let mut ordered: Vec<String> = Vec::new();
            let mut open = direct[name].clone();
            while !open.is_empty() {
                let need = open.remove(0);
                let Some(further) = direct.get(&need) else {
                    continue;
                };
                // What is needed by something needed stands further back and is loaded earlier.
                ordered.retain(|other| *other != need);
                ordered.push(need);
                open.extend(further.iter().cloned());
            }
            all.insert(name.clone(), ordered);
        }
        all
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if [".ko", PACKED].iter().any(|end| name_ends(&path, end)) {
            files.insert(module_name(&path), path);
        }
    }
    Ok(())
}

fn name_ends(path: &Path, end: &str) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().ends_with(end))
}

fn module_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, _) = name.split_once('.').unwrap_or((&name, ""));
    stem.replace('-', "_")
}

/// The end of the names of modules that are packed, as those of Debian 13.
const PACKED: &str = ".ko.xz";

/// A module as the kernel loads it.
fn load(path: &Path) -> Result<Vec<u8>> {
    if !name_ends(path, PACKED) {
        return fs::read(path).with_context(|| format!("read {}", path.display()));
    }
    let output = Command::new("xz")
        .arg("-dc")
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .context("start xz")?;
    if !output.status.success() {
        bail!("xz cannot unpack {}", path.display());
    }
    Ok(output.stdout)
}

/// The line `depends=a,b` of the module's `.modinfo`.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &module[at + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&value[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_tell_how_a_module_is_packed() {
        for path in ["/a/nvme-tcp.ko", "/a/nvme-tcp.ko.xz"] {
            assert_eq!(module_name(Path::new(path)), "nvme_tcp");
        }
    }

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(
            depends(b"x\0depends=libiscsi_tcp,crc-t10dif\0y"),
            ["libiscsi_tcp", "crc_t10dif"]
        );
        assert!(depends(b"x\0depends=\0y").is_empty());
        assert!(depends(b"no such line").is_empty());
    }
}
