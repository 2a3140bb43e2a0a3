//! Volumes whose storage fails, or is changed behind the server's back, and the exit status after that.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use longshore_nvme::host::commands;
use longshore_nvme::status::Status;
use longshore_tests::api::{ApiAddress, VerbResult, verb};
use longshore_tests::initiator::{Answer, Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder};
use longshore_tests::skip::skip;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 8 * MIB;
const BLOCKS: u64 = SIZE / 512;

/// HARDWARE ERROR, INTERNAL TARGET FAILURE: nothing can be written.
const WRITES_REFUSED: (u8, u8, u8) = (4, 0x44, 0);
/// HARDWARE ERROR, LOGICAL UNIT FAILURE: nothing is served.
const OUT_OF_SERVICE: (u8, u8, u8) = (4, 0x3e, 1);

/// A server of one file, and an initiator.
struct Scene {
    server: Server,
    initiator: Initiator,
    disk: PathBuf,
    _scratch: Scratch,
}

impl Scene {
    fn new(options: &str) -> Self {
        Self::with(options, |server| server)
    }

    fn with(options: &str, change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let scratch = Scratch::new("failing-storage");
        let disk = scratch.join("disk0.img");
        set_length(&disk, SIZE);
        let volume = format!("disk0,backend=file,path={}{options}", disk.display());
        let server = change(ServerBuilder::new().volume(&volume).iscsi().nvme());
        let server = server.start().unwrap();
        let initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
        Self {
            server,
            initiator,
            disk,
            _scratch: scratch,
        }
    }

    fn write(&mut self, lba: u64, fua: bool) -> Answer {
        let cdb = cdb::write_16(lba, 8, fua);
        let data = Data::Out(&[7; 4096]);
        self.initiator.command(0, &cdb, data).unwrap()
    }

    fn read(&mut self, lba: u64) -> Answer {
        let cdb = cdb::read_16(lba, 8);
        self.initiator.command(0, &cdb, Data::In(4096)).unwrap()
    }

    fn flush(&mut self) -> Answer {
        let cdb = cdb::synchronize_cache_16();
        self.initiator.command(0, &cdb, Data::None).unwrap()
    }

    /// Ends the server; its exit status and log.
    fn stop(self) -> (Option<i32>, String) {
        // A session that stays is given its time.
        drop(self.initiator);
        stop(self.server)
    }
}

/// Ends a server; its exit status and log.
fn stop(server: Server) -> (Option<i32>, String) {
    let (status, log) = server.stop_and_read(Duration::from_secs(60)).unwrap();
    (status.code(), log)
}

fn set_length(disk: &Path, length: u64) {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(disk);
    file.and_then(|file| file.set_len(length)).unwrap();
}

fn contains_all(log: &str, parts: &[&str]) {
    for part in parts {
        assert!(log.contains(part), "{part} is missing in\n{log}");
    }
}

#[test]
fn a_server_that_ends_well_exits_0() {
    let mut scene = Scene::new("");
    assert!(scene.write(BLOCKS - 8, false).is_good());
    assert!(scene.flush().is_good());
    assert!(scene.write(0, true).is_good());
    let (status, log) = scene.stop();
    assert_eq!(status, Some(0), "{log}");
}

/// The limit of file sizes makes the write fail, as a device would.
#[test]
fn a_volume_that_was_poisoned_makes_the_exit_status_1() {
    let mut scene = Scene::with("", |server| server.below(&["prlimit", "--fsize=4194304"]));
    let beyond = 6 * MIB / 512;
    assert!(scene.write(0, true).is_good());
    // Nothing that was acknowledged is in doubt after this one, but after the other.
    let failed = scene.write(beyond, false).sense_code().unwrap();
    assert_eq!((failed.0, failed.1), (3, 0x0c));
    assert!(scene.write(0, false).is_good());
    let failed = scene.write(beyond, true).sense_code().unwrap();
    assert_eq!((failed.0, failed.1), (3, 0x0c));
    assert_eq!(scene.write(0, false).sense_code(), Some(WRITES_REFUSED));
    assert!(scene.read(0).is_good());
    let (status, log) = scene.stop();
    assert_eq!(status, Some(1), "{log}");
    contains_all(
        &log,
        &[
            "data may be lost: the volume refuses writes",
            "acknowledged writes may be lost volume=disk0 reason=\"a flush failed",
        ],
    );
}

/// A loop device over a sparse file in a file system that has no room for it. Takes root.
struct Overcommitted {
    directory: Scratch,
    device: String,
}

impl Overcommitted {
    fn new() -> Option<Self> {
        let directory = Scratch::new("overcommitted");
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success().then_some(text)
        };
        let place = directory.path().display().to_string();
        let image = directory.join("image").display().to_string();
        let device = run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", &place])
            .and_then(|_| run("truncate", &["--size", "8M", &image]))
            .and_then(|_| run("losetup", &["--find", "--show", &image]));
        let Some(device) = device else {
            skip("no loop device over a tmpfs here");
            let _ = run("umount", &["-l", &place]);
            return None;
        };
        Some(Self { directory, device })
    }
}

