//! SCST's trees on the real server: the file operations that scstadmin makes, and what initiators see of them.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use longshore_tests::initiator::{Data, Initiator, Login};
use longshore_tests::scratch::Scratch;
use longshore_tests::server::{Server, ServerBuilder, program};
use longshore_tests::skip::skip;

/// How long an orderly end may take on a machine that is busy with other tests.
const END_LIMIT: Duration = Duration::from_secs(20);

const TARGET: &str = "iqn.2026-11.com.example:disks";
const HOST: &str = "iqn.2026-11.com.example:host1";
const OTHER: &str = "iqn.2026-11.com.example:other1";

/// Error numbers of Linux, as the tools see them.
const ENOENT: i32 = 2;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;
const EBADSLT: i32 = 57;

/// A server with its trees.
struct Scene {
    server: Option<Server>,
    tree: PathBuf,
    scratch: Scratch,
}

impl Scene {
    /// `None`: this machine cannot mount.
    fn start(name: &str) -> Option<Self> {
        if fs::File::open("/dev/fuse").is_err() || !is_root() {
            skip("mounting needs root and /dev/fuse");
            return None;
        }
        let scratch = Scratch::new(name);
        let tree = scratch.join("tree");
        let mut scene = Self {
            server: None,
            tree,
            scratch,
        };
        scene.start_server();
        Some(scene)
    }

    fn start_server(&mut self) {
        let state = self.scratch.join("state").display().to_string();
        let tree = self.tree.display().to_string();
        let server = ServerBuilder::new()
            .iscsi()
            .argument("--state-dir")
            .argument(&state)
            .argument("--scst-tree")
            .argument(&tree)
            .start();
        self.server = Some(server.unwrap());
        self.server().wait_for_log("SCST's trees are at");
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Writes as scstadmin does: one write to a file that is there.
    fn try_write(&self, path: &str, text: &str) -> Result<(), i32> {
        let written = fs::OpenOptions::new()
            .write(true)
            .open(self.tree.join(path))
            .and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| error.raw_os_error().unwrap())
    }

    #[track_caller]
    fn write(&self, path: &str, text: &str) {
        let written = self.try_write(path, text);
        assert_eq!(written, Ok(()), "{path}: {text}\n{}", self.server().log());
    }

    #[track_caller]
    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.tree.join(path)).unwrap()
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.tree.join(path)).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A disk, a target with an account, and a group that has the disk.
    fn make(&self) {
        let image = self.scratch.join("disk.img");
        fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let command = format!("add_device disk0 filename={};", image.display());
        self.write("sys/handlers/vdisk_fileio/mgmt", &command);
        self.write(
            "sys/handlers/vdisk_nullio/mgmt",
            "add_device null0 size_mb=16;",
        );
        self.write("sys/targets/iscsi/mgmt", &format!("add_target {TARGET} "));
        let account = "IncomingUser web1 its-own-secret";
        self.write(
            "sys/targets/iscsi/mgmt",
            &format!("add_target_attribute {TARGET} {account}"),
        );
        let target = format!("sys/targets/iscsi/{TARGET}");
        self.write(&format!("{target}/ini_groups/mgmt"), "create hosts");
        self.write(
            &format!("{target}/ini_groups/hosts/initiators/mgmt"),
            "add iqn.2026-11.com.example:host*",
        );
        self.write(
            &format!("{target}/ini_groups/hosts/luns/mgmt"),
            "add disk0 0 ",
        );
        self.write(&format!("{target}/enabled"), "1");
    }

    /// What `longshore info` says of LUN 0 to an initiator with this secret.
    fn info(&self, initiator: &str, secret: &str) -> Output {
        let portal = self.server().portal(0);
        let url = format!("iscsi://web1%{secret}@{portal}/{TARGET}/0");
        let mut info = Command::new(program());
        info.args(["info", &url, "--initiator-name", initiator]);
        info.output().unwrap()
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}

