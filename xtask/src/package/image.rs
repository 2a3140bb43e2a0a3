//! The image for containers, as an archive that holds an OCI layout and Docker's own list of it.
//!
//! The image has one layer: the program, a configuration without volumes, and two folders that belong to user 65534.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::release::Release;
use super::tar::Part;
use super::{stage, tar, trial};
use crate::command::run_checked;
use crate::workspace;

/// The user `nobody` of the image.
const USER: u32 = 65_534;

/// Tells whether the server serves.
const HEALTH: &[&str] = &[
    "/usr/bin/longshore",
    "status",
    "--server",
    "/run/longshore/longshore.sock",
];

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

const LIMIT: Duration = Duration::from_secs(120);

/// Packs into `target`; gives the archive.
pub fn pack(release: &Release, program: &Path, scratch: &Path, target: &Path) -> Result<PathBuf> {
    let root = scratch.join("image-root");
    let layout = scratch.join("image");
    for folder in [&root, &layout] {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder)?;
    }
    fill(&root, program)?;
    let layer = scratch.join("layer.tar");
    let parts = [
        Part {
            names: &["etc", "usr"],
            owner: 0,
        },
        Part {
            names: &["run/longshore", "var/lib/longshore"],
            owner: USER,
        },
    ];
    tar::pack(&root, &parts, release.epoch, &layer)?;
    let content = format!("sha256:{:x}", Sha256::digest(fs::read(&layer)?));
    let layer = put_blob(&layout, LAYER, &fs::read(tar::compress(&layer)?)?)?;
    let config = put_blob(&layout, CONFIG, &bytes(&configuration(release, &content)))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": &config,
        "layers": [&layer],
    });
    let manifest = put_blob(&layout, MANIFEST, &bytes(&manifest))?;
    let tags = [release.version, "latest"];
    let named = |tag: &str| {
        let mut descriptor = manifest.clone();
        descriptor["annotations"] = json!({
            "org.opencontainers.image.ref.name": tag,
            "io.containerd.image.name": format!("docker.io/library/longshore:{tag}"),
        });
        descriptor
    };
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": tags.map(named),
    });
    fs::write(layout.join("index.json"), bytes(&index))?;
    fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    // Docker before version 25 reads this list.
    let list = json!([{
        "Config": blob_path(&config)?,
        "RepoTags": tags.map(|tag| format!("longshore:{tag}")),
        "Layers": [blob_path(&layer)?],
    }]);
    fs::write(layout.join("manifest.json"), bytes(&list))?;

    let archive = target.join(format!("{}-oci.tar", release.stem()));
    let part = Part {
        names: &["blobs", "index.json", "manifest.json", "oci-layout"],
        owner: 0,
    };
    tar::pack(&layout, &[part], release.epoch, &archive)?;
    Ok(archive)
}

/// The files of the image.
fn fill(root: &Path, program: &Path) -> Result<()> {
    stage::put(program, &root.join("usr/bin/longshore"), 0o755)?;
    let configuration = workspace::root().join("dist/default.toml");
    stage::put(
        &configuration,
        &root.join("etc/longshore/longshore.toml"),
        0o644,
    )?;
    let user = format!("nobody:x:{USER}:{USER}:nobody:/var/lib/longshore:/usr/sbin/nologin\n");
    stage::write(&root.join("etc/passwd"), user.as_bytes(), 0o644)?;
    stage::write(
        &root.join("etc/group"),
        format!("nogroup:x:{USER}:\n").as_bytes(),
        0o644,
    )?;
    for folder in ["run/longshore", "var/lib/longshore"] {
        fs::create_dir_all(root.join(folder))?;
    }
    Ok(())
}

