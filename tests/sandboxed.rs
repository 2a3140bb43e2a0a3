//! The server in a complete sandbox: it serves both protocols on both engines, and changes while it runs. What the sandbox
//! does not have is refused, with the key to set.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use longshore_tests::api::{ApiAddress, VerbResult, verb};
use longshore_tests::initiator::{Data, Initiator, Login, cdb};
use longshore_tests::nvme::{Host, HostOptions, blocks};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, TARGET, free_port};
use longshore_tests::skip::skip;

const ENGINES: [&str; 2] = ["io_uring", "epoll"];

/// For what has to come about on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(60);

const SUBSYSTEM: &str = "nqn.2026-11.local.longshore:default";

/// What a kernel offers that has all of it.
const ALL: &str = "files, connections, listeners, signals, system calls, privileges";

/// A server with a file, a socket, and a folder for volumes.
struct Scene {
    scratch: Scratch,
    server: Server,
}

impl Scene {
    /// `None`: this kernel does not offer all of the sandbox.
    fn start(engine: &str, tables: &str) -> Option<Self> {
        let scratch = Scratch::new("sandboxed");
        let path = |name: &str| scratch.join(name).display().to_string();
        for folder in ["etc", "volumes", "elsewhere", "reports"] {
            fs::create_dir(scratch.join(folder)).unwrap();
        }
        let text = format!(
            "sandbox = \"strict\"\n{tables}\n[[volume]]\nname = \"f\"\nbackend = \"file\"\npath = \"{}\"\nsize = \"8M\"\n",
            path("volumes/f.img")
        );
        fs::write(scratch.join("etc/served.toml"), text).unwrap();
        let builder = ServerBuilder::new()
            .iscsi()
            .nvme()
            .volume("m,backend=mem,size=8M")
            .volume("n,backend=null,size=8M")
            .argument("--engine")
            .argument(engine)
            .argument("--config")
            .argument(&path("etc/served.toml"))
            .argument("--socket")
            .argument(&path("run.socket"))
            .argument("--statistics")
            .argument(&path("reports/statistics.json"))
            .argument("--state-dir")
            .argument(&path("state"));
        match builder.clone().start() {
            Ok(server) => Some(Self { scratch, server }),
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("cannot be had") || text.contains("--engine auto"),
                    "{text}"
                );
                skip(text);
                None
            }
        }
    }

    fn verb(&self, arguments: &[&str]) -> VerbResult {
        VerbResult::of(verb(&self.scratch.join("run.socket"), arguments))
    }

    fn create(&self, name: &str, place: &str) -> VerbResult {
        let path = self.scratch.join(place).display().to_string();
        self.verb(&[
            "volume",
            "create",
            name,
            "backend=file",
            &format!("path={path}"),
            "size=1M",
        ])
    }

    fn edit(&self, change: impl FnOnce(String) -> String) {
        let file = self.scratch.join("etc/served.toml");
        let text = fs::read_to_string(&file).unwrap();
        // As editors do: another file takes its place.
        let fresh = self.scratch.join("etc/served.toml.new");
        fs::write(&fresh, change(text)).unwrap();
        fs::rename(&fresh, &file).unwrap();
        self.server.reload().unwrap();
    }
}

/// Writes a block over iSCSI, durably, and reads it over NVMe/TCP, from each of these volumes.
#[track_caller]
fn use_volumes(server: &Server, count: u8) {
    let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(1)).unwrap();
    let mut host = Host::connect(server.nvme(0), &HostOptions::numbered(1)).unwrap();
    for volume in 0..count {
        let data = [volume + 1; 4096];
        initiator.become_ready(volume).unwrap();
        let answer = initiator
            .command(volume, &cdb::write_16(8, 8, true), Data::Out(&data))
            .unwrap();
        assert!(answer.is_good(), "{answer:?}");
        let answer = initiator
            .command(volume, &cdb::synchronize_cache_16(), Data::None)
            .unwrap();
        assert!(answer.is_good(), "{answer:?}");
        let answer = initiator
            .command(volume, &cdb::read_16(8, 8), Data::In(4096))
            .unwrap();
        assert!(answer.is_good(), "{answer:?}");
    }
    let read = host.read(blocks(8, 8)).unwrap().expect_success();
    assert_eq!(read.data, [1; 4096]);
}