#[test]
fn commands_of_scstadmin_make_disks_that_initiators_of_the_group_see() {
    let Some(mut scene) = Scene::start("scst") else {
        return;
    };
    scene.make();
    let answer = scene.info(HOST, "its-own-secret");
    assert!(answer.status.success(), "{answer:?}");
    assert!(!scene.info(HOST, "another-secret").status.success());
    assert!(!scene.info(OTHER, "its-own-secret").status.success());

    // All of it is there again after a restart, and all of it can go.
    scene.server.take().unwrap().stop(END_LIMIT).unwrap();
    scene.start_server();
    assert!(scene.info(HOST, "its-own-secret").status.success());
    let target = format!("sys/targets/iscsi/{TARGET}");
    let account = scene.tree.join(&target).join("IncomingUser");
    assert_eq!(
        fs::read_to_string(&account).unwrap(),
        "web1 its-own-secret\n[key]\n"
    );
    assert_eq!(
        fs::metadata(&account).unwrap().permissions().mode() & 0o777,
        0o600
    );
    scene.write(
        &format!("{target}/ini_groups/hosts/initiators/mgmt"),
        "clear",
    );
    scene.write(&format!("{target}/ini_groups/hosts/luns/mgmt"), "clear");
    scene.write(&format!("{target}/ini_groups/mgmt"), "del hosts");
    scene.write("sys/targets/iscsi/mgmt", &format!("del_target {TARGET}"));
    scene.write("sys/handlers/vdisk_fileio/mgmt", "del_device disk0");
    scene.write("sys/handlers/vdisk_nullio/mgmt", "del_device null0");
    assert_eq!(scene.names("sys/devices"), [""; 0]);
    // The file is free: the same device can be made at once.
    let image = scene.scratch.join("disk.img");
    let command = format!("add_device disk0 filename={};", image.display());
    scene.write("sys/handlers/vdisk_fileio/mgmt", &command);
}

/// The relative target port that INQUIRY page 83h tells an initiator.
fn told_port(initiator: &mut Initiator) -> u16 {
    let inquiry = [0x12, 1, 0x83, 1, 0, 0];
    let page = loop {
        let answer = initiator.command(0, &inquiry, Data::In(256)).unwrap();
        if answer.is_good() {
            break answer.data;
        }
        assert_eq!(
            answer.sense_code().map(|code| code.0),
            Some(6),
            "{answer:?}"
        );
    };
    let mut rest = &page[4..];
    while let [_, kind, _, length, after @ ..] = rest {
        let (value, next) = after.split_at(usize::from(*length));
        if kind & 0x3f == 0x14 {
            return u16::from_be_bytes([value[2], value[3]]);
        }
        rest = next;
    }
    panic!("no relative target port in {page:?}");
}

#[test]
fn the_relative_port_that_scstadmin_sets_is_told_to_initiators() {
    let Some(scene) = Scene::start("scst-ports") else {
        return;
    };
    let null = "sys/handlers/vdisk_nullio/mgmt";
    scene.write(null, "add_device null0 size_mb=16;");
    scene.write("sys/targets/iscsi/mgmt", &format!("add_target {TARGET} "));
    let target = format!("sys/targets/iscsi/{TARGET}");
    scene.write(&format!("{target}/luns/mgmt"), "add null0 0 ");
    let port = format!("{target}/rel_tgt_id");
    assert_eq!(scene.read(&port), "0\n");
    scene.write(&format!("{target}/enabled"), "1");
    let given = scene.read(&port);
    assert_ne!(given, "0\n");
    assert_ne!(scene.read(&format!("{target}/tid")), "0\n");
    let host = || {
        let login = Login {
            initiator: HOST.to_owned(),
            target: Some(TARGET.to_owned()),
            ..Login::numbered(1)
        };
        Initiator::log_in(scene.server().portal(0), &login).unwrap()
    };
    assert_eq!(format!("{}\n", told_port(&mut host())), given);
    scene.write(&port, "300");
    assert_eq!(scene.read(&port), "300\n[key]\n");
    assert_eq!(told_port(&mut host()), 300);

    // It cannot be that of another target, enabled or not.
    let other = "iqn.2026-11.com.example:other";
    scene.write("sys/targets/iscsi/mgmt", &format!("add_target {other} "));
    let other = format!("sys/targets/iscsi/{other}/rel_tgt_id");
    assert_eq!(scene.try_write(&other, "300"), Err(EBADSLT));
    assert_eq!(scene.try_write(&other, "65536"), Err(EINVAL));
}

