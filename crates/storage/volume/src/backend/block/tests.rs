//! Block devices. They need a loop device, which takes root and a kernel that has them.

use std::process::Command;

use super::*;
use crate::open::{BackendName, LockHolder};
use crate::testing::harness::{Scratch, check_on_all_storage};
use crate::testing::suite::{Keeps, SIZE_MIN};
use crate::testing::{TestStorage, VolumeClient};
use crate::{Condition, VolumeError, WriteCache, open};

/// A loop device over a file, as long as it lives.
struct LoopDevice {
    path: String,
    scratch: Scratch,
}

impl LoopDevice {
    fn new(size: u64, options: &[&str]) -> Option<LoopDevice> {
        let scratch = Scratch::new();
        let image = scratch.path("image");
        File::create(&image)
            .and_then(|file| file.set_len(size))
            .expect("an image");
        let found = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(&image)
            .output();
        match found {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8(output.stdout).expect("a path");
                Some(LoopDevice {
                    path: path.trim().to_owned(),
                    scratch,
                })
            }
            Ok(output) => {
                let reason = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("SKIPPED: no loop device: {}", reason.trim());
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: no losetup: {error}");
                None
            }
        }
    }

    fn spec(&self, block_size: u32) -> VolumeSpec {
        VolumeSpec {
            path: Some((&self.path).into()),
            block_size,
            ..VolumeSpec::new("b", BackendName::BLOCK)
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.path])
            .status();
    }
}

fn refusal(spec: &VolumeSpec) -> OpenError {
    match open(spec) {
        Ok(_) => panic!("the volume opens"),
        Err(error) => error,
    }
}

#[test]
fn block_device_passes_the_suite() {
    let Some(device) = LoopDevice::new(SIZE_MIN, &[]) else {
        return;
    };
    for block_size in [512, 4096] {
        for direct in [false, true] {
            let spec = VolumeSpec {
                direct,
                ..device.spec(block_size)
            };
            check_on_all_storage(Keeps::Data, || match open(&spec) {
                Ok(volume) => volume,
                Err(error) => panic!("{error}"),
            });
        }
    }
}

#[test]
fn a_device_has_its_own_size_and_is_claimed() {
    let Some(device) = LoopDevice::new(SIZE_MIN + 512, &[]) else {
        return;
    };
    let spec = device.spec(512);
    let volume = open(&spec).expect("open");
    assert_eq!(volume.geometry().block_count, SIZE_MIN / 512 + 1);
    assert_eq!(volume.characteristics().write_cache, WriteCache::Volatile);
    let second = refusal(&spec);
    assert!(
        matches!(
            second,
            OpenError::Locked {
                holder: LockHolder::ThisProcess,
                ..
            }
        ),
        "{second}"
    );
    drop(volume);
    assert!(matches!(
        refusal(&device.spec(4096)),
        OpenError::SizeNotMultiple { .. }
    ));
    let wrong = VolumeSpec {
        size: Some(SIZE_MIN),
        ..spec.clone()
    };
    assert!(matches!(refusal(&wrong), OpenError::SizeDiffers { .. }));
    let as_file = VolumeSpec {
        backend: BackendName::FILE,
        ..spec
    };
    assert!(matches!(refusal(&as_file), OpenError::IsBlockDevice { .. }));
}

#[test]
fn a_device_that_grew_is_taken_up() {
    let Some(device) = LoopDevice::new(SIZE_MIN, &[]) else {
        return;
    };
    let volume = open(&device.spec(4096)).expect("open");
    let image = std::fs::OpenOptions::new()
        .write(true)
        .open(device.scratch.path("image"));
    image
        .and_then(|image| image.set_len(2 * SIZE_MIN))
        .expect("grow");
    let told = Command::new("losetup")
        .args(["--set-capacity", &device.path])
        .status();
    assert!(told.expect("losetup").success());
    assert_eq!(
        volume.refresh_geometry().expect("refresh").block_count,
        2 * SIZE_MIN / 4096
    );
}

#[test]
fn a_device_that_shrinks_takes_the_volume_out_of_service() {
    let Some(device) = LoopDevice::new(2 * SIZE_MIN, &[]) else {
        return;
    };
    let shrink = || {
        let image = std::fs::OpenOptions::new()
            .write(true)
            .open(device.scratch.path("image"));
        image
            .and_then(|image| image.set_len(SIZE_MIN))
            .expect("shrink");
        let told = Command::new("losetup")
            .args(["--set-capacity", &device.path])
            .status();
        assert!(told.expect("losetup").success());
    };
    let volume = open(&device.spec(4096)).expect("open");
    let mut storage = TestStorage::new();
    let mut client = VolumeClient::new(volume.clone(), &mut storage);
    client
        .write(2 * SIZE_MIN - 4096, &[1; 4096])
        .expect("write");
    client.flush().expect("flush");
    shrink();
    // Beyond its end, a device has no space; that must not look like a full file system.
    let failed = client.write_durable(2 * SIZE_MIN - 4096, &[2; 4096]);
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
    assert_eq!(volume.inspect(), Condition::Shortened);
    let failed = client.read(0, 4096);
    assert!(matches!(failed, Err(VolumeError::Shortened)), "{failed:?}");
}

#[test]
fn a_read_only_device_wants_a_read_only_volume() {
    let Some(device) = LoopDevice::new(SIZE_MIN, &["--read-only"]) else {
        return;
    };
    let spec = device.spec(512);
    assert!(matches!(refusal(&spec), OpenError::ReadOnlyMedium { .. }));
    let reader = VolumeSpec {
        read_only: true,
        ..spec
    };
    let _first = open(&reader).expect("open");
    let _second = open(&reader).expect("readers share it");
}

#[test]
fn blocks_smaller_than_the_devices_are_refused() {
    let Some(device) = LoopDevice::new(SIZE_MIN, &["--sector-size", "4096"]) else {
        return;
    };
    let refused = refusal(&device.spec(512));
    assert!(
        matches!(refused, OpenError::DeviceBlockSize { logical: 4096, .. }),
        "{refused}"
    );
    open(&device.spec(4096)).expect("open");
}

#[test]
fn what_is_no_block_device_is_refused() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("file"), [0; 512]).expect("write");
    let spec = |path| VolumeSpec {
        path: Some(path),
        ..VolumeSpec::new("b", BackendName::BLOCK)
    };
    assert!(matches!(
        refusal(&spec(scratch.path("file"))),
        OpenError::NotBlockDevice { .. }
    ));
    assert!(matches!(
        refusal(&spec(scratch.path("."))),
        OpenError::IsDirectory { .. }
    ));
    assert!(matches!(
        refusal(&spec(scratch.path("none"))),
        OpenError::DeviceNotFound { .. }
    ));
}

#[test]
fn a_loop_device_without_a_medium_is_refused_with_advice_that_leads_out() {
    let Some(device) = LoopDevice::new(0, &[]) else {
        return;
    };
    for size in [None, Some(1 << 20)] {
        let error = refusal(&VolumeSpec {
            size,
            ..device.spec(512)
        });
        assert!(
            matches!(error, OpenError::NoMedium { is_loop: true, .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.contains(&format!("losetup {} FILE", device.path)),
            "{text}"
        );
    }
}