/// What runs in a container of the image (OCI image specification 1.1, "Image Configuration"). `Healthcheck` is Docker's.
fn configuration(release: &Release, layer: &str) -> Value {
    let health: Vec<&str> = [&["CMD"], HEALTH].concat();
    json!({
        "created": release.time,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": [
                "PATH=/usr/bin",
                "RUNTIME_DIRECTORY=/run/longshore",
                "STATE_DIRECTORY=/var/lib/longshore",
            ],
            "Entrypoint": ["/usr/bin/longshore"],
            "Cmd": ["serve", "--config", "/etc/longshore/longshore.toml"],
            "ExposedPorts": {"3260/tcp": {}, "4420/tcp": {}, "8009/tcp": {}},
            "Volumes": {"/run/longshore": {}, "/var/lib/longshore": {}},
            "WorkingDir": "/var/lib/longshore",
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "longshore",
                "org.opencontainers.image.description": "Block storage server for iSCSI and NVMe/TCP",
                "org.opencontainers.image.version": release.version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
            "Healthcheck": {
                "Test": health,
                "Interval": 10_000_000_000_u64,
                "Timeout": 5_000_000_000_u64,
                "StartPeriod": 10_000_000_000_u64,
                "Retries": 3,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": release.time, "created_by": "cargo xtask package"}],
    })
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// Writes a blob; gives its descriptor.
fn put_blob(layout: &Path, media_type: &str, blob: &[u8]) -> Result<Value> {
    let digest = format!("{:x}", Sha256::digest(blob));
    stage::write(&layout.join("blobs/sha256").join(&digest), blob, 0o644)?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": blob.len()}))
}

fn blob_path(descriptor: &Value) -> Result<String> {
    let digest = descriptor["digest"]
        .as_str()
        .context("a descriptor has a digest")?;
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}

/// Unpacks the image with `umoci`, and runs it with `crun`: programs that know the specification and not us.
pub fn try_as_container(image: &Path, folder: &Path) -> Result<()> {
    let layout = trial::Root::unpacked(&folder.join("layout"), &[image])?;
    let bundle = folder.join("bundle");
    let _ = fs::remove_dir_all(&bundle);
    let mut unpack = Command::new("umoci");
    unpack
        .args(["unpack", "--image"])
        .arg(format!("{}:latest", layout.path().display()))
        .arg(&bundle);
    run_checked(&mut unpack, LIMIT)?;
    confine(&bundle.join("config.json"))?;
    let script = include_str!("../../../tests/packages/image.sh");
    layout.run_beside(
        "image",
        script,
        &[&[&*bundle.display().to_string()], HEALTH].concat(),
    )
}

/// The root is read-only and what may be written is in memory, as `dist/compose.yaml` has it. No control groups, which
/// not every machine has in the form that `crun` wants.
fn confine(path: &Path) -> Result<()> {
    let mut config: Value = serde_json::from_slice(&fs::read(path)?)?;
    config["root"]["readonly"] = json!(true);
    config["process"]["terminal"] = json!(false);
    config["process"]["noNewPrivileges"] = json!(true);
    for set in [
        "bounding",
        "effective",
        "inheritable",
        "permitted",
        "ambient",
    ] {
        config["process"]["capabilities"][set] = json!([]);
    }
    config["linux"]["resources"] = json!({});
    let mounts = config["mounts"]
        .as_array_mut()
        .context("the bundle has mounts")?;
    let is_left = |mount: &Value| {
        let place = mount["destination"].as_str().unwrap_or_default();
        mount["type"] != "cgroup" && !place.ends_with("/longshore")
    };
    mounts.retain(is_left);
    for place in ["/run/longshore", "/var/lib/longshore"] {
        mounts.push(json!({
            "destination": place,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "nodev", "noexec", format!("uid={USER}"), format!("gid={USER}"), "mode=0755"],
        }));
    }
    fs::write(path, bytes(&config))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use longshore_tests::scratch::Scratch;

    use super::*;

    #[test]
    fn a_blob_is_named_by_its_digest() {
        let scratch = Scratch::new("blob");
        let descriptor = put_blob(scratch.path(), LAYER, b"abc").unwrap();
        let path = blob_path(&descriptor).unwrap();
        assert_eq!(
            path,
            "blobs/sha256/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(fs::read(scratch.join(&path)).unwrap(), b"abc");
        assert_eq!(descriptor["size"], 3);
    }
}