#[test]
fn the_first_relative_port_is_free_for_a_target_of_scst() {
    let Some(scene) = Scene::start("scst-first-port") else {
        return;
    };
    let null = "sys/handlers/vdisk_nullio/mgmt";
    scene.write(null, "add_device null0 size_mb=16;");
    scene.write("sys/targets/iscsi/mgmt", &format!("add_target {TARGET} "));
    let target = format!("sys/targets/iscsi/{TARGET}");
    scene.write(&format!("{target}/rel_tgt_id"), "1");
    scene.write(&format!("{target}/luns/mgmt"), "add null0 0 ");
    scene.write(&format!("{target}/enabled"), "1");
    let login = Login {
        initiator: HOST.to_owned(),
        target: Some(TARGET.to_owned()),
        ..Login::numbered(1)
    };
    let mut host = Initiator::log_in(scene.server().portal(0), &login).unwrap();
    assert_eq!(told_port(&mut host), 1);
}

#[test]
fn refused_commands_have_the_error_that_scstadmin_tells_them_by() {
    let Some(scene) = Scene::start("scst-errors") else {
        return;
    };
    scene.make();
    let null = "sys/handlers/vdisk_nullio/mgmt";
    let file = "sys/handlers/vdisk_fileio/mgmt";
    let driver = "sys/targets/iscsi/mgmt";
    let luns = &format!("sys/targets/iscsi/{TARGET}/ini_groups/hosts/luns/mgmt");
    for (path, command, error) in [
        (null, "add_device null0 ".to_owned(), EEXIST),
        (null, "add_device null1 nonsense=1;".to_owned(), EINVAL),
        (
            file,
            "add_device disk1 filename=/nowhere;".to_owned(),
            EINVAL,
        ),
        (file, "del_device disk0".to_owned(), EBUSY),
        (file, "del_device disk9".to_owned(), ENOENT),
        (luns, "add null0 0".to_owned(), EEXIST),
        (luns, "del 9".to_owned(), ENOENT),
        (driver, format!("add_target {TARGET} "), EEXIST),
        (driver, "add_target no-iscsi-name ".to_owned(), EINVAL),
        ("sys/devices/null0/naa_id", "nonsense".to_owned(), EINVAL),
        (
            "sys/devices/disk0/no-such-attribute",
            "1".to_owned(),
            ENOENT,
        ),
    ] {
        assert_eq!(scene.try_write(path, &command), Err(error), "{command}");
    }
    let log = scene.server().log();
    assert!(log.contains("device disk0 is LUN 0 of iqn."), "{log}");
    assert_eq!(scene.names("sys/devices"), ["disk0", "null0"]);
}

#[test]
fn settings_that_tune_scst_are_kept_while_the_server_runs() {
    let Some(scene) = Scene::start("scst-settings") else {
        return;
    };
    scene.write("sys/threads", "8\n");
    assert_eq!(scene.read("sys/threads"), "8\n[key]\n");
    assert_eq!(scene.try_write("sys/threads", "none"), Err(EINVAL));
    assert_eq!(scene.read("sys/threads"), "8\n[key]\n");
    let log = scene.server().log();
    assert!(log.contains("threads 8 has no effect here"), "{log}");
}

/// A file that is gone at the end of the test.
struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        // The server may still have it open, which does not matter.
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_in_the_folder_of_devices_is_a_device_of_vdisk_fileio() {
    let Some(scene) = Scene::start("scst-shm") else {
        return;
    };
    let image = Image(Path::new("/dev/shm").join(format!("longshore-{}", std::process::id())));
    match fs::File::create(&image.0) {
        Ok(file) => file.set_len(1 << 20).unwrap(),
        Err(error) => {
            skip(format!("/dev/shm: {error}"));
            return;
        }
    }
    let command = format!("add_device disk0 filename={};", image.0.display());
    scene.write("sys/handlers/vdisk_fileio/mgmt", &command);
    assert_eq!(scene.read("sys/devices/disk0/size"), "1048576\n");
    let handler = fs::read_link(scene.tree.join("sys/devices/disk0/handler")).unwrap();
    assert_eq!(handler, Path::new("../../handlers/vdisk_fileio"));
}

#[test]
fn a_target_that_is_made_in_capitals_is_configured_by_that_name() {
    let Some(scene) = Scene::start("scst-capitals") else {
        return;
    };
    scene.write("sys/handlers/vdisk_nullio/mgmt", "add_device null0 ");
    let name = TARGET.to_uppercase();
    scene.write("sys/targets/iscsi/mgmt", &format!("add_target {name} "));
    let target = format!("sys/targets/iscsi/{name}");
    scene.write(&format!("{target}/luns/mgmt"), "add null0 0 ");
    scene.write(&format!("{target}/enabled"), "1");
    assert!(
        scene
            .names("sys/targets/iscsi")
            .contains(&TARGET.to_owned())
    );
    assert_eq!(
        scene.names(&format!("sys/targets/iscsi/{TARGET}/luns")),
        ["0", "mgmt"]
    );
    scene.write("sys/targets/iscsi/mgmt", &format!("del_target {name}"));
}

