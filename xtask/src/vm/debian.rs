//! Debian 13 (trixie), unpacked and not installed, for what Debian 12 lacks: a kernel with TLS and authentication for
//! NVMe, `tlshd`, and an nvme-cli with `--tls`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::kernel::{self, Kernel};
use crate::apt::{self, Repository};
use crate::workspace;

/// With all that they need.
const PACKAGES: &[&str] = &["busybox-static", "keyutils", "ktls-utils", "nvme-cli"];

/// QEMU 7.2 crashes this kernel in or after CMPXCHG16B.
const PROCESSOR: &str = "max,-cx16";

/// Debian 13 as files.
#[derive(Debug, Clone)]
pub struct Trixie {
    pub kernel: Kernel,
    /// The top folder of its programs and libraries.
    pub root: PathBuf,
}

impl Trixie {
    /// What an earlier call has unpacked, or all of it freshly fetched.
    pub fn prepare() -> Result<Self> {
        let folder = workspace::work_folder("vm/trixie")?;
        let root = folder.join("root");
        let lock = fs::File::create(folder.join("lock"))?;
        lock.lock().context("lock the folder of Debian 13")?;
        if let Some(kernel) = Kernel::find(&folder, PROCESSOR)? {
            return Ok(Self { kernel, root });
        }
        let apt = folder.join("apt");
        let repository = Repository::of_release("trixie", &apt)?;
        repository.update()?;
        println!("fetching {} of Debian 13", PACKAGES.join(", "));
        repository.download_with_dependencies(PACKAGES)?;
        fs::create_dir_all(&root)?;
        for entry in fs::read_dir(apt.join("cache/archives"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                apt::unpack(&path, &root)?;
            }
        }
        // Its mark says that the programs are there, too.
        kernel::download_and_unpack(&repository, &folder)?;
        fs::remove_dir_all(&apt)?;
        let kernel = Kernel::find(&folder, PROCESSOR)?;
        let kernel = kernel.context("the unpacked package holds no kernel")?;
        Ok(Self { kernel, root })
    }
}