impl Drop for Overcommitted {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).status();
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.directory.path())
            .status();
    }
}

#[test]
fn a_last_flush_that_fails_makes_the_exit_status_1() {
    let Some(disk) = Overcommitted::new() else {
        return;
    };
    let server = ServerBuilder::new()
        .volume(&format!("disk0,backend=block,path={}", disk.device))
        .iscsi()
        .start()
        .unwrap();
    let mut initiator = Initiator::ready(server.portal(0), &Login::default()).unwrap();
    // It stays in the page cache, which the kernel has no reason to write back yet.
    let data = vec![7; 64 << 10];
    for lba in (0..4 * MIB / 512).step_by(128) {
        let write = initiator.command(0, &cdb::write_16(lba, 128, false), Data::Out(&data));
        assert!(write.unwrap().is_good());
    }
    drop(initiator);
    let (status, log) = stop(server);
    assert_eq!(status, Some(1), "{log}");
    contains_all(
        &log,
        &[
            "flush failed volume=disk0",
            "acknowledged writes may be lost volume=disk0",
        ],
    );
}

#[test]
fn a_last_flush_that_fails_at_a_removal_is_named_by_the_verb_and_by_the_operation() {
    const OTHER: &str = "iqn.2026-11.local.longshore:removed";
    let Some(disk) = Overcommitted::new() else {
        return;
    };
    let scratch = Scratch::new("removed");
    let (socket, state) = (scratch.join("s"), scratch.join("state"));
    let server = ServerBuilder::new()
        .argument("--sandbox-path")
        .argument(&disk.device.to_string())
        .volume("stays,backend=mem,size=1M")
        .iscsi()
        .argument("--socket")
        .argument(&socket.display().to_string())
        .argument("--state-dir")
        .argument(&state.display().to_string())
        .start()
        .unwrap();
    let ask = |words: &[&str]| VerbResult::of(verb(&socket, words));
    let path = format!("path={}", disk.device);
    ask(&["volume", "create", "goes", "backend=block", &path]).expect(0);
    ask(&["target", "create", OTHER, "luns=[]"]).expect(0);
    ask(&["target", "map", OTHER, "goes", "--number", "0"]).expect(0);
    let login = Login {
        target: Some(OTHER.to_owned()),
        ..Login::default()
    };
    let mut initiator = Initiator::ready(server.portal(0), &login).unwrap();
    let data = vec![7; 64 << 10];
    for lba in (0..4 * MIB / 512).step_by(128) {
        let write = initiator.command(0, &cdb::write_16(lba, 128, false), Data::Out(&data));
        assert!(write.unwrap().is_good());
    }
    initiator.log_out().unwrap();
    let ended = ask(&["volume", "remove", "goes", "--drain"]).expect(1);
    let told = "volume goes may have lost what was written: its last flush failed";
    assert!(ended.stderr.contains(told), "{ended:?}");
    let revision = ask(&["config", "history", "--output", "json"]).expect(0);
    let revision = revision.json()["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["revision"].as_u64())
        .max()
        .unwrap();
    let place = format!("/api/v1/operations/{revision}");
    let operation = ApiAddress::Socket(socket.clone())
        .ask("GET", &place, None)
        .unwrap()
        .expect_success()
        .json();
    assert_eq!(operation["state"], "failed", "{operation}");
    let failure = operation["failure"].as_str().unwrap();
    assert!(failure.contains(told), "{failure}");
}

#[test]
fn a_file_that_is_cut_is_noticed_without_any_operation_and_nothing_is_served_any_more() {
    let mut scene = Scene::new("");
    assert!(scene.write(0, false).is_good());
    let mut host = Host::connect(scene.server.nvme(0), &HostOptions::default()).unwrap();
    // Asynchronous events for all critical warnings.
    host.admin(&commands::set_features(0x0b, 0xff), &[])
        .unwrap()
        .expect_success();
    let event = host
        .admin
        .start(&commands::async_event_request(), &[])
        .unwrap();
    set_length(&scene.disk, MIB);
    // SMART / health status, reliability degraded, log page 2.
    let told = host.admin.wait(event).unwrap().expect_success();
    assert_eq!(told.result & 0xff_ff07, 0x02_0001);
    let health = host.log_page(0x02, 0, 512).unwrap();
    assert_eq!(health[0] & 0b1100, 0b1100, "degraded and read-only");
    let read = host.read(blocks(0, 8)).unwrap();
    assert_eq!(read.status.code(), Status::UNRECOVERED_READ_ERROR);
    assert!(read.status.is_final());
    let write = host.write(blocks(0, 8), &[1; 4096]).unwrap();
    assert_eq!(write.status.code(), Status::WRITE_FAULT);
    assert!(write.status.is_final());
    for answer in [
        scene.read(0),
        scene.write(0, false),
        scene.write(BLOCKS - 8, true),
        scene.flush(),
    ] {
        assert_eq!(answer.sense_code(), Some(OUT_OF_SERVICE));
    }
    assert_eq!(fs::metadata(&scene.disk).unwrap().len(), MIB);
    // Its later length changes nothing.
    set_length(&scene.disk, SIZE);
    assert_eq!(scene.read(0).sense_code(), Some(OUT_OF_SERVICE));
    let path = format!("path={}", scene.disk.display());
    drop(host);
    let (status, log) = scene.stop();
    assert_eq!(status, Some(1), "{log}");
    contains_all(
        &log,
        &[
            "the file was shortened while it is served",
            &path,
            "found=1048576",
            "expected=8388608",
            "restore the file from a backup",
            "acknowledged writes may be lost volume=disk0",
        ],
    );
    assert_eq!(log.matches("was shortened").count(), 1, "{log}");
}

#[test]
fn a_read_beyond_the_end_a_flush_and_a_write_of_the_last_block_notice_it_at_once() {
    type Act = fn(&mut Scene) -> Answer;
    let acts: [Act; 4] = [
        |scene| scene.read(BLOCKS / 2),
        |scene| scene.flush(),
        |scene| scene.write(BLOCKS - 8, false),
        |scene| scene.write(BLOCKS / 2, true),
    ];
    for act in acts {
        let mut scene = Scene::new("");
        set_length(&scene.disk, 0);
        assert_eq!(act(&mut scene).sense_code(), Some(OUT_OF_SERVICE));
        assert_ne!(fs::metadata(&scene.disk).unwrap().len(), SIZE);
        assert_eq!(scene.read(0).sense_code(), Some(OUT_OF_SERVICE));
    }
}

#[test]
fn a_file_that_is_removed_is_still_read_and_its_data_can_be_saved() {
    let mut scene = Scene::new("");
    assert!(scene.write(8, false).is_good());
    fs::remove_file(&scene.disk).unwrap();
    assert_eq!(scene.flush().sense_code(), Some(WRITES_REFUSED));
    assert_eq!(scene.write(0, false).sense_code(), Some(WRITES_REFUSED));
    assert_eq!(scene.read(8).data, [7; 4096]);
    scene
        .server
        .wait_for_log("the file was removed while it is served");
    // The command in the log.
    let log = scene.server.log();
    let (_, from) = log.split_once("cp --sparse=always ").unwrap();
    let from = from.split(' ').next().unwrap();
    let saved = fs::read(from).unwrap();
    assert_eq!(saved.len(), usize::try_from(SIZE).unwrap());
    assert_eq!(saved[4096..8192], [7; 4096]);
    let (status, log) = scene.stop();
    assert_eq!(status, Some(1), "{log}");
}

#[test]
fn a_file_that_is_removed_is_noticed_without_any_operation() {
    let scene = Scene::new("");
    fs::remove_file(&scene.disk).unwrap();
    // Another file in its place does not repair it.
    set_length(&scene.disk, SIZE);
    scene
        .server
        .wait_for_log("the file was removed while it is served");
    let (status, log) = scene.stop();
    assert_eq!(status, Some(1), "{log}");
}

#[test]
fn a_file_that_is_renamed_or_only_read_and_replaced_is_served_with_a_warning() {
    let mut scene = Scene::new("");
    let moved = scene.disk.with_extension("moved");
    fs::rename(&scene.disk, &moved).unwrap();
    scene
        .server
        .wait_for_log("the path no longer leads to the file that is served");
    assert!(scene.write(BLOCKS - 8, true).is_good());
    let (status, log) = scene.stop();
    assert_eq!(status, Some(0), "{log}");

    let mut scene = Scene::new(",read-only");
    let inode = fs::metadata(&scene.disk).unwrap().ino();
    let fresh = scene.disk.with_extension("new");
    set_length(&fresh, SIZE);
    fs::rename(&fresh, &scene.disk).unwrap();
    assert_ne!(fs::metadata(&scene.disk).unwrap().ino(), inode);
    scene
        .server
        .wait_for_log("the file was removed or replaced");
    assert!(scene.read(BLOCKS - 8).is_good());
    let (status, log) = scene.stop();
    assert_eq!(status, Some(0), "{log}");
}

#[test]
fn a_file_that_grows_is_sound_before_and_after_it_is_taken_up() {
    let mut scene = Scene::new("");
    set_length(&scene.disk, 2 * SIZE);
    assert!(scene.flush().is_good());
    scene.server.reload().unwrap();
    scene.server.wait_for_log("read the sizes of all volumes");
    // The unit attention that tells of the new size.
    let _ = scene.read(0);
    assert!(scene.write(2 * BLOCKS - 8, true).is_good());
    let (status, log) = scene.stop();
    assert_eq!(status, Some(0), "{log}");
}