#[test]
fn sessions_show_in_both_trees_and_can_be_closed() {
    let Some(scene) = Scene::start("scst-sessions") else {
        return;
    };
    scene.write(
        "sys/handlers/vdisk_nullio/mgmt",
        "add_device null0 size_mb=16;",
    );
    // The old tree makes a target where there is none.
    scene.write("proc/scsi_tgt/groups/Default/devices", "add null0 0 \n\0");
    let target = "iqn.2026-11.local.longshore:scst";
    let login = Login {
        initiator: HOST.to_owned(),
        target: Some(target.to_owned()),
        ..Login::default()
    };
    let mut initiator = Initiator::ready(scene.server().portal(0), &login).unwrap();
    let sessions = format!("sys/targets/iscsi/{target}/sessions");
    // The trees know sessions that are a second old.
    let end = Instant::now() + END_LIMIT;
    while scene.names(&sessions).is_empty() {
        assert!(
            Instant::now() < end,
            "no session shows\n{}",
            scene.server().log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(scene.names(&sessions), [HOST]);
    let luns = fs::read_link(scene.tree.join(&sessions).join(HOST).join("luns")).unwrap();
    assert_eq!(luns, Path::new("../../luns"));
    let table = scene.read("proc/scsi_tgt/iscsi/session");
    assert!(table.contains(&format!("initiator:{HOST}")), "{table}");
    assert!(
        table.contains("mode:") && table.contains("idles:"),
        "{table}"
    );
    scene.write(&format!("{sessions}/{HOST}/force_close"), "1");
    assert_eq!(scene.names(&sessions), [""; 0]);
    assert!(initiator.is_closed_within(END_LIMIT).unwrap());
}

#[test]
fn the_old_tree_has_the_tables_of_the_devices_of_the_paper() {
    let Some(scene) = Scene::start("scst-proc") else {
        return;
    };
    let vdisk = "proc/scsi_tgt/vdisk/vdisk";
    for command in [
        "open disk_NULLIO /dev/zero 512 NULLIO\n\0",
        "open disk_ZERO /dev/zero 512\n\0",
        "open disk_BZERO /dev/zero 512 BLOCKIO\n\0",
        "set_t10_dev_id disk_ZERO Z000\n\0",
    ] {
        scene.write(vdisk, command);
    }
    let table = scene.read(vdisk);
    let row = |name: &str| {
        let row = table.lines().find(|row| row.starts_with(name)).unwrap();
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row("disk_NULLIO")[1..5],
        ["2621440", "512", "NIO", "/dev/zero"]
    );
    assert_eq!(
        row("disk_BZERO")[1..5],
        ["1048576", "512", "BIO", "/dev/zero"]
    );
    assert_eq!(
        row("disk_ZERO")[1..],
        ["1048576", "512", "/dev/zero", "Z000"]
    );
    assert_eq!(scene.names("proc/scsi_tgt/groups"), ["Default"]);
}

#[test]
fn a_mount_that_a_killed_server_left_does_not_stop_the_next_start() {
    let Some(mut scene) = Scene::start("scst-killed") else {
        return;
    };
    scene.server.take().unwrap().kill().unwrap();
    let error = fs::read_dir(&scene.tree).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotConnected, "{error}");
    scene.start_server();
    assert!(scene.read("sys/version").starts_with("3."));
    scene.server.take().unwrap().stop(END_LIMIT).unwrap();
    assert_eq!(
        fs::read_dir(&scene.tree).unwrap().count(),
        0,
        "it is unmounted"
    );
}

#[test]
fn a_server_that_ends_leaves_no_mount_to_those_who_are_in_it() {
    let Some(mut scene) = Scene::start("scst-in-use") else {
        return;
    };
    let _open = fs::File::open(scene.tree.join("sys/version")).unwrap();
    let mut inside = Command::new("sleep")
        .arg("600")
        .current_dir(scene.tree.join("sys"))
        .spawn()
        .unwrap();
    scene.server.take().unwrap().stop(END_LIMIT).unwrap();
    let names = fs::read_dir(&scene.tree).map(Iterator::count);
    inside.kill().unwrap();
    inside.wait().unwrap();
    assert_eq!(names.unwrap(), 0, "it is unmounted");
}

#[test]
fn a_tree_that_cannot_be_mounted_is_a_warning() {
    let scratch = Scratch::new("scst-nowhere");
    let file = scratch.join("file");
    fs::write(&file, "").unwrap();
    let server = ServerBuilder::new()
        .volume("null0,backend=null,size=1M")
        .iscsi()
        .argument("--scst-tree")
        .argument(&file.join("tree").display().to_string())
        .start()
        .unwrap();
    server.wait_for_log("SCST's trees cannot be mounted");
    Initiator::ready(server.portal(0), &Login::default()).unwrap();
}

#[test]
fn the_shell_has_the_trees_where_the_tools_look() {
    let Some(scene) = Scene::start("scst-shell") else {
        return;
    };
    scene.write("sys/handlers/vdisk_nullio/mgmt", "add_device null0 ");
    let run = |script: &str| {
        let mut shell = Command::new(program());
        shell.args(["scst", "shell", "--tree"]).arg(&scene.tree);
        shell.args(["--", "sh", "-c", script]).output().unwrap()
    };
    let script = "cat /sys/kernel/scst_tgt/version && cat /proc/scsi_tgt/scsi_tgt && test -r /proc/self/status && exit 7";
    let output = run(script);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert!(text.starts_with("3.") && text.contains("null0"), "{text}");
    assert!(
        !Path::new("/proc/scsi_tgt").exists(),
        "the system is as it was"
    );
    let output = run("echo 'del_device null0' > /sys/kernel/scst_tgt/handlers/vdisk_nullio/mgmt");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(scene.names("sys/devices"), [""; 0]);
    assert_eq!(scene.try_write("sys/version", "1"), Err(EROFS));
}

/// Runs as an ordinary user, with a FUSE device that this user may open, in a user namespace in which the user may mount.
/// $1 is the program, $2 a directory, $3 what the user runs.
const AS_USER: &str = r#"
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=777 longshore-tests "$2"
mknod -m 666 "$2/fuse" c 10 229
mount --bind "$2/fuse" /dev/fuse
exec setpriv --reuid 65534 --regid 65534 --clear-groups \
    unshare --map-current-user --keep-caps --mount sh -c "$3" sh "$1" "$2"
"#;

/// A server, and the shell beside it. Exits as the command in the shell does.
const SERVER_AND_SHELL: &str = r#"
id -u
"$1" serve --volume null0,backend=null,size=1M --iscsi 127.0.0.1:0 --state-dir "$2/state" --socket "$2/socket" \
    --scst-tree "$2/tree" >"$2/log" 2>&1 &
server=$!
until grep -q "trees are at" "$2/log"; do
    kill -0 $server || { cat "$2/log" >&2; exit 90; }
    sleep 0.05
done
"$1" scst shell --tree "$2/tree" -- sh -c '
    id -u
    cat /sys/kernel/scst_tgt/version
    echo "add_device disk1 " >/sys/kernel/scst_tgt/handlers/vdisk_nullio/mgmt || exit 91
    echo $(ls /sys/kernel/scst_tgt/devices)
    exit 7'
status=$?
kill $server
wait $server
exit $status
"#;

#[test]
fn the_shell_has_the_trees_for_an_ordinary_user_who_runs_the_server() {
    if fs::File::open("/dev/fuse").is_err() || !is_root() {
        skip("mounting needs root and /dev/fuse");
        return;
    }
    let scratch = Scratch::new("scst-user");
    let run = |script: &str, program: &Path, directory: &Path| {
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "sh", "-c", AS_USER, "sh"]);
        shell.arg(program).arg(directory).arg(script).output()
    };
    // The user may not be able to look into the folder of the build.
    let copy = scratch.join("longshore");
    fs::copy(program(), &copy).unwrap();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let directory = scratch.join("user");
    fs::create_dir(&directory).unwrap();
    if !run("true", &copy, &directory).is_ok_and(|output| output.status.success()) {
        skip("ordinary users may not make namespaces here");
        return;
    }
    let output = run(SERVER_AND_SHELL, &copy, &directory).unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["65534", "0", "3.10.0", "disk1 null0"], "{output:?}");
}

