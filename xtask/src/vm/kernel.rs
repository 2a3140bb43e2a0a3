//! Debian's cloud kernel as a file: fetched with `apt-get download`, unpacked with `dpkg`, never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::run_checked;
use crate::{apt, workspace};

const PACKAGE: &str = "linux-image-cloud-amd64";
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(300);

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The plain kernel, which QEMU starts without its decompressor.
    pub vmlinux: PathBuf,
    /// `/lib/modules/VERSION` of the package.
    pub modules: PathBuf,
    /// As `uname -r` says it.
    pub version: String,
}

impl Kernel {
    /// The kernel unpacked by an earlier call, or a freshly fetched one.
    pub fn prepare() -> Result<Self> {
        let folder = workspace::work_folder("vm/kernel")?;
        // Of suites that run side by side, one fetches it. The lock goes with the file.
        let lock = fs::File::create(folder.join("lock"))?;
        lock.lock().context("lock the folder of the kernel")?;
        if let Some(kernel) = Self::find(&folder)? {
            return Ok(kernel);
        }
        download_and_unpack(&folder)?;
        Self::find(&folder)?.context("the unpacked package holds no kernel")
    }

    fn find(folder: &Path) -> Result<Option<Self>> {
        // The marker is written last, so that a broken-off run is not taken for a whole one.
        let Ok(version) = fs::read_to_string(folder.join("complete")) else {
            return Ok(None);
        };
        let version = version.trim().to_owned();
        Ok(Some(Self {
            vmlinux: folder.join("vmlinux"),
            modules: folder.join("lib/modules").join(&version),
            version,
        }))
    }
}

fn download_and_unpack(folder: &Path) -> Result<()> {
    apt::update_index()?;
    // The first package only names the one with the kernel of the day.
    let depends = run_checked(
        Command::new("apt-cache").args(["depends", PACKAGE]),
        DOWNLOAD_LIMIT,
    )?;
    let real = depends
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))
        .map(|rest| format!("linux-image-{}", rest.trim()))
        .with_context(|| format!("{PACKAGE} depends on no kernel:\n{depends}"))?;
    println!("fetching {real}");
    run_checked(
        apt::apt_get()
            .args(["download", "-qq", &real])
            .current_dir(folder),
        DOWNLOAD_LIMIT,
    )?;
    let package = find_file(folder, |name| {
        name.starts_with(&real) && name.ends_with(".deb")
    })?;
    run_checked(
        Command::new("dpkg").arg("-x").args([&package, folder]),
        DOWNLOAD_LIMIT,
    )?;
    fs::remove_file(&package)?;
    let vmlinuz = find_file(&folder.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let version = vmlinuz
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix("vmlinuz-"))
        .context("a kernel without a version")?
        .to_owned();
    let image = fs::read(&vmlinuz)?;
    fs::write(folder.join("vmlinux"), extract_vmlinux(&image)?)?;
    fs::write(folder.join("complete"), version)?;
    Ok(())
}

fn find_file(folder: &Path, fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(&fits) {
            return Ok(entry.path());
        }
    }
    bail!("no such file in {}", folder.display())
}

/// Takes the compressed kernel out of a bzImage and unpacks it.
///
/// The real-mode header (Linux `Documentation/x86/boot.rst`) says where it lies: setup sectors at
/// 0x1f1, offset in the protected-mode part at 0x248, length at 0x24c. The payload is in LZ4's
/// legacy frame, followed by its unpacked length.
fn extract_vmlinux(image: &[u8]) -> Result<Vec<u8>> {
    let setup_sectors = usize::from(*image.get(0x1f1).context("too short for a kernel")?);
    let start = (setup_sectors + 1) * 512 + word(image, 0x248)?;
    let length = word(image, 0x24c)?;
    let payload = image
        .get(start..start + length)
        .context("the payload ends past the file")?;
    let (frame, unpacked_length) = payload
        .split_at_checked(length - 4)
        .context("the payload is empty")?;
    let vmlinux = unpack_lz4_legacy(frame)?;
    if vmlinux.len() != word(unpacked_length, 0)? {
        bail!(
            "unpacked {} bytes, which is not what the kernel says",
            vmlinux.len()
        );
    }
    Ok(vmlinux)
}

/// Blocks of up to 8 MiB, each behind its packed length.
fn unpack_lz4_legacy(frame: &[u8]) -> Result<Vec<u8>> {
    const MAGIC: usize = 0x184c_2102;
    const BLOCK: usize = 8 << 20;
    if word(frame, 0)? != MAGIC {
        bail!(
            "the kernel is not packed with LZ4 (magic {:#x})",
            word(frame, 0)?
        );
    }
    let mut unpacked = Vec::new();
    let mut rest = &frame[4..];
    while rest.len() > 4 {
        let length = word(rest, 0)?;
        let block = rest
            .get(4..4 + length)
            .context("a block ends past the payload")?;
        unpacked.extend(lz4_flex::block::decompress(block, BLOCK)?);
        rest = &rest[4 + length..];
    }
    Ok(unpacked)
}

fn word(bytes: &[u8], offset: usize) -> Result<usize> {
    let bytes = bytes
        .get(offset..offset + 4)
        .context("too short for a kernel")?;
    let word = u32::from_le_bytes(bytes.try_into().expect("four bytes were cut"));
    Ok(usize::try_from(word)?)
}
