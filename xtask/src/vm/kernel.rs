//! Debian's cloud kernel as a file: fetched with `apt-get download`, unpacked with `dpkg`, never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Repository};
use crate::command::run_checked;
use crate::workspace;

const PACKAGE: &str = "linux-image-cloud-amd64";

const UNPACK_LIMIT: Duration = Duration::from_secs(60);

/// A kernel ready to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The plain kernel, which QEMU starts without its decompressor.
    pub vmlinux: PathBuf,
    /// `/lib/modules/VERSION` of the package.
    pub modules: PathBuf,
    /// As `uname -r` says it.
    pub version: String,
    /// QEMU's `-cpu` for it.
    pub processor: &'static str,
}

impl Kernel {
    /// The kernel unpacked by an earlier call, or a freshly fetched one: that of this machine's Debian.
    pub fn prepare() -> Result<Self> {
        let folder = workspace::work_folder("vm/kernel")?;
        // Of suites that run side by side, one fetches it. The lock goes with the file.
        let lock = fs::File::create(folder.join("lock"))?;
        lock.lock().context("lock the folder of the kernel")?;
        if let Some(kernel) = Self::find(&folder, "max")? {
            return Ok(kernel);
        }
        let repository = Repository::of_this_system();
        repository.update()?;
        download_and_unpack(&repository, &folder)?;
        Self::find(&folder, "max")?.context("the unpacked package holds no kernel")
    }

    /// What [`download_and_unpack`] has left in a folder.
    pub fn find(folder: &Path, processor: &'static str) -> Result<Option<Self>> {
        // The marker is written last, so that a broken-off run is not taken for a whole one.
        let Ok(version) = fs::read_to_string(folder.join("complete")) else {
            return Ok(None);
        };
        let version = version.trim().to_owned();
        // Debian 13 has `/lib` as a link, and packages name the folder behind it.
        let modules = ["lib/modules", "usr/lib/modules"]
            .map(|modules| folder.join(modules).join(&version))
            .into_iter()
            .find(|modules| modules.is_dir())
            .context("the unpacked package holds no modules")?;
        Ok(Some(Self {
            vmlinux: folder.join("vmlinux"),
            modules,
            version,
            processor,
        }))
    }
}

/// Fetches the kernel of a repository whose lists are up to date.
pub fn download_and_unpack(repository: &Repository, folder: &Path) -> Result<()> {
    // The first package only names the one with the kernel of the day.
    let real = repository
        .dependencies(PACKAGE)?
        .into_iter()
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("{PACKAGE} depends on no kernel"))?;
    println!("fetching {real}");
    let version = real.trim_start_matches("linux-image-").to_owned();
    // Debian 14 has parts of it in packages of their own.
    let mut packages = vec![real.clone()];
    packages.extend(repository.dependencies(&real)?);
    packages.retain(|name| name.starts_with("linux-") && name.ends_with(&version));
    for name in packages {
        let package = repository.download(&name, folder)?;
        apt::unpack(&package, folder)?;
        fs::remove_file(&package)?;
    }
    let places = [
        folder.join(format!("boot/vmlinuz-{version}")),
        folder.join(format!("usr/lib/modules/{version}/vmlinuz")),
    ];
    let vmlinuz = places
        .into_iter()
        .find(|path| path.is_file())
        .with_context(|| format!("no kernel is in {real}"))?;
    let image = fs::read(&vmlinuz)?;
    let vmlinux = extract_vmlinux(&image, &folder.join("vmlinux.packed"))?;
    fs::write(folder.join("vmlinux"), vmlinux)?;
    fs::write(folder.join("complete"), version)?;
    Ok(())
}

/// Takes the compressed kernel out of a bzImage and unpacks it.
///
/// The real-mode header (Linux `Documentation/x86/boot.rst`) says where it lies: setup sectors at
/// 0x1f1, offset in the protected-mode part at 0x248, length at 0x24c. The payload is in LZ4's
/// legacy frame (Debian 12) or in a frame of Zstandard (13), followed by its unpacked length.
fn extract_vmlinux(image: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    let setup_sectors = usize::from(*image.get(0x1f1).context("too short for a kernel")?);
    let start = (setup_sectors + 1) * 512 + word(image, 0x248)?;
    let length = word(image, 0x24c)?;
    let payload = image
        .get(start..start + length)
        .context("the payload ends past the file")?;
    let (frame, unpacked_length) = payload
        .split_at_checked(length - 4)
        .context("the payload is empty")?;
    let vmlinux = match frame.starts_with(&ZSTD_MAGIC) {
        true => unpack_zstd(frame, scratch)?,
        false => unpack_lz4_legacy(frame)?,
    };
    if vmlinux.len() != word(unpacked_length, 0)? {
        bail!(
            "unpacked {} bytes, which is not what the kernel says",
            vmlinux.len()
        );
    }
    Ok(vmlinux)
}

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// By the program `zstd`. The kernel's frames look back farther than it allows by default.
fn unpack_zstd(frame: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    fs::write(scratch, frame)?;
    let unpacked = scratch.with_extension("unpacked");
    let mut command = Command::new("zstd");
    command.args(["-d", "-q", "-f", "--long=31", "-o"]);
    run_checked(command.args([&unpacked, scratch]), UNPACK_LIMIT)?;
    let vmlinux = fs::read(&unpacked)?;
    fs::remove_file(&unpacked)?;
    fs::remove_file(scratch)?;
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