#[test]
fn attributes_of_the_driver_are_settings_of_the_server() {
    let Some(scene) = Scene::start("scst-driver") else {
        return;
    };
    scene.make();
    let discover = |account: Option<(&str, &str)>| {
        let portal = scene.server().portal(0).to_string();
        let mut discover = Command::new(program());
        discover.args(["discover", &portal]);
        if let Some((user, secret)) = account {
            discover.env("LIBISCSI_CHAP_USERNAME", user);
            discover.env("LIBISCSI_CHAP_PASSWORD", secret);
        }
        discover.output().unwrap().status.success()
    };
    assert!(discover(None));
    let driver = "sys/targets/iscsi";
    let mgmt = format!("{driver}/mgmt");
    // The tools add them in any order; without the other, this one has no effect.
    scene.write(&mgmt, "add_attribute OutgoingUser us another12secret");
    let outgoing = format!("{driver}/OutgoingUser");
    assert_eq!(scene.read(&outgoing), "us another12secret\n[key]\n");
    assert!(discover(None));
    scene.write(&mgmt, "add_attribute IncomingUser joe 12charsecret");
    assert!(!discover(None) && discover(Some(("joe", "12charsecret"))));
    let account = scene.tree.join(driver).join("IncomingUser");
    let mode = fs::metadata(&account).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    scene.write(&mgmt, "del_attribute IncomingUser joe 12charsecret");
    assert!(discover(None));
    assert_eq!(scene.read(&outgoing), "us another12secret\n[key]\n");
    scene.write(&mgmt, "del_attribute OutgoingUser us");
    assert!(!scene.tree.join(&outgoing).exists());

    scene.write(&format!("{driver}/nagle_threshold"), "32\n");
    scene.write("proc/scsi_tgt/iscsi/nagle_margin", "5\n");
    scene.server().wait_for_log("transmit policy changed");
    assert_eq!(
        scene.read(&format!("{driver}/nagle_threshold")),
        "32\n[key]\n"
    );
    assert_eq!(
        scene.try_write(&format!("{driver}/nagle_margin"), "many"),
        Err(EINVAL)
    );
}

