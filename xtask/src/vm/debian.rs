//! Other releases of Debian, unpacked and not installed, for what Debian 12 lacks: a kernel with TLS and authentication
//! for NVMe, `tlshd`, and an nvme-cli with `--tls`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::kernel::{self, Flavour, Kernel};
use crate::apt::{self, Repository};
use crate::workspace;

/// With all that they need.
const PACKAGES: &[&str] = &["busybox-static", "keyutils", "ktls-utils", "nvme-cli"];

/// QEMU 7.2 crashes these kernels in or after CMPXCHG16B.
const PROCESSOR: &str = "max,-cx16";

/// What a guest's kernel and programs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// Debian 13, Linux 6.12: libnvme derives keys of TLS in its old way, and GnuTLS knows TLS_AES_128_GCM_SHA256 alone.
    Trixie,
    /// Debian 14, Linux 7: libnvme derives them by the standard, and GnuTLS knows both cipher suites.
    Forky,
}

impl Release {
    const fn name(self) -> &'static str {
        match self {
            Self::Trixie => "trixie",
            Self::Forky => "forky",
        }
    }

    /// The top folder of its programs and libraries: what an earlier call has unpacked, or freshly fetched.
    pub fn programs(self) -> Result<PathBuf> {
        let folder = workspace::work_folder(&format!("vm/{}", self.name()))?;
        let root = folder.join("root");
        let _lock = lock(&folder)?;
        let complete = folder.join("programs");
        // It names what is there, and is written last.
        let wanted = PACKAGES.join(" ");
        if fs::read_to_string(&complete).is_ok_and(|found| found == wanted) {
            return Ok(root);
        }
        println!("fetching {wanted} of Debian's {}", self.name());
        let apt = folder.join("apt");
        let repository = Repository::of_release(self.name(), &apt)?;
        repository.update()?;
        repository.download_with_dependencies(PACKAGES)?;
        fs::create_dir_all(&root)?;
        for entry in fs::read_dir(apt.join("cache/archives"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                apt::unpack(&path, &root)?;
            }
        }
        fs::remove_dir_all(&apt)?;
        fs::write(complete, wanted)?;
        Ok(root)
    }

    /// Its kernel: what an earlier call has unpacked, or freshly fetched.
    pub fn kernel(self) -> Result<Kernel> {
        let folder = workspace::work_folder(&format!("vm/{}/kernel", self.name()))?;
        let _lock = lock(&folder)?;
        if let Some(kernel) = Kernel::find(&folder, PROCESSOR)? {
            return Ok(kernel);
        }
        let apt = folder.join("apt");
        let repository = Repository::of_release(self.name(), &apt)?;
        repository.update()?;
        kernel::download_and_unpack(&repository, Flavour::Cloud, &folder)?;
        fs::remove_dir_all(&apt)?;
        Kernel::find(&folder, PROCESSOR)?.context("the unpacked package holds no kernel")
    }
}

/// Of suites that run side by side, one fetches. The lock goes with the file.
fn lock(folder: &Path) -> Result<fs::File> {
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock()
        .with_context(|| format!("lock {}", folder.display()))?;
    Ok(lock)
}
