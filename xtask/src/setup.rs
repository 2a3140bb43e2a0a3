//! Installs the Debian packages that the suites need.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::apt::{apt_get, update_index};
use crate::arguments::Arguments;
use crate::command::{find_program, run_captured, run_checked};
use crate::counts::Counts;
use crate::vm::debian::Release;
use crate::vm::kernel::{Flavour, Kernel};

/// A package and one file that shows that it is installed.
struct Package {
    name: &'static str,
    shown_by: ShownBy,
}

enum ShownBy {
    Program(&'static str),
    File(&'static str),
}

const fn program(name: &'static str, program: &'static str) -> Package {
    Package {
        name,
        shown_by: ShownBy::Program(program),
    }
}

/// Everything any suite starts or copies into a guest.
const PACKAGES: &[Package] = &[
    program("libiscsi-bin", "iscsi-test-cu"),
    program("tgt", "tgtd"),
    program("qemu-utils", "qemu-img"),
    Package {
        name: "qemu-block-extra",
        shown_by: ShownBy::File("/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so"),
    },
    program("qemu-system-x86", "qemu-system-x86_64"),
    program("busybox-static", "busybox"),
    program("open-iscsi", "iscsid"),
    program("nvme-cli", "nvme"),
    program("sg3-utils", "sg_persist"),
    program("e2fsprogs", "mkfs.ext4"),
    program("xfsprogs", "mkfs.xfs"),
    program("dmsetup", "dmsetup"),
    program("fio", "fio"),
    Package {
        name: "faketime",
        shown_by: ShownBy::File("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    },
    program("binutils", "strip"),
    program("openssl", "openssl"),
    program("pkg-config", "pkg-config"),
    Package {
        name: "libssl-dev",
        shown_by: ShownBy::File("/usr/include/openssl/ssl.h"),
    },
    program("crun", "crun"),
    program("mmdebstrap", "mmdebstrap"),
    program("musl-tools", "musl-gcc"),
    program("umoci", "umoci"),
    program("util-linux", "taskset"),
    program("valgrind", "valgrind"),
    program("iproute2", "ip"),
    program("procps", "sysctl"),
    program("mandoc", "mandoc"),
    program("xz-utils", "xz"),
    program("zsh", "zsh"),
    program("zstd", "zstd"),
    program("fish", "fish"),
    program("strace", "strace"),
    program("prometheus", "prometheus"),
    program("chromium", "chromium"),
    program("chromium-driver", "chromedriver"),
    Package {
        name: "python3-venv",
        shown_by: ShownBy::File("/usr/share/doc/python3-venv"),
    },
    Package {
        name: "udev",
        shown_by: ShownBy::File("/usr/lib/udev/scsi_id"),
    },
];

impl Package {
    fn is_installed(&self) -> bool {
        match self.shown_by {
            ShownBy::Program(name) => find_program(name).is_some(),
            ShownBy::File(path) => Path::new(path).exists(),
        }
    }
}

/// `cargo xtask setup`: packages, and the kernels that guests boot.
pub fn run(arguments: Arguments) -> Result<Counts> {
    arguments.finish()?;
    install_missing()?;
    let kernel = Kernel::prepare(Flavour::Cloud)?;
    let general = Kernel::prepare(Flavour::General)?;
    let secure = Release::Trixie.kernel()?;
    Release::Trixie.programs()?;
    println!(
        "setup: guests boot Linux {}, {} and {}",
        kernel.version, general.version, secure.version
    );
    Ok(Counts::PASSED)
}

/// Installs what is missing, or says why it cannot.
pub fn install_missing() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !package.is_installed())
        .map(|p| p.name)
        .collect();
    if missing.is_empty() {
        println!("setup: all packages are installed");
        return Ok(());
    }
    println!("setup: installing {}", missing.join(" "));
    if find_program("apt-get").is_none() {
        bail!(
            "these Debian packages are missing, and there is no apt-get: {}",
            missing.join(" ")
        );
    }
    if !is_root()? {
        bail!(
            "these packages are missing; install them as root and run this again:\n  \
             apt-get update && apt-get install --no-install-recommends {}",
            missing.join(" ")
        );
    }
    update_index()?;
    run_checked(
        apt_get()
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(&missing),
        Duration::from_secs(900),
    )?;
    let still_missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !package.is_installed())
        .map(|p| p.name)
        .collect();
    if !still_missing.is_empty() {
        bail!("installed, yet not found: {}", still_missing.join(" "));
    }
    Ok(())
}

/// Whether this process has user number 0.
pub fn is_root() -> Result<bool> {
    let ended = run_captured(Command::new("id").arg("-u"), Duration::from_secs(5))
        .context("ask for the user number")?;
    Ok(ended.output.trim() == "0")
}
