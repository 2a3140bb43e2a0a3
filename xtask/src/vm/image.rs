//! The guest's file system: an archive that the kernel unpacks into memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cpio::Archive;
use super::kernel::Kernel;
use super::modules;
use super::strip::strip;
use super::system::System;
use crate::workspace;

/// What a guest is made of beside its `init`.
#[derive(Debug)]
pub struct Contents {
    /// Kernel modules. The guest's `init` loads those of [`EVERY_GUEST`] itself.
    modules: &'static [&'static str],
    /// Programs of the host, by name.
    programs: &'static [&'static str],
}

/// Modules that `init` loads.
const EVERY_GUEST: &[&str] = &["virtio_pci", "virtio_net", "virtio_blk", "sd_mod"];

/// Guests that are iSCSI initiators and NVMe hosts.
pub const INITIATOR: Contents = Contents {
    modules: &[
        "iscsi_tcp",
        "nvme_tcp",
        "xfs",
        "dm_mod",
        "dm_multipath",
        "dm_round_robin",
        "loop",
    ],
    programs: &[
        "busybox",
        "iscsid",
        "iscsiadm",
        "nvme",
        "sg_persist",
        "sg_rtpg",
        "sg_logs",
        "sg_modes",
        "sg_compare_and_write",
        "mkfs.ext4",
        "e2fsck",
        "mkfs.xfs",
        "xfs_repair",
        "dmsetup",
        "fio",
    ],
};

/// Further contents of guests with the general kernel.
pub const GENERAL: Contents = Contents {
    modules: &["scsi_dh_alua", "crc32c_generic"],
    programs: &[],
};

/// Further contents of guests whose initiator's servers run beside it.
pub const SERVERS: Contents = Contents {
    modules: &[
        "configfs",
        "target_core_mod",
        "target_core_file",
        "iscsi_target_mod",
    ],
    programs: &["tgtd", "tgtadm"],
};

/// Guests that are NVMe hosts or targets with TLS and authentication.
pub const SECURE: Contents = Contents {
    modules: &[
        "configfs",
        "nvme_tcp",
        "nvmet",
        "nvmet_tcp",
        "null_blk",
        "tls",
        // What TLS encrypts with. The guest's modprobe knows no aliases, by which the kernel would ask for it.
        "aesni_intel",
    ],
    programs: &["busybox", "keyctl", "nvme", "tlshd"],
};

/// Guests that are targets: LIO for iSCSI, nvmet for NVMe/TCP.
pub const TARGET: Contents = Contents {
    modules: &[
        "configfs",
        "target_core_mod",
        "target_core_file",
        "target_core_iblock",
        "iscsi_target_mod",
        "nvmet",
        "nvmet_tcp",
        "null_blk",
    ],
    programs: &["busybox"],
};

/// The host identifier of the guest as an NVMe host, which its NQN is made of.
const HOST_ID: &str = "5c1a7b4e-0f0e-4b57-9d7c-6e0f5f1b2a01";

/// Folders of the guest, parents first.
const FOLDERS: &[&str] = &[
    "dev",
    "proc",
    "sys",
    "run",
    "tmp",
    "mnt",
    "root",
    "etc",
    "etc/iscsi",
    "etc/iscsi/nodes",
    "etc/iscsi/send_targets",
    "etc/iscsi/ifaces",
    "etc/nvme",
    "var",
    "var/lib",
    "var/log",
    "usr",
    "usr/bin",
    "usr/sbin",
    "usr/lib",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "job",
];

/// Puts together the part of the image that all jobs share. `programs` are further programs by
/// path, which land in `/usr/bin`.
pub fn base(
    kernel: &Kernel,
    system: System<'_>,
    contents: &[&Contents],
    programs: &[PathBuf],
) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for folder in FOLDERS {
        archive.folder(folder);
    }
    for (link, to) in [("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib")] {
        archive.link(link, to);
    }
    archive.link("lib64", "usr/lib64");
    let folder = workspace::work_folder("vm")?;
    let mut added = BTreeSet::new();
    for name in contents.iter().flat_map(|it| it.programs) {
        let path = system.program(name)?;
        let place = system.place(&path)?;
        archive.program(&place, &read(&path)?);
        add_libraries(&mut archive, system, &path, &mut added)?;
    }
    for path in programs {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .context("a program's name")?;
        // What cargo builds has more debug information than all the rest takes.
        let stripped = strip(&read(path)?, &folder)?;
        archive.program(&format!("usr/bin/{name}"), &stripped);
        add_libraries(&mut archive, system, path, &mut added)?;
    }
    let modules = contents.iter().flat_map(|it| it.modules);
    let modules: Vec<&str> = EVERY_GUEST.iter().chain(modules).copied().collect();
    modules::add(&mut archive, kernel, &modules, &folder)?;
    let guest = workspace::root().join("tests/kernel/guest");
    archive.program("init", &read(&guest.join("init.sh"))?);
    archive.file("job/guest.sh", &read(&guest.join("guest.sh"))?);
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    archive.file(
        "etc/iscsi/initiatorname.iscsi",
        b"InitiatorName=iqn.2026-11.local.longshore:guest\n",
    );
    archive.file("etc/iscsi/iscsid.conf", &read(&guest.join("iscsid.conf"))?);
    archive.file("etc/nvme/hostid", format!("{HOST_ID}\n").as_bytes());
    archive.file(
        "etc/nvme/hostnqn",
        format!("nqn.2014-08.org.nvmexpress:uuid:{HOST_ID}\n").as_bytes(),
    );
    Ok(archive.finish())
}

/// The part that belongs to one job: its script and the settings it reads.
pub fn job(script: &Path, settings: &[(String, String)]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    archive.file("job/job.sh", &read(script)?);
    let lines: String = settings
        .iter()
        .map(|(key, value)| format!("{key}='{value}'\n"))
        .collect();
    archive.file("job/settings", lines.as_bytes());
    Ok(archive.finish())
}

/// Adds the libraries of the program at `path`.
fn add_libraries(
    archive: &mut Archive,
    system: System<'_>,
    path: &Path,
    added: &mut BTreeSet<String>,
) -> Result<()> {
    for library in system.libraries(path)? {
        let place = system.place(&library)?;
        if added.insert(place.clone()) {
            add_folders(archive, &place, added);
            archive.program(&place, &read(&library)?);
        }
    }
    Ok(())
}

/// Adds the folders that `place` lies in and that are not there yet: some libraries have one of
/// their own.
fn add_folders(archive: &mut Archive, place: &str, added: &mut BTreeSet<String>) {
    for (end, _) in place.match_indices('/') {
        let folder = &place[..end];
        if !FOLDERS.contains(&folder) && added.insert(folder.to_owned()) {
            archive.folder(folder);
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}