#[test]
fn both_protocols_are_served_on_both_engines() {
    for engine in ENGINES {
        let Some(scene) = Scene::start(engine, "") else {
            return;
        };
        use_volumes(&scene.server, 3);
        let status = scene.verb(&["status", "--output", "json"]).expect(0).json();
        assert_eq!(status["sandbox"], ALL);
        assert_eq!(status["engine"], engine);
        let process = fs::read_to_string(format!("/proc/{}/status", scene.server.pid())).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2"] {
            assert!(process.contains(line), "{process}");
        }
        let metrics = ApiAddress::Socket(scene.scratch.join("run.socket"))
            .ask("GET", "/metrics", None)
            .unwrap();
        assert!(metrics.expect_success().body.contains("longshore_"));
        let (status, log) = scene.server.stop_and_read(LIMIT).unwrap();
        assert!(status.success(), "{log}");
        assert!(log.contains(&format!("sandbox: {ALL}")), "{log}");
        assert!(!log.contains("ERROR"), "{log}");
        // At the end, by renaming.
        assert!(scene.scratch.join("reports/statistics.json").exists());
        assert!(!scene.scratch.join("run.socket").exists());
    }
}

/// By name, which the library has to look up in the sandbox; and once more after the other server has gone and come back.
#[test]
fn volumes_of_other_servers_are_served() {
    for engine in ENGINES {
        for backend in ["iscsi", "nvme-tcp"] {
            let (iscsi, nvme) = (free_port(), free_port());
            let far = ServerBuilder::new()
                .volume("d,backend=mem,size=8M")
                .iscsi_at(iscsi, "")
                .nvme_at(nvme, "");
            let first = far.clone().start().unwrap();
            let url = match backend {
                "iscsi" => format!("iscsi://localhost:{}/{TARGET}/0", iscsi.port()),
                _ => format!("nvme+tcp://localhost:{}/{SUBSYSTEM}/1", nvme.port()),
            };
            let near = ServerBuilder::new()
                .volume(&format!("r,backend={backend},url={url}"))
                .iscsi()
                .nvme()
                .argument("--sandbox")
                .argument("strict")
                .argument("--engine")
                .argument(engine);
            let near = match near.start() {
                Ok(near) => near,
                Err(error) => {
                    assert!(error.to_string().contains("cannot be had"), "{error}");
                    skip(error.to_string());
                    return;
                }
            };
            use_volumes(&near, 1);
            first.kill().unwrap();
            let second = far.start().unwrap();
            use_volumes(&near, 1);
            near.stop(LIMIT).unwrap();
            second.stop(LIMIT).unwrap();
        }
    }
}

#[test]
fn a_device_is_served() {
    let scratch = Scratch::new("sandboxed-device");
    let image = scratch.join("image");
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let Some(device) = LoopDevice::over(&image) else {
        skip("there can be no loop device here");
        return;
    };
    for engine in ENGINES {
        let server = ServerBuilder::new()
            .volume(&format!("b,backend=block,path={},direct", device.0))
            .iscsi()
            .nvme()
            .argument("--sandbox-path")
            .argument(&image.display().to_string())
            .argument("--engine")
            .argument(engine)
            .start()
            .unwrap();
        use_volumes(&server, 1);
        let mut initiator = Initiator::ready(server.portal(0), &Login::numbered(2)).unwrap();
        // UNMAP of blocks 8 to 15: a control of the device.
        let mut list = [0; 24];
        list[1] = 22;
        list[3] = 16;
        list[15] = 8;
        list[19] = 8;
        let cdb = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        let answer = initiator.command(0, &cdb, Data::Out(&list)).unwrap();
        assert!(answer.is_good(), "{answer:?}");
        assert!(server.stop(LIMIT).unwrap().success());
    }
}

/// A file as a device. Takes root.
struct LoopDevice(String);