#[test]
fn a_thousand_logical_units_are_listed_and_found() {
    const UNITS: usize = 1000;
    if fs::File::open("/dev/fuse").is_err() || !is_root() {
        skip("mounting needs root and /dev/fuse");
        return;
    }
    let scratch = Scratch::new("scst-thousand");
    let volumes: String = (0..UNITS)
        .map(|number| {
            format!("[[volume]]\nname = \"d{number}\"\nbackend = \"null\"\nsize = \"1M\"\n")
        })
        .collect();
    let luns: Vec<String> = (0..UNITS)
        .map(|number| format!("{{ lun = {number}, volume = \"d{number}\" }}"))
        .collect();
    let luns = luns.join(", ");
    let config = format!("{volumes}[[target]]\nname = \"{TARGET}\"\nluns = [{luns}]\n");
    let tree = scratch.join("tree");
    let server = ServerBuilder::new()
        .iscsi()
        .config(&config)
        .argument("--scst-tree")
        .argument(&tree.display().to_string())
        .start()
        .unwrap();
    server.wait_for_log("SCST's trees are at");
    let scene = Scene {
        server: Some(server),
        tree,
        scratch,
    };
    // What scstadmin reads for a list of any kind.
    assert_eq!(scene.names("sys/devices").len(), UNITS);
    for map in [
        format!("sys/targets/iscsi/{TARGET}/luns"),
        "sys/targets/copy_manager/copy_manager_tgt/luns".to_owned(),
    ] {
        assert_eq!(scene.names(&map).len(), UNITS + 1, "with mgmt");
    }
    for number in 0..UNITS {
        let lun = format!("sys/targets/iscsi/{TARGET}/luns/{number}");
        let device = fs::read_link(scene.tree.join(format!("{lun}/device"))).unwrap();
        assert!(device.ends_with(format!("d{number}")), "{device:?}");
        assert_eq!(scene.read(&format!("{lun}/read_only")), "0\n");
        let device = format!("sys/devices/d{number}");
        assert_eq!(scene.read(&format!("{device}/size")), "1048576\n[key]\n");
        assert_eq!(scene.names(&format!("{device}/exported")), ["export0"]);
    }
}
