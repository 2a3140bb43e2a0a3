//! Debian's kernels as files: fetched with `apt-get download`, unpacked with `dpkg`, never
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::{self, Repository};
use crate::workspace;

/// Which of the kernels of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// For virtual machines alone, and smaller.
    Cloud,
    /// For all machines, with handlers of SCSI devices such as `scsi_dh_alua`.
    General,
}

impl Flavour {
    /// The package that depends on the kernel of the day.
    const fn package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-amd64",
            Self::General => "linux-image-amd64",
        }
    }

    const fn folder(self) -> &'static str {
        match self {
            Self::Cloud => "vm/kernel",
            Self::General => "vm/kernel-general",
        }
    }
}

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
    pub fn prepare(flavour: Flavour) -> Result<Self> {
        let folder = workspace::work_folder(flavour.folder())?;
        // Of suites that run side by side, one fetches it. The lock goes with the file.
        let lock = fs::File::create(folder.join("lock"))?;
        lock.lock().context("lock the folder of the kernel")?;
        if let Some(kernel) = Self::find(&folder, "max")? {
            return Ok(kernel);
        }
        let repository = Repository::of_this_system();
        repository.update()?;
        download_and_unpack(&repository, flavour, &folder)?;
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
pub fn download_and_unpack(repository: &Repository, flavour: Flavour, folder: &Path) -> Result<()> {
    // The first package only names the one with the kernel of the day.
    let package = flavour.package();
    let real = repository
        .dependencies(package)?
        .into_iter()
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("{package} depends on no kernel"))?;
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
/// legacy frame (Debian 12's cloud kernel), in XZ (its general one) or in a frame of Zstandard (13),
/// followed by its unpacked length.
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
    let vmlinux = if frame.starts_with(&ZSTD_MAGIC) {
        // The kernel's frames look back farther than it allows by default.
        unpack_with("zstd", &["-d", "-q", "-c", "--long=31"], frame, scratch)?
    } else if frame.starts_with(&XZ_MAGIC) {
        unpack_with("xz", &["--format=xz", "-d", "-q", "-c"], frame, scratch)?
    } else {
        unpack_lz4_legacy(frame)?
    };
    if vmlinux.len() != word(unpacked_length, 0)? {
        bail!(
            "unpacked {} bytes, which is not what the kernel says",
            vmlinux.len()
        );
    }
    Ok(vmlinux)
}

/// Seconds that a program may take to unpack a kernel.
const UNPACK_LIMIT: &str = "60";

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const XZ_MAGIC: [u8; 6] = [0xfd, b'7', b'z', b'X', b'Z', 0];

/// Unpacks with a program that reads a file and writes to its standard output.
fn unpack_with(program: &str, arguments: &[&str], frame: &[u8], scratch: &Path) -> Result<Vec<u8>> {
    fs::write(scratch, frame)?;
    let output = Command::new("timeout")
        .args([UNPACK_LIMIT, program])
        .args(arguments)
        .arg(scratch)
        .output()
        .with_context(|| format!("run {program}; try cargo xtask setup"));
    fs::remove_file(scratch)?;
    let output = output?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        bail!("{program} cannot unpack the kernel: {}", why.trim());
    }
    Ok(output.stdout)
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