impl LoopDevice {
    fn over(image: &Path) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let made = losetup
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .ok()?;
        let device = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        made.status.success().then_some(Self(device))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn it_changes_while_it_runs() {
    for engine in ENGINES {
        let Some(scene) = Scene::start(engine, "") else {
            return;
        };
        scene.create("beside", "volumes/beside.img").expect(0);
        scene.verb(&["volume", "resize", "beside", "2M"]).expect(0);
        scene.edit(|text| {
            text + &format!(
                "[[volume]]\nname = \"more\"\nbackend = \"file\"\npath = \"{}\"\nsize = \"1M\"\n",
                scene.scratch.join("volumes/more.img").display()
            )
        });
        scene.server.wait_for_log("SIGHUP: add volume more");
        scene.verb(&["volume", "remove", "beside"]).expect(0);
        use_volumes(&scene.server, 2);
        assert!(scene.server.stop(LIMIT).unwrap().success());
    }
}

#[test]
fn what_the_sandbox_does_not_have_is_refused_with_the_key_to_set() {
    let Some(scene) = Scene::start("epoll", "") else {
        return;
    };
    let refused = scene.create("away", "elsewhere/away.img").expect(1);
    assert!(refused.stderr.contains("sandbox-paths"), "{refused:?}");
    assert!(!scene.scratch.join("elsewhere/away.img").exists());
    let url = format!(
        "url=iscsi://127.0.0.1:{}/iqn.2026-11.com.example:a/0",
        free_port().port()
    );
    let refused = scene
        .verb(&["volume", "create", "far", "backend=iscsi", &url])
        .expect(1);
    assert!(refused.stderr.contains("sandbox-ports"), "{refused:?}");
    let listen = format!("[listen]\nnvme-discovery = [\"{}\"]\n", free_port());
    scene.edit(|text| text + &listen);
    scene.server.wait_for_log("sandbox-ports");
    assert!(scene.server.stop(LIMIT).unwrap().success());
}

#[test]
fn what_the_configuration_names_beside_is_had() {
    let scratch = Scratch::new("sandbox-paths");
    let port = free_port();
    let keys = format!(
        "sandbox-paths = [\"{}\"]\nsandbox-ports = [{}]",
        scratch.path().display(),
        port.port()
    );
    let Some(scene) = Scene::start("epoll", &keys) else {
        return;
    };
    let path = scratch.join("a.img").display().to_string();
    let made = scene.verb(&[
        "volume",
        "create",
        "a",
        "backend=file",
        &format!("path={path}"),
        "size=1M",
    ]);
    made.expect(0);
    scene.edit(|text| text + &format!("[listen]\nnvme-discovery = [\"{port}\"]\n"));
    scene
        .server
        .wait_for_log(&format!("SIGHUP: add listener {port}"));
    assert!(scene.server.stop(LIMIT).unwrap().success());
}

/// By default nobody has said where volumes may be, and one from any folder is taken.
#[test]
fn auto_without_paths_bounds_calls_and_no_files() {
    let scratch = Scratch::new("sandbox-auto");
    let socket = scratch.join("socket");
    let server = ServerBuilder::new()
        .volume("m,backend=mem,size=1M")
        .iscsi()
        .argument("--socket")
        .argument(&socket.display().to_string())
        .argument("--state-dir")
        .argument(&scratch.join("state").display().to_string())
        .start()
        .unwrap();
    let ask = |words: &[&str]| VerbResult::of(verb(&socket, words)).expect(0);
    let status = ask(&["status"]).stdout;
    let line = status
        .lines()
        .find(|line| line.contains("sandbox"))
        .unwrap();
    assert!(
        line.contains("privileges") && line.contains("sandbox-paths"),
        "{line}"
    );
    let elsewhere = Scratch::new("sandbox-elsewhere");
    let path = format!("path={}", elsewhere.join("a.img").display());
    ask(&["volume", "create", "a", "backend=file", &path, "size=1M"]);
    let process = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(process.contains("NoNewPrivs:\t1"), "{process}");
    assert!(server.stop(LIMIT).unwrap().success());
}

#[test]
fn strict_does_not_start_without_all_of_it() {
    let scratch = Scratch::new("sandbox-strict");
    let tree = scratch.join("tree").display().to_string();
    let builder = ServerBuilder::new()
        .volume("m,backend=mem,size=1M")
        .iscsi()
        .argument("--scst-tree")
        .argument(&tree);
    let (status, log) = builder
        .argument("--sandbox")
        .argument("strict")
        .start_and_fail()
        .unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("SCST's trees are mounted"), "{log}");
    assert!(log.contains("sandbox = \"auto\""), "{log}");
}

#[test]
fn a_server_without_a_sandbox_says_so() {
    let scratch = Scratch::new("sandbox-off");
    let socket = scratch.join("socket");
    let server = ServerBuilder::new()
        .volume("m,backend=mem,size=1M")
        .iscsi()
        .argument("--sandbox")
        .argument("off")
        .argument("--socket")
        .argument(&socket.display().to_string())
        .start()
        .unwrap();
    let status = VerbResult::of(verb(&socket, &["status"])).expect(0);
    let line = status.stdout.lines().find(|line| line.contains("sandbox"));
    assert_eq!(
        line.map(|line| line.split_whitespace().collect::<Vec<_>>()),
        Some(vec!["sandbox", "off"])
    );
    let process = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(process.contains("NoNewPrivs:\t0"), "{process}");
    assert!(server.stop(LIMIT).unwrap().success());
}
